// The tenant's end of a channel: the mappings, the operation ring, waiting, calls and the session's end.
//
// Invariants
//  - The launch path (reserve .. commit) makes no system call, allocates nothing and takes one spin lock
//    that is never held across anything that can block: a thread that finds the ring full lets go of it.
//  - Every wait ends: it watches for its condition, for the end of the session and for a hang-up of the
//    lifeline, in slices of at most 100 ms, and returns not_ready once its deadline has passed.
//  - After fork() the child's copy is dead: the guard page is wiped in the child (MADV_WIPEONFORK), so every
//    operation there returns not_initialized, as CUDA does for an inherited context.
//  - Nothing throws.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>

#include "abi.h"
#include "locked.hpp"
#include "shared.hpp"
#include "status.hpp"
#include "uncancelled.hpp"
#include "waiting.hpp"

namespace fikit {

inline constexpr int64_t forever = INT64_MAX;
inline constexpr int64_t unattended = forever - 1;  // as long, with nobody there who could be interrupted
int64_t now_ns();                                   // CLOCK_MONOTONIC

class SpinLock {
  public:
    void lock() {
        if (__atomic_exchange_n(&taken_, 1u, __ATOMIC_ACQUIRE) != 0) contend();
    }
    void unlock() { store_release(taken_, 0u); }

  private:
    void contend();
    uint32_t taken_ = 0;
};

struct Bytes {
    const void* data = nullptr;
    uint32_t size = 0;
};

struct Reply {
    void* data = nullptr;
    uint32_t capacity = 0;
    uint32_t size = 0;  // set by call(): at most capacity
};

class Channel {
  public:
    Channel() = default;
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;
    ~Channel();

    // Takes over the descriptors, also when it fails.
    Status attach(int outbox, int inbox, int lifeline);

    // Room for a record of `bytes` (a multiple of FIKIT_RECORD_ALIGN). On success the ring's lock is held:
    // the caller fills the record in, without blocking or failing, and calls commit().
    [[gnu::always_inline]] Status reserve(uint32_t bytes, void*& record, int64_t deadline = forever) {
        if (const Status status = usable()) [[unlikely]]
            return status;
        lock_.lock();
        if (!has_room(bytes)) [[unlikely]]
            if (const Status status = make_room(bytes, deadline)) return status;
        record = ring_ + (head_ & ring_mask_);
        reserved_ = bytes;
        return status::success;
    }
    void commit() {
        head_ += reserved_;
        store_ordered(outbox_->head, head_);  // before the load of `parked`: one side sees the other
        lock_.unlock();
        ring_doorbell();
    }
    // Instead of commit(): there is no record after all.
    void give_up() { lock_.unlock(); }
    // Until there is room for one, which others may take.
    Status await_room(uint32_t bytes) {
        void* record;
        const Status status = reserve(bytes, record);
        if (status == status::success) give_up();
        return status;
    }
    // So many bytes were written to the ring; whether the executor has read as far.
    uint64_t written() const { return load_relaxed(outbox_->head); }
    bool is_read(uint64_t written) const { return load_acquire(inbox_->tail) >= written; }
    // Wakes a parked executor after anything it may wait for was written to the outbox.
    void ring_doorbell() {
        const uint32_t parked = load_ordered(inbox_->parked);
        if ((parked & 1u) != 0 && load_relaxed(rung_) != parked) [[unlikely]]
            send_doorbell(parked);
    }

    // One request and its answer; the only outstanding one, so other threads wait their turn. Returns the
    // call's own status, or why there was no answer (failed() tells which). With `descriptor`, a successful
    // call also receives the descriptor that follows on the lifeline, -1 where this process can have no more;
    // `offered` is sent before the record.
    Status call(uint32_t number, Bytes request, Bytes behind, Reply& reply, int* descriptor = nullptr,
                int offered = -1);
    // Asked now and then during a wait; true ends it with `interrupted`. The answer of a call is dropped when
    // it comes, before the next call; what it may have made stays until the session ends.
    void set_interrupted(bool (*asked)()) { interrupted_ = asked; }
    bool interrupted() const { return interrupted_ != nullptr && interrupted_(); }

    bool graphs_apart() const { return load_relaxed(inbox_->graphs_apart) != 0; }
    uint64_t mark(uint32_t stream) const {
        const uint8_t* line = inbox_bytes_ + FIKIT_MARKS_OFFSET + size_t{stream} * FIKIT_MARK_STRIDE;
        return load_acquire(*reinterpret_cast<const uint64_t*>(line));
    }
    uint64_t& host_done(uint32_t stream) const {
        return *reinterpret_cast<uint64_t*>(outbox_bytes_ + FIKIT_HOST_DONE_OFFSET + size_t{stream} * 8);
    }

