// A session as its executor keeps it. The dispatch thread owns it; while a call of the session is being
// answered, the worker that answers it does (the session issues nothing meanwhile, so both never meet).
#pragma once

#include <abi.h>
#include <calls.h>

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "arena.hpp"
#include "beside.hpp"
#include "counts.hpp"
#include "lanes.hpp"
#include "modules.hpp"
#include "pace.hpp"
#include "pauses.hpp"
#include "printed.hpp"
#include "profile.hpp"
#include "put_off.hpp"
#include "records.hpp"
#include "scheduling/policy.hpp"
#include "shared_memory.hpp"
#include "trace.hpp"

namespace fikit {

constexpr uint8_t whole_gpu = 0;  // where an operation runs, as scheduling::Work::partition has it

// One issued step that has not completed: two cache lines, since all of them pass through the caches between
// two launches of the same kernel.
struct alignas(64) InFlight {
    // Words that the stream writes: nobody is told, but what they are in is not freed before.
    static constexpr int32_t write = -2;

    uint64_t step = 0;
    uint64_t serial = 0;  // of the session's steps, over all streams
    scheduling::Work work;
    KernelEntry* kernel = nullptr;
    int32_t timer = -1;            // pair of timing events, or -1; `write`: it is no work
    uint32_t multiprocessors = 0;  // of the partition; 0: the whole GPU
    Beside::Entry beside;
    bool traced = false;
    bool queued = false;  // its stream had other work when it was issued
};
static_assert(sizeof(InFlight) == 128);

// A queue of fixed size: one per stream with steps in flight, at least.
class InFlightQueue {
  public:
    static constexpr uint32_t capacity = most_in_flight;
    bool empty() const { return head_ == tail_; }
    InFlight& front() { return slots_[head_ % capacity]; }
    TraceRecord& front_trace() { return traces_[head_ % capacity]; }
    void pop() { ++head_; }
    bool reaches(uint64_t step) { return !empty() && front().step <= step; }
    // The caller fills the entry in, and its trace where it is traced.
    InFlight& push() { return slots_[tail_++ % capacity]; }
    template <class Visit>
    void each(Visit visit) {
        for (uint32_t at = head_; at != tail_; ++at) visit(slots_[at % capacity]);
    }
    TraceRecord& back_trace() { return traces_[(tail_ - 1) % capacity]; }

  private:
    uint32_t head_ = 0, tail_ = 0;
    std::array<InFlight, capacity> slots_;
    std::array<TraceRecord, capacity> traces_;  // beside the entries: untouched unless tracing
};

constexpr size_t most_deferred = 1024;  // records of a session in its backlog

// What of a session takes memory of the executor's own, and no quota counts it.
constexpr uint64_t most_image_bytes = uint64_t{2} << 30;         // of one call: code, graphs
constexpr uint64_t most_kept_image_bytes = uint64_t{256} << 20;  // of all that is kept for later calls

// What a stream waits for that may never come: nothing of it is on the GPU meanwhile (backlog.cpp).
struct Block {
    enum class Kind : uint8_t { none, host_function, word, event };
    Kind kind = Kind::none;
    bool wide = false;
    uint32_t flags = 0;             // of the wait
    uint64_t value = 0;             // the word's; or the host function's step
    const uint8_t* host = nullptr;  // where the word is, in pinned memory,
    CUdeviceptr device = 0;         // or on the device,
    uint32_t module = UINT32_MAX;   // maybe in a variable of this module's
    uint32_t session = 0, event = 0;
    Nanoseconds next_look = 0, pause = 0;

    uint64_t word() const { return host != nullptr ? reinterpret_cast<uintptr_t>(host) : device; }
};

// Events behind steps of a stream, the oldest first.
class Marks {
  public:
    static constexpr uint32_t most = 8;
    struct Mark {
        CUevent event;
        uint64_t step;
    };

    bool empty() const { return first_ == last_; }
    bool full() const { return last_ - first_ == most; }
    const Mark& front() const { return marks_[first_ % most]; }
    void push(const Mark& mark) { marks_[last_++ % most] = mark; }
    void pop() { ++first_; }

