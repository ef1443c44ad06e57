// The file behind memory of the program's own that it shares with whoever maps the file, too: what it has
// from shm_open, memfd_create or a file in /dev/shm.
#pragma once

#include <cstdint>

namespace fikit::shim {

class SharedFile {
  public:
    // Of whole pages, all of which are one such mapping.
    SharedFile(uint64_t address, uint64_t bytes);
    ~SharedFile();
    SharedFile(const SharedFile&) = delete;
    SharedFile& operator=(const SharedFile&) = delete;
    explicit operator bool() const { return descriptor_ >= 0; }
    int descriptor() const { return descriptor_; }  // for reading and writing
    uint64_t offset() const { return offset_; }     // in the file

  private:
    int descriptor_ = -1;
    uint64_t offset_ = 0;
};

}  // namespace fikit::shim
