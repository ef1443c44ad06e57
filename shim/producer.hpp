// What a program does with a session: stream operations, copies, events, pinned memory, waiting.
//
// The client library and the libcuda stand-in are both thin layers over this class. It counts the steps of
// every stream as the executor does; a step has completed once the executor's mark has reached it (and, for
// a host function, once the function has returned). Status values are CUresults; whoever synchronises also
// takes the deferred errors. Thread-safe. Nothing throws, nothing waits without an end (channel.hpp).
#pragma once

#include <string.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "abi.h"
#include "calls.h"
#include "channel.hpp"
#include "copy_threads.hpp"
#include "handles.hpp"
#include "host_functions.hpp"
#include "records.hpp"
#include "staging.hpp"

namespace fikit {

struct LaunchShape {
    uint32_t function;
    uint32_t stream;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
    uint32_t parameter_bytes;
    uint32_t attributes;
};

// A stretch of memory of this process, as a part of an image.
struct Part {
    const void* data = nullptr;
    uint64_t bytes = 0;
};

using JitOptions = std::span<const fikit_jit_option>;

struct HostBuffer {
    uint8_t* address;
    uint64_t size;
    uint64_t device_address;
    const uint8_t* own = nullptr;  // where the program has it, too or alone: it was registered

    void unmap() const;
};

class Producer {
  public:
    // Takes over the descriptors, also when it fails. `producer` is null after a failure.
    static Status attach(int outbox, int inbox, int lifeline, Producer*& producer);
    Producer(const Producer&) = delete;
    Producer& operator=(const Producer&) = delete;
    ~Producer();

    Channel& channel() { return channel_; }

    // Ends the session from this side. On return no host function runs any more (unless this is called from
    // one). The mappings, pinned memory too, stay until the destructor.
    void end();

    // Stream operations. With a deadline in the past, not_ready instead of waiting for room in the ring.
    Status launch(const LaunchShape& shape, const fikit_attribute* attributes, const void* parameters,
                  int64_t deadline = forever);
    // The same, unchecked, with parameters that `pack` writes where it is told.
    template <class Pack>
    [[gnu::always_inline]] Status launch_with(const LaunchShape& shape, const fikit_attribute* attributes,
                                              const Pack& pack, int64_t deadline = forever);
    Status copy_on_device(uint32_t stream, uint64_t to, uint64_t from, uint64_t bytes);
    // Host memory may be pinned (asynchronous) or not. From pageable memory: on return the source has been
    // read. To pageable memory: on return the data are there. `pinned`, if given, says which it was.
    Status copy_to_device(uint32_t stream, uint64_t to, const void* from, uint64_t bytes,
                          bool* pinned = nullptr);
    Status copy_to_host(uint32_t stream, void* to, uint64_t from, uint64_t bytes, bool* pinned = nullptr);
    // Rows between arrays, device memory and what begins at `host`, if that is an end; what the record says
    // of host memory is written here, but for its pitch and height. Pinned or not, as above.
    Status copy_rows(uint32_t stream, const fikit_copy_rows& what, void* host);
    Status fill(uint32_t stream, uint64_t device, uint64_t count, uint32_t value, uint32_t width);
    Status host_function(uint32_t stream, HostFunction function, void* argument,
                         HostFailure failure = nullptr);
    bool within_host_function() const { return host_functions_.within(); }
    // For whoever orders this session's work with something else's: a step that says when everything issued
    // on the stream so far has completed; one at which the stream stays until it is opened.
    Status mark_stream(uint32_t stream, uint64_t& step);
    Status close_gate(uint32_t stream, uint64_t& step);
    void open_gate(uint32_t stream, uint64_t step);
    bool reached(uint32_t stream, uint64_t step) const { return channel_.mark(stream) >= step; }
    // Words written or waited for, one after the other: at most FIKIT_MAX_VALUES.
    Status values(uint32_t stream, const fikit_value* values, uint32_t count);

    Status graph_launch(uint32_t graph, uint32_t stream);

    // Steps of a stream that are one to whoever else uses it, as a graph is that comes node by node: while it
    // lives, other threads' steps of the stream, and of those that it is ordered with, wait.
    class Chain {
      public:
        Chain(Producer& producer, uint32_t stream);
        ~Chain();
        Chain(const Chain&) = delete;
        Chain& operator=(const Chain&) = delete;

      private:
        Producer* producer_ = nullptr;
    };

