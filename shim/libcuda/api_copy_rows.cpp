// Copies of rows and of layers, of which arrays may be an end: one operation each, whatever the number of
// rows. What lies on another device goes row by row, through this process.
#include <string.h>

#include "arrays.hpp"
#include "capture.hpp"
#include "copies.hpp"
#include "entry.hpp"
#include "host_memory.hpp"
#include "printed.hpp"
#include "ranges.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

CUresult side_of(CUmemorytype type, const void* host, CUdeviceptr device, uint64_t x, uint64_t y, uint64_t z,
                 uint64_t pitch, uint64_t height, const CUDA_MEMCPY3D& c, Side& side) {
    if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
        return CUDA_ERROR_INVALID_VALUE;
    const uint64_t base = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uintptr_t>(host) : device;
    uint64_t row = 0, column = 0, slice = 0, rows = 0, all = 0, offset = 0;
    if (__builtin_add_overflow(x, c.WidthInBytes, &row) || __builtin_add_overflow(y, c.Height, &column))
        return CUDA_ERROR_INVALID_VALUE;
    // Of what is not said it is as much as the copy reaches into (driver 580).
    if (pitch == 0) pitch = row;
    if (height == 0) height = column;
    if (base == 0 || row > pitch || column > height || __builtin_mul_overflow(pitch, height, &slice) ||
        __builtin_mul_overflow(pitch, c.Height, &rows) || __builtin_mul_overflow(slice, c.Depth, &all) ||
        __builtin_mul_overflow(slice, z, &offset))
        return CUDA_ERROR_INVALID_VALUE;
    side = {base + offset + y * pitch + x, pitch, slice};
    return CUDA_SUCCESS;
}

CUresult target_of(const CUDA_MEMCPY3D& c, Side& to) {
    return side_of(c.dstMemoryType, c.dstHost, c.dstDevice, c.dstXInBytes, c.dstY, c.dstZ, c.dstPitch,
                   c.dstHeight, c, to);
}
CUresult source_of(const CUDA_MEMCPY3D& c, Side& from) {
    return side_of(c.srcMemoryType, c.srcHost, c.srcDevice, c.srcXInBytes, c.srcY, c.srcZ, c.srcPitch,
                   c.srcHeight, c, from);
}

// Any description of rows as CUDA_MEMCPY3D has it.
template <class Description>
CUDA_MEMCPY3D rows_of(const Description& c) {
    CUDA_MEMCPY3D rows = {};
    rows.dstMemoryType = c.dstMemoryType;
    rows.dstHost = c.dstHost;
    rows.dstDevice = c.dstDevice;
    rows.dstArray = c.dstArray;
    rows.dstXInBytes = c.dstXInBytes;
    rows.dstY = c.dstY;
    rows.dstPitch = c.dstPitch;
    rows.srcMemoryType = c.srcMemoryType;
    rows.srcHost = c.srcHost;
    rows.srcDevice = c.srcDevice;
    rows.srcArray = c.srcArray;
    rows.srcXInBytes = c.srcXInBytes;
    rows.srcY = c.srcY;
    rows.srcPitch = c.srcPitch;
    rows.WidthInBytes = c.WidthInBytes;
    rows.Height = c.Height;
    rows.Depth = 1;
    if constexpr (requires { c.Depth; }) {
        rows.dstZ = c.dstZ;
        rows.dstHeight = c.dstHeight;
        rows.srcZ = c.srcZ;
        rows.srcHeight = c.srcHeight;
        rows.Depth = c.Depth;
    }
    return rows;
}

// One end, as the record has it.
struct End {
    fikit_copy_end end = {};
    const Array* array = nullptr;
    Side side = {};  // of memory
    Range range;     // in which that lies, if it is
    bool known = false;

    // Whose session has it; nullptr: any may.
    Device* device() const {
        if (array != nullptr) return array->memory->device;
        const bool has = known && range.kind != Range::Kind::registered;
        return has ? &process.device(range.device) : nullptr;
    }
    bool on_host() const { return array == nullptr && !(known && range.on_device()); }
    bool managed() const { return known && range.kind == Range::Kind::managed; }
};

