// See replay_gate.hpp.
#include "replay_gate.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace fikit::replay {

namespace model = sim::model;
using scheduling::Decision;
using scheduling::Work;

namespace {

constexpr Nanoseconds enqueue = 100;  // a tenant's producer, for each operation
constexpr Nanoseconds look = 200;     // the dispatch thread, to take note of something
constexpr Nanoseconds foresee = 16;   // a decision, for each launch of high sessions it looks ahead to
constexpr Nanoseconds timing_events = 2 * model::call::timed_record;  // two around a launch
constexpr Nanoseconds seen_after = 1000;                              // a mark, by who watches it
constexpr Nanoseconds read_after = 700;  // what a kernel has written, by who reads it all the time
constexpr uint32_t mark_tag = UINT32_MAX;

std::vector<uint16_t> sizes(const scheduling::Bounds& bounds) {
    std::vector<uint16_t> all;
    for (const uint16_t size : bounds.partitions)
        if (size != 0) all.push_back(size);
    return all;
}

// The last operation of the graph that such a one is the first of; itself, if it is of none.
size_t last_of(const Program& program, size_t first) {
    while (program.operations[first].joined) ++first;
    return first;
}

scheduling::Engine engine_of(Shape::Unit unit) {
    switch (unit) {
        case Shape::Unit::multiprocessors:
            return scheduling::Engine::kernel;
        case Shape::Unit::to_device:
            return scheduling::Engine::to_device;
        case Shape::Unit::to_host:
            return scheduling::Engine::to_host;
        default:
            return scheduling::Engine::on_device;
    }
}

}  // namespace

Gate::Gate(const std::vector<Program>& high, const std::vector<Program>& low, const Settings& settings)
    : settings_(settings),
      gpu_(sizes(settings.bounds), settings.seed),
      policy_(scheduling::make_policy(settings.policy, settings.bounds)),
      highs_(high.size()),
      random_(settings.seed + 1),
      end_(settings.warmup + settings.seconds) {
    if (policy_ == nullptr) throw std::invalid_argument("no policy " + settings.policy);
    if (high.size() + low.size() > scheduling::max_sessions)
        throw std::invalid_argument("at most " + std::to_string(scheduling::max_sessions) +
                                    " workloads pass a gate, not " +
                                    std::to_string(high.size() + low.size()));
    for (const auto* programs : {&high, &low})
        for (const Program& program : *programs) {
            Session& session = sessions_.emplace_back();
            session.program = &program;
            session.index = static_cast<unsigned>(sessions_.size() - 1);
            session.high = programs == &high;
            policy_->opened(session.index, session.high ? scheduling::highest_level : 5, 1.0, 0);
            policy_->spared(session.index, settings.spared);
            for (uint32_t stream = 0; stream < program.streams; ++stream) {
                const int priority = session.high ? model::priority_highest : model::priority_lowest;
                session.streams.emplace_back().on_gpu = gpu_.add_stream(priority, session.high);
                owner_.emplace_back(session.index, stream);
            }
            for (size_t at = 0; at < program.operations.size(); ++at) {
                const Operation& operation = program.operations[at];
                KernelEntry* entry = nullptr;
                if (operation.joined && (at == 0 || !program.operations[at - 1].joined)) {
                    const uint64_t key = mix(mix(1, session.index + 1), at);
                    entry = &kernels_[key];
                    entry->key = entry->work.key = key;
                    entry->work.engine = scheduling::Engine::graph;
                    entry->work.blocks = entry->work.per_sm = 1;
                } else if (operation.shape.unit == Shape::Unit::multiprocessors) {
                    const uint64_t key = mix(mix(0, session.index + 1), operation.key);
                    const bool full = kernels_.size() == Profile::capacity / 2;
                    if (!full || kernels_.contains(key)) {
                        entry = &kernels_[key];
                        entry->key = entry->work.key = key;
                        entry->work.blocks = operation.shape.blocks;
                        entry->work.per_sm = operation.shape.per_sm;
                        entry->shape.grid[0] = operation.shape.blocks;
                        entry->waves = entry->waves_on(model::sm_count);
                    }
                }
                session.kernels.push_back(entry);
            }
        }
}

