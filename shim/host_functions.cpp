#include "host_functions.hpp"

#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "own_threads.hpp"

namespace fikit {
namespace {
void wake(uint32_t& word) {
    __atomic_fetch_add(&word, 1u, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}
}  // namespace

void HostFunctions::stop() {
    Entry* left = nullptr;
    {
        const Locked lock(stop_mutex_);
        store_ordered(stop_, 1u);
        bool running = false;
        {
            const Locked queue(mutex_);
            running = running_;
        }
        if (running) {
            wake(added_);
            if (within()) return;
            pthread_join(thread_, nullptr);
        }
        const Locked queue(mutex_);
        store_relaxed(running_, false);
        left = first_;
        first_ = nullptr;
        last_ = &first_;
        // Streams must not wait for functions that will never run: what they hold is to be freed.
        for (const Entry* entry = left; entry != nullptr; entry = entry->next) {
            uint64_t& done = channel_.host_done(entry->stream);
            if (load_relaxed(done) < entry->step) store_ordered(done, entry->step);
        }
    }
    while (left != nullptr) {
        Entry* const entry = left;
        left = entry->next;
        if (entry->failure != nullptr) entry->failure(entry->argument, status::context_is_destroyed);
        free(entry);
    }
}

HostFunctions::~HostFunctions() {
    if (abandoned_) return;
    stop();
}

Status HostFunctions::prepare(HostFunction function, HostFailure failure, void* argument, Entry*& entry) {
    const Locked lock(mutex_);
    if (load_ordered(stop_) != 0) return status::context_is_destroyed;
    if (!running_) {
        store_relaxed(running_, start_own_thread(thread_, &run, this));
        if (!running_) return status::operating_system;
    }
    entry = static_cast<Entry*>(malloc(sizeof(Entry)));
    if (entry == nullptr) return status::out_of_memory;
    *entry = {.next = nullptr,
              .function = function,
              .failure = failure,
              .argument = argument,
              .step = 0,
              .stream = 0};
    return status::success;
}

void HostFunctions::add(Entry* entry, uint32_t stream, uint64_t step) {
    entry->stream = stream;
    entry->step = step;
    {
        const Locked lock(mutex_);
        *last_ = entry;
        last_ = &entry->next;
    }
    wake(added_);
}

void HostFunctions::discard(Entry* entry) { free(entry); }

// The queue is short: functions are rare. A stream's functions are in it in the order of their steps.
HostFunctions::Entry* HostFunctions::take_ready() {
    const Locked lock(mutex_);
    for (Entry** link = &first_; *link != nullptr; link = &(*link)->next) {
        Entry* const entry = *link;
        if (channel_.mark(entry->stream) < entry->step) continue;
        *link = entry->next;
        if (last_ == &entry->next) last_ = link;
        return entry;
    }
    return nullptr;
}

bool HostFunctions::any_ready() const {
    const Locked lock(mutex_);
    for (const Entry* entry = first_; entry != nullptr; entry = entry->next)
        if (channel_.mark(entry->stream) >= entry->step) return true;
    return false;
}

void* HostFunctions::run(void* self) {
    static_cast<HostFunctions*>(self)->serve();
    return nullptr;
}

void HostFunctions::serve() {
    while (load_ordered(stop_) == 0) {
        const uint32_t seen = load_ordered(added_);
        if (Entry* const entry = take_ready()) {
            entry->function(entry->argument);
            store_ordered(channel_.host_done(entry->stream), entry->step);
            channel_.ring_doorbell();
            free(entry);
            continue;
        }
        bool waiting = false;
        {
            const Locked lock(mutex_);
            waiting = first_ != nullptr;
        }
        if (!waiting) {
            syscall(SYS_futex, &added_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
            continue;
        }
        const Status status = channel_.wait_until([&] { return any_ready() || load_ordered(stop_) != 0; },
                                                  unattended, Patience{0});
        if (status != status::success) return tell(status);  // the session is over
    }
}

// The program may be waiting for what its callbacks tell.
void HostFunctions::tell(Status failure) {
    if (failure == status::context_is_destroyed) return;  // by the program: stop() does
    for (;;) {
        Entry* entry = nullptr;
        {
            const Locked lock(mutex_);
            Entry** link = &first_;
            while (*link != nullptr && (*link)->failure == nullptr) link = &(*link)->next;
            if (*link == nullptr) return;
            entry = *link;
            *link = entry->next;
            if (last_ == &entry->next) last_ = link;
        }
        entry->failure(entry->argument, failure);
        free(entry);
    }
}

}  // namespace fikit
