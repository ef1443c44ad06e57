// Owned descriptors, memory that is shared with tenants, and its mappings.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace fikit {

// Closes descriptors that tenants have made. The last close of one may take as long as its maker likes (a
// socket that lingers), but for memory: so a thread of its own does it.
void close_apart(std::span<const int> descriptors);

inline void close_here(int descriptor) { close(descriptor); }
inline void close_tenants(int descriptor) { close_apart({&descriptor, 1}); }

template <void (*closes)(int)>
class OwnedDescriptor {
  public:
    OwnedDescriptor() = default;
    explicit OwnedDescriptor(int number) : number_(number) {}
    OwnedDescriptor(OwnedDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    OwnedDescriptor& operator=(OwnedDescriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~OwnedDescriptor() {
        if (number_ >= 0) closes(number_);
    }
    int get() const { return number_; }
    int release() { return std::exchange(number_, -1); }
    explicit operator bool() const { return number_ >= 0; }

  private:
    int number_ = -1;
};
using Descriptor = OwnedDescriptor<close_here>;
using TenantDescriptor = OwnedDescriptor<close_tenants>;  // sent by a tenant, or that a tenant sends by

// Copies from a file in memory (tmpfs), from `offset` (whole pages) on; what it does not have takes no memory
// by that, and is zeros. False with errno when it is another kind of file or ends before.
bool read_memory(int file, uint64_t offset, std::span<uint8_t> into);

// A memfd of fixed size, mapped for reading and writing here. Nobody can shrink it under our feet (that
// would be a SIGBUS in the executor): its size is sealed before it is handed out. Its memory, which is
// counted as ours, goes with this: whoever still has the descriptor has zeros. Or a part of a tenant's own
// file, which the tenant can shrink: zeros take the place of what is gone then.
class SharedMemory {
  public:
    SharedMemory() = default;
    SharedMemory(SharedMemory&& other) noexcept
        : descriptor_(std::move(other.descriptor_)),
          address_(std::exchange(other.address_, nullptr)),
          size_(std::exchange(other.size_, 0)),
          guarded_(other.guarded_),
          left_(other.left_),
          counted_(std::move(other.counted_)) {}
    SharedMemory& operator=(SharedMemory&& other) noexcept {
        std::swap(descriptor_, other.descriptor_);
        std::swap(address_, other.address_);
        std::swap(size_, other.size_);
        std::swap(guarded_, other.guarded_);
        std::swap(left_, other.left_);
        std::swap(counted_, other.counted_);
        return *this;
    }
    ~SharedMemory();

    // `read_only_outside`: whoever gets the descriptor can only read. `wished`: the address to map it at, if
    // nothing is there. False with errno on failure.
    bool create(const char* name, size_t size, bool read_only_outside, uint64_t wished = 0);
    // Of a file in memory (tmpfs) that may be read and written, from `offset` (whole pages) on. False when it
    // is another kind of file or ends before, too.
    bool open(int file, uint64_t offset, size_t size, uint64_t wished);

    uint8_t* data() const { return static_cast<uint8_t*>(address_); }
    size_t size() const { return size_; }
    int descriptor() const { return descriptor_.get(); }
    Descriptor take_descriptor() { return std::move(descriptor_); }
    // What is in it stays with whoever else has it.
    void leave(bool left = true) { left_ = left; }
    // Whether it is none of a tenant's own file.
    bool is_ours() const { return !guarded_; }
    // What is to go with it.
    void count(std::shared_ptr<void> counted) { counted_ = std::move(counted); }

  private:
    Descriptor descriptor_;
    void* address_ = nullptr;
    size_t size_ = 0;
    bool guarded_ = false;  // it is a tenant's file
    bool left_ = false;
    std::shared_ptr<void> counted_;
};

}  // namespace fikit