    // Until `done(context)`: spins briefly, then sleeps. not_ready: the deadline passed.
    template <class Done>
    Status wait_until(const Done& done, int64_t deadline, Patience patience = {first_spin_ns}) const {
        return wait([](const void* context) { return (*static_cast<const Done*>(context))(); }, &done,
                    deadline, patience);
    }

    // success, or why the session can no longer be used.
    [[gnu::always_inline]] Status usable() const {
        if (load_relaxed(guard_->alive) == 0) [[unlikely]]
            return status::not_initialized;
        if ((load_relaxed(failure_) | static_cast<int>(load_acquire(inbox_->ended))) != 0) [[unlikely]]
            return failed();
        return status::success;
    }
    // The same, after a look whether the executor is there at all: a system call.
    Status look() const;
    // The same, once in a while: for who asks again and again, and never waits.
    Status look_now_and_then() const;
    // The sticky error, 0 while there is none; `text`, if given, gets its NUL-terminated explanation.
    Status failed(char (*text)[FIKIT_ERROR_TEXT] = nullptr) const;
    // The asynchronous error that was not reported yet, or success.
    [[gnu::always_inline]] Status take_deferred() {
        if (load_acquire(inbox_->deferred_count) == load_relaxed(deferred_taken_)) [[likely]]
            return status::success;
        return take_new_deferred();
    }
    // The explanation of the one taken last; told once, as what fails later for another reason has none.
    void deferred_text(char (&text)[FIKIT_ERROR_TEXT]);
    // Ends the session from this side. The mappings stay until the destructor.
    void end();
    // It is over, and nothing of what it shared is looked at any more: the executor takes that away.
    void hang_up() const;
    bool forked() const { return guard_ != nullptr && load_relaxed(guard_->alive) == 0; }
    // Is called, if set, when a session is first found to have ended with an error, with its text.
    static inline void (*ended)(Status error, const char* text) = nullptr;

    fikit_note* notes() const { return reinterpret_cast<fikit_note*>(outbox_bytes_ + FIKIT_NOTES_OFFSET); }
    uint8_t* staging() const { return outbox_bytes_ + staging_offset_; }
    uint64_t staging_bytes() const { return staging_bytes_; }

  private:
    struct Guard {
        uint32_t alive;
    };

    // Whether there is room at the head, as far as was seen, before the ring's end.
    bool has_room(uint32_t bytes) const {
        return (head_ & ring_mask_) + bytes <= ring_mask_ + 1 && head_ + bytes - tail_seen_ <= ring_mask_ + 1;
    }
    bool fit(uint32_t bytes);
    uint64_t wish_for_room(uint32_t bytes);
    Status make_room(uint32_t bytes, int64_t deadline);
    Status wait(bool (*done)(const void*), const void* context, int64_t deadline, Patience patience) const;
    bool hung_up() const;
    Status take_new_deferred();
    Status await_answer();
    Status drop_answer();
    Status answer(Reply& reply, int* descriptor);
    Status await_descriptor(int& descriptor);
    void send_doorbell(uint32_t parked);
    void fail() const;
    Status not_sent(int error) const;
    Status map(int outbox, int inbox);

    alignas(64) SpinLock lock_;
    uint32_t reserved_ = 0;
    uint64_t head_ = 0;
    uint64_t tail_seen_ = 0;
    uint32_t rung_ = 0;          // the value of `parked` that was answered last
    mutable int failure_ = 0;    // CUresult found out on this side
    mutable bool told_ = false;  // to `ended`
    Guard* guard_ = nullptr;     // a page of its own
    fikit_outbox* outbox_ = nullptr;
    const fikit_inbox* inbox_ = nullptr;
    uint8_t* ring_ = nullptr;
    uint64_t ring_mask_ = 0;

    uint8_t* outbox_bytes_ = nullptr;
    const uint8_t* inbox_bytes_ = nullptr;
    size_t outbox_size_ = 0;
    size_t inbox_size_ = 0;
    uint64_t staging_offset_ = 0;
    uint64_t staging_bytes_ = 0;
    int lifeline_ = -1;
    mutable int64_t looked_ns_ = 0;  // when somebody who does not wait did
    bool may_spin_ = true;
    pthread_mutex_t call_mutex_ = PTHREAD_MUTEX_INITIALIZER;
    uint64_t calls_ = 0;
    bool (*interrupted_)() = nullptr;
    bool abandoned_ = false;             // nobody waits for the last call's answer any more
    bool abandoned_descriptor_ = false;  // nor for what would follow it
    pthread_mutex_t deferred_mutex_ = PTHREAD_MUTEX_INITIALIZER;
    uint64_t deferred_taken_ = 0;
    char deferred_text_[FIKIT_ERROR_TEXT] = {};
};

}  // namespace fikit
