// What kernels print, and which of their assertions failed. The driver writes the former to this process'
// standard output, which the executor has made a file of its own; whoever synchronises gets it, so a
// session's text is told from another's only as far as they synchronise after their own kernels. The latter
// it writes to standard error, which is the executor's log; all sessions that end with them get the first of
// them.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace fikit {

class Printed {
  public:
    // The file that standard output is; -1: it is none of ours, and nothing is ever there.
    explicit Printed(int descriptor) : descriptor_(descriptor) {}

    // Held by each session whose kernels may print.
    using Author = std::shared_ptr<const Printed>;

    // `before`: its first such kernel is yet to come, so what is there while nobody else may print was left
    // by sessions that are over, and is nobody's.
    Author author(bool before) {
        const std::lock_guard lock(mutex_);
        Author held = authors_.lock();
        if (held != nullptr) return held;
        struct stat state{};
        if (before && descriptor_ >= 0 && fstat(descriptor_, &state) == 0 && state.st_size > read_)
            drop(state.st_size - read_);
        held = Author(this, [](const Printed*) {});
        authors_ = held;
        return held;
    }

    // The next of it; 0 bytes: that was all.
    size_t take(uint8_t* to, size_t room) {
        const std::lock_guard lock(mutex_);
        if (descriptor_ < 0) return 0;
        const ssize_t got = pread(descriptor_, to, room, read_);
        if (got <= 0) return 0;
        drop(got);
        return static_cast<size_t>(got);
    }

    // Of what nobody takes only the latest is kept, as in the driver's own buffer: it is memory of the
    // host's.
    void bound() {
        constexpr off_t most = 64 << 20;
        const std::lock_guard lock(mutex_);
        struct stat state{};
        if (descriptor_ < 0 || fstat(descriptor_, &state) != 0) return;
        if (const off_t left = state.st_size - read_; left > most) drop(left - most);
    }

  private:
    // The file grows at its end while the driver writes, so it gives back its beginning instead.
    void drop(off_t bytes) {
        fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, read_, bytes);
        read_ += bytes;
    }

    std::mutex mutex_;
    int descriptor_;
    off_t read_ = 0;
    std::weak_ptr<const Printed> authors_;
};

class FailedAssertions {
  public:
    FailedAssertions() : begin_(size()) {}

    // Whole lines, at most so many bytes; none where standard error is no file.
    std::string text(size_t most) const {
        const int log = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (log < 0) return {};
        std::string read(1 << 20, '\0');
        // They are at its end. The daemon shortens a log that has grown too long.
        const off_t end = size(), begin = begin_ <= end ? begin_ : 0;
        const off_t from = std::max(begin, end - static_cast<off_t>(read.size()));
        const ssize_t got = pread(log, read.data(), read.size(), from);
        close(log);
        std::string found;
        std::string_view left(read.data(), got > 0 ? static_cast<size_t>(got) : 0);
        while (!left.empty()) {
            const std::string_view line = left.substr(0, left.find('\n'));
            left.remove_prefix(std::min(left.size(), line.size() + 1));
            if (line.find(": block: [") == line.npos || line.find("] Assertion `") == line.npos) continue;
            if (found.size() + line.size() + 1 > most) break;
            found.append(line).push_back('\n');
        }
        return found;
    }

  private:
    static constexpr const char* path = "/proc/self/fd/2";
    static off_t size() {
        struct stat state{};
        return stat(path, &state) == 0 && S_ISREG(state.st_mode) ? state.st_size : 0;
    }

    off_t begin_;
};

}  // namespace fikit
