// Marks, completions, measured durations, frees, and how a session or the device comes to its end.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core.hpp"
#include "pace.hpp"

namespace fikit {
namespace {

constexpr Nanoseconds look_interval = 1'000;  // at an event, or two, not reached before
constexpr size_t keeps_queues = 32;           // streams of a session that are used: then idle ones do
constexpr uint32_t collected_at_once = 256;   // steps, before a look at the rings of high sessions
constexpr int frees_per_turn = 64;            // of one session
constexpr Nanoseconds health_interval = 2'000'000;
constexpr Nanoseconds rebase_interval = 100'000'000;

void copy_text(char* into, const std::string& text) {
    const size_t length = std::min<size_t>(text.size(), FIKIT_ERROR_TEXT - 1);
    std::memcpy(into, text.data(), length);
    into[length] = '\0';
}

}  // namespace

// The GPU writes the number of steps so far into the inbox, which costs it time: for who waits (DESIGN.md,
// Marks).
void Core::write_mark(Session& session, SessionStream& stream, uint32_t handle) {
    if (stream.marked == stream.issued || stream.lane == nullptr) return;
    const CUresult result = driver_.cuStreamWriteValue64_(stream.lane->stream, session.mark_device(handle),
                                                          stream.issued, CU_STREAM_WRITE_VALUE_DEFAULT);
    stream.marked = stream.issued;
    if (result != CUDA_SUCCESS) fail(result, "marking a stream's progress");
}

// Likewise, and the tenant is woken when it is there: somebody may wait for this step.
void Core::write_awaited_mark(Session& session, SessionStream& stream, uint32_t handle) {
    stream.await(stream.issued);
    write_mark(session, stream, handle);
}

// An event, which costs the GPU nothing; the dispatch thread asks whether it is over (reached()). False: the
// stream has enough of them under way.
bool Core::mark(Session& session, SessionStream& stream, uint32_t handle) {
    if (free_marks_.empty()) {
        write_mark(session, stream, handle);
        return true;
    }
    if (stream.marks.full()) return false;
    const CUevent event = free_marks_.back();
    free_marks_.pop_back();
    if (stream.marks.empty()) ++watched_;
    stream.marks.push({event, stream.issued});
    stream.marked = stream.issued;
    if (const CUresult result = driver_.cuEventRecord_(event, stream.lane->stream); result != CUDA_SUCCESS)
        fail(result, "marking a stream's progress");
    return true;
}

// Nothing stays unmarked while its session has nothing more to issue: otherwise nobody would learn of its
// completion. But a mark takes the dispatch thread time, and each look at it, so a stream that has one under
// way gets the next when that is reached, and a session that launches without pause is not marked after each
// launch either if it is of high priority, or if no such one has worked lately.
bool Core::flush_marks(Session& session, Nanoseconds now, bool force) {
    if (session.unmarked_steps == 0) return false;
    force = force || session.unmarked_steps >= mark_every || session.state != Session::State::running ||
            session.in_flight >= settings_.in_flight_limit || session.frees_memory() ||
            session.call_pending.load(std::memory_order_relaxed);
    const bool unhurried = !session.head_ready && (session.level == scheduling::highest_level ||
                                                   policy_->in_flight(now) > settings_.bounds.in_flight);
    if (!force && unhurried && (session.ring.has_record() || now - session.last_issue < mark_delay))
        return false;
    bool wrote = false, left = false;
    for (const uint32_t handle : session.active) {
        SessionStream& stream = *session.streams[handle];
        if (stream.marked == stream.issued || stream.lane == nullptr) continue;
        if ((!force && stream.marked > stream.completed) || !mark(session, stream, handle))
            left = true;
        else
            wrote = true;
    }
    if (!left) session.unmarked_steps = 0;
    if (!left) session.unmarked_work = 0;
    return wrote;
}

// What the sessions have done, each in its turn: the rest is the next turn's where a high one waits.
bool Core::collect() {
    const Nanoseconds now = clock_.now();
    bool progress = false;
    uint32_t before = in_flight_;
    size_t waiting = 0;
    if (blocked_ > 0)
        for (const auto& session : sessions_) waiting += !session->blocked.empty();
    for (size_t i = 0; i < sessions_.size(); ++i) {
        if (before - in_flight_ >= collected_at_once) [[unlikely]] {
            if (high_waits()) break;
            before = in_flight_;
        }
        Session& session = *sessions_[++collected_ % sessions_.size()];
        if (session.in_flight > 0) progress |= collect(session, now);
        if (!session.blocked.empty()) progress |= look_at_blocks(session, waiting);
        progress |= release_frees(session);
        if (session.kept_bytes.load(std::memory_order_relaxed) > 0) progress |= trim(session, now);
        if (session.state != Session::State::running) advance_ending(session);
    }
    if (ending_) {
        for (auto& session : sessions_)  // its tables are large: a worker takes them down
            if (session->state == Session::State::gone)
                releases_.post([gone = std::shared_ptr<Session>(std::move(session))] {});
        std::erase(sessions_, nullptr);
        ending_ = std::any_of(sessions_.begin(), sessions_.end(),
                              [](const auto& session) { return session->state != Session::State::running; });
    }
    if (idle_jobs_.any()) run_idle_job(now);
    if (progress) last_completion_ = now;
    return progress;
}

// How far the stream has come by what the GPU wrote and by the events. The tenant looks at the word alone: it
// is told of what an event says, unless the GPU has just written more.
uint64_t Core::reached(Session& session, SessionStream& stream, uint32_t handle, Nanoseconds now) {
    uint64_t written = session.mark(handle), step = std::min(written, stream.marked);
    const uint64_t known = step;
    while (!stream.marks.empty()) {
        const Marks::Mark& next = stream.marks.front();
        if (next.step > step) {
            if (now < stream.next_look) break;
            if (driver_.cuEventQuery_(next.event) != CUDA_SUCCESS) {  // if it failed: check_health() tells
                stream.next_look = now + look_interval * std::max(watched_ / 2, 1u);
                break;
            }
            step = next.step;
        }
        free_marks_.push_back(next.event);
        stream.marks.pop();
        if (stream.marks.empty()) --watched_;
    }
    while (step > known && written < step)
        if (__atomic_compare_exchange_n(session.mark_word(handle), &written, step, false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED))
            break;
    return step;
}

inline void Core::complete(Session& session, SessionStream& stream, InFlight& entry, TraceRecord& trace,
                           Nanoseconds now, Nanoseconds unfinished) {
    if (entry.timer == InFlight::write) [[unlikely]]
        return;
    const Beside::Others others = beside_.leave(entry.work, entry.beside);
    const auto of_kernel = [&] {  // not looked at where nothing is to be learnt of it
        return entry.kernel != nullptr && entry.kernel->work.key == entry.work.key;
    };
    Nanoseconds measured = 0, takes = entry.work.expected;
    if (entry.timer >= 0) [[unlikely]] {
        ++session.usage.measured;
        const Timer& timer = timers_[static_cast<size_t>(entry.timer)];
        float milliseconds = 0;
        if (driver_.cuEventElapsedTime_(&milliseconds, timer.before, timer.after) == CUDA_SUCCESS)
            measured =
                std::max<Nanoseconds>(1, static_cast<Nanoseconds>(static_cast<double>(milliseconds) * 1e6) -
                                             timer_overhead_[entry.queued]);
        if (entry.traced) record_trace(trace, timer, measured);
        free_timers_.push_back(entry.timer);
        if (measured > 0 && of_kernel()) {
            profile_.measured(*entry.kernel, measured, entry.multiprocessors, others.most);
            session.usual.measured(*entry.kernel);
        }
    } else if (entry.traced) {
        trace_.add(trace);
    }
    if (measured > 0)
        takes = measured;
    else if (!entry.work.known && of_kernel())  // launches before it have been measured since it was issued
        takes = entry.kernel->work.expected;
    // What is known of a kernel may come from other data: nothing took longer than there was time.
    if (measured == 0) takes = std::clamp<Nanoseconds>(now - stream.charged_upto, 0, takes);
    stream.charged_upto += takes;
    session.usage.gpu_ns += takes;
    policy_->completed(session.index, entry.work, measured, now, unfinished, others.over);
}

bool Core::collect(Session& session, Nanoseconds now) {
    bool progress = false, awaited = false;
    for (size_t i = 0; i < session.active.size();) {
        const uint32_t handle = session.active[i];
        SessionStream& stream = *session.streams[handle];
        const uint64_t mark = reached(session, stream, handle, now);
        awaited |= stream.reaches_awaited(mark);
        if (mark > stream.completed) {
            const auto steps = static_cast<uint32_t>(mark - stream.completed);
            stream.completed = mark;
            stream.stands_since = now;
            session.in_flight -= steps;
            in_flight_ -= steps;
            if (in_flight_ == 0) busy_ns_ += now - busy_since_;
            // Of what is before the last one nobody knows whether it was over.
            InFlightQueue& queue = *stream.queue;
            for (bool more = queue.reaches(mark); more;) {
                InFlight& over = queue.front();
                TraceRecord& trace = queue.front_trace();
                queue.pop();
                more = queue.reaches(mark);
                complete(session, stream, over, trace, now, more ? 0 : session.looked_at);
            }
            progress = true;
        }
        if (stream.completed == stream.issued) {
            stream.active = false;
            if (session.used.size() > keeps_queues) [[unlikely]]
                session.spare_queues.push_back(std::move(stream.queue));
            --stream.lane->busy;
            session.active[i] = session.active.back();
            session.active.pop_back();
            if (!stream.created) retire_stream(session, handle);
        } else {
            ++i;
        }
    }
    session.looked_at = now;
    if (session.full_since != 0 && session.in_flight < settings_.in_flight_limit) [[unlikely]] {
        session.held = true;
        policy_->held(session.index, 1 + now - std::exchange(session.full_since, 0));
    }
    if (awaited) session.wake();
    return progress;
}

// A destroyed stream leaves little once nothing of it is in flight: a program may go through all the handles
// there are.
void Core::retire_stream(Session& session, uint32_t handle) {
    SessionStream& stream = *session.streams[handle];
    if (stream.active) return;
    stream.lane = nullptr;
    stream.used = false;
    stream.queue.reset();
    std::erase(session.used, handle);
    session.spare_queues.resize(std::min(session.spare_queues.size(), session.used.size()));
}

// Device timestamps from elapsed times to a base event, which is renewed before a float of milliseconds
// loses its nanoseconds.
void Core::record_trace(TraceRecord& trace, const Timer& timer, Nanoseconds measured) {
    float since = 0;
    if (driver_.cuEventElapsedTime_(&since, trace_base_[0], timer.before) == CUDA_SUCCESS) {
        const auto offset = static_cast<Nanoseconds>(static_cast<double>(since) * 1e6);
        trace.started = trace_base_at_ + offset;
        trace.ended = trace.started + measured;
        if (!trace_rebasing_ && offset > rebase_interval)
            trace_rebasing_ = driver_.cuEventRecord_(trace_base_[1], monitor_) == CUDA_SUCCESS;
    }
    trace_.add(trace);
    if (trace_rebasing_ && driver_.cuEventQuery_(trace_base_[1]) == CUDA_SUCCESS) {
        float moved = 0;
        if (driver_.cuEventElapsedTime_(&moved, trace_base_[0], trace_base_[1]) == CUDA_SUCCESS) {
            trace_base_at_ += static_cast<Nanoseconds>(static_cast<double>(moved) * 1e6);
            std::swap(trace_base_[0], trace_base_[1]);
        }
        trace_rebasing_ = false;
    }
}

// Takes back memory that nothing in flight can use any more.
bool Core::release_frees(Session& session) {
    // A worker that ends the session has them.
    if (session.worker_busy.load(std::memory_order_acquire) || !session.frees_memory()) return false;
    uint64_t oldest = UINT64_MAX;
    for (const uint32_t handle : session.active)
        if (InFlightQueue& queue = *session.streams[handle]->queue; !queue.empty())
            oldest = std::min(oldest, queue.front().serial);
    int budget = frees_per_turn;
    const auto take_back = [&](auto& frees, const auto& give_back) {
        for (; budget > 0 && !frees.empty() && frees.front().fence < oldest; --budget) {
            give_back(frees.front().what);
            frees.pop_front();
        }
    };
    take_back(session.frees, [&](CUdeviceptr address) { session.arena->release(address, now_); });
    take_back(session.host_frees, [&](PinnedBuffer& buffer) {
        session.host_bytes -= buffer.memory.size();
        unregister_when_idle(std::move(buffer.memory));
    });
    if (budget == frees_per_turn) return false;
    account_memory(session);
    return true;
}

// A worker gives back to the device what has been kept too long, all of it if that is too much or somebody
// else waits for it.
bool Core::trim(Session& session, Nanoseconds now) {
    if (session.worker_busy.load(std::memory_order_acquire)) return false;
    const bool all = memory_wanted_ || kept_bytes_.load() > settings_.keep_bytes;
    const Nanoseconds before = all ? INT64_MAX : now - settings_.keep_ns;
    if (session.arena->oldest_kept() > before) return false;
    session.worker_busy.store(true, std::memory_order_release);
    session.freeing.store(true);
    releases_.post([this, &session, before] {
        session.arena->trim(before);
        account_memory(session);
        session.freeing.store(false);
        session.worker_busy.store(false, std::memory_order_release);
        kick();
    });
    return true;
}

void Core::when_idle(std::function<void()> run) { idle_jobs_.add(std::move(run), clock_.now()); }

// `with`: a small one that goes together with it.
void Core::unregister_when_idle(SharedMemory&& memory, SharedMemory&& with) {
    auto kept = std::make_shared<std::pair<SharedMemory, SharedMemory>>(std::move(memory), std::move(with));
    const auto unregister = [this, kept] {
        driver_.cuMemHostUnregister_(kept->first.data());
        if (kept->second.data() != nullptr) driver_.cuMemHostUnregister_(kept->second.data());
    };
    idle_jobs_.add(unregister, clock_.now(), reinterpret_cast<uintptr_t>(kept->first.data()),
                   kept->first.size());
}

// Its session is over, and its program may look at what it was sent.
void Core::keep_when_idle(SharedMemory&& memory, uint32_t serial,
                          const std::shared_ptr<KeptMemory::Program>& program) {
    memory.leave();
    auto left = std::make_shared<SharedMemory>(std::move(memory));
    const auto keep = [this, left, serial, program] {
        driver_.cuMemHostUnregister_(left->data());
        kept_memory_.keep(epoll_.get(), serial, program, std::move(*left));
    };
    idle_jobs_.add(keep, clock_.now(), reinterpret_cast<uintptr_t>(left->data()), left->size());
}

void Core::unload_when_idle(const SessionModule& module) {
    if (module.library == nullptr) return;
    const uint32_t counts = module.variable_bytes > 0 ? 1 : 0;
    memory_going_.fetch_add(counts);
    when_idle([this, module, counts] {
        driver_.cuLibraryUnload_(module.library);
        ledger_.change(-static_cast<int64_t>(module.variable_bytes));
        memory_going_.fetch_sub(counts);
    });
}

// The step that has been in flight for longest, or could have run for longest behind another of its stream.
// Whatever was issued later may wait for it. Of two that are as old nobody knows which runs.
Core::OldestStep Core::oldest_in_flight() const {
    OldestStep oldest;
    for (const auto& session : sessions_)
        for (const uint32_t handle : session->active)
            if (const Nanoseconds since = session->streams[handle]->stands_since; since < oldest.since)
                oldest = {since, session.get()};
    return oldest;
}

void Core::run_idle_job(Nanoseconds now) {
    auto job = idle_jobs_.take(now, in_flight_ == 0, [this] { return oldest_in_flight().since; });
    if (job == nullptr) return;
    releases_.post([this, job = std::move(job)]() mutable {
        std::exchange(job, nullptr)();
        idle_jobs_.done();
        kick();
    });
}

// Something of the session was wrong; it goes on.
void Core::refuse(Session& session, CUresult error, const std::string& text) {
    fikit_inbox* inbox = session.inbox_header();
    inbox->deferred_error = static_cast<int32_t>(error);
    copy_text(inbox->deferred_text, text);
    __atomic_fetch_add(&inbox->deferred_count, 1, __ATOMIC_RELEASE);
}

void Core::check(Session& session, CUresult result, const char* what) {
    if (is_sticky(result) && lost() != CUDA_SUCCESS)
        fail(result, what);
    else
        refuse(session, result, std::string(what) + ": " + driver_.describe(result));
}

// The error that the context was lost with. A call's own error does not tell: seen on the H200, the linker
// answers what is missing with CUDA_ERROR_UNKNOWN.
CUresult Core::lost() const {
    const CUresult result = driver_.cuStreamQuery_(monitor_);
    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

// A call's answer reads like the end of the context, or nothing completes and nothing failed: ask the driver.
void Core::check_health(Nanoseconds now) {
    const bool suspected =
        suspected_.load(std::memory_order_relaxed) && suspected_.exchange(false, std::memory_order_acquire);
    if (!suspected &&
        (in_flight_ == 0 || now - last_completion_ < health_interval || now - last_health_ < health_interval))
        return;
    last_health_ = now;
    if (const CUresult result = lost(); result != CUDA_SUCCESS)
        fail(result, suspected ? "a call" : "a check");
}

// The context is lost: every session gets CUDA's sticky error, then the process ends.
void Core::fail(CUresult error, const std::string& what) {
    if (failure_.load() != 0) return;
    // Where it was seen is anybody's call, made after the one that is to blame.
    const std::string failure =
        "the CUDA context was lost (seen at: " + what + "): " + driver_.describe(error);
    std::string text = failure;
    if (error == CUDA_ERROR_ASSERT && text.size() + 2 < FIKIT_ERROR_TEXT)
        text += '\n' + failed_assertions_.text(FIKIT_ERROR_TEXT - text.size() - 2);
    for (const auto& session : sessions_) {
        end_session(*session, static_cast<int>(error), text);
        announce(*session);
    }
    {
        const std::lock_guard lock(ended_mutex_);
        failure_text_ = failure;
        failure_.store(static_cast<int>(error));  // last: who sees it finds all sessions' ends
    }
    const uint64_t one = 1;
    [[maybe_unused]] const auto put = write(notification_.get(), &one, sizeof one);
}

void Core::end_session(Session& session, int error, const std::string& reason) {
    if (session.state != Session::State::running) return;
    session.state = Session::State::draining;
    ending_ = true;
    session.end_error = error;
    session.end_reason = reason;
    if (session.head_waits) policy_->withdrawn(session.index, clock_.now());
    session.head_ready = session.head_waits = false;
    forget_backlog(session);
    if (const int32_t timer = std::exchange(session.head_timer, -1); timer >= 0)
        free_timers_.push_back(timer);
    fikit_inbox* inbox = session.inbox_header();
    inbox->error = error;
    copy_text(inbox->error_text, reason);
    __atomic_store_n(&inbox->ended, 1u, __ATOMIC_RELEASE);
    session.wake();
    // Its descriptors say nothing more, and a closed lifeline would wake the loop for ever.
    forget_descriptors(session);
}

// Its work in flight ends, then a worker frees what it held, then it is gone.
void Core::advance_ending(Session& session) {
    if (session.state == Session::State::draining) {
        if (session.in_flight > 0 || is_at_gates(session) ||
            session.worker_busy.load(std::memory_order_acquire))
            return;
        session.state = Session::State::releasing;
        session.worker_busy.store(true, std::memory_order_release);
        releases_.post([this, &session] {
            session.wake_more(INT32_MAX);
            release(session);
            session.worker_busy.store(false, std::memory_order_release);
            kick();
        });
    } else if (session.state == Session::State::releasing &&
               !session.worker_busy.load(std::memory_order_acquire)) {
        announce(session);  // with what the policy knows of it
        policy_->closed(session.index, clock_.now());
        by_index_[session.index] = nullptr;
        {
            const std::lock_guard lock(names_mutex_);
            over_.push_back(session.serial);
            if (over_.size() > settings_.remembered_sessions) {
                ids_.erase(over_.front());
                over_.pop_front();
            }
        }
        unregister_when_idle(std::move(session.outbox), std::move(session.inbox));
        session.state = Session::State::gone;
    }
}

void Core::announce(Session& session) {
    if (session.end_announced) return;
    session.end_announced = true;
    {
        const std::lock_guard lock(ended_mutex_);
        ended_.push_back({session.id, session.end_error, session.end_reason, snapshot_of(session)});
    }
    const uint64_t one = 1;
    [[maybe_unused]] const auto put = write(notification_.get(), &one, sizeof one);
}

}  // namespace fikit