void Gate::begin(Session& session, Nanoseconds at) {
    session.begun = session.enqueued_at = at;
    ++session.steps;
    if (session.next == session.program->operations.size()) session.next = session.iteration = 0;
    session.awaited = false;
    look_ahead(session);
}

// A copy has a mark of its own and a graph an event behind it: who waits for it issues nothing. Of such a
// wait the policy hears with the next launch.
inline bool Gate::has_mark(const Session& session) {
    const auto& operations = session.program->operations;
    const size_t last = session.next - 1;
    return operations[last].shape.unit != Shape::Unit::multiprocessors ||
           (last > 0 && operations[last - 1].joined);
}

// Of a wait that nobody is told of its program says nothing in what it launches next, either. Who polls tells
// of the first: it starts up as all do.
inline void Gate::tell_waited(const Session& session, Nanoseconds now) {
    const uint64_t wait = session.steps - (session.enqueued_at == session.begun ? 1 : 0);
    const bool every = settings_.told_every != 0 && wait % settings_.told_every == 0;
    if (polls(session) ? wait == 1 : every) policy_->awaited(session.index, false, now);
}

// Sets when the tenant's next record is in its ring; whatever that depends on has changed.
inline void Gate::look_ahead(Session& session) const {
    const auto& operations = session.program->operations;
    if (all_launched(session))
        session.head_at = session.awaited || polls(session) ? Gpu::never : session.enqueued_at + enqueue;
    else if (session.waits || session.in_flight >= most_in_flight)
        session.head_at = Gpu::never;
    else
        session.head_at =
            std::max(session.enqueued_at + enqueue, session.begun + operations[session.next].at);
}

inline Nanoseconds Gate::guess(const Session& session) const {
    return session.usual.guess(session.high, settings_.bounds.in_flight);
}

// Where its duration is learnt.
inline KernelEntry* Gate::describe(const Session& session, Work& work) {
    const Operation& operation = session.program->operations[session.next];
    KernelEntry* kernel = session.kernels[session.next];
    work = kernel != nullptr ? kernel->work : Work{};
    if (kernel != nullptr && kernel->mixed && !operation.joined) [[unlikely]] {
        kernel =
            &behind(session.streams[operation.stream].before, *kernel, [&](uint64_t key) -> KernelEntry& {
                KernelEntry& entry = kernels_[key];
                entry.key = key;
                return entry;
            });
        if (kernel->known()) work = kernel->work;
    }
    if (operation.joined) {
        work.whole = true;
        work.expected = work.expected > 0 ? work.expected : settings_.bounds.in_flight;
    } else if (operation.shape.unit == Shape::Unit::multiprocessors) {
        work.blocks = operation.shape.blocks;
        work.per_sm = operation.shape.per_sm;
        work.whole = operation.whole;
        work.expected = work.expected > 0 ? std::max(work.expected, UsualKernel::least) : guess(session);
    } else {
        work.known = work.whole = true;
        work.engine = engine_of(operation.shape.unit);
        work.expected = operation.duration;
    }
    work.gated = !session.high;
    work.stream = static_cast<uint8_t>(operation.stream % scheduling::streams_told_apart);
    return kernel;
}

