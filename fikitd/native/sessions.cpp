// Sessions as the daemon wishes them: attached, changed, ended. From any thread.
#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "core.hpp"
#include "program_calls.hpp"

namespace fikit {
namespace {

constexpr size_t header_bytes = FIKIT_RING_OFFSET;
constexpr size_t most_keeping = 256;  // each has two descriptors here

int duplicate(int descriptor) {
    const int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) throw std::runtime_error("no descriptor left for the session's channel");
    return copy;
}

// What others leave of a limit that the session has together with them. 0: no limit.
uint64_t left_of(uint64_t limit, const Session& session, uint64_t all) {
    if (limit == 0) return 0;
    const uint64_t own = session.memory_bytes.load(), others = all > own ? all - own : 0;
    return others < limit ? limit - others : 1;
}

}  // namespace

std::pair<int, int> Core::attach(AttachRequest request) {
    auto session = std::make_unique<Session>();
    session->lifeline = TenantDescriptor(request.lifeline);
    session->process = Descriptor(request.process);
    session->id = request.id;
    session->level = request.level;
    session->weight = request.weight;
    session->memory_limit = request.memory_limit;
    session->tenant_limit = request.tenant_limit;
    session->job = std::move(request.job);
    session->unmodified = request.unmodified;
    Channel channel = take_channel();
    session->outbox = std::move(channel.outbox);
    session->inbox = std::move(channel.inbox);
    session->inbox_device = channel.inbox_device;
    session->ring =
        RingReader(session->outbox.data(), session->outbox.data() + header_bytes, settings_.ring_bytes);
    try {
        Descriptor outbox(duplicate(session->outbox.descriptor()));
        Descriptor inbox(duplicate(session->inbox.descriptor()));
        on_dispatch([&] { adopt(session); });
        return {outbox.release(), inbox.release()};
    } catch (...) {
        unregister_when_idle(std::move(session->outbox), std::move(session->inbox));
        throw;
    }
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
    {
        const std::lock_guard lock(spare_mutex_);
        if (!std::exchange(making_spares_, true)) when_idle([this] { make_spare(); });
        if (!spare_channels_.empty()) {
            Channel channel = std::move(spare_channels_.back());
            spare_channels_.pop_back();
            return channel;
        }
    }
    return make_channel();
}

// One, if there are too few; then it is asked for again.
void Core::make_spare() {
    const auto too_few = [this] { return spare_channels_.size() < settings_.spare_channels; };
    std::unique_lock lock(spare_mutex_);
    making_spares_ = too_few();
    if (!making_spares_) return;
    lock.unlock();
    try {
        Channel spare = make_channel();
        lock.lock();
        spare_channels_.push_back(std::move(spare));
        making_spares_ = too_few();
        if (making_spares_) when_idle([this] { make_spare(); });
    } catch (const std::runtime_error&) {
        // The next session makes its own, and says what is wrong.
        lock.lock();
        making_spares_ = false;
    }
}

// On the dispatch thread: gives the session an index and starts reading its ring.
void Core::adopt(std::unique_ptr<Session>& session) {
    if (find(session->id) != nullptr)
        throw std::runtime_error("session " + session->id + " is attached already");
    unsigned index = 0;
    while (index < scheduling::max_sessions && by_index_[index] != nullptr) ++index;
    if (index == scheduling::max_sessions)
        throw std::runtime_error("the executor has no room for another session");
    if (kept_memory_.programs() >= most_keeping)
        throw std::runtime_error("programs whose sessions are over keep too much pinned memory");
    session->index = index;
    session->serial = ++serials_;
    session->host_gate = reinterpret_cast<HostGate*>(host_gates_.data() + index * gate_bytes);
    session->host_gate_device = host_gates_device_ + index * gate_bytes;
    std::fill_n(session->host_gate, FIKIT_MAX_STREAMS, HostGate{});
    for (const auto& other : sessions_)
        if (!session->job.empty() && other->job == session->job) session->job_bytes = other->job_bytes;
    session->arena = std::make_unique<Arena>(driver_, device_, arenas_ + index * arena_bytes, arena_bytes);
    const int descriptors[] = {session->lifeline.get(), session->process.get()};
    for (uint64_t kind = 0; kind < 2; ++kind) {
        epoll_event event{EPOLLIN | EPOLLRDHUP, {.u64 = uint64_t{session->serial} << 1 | kind}};
        if (descriptors[kind] >= 0 && epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptors[kind], &event) != 0)
            throw std::runtime_error(std::string("watching the session's process: ") + std::strerror(errno));
    }
    // The policy forgets whom it blames by this index, which is another's from here on.
    for (Session* const other : by_index_)
        if (other != nullptr && policy_->statistics(other->index).blames == static_cast<int>(index))
            other->delayed_by = latest_[index];
    latest_[index] = session->id;
    by_index_[index] = session.get();
    policy_->opened(index, session->level, session->weight, clock_.now());
    if (session->unmodified) {
        const double share = settings_.bounds.spared_share;
        policy_->spared(index, static_cast<Nanoseconds>(share * static_cast<double>(launch_cost_)));
    }
    {
        const std::lock_guard lock(names_mutex_);
        ids_[session->serial] = session->id;
    }
    sessions_.push_back(std::move(session));
}

