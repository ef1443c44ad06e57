#include "channel.hpp"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "descriptors.hpp"
#include "older_libc.hpp"

namespace fikit {
namespace {

constexpr int64_t slice_ns = 100'000'000;  // between two looks at the lifeline
constexpr int64_t descriptor_wait_ns = 10'000'000'000;
constexpr int64_t interrupt_slice_ns = 50'000'000;
constexpr uint64_t room_share = 4;  // this part of a ring that was full is free before it is used again
constexpr uint32_t reply_limit = FIKIT_MAX_REPLY_BYTES;
constexpr uint64_t largest_mapping = uint64_t{1} << 40;

size_t size_of(int descriptor) {
    struct stat information{};
    if (status_of(descriptor, information) != 0 || information.st_size < 0) return 0;
    return static_cast<size_t>(information.st_size);
}

bool keeps_its_size(int descriptor) {
    const int seals = fcntl(descriptor, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

Status not_mapped() { return errno == ENOMEM ? status::out_of_memory : status::operating_system; }

bool lies_within(uint64_t offset, uint64_t bytes, uint64_t size) {
    return offset % FIKIT_RECORD_ALIGN == 0 && bytes <= size && offset <= size - bytes;
}

// True after a timeout: time to look at the lifeline.
bool sleep_on(const uint32_t& word, uint32_t value, int64_t nanoseconds) {
    const timespec wait = {nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
    return syscall(SYS_futex, &word, FUTEX_WAIT, value, &wait, nullptr, 0) != 0 && errno == ETIMEDOUT;
}

}  // namespace

int64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void SpinLock::contend() {
    // The holder only writes a record; it is away for long only when it was preempted.
    for (int turn = 1;; ++turn) {
        if (load_relaxed(taken_) == 0 && __atomic_exchange_n(&taken_, 1u, __ATOMIC_ACQUIRE) == 0) return;
        if (turn % 128 == 0)
            sched_yield();
        else
            relax();
    }
}

Status Channel::attach(int outbox, int inbox, int lifeline) {
    lifeline_ = lifeline;
    const Status status = map(outbox, inbox);
    if (outbox >= 0) close(outbox);
    if (inbox >= 0) close(inbox);
    return status;
}

Status Channel::map(int outbox, int inbox) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* guard = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (guard == MAP_FAILED) return not_mapped();
    guard_ = static_cast<Guard*>(guard);
    if (madvise(guard, page, MADV_WIPEONFORK) != 0) return status::operating_system;
    guard_->alive = 1;

    outbox_size_ = size_of(outbox);
    inbox_size_ = size_of(inbox);
    // A file that could shrink would turn a later access into SIGBUS.
    if (!keeps_its_size(outbox) || !keeps_its_size(inbox)) return status::invalid_value;
    if (outbox_size_ < sizeof(fikit_outbox) || outbox_size_ > largest_mapping) return status::invalid_value;
    if (inbox_size_ < sizeof(fikit_inbox) || inbox_size_ > largest_mapping) return status::invalid_value;
    void* out = mmap(nullptr, outbox_size_, PROT_READ | PROT_WRITE, MAP_SHARED, outbox, 0);
    if (out == MAP_FAILED) return not_mapped();
    outbox_bytes_ = static_cast<uint8_t*>(out);
    outbox_ = static_cast<fikit_outbox*>(out);
    void* in = mmap(nullptr, inbox_size_, PROT_READ, MAP_SHARED, inbox, 0);
    if (in == MAP_FAILED) return not_mapped();
    inbox_bytes_ = static_cast<const uint8_t*>(in);
    inbox_ = static_cast<const fikit_inbox*>(in);
    // A child has no use for them, and must not be able to write to its parent's ring.
    madvise(out, outbox_size_, MADV_DONTFORK);
    madvise(in, inbox_size_, MADV_DONTFORK);

    if (outbox_->magic != FIKIT_OUTBOX_MAGIC || inbox_->magic != FIKIT_INBOX_MAGIC)
        return status::invalid_value;
    if (outbox_->version != FIKIT_ABI_VERSION || inbox_->version != FIKIT_ABI_VERSION)
        return status::driver_mismatch;
    const size_t least = FIKIT_NOTES_OFFSET + FIKIT_NOTES * sizeof(fikit_note);
    if (outbox_size_ < least || inbox_size_ < FIKIT_INBOX_BYTES) return status::invalid_value;
    const uint64_t ring_bytes = outbox_->ring_bytes;
    if ((ring_bytes & (ring_bytes - 1)) != 0 || ring_bytes < 2 * FIKIT_MAX_RECORD ||
        outbox_->ring_offset < least || !lies_within(outbox_->ring_offset, ring_bytes, outbox_size_) ||
        outbox_->staging_offset < least ||
        !lies_within(outbox_->staging_offset, outbox_->staging_bytes, outbox_size_))
        return status::invalid_value;
    ring_ = outbox_bytes_ + outbox_->ring_offset;
    ring_mask_ = ring_bytes - 1;
    head_ = load_relaxed(outbox_->head);
    tail_seen_ = load_acquire(inbox_->tail);
    staging_offset_ = outbox_->staging_offset;
    staging_bytes_ = outbox_->staging_bytes;
    calls_ = load_acquire(inbox_->call_done);
    deferred_taken_ = load_acquire(inbox_->deferred_count);
    may_spin_ = sysconf(_SC_NPROCESSORS_ONLN) > 1;
    return status::success;
}

Channel::~Channel() {
    const bool parent = guard_ != nullptr && !forked();
    // In a child the two were never mapped (MADV_DONTFORK), and something else may be there by now.
    if (parent && outbox_bytes_ != nullptr) munmap(outbox_bytes_, outbox_size_);
    if (parent && inbox_bytes_ != nullptr) munmap(const_cast<uint8_t*>(inbox_bytes_), inbox_size_);
    if (guard_ != nullptr) munmap(guard_, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
    if (lifeline_ < 0) return;
    if (parent) shutdown(lifeline_, SHUT_RDWR);  // a forked child has it, too
    close(lifeline_);
}

// The tail to wait for: room for the record, and for many more, since waking a sleeper costs the executor as
// much as several launches. Called with the lock held.
uint64_t Channel::wish_for_room(uint32_t bytes) {
    const uint64_t size = ring_mask_ + 1;
    const uint64_t to_end = size - (head_ & ring_mask_);
    const uint64_t pad = to_end < bytes ? to_end : 0;
    const uint64_t needed = pad + bytes > size / room_share ? pad + bytes : size / room_share;
    const uint64_t tail = head_ + needed - size;
    // The least of what its threads wish for; whoever needs more wishes again.
    const uint64_t wished = load_relaxed(outbox_->room);
    if (wished <= tail_seen_ || tail < wished) store_ordered(outbox_->room, tail);
    return tail;
}

// Fills up what is left at the ring's end, where the record would not fit there. Called with the lock held.
bool Channel::fit(uint32_t bytes) {
    const uint64_t size = ring_mask_ + 1;
    const uint64_t to_end = size - (head_ & ring_mask_);
    const uint64_t pad = to_end < bytes ? to_end : 0;
    if (head_ + pad + bytes - tail_seen_ > size) {
        tail_seen_ = load_acquire(inbox_->tail);
        if (head_ + pad + bytes - tail_seen_ > size) return false;
    }
    if (pad != 0) {
        auto* record = reinterpret_cast<fikit_record*>(ring_ + (head_ & ring_mask_));
        *record = {
            .bytes = static_cast<uint32_t>(pad), .op = FIKIT_OP_PAD, .flags = 0, .stream = 0, .reserved = 0};
        head_ += pad;  // published with the record behind it
    }
    return true;
}

// Called with the lock held; returns with it held only on success.
Status Channel::make_room(uint32_t bytes, int64_t deadline) {
    while (!fit(bytes)) {
        const uint64_t tail = wish_for_room(bytes);
        lock_.unlock();
        const Status status =
            wait_until([&] { return load_acquire(inbox_->tail) >= tail; }, deadline, Patience{0});
        if (status != status::success) return status;
        lock_.lock();
    }
    return status::success;
}

Status Channel::wait(bool (*done)(const void*), const void* context, int64_t deadline,
                     Patience patience) const {
    if (done(context)) return usable();
    const Uncancelled whole;
    if (deadline <= 0 || !may_spin_) patience = {0};
    const auto spin = [&](int64_t until) {
        while (now_ns() < until && until <= deadline)
            for (int turn = 0; turn < 32; ++turn) {
                if (done(context)) return true;
                relax();
            }
        return false;
    };
    const int64_t begin = patience.spin_ns != 0 ? now_ns() : 0;
    if (patience.spin_ns != 0 && spin(begin + patience.spin_ns)) return status::success;
    const int64_t wake_up = begin + patience.spin_ns + patience.sleep_ns;
    uint32_t& waiters = outbox_->waiters;
    __atomic_fetch_add(&waiters, 1u, __ATOMIC_SEQ_CST);
    const bool asks = deadline != unattended && interrupted_ != nullptr;
    int64_t ask_at = asks ? now_ns() + interrupt_slice_ns : forever;
    Status status = status::success;
    for (bool look = true;;) {
        const uint32_t wakes = load_ordered(inbox_->wakes);
        if (done(context)) break;
        if (look && hung_up()) fail();
        if ((status = usable()) != status::success) {
            if (done(context)) status = status::success;  // it came before the end
            break;
        }
        if (asks && now_ns() >= ask_at) {
            if (interrupted_()) {
                status = status::interrupted;
                break;
            }
            ask_at = now_ns() + interrupt_slice_ns;
        }
        int64_t left = deadline == forever ? slice_ns : deadline - now_ns();
        if (left <= 0) {
            status = status::not_ready;
            break;
        }
        const int64_t slice = asks ? interrupt_slice_ns : slice_ns;
        left = left < slice ? left : slice;
        if (patience.spin_again_ns != 0) {
            const int64_t asleep = wake_up - now_ns();
            if (asleep <= 0) {
                const int64_t until = wake_up + patience.spin_again_ns;
                patience.spin_again_ns = 0;
                if (spin(until)) break;
                continue;
            }
            left = left < asleep ? left : asleep;
        }
        look = sleep_on(inbox_->wakes, wakes, left);
    }
    __atomic_fetch_sub(&waiters, 1u, __ATOMIC_SEQ_CST);
    return status;
}

bool Channel::hung_up() const {
    pollfd entry = {lifeline_, POLLRDHUP, 0};
    return poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

Status Channel::look() const {
    if (hung_up()) fail();
    return usable();
}

Status Channel::look_now_and_then() const {
    const int64_t now = now_ns();
    if (now - load_relaxed(looked_ns_) < slice_ns) return usable();
    store_relaxed(looked_ns_, now);
    return look();
}

void Channel::fail() const {
    int none = 0;
    __atomic_compare_exchange_n(&failure_, &none, status::launch_failed, false, __ATOMIC_RELEASE,
                                __ATOMIC_RELAXED);
}

void Channel::end() {
    if (forked()) return;
    store_release(failure_, static_cast<int>(status::context_is_destroyed));
    shutdown(lifeline_, SHUT_WR);
}

void Channel::hang_up() const {
    if (!forked()) shutdown(lifeline_, SHUT_RDWR);
}

Status Channel::failed(char (*text)[FIKIT_ERROR_TEXT]) const {
    const auto explain = [&](const char* reason) {
        if (text == nullptr) return;
        const size_t length = strnlen(reason, FIKIT_ERROR_TEXT - 1);
        memcpy(*text, reason, length);
        (*text)[length] = '\0';
    };
    if (forked()) {
        explain("the session belongs to the parent of this forked process");
        return status::not_initialized;
    }
    const Status status = load_acquire(failure_);
    if (status == status::context_is_destroyed) {
        explain("the session is closed");
        return status;
    }
    if (load_acquire(inbox_->ended) != 0) {
        if (ended != nullptr && !__atomic_exchange_n(&told_, true, __ATOMIC_RELAXED)) {
            char copy[FIKIT_ERROR_TEXT] = {};
            memcpy(copy, inbox_->error_text, sizeof copy - 1);
            ended(inbox_->error, copy);
        }
        explain(inbox_->error_text);
        return inbox_->error != status::success ? inbox_->error : status::launch_failed;
    }
    if (status != status::success) explain("the executor is gone");
    return status;
}

Status Channel::take_new_deferred() {
    const Locked lock(deferred_mutex_);
    for (;;) {  // again when another error came in meanwhile
        const uint64_t count = load_acquire(inbox_->deferred_count);
        if (count == deferred_taken_) return status::success;
        const Status status = load_relaxed(inbox_->deferred_error);
        memcpy(deferred_text_, inbox_->deferred_text, FIKIT_ERROR_TEXT - 1);
        if (load_acquire(inbox_->deferred_count) != count) continue;
        store_relaxed(deferred_taken_, count);
        return status;
    }
}

void Channel::deferred_text(char (&text)[FIKIT_ERROR_TEXT]) {
    const Locked lock(deferred_mutex_);
    memcpy(text, deferred_text_, FIKIT_ERROR_TEXT);
    deferred_text_[0] = '\0';
}

void Channel::send_doorbell(uint32_t parked) {
    const Uncancelled whole;
    store_relaxed(rung_, parked);
    const char byte = 0;
    // Full: bytes enough are there.
    if (send(lifeline_, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) not_sent(errno);
}

// Whether that is because nobody is there any more.
Status Channel::not_sent(int error) const {
    if (error != EPIPE && error != ECONNRESET) return status::operating_system;
    fail();
    return failed();
}

Status Channel::call(uint32_t number, Bytes request, Bytes behind, Reply& reply, int* descriptor,
                     int offered) {
    const uint64_t payload = uint64_t{request.size} + behind.size;
    if (payload > FIKIT_MAX_CALL_BYTES) return status::invalid_value;
    if (const Status status = usable()) return status;
    const Uncancelled whole;
    const Locked lock(call_mutex_);
    if (const Status status = drop_answer()) return status;
    const auto bytes = static_cast<uint32_t>((sizeof(fikit_call_record) + payload + FIKIT_RECORD_ALIGN - 1) /
                                             FIKIT_RECORD_ALIGN * FIKIT_RECORD_ALIGN);
    void* room = nullptr;
    if (const Status status = reserve(bytes, room)) return status;
    // Not before there is room: a call that is interrupted until then would leave it to the next one.
    if (offered >= 0 && !send_descriptor(lifeline_, offered)) {
        const int error = errno;
        lock_.unlock();
        return not_sent(error);
    }
    *static_cast<fikit_call_record*>(room) = {
        .record = {.bytes = bytes, .op = FIKIT_OP_CALL, .flags = 0, .stream = 0, .reserved = 0},
        .call = number,
        .payload_bytes = static_cast<uint32_t>(payload)};
    auto* at = static_cast<uint8_t*>(room) + sizeof(fikit_call_record);
    if (request.size != 0) memcpy(at, request.data, request.size);
    if (behind.size != 0) memcpy(at + request.size, behind.data, behind.size);
    commit();
    ++calls_;
    return answer(reply, descriptor);
}

// Until the last call is answered.
Status Channel::await_answer() {
    return wait_until([&] { return load_acquire(inbox_->call_done) >= calls_; }, forever);
}

// Takes what an interrupted call left to come.
Status Channel::drop_answer() {
    if (!abandoned_) return status::success;
    if (const Status status = await_answer()) return status;
    abandoned_ = false;
    int descriptor = -1;
    if (abandoned_descriptor_ && load_relaxed(inbox_->call_status) == status::success) {
        if (const Status status = await_descriptor(descriptor)) return status;
        if (descriptor >= 0) close(descriptor);
    }
    return status::success;
}

Status Channel::answer(Reply& reply, int* descriptor) {
    if (const Status status = await_answer()) {
        abandoned_ = status == status::interrupted;
        abandoned_descriptor_ = descriptor != nullptr;
        return status;
    }
    const uint32_t sent = load_relaxed(inbox_->call_bytes);
    const uint32_t size = sent < reply_limit ? sent : reply_limit;
    reply.size = size < reply.capacity ? size : reply.capacity;
    if (reply.size != 0) memcpy(reply.data, inbox_bytes_ + FIKIT_REPLY_OFFSET, reply.size);
    const Status status = load_relaxed(inbox_->call_status);
    if (status == status::success && descriptor != nullptr) return await_descriptor(*descriptor);
    return status;
}

// One byte with one descriptor. If it does not come, what follows could no longer be told apart: the
// session is over. It comes without (-1) where this process can have no more of them.
Status Channel::await_descriptor(int& descriptor) {
    pollfd entry = {lifeline_, POLLIN, 0};
    const int64_t deadline = now_ns() + descriptor_wait_ns;
    for (;;) {
        char byte = 0;
        const ssize_t got = receive_descriptor(lifeline_, &byte, 1, descriptor);
        if (got > 0) return status::success;
        const bool nothing_yet = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
        if (!nothing_yet || now_ns() >= deadline) {
            fail();
            return failed();
        }
        poll(&entry, 1, 100);
    }
}

}  // namespace fikit
