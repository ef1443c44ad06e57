// What other threads have the dispatch thread do.
#include <unistd.h>

#include <future>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core.hpp"

namespace fikit {

void Core::kick() {
    const uint64_t one = 1;
    [[maybe_unused]] const auto put = write(kick_.get(), &one, sizeof one);
}

bool Core::run_posted() {
    std::vector<std::function<void()>> actions;
    {
        const std::lock_guard lock(posted_mutex_);
        actions.swap(posted_actions_);
        posted_.store(false, std::memory_order_release);
    }
    for (const auto& action : actions) action();
    return !actions.empty();
}

void Core::post(const std::function<void()>& action) {
    posted_actions_.push_back(action);
    posted_.store(true, std::memory_order_release);
}

// Runs the action on the dispatch thread and waits for it. Throws what it threw (as a runtime_error of this
// thread's own), or if the loop has ended.
void Core::on_dispatch(const std::function<void()>& action) {
    piecewise([&] {
        action();
        return false;
    });
}

// The same of an action that is too long for a turn: a piece of it in each, as long as it says that there is
// more. Who waits is woken once: where threads wait long for a processor, once for each piece takes seconds.
void Core::piecewise(const std::function<bool()>& piece) {
    std::promise<std::optional<std::string>> done;
    std::future<std::optional<std::string>> result = done.get_future();
    const std::function<void()> action = [&] {
        std::optional<std::string> wrong;
        try {
            if (piece()) {
                const std::lock_guard lock(posted_mutex_);
                post(action);
                return;
            }
        } catch (const std::exception& error) {
            wrong = error.what();
        }
        done.set_value(std::move(wrong));
    };
    {
        const std::lock_guard lock(posted_mutex_);
        if (stopping_.load() || failure_.load() != 0) throw std::runtime_error("the dispatch loop has ended");
        post(action);
    }
    kick();
    if (const std::optional<std::string> wrong = result.get()) throw std::runtime_error(*wrong);
}

}  // namespace fikit
