// The simulated driver's state: one per process, one mutex for all of it.
//
// Objects are found by their handles in registries, so a stale or invented handle is an error code
// and no crash. Contexts are never freed: a destroyed one must still be told from an unknown one.
// The whole is leaked at exit, as the driver must outlive every other library's destructors. A
// sticky fault poisons the process: every context, every later call (as on the H200).
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>

#include "clock.hpp"
#include "cuda_interface.hpp"
#include "device.hpp"
#include "memory.hpp"
#include "settings.hpp"

namespace fikit::sim {

struct Context;

struct Stream {
    enum class Kind : std::uint8_t { ordinary, legacy, per_thread };
    Context* context = nullptr;
    Kind kind = Kind::ordinary;
    unsigned flags = 0;
    int priority = 0;
    std::uint64_t id = 0;
    CUgreenCtx green = nullptr;
    std::shared_ptr<const SmSet> partition;
    OperationPtr tail;  // the last operation submitted
    // Launches in its hardware queue that may not be done yet.
    std::shared_ptr<std::deque<OperationPtr>> launches = std::make_shared<std::deque<OperationPtr>>();
    bool blocking() const { return kind != Kind::legacy && (flags & CU_STREAM_NON_BLOCKING) == 0; }
};

struct Event {
    Context* context = nullptr;
    unsigned flags = 0;
    OperationPtr record;
    bool timing() const { return (flags & CU_EVENT_DISABLE_TIMING) == 0; }
};

struct Image;
struct Function {
    Image* image = nullptr;
    const ptx::Kernel* kernel = nullptr;
    unsigned dynamic_shared_limit = 0;
    int shared_carveout = -1;
    int cache_config = 0;
    std::array<int, 3> required_cluster{0, 0, 0};
    int nonportable_cluster = 0;
};

// A loaded module or library: the two differ in how they are named, not in what they hold.
struct Image : std::enable_shared_from_this<Image> {
    ptx::Module module;
    Context* context = nullptr;  // null: a library
    int device = -1;             // where the variables live; a library gets them when first used
    std::vector<std::uint64_t> variables;
    std::map<std::string, std::unique_ptr<Function>> functions;
};

struct GreenContext {
    int device = 0;
    Context* context = nullptr;
    std::shared_ptr<const SmSet> partition;
    std::set<Stream*> streams;
};

struct Context {
    int device = 0;
    unsigned flags = 0;
    unsigned api_version = 3020;
    std::uint64_t id = 0;
    std::optional<unsigned> turn;  // its number in Operation::context, once it has work; see Turns
    bool alive = true;
    bool primary = false;
    unsigned retained = 0;
    Context* owner = nullptr;  // of a green context: the primary context whose memory and modules it shares
    GreenContext* green = nullptr;
    Stream legacy;
    std::map<std::thread::id, std::unique_ptr<Stream>> per_thread;
    std::set<Stream*> streams;
    std::vector<OperationPtr> orphans;  // the last operations of streams destroyed before they were done
    std::map<CUlimit, std::size_t> limits;
    CUsharedconfig shared_config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
    CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;
};

// A stretch of memory that a pointer can belong to.
struct Block {
    enum class Kind : std::uint8_t { device, host_allocated, host_registered, mapped };
    Kind kind = Kind::device;
    std::uint64_t address = 0;
    std::size_t bytes = 0;
    Context* context = nullptr;
    int device = 0;
    unsigned flags = 0;
    std::uint64_t id = 0;
    void* allocation = nullptr;  // mapped: the physical allocation
    bool synchronous = false;    // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
    bool host() const { return kind == Kind::host_allocated || kind == Kind::host_registered; }
};

// cuMemCreate
struct PhysicalAllocation {
    CUmemAllocationProp properties{};
    std::size_t bytes = 0;
    std::vector<Extent> extents;  // device memory
    std::byte* host = nullptr;    // host memory
    unsigned references = 1;      // handles and mappings
};

struct SimulatedDevice {
    SimulatedDevice(int ordinal, const Settings& settings, AddressSpace& space, Nanoseconds timer_base);
    int ordinal;
    PhysicalMemory physical;
    DeviceHeap heap;
    Device engine;
    Context* primary = nullptr;
    unsigned primary_flags = 0;
    std::condition_variable due;   // wakes the device thread
    Nanoseconds sleeps_until = 0;  // 0: it is awake
    bool polling = false;          // it looks at stream waits by itself
    std::condition_variable calls_due;
    std::deque<OperationPtr> calls;  // host functions to run; the first runs
    bool started = false;
    std::vector<bool> turns;  // which numbers of Context::turn are taken
    unsigned take_turn();
};

template <typename T, typename Handle>
class Registry {
  public:
    T* find(Handle handle) const {
        const auto found = objects_.find(reinterpret_cast<const void*>(handle));
        return found == objects_.end() ? nullptr : found->second.get();
    }
    Handle add(std::shared_ptr<T> object) {
        const auto handle = reinterpret_cast<Handle>(object.get());
        objects_.emplace(object.get(), std::move(object));
        return handle;
    }
    // The object lives on where somebody else shares it.
    void remove(const T* object) { objects_.erase(object); }
    template <typename Visit>
    void remove_if(Visit visit) {
        std::erase_if(objects_, [&](const auto& entry) { return visit(*entry.second); });
    }
    template <typename Visit>
    void each(Visit visit) {
        for (auto& entry : objects_) visit(*entry.second);
    }

