// Waits and copies between devices.
//
// A wait is a gate: a host function on the stream that nobody runs. One thread, the porter, watches the gates
// that are closed, and opens each once its stream has arrived there and what it waits for has completed;
// where it is told to, it copies between two pieces of host memory before.
//
// A copy is made of these, on a stream that each device has for it, with a pinned piece for each direction:
//     source     wait for the stream; copy to `out`
//     target     wait for that; porter: `out` to `in`; copy from `in`
//     the stream wait for that
// All of it is enqueued by the call, so everything waits only for what was enqueued before it, and sessions
// that fill up behind their gates cannot wait for each other. What a stream waits for may come later, though
// (a function of the host's, a word): so copies of another stream go through a harbour of their own
// meanwhile, and what it launches on another device goes on a stream of its own there.
#include "bridge.hpp"

#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <new>

#include "objects.hpp"
#include "own_threads.hpp"
#include "printed.hpp"

namespace fikit::shim {
namespace {

constexpr uint64_t piece_bytes = 4 << 20;
constexpr unsigned most_berths =
    32;  // of a kind and device; with more streams whose work waits some share one
constexpr long shortest_look_ns = 20'000, longest_look_ns = 1'000'000;

struct Step {
    uint32_t stream;
    uint64_t number;
};

struct Gate {
    Gate* next;
    Step at;
    Step awaited;  // number 0: nothing
    void* to;      // copied before it opens
    const void* from;
    uint64_t bytes;
};

bool reached(const Step& step) {
    return step.number == 0 || producer_of(step.stream).reached(stream_number(step.stream), step.number);
}

// `look`: also whether its executor is still there.
Status failed(const Step& step, bool look = false) {
    if (step.number == 0) return status::success;
    const Channel& channel = producer_of(step.stream).channel();
    return look ? channel.look() : channel.usable();
}

class Porter {
  public:
    CUresult start() {
        const Locked lock(mutex_);
        if (running_) return CUDA_SUCCESS;
        pthread_t thread;
        running_ = start_own_thread(thread, &run, this);
        if (!running_) return CUDA_ERROR_OPERATING_SYSTEM;
        pthread_detach(thread);
        return CUDA_SUCCESS;
    }

