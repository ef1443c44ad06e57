// See replay_threads.hpp.
#include "replay_threads.hpp"

#include <algorithm>

namespace fikit::replay {

namespace model = sim::model;

namespace {

std::vector<uint16_t> sizes(const Settings& settings) {
    std::vector<uint16_t> all;
    for (const uint16_t size : {settings.all_partition, settings.long_partition})
        if (size != 0) all.push_back(size);
    return all;
}

}  // namespace

Threads::Threads(const std::vector<Program>& high, const std::vector<Program>& low, const Settings& settings)
    : settings_(settings),
      gpu_(sizes(settings), settings.seed),
      random_(settings.seed + 1),
      end_(settings.warmup + settings.seconds) {
    for (const auto* programs : {&high, &low})
        for (const Program& program : *programs) {
            Thread& thread = threads_.emplace_back();
            thread.program = &program;
            thread.high = programs == &high;
            const bool urgent = thread.high && settings.policy != "fifo";
            for (uint32_t stream = 0; stream < program.streams; ++stream) {
                const int priority = urgent ? model::priority_highest : model::priority_lowest;
                thread.streams.push_back(gpu_.add_stream(priority, thread.high));
                owner_.push_back(static_cast<uint32_t>(threads_.size() - 1));
            }
            thread.marked.resize(program.operations.size());
        }
}

void Threads::begin(unsigned number, Nanoseconds at) {
    Thread& thread = threads_[number];
    thread.begun = thread.free_at = at;
    if (thread.next == thread.program->operations.size())
        thread.next = thread.completed = thread.iteration = 0;
    thread.end = thread.program->iterations[thread.iteration].end;
    thread.issued = thread.done = thread.retired = thread.since_mark = 0;
    thread.calls_at = at;
}

// Makes the calls that are due at `now`; all of the iteration's where nothing on the GPU can hold them up.
void Threads::launch(unsigned number, Nanoseconds now) {
    Thread& thread = threads_[number];
    const auto& operations = thread.program->operations;
    const bool bounded = !thread.high && settings_.in_flight > 0;
    thread.calls_at = Gpu::never;
    while (thread.next < thread.end) {
        const Operation& operation = operations[thread.next];
        const Nanoseconds due = std::max(thread.free_at, thread.begun + operation.at);
        if (bounded) {
            if (due > now) {
                thread.calls_at = due;
                return;
            }
            // A completion calls again.
            if (thread.issued - thread.done >= settings_.in_flight && thread.issued != thread.done) return;
        }
        Entry entry;
        entry.shape = &operation.shape;
        entry.tag = static_cast<uint32_t>(thread.next);
        if (!thread.high && operation.shape.unit == Shape::Unit::multiprocessors && !operation.whole) {
            if (settings_.all_partition != 0) entry.multiprocessors = settings_.all_partition;
            if (settings_.long_partition != 0 && operation.shape.duration > settings_.long_block)
                entry.multiprocessors = settings_.long_partition;
        }
        entry.arrival = due + model::submission;
        thread.free_at = due;
        if (thread.next == 0 || !operations[thread.next - 1].joined)
            thread.free_at += (entry.multiprocessors == model::sm_count ? host::launch : host::green_launch) +
                              host::delay(random_);
        Decisions& decisions = thread.result.decisions;
        ++(entry.multiprocessors == model::sm_count ? decisions.whole : decisions.confined);
        thread.issued += operation.duration;
        thread.since_mark += operation.duration;
        thread.marked[thread.next] = bounded && thread.since_mark > settings_.in_flight / 3;
        if (thread.marked[thread.next]) {
            thread.since_mark = 0;
            thread.free_at += host::record_event;
        }
        const uint16_t stream = thread.streams[operation.stream];
        gpu_.submit(stream, entry);
        if (thread.marked[thread.next])
            gpu_.submit(stream, {&host::recorded, UINT32_MAX, entry.multiprocessors, 0});
        ++thread.next;
    }
}

void Threads::complete(const Completion& completion) {
    const unsigned number = owner_[completion.stream];
    Thread& thread = threads_[number];
    const Nanoseconds seen = completion.at + model::completion_notice;
    if (completion.tag == UINT32_MAX) {
        thread.done = thread.retired;
        if (thread.calls_at == Gpu::never && thread.next < thread.end)
            thread.calls_at = std::max(thread.free_at, seen);
        return;
    }
    const Operation& operation = thread.program->operations[completion.tag];
    if (completion.at >= settings_.warmup && completion.at < end_)
        thread.work += static_cast<double>(operation.duration);
    thread.retired += operation.duration;
    if (++thread.completed < thread.end) return;
    const Nanoseconds over = std::max(thread.free_at, seen);
    if (thread.high && over >= settings_.warmup && over < end_) {
        thread.result.iterations.push_back(over - thread.begun);
        thread.result.kinds.push_back(thread.iteration);
    }
    begin(number, over + thread.program->iterations[thread.iteration++].pause);
}

// Of what it is at, as much as is over.
double Threads::begun_work(const Thread& thread, Nanoseconds now) const {
    double work = 0;
    for (const uint16_t stream : thread.streams)
        if (const Gpu::AtHand at_hand = gpu_.at_hand(stream, now); at_hand.over > 0)
            work += at_hand.over * static_cast<double>(thread.program->operations[at_hand.tag].duration);
    return work;
}

void Threads::run(Result& result) {
    for (unsigned number = 0; number < threads_.size(); ++number)
        begin(number, static_cast<Nanoseconds>(random_.uniform() * 1e6));
    std::vector<Completion> completions;
    bool warm = false;
    const auto count_from_here = [&] {
        warm = true;
        gpu_.forget_use();
        for (Thread& thread : threads_) thread.work -= begun_work(thread, settings_.warmup);
    };
    for (;;) {
        const Nanoseconds next = gpu_.next();
        Nanoseconds call = Gpu::never;
        unsigned who = 0;
        for (unsigned number = 0; number < threads_.size(); ++number)
            if (threads_[number].calls_at < call) call = threads_[who = number].calls_at;
        if (std::min(call, next) >= end_) break;
        if (call < next) {
            launch(who, call);
            continue;
        }
        if (!warm && next >= settings_.warmup) count_from_here();
        completions.clear();
        gpu_.advance(std::min({call, end_ - 1, warm ? Gpu::never : settings_.warmup - 1}), completions);
        for (const Completion& completion : completions) complete(completion);
    }
    if (!warm) count_from_here();
    for (Thread& thread : threads_) {
        thread.work += begun_work(thread, end_);
        thread.result.work = thread.work / static_cast<double>(settings_.seconds);
        (thread.high ? result.high : result.low).push_back(std::move(thread.result));
    }
    result.idle = gpu_.use().idle;
    result.filled = gpu_.use().filled;
    result.events = gpu_.steps();
}

}  // namespace fikit::replay
