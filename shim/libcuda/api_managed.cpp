// Managed memory: pinned memory, which this process and the GPU have at one address. Both see it at any time,
// the GPU over the link. Nothing migrates, so what a program advises, prefetches or discards is remembered
// and changes nothing.
#include <new>

#include "../managed_advice.hpp"
#include "capture.hpp"
#include "entry.hpp"
#include "host_memory.hpp"
#include "objects.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // of all advice

int device_count() { return static_cast<int>(process.device_count()); }

// What is known of the managed memory there; nullptr: it is none. The mutex is held.
ManagedAdvice* advice_at(uint64_t address) {
    Range range;
    return ranges.find(address, range) ? range.advice : nullptr;
}

// What comes in the order of a stream, and cannot be captured.
CUresult find_order(CUstream handle, uint32_t& stream) {
    const CUresult result = use_stream(handle, stream, InCapture::refused);
    return result == CUDA_SUCCESS ? captures.unsafe() : result;
}

CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location,
                CUresult absent) {
    const Locked lock(mutex);
    ManagedAdvice* const known = advice_at(address);
    return known != nullptr ? known->advise(address, bytes, advice, location, device_count(), absent)
                            : CUDA_ERROR_INVALID_VALUE;
}

CUresult prefetch(CUdeviceptr address, size_t bytes, CUmemLocation location, CUstream handle) {
    uint32_t stream = 0;
    if (const CUresult result = find_order(handle, stream); result != CUDA_SUCCESS) return result;
    const Locked lock(mutex);
    ManagedAdvice* const known = advice_at(address);
    return known != nullptr
               ? known->prefetch(address, bytes, location, device_count(), CUDA_ERROR_INVALID_DEVICE)
               : CUDA_ERROR_INVALID_VALUE;
}

// Of each range of a batch; the legacy default stream takes none.
template <class Body>
CUresult each_range(const CUdeviceptr* list, const size_t* sizes, size_t count, unsigned long long flags,
                    CUstream handle, Body body) {
    uint32_t stream = 0;
    if (const CUresult result = find_order(handle, stream); result != CUDA_SUCCESS) return result;
    if (list == nullptr || sizes == nullptr || count == 0 || flags != 0 || stream_number(stream) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    const Locked lock(mutex);
    for (size_t i = 0; i < count; ++i) {
        ManagedAdvice* const known = advice_at(list[i]);
        if (known == nullptr || !known->holds(list[i], sizes[i])) return CUDA_ERROR_INVALID_VALUE;
        if (const CUresult result = body(*known, i); result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

}  // namespace

void forget(ManagedAdvice* advice) {
    const Locked lock(mutex);
    delete advice;
}

CUresult allocate_managed(Device& device, uint64_t bytes, const CUmemLocation& preferred, Range& range) {
    range.kind = Range::Kind::managed;
    if (const CUresult result = allocate_host(device, bytes, range); result != CUDA_SUCCESS) return result;
    range.advice = new (std::nothrow) ManagedAdvice(range.address, bytes);
    if (range.advice == nullptr) {
        ranges.take(range.address, Range::Kind::managed, range);
        free_host(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (preferred.type != CU_MEM_LOCATION_TYPE_NONE)
        range.advice->advise(range.address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, preferred,
                             device_count(), CUDA_ERROR_INVALID_VALUE);
    ranges.add(range);
    return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned int flags) {
    if (address == nullptr || bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = captures.unsafe(); result != CUDA_SUCCESS) return result;
    Range range = {.flags = flags, .context = thread.home()};
    const CUresult result =
        allocate_managed(current_device(), bytes, {CU_MEM_LOCATION_TYPE_NONE, {0}}, range);
    if (result == CUDA_SUCCESS) *address = range.address;
    return result;
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location) {
    return advise(address, bytes, advice, location, CUDA_ERROR_INVALID_VALUE);
}
CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device) {
    return advise(address, bytes, advice, location_of(device), CUDA_ERROR_INVALID_DEVICE);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags,
                               CUstream stream) {
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : prefetch(address, bytes, location, stream);
}
CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) {
    return prefetch(address, bytes, location_of(device), stream);
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr* list, size_t* sizes, size_t count, CUmemLocation* locations,
                                 size_t* first, size_t location_count, unsigned long long flags,
                                 CUstream stream) {
    const PrefetchBatch batch = {locations, first, location_count, count};
    if (!batch.makes_sense()) return CUDA_ERROR_INVALID_VALUE;
    return each_range(list, sizes, count, flags, stream, [&](ManagedAdvice& known, size_t i) {
        return known.prefetch(list[i], sizes[i], batch.location(i), device_count(), CUDA_ERROR_INVALID_VALUE);
    });
}
CUresult cuMemDiscardBatchAsync(CUdeviceptr* list, size_t* sizes, size_t count, unsigned long long flags,
                                CUstream stream) {
    return each_range(list, sizes, count, flags, stream, [](ManagedAdvice&, size_t) { return CUDA_SUCCESS; });
}
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* list, size_t* sizes, size_t count,
                                           CUmemLocation* locations, size_t* first, size_t location_count,
                                           unsigned long long flags, CUstream stream) {
    return fikit::shim::cuMemPrefetchBatchAsync(list, sizes, count, locations, first, location_count, flags,
                                                stream);
}

CUresult cuMemRangeGetAttributes(void** data, size_t* sizes, CUmem_range_attribute* attributes, size_t count,
                                 CUdeviceptr address, size_t bytes) {
    if (data == nullptr || sizes == nullptr || attributes == nullptr || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    const Locked lock(mutex);
    const ManagedAdvice* const known = advice_at(address);
    if (known == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i)
        if (const CUresult result = known->attribute(data[i], sizes[i], attributes[i], address, bytes);
            result != CUDA_SUCCESS)
            return result;
    return CUDA_SUCCESS;
}
CUresult cuMemRangeGetAttribute(void* data, size_t size, CUmem_range_attribute attribute, CUdeviceptr address,
                                size_t bytes) {
    return fikit::shim::cuMemRangeGetAttributes(&data, &size, &attribute, 1, address, bytes);
}

// Every stream and the host may use it at any time, whatever it is attached to.
CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t length, unsigned int flags) {
    uint32_t stream = 0;
    if (const CUresult result = find_order(handle, stream); result != CUDA_SUCCESS) return result;
    Range range;
    const bool one =
        flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || flags == CU_MEM_ATTACH_SINGLE;
    if (!one || (flags == CU_MEM_ATTACH_SINGLE && stream_number(stream) == 0) ||
        !ranges.find(address, range) || range.kind != Range::Kind::managed || range.address != address ||
        (length != 0 && length != range.bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

}  // namespace fikit::shim
