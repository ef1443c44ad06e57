// The simulated driver's state: one per process, one mutex for all of it.
//
// Contexts are never freed: a destroyed one must still be told from an unknown one.
// The whole is leaked at exit, as the driver must outlive every other library's destructors. A
// sticky fault poisons the process: every context, every later call (as on the H200).
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <thread>

#include "clock.hpp"
#include "cubin.hpp"
#include "cuda_interface.hpp"
#include "graph_memory_use.hpp"
#include "memory.hpp"
#include "objects.hpp"
#include "pinned_chunks.hpp"
#include "settings.hpp"
#include "uncancelled.hpp"

namespace fikit::sim {

class JitOptions;
struct LoadedImage;

CUuuid uuid_of(unsigned index);

struct SimulatedDevice {
    SimulatedDevice(int ordinal, unsigned index, const Settings& settings, AddressSpace& space,
                    Nanoseconds timer_base, std::unique_ptr<SharedDevice> shared);
    int ordinal;
    unsigned index;                        // in the machine: CUDA_VISIBLE_DEVICES may show others in front
    std::unique_ptr<SharedDevice> shared;  // null: no other process has this device
    PhysicalMemory physical;
    DeviceHeap heap;
    KernelSpace reached;
    Device engine;
    Context* primary = nullptr;
    unsigned primary_flags = 0;
    std::condition_variable due;   // wakes the device thread
    Nanoseconds sleeps_until = 0;  // 0: it is awake
    bool polling = false;          // it looks at stream waits by itself
    std::condition_variable calls_due;
    std::deque<OperationPtr> calls;  // host functions to run; the first runs
    struct Kernel {                  // see Background
        std::function<void()> work, finish;
    };
    struct {
        std::deque<Kernel> waiting;  // for a thread
        unsigned count = 0;          // those that run, too
        unsigned threads = 1, idle = 0;
        std::condition_variable due;
    } kernels;
    Background background(const Settings& settings);
    Background apart(const Settings& settings);
    std::size_t started = 0;  // of its threads
    // As of the last look at the other processes' turns.
    struct {
        bool ours = false, computing = false;
        Nanoseconds since = 0;
        std::optional<Nanoseconds> look_again;
    } turn;
    std::vector<bool> turns;  // which numbers of Context::turn are taken
    unsigned take_turn();
    MemoryPool* preset_pool = nullptr;  // made when first asked for
    MemoryPool* pool = nullptr;         // of allocations that name none
    GraphMemoryUse graph_memory;
};

// What a texture or surface object was made of.
struct TextureObject {
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC manner;
    CUDA_RESOURCE_VIEW_DESC view{};
    bool surface;
};

// One that is destroyed: kernels launched before may read it still.
struct RetiredTexture {
    OperationPtr after;
    CUtexObject handle;
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
    std::atomic<bool> ended = false;  // by exit(): handlers run that were there before cuInit
    std::atomic<bool> forked =
        false;  // this is a child of the process that called cuInit: nothing of it works
    Settings settings;
    Clock clock;
    AddressSpace space;
    std::vector<std::unique_ptr<SimulatedDevice>> devices;

    Registry<Context, CUcontext> contexts;
    Registry<Stream, CUstream> streams;
    Registry<Event, CUevent> events;
    Registry<Image, CUmodule> images;
    Registry<Function, CUfunction> functions;
    Registry<Library, CUlibrary> libraries;
    Registry<LibraryKernel, CUkernel> library_kernels;
    Registry<GreenContext, CUgreenCtx> greens;
    Registry<PhysicalAllocation, CUmemGenericAllocationHandle> allocations;
    Registry<Graph, CUgraph> graphs;
    Registry<GraphNode, CUgraphNode> nodes;
    Registry<GraphExec, CUgraphExec> graph_execs;
    Registry<UserObject, CUuserObject> user_objects;
    Registry<MemoryPool, CUmemoryPool> pools;
    Registry<Array, CUarray> arrays;  // levels of mipmaps, too
    Registry<MipmappedArray, CUmipmappedArray> mipmaps;
    Registry<LinkState, CUlinkState> links;
    std::map<std::uint64_t, Block> blocks;
    PinnedChunks pinned_chunks;
    std::map<CUtexObject, TextureObject> textures;  // and surfaces
    std::deque<RetiredTexture> retired_textures;
    std::vector<std::shared_ptr<MemoryPool>> retired_pools;  // destroyed, with allocations left
    std::vector<std::shared_ptr<Image>> retired_images;      // unloaded, with launches that are not over
    std::map<std::uint64_t, std::size_t> reservations;
    std::uint64_t next_id = 1;

    CUresult initialise();
    CUresult sticky() const;
    // For each allocation: the failure that FIKIT_SIM_FAULT orders for it.
    CUresult allocation_fault() {
        return ++allocations_made_ == settings.failing_allocation ? settings.allocation_result : CUDA_SUCCESS;
    }
    Context* make_context(int device);
    void destroy_context(Context& context);
    void release_variables(Image& image);
    void release_managed(Code& code);
    void release_image(Image& image);
    void release_library(Library& library);

