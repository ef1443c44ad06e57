// Copies and fills. Where each side lies is looked up, whatever the call says: under unified addressing that
// is what the driver does too.
#include <string.h>

#include <algorithm>

#include "bridge.hpp"
#include "capture.hpp"
#include "copies.hpp"
#include "entry.hpp"
#include "host_memory.hpp"
#include "objects.hpp"
#include "pool.hpp"
#include "printed.hpp"
#include "ranges.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

enum class Kind { host, device, wrong };

struct Found {
    Kind kind;
    int device;  // whose session has the memory; -1: none has
    bool managed = false;
    bool read_only = false;
};

// Where a range lies. Beyond the end of an allocation nothing may be touched.
[[gnu::always_inline]] inline Found look_up(uint64_t address, uint64_t bytes, bool gpu) {
    Range range;
    const Ranges::Held held = ranges.find(address, bytes, range);
    if (held == Ranges::Held::nowhere) return {gpu ? Kind::wrong : Kind::host, -1};
    if (held == Ranges::Held::partly) return {Kind::wrong, -1};
    if (range.on_device()) return {Kind::device, range.device, range.kind == Range::Kind::managed};
    if (gpu && range.host_pooled()) return {Kind::wrong, -1};
    const int device = range.kind == Range::Kind::pinned ? int{range.device} : -1;
    return {Kind::host, device, false, range.read_only()};
}

// Whether only a session on another device than the stream's knows it.
bool is_foreign(const Found& found, uint32_t stream) {
    return found.device >= 0 && found.device != static_cast<int>(stream >> stream_bits);
}

// The host's own address of what the GPU may know by another one.
void* host_address(uint64_t address) { return reinterpret_cast<void*>(address); }

struct End {
    uint64_t address;
    Found found;
    Place place() const { return {address, found.kind == Kind::device ? found.device : -1}; }
    bool pageable() const { return found.device < 0; }
};

[[gnu::noinline]] CUresult capture_copy(const End& to, const End& from, uint64_t bytes, uint32_t stream) {
    return captures.add(stream, CU_GRAPH_NODE_TYPE_MEMCPY, [&](Node& node) {
        const auto type = [](const End& end) {
            return end.found.kind == Kind::device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        };
        node.copy.dstMemoryType = type(to);
        node.copy.srcMemoryType = type(from);
        node.copy.dstHost = host_address(node.copy.dstDevice = to.address);
        node.copy.srcHost = host_address(node.copy.srcDevice = from.address);
        node.copy.dstPitch = node.copy.srcPitch = node.copy.WidthInBytes = bytes;
        node.copy.dstHeight = node.copy.srcHeight = node.copy.Height = node.copy.Depth = 1;
        return true;
    });
}

// Pageable memory has been read, or written, when the call returns.
[[gnu::noinline]] CUresult copy_between(const End& to, const End& from, uint64_t bytes, uint32_t stream,
                                        bool wait) {
    return copy_across(stream, to.place(), from.place(), bytes, wait || to.pageable() || from.pageable());
}

}  // namespace

CUresult await_writers(uint64_t from, uint32_t stream) {
    Producer& producer = producer_of(stream);
    Range range;
    if (!producer.functions_left()) return CUDA_SUCCESS;
    if (ranges.find(from, range) && (range.handle != 0 || make_reachable(from, device_of(stream))))
        return CUDA_SUCCESS;
    return result_of(producer.stream_reach(stream_number(stream)));
}

