// The simulated device: a pure event-driven core.
//
// Operations go in with the time at which they were submitted and what they depend on; advance_to()
// completes, in order of simulated time, all that is due. The core knows no clock and no threads:
// the driver (driver.hpp) calls it under its one mutex with the time of a real, dilated clock,
// tests call it with any time they like. An operation's times are those at which it was due, never
// those at which the host got round to it.
//
// A stream is a chain of dependencies, so the core needs no notion of one: an operation carries its
// priority and the SMs it may use. Blocks are given out strictly by priority: while a kernel has
// blocks to place, nothing behind it gets room on the SMs that it may use, and a block that runs is
// never preempted.
#pragma once

#include <cuda.h>

#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "machine.hpp"
#include "ptx/execution.hpp"

namespace fikit::sim {

class Device;
struct Operation;
using OperationPtr = std::shared_ptr<Operation>;

// A stretch of memory of a copy or a fill: rows of `width` bytes, `pitch` apart.
struct Place {
    std::uint64_t address = 0;
    std::size_t pitch = 0;
    bool host = false;  // plain host memory that the device does not know (pageable)
};

struct Launch {
    const ptx::Kernel* kernel = nullptr;
    const std::vector<std::uint64_t>* variables = nullptr;
    std::shared_ptr<void> owner;  // keeps the two above alive
    std::vector<std::byte> parameters;
    LaunchShape shape;
    BlockShape block;
};
enum class CopyEngine : std::uint8_t { to_device, to_host, on_device };
struct Copy {
    Place destination, source;
    std::size_t width = 0, height = 1;
    CopyEngine engine = CopyEngine::on_device;
    bool pageable = false;
    std::vector<std::byte> staged;  // the source, where it was pageable
};
struct Fill {
    Place destination;
    std::size_t width = 0, height = 1;  // elements
    std::uint32_t value = 0;
    unsigned element = 1;  // bytes
};
struct WriteValue {
    std::uint64_t address = 0, value = 0;
    bool wide = false;
};
struct WaitValue {
    std::uint64_t address = 0, value = 0;
    bool wide = false;
    unsigned condition = 0;  // CU_STREAM_WAIT_VALUE_*
};
struct HostCall {
    std::function<void()> function;
};
struct Marker {};  // event records, waits and joins

struct Operation {
    std::variant<Marker, Launch, Copy, Fill, WriteValue, WaitValue, HostCall> work;
    int priority = 0;
    std::shared_ptr<const SmSet> partition;  // null: the whole device

    bool done = false;
    Nanoseconds completed_at = 0;
    bool awaited = false;  // a host thread waits for it

  private:
    friend class Device;
    Device* device = nullptr;  // an event orders streams of several devices
    struct Dependent {
        OperationPtr operation;
        Nanoseconds delay;
    };
    std::uint64_t sequence = 0;
    Nanoseconds ready_at = 0;
    unsigned unfinished = 0;
    std::vector<Dependent> dependents;
    // A kernel that runs.
    std::unique_ptr<Execution> execution;
    std::uint64_t blocks_pending = 0;
    std::uint64_t blocks_running = 0;
    Nanoseconds started_at = 0;
    std::optional<Nanoseconds> block_duration;
    std::vector<std::shared_ptr<Wave>> waves;  // placed before the duration was known
};

struct Dependency {
    OperationPtr operation;
    bool other_stream = false;
};

// What FIKIT_SIM_FAULT asks for, counted from 1; 0 is never.
struct FaultPlan {
    std::uint64_t launch = 0;
    CUresult launch_result = CUDA_SUCCESS;
    std::uint64_t copy = 0;
    CUresult copy_result = CUDA_SUCCESS;  // CUDA_SUCCESS: the copy never ends
    std::uint64_t lost_after = 0;         // operations
};

class Device {
  public:
    Device(GlobalMemory& memory, const FaultPlan& faults, Nanoseconds timer_base)
        : memory_(memory), faults_(faults), timer_base_(timer_base) {}

    // `now` never goes back between calls of submit, advance_to and host_call_returned.
    void submit(const OperationPtr& operation, const std::vector<Dependency>& after, Nanoseconds now);
    std::optional<Nanoseconds> next_event_time() const;
    void advance_to(Nanoseconds now);

    // Stream waits look at memory that the host may change at any time: while there are any, call
    // advance_to often.
    bool polls() const { return !waiting_values_.empty(); }
    // Host functions whose turn has come; the caller runs them and reports back.
    std::vector<OperationPtr> take_host_calls() { return std::exchange(host_calls_, {}); }
    void host_call_returned(const OperationPtr& operation, Nanoseconds now);
    bool has_host_calls() const { return !host_calls_.empty(); }
    // Whether an awaited operation completed, or a fault struck, since the last call.
    bool take_news() { return std::exchange(news_, false); }

    // The fault that ended this device's work; sticky.
    CUresult fault() const { return fault_; }
    void halt(CUresult fault);
    Machine& machine() { return machine_; }
    std::uint64_t events_processed() const { return events_processed_; }

  private:
    enum class Step : std::uint8_t { begin, resume, wave_end, kernel_end, copy_end };
    struct Event {
        Nanoseconds time;
        std::uint64_t sequence;
        Step step;
        OperationPtr operation;
        std::shared_ptr<Wave> wave;
        bool operator>(const Event& other) const {
            return time != other.time ? time > other.time : sequence > other.sequence;
        }
    };
    struct KernelOrder {
        bool operator()(const OperationPtr& left, const OperationPtr& right) const;
    };
    struct Engine {
        std::queue<OperationPtr> queue;
        OperationPtr running;
    };

    void schedule(Nanoseconds time, Step step, OperationPtr operation, std::shared_ptr<Wave> wave = nullptr);
    void process(const Event& event);
    void begin(const OperationPtr& operation, Nanoseconds time);
    void complete(const OperationPtr& operation, Nanoseconds time);
    void release(Operation& operation, Nanoseconds time);

    void place_blocks(Nanoseconds time);
    void resume(const OperationPtr& operation, Nanoseconds time);
    void end_wave(const OperationPtr& operation, const std::shared_ptr<Wave>& wave, Nanoseconds time);

    void start_copies(CopyEngine which, Nanoseconds time);
    Nanoseconds copy_time(const Operation& operation, CopyEngine which) const;
    void finish_copy(const OperationPtr& operation, Nanoseconds time);
    bool perform(const Copy& copy);
    bool perform(const Fill& fill);
    bool perform(const WriteValue& write);
    bool satisfied(const WaitValue& wait);
    void poll(Nanoseconds time);

    GlobalMemory& memory_;
    FaultPlan faults_;
    Nanoseconds timer_base_;
    Machine machine_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    std::set<OperationPtr, KernelOrder> kernels_;  // those with blocks to place
    Engine engines_[3];
    std::vector<OperationPtr> waiting_values_;
    std::vector<OperationPtr> host_calls_;
    std::uint64_t sequence_ = 0;
    std::uint64_t launches_ = 0, copies_ = 0, operations_ = 0;
    std::uint64_t events_processed_ = 0;
    CUresult fault_ = CUDA_SUCCESS;
    bool placing_due_ = false;
    bool news_ = false;
};

}  // namespace fikit::sim
