// Holds: a stream waits for what may never come, the return of a host function or a word in the tenant's
// memory. That may cost its own session what is behind it, and nobody else anything: the lane is the
// session's alone meanwhile, and what is behind the wait counts as being on the GPU only once the stream has
// gone through. Whoever in the session waits for something behind a hold holds its own lane likewise.
#include <algorithm>
#include <utility>

#include "core.hpp"

namespace fikit {
namespace {

constexpr Nanoseconds end_interval = 100'000;  // between two words that end waits: each is to be seen

}  // namespace

// A lane for a stream that waits: its session's alone from now on.
Lane* Core::hold(Session& session, SessionStream& stream, Lane* wished) {
    Lane* const lane = lanes_.to_hold(wished, session.index);
    if (std::find(stream.held.begin(), stream.held.end(), lane) != stream.held.end()) return lane;
    clear_lane(session, lane);
    stream.held.push_back(lane);
    lane->hold(session.index);
    return lane;
}

// Before what the stream is to wait for.
void Core::begin_hold(Session& session, SessionStream& stream) {
    Lane* const lane = hold(session, stream, stream.lane);
    if (lane != stream.lane && stream.issued > stream.completed) hop(lane, stream);
    stream.lane = lane;
}

// Behind it. Only the word that this writes tells that the stream has gone through: until then the words and
// the inbox must stay.
CUresult Core::end_hold(Session& session, SessionStream& stream, uint32_t handle) {
    stream.holding = true;
    const CUdeviceptr gate = session.host_gate_device + handle * sizeof(HostGate);
    return driver_.cuStreamWriteValue64_(stream.lane->stream, gate + offsetof(HostGate, passed),
                                         ++stream.holds, CU_STREAM_WRITE_VALUE_DEFAULT);
}

// Has a stream not gone through a hold yet?
bool Core::holds_up(const Session& session, uint32_t handle, uint64_t hold) const {
    return hold != 0 && __atomic_load_n(&session.host_gate[handle].passed, __ATOMIC_ACQUIRE) < hold;
}

// The other sessions' streams leave a lane, in order behind what they have issued there.
void Core::clear_lane(const Session& session, const Lane* lane) {
    for (const auto& other : sessions_) {
        if (other.get() == &session) continue;
        for (const uint32_t handle : other->used) {
            SessionStream& stream = *other->streams[handle];
            for (Lane*& borrowed : stream.lanes)
                if (borrowed == lane) Lanes::give_back(borrowed);
            if (stream.lane != lane) continue;
            write_mark(*other, stream, handle);  // nobody could later
            if (const CUresult result = record_hop(stream); result != CUDA_SUCCESS)
                return fail(result, "ordering two streams");
            stream.lane = nullptr;
            stream.left = true;
        }
    }
}

// The tenant says how many of a stream's host functions have returned; the streams say what they have gone
// through.
bool Core::release_holds(Session& session) {
    bool progress = false;
    const bool over = session.state != Session::State::running;
    const auto* done = reinterpret_cast<const uint64_t*>(session.outbox.data() + FIKIT_HOST_DONE_OFFSET);
    for (const uint32_t handle : session.active) {
        SessionStream& stream = *session.streams[handle];
        if (!stream.holding) continue;
        const uint64_t returned = over ? stream.functions : __atomic_load_n(done + handle, __ATOMIC_ACQUIRE);
        const uint64_t upto = std::min(returned, stream.functions);
        HostGate& gate = session.host_gate[handle];
        if (upto > gate.open) {
            __atomic_store_n(&gate.open, upto, __ATOMIC_RELEASE);
            progress = true;
        }
        const uint64_t passed = __atomic_load_n(&gate.passed, __ATOMIC_ACQUIRE);
        std::erase_if(stream.waits, [&](const ValueWait& wait) { return wait.hold <= passed; });
        if (passed < stream.holds) continue;
        stream.holding = false;
        stream.functions = 0;
        held_steps_ -= std::exchange(stream.held_steps, 0);
        stream.queue.each([&](InFlight& entry) {
            if (entry.held) enter_late(session, entry, now_);
        });
        for (Lane* lane : stream.held) --lane->held;
        stream.held.clear();
        progress = true;
    }
    if (over) end_wait(session);
    return progress;
}

// The session is over: its memory is nobody's, and the words that its streams wait for are written, one at a
// time and again until all have gone through. Two streams may wait for different values of one word.
void Core::end_wait(Session& session) {
    if (now_ - session.waits_ended < end_interval) return;
    session.waits_ended = now_;
    for (size_t turn = 0; turn < session.active.size(); ++turn) {
        SessionStream& stream = *session.streams[session.active[turn]];
        if (stream.waits.empty()) continue;
        CUstreamBatchMemOpParams write = stream.waits.front().end;
        if (const CUresult result = driver_.cuStreamBatchMemOp_(monitor_, 1, &write, 0);
            result != CUDA_SUCCESS)
            return fail(result, "ending a wait");
        // The next one first, and another stream's before that.
        std::rotate(stream.waits.begin(), stream.waits.begin() + 1, stream.waits.end());
        std::rotate(session.active.begin(), session.active.begin() + static_cast<std::ptrdiff_t>(turn) + 1,
                    session.active.end());
        return;
    }
}

}  // namespace fikit