CUresult copy_memory(uint64_t to, uint64_t from, uint64_t bytes, uint32_t stream, bool wait, Sides sides) {
    if (bytes == 0) return usable(producer_of(stream));
    if (to == 0 || from == 0) return CUDA_ERROR_INVALID_VALUE;
    const Found target = look_up(to, bytes, sides == Sides::to_gpu || sides == Sides::on_gpu);
    const Found source = look_up(from, bytes, sides == Sides::from_gpu || sides == Sides::on_gpu);
    if (target.kind == Kind::wrong || target.read_only || source.kind == Kind::wrong)
        return CUDA_ERROR_INVALID_VALUE;
    const bool to_device = target.kind == Kind::device, from_device = source.kind == Kind::device;
    const bool across =
        (to_device || from_device) && (is_foreign(target, stream) || is_foreign(source, stream));
    if (captures.capturing(stream)) [[unlikely]] {
        if (!across) return capture_copy({to, target}, {from, source}, bytes, stream);
        return captures.forbid(stream, CUDA_ERROR_NOT_SUPPORTED);
    }
    if (across) [[unlikely]]
        return copy_between({to, target}, {from, source}, bytes, stream, wait);
    if (to_device && source.kind == Kind::host && is_unreached(from)) [[unlikely]]
        if (const CUresult result = await_writers(from, stream); result != CUDA_SUCCESS) return result;
    Producer& producer = producer_of(stream);
    const uint32_t number = stream_number(stream);
    Status status = status::success;
    if (to_device && from_device && !target.managed && !source.managed) {
        status = producer.copy_on_device(number, to, from, bytes);
        return result_of(status);  // asynchronous for the host, also as cuMemcpyDtoD
    }
    // The session knows managed memory as pinned memory, too.
    if (to_device && (!from_device || source.managed)) {
        status = producer.copy_to_device(number, to, host_address(from), bytes);
    } else if (from_device) {
        status = producer.copy_to_host(number, host_address(to), from, bytes);
    } else {
        status = producer.stream_reach(number);
        if (status == status::success) memmove(host_address(to), host_address(from), bytes);
        return result_of(status);
    }
    if (status != status::success || !wait) return result_of(status);
    return synchronised(device_of(stream), producer.stream_synchronize(number));
}

