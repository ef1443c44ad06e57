// Managed memory: the host's pages, which the device reaches at the same address. Nothing migrates, so what a
// program advises, prefetches or discards is remembered and changes nothing.
#include "capture.hpp"
#include "pool.hpp"

using namespace fikit::sim;
using fikit::location_of;

namespace {

int device_count(const Driver& driver) { return static_cast<int>(driver.devices.size()); }

// What is known of the managed memory there; null where it is none.
fikit::ManagedAdvice* advice_at(Driver& driver, CUdeviceptr address) {
    const Block* block = driver.block_of(address);
    return block == nullptr ? nullptr : block->advice.get();
}

CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location,
                CUresult absent) {
    return with_context([&](Driver& driver, Driver::Lock&, Context&, SimulatedDevice&) -> CUresult {
        auto* known = advice_at(driver, address);
        return known == nullptr
                   ? CUDA_ERROR_INVALID_VALUE
                   : known->advise(address, bytes, advice, location, device_count(driver), absent);
    });
}

// What comes in the order of a stream, and cannot be captured.
template <typename Body>
CUresult in_order(CUstream where, Body body) {
    return with_stream(where, InCapture::refused,
                       [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) {
                           const CUresult result = refuse_unsafe(driver);
                           return result == CUDA_SUCCESS ? body(driver, stream) : result;
                       });
}

CUresult prefetch(CUdeviceptr address, size_t bytes, CUmemLocation location, CUstream where) {
    return in_order(where, [&](Driver& driver, Stream&) -> CUresult {
        auto* known = advice_at(driver, address);
        return known == nullptr ? CUDA_ERROR_INVALID_VALUE
                                : known->prefetch(address, bytes, location, device_count(driver),
                                                  CUDA_ERROR_INVALID_DEVICE);
    });
}

// Of each range of a batch; the legacy default stream takes none.
template <typename Body>
CUresult each_range(const CUdeviceptr* ranges, const size_t* sizes, size_t count, unsigned long long flags,
                    CUstream where, Body body) {
    return in_order(where, [&](Driver& driver, Stream& stream) -> CUresult {
        if (ranges == nullptr || sizes == nullptr || count == 0 || flags != 0 ||
            stream.kind == Stream::Kind::legacy)
            return CUDA_ERROR_INVALID_VALUE;
        for (size_t index = 0; index < count; ++index) {
            auto* known = advice_at(driver, ranges[index]);
            if (known == nullptr || !known->holds(ranges[index], sizes[index]))
                return CUDA_ERROR_INVALID_VALUE;
            if (const CUresult result = body(driver, *known, index); result != CUDA_SUCCESS) return result;
        }
        return CUDA_SUCCESS;
    });
}

}  // namespace

extern "C" {

CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned int flags) {
    return with_context([&](Driver& driver, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        if (address == nullptr || bytes == 0 ||
            (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
            return CUDA_ERROR_INVALID_VALUE;
        if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
        if (const CUresult fault = driver.allocation_fault(); fault != CUDA_SUCCESS) return fault;
        Block block;
        block.address = allocate_host_pages(driver.space, bytes);
        if (block.address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
        driver.charge(model::call::allocate);
        block.bytes = bytes;
        block.context = &home_of(context);
        block.device = context.device;
        block.flags = flags;
        block.id = driver.next_id++;
        make_managed(block);
        driver.blocks[block.address] = block;
        *address = block.address;
        return CUDA_SUCCESS;
    });
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

CUresult cuMemPrefetchBatchAsync(CUdeviceptr* ranges, size_t* sizes, size_t count, CUmemLocation* locations,
                                 size_t* first, size_t location_count, unsigned long long flags,
                                 CUstream stream) {
    const fikit::PrefetchBatch batch = {locations, first, location_count, count};
    if (!batch.makes_sense()) return CUDA_ERROR_INVALID_VALUE;
    return each_range(ranges, sizes, count, flags, stream,
                      [&](Driver& driver, fikit::ManagedAdvice& known, size_t index) {
                          return known.prefetch(ranges[index], sizes[index], batch.location(index),
                                                device_count(driver), CUDA_ERROR_INVALID_VALUE);
                      });
}
CUresult cuMemDiscardBatchAsync(CUdeviceptr* ranges, size_t* sizes, size_t count, unsigned long long flags,
                                CUstream stream) {
    return each_range(ranges, sizes, count, flags, stream,
                      [](Driver&, fikit::ManagedAdvice&, size_t) { return CUDA_SUCCESS; });
}
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* ranges, size_t* sizes, size_t count,
                                           CUmemLocation* locations, size_t* first, size_t location_count,
                                           unsigned long long flags, CUstream stream) {
    return cuMemPrefetchBatchAsync(ranges, sizes, count, locations, first, location_count, flags, stream);
}

CUresult cuMemRangeGetAttribute(void* data, size_t size, CUmem_range_attribute attribute, CUdeviceptr address,
                                size_t bytes) {
    return cuMemRangeGetAttributes(&data, &size, &attribute, 1, address, bytes);
}
CUresult cuMemRangeGetAttributes(void** data, size_t* sizes, CUmem_range_attribute* attributes, size_t count,
                                 CUdeviceptr address, size_t bytes) {
    return with_context([&](Driver& driver, Driver::Lock&, Context&, SimulatedDevice&) -> CUresult {
        const auto* known = advice_at(driver, address);
        if (known == nullptr || data == nullptr || sizes == nullptr || attributes == nullptr || count == 0)
            return CUDA_ERROR_INVALID_VALUE;
        for (size_t index = 0; index < count; ++index) {
            const CUresult result =
                known->attribute(data[index], sizes[index], attributes[index], address, bytes);
            if (result != CUDA_SUCCESS) return result;
        }
        return CUDA_SUCCESS;
    });
}

// Every stream and the host may use it at any time, whatever it is attached to.
CUresult cuStreamAttachMemAsync(CUstream where, CUdeviceptr address, size_t length, unsigned int flags) {
    return in_order(where, [&](Driver& driver, Stream& stream) -> CUresult {
        const Block* block = driver.block_of(address);
        if (block == nullptr || !block->managed() || block->address != address ||
            (length != 0 && length != block->bytes))
            return CUDA_ERROR_INVALID_VALUE;
        if (flags == CU_MEM_ATTACH_SINGLE && stream.kind == Stream::Kind::legacy)
            return CUDA_ERROR_INVALID_VALUE;
        return flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || flags == CU_MEM_ATTACH_SINGLE
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_VALUE;
    });
}

}  // extern "C"
