// Calls that have to wait at the head of their session: for an idle GPU, or for memory, or addresses, on
// their way back.
#include <calls.h>

#include <algorithm>
#include <cstring>

#include "array_shape.hpp"
#include "core.hpp"

namespace fikit {
namespace {

constexpr Nanoseconds load_patience = 100'000'000;

// What a call takes of the session's memory, at most; 0: nothing.
uint64_t bytes_wanted(const Operation& operation) {
    const uint32_t call = operation.as<fikit_call_record>().call;
    if (call == fikit_call_memory_allocate) {
        fikit_request_memory_allocate request;
        std::memcpy(&request, operation.payload(), sizeof request);
        return request.size + Arena::granule;
    }
    fikit_request_array_create request;
    if (call != fikit_call_array_create) return 0;
    std::memcpy(&request, operation.payload(), sizeof request);
    return is_possible(request.shape) ? memory_bytes(request.shape) : 0;
}

}  // namespace

// Code reaches the GPU only while no kernel runs: the driver waits for that, and holds every launch of the
// process up meanwhile (57 ms behind a 60 ms kernel, measured on the H200). So gated work is held back until
// what is in flight has ended, though not for ever, and while the code is loaded.
bool Core::may_load(Session& session) {
    if (session.waits_since == 0) session.waits_since = now_;
    if (in_flight_ > 0 && now_ - session.waits_since < load_patience) {
        hold_gate_ = true;
        return false;
    }
    session.waits_since = 0;
    return true;
}

// What a program registers anew lies where the executor has it from before until it is unregistered, which is
// put off (complete.cpp). So that is next, and gated work is held back for it as for code.
bool Core::may_register(Session& session) {
    fikit_request_host_register request;
    std::memcpy(&request, session.head->payload(), sizeof request);
    const auto meets = [&](uint64_t first, uint64_t bytes) {
        return first < request.own + request.size && request.own < first + bytes;
    };
    bool in_the_way =
        idle_running_.load(std::memory_order_acquire) && meets(idle_job_.first, idle_job_.bytes);
    for (const PendingFree& pending : session.frees) {
        const SharedMemory& memory = pending.host.memory;
        in_the_way |= meets(reinterpret_cast<uintptr_t>(memory.data()), memory.size());
    }
    {
        const std::lock_guard lock(idle_mutex_);
        const auto first = idle_jobs_.begin(), end = idle_jobs_.end();
        const auto job =
            std::find_if(first, end, [&](const IdleJob& each) { return meets(each.first, each.bytes); });
        if (job != end) std::rotate(first, job, job + 1);
        in_the_way |= job != end;
    }
    if (!in_the_way) {
        session.waits_since = 0;
        return true;
    }
    if (session.waits_since == 0) session.waits_since = now_;
    if (now_ - session.waits_since < load_patience)
        hold_gate_ = true;
    else
        idle_due_.store(now_);
    return false;
}

// What is on its way back counts against the quota until it is back. As behind cuMemFree, an allocation that
// would exceed the quota waits for that, though not for ever (it may be behind an endless kernel). One for
// which the device had no room also waits until nobody keeps any.
bool Core::may_allocate(Session& session) {
    constexpr Nanoseconds patience = 1'000'000'000;
    const uint64_t wanted = bytes_wanted(*session.head);
    if (wanted == 0) return true;
    const uint64_t limit = memory_limit_of(session);
    memory_wanted_ |= session.short_of_memory;
    const bool fits =
        !session.short_of_memory && (limit == 0 || session.memory_bytes.load() + wanted <= limit);
    const bool returning =
        arrays_going_.load() > 0 || std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& other) {
            return other->state != Session::State::running || other->freeing.load() ||
                   !other->frees.empty() || (session.short_of_memory && other->kept_bytes.load() > 0);
        });
    if (session.waits_since == 0) session.waits_since = now_;
    if (!fits && returning && now_ - session.waits_since < patience) return false;
    session.waits_since = 0;
    return true;
}

}  // namespace fikit
