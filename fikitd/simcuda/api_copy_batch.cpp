// Many copies in one call: each is a copy of its own, in the order of the list.
#include <algorithm>

#include "array.hpp"

using namespace fikit::sim;

namespace {

bool known(CUmemcpySrcAccessOrder order, unsigned flags) {
    return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
           (flags & ~static_cast<unsigned>(CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE)) == 0;
}

// The stream must be one: the legacy and the per-thread default stream are refused (as documented).
// As driver 580: the legacy stream has no batches, a thread's own one has.
bool takes_batches(CUstream stream) {
    return stream == nullptr ? PerThreadDefault::depth() > 0 : stream != CU_STREAM_LEGACY;
}

CUresult copy_batch(CUdeviceptr* to, CUdeviceptr* from, std::size_t* sizes, std::size_t count,
                    CUmemcpyAttributes* attributes, std::size_t* first_of, std::size_t attribute_count,
                    std::size_t* failed, CUstream stream) {
    if (failed != nullptr) *failed = ~std::size_t{0};
    if (to == nullptr || from == nullptr || sizes == nullptr || count == 0 || !takes_batches(stream) ||
        attributes == nullptr || first_of == nullptr || attribute_count == 0 || attribute_count > count ||
        first_of[0] != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (std::size_t index = 0; index < attribute_count; ++index) {
        const bool ordered = index == 0 || first_of[index] > first_of[index - 1];
        if (!known(attributes[index].srcAccessOrder, attributes[index].flags) || !ordered ||
            first_of[index] >= count)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (std::size_t index = 0; index < count; ++index) {
        const CUresult result = sizes[index] == 0
                                    ? CUDA_ERROR_INVALID_VALUE
                                    : cuMemcpyAsync(to[index], from[index], sizes[index], stream);
        if (result != CUDA_SUCCESS) {
            if (failed != nullptr) *failed = index;
            return result;
        }
    }
    return CUDA_SUCCESS;
}

// Where one end of a copy lies, in the words of CUDA_MEMCPY3D.
struct Side {
    CUmemorytype type = CU_MEMORYTYPE_UNIFIED;
    CUdeviceptr address = 0;
    CUarray array = nullptr;
    std::size_t x = 0, y = 0, z = 0, pitch = 0, height = 0;
    std::size_t element = 0;  // bytes, of an array
};

// Lengths are in elements where an end is an array; a copy between pointers counts bytes.
CUresult end_of(const CUmemcpy3DOperand& operand, Side& end) {
    if (operand.type == CU_MEMCPY_OPERAND_TYPE_POINTER) {
        end.address = operand.op.ptr.ptr;
        end.pitch = operand.op.ptr.rowLength;
        end.height = operand.op.ptr.layerHeight;
        return CUDA_SUCCESS;
    }
    if (operand.type != CU_MEMCPY_OPERAND_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR shape;
    const CUresult result = cuArray3DGetDescriptor_v2(&shape, operand.op.array.array);
    if (result != CUDA_SUCCESS) return result;
    end.type = CU_MEMORYTYPE_ARRAY;
    end.array = operand.op.array.array;
    end.x = operand.op.array.offset.x;
    end.y = operand.op.array.offset.y;
    end.z = operand.op.array.offset.z;
    end.element = element_bytes(shape.Format, shape.NumChannels);
    return CUDA_SUCCESS;
}

CUresult copy_operation(const CUDA_MEMCPY3D_BATCH_OP& operation, CUstream stream) {
    const CUextent3D& extent = operation.extent;
    if (!known(operation.srcAccessOrder, operation.flags) || extent.width == 0 || extent.height == 0 ||
        extent.depth == 0)
        return CUDA_ERROR_INVALID_VALUE;
    Side to, from;
    CUresult result = end_of(operation.dst, to);
    if (result == CUDA_SUCCESS) result = end_of(operation.src, from);
    if (result != CUDA_SUCCESS) return result;
    const std::size_t element = std::max({to.element, from.element, std::size_t{1}});
    if (to.element != 0 && from.element != 0 && to.element != from.element) return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D shape{};
    shape.dstMemoryType = to.type;
    shape.dstDevice = to.address;
    shape.dstArray = to.array;
    shape.dstXInBytes = to.x * element;
    shape.dstY = to.y;
    shape.dstZ = to.z;
    shape.dstPitch = to.pitch * element;
    shape.dstHeight = to.height;
    shape.srcMemoryType = from.type;
    shape.srcDevice = from.address;
    shape.srcArray = from.array;
    shape.srcXInBytes = from.x * element;
    shape.srcY = from.y;
    shape.srcZ = from.z;
    shape.srcPitch = from.pitch * element;
    shape.srcHeight = from.height;
    shape.WidthInBytes = extent.width * element;
    shape.Height = extent.height;
    shape.Depth = extent.depth;
    return cuMemcpy3DAsync_v2(&shape, stream);
}

CUresult copy_3d_batch(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* list, std::size_t* failed,
                       unsigned long long flags, CUstream stream) {
    if (failed != nullptr) *failed = ~std::size_t{0};
    if (count == 0 || list == nullptr || flags != 0 || !takes_batches(stream))
        return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t index = 0; index < count; ++index) {
        if (const CUresult result = copy_operation(list[index], stream); result != CUDA_SUCCESS) {
            if (failed != nullptr) *failed = index;
            return result;
        }
    }
    return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attributes, size_t* first_of, size_t attribute_count,
                            size_t* failed, CUstream stream) {
    return copy_batch(to, from, sizes, count, attributes, first_of, attribute_count, failed, stream);
}
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attributes, size_t* first_of, size_t attribute_count,
                               CUstream stream) {
    return copy_batch(to, from, sizes, count, attributes, first_of, attribute_count, nullptr, stream);
}
CUresult cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP* list, size_t* failed,
                              unsigned long long flags, CUstream stream) {
    return copy_3d_batch(count, list, failed, flags, stream);
}
CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP* list, unsigned long long flags,
                                 CUstream stream) {
    return copy_3d_batch(count, list, nullptr, flags, stream);
}

}  // extern "C"
