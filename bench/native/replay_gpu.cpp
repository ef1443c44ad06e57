// See replay_gpu.hpp.
#include "replay_gpu.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace fikit::replay {

namespace model = sim::model;

namespace {

// Free resources are counted in the units in which they are allocated, so that they fit in 16 bits.
constexpr unsigned register_unit = model::register_allocation_unit,
                   shared_unit = model::shared_allocation_unit;

// Blocks of one kernel last differently long, by up to so much either way: with none, tenants fall into step.
constexpr double spread = 0.02;
// The ends of a kernel's blocks are rounded to this part of their length, so that those which end at nearly
// the same time are one event, and their SMs become equal again.
constexpr Nanoseconds grains = 8, finest = 256;
// How much later a kernel starts beside another stream's: launch + synchronise takes 8.5 us beside a flood
// that is confined to 16 SMs, and 7.2 alone. Kernels recorded with 1 to 2 us last 1.8 to 3.2 us more beside
// gated work and 0.9 more alone.
constexpr Nanoseconds beside = 1300;

}  // namespace

Gpu::Gpu(const std::vector<uint16_t>& partitions, uint64_t seed) : borders_(partitions), random_(seed) {
    borders_.push_back(model::sm_count);
    std::sort(borders_.begin(), borders_.end());
    borders_.erase(std::unique(borders_.begin(), borders_.end()), borders_.end());
    uint16_t from = 0;
    for (const uint16_t to : borders_) {
        Group group;
        group.count = static_cast<uint16_t>(to - from);
        group.area = from;
        group.threads = model::threads_per_sm;
        group.registers = model::registers_per_sm / register_unit;
        group.shared = model::shared_per_sm / shared_unit;
        group.blocks = model::blocks_per_sm;
        groups_.push_back(group);
        from = to;
    }
    groups_.reserve(model::sm_count);
}

uint16_t Gpu::add_stream(int priority, bool high) {
    Stream& stream = streams_.emplace_back();
    stream.priority = priority;
    stream.high = high;
    return static_cast<uint16_t>(streams_.size() - 1);
}

void Gpu::submit(uint16_t stream, const Entry& entry) {
    streams_[stream].queue.push(entry);
    if (!streams_[stream].running) start_next(stream);
}

void Gpu::start_next(uint16_t number) {
    Stream& stream = streams_[number];
    stream.running = !stream.queue.empty();
    if (!stream.running) return;
    stream.current = stream.queue.front();
    stream.queue.pop();
    Nanoseconds free_at = stream.free_at;
    if (stream.current.multiprocessors != stream.last_multiprocessors) free_at += model::cross_stream;
    stream.last_multiprocessors = stream.current.multiprocessors;
    stream.started = std::max(stream.current.arrival, free_at);
    const bool kernel = stream.current.shape->unit == Shape::Unit::multiprocessors;
    const Nanoseconds shared = confined_ > 0 ? beside : 0;
    schedule(stream.started + (kernel ? model::kernel_start + shared : 0), Kind::begin, number);
}

// Settles what was used of the idle time, then `change`s the number of streams at work.
void Gpu::account(const Stream& stream, int change, Nanoseconds time) {
    if (stream.current.shape->unit == Shape::Unit::mark) return;
    if (stream.current.multiprocessors != model::sm_count) confined_ += static_cast<unsigned>(change);
    if (at_work_[1] == 0) {
        use_.idle += time - use_until_;
        if (at_work_[0] > 0) use_.filled += time - use_until_;
    }
    use_until_ = time;
    at_work_[stream.high ? 1 : 0] += static_cast<unsigned>(change);
}

void Gpu::finish(uint16_t number, Nanoseconds at, std::vector<Completion>& completions) {
    Stream& stream = streams_[number];
    completions.push_back({number, stream.current.tag, stream.started, at});
    stream.free_at = at;
    start_next(number);
}

void Gpu::step(std::vector<Completion>& completions) {
    const Nanoseconds time = events_.top().time;
    // All of one instant first, then the blocks: a kernel of higher priority that becomes ready in the
    // instant in which room is freed gets it.
    while (!events_.empty() && events_.top().time == time) {
        const Event event = events_.top();
        events_.pop();
        ++steps_;
        switch (event.kind) {
            case Kind::begin:
                begin(event.index, time);
                break;
            case Kind::wave_end:
                if (waves_[event.index].end != time) break;  // it has been put at another time
                end_wave(event.index, time, completions);
                break;
            case Kind::engine_end: {
                const Shape::Unit unit = streams_[event.index].current.shape->unit;
                account(streams_[event.index], -1, time);
                finish(event.index, time, completions);
                if (unit == Shape::Unit::alone || unit == Shape::Unit::mark) break;
                const unsigned engine = unit == Shape::Unit::to_host ? 1 : 0;
                engines_[engine].running = -1;
                start_copy(engine, time);
                break;
            }
        }
    }
    if (place_due_) place_all(time);
}

