#include "copy_threads.hpp"

#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "channel.hpp"
#include "own_threads.hpp"
#include "shared.hpp"

namespace fikit {
namespace {
constexpr uint64_t chunk_bytes = 256 << 10;
constexpr int64_t linger_ns = 100'000;  // a helper watches for the next piece of a transfer this long
}  // namespace

CopyThreads::~CopyThreads() {
    store_ordered(stop_, 1u);
    __atomic_fetch_add(&jobs_, 1u, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &jobs_, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
    for (uint32_t index = 0; index < helpers_; ++index) pthread_join(threads_[index], nullptr);
}

uint32_t CopyThreads::suitable_threads() {
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 2 ? 1 : cores / 2 < most_helpers + 1 ? static_cast<uint32_t>(cores / 2) : most_helpers + 1;
}

void CopyThreads::start(uint32_t threads) {
    const Locked lock(start_mutex_);
    if (started_) return;
    started_ = true;
    if (threads > most_helpers + 1) threads = most_helpers + 1;
    while (helpers_ + 1 < threads && start_own_thread(threads_[helpers_], &run, this)) ++helpers_;
}

void CopyThreads::copy(void* to, const void* from, uint64_t bytes) {
    if (load_acquire(helpers_) == 0 || bytes < 2 * chunk_bytes ||
        __atomic_exchange_n(&busy_, 1u, __ATOMIC_ACQUIRE) != 0) {
        memcpy(to, from, bytes);
        return;
    }
    const auto chunks = static_cast<uint32_t>((bytes + chunk_bytes - 1) / chunk_bytes);
    store_relaxed(to_, static_cast<uint8_t*>(to));
    store_relaxed(from_, static_cast<const uint8_t*>(from));
    store_relaxed(bytes_, bytes);
    store_relaxed(unfinished_, chunks);
    const uint32_t job = load_relaxed(jobs_) + 1;
    store_release(claim_, uint64_t{job} << 32 | chunks);
    store_ordered(jobs_, job);
    syscall(SYS_futex, &jobs_, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
    while (take_chunk()) {
    }
    while (load_acquire(unfinished_) != 0) relax();  // bounded by one chunk's memcpy
    store_release(busy_, 0u);
}

bool CopyThreads::take_chunk() {
    uint64_t claim = load_acquire(claim_);
    if (static_cast<uint32_t>(claim) == 0) return false;
    uint8_t* const to = load_relaxed(to_);
    const uint8_t* const from = load_relaxed(from_);
    const uint64_t bytes = load_relaxed(bytes_);
    if (!__atomic_compare_exchange_n(&claim_, &claim, claim - 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return true;  // somebody else took it: look again
    const uint64_t offset = (static_cast<uint32_t>(claim) - 1) * chunk_bytes;
    memcpy(to + offset, from + offset, bytes - offset < chunk_bytes ? bytes - offset : chunk_bytes);
    __atomic_fetch_sub(&unfinished_, 1u, __ATOMIC_RELEASE);
    return true;
}

void* CopyThreads::run(void* self) {
    static_cast<CopyThreads*>(self)->help();
    return nullptr;
}

void CopyThreads::help() {
    uint32_t seen = 0;
    while (load_ordered(stop_) == 0) {
        while (take_chunk()) {
        }
        for (const int64_t until = now_ns() + linger_ns; load_acquire(jobs_) == seen && now_ns() < until;)
            relax();
        if (load_acquire(jobs_) == seen)
            syscall(SYS_futex, &jobs_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
        seen = load_acquire(jobs_);
    }
}

}  // namespace fikit
