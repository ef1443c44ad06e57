// A file with an image, as a program names it.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "../older_libc.hpp"
#include "uncancelled.hpp"

namespace fikit::shim {

class File {
  public:
    explicit File(const char* path) {
        do descriptor_ = open(path, O_RDONLY | O_CLOEXEC);
        while (descriptor_ < 0 && errno == EINTR);
        if (descriptor_ >= 0 && !read_all()) {
            free(data_);
            data_ = nullptr;
        }
    }
    ~File() {
        if (descriptor_ >= 0) close(descriptor_);
        free(data_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    const void* data() const { return data_; }
    // With a NUL behind what was in the file.
    size_t size() const { return size_; }
    bool exists() const { return descriptor_ >= 0; }

  private:
    static constexpr size_t most = size_t{2} << 30;  // what an executor takes

    // To its end, as of a pipe nothing tells how much that is. Nothing is in a folder.
    bool read_all() {
        struct stat information{};
        if (status_of(descriptor_, information) != 0) return false;
        size_t room =
            static_cast<size_t>(information.st_size) + 1;  // no more is asked for at the end of a file
        for (ssize_t got = 1; got > 0;) {
            if (room > most) return false;
            void* const memory = realloc(data_, room + 1);
            if (memory == nullptr) return false;
            data_ = static_cast<char*>(memory);
            while (size_ < room && (got = read(descriptor_, data_ + size_, room - size_)) != 0) {
                if (got < 0 && errno != EINTR) break;
                if (got > 0) size_ += static_cast<size_t>(got);
            }
            room *= 2;
        }
        data_[size_++] = '\0';  // PTX in a file need not end with one
        return true;
    }

    const Uncancelled whole_;
    int descriptor_ = -1;
    char* data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace fikit::shim
