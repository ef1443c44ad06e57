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
            if (host_buffers_[handle].address != nullptr)
                munmap(host_buffers_[handle].address, host_buffers_[handle].size);
        munmap(host_buffers_, FIKIT_MAX_HOST_BUFFERS * sizeof(HostBuffer));
    }
    if (events_ != nullptr) munmap(events_, FIKIT_MAX_EVENTS * sizeof(uint64_t));
}

void Producer::end() {
    if (channel_.forked()) return;
    channel_.end();
    host_functions_.stop();
}

Status Producer::launch(const LaunchShape& shape, const fikit_attribute* attributes, const void* parameters,
                        int64_t deadline) {
    if (shape.stream >= FIKIT_MAX_STREAMS || shape.parameter_bytes > FIKIT_MAX_PARAMETERS ||
        shape.attributes > FIKIT_MAX_ATTRIBUTES) [[unlikely]]
        return status::invalid_value;
    const auto attribute_bytes = static_cast<uint32_t>(shape.attributes * sizeof(fikit_attribute));
    const auto bytes = whole_lines(sizeof(fikit_launch) + attribute_bytes + shape.parameter_bytes);
    void* room;
    if (const Status status = channel_.reserve(bytes, room, deadline)) [[unlikely]]
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
    if (attribute_bytes != 0) memcpy(behind, attributes, attribute_bytes);
    if (shape.parameter_bytes != 0) memcpy(behind + attribute_bytes, parameters, shape.parameter_bytes);
    finish(record->record, false);
    return status::success;
}

uint64_t Producer::finish(fikit_record& record, bool mark) {
    Stream& stream = streams_[record.stream];
    const uint64_t step = stream.steps + 1;
    store_relaxed(stream.steps, step);
    if (mark) {
        record.flags = FIKIT_MARK;
        store_relaxed(stream.marked, step);
    }
    channel_.commit();
    return step;
}

Status Producer::fill(uint32_t stream, uint64_t device, uint64_t count, uint32_t value, uint32_t width) {
    fikit_fill* record;
    if (const Status status = begin(FIKIT_OP_FILL, stream, record)) return status;
    record->device = device;
    record->count = count;
    record->value = value;
    record->width = width;
    finish(record->record, false);
    return status::success;
}

Status Producer::host_function(uint32_t stream, HostFunction function, void* argument) {
    HostFunctions::Entry* entry = nullptr;
    if (const Status status = host_functions_.prepare(function, argument, entry)) return status;
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

// --- waiting ---

bool Producer::reached(uint32_t stream, uint64_t step) const { return channel_.mark(stream) >= step; }

bool Producer::idle(uint32_t stream) const {
    const Stream& counted = streams_[stream];
    return reached(stream, load_relaxed(counted.steps)) &&
           load_acquire(channel_.host_done(stream)) >= load_relaxed(counted.host);
}

// The step whose mark says that everything issued so far has completed.
Status Producer::ask_for_mark(uint32_t stream, uint64_t& step) {
    const Stream& counted = streams_[stream];
    step = load_relaxed(counted.steps);
    if (load_relaxed(counted.marked) == step && load_relaxed(counted.host) != step) return channel_.usable();
    fikit_record* record;
    if (const Status status = begin(FIKIT_OP_SYNC, stream, record)) return status;
    step = finish(*record, true);
    return status::success;
}

Status Producer::wait_for(uint32_t stream, uint64_t step, int64_t deadline) {
    return channel_.wait_until([&] { return reached(stream, step); }, deadline);
}

Status Producer::stream_query(uint32_t stream) {
    if (stream >= FIKIT_MAX_STREAMS) return status::invalid_handle;
    if (const Status status = channel_.usable()) return status;
    if (idle(stream)) return channel_.take_deferred();
    uint64_t step;
    const Status status = ask_for_mark(stream, step);  // so that asking again will find it
    return status == status::success ? status::not_ready : status;
}

Status Producer::stream_synchronize(uint32_t stream, int64_t deadline) {
    if (stream >= FIKIT_MAX_STREAMS) return status::invalid_handle;
    if (const Status status = channel_.usable()) return status;
    if (!idle(stream)) {
        uint64_t step;
        if (const Status status = ask_for_mark(stream, step)) return status;
        if (const Status status = wait_for(stream, step, deadline)) return status;
    }
    return channel_.take_deferred();
}

Status Producer::synchronize(int64_t deadline) {
    uint64_t steps[FIKIT_MAX_STREAMS];
    const uint32_t used = load_acquire(streams_used_);
    if (const Status status = channel_.usable()) return status;
    for (uint32_t stream = 0; stream < used; ++stream) {
        steps[stream] = 0;
        if (idle(stream)) continue;
        if (const Status status = ask_for_mark(stream, steps[stream])) return status;
    }
    for (uint32_t stream = 0; stream < used; ++stream)
        if (const Status status = wait_for(stream, steps[stream], deadline)) return status;
    return channel_.take_deferred();
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
    if (stream >= streams_used_) store_release(streams_used_, stream + 1);
    channel_.commit();
    return status::success;
}

Status Producer::stream_destroy(uint32_t stream) {
    fikit_stream* record;
    if (stream == 0) return status::invalid_handle;
    if (const Status status = begin(FIKIT_OP_STREAM_DESTROY, stream, record)) return status;
    record->flags = 0;
    record->priority = 0;
    channel_.commit();
    stream_handles_.give_back(stream);
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
    store_release(events_[event], uint64_t{stream} << step_bits | (streams_[stream].steps + 1));
    finish(record->record, true);
    return status::success;
}

Status Producer::event_wait(uint32_t event, uint32_t stream) {
    const Status status = event_query(event);
    if (status != status::not_ready) return status;  // nothing to wait for, or an error
    fikit_event* record;
    if (const Status refused = begin(FIKIT_OP_EVENT_WAIT, stream, record)) return refused;
    record->event = event;
    record->flags = 0;
    finish(record->record, false);
    return status::success;
}

Status Producer::event_query(uint32_t event) {
    if (event == 0 || event >= FIKIT_MAX_EVENTS) return status::invalid_handle;
    if (const Status status = channel_.usable()) return status;
    const uint64_t recorded = load_acquire(events_[event]);
    const bool done = reached(static_cast<uint32_t>(recorded >> step_bits), recorded & step_mask);
    return done ? status::success : status::not_ready;
}

Status Producer::event_synchronize(uint32_t event, int64_t deadline) {
    if (event == 0 || event >= FIKIT_MAX_EVENTS) return status::invalid_handle;
    if (const Status status = channel_.usable()) return status;
    const uint64_t recorded = load_acquire(events_[event]);
    if (const Status status =
            wait_for(static_cast<uint32_t>(recorded >> step_bits), recorded & step_mask, deadline))
        return status;
    return channel_.take_deferred();
}

}  // namespace fikit
