// The core's beginning and end, and what other threads may ask of it: attaching, ending, changing, reading.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "core.hpp"
#include "program_calls.hpp"
#include "scheduling/policies.hpp"

namespace fikit {
namespace {

constexpr uint64_t arena_bytes = uint64_t{256} << 30;  // of virtual addresses for each session
constexpr size_t gate_bytes = FIKIT_MAX_STREAMS * sizeof(HostGate);
constexpr unsigned timers = 512;
constexpr size_t traced_sessions = 4096;         // ended ones whose names a trace can still tell, at most
constexpr size_t header_bytes = 4 * FIKIT_PAGE;  // outbox header and host_done

void require(const Driver& driver, CUresult result, const char* what) {
    if (result != CUDA_SUCCESS) throw std::runtime_error(std::string(what) + ": " + driver.describe(result));
}

int duplicate(int descriptor) {
    const int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) throw std::runtime_error("no descriptor left for the session's channel");
    return copy;
}

}  // namespace

Core::Core(const Settings& settings, CUcontext context)
    : settings_(settings),
      context_(context),
      clock_(settings.time_scale),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      kick_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      notification_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (const std::string wrong = driver_.load(settings.driver_path.c_str()); !wrong.empty())
        throw std::runtime_error(wrong);
    require(driver_, driver_.cuCtxSetCurrent_(context), "cuCtxSetCurrent");
    require(driver_, driver_.cuCtxGetDevice_(&device_), "cuCtxGetDevice");
    int count = 0;
    require(driver_, driver_.cuDeviceGetAttribute_(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_),
            "cuDeviceGetAttribute");
    multiprocessors_ = static_cast<uint32_t>(count);
    CUdeviceptr arenas = 0;
    require(
        driver_,
        driver_.cuMemAddressReserve_(&arenas, arena_bytes * scheduling::max_sessions, Arena::granule, 0, 0),
        "reserving addresses for the sessions' arenas");
    arenas_ = arenas;
    if (!host_gates_.create("fikit-gates", gate_bytes * scheduling::max_sessions, true))
        throw std::runtime_error("no memory for the words that host functions wait on");
    require(driver_,
            driver_.cuMemHostRegister_(host_gates_.data(), host_gates_.size(),
                                       CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
            "cuMemHostRegister");
    require(driver_, driver_.cuMemHostGetDevicePointer_(&host_gates_device_, host_gates_.data(), 0),
            "cuMemHostGetDevicePointer");
    timers_.resize(timers);
    for (int32_t i = 0; i < static_cast<int32_t>(timers); ++i) {
        Timer& timer = timers_[static_cast<size_t>(i)];
        require(driver_, driver_.cuEventCreate_(&timer.before, CU_EVENT_DEFAULT), "cuEventCreate");
        require(driver_, driver_.cuEventCreate_(&timer.after, CU_EVENT_DEFAULT), "cuEventCreate");
        free_timers_.push_back(i);
    }
    for (CUevent& event : trace_base_)
        require(driver_, driver_.cuEventCreate_(&event, CU_EVENT_DEFAULT), "cuEventCreate");
    sessions_.reserve(scheduling::max_sessions);
    epoll_event event{EPOLLIN, {.u64 = 0}};
    if (!epoll_ || !kick_ || !notification_ ||
        epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, kick_.get(), &event) != 0)
        throw std::runtime_error("no descriptors for the dispatch loop");
}

void Core::start() {
    if (lanes_.empty() || monitor_ == nullptr) throw std::runtime_error("no streams were added");
    if (settings_.in_flight_limit == 0 || settings_.in_flight_limit > InFlightQueue::capacity)
        throw std::runtime_error("a session can have 1 to " + std::to_string(InFlightQueue::capacity) +
                                 " operations in flight");
    const std::vector<uint32_t> partitions = lanes_.partitions();
    if (partitions.size() > scheduling::max_partitions)
        throw std::runtime_error("there can be " + std::to_string(scheduling::max_partitions) +
                                 " partitions");
    settings_.bounds.partitions = {};
    for (size_t i = 0; i < partitions.size(); ++i)
        settings_.bounds.partitions[i] = static_cast<uint16_t>(partitions[i]);
    settings_.bounds.multiprocessors = static_cast<uint16_t>(multiprocessors_);
    greatest_priority_ = lanes_.greatest_priority();
    policy_ = scheduling::make_policy(settings_.policy, settings_.bounds);
    if (policy_ == nullptr) throw std::runtime_error("unknown policy " + settings_.policy);
    if (!settings_.board_path.empty() && !board_.open(settings_.board_path))
        throw std::runtime_error("the GPU's board " + settings_.board_path + ": " +
                                 (errno != 0 ? std::strerror(errno) : "no slot is free"));
    if (!settings_.ledger_path.empty() && !ledger_.open(settings_.ledger_path))
        throw std::runtime_error("the tenant's ledger " + settings_.ledger_path + ": " +
                                 (errno != 0 ? std::strerror(errno) : "no slot is free"));
    calibrate();
    workers_.start(settings_.workers, [this] { driver_.cuCtxSetCurrent_(context_); });
    releases_.start(1, [this] { driver_.cuCtxSetCurrent_(context_); });
    for (unsigned spare = 0; spare < settings_.spare_channels; ++spare)
        spare_channels_.push_back(make_channel());
    if (settings_.own_thread) thread_ = std::thread([this] { run(); });
}

