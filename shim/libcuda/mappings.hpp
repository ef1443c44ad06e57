// What is mapped in this process, as the kernel tells it of the calling thread: of a process whose first
// thread has ended it tells nothing. Linux 6.11 and later are asked for one mapping at a time, so what is
// looked for among tens of thousands costs what it does among ten.
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
    // Those that end behind that address.
    explicit Mappings(uint64_t from = 0) : file_(fopen("/proc/thread-self/maps", "re")), from_(from) {}
    ~Mappings();
    Mappings(const Mappings&) = delete;
    Mappings& operator=(const Mappings&) = delete;

    // In the order of their addresses; false: there are no more. A path is there until the next one is.
    bool next(Mapping& mapping);

  private:
    int ask(Mapping& mapping);  // an errno, as of what the kernel cannot be asked
    bool read(Mapping& mapping);

    FILE* file_;
    uint64_t from_;
    bool is_text_ = false;  // all that the kernel tells is its text
    char* line_ = nullptr;
    size_t room_ = 0;
};

}  // namespace fikit::shim