  private:
    uint32_t first_ = 0, last_ = 0;
    std::array<Mark, most> marks_{};
};

struct alignas(64) SessionStream {
    bool blocking = true;
    bool created = false;
    bool active = false;  // listed in Session::active
    bool used = false;    // listed in Session::used
    int priority = 0;     // as the session asked
    uint8_t where = 0;    // the place of its last step
    // By place: the whole GPU, then the partitions (scheduling::Work::partition). Those that it had last.
    std::array<Lane*, 1 + scheduling::max_partitions> lanes{};
    Lane* lane = nullptr;  // where its last step went
    CUevent hop = nullptr;
    Predecessors before;
    uint64_t issued = 0, marked = 0, completed = 0;
    Nanoseconds stands_since = 0;  // while active: its oldest step is in flight, or could run, since then
    Nanoseconds charged_upto = 0;  // likewise: so much of the time has been charged for what is over
    Marks marks;
    Nanoseconds next_look = 0;  // at the first of them
    uint64_t legacy_seen = 0;   // steps of the legacy stream this one has been ordered behind
    uint64_t by_legacy = 0;     // steps of this one the legacy stream has been ordered behind
    Block block;
    uint64_t fences = 0;  // how often its HostGate was to be passed
    uint64_t reads = 0;   // how often a word on the device was looked at
    // Steps that somebody in the tenant may wait for: the next one, and the last; 0: none.
    uint64_t awaited = 0, awaited_last = 0;
    std::unique_ptr<InFlightQueue> queue;  // large: while it is active, and on where few streams are used

    void await(uint64_t step) {
        awaited_last = step;
        if (awaited == 0) awaited = step;
    }
    // Has a step completed, now that the mark says so, that somebody may wait for?
    bool reaches_awaited(uint64_t mark) {
        if (awaited == 0 || mark < awaited) return false;
        awaited = mark < awaited_last ? mark + 1 : 0;
        return true;
    }
};

struct SessionEvent {
    CUevent event = nullptr;
    bool timing = false;
    bool recorded = false;
};

struct alignas(64) SessionFunction {
    CUfunction function = nullptr;
    // What is known of the shape of its last launch, which was found to be right: most launches repeat one.
    KernelEntry* last_kernel = nullptr;
    uint64_t last_key = 0;
    uint32_t parameter_bytes = 0;
    uint64_t hash = 0;
    uint32_t name = 0;  // index of the kernel name
    uint16_t module = 0;
    uint16_t max_threads = 0;
};
static_assert(sizeof(SessionFunction) == 64 && FIKIT_MAX_MODULES <= UINT16_MAX);

// A graph that the session may launch (graphs.cpp).
struct SessionGraph {
    CUgraphExec executable = nullptr;
    uint64_t hash = 0;              // of its name, in which are its nodes: functions, shapes, bytes
    uint32_t name = 0;              // index into Core::names_
    uint64_t bytes = 0;             // of the host's memory, about
    std::vector<uint16_t> modules;  // of its kernels
};

// A record that is put off. What it launches is the graph that had the handle then.
struct PutOffOperation {
    KeptOperation kept;
    std::shared_ptr<const SessionGraph> graph;
};

// A graph whose conditions the driver knows, and what was made of it last: the same again is not made anew.
struct SessionConditions {
    CUgraph graph = nullptr;
    std::vector<uint8_t> image;
    size_t nodes = 0;
    uint64_t bytes = 0;                             // that its nodes take, about
    SessionGraph made;                              // but for the executable
    std::set<uint64_t> values;                      // of the conditions, as the driver gave them
    std::weak_ptr<const SessionGraph> latest = {};  // that was instantiated
};

// Images that are to be made one (links.cpp).
struct LinkPart {
    CUjitInputType type;
    std::string name;
    std::vector<uint8_t> image, options;  // fikit_jit_option
};

struct SessionLink {
    std::vector<uint8_t> options;
    std::vector<LinkPart> parts;
    uint64_t bytes = 0;          // of the parts
    std::vector<uint8_t> image;  // once it is complete
};

// An array, or a mipmapped one with its levels (arrays.cpp).
struct SessionArray {
    fikit_array_shape shape{};
    CUmipmappedArray mipmap = nullptr;  // nullptr: a plain array,
    std::vector<CUarray> levels;        // which is the only one of these
    uint64_t bytes = 0;                 // charged
};

// What the GPU tells of a stream that is to wait for the tenant: that what was issued before is done, and
// what a word on the device is.
struct HostGate {
    uint64_t passed = 0;  // fences
    uint64_t read = 0;    // looks
    uint64_t word = 0;
    uint64_t reserved = 0;
};

constexpr size_t gate_bytes = FIKIT_MAX_STREAMS * sizeof(HostGate);  // of one session
constexpr uint64_t arena_bytes = uint64_t{256} << 30;                // of virtual addresses for each session

// What is at one address in a tenant's process and in the executor lies where neither has anything of its
// own. However much the kernel randomises (vm.mmap_rnd_bits up to 32, and 32 is what Ubuntu sets), programs
// and their heaps lie from 0x5555'0000'0000 to 0x6600'0000'0000, what they map from 0x6fff'0000'0000 on (the
// executor itself lower than they: fikitd/executor/addresses.py). Some have heaps lower than that: mimalloc
// from 2 to 30 TiB, Java's ZGC from 4 to 20. That is where the arenas of the last GPUs lie.
//
// A process that uses several GPUs has a session on each, in different executors, and their addresses must
// not be the same. So each GPU's arenas begin elsewhere, and what a program maps itself: 32 of an executor's
// 64 arenas are the GPU's alone. The driver may put them elsewhere; then the process finds out whether it can
// use them together (shim/libcuda/process.cpp).
constexpr uint64_t terabyte = uint64_t{1} << 40;
constexpr unsigned address_regions = 8;
constexpr uint64_t lowest_arena = terabyte, arena_region_bytes = 8 * terabyte;  // up to 0x49
constexpr uint64_t first_pinned = 0x4a * terabyte, last_pinned = 0x55 * terabyte;
constexpr uint64_t first_mapped = 0x66 * terabyte, mapped_region_bytes = terabyte;

// Where the arenas of a GPU begin.
constexpr uint64_t first_arena(unsigned gpu) {
    return lowest_arena + (address_regions - 1 - gpu % address_regions) * arena_region_bytes;
}

// The addresses behind those that were taken last, and from the first again where there are no more.
inline uint64_t take_place(uint64_t& next, uint64_t size, uint64_t first, uint64_t end) {
    if (next < first || next + size > end) next = first;
    const uint64_t place = next;
    next += (size + Arena::granule - 1) / Arena::granule * Arena::granule;
    return place;
}

// Memory of the session that the GPU reaches: an allocation, a variable of a module, or pinned memory.
struct Buffer {
    static constexpr uint32_t no_module = UINT32_MAX, pinned = UINT32_MAX - 1;
    uint64_t size = 0;
    uint32_t module = no_module;
    bool writable = true;
};

// Physical memory that the program creates and maps itself.
struct OwnMemory {
    CUmemGenericAllocationHandle handle = 0;
    uint64_t size = 0;
    uint32_t mappings = 0;
    bool released = false;
    std::shared_ptr<SharedExtent> shared = nullptr;  // others may map it, or it is theirs; it has the handle
};

struct OwnMapping {
    uint64_t size = 0;
    uint32_t memory = 0;
};

struct PinnedBuffer {
    SharedMemory memory;
    CUdeviceptr device = 0;
    bool registered = false;
};

// Memory on its way back, an allocation's or pinned: released once every step up to `fence` has completed.
template <class Memory>
struct Pending {
    Memory what;
    uint64_t fence = 0;
};

struct SessionUsage {
    int64_t gpu_ns = 0;
    uint64_t launches = 0, operations = 0, bytes_copied = 0;
    int64_t gate_wait_ns = 0;
    uint64_t gate_waits = 0;
    uint64_t measured = 0;
};

struct Session {
    // draining: over for the tenant, its work still in flight; releasing: a worker frees what it held
    enum class State : uint8_t { running, draining, releasing, gone };