    // Brings a device up to now.
    void advance(SimulatedDevice& device);
    // Adds an operation to a stream, in CUDA's implicit order.
    void enqueue(Stream& stream, const OperationPtr& operation, const OperationPtr& also_after = nullptr,
                 std::optional<int> priority = std::nullopt);
    // Gives the device an operation of a stream, after others than the stream's last. `at`: when, where the
    // device itself goes on and no call does.
    void submit(Stream& stream, const OperationPtr& operation, const std::vector<Dependency>& after,
                int priority, std::optional<Nanoseconds> at = std::nullopt);
    // Of a stream that ends, what was submitted runs on, as operations need no stream; the legacy stream and
    // whoever synchronises the context go on waiting for it.
    void retire(Stream& stream);
    // Adds an operation behind all of a context's work, blocking streams or not.
    void join(Context& context, const OperationPtr& operation);
    // Waits until the operation is done and its notice has reached the host.
    CUresult wait(Lock& lock, SimulatedDevice& device, const OperationPtr& operation);
    bool visible(const OperationPtr& operation);
    CUresult synchronize(Lock& lock, Context& context);
    // Waits until no kernel runs and no stream waits for a value, while the launches of all threads stand
    // still (loading code does so).
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
    // Runs a kernel's code without the lock.
    void run_in_background(SimulatedDevice& device, SimulatedDevice::Kernel kernel);
    // The same for anything else, on a thread of its own: kernels may wait for it on all of theirs.
    void run_apart(SimulatedDevice& device, SimulatedDevice::Kernel other);
    // What the next operation of a stream comes after.
    std::vector<Dependency> order(Stream& stream);
    // When what the current call submits leaves the host.
    Nanoseconds submission_time() const;
    // Wakes the device threads that sleep past what has become due.
    void wake();

    SimulatedDevice& device_of(const Context& context) {
        return *devices[static_cast<std::size_t>(context.device)];
    }
    const Block* block_of(std::uint64_t address) const;
    // Whether so many bytes from there on are the block's, or lie in what is mapped behind it.
    bool holds(const Block& block, std::uint64_t address, std::size_t bytes) const;
    // How far a device may use it, as CU_MEM_ACCESS_FLAGS_PROT_*: what a program maps as it said.
    unsigned access_to(const Block& block);
    // The reservation that these addresses lie in: its first and how many; nothing when in none.
    std::optional<std::pair<std::uint64_t, std::size_t>> reservation(std::uint64_t address,
                                                                     std::size_t bytes) const;
    PhysicalAllocation* allocation_of(CUmemGenericAllocationHandle handle) {
        PhysicalAllocation* allocation = allocations.find(handle);
        return allocation != nullptr && allocation->handles > 0 ? allocation : nullptr;
    }

  private:
    void run_device(SimulatedDevice& device);
    void run_calls(SimulatedDevice& device);
    void run_kernels(SimulatedDevice& device);
    void run(SimulatedDevice& device, Lock& lock, const SimulatedDevice::Kernel& kernel);
    void run_turns(SimulatedDevice& device);
    void take_turn(SimulatedDevice& device, Nanoseconds now);
    std::optional<Nanoseconds> next_due(const SimulatedDevice& device) const;

    std::uint64_t allocations_made_ = 0;
    std::condition_variable progress_;
    unsigned holders_ = 0;        // calls that stand still for running kernels
    Nanoseconds held_until_ = 0;  // by calls that hold launches for what they cost
};

// The contexts of the calling thread, the current one last.
std::vector<Context*>& context_stack();
// The calling thread runs the functions of streams, which must not call CUDA.
bool& within_host_function();
// Set while a _ptsz or _ptds variant runs: stream 0 is then the thread's own.
struct PerThreadDefault {
    PerThreadDefault() { ++depth(); }
    ~PerThreadDefault() { --depth(); }
    static int& depth();
};

// Reads an image; what is wrong with it goes to the options' log.
CUresult read_code(Driver& driver, Bytes bytes, const JitOptions& options, Code& code);
bool read_file(const char* path, std::vector<std::byte>& bytes);
// Loads code into a context: its functions get handles and its variables places.
CUresult load_code(Driver& driver, std::shared_ptr<Code> code, Context& context, Library* library,
                   Image*& image);
// A library's code in a context, where it is loaded when it is first asked for.
CUresult find_loaded(Driver& driver, Library& library, Context& context, Image*& image);
// What can be launched: a function, or a kernel, which stands for its function in the context.
CUresult find_function(Driver& driver, CUfunction handle, Context& context, Function*& function);

inline bool is_preference(CUfunc_cache config) {
    return config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL;
}
inline bool is_preference(CUsharedconfig config) {
    return config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE &&
           config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
}
// Attributes that can be set, and what they are before.
bool is_preference(CUfunction_attribute attribute);
int compiled_preference(const ptx::Kernel& kernel, CUfunction_attribute attribute);
// Sets one, of a function or of a kernel on a device.
CUresult set_preference(const ptx::Kernel& kernel, Preferences& preferences, CUfunction_attribute attribute,
                        int value);
// What an attribute tells of a kernel, other than a preference.
CUresult compiled_attribute(const ptx::Module& module, const ptx::Kernel& kernel,
                            CUfunction_attribute attribute, int& value);
CUresult tell_parameter(const ptx::Kernel& kernel, std::size_t index, std::size_t* offset,
                        std::size_t* bytes);
CUresult current_context(Driver& driver, Context*& context);
// The context whose memory, modules and streams count: a green context's primary one.
CUresult resolve_stream(Driver& driver, Context& current, CUstream handle, Stream*& stream);

// What every entry point is wrapped in: the lock, the exceptions' border, and what must hold before
// a call.
template <typename Body>
CUresult with_driver(Body body) noexcept {
    const Uncancelled whole;
    try {
        Driver& driver = Driver::instance();
        if (driver.forked) return CUDA_ERROR_NOT_INITIALIZED;
        Driver::Lock lock(driver.mutex);
        if (driver.ended) return CUDA_ERROR_DEINITIALIZED;
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

// Calls about an object behind an untrusted handle, `otherwise` where there is none. What is of no context (a
// graph, a library) is told of after a fault, too, as an H200's driver does.
template <auto objects, typename Handle, typename Body>
CUresult with_object(Handle handle, CUresult otherwise, Body body) noexcept {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        auto* object = (driver.*objects).find(handle);
        return object == nullptr ? otherwise : body(driver, *object);
    });
}

// The same of what a context has: not after a fault.
template <auto objects, typename Handle, typename Body>
CUresult with_handle(Handle handle, CUresult otherwise, Body body) noexcept {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        auto* object = (driver.*objects).find(handle);
        return object == nullptr ? otherwise : body(driver, *object);
    });
}

