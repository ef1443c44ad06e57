// What the driver does only after waiting for running kernels, holding up every launch meanwhile (measured on
// the H200: unloading a module, unregistering host memory; registering costs 50 us for each MiB). So it is
// put off until nothing is in flight, though not for ever. One at a time, so that work that comes waits for
// one only.
//
// Under work without a pause the first one becomes due at some time: then gated work is held back until
// nothing is in flight, and all that are due follow one another. High-priority work is not held back; if it
// makes no pause either, one is forced upon it, and the next some time later. Not behind what was in flight
// when it became due: that may never end, and the driver would let nobody launch until it does.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

#include "clock.hpp"

namespace fikit {

class IdleJobs {
  public:
    using Run = std::function<void()>;
    static constexpr Nanoseconds patience = 10'000'000'000, held = 100'000'000, between_forced = 400'000'000;
    // So much pinned memory that goes away with them, and so many of them, may wait: then they are due, and
    // who would add to them waits, too.
    static constexpr uint64_t most_bytes = uint64_t{256} << 20;
    static constexpr size_t most = 1024;

    // From any thread. `first`, `bytes`: pinned memory of this process's that goes away with it.
    void add(Run run, Nanoseconds now, uint64_t first = 0, uint64_t bytes = 0) {
        const std::lock_guard lock(mutex_);
        jobs_.push_back({std::move(run), now + patience, first, bytes});
        waiting_bytes_ += bytes;
        bytes_ += bytes;
        ++left_;
        set_due(now);
    }

    // The rest is the dispatch thread's.
    bool any() const { return due_.load(std::memory_order_relaxed) != never; }
    // Whether gated work is to be held back.
    bool due(Nanoseconds now) const {
        const Nanoseconds due = due_.load(std::memory_order_relaxed);
        return now >= due && now - due < held;
    }

    // The next one, if it is time for it; done() is called when it has run, and nothing of it is left.
    // `stands` tells since when the oldest of what is in flight is (INT64_MAX: nothing is).
    template <typename Stands>
    Run take(Nanoseconds now, bool idle, const Stands& stands) {
        const Nanoseconds due = due_.load(std::memory_order_relaxed);
        if (!any() || running_.load(std::memory_order_acquire)) return {};
        if (!idle && (now - due < held || stands() <= due)) return {};
        const std::lock_guard lock(mutex_);
        job_ = std::move(jobs_.front());
        jobs_.pop_front();
        waiting_bytes_ -= job_.bytes;
        if (!idle) forced_ = now;
        taken_ = now;
        running_.store(true, std::memory_order_release);
        set_due(now);
        return std::move(job_.run);
    }

    // Whether one that takes away what is there waits or runs. It is next, and due.
    bool has(uint64_t first, uint64_t bytes, Nanoseconds now) {
        const std::lock_guard lock(mutex_);
        const auto meets = [&](const Job& job) {
            return job.first < first + bytes && first < job.first + job.bytes;
        };
        const auto job = std::find_if(jobs_.begin(), jobs_.end(), meets);
        if (job == jobs_.end()) return running_.load(std::memory_order_acquire) && meets(job_);
        job->due = std::min(job->due, now);
        std::rotate(jobs_.begin(), job, job + 1);
        set_due(now);
        return true;
    }

    // Whether there should not be more of them.
    bool have_much() const {
        return bytes_.load(std::memory_order_relaxed) > most_bytes ||
               left_.load(std::memory_order_relaxed) > most;
    }

    // From the thread that ran it.
    void done() {
        bytes_ -= job_.bytes;
        --left_;
        running_.store(false, std::memory_order_release);
    }

  private:
    static constexpr Nanoseconds never = INT64_MAX;
    struct Job {
        Run run;
        Nanoseconds due = 0;
        uint64_t first = 0, bytes = 0;
    };

    void set_due(Nanoseconds now) {
        Nanoseconds due = never;
        if (!jobs_.empty()) {
            Job& next = jobs_.front();
            if (waiting_bytes_ > most_bytes || jobs_.size() > most) next.due = std::min(next.due, now);
            due = std::max({next.due, taken_, forced_ + between_forced});
        }
        due_.store(due, std::memory_order_relaxed);
    }

    std::mutex mutex_;
    std::deque<Job> jobs_;
    Job job_;  // that runs
    uint64_t waiting_bytes_ = 0;
    Nanoseconds taken_ = 0, forced_ = -between_forced;
    std::atomic<uint64_t> bytes_{0};  // of that one, too
    std::atomic<size_t> left_{0};     // likewise
    std::atomic<Nanoseconds> due_{never};
    std::atomic<bool> running_{false};
};

}  // namespace fikit