    std::string id;
    uint32_t serial = 0;
    double weight = 1.0;
    uint64_t memory_limit = 0, tenant_limit = 0;
    std::string job;  // empty: none
    // What all sessions of its job use here.
    std::shared_ptr<std::atomic<uint64_t>> job_bytes = std::make_shared<std::atomic<uint64_t>>(0);
    bool unmodified = false;  // its program makes CUDA's own calls
    int end_error = 0;
    std::string end_reason;
    std::string delayed_by;  // worst, as the policy last said: by a session whose index is another's now
    bool end_announced = false;

    SharedMemory outbox, inbox;
    CUdeviceptr inbox_device = 0;
    HostGate* host_gate = nullptr;  // executor-owned, one per stream
    CUdeviceptr host_gate_device = 0;
    TenantDescriptor lifeline;
    Descriptor process;
    TenantDescriptor arrived;  // over the lifeline, with the next call
    TenantDescriptor offered;  // with the one that is being answered (worker)

    std::atomic<uint64_t> graph_bytes{0};  // of all graphs that there are; they go before it

    // What every operation touches, from here on.
    alignas(64) RingReader ring;
    // The operation at the head of the ring.
    std::unique_ptr<Operation> head = std::make_unique<Operation>();
    scheduling::Work head_work;
    KernelEntry* head_kernel = nullptr;
    std::shared_ptr<const SessionGraph> head_graph;  // of a launch that has begun, or was put off
    int32_t head_timer = -1;                         // kept for the launch at the head
    bool head_ready = false, head_waits = false;
    bool paused = false;
    bool measured = false;  // every launch is
    State state = State::running;
    unsigned index = 0;
    int level = 0;
    uint32_t in_flight = 0;
    uint64_t steps_issued = 0;  // over all streams
    Nanoseconds unmarked_work = 0;
    uint32_t unmarked_steps = 0;
    SessionUsage usage;
    Nanoseconds last_issue = 0;
    uint64_t served_from = 0;   // steps issued before what it has ready now
    Nanoseconds served_at = 0;  // when that was looked at
    Nanoseconds row_at = 0;     // since then it has had something ready all the time; 0: it has not
    uint32_t row = 0;           // so many steps since then
    Pauses pauses;              // of a high session's program
    UsualKernel usual;
    Nanoseconds full_since = 0;  // records wait since then for less to be in flight; 0: none do
    bool held = false;           // there may still be some that waited for that
    Nanoseconds looked_at = 0;   // its marks
    uint64_t last_key = 0;       // of the kernel launched last, and when
    Nanoseconds last_launch = 0;
    Nanoseconds head_arrived = 0;
    uint64_t room_answered = 0;           // the tail at which the tenant was woken last
    Nanoseconds waits_since = 0;          // since when the call at its head has to wait for memory
    bool waits_to_load = false;           // likewise, since call_since, for what is in flight to end
    std::atomic<bool> more_sleep{false};  // threads of the tenant than were woken at once

