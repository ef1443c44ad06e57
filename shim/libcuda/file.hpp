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
        struct stat information{};
        there_ = descriptor_ >= 0 && status_of(descriptor_, information) == 0 &&
                 !S_ISFIFO(information.st_mode);  // a pipe is no file, as on an H200
        if (there_) read_all(static_cast<size_t>(information.st_size));
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
    bool exists() const { return there_; }

  private:
    void read_all(size_t told) {
        data_ = static_cast<char*>(malloc(told + 1));
        if (data_ == nullptr) return;
        while (size_ < told) {  // less of what grows shorter, nothing of a folder
            const ssize_t got = read(descriptor_, data_ + size_, told - size_);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) break;
            size_ += static_cast<size_t>(got);
        }
        data_[size_++] = '\0';  // PTX in a file need not end with one
    }

    const Uncancelled whole_;
    int descriptor_ = -1;
    bool there_ = false;
    char* data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace fikit::shim
