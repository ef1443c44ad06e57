// The simulated GPU for replays: kernels of known block time, with the figures of simcuda/model.hpp, made for
// speed (a hundred simulated kernels take some ten microseconds).
//
// As in simcuda/compute.hpp: blocks are given out strictly by priority, then in order of readiness; a kernel
// that still has blocks to place closes its SMs for all behind it; nothing is preempted. Partitions are
// nested, so a set of SMs is a number: the first so many.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "replay_multiprocessors.hpp"

namespace fikit::replay {

using sim::Nanoseconds;

// What a kernel does to others beside taking room, and they to it. Kernels that only last do nothing.
struct Interference {
    // In caches and memory bandwidth: blocks last `sensitivity` times longer as the `pressure` of the other
    // streams' kernels amounts to, a third of which they exert on however few SMs.
    double pressure = 0, sensitivity = 0;
    // A block lasts longer by that share for each other one on its SM, of whatever kernel.
    double crowding = 0;
    // On a partition a block lasts so many times as long: what memory bandwidth bounds, less.
    double confined = 1;
    bool any() const { return pressure > 0 || sensitivity > 0 || crowding > 0 || confined != 1; }
};

// What a launch or copy occupies, and for how long.
struct Shape {
    enum class Unit : uint8_t {
        multiprocessors,
        to_device,
        to_host,
        alone,  // neither SMs nor a copy engine of the link: copies on the device
        mark,   // a stream write: costs its stream a little time, and is nobody's work
    };
    Unit unit = Unit::alone;
    uint32_t blocks = 0;
    uint16_t per_sm = 1;
    Block block{};
    Nanoseconds duration = 0;  // of one block; of the whole operation where it does not use SMs
    Interference interference{};
};

// One operation of a stream: ready at `arrival`, once its predecessor has completed.
struct Entry {
    const Shape* shape = nullptr;
    uint32_t tag = 0;
    uint16_t multiprocessors = sim::model::sm_count;  // the partition
    Nanoseconds arrival = 0;
};

struct Completion {
    uint16_t stream = 0;
    uint32_t tag = 0;
    Nanoseconds started = 0;  // its predecessor was over and it had arrived
    Nanoseconds at = 0;
};

// A queue that keeps its memory.
template <class Item>
class Ring {
  public:
    bool empty() const { return head_ == tail_; }
    size_t size() const { return tail_ - head_; }
    Item& front() { return (*this)[0]; }
    Item& operator[](size_t at) { return items_[(head_ + at) & last_]; }
    void pop() { ++head_; }
    void push(const Item& item) { add() = item; }
    // A new last one, to be filled in: whatever was there before.
    Item& add() {
        if (tail_ - head_ > last_) grow();
        return items_[tail_++ & last_];
    }

  private:
    static constexpr size_t first_size = 64;  // a power of two, as all later ones
    void grow() {
        const size_t size = last_ + 1;
        auto more = std::make_unique<Item[]>(size * 2);
        for (size_t at = 0; at < size; ++at) more[at] = std::move((*this)[at]);
        items_ = std::move(more);
        last_ = size * 2 - 1;
        head_ = 0;
        tail_ = size;
    }
    std::unique_ptr<Item[]> items_ = std::make_unique<Item[]>(first_size);
    size_t last_ = first_size - 1;  // place
    size_t head_ = 0, tail_ = 0;
};

// What happens when, the soonest last: few at a time, and most that are added come soon, so nothing is
// faster.
class Agenda {
  public:
    using Event = uint64_t;  // a time, and in the lowest bits what happens then

    bool empty() const { return top_ == events_.data(); }
    Event top() const { return *top_; }  // of an empty one: later than all others
    void pop() { --top_; }
    void push(Event event) {
        if (top_ == &events_.back()) [[unlikely]]
            grow();
        Event* at = ++top_;
        for (; at[-1] < event; --at) *at = at[-1];
        *at = event;
    }

  private:
    void grow() {
        const auto size = static_cast<size_t>(top_ - events_.data());
        events_.resize(2 * events_.size());
        top_ = &events_[size];
    }
    std::vector<Event> events_ = std::vector<Event>(64, UINT64_MAX);  // the first never happens
    Event* top_ = events_.data();
};

// xorshift64*: the same numbers everywhere.
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {
        if (state_ == 0) state_ = 1;  // of that nothing else comes
    }
    uint64_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 2685821657736338717u;
    }
    // [0, 1): of 53 bits, as a signed number, which is one instruction to convert.
    double uniform() { return static_cast<double>(static_cast<int64_t>(next() >> 11)) * 0x1p-53; }

  private:
    uint64_t state_;
};

class Gpu {
  public:
    // Where it differs from simcuda's model, as recorded kernels on an H200 did.
    struct Difference {
        // Blocks of one kernel last differently long, by up to so much either way: with none, tenants fall
        // into step. With none, the ends of blocks are not rounded either.
        double spread = 0.02;
        // How much later a kernel starts beside another stream's that is on a partition: launch + synchronise
        // takes 8.5 us beside a flood that is confined to 16 SMs, and 7.2 alone. Kernels recorded with 1 to
        // 2 us last 1.8 to 3.2 us more beside gated work and 0.9 more alone.
        Nanoseconds beside = 1300;
        // For each block that an SM starts in the same instant. model::block_launch comes from floods of 16
        // blocks an SM; recorded kernels agree better without it.
        Nanoseconds block_launch = 0;
    };