    // Set by the dispatch thread, cleared by a worker: it owns the tables below marked (worker) meanwhile.
    std::atomic<bool> worker_busy{false};
    std::atomic<bool> call_pending{false};  // likewise; the ring is not read meanwhile
    Nanoseconds call_since = 0;             // it waits for the driver since then; 0: that compiles
    std::atomic<bool> call_again{false};    // set by a worker: the call at the head was not answered yet
    bool device_was_full = false;           // and not the limits, for what a call takes (worker)
    bool short_of_memory = false;           // so the call at the head has waited for room (worker)
    uint64_t calls_answered = 0;            // (worker)
    Printed::Author author;                 // once its kernels may print (worker)

    // Records that are behind a block, in order, as they came (backlog.cpp).
    std::deque<PutOffOperation> backlog;
    std::vector<uint32_t> blocked;  // streams with a block
    size_t next_look = 0;           // at which of them
    PutOff blocks;                  // of these streams
    std::multiset<uint64_t> words;  // that they wait for,
    Counts word_modules;            // and in variables of which modules those are
    bool rescan = false;  // one may be free to go; otherwise nothing is put off unless one is blocked
    size_t scanned = 0;   // so many cannot
    PutOff put_off;       // of the blocked streams, and the backlog as far as it is scanned
    Counts to_record;     // events whose records are in the backlog
    bool backlog_is_full() const { return !backlog.empty() && backlog.size() >= most_deferred; }

    std::array<std::unique_ptr<SessionStream>, FIKIT_MAX_STREAMS> streams;
    std::vector<uint32_t> active;                                // streams with steps that have not completed
    std::vector<std::unique_ptr<InFlightQueue>> spare_queues;    // that streams had; no more than are used
    std::vector<uint32_t> used;                                  // streams that have had a step
    std::vector<SessionEvent> events;                            // by handle, as far as used
    std::vector<SessionFunction> functions;                      // likewise (worker)
    std::vector<std::shared_ptr<SessionGraph>> graphs;           // likewise (worker)
    std::unordered_map<uint32_t, SessionConditions> conditions;  // (worker)
    std::unordered_map<uint32_t, SessionLink> links;             // (worker)
    uint64_t kept_image_bytes = 0;                               // of links and conditions (worker)
    std::unordered_map<uint32_t, SessionArray> arrays;           // (worker)
    std::set<std::pair<uint64_t, bool>> textures;                // values; true: a surface's (worker)
    std::vector<SessionModule> modules;                          // by handle, as far as used (worker)
    std::unique_ptr<Compiled> compiled;                          // of the call at the head (worker)
    std::map<CUdeviceptr, Buffer> buffers;                       // what copies and fills may touch
    std::unordered_map<uint32_t, PinnedBuffer> host_buffers;
    uint64_t host_bytes = 0;
    std::map<CUdeviceptr, uint64_t> reserved;          // addresses: sizes (worker)
    std::map<CUdeviceptr, OwnMapping> mappings;        // (worker)
    std::unordered_map<uint32_t, OwnMemory> memories;  // (worker)
    std::unique_ptr<Arena> arena;
    std::deque<Pending<CUdeviceptr>> frees;
    std::deque<Pending<PinnedBuffer>> host_frees;
    bool frees_memory() const { return !frees.empty() || !host_frees.empty(); }
    std::atomic<bool> freeing{false};  // a worker unmaps what the arena kept
    std::atomic<uint64_t> memory_bytes{0}, memory_peak{0}, kept_bytes{0};

