// Plays a workload: the same operations again and again, each enqueued in its time, then waited for.
//
// A plan is text, written by bench/plans.py; times are device microseconds from the start of an iteration:
//
//   image PATH                  PTX or cubin that has the functions; once
//   function NAME SHARED        and how much dynamic shared memory it may be launched with; numbered from 0
//   buffer BYTES                device memory, zeroed; numbered from 0
//   pause US                    what the host does between two iterations
//   launch AT FUNCTION GX GY GZ BX BY BZ SHARED PARAMETERS VALUE...    a value is a number, or @BUFFER
//   fill AT BUFFER BYTES        zeroes
//   copy AT on_device|to_device|to_host BUFFER BUFFER BYTES    to and from; pinned memory is the host's side
//
// The pacing is here, once, so that whatever a GPU stands behind it, the host does the same.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fikit::bench {

struct Operation {
    enum class Kind : uint8_t { launch, fill, on_device, to_device, to_host };
    Kind kind = Kind::launch;
    int64_t at_ns = 0;
    uint32_t function = 0;
    uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
    uint32_t shared_bytes = 0;
    std::vector<uint64_t> parameters;
    uint64_t to = 0, from = 0, bytes = 0;
};

// Whatever executes the operations. All but `synchronize` only enqueue. A failure ends the program.
class Gpu {
  public:
    virtual ~Gpu() = default;
    virtual void load(const std::string& image) = 0;
    virtual uint32_t function(const std::string& name, int shared_bytes) = 0;
    virtual uint64_t allocate(uint64_t bytes) = 0;
    virtual void* allocate_pinned(uint64_t bytes) = 0;
    virtual void enqueue(const Operation& operation) = 0;
    virtual void synchronize() = 0;
};

// A stream of its own on libcuda; all of one process share the device's primary context. `urgent`: the stream
// has the greatest priority that there is, else the least.
std::unique_ptr<Gpu> on_driver(const std::string& library, int ordinal, bool urgent);
// A session of fikit, by inherited descriptors.
std::unique_ptr<Gpu> in_session(int outbox, int inbox, int lifeline);
// None: the host's work alone.
std::unique_ptr<Gpu> nowhere();

[[noreturn]] void give_up(const std::string& what, int status);

struct Step {
    int64_t begin_ns, end_ns;  // on the monotonic clock
};

class Player {
  public:
    // `scale`: host seconds per device second.
    Player(const std::string& plan, double scale, std::unique_ptr<Gpu> gpu);
    // Until `stop` is set. What is left of an iteration then is still played.
    std::vector<Step> play(const std::atomic<bool>& stop);
    void step();

  private:
    void read(const std::string& plan);
    int64_t scaled(double us) const { return static_cast<int64_t>(us * 1e3 * scale_); }
    void wait_until(int64_t host_ns) const;

    double scale_;
    std::unique_ptr<Gpu> gpu_;
    std::vector<uint64_t> buffers_;
    std::vector<uint32_t> functions_;
    std::vector<Operation> operations_;
    int64_t pause_ns_ = 0;
    void* pinned_ = nullptr;
};

}  // namespace fikit::bench
