// Arrays and textures: handles, and how many there are.
#include "null_streams.hpp"

using fikit::null_driver::Function;
using fikit::null_driver::Item;

namespace fikit::null_driver {
std::atomic<int64_t> arrays, textures;
}

namespace {

std::atomic<uint64_t> handles{1};

template <class Handle>
CUresult make(std::atomic<int64_t>& count, Handle* handle) {
    ++count;
    *handle = reinterpret_cast<Handle>(handles.fetch_add(1) * 64);
    return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuArray3DCreate(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR*) {
    ENTER(cuArray3DCreate);
    return make(fikit::null_driver::arrays, array);
}
CUresult cuArrayDestroy(CUarray) {
    ENTER(cuArrayDestroy);
    --fikit::null_driver::arrays;
    return CUDA_SUCCESS;
}
CUresult cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR*, unsigned) {
    ENTER(cuMipmappedArrayCreate);
    return make(fikit::null_driver::arrays, array);
}
CUresult cuMipmappedArrayGetLevel(CUarray* level, CUmipmappedArray array, unsigned number) {
    ENTER(cuMipmappedArrayGetLevel);
    *level = reinterpret_cast<CUarray>(reinterpret_cast<uintptr_t>(array) + 1 + number);
    return CUDA_SUCCESS;
}
CUresult cuMipmappedArrayDestroy(CUmipmappedArray) {
    ENTER(cuMipmappedArrayDestroy);
    --fikit::null_driver::arrays;
    return CUDA_SUCCESS;
}
// The recording shows the destination: a handle, or an address.
CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D* what, CUstream stream) {
    ENTER(cuMemcpy3DAsync);
    const bool to_array = what->dstMemoryType == CU_MEMORYTYPE_ARRAY;
    const bool to_host = what->dstMemoryType == CU_MEMORYTYPE_HOST;
    const uint64_t memory = (to_host ? reinterpret_cast<uintptr_t>(what->dstHost) : what->dstDevice) +
                            (what->dstZ * what->dstHeight + what->dstY) * what->dstPitch + what->dstXInBytes;
    const uint64_t subject = to_array ? reinterpret_cast<uintptr_t>(what->dstArray) : memory;
    const uint64_t bytes = what->WidthInBytes * what->Height * what->Depth;
    return fikit::null_driver::submit(stream,
                                      {Item::work, Function::cuMemcpy3DAsync_, subject, bytes, nullptr});
}
CUresult cuTexObjectCreate(CUtexObject* texture, const CUDA_RESOURCE_DESC*, const CUDA_TEXTURE_DESC*,
                           const CUDA_RESOURCE_VIEW_DESC*) {
    ENTER(cuTexObjectCreate);
    ++fikit::null_driver::textures;
    *texture = handles.fetch_add(1);
    return CUDA_SUCCESS;
}
CUresult cuTexObjectDestroy(CUtexObject) {
    ENTER(cuTexObjectDestroy);
    --fikit::null_driver::textures;
    return CUDA_SUCCESS;
}
CUresult cuSurfObjectCreate(CUsurfObject* surface, const CUDA_RESOURCE_DESC*) {
    ENTER(cuSurfObjectCreate);
    ++fikit::null_driver::textures;
    *surface = handles.fetch_add(1);
    return CUDA_SUCCESS;
}
CUresult cuSurfObjectDestroy(CUsurfObject) {
    ENTER(cuSurfObjectDestroy);
    --fikit::null_driver::textures;
    return CUDA_SUCCESS;
}

}  // extern "C"