void Gpu::begin(uint16_t number, Nanoseconds time) {
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
    stop_ahead(time);
    claim(number);
}

// Puts a stream's kernel where it belongs among those that have blocks to place.
void Gpu::claim(uint16_t number) {
    const auto before = [this](uint16_t left, uint16_t right) {
        const Stream &one = streams_[left], &other = streams_[right];
        return one.priority != other.priority ? one.priority < other.priority : one.order < other.order;
    };
    pending_.insert(std::upper_bound(pending_.begin(), pending_.end(), number, before), number);
    place_due_ = true;
}

// The most urgent copy goes first; one under way is not interrupted.
void Gpu::start_copy(unsigned number, Nanoseconds time) {
    CopyEngine& engine = engines_[number];
    if (engine.running >= 0 || engine.waiting.empty()) return;
    const auto best = std::min_element(
        engine.waiting.begin(), engine.waiting.end(),
        [this](uint16_t left, uint16_t right) { return streams_[left].priority < streams_[right].priority; });
    engine.running = *best;
    schedule(time + streams_[*best].current.shape->duration, Kind::engine_end, *best);
    engine.waiting.erase(best);
}

// A kernel that has its SMs to itself is left to it until something else happens: one event for many waves.
void Gpu::run_ahead(uint16_t number, Nanoseconds time) {
    Wave& wave = waves_[number];
    Stream& stream = streams_[wave.stream];
    wave.ahead = stream.pending / wave.blocks;
    if (wave.ahead == 0) return;
    stream.pending -= wave.ahead * wave.blocks;
    wave.end = time + wave.each * (wave.ahead + 1);
    ahead_ = number;
}

void Gpu::stop_ahead(Nanoseconds time) {
    if (ahead_ < 0) return;
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

void Gpu::end_wave(uint16_t number, Nanoseconds time, std::vector<Completion>& completions) {
    if (ahead_ == number)
        ahead_ = -1;
    else
        stop_ahead(time);
    const Wave wave = waves_[number];
    waves_[number].end = -1;
    Stream& stream = streams_[wave.stream];
    take_off(number, *stream.current.shape);
    free_waves_.push_back(number);
    stream.resident -= wave.blocks;
    place_due_ = !pending_.empty();
    if (stream.pending > 0 || stream.resident > 0) return;
    account(stream, -1, time);
    finish(wave.stream, time + model::kernel_end, completions);
}

void Gpu::place_all(Nanoseconds time) {
    place_due_ = false;
    uint16_t closed = 0;  // so many SMs, from the first, belong to a kernel further ahead
    for (size_t at = 0; at < pending_.size() && closed < model::sm_count;) {
        const uint16_t number = pending_[at];
        Stream& stream = streams_[number];
        const Shape& shape = *stream.current.shape;
        if (free_waves_.empty()) {
            free_waves_.push_back(static_cast<uint16_t>(waves_.size()));
            waves_.emplace_back();
        }
        const uint16_t index = free_waves_.back();
        Wave& wave = waves_[index];
        wave.mark = random_.next();
        const uint32_t placed = place(shape, closed, stream.current.multiprocessors, stream.pending, index);
        if (placed > 0) {
            free_waves_.pop_back();
            wave.stream = number;
            wave.blocks = placed;
            wave.ahead = 0;
            wave.began = time;
            stream.pending -= placed;
            stream.resident += placed;
            const double factor = 1 + spread * (2 * random_.uniform() - 1);
            const auto end = time + static_cast<Nanoseconds>(factor * static_cast<double>(shape.duration));
            const auto grain = static_cast<Nanoseconds>(
                std::bit_floor(static_cast<uint64_t>(std::max(finest, shape.duration / grains))));
            wave.end = std::max(time + grain, (end + grain / 2) / grain * grain);
            wave.each = wave.end - time;
            if (ahead_ < 0 && closed == 0 && stream.resident == placed && stream.pending > 0)
                run_ahead(index, time);
            schedule(wave.end, Kind::wave_end, index);
            if (ahead_ == index) closed = std::max(closed, stream.current.multiprocessors);
        }
        if (stream.pending == 0) {
            pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(at));
        } else {
            closed = std::max(closed, stream.current.multiprocessors);
            ++at;
        }
    }
}

