// Stream memory operations: a stream writes words, or waits for them. The executor makes them the GPU's own,
// and sees to it that a wait holds up nobody but its session.
#include "capture.hpp"
#include "entry.hpp"
#include "host_memory.hpp"
#include "objects.hpp"
#include "ranges.hpp"
#include "served.hpp"
#include "stream_values.hpp"

namespace fikit::shim {
namespace {

bool is_wide(CUstreamBatchMemOpType type) {
    return type == CU_STREAM_MEM_OP_WAIT_VALUE_64 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

// Whose word it is.
struct Owner {
    int device = -1;  // nobody's
    bool refused = false;
};

// Where a word is, as the executor knows it.
bool find_word(uint64_t address, uint64_t bytes, fikit_value& value, Owner& owner) {
    Range range;
    if (address == 0 || address % bytes != 0 || !ranges.find(address, range) ||
        bytes > range.bytes - (address - range.address))
        return false;
    value.address = address;
    const bool registered = range.kind == Range::Kind::registered;
    if (registered && make_reachable(address, current_device())) ranges.find(address, range);
    owner = {range.device, range.kind == Range::Kind::managed || range.pool != nullptr};
    if (range.host_pooled()) return false;
    // What is registered is no memory of the GPU's here where the executor does not map it, too.
    if (registered && range.handle == 0) return false;
    if (!registered && !range.on_host()) return true;
    value.host_buffer =
        process.device(range.device)
            .producer->find_host_buffer(reinterpret_cast<void*>(address), bytes, value.address);
    return value.host_buffer != 0;
}

CUresult describe(const CUstreamBatchMemOpParams& entry, fikit_value& value, Owner& owner) {
    value = {};
    owner = {};
    value.operation = static_cast<uint32_t>(entry.operation);
    switch (entry.operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        case CU_STREAM_MEM_OP_WAIT_VALUE_64: {
            constexpr unsigned known = 3u | CU_STREAM_WAIT_VALUE_FLUSH;
            value.flags = entry.waitValue.flags;
            if ((value.flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
            value.value =
                is_wide(entry.operation) ? entry.waitValue.value64 : uint64_t{entry.waitValue.value};
            break;
        }
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            value.flags = entry.writeValue.flags;
            if (value.flags != 0) return CUDA_ERROR_INVALID_VALUE;
            value.value =
                is_wide(entry.operation) ? entry.writeValue.value64 : uint64_t{entry.writeValue.value};
            break;
        case CU_STREAM_MEM_OP_BARRIER:
            value.flags = entry.memoryBarrier.flags;
            return CUDA_SUCCESS;
        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
    const bool waits = entry.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
                       entry.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
    const bool flushes = entry.operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES ||
                         (waits && (value.flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0);
    if (flushes && process.device(0).attributes.attribute[CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES] <= 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (entry.operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES) return CUDA_SUCCESS;
    return find_word(entry.waitValue.address, is_wide(entry.operation) ? 8 : 4, value, owner)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult submit(CUstream handle, const CUstreamBatchMemOpParams* list, size_t count) {
    uint32_t stream = 0;
    if (const CUresult result = use_stream(handle, stream); result != CUDA_SUCCESS) return result;
    if (const CUresult result = check_values(list, count); result != CUDA_SUCCESS) return result;
    if (captures.capturing(stream))
        return captures.add(stream, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                            [&](Node& node) { return node.values.add(list, count); });
    return issue_values(list, count, stream);
}

CUresult write_value(CUstream stream, CUdeviceptr address, uint64_t value, bool wide, unsigned flags) {
    CUstreamBatchMemOpParams entry = {};
    entry.operation = wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
    entry.writeValue.address = address;
    entry.writeValue.value64 = value;
    entry.writeValue.flags = flags;
    return submit(stream, &entry, 1);
}

CUresult wait_value(CUstream stream, CUdeviceptr address, uint64_t value, bool wide, unsigned flags) {
    CUstreamBatchMemOpParams entry = {};
    entry.operation = wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
    entry.waitValue.address = address;
    entry.waitValue.value64 = value;
    entry.waitValue.flags = flags;
    return submit(stream, &entry, 1);
}

}  // namespace

CUresult check_values(const CUstreamBatchMemOpParams* list, size_t count) {
    fikit_value value;
    Owner owner;
    if (count > FIKIT_MAX_VALUES || (list == nullptr && count != 0)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i)
        if (const CUresult result = describe(list[i], value, owner); result != CUDA_SUCCESS) return result;
    return CUDA_SUCCESS;
}

CUresult issue_values(const CUstreamBatchMemOpParams* list, size_t count, uint32_t stream) {
    fikit_value values[FIKIT_MAX_VALUES];
    if (count == 0) return usable(producer_of(stream));
    for (size_t i = 0; i < count; ++i) {
        Owner owner;
        if (const CUresult result = describe(list[i], values[i], owner); result != CUDA_SUCCESS)
            return result;
        if (owner.device >= 0 && owner.device != device_of(stream).ordinal) return CUDA_ERROR_NOT_SUPPORTED;
        // A real driver takes no word of managed memory or a pool's, but into a capture.
        if (owner.refused) return CUDA_ERROR_INVALID_VALUE;
    }
    return result_of(producer_of(stream).values(stream_number(stream), values, static_cast<uint32_t>(count)));
}

// The first versions need a setting of the driver that is off by default
// (CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1).
CUresult cuStreamWriteValue32(CUstream, CUdeviceptr, cuuint32_t, unsigned int) {
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
    return write_value(stream, address, value, false, flags);
}
CUresult cuStreamWriteValue64(CUstream, CUdeviceptr, cuuint64_t, unsigned int) {
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
    return write_value(stream, address, value, true, flags);
}
CUresult cuStreamWaitValue32(CUstream, CUdeviceptr, cuuint32_t, unsigned int) {
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
    return wait_value(stream, address, value, false, flags);
}
CUresult cuStreamWaitValue64(CUstream, CUdeviceptr, cuuint64_t, unsigned int) {
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
    return wait_value(stream, address, value, true, flags);
}
CUresult cuStreamBatchMemOp(CUstream, unsigned int, CUstreamBatchMemOpParams*, unsigned int) {
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* list,
                               unsigned int flags) {
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : submit(stream, list, count);
}

}  // namespace fikit::shim
