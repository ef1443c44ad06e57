// Arrays and mipmapped arrays. What they look like is known here; the executor makes and destroys them.
#include <new>

#include "arrays.hpp"
#include "capture.hpp"
#include "entry.hpp"
#include "printed.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

constexpr unsigned known_flags =
    CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER;

Handles<FIKIT_MAX_ARRAYS> numbers;

fikit_array_shape shape_of(const CUDA_ARRAY3D_DESCRIPTOR& wanted, uint32_t levels) {
    return {wanted.Width,       wanted.Height, wanted.Depth, static_cast<uint32_t>(wanted.Format),
            wanted.NumChannels, wanted.Flags,  levels};
}

CUresult check(const fikit_array_shape& shape) {
    if (shape.format > CU_AD_FORMAT_FLOAT) return CUDA_ERROR_NOT_SUPPORTED;
    if (element_bytes(shape) == 0 || !is_possible(shape)) return CUDA_ERROR_INVALID_VALUE;
    return (shape.flags & ~known_flags) != 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult end(ArrayMemory& memory) {
    const fikit_request_array_destroy request = {memory.number, 0};
    Reply reply;
    const Status status =
        memory.device->producer->call(fikit_call_array_destroy, {&request, sizeof request}, reply);
    if (status != status::interrupted) numbers.give_back(memory.number);
    wipe(memory.whole.magic);
    for (Array& level : memory.levels) wipe(level.magic);
    delete &memory;
    return result_of(status);
}

CUresult create(const fikit_array_shape& shape, ArrayMemory*& made) {
    if (const CUresult result = captures.unsafe(); result != CUDA_SUCCESS) return result;
    if (const CUresult result = check(shape); result != CUDA_SUCCESS) return result;
    auto* const memory = new (std::nothrow) ArrayMemory();
    const uint32_t number = memory != nullptr ? numbers.take() : 0;
    if (number == 0) {
        delete memory;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memory->device = &current_device();
    memory->context = thread.home();
    memory->number = number;
    memory->shape = shape;
    const bool mipmapped = shape.levels != 0;
    memory->whole = {mipmapped ? mipmap_magic : array_magic, 0, memory};
    for (uint32_t level = 0; level < shape.levels; ++level)
        memory->levels[level] = {array_magic, level, memory};
    const fikit_request_array_create request = {number, 0, shape};
    fikit_reply_array_create answer{};
    Reply reply = {&answer, sizeof answer, 0};
    const Status status =
        memory->device->producer->call(fikit_call_array_create, {&request, sizeof request}, reply);
    if (status != status::success) {
        if (status != status::interrupted) numbers.give_back(number);
        delete memory;
        return result_of(status);
    }
    memory->held.keep<end>(memory->context, *memory);
    made = memory;
    return CUDA_SUCCESS;
}

CUresult create(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR& wanted) {
    ArrayMemory* memory = nullptr;
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = create(shape_of(wanted, 0), memory);
    if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUarray>(&memory->whole);
    return result;
}

// As natively, what was issued before ends first.
CUresult destroy(ArrayMemory& memory) {
    Device& device = *memory.device;
    if (const CUresult result = captures.unsafe(); result != CUDA_SUCCESS) return result;
    if (const CUresult result = settled(device, device.producer->settle()); result != CUDA_SUCCESS)
        return result;
    return memory.held.let_go() ? end(memory) : CUDA_ERROR_INVALID_HANDLE;  // somebody else has done it
}

// What only planar arrays have, sparse ones, and those whose memory is mapped later: none is served.
CUresult has_none(const Array* array) {
    return array == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult cuArrayCreate_v2(CUarray* handle, const CUDA_ARRAY_DESCRIPTOR* wanted) {
    if (wanted == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return create(handle, {wanted->Width, wanted->Height, 0, wanted->Format, wanted->NumChannels, 0});
}
CUresult cuArray3DCreate_v2(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR* wanted) {
    return wanted == nullptr ? CUDA_ERROR_INVALID_VALUE : create(handle, *wanted);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* into, CUarray handle) {
    CUDA_ARRAY3D_DESCRIPTOR all_of_it;
    if (into == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = fikit::shim::cuArray3DGetDescriptor_v2(&all_of_it, handle);
    if (result == CUDA_SUCCESS)
        *into = {all_of_it.Width, all_of_it.Height, all_of_it.Format, all_of_it.NumChannels};
    return result;
}
CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* into, CUarray handle) {
    const Array* const array = array_of(handle);
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (into == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const fikit_array_shape shape = array->shape();
    *into = {shape.width,    shape.height, shape.depth, static_cast<CUarray_format>(shape.format),
             shape.channels, shape.flags};
    return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray handle) {
    Array* const array = array_of(handle);
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    // A level goes with all of them.
    return array == &array->memory->whole ? destroy(*array->memory) : CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* handle, const CUDA_ARRAY3D_DESCRIPTOR* wanted,
                                unsigned int levels) {
    if (handle == nullptr || wanted == nullptr) return CUDA_ERROR_INVALID_VALUE;
    fikit_array_shape shape = shape_of(*wanted, 0);
    if (const CUresult result = captures.unsafe(); result != CUDA_SUCCESS) return result;
    if (const CUresult result = check(shape); result != CUDA_SUCCESS) return result;
    shape.levels = std::clamp(levels, 1u, most_levels(shape));
    ArrayMemory* memory = nullptr;
    const CUresult result = create(shape, memory);
    if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUmipmappedArray>(&memory->whole);
    return result;
}

CUresult cuMipmappedArrayGetLevel(CUarray* level, CUmipmappedArray handle, unsigned int number) {
    Array* const mipmap = mipmap_of(handle);
    if (mipmap == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (level == nullptr || number >= mipmap->memory->shape.levels) return CUDA_ERROR_INVALID_VALUE;
    *level = reinterpret_cast<CUarray>(&mipmap->memory->levels[number]);
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
    Array* const mipmap = mipmap_of(handle);
    return mipmap == nullptr ? CUDA_ERROR_INVALID_HANDLE : destroy(*mipmap->memory);
}

CUresult cuArrayGetPlane(CUarray*, CUarray handle, unsigned int) { return has_none(array_of(handle)); }
CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUarray handle) {
    return has_none(array_of(handle));
}
CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUmipmappedArray handle) {
    return has_none(mipmap_of(handle));
}
CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUarray handle, CUdevice) {
    return has_none(array_of(handle));
}
CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUmipmappedArray handle,
                                               CUdevice) {
    return has_none(mipmap_of(handle));
}

}  // namespace fikit::shim
