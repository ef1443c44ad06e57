// What other threads may see of the sessions, the profile and the trace, and load into the profile. The
// dispatch thread spends a few microseconds of a turn on it at most, whatever is asked: what is long is asked
// for in pieces, since it would hold up every tenant of the executor.
#include <algorithm>
#include <stdexcept>
#include <unordered_map>

#include "core.hpp"

namespace fikit {
namespace {

constexpr size_t entries_per_turn = 16;   // of the profile, copied
constexpr size_t most_taken = 8192;       // of those, for one answer
constexpr uint32_t slots_per_turn = 128;  // of the profile, forgotten

}  // namespace

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
    for (const uint32_t handle : session.blocked)
        if (session.streams[handle]->block.kind == Block::Kind::host_function) ++snapshot.host_functions;
    // The ring's head is the tenant's word.
    snapshot.queued = std::min(session.ring.waiting_bytes(), settings_.ring_bytes) / FIKIT_RECORD_ALIGN;
    snapshot.unsupported = session.notes();
    snapshot.gate = policy_->statistics(session.index);
    const int blamed = snapshot.gate.blames;
    snapshot.delayed_by = blamed < 0 ? session.delayed_by : latest_[static_cast<size_t>(blamed)];
    snapshot.measuring_time = static_cast<Nanoseconds>(session.usage.measured) * timer_overhead_[true];
    if (session.call_since != 0 &&
        (session.waits_to_load || session.call_pending.load(std::memory_order_acquire)))
        snapshot.call_ns = clock_.to_host(clock_.now() - session.call_since);
    Nanoseconds due = 0;
    for (const uint32_t handle : session.active) {
        const SessionStream& stream = *session.streams[handle];
        const Nanoseconds takes = stream.queue->empty() ? 0 : stream.queue->front().work.expected;
        due = std::max(due, stream.stands_since + takes);
    }
    if (!session.active.empty())
        snapshot.overdue_ns = clock_.to_host(std::max<Nanoseconds>(0, clock_.now() - due));
    return snapshot;
}

Snapshot Core::snapshot() {
    Snapshot all;
    unsigned at = 0;
    piecewise([&] {
        const auto there = [&] {
            return by_index_[at] != nullptr && by_index_[at]->state == Session::State::running;
        };
        while (at < scheduling::max_sessions && !there()) ++at;
        if (at < scheduling::max_sessions) {
            all.sessions.push_back(snapshot_of(*by_index_[at++]));
            return true;
        }
        all.keeping = kept_memory_.programs();
        all.busy_ns = busy_ns_ + (in_flight_ > 0 ? clock_.now() - busy_since_ : 0);
        const Session* const oldest = ending_ ? oldest_in_flight().session : nullptr;
        if (oldest != nullptr && oldest->state == Session::State::draining) all.outlived = oldest->id;
        return false;
    });
    return all;
}

MemoryLeft Core::memory_left(uint64_t most, uint64_t used, uint64_t returning) const {
    MemoryLeft left;
    size_t free = 0, total = 0;
    left.result = driver_.cuCtxSetCurrent_(context_);
    if (left.result == CUDA_SUCCESS) left.result = driver_.cuMemGetInfo_(&free, &total);
    left.total = most != 0 ? std::min<uint64_t>(most, total) : total;
    const uint64_t own = used < left.total ? left.total - used : 0;
    left.free = std::min<uint64_t>(free + kept_bytes_.load() + returning,
                                   own / Arena::small_align * Arena::small_align);
    return left;
}

// Not all there are: a program whose kernels are new all the time brings more meanwhile.
std::vector<KernelMeasurement> Core::take_profiles() {
    std::vector<KernelEntry> entries;
    entries.reserve(most_taken);
    piecewise([&] {
        const bool more = profile_.visit_changed(entries_per_turn,
                                                 [&](const KernelEntry& entry) { entries.push_back(entry); });
        return more && entries.size() < most_taken;
    });
    std::vector<KernelMeasurement> taken;
    for (const KernelEntry& entry : entries) {
        if (entry.name == KernelNames::unnamed) continue;
        const std::lock_guard lock(names_mutex_);
        taken.push_back({names_[entry.name], entry.shape, entry.samples, entry.median, entry.p95,
                         entry.shortest, static_cast<uint32_t>(entry.work.block), entry.wrong, entry.key,
                         entry.gaps});
    }
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
            if (from.median == 0 || from.samples == 0) continue;
            KernelEntry* const entry = &profile_.find(Profile::key_of(function, from.shape), fresh);
            if (entry->samples > 0) continue;
            entry->shape = from.shape;
            entry->name = indices[i];
            if (fresh) entry->waves = 0;  // computed when the kernel is seen
            entry->wrong = from.wrong;
            entry->gaps = from.gaps;
            entry->recall(from.samples, from.median, from.p95, from.shortest);
        }
    });
}

void Core::forget_profiles() {
    uint32_t from = 0;
    piecewise([&] {
        profile_.forget(from, slots_per_turn);
        from += slots_per_turn;
        return from < Profile::capacity;
    });
}

uint64_t Core::set_trace(bool on) {
    trace_.make_room();
    uint64_t cursor = 0;
    on_dispatch([&] {
        if (on && !trace_.on()) {
            require(driver_, driver_.cuEventRecord_(trace_base_[0], monitor_), "cuEventRecord");
            trace_base_at_ = clock_.now();
            trace_rebasing_ = false;
            trace_.start();
        } else if (!on) {
            trace_.stop();
        }
        cursor = trace_.cursor();
    });
    return cursor;
}

// The dispatch thread has no part in it, however much is read.
std::vector<NamedTrace> Core::read_trace(uint64_t& cursor, size_t limit, uint64_t& dropped) {
    std::vector<NamedTrace> taken;
    std::unordered_map<uint32_t, std::string> sessions, kernels;
    const auto session_of = [this](uint32_t serial) {
        const auto found = ids_.find(serial);
        return found != ids_.end() ? found->second : std::string();
    };
    const auto known = [this](auto& names, uint32_t key, auto look_up) -> const std::string& {
        if (const auto found = names.find(key); found != names.end()) return found->second;
        const std::lock_guard lock(names_mutex_);
        return names.emplace(key, look_up(key)).first->second;
    };
    for (const TraceRecord& record : trace_.read(cursor, limit, dropped)) {
        taken.push_back({record, known(sessions, record.session, session_of), ""});
        if (record.op <= FIKIT_OP_GRAPH)
            taken.back().name =
                known(kernels, record.name, [this](uint32_t name) { return names_[name].function; });
    }
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
