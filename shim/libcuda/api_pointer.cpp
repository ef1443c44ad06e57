// What an address is: answered from the session's ranges.
#include <string.h>

#include "entry.hpp"
#include "memory_map.hpp"
#include "pool.hpp"
#include "ranges.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

template <class Value>
CUresult give(void* into, Value value) {
    memcpy(into, &value, sizeof value);
    return CUDA_SUCCESS;
}

// How far a device may use it: what a program maps as it said.
unsigned access_to(const Range& range) {
    if (range.read_only()) return CU_MEM_ACCESS_FLAGS_PROT_READ;
    return range.kind == Range::Kind::mapped ? range.flags : unsigned{CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

CUresult attribute_of(void* into, CUpointer_attribute attribute, uint64_t address, const Range& range) {
    const uint64_t offset = address - range.address;
    const bool device = range.on_device(), managed = range.kind == Range::Kind::managed;
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            if (range.pool != nullptr || range.kind == Range::Kind::mapped)
                return give(into, CUcontext{nullptr});
            return give(into, range.context != nullptr ? range.context->name
                                                       : process.device(range.device).primary().name);
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            return give(into, static_cast<unsigned>(device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST));
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            if (range.device_address == 0 || (range.host_pooled() && !range.pool->reachable()) ||
                access_to(range) == CU_MEM_ACCESS_FLAGS_PROT_NONE)
                return CUDA_ERROR_INVALID_VALUE;
            return give(into, range.device_address + offset);
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            if (device && !managed) return CUDA_ERROR_INVALID_VALUE;
            return give(into, address);
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
            return give(into, range.synchronous || managed ? 1u : 0u);
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            return give(into, managed ? 1u : 0u);
        case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: {
            const bool plain = range.kind == Range::Kind::device && range.pool == nullptr;
            return give(into, plain && range.graph == nullptr ? 1u : 0u);
        }
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
            return give(into, range.id);
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            // Registered memory is where it was registered, whichever device's kernels have come to reach it.
            return give(into, range.kind == Range::Kind::registered && range.context != nullptr
                                  ? range.context->device->ordinal
                                  : int{range.device});
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: {
            // Of a mapping, the whole reservation.
            Reservation whole = {range.address, range.bytes, nullptr};
            if (range.kind == Range::Kind::mapped) whole = find_reservation(address);
            return give(into, attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE ? whole.bytes : whole.address);
        }
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
            return give(into, range.address);
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
            return give(into, range.bytes);
        case CU_POINTER_ATTRIBUTE_MAPPED:
            return give(into, 1u);
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: {
            const bool shareable = range.kind == Range::Kind::mapped
                                       ? is_exportable(range.handle)
                                       : range.pool != nullptr && range.pool->shareable;
            const auto types = shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
            return give(into, uint64_t{types});
        }
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            return give(into, access_to(range));
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            return give(into, reinterpret_cast<CUmemoryPool>(range.pool));
        case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
            return CUDA_ERROR_NOT_SUPPORTED;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

// What cuPointerGetAttributes gives for memory that CUDA does not know.
void nothing_known(void* into, CUpointer_attribute attribute) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            give(into, int{CU_DEVICE_INVALID});
            break;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        case CU_POINTER_ATTRIBUTE_MAPPED:
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            give(into, 0u);
            break;
        default:
            give(into, uint64_t{0});
            break;
    }
}

}  // namespace

CUresult cuPointerGetAttribute(void* into, CUpointer_attribute attribute, CUdeviceptr address) {
    if (into == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Range range;
    if (!ranges.find(address, range)) return CUDA_ERROR_INVALID_VALUE;
    return attribute_of(into, attribute, address, range);
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** into,
                                CUdeviceptr address) {
    if (count == 0 || attributes == nullptr || into == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Range range;
    const bool known = ranges.find(address, range);
    for (unsigned i = 0; i < count; ++i)
        if (!known || attribute_of(into[i], attributes[i], address, range) != CUDA_SUCCESS)
            nothing_known(into[i], attributes[i]);
    return CUDA_SUCCESS;
}

// Copies synchronise as SYNC_MEMOPS asks in any case.
CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr address) {
    Range range;
    if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !ranges.find(address, range))
        return CUDA_ERROR_INVALID_VALUE;
    range.synchronous = *static_cast<const unsigned*>(value) != 0;
    return ranges.add(range) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
    Range range;
    if (!ranges.find(address, range) || access_to(range) == CU_MEM_ACCESS_FLAGS_PROT_NONE)
        return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = range.address;
    if (bytes != nullptr) *bytes = range.bytes;
    return CUDA_SUCCESS;
}

}  // namespace fikit::shim
