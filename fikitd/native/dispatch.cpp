// The loop: reading rings, the gate, parking.
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <descriptors.hpp>
#include <utility>

#include "core.hpp"
#include "pace.hpp"

namespace fikit {
namespace {

constexpr Nanoseconds long_row = 10'000'000;  // of a high session's launches, before others get a look
constexpr Nanoseconds turns_apart = 100'000;  // whole ones, in such a row
constexpr Nanoseconds hear_interval = 1'000'000;
constexpr int woken_at_once = 8;  // threads of a tenant, which may have any number; each takes 2 to 5 us
constexpr uint64_t kick_tag = 0;  // epoll tags: serial << 1 | (0 lifeline, 1 process), serials from 1

void relax() {
    for (int i = 0; i < 16; ++i) __builtin_ia32_pause();
}

// How many there are; none, or less, after the timeout or a signal.
int wait_for_events(int epoll, std::array<epoll_event, 16>& events, const timespec& timeout) {
    const int most = static_cast<int>(events.size());
    const int count = epoll_pwait2(epoll, events.data(), most, &timeout, nullptr);
    if (count >= 0 || errno == EINTR) return count;
    // Linux before 5.11 does not have it, and a container's filter of system calls may not know it.
    pollfd readable{epoll, POLLIN, 0};
    return ppoll(&readable, 1, &timeout, nullptr) > 0 ? epoll_wait(epoll, events.data(), most, 0) : 0;
}

}  // namespace

void Session::wake() {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n(&outbox_header()->waiters, __ATOMIC_RELAXED) == 0) return;
    fikit_inbox* const header = inbox_header();
    __atomic_fetch_add(&header->wakes, 1, __ATOMIC_SEQ_CST);
    // The others are moved, so that who sleeps again, as it waits for something else, is not among them.
    if (syscall(SYS_futex, &header->wakes, FUTEX_REQUEUE, woken_at_once, long{INT32_MAX}, &header->woken,
                0) >= woken_at_once)
        more_sleep.store(true);
}

void Session::wake_more(int most) {
    more_sleep.store(false);  // before: another thread may move some there
    if (syscall(SYS_futex, &inbox_header()->woken, FUTEX_WAKE, most, nullptr, nullptr, 0) == most)
        more_sleep.store(true);
}

inline bool Core::reads_ring(const Session& session) const {
    return session.state == Session::State::running && !session.head_ready && !session.paused &&
           !session.call_pending.load(std::memory_order_acquire) &&
           session.in_flight < settings_.in_flight_limit && (session.rescan || !session.backlog_is_full());
}

// As much as may be is in flight, and there is more.
[[gnu::noinline]] void Core::note_full(Session& session) {
    if (session.full_since == 0 && session.ring.has_record()) session.full_since = now_;
}

// Copies the next record to the session's head, or puts it off. False: nothing to do now.
inline bool Core::take_head(Session& session) {
    if (session.rescan) [[unlikely]] {
        if (take_deferred(session)) return true;
        if (session.backlog_is_full()) return false;
    }
    switch (session.ring.next(*session.head)) {
        case RingReader::Result::empty:
            if (session.held) [[unlikely]] {
                session.held = false;
                policy_->held(session.index, 0);
            }
            return false;
        case RingReader::Result::broken:
            end_session(session, CUDA_ERROR_INVALID_VALUE, session.ring.error());
            return false;
        case RingReader::Result::ready:
            break;
    }
    ++session.usage.operations;
    session.head_ready = session.blocked.empty() || !defer(session);
    return true;
}

// Issues what the session may issue without asking; leaves the first gated operation at its head.
bool Core::serve(Session& session) {
    session.served_from = session.steps_issued;
    session.served_at = now_;
    const bool progress = serve_ring(session);
    const uint64_t steps = session.steps_issued - session.served_from;
    if (steps == 0) return progress;
    session.last_issue = now_;
    if (session.level == scheduling::highest_level && (steps > 1 || session.row_at != 0)) [[unlikely]]
        note_row(session);
    return progress;
}

// Its program launches faster than this thread does: that spares it nothing.
[[gnu::noinline]] void Core::note_row(Session& session) {
    if (session.row_at == 0) session.row_at = session.served_at;
    const auto more = static_cast<uint32_t>(session.steps_issued -
                                            std::exchange(session.served_from, session.steps_issued));
    session.row += more;
    if (session.unmodified) policy_->lagged(session.index, session.row, more, now_ - session.row_at);
    if (!session.ring.has_record()) session.row_at = session.row = 0;
}

