// Special registers: what they read, and where they may stand.
#include "model.hpp"
#include "ptx/engine.hpp"
#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

enum class Special : std::uint32_t {
    thread_x,
    thread_y,
    thread_z,
    threads_x,
    threads_y,
    threads_z,
    block_x,
    block_y,
    block_z,
    blocks_x,
    blocks_y,
    blocks_z,
    lane,
    warp,
    warps,
    sm,
    sms,
    grid,
    lane_eq,
    lane_lt,
    lane_le,
    lane_gt,
    lane_ge,
    clock,
    clock_high,
    clock64,
    timer,
    timer_low,
    timer_high,
    dynamic_shared,
    total_shared,
    workspace_low,
    workspace_high,
    zero,
    scratch,
    cluster_x,
    cluster_y,
    cluster_z,
    clusters_x,
    clusters_y,
    clusters_z,
    in_cluster_x,
    in_cluster_y,
    in_cluster_z,
    cluster_size_x,
    cluster_size_y,
    cluster_size_z,
    cluster_rank,
    cluster_size,
    explicit_cluster,
};

struct Named {
    std::string_view name;
    Special special;
};

constexpr Named specials[] = {
    {"%tid.x", Special::thread_x},
    {"%tid.y", Special::thread_y},
    {"%tid.z", Special::thread_z},
    {"%tid", Special::thread_x},
    {"%ntid.x", Special::threads_x},
    {"%ntid.y", Special::threads_y},
    {"%ntid.z", Special::threads_z},
    {"%ctaid.x", Special::block_x},
    {"%ctaid.y", Special::block_y},
    {"%ctaid.z", Special::block_z},
    {"%nctaid.x", Special::blocks_x},
    {"%nctaid.y", Special::blocks_y},
    {"%nctaid.z", Special::blocks_z},
    {"%laneid", Special::lane},
    {"%warpid", Special::warp},
    {"%nwarpid", Special::warps},
    {"%smid", Special::sm},
    {"%nsmid", Special::sms},
    {"%gridid", Special::grid},
    {"%lanemask_eq", Special::lane_eq},
    {"%lanemask_lt", Special::lane_lt},
    {"%lanemask_le", Special::lane_le},
    {"%lanemask_gt", Special::lane_gt},
    {"%lanemask_ge", Special::lane_ge},
    {"%clock", Special::clock},
    {"%clock_hi", Special::clock_high},
    {"%clock64", Special::clock64},
    {"%globaltimer", Special::timer},
    {"%globaltimer_lo", Special::timer_low},
    {"%globaltimer_hi", Special::timer_high},
    {"%dynamic_smem_size", Special::dynamic_shared},
    {"%total_smem_size", Special::total_shared},
    {"%aggr_smem_size", Special::total_shared},
    {"%envreg1", Special::workspace_low},
    {"%envreg2", Special::workspace_high},
    {"%reserved_smem_offset_begin", Special::zero},
    {"%reserved_smem_offset_cap", Special::zero},
    {"%reserved_smem_offset_1", Special::scratch},
    {"%clusterid.x", Special::cluster_x},
    {"%clusterid.y", Special::cluster_y},
    {"%clusterid.z", Special::cluster_z},
    {"%nclusterid.x", Special::clusters_x},
    {"%nclusterid.y", Special::clusters_y},
    {"%nclusterid.z", Special::clusters_z},
    {"%cluster_ctaid.x", Special::in_cluster_x},
    {"%cluster_ctaid.y", Special::in_cluster_y},
    {"%cluster_ctaid.z", Special::in_cluster_z},
    {"%cluster_nctaid.x", Special::cluster_size_x},
    {"%cluster_nctaid.y", Special::cluster_size_y},
    {"%cluster_nctaid.z", Special::cluster_size_z},
    {"%cluster_ctarank", Special::cluster_rank},
    {"%cluster_nctarank", Special::cluster_size},
    {"%is_explicit_cluster", Special::explicit_cluster},
};

