// Clusters: blocks that begin together, see each other's shared memory and have a barrier of their own; see
// engine.hpp.
#include <tuple>

#include "ptx/engine.hpp"

namespace fikit::sim {

std::uint64_t KernelRun::in_order(std::uint64_t index) const {
    if (cluster_blocks() == 1) return index;
    const auto& [grid, size] = std::tie(shape.grid, shape.cluster);
    std::uint64_t inside = index % cluster_blocks();
    std::uint64_t cluster = index / cluster_blocks();
    std::uint64_t at[3];
    for (unsigned axis = 0; axis < 3; ++axis) {
        const std::uint64_t clusters = grid[axis] / size[axis];
        at[axis] = cluster % clusters * size[axis] + inside % size[axis];
        cluster /= clusters;
        inside /= size[axis];
    }
    return at[0] + grid[0] * (at[1] + std::uint64_t{grid[1]} * at[2]);
}

std::shared_ptr<ptx::Cluster> KernelRun::cluster_of(const std::array<std::uint32_t, 3>& position) {
    const auto& [grid, size] = std::tie(shape.grid, shape.cluster);
    const std::uint64_t number =
        position[0] / size[0] +
        std::uint64_t{grid[0] / size[0]} *
            (position[1] / size[1] + std::uint64_t{grid[1] / size[1]} * (position[2] / size[2]));
    std::weak_ptr<ptx::Cluster>& known = clusters_[number];
    std::shared_ptr<ptx::Cluster> cluster = known.lock();
    if (cluster == nullptr) {
        cluster = std::make_shared<ptx::Cluster>();
        cluster->blocks.resize(cluster_blocks());
        cluster->threads = std::uint64_t{cluster_blocks()} * shape.threads();
        known = cluster;
    }
    return cluster;
}

namespace ptx {

std::uint32_t BlockRun::cluster_rank() const {
    const auto& size = launch.shape.cluster;
    return position[0] % size[0] + size[0] * (position[1] % size[1] + size[1] * (position[2] % size[2]));
}

// The shared memory of the block with that rank in the cluster; null where there is none.
std::vector<std::byte>* BlockRun::shared_of(std::uint64_t rank) {
    if (!cluster_) return rank == 0 ? &shared_ : nullptr;
    if (rank >= cluster_->blocks.size() || cluster_->blocks[rank] == nullptr) return nullptr;
    return &cluster_->blocks[rank]->shared_;
}

void BlockRun::arrive_in_cluster(Warp& warp, Mask mask) {
    if (!cluster_) return;
    warp.arrived_in = (warp.arrived_in & ~mask) | (cluster_->phase ? mask : 0);
    cluster_->arrived += static_cast<unsigned>(std::popcount(mask));
    cluster_->settle();
}

void BlockRun::leave_cluster(Mask mask) {
    if (!cluster_) return;
    cluster_->threads -= static_cast<unsigned>(std::popcount(mask));
    if (cluster_->arrived > 0) cluster_->settle();
}

// Whether the phase in which these lanes arrived lasts.
bool BlockRun::waits_for_cluster(const Warp& warp, Mask mask) const {
    if (!cluster_) return false;
    const Mask now = cluster_->phase ? all_lanes : 0;
    return ((warp.arrived_in ^ now) & mask) != mask;
}

}  // namespace ptx

}  // namespace fikit::sim
