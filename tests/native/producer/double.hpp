// The executor's side of a channel, in the test's own process: real memfds and a real socket pair, a thread
// that consumes the ring, checks every record's shape and sets marks.
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "abi.h"
#include "calls.h"
#include "descriptors.hpp"
#include "producer.hpp"

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition); \
            abort();                                                                      \
        }                                                                                 \
    } while (false)

namespace fikit::test {

class Double {
  public:
    static constexpr uint64_t staging_bytes = 1 << 20;

    using Seen = std::function<void(const fikit_record&)>;

    explicit Double(uint64_t ring_bytes = 1 << 17, Seen seen = {})
        : seen_(std::move(seen)), ring_bytes_(ring_bytes) {
        outbox_bytes_ = ring_offset + ring_bytes + staging_bytes;
        outbox_fd = sealed(outbox_bytes_);
        inbox_fd = sealed(FIKIT_INBOX_BYTES);
        outbox_ = static_cast<uint8_t*>(map(outbox_fd, outbox_bytes_));
        inbox_ = static_cast<uint8_t*>(map(inbox_fd, FIKIT_INBOX_BYTES));
        header() = {};
        header().magic = FIKIT_OUTBOX_MAGIC;
        header().version = FIKIT_ABI_VERSION;
        header().ring_offset = ring_offset;
        header().ring_bytes = ring_bytes;
        header().staging_offset = ring_offset + ring_bytes;
        header().staging_bytes = staging_bytes;
        inbox().magic = FIKIT_INBOX_MAGIC;
        inbox().version = FIKIT_ABI_VERSION;
        int pair[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
        lifeline_ = pair[0];
        lifeline_fd = pair[1];
        memory_.resize(64 << 20);
    }
    Double(const Double&) = delete;
    Double& operator=(const Double&) = delete;
    ~Double() {
        stop();
        if (lifeline_ >= 0) close(lifeline_);
        munmap(outbox_, outbox_bytes_);
        munmap(inbox_, FIKIT_INBOX_BYTES);
        for (auto& buffer : host_buffers_) munmap(buffer.first, buffer.second);
    }

    void start() {
        thread_ = std::thread([this] { run(); });
    }
    void stop() {
        stop_ = true;
        if (lifeline_ >= 0) shutdown(lifeline_, SHUT_RD);
        if (thread_.joinable()) thread_.join();
    }
    void hang_up() {
        stop();
        close(lifeline_);
        lifeline_ = -1;
    }
    // Of one that was not started: was it sent a descriptor? What else it was sent is lost.
    bool was_offered() const {
        char bytes[64];
        int descriptor = -1;
        while (descriptor < 0 && receive_descriptor(lifeline_, bytes, sizeof bytes, descriptor) > 0) continue;
        if (descriptor >= 0) close(descriptor);
        return descriptor >= 0;
    }
    void end(int32_t error, const char* text) {
        inbox().error = error;
        strncpy(inbox().error_text, text, FIKIT_ERROR_TEXT - 1);
        store_ordered(inbox().ended, 1u);
        wake(true);
    }
    void defer(int32_t error, const char* text) {
        inbox().deferred_error = error;
        strncpy(inbox().deferred_text, text, FIKIT_ERROR_TEXT - 1);
        store_release(inbox().deferred_count, inbox().deferred_count + 1);
    }
    // Steps are counted but not marked while this is set: a GPU that is busy.
    std::atomic<bool> hold_marks{false};
    // Only what asks for its mark gets one, as from the core.
    std::atomic<bool> asked_only{false};
    std::atomic<uint64_t> doorbells{0};

    uint64_t device_address() const { return reinterpret_cast<uint64_t>(memory_.data()); }
    uint8_t* device() { return memory_.data(); }
    fikit_outbox& header() { return *reinterpret_cast<fikit_outbox*>(outbox_); }
    fikit_inbox& inbox() { return *reinterpret_cast<fikit_inbox*>(inbox_); }

    Producer* attach() {
        Producer* producer = nullptr;
        CHECK(Producer::attach(outbox_fd, inbox_fd, lifeline_fd, producer) == status::success);
        return producer;
    }

    int outbox_fd, inbox_fd, lifeline_fd;

  private:
    static constexpr uint64_t ring_offset = 1 << 16;

    static int sealed(size_t bytes) {
        const int fd = memfd_create("double", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        CHECK(fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0);
        CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
        return fd;
    }
    static void* map(int fd, size_t bytes) {
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(memory != MAP_FAILED);
        return memory;
    }
    void wake(bool always = false) {
        if (!always && load_ordered(header().waiters) == 0) return;
        __atomic_fetch_add(&inbox().wakes, 1u, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &inbox().wakes, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
    }
    uint64_t& mark(uint32_t stream) {
        return *reinterpret_cast<uint64_t*>(inbox_ + FIKIT_MARKS_OFFSET + size_t{stream} * FIKIT_MARK_STRIDE);
    }

    void run() {
        while (!stop_) {
            if (!consume()) park();
        }
        consume();
    }
    // Sleeps until the doorbell rings. A lost doorbell makes the test hang, and so fail.
    void park() {
        store_ordered(inbox().parked, inbox().parked + 1);
        if (load_ordered(header().head) == tail_ && !stop_ && !marks_due()) {
            pollfd entry = {lifeline_, POLLIN, 0};
            // Held marks fall due without a doorbell, also between the look above and this one.
            poll(&entry, 1, unmarked() ? 1 : -1);
        }
        store_ordered(inbox().parked, inbox().parked + 1);
        char bytes[64];
        const ssize_t got = recv(lifeline_, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got > 0) doorbells += static_cast<uint64_t>(got);
        if (got == 0) stop_ = true;
    }
    bool unmarked() const {
        for (uint32_t stream = 0; stream < FIKIT_MAX_STREAMS; ++stream)
            if (asked_[stream] != marked_[stream]) return true;
        return false;
    }
    bool marks_due() const { return !hold_marks && unmarked(); }
    bool consume() {
        bool any = false;
        const uint64_t head = load_acquire(header().head);
        while (tail_ != head) {
            const uint8_t* at = outbox_ + ring_offset + tail_ % ring_bytes_;
            fikit_record record;
            memcpy(&record, at, sizeof record);
            CHECK(record.bytes >= FIKIT_RECORD_ALIGN && record.bytes % FIKIT_RECORD_ALIGN == 0);
            CHECK(record.op == FIKIT_OP_PAD || record.bytes <= FIKIT_MAX_RECORD);
            CHECK(tail_ % ring_bytes_ + record.bytes <= ring_bytes_ && record.bytes <= head - tail_);
            CHECK(record.op < FIKIT_OP_COUNT && record.stream < FIKIT_MAX_STREAMS);
            copy_.assign(at, at + record.bytes);
            execute(*reinterpret_cast<const fikit_record*>(copy_.data()));
            tail_ += record.bytes;
            store_ordered(inbox().tail, tail_);
            const uint64_t room = load_ordered(header().room);
            if (room != room_answered_ && room <= tail_) {
                room_answered_ = room;
                wake();
            }
            any = true;
        }
        if (marks_due()) {
            for (uint32_t stream = 0; stream < FIKIT_MAX_STREAMS; ++stream)
                if (asked_[stream] != marked_[stream]) set_mark(stream);
            wake();
        }
        return any;
    }
    void set_mark(uint32_t stream) {
        marked_[stream] = asked_[stream];
        store_release(mark(stream), asked_[stream]);
    }
    void execute(const fikit_record& record) {
        if (seen_ && record.op != FIKIT_OP_PAD) seen_(record);
        if (record.op == FIKIT_OP_COPY) copy(reinterpret_cast<const fikit_copy&>(record));
        if (record.op == FIKIT_OP_CALL) call(reinterpret_cast<const fikit_call_record&>(record));
        if (record.op < FIKIT_OP_LAUNCH || record.op > FIKIT_OP_HOST_FUNCTION) return;
        ++steps_[record.stream];
        if (!asked_only || (record.flags & FIKIT_MARK) != 0 || record.op == FIKIT_OP_HOST_FUNCTION)
            asked_[record.stream] = steps_[record.stream];
        if (!hold_marks) {
            set_mark(record.stream);
            if ((record.flags & FIKIT_MARK) != 0) wake();
        }
        if (record.op != FIKIT_OP_HOST_FUNCTION) return;
        wake();
        const uint64_t& done =
            *reinterpret_cast<const uint64_t*>(outbox_ + FIKIT_HOST_DONE_OFFSET + record.stream * 8);
        while (load_acquire(done) < steps_[record.stream] && !stop_) usleep(50);
    }
    void copy(const fikit_copy& copy) {
        CHECK(copy.host_buffer <= host_buffers_.size());
        uint8_t* host = copy.host_buffer == 0
                            ? outbox_ + ring_offset + ring_bytes_
                            : static_cast<uint8_t*>(host_buffers_[copy.host_buffer - 1].first);
        auto* device = reinterpret_cast<void*>(copy.device);
        if (copy.kind == FIKIT_COPY_TO_DEVICE) memcpy(device, host + copy.other, copy.size);
        if (copy.kind == FIKIT_COPY_TO_HOST) memcpy(host + copy.other, device, copy.size);
        if (copy.kind == FIKIT_COPY_ON_DEVICE) memcpy(device, reinterpret_cast<void*>(copy.other), copy.size);
    }
    void call(const fikit_call_record& record) {
        const auto* payload = reinterpret_cast<const uint8_t*>(&record) + sizeof record;
        uint8_t* reply = inbox_ + FIKIT_REPLY_OFFSET;
        inbox().call_status = status::success;
        inbox().call_bytes = record.payload_bytes;
        memcpy(reply, payload, record.payload_bytes);  // an echo, unless it needs more
        if (record.call == fikit_call_host_allocate) {
            fikit_request_host_allocate request;
            memcpy(&request, payload, sizeof request);
            CHECK(request.handle == host_buffers_.size() + 1);
            const int fd = sealed(request.size);
            host_buffers_.emplace_back(map(fd, request.size), request.size);
            const fikit_reply_host_allocate answer = {request.size, 0};
            memcpy(reply, &answer, sizeof answer);
            inbox().call_bytes = sizeof answer;
            send_descriptor(fd);
        }
        store_release(inbox().call_done, inbox().call_done + 1);
        wake();
    }
    void send_descriptor(int fd) {
        char byte = 0;
        iovec data = {&byte, 1};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
        msghdr message{};
        message.msg_iov = &data;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
        CHECK(sendmsg(lifeline_, &message, 0) == 1);
        close(fd);
    }

    Seen seen_;
    uint64_t ring_bytes_;
    size_t outbox_bytes_ = 0;
    uint8_t* outbox_ = nullptr;
    uint8_t* inbox_ = nullptr;
    int lifeline_ = -1;
    uint64_t tail_ = 0, room_answered_ = 0;
    uint64_t steps_[FIKIT_MAX_STREAMS] = {};
    uint64_t asked_[FIKIT_MAX_STREAMS] = {};
    uint64_t marked_[FIKIT_MAX_STREAMS] = {};
    std::vector<uint8_t> copy_;
    std::vector<uint8_t> memory_;
    std::vector<std::pair<void*, size_t>> host_buffers_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

inline LaunchShape shape(uint32_t stream, uint32_t parameter_bytes, uint32_t function = 7) {
    return {.function = function,
            .stream = stream,
            .grid = {1, 2, 3},
            .block = {4, 5, 6},
            .shared_bytes = 8,
            .parameter_bytes = parameter_bytes,
            .attributes = 0};
}

using Test = std::pair<const char*, void (*)()>;

inline void run(std::span<const Test> tests) {
    for (const auto& [name, test] : tests) {
        test();
        printf("ok  %s\n", name);
        fflush(stdout);
    }
}

}  // namespace fikit::test
