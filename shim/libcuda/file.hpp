// A file with an image, as a program names it.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "../older_libc.hpp"

namespace fikit::shim {

class File {
  public:
    explicit File(const char* path) : descriptor_(open(path, O_RDONLY | O_CLOEXEC)) {
        struct stat information{};
        if (descriptor_ < 0 || status_of(descriptor_, information) != 0) return;
        const auto told = static_cast<size_t>(information.st_size);
        void* const memory = malloc(told + 1);
        if (memory == nullptr) return;
        data_ = static_cast<char*>(memory);
        size_t have = 0;
        while (have < told) {  // less of what grows shorter, nothing of a folder
            const ssize_t got = read(descriptor_, data_ + have, told - have);
            if (got <= 0) break;
            have += static_cast<size_t>(got);
        }
        data_[have] = '\0';  // PTX in a file need not end with one
        size_ = have + 1;
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
    int descriptor_;
    char* data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace fikit::shim
