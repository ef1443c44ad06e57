// The kernels of one context on the SMs, and the device memory's bandwidth that they share.
//
// Blocks are given out strictly by priority, then in order of arrival: while a kernel has blocks to place,
// nothing behind it gets room on the SMs that it may use, and a block that runs is never preempted. Blocks
// that are placed together form a wave and end together, which is what makes a flood of equal blocks come
// free all at once.
//
// Bandwidth: every thread of a wave that still has bytes to move gets the same rate (by Little's law what a
// kernel draws from a full memory is its share of the requests in flight), at most what one thread can keep
// in flight. So one counter, the bytes served to each thread so far, tells every wave's end.
//
// A kernel whose code is long runs elsewhere (Background) if somebody offers that. What follows from it is
// then processed later than it was due, beside what happened meanwhile, and still with the times at which it
// was due.
//
// Pure in time. While suspended (another context has its turn) nothing here moves; all times inside are
// without the time spent suspended (`lag_`).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <vector>

#include "operation.hpp"

namespace fikit::sim {

// Calls `work` on another thread, which may take long, then `finish` as one calls everything here.
using Background = std::function<void(std::function<void()> work, std::function<void()> finish)>;

class Compute {
  public:
    // `interference`: the share of the bandwidth that is lost while several kernels move data; `background`:
    // null where all code runs in advance_to().
    Compute(GlobalMemory& memory, Nanoseconds timer_base, double interference,
            const Background* background = nullptr);
    ~Compute();
    Compute(const Compute&) = delete;
    Compute& operator=(const Compute&) = delete;

    void launch(OperationPtr operation, Nanoseconds now);
    // A copy or fill inside the device.
    void move(OperationPtr operation, double bytes, Nanoseconds now);

    std::optional<Nanoseconds> next_event_time() const;
    // Processes what is due by `now`; place() then gives out the blocks.
    void advance_to(Nanoseconds now);
    void place(Nanoseconds now);
    // What has ended since the last call.
    std::vector<OperationPtr>& ended() { return ended_; }

    void suspend(Nanoseconds now);
    void resume(Nanoseconds now);
    bool suspended() const { return suspended_at_.has_value(); }
    bool busy() const { return live_ > 0; }

    CUresult fault() const { return fault_; }
    // Drops everything.
    void clear();
    Machine& machine() { return machine_; }
    std::uint64_t events_processed() const { return events_processed_; }

    struct Kernel;

  private:
    enum class Step : std::uint8_t { start, run, ran, fault, wave_end, end };
    struct Event {
        Nanoseconds time;
        std::uint64_t sequence;
        Step step;
        Kernel* kernel;
        Wave* wave;
        bool operator>(const Event& other) const {
            return time != other.time ? time > other.time : sequence > other.sequence;
        }
    };
    struct Mover {
        double target;  // the value of served_ at which its bytes have moved
        std::uint64_t sequence;
        Wave* wave;
        bool operator>(const Mover& other) const {
            return target != other.target ? target > other.target : sequence > other.sequence;
        }
    };

    void schedule(Nanoseconds time, Step step, Kernel* kernel, Wave* wave = nullptr);
    void process(const Event& event);
    void run(Kernel& kernel, Nanoseconds time);
    void ran(Kernel& kernel, Nanoseconds time);
    void set_off(Wave& wave);
    void end_wave(Wave& wave, Nanoseconds time);
    void start_moving(Wave& wave, double bytes, Nanoseconds time);
    void settle(Nanoseconds time);
    double rate() const;
    Nanoseconds moved_at() const;
    void finish(Kernel& kernel);
    Kernel& make_kernel(OperationPtr operation);
    Wave& make_wave(Kernel& kernel, Nanoseconds time);
    Nanoseconds local(Nanoseconds now) const { return suspended_at_.value_or(now) - lag_; }

    GlobalMemory& memory_;
    Nanoseconds timer_base_;
    double interference_;
    const Background* background_;
    Machine machine_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    std::vector<Kernel*> waiting_;                  // with blocks to place, the most urgent first
    std::vector<std::unique_ptr<Kernel>> kernels_;  // live or spare
    std::vector<std::unique_ptr<Wave>> waves_;
    std::vector<Kernel*> spare_kernels_;
    std::vector<Wave*> spare_waves_;
    std::vector<OperationPtr> ended_;

    std::priority_queue<Mover, std::vector<Mover>, std::greater<>> movers_;
    double served_ = 0;  // bytes to each thread that moves data
    Nanoseconds served_at_ = 0;
    double drawing_ = 0;  // threads that move data
    unsigned moving_kernels_ = 0;

    std::optional<Nanoseconds> suspended_at_;
    Nanoseconds lag_ = 0;
    std::uint64_t sequence_ = 0, live_ = 0, events_processed_ = 0;
    CUresult fault_ = CUDA_SUCCESS;
    bool placing_due_ = false;
};

}  // namespace fikit::sim