// Fills head_work and head_kernel. False: the launch was refused.
inline bool Core::prepare_launch(Session& session) {
    const auto& launch = session.head->as<fikit_launch>();
    // A shape is compared as the record has it.
    static_assert(offsetof(fikit_launch, shared_bytes) - offsetof(fikit_launch, grid) ==
                  offsetof(KernelShape, shared_bytes));
    static_assert(sizeof(KernelShape) == offsetof(KernelShape, shared_bytes) + sizeof launch.shared_bytes);
    if (launch.function >= session.functions.size() || session.functions[launch.function].function == nullptr)
        return refuse_function(session, launch.function);
    SessionFunction& function = session.functions[launch.function];
    const KernelEntry* const last = function.last_kernel;
    const bool repeated = last != nullptr && last->key == function.last_key && last->waves != 0 &&
                          std::memcmp(&last->shape, launch.grid, sizeof(KernelShape)) == 0 &&
                          launch.parameter_bytes == function.parameter_bytes;
    if (!repeated && !examine_launch(session, function)) return false;
    scheduling::Work& work = session.head_work;
    work = function.last_kernel->work;
    session.head_kernel = function.last_kernel;
    if (launch.attributes != 0 && !examine_attributes(session, function)) return false;
    if (session.head_kernel->mixed) [[unlikely]]
        tell_apart(session);
    work.expected = work.expected > 0 ? std::max(work.expected, UsualKernel::least) : guess(session);
    return true;
}

inline bool Core::serve_ring(Session& session) {
    bool progress = false;
    const bool beside = in_flight_ > session.in_flight;
    for (uint32_t budget = beside ? records_beside : records_per_turn; budget > 0; --budget) {
        if (session.head_ready) {
            if (session.head_waits || session.paused) return progress;
        } else if (reads_ring(session) ? !take_head(session) : !resume_call(session)) {
            if (session.in_flight >= settings_.in_flight_limit) [[unlikely]]
                note_full(session);
            return progress;
        }
        if (!session.head_ready) [[unlikely]] {  // put off
            progress = true;
            continue;
        }
        const uint16_t op = session.head->record().op;
        const uint32_t stream = session.head->record().stream;
        const bool launch = op == FIKIT_OP_LAUNCH;
        if (!launch) {
            if (op == FIKIT_OP_CALL) return start_call(session) || progress;
        } else if (session.measured && !keep_timer(session)) [[unlikely]] {
            return progress;
        }
        progress = true;
        if (!launch && !is_step(op)) {
            manage(session);
            session.head_ready = false;
        } else if (const auto& slot = session.streams[stream];
                   (slot == nullptr || !slot->created) && !stream_exists(session)) {
            return progress;
        } else if (!launch && ((op == FIKIT_OP_VALUES && !begin_values(session)) ||
                               (op == FIKIT_OP_EVENT_WAIT && !begin_event_wait(session)))) {
            session.head_ready = false;
        } else if (launch                 ? prepare_launch(session)
                   : op == FIKIT_OP_GRAPH ? prepare_graph(session)
                                          : (prepare_copy(session), true)) {
            session.head_work.stream = static_cast<uint8_t>(stream % scheduling::streams_told_apart);
            if (session.level == scheduling::highest_level || op > FIKIT_OP_FILL) {
                issue(session, whole_gpu);
            } else {
                session.head_waits = true;
                session.head_arrived = now_;
                policy_->arrived(session.index, session.head_work, now_);
                return progress;
            }
        }
        if (session.state != Session::State::running) return progress;
    }
    return progress;
}

// Also looks at what it has done: seen after a row of gated launches, of 3 us each, it would seem to have
// been delayed. Where it launches faster than this thread does, the policy would take what is over for work
// in flight if there were no marks but a turn's; of a whole burst that is seen at once nobody could tell what
// made it late. Not inlined: serve_high() is, where mostly no session is high.
[[gnu::noinline]] bool Core::serve_and_look(Session& session) {
    const bool progress = serve(session);
    const bool beside = in_flight_ > session.in_flight;
    if (sessions_.size() > 1 && (session.unmarked_steps >= records_per_turn ||
                                 (beside && session.row_at != 0 &&
                                  session.unmarked_work >= followed_work * std::ssize(session.active))))
        flush_marks(session, now_, true);
    return (session.in_flight > 0 && collect(session, clock_.now())) || progress;
}

// Has it more to launch than one look at it took? Whatever is launched in between, 10 us each on an H100,
// comes out of its program's time, and so does the rest of the turn, 20 us.
[[gnu::noinline]] bool Core::in_a_row(const Session& session) const {
    return now_ - session.row_at < long_row && session.ring.has_record() && reads_ring(session);
}

// High-priority sessions wait for nobody, not even for a round of the others' operations.
inline bool Core::serve_high() {
    bool progress = false;
    in_a_row_ = false;
    for (const auto& session : sessions_) {
        if (session->level != scheduling::highest_level || session->state != Session::State::running)
            continue;
        progress |= serve_and_look(*session);
        if (session->row_at != 0) [[unlikely]]
            in_a_row_ |= in_a_row(*session);
    }
    return progress;
}

