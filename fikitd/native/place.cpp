// Which lane a stream's next step goes to, and what orders it behind the steps before.
#include <utility>

#include "core.hpp"

namespace fikit {

int Core::cuda_priority(const Session& session, const SessionStream& stream) const {
    // Two most urgent CUDA priorities for level 0, the rest spread over levels 1 to 9; a stream the program
    // itself made urgent ranks one step before its default ones.
    const int greatest = greatest_priority_;
    const int urgent = stream.priority < 0 ? 1 : 0;
    if (session.level == scheduling::highest_level) return greatest + 1 - urgent;
    const int range = -(greatest + 2);
    if (range <= 0) return 0;
    const int base = greatest + 2 + (session.level - 1) * range / (scheduling::lowest_level - 1);
    return std::max(base - urgent, greatest + 2);
}

// The lane for the stream's next step: one where nothing is in flight, if there is one, as kernels in flight
// may wait for what the stream brings. So gated work may be less urgent than its session; that of level 0
// keeps to its own lanes. Steps of a stream stay in order when it changes lanes.
Lane* Core::place(Session& session, SessionStream& stream, uint32_t handle, uint8_t where) {
    Lane*& lane = stream.lanes[where];
    if (!std::exchange(stream.used, true)) session.used.push_back(handle);
    const int wanted = cuda_priority(session, stream), high = greatest_priority_ + 1;
    if (lane == nullptr || lane->busy > 0 || (where == whole_gpu && lane->cuda_priority != wanted)) {
        const uint32_t size = where == whole_gpu ? 0 : settings_.bounds.partitions[where - 1u];
        lane = lanes_.choose(wanted, wanted <= high ? high : 0, size);
    }
    if (stream.active) {
        wait_for(lane->stream, stream);
        --stream.lane->busy;
        ++lane->busy;
    } else {
        stream.charged_upto = now_;
    }
    stream.lane = lane;
    stream.where = where;
    return lane;
}

// The lane `waiting` goes on once what `earlier` has been issued so far is done.
void Core::wait_for(CUstream waiting, SessionStream& earlier) {
    if (earlier.lane == nullptr || earlier.lane->stream == waiting) return;
    CUresult result = CUDA_SUCCESS;
    if (earlier.hop == nullptr) result = driver_.cuEventCreate_(&earlier.hop, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = driver_.cuEventRecord_(earlier.hop, earlier.lane->stream);
    if (result == CUDA_SUCCESS) result = driver_.cuStreamWaitEvent_(waiting, earlier.hop, 0);
    // Going on without the order would corrupt the tenant's data; nothing but a lost context fails here.
    if (result != CUDA_SUCCESS) fail(result, "ordering two streams");
}

}  // namespace fikit