    Status stream_create(uint32_t flags, int32_t priority, uint32_t& stream);
    Status stream_destroy(uint32_t stream);
    // not_ready while work is left; never waits. Who asks again until it is over has waited for it.
    Status stream_query(uint32_t stream);
    // Those that synchronise, or ask, also tell of what was refused before, once; who settles only waits.
    Status stream_synchronize(uint32_t stream, int64_t deadline = forever);
    Status stream_settle(uint32_t stream, int64_t deadline = forever);
    // Until all is over that work of the stream would wait for: what the host does next is in its order.
    Status stream_reach(uint32_t stream);
    // Whether host functions have yet to run.
    bool functions_left() const;
    // An action without work, by which the legacy default stream orders the blocking ones.
    Status stream_act(uint32_t stream);
    Status synchronize(int64_t deadline = forever);
    Status settle(int64_t deadline = forever);

    Status event_create(uint32_t& event);
    Status event_destroy(uint32_t event);
    Status event_record(uint32_t event, uint32_t stream, bool timing);
    Status event_wait(uint32_t event, uint32_t stream);
    // For an event of another session of the executor's.
    Status event_record_other(uint32_t session, uint32_t event, uint32_t stream);
    Status event_wait_other(uint32_t session, uint32_t event, uint32_t stream, bool mark = false);
    Status event_query(uint32_t event);         // likewise
    Status event_status(uint32_t event) const;  // the same, for who does not wait
    // The step of its latest record.
    void event_step(uint32_t event, uint32_t& stream, uint64_t& step) const;
    Status event_synchronize(uint32_t event, int64_t deadline = forever);
    Status event_settle(uint32_t event, int64_t deadline = forever);
    // Of all streams at once. The event stands for all that was issued so far; `wait` makes a stream wait,
    // and with it all others, and those that are made later.
    Status event_record_everywhere(uint32_t event, bool timing);
    template <class Wait>
    Status wait_everywhere(const Wait& wait);
    Status event_elapsed(uint32_t start, uint32_t end, double& milliseconds);

    Status memory_allocate(uint64_t bytes, uint64_t& address, uint64_t& charged);
    // With a stream, in its order alone; else once all work that was issued before has completed.
    Status memory_free(uint64_t address, const uint32_t* stream = nullptr);
    Status host_allocate(uint64_t bytes, uint32_t& handle, HostBuffer& buffer);
    // Once all work that was issued before has completed, if that may use it.
    Status host_free(uint32_t handle, bool may_be_used = false);
    // So many bytes at `own` that are a mapping of a file, from this offset (whole pages) on. `buffer` is
    // that, or where the GPU has them elsewhere another mapping of them, at its address.
    Status host_register(const uint8_t* own, uint64_t bytes, int file, uint64_t offset, uint32_t& handle,
                         HostBuffer& buffer);
    // The pinned buffer in which the range lies, or 0.
    uint32_t find_host_buffer(const void* address, uint64_t bytes, uint64_t& offset) const;

    // A graph from an image of its nodes (calls.h); what has the number `graph` already is replaced, 0: it
    // gets one.
    Status graph_create(const void* image, uint64_t bytes, uint32_t& graph, uint32_t conditions = 0);
    Status graph_destroy(uint32_t graph);
    // A condition of a graph with these; 0: these are its first.
    Status condition_create(uint32_t& conditions, uint32_t initial, uint32_t flags, uint64_t& condition);
    Status conditions_destroy(uint32_t conditions);

    // `log` gets the JIT's words.
    Status module_load(std::span<const Part> image, JitOptions options, uint32_t& module, Reply& log);
    Status module_load(const void* image, uint64_t bytes, uint32_t& module, Reply& log) {
        const Part whole{image, bytes};
        return module_load({&whole, 1}, {}, module, log);
    }
    Status link_create(JitOptions options, uint32_t& link);
    Status link_add(uint32_t link, uint32_t type, const Part& image, JitOptions options, const char* name,
                    Reply& log);
    Status link_destroy(uint32_t link);
    Status module_unload(uint32_t module);
    // The same module and function once more, under the numbers that they have.
    Status module_renew(std::span<const Part> image, JitOptions options, uint32_t module, Reply& log);
    Status function_renew(uint32_t module, const char* name, uint32_t function, Reply& reply);
    Status module_global(uint32_t module, const char* name, fikit_reply_module_global& answer);
    Status function_get(uint32_t module, const char* name, uint32_t name_bytes, uint32_t& function,
                        Reply& reply);
    // Once its module is unloaded, its number may be used again.
    void function_forget(uint32_t function);

    enum class Kind : uint8_t { stream, event, host_buffer, module, function };
    // How many of that kind a session may have, where it has as many; else 0.
    uint32_t limit_reached(Kind kind) const;

    Status call(uint32_t number, Bytes request, Reply& reply) {
        return channel_.call(number, request, {}, reply);
    }

