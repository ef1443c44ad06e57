// One operation to the GPU: what it needs checked against the session's tables, where it runs, the call.
#include <cstring>
#include <utility>

#include "core.hpp"
#include "launches.hpp"

namespace fikit {
namespace {

constexpr double link_bytes_per_ns = 55.0;      // pinned copies over PCIe 5 x16
constexpr double device_bytes_per_ns = 2000.0;  // device to device, fills
constexpr Nanoseconds copy_latency = 2000;

scheduling::Engine engine_of(uint32_t copy_kind) {
    if (copy_kind == FIKIT_COPY_ON_DEVICE) return scheduling::Engine::on_device;
    return copy_kind == FIKIT_COPY_TO_HOST ? scheduling::Engine::to_host : scheduling::Engine::to_device;
}

// Of those that streams had which are idle, else a new one.
[[gnu::noinline]] void take_queue(Session& session, SessionStream& stream) {
    if (session.spare_queues.empty()) session.spare_queues.push_back(std::make_unique<InFlightQueue>());
    stream.queue = std::move(session.spare_queues.back());
    session.spare_queues.pop_back();
}

}  // namespace

inline void Core::count_step(Session& session, SessionStream& stream, uint32_t handle) {
    ++stream.issued;
    ++session.steps_issued;
    ++session.unmarked_steps;
    ++session.in_flight;
    if (++in_flight_ == 1) busy_since_ = now_;
    if (!stream.active) {
        stream.active = true;
        stream.stands_since = now_;
        if (stream.queue == nullptr) [[unlikely]]
            take_queue(session, stream);
        session.active.push_back(handle);
        ++stream.lane->busy;
    }
}

// Makes the legacy default stream when it is first named. False: the stream of the head does not exist, and
// the session has ended. A destroyed one can still be asked for its mark: another thread of the tenant may be
// synchronising.
bool Core::stream_exists(Session& session) {
    const fikit_record& record = session.head->record();
    auto& slot = session.streams[record.stream];
    if (slot != nullptr && (slot->created || record.op == FIKIT_OP_SYNC)) return true;
    if (record.stream != 0) {
        end_session(session, CUDA_ERROR_INVALID_HANDLE,
                    "stream " + std::to_string(record.stream) + " does not exist");
        return false;
    }
    slot = std::make_unique<SessionStream>();
    slot->created = true;
    return true;
}

// The launch at the head is refused; its step counts all the same.
bool Core::refuse_launch(Session& session, CUresult error, const std::string& text) {
    const uint32_t handle = session.head->record().stream;
    SessionStream& stream = *session.streams[handle];
    session.head_ready = false;
    if (!stream.active) place(session, stream, handle, whole_gpu);
    count_step(session, stream, handle);
    refuse(session, error, text);
    write_awaited_mark(session, stream, handle);
    return false;
}

bool Core::refuse_function(Session& session, uint32_t function) {
    return refuse_launch(session, CUDA_ERROR_INVALID_HANDLE,
                         "launch: function " + std::to_string(function) + " does not exist");
}

// A launch of a shape that the function's last one did not have: looked at in full, and remembered.
bool Core::examine_launch(Session& session, SessionFunction& function) {
    const auto& launch = session.head->as<fikit_launch>();
    if (const char* wrong = check_shape(launch, function); wrong != nullptr) {
        const std::lock_guard lock(names_mutex_);
        return refuse_launch(session, CUDA_ERROR_INVALID_VALUE,
                             "launch of " + names_[function.name].function + ": " + wrong);
    }
    KernelShape shape;
    std::memcpy(&shape, launch.grid, sizeof shape);
    function.last_kernel = &kernel_of(function, shape, {function.hash, function.name});
    function.last_key = function.last_kernel->key;
    return true;
}

// The attributes of the launch at the head, which decide what it is in the profile. False: one of them is
// refused. A cooperative launch cannot be confined.
bool Core::examine_attributes(Session& session, const SessionFunction& function) {
    LaunchTraits traits;
    const uint32_t count = session.head->as<fikit_launch>().attributes;
    for (uint32_t i = 0; i < count; ++i) {
        fikit_attribute attribute;
        std::memcpy(&attribute, session.head->attributes() + i, sizeof attribute);
        if (attribute_use(attribute.id) == AttributeUse::refuse)
            return refuse_launch(session, CUDA_ERROR_NOT_SUPPORTED,
                                 "launch attribute " + std::to_string(attribute.id) + " is not supported");
        traits.take(attribute);
    }
    if (traits.plain()) return true;
    KernelShape shape;
    std::memcpy(&shape, session.head->as<fikit_launch>().grid, sizeof shape);
    session.head_kernel = &kernel_of(function, shape, variant_of(function, traits));
    session.head_work = session.head_kernel->work;
    session.head_work.whole |= traits.cooperative;
    return true;
}

// Once for each kernel and its attributes: the name that it goes by.
Core::KernelIdentity Core::variant_of(const SessionFunction& function, const LaunchTraits& traits) {
    const uint64_t key = mix(function.hash, traits.packed());
    if (const auto known = variants_.find(key); known != variants_.end()) return known->second;
    if (variants_.size() >= KernelNames::most) return {function.hash, function.name};
    const std::lock_guard lock(names_mutex_);
    KernelName name = names_[function.name];
    name.function += traits.text();
    return variants_[key] = {KernelNames::hash_of(name), names_.index_of(name)};
}

// What the head's kernel comes behind tells how long it takes.
void Core::tell_apart(Session& session) {
    const SessionStream& stream = *session.streams[session.head->record().stream];
    bool fresh = false;
    KernelEntry& entry = behind(stream.before, *session.head_kernel,
                                [&](uint64_t key) -> KernelEntry& { return profile_.find(key, fresh); });
    session.head_kernel = &entry;
    if (!entry.known()) return;
    const bool whole = session.head_work.whole;
    session.head_work = entry.work;
    session.head_work.whole |= whole;
}

[[gnu::noinline]] Nanoseconds Core::guess(const Session& session) const {
    return session.usual.guess(session.level == scheduling::highest_level, settings_.bounds.in_flight);
}

// The profile's entry for a launch, new or not.
KernelEntry& Core::kernel_of(const SessionFunction& function, const KernelShape& shape,
                             const KernelIdentity& identity) {
    bool fresh = false;
    KernelEntry& entry = profile_.find(Profile::key_of(identity.hash, shape), fresh);
    if (!fresh && entry.waves != 0) return entry;
    const auto threads = static_cast<int>(shape.block[0] * shape.block[1] * shape.block[2]);
    int resident = 0;
    if (driver_.cuOccupancyMaxActiveBlocksPerMultiprocessor_(&resident, function.function, threads,
                                                             shape.shared_bytes) != CUDA_SUCCESS ||
        resident < 1)
        resident = 1;
    entry.shape = shape;
    entry.work.key = entry.key;
    entry.work.blocks = static_cast<uint32_t>(std::min<uint64_t>(shape.blocks(), UINT32_MAX));
    entry.work.per_sm = static_cast<uint16_t>(resident);
    entry.waves = entry.waves_on(multiprocessors_);
    entry.tell();
    entry.name = identity.name;
    return entry;
}

// What a copy or fill is expected to take; nothing for the other steps.
void Core::prepare_copy(Session& session) {
    session.head_kernel = nullptr;
    scheduling::Work& work = session.head_work = {};
    work.engine = scheduling::Engine::none;
    work.known = work.whole = true;
    const fikit_record& record = session.head->record();
    if (record.op == FIKIT_OP_COPY) {
        const auto& copy = session.head->as<fikit_copy>();
        const double rate = copy.kind == FIKIT_COPY_ON_DEVICE ? device_bytes_per_ns : link_bytes_per_ns;
        work.expected = copy_latency + static_cast<Nanoseconds>(static_cast<double>(copy.size) / rate);
        work.engine = engine_of(copy.kind);
    } else if (record.op == FIKIT_OP_FILL) {
        const auto& fill = session.head->as<fikit_fill>();
        const auto bytes = static_cast<double>(fill.count) * fill.width;
        const double rate = session.is_pinned(fill.device) ? link_bytes_per_ns : device_bytes_per_ns;
        work.expected = copy_latency + static_cast<Nanoseconds>(bytes / rate);
        work.engine = scheduling::Engine::on_device;
    }
}

// CUDA C++ Programming Guide, "Legacy Default Stream": it waits for the blocking streams and they for it.
// Inside the session only. What has completed needs no order.
void Core::order_with_legacy(Session& session, SessionStream& stream, uint32_t handle) {
    if (handle == 0) {
        for (const uint32_t other : session.active) {
            SessionStream& earlier = *session.streams[other];
            if (other == 0 || !earlier.blocking || earlier.issued == earlier.by_legacy) continue;
            wait_for(stream.lane->stream, earlier);
            earlier.by_legacy = earlier.issued;
        }
    } else if (stream.blocking && session.streams[0] != nullptr) {
        SessionStream& legacy = *session.streams[0];
        if (legacy.issued == stream.legacy_seen) return;
        if (legacy.issued > legacy.completed) wait_for(stream.lane->stream, legacy);
        stream.legacy_seen = legacy.issued;
    }
}

inline CUresult Core::issue_launch(Session& session, CUstream stream) {
    const auto& launch = session.head->as<fikit_launch>();
    const SessionFunction& function = session.functions[launch.function];
    ++session.usage.launches;
    size_t bytes = launch.parameter_bytes;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<uint8_t*>(session.head->parameters()),
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    void** parameters = bytes > 0 ? extra : nullptr;
    if (launch.attributes != 0) [[unlikely]]
        return launch_with_attributes(session, function, stream, parameters);
    return driver_.cuLaunchKernel_(function.function, launch.grid[0], launch.grid[1], launch.grid[2],
                                   launch.block[0], launch.block[1], launch.block[2], launch.shared_bytes,
                                   stream, nullptr, parameters);
}

CUresult Core::launch_with_attributes(const Session& session, const SessionFunction& function,
                                      CUstream stream, void** parameters) {
    const auto& launch = session.head->as<fikit_launch>();
    CUlaunchAttribute attributes[FIKIT_MAX_ATTRIBUTES] = {};
    unsigned count = 0;
    for (uint32_t i = 0; i < launch.attributes; ++i) {
        fikit_attribute given;
        std::memcpy(&given, session.head->attributes() + i, sizeof given);
        if (attribute_use(given.id) != AttributeUse::pass) continue;
        attributes[count].id = static_cast<CUlaunchAttributeID>(given.id);
        static_assert(sizeof attributes[count].value == sizeof given.value);
        std::memcpy(&attributes[count].value, given.value, sizeof given.value);
        ++count;
    }
    CUlaunchConfig config{};
    config.gridDimX = launch.grid[0];
    config.gridDimY = launch.grid[1];
    config.gridDimZ = launch.grid[2];
    config.blockDimX = launch.block[0];
    config.blockDimY = launch.block[1];
    config.blockDimZ = launch.block[2];
    config.sharedMemBytes = launch.shared_bytes;
    config.hStream = stream;
    config.attrs = attributes;
    config.numAttrs = count;
    return driver_.cuLaunchKernelEx_(&config, function.function, nullptr, parameters);
}

// A timer that is free, though the last `spared` of them are for others; -1: there is none.
int32_t Core::take_timer(size_t spared) {
    if (free_timers_.size() <= spared) return -1;
    const int32_t timer = free_timers_.back();
    free_timers_.pop_back();
    return timer;
}

// A session of which every launch is measured issues none before it has a timer. False: it has to wait for
// one. Some are for such sessions alone, more than there can be sessions, so that what it waits for
// completes.
bool Core::keep_timer(Session& session) {
    if (session.head_timer < 0) session.head_timer = take_timer(0);
    return session.head_timer >= 0;
}

// Begins to measure what is issued next on the stream; -1: no timer is free.
[[gnu::noinline]] int32_t Core::start_timer(Session& session, CUstream stream) {
    static constexpr size_t spared = 2 * scheduling::max_sessions;
    int32_t timer = std::exchange(session.head_timer, -1);
    if (timer < 0) timer = take_timer(spared);
    if (timer >= 0) driver_.cuEventRecord_(timers_[static_cast<size_t>(timer)].before, stream);
    return timer;
}

// Issues the head of the session. Work goes `where` it was decided; what only orders work stays on the lane,
// or where the stream was.
void Core::issue(Session& session, uint8_t where) {
    const fikit_record& record = session.head->record();
    SessionStream& stream = *session.streams[record.stream];
    const bool work = record.op <= FIKIT_OP_FILL, high = session.level == scheduling::highest_level;
    const Nanoseconds began = now_;
    if (session.head_kernel != nullptr && session.head_kernel->work.key != session.head_work.key) [[unlikely]]
        session.head_kernel = nullptr;  // it has waited, and another kernel has its entry
    if ((record.flags & FIKIT_WAITED) != 0 && high)
        policy_->awaited(session.index, (record.flags & FIKIT_FOUND) != 0, now_);
    Lane* lane = stream.lane;
    if (!stream.active || (work && lane != stream.lanes[where]))
        lane = place(session, stream, record.stream, work ? where : stream.where);
    if (record.stream == 0 ? session.used.size() > 1 : stream.blocking)
        order_with_legacy(session, stream, record.stream);

    const bool sampled =
        session.head_kernel != nullptr &&
        (session.head_kernel->sample_now() || session.measured || (high && policy_->curious(session.index)));
    const bool traced = trace_.on();
    const int32_t timer = work && (sampled || traced) ? start_timer(session, lane->stream) : -1;
    const CUresult result = record.op == FIKIT_OP_LAUNCH ? issue_launch(session, lane->stream)
                                                         : issue_other(session, stream, lane->stream);
    if (result != CUDA_SUCCESS && where != whole_gpu) [[unlikely]]
        return decide_again(session, stream, record.stream, timer);
    if (timer >= 0) [[unlikely]]
        driver_.cuEventRecord_(timers_[static_cast<size_t>(timer)].after, lane->stream);
    if (session.head_kernel != nullptr) {
        if (sampled && session.last_key != 0) [[unlikely]] {
            const Nanoseconds arrived = session.head_waits ? session.head_arrived : now_;
            session.head_kernel->of_key().follows(session.last_key, arrived - session.last_launch);
        }
        session.last_key = session.head_work.key;
        stream.before.launched(session.last_key);
        session.last_launch = now_;
    }

    now_ = clock_.now();
    count_step(session, stream, record.stream);
    if (work && (result == CUDA_SUCCESS || timer >= 0)) {
        InFlight& entry = stream.queue->push();
        entry.step = stream.issued;
        entry.serial = session.steps_issued;
        entry.work = session.head_work;
        entry.work.gated = !high;
        entry.work.partition = where;
        entry.kernel = session.head_kernel;
        entry.timer = timer;
        entry.queued = stream.completed + 1 < stream.issued;
        entry.multiprocessors = lane->multiprocessors;
        entry.traced = traced;
        if (traced) [[unlikely]]
            begin_trace(session, entry, began, stream.queue->back_trace());
        session.unmarked_work += entry.work.expected;
        entry.beside = beside_.enter(entry.work);
        policy_->issued(session.index, entry.work, now_);
    } else if (session.head_waits) {
        policy_->withdrawn(session.index, now_);
    } else if (record.op == FIKIT_OP_VALUES) [[unlikely]] {
        InFlight& entry = stream.queue->push() = {};
        entry.step = stream.issued;
        entry.serial = session.steps_issued;
        entry.timer = InFlight::write;
    }
    session.head_ready = session.head_waits = false;
    if ((record.flags & FIKIT_MARK) != 0) write_awaited_mark(session, stream, record.stream);
    if (result != CUDA_SUCCESS) report(session, result);
}

// The driver refused the head on a partition, which may lack what the whole GPU has: a cluster's blocks need
// SMs next to each other. Nothing was issued; the gate decides again, for the whole GPU.
void Core::decide_again(Session& session, SessionStream& stream, uint32_t handle, int32_t timer) {
    session.head_work.whole = true;
    --session.usage.launches;  // it counts when it goes
    if (session.head_kernel != nullptr)
        session.head_kernel->work.whole = session.head_kernel->of_key().work.whole = true;
    // The other lane has to be ordered as this one was.
    stream.legacy_seen = UINT64_MAX;
    if (handle == 0)
        for (const uint32_t other : session.active) session.streams[other]->by_legacy = 0;
    if (timer >= 0 && session.measured)
        session.head_timer = timer;
    else if (timer >= 0)
        free_timers_.push_back(timer);
    session.head_arrived = now_;
    policy_->withdrawn(session.index, now_);
    policy_->arrived(session.index, session.head_work, now_);
}

// What the trace says of the head, as far as it is known when it is issued: which `began` when it was let
// through. By the end of the driver's calls it may have run.
void Core::begin_trace(const Session& session, const InFlight& entry, Nanoseconds began, TraceRecord& trace) {
    const fikit_record& record = session.head->record();
    trace = {};
    trace.session = session.serial;
    trace.stream = record.stream;
    trace.op = record.op;
    trace.arrived = entry.work.gated ? session.head_arrived : began;
    trace.issued = began;
    trace.multiprocessors = entry.multiprocessors;
    if (entry.kernel != nullptr) {
        trace.name = entry.kernel->name;
        trace.blocks = entry.kernel->shape.blocks();
    } else if (record.op == FIKIT_OP_COPY) {
        trace.detail = static_cast<uint16_t>(session.head->as<fikit_copy>().kind);
        trace.bytes = session.head->as<fikit_copy>().size;
    } else if (record.op == FIKIT_OP_FILL) {
        trace.bytes = session.head->as<fikit_fill>().count * session.head->as<fikit_fill>().width;
    }
}

// The operation just issued failed.
void Core::report(Session& session, CUresult result) {
    static constexpr const char* names[] = {
        "", "launch", "graph", "copy", "fill", "event record", "event wait", "synchronise", "host function"};
    const fikit_record& record = session.head->record();
    session.head_graph.reset();
    std::string what = record.op == FIKIT_OP_VALUES ? "stream memory operation" : names[record.op];
    if (record.op == FIKIT_OP_LAUNCH) {
        const std::lock_guard lock(names_mutex_);
        what += " of " + names_[session.functions[session.head->as<fikit_launch>().function].name].function;
    }
    check(session, result, what.c_str());
}

CUresult Core::issue_other(Session& session, SessionStream& stream, CUstream lane) {
    const fikit_record& record = session.head->record();
    switch (record.op) {
        case FIKIT_OP_GRAPH:
            return issue_graph(session, lane);
        case FIKIT_OP_COPY:
            return issue_copy(session, lane);
        case FIKIT_OP_FILL:
            return issue_fill(session, lane);
        case FIKIT_OP_EVENT_RECORD:
        case FIKIT_OP_EVENT_WAIT:
            return issue_event(session, stream, lane);
        case FIKIT_OP_HOST_FUNCTION:
            return issue_host_function(session, stream, record.stream);
        case FIKIT_OP_VALUES:
            return issue_values(session, lane);
        case FIKIT_OP_SYNC:
            if (session.level != scheduling::highest_level) return CUDA_SUCCESS;
            // It was ready with what is before it, and so the program was to wait.
            if (session.steps_issued != session.served_from) note_row(session);
            policy_->awaited(session.index, false, now_);
            return CUDA_SUCCESS;
        default:
            return CUDA_SUCCESS;
    }
}

}  // namespace fikit
