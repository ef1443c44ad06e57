#include "slabs.hpp"

#include <string.h>

#include <new>

#include "process.hpp"

namespace fikit::shim {

constinit Slabs slabs;

uint32_t Slabs::Slab::find(uint32_t count) const {
    uint32_t run = 0;
    for (uint32_t at = 0; at < units && free >= count; ++at) {
        run = taken[at] ? 0 : run + 1;
        if (run == count) return at + 1 - count;
    }
    return units;
}

void Slabs::Slab::mark(uint32_t first, uint32_t count, bool to) {
    memset(taken + first, to ? 1 : 0, count);
    free += to ? 0u - count : count;
}

CUresult Slabs::add(Device& device) {
    auto* const slab = new (std::nothrow) Slab{&device, 0, 0, units, first_, {}};
    if (slab == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    HostBuffer buffer{};
    Status status = device.producer->host_allocate(slab_bytes, slab->handle, buffer);
    slab->address = reinterpret_cast<uintptr_t>(buffer.address);
    if (status == status::success && slab->address != buffer.device_address) {
        device.producer->host_free(slab->handle);
        status = status::out_of_memory;
    }
    if (status != status::success) {
        delete slab;
        return result_of(status);
    }
    first_ = slab;
    return CUDA_SUCCESS;
}

CUresult Slabs::take(Device& device, uint64_t bytes, uint64_t& address, uint32_t& handle) {
    const auto count = static_cast<uint32_t>((bytes + unit - 1) / unit);
    const Locked lock(mutex_);
    uint32_t at = units;
    Slab* slab = first_;
    for (; slab != nullptr; slab = slab->next)
        if (slab->device == &device && (at = slab->find(count)) != units) break;
    if (slab == nullptr) {
        if (const CUresult result = add(device); result != CUDA_SUCCESS) return result;
        slab = first_;
        at = 0;
    }
    slab->mark(at, count, true);
    address = slab->address + at * unit;
    handle = slab->handle;
    return CUDA_SUCCESS;
}

// An empty slab stays where it is the device's only one: who takes and gives in turn pays for it once.
bool Slabs::give_back(Device& device, uint32_t handle, uint64_t address, uint64_t bytes) {
    const Locked lock(mutex_);
    Slab** link = nullptr;
    unsigned others = 0;
    for (Slab** at = &first_; *at != nullptr; at = &(*at)->next) {
        if ((*at)->device != &device) continue;
        if ((*at)->handle == handle)
            link = at;
        else
            ++others;
    }
    if (link == nullptr) return false;
    Slab* const slab = *link;
    slab->mark(static_cast<uint32_t>((address - slab->address) / unit),
               static_cast<uint32_t>((bytes + unit - 1) / unit), false);
    if (slab->free != units || others == 0) return true;
    *link = slab->next;
    device.producer->host_free(slab->handle);
    delete slab;
    return true;
}

}  // namespace fikit::shim
