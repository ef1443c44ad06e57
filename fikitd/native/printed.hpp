// What kernels print. The driver writes it to this process' standard output, which the executor has made a
// file of its own; whoever synchronises gets it, so a session's text is told from another's only as far as
// they synchronise after their own kernels.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <mutex>

namespace fikit {

class Printed {
  public:
    // The file that standard output is; -1: it is none of ours, and nothing is ever there.
    explicit Printed(int descriptor) : descriptor_(descriptor) {}

    // The next of it; 0 bytes: that was all.
    size_t take(uint8_t* to, size_t room) {
        const std::lock_guard lock(mutex_);
        if (descriptor_ < 0) return 0;
        const ssize_t got = pread(descriptor_, to, room, read_);
        if (got <= 0) return 0;
        // The file grows at its end while the driver writes, so it gives back its beginning instead.
        fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, read_, got);
        read_ += got;
        return static_cast<size_t>(got);
    }

  private:
    std::mutex mutex_;
    int descriptor_;
    off_t read_ = 0;
};

}  // namespace fikit