CUresult settle(uint64_t to, uint64_t from) {
    const Found found[] = {look_up(to, 0, false), look_up(from, 0, false)};
    if (found[0].device == found[1].device || found[0].device < 0 || found[1].device < 0) return CUDA_SUCCESS;
    for (const Found& side : found) {
        Device& device = process.device(static_cast<unsigned>(side.device));
        const CUresult result = settled(device, device.producer->settle());
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

namespace {

CUresult copy_on(CUstream handle, uint64_t to, uint64_t from, uint64_t bytes, bool wait,
                 Sides sides = Sides::any) {
    uint32_t stream = 0;
    if (const CUresult result = use_stream(handle, stream, in_capture(wait)); result != CUDA_SUCCESS)
        return result;
    if (wait && process.device_count() > 1)
        if (const CUresult result = settle(to, from); result != CUDA_SUCCESS) return result;
    return copy_memory(to, from, bytes, stream, wait, sides);
}

// Of a copy between contexts; null is the current one.
bool may_name(CUcontext context) { return context == nullptr || process.find(context) != nullptr; }

template <class Value>
void fill_host(uint64_t address, Value value, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i)
        memcpy(reinterpret_cast<char*>(address) + i * sizeof value, &value, sizeof value);
}

// Without peer access a call fills its stream's device's memory, or managed memory; a graph's node any.
enum class Reach { own, all };

bool lies_across(const Range& range, uint32_t stream) {
    return range.on_device() && range.device != stream >> stream_bits;
}
bool within_reach(const Range& range, uint32_t stream) {
    return !lies_across(range, stream) || range.kind == Range::Kind::managed;
}

// Whether the device's session can fill it: also pinned memory, if it was allocated there and has one
// address.
bool fills(const Range& range, uint32_t device) {
    const bool pinned = range.kind == Range::Kind::pinned && range.device_address == range.address;
    return (range.on_device() || pinned) && range.device == device;
}

// And whether it has come to reach what the program registered, which is shared with it if it must be.
bool reaches(uint64_t address, Range& range, Device& device) {
    return range.kind == Range::Kind::registered && make_reachable(address, device) &&
           ranges.find(address, range) && range.handle != 0 && range.device == device.ordinal;
}

// Memory that some device may write.
bool find_writable(uint64_t address, uint64_t bytes, Range& range) {
    return ranges.find(address, bytes, range) == Ranges::Held::wholly && !range.read_only() &&
           (range.kind != Range::Kind::mapped || range.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) &&
           (!range.host_pooled() || range.pool->reachable());
}

// In a capture any address will do, as on an H200: what is no memory is found out at the launch.
CUresult capture_fill(uint32_t stream, const CUDA_MEMSET_NODE_PARAMS& rows, uint64_t bytes) {
    Range range;
    if (find_writable(rows.dst, bytes, range) && lies_across(range, stream))
        return captures.forbid(stream, CUDA_ERROR_NOT_SUPPORTED);
    return captures.add(stream, CU_GRAPH_NODE_TYPE_MEMSET, [&](Node& node) {
        node.fill = rows;
        return true;
    });
}

template <class Value>
CUresult fill(uint64_t address, Value value, uint64_t count, uint32_t stream, Reach reach) {
    if (count == 0) return usable(producer_of(stream));
    uint64_t bytes = 0;
    if (address == 0 || address % sizeof value != 0 || __builtin_mul_overflow(count, sizeof value, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    Range range;
    const bool found = find_writable(address, bytes, range);
    if (found && reach == Reach::own && !within_reach(range, stream)) return CUDA_ERROR_INVALID_VALUE;
    if (captures.capturing(stream))
        return capture_fill(stream, {address, 0, value, sizeof value, count, 1}, bytes);
    if (!found) return CUDA_ERROR_INVALID_VALUE;
    if (lies_across(range, stream))
        return fill_across(stream, {address, range.device}, count, value, sizeof value);
    Producer& producer = producer_of(stream);
    if (fills(range, stream >> stream_bits) || reaches(address, range, device_of(stream)))
        return result_of(producer.fill(stream_number(stream), address, count, value, sizeof value));
    if (const Status status = producer.stream_reach(stream_number(stream))) return result_of(status);
    fill_host(address, value, count);
    return CUDA_SUCCESS;
}

// A fill that waits has been done when it returns, where the host sees the memory.
CUresult done(CUresult result, uint32_t stream, uint64_t address) {
    Range range;
    if (result != CUDA_SUCCESS || !ranges.find(address, range) ||
        (range.on_device() && range.kind != Range::Kind::managed))
        return result;
    return synchronised(device_of(stream), producer_of(stream).stream_synchronize(stream_number(stream)));
}

template <class Value>
CUresult fill_on(CUstream handle, uint64_t address, Value value, uint64_t count, bool wait) {
    uint32_t stream = 0;
    CUresult result = use_stream(handle, stream, in_capture(wait));
    if (result == CUDA_SUCCESS) result = fill(address, value, count, stream, Reach::own);
    return wait ? done(result, stream, address) : result;
}

// The first row is filled, then copied to as many rows as there are by now, so that many rows are few
// operations, which are one to other threads that use the stream.
template <class Value>
CUresult fill_by_copies(uint64_t address, uint64_t pitch, Value value, uint64_t width, uint64_t height,
                        uint32_t stream) {
    const Producer::Chain whole(producer_of(stream), stream_number(stream));
    CUDA_MEMCPY3D rows = {};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = address;
    rows.srcPitch = rows.dstPitch = pitch;
    rows.WidthInBytes = width * sizeof value;
    rows.Depth = 1;
    CUresult result = fill(address, value, width, stream, Reach::own);
    for (uint64_t done = 1; done < height && result == CUDA_SUCCESS; done += rows.Height) {
        rows.dstDevice = address + done * pitch;
        rows.Height = std::min(done, height - done);
        result = copy_rows(rows, stream);
    }
    return result;
}

template <class Value>
CUresult fill_rows(uint64_t address, uint64_t pitch, Value value, uint64_t width, uint64_t height,
                   uint32_t stream) {
    if (width == 0 || height == 0) return usable(producer_of(stream));
    uint64_t row = 0, last = 0, bytes = 0;
    if (__builtin_mul_overflow(width, sizeof value, &row) ||
        __builtin_mul_overflow(pitch, height - 1, &last) || __builtin_add_overflow(last, row, &bytes) ||
        (height > 1 && (pitch % sizeof value != 0 || pitch < row)))
        return CUDA_ERROR_INVALID_VALUE;
    if (pitch == row) return fill(address, value, width * height, stream, Reach::own);
    if (address == 0 || address % sizeof value != 0) return CUDA_ERROR_INVALID_VALUE;
    Range range;
    const bool found = find_writable(address, bytes, range);
    if (found && !within_reach(range, stream)) return CUDA_ERROR_INVALID_VALUE;
    if (captures.capturing(stream))
        return capture_fill(stream, {address, pitch, value, sizeof value, width, height}, bytes);
    if (!found) return CUDA_ERROR_INVALID_VALUE;
    if (range.on_device() && !lies_across(range, stream))
        return fill_by_copies(address, pitch, value, width, height, stream);
    for (uint64_t y = 0; y < height; ++y)
        if (const CUresult result = fill(address + y * pitch, value, width, stream, Reach::all);
            result != CUDA_SUCCESS)
            return result;
    return CUDA_SUCCESS;
}

template <class Value>
CUresult fill_2d(CUstream handle, uint64_t address, uint64_t pitch, Value value, uint64_t width,
                 uint64_t height, bool wait) {
    uint32_t stream = 0;
    CUresult result = use_stream(handle, stream, in_capture(wait));
    if (result == CUDA_SUCCESS) result = fill_rows(address, pitch, value, width, height, stream);
    return wait ? done(result, stream, address) : result;
}

uint64_t number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

}  // namespace

bool is_writable(uint64_t address, uint64_t bytes) {
    Range range;
    return find_writable(address, bytes, range);
}

bool is_memory_of(uint64_t address, const Device& device) {
    const Found found = look_up(address, 0, true);
    return found.kind == Kind::device && found.device == device.ordinal;
}

bool fills(const Device& device, uint64_t address) {
    Range range;
    return ranges.find(address, range) && fills(range, device.ordinal);
}

CUresult fill_memory(uint64_t address, uint32_t value, uint32_t width, uint64_t count, uint32_t stream) {
    if (width == 1) return fill(address, static_cast<uint8_t>(value), count, stream, Reach::all);
    if (width == 2) return fill(address, static_cast<uint16_t>(value), count, stream, Reach::all);
    return fill(address, value, count, stream, Reach::all);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return copy_on(nullptr, to, from, bytes, true);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy_on(stream, to, from, bytes, false);
}
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                      size_t bytes) {
    if (!may_name(to_context) || !may_name(from_context)) return CUDA_ERROR_INVALID_CONTEXT;
    return copy_on(nullptr, to, from, bytes, true, Sides::on_gpu);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                           size_t bytes, CUstream stream) {
    if (!may_name(to_context) || !may_name(from_context)) return CUDA_ERROR_INVALID_CONTEXT;
    return copy_on(stream, to, from, bytes, false, Sides::on_gpu);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
    return copy_on(nullptr, to, number(from), bytes, true, Sides::to_gpu);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    return copy_on(stream, to, number(from), bytes, false, Sides::to_gpu);
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
    return copy_on(nullptr, number(to), from, bytes, true, Sides::from_gpu);
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy_on(stream, number(to), from, bytes, false, Sides::from_gpu);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return copy_on(nullptr, to, from, bytes, true, Sides::on_gpu);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy_on(stream, to, from, bytes, false, Sides::on_gpu);
}

// The attributes are hints about where a side lies and when its source is read; both hold in any case.
CUresult cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                            CUmemcpyAttributes* attributes, size_t* first, size_t attribute_count,
                            size_t* failed, CUstream stream) {
    if (failed != nullptr) *failed = SIZE_MAX;
    if (to == nullptr || from == nullptr || bytes == nullptr || count == 0 || attributes == nullptr ||
        first == nullptr || attribute_count == 0 || attribute_count > count || !takes_batches(stream) ||
        first[0] != 0 || std::find(bytes, bytes + count, 0) != bytes + count)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < attribute_count; ++i)
        if (!is_known(attributes[i]) || first[i] >= count || (i != 0 && first[i] <= first[i - 1]))
            return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i)
        if (const CUresult result = copy_on(stream, to[i], from[i], bytes[i], false);
            result != CUDA_SUCCESS) {
            if (failed != nullptr) *failed = i;
            return result;
        }
    return CUDA_SUCCESS;
}
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                               CUmemcpyAttributes* attributes, size_t* first, size_t attribute_count,
                               CUstream stream) {
    return fikit::shim::cuMemcpyBatchAsync(to, from, bytes, count, attributes, first, attribute_count,
                                           nullptr, stream);
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
    return fill_on(nullptr, to, value, count, true);
}
CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
    return fill_on(nullptr, to, value, count, true);
}
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count) {
    return fill_on(nullptr, to, value, count, true);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    return fill_on(stream, to, value, count, false);
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
    return fill_on(stream, to, value, count, false);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
    return fill_on(stream, to, value, count, false);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height) {
    return fill_2d(nullptr, to, pitch, value, width, height, true);
}
CUresult cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height) {
    return fill_2d(nullptr, to, pitch, value, width, height, true);
}
CUresult cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height) {
    return fill_2d(nullptr, to, pitch, value, width, height, true);
}
CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
                           CUstream stream) {
    return fill_2d(stream, to, pitch, value, width, height, false);
}
CUresult cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
                            CUstream stream) {
    return fill_2d(stream, to, pitch, value, width, height, false);
}
CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height,
                            CUstream stream) {
    return fill_2d(stream, to, pitch, value, width, height, false);
}

}  // namespace fikit::shim
