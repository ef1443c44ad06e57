// What is mapped in this process, as the kernel tells it of the calling thread: of a process whose first
// thread has ended it tells nothing.
#pragma once

#include <stdio.h>
#include <sys/types.h>

#include <cstdint>

namespace fikit::shim {

struct Mapping {
    uint64_t begin = 0, end = 0, offset = 0;
    dev_t device = 0;
    ino_t inode = 0;  // 0: of no file
    bool writable = false, shared = false;
    const char* path = "";
};

class Mappings {
  public:
    Mappings() : file_(fopen("/proc/thread-self/maps", "re")) {}
    ~Mappings();
    Mappings(const Mappings&) = delete;
    Mappings& operator=(const Mappings&) = delete;

    // In the order of their addresses; false: there are no more. A path is there until the next one is.
    bool next(Mapping& mapping);

  private:
    FILE* file_;
    char* line_ = nullptr;
    size_t room_ = 0;
};

}  // namespace fikit::shim
