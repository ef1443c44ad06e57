// Which lane a stream's next step goes to, and what orders it behind the steps before.
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

// The lane for the stream's next step. Steps of a stream stay in order when it changes lanes.
Lane* Core::place(Session& session, SessionStream& stream, uint32_t handle, uint8_t where) {
    Lane*& borrowed = stream.lanes[where];
    if (stream.lane == nullptr && !stream.left) session.used.push_back(handle);
    if (borrowed == nullptr) {
        const uint32_t size = where == whole_gpu ? 0 : settings_.bounds.partitions[where - 1u];
        borrowed = lanes_.borrow(cuda_priority(session, stream), size, session.index);
    }
    Lane* const lane = stream.holding ? hold(session, stream, borrowed) : borrowed;
    if ((stream.left || (stream.lane != nullptr && stream.lane != lane)) && stream.issued > stream.completed)
        hop(lane, stream);
    stream.left = false;
    stream.lane = lane;
    return lane;
}

// The stream goes on once what another of the session's has been issued so far is done.
void Core::wait_for(Session& session, SessionStream& stream, uint32_t handle, SessionStream& earlier) {
    const bool held = earlier.holding;
    if (held) begin_hold(session, stream);
    hop(stream.lane, earlier);
    // Going on without the order would corrupt the tenant's data; nothing but a lost context fails here.
    if (held)
        if (const CUresult result = end_hold(session, stream, handle); result != CUDA_SUCCESS)
            fail(result, "ordering two streams");
}

// What comes on the lane is in order behind what `earlier` has been issued so far.
void Core::hop(Lane* lane, SessionStream& earlier) {
    CUresult result = CUDA_SUCCESS;
    if (!earlier.left) {
        if (earlier.lane == nullptr || earlier.lane == lane) return;
        result = record_hop(earlier);
    }
    if (result == CUDA_SUCCESS) result = driver_.cuStreamWaitEvent_(lane->stream, earlier.hop, 0);
    if (result != CUDA_SUCCESS) fail(result, "ordering two streams");
}

CUresult Core::record_hop(SessionStream& stream) {
    CUresult result = CUDA_SUCCESS;
    if (stream.hop == nullptr) result = driver_.cuEventCreate_(&stream.hop, CU_EVENT_DISABLE_TIMING);
    return result == CUDA_SUCCESS ? driver_.cuEventRecord_(stream.hop, stream.lane->stream) : result;
}

}  // namespace fikit
