// Tensor maps: 128 opaque bytes that describe a tensor in memory to the copy unit of an SM.
//
// The checks are those of the driver API's pages on cuTensorMapEncodeTiled and its like. What is inside:
// ptx/tensor_map.hpp.
#include <cstdint>
#include <cstring>

#include "driver.hpp"
#include "ptx/tensor_map.hpp"

namespace {

using fikit::sim::ptx::swizzle_bytes;
using Encoded = fikit::sim::ptx::TensorMap;

struct Tensor {
    CUtensorMapDataType type;
    cuuint32_t rank;
    const void* address;
    const cuuint64_t* dimensions;
    const cuuint64_t* strides;
    const cuuint32_t* steps;
    CUtensorMapInterleave interleave;
    CUtensorMapSwizzle swizzle;
    CUtensorMapL2promotion promotion;
    CUtensorMapFloatOOBfill fill;
};

bool is_float(CUtensorMapDataType type) {
    return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
}

bool options_fit(const Tensor& tensor) {
    return tensor.interleave >= CU_TENSOR_MAP_INTERLEAVE_NONE &&
           tensor.interleave <= CU_TENSOR_MAP_INTERLEAVE_32B &&
           tensor.swizzle >= CU_TENSOR_MAP_SWIZZLE_NONE && tensor.swizzle <= CU_TENSOR_MAP_SWIZZLE_128B &&
           tensor.promotion >= CU_TENSOR_MAP_L2_PROMOTION_NONE &&
           tensor.promotion <= CU_TENSOR_MAP_L2_PROMOTION_L2_256B &&
           (tensor.fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ||
            (tensor.fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA && is_float(tensor.type)));
}

// What both kinds of map have in common.
// A map that a kernel is to use has to lie at a multiple of 64; one that is made may lie anywhere.
CUresult give(CUtensorMap* map, const Encoded& encoded) {
    return fikit::sim::with_context([&](auto&...) {
        void* const to = map;
        std::memset(to, 0, sizeof *map);
        std::memcpy(to, &encoded, sizeof encoded);
        return CUDA_SUCCESS;
    });
}

bool encode(CUtensorMap* map, const Tensor& tensor, unsigned least_rank, Encoded& encoded) {
    const bool interleaved = tensor.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE;
    if (map == nullptr || fikit::sim::ptx::element_bytes(tensor.type) == 0 || tensor.dimensions == nullptr ||
        tensor.steps == nullptr || tensor.rank < (interleaved && least_rank < 3 ? 3 : least_rank) ||
        tensor.rank > 5 || (tensor.rank > 1 && tensor.strides == nullptr) || !options_fit(tensor)) {
        return false;
    }
    const unsigned alignment = tensor.interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 32 : 16;
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.address);
    if (address % alignment != 0) return false;  // 0 is one, too: until cuTensorMapReplaceAddress has another
    if (tensor.interleave == CU_TENSOR_MAP_INTERLEAVE_32B && tensor.swizzle != CU_TENSOR_MAP_SWIZZLE_32B)
        return false;
    encoded = {};
    encoded.address = address;
    for (unsigned index = 0; index < tensor.rank; ++index) {
        const cuuint64_t dimension = tensor.dimensions[index];
        const cuuint32_t step = tensor.steps[index];
        if (dimension == 0 || dimension > (cuuint64_t{1} << 32) || step == 0 || step > 8) return false;
        encoded.dimensions[index] = dimension;
        encoded.steps[index] = static_cast<std::uint8_t>(step);
    }
    for (unsigned index = 0; index + 1 < tensor.rank; ++index) {
        const cuuint64_t stride = tensor.strides[index];
        if (stride % alignment != 0 || stride >= (cuuint64_t{1} << 40)) return false;
        encoded.strides[index] = stride;
    }
    encoded.rank = static_cast<std::uint8_t>(tensor.rank);
    encoded.type = static_cast<std::uint8_t>(tensor.type);
    encoded.interleave = static_cast<std::uint8_t>(tensor.interleave);
    encoded.swizzle = static_cast<std::uint8_t>(tensor.swizzle);
    encoded.promotion = static_cast<std::uint8_t>(tensor.promotion);
    encoded.fill = static_cast<std::uint8_t>(tensor.fill);
    return true;
}

// A row of the box, as it comes to lie in shared memory.
bool row_fits(const Tensor& tensor, cuuint32_t elements) {
    const cuuint64_t bytes = cuuint64_t{elements} * fikit::sim::ptx::element_bytes(tensor.type);
    if (tensor.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return true;
    const unsigned most = swizzle_bytes(tensor.swizzle);
    return bytes % 16 == 0 && (most == 0 || bytes <= most);
}

}  // namespace

extern "C" {

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* dimensions, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* steps,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    const Tensor tensor{type,  rank,       address, dimensions, strides,
                        steps, interleave, swizzle, promotion,  fill};
    Encoded encoded;
    if (!encode(map, tensor, 1, encoded) || box == nullptr || !row_fits(tensor, box[0]))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned index = 0; index < rank; ++index) {
        if (box[index] == 0 || box[index] > 256) return CUDA_ERROR_INVALID_VALUE;
        encoded.box[index] = static_cast<std::uint16_t>(box[index]);
    }
    return give(map, encoded);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                 const cuuint64_t* dimensions, const cuuint64_t* strides, const int* lower,
                                 const int* upper, cuuint32_t channels, cuuint32_t pixels,
                                 const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                 CUtensorMapFloatOOBfill fill) {
    const Tensor tensor{type,  rank,       address, dimensions, strides,
                        steps, interleave, swizzle, promotion,  fill};
    Encoded encoded;
    if (!encode(map, tensor, 3, encoded) || lower == nullptr || upper == nullptr || channels == 0 ||
        channels > 256 || pixels == 0 || pixels > 1024 || !row_fits(tensor, channels)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // The corners have 16, 8 or 5 bits for one, two or three spatial dimensions.
    const unsigned spatial = rank - 2;
    const int limit = spatial == 1 ? 32768 : spatial == 2 ? 128 : 16;
    for (unsigned index = 0; index < spatial; ++index) {
        if (lower[index] < -limit || lower[index] >= limit || upper[index] < -limit || upper[index] >= limit)
            return CUDA_ERROR_INVALID_VALUE;
        encoded.lower[index] = static_cast<std::int16_t>(lower[index]);
        encoded.upper[index] = static_cast<std::int16_t>(upper[index]);
    }
    encoded.im2col = 1;
    encoded.box[0] = static_cast<std::uint16_t>(channels);
    encoded.box[1] = static_cast<std::uint16_t>(pixels);
    return give(map, encoded);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
    Encoded encoded;
    if (map == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(&encoded, static_cast<const void*>(map), sizeof encoded);
    const unsigned alignment = encoded.interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 32 : 16;
    encoded.address = reinterpret_cast<std::uintptr_t>(address);
    if (encoded.address == 0 || encoded.address % alignment != 0) return CUDA_ERROR_INVALID_VALUE;
    return give(map, encoded);
}

}  // extern "C"