CUresult find_array(CUarray handle, uint64_t x, uint64_t y, uint64_t z, const CUDA_MEMCPY3D& c, End& end) {
    end.array = array_of(handle);
    if (end.array == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!holds(end.array->shape(), {x, y, z}, {c.WidthInBytes, c.Height, c.Depth}))
        return CUDA_ERROR_INVALID_VALUE;
    end.end = {end.array->memory->number, end.array->level, x, y, z, 0, 0};
    return CUDA_SUCCESS;
}

// All of it must be there before anything is copied; of pageable memory nobody knows.
CUresult find_memory(CUresult result, CUmemorytype type, const CUDA_MEMCPY3D& c, End& end) {
    if (result != CUDA_SUCCESS) return result;
    const Side& side = end.side;
    end.end.pitch = side.pitch;
    end.end.height = side.slice / side.pitch;
    const uint64_t bytes = (c.Depth - 1) * side.slice + (c.Height - 1) * side.pitch + c.WidthInBytes;
    const Ranges::Held held = ranges.find(side.address, bytes, end.range);
    end.known = held != Ranges::Held::nowhere;
    if (type == CU_MEMORYTYPE_DEVICE && (!end.known || end.range.host_pooled()))
        return CUDA_ERROR_INVALID_VALUE;
    if (!end.known) return CUDA_SUCCESS;
    return held == Ranges::Held::wholly ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Layers of one dimension lie as rows do: device memory at the other end has them a pitch apart, whatever its
// height is said to be (as an H200).
void close_up(const End& layers, End& memory) {
    if (layers.array == nullptr || memory.on_host() || memory.array != nullptr) return;
    const fikit_array_shape shape = layers.array->shape();
    if (shape.height != 0 || (shape.flags & CUDA_ARRAY3D_LAYERED) == 0) return;
    memory.side.slice = memory.side.pitch;
    memory.end.height = 1;
}

CUresult find_ends(const CUDA_MEMCPY3D& c, End& to, End& from) {
    CUresult result = c.dstMemoryType == CU_MEMORYTYPE_ARRAY
                          ? find_array(c.dstArray, c.dstXInBytes, c.dstY, c.dstZ, c, to)
                          : find_memory(target_of(c, to.side), c.dstMemoryType, c, to);
    if (result != CUDA_SUCCESS) return result;
    if (to.known && to.range.read_only()) return CUDA_ERROR_INVALID_VALUE;
    result = c.srcMemoryType == CU_MEMORYTYPE_ARRAY
                 ? find_array(c.srcArray, c.srcXInBytes, c.srcY, c.srcZ, c, from)
                 : find_memory(source_of(c, from.side), c.srcMemoryType, c, from);
    close_up(to, from);
    close_up(from, to);
    return result;
}

// One stretch of memory: a plain copy.
bool is_line(const CUDA_MEMCPY3D& c, const End& end) {
    return end.array == nullptr && c.Depth == 1 && (c.Height == 1 || end.side.pitch == c.WidthInBytes);
}

// Between two devices, on the host, or a single one.
CUresult copy_each_row(const CUDA_MEMCPY3D& c, const Side& to, const Side& from, uint32_t stream, bool wait) {
    if (wait && process.device_count() > 1)
        if (const CUresult result = settle(to.address, from.address); result != CUDA_SUCCESS) return result;
    CUresult result = CUDA_SUCCESS;
    each_row(c, [&](uint64_t row_to, uint64_t row_from, uint64_t bytes) {
        result = copy_memory(row_to, row_from, bytes, stream, false);
        return result == CUDA_SUCCESS;
    });
    if (result != CUDA_SUCCESS || !wait) return result;
    return synchronised(device_of(stream), producer_of(stream).stream_synchronize(stream_number(stream)));
}

CUresult copy_at_once(const CUDA_MEMCPY3D& c, const End& to, const End& from, uint32_t stream, bool wait) {
    fikit_copy_rows rows = {};
    rows.copy.kind = from.on_host() ? FIKIT_COPY_TO_DEVICE
                     : to.on_host() ? FIKIT_COPY_TO_HOST
                                    : FIKIT_COPY_ON_DEVICE;
    rows.copy.device = to.on_host() ? from.side.address : to.side.address;
    rows.copy.other = from.side.address;
    rows.to = to.end;
    rows.from = from.end;
    rows.width = c.WidthInBytes;
    rows.rows = c.Height;
    rows.slices = c.Depth;
    void* host = nullptr;
    if (rows.copy.kind != FIKIT_COPY_ON_DEVICE)
        host = reinterpret_cast<void*>(to.on_host() ? to.side.address : from.side.address);
    const auto address = reinterpret_cast<uint64_t>(host);
    if (rows.copy.kind == FIKIT_COPY_TO_DEVICE && is_unreached(address)) [[unlikely]]
        if (const CUresult result = await_writers(address, stream); result != CUDA_SUCCESS) return result;
    Device& device = device_of(stream);
    const Status status = device.producer->copy_rows(stream_number(stream), rows, host);
    // Asynchronous for the host on the device, as other copies there, unless the host can see it.
    const bool seen = host != nullptr || to.managed() || from.managed();
    if (status != status::success || !wait || !seen) return result_of(status);
    return synchronised(device, device.producer->stream_synchronize(stream_number(stream)));
}

CUresult copy_ends(const CUDA_MEMCPY3D& c, const End& to, const End& from, uint32_t stream, bool wait) {
    const Device* const own = &device_of(stream);
    const auto is_own = [&](const End& end) { return end.device() == nullptr || end.device() == own; };
    const bool array = to.array != nullptr || from.array != nullptr;
    if (array && !(is_own(to) && is_own(from))) return CUDA_ERROR_NOT_SUPPORTED;
    const bool line = is_line(c, to) && is_line(c, from);
    const bool at_once = !line && is_own(to) && is_own(from) && !(to.on_host() && from.on_host());
    return at_once ? copy_at_once(c, to, from, stream, wait)
                   : copy_each_row(c, to.side, from.side, stream, wait);
}

// Of a call: on its stream or, while that captures, written down.
template <class Description>
CUresult copy_described(CUstream handle, const Description* description, bool wait) {
    uint32_t stream = 0;
    if (const CUresult result = use_stream(handle, stream, in_capture(wait)); result != CUDA_SUCCESS)
        return result;
    if (description == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_MEMCPY3D copy = rows_of(*description);
    if (copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0) return usable(producer_of(stream));
    End to, from;
    if (const CUresult result = find_ends(copy, to, from); result != CUDA_SUCCESS) return result;
    if (!captures.capturing(stream)) return copy_ends(copy, to, from, stream, wait);
    return captures.add(stream, CU_GRAPH_NODE_TYPE_MEMCPY, [&](Node& node) {
        node.copy = copy;
        return true;
    });
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
    return copy_described(stream, &copy, wait);
}

// One side of a copy in a batch, whose lengths are in elements: those of the array that a side is, else
// bytes.
struct Operand {
    CUmemorytype type = CU_MEMORYTYPE_UNIFIED;
    CUdeviceptr address = 0;
    CUarray array = nullptr;
    CUoffset3D offset = {};
    size_t row = 0, layer = 0;
    uint64_t element = 0;
};

CUresult operand_of(const CUmemcpy3DOperand& given, Operand& operand) {
    switch (given.type) {
        case CU_MEMCPY_OPERAND_TYPE_POINTER:
            operand.address = given.op.ptr.ptr;
            operand.row = given.op.ptr.rowLength;
            operand.layer = given.op.ptr.layerHeight;
            return CUDA_SUCCESS;
        case CU_MEMCPY_OPERAND_TYPE_ARRAY: {
            operand.type = CU_MEMORYTYPE_ARRAY;
            operand.array = given.op.array.array;
            operand.offset = given.op.array.offset;
            const Array* const array = array_of(operand.array);
            if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
            operand.element = element_bytes(array->shape());
            return CUDA_SUCCESS;
        }
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult copy_of_batch(const CUDA_MEMCPY3D_BATCH_OP& given, CUstream stream) {
    const CUextent3D& extent = given.extent;
    if (!is_known(given) || extent.width == 0 || extent.height == 0 || extent.depth == 0)
        return CUDA_ERROR_INVALID_VALUE;
    Operand to, from;
    CUresult result = operand_of(given.dst, to);
    if (result == CUDA_SUCCESS) result = operand_of(given.src, from);
    if (result != CUDA_SUCCESS) return result;
    if (to.array != nullptr && from.array != nullptr && to.element != from.element)
        return CUDA_ERROR_INVALID_VALUE;
    const uint64_t element = to.element != 0 ? to.element : from.element != 0 ? from.element : 1;
    CUDA_MEMCPY3D copy = {};
    if (__builtin_mul_overflow(extent.width, element, &copy.WidthInBytes) ||
        __builtin_mul_overflow(to.offset.x, element, &copy.dstXInBytes) ||
        __builtin_mul_overflow(to.row, element, &copy.dstPitch) ||
        __builtin_mul_overflow(from.offset.x, element, &copy.srcXInBytes) ||
        __builtin_mul_overflow(from.row, element, &copy.srcPitch))
        return CUDA_ERROR_INVALID_VALUE;
    copy.dstMemoryType = to.type;
    copy.dstDevice = to.address;
    copy.dstArray = to.array;
    copy.dstY = to.offset.y;
    copy.dstZ = to.offset.z;
    copy.dstHeight = to.layer;
    copy.srcMemoryType = from.type;
    copy.srcDevice = from.address;
    copy.srcArray = from.array;
    copy.srcY = from.offset.y;
    copy.srcZ = from.offset.z;
    copy.srcHeight = from.layer;
    copy.Height = extent.height;
    copy.Depth = extent.depth;
    return copy_described(stream, &copy, false);
}

}  // namespace

CUresult sides_of(const CUDA_MEMCPY3D& c, Side& to, Side& from) {
    const CUresult result = target_of(c, to);
    return result != CUDA_SUCCESS ? result : source_of(c, from);
}

CUresult check_rows(const CUDA_MEMCPY3D& copy) {
    End to, from;
    return find_ends(copy, to, from);
}

CUresult copy_rows(const CUDA_MEMCPY3D& copy, uint32_t stream) {
    End to, from;
    const CUresult result = find_ends(copy, to, from);
    return result == CUDA_SUCCESS ? copy_ends(copy, to, from, stream, false) : result;
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* what) { return copy_described(nullptr, what, true); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* what) { return copy_described(nullptr, what, true); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* what, CUstream stream) {
    return copy_described(stream, what, false);
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* what) { return copy_described(nullptr, what, true); }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* what, CUstream stream) {
    return copy_described(stream, what, false);
}

// Whose memory it is the addresses tell.
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* what) { return copy_described(nullptr, what, true); }
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* what, CUstream stream) {
    return copy_described(stream, what, false);
}

CUresult cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, size_t* failed,
                              unsigned long long flags, CUstream stream) {
    if (failed != nullptr) *failed = SIZE_MAX;
    if (count == 0 || copies == nullptr || flags != 0 || !takes_batches(stream))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i)
        if (const CUresult result = copy_of_batch(copies[i], stream); result != CUDA_SUCCESS) {
            if (failed != nullptr) *failed = i;
            return result;
        }
    return CUDA_SUCCESS;
}
CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, unsigned long long flags,
                                 CUstream stream) {
    return fikit::shim::cuMemcpy3DBatchAsync(count, copies, nullptr, flags, stream);
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