// What two timing events around a kernel read beyond its own duration: measured with a kernel that does
// nothing, whose own duration is taken as `empty_kernel` (CUPTI reads 1.0 to 1.3 us for one on the H200, the
// events 7). On a stream that has nothing else to do, part of it is the host's: the first event happens at
// once, the kernel when its launch arrives. Behind other work that part is not there.
void Core::calibrate() {
    static constexpr char nothing[] =
        ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry nothing() { ret; }\n";
    constexpr Nanoseconds empty_kernel = 1200;
    constexpr size_t rounds = 31;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    require(driver_, driver_.cuModuleLoadDataEx_(&module, nothing, 0, nullptr, nullptr), "the empty kernel");
    require(driver_, driver_.cuModuleGetFunction_(&function, module, "nothing"), "the empty kernel");
    for (const bool behind : {false, true}) {
        std::array<Nanoseconds, rounds> readings{};
        for (Nanoseconds& reading : readings) reading = read_empty(function, behind);
        std::sort(readings.begin(), readings.end());
        timer_overhead_[behind] = std::max<Nanoseconds>(0, readings[rounds / 2] - empty_kernel);
    }
    require(driver_, driver_.cuModuleUnload_(module), "the empty kernel");
}

// What a pair of timing events reads around the function, on a stream that is idle or `behind` other work.
Nanoseconds Core::read_empty(CUfunction function, bool behind) {
    const Timer& timer = timers_.front();
    auto* word = reinterpret_cast<uint64_t*>(host_gates_.data());  // no session has it yet
    __atomic_store_n(word, uint64_t{0}, __ATOMIC_RELEASE);
    if (behind)
        require(driver_,
                driver_.cuStreamWaitValue64_(monitor_, host_gates_device_, 1, CU_STREAM_WAIT_VALUE_GEQ),
                "calibrating");
    require(driver_, driver_.cuEventRecord_(timer.before, monitor_), "calibrating");
    require(driver_, driver_.cuLaunchKernel_(function, 1, 1, 1, 1, 1, 1, 0, monitor_, nullptr, nullptr),
            "calibrating");
    require(driver_, driver_.cuEventRecord_(timer.after, monitor_), "calibrating");
    __atomic_store_n(word, uint64_t{1}, __ATOMIC_RELEASE);
    while (driver_.cuEventQuery_(timer.after) == CUDA_ERROR_NOT_READY) __builtin_ia32_pause();
    float milliseconds = 0;
    require(driver_, driver_.cuEventElapsedTime_(&milliseconds, timer.before, timer.after), "calibrating");
    return static_cast<Nanoseconds>(static_cast<double>(milliseconds) * 1e6);
}

void Core::stop() {
    {
        const std::lock_guard lock(posted_mutex_);
        stopping_.store(true);
    }
    kick();
    if (thread_.joinable()) thread_.join();
    workers_.stop();
    releases_.stop();
}

Core::~Core() { stop(); }

std::pair<int, int> Core::attach(AttachRequest request) {
    auto session = std::make_unique<Session>();
    session->lifeline = Descriptor(request.lifeline);
    session->process = Descriptor(request.process);
    session->id = request.id;
    session->level = request.level;
    session->weight = request.weight;
    session->memory_limit = request.memory_limit;
    session->tenant_limit = request.tenant_limit;
    Channel channel = take_channel();
    session->outbox = std::move(channel.outbox);
    session->inbox = std::move(channel.inbox);
    session->inbox_device = channel.inbox_device;
    session->ring =
        RingReader(session->outbox.data(), session->outbox.data() + header_bytes, settings_.ring_bytes);
    Descriptor outbox(duplicate(session->outbox.descriptor())), inbox(duplicate(session->inbox.descriptor()));
    try {
        on_dispatch([&] { adopt(session); });
    } catch (...) {
        unregister_when_idle(std::move(session->outbox));
        unregister_when_idle(std::move(session->inbox));
        throw;
    }
    return {outbox.release(), inbox.release()};
}

