// See replay_gpu.hpp.
#include "replay_gpu.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

namespace fikit::replay {

namespace model = sim::model;

namespace {

// The ends of a kernel's blocks are rounded to this part of their length, so that those which end at nearly
// the same time are one event, and their SMs become equal again.
constexpr Nanoseconds grains = 8, finest = 256;

}  // namespace

Gpu::Gpu(const std::vector<uint16_t>& partitions, uint64_t seed, const Difference& difference)
    : multiprocessors_(partitions), difference_(difference), random_(seed) {}

uint16_t Gpu::add_stream(int priority, bool high) {
    if (streams_.size() == size_t{1} << index_bits) throw std::invalid_argument("too many streams");
    Stream& stream = streams_.emplace_back();
    stream.priority = priority;
    stream.high = high;
    return static_cast<uint16_t>(streams_.size() - 1);
}

// What is `current` now. A mark follows what is before it in the same step, and is over; one that finds
// nothing before it is an event of its own.
bool Gpu::start(uint16_t number, std::vector<Completion>* completions) {
    Stream& stream = streams_[number];
    Nanoseconds free_at = stream.free_at;
    if (stream.current.multiprocessors != stream.last_multiprocessors) free_at += model::cross_stream;
    stream.last_multiprocessors = stream.current.multiprocessors;
    stream.started = std::max(stream.current.arrival, free_at);
    const Shape& shape = *stream.current.shape;
    if (shape.unit != Shape::Unit::mark) {
        const bool kernel = shape.unit == Shape::Unit::multiprocessors;
        const Nanoseconds shared = confined_ > 0 ? difference_.beside : 0;
        schedule(stream.started + (kernel ? model::kernel_start + shared : 0), Kind::begin, number);
        return true;
    }
    if (completions == nullptr) {
        schedule(stream.started + shape.duration, Kind::engine_end, number);
        return true;
    }
    stream.free_at = stream.started + shape.duration;
    completions->push_back({number, stream.current.tag, stream.started, stream.free_at});
    return false;
}

void Gpu::start_next(uint16_t number, std::vector<Completion>& completions) {
    Stream& stream = streams_[number];
    do {
        stream.running = !stream.queue.empty();
        if (!stream.running) return;
        stream.current = stream.queue.front();
        stream.queue.pop();
    } while (!start(number, &completions));
}

// Settles what was used of the idle time, then `change`s the number of streams at work.
inline void Gpu::account(const Stream& stream, int change, Nanoseconds time) {
    if (stream.current.multiprocessors != model::sm_count) confined_ += static_cast<unsigned>(change);
    if (at_work_[1] == 0) {
        use_.idle += time - use_until_;
        if (at_work_[0] > 0) use_.filled += time - use_until_;
    }
    use_until_ = time;
    at_work_[stream.high ? 1 : 0] += static_cast<unsigned>(change);
}

inline void Gpu::finish(uint16_t number, Nanoseconds at, std::vector<Completion>& completions) {
    Stream& stream = streams_[number];
    completions.push_back({number, stream.current.tag, stream.started, at});
    stream.free_at = at;
    start_next(number, completions);
}

Gpu::AtHand Gpu::at_hand(uint16_t number, Nanoseconds time) const {
    const Stream& stream = streams_[number];
    if (!stream.running) return {};
    const Shape& shape = *stream.current.shape;
    const auto part = [](Nanoseconds of, Nanoseconds whole) {
        return std::clamp(static_cast<double>(of) / static_cast<double>(whole), 0.0, 1.0);
    };
    AtHand found{stream.current.tag};
    switch (shape.unit) {
        case Shape::Unit::mark:
            break;
        case Shape::Unit::alone:
            found.over = part(time - stream.started, shape.duration);
            break;
        case Shape::Unit::to_device:
        case Shape::Unit::to_host: {
            const CopyEngine& engine = engines_[shape.unit == Shape::Unit::to_host ? 1 : 0];
            if (engine.running == number) found.over = part(time - engine.began, shape.duration);
            break;
        }
        case Shape::Unit::multiprocessors: {
            if (stream.pending + stream.resident == 0) break;  // it has not begun
            double left = stream.pending;
            for (const Wave& wave : waves_)
                if (wave.end > 0 && wave.stream == number)
                    left += part(wave.end - time, wave.end - wave.began) * wave.blocks * (wave.ahead + 1);
            found.over = std::max(0.0, 1 - left / shape.blocks);
        }
    }
    return found;
}

void Gpu::advance(Nanoseconds until, std::vector<Completion>& completions) {
    while (completions.empty() && next() <= until) step(completions);
}

// Does all that is due at next().
[[gnu::always_inline]] inline void Gpu::step(std::vector<Completion>& completions) {
    const Nanoseconds time = time_of(events_.top());
    // All of one instant first, then the blocks: a kernel of higher priority that becomes ready in the
    // instant in which room is freed gets it.
    do {
        const Event event = events_.top();
        events_.pop();
        ++steps_;
        const auto index = static_cast<uint16_t>(event & ((Event{1} << index_bits) - 1));
        switch (static_cast<Kind>(event >> index_bits & ((Event{1} << kind_bits) - 1))) {
            case Kind::begin:
                begin(index, time);
                break;
            case Kind::wave_end:
                if (waves_[index].end != time) break;  // it was put off
                if (!start_again(index, time)) end_wave(index, time, completions);
                break;
            case Kind::engine_end:
                end_engine(index, time, completions);
                break;
        }
    } while (more_at(time));
    if (place_due_) place_all(time);
}

inline void Gpu::begin(uint16_t number, Nanoseconds time) {
    Stream& stream = streams_[number];
    const Shape& shape = *stream.current.shape;
    account(stream, 1, time);
    switch (shape.unit) {
        case Shape::Unit::alone:
        case Shape::Unit::mark:
            schedule(time + shape.duration, Kind::engine_end, number);
            return;
        case Shape::Unit::to_device:
        case Shape::Unit::to_host: {
            const unsigned engine = shape.unit == Shape::Unit::to_host ? 1 : 0;
            engines_[engine].waiting.push_back(number);
            start_copy(engine, time);
            return;
        }
        case Shape::Unit::multiprocessors:
            break;
    }
    stream.pending = shape.blocks;
    stream.resident = 0;
    stream.order = ++orders_;
    if (ahead_ >= 0) stop_ahead(time);
    if (shape.interference.any()) press(number, true, time);
    claim(number);
}

inline void Gpu::end_engine(uint16_t number, Nanoseconds time, std::vector<Completion>& completions) {
    const Shape::Unit unit = streams_[number].current.shape->unit;
    if (unit != Shape::Unit::mark) account(streams_[number], -1, time);
    finish(number, time, completions);
    if (unit != Shape::Unit::to_device && unit != Shape::Unit::to_host) return;
    const unsigned engine = unit == Shape::Unit::to_host ? 1 : 0;
    engines_[engine].running = -1;
    start_copy(engine, time);
}

// Puts a stream's kernel where it belongs among those that have blocks to place.
inline void Gpu::claim(uint16_t number) {
    const auto before = [this](uint16_t left, uint16_t right) {
        const Stream &one = streams_[left], &other = streams_[right];
        return one.priority != other.priority ? one.priority < other.priority : one.order < other.order;
    };
    size_t at = pending_.size();
    pending_.push_back(number);
    for (; at > 0 && before(number, pending_[at - 1]); --at) pending_[at] = pending_[at - 1];
    pending_[at] = number;
    place_due_ = true;
}

// The most urgent copy goes first; one under way is not interrupted.
inline void Gpu::start_copy(unsigned number, Nanoseconds time) {
    CopyEngine& engine = engines_[number];
    if (engine.running >= 0 || engine.waiting.empty()) return;
    const auto best = std::min_element(
        engine.waiting.begin(), engine.waiting.end(),
        [this](uint16_t left, uint16_t right) { return streams_[left].priority < streams_[right].priority; });
    engine.running = *best;
    engine.began = time;
    schedule(time + streams_[*best].current.shape->duration, Kind::engine_end, *best);
    engine.waiting.erase(best);
}

// How many times as long a wave's blocks last.
inline double Gpu::spread(Random& random) const {
    return difference_.spread > 0 ? 1 + difference_.spread * (2 * random.uniform() - 1) : 1;
}

// Sets when the blocks of a wave, just placed, end. A kernel that has its SMs to itself is left to it until
// something else happens: one event for many waves. `first`: its kernel is first in line.
[[gnu::always_inline]] inline void Gpu::start_wave(uint16_t number, Wave& wave, Stream& stream,
                                                   Nanoseconds time, double factor, bool first) {
    Nanoseconds length = stream.current.shape->duration + wave.deepest * difference_.block_launch;
    if (difference_.spread > 0) {
        const auto end = time + static_cast<Nanoseconds>(factor * static_cast<double>(length));
        const auto grain = static_cast<Nanoseconds>(
            std::bit_floor(static_cast<uint64_t>(std::max(finest, length / grains))));
        length = std::max(grain, ((end + grain / 2) & -grain) - time);
    }
    const bool sensitive = stream.current.shape->interference.any();
    if (sensitive) {
        wave.slowed = slowdown(stream);
        length = static_cast<Nanoseconds>(static_cast<double>(length) * wave.slowed);
        sensitive_.push_back(number);
    }
    wave.began = time;
    wave.each = length;
    wave.ahead = 0;
    if (ahead_ < 0 && !sensitive && first && stream.resident == wave.blocks) {
        wave.ahead = stream.pending / wave.blocks;
        stream.pending -= wave.ahead * wave.blocks;
        if (wave.ahead > 0) ahead_ = number;
    }
    wave.end = time + wave.each * (wave.ahead + 1);
    schedule(wave.end, Kind::wave_end, number);
}

void Gpu::stop_ahead(Nanoseconds time) {
    const auto number = static_cast<uint16_t>(std::exchange(ahead_, -1));
    Wave& wave = waves_[number];
    const auto over = static_cast<uint32_t>(std::max<Nanoseconds>(0, time - wave.began - 1) / wave.each);
    if (over >= wave.ahead) return;
    Stream& stream = streams_[wave.stream];
    if (stream.pending == 0) claim(wave.stream);
    stream.pending += (wave.ahead - over) * wave.blocks;
    wave.ahead = over;
    wave.end = wave.began + wave.each * (over + 1);
    schedule(wave.end, Kind::wave_end, number);
}

// So many blocks at most share an SM with one of the stream's, itself among them: each goes where there are
// fewest.
unsigned Gpu::crowd(const Stream& stream) const {
    const auto resident = [](const Stream& of) {
        const uint32_t sms = of.current.multiprocessors;
        return std::min(of.current.shape->blocks, sms * of.current.shape->per_sm);
    };
    const uint32_t sms = stream.current.multiprocessors;
    const auto room = [&](unsigned level) {
        uint32_t free = 0, from = 0;
        while (from < sms) {  // partitions begin with the same SM
            unsigned there = 0;
            uint32_t to = sms;
            for (const uint16_t number : pressing_) {
                const Stream& other = streams_[number];
                const uint32_t its = other.current.multiprocessors;
                const bool crowds = other.current.shape->interference.crowding > 0;
                if (&other == &stream || its <= from || !crowds) continue;
                to = std::min(to, its);
                if (its <= sms || resident(other) > its - sms) there += (resident(other) + its - 1) / its;
            }
            free += (to - from) * (level > there ? level - there : 0);
            from = to;
        }
        return free;
    };
    unsigned level = 1;
    while (room(level) < resident(stream)) ++level;
    return level;
}

// How many times as long a stream's blocks last beside what the others run, and where they do.
double Gpu::slowdown(const Stream& stream) const {
    const Shape& shape = *stream.current.shape;
    const Interference& own = shape.interference;
    double pressure = 0;
    for (const uint16_t number : pressing_) {
        const Stream& other = streams_[number];
        const double sms = other.current.multiprocessors / double{model::sm_count};
        if (&other != &stream) pressure += other.current.shape->interference.pressure * (1 + 2 * sms) / 3;
    }
    const bool all = stream.current.multiprocessors == model::sm_count;
    const uint32_t usual = (std::min(shape.blocks, model::sm_count * shape.per_sm) - 1) / model::sm_count;
    return (1 + own.sensitivity * pressure) * (all ? 1 : own.confined) *
           (1 + own.crowding * (crowd(stream) - 1)) / (1 + own.crowding * usual);
}

// A kernel begins, or ends, to press on the others: what is left of their blocks takes longer, or less long.
void Gpu::press(uint16_t number, bool begins, Nanoseconds time) {
    if (begins)
        pressing_.push_back(number);
    else
        std::erase(pressing_, number);
    for (const uint16_t index : sensitive_) {
        Wave& wave = waves_[index];
        if (wave.stream == number || wave.end <= time) continue;
        const double now = slowdown(streams_[wave.stream]);
        const auto left = static_cast<double>(wave.end - time) * now / wave.slowed;
        wave.slowed = now;
        wave.end = time + std::max<Nanoseconds>(1, static_cast<Nanoseconds>(left));
        schedule(wave.end, Kind::wave_end, index);
    }
}

// What is first in line gets back exactly what it held, unless something else happens in this instant.
[[gnu::always_inline]] inline bool Gpu::start_again(uint16_t number, Nanoseconds time) {
    if (ahead_ == number)
        ahead_ = -1;
    else if (ahead_ >= 0) [[unlikely]]
        stop_ahead(time);
    Wave& wave = waves_[number];
    Stream& stream = streams_[wave.stream];
    if (!sensitive_.empty()) [[unlikely]]
        std::erase(sensitive_, number);
    if (stream.pending < wave.blocks || pending_.front() != wave.stream || place_due_ || more_at(time))
        return false;
    stream.pending -= wave.blocks;
    start_wave(number, wave, stream, time, spread(random_), true);
    if (stream.pending == 0) {
        pending_.erase(pending_.begin());
        place_due_ = ahead_ != number && !pending_.empty();
    }
    return true;
}

void Gpu::end_wave(uint16_t number, Nanoseconds time, std::vector<Completion>& completions) {
    Wave& wave = waves_[number];
    Stream& stream = streams_[wave.stream];
    wave.end = -1;
    multiprocessors_.release({number, wave.mark}, stream.current.shape->block);
    free_waves_.push_back(number);
    const uint32_t resident = stream.resident -= wave.blocks;
    place_due_ = !pending_.empty();
    if (stream.pending > 0 || resident > 0) return;
    if (stream.current.shape->interference.any()) press(wave.stream, false, time);
    account(stream, -1, time);
    finish(wave.stream, time + model::kernel_end, completions);
}

inline void Gpu::place_all(Nanoseconds time) {
    place_due_ = false;
    uint16_t closed = 0;      // so many SMs, from the first, belong to a kernel further ahead
    size_t at = 0, kept = 0;  // of those before `at` so many still have blocks to place
    for (; at < pending_.size() && closed < model::sm_count; ++at) {
        const uint16_t number = pending_[at];
        Stream& stream = streams_[number];
        const Shape& shape = *stream.current.shape;
        if (free_waves_.empty()) {
            if (waves_.size() == size_t{1} << index_bits) throw std::runtime_error("too many waves");
            free_waves_.push_back(static_cast<uint16_t>(waves_.size()));
            waves_.emplace_back();
        }
        const uint16_t index = free_waves_.back();
        Wave& wave = waves_[index];
        wave.mark = random_.next();
        Random then = random_;  // drawn here, the factor is there once it is known whether it is needed
        const double factor = spread(then);
        const Multiprocessors::Placed placed = multiprocessors_.place(
            {index, wave.mark}, shape.block, closed, stream.current.multiprocessors, stream.pending);
        if (placed.blocks > 0) {
            free_waves_.pop_back();
            wave.stream = number;
            wave.blocks = placed.blocks;
            wave.deepest = placed.deepest;
            stream.pending -= placed.blocks;
            stream.resident += placed.blocks;
            random_ = then;
            start_wave(index, wave, stream, time, factor, kept == 0);
        }
        if (stream.pending > 0 || ahead_ == index) closed = std::max(closed, stream.current.multiprocessors);
        pending_[kept] = number;
        kept += stream.pending > 0;
    }
    while (at < pending_.size()) pending_[kept++] = pending_[at++];
    pending_.resize(kept);
}

}  // namespace fikit::replay
