// Calls at the head of their session: what each has to wait for (an idle GPU, or memory, or addresses, on
// their way back), and how it gets to a worker.
#include <calls.h>

#include <algorithm>
#include <utility>

#include "array_shape.hpp"
#include "core.hpp"

namespace fikit {
namespace {

// What a call takes of the session's memory, at most; 0: nothing.
uint64_t bytes_wanted(const Session& session) {
    const Operation& operation = *session.head;
    const uint32_t call = operation.as<fikit_call_record>().call;
    if (call == fikit_call_memory_allocate)
        return operation.request<fikit_request_memory_allocate>().size + Arena::granule;
    if (call == fikit_call_memory_create) return operation.request<fikit_request_memory_create>().size;
    if (call == fikit_call_module_load)
        return session.compiled != nullptr ? session.compiled->variable_bytes : 0;
    if (call != fikit_call_array_create) return 0;
    const auto shape = operation.request<fikit_request_array_create>().shape;
    return is_possible(shape) ? memory_bytes(shape) : 0;
}

struct Range {
    uint64_t first = 0, bytes = 0;
    bool meets(const SharedMemory& memory) const {
        const auto begin = reinterpret_cast<uintptr_t>(memory.data());
        return begin < first + bytes && first < begin + memory.size();
    }
};

// What a call is to pin, and at which address, if that is not ours to choose. No bytes: nothing.
Range pinned_by(const Operation& operation) {
    const uint32_t call = operation.as<fikit_call_record>().call;
    if (call == fikit_call_host_register) {
        const auto request = operation.request<fikit_request_host_register>();
        return {request.own, request.size};
    }
    if (call == fikit_call_host_allocate) return {0, operation.request<fikit_request_host_allocate>().size};
    return {};
}

}  // namespace

// Code reaches the GPU only while no kernel runs: the driver waits for that, and holds every launch of the
// process up meanwhile (57 ms behind a 60 ms kernel, measured on the H200). So gated work is held back until
// what is in flight has ended, though not for ever, and while the code is loaded. What has been in flight
// since the load was wanted may never end: until then the driver would load nothing, and let nobody launch.
bool Core::may_load(Session& session) {
    constexpr Nanoseconds patience = 100'000'000;
    // Not waits_since: who asks for memory before, each time, sets that anew.
    if (!std::exchange(session.waits_to_load, true)) session.call_since = now_;
    const bool patient = now_ - session.call_since < patience;
    if (in_flight_ > 0 && (patient || oldest_in_flight().since <= session.call_since)) {
        hold_gate_ |= patient;
        return false;
    }
    session.waits_to_load = false;
    return true;
}

// Pinned memory and code on their way back: what a program registers anew lies where the executor still has
// it from before; and there is not to be ever more of them, beside a session's limit either.
bool Core::may_bring_more(Session& session) {
    const Range wanted = pinned_by(*session.head);
    const uint64_t limit = settings_.host_limit_bytes;
    const bool loads = session.head->as<fikit_call_record>().call == fikit_call_module_load;
    const bool begins = loads && session.compiled == nullptr;
    if ((wanted.bytes == 0 && !begins) || wanted.bytes > limit) return true;
    const bool fits = session.host_bytes <= limit - wanted.bytes;
    const auto frees_wanted = [&] {
        const auto& frees = session.host_frees;
        return frees.size() > IdleJobs::most || (!fits && !frees.empty()) ||
               std::any_of(frees.begin(), frees.end(),
                           [&](const auto& pending) { return wanted.meets(pending.what.memory); });
    };
    const bool returning =
        idle_jobs_.have_much() || idle_jobs_.has(wanted.first, wanted.bytes, now_) || frees_wanted();
    if (session.waits_since == 0) session.waits_since = now_;
    const bool nothing_can = returning && oldest_in_flight().since <= now_ - IdleJobs::held;
    if (nothing_can) session.waits_since = now_;
    if (returning && now_ - session.waits_since < IdleJobs::patience) return false;
    session.waits_since = 0;
    return true;
}

// What is on its way back counts against the quota until it is back. As behind cuMemFree, an allocation that
// would exceed the quota waits for that, though not for ever (it may be behind an endless kernel). One for
// which the device had no room also waits until nobody keeps any.
bool Core::may_allocate(Session& session) {
    constexpr Nanoseconds patience = 1'000'000'000;
    const uint64_t wanted = bytes_wanted(session);
    if (wanted == 0) return true;
    const uint64_t limit = memory_limit_of(session);
    memory_wanted_ |= session.short_of_memory;
    const bool fits =
        !session.short_of_memory && (limit == 0 || session.memory_bytes.load() + wanted <= limit);
    const bool returning =
        memory_going_.load() > 0 || std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& other) {
            return other->state != Session::State::running || other->freeing.load() ||
                   !other->frees.empty() || (session.short_of_memory && other->kept_bytes.load() > 0);
        });
    if (session.waits_since == 0) session.waits_since = now_;
    if (!fits && returning && now_ - session.waits_since < patience) return false;
    session.waits_since = 0;
    return true;
}

