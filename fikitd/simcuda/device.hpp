// The simulated device: a pure event-driven core.
//
// Operations go in with the time at which they were submitted and what they depend on; advance_to()
// completes, in order of simulated time, all that is due. The core knows no clock and no threads:
// the driver (driver.hpp) calls it under its one mutex with the time of its clock, tests and replays
// call it with any time they like. An operation's times are those at which it was due, never those
// at which the host got round to it. Kernels are compute.hpp's, one Compute for each context:
// contexts take turns on the SMs (turns.hpp).
#pragma once

#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "compute.hpp"
#include "turns.hpp"

namespace fikit::sim {

// What FIKIT_SIM_FAULT asks for, counted from 1; 0 is never.
struct FaultPlan {
    std::uint64_t launch = 0;
    CUresult launch_result = CUDA_SUCCESS;
    std::uint64_t copy = 0;
    CUresult copy_result = CUDA_SUCCESS;  // CUDA_SUCCESS: the copy never ends
    std::uint64_t lost_after = 0;         // operations
};

struct DeviceOptions {
    FaultPlan faults;
    Nanoseconds timer_base = 0;  // what %globaltimer reads at time 0
    double interference = 0;     // see Compute
    Background background = {};  // see Compute
    Background apart = {};       // likewise for large copies and fills, which wait for no kernel there
};

class Device {
  public:
    explicit Device(GlobalMemory& memory, const DeviceOptions& options = {});

    // Submits an operation at `now`, the end of the call that did so. Time never goes back between calls of
    // advance_to and host_call_returned, and submit never lies before them.
    void submit(const OperationPtr& operation, const std::vector<Dependency>& after, Nanoseconds now);
    std::optional<Nanoseconds> next_event_time() const;
    void advance_to(Nanoseconds now);

    // Somebody else has the device's SMs from now on; copies go on.
    void suspend(Nanoseconds now);
    void resume(Nanoseconds now);
    // Whether there are kernels that run or wait for the SMs.
    bool computing() const;

    // Stream waits look at memory that the host may change at any time: while there are any, call
    // advance_to often.
    bool polls() const { return !waiting_values_.empty(); }
    // Host functions whose turn has come; the caller runs them and reports back.
    std::vector<OperationPtr> take_host_calls() { return std::exchange(host_calls_, {}); }
    void host_call_returned(const OperationPtr& operation, Nanoseconds now);
    // A decision whose consequences are done.
    void finish(const OperationPtr& decision, Nanoseconds now) { complete(decision, now); }
    bool has_host_calls() const { return !host_calls_.empty(); }
    // Whether an awaited operation completed, or a fault struck, since the last call.
    bool take_news() { return std::exchange(news_, false); }

    // The fault that ended this device's work; sticky.
    CUresult fault() const { return fault_; }
    void halt(CUresult fault);
    // Registers a partition (green context): blocks heed its border from now on.
    void add_partition(const SmSet& partition);
    void remove_partition(const SmSet& partition);
    std::uint64_t events_processed() const;

  private:
    enum class Step : std::uint8_t { begin, copy_end, write_end, move };
    struct Event {
        Nanoseconds time;
        std::uint64_t sequence;
        Step step;
        OperationPtr operation;
        bool operator>(const Event& other) const {
            return time != other.time ? time > other.time : sequence > other.sequence;
        }
    };
    struct Engine {
        std::queue<OperationPtr> queue;
        OperationPtr running;
    };

    void schedule(Nanoseconds time, Step step, OperationPtr operation);
    void process(const Event& event);
    void begin(const OperationPtr& operation, Nanoseconds time);
    void complete(const OperationPtr& operation, Nanoseconds time);
    void release(Operation::Dependent& dependent, Nanoseconds time);
    Compute& compute(unsigned context);
    void take_turns(Nanoseconds time);
    void collect(Compute& compute, Nanoseconds time);

    void start_copies(CopyEngine which, Nanoseconds time);
    Nanoseconds link_time(const Copy& copy) const;
    static double moved_bytes(const Operation& operation);
    void finish_copy(const OperationPtr& operation, Nanoseconds time);
    void end_copy(const OperationPtr& operation, Nanoseconds time, bool fine);
    bool perform(const Operation& operation, bool apart);
    bool perform(const Copy& copy, bool apart);
    bool perform(const Fill& fill, bool apart);
    bool perform(const WriteValue& write);
    bool satisfied(const WaitValue& wait);
    void poll(Nanoseconds time);

    GlobalMemory& memory_;
    DeviceOptions options_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    std::vector<std::unique_ptr<Compute>> computes_;  // by context
    std::vector<SmSet> partitions_;
    Turns turns_;
    std::optional<Nanoseconds> turn_due_;
    Nanoseconds turns_at_ = 0;  // when they were looked at last
    bool suspended_ = false;
    Engine engines_[3];
    std::vector<OperationPtr> waiting_values_;
    std::vector<OperationPtr> host_calls_;
    std::uint64_t sequence_ = 0;
    std::uint64_t launches_ = 0, copies_ = 0, operations_ = 0;
    std::uint64_t events_processed_ = 0;
    CUresult fault_ = CUDA_SUCCESS;
    bool news_ = false;
};

}  // namespace fikit::sim
