// Arrays and mipmapped arrays: of one to three dimensions, layered, and cube maps. No sparse ones.
#include <algorithm>

#include "array.hpp"
#include "capture.hpp"

using namespace fikit::sim;

namespace {

CUresult create(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR& shape) {
    return with_context([&](Driver& driver, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
        if (const CUresult result = check(shape, false); result != CUDA_SUCCESS) return result;
        const auto array = make_array(driver, context, shape);
        if (!array) return CUDA_ERROR_OUT_OF_MEMORY;
        *handle = array->handle;
        return CUDA_SUCCESS;
    });
}

CUresult describe(CUarray handle, CUDA_ARRAY3D_DESCRIPTOR* shape) {
    return with_handle<&Driver::arrays>(handle, CUDA_ERROR_INVALID_HANDLE,
                                        [&](Driver&, const Array& array) -> CUresult {
                                            if (shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
                                            *shape = array.shape;
                                            return CUDA_SUCCESS;
                                        });
}

// The next smaller level: half of each extent, but no layer less.
void halve(CUDA_ARRAY3D_DESCRIPTOR& shape) {
    const auto half = [](std::size_t& extent) {
        if (extent > 1) extent /= 2;
    };
    half(shape.Width);
    half(shape.Height);
    if ((shape.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0) half(shape.Depth);
}

// Levels down to one element.
unsigned levels_of(CUDA_ARRAY3D_DESCRIPTOR shape) {
    unsigned count = 1;
    const bool solid = (shape.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0;
    while (shape.Width > 1 || shape.Height > 1 || (solid && shape.Depth > 1)) {
        halve(shape);
        ++count;
    }
    return count;
}

CUresult create_mipmap(CUmipmappedArray* handle, const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels) {
    return with_context([&](Driver& driver, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
        if (const CUresult result = check(shape, true); result != CUDA_SUCCESS) return result;
        auto mipmap = std::make_shared<MipmappedArray>();
        mipmap->context = &home_of(context);
        CUDA_ARRAY3D_DESCRIPTOR level = shape;
        for (unsigned count = std::clamp(levels, 1U, levels_of(shape)); count > 0; --count) {
            auto array = make_array(driver, context, level);
            if (!array) {
                for (const auto& made : mipmap->levels) release_array(driver, *made);
                return CUDA_ERROR_OUT_OF_MEMORY;
            }
            mipmap->levels.push_back(std::move(array));
            halve(level);
        }
        *handle = driver.mipmaps.add(mipmap);
        for (const auto& array : mipmap->levels) array->mipmap = *handle;
        return CUDA_SUCCESS;
    });
}

// Waits for its context's work, then lets go of what the handle names: it may have gone meanwhile.
template <typename Registry, typename Handle, typename Release>
CUresult destroy(Registry Driver::* registry, Handle handle, Release release) {
    return with_driver([&](Driver& driver, Driver::Lock& lock) -> CUresult {
        const auto* const given = (driver.*registry).find(handle);
        if (given == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
        if (const CUresult result = driver.synchronize(lock, *given->context); result != CUDA_SUCCESS)
            return result;
        const auto object = (driver.*registry).share(handle);
        return object ? release(driver, *object) : CUDA_ERROR_INVALID_HANDLE;
    });
}

// What only planar arrays have, sparse ones, and those whose memory is mapped later.
template <typename Registry, typename Handle>
CUresult has_none(Registry Driver::* registry, Handle handle) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        return (driver.*registry).find(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE
                                                          : CUDA_ERROR_INVALID_VALUE;
    });
}

}  // namespace

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
    return destroy(&Driver::arrays, handle, [](Driver& driver, const Array& array) {
        if (array.mipmap == nullptr) release_array(driver, array);  // a level goes with its mipmap
        return CUDA_SUCCESS;
    });
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* handle, const CUDA_ARRAY3D_DESCRIPTOR* shape,
                                unsigned int levels) {
    return shape == nullptr ? CUDA_ERROR_INVALID_VALUE : create_mipmap(handle, *shape, levels);
}

CUresult cuMipmappedArrayGetLevel(CUarray* level, CUmipmappedArray handle, unsigned int number) {
    return with_context([&](Driver& driver, Driver::Lock&, Context&, SimulatedDevice&) -> CUresult {
        const MipmappedArray* mipmap = driver.mipmaps.find(handle);
        if (mipmap == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (level == nullptr || number >= mipmap->levels.size()) return CUDA_ERROR_INVALID_VALUE;
        *level = mipmap->levels[number]->handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
    return destroy(&Driver::mipmaps, handle, [](Driver& driver, const MipmappedArray& mipmap) {
        for (const auto& array : mipmap.levels) release_array(driver, *array);
        driver.mipmaps.remove(&mipmap);
        return CUDA_SUCCESS;
    });
}

CUresult cuArrayGetPlane(CUarray*, CUarray array, unsigned int) { return has_none(&Driver::arrays, array); }
CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUarray array) {
    return has_none(&Driver::arrays, array);
}
CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUmipmappedArray array) {
    return has_none(&Driver::mipmaps, array);
}
CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUarray array, CUdevice) {
    return has_none(&Driver::arrays, array);
}
CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUmipmappedArray array,
                                               CUdevice) {
    return has_none(&Driver::mipmaps, array);
}

}  // extern "C"