u64 uniform_value(const Context& context, Special special) {
    const BlockRun& block = *context.block;
    const LaunchShape& shape = block.launch.shape;
    const auto number = static_cast<u32>(special);
    const auto axis = [&](Special first) { return number - static_cast<u32>(first); };
    switch (special) {
        case Special::threads_x:
        case Special::threads_y:
        case Special::threads_z:
            return shape.block[axis(Special::threads_x)];
        case Special::block_x:
        case Special::block_y:
        case Special::block_z:
            return block.position[axis(Special::block_x)];
        case Special::blocks_x:
        case Special::blocks_y:
        case Special::blocks_z:
            return shape.grid[axis(Special::blocks_x)];
        case Special::warp:
            return context.warp->index;
        case Special::warps:
            return model::threads_per_sm / model::warp_size;
        case Special::sm:
            return block.sm;
        case Special::sms:
            return model::sm_count;
        case Special::grid:
            return block.launch.grid_id;
        case Special::clock:
            return block.clock_cycles() & 0xffffffff;
        case Special::clock_high:
            return block.clock_cycles() >> 32;
        case Special::clock64:
            return block.clock_cycles();
        case Special::timer:
            return static_cast<u64>(block.launch.timer_base + block.clock());
        case Special::timer_low:
            return static_cast<u64>(block.launch.timer_base + block.clock()) & 0xffffffff;
        case Special::timer_high:
            return static_cast<u64>(block.launch.timer_base + block.clock()) >> 32;
        case Special::dynamic_shared:
            return shape.dynamic_shared;
        case Special::total_shared:
            return block.shared_bytes() - shared_start;
        // The address of a cooperative launch's workspace, its upper half in the first of the two.
        case Special::workspace_low:
            return shape.cooperative ? window::workspace >> 32 : 0;
        case Special::workspace_high:
        case Special::zero:
            return 0;
        case Special::scratch:
            return shared_scratch;
        case Special::cluster_x:
        case Special::cluster_y:
        case Special::cluster_z:
            return block.position[axis(Special::cluster_x)] / shape.cluster[axis(Special::cluster_x)];
        case Special::clusters_x:
        case Special::clusters_y:
        case Special::clusters_z:
            return shape.grid[axis(Special::clusters_x)] / shape.cluster[axis(Special::clusters_x)];
        case Special::in_cluster_x:
        case Special::in_cluster_y:
        case Special::in_cluster_z:
            return block.position[axis(Special::in_cluster_x)] % shape.cluster[axis(Special::in_cluster_x)];
        case Special::cluster_size_x:
        case Special::cluster_size_y:
        case Special::cluster_size_z:
            return shape.cluster[axis(Special::cluster_size_x)];
        case Special::cluster_rank:
            return block.cluster_rank();
        case Special::cluster_size:
            return std::uint64_t{shape.cluster[0]} * shape.cluster[1] * shape.cluster[2];
        case Special::explicit_cluster:
            return shape.cluster != std::array<std::uint32_t, 3>{1, 1, 1};
        default:
            return 0;
    }
}

u64 lane_value(Special special, unsigned lane) {
    const Mask bit = Mask{1} << lane;
    switch (special) {
        case Special::lane_eq:
            return bit;
        case Special::lane_lt:
            return bit - 1;
        case Special::lane_le:
            return (bit - 1) | bit;
        case Special::lane_gt:
            return ~((bit - 1) | bit);
        case Special::lane_ge:
            return ~(bit - 1);
        default:
            return lane;
    }
}

template <typename T>
void special_register(Context& context, const Op& op, Mask mask) {
    const auto special = static_cast<Special>(op.extra);
    T* d = context.at<T>(op.d);
    if (op.a != no_place) {
        const u32* a = context.at<u32>(op.a);
        each_lane(mask, [&](unsigned lane) { d[lane] = static_cast<T>(a[lane]); });
        return;
    }
    if (special == Special::lane || (special >= Special::lane_eq && special <= Special::lane_ge)) {
        each_lane(mask, [&](unsigned lane) { d[lane] = static_cast<T>(lane_value(special, lane)); });
        return;
    }
    const auto value = static_cast<T>(uniform_value(context, special));
    each_lane(mask, [&](unsigned lane) { d[lane] = value; });
}

// The thread's index belongs to the entry function's frame: the outermost.
template <typename T>
void outer_thread_index(Context& context, const Op& op, Mask mask) {
    const Frame* frame = context.frame;
    while (frame->caller != nullptr) frame = frame->caller;
    const u32* a = reinterpret_cast<const u32*>(frame->registers + frame->function->thread_index[op.extra]);
    T* d = context.at<T>(op.d);
    each_lane(mask, [&](unsigned lane) { d[lane] = static_cast<T>(a[lane]); });
}

[[noreturn]] void undeclared(const Lowering& lowering, std::string_view name) {
    fail(lowering.instruction().line,
         quoted(name) + " is not declared, or not supported by the simulated driver");
}

}  // namespace

void read_special(Lowering& lowering, std::string_view name, Place place, unsigned bytes) {
    if (bytes != 2 && bytes != 4 && bytes != 8) lowering.refuse();
    for (const Named& named : specials) {
        if (named.name != name) continue;
        const Special special = named.special;
        const bool either = special == Special::grid;  // of 32 bits before PTX 3.0
        const bool wide = special == Special::clock64 || special == Special::timer;
        if (!either && wide != (bytes == 8)) lowering.mismatch();
        const auto axis = static_cast<std::uint32_t>(special);
        Op& op = lowering.prepare(by_bytes(bytes, [&](auto zero) -> Handler {
            using T = decltype(zero);
            if (axis < 3 && !lowering.function().entry) return &outer_thread_index<T>;
            return &special_register<T>;
        }));
        op.d = place;
        op.extra = axis;
        if (axis < 3 && lowering.function().entry) op.a = lowering.function().thread_index[axis];
        return;
    }
    if (name.substr(0, 7) == "%envreg" || name.substr(0, 3) == "%pm" || name == "%current_graph_exec") {
        Op& op = lowering.prepare(
            by_bytes(bytes, [](auto zero) { return Handler{&special_register<decltype(zero)>}; }));
        op.d = place;
        op.extra = static_cast<std::uint32_t>(Special::zero);
        return;
    }
    undeclared(lowering, name);
}

void misplaced_special(Lowering& lowering, std::string_view name) {
    for (const Named& named : specials) {
        if (named.name != name) continue;
        fail(lowering.instruction().line,
             "Special register argument not allowed for instruction " + quoted(lowering.instruction().name));
    }
    undeclared(lowering, name);
}

}  // namespace fikit::sim::ptx
