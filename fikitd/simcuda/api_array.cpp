// Arrays: plain ones of one to three dimensions. No layers, cube maps, mipmaps or sparse ones.
#include "array.hpp"

using namespace fikit::sim;

namespace {

constexpr std::size_t pitch_unit = 512;
constexpr std::size_t width_most = 131072;
constexpr std::size_t height_most = 65536;
constexpr std::size_t depth_most = 16384;
constexpr unsigned known_flags = CUDA_ARRAY3D_SURFACE_LDST;

CUresult create(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR& shape) {
    return with_context(
        [&](Driver& driver, Driver::Lock&, Context& context, SimulatedDevice& device) -> CUresult {
            const std::size_t element = element_bytes(shape.Format, shape.NumChannels);
            if (handle == nullptr || element == 0 || shape.Width == 0 ||
                (shape.Depth != 0 && shape.Height == 0) || shape.Width > width_most ||
                shape.Height > height_most || shape.Depth > depth_most) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            if ((shape.Flags & ~known_flags) != 0) return CUDA_ERROR_NOT_SUPPORTED;
            auto array = std::make_shared<Array>();
            array->context = context.owner != nullptr ? context.owner : &context;
            array->shape = shape;
            array->element = element;
            array->pitch = (shape.Width * element + pitch_unit - 1) / pitch_unit * pitch_unit;
            array->address = device.heap.allocate(array->bytes());
            if (array->address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
            *handle = driver.arrays.add(std::move(array));
            return CUDA_SUCCESS;
        });
}

CUresult describe(CUarray handle, CUDA_ARRAY3D_DESCRIPTOR* shape) {
    return with_context([&](Driver& driver, Driver::Lock&, Context&, SimulatedDevice&) -> CUresult {
        const Array* array = driver.arrays.find(handle);
        if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *shape = array->shape;
        return CUDA_SUCCESS;
    });
}

}  // namespace

namespace fikit::sim {

std::size_t element_bytes(CUarray_format format, unsigned channels) {
    if (channels != 1 && channels != 2 && channels != 4) return 0;
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
        case CU_AD_FORMAT_SIGNED_INT8:
            return channels;
        case CU_AD_FORMAT_UNSIGNED_INT16:
        case CU_AD_FORMAT_SIGNED_INT16:
        case CU_AD_FORMAT_HALF:
            return std::size_t{channels} * 2;
        case CU_AD_FORMAT_UNSIGNED_INT32:
        case CU_AD_FORMAT_SIGNED_INT32:
        case CU_AD_FORMAT_FLOAT:
            return std::size_t{channels} * 4;
        default:
            return 0;
    }
}

}  // namespace fikit::sim

extern "C" {

CUresult cuArrayCreate_v2(CUarray* handle, const CUDA_ARRAY_DESCRIPTOR* shape) {
    if (shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR full{};
    full.Width = shape->Width;
    full.Height = shape->Height;
    full.Format = shape->Format;
    full.NumChannels = shape->NumChannels;
    return create(handle, full);
}
CUresult cuArray3DCreate_v2(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR* shape) {
    return shape == nullptr ? CUDA_ERROR_INVALID_VALUE : create(handle, *shape);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* shape, CUarray array) {
    CUDA_ARRAY3D_DESCRIPTOR full;
    if (shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = describe(array, &full);
    if (result == CUDA_SUCCESS) *shape = {full.Width, full.Height, full.Format, full.NumChannels};
    return result;
}
CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* shape, CUarray array) {
    return describe(array, shape);
}

CUresult cuArrayDestroy(CUarray handle) {
    return with_context(
        [&](Driver& driver, Driver::Lock& lock, Context& context, SimulatedDevice&) -> CUresult {
            if (driver.arrays.find(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
            if (const CUresult result = driver.synchronize(lock, context); result != CUDA_SUCCESS)
                return result;
            const std::shared_ptr<Array> array = driver.arrays.share(handle);
            if (!array) return CUDA_ERROR_INVALID_HANDLE;
            driver.device_of(*array->context).heap.release(array->address, array->bytes());
            driver.arrays.remove(array.get());
            return CUDA_SUCCESS;
        });
}

}  // extern "C"