    // `partitions`: numbers of SMs of the partitions there are.
    Gpu(const std::vector<uint16_t>& partitions, uint64_t seed) : Gpu(partitions, seed, Difference()) {}
    Gpu(const std::vector<uint16_t>& partitions, uint64_t seed, const Difference& difference);

    // A lower number is a higher priority. `high`: whose idle time use() tells.
    uint16_t add_stream(int priority, bool high);
    // Here, so that what is not queued is not put together in memory first.
    void submit(uint16_t number, const Entry& entry) {
        Stream& stream = streams_[number];
        if (stream.running) return stream.queue.push(entry);
        stream.running = true;
        stream.current = entry;
        start(number, nullptr);
    }
    // What a stream is at, and how much of that is over: of a kernel, of its blocks and their time.
    struct AtHand {
        uint32_t tag = 0;
        double over = 0;  // 0 to 1
    };
    AtHand at_hand(uint16_t stream, Nanoseconds time) const;
    bool idle(uint16_t stream) const { return !streams_[stream].running && streams_[stream].queue.empty(); }

    static constexpr Nanoseconds never = INT64_MAX;
    Nanoseconds next() const { return events_.empty() ? never : time_of(events_.top()); }
    // Until something has completed, or there is nothing more to do up to that time. A completion can lie a
    // little ahead: by model::kernel_end and the marks that follow.
    void advance(Nanoseconds until, std::vector<Completion>& completions);

    // Since the beginning, or the last call of forget_use(): how long no high stream's work was on the GPU,
    // and how long of that another's was.
    struct Use {
        Nanoseconds idle = 0, filled = 0;
    };
    Use use() const { return use_; }
    void forget_use() { use_ = {}; }
    uint64_t steps() const { return steps_; }

  private:
    // A time, and in the lowest bits what happens then: what happens first in one instant has the lower
    // number.
    using Event = uint64_t;
    enum class Kind : uint8_t { begin, wave_end, engine_end };
    static constexpr unsigned index_bits = 14, kind_bits = 2;
    static Nanoseconds time_of(Event event) {
        return static_cast<Nanoseconds>(event >> (index_bits + kind_bits));
    }
    struct alignas(64) Stream {  // what is found by its number is found by a shift
        int priority = 0;
        bool high = false, running = false;
        Ring<Entry> queue;
        Entry current;
        uint32_t pending = 0, resident = 0;  // blocks
        uint32_t order = 0;
        Nanoseconds started = 0, free_at = 0;
        uint16_t last_multiprocessors = sim::model::sm_count;
    };
    struct alignas(64) Wave {
        uint16_t stream = 0;
        unsigned deepest = 0;  // so many blocks are on the fullest SM
        uint32_t blocks = 0;
        uint32_t ahead = 0;  // so many more like it follow at once on the same SMs
        Nanoseconds began = 0, each = 0, end = 0;
        uint64_t mark = 0;
        double slowed = 1;  // by what else runs
    };

    void account(const Stream& stream, int change, Nanoseconds time);
    void schedule(Nanoseconds time, Kind kind, uint16_t index) {
        events_.push(static_cast<Event>(time) << (index_bits + kind_bits) |
                     static_cast<Event>(kind) << index_bits | index);
    }
    bool more_at(Nanoseconds time) const { return time_of(events_.top()) == time; }
    bool start(uint16_t stream, std::vector<Completion>* completions);
    void start_next(uint16_t stream, std::vector<Completion>& completions);
    void finish(uint16_t stream, Nanoseconds at, std::vector<Completion>& completions);
    void begin(uint16_t stream, Nanoseconds time);
    void start_copy(unsigned engine, Nanoseconds time);
    void end_engine(uint16_t stream, Nanoseconds time, std::vector<Completion>& completions);
    void step(std::vector<Completion>& completions);
    bool start_again(uint16_t wave, Nanoseconds time);
    void end_wave(uint16_t wave, Nanoseconds time, std::vector<Completion>& completions);
    void start_wave(uint16_t number, Wave& wave, Stream& stream, Nanoseconds time, double factor, bool first);
    double spread(Random& random) const;
    void stop_ahead(Nanoseconds time);
    double slowdown(const Stream& stream) const;
    unsigned crowd(const Stream& stream) const;
    void press(uint16_t stream, bool begins, Nanoseconds time);
    void claim(uint16_t stream);
    void place_all(Nanoseconds time);

    Multiprocessors multiprocessors_;
    std::vector<Stream> streams_;
    std::vector<uint16_t> pending_;  // streams whose kernel has blocks to place, in the order of their claim
    std::vector<Wave> waves_;
    std::vector<uint16_t> free_waves_;
    int ahead_ = -1;                   // the wave that others follow
    std::vector<uint16_t> sensitive_;  // waves that others slow down
    std::vector<uint16_t> pressing_;   // streams whose kernel does something to others
    struct CopyEngine {
        std::vector<uint16_t> waiting;
        int running = -1;
        Nanoseconds began = 0;  // that one
    };
    std::array<CopyEngine, 2> engines_;
    Agenda events_;
    Difference difference_;
    uint32_t orders_ = 0;
    uint64_t steps_ = 0;
    Random random_;
    Use use_;
    std::array<unsigned, 2> at_work_{};  // streams with work on the GPU: others', high ones
    unsigned confined_ = 0;              // of them, those on a partition
    Nanoseconds use_until_ = 0;
    bool place_due_ = false;
};

}  // namespace fikit::replay
