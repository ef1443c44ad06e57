// Launches as CUDA 2 had them: a function keeps its block and its parameters.
#include "driver.hpp"

using namespace fikit::sim;
using fikit::StatefulLaunch;

namespace {

// Of what a function keeps, what `body` says; false: that cannot be.
template <typename Body>
CUresult change(CUfunction handle, Body body) {
    const auto keep = [&](Driver& driver, Function& function) {
        Context* context = nullptr;
        if (const CUresult none = current_context(driver, context); none != CUDA_SUCCESS) return none;
        if (function.next_launch == nullptr) function.next_launch = std::make_unique<StatefulLaunch>();
        return body(*function.next_launch) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    };
    return with_handle<&Driver::functions>(handle, CUDA_ERROR_INVALID_HANDLE, keep);
}

}  // namespace

extern "C" {

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
    return cuLaunchKernel(handle, static_cast<unsigned>(width), static_cast<unsigned>(height), 1,
                          next.block[0], next.block[1], next.block[2], next.shared, stream, nullptr, extra);
}
CUresult cuLaunchGrid(CUfunction handle, int width, int height) {
    return cuLaunchGridAsync(handle, width, height, nullptr);
}
CUresult cuLaunch(CUfunction handle) { return cuLaunchGridAsync(handle, 1, 1, nullptr); }

}  // extern "C"