  private:
    struct Stream {
        uint64_t steps;   // issued so far
        uint64_t marked;  // the last one that asked for its mark
        uint64_t host;    // the last one that is a host function
        // Which of all streams' steps its last work is; 0: none, or something unordered came behind it.
        uint64_t last;
        Usual wait;
        bool blocking;  // it is ordered with stream 0
        bool alive;     // made and not destroyed; of stream 0 it says nothing
    };

    Producer() : staging_(channel_), host_functions_(channel_) {}

    // Room for a step of the stream, once that is in no other thread's chain. On success the ring is locked.
    [[gnu::always_inline]] Status reserve(uint32_t stream, uint32_t bytes, void*& room, int64_t deadline) {
        const Status status = channel_.reserve(bytes, room, deadline);
        if (load_relaxed(chain_owner_) == 0 || status != status::success) [[likely]]
            return status;
        return reserve_behind_chain(stream, bytes, room, deadline);
    }
    Status reserve_behind_chain(uint32_t stream, uint32_t bytes, void*& room, int64_t deadline);
    bool is_in_others_chain(uint32_t stream) const;
    // Space for the record and its step. Between the two calls the ring is locked.
    template <class Record>
    Status begin(uint32_t op, uint32_t stream, Record*& record, int64_t deadline = forever);
    // What a step is to the order of stream 0 and the blocking ones: later work of either waits for it, it
    // only looks at what is before it, or it waits for something else, too.
    enum class Ordered : uint8_t { work, look, wait };
    template <Ordered ordered = Ordered::work>
    uint64_t finish(fikit_record& record, bool mark);
    template <Ordered ordered>
    Status enqueue_event(uint32_t op, uint32_t session, uint32_t event, uint32_t stream, bool mark = false);
    void tell_waited(fikit_record& record);

    bool idle(uint32_t stream) const;
    bool passed(uint32_t stream) const;
    bool all_passed(uint32_t stream) const;
    bool alive(uint32_t stream) const { return stream == 0 || load_acquire(streams_[stream].alive); }
    Status find_joint();
    Status spread();
    bool nothing_before(uint32_t stream) const;
    Status ask_for_mark(uint32_t stream, uint64_t& step, int64_t deadline = forever);
    Status wait_for(uint32_t stream, uint64_t step, int64_t deadline);
    // The executor hears of a wait with the next step: while it lasts, nothing of the program's comes.
    void waited(uint16_t flags) {
        if (load_relaxed(waited_) != FIKIT_WAITED) store_relaxed(waited_, flags);
    }
    Status asked(uint32_t stream, uint64_t step, Status answer);
    Status event_status(uint32_t event, uint64_t& recorded) const;
    Status enqueue_copy(uint32_t kind, uint32_t stream, uint32_t buffer, uint64_t device, uint64_t other,
                        uint64_t bytes, bool mark, uint64_t& step);
    Status enqueue_rows(uint32_t stream, const fikit_copy_rows& what, bool mark, uint64_t& step);
    Status copy_rows_in_parts(uint32_t stream, const fikit_copy_rows& what, uint8_t* host);
    Status acquire_piece(uint64_t bytes, uint32_t stream, Piece& piece);
    Status load_as(uint32_t module, std::span<const Part> image, JitOptions options, Reply& log);
    template <class Request>
    Status call_with_image(uint32_t number, Request request, Bytes behind, std::span<const Part> image,
                           Reply& reply);
    template <class Request, class Handles>
    Status destroy(Handles& handles, uint32_t number, uint32_t handle);
    Status map_host_buffer(int descriptor, uint64_t bytes, uint64_t device_address, HostBuffer& buffer) const;
    void keep_host_buffer(uint32_t handle, const HostBuffer& buffer);
    Status forget_host_buffer(uint32_t handle, bool may_be_used = false);
    void hang_up_without_host_buffers();

    Channel channel_;
    Staging staging_;
    CopyThreads copy_threads_;
    HostFunctions host_functions_;
    static_assert(FIKIT_MAX_STREAMS <= 1u << 12);
    Stream streams_[FIKIT_MAX_STREAMS] = {};  // written under the ring's lock
    uint32_t streams_used_ = 1;               // no stream at or above this was ever used
    uint32_t blocking_used_ = 0;              // there is or was one that is ordered with stream 0
    uint64_t steps_ = 0;                      // of all streams
    uint16_t waited_ = 0;                     // flags of the next step: since the last one
    uint32_t chain_stream_ = 0;               // the stream of the chain that there is
    pthread_t chain_owner_ = 0;               // whose it is; 0: there is none
    uint64_t asked_ = 0;                      // the stream and step that were last found not to be over
    uint64_t legacy_covers_ = 0;              // so many of them had been issued when stream 0 was last marked