// A channel's memories, registered with the driver.
Core::Channel Core::make_channel() {
    Channel channel;
    const uint64_t staging_offset = header_bytes + settings_.ring_bytes;
    if (!channel.outbox.create("fikit-outbox", staging_offset + settings_.staging_bytes, false) ||
        !channel.inbox.create("fikit-inbox", FIKIT_INBOX_BYTES, true))
        throw std::runtime_error(std::string("no memory for the session's channel: ") + std::strerror(errno));
    auto* outbox = reinterpret_cast<fikit_outbox*>(channel.outbox.data());
    outbox->magic = FIKIT_OUTBOX_MAGIC;
    outbox->version = FIKIT_ABI_VERSION;
    outbox->ring_offset = header_bytes;
    outbox->ring_bytes = settings_.ring_bytes;
    outbox->staging_offset = staging_offset;
    outbox->staging_bytes = settings_.staging_bytes;
    auto* inbox = reinterpret_cast<fikit_inbox*>(channel.inbox.data());
    inbox->magic = FIKIT_INBOX_MAGIC;
    inbox->version = FIKIT_ABI_VERSION;
    require(driver_, driver_.cuCtxSetCurrent_(context_), "cuCtxSetCurrent");
    constexpr unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    require(driver_, driver_.cuMemHostRegister_(channel.outbox.data(), channel.outbox.size(), flags),
            "registering the session's outbox");
    CUresult result = driver_.cuMemHostRegister_(channel.inbox.data(), channel.inbox.size(), flags);
    if (result == CUDA_SUCCESS)
        result = driver_.cuMemHostGetDevicePointer_(&channel.inbox_device, channel.inbox.data(), 0);
    if (result != CUDA_SUCCESS) unregister_when_idle(std::move(channel.outbox));
    require(driver_, result, "registering the session's inbox");
    return channel;
}

// One made while nothing ran, if there is any; and another is made when nothing runs. Never one that another
// tenant's process still maps.
Core::Channel Core::take_channel() {
    when_idle([this] {
        {
            const std::lock_guard lock(idle_mutex_);
            if (spare_channels_.size() >= settings_.spare_channels) return;
        }
        try {
            Channel spare = make_channel();
            const std::lock_guard lock(idle_mutex_);
            spare_channels_.push_back(std::move(spare));
        } catch (const std::runtime_error&) {
            // The next session makes its own, and says what is wrong.
        }
    });
    {
        const std::lock_guard lock(idle_mutex_);
        if (!spare_channels_.empty()) {
            Channel channel = std::move(spare_channels_.back());
            spare_channels_.pop_back();
            return channel;
        }
    }
    return make_channel();
}

// On the dispatch thread: gives the session an index and starts reading its ring.
void Core::adopt(std::unique_ptr<Session>& session) {
    if (find(session->id) != nullptr)
        throw std::runtime_error("session " + session->id + " is attached already");
    unsigned index = 0;
    while (index < scheduling::max_sessions && by_index_[index] != nullptr) ++index;
    if (index == scheduling::max_sessions)
        throw std::runtime_error("the executor has no room for another session");
    session->index = index;
    session->serial = ++serials_;
    session->host_gate = reinterpret_cast<HostGate*>(host_gates_.data() + index * gate_bytes);
    session->host_gate_device = host_gates_device_ + index * gate_bytes;
    std::fill_n(session->host_gate, FIKIT_MAX_STREAMS, HostGate{});
    session->arena = std::make_unique<Arena>(driver_, device_, arenas_ + index * arena_bytes, arena_bytes);
    const int descriptors[] = {session->lifeline.get(), session->process.get()};
    for (uint64_t kind = 0; kind < 2; ++kind) {
        epoll_event event{EPOLLIN | EPOLLRDHUP, {.u64 = uint64_t{session->serial} << 1 | kind}};
        if (descriptors[kind] >= 0 && epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptors[kind], &event) != 0)
            throw std::runtime_error(std::string("watching the session's process: ") + std::strerror(errno));
    }
    by_index_[index] = session.get();
    policy_->opened(index, session->level, session->weight, clock_.now());
    ids_[session->serial] = session->id;
    if (ids_.size() > traced_sessions) ids_.erase(ids_.begin());
    sessions_.push_back(std::move(session));
}