inline Nanoseconds Gate::issue(Session& session, Nanoseconds now, unsigned partition) {
    if (session.high && session.enqueued_at == session.begun) tell_waited(session, now);
    const Operation& operation = session.program->operations[session.next];
    Stream& stream = session.streams[operation.stream];
    Step& step = stream.steps.add();
    step.kernel = describe(session, step.work);
    if (step.kernel != nullptr) stream.before.launched(step.work.key);
    step.work.partition = static_cast<uint8_t>(partition);
    step.multiprocessors = partition == 0 ? uint16_t{0} : settings_.bounds.partitions[partition - 1];
    step.sampled = step.kernel != nullptr &&
                   (step.kernel->sample_now() || (session.high && policy_->curious(session.index)));
    const uint16_t multiprocessors = partition == 0 ? uint16_t{model::sm_count} : step.multiprocessors;
    Nanoseconds cost =
        (multiprocessors == stream.multiprocessors && partition == 0 ? host::launch : host::green_launch) +
        host::delay(random_);
    stream.multiprocessors = multiprocessors;
    if (step.sampled) cost += timing_events;
    step.started = Gpu::never;
    const size_t last = last_of(*session.program, session.next);
    for (size_t each = session.next; each <= last; ++each)
        gpu_.submit(stream.on_gpu,
                    {&session.program->operations[each].shape, static_cast<uint32_t>(each), multiprocessors,
                     now + model::submission + (step.sampled ? timing_events / 2 : 0)});
    step.beside = beside_.enter(step.work);
    ++stream.unmarked;
    session.enqueued_at = std::max(session.enqueued_at + enqueue, session.begun + operation.at);
    if (session.head_at > session.last_issue) session.row_at = now, session.row = 0;
    ++session.row;
    session.last_issue = now + cost;
    session.unmarked_work += step.work.expected;
    waiting_ -= session.waits;
    session.waits = session.refused = false;
    ++(partition == 0 ? session.result.decisions.whole : session.result.decisions.confined);
    if (++session.in_flight == most_in_flight) session.held_from = now;
    session.next = last + 1;
    ++session.launched;
    ++session.unmarked;
    look_ahead(session);
    policy_->issued(session.index, step.work, now + cost);
    if (session.high && session.row > 1)
        policy_->lagged(session.index, session.row, session.row > 2 ? 1 : 2, now + cost - session.row_at);
    if (session.held_up && session.head_at > now && session.in_flight < most_in_flight) {
        session.held_up = false;
        policy_->held(session.index, 0);
    }
    asked_ = false;
    return cost;
}

// A stream that has a mark under way gets the next when that is seen, unless it is forced.
inline Nanoseconds Gate::mark(Session& session, bool force) {
    const bool awaited = session.awaited;
    Nanoseconds cost = 0;
    bool left = false;
    for (Stream& stream : session.streams) {
        if (stream.unmarked == 0) continue;
        if (!force && !stream.marks.empty()) {
            left = true;
            continue;
        }
        stream.marks.push(std::exchange(stream.unmarked, 0));
        ++session.marks;
        gpu_.submit(stream.on_gpu,
                    {awaited ? &host::written : &host::recorded, mark_tag, stream.multiprocessors, 0});
        cost += awaited ? host::write_value : host::record_event;
    }
    session.held = left;
    if (left) return cost + look;
    session.unmarked = 0;
    session.unmarked_work = 0;
    return cost;
}

// The tenant waits: it gets a mark in any case.
Nanoseconds Gate::synchronise(Session& session) {
    session.awaited = true;
    look_ahead(session);
    if (session.unmarked > 0) return mark(session, true);
    Stream& stream = session.streams.front();
    stream.marks.push(0);
    ++session.marks;
    gpu_.submit(stream.on_gpu, {&host::written, mark_tag, stream.multiprocessors, 0});
    return host::write_value;
}

// When what has no mark yet gets one: with nothing more to issue, unless more of it may be in flight.
inline Nanoseconds Gate::mark_due(const Session& session) const {
    if (session.held) return Gpu::never;
    const bool often = !session.high && policy_->in_flight(session.last_issue) <= settings_.bounds.in_flight;
    return often ? 0 : session.last_issue + mark_delay;
}

