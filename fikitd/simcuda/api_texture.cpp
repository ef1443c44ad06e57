// Texture and surface objects, over arrays, mipmapped arrays and plain memory.
#include <algorithm>

#include "array.hpp"
#include "device_calls.hpp"
#include "texture_view.hpp"

using namespace fikit::sim;

namespace {

bool is_wide_integer(CUarray_format format) {
    return format == CU_AD_FORMAT_UNSIGNED_INT32 || format == CU_AD_FORMAT_SIGNED_INT32;
}
bool is_real(CUarray_format format) { return format == CU_AD_FORMAT_FLOAT || format == CU_AD_FORMAT_HALF; }

void add_level(const Array& array, Texture& texture) {
    texture.levels.push_back(
        {array.address,
         array.pitch,
         array.pitch * array.rows(),
         {static_cast<std::uint32_t>(array.shape.Width), static_cast<std::uint32_t>(array.rows()),
          static_cast<std::uint32_t>(array.planes())}});
}

void take_kind(const Array& array, Texture& texture) {
    texture.element = static_cast<std::uint32_t>(array.element);
    texture.channels = array.shape.NumChannels;
    texture.format = array.shape.Format;
    texture.cube = array.cube();
    const auto planes = static_cast<std::uint32_t>(array.planes());
    texture.layers = !array.layered() ? 0 : array.cube() ? planes / 6 : planes;
    const bool solid = array.shape.Depth != 0 && !array.layered() && !array.cube();
    texture.axes = solid ? 3 : array.shape.Height != 0 ? 2 : 1;
}

CUresult of_array(Driver& driver, CUarray handle, Texture& texture) {
    const Array* array = driver.arrays.find(handle);
    if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
    add_level(*array, texture);
    take_kind(*array, texture);
    return CUDA_SUCCESS;
}

CUresult of_mipmap(Driver& driver, CUmipmappedArray handle, Texture& texture) {
    const MipmappedArray* mipmap = driver.mipmaps.find(handle);
    if (mipmap == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (const auto& level : mipmap->levels) add_level(*level, texture);
    take_kind(*mipmap->levels.front(), texture);
    texture.mipmapped = true;
    return CUDA_SUCCESS;
}

bool is_aligned(std::uint64_t value, CUdevice_attribute unit) {
    return value % static_cast<std::uint64_t>(device_attribute(unit)) == 0;
}

// Plain memory: a line, or rows of a pitch, which these may exceed.
CUresult of_memory(Texture& texture, CUdeviceptr address, CUarray_format format, unsigned channels) {
    texture.element = static_cast<std::uint32_t>(element_bytes(format, channels));
    texture.levels.push_back({address, 0, 0, {1, 1, 1}});
    texture.channels = channels;
    texture.format = format;
    if (texture.element == 0 || address == 0 || !is_aligned(address, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

// What is said to be empty ends nowhere (as on an H200).
constexpr std::size_t longest_line = std::size_t{1} << 28, longest_row = 131072;
std::uint32_t width_of(std::size_t width, std::size_t longest) {
    return static_cast<std::uint32_t>(width != 0 ? width : longest);
}

CUresult of_line(Texture& texture, const CUDA_RESOURCE_DESC& resource) {
    const auto& linear = resource.res.linear;
    const CUresult result = of_memory(texture, linear.devPtr, linear.format, linear.numChannels);
    if (result != CUDA_SUCCESS) return result;
    texture.linear_memory = true;
    const std::size_t count = linear.sizeInBytes / texture.element;
    if (count > longest_line) return CUDA_ERROR_INVALID_VALUE;
    texture.levels.front().size[0] = width_of(count, longest_line);
    return CUDA_SUCCESS;
}

// No rows are one line, and told as that (as by an H200).
CUresult of_rows(Texture& texture, CUDA_RESOURCE_DESC& resource) {
    const auto rows = resource.res.pitch2D;
    if (rows.width > longest_row || rows.height > 65000 ||
        !is_aligned(rows.pitchInBytes, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT))
        return CUDA_ERROR_INVALID_VALUE;
    if (rows.height == 0) {
        resource.resType = CU_RESOURCE_TYPE_LINEAR;
        resource.res.linear = {rows.devPtr, rows.format, rows.numChannels,
                               rows.width * element_bytes(rows.format, rows.numChannels)};
        return of_line(texture, resource);
    }
    texture.axes = 2;
    const CUresult result = of_memory(texture, rows.devPtr, rows.format, rows.numChannels);
    if (result != CUDA_SUCCESS) return result;
    TextureLevel& level = texture.levels.front();
    level.size = {width_of(rows.width, longest_row), static_cast<std::uint32_t>(rows.height), 1};
    level.pitch = rows.pitchInBytes;
    return CUDA_SUCCESS;
}

CUresult find_elements(Driver& driver, CUDA_RESOURCE_DESC& resource, Texture& texture) {
    if (resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
    switch (resource.resType) {
        case CU_RESOURCE_TYPE_ARRAY:
            return of_array(driver, resource.res.array.hArray, texture);
        case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
            return of_mipmap(driver, resource.res.mipmap.hMipmappedArray, texture);
        case CU_RESOURCE_TYPE_LINEAR:
            return of_line(texture, resource);
        case CU_RESOURCE_TYPE_PITCH2D:
            return of_rows(texture, resource);
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult find_manner(const CUDA_TEXTURE_DESC& manner, Texture& texture) {
    for (const CUaddress_mode mode : manner.addressMode)
        if (mode < CU_TR_ADDRESS_MODE_WRAP || mode > CU_TR_ADDRESS_MODE_BORDER)
            return CUDA_ERROR_INVALID_VALUE;
    for (const CUfilter_mode mode : {manner.filterMode, manner.mipmapFilterMode})
        if (mode < CU_TR_FILTER_MODE_POINT || mode > CU_TR_FILTER_MODE_LINEAR)
            return CUDA_ERROR_INVALID_VALUE;
    if ((manner.flags & CU_TRSF_SRGB) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;  // flags of no meaning are ignored
    // Integers of 32 bits are always read as such.
    texture.integers = (manner.flags & CU_TRSF_READ_AS_INTEGER) != 0 || is_wide_integer(texture.format);
    texture.normalised = (manner.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
    // The driver takes a linear filter for what is read as integers, too, as FFmpeg's filters have it.
    texture.filtered = manner.filterMode == CU_TR_FILTER_MODE_LINEAR && !texture.linear_memory &&
                       !(texture.integers && !is_real(texture.format));
    texture.seamless = (manner.flags & CU_TRSF_SEAMLESS_CUBEMAP) != 0;
    if (texture.seamless && !texture.cube) return CUDA_ERROR_INVALID_VALUE;
    texture.between_levels = manner.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
    texture.level_bias = manner.mipmapLevelBias;
    texture.least_level = manner.minMipmapLevelClamp;
    texture.greatest_level = manner.maxMipmapLevelClamp;
    std::copy_n(manner.addressMode, 3, texture.modes.begin());
    std::copy_n(manner.borderColor, 4, texture.border.begin());
    return CUDA_SUCCESS;
}

// Takes away those that nothing reads any more.
void collect_textures(Driver& driver) {
    auto& retired = driver.retired_textures;
    for (; !retired.empty() && retired.front().after->done; retired.pop_front())
        driver.space.remove_texture(retired.front().handle);
}

CUresult make_texture(CUtexObject* handle, const CUDA_RESOURCE_DESC* resource,
                      const CUDA_TEXTURE_DESC* manner, const CUDA_RESOURCE_VIEW_DESC* view = nullptr) {
    return with_context([&](Driver& driver, Driver::Lock&, Context&, SimulatedDevice&) -> CUresult {
        if (handle == nullptr || resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (const CUresult unsafe = refuse_unsafe(driver); unsafe != CUDA_SUCCESS) return unsafe;
        TextureObject object{*resource, {}, {}, manner == nullptr};
        Texture texture;
        CUresult result = find_elements(driver, object.resource, texture);
        if (result == CUDA_SUCCESS && view != nullptr) {
            const bool array = resource->resType == CU_RESOURCE_TYPE_ARRAY ||
                               resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
            object.view = *view;
            if (array) result = take_view(texture, *view);  // of plain memory it means nothing
        }
        if (result == CUDA_SUCCESS && manner != nullptr) {
            object.manner = *manner;
            result = find_manner(*manner, texture);
        }
        if (result != CUDA_SUCCESS) return result;
        collect_textures(driver);
        *handle = driver.next_id++;
        driver.textures.emplace(*handle, object);
        driver.space.add_texture(*handle, texture);
        return CUDA_SUCCESS;
    });
}

// Calls `body` with a texture's or a surface's object.
template <typename Body>
CUresult with_object(CUtexObject handle, bool surface, Body body) {
    return with_context([&](Driver& driver, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        const auto found = driver.textures.find(handle);
        if (found == driver.textures.end() || found->second.surface != surface)
            return CUDA_ERROR_INVALID_VALUE;
        return body(driver, context, found->second);
    });
}

// One that is gone, or never was, is no error. Waits for nothing.
CUresult destroy(CUtexObject handle, bool surface) {
    const CUresult result =
        with_object(handle, surface, [&](Driver& driver, Context& context, const TextureObject&) {
            driver.textures.erase(handle);
            driver.retired_textures.push_back({std::make_shared<Operation>(), handle});
            driver.join(context, driver.retired_textures.back().after);
            collect_textures(driver);
            return CUDA_SUCCESS;
        });
    return result == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : result;
}

CUresult describe(CUDA_RESOURCE_DESC* resource, CUtexObject handle, bool surface) {
    return with_object(handle, surface, [&](Driver&, Context&, const TextureObject& object) {
        if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *resource = object.resource;
        return CUDA_SUCCESS;
    });
}

}  // namespace

extern "C" {

CUresult cuTexObjectCreate(CUtexObject* handle, const CUDA_RESOURCE_DESC* resource,
                           const CUDA_TEXTURE_DESC* manner, const CUDA_RESOURCE_VIEW_DESC* view) {
    if (manner == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return make_texture(handle, resource, manner, view);
}
CUresult cuTexObjectDestroy(CUtexObject handle) { return destroy(handle, false); }
CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUtexObject handle) {
    return describe(resource, handle, false);
}
CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* manner, CUtexObject handle) {
    return with_object(handle, false, [&](Driver&, Context&, const TextureObject& object) {
        if (manner == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *manner = object.manner;
        return CUDA_SUCCESS;
    });
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* view, CUtexObject handle) {
    return with_object(handle, false, [&](Driver&, Context&, const TextureObject& object) -> CUresult {
        if (view == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *view = object.view;
        return CUDA_SUCCESS;
    });
}

CUresult cuSurfObjectCreate(CUsurfObject* handle, const CUDA_RESOURCE_DESC* resource) {
    if (resource == nullptr || resource->resType != CU_RESOURCE_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
    return make_texture(handle, resource, nullptr);
}
CUresult cuSurfObjectDestroy(CUsurfObject handle) { return destroy(handle, true); }
CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUsurfObject handle) {
    return describe(resource, handle, true);
}

}  // extern "C"