    pthread_mutex_t chain_mutex_ = PTHREAD_MUTEX_INITIALIZER;  // held by its owner

    // By event: stream in the upper 12 bits, step below; 0: never recorded. Anonymous memory, so only what
    // is used takes any.
    uint64_t* events_ = nullptr;

    // A stream that other streams wait for all at once, and the event that they wait for; made when first
    // needed. No stream ends while all are gone through.
    pthread_mutex_t joint_mutex_ = PTHREAD_MUTEX_INITIALIZER;
    uint32_t joint_ = 0, joint_event_ = 0;

    mutable pthread_mutex_t host_buffers_mutex_ = PTHREAD_MUTEX_INITIALIZER;
    HostBuffer* host_buffers_ = nullptr;  // by handle; likewise
    uint32_t host_buffers_used_ = 1;

    Handles<FIKIT_MAX_STREAMS> stream_handles_;
    Handles<FIKIT_MAX_EVENTS> event_handles_;
    Handles<FIKIT_MAX_HOST_BUFFERS> host_buffer_handles_;
    Handles<FIKIT_MAX_MODULES> module_handles_;
    Handles<FIKIT_MAX_FUNCTIONS> function_handles_;
    Handles<FIKIT_MAX_GRAPHS> graph_handles_;
    Handles<FIKIT_MAX_GRAPHS> conditions_handles_;
    Handles<FIKIT_MAX_LINKS> link_handles_;
};

template <Producer::Ordered ordered>
inline uint64_t Producer::finish(fikit_record& record, bool mark) {
    Stream& stream = streams_[record.stream];
    const uint64_t step = stream.steps + 1;
    store_relaxed(stream.steps, step);
    store_relaxed(steps_, steps_ + 1);
    if constexpr (ordered == Ordered::work) store_relaxed(stream.last, steps_);
    if constexpr (ordered == Ordered::wait) store_relaxed(stream.last, uint64_t{0});
    if (load_relaxed(waited_) != 0) [[unlikely]]
        tell_waited(record);
    if (mark) {
        record.flags |= FIKIT_MARK;
        store_relaxed(stream.marked, step);
    }
    channel_.commit();
    return step;
}

template <class Pack>
inline Status Producer::launch_with(const LaunchShape& shape, const fikit_attribute* attributes,
                                    const Pack& pack, int64_t deadline) {
    const auto attribute_bytes = static_cast<uint32_t>(shape.attributes * sizeof(fikit_attribute));
    const auto bytes = whole_lines(sizeof(fikit_launch) + attribute_bytes + shape.parameter_bytes);
    void* room;
    if (const Status status = reserve(shape.stream, bytes, room, deadline)) [[unlikely]]
        return status;
    auto* record = static_cast<fikit_launch*>(room);
    *record = {
        .record = {.bytes = bytes, .op = FIKIT_OP_LAUNCH, .flags = 0, .stream = shape.stream, .reserved = 0},
        .function = shape.function,
        .grid = {shape.grid[0], shape.grid[1], shape.grid[2]},
        .block = {shape.block[0], shape.block[1], shape.block[2]},
        .shared_bytes = shape.shared_bytes,
        .parameter_bytes = shape.parameter_bytes,
        .attributes = shape.attributes,
        .reserved = {0, 0}};
    auto* behind = reinterpret_cast<uint8_t*>(record + 1);
    if (attributes != nullptr) memcpy(behind, attributes, attribute_bytes);
    pack(behind + attribute_bytes);
    finish(record->record, false);
    return status::success;
}

template <class Wait>
Status Producer::wait_everywhere(const Wait& wait) {
    const Locked lock(joint_mutex_);
    if (const Status status = find_joint()) return status;
    const Status status = wait(joint_);
    return status == status::success ? spread() : status;
}

template <class Record>
Status Producer::begin(uint32_t op, uint32_t stream, Record*& record, int64_t deadline) {
    if (stream >= FIKIT_MAX_STREAMS) return status::invalid_value;
    constexpr uint32_t bytes = whole_lines(sizeof(Record));
    void* room;
    const bool step = op <= FIKIT_OP_HOST_FUNCTION;
    if (const Status status =
            step ? reserve(stream, bytes, room, deadline) : channel_.reserve(bytes, room, deadline))
        return status;
    record = static_cast<Record*>(room);
    *header_of(record) = {
        .bytes = bytes, .op = static_cast<uint16_t>(op), .flags = 0, .stream = stream, .reserved = 0};
    return status::success;
}

}  // namespace fikit
