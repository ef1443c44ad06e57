// Texture and surface objects. The executor's driver makes them and names them: kernels get that value. What
// they were made of is remembered here.
#include <search.h>
#include <string.h>

#include <compare>
#include <new>

#include "arrays.hpp"
#include "capture.hpp"
#include "entry.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

// Values are each driver's own, so one is known by its device too.
struct Name {
    uint64_t value = 0;
    int device = 0;
    bool surface = false;
    auto operator<=>(const Name&) const = default;
};
struct Texture : Name {
    Context* context = nullptr;
    bool viewed = false;
    CUDA_RESOURCE_DESC resource = {};
    CUDA_TEXTURE_DESC manner = {};
    CUDA_RESOURCE_VIEW_DESC view = {};
    Held held = {};
};
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
void* all = nullptr;  // a tree (tsearch(3)): programs have tens of thousands

int compare(const void* left, const void* right) {
    const auto order = *static_cast<const Name*>(left) <=> *static_cast<const Name*>(right);
    return order < 0 ? -1 : order > 0 ? 1 : 0;
}

bool add(Name& name) {
    const Locked lock(mutex);
    return tsearch(&name, &all, compare) != nullptr;
}

// Under the mutex; nullptr: there is none.
Texture* find(const Name& name) {
    void* const node = tfind(&name, &all, compare);
    return node != nullptr ? static_cast<Texture*>(*static_cast<Name**>(node)) : nullptr;
}

CUresult name_array(const Array* array, fikit_request_texture_create& request) {
    if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (array->memory->device != &current_device()) return CUDA_ERROR_INVALID_HANDLE;
    request.array = array->memory->number;
    request.level = array->level;
    return CUDA_SUCCESS;
}

CUresult describe(const CUDA_RESOURCE_DESC& resource, fikit_request_texture_create& request) {
    if (resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
    request.type = static_cast<uint32_t>(resource.resType);
    switch (resource.resType) {
        case CU_RESOURCE_TYPE_ARRAY:
            return name_array(array_of(resource.res.array.hArray), request);
        case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
            return name_array(mipmap_of(resource.res.mipmap.hMipmappedArray), request);
        case CU_RESOURCE_TYPE_LINEAR:
            request.format = static_cast<uint32_t>(resource.res.linear.format);
            request.channels = resource.res.linear.numChannels;
            request.address = resource.res.linear.devPtr;
            request.width = resource.res.linear.sizeInBytes;
            return CUDA_SUCCESS;
        case CU_RESOURCE_TYPE_PITCH2D:
            request.format = static_cast<uint32_t>(resource.res.pitch2D.format);
            request.channels = resource.res.pitch2D.numChannels;
            request.address = resource.res.pitch2D.devPtr;
            request.width = resource.res.pitch2D.width;
            request.height = resource.res.pitch2D.height;
            request.pitch = resource.res.pitch2D.pitchInBytes;
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

// No rows are one line, and told as that (as by an H200).
void take_line(CUDA_RESOURCE_DESC& resource) {
    const auto rows = resource.res.pitch2D;
    if (resource.resType != CU_RESOURCE_TYPE_PITCH2D || rows.height != 0) return;
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    const uint64_t element = element_bytes(static_cast<uint32_t>(rows.format), rows.numChannels);
    resource.res.linear = {rows.devPtr, rows.format, rows.numChannels, rows.width * element};
}

// What nobody finds any more.
CUresult let_go(Texture* texture) {
    const Device& device = *texture->context->device;
    const fikit_request_texture_destroy request = {texture->value, texture->surface, 0};
    texture->held.let_go();
    delete texture;
    Reply reply;
    return result_of(device.producer->call(fikit_call_texture_destroy, {&request, sizeof request}, reply));
}

CUresult destroy(const Name& name) {
    Texture* texture;
    {
        const Locked lock(mutex);
        texture = find(name);
        if (texture == nullptr) return CUDA_SUCCESS;  // it is gone, or never was
        tdelete(&name, &all, compare);
    }
    return let_go(texture);
}

CUresult end(const Texture& texture) { return destroy(texture); }

Name here(uint64_t value, bool surface) { return {value, current_device().ordinal, surface}; }

CUresult create(unsigned long long* value, const Texture& wanted) {
    fikit_request_texture_create request = {};
    if (const CUresult result = captures.unsafe(); result != CUDA_SUCCESS) return result;
    if (const CUresult result = describe(wanted.resource, request); result != CUDA_SUCCESS) return result;
    request.surface = wanted.surface;
    request.viewed = wanted.viewed;
    static_assert(sizeof request.manner == sizeof wanted.manner && sizeof request.view == sizeof wanted.view);
    memcpy(request.manner, &wanted.manner, sizeof request.manner);
    memcpy(request.view, &wanted.view, sizeof request.view);
    auto* const texture = new (std::nothrow) Texture(wanted);
    if (texture == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    fikit_reply_texture_create answer{};
    Reply reply = {&answer, sizeof answer, 0};
    const Status status =
        current_producer().call(fikit_call_texture_create, {&request, sizeof request}, reply);
    if (status != status::success) {
        delete texture;
        return result_of(status);
    }
    static_cast<Name&>(*texture) = here(answer.value, wanted.surface);
    texture->context = thread.home();
    take_line(texture->resource);
    texture->held.keep<end>(texture->context, *texture);
    if (!add(*texture)) {
        let_go(texture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *value = answer.value;
    return CUDA_SUCCESS;
}

template <class Part>
CUresult tell(uint64_t value, bool surface, Part* into, Part Texture::* part) {
    const Locked lock(mutex);
    const Texture* const texture = find(here(value, surface));
    if (texture == nullptr || into == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *into = texture->*part;
    return CUDA_SUCCESS;
}

}  // namespace

CUresult cuTexObjectCreate(CUtexObject* value, const CUDA_RESOURCE_DESC* resource,
                           const CUDA_TEXTURE_DESC* manner, const CUDA_RESOURCE_VIEW_DESC* view) {
    if (value == nullptr || resource == nullptr || manner == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Texture wanted;
    wanted.resource = *resource;
    wanted.manner = *manner;
    wanted.viewed = view != nullptr;
    if (view != nullptr) wanted.view = *view;
    return create(value, wanted);
}
CUresult cuTexObjectDestroy(CUtexObject value) { return destroy(here(value, false)); }
CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* into, CUtexObject value) {
    return tell(value, false, into, &Texture::resource);
}
CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* into, CUtexObject value) {
    return tell(value, false, into, &Texture::manner);
}
CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* into, CUtexObject value) {
    return tell(value, false, into, &Texture::view);
}

CUresult cuSurfObjectCreate(CUsurfObject* value, const CUDA_RESOURCE_DESC* resource) {
    if (value == nullptr || resource == nullptr || resource->resType != CU_RESOURCE_TYPE_ARRAY)
        return CUDA_ERROR_INVALID_VALUE;
    Texture wanted;
    wanted.resource = *resource;
    wanted.surface = true;
    return create(value, wanted);
}
CUresult cuSurfObjectDestroy(CUsurfObject value) { return destroy(here(value, true)); }
CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* into, CUsurfObject value) {
    return tell(value, true, into, &Texture::resource);
}

}  // namespace fikit::shim