// When the dispatch thread has something to do next.
inline Nanoseconds Gate::due() const {
    if (waiting_ > 0 && !asked_) return free_at_;
    Nanoseconds at = notices_.empty() ? Gpu::never : notices_.top().at;
    if (waiting_ > 0) at = std::min(at, again_at_);
    for (const Session& session : sessions_) {
        at = std::min(at, session.head_at);
        if (session.unmarked > 0) at = std::min(at, mark_due(session));
    }
    return std::max(at, free_at_);
}

inline bool Gate::others_in_flight(const Session& session) const {
    for (const Session& other : sessions_)
        if (&other != &session && other.in_flight > 0) return true;
    return false;
}

inline bool Gate::high_is_ready(Nanoseconds now) const {
    bool ready = false;
    for (size_t number = 0; number < highs_; ++number) ready |= sessions_[number].head_at <= now;
    return ready;
}

// One thing that is due, and how long it takes: what a turn of the loop does first, first.
inline Nanoseconds Gate::serve(Nanoseconds now) {
    if (!high_is_ready(now)) {
        next_turn();  // all were passed, and that one again
    } else {
        while (turn_ >= highs_ || sessions_[turn_].head_at > now || taken_ == records_beside) next_turn();
        Session& session = sessions_[turn_];
        ++taken_;
        if (sessions_.size() > 1 && session.unmarked > 0 &&
            (session.unmarked >= records_per_turn ||
             (session.unmarked_work >= followed_work && session.head_at <= session.last_issue &&
              others_in_flight(session))))
            return mark(session, true);
        if (!all_launched(session)) return issue(session, now, 0);
        if (!has_mark(session)) tell_waited(session, now);
        return synchronise(session);
    }
    if (!notices_.empty() && notices_.top().at <= now) {
        const Notice notice = notices_.top();
        notices_.pop();
        observe(notice);
        return look;
    }
    for (size_t number = highs_; number < sessions_.size(); ++number) {
        Session& session = sessions_[number];
        if (session.head_at > now) continue;
        asked_ = false;
        if (!all_launched(session)) {
            session.waits = true;
            ++waiting_;
            look_ahead(session);
            Work work;
            describe(session, work);
            policy_->arrived(session.index, work, now);
            return look;
        }
        return look + synchronise(session);
    }
    for (Session& session : sessions_)
        if (session.unmarked >= mark_every) return mark(session, true);
    return gate(now);
}

inline Nanoseconds Gate::gate(Nanoseconds now) {
    Nanoseconds thought = 0;
    if (waiting_ > 0 && (!asked_ || again_at_ <= now)) {
        const Decision decision = policy_->decide(now);
        thought = policy_->foreseen() * foresee;
        if (decision.verdict != scheduling::Verdict::wait) {
            Session& session = sessions_[decision.session];
            const Nanoseconds cost =
                thought +
                issue(session, now + thought,
                      decision.verdict == scheduling::Verdict::partition ? decision.partition + 1u : 0);
            return session.unmarked_work >= marked_work(policy_->in_flight(now), settings_.bounds)
                       ? cost + mark(session, true)
                       : cost;
        }
        for (Session& session : sessions_)
            if (session.waits && !std::exchange(session.refused, true)) ++session.result.decisions.waited;
        asked_ = true;
        again_at_ = decision.again_at == 0 ? Gpu::never : std::max(decision.again_at, now + 1);
    }
    for (Session& session : sessions_)
        if (session.unmarked > 0 && mark_due(session) <= now) return thought + mark(session, false);
    return thought + look;
}