// Places up to `pending` blocks on the SMs [from, to), breadth first; returns how many.
uint32_t Gpu::place(const Shape& shape, uint16_t from, uint16_t to, uint32_t pending, uint16_t wave) {
    const unsigned threads = shape.block.threads, registers = shape.block.registers / register_unit,
                   shared = shape.block.shared / shared_unit;
    uint32_t total = 0;
    unsigned deepest = 0;
    const size_t groups = groups_.size();
    for (size_t index = 0; index < groups; ++index) {
        const Group& group = groups_[index];
        unsigned room = 0;
        if (group.area >= from && group.area < to) {
            if (group.residents == 0)
                room = shape.per_sm;
            else if (group.blocks > 0 && group.threads >= threads && group.registers >= registers &&
                     group.shared >= shared)
                room = std::min({unsigned{group.blocks}, group.threads / threads, group.registers / registers,
                                 group.shared / shared});
            total += room * group.count;
            deepest = std::max(deepest, room);
        }
        rooms_[index] = room;
    }
    if (total == 0) return 0;
    // The level to which every SM is filled, and what is left over for one more block on some of them.
    unsigned level = deepest;
    uint32_t left = 0;
    if (pending < total) {
        left = pending;
        for (level = 0; level < deepest; ++level) {
            uint32_t layer = 0;
            for (size_t index = 0; index < groups; ++index)
                if (rooms_[index] > level) layer += groups_[index].count;
            if (layer > left) break;
            left -= layer;
        }
    }
    for (size_t index = 0; index < groups; ++index) {
        unsigned blocks = std::min(rooms_[index], level);
        if (left > 0 && rooms_[index] > level) {
            if (left < groups_[index].count) {
                Group rest = groups_[index];
                for (unsigned at = 0; at < rest.residents; ++at) ++waves_[rest.on[at].wave].groups;
                rest.count = static_cast<uint16_t>(rest.count - left);
                groups_[index].count = static_cast<uint16_t>(left);
                groups_.push_back(rest);
                if (level > 0) put(groups_.back(), shape, wave, level);
            }
            blocks = level + 1;
            left -= groups_[index].count;
        }
        if (blocks > 0) put(groups_[index], shape, wave, blocks);
    }
    return std::min(pending, total);
}

void Gpu::put(Group& group, const Shape& shape, uint16_t wave, unsigned blocks) {
    group.threads = static_cast<uint16_t>(group.threads - blocks * shape.block.threads);
    group.registers =
        static_cast<uint16_t>(group.registers - blocks * (shape.block.registers / register_unit));
    group.shared = static_cast<uint16_t>(group.shared - blocks * (shape.block.shared / shared_unit));
    group.blocks = static_cast<uint16_t>(group.blocks - blocks);
    ++waves_[wave].groups;
    group.on[group.residents++] = {wave, static_cast<uint16_t>(blocks)};
    group.marks += waves_[wave].mark * blocks;
}

// Frees what the wave held, and joins the groups that have become equal.
void Gpu::take_off(uint16_t wave, const Shape& shape) {
    Wave& gone = waves_[wave];
    for (size_t index = 0; gone.groups > 0; ++index) {
        Group& group = groups_[index];
        unsigned at = 0;
        while (at < group.residents && group.on[at].wave != wave) ++at;
        if (at == group.residents) continue;
        --gone.groups;
        const unsigned blocks = group.on[at].blocks;
        group.on[at] = group.on[--group.residents];
        group.threads = static_cast<uint16_t>(group.threads + blocks * shape.block.threads);
        group.registers =
            static_cast<uint16_t>(group.registers + blocks * (shape.block.registers / register_unit));
        group.shared = static_cast<uint16_t>(group.shared + blocks * (shape.block.shared / shared_unit));
        group.blocks = static_cast<uint16_t>(group.blocks + blocks);
        group.marks -= gone.mark * blocks;
        for (size_t other = 0; other < groups_.size(); ++other) {
            if (other == index || groups_[other].area != group.area || groups_[other].marks != group.marks)
                continue;
            groups_[other].count = static_cast<uint16_t>(groups_[other].count + group.count);
            for (unsigned on = 0; on < group.residents; ++on) --waves_[group.on[on].wave].groups;
            if (index != groups_.size() - 1) groups_[index] = groups_.back();
            groups_.pop_back();
            --index;  // what was last stands here now
            break;
        }
    }
}

}  // namespace fikit::replay
