// Launches as CUDA 2 had them: a function keeps its block and its parameters.
#include <new>

#include "entry.hpp"
#include "objects.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

// Of what a function keeps, what `body` says; false: that cannot be.
template <class Body>
CUresult change(CUfunction handle, const Body& body) {
    Function* const function = function_of(handle);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const Locked lock(function->module->mutex);
    if (function->next_launch == nullptr) function->next_launch = new (std::nothrow) StatefulLaunch();
    if (function->next_launch == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    return body(*function->next_launch) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult cuFuncSetBlockShape(CUfunction handle, int x, int y, int z) {
    return change(handle, [&](StatefulLaunch& next) { return next.set_block(x, y, z); });
}
CUresult cuFuncSetSharedSize(CUfunction handle, unsigned int bytes) {
    return change(handle, [&](StatefulLaunch& next) {
        next.shared = bytes;
        return true;
    });
}
CUresult cuParamSetSize(CUfunction handle, unsigned int bytes) {
    return change(handle, [&](StatefulLaunch& next) { return next.set_size(bytes); });
}
CUresult cuParamSeti(CUfunction handle, int offset, unsigned int value) {
    return change(handle, [&](StatefulLaunch& next) { return next.set(offset, &value, sizeof value); });
}
CUresult cuParamSetf(CUfunction handle, int offset, float value) {
    return change(handle, [&](StatefulLaunch& next) { return next.set(offset, &value, sizeof value); });
}
CUresult cuParamSetv(CUfunction handle, int offset, void* data, unsigned int bytes) {
    return change(handle, [&](StatefulLaunch& next) { return next.set(offset, data, bytes); });
}

CUresult cuLaunchGridAsync(CUfunction handle, int width, int height, CUstream stream) {
    StatefulLaunch next;
    const CUresult result = change(handle, [&](const StatefulLaunch& kept) {
        next = kept;
        return width > 0 && height > 0;
    });
    if (result != CUDA_SUCCESS) return result;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, next.parameters, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &next.bytes, CU_LAUNCH_PARAM_END};
    return fikit::shim::cuLaunchKernel(handle, static_cast<unsigned>(width), static_cast<unsigned>(height), 1,
                                       next.block[0], next.block[1], next.block[2], next.shared, stream,
                                       nullptr, extra);
}
CUresult cuLaunchGrid(CUfunction handle, int width, int height) {
    return fikit::shim::cuLaunchGridAsync(handle, width, height, nullptr);
}
CUresult cuLaunch(CUfunction handle) { return fikit::shim::cuLaunchGridAsync(handle, 1, 1, nullptr); }

}  // namespace fikit::shim