void Core::forget_descriptors(Session& session) {
    for (const int descriptor : {session.lifeline.get(), session.process.get()})
        if (descriptor >= 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
}

// Frees all that a session held. Nothing of it is in flight.
void Core::release(Session& session) {
    for (Pending<PinnedBuffer>& pending : session.host_frees)
        unregister_when_idle(std::move(pending.what.memory));
    session.host_frees.clear();
    session.frees.clear();
    session.head_graph.reset();
    session.graphs.clear();
    for (const auto& [number, conditions] : session.conditions) driver_.cuGraphDestroy_(conditions.graph);
    session.conditions.clear();
    session.links.clear();
    release_arrays(session);
    release_mappings(driver_, session);
    session.arena->clear();
    auto program = std::make_shared<KeptMemory::Program>();
    program->lifeline = std::move(session.lifeline);
    program->process = std::move(session.process);
    const bool keeps = !program->has_let_go();
    for (auto& [handle, buffer] : session.host_buffers) {
        if (!buffer.registered) continue;
        if (keeps && buffer.memory.is_ours())
            keep_when_idle(std::move(buffer.memory), session.serial, program);
        else
            unregister_when_idle(std::move(buffer.memory));
    }
    session.host_buffers.clear();
    for (const SessionModule& module : session.modules) unload_when_idle(module);
    if (session.compiled != nullptr) unload_when_idle(session.compiled->module);
    for (const SessionEvent& event : session.events)
        if (event.event != nullptr) driver_.cuEventDestroy_(event.event);
    for (const auto& stream : session.streams)
        if (stream != nullptr && stream->hop != nullptr) driver_.cuEventDestroy_(stream->hop);
    account_memory(session);
    session.arrived = {};
}

void Core::account_memory(Session& session) {
    const uint64_t used = session.arena->used_bytes(), kept = session.arena->kept_bytes();
    const uint64_t more = used - session.memory_bytes.exchange(used);
    session.job_bytes->fetch_add(more);
    ledger_.change(static_cast<int64_t>(more));
    kept_bytes_ += kept - session.kept_bytes.exchange(kept);
    if (used > session.memory_peak.load()) session.memory_peak.store(used);
}

uint64_t Core::limit_within_job(const Session& session) const {
    return left_of(session.memory_limit, session, session.job_bytes->load());
}

// What the session may use as things are: what its job's other sessions leave of its own limit, and the
// tenant's of the tenant's. 0: no limit.
uint64_t Core::memory_limit_of(const Session& session) const {
    const uint64_t job = limit_within_job(session);
    const uint64_t tenant = left_of(session.tenant_limit, session, ledger_.total());
    return job == 0 || tenant == 0 ? std::max(job, tenant) : std::min(job, tenant);
}

Session* Core::find(const std::string& id) {
    for (const auto& session : sessions_)
        if (session->id == id && session->state == Session::State::running) return session.get();
    return nullptr;
}

Session* Core::find(uint32_t serial) const {
    for (const auto& session : sessions_)
        if (session->serial == serial && session->state == Session::State::running) return session.get();
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
            for (const uint32_t handle : session->used) session->streams[handle]->lanes.fill(nullptr);
        }
        if (wanted.weight) session->weight = *wanted.weight;
        if (wanted.level || wanted.weight)
            policy_->changed(session->index, session->level, session->weight, now);
        if (wanted.paused) session->paused = *wanted.paused;
        if (wanted.measured) session->measured = *wanted.measured;
    });
    return found;
}

}  // namespace fikit