bool Core::high_waits() const {
    return std::any_of(sessions_.begin(), sessions_.end(), [this](const auto& session) {
        return session->level == scheduling::highest_level && reads_ring(*session) &&
               session->ring.has_record();
    });
}

// Asks the policy until it says wait.
bool Core::gate() {
    if (hold_gate_ || loading_.load(std::memory_order_acquire) > 0) {
        ask_again_at_ = 0;
        return false;
    }
    bool progress = false;
    for (;;) {
        const Nanoseconds now = now_;
        const scheduling::Decision decision = policy_->decide(now);
        if (decision.verdict == scheduling::Verdict::wait) {
            ask_again_at_ = decision.again_at;
            return progress;
        }
        Session& session = *by_index_[decision.session];
        const Nanoseconds waited = now - session.head_arrived;
        session.usage.gate_wait_ns += waited;
        if (waited > 1000) ++session.usage.gate_waits;
        const bool confined = decision.verdict == scheduling::Verdict::partition;
        issue(session, confined ? static_cast<uint8_t>(decision.partition + 1) : whole_gpu);
        if (session.unmarked_work >= marked_work(policy_->in_flight(now), settings_.bounds))
            flush_marks(session, now, true);
        serve(session);
        serve_high();
        progress = true;
        if (in_a_row_) return progress;
    }
}

// Says on the board whether high-priority work is under way here, and tells the policy of the others'.
void Core::read_board() {
    if (!board_.is_open()) return;
    const int64_t host_time = host_now();
    board_.say(beside_.high(), host_time);
    const bool elsewhere = board_.others_busy(host_time);
    if (elsewhere == high_elsewhere_) return;
    high_elsewhere_ = elsewhere;
    policy_->elsewhere(elsewhere, clock_.now());
}

// How far the rings have been read, once a turn. A tenant that waits for room is woken when there is as much
// as it asked for: waking costs as much as several launches.
void Core::publish_tails() {
    for (const auto& session : sessions_) {
        const uint64_t read = session->ring.tail();
        uint64_t* tail = &session->inbox_header()->tail;
        if (*tail == read) continue;
        __atomic_store_n(tail, read, __ATOMIC_SEQ_CST);  // before the load: one side sees the other
        const uint64_t room = __atomic_load_n(&session->outbox_header()->room, __ATOMIC_SEQ_CST);
        if (room == session->room_answered || room > read) continue;
        session->room_answered = room;
        session->wake();
    }
}

// Of one session in a turn, each in its turn.
bool Core::wake_more() {
    for (size_t i = 0; i < sessions_.size(); ++i) {
        Session& session = *sessions_[++woken_ % sessions_.size()];
        if (!session.more_sleep.load(std::memory_order_relaxed)) continue;
        session.wake_more(woken_at_once);
        return true;
    }
    return false;
}

bool Core::turn() {
    bool progress = posted_.load(std::memory_order_acquire) && run_posted();
    now_ = clock_.now();
    hold_gate_ = idle_jobs_.due(now_);
    memory_wanted_ = false;
    progress |= serve_high();
    if (in_a_row_ && blocked_ == 0 && now_ - whole_turn_at_ < turns_apart) {
        publish_tails();
        return true;
    }
    whole_turn_at_ = now_;
    for (const auto& session : sessions_) {
        if (in_a_row_) break;
        if (session->level == scheduling::highest_level || session->state != Session::State::running ||
            !serve(*session))
            continue;
        progress = true;
        serve_high();
    }
    read_board();
    if (!in_a_row_) progress |= gate();
    if (progress) publish_tails();
    progress |= collect();
    const Nanoseconds now = clock_.now();
    for (const auto& session : sessions_)
        if (session->unmarked_steps > 0) progress |= flush_marks(*session, now, false);
    progress |= wake_more();
    check_health(now);
    // Somebody may always have something to do: others end all the same.
    if (now - heard_at_ >= hear_interval) hear({});
    return progress;
}