// Calls about memory that needs no context: not after a fault.
template <typename Body>
CUresult with_memory(Body body) noexcept {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        for (const auto& device : driver.devices) driver.advance(*device);
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        return body(driver);
    });
}

// Whether a copy or a fill is over when its call returns.
enum class Wait : std::uint8_t { no, yes };

// What a call begins with once it is known which context it is about.
template <typename Body>
CUresult within(Driver& driver, Context& context, Body body) {
    SimulatedDevice& device = driver.device_of(context);
    driver.advance(device);
    if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
    return body(device);
}

template <typename Body>
CUresult with_context(Body body) noexcept {
    return with_driver([&](Driver& driver, Driver::Lock& lock) -> CUresult {
        Context* context = nullptr;
        if (const CUresult result = current_context(driver, context); result != CUDA_SUCCESS) return result;
        return within(driver, *context,
                      [&](SimulatedDevice& device) { return body(driver, lock, *context, device); });
    });
}

// The current context, or without one that of what the call is given, unless a host function makes it.
template <typename Find, typename Body>
CUresult with_context_of(Find find, Body body) noexcept {
    return with_driver([&](Driver& driver, Driver::Lock& lock) -> CUresult {
        Context* context = nullptr;
        if (const CUresult result = current_context(driver, context); result != CUDA_SUCCESS) {
            context = within_host_function() ? nullptr : find(driver);
            if (context == nullptr) return result;
        }
        return within(driver, *context,
                      [&](SimulatedDevice& device) { return body(driver, lock, *context, device); });
    });
}

inline auto of_stream(CUstream handle) {
    return [handle](Driver& driver) {
        const Stream* stream = driver.streams.find(handle);
        return stream == nullptr ? nullptr : stream->context;
    };
}

// Of memory only where there is no current context; one that has ended is in the way (as on an H200).
inline auto of_memory(std::uint64_t address) {
    return [address](Driver& driver) -> Context* {
        const std::vector<Context*>& stack = context_stack();
        if (!stack.empty() && stack.back() != nullptr) return nullptr;
        const auto found = driver.blocks.find(address);
        return found == driver.blocks.end() ? nullptr : found->second.context;
    };
}

// What a call does with a stream that is captured: most become a part of the graph, or are refused once the
// capture has failed; some are always refused; some are about the capture itself.
enum class InCapture { recorded, refused, answered };
CUresult admit(Driver& driver, Stream& stream, InCapture in_capture);  // capture.cpp
// No copy or fill that waits becomes a part of a graph, though a thread's default stream may be captured.
inline InCapture in_capture(Wait wait) {
    return wait == Wait::yes ? InCapture::refused : InCapture::recorded;
}

template <typename Body>
CUresult with_stream(CUstream handle, InCapture in_capture, Body body) noexcept {
    return with_context_of(
        of_stream(handle),
        [&](Driver& driver, Driver::Lock& lock, Context& context, SimulatedDevice&) -> CUresult {
            Stream* stream = nullptr;
            if (const CUresult result = resolve_stream(driver, context, handle, stream);
                result != CUDA_SUCCESS)
                return result;
            if (const CUresult result = admit(driver, *stream, in_capture); result != CUDA_SUCCESS)
                return result;
            return body(driver, lock, *stream, driver.device_of(*stream->context));
        });
}

template <typename Body>
CUresult with_stream(CUstream handle, Body body) noexcept {
    return with_stream(handle, InCapture::recorded, std::move(body));
}

}  // namespace fikit::sim
