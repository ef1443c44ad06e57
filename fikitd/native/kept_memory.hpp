// Pinned memory of sessions that are over, which stays as long as their programs may look at it: a program
// hangs its lifeline up when it has let go of all of it, and ends at last. Until then it counts.
#pragma once

#include <poll.h>
#include <sys/epoll.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "shared_memory.hpp"

namespace fikit {

class KeptMemory {
  public:
    static constexpr uint64_t tag = uint64_t{1} << 63;  // of its events, beside a session's number

    // By what a session's program tells that it keeps nothing.
    struct Program {
        TenantDescriptor lifeline;
        Descriptor process;

        bool has_let_go() const {
            if (!lifeline) return true;
            pollfd asked[] = {{lifeline.get(), 0, 0}, {process.get(), POLLIN, 0}};
            return poll(asked, 2, 0) > 0;
        }
    };
    using Left = std::vector<SharedMemory>;

    KeptMemory() = default;
    KeptMemory(const KeptMemory&) = delete;
    ~KeptMemory() {
        for (auto& [serial, kept] : kept_)
            for (SharedMemory& memory : kept.memory) memory.leave(true);
    }

    // Of one session after another; the first time its program is watched from then on. What it has let go of
    // by now is the answer.
    Left keep(int epoll, uint32_t serial, const std::shared_ptr<Program>& program, SharedMemory&& memory) {
        const std::lock_guard lock(mutex_);
        Kept& kept = kept_[serial];
        kept.memory.push_back(std::move(memory));
        if (kept.program == nullptr) {
            kept.program = program;
            epoll_event event{EPOLLIN | EPOLLONESHOT, {.u64 = tag | serial}};
            epoll_ctl(epoll, EPOLL_CTL_ADD, program->process.get(), &event);
            event.events = EPOLLONESHOT;
            epoll_ctl(epoll, EPOLL_CTL_ADD, program->lifeline.get(), &event);
        }
        return program->has_let_go() ? take(serial) : Left{};
    }

    // The program has let go.
    Left let_go(uint32_t serial) {
        const std::lock_guard lock(mutex_);
        return take(serial);
    }

    size_t programs() const {
        const std::lock_guard lock(mutex_);
        return kept_.size();
    }

  private:
    struct Kept {
        std::shared_ptr<Program> program;  // goes last: its descriptors are what is watched
        Left memory;
    };

    Left take(uint32_t serial) {
        const auto found = kept_.find(serial);
        if (found == kept_.end()) return {};
        Left memory = std::move(found->second.memory);
        kept_.erase(found);
        for (SharedMemory& each : memory) each.leave(false);
        return memory;
    }

    mutable std::mutex mutex_;
    std::map<uint32_t, Kept> kept_;
};

}  // namespace fikit
