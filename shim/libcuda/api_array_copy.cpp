// Copies that have an array as an end: one operation each, whatever the number of rows. They stay on one
// device.
#include "arrays.hpp"
#include "copies.hpp"
#include "entry.hpp"
#include "printed.hpp"
#include "ranges.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

// One end, as the record has it.
struct End {
    fikit_copy_end end = {};
    const Array* array = nullptr;
    uint64_t address = 0;  // of memory
    Range range = {};      // in which that lies; of pageable memory, none
    bool known = false;

    // Whose session has it; nullptr: any of them.
    Device* device() const {
        if (array != nullptr) return array->memory->device;
        const bool has = known && range.kind != Range::Kind::registered;
        return has ? &process.device(range.device) : nullptr;
    }
    bool on_host() const { return array == nullptr && !(known && range.on_device()); }
};

CUresult find_array(CUarray handle, uint64_t x, uint64_t y, uint64_t z, const CUDA_MEMCPY3D& copy, End& end) {
    end.array = array_of(handle);
    if (end.array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const fikit_array_shape shape = end.array->shape();
    const uint64_t element = element_bytes(shape);
    if (x % element != 0 || copy.WidthInBytes % element != 0 ||
        !holds(shape, {x, y, z}, {copy.WidthInBytes, copy.Height, copy.Depth}))
        return CUDA_ERROR_INVALID_VALUE;
    end.end = {end.array->memory->number, end.array->level, x, y, z, 0, 0};
    return CUDA_SUCCESS;
}

CUresult find_memory(CUresult result, const Side& side, End& end) {
    if (result != CUDA_SUCCESS) return result;
    end.address = side.address;
    end.known = ranges.find(side.address, end.range);
    end.end.pitch = side.pitch;
    end.end.height = side.slice / side.pitch;
    return CUDA_SUCCESS;
}

CUresult find_ends(const CUDA_MEMCPY3D& c, End& to, End& from) {
    Side side;
    const CUresult result = c.dstMemoryType == CU_MEMORYTYPE_ARRAY
                                ? find_array(c.dstArray, c.dstXInBytes, c.dstY, c.dstZ, c, to)
                                : find_memory(check_target(c, side), side, to);
    if (result != CUDA_SUCCESS) return result;
    return c.srcMemoryType == CU_MEMORYTYPE_ARRAY
               ? find_array(c.srcArray, c.srcXInBytes, c.srcY, c.srcZ, c, from)
               : find_memory(check_source(c, side), side, from);
}

// Of the calls for lines.
struct Line {
    CUmemorytype type;
    uint64_t address;
    CUarray array;
    size_t x;
};
Line host(const void* address) { return {CU_MEMORYTYPE_HOST, reinterpret_cast<uintptr_t>(address), {}, 0}; }
Line device(CUdeviceptr address) { return {CU_MEMORYTYPE_DEVICE, address, {}, 0}; }
Line array(CUarray handle, size_t x) { return {CU_MEMORYTYPE_ARRAY, 0, handle, x}; }

CUresult copy_line(CUstream stream, const Line& to, const Line& from, size_t bytes, bool wait) {
    CUDA_MEMCPY3D copy = {};
    copy.dstMemoryType = to.type;
    copy.dstHost = reinterpret_cast<void*>(to.address);
    copy.dstDevice = to.address;
    copy.dstArray = to.array;
    copy.dstXInBytes = to.x;
    copy.srcMemoryType = from.type;
    copy.srcHost = reinterpret_cast<void*>(from.address);
    copy.srcDevice = from.address;
    copy.srcArray = from.array;
    copy.srcXInBytes = from.x;
    copy.WidthInBytes = bytes;
    copy.Height = copy.Depth = 1;
    return copy_volume(stream, copy, wait);
}

}  // namespace

CUresult check_array_copy(const CUDA_MEMCPY3D& copy) {
    End to, from;
    return find_ends(copy, to, from);
}

CUresult copy_array(const CUDA_MEMCPY3D& copy, uint32_t stream, bool wait) {
    End to, from;
    if (const CUresult result = find_ends(copy, to, from); result != CUDA_SUCCESS) return result;
    Device& own = device_of(stream);
    for (const End* const end : {&to, &from})
        if (end->device() != nullptr && end->device() != &own) return CUDA_ERROR_NOT_SUPPORTED;
    fikit_copy_rows rows = {};
    rows.copy.kind = from.on_host() ? FIKIT_COPY_TO_DEVICE
                     : to.on_host() ? FIKIT_COPY_TO_HOST
                                    : FIKIT_COPY_ON_DEVICE;
    rows.copy.device = from.on_host() || !to.on_host() ? to.address : from.address;
    rows.copy.other = from.address;
    rows.to = to.end;
    rows.from = from.end;
    rows.width = copy.WidthInBytes;
    rows.rows = copy.Height;
    rows.slices = copy.Depth;
    void* const host = rows.copy.kind == FIKIT_COPY_ON_DEVICE
                           ? nullptr
                           : reinterpret_cast<void*>(to.on_host() ? to.address : from.address);
    const Status status = own.producer->copy_rows(stream_number(stream), rows, host);
    // Asynchronous for the host between arrays and device memory, as other copies on the device.
    if (status != status::success || !wait || host == nullptr) return result_of(status);
    return synchronised(own, own.producer->stream_synchronize(stream_number(stream)));
}

CUresult cuMemcpyDtoA_v2(CUarray to, size_t x, CUdeviceptr from, size_t bytes) {
    return copy_line(nullptr, array(to, x), device(from), bytes, true);
}
CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t x, size_t bytes) {
    return copy_line(nullptr, device(to), array(from, x), bytes, true);
}
CUresult cuMemcpyHtoA_v2(CUarray to, size_t x, const void* from, size_t bytes) {
    return copy_line(nullptr, array(to, x), host(from), bytes, true);
}
CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t x, const void* from, size_t bytes, CUstream stream) {
    return copy_line(stream, array(to, x), host(from), bytes, false);
}
CUresult cuMemcpyAtoH_v2(void* to, CUarray from, size_t x, size_t bytes) {
    return copy_line(nullptr, host(to), array(from, x), bytes, true);
}
CUresult cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t x, size_t bytes, CUstream stream) {
    return copy_line(stream, host(to), array(from, x), bytes, false);
}
CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_x, CUarray from, size_t from_x, size_t bytes) {
    return copy_line(nullptr, array(to, to_x), array(from, from_x), bytes, true);
}

}  // namespace fikit::shim