    // Takes the gate.
    void watch(Gate* gate) {
        {
            const Locked lock(mutex_);
            *last_ = gate;
            last_ = &gate->next;
        }
        __atomic_fetch_add(&added_, 1u, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &added_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }

  private:
    static void* run(void* self) {
        static_cast<Porter*>(self)->serve();
        return nullptr;
    }

    void serve() {
        long look_ns = shortest_look_ns;
        for (;;) {
            const uint32_t seen = load_ordered(added_);
            if (Gate* const gate = take_ready(look_ns == longest_look_ns)) {
                open(*gate);
                delete gate;
                look_ns = shortest_look_ns;
                continue;
            }
            bool any = false;
            {
                const Locked lock(mutex_);
                any = first_ != nullptr;
            }
            const timespec pause = {0, look_ns};
            syscall(SYS_futex, &added_, FUTEX_WAIT_PRIVATE, seen, any ? &pause : nullptr, nullptr, 0);
            look_ns = look_ns * 2 < longest_look_ns ? look_ns * 2 : longest_look_ns;
        }
    }

    Gate* take_ready(bool look) {
        const Locked lock(mutex_);
        for (Gate** link = &first_; *link != nullptr; link = &(*link)->next) {
            Gate* const gate = *link;
            const bool gone = failed(gate->at, look) != status::success;
            const bool lost = failed(gate->awaited, look) != status::success;
            // What waits for a device that is lost opens in its turn, too: a stream goes on with the number
            // that was opened last.
            if (!gone && (!reached(gate->at) || (!lost && !reached(gate->awaited)))) continue;
            *link = gate->next;
            if (last_ == &gate->next) last_ = link;
            return gate;
        }
        return nullptr;
    }

    // What waits for a session that has ended goes on, and its own device says so.
    static void open(const Gate& gate) {
        if (failed(gate.at) != status::success) return;
        if (const Status failure = failed(gate.awaited); failure != status::success)
            store_relaxed(device_of(gate.at.stream).failure, failure);
        else if (gate.bytes != 0)
            memcpy(gate.to, gate.from, gate.bytes);
        producer_of(gate.at.stream).open_gate(stream_number(gate.at.stream), gate.at.number);
    }

    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    bool running_ = false;
    uint32_t added_ = 0;  // futex word
    Gate* first_ = nullptr;
    Gate** last_ = &first_;
};

Porter porter;

// Closes the stream until `awaited` has completed; then copies, and opens it.
CUresult gate(uint32_t stream, const Step& awaited, void* to = nullptr, const void* from = nullptr,
              uint64_t bytes = 0) {
    if (const CUresult result = porter.start(); result != CUDA_SUCCESS) return result;
    auto* const made = new (std::nothrow) Gate{nullptr, {stream, 0}, awaited, to, from, bytes};
    if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    if (const Status status = producer_of(stream).close_gate(stream_number(stream), made->at.number)) {
        delete made;
        return result_of(status);
    }
    porter.watch(made);
    return CUDA_SUCCESS;
}

CUresult mark(uint32_t stream, Step& step) {
    step.stream = stream;
    return result_of(producer_of(stream).mark_stream(stream_number(stream), step.number));
}

// A device's stream for what others' streams bring it; the mutex is held while one is looked for.
struct Berth {
    bool ready;
    uint32_t stream;
    uint32_t user;  // the stream that it was last used for
    Step over;      // when nothing of its user's is left
};
// One for copies from and to others; the mutex is held while one is enqueued.
struct Harbour : Berth {
    uint8_t* out;
    uint8_t* in;
    Step emptied;  // when `out` can be used again
};
Harbour harbours[most_gpus][most_berths];
// For pieces of others' launches. Not those of copies, which would wait for kernels there.
Berth relays[most_gpus][most_berths];
unsigned turn = 0;  // whose is shared next
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

// Where the user's work is, or nobody's; else one to be made.
template <class Kind>
Kind& berth_for(uint32_t user, Kind (&all)[most_berths]) {
    Kind* found = nullptr;
    for (Kind& each : all) {
        if (each.ready && each.user == user) return each;
        if (found == nullptr && (!each.ready || reached(each.over))) found = &each;
        if (!each.ready) break;
    }
    Kind& taken = found != nullptr ? *found : all[turn++ % most_berths];
    taken.user = user;
    return taken;
}

CUresult prepare(const Device& device, Berth& berth) {
    uint32_t number = 0;
    if (const Status status = device.producer->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, number))
        return result_of(status);
    berth.stream = device.stream(number);
    berth.ready = true;
    return CUDA_SUCCESS;
}

CUresult prepare(int device, uint32_t user, Harbour*& harbour) {
    Device& of = process.device(static_cast<unsigned>(device));
    harbour = &berth_for(user, harbours[device]);
    if (harbour->ready) return CUDA_SUCCESS;
    if (harbour->out == nullptr) {
        uint32_t handle = 0;
        HostBuffer buffer{};
        if (const Status status = of.producer->host_allocate(2 * piece_bytes, handle, buffer))
            return result_of(status);
        harbour->out = buffer.address;
        harbour->in = buffer.address + piece_bytes;
    }
    return prepare(of, *harbour);
}

// A piece of a device's memory to the host, or to its `out`; `there`: when it is.
CUresult bring(Harbour& source, uint64_t from, uint64_t bytes, uint8_t* host, Step& there) {
    CUresult result = gate(source.stream, source.emptied);
    if (result == CUDA_SUCCESS)
        result = result_of(
            producer_of(source.stream).copy_to_host(stream_number(source.stream), source.out, from, bytes));
    if (result == CUDA_SUCCESS && host != nullptr) result = gate(source.stream, {}, host, source.out, bytes);
    return result == CUDA_SUCCESS ? mark(source.stream, there) : result;
}

// Host memory, as it is once `before` has completed, to a device.
CUresult land(Harbour& target, uint64_t to, const void* host, uint64_t bytes, const Step& before,
              Step& there) {
    CUresult result = gate(target.stream, before, target.in, host, bytes);
    if (result == CUDA_SUCCESS)
        result = result_of(
            producer_of(target.stream).copy_to_device(stream_number(target.stream), to, target.in, bytes));
    return result == CUDA_SUCCESS ? mark(target.stream, there) : result;
}

// Until a step of its own tells more, the user may have work left there.
CUresult prepare_relay(const Device& device, uint32_t user, uint32_t& stream) {
    const Locked lock(mutex);
    Berth& berth = berth_for(user, relays[device.ordinal]);
    if (!berth.ready)
        if (const CUresult result = prepare(device, berth); result != CUDA_SUCCESS) return result;
    stream = berth.stream;
    berth.over = {stream, UINT64_MAX};
    return CUDA_SUCCESS;
}

// What the user has there is over with this step.
void leave_relay(uint32_t user, const Step& step) {
    const Locked lock(mutex);
    for (Berth& each : relays[device_of(step.stream).ordinal])
        if (each.ready && each.stream == step.stream && each.user == user) each.over = step;
}

CUresult copy_piece(Harbour* target, uint64_t to, Harbour* source, uint64_t from, uint64_t bytes,
                    Step& there) {
    if (source == nullptr) return land(*target, to, reinterpret_cast<void*>(from), bytes, {}, there);
    auto* const host = target == nullptr ? reinterpret_cast<uint8_t*>(to) : nullptr;
    const CUresult result = bring(*source, from, bytes, host, there);
    if (result != CUDA_SUCCESS || target == nullptr) return result;
    const CUresult landed = land(*target, to, source->out, bytes, there, there);
    source->emptied = there;
    return landed;
}

CUresult enqueue(uint32_t stream, const Place& to, const Place& from, uint64_t bytes) {
    Harbour* target = nullptr;
    Harbour* source = nullptr;
    const Locked lock(mutex);
    CUresult result = from.device < 0 ? CUDA_SUCCESS : prepare(from.device, stream, source);
    if (result == CUDA_SUCCESS && to.device >= 0) result = prepare(to.device, stream, target);
    Step step{};
    if (result == CUDA_SUCCESS) result = mark(stream, step);
    if (result == CUDA_SUCCESS) result = gate((source != nullptr ? source : target)->stream, step);
    for (uint64_t done = 0; done < bytes && result == CUDA_SUCCESS; done += piece_bytes) {
        const uint64_t piece = bytes - done < piece_bytes ? bytes - done : piece_bytes;
        result = copy_piece(target, to.address + done, source, from.address + done, piece, step);
    }
    for (Harbour* const used : {source, target})
        if (used != nullptr) used->over = step;
    return result == CUDA_SUCCESS ? gate(stream, step) : result;
}

}  // namespace

CUresult wait_across(uint32_t stream, const Device& device, uint32_t event) {
    const Status status = device.producer->event_status(event);
    Step step{};
    device.producer->event_step(event, step.stream, step.number);
    // What is over is waited for by an action of its stream, too (Producer::event_wait).
    if (status == status::success && step.number != 0)
        return result_of(producer_of(stream).stream_act(stream_number(stream)));
    if (status != status::not_ready) return result_of(status);  // nothing to wait for, or an error
    step.stream = device.stream(step.stream);
    return gate(stream, step);
}

CUresult copy_across(uint32_t stream, const Place& to, const Place& from, uint64_t bytes, bool wait) {
    if (const CUresult result = enqueue(stream, to, from, bytes); result != CUDA_SUCCESS || !wait)
        return result;
    return synchronised(device_of(stream), producer_of(stream).stream_synchronize(stream_number(stream)));
}

CUresult fill_across(uint32_t stream, const Place& to, uint64_t count, uint32_t value, uint32_t width) {
    Harbour* target = nullptr;
    const Locked lock(mutex);
    CUresult result = prepare(to.device, stream, target);
    Step step{};
    if (result == CUDA_SUCCESS) result = mark(stream, step);
    if (result == CUDA_SUCCESS) result = gate(target->stream, step);
    if (result == CUDA_SUCCESS)
        result = result_of(
            producer_of(target->stream).fill(stream_number(target->stream), to.address, count, value, width));
    if (result == CUDA_SUCCESS) result = mark(target->stream, step);
    if (target != nullptr) target->over = step;
    return result == CUDA_SUCCESS ? gate(stream, step) : result;
}

CUresult Relay::go(uint32_t stream) {
    if (stream == at_) return CUDA_SUCCESS;
    Step step;
    CUresult result = mark(at_, step);
    if (result == CUDA_SUCCESS && at_ != home_) leave_relay(home_, step);
    if (result == CUDA_SUCCESS) result = gate(stream, step);
    if (result == CUDA_SUCCESS) at_ = stream;
    return result;
}

CUresult Relay::pass(Device& device, uint32_t& stream) {
    uint32_t next = home_;
    CUresult result = &device_of(home_) == &device ? CUDA_SUCCESS : prepare_relay(device, home_, next);
    if (result == CUDA_SUCCESS) result = go(next);
    stream = at_;
    return result;
}

}  // namespace fikit::shim
