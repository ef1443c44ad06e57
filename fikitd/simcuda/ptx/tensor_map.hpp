// What lies in a tensor map: the 128 bytes that describe a tensor in memory to the copy unit of an SM.
// Programs take them as they are, so their form is this simulator's own.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace fikit::sim::ptx {

struct TensorMap {
    std::uint64_t address;
    std::uint64_t dimensions[5];  // elements; the first is that whose elements follow each other
    std::uint64_t strides[4];     // bytes, from the second dimension on
    std::uint16_t box[5];         // elements; of im2col: channels and pixels
    std::uint8_t steps[5];
    std::int16_t lower[3], upper[3];  // im2col
    std::uint8_t rank, type, interleave, swizzle, promotion, fill, im2col;
};
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));

// Bytes of an element; 0 for what this device has not.
constexpr unsigned element_bytes(unsigned type) {
    switch (type) {
        case CU_TENSOR_MAP_DATA_TYPE_UINT8:
            return 1;
        case CU_TENSOR_MAP_DATA_TYPE_UINT16:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
        case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
            return 2;
        case CU_TENSOR_MAP_DATA_TYPE_UINT32:
        case CU_TENSOR_MAP_DATA_TYPE_INT32:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
        case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
        case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ:
            return 4;
        case CU_TENSOR_MAP_DATA_TYPE_UINT64:
        case CU_TENSOR_MAP_DATA_TYPE_INT64:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
            return 8;
        default:
            return 0;
    }
}

// How wide a pattern is in which pieces of 16 bytes change places; 0: none.
constexpr unsigned swizzle_bytes(unsigned swizzle) {
    return swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 0 : 16U << swizzle;
}

}  // namespace fikit::sim::ptx
