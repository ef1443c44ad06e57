#include "shared_memory.hpp"

#include <fcntl.h>
#include <linux/memfd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace fikit {

bool SharedMemory::create(const char* name, size_t size, bool read_only_outside, uint64_t wished) {
    Descriptor descriptor(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!descriptor || ftruncate(descriptor.get(), static_cast<off_t>(size)) != 0) return false;
    void* address = mmap(reinterpret_cast<void*>(wished), size, PROT_READ | PROT_WRITE,
                         MAP_SHARED | (wished != 0 ? MAP_FIXED_NOREPLACE : 0), descriptor.get(), 0);
    if (address == MAP_FAILED && wished != 0)
        address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
    if (address == MAP_FAILED) return false;
    SharedMemory made;
    made.descriptor_ = std::move(descriptor);
    made.address_ = address;
    made.size_ = size;
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | (read_only_outside ? F_SEAL_FUTURE_WRITE : 0) | F_SEAL_SEAL;
    if (fcntl(made.descriptor_.get(), F_ADD_SEALS, seals) != 0) return false;
    *this = std::move(made);
    return true;
}

}  // namespace fikit