void Core::forget_descriptors(Session& session) {
    for (const int descriptor : {session.lifeline.get(), session.process.get()})
        if (descriptor >= 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
}

// Frees all that a session held. Nothing of it is in flight.
void Core::release(Session& session) {
    for (PendingFree& pending : session.frees)
        if (pending.host.registered) unregister_when_idle(std::move(pending.host.memory));
    session.frees.clear();
    for (SessionGraph& graph : session.graphs)
        if (graph.executable != nullptr) driver_.cuGraphExecDestroy_(graph.executable);
    session.graphs.clear();
    release_mappings(driver_, session);
    session.arena->clear();
    for (auto& [handle, buffer] : session.host_buffers)
        if (buffer.registered) unregister_when_idle(std::move(buffer.memory));
    session.host_buffers.clear();
    for (const CUmodule module : session.modules)
        if (module != nullptr) when_idle([this, module] { driver_.cuModuleUnload_(module); });
    for (const SessionEvent& event : session.events)
        if (event.event != nullptr) driver_.cuEventDestroy_(event.event);
    for (const auto& stream : session.streams)
        if (stream != nullptr && stream->hop != nullptr) driver_.cuEventDestroy_(stream->hop);
    account_memory(session);
    session.lifeline = Descriptor();
}

void Core::account_memory(Session& session) {
    const uint64_t used = session.arena->used_bytes(), kept = session.arena->kept_bytes();
    ledger_.change(static_cast<int64_t>(used - session.memory_bytes.exchange(used)));
    kept_bytes_ += kept - session.kept_bytes.exchange(kept);
    if (used > session.memory_peak.load()) session.memory_peak.store(used);
}

// What the session may use as things are: its own limit, and what the tenant's other sessions leave
// of the tenant's. 0: no limit.
uint64_t Core::memory_limit_of(const Session& session) const {
    if (session.tenant_limit == 0) return session.memory_limit;
    const uint64_t own = session.memory_bytes.load(), all = ledger_.total();
    const uint64_t others = all > own ? all - own : 0;
    const uint64_t left = others < session.tenant_limit ? session.tenant_limit - others : 1;
    return session.memory_limit == 0 ? left : std::min(left, session.memory_limit);
}

Session* Core::find(const std::string& id) {
    for (const auto& session : sessions_)
        if (session->id == id && session->state == Session::State::running) return session.get();
    return nullptr;
}

bool Core::end(const std::string& id, int error, const std::string& reason) {
    bool found = false;
    on_dispatch([&] {
        if (Session* session = find(id); session != nullptr) {
            end_session(*session, error, reason);
            found = true;
        }
    });
    return found;
}

bool Core::change(const std::string& id, const SessionChange& wanted) {
    bool found = false;
    on_dispatch([&] {
        Session* session = find(id);
        if (session == nullptr) return;
        found = true;
        const Nanoseconds now = clock_.now();
        if (session->head_waits && (wanted.level || wanted.weight || wanted.paused)) {
            policy_->withdrawn(session->index, now);
            session->head_waits = false;  // looked at anew under what holds now
        }
        if (wanted.level && *wanted.level != session->level) {
            session->level = *wanted.level;
            // Lanes of the new priority from the next step on; the old one says where the last step went.
            for (const uint32_t handle : session->used) {
                SessionStream& stream = *session->streams[handle];
                for (Lane*& lane : stream.lanes) Lanes::give_back(lane);
            }
        }
        if (wanted.weight) session->weight = *wanted.weight;
        if (wanted.level || wanted.weight)
            policy_->changed(session->index, session->level, session->weight, now);
        if (wanted.paused) session->paused = *wanted.paused;
        if (wanted.measured) session->measured = *wanted.measured;
    });
    return found;
}

SessionSnapshot Core::snapshot_of(const Session& session) const {
    SessionSnapshot snapshot;
    snapshot.id = session.id;
    snapshot.level = session.level;
    snapshot.weight = session.weight;
    snapshot.paused = session.paused;
    snapshot.memory_limit = session.memory_limit;
    snapshot.usage = session.usage;
    snapshot.memory_bytes = session.memory_bytes.load();
    snapshot.memory_peak = session.memory_peak.load();
    for (const uint32_t handle : session.used)
        if (session.streams[handle]->functions != 0) ++snapshot.host_functions;
    snapshot.queued = session.ring.waiting_bytes() / FIKIT_RECORD_ALIGN;
    snapshot.unsupported = session.notes();
    snapshot.gate = policy_->statistics(session.index);
    if (const int blamed = snapshot.gate.blames; blamed >= 0)
        if (const Session* cause = by_index_[static_cast<size_t>(blamed)]; cause != nullptr)
            snapshot.delayed_by = cause->id;
    snapshot.measuring_time = static_cast<Nanoseconds>(session.usage.measured) * timer_overhead_[true];
    return snapshot;
}

Snapshot Core::snapshot() {
    Snapshot all;
    on_dispatch([&] {
        for (const auto& session : sessions_)
            if (session->state == Session::State::running) all.sessions.push_back(snapshot_of(*session));
        all.busy_ns = busy_ns_ + (in_flight_ > 0 ? clock_.now() - busy_since_ : 0);
    });
    all.loops = loops_.load();
    all.beats = beats_.load();
    return all;
}

std::vector<KernelMeasurement> Core::take_profiles() {
    std::vector<KernelMeasurement> taken;
    on_dispatch([&] {
        const std::lock_guard lock(names_mutex_);
        profile_.each([&](KernelEntry& entry) {
            if (!entry.dirty) return;
            entry.dirty = false;
            if (entry.name == KernelNames::unnamed) return;
            taken.push_back({names_[entry.name], entry.shape, entry.samples, entry.median, entry.p95,
                             entry.shortest, static_cast<uint32_t>(entry.work.block), entry.wrong, entry.key,
                             entry.gaps});
        });
    });
    return taken;
}

void Core::load_profiles(const std::vector<KernelMeasurement>& known) {
    std::vector<uint32_t> indices;
    for (const KernelMeasurement& measurement : known) indices.push_back(name_index(measurement.name));
    on_dispatch([&] {
        for (size_t i = 0; i < known.size(); ++i) {
            const KernelMeasurement& from = known[i];
            if (indices[i] == KernelNames::unnamed) continue;
            const uint64_t function = KernelNames::hash_of(from.name);
            bool fresh = false;
            KernelEntry* entry = profile_.find(Profile::key_of(function, from.shape), fresh);
            if (entry == nullptr || entry->samples > 0 || from.median == 0) continue;
            entry->shape = from.shape;
            entry->name = indices[i];
            if (fresh) entry->waves = 0;  // computed when the kernel is seen
            entry->samples = from.samples;
            entry->median = from.median;
            entry->p95 = from.p95;
            entry->shortest = from.shortest != 0 ? from.shortest : from.median;
            entry->wrong = from.wrong;
            entry->gaps = from.gaps;
            entry->durations.fill(from.median);
            entry->durations[0] = from.p95;
            entry->durations[1] = entry->shortest;
        }
    });
}

void Core::forget_profiles() {
    on_dispatch([&] { profile_.forget(); });
}

uint64_t Core::set_trace(bool on) {
    uint64_t cursor = 0;
    on_dispatch([&] {
        if (on && !trace_.on()) {
            trace_base_at_ = clock_.now();
            require(driver_, driver_.cuEventRecord_(trace_base_[0], monitor_), "cuEventRecord");
            trace_rebasing_ = false;
            trace_.start();
        } else if (!on) {
            trace_.stop();
        }
        cursor = trace_.cursor();
    });
    return cursor;
}

std::vector<NamedTrace> Core::read_trace(uint64_t& cursor, size_t limit, uint64_t& dropped) {
    std::vector<NamedTrace> taken;
    on_dispatch([&] {
        const std::lock_guard lock(names_mutex_);
        for (const TraceRecord& record : trace_.read(cursor, limit, dropped)) {
            const auto name = ids_.find(record.session);
            taken.push_back({record, name != ids_.end() ? name->second : "",
                             record.op <= FIKIT_OP_GRAPH ? names_[record.name].function : ""});
        }
    });
    return taken;
}

std::vector<EndedSession> Core::take_ended() {
    uint64_t value = 0;
    [[maybe_unused]] const auto got = read(notification_.get(), &value, sizeof value);
    const std::lock_guard lock(ended_mutex_);
    return std::exchange(ended_, {});
}

std::string Core::failure_text() {
    const std::lock_guard lock(ended_mutex_);
    return failure_text_;
}

}  // namespace fikit
