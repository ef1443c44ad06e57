// What a stream holds: launches, copies, fills, stream memory operations, host calls, markers.
//
// A stream is a chain of dependencies, so nothing here knows of one: an operation carries its priority, the
// SMs it may use and its context.
#pragma once

#include <cuda.h>

#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "cost.hpp"
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
    const ptx::Kernel* kernel = nullptr;  // null: a timed kernel, whose blocks cost `cost` and touch nothing
    const std::vector<std::uint64_t>* variables = nullptr;
    std::shared_ptr<void> owner;      // keeps the two above alive
    GlobalMemory* reached = nullptr;  // what it sees of memory; null: all that there is
    std::vector<std::byte> parameters;
    LaunchShape shape;
    BlockShape block;
    BlockCost cost;
    unsigned cluster = 1;     // blocks that are placed together or not at all
    bool graph_node = false;  // starts sooner than a launch of its own
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
    unsigned condition = 0;         // CU_STREAM_WAIT_VALUE_*
    std::shared_ptr<void> owner{};  // keeps what lies there alive
};
struct HostCall {
    std::function<void()> function;
};
// Goes on where a program's own values say: `decide` submits what comes next. True: the operation is done;
// false: Device::finish() will say so.
struct Decision {
    std::function<bool(const OperationPtr& self, Nanoseconds now)> decide;
};
struct Marker {          // event records, waits and joins
    bool timed = false;  // takes the time, once what is before it has left the caches
};

struct Operation {
    std::variant<Marker, Launch, Copy, Fill, WriteValue, WaitValue, HostCall, Decision> work;
    int priority = 0;                        // a lower number is more urgent
    unsigned context = 0;                    // contexts of one device take turns
    std::shared_ptr<const SmSet> partition;  // null: the whole device

    bool done = false;
    Nanoseconds completed_at = 0;
    Nanoseconds visible_at = 0;  // to a host that waits for it
    bool awaited = false;        // a host thread waits for it

  private:
    friend class Device;
    struct Dependent {
        OperationPtr operation;
        Nanoseconds delay = 0;
    };
    Device* device = nullptr;  // an event orders streams of several devices
    Nanoseconds ready_at = 0;
    unsigned unfinished = 0;
    Dependent successor;  // of most operations the only one
    std::vector<Dependent> dependents;
};

struct Dependency {
    OperationPtr operation;
    bool other_stream = false;
};

}  // namespace fikit::sim
