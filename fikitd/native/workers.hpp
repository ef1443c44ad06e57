// Threads for what may take long: answering calls (module loads, mapping memory), freeing what a session
// held. The dispatch thread hands jobs over and never waits for them. Those of the most urgent session are
// next: one may take seconds, and every other session may have one waiting.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace fikit {

class Workers {
  public:
    ~Workers() { stop(); }

    // `prepare` runs first on every thread (it makes the context current).
    void start(unsigned count, const std::function<void()>& prepare) {
        for (unsigned number = 0; number < count; ++number)
            threads_.emplace_back([this, prepare] {
                prepare();
                run();
            });
    }

    void post(std::function<void()> job, int level = 0) {
        {
            const std::lock_guard lock(mutex_);
            const auto less_urgent = [](int own, const Job& other) { return own < other.level; };
            const auto place = std::upper_bound(jobs_.begin(), jobs_.end(), level, less_urgent);
            jobs_.insert(place, {level, std::move(job)});
        }
        ready_.notify_one();
    }

    // Finishes the jobs there are, then ends the threads.
    void stop() {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        ready_.notify_all();
        for (std::thread& thread : threads_) thread.join();
        threads_.clear();
    }

  private:
    struct Job {
        int level;
        std::function<void()> work;
    };

    void run() {
        for (;;) {
            std::function<void()> work;
            {
                std::unique_lock lock(mutex_);
                ready_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
                if (jobs_.empty()) return;
                work = std::move(jobs_.front().work);
                jobs_.pop_front();
            }
            work();
        }
    }

    std::mutex mutex_;
    std::condition_variable ready_;
    std::deque<Job> jobs_;
    std::vector<std::thread> threads_;
    bool stopping_ = false;
};

}  // namespace fikit
