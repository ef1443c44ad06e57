// How time passes for the program: what its calls cost, and how it waits.
#include <thread>

#include "driver.hpp"
#include "graph.hpp"

namespace fikit::sim {

namespace {

// A sleep of the program's thread may overrun by its timer slack, which is not ours to change; so
// the end is spun.
constexpr std::chrono::microseconds spin_wall{50};
// Under the dilated clock a thread may run ahead of what its calls cost by so much. What it submits
// leaves at the right time all the same, and it need not spin on a machine that has few cores.
constexpr std::chrono::microseconds ahead_wall{200};
// And it is held no longer than this: what is only slow to set up (contexts, pinned memory) is so
// under the virtual clock, and tests stay short.
constexpr std::chrono::milliseconds longest_cost_wall{1};
// How often a waiting host looks at memory when no event is due.
constexpr std::chrono::microseconds look_wall{50};

void sleep_until(Clock::Wall::time_point end) {
    if (end - Clock::Wall::now() > spin_wall) std::this_thread::sleep_until(end - spin_wall);
    while (Clock::Wall::now() < end) std::this_thread::yield();
}

Call*& current_call() {
    thread_local Call* current = nullptr;
    return current;
}

// When the thread's last call is over; may lie ahead.
Nanoseconds& busy_until() {
    thread_local Nanoseconds end = 0;
    return end;
}

Nanoseconds cost_of(const Operation& operation) {
    if (std::holds_alternative<Launch>(operation.work))
        return model::call::launch + (operation.partition ? model::call::launch_partition : 0);
    if (std::holds_alternative<Copy>(operation.work) || std::holds_alternative<Fill>(operation.work))
        return model::call::copy;
    if (const auto* marker = std::get_if<Marker>(&operation.work))
        return marker->timed ? model::call::timed_record : model::call::record;
    return model::call::stream_memory;  // writes, waits and host functions
}

}  // namespace

Call::Call(const Clock& clock)
    : clock_(clock),
      before_(std::exchange(current_call(), this)),
      start_(std::max(clock.now(), busy_until())) {
    if (start_ - busy_until() > model::call::cold_after) cost = model::call::cold;
}

Call::~Call() {
    current_call() = before_;
    busy_until() = std::max(busy_until(), clock_.now());
}

void Driver::charge(Nanoseconds cost) {
    if (Call* call = current_call()) call->cost += cost;
}

void Driver::charge_for(const Operation& operation) { charge(cost_of(operation)); }

Nanoseconds Driver::submission_time() const {
    const Call* call = current_call();
    return call != nullptr ? std::max(clock.now(), call->end()) : clock.now();
}

void Driver::finish(Lock& lock, const Call& call) {
    busy_until() = call.end();
    if (call.end() <= clock.now()) return;
    if (clock.is_virtual()) {
        let_pass(lock, call.end());
        return;
    }
    const Clock::Wall::time_point now = Clock::Wall::now();
    const Clock::Wall::time_point end = clock.wall(call.end());
    if (end - now <= ahead_wall) return;
    lock.unlock();
    std::this_thread::sleep_until(std::min(end, now + longest_cost_wall));
    if (end - now > longest_cost_wall) busy_until() = clock.now();  // the rest is let off
}

void Driver::let_pass(Lock& lock, Nanoseconds until) {
    for (;;) {
        std::optional<Nanoseconds> next;
        for (const auto& device : devices) {
            const auto due = device->engine.next_event_time();
            if (due && (!next || *due < *next)) next = due;
        }
        const bool last = !next || *next >= until;
        clock.set(last ? until : *next);
        for (const auto& device : devices) advance(*device);
        // A host function takes no time of its own; so no time may pass while it runs.
        progress_.wait(lock, [&] {
            return std::all_of(devices.begin(), devices.end(),
                               [](const auto& device) { return device->calls.empty(); });
        });
        if (last) return;
    }
}

bool Driver::visible(const OperationPtr& operation) {
    charge(model::call::query);
    // Who asks sees it as soon as a word that the stream writes next; who sleeps is told later (visible_at).
    return !operation || (operation->done && operation->completed_at + model::write_landing <= clock.now());
}

CUresult Driver::wait(Lock& lock, SimulatedDevice& device, const OperationPtr& operation) {
    settle_graph_memory(*this);
    if (!operation) return sticky();
    // The call reaches the device only when what it costs has passed.
    if (clock.is_virtual()) let_pass(lock, submission_time());
    for (;;) {
        advance(device);
        if (const CUresult fault = sticky(); fault != CUDA_SUCCESS) return fault;
        if (operation->done) break;
        operation->awaited = true;
        if (!clock.is_virtual()) {
            progress_.wait(lock);
        } else if (const auto next = device.engine.next_event_time()) {
            let_pass(lock, *next);
        } else {
            progress_.wait_for(lock, look_wall);  // for what another thread or process writes
        }
    }
    const Nanoseconds seen = operation->visible_at;
    if (seen <= clock.now()) return CUDA_SUCCESS;
    if (clock.is_virtual()) {
        let_pass(lock, seen);
    } else {
        lock.unlock();
        sleep_until(clock.wall(seen));
        lock.lock();
    }
    return sticky();
}

CUresult Driver::synchronize(Lock& lock, Context& context) {
    std::vector<OperationPtr> tails = std::exchange(context.orphans, {});
    tails.push_back(context.legacy.tail);
    for (const Stream* stream : context.streams) tails.push_back(stream->tail);
    for (const auto& entry : context.per_thread) tails.push_back(entry.second->tail);
    for (const OperationPtr& tail : tails) {
        if (const CUresult result = wait(lock, device_of(context), tail); result != CUDA_SUCCESS)
            return result;
    }
    let_go_of_graph_memory();
    return sticky();
}

CUresult Driver::stand_still(Lock& lock) {
    ++holders_;
    for (const auto& device : devices) {
        for (;;) {
            advance(*device);
            const auto next = device->engine.next_event_time();
            const bool waiting = device->engine.polls();
            const bool busy = device->engine.computing() || device->kernels.count > 0;
            if (sticky() != CUDA_SUCCESS || (!busy && !waiting)) break;
            if (device->kernels.count > 0)
                progress_.wait(lock);
            else if (!next && waiting)
                progress_.wait_for(lock, look_wall);  // the host may write the value
            else if (!next)
                break;
            else if (clock.is_virtual())
                let_pass(lock, *next);
            else
                progress_.wait_until(lock, clock.wall(*next));
        }
    }
    --holders_;
    progress_.notify_all();
    return sticky();
}

void Driver::hold_launches(Nanoseconds cost) {
    charge(cost);
    held_until_ = std::max(held_until_, submission_time());
}

CUresult Driver::wait_for_room(Lock& lock, Stream& stream) {
    const std::shared_ptr<std::deque<OperationPtr>> launches = stream.launches;
    progress_.wait(lock, [&] { return holders_ == 0; });
    if (!clock.is_virtual() && clock.now() < held_until_)
        progress_.wait_until(lock, std::min(clock.wall(held_until_), Clock::Wall::now() + longest_cost_wall));
    for (;;) {
        while (!launches->empty() && launches->front()->done) launches->pop_front();
        if (launches->size() < model::queue_depth) return sticky();
        const OperationPtr first = launches->front();
        const CUresult result = wait(lock, device_of(*stream.context), first);
        if (result != CUDA_SUCCESS) return result;
    }
}

}  // namespace fikit::sim

extern "C" {

// For programs that measure under the virtual clock: what time it is, in nanoseconds since cuInit, and that
// the host works or sleeps for so long.
[[gnu::visibility("default")]] std::uint64_t fikitSimNow() {
    return static_cast<std::uint64_t>(fikit::sim::Driver::instance().clock.now());
}

[[gnu::visibility("default")]] void fikitSimHostTime(std::uint64_t nanoseconds) {
    using namespace fikit::sim;
    Driver& driver = Driver::instance();
    Driver::Lock lock(driver.mutex);
    const Nanoseconds end =
        std::max(driver.clock.now(), busy_until()) + static_cast<Nanoseconds>(nanoseconds);
    if (driver.clock.is_virtual()) {
        driver.let_pass(lock, end);
    } else {
        lock.unlock();
        sleep_until(driver.clock.wall(end));
    }
}

}  // extern "C"
