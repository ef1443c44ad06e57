// What the driver's handles stand for, and the registries that find it.
//
// Objects are found by their handles, never by pointers that came from outside, so a stale, invented
// or mistaken handle is an error code and no crash. All of it is under the driver's mutex.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>

#include "context_limits.hpp"
#include "cuda_interface.hpp"
#include "device.hpp"
#include "managed_advice.hpp"
#include "memory.hpp"
#include "stateful_launch.hpp"

namespace fikit::sim {

struct Context;
struct Capture;
struct Graph;
struct GraphExec;
struct GraphNode;
struct UserObject;
struct MemoryPool;
struct Array;
struct MipmappedArray;
struct LinkState;

struct GraphEdge {
    GraphNode* node;
    CUgraphEdgeData data;
};

// What a stream being captured, or an event recorded in one, stands for.
struct CapturePoint {
    std::shared_ptr<Capture> capture;  // null: none
    std::vector<GraphEdge> ends;       // what the next node depends on
};

struct Stream {
    enum class Kind : std::uint8_t { ordinary, legacy, per_thread };
    CUstream handle{};
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
    CapturePoint capture;
    std::map<CUstreamAttrID, CUstreamAttrValue> attributes;
    bool blocking() const { return kind != Kind::legacy && (flags & CU_STREAM_NON_BLOCKING) == 0; }
};

class SharedEvent;
struct Event {
    CUevent handle{};
    Context* context = nullptr;
    unsigned flags = 0;
    OperationPtr record;
    std::shared_ptr<SharedEvent> shared;  // null: of this process alone
    std::uint64_t number = 0;             // which of the shared event's records `record` is
    CapturePoint capture;
    bool timing() const { return (flags & CU_EVENT_DISABLE_TIMING) == 0; }
};

struct Image;
struct Library;

// Attributes that were set.
using Preferences = std::map<CUfunction_attribute, int>;

// A library's kernel: in each context it has a function.
struct LibraryKernel {
    CUkernel handle{};
    Library* library = nullptr;
    const ptx::Kernel* code = nullptr;
    std::map<int, Preferences> preferences;  // by device
    int preference(int device, CUfunction_attribute attribute) const;
};

struct Function {
    CUfunction handle{};
    Image* image = nullptr;
    const ptx::Kernel* kernel = nullptr;
    std::shared_ptr<const LibraryKernel> origin;  // null: a module's
    Preferences preferences;
    std::unique_ptr<StatefulLaunch> next_launch;  // null: nothing was said
    // Its own, its kernel's where it has none, or what was compiled.
    int preference(CUfunction_attribute attribute) const;
};

// What was read of an image.
struct Code {
    ptx::Module module;
    bool opaque = false;  // machine code: its kernels take time and touch nothing
    std::map<std::size_t, std::uint64_t>
        managed;  // of variables: every context's, while somebody has the code
};

// Code in a context: a module, of the program or of a library.
struct Image : std::enable_shared_from_this<Image> {
    CUmodule handle{};
    std::shared_ptr<Code> code;
    Context* context = nullptr;
    Library* library = nullptr;            // null: the program's own
    std::vector<std::uint64_t> variables;  // where each lives
    std::map<std::string, std::unique_ptr<Function>> functions;
};

// Code that belongs to no context, and is loaded into each where it is used.
struct Library {
    CUlibrary handle{};
    std::shared_ptr<Code> code = std::make_shared<Code>();
    CUresult wrong = CUDA_SUCCESS;  // with the code: what its use is answered with
    std::map<std::string, std::shared_ptr<LibraryKernel>> kernels;
    std::map<const Context*, Image*> images;
};

struct GreenContext {
    CUgreenCtx handle{};
    int device = 0;
    Context* context = nullptr;
    std::shared_ptr<const SmSet> partition;
    std::set<Stream*> streams;
};

inline constexpr LimitedBy limiting_device = {model::sm_count, model::l2_bytes, model::most_persisting_l2,
                                              model::shared_per_block_optin};

struct Context {
    CUcontext handle{};
    int device = 0;
    unsigned flags = 0;
    unsigned api_version = 3020;
    std::uint64_t id = 0;
    std::optional<unsigned> turn;  // its number in Operation::context, once it has work; see Turns
    bool alive = true;
    bool primary = false;
    unsigned retained = 0;
    unsigned attached = 1;     // cuCtxAttach
    Context* owner = nullptr;  // of a green context: the primary context whose memory and modules it shares
    GreenContext* green = nullptr;
    Stream legacy;
    unsigned captures = 0;  // going on in its streams
    std::map<std::thread::id, std::unique_ptr<Stream>> per_thread;
    std::set<Stream*> streams;
    std::vector<OperationPtr> orphans;  // the last operations of streams destroyed before they were done
    ContextLimits limits = {};
    CUsharedconfig shared_config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
    CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;
};

// The one whose memory, modules and events count: a green context's primary one.
inline Context& home_of(Context& context) { return context.owner != nullptr ? *context.owner : context; }

// A stretch of memory that a pointer can belong to.
struct Block {
    enum class Kind : std::uint8_t {
        device,
        variable,
        host_allocated,
        host_registered,
        managed,
        mapped,
        pooled,
        imported
    };
    Kind kind = Kind::device;
    std::uint64_t address = 0;
    std::size_t bytes = 0;
    Context* context = nullptr;
    int device = 0;
    unsigned flags = 0;
    std::uint64_t id = 0;
    void* allocation = nullptr;  // mapped: the physical allocation
    MemoryPool* pool = nullptr;  // pooled; imported from a pool
    std::uint64_t place = 0;     // pooled: in the pool's room; host_allocated: among PinnedChunks
    bool synchronous = false;    // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
    bool on_host = false;        // the host reads it at its own address
    std::shared_ptr<ManagedAdvice> advice{};  // of managed memory, a pool's or not
    bool host() const { return on_host; }
    bool managed() const { return advice != nullptr; }
    bool read_only() const {
        return kind == Kind::host_registered && (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
    }
    // A host pool's: the host's own memory, within the device's reach once the pool says so.
    bool host_pooled() const { return kind == Kind::pooled && on_host && !managed(); }
};

inline void make_managed(Block& block, Block::Kind kind = Block::Kind::managed) {
    block.kind = kind;
    block.on_host = true;
    block.advice = std::make_shared<ManagedAdvice>(block.address, block.bytes);
}

// cuMemCreate
struct PhysicalAllocation {
    CUmemGenericAllocationHandle handle{};
    CUmemAllocationProp properties{};
    std::size_t bytes = 0;
    std::vector<Extent> extents;           // device memory
    std::byte* host = nullptr;             // host memory
    std::unique_ptr<SharedMemory> shared;  // memory that other processes can map
    bool imported = false;
    unsigned handles = 1;     // that cuMemRelease has not given back; without any the handle names nothing
    unsigned references = 1;  // these and mappings
};

// A handle that no object had before, so that one of a destroyed object finds nothing. Small
// integers stay free for the driver's constants (CU_STREAM_LEGACY and its like).
inline std::uint64_t next_handle() {
    static std::uint64_t last = 0x5100'0000'0000;
    return last += 64;
}
template <typename Handle>
Handle new_handle() {
    const std::uint64_t last = next_handle();
    if constexpr (std::is_pointer_v<Handle>)
        return reinterpret_cast<Handle>(last);
    else
        return last;
}

// The objects of one kind by their handles; each has its handle as a member.
template <typename T, typename Handle>
class Registry {
  public:
    T* find(Handle handle) const {
        const auto found = objects_.find(handle);
        return found == objects_.end() ? nullptr : found->second.get();
    }
    std::shared_ptr<T> share(Handle handle) const {
        const auto found = objects_.find(handle);
        return found == objects_.end() ? nullptr : found->second;
    }
    Handle add(std::shared_ptr<T> object) {
        const auto handle = new_handle<Handle>();
        object->handle = handle;
        objects_.emplace(handle, std::move(object));
        return handle;
    }
    // The object lives on where somebody else shares it.
    void remove(const T* object) { objects_.erase(object->handle); }
    template <typename Visit>
    void remove_if(Visit visit) {
        std::erase_if(objects_, [&](const auto& entry) { return visit(*entry.second); });
    }
    template <typename Visit>
    void each(Visit visit) {
        for (auto& entry : objects_) visit(*entry.second);
    }

  private:
    std::unordered_map<Handle, std::shared_ptr<T>> objects_;
};

}  // namespace fikit::sim