void Core::run() {
    prctl(PR_SET_NAME, "dispatch");
    prctl(PR_SET_TIMERSLACK, 1);
    driver_.cuCtxSetCurrent_(context_);
    int64_t last_progress = host_now();
    bool quiet = false;
    uint32_t turns = 0;
    while (!stopping_.load(std::memory_order_acquire) && failure_.load() == 0) {
        if (++turns % 64 == 0) tell_apart();
        if (turn()) {
            last_progress = host_now();
            if (std::exchange(quiet, false)) end_pauses(last_progress);
            continue;
        }
        bool busy = in_flight_ > 0 || blocked_ > 0;
        for (const auto& session : sessions_) busy |= session->unmarked_steps > 0;
        const bool real = settings_.time_scale == 1.0;
        const int64_t now = host_now();
        if (now - last_progress < settings_.spin_host_ns && (busy || real)) {
            relax();
            continue;
        }
        if (!std::exchange(quiet, true)) begin_pauses();
        const int64_t high_at = real ? high_expected(now) : Pauses::never;
        if (high_at <= now) {
            relax();
            continue;
        }
        int64_t timeout = busy ? settings_.poll_host_ns : 1'000'000'000;
        if (kept_bytes_.load() > 0) timeout = std::min(timeout, clock_.to_host(settings_.keep_ns));
        // What other executors say is not an event here; it is looked at while it matters.
        if (high_elsewhere_) timeout = std::min(timeout, settings_.poll_host_ns);
        timeout = std::min(timeout, high_at - now);
        if (ask_again_at_ != 0) {
            const int64_t until = clock_.to_host(ask_again_at_ - clock_.now());
            timeout = std::clamp<int64_t>(until, 0, timeout);
        }
        tell_apart();
        park(timeout);
    }
    while (run_posted()) {
    }
    for (const auto& session : sessions_) session->wake_more(INT32_MAX);  // there are no more turns
}

// Beside high work the gate should decide on the kernels of a graph, not on the whole.
void Core::tell_apart() {
    const bool beside = policy_->in_flight(clock_.now()) <= settings_.bounds.in_flight;
    for (const auto& session : sessions_) {
        const uint32_t apart = beside && session->level != scheduling::highest_level;
        uint32_t* const told = &session->inbox_header()->graphs_apart;
        if (*told != apart) __atomic_store_n(told, apart, __ATOMIC_RELAXED);
    }
}

void Core::begin_pauses() {
    for (const auto& session : sessions_)
        session->pauses.begin(session->steps_issued, clock_.to_host(session->last_issue));
}

void Core::end_pauses(int64_t host_time) {
    for (const auto& session : sessions_) session->pauses.end(session->steps_issued, host_time);
}

// From when on high-priority work may come any moment, going by how long its programs have paused so far.
int64_t Core::high_expected(int64_t host_time) const {
    int64_t at = Pauses::never;
    for (const auto& session : sessions_)
        if (session->level == scheduling::highest_level && session->state == Session::State::running)
            at = std::min(at, session->pauses.look_at(host_time));
    return at;
}

// Sleeps until a descriptor has something to say, or the timeout.
void Core::park(int64_t host_timeout) {
    bool work = posted_.load(std::memory_order_acquire);
    for (const auto& session : sessions_)
        if (reads_ring(*session))
            __atomic_store_n(&session->inbox_header()->parked, session->inbox_header()->parked | 1u,
                             __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (const auto& session : sessions_) work |= reads_ring(*session) && session->ring.has_record();
    hear({work ? 0 : host_timeout / 1'000'000'000, work ? 0 : host_timeout % 1'000'000'000});
    for (const auto& session : sessions_) {
        uint32_t* parked = &session->inbox_header()->parked;
        if ((*parked & 1u) != 0) __atomic_store_n(parked, *parked + 1, __ATOMIC_RELEASE);
    }
}

// A doorbell, a lifeline's or a process's end, a kick.
void Core::hear(const timespec& timeout) {
    std::array<epoll_event, 16> events;
    const int count = wait_for_events(epoll_.get(), events, timeout);
    heard_at_ = clock_.now();
    for (int i = 0; i < count; ++i) {
        const uint64_t tag = events[i].data.u64;
        if (tag == kick_tag) {
            uint64_t value = 0;
            [[maybe_unused]] const auto got = read(kick_.get(), &value, sizeof value);
            continue;
        }
        if ((tag & KeptMemory::tag) != 0) {
            auto gone = std::make_shared<KeptMemory::Left>(kept_memory_.let_go(static_cast<uint32_t>(tag)));
            releases_.post([gone] { gone->clear(); });
            continue;
        }
        for (const auto& session : sessions_) {
            if (session->serial != tag >> 1) continue;
            if ((tag & 1) != 0)
                end_session(*session, CUDA_ERROR_DEINITIALIZED, "its process ended");
            else
                listen(*session);
            break;
        }
    }
}

// The lifeline: doorbell bytes mean nothing but "look at the ring"; its end means the tenant closed.
void Core::listen(Session& session) {
    const ssize_t got = receive(session);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return;
    end_session(session, CUDA_ERROR_DEINITIALIZED, "closed");
}

// As recv() of some bytes; a descriptor that comes with them is kept for the next call, the last one alone.
ssize_t Core::receive(Session& session) {
    char bytes[64];
    int came[most_descriptors];
    size_t count = 0;
    const ssize_t got = receive_descriptors(session.lifeline.get(), bytes, sizeof bytes, came, count);
    if (count == 0) return got;
    session.arrived = TenantDescriptor(came[count - 1]);
    close_apart({came, count - 1});
    return got;
}

}  // namespace fikit