// An allocation from what the session has mapped already. False: it takes a worker and the driver.
bool Core::allocate_at_once(Session& session) {
    const std::unique_lock lock(memory_mutex_, std::try_to_lock);
    if (!lock.owns_lock() || session.short_of_memory || !answer_call(session, true)) return false;
    session.head_ready = false;
    return true;
}

// A worker could not answer the call yet: it is at the head again.
bool Core::resume_call(Session& session) {
    if (!session.call_again.load(std::memory_order_acquire)) return false;
    session.call_again.store(false);
    session.call_pending.store(false);
    session.head_ready = true;
    return true;
}

// What was sent before the call that is to be answered. False: there is more to read than a turn has time
// for, since a tenant can send without end.
bool Core::take_offered(Session& session) {
    int looks = 16;
    while (!session.arrived && --looks >= 0 && receive(session) > 0) {
    }
    if (looks < 0) return false;
    session.offered = std::exchange(session.arrived, {});
    return true;
}

// Hands the call at the session's head to a worker. False: it has to wait first.
bool Core::start_call(Session& session) {
    if (session.worker_busy.load(std::memory_order_acquire)) return false;
    const auto& call = session.head->as<fikit_call_record>();
    const bool allocates = call.call == fikit_call_memory_allocate;
    // What was freed before the call is back, as far as nothing in flight uses it.
    release_frees(session);
    if (!may_allocate(session) || !may_bring_more(session)) return false;
    if (allocates && allocate_at_once(session)) return true;
    // The session's work in flight may use an array.
    const bool destroys = call.call == fikit_call_array_destroy;
    if (destroys && session.in_flight > 0) return false;
    const bool links = call.call == fikit_call_link_add || call.call == fikit_call_link_complete;
    const bool compiles = links || (call.call == fikit_call_module_load && session.compiled == nullptr);
    const bool loads = (call.call == fikit_call_module_load && !compiles) || destroys;
    const bool brings_file =
        compiles || call.call == fikit_call_graph_create || call.call == fikit_call_host_register;
    if (loads && !may_load(session)) return false;
    if (loads) loading_.fetch_add(1);
    if (brings_file && !take_offered(session)) return true;
    session.worker_busy.store(true, std::memory_order_release);
    session.call_pending.store(true, std::memory_order_release);
    if (!loads) session.call_since = compiles ? 0 : now_;
    session.head_ready = false;  // the head is the worker's until the call is answered
    const auto work = [this, &session, loads, allocates] {
        bool answered = false;
        {
            std::unique_lock lock(memory_mutex_, std::defer_lock);
            if (allocates) lock.lock();
            answered = answer_call(session, false);
        }
        if (loads) loading_.fetch_sub(1);
        if (answered)
            session.call_pending.store(false, std::memory_order_release);
        else
            session.call_again.store(true, std::memory_order_release);
        session.worker_busy.store(false, std::memory_order_release);
        kick();
    };
    (compiles ? compilers_ : workers_).post(work, session.level);
    return true;
}

}  // namespace fikit