  private:
    std::unordered_map<const void*, std::shared_ptr<T>> objects_;
};

// A call that the program makes: how long the real driver would keep its caller.
class Call {
  public:
    explicit Call(const Clock& clock);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    Nanoseconds end() const { return start_ + cost; }
    Nanoseconds cost = 0;

  private:
    const Clock& clock_;
    Call* before_;
    Nanoseconds start_;
};

class Driver {
  public:
    static Driver& instance();

    using Lock = std::unique_lock<std::mutex>;
    std::mutex mutex;
    bool initialised = false;
    Settings settings;
    Clock clock;
    AddressSpace space;
    std::vector<std::unique_ptr<SimulatedDevice>> devices;

    Registry<Context, CUcontext> contexts;
    Registry<Stream, CUstream> streams;
    Registry<Event, CUevent> events;
    Registry<Image, CUmodule> images;
    Registry<Function, CUfunction> functions;
    Registry<GreenContext, CUgreenCtx> greens;
    Registry<PhysicalAllocation, CUmemGenericAllocationHandle> allocations;
    std::map<std::uint64_t, Block> blocks;
    std::map<std::uint64_t, std::size_t> reservations;
    std::uint64_t next_id = 1;

    CUresult initialise();
    CUresult sticky() const;
    Context* make_context(int device);
    void destroy_context(Context& context);
    void release_image(Image& image);

    // Brings a device up to now.
    void advance(SimulatedDevice& device);
    // Adds an operation to a stream, in CUDA's implicit order.
    void enqueue(Stream& stream, const OperationPtr& operation, const OperationPtr& also_after = nullptr,
                 std::optional<int> priority = std::nullopt);
    // Adds an operation behind all of a context's work, blocking streams or not.
    void join(Context& context, const OperationPtr& operation);
    // Waits until the operation is done and its notice has reached the host.
    CUresult wait(Lock& lock, SimulatedDevice& device, const OperationPtr& operation);
    bool visible(const OperationPtr& operation);
    CUresult synchronize(Lock& lock, Context& context);
    // Waits until no kernel runs, while the launches of all threads stand still (loading code does so).
    CUresult stand_still(Lock& lock);
    // A call that costs so much, during which launches stand still.
    void hold_launches(Nanoseconds cost);
    // Waits until a launch finds room in the stream's hardware queue, and no other call holds launches.
    CUresult wait_for_room(Lock& lock, Stream& stream);

    // Adds to what the program's call costs it; the call takes at least that long.
    void charge(Nanoseconds cost);
    void charge_for(const Operation& operation);
    void finish(Lock& lock, const Call& call);
    // Under the virtual clock: lets time pass, and all that is due happen.
    void let_pass(Lock& lock, Nanoseconds until);
    void start(SimulatedDevice& device);

    SimulatedDevice& device_of(const Context& context) {
        return *devices[static_cast<std::size_t>(context.device)];
    }
    const Block* block_of(std::uint64_t address) const;

  private:
    void run_device(SimulatedDevice& device);
    void run_calls(SimulatedDevice& device);
    std::vector<Dependency> order(Stream& stream);
    // When what the current call submits leaves the host.
    Nanoseconds submission_time() const;
    void wake();

    std::condition_variable progress_;
    unsigned holders_ = 0;        // calls that stand still for running kernels
    Nanoseconds held_until_ = 0;  // by calls that hold launches for what they cost
};

// The contexts of the calling thread, the current one last.
std::vector<Context*>& context_stack();
// Set while a _ptsz or _ptds variant runs: stream 0 is then the thread's own.
struct PerThreadDefault {
    PerThreadDefault() { ++depth(); }
    ~PerThreadDefault() { --depth(); }
    static int& depth();
};

// Places the variables of a library on the device that first uses it.
CUresult place_image(Driver& driver, Image& image, int device);
CUresult current_context(Driver& driver, Context*& context);
// The context whose memory, modules and streams count: a green context's primary one.
CUresult resolve_stream(Driver& driver, Context& current, CUstream handle, Stream*& stream);

// What every entry point is wrapped in: the lock, the exceptions' border, and what must hold before
// a call.
template <typename Body>
CUresult with_driver(Body body) noexcept {
    try {
        Driver& driver = Driver::instance();
        Driver::Lock lock(driver.mutex);
        if (!driver.initialised) return CUDA_ERROR_NOT_INITIALIZED;
        Call call(driver.clock);
        const CUresult result = body(driver, lock);
        driver.finish(lock, call);
        return result;
    } catch (const std::bad_alloc&) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    } catch (const std::exception&) {
        return CUDA_ERROR_UNKNOWN;
    }
}

template <typename Body>
CUresult with_context(Body body) noexcept {
    return with_driver([&](Driver& driver, Driver::Lock& lock) -> CUresult {
        Context* context = nullptr;
        if (const CUresult result = current_context(driver, context); result != CUDA_SUCCESS) return result;
        SimulatedDevice& device = driver.device_of(*context);
        driver.advance(device);
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        return body(driver, lock, *context, device);
    });
}

template <typename Body>
CUresult with_stream(CUstream handle, Body body) noexcept {
    return with_context([&](Driver& driver, Driver::Lock& lock, Context& context,
                            SimulatedDevice&) -> CUresult {
        Stream* stream = nullptr;
        if (const CUresult result = resolve_stream(driver, context, handle, stream); result != CUDA_SUCCESS) {
            return result;
        }
        return body(driver, lock, *stream, driver.device_of(*stream->context));
    });
}

}  // namespace fikit::sim
