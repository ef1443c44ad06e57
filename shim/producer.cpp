// Stream operations, waiting, streams and events. Copies are in producer_copies.cpp, what needs an answer is
// in producer_calls.cpp.
#include "producer.hpp"

#include <string.h>
#include <sys/mman.h>

#include <new>

namespace fikit {
namespace {

constexpr uint32_t step_bits = 52;
constexpr uint64_t step_mask = (uint64_t{1} << step_bits) - 1;

template <class Entry>
Entry* zero_table(size_t entries) {
    void* memory =
        mmap(nullptr, entries * sizeof(Entry), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<Entry*>(memory);
}

}  // namespace

Status Producer::attach(int outbox, int inbox, int lifeline, Producer*& producer) {
    producer = new (std::nothrow) Producer();
    if (producer == nullptr) return status::out_of_memory;
    Status status = producer->channel_.attach(outbox, inbox, lifeline);
    if (status == status::success) status = producer->staging_.prepare();
    if (status == status::success) {
        producer->events_ = zero_table<uint64_t>(FIKIT_MAX_EVENTS);
        producer->host_buffers_ = zero_table<HostBuffer>(FIKIT_MAX_HOST_BUFFERS);
        if (producer->events_ == nullptr || producer->host_buffers_ == nullptr)
            status = status::out_of_memory;
    }
    if (status != status::success) {
        delete producer;
        producer = nullptr;
    }
    return status;
}

Producer::~Producer() {
    if (channel_.forked()) {
        copy_threads_.abandon();
        host_functions_.abandon();
    }
    if (host_buffers_ != nullptr) {
        for (uint32_t handle = 1; handle < host_buffers_used_; ++handle)
            if (host_buffers_[handle].address != nullptr) host_buffers_[handle].unmap();
        munmap(host_buffers_, FIKIT_MAX_HOST_BUFFERS * sizeof(HostBuffer));
    }
    if (events_ != nullptr) munmap(events_, FIKIT_MAX_EVENTS * sizeof(uint64_t));
}

Status Producer::launch(const LaunchShape& shape, const fikit_attribute* attributes, const void* parameters,
                        int64_t deadline) {
    if (shape.stream >= FIKIT_MAX_STREAMS || shape.parameter_bytes > FIKIT_MAX_PARAMETERS ||
        shape.attributes > FIKIT_MAX_ATTRIBUTES)
        return status::invalid_value;
    const auto pack = [&](uint8_t* to) {
        if (shape.parameter_bytes != 0) memcpy(to, parameters, shape.parameter_bytes);
    };
    return launch_with(shape, attributes, pack, deadline);
}

Status Producer::fill(uint32_t stream, uint64_t device, uint64_t count, uint32_t value, uint32_t width) {
    if (count == 0) return channel_.usable();  // an operation sets something
    fikit_fill* record;
    if (const Status status = begin(FIKIT_OP_FILL, stream, record)) return status;
    record->device = device;
    record->count = count;
    record->value = value;
    record->width = width;
    finish(record->record, false);
    return status::success;
}

void Producer::tell_waited(fikit_record& record) {
    record.flags |= load_relaxed(waited_);
    store_relaxed(waited_, uint16_t{0});
}

Status Producer::graph_launch(uint32_t graph, uint32_t stream) {
    fikit_graph* record;
    if (const Status status = begin(FIKIT_OP_GRAPH, stream, record)) return status;
    record->graph = graph;
    record->reserved = 0;
    finish(record->record, false);
    return status::success;
}

Status Producer::values(uint32_t stream, const fikit_value* values, uint32_t count) {
    if (stream >= FIKIT_MAX_STREAMS || count == 0 || count > FIKIT_MAX_VALUES) return status::invalid_value;
    const uint32_t bytes = whole_lines(sizeof(fikit_values) + count * sizeof *values);
    void* room;
    if (const Status status = reserve(stream, bytes, room, forever)) return status;
    auto* const record = static_cast<fikit_values*>(room);
    *record = {{bytes, FIKIT_OP_VALUES, 0, stream, 0}, count, 0};
    memcpy(record + 1, values, count * sizeof *values);
    finish(record->record, false);
    return status::success;
}

Status Producer::host_function(uint32_t stream, HostFunction function, void* argument, HostFailure failure) {
    if (const Status status = channel_.usable()) return status;  // a forked child has no thread for it
    HostFunctions::Entry* entry = nullptr;
    if (const Status status = host_functions_.prepare(function, failure, argument, entry)) return status;
    fikit_record* record;
    if (const Status status = begin(FIKIT_OP_HOST_FUNCTION, stream, record)) {
        HostFunctions::discard(entry);
        return status;
    }
    store_relaxed(streams_[stream].host, streams_[stream].steps + 1);
    const uint64_t step = finish(*record, false);  // the executor marks it in any case
    host_functions_.add(entry, stream, step);
    return status::success;
}

Status Producer::mark_stream(uint32_t stream, uint64_t& step) {
    fikit_record* record;
    if (const Status status = begin(FIKIT_OP_SYNC, stream, record)) return status;
    step = finish<Ordered::look>(*record, true);
    return status::success;
}

// CUDA Runtime API, "Stream synchronization behavior": any action on the legacy default stream, a wait for an
// event too, comes after the work of the blocking streams and before what they are given next.
Status Producer::stream_act(uint32_t stream) {
    if (stream != 0 || load_relaxed(blocking_used_) == 0) return channel_.usable();
    fikit_record* record;
    if (const Status status = begin(FIKIT_OP_SYNC, stream, record)) return status;
    finish(*record, false);
    return status::success;
}

bool Producer::functions_left() const {
    const uint32_t used = load_acquire(streams_used_);
    for (uint32_t stream = 0; stream < used; ++stream)
        if (load_acquire(channel_.host_done(stream)) < load_relaxed(streams_[stream].host)) return true;
    return false;
}

// A host function that nobody runs.
Status Producer::close_gate(uint32_t stream, uint64_t& step) {
    fikit_record* record;
    if (const Status status = begin(FIKIT_OP_HOST_FUNCTION, stream, record)) return status;
    store_relaxed(streams_[stream].host, streams_[stream].steps + 1);
    step = finish(*record, false);
    return status::success;
}

void Producer::open_gate(uint32_t stream, uint64_t step) {
    store_ordered(channel_.host_done(stream), step);
    channel_.ring_doorbell();
}

// --- waiting ---

bool Producer::idle(uint32_t stream) const {
    const Stream& counted = streams_[stream];
    return reached(stream, load_relaxed(counted.steps)) &&
           load_acquire(channel_.host_done(stream)) >= load_relaxed(counted.host);
}

// The step whose mark says that everything issued so far has completed.
Status Producer::ask_for_mark(uint32_t stream, uint64_t& step, int64_t deadline) {
    const Stream& counted = streams_[stream];
    step = load_relaxed(counted.steps);
    const uint64_t before = load_relaxed(steps_);
    const bool covers_all =
        stream != 0 || load_relaxed(blocking_used_) == 0 || load_relaxed(legacy_covers_) == before;
    if (covers_all && load_relaxed(counted.marked) == step && load_relaxed(counted.host) != step)
        return channel_.usable();
    fikit_record* record;
    if (const Status status = begin(FIKIT_OP_SYNC, stream, record, deadline)) return status;
    step = finish<Ordered::look>(*record, true);
    if (stream == 0) store_relaxed(legacy_covers_, before + 1);
    return status::success;
}

Status Producer::wait_for(uint32_t stream, uint64_t step, int64_t deadline) {
    const bool all = step == load_relaxed(streams_[stream].steps);
    if (reached(stream, step)) {
        if (all) waited(FIKIT_WAITED | FIKIT_FOUND);
        return channel_.usable();
    }
    if (host_functions_.within()) return status::not_permitted;
    Usual& usual = streams_[stream].wait;
    const int64_t begin = now_ns();
    const Status status =
        channel_.wait_until([&] { return reached(stream, step); }, deadline, patience_for(usual.ns()));
    if (status != status::success) return status;
    usual.note(now_ns() - begin);
    if (all) waited(FIKIT_WAITED);
    return status::success;
}

// Stream 0 and the blocking ones wait for each other, so the end of later work of one is that of earlier work
// of the other, whose own mark nobody asked for.
bool Producer::passed(uint32_t stream) const {
    const uint64_t last = load_relaxed(streams_[stream].last);
    if (last == 0 || load_relaxed(blocking_used_) == 0) return false;
    if (stream != 0)
        return load_relaxed(streams_[stream].blocking) && load_relaxed(streams_[0].last) > last && idle(0);
    const uint32_t used = load_acquire(streams_used_);
    for (uint32_t other = 1; other < used; ++other)
        if (load_relaxed(streams_[other].blocking) && load_relaxed(streams_[other].last) > last &&
            idle(other))
            return true;
    return false;
}

// Work of the blocking streams comes before what the legacy default stream is asked for.
[[gnu::noinline]] bool Producer::all_passed(uint32_t stream) const {
    if (stream != 0 || load_relaxed(blocking_used_) == 0) return passed(stream);
    const uint32_t used = load_acquire(streams_used_);
    for (uint32_t other = 0; other < used; ++other)
        if ((other == 0 || load_relaxed(streams_[other].blocking)) && !idle(other) && !passed(other))
            return false;
    return true;
}

bool Producer::nothing_before(uint32_t stream) const {
    if ((stream != 0 || load_relaxed(blocking_used_) == 0) && idle(stream)) return true;
    return all_passed(stream);
}

// Somebody asked whether the step is over: what is told.
[[gnu::noinline]] Status Producer::asked(uint32_t stream, uint64_t step, Status answer) {
    const uint64_t place = uint64_t{stream} << step_bits | step;
    if (answer == status::not_ready) {
        store_relaxed(asked_, place);
        if (const Status status = channel_.look_now_and_then()) return status;
    } else if (load_relaxed(asked_) == place) {
        store_relaxed(asked_, uint64_t{0});
        if (step == load_relaxed(streams_[stream].steps)) waited(FIKIT_WAITED);
    }
    return answer == status::success ? channel_.take_deferred() : answer;
}

Status Producer::stream_query(uint32_t stream) {
    if (stream >= FIKIT_MAX_STREAMS) return status::invalid_handle;
    if (const Status status = channel_.usable()) return status;
    if (nothing_before(stream)) {
        if (load_relaxed(asked_) != 0) [[unlikely]]
            return asked(stream, load_relaxed(streams_[stream].steps), status::success);
        return channel_.take_deferred();
    }
    const uint64_t before = load_relaxed(steps_);
    uint64_t step;
    if (const Status status = ask_for_mark(stream, step, 0)) return status;  // so that asking again finds it
    if (!reached(stream, step) && (load_relaxed(steps_) == before || host_functions_.within()))
        return asked(stream, step, status::not_ready);
    // What was over before it was asked for, as another stream's end may have told, is known when its mark
    // is.
    for (const int64_t until = now_ns() + query_patience_ns; !reached(stream, step); relax())
        if (now_ns() >= until) return asked(stream, step, status::not_ready);
    if (const Status status = channel_.usable()) return status;
    asked(stream, step, status::success);
    return channel_.take_deferred();
}

Status Producer::stream_synchronize(uint32_t stream, int64_t deadline) {
    const Status status = stream_settle(stream, deadline);
    return status != status::success ? status : channel_.take_deferred();
}

Status Producer::stream_settle(uint32_t stream, int64_t deadline) {
    if (stream >= FIKIT_MAX_STREAMS) return status::invalid_handle;
    if (const Status status = channel_.usable()) return status;
    if (nothing_before(stream)) {
        waited(FIKIT_WAITED | FIKIT_FOUND);
    } else {
        uint64_t step;
        if (const Status status = ask_for_mark(stream, step, deadline)) return status;
        if (const Status status = wait_for(stream, step, deadline)) return status;
    }
    return status::success;
}

Status Producer::stream_reach(uint32_t stream) {
    if (stream == 0 || stream >= FIKIT_MAX_STREAMS || !load_relaxed(streams_[stream].blocking) || idle(0))
        return stream_synchronize(stream);
    uint64_t step;
    if (const Status status = mark_stream(stream, step)) return status;
    if (const Status status = wait_for(stream, step, forever)) return status;
    return channel_.take_deferred();
}

Status Producer::synchronize(int64_t deadline) {
    const Status status = settle(deadline);
    return status != status::success ? status : channel_.take_deferred();
}

Status Producer::settle(int64_t deadline) {
    const uint32_t used = load_acquire(streams_used_);
    // A thread's stack need not have room for all streams that there could be.
    auto* const steps = static_cast<uint64_t*>(__builtin_alloca(used * sizeof(uint64_t)));
    if (const Status status = channel_.usable()) return status;
    for (uint32_t stream = 0; stream < used; ++stream) {
        steps[stream] = 0;
        if (idle(stream)) continue;
        if (const Status status = ask_for_mark(stream, steps[stream], deadline)) return status;
    }
    for (uint32_t stream = 0; stream < used; ++stream)
        if (const Status status = wait_for(stream, steps[stream], deadline)) return status;
    waited(FIKIT_WAITED | FIKIT_FOUND);
    return status::success;
}

// --- streams and events ---

Status Producer::stream_create(uint32_t flags, int32_t priority, uint32_t& stream) {
    stream = stream_handles_.take();
    if (stream == 0) return status::out_of_memory;
    fikit_stream* record;
    if (const Status status = begin(FIKIT_OP_STREAM_CREATE, stream, record)) {
        stream_handles_.give_back(stream);
        return status;
    }
    record->flags = flags;
    record->priority = priority;
    const bool blocking = (flags & FIKIT_STREAM_NON_BLOCKING) == 0;
    store_relaxed(streams_[stream].last, uint64_t{0});  // of whoever had the handle before
    store_relaxed(streams_[stream].blocking, blocking);
    if (blocking) store_relaxed(blocking_used_, 1u);
    if (stream >= streams_used_) store_release(streams_used_, stream + 1);
    channel_.commit();
    store_release(streams_[stream].alive, true);
    const uint32_t all = load_acquire(joint_event_);
    return all == 0 ? status::success : event_wait(all, stream);
}

// Waits without the mutex: what runs meanwhile (a finaliser of Python's) may destroy a stream, too.
Status Producer::stream_destroy(uint32_t stream) {
    if (stream == 0) return status::invalid_handle;
    Status status = status::not_ready;
    while (status == status::not_ready) {
        if (const Status room = channel_.await_room(whole_lines(sizeof(fikit_stream)))) return room;
        const Locked lock(joint_mutex_);
        store_release(streams_[stream].alive, false);
        fikit_stream* record;
        status = begin(FIKIT_OP_STREAM_DESTROY, stream, record, 0);
        if (status != status::success) continue;
        record->flags = 0;
        record->priority = 0;
        channel_.commit();
        stream_handles_.give_back(stream);
    }
    return status;
}

// The mutex is held.
Status Producer::find_joint() {
    if (joint_ != 0) return status::success;
    uint32_t stream = 0, event = 0;
    if (const Status status = event_create(event)) return status;
    if (const Status status = stream_create(FIKIT_STREAM_NON_BLOCKING, 0, stream)) {
        event_handles_.give_back(event);
        return status;
    }
    joint_ = stream;
    store_release(joint_event_, event);
    return status::success;
}

Status Producer::event_record_everywhere(uint32_t event, bool timing) {
    const Locked lock(joint_mutex_);
    if (const Status status = find_joint()) return status;
    const uint32_t used = load_acquire(streams_used_);
    for (uint32_t stream = 0; stream < used; ++stream) {
        uint32_t point = 0;
        if (stream == joint_ || !alive(stream) || idle(stream)) continue;
        if (const Status status = event_create(point)) return status;
        Status status = event_record(point, stream, false);
        if (status == status::success) status = event_wait(point, joint_);
        event_destroy(point);
        if (status != status::success) return status;
    }
    return event_record(event, joint_, timing);
}

// The mutex is held.
Status Producer::spread() {
    if (const Status status = event_record(joint_event_, joint_, false)) return status;
    const uint32_t used = load_acquire(streams_used_);
    for (uint32_t stream = 0; stream < used; ++stream)
        if (stream != joint_ && alive(stream))
            if (const Status status = event_wait(joint_event_, stream)) return status;
    return status::success;
}

Status Producer::event_create(uint32_t& event) {
    if (const Status status = channel_.usable()) return status;
    event = event_handles_.take();
    if (event == 0) return status::out_of_memory;
    store_relaxed(events_[event], uint64_t{0});
    return status::success;
}

Status Producer::event_destroy(uint32_t event) {
    if (event == 0 || event >= FIKIT_MAX_EVENTS) return status::invalid_handle;
    fikit_event* record;
    if (const Status status = begin(FIKIT_OP_EVENT_DESTROY, 0, record)) return status;
    record->event = event;
    record->flags = 0;
    record->session = 0;
    channel_.commit();
    event_handles_.give_back(event);
    return status::success;
}

Status Producer::event_record(uint32_t event, uint32_t stream, bool timing) {
    if (event == 0 || event >= FIKIT_MAX_EVENTS) return status::invalid_handle;
    fikit_event* record;
    if (const Status status = begin(FIKIT_OP_EVENT_RECORD, stream, record)) return status;
    record->event = event;
    record->flags = timing ? FIKIT_EVENT_TIMING : 0;
    record->session = 0;
    store_release(events_[event], uint64_t{stream} << step_bits | (streams_[stream].steps + 1));
    finish<Ordered::look>(record->record, true);
    return status::success;
}

template <Producer::Ordered ordered>
Status Producer::enqueue_event(uint32_t op, uint32_t session, uint32_t event, uint32_t stream, bool mark) {
    fikit_event* record;
    if (const Status status = begin(op, stream, record)) return status;
    record->event = event;
    record->flags = 0;
    record->session = session;
    finish<ordered>(record->record, mark);
    return status::success;
}

Status Producer::event_wait(uint32_t event, uint32_t stream) {
    const Status status = event_status(event);
    // That an event which never was is no action, and one that is over is, is what an H100 does.
    if (status == status::success && stream == 0 && load_relaxed(events_[event]) != 0)
        return stream_act(stream);
    if (status != status::not_ready) return status;
    return enqueue_event<Ordered::wait>(FIKIT_OP_EVENT_WAIT, 0, event, stream);
}

Status Producer::event_record_other(uint32_t session, uint32_t event, uint32_t stream) {
    return enqueue_event<Ordered::look>(FIKIT_OP_EVENT_RECORD, session, event, stream);
}

Status Producer::event_wait_other(uint32_t session, uint32_t event, uint32_t stream, bool mark) {
    return enqueue_event<Ordered::wait>(FIKIT_OP_EVENT_WAIT, session, event, stream, mark);
}

inline Status Producer::event_status(uint32_t event, uint64_t& recorded) const {
    if (event == 0 || event >= FIKIT_MAX_EVENTS) return status::invalid_handle;
    if (const Status status = channel_.usable()) return status;
    recorded = load_acquire(events_[event]);
    const bool done = reached(static_cast<uint32_t>(recorded >> step_bits), recorded & step_mask);
    return done ? status::success : status::not_ready;
}

Status Producer::event_query(uint32_t event) {
    uint64_t recorded = 0;
    const Status answer = event_status(event, recorded);
    if (answer == status::not_ready || load_relaxed(asked_) != 0) [[unlikely]]
        return asked(static_cast<uint32_t>(recorded >> step_bits), recorded & step_mask, answer);
    return answer == status::success ? channel_.take_deferred() : answer;
}

Status Producer::event_status(uint32_t event) const {
    uint64_t recorded = 0;
    return event_status(event, recorded);
}

void Producer::event_step(uint32_t event, uint32_t& stream, uint64_t& step) const {
    const uint64_t recorded = load_acquire(events_[event]);
    stream = static_cast<uint32_t>(recorded >> step_bits);
    step = recorded & step_mask;
}

Status Producer::event_synchronize(uint32_t event, int64_t deadline) {
    const Status status = event_settle(event, deadline);
    return status != status::success ? status : channel_.take_deferred();
}

Status Producer::event_settle(uint32_t event, int64_t deadline) {
    if (event == 0 || event >= FIKIT_MAX_EVENTS) return status::invalid_handle;
    if (const Status status = channel_.usable()) return status;
    const uint64_t recorded = load_acquire(events_[event]);
    return wait_for(static_cast<uint32_t>(recorded >> step_bits), recorded & step_mask, deadline);
}

}  // namespace fikit
