// The driver's own threads: each device has one for its events, one for host functions, some for kernels.
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "driver.hpp"

namespace fikit::sim {

namespace {

// A driver's threads take no signals of the program. False: the process may have no more threads.
template <typename Body>
bool start_thread(Body body) {
    sigset_t all, before;
    sigfillset(&all);
    // Faults come whether blocked or not, and blocked they end the process in spite of the program's handler.
    for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = true;
    try {
        std::thread(body).detach();
    } catch (const std::system_error&) {
        started = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
}

// While a stream wait is pending: how often to look, in wall time at least.
constexpr std::chrono::microseconds poll_wall{50};

// Kernels whose code is long run beside each other, as far as there are cores.
unsigned most_kernel_threads() { return std::clamp(std::thread::hardware_concurrency(), 2U, 16U); }

}  // namespace

void Driver::start(SimulatedDevice& device) {
    // Each once, however often a program tries. One for kernels is among them: whatever waits gets its turn.
    const bool in_time = !clock.is_virtual();
    const std::pair<void (Driver::*)(SimulatedDevice&), bool> threads[] = {
        {&Driver::run_device, in_time},
        {&Driver::run_calls, true},
        {&Driver::run_turns, device.shared && !settings.mps},
        {&Driver::run_kernels, in_time}};
    for (; device.started < std::size(threads); ++device.started) {
        const auto [body, needed] = threads[device.started];
        if (needed && !start_thread([this, &device, run = body] { (this->*run)(device); }))
            throw std::runtime_error("no thread for a device");
    }
}

// Sleeps until the next event is due, for ever when there is none.
void Driver::run_device(SimulatedDevice& device) {
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
    constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max();
    Lock lock(mutex);
    for (;;) {
        advance(device);
        const auto next = next_due(device);
        device.sleeps_until = next.value_or(never);
        device.polling = device.engine.polls();
        if (device.polling) {
            const auto soon =
                std::max(Clock::Wall::now() + poll_wall, clock.wall(clock.now() + model::wait_poll));
            device.due.wait_until(lock, next ? std::min(soon, clock.wall(*next)) : soon);
        } else if (next) {
            device.due.wait_until(lock, clock.wall(*next));
        } else {
            device.due.wait(lock);
        }
        device.sleeps_until = 0;
    }
}

// Looks when another process took or gave up a turn.
void Driver::run_turns(SimulatedDevice& device) {
    for (;;) {
        device.shared->wait_for_change();
        const Lock lock(mutex);
        advance(device);
    }
}

void Driver::run_in_background(SimulatedDevice& device, SimulatedDevice::Kernel kernel) {
    auto& kernels = device.kernels;
    kernels.waiting.push_back(std::move(kernel));
    ++kernels.count;
    if (kernels.waiting.size() > kernels.idle && kernels.threads < most_kernel_threads() &&
        start_thread([this, &device] { run_kernels(device); }))
        ++kernels.threads;
    kernels.due.notify_one();
}

void Driver::run_kernels(SimulatedDevice& device) {
    Lock lock(mutex);
    auto& kernels = device.kernels;
    for (;;) {
        ++kernels.idle;
        kernels.due.wait(lock, [&] { return !kernels.waiting.empty(); });
        --kernels.idle;
        const SimulatedDevice::Kernel kernel = std::move(kernels.waiting.front());
        kernels.waiting.pop_front();
        run(device, lock, kernel);
    }
}

void Driver::run_apart(SimulatedDevice& device, SimulatedDevice::Kernel other) {
    ++device.kernels.count;
    const bool started = start_thread([this, &device, other] {
        Lock lock(mutex);
        run(device, lock, other);
    });
    if (started) return;
    --device.kernels.count;
    run_in_background(device, std::move(other));
}

void Driver::run(SimulatedDevice& device, Lock& lock, const SimulatedDevice::Kernel& kernel) {
    lock.unlock();
    {
        const auto held = space.in_use();
        kernel.work();
    }
    lock.lock();
    --device.kernels.count;
    kernel.finish();
    advance(device);
    progress_.notify_all();
}

// Runs cuLaunchHostFunc's functions, one after the other, without the lock.
void Driver::run_calls(SimulatedDevice& device) {
    within_host_function() = true;
    Lock lock(mutex);
    for (;;) {
        device.calls_due.wait(lock, [&] { return !device.calls.empty(); });
        const OperationPtr call = device.calls.front();
        const auto function = std::move(std::get<HostCall>(call->work).function);
        lock.unlock();
        function();
        lock.lock();
        advance(device);
        device.engine.host_call_returned(call, clock.now());
        advance(device);
        device.calls.pop_front();
        if (clock.is_virtual()) progress_.notify_all();
    }
}

}  // namespace fikit::sim