    CUmodule module_of(uint32_t handle) const {
        return handle < modules.size() ? modules[handle].module : nullptr;
    }
    fikit_inbox* inbox_header() { return reinterpret_cast<fikit_inbox*>(inbox.data()); }
    fikit_outbox* outbox_header() { return reinterpret_cast<fikit_outbox*>(outbox.data()); }
    uint64_t* mark_word(uint32_t stream) const {
        return reinterpret_cast<uint64_t*>(inbox.data() + FIKIT_MARKS_OFFSET +
                                           size_t{stream} * FIKIT_MARK_STRIDE);
    }
    uint64_t mark(uint32_t stream) const { return __atomic_load_n(mark_word(stream), __ATOMIC_ACQUIRE); }
    CUdeviceptr mark_device(uint32_t stream) const {
        return inbox_device + FIKIT_MARKS_OFFSET + uint64_t{stream} * FIKIT_MARK_STRIDE;
    }
    // Does [address, address + size) lie within one buffer of the session, or in several that the program
    // has mapped side by side? `write`: and may be written to.
    bool owns(CUdeviceptr address, uint64_t size, bool write = false) const {
        auto buffer = buffers.upper_bound(address);
        if (buffer == buffers.begin()) return false;
        --buffer;
        const uint64_t offset = address - buffer->first;
        if (offset >= buffer->second.size || (write && !buffer->second.writable)) return false;
        uint64_t there = buffer->second.size - offset;
        while (there < size && mappings.contains(buffer->first)) {
            const CUdeviceptr next = buffer->first + buffer->second.size;
            if (++buffer == buffers.end() || buffer->first != next || !mappings.contains(next) ||
                (write && !buffer->second.writable))
                return false;
            there += buffer->second.size;
        }
        return size <= there;
    }
    // Whether the GPU reaches it over the link.
    bool is_pinned(CUdeviceptr address) const {
        const auto behind = buffers.upper_bound(address);
        return behind != buffers.begin() && std::prev(behind)->second.module == Buffer::pinned;
    }
    // A range of a pinned buffer, or of the staging area (buffer 0); nullptr when it is not all within.
    uint8_t* host_memory(uint32_t buffer, uint64_t staging_bytes, uint64_t offset, uint64_t size) const {
        uint8_t* base = outbox.data() + outbox.size() - staging_bytes;
        uint64_t room = staging_bytes;
        if (buffer != 0) {
            const auto pinned = host_buffers.find(buffer);
            if (pinned == host_buffers.end()) return nullptr;
            base = pinned->second.memory.data();
            room = pinned->second.memory.size();
        }
        return offset <= room && size <= room - offset ? base + offset : nullptr;
    }
    // The pinned buffer in which a word is, or nullptr.
    const PinnedBuffer* pinned(const fikit_value& value, uint64_t bytes) const {
        const auto found = host_buffers.find(value.host_buffer);
        if (found == host_buffers.end()) return nullptr;
        const uint64_t room = found->second.memory.size();
        return bytes <= room && value.address <= room - bytes ? &found->second : nullptr;
    }
    // The GPU's address of a word, or 0 where the session has none there.
    CUdeviceptr word(const fikit_value& value, uint64_t bytes, bool write) const {
        if (value.host_buffer == 0) return owns(value.address, bytes, write) ? value.address : 0;
        const PinnedBuffer* const buffer = pinned(value, bytes);
        return buffer != nullptr ? buffer->device + value.address : 0;
    }
    // Tells whoever sleeps in the tenant that something happened: some threads, and the others turn by turn.
    void wake();
    void wake_more(int most);
    // What the tenant notes of calls that its side does not serve, as far as it makes sense.
    std::vector<std::pair<std::string, uint64_t>> notes() const;
};

}  // namespace fikit