inline void Gate::observe(const Notice& notice) {
    Session& session = sessions_[notice.session];
    Stream& stream = session.streams[notice.stream];
    const uint32_t count = stream.marks.front();
    stream.marks.pop();
    for (uint32_t number = 0; number < count; ++number) {
        const Step& step = stream.steps.front();
        const Beside::Others others = beside_.leave(step.work, step.beside);
        Nanoseconds measured = 0;
        if (step.sampled) {
            measured = step.at - step.started;
            step.kernel->measured(measured, step.multiprocessors, others.most);
            session.usual.measured(*step.kernel);
        }
        const Nanoseconds unfinished = number + 1 == count ? notice.at : 0;
        policy_->completed(session.index, step.work, measured, notice.at, unfinished, others.over);
        stream.steps.pop();
        --stream.over;
        --session.in_flight;
    }
    look_ahead(session);
    if (count > 0)
        if (const Nanoseconds since = std::max(std::exchange(session.held_from, Gpu::never), session.head_at);
            since < notice.at) {
            session.held_up = true;
            policy_->held(session.index, notice.at - since);
        }
    asked_ = session.held = false;
}

inline void Gate::complete(const Completion& completion) {
    const auto [number, place] = owner_[completion.stream];
    Session& session = sessions_[number];
    Stream& stream = session.streams[place];
    const Nanoseconds seen = completion.at + seen_after;
    if (completion.tag == mark_tag) {
        notices_.push({seen, number, place});
        sooner(seen);
        --session.marks;
        if (!session.awaited || session.marks > 0 || session.unmarked > 0) return;
        return finish(session, seen);
    }
    const Operation& operation = session.program->operations[completion.tag];
    if (completion.at >= settings_.warmup && completion.at < end_)
        session.work += static_cast<double>(operation.duration);
    Step& step = stream.steps[stream.over];
    step.started = std::min(step.started, completion.started);
    step.at = completion.at;
    stream.over += !operation.joined;
    if (!polls(session) || operation.joined || ++session.over < session.launched || !all_launched(session))
        return;
    finish(session, completion.at + read_after);
}

// What the tenant waited for is over, as it sees then: an iteration is.
inline void Gate::finish(Session& session, Nanoseconds seen) {
    if (session.high && seen >= settings_.warmup && seen < end_) {
        session.result.iterations.push_back(seen - session.begun);
        session.result.kinds.push_back(session.iteration);
    }
    begin(session, seen + session.program->iterations[session.iteration++].pause);
    sooner(session.head_at);
}

// Of what it is at, as much as is over.
double Gate::begun_work(const Session& session, Nanoseconds now) const {
    double work = 0;
    for (const Stream& stream : session.streams)
        if (const Gpu::AtHand at_hand = gpu_.at_hand(stream.on_gpu, now); at_hand.over > 0)
            work += at_hand.over * static_cast<double>(session.program->operations[at_hand.tag].duration);
    return work;
}

void Gate::run(Result& result) {
    for (Session& session : sessions_) begin(session, static_cast<Nanoseconds>(random_.uniform() * 1e6));
    std::vector<Completion> completions;
    bool warm = false;
    const auto count_from_here = [&] {
        warm = true;
        gpu_.forget_use();
        for (Session& session : sessions_) session.work -= begun_work(session, settings_.warmup);
    };
    due_ = due();
    for (;;) {
        const Nanoseconds next = gpu_.next();
        if (std::min(due_, next) >= end_) break;
        if (due_ < next) {
            free_at_ = due_ + serve(due_);
            due_ = due();
            continue;
        }
        if (!warm && next >= settings_.warmup) count_from_here();
        completions.clear();
        gpu_.advance(std::min({due_, end_ - 1, warm ? Gpu::never : settings_.warmup - 1}), completions);
        for (const Completion& completion : completions) complete(completion);
    }
    if (!warm) count_from_here();
    for (Session& session : sessions_) {
        session.work += begun_work(session, end_);
        session.result.work = session.work / static_cast<double>(settings_.seconds);
        session.result.statistics = policy_->statistics(session.index);
        (session.high ? result.high : result.low).push_back(std::move(session.result));
    }
    result.idle = gpu_.use().idle;
    result.filled = gpu_.use().filled;
    result.events = gpu_.steps();
}

}  // namespace fikit::replay
