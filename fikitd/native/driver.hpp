// The driver functions the core calls: one list, from which the table, the look-up and its errors derive.
// The table is filled from whichever libcuda the process was told to use; nothing links against it.
#pragma once

#include <cuda.h>

#include <string>

namespace fikit {

// Names as cuda.h spells them; its macros turn them into the current ABI's symbols (_v2, ...).
#define FIKIT_DRIVER_FUNCTIONS(X)                           \
    X(cuGetErrorName)                                       \
    X(cuDriverGetVersion)                                   \
    X(cuCtxSetCurrent)                                      \
    X(cuCtxGetDevice)                                       \
    X(cuCtxGetLimit)                                        \
    X(cuCtxSetLimit)                                        \
    X(cuStreamSynchronize)                                  \
    X(cuDeviceGetAttribute)                                 \
    X(cuDeviceGetName)                                      \
    X(cuDeviceGetUuid)                                      \
    X(cuDeviceTotalMem)                                     \
    X(cuMemGetInfo)                                         \
    X(cuMemAddressReserve)                                  \
    X(cuMemAddressFree)                                     \
    X(cuMemCreate)                                          \
    X(cuMemRelease)                                         \
    X(cuMemMap)                                             \
    X(cuMemUnmap)                                           \
    X(cuMemSetAccess)                                       \
    X(cuMemHostRegister)                                    \
    X(cuMemHostUnregister)                                  \
    X(cuMemHostGetDevicePointer)                            \
    X(cuMemcpyHtoDAsync)                                    \
    X(cuMemcpyDtoHAsync)                                    \
    X(cuMemcpyDtoDAsync)                                    \
    X(cuMemsetD8Async)                                      \
    X(cuMemsetD16Async)                                     \
    X(cuMemsetD32Async)                                     \
    X(cuLibraryLoadData)                                    \
    X(cuLibraryGetModule)                                   \
    X(cuLibraryUnload)                                      \
    X(cuModuleGetFunction)                                  \
    X(cuModuleGetGlobal)                                    \
    X(cuPointerGetAttribute)                                \
    X(cuFuncGetAttribute)                                   \
    X(cuFuncSetAttribute)                                   \
    X(cuFuncLoad)                                           \
    X(cuFuncGetParamInfo)                                   \
    X(cuFuncGetName)                                        \
    X(cuModuleGetFunctionCount)                             \
    X(cuModuleEnumerateFunctions)                           \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor)          \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) \
    X(cuOccupancyAvailableDynamicSMemPerBlock)              \
    X(cuOccupancyMaxActiveClusters)                         \
    X(cuOccupancyMaxPotentialClusterSize)                   \
    X(cuLaunchKernel)                                       \
    X(cuLaunchKernelEx)                                     \
    X(cuGraphCreate)                                        \
    X(cuGraphDestroy)                                       \
    X(cuGraphAddKernelNode)                                 \
    X(cuGraphKernelNodeSetAttribute)                        \
    X(cuGraphAddMemcpyNode)                                 \
    X(cuGraphAddMemsetNode)                                 \
    X(cuGraphAddEmptyNode)                                  \
    X(cuGraphInstantiateWithFlags)                          \
    X(cuGraphExecDestroy)                                   \
    X(cuGraphLaunch)                                        \
    X(cuStreamQuery)                                        \
    X(cuStreamWaitEvent)                                    \
    X(cuStreamWriteValue64)                                 \
    X(cuStreamWaitValue64)                                  \
    X(cuStreamBatchMemOp)                                   \
    X(cuEventCreate)                                        \
    X(cuEventDestroy)                                       \
    X(cuEventRecord)                                        \
    X(cuEventQuery)                                         \
    X(cuEventElapsedTime)                                   \
    X(cuGraphConditionalHandleCreate)                       \
    X(cuGraphAddNode)                                       \
    X(cuGraphAddDependencies)                               \
    X(cuGraphGetNodes)                                      \
    X(cuGraphDestroyNode)                                   \
    X(cuLinkCreate)                                         \
    X(cuLinkAddData)                                        \
    X(cuLinkComplete)                                       \
    X(cuLinkDestroy)                                        \
    X(cuTensorMapEncodeTiled)                               \
    X(cuTensorMapEncodeIm2col)                              \
    X(cuTensorMapReplaceAddress)                            \
    X(cuArray3DCreate)                                      \
    X(cuArrayDestroy)                                       \
    X(cuMipmappedArrayCreate)                               \
    X(cuMipmappedArrayGetLevel)                             \
    X(cuMipmappedArrayDestroy)                              \
    X(cuMemcpy3DAsync)                                      \
    X(cuTexObjectCreate)                                    \
    X(cuTexObjectDestroy)                                   \
    X(cuSurfObjectCreate)                                   \
    X(cuSurfObjectDestroy)

struct Driver {
#define FIKIT_DRIVER_MEMBER(name) decltype(&name) name##_ = nullptr;
    FIKIT_DRIVER_FUNCTIONS(FIKIT_DRIVER_MEMBER)
#undef FIKIT_DRIVER_MEMBER

    // Fills the table from the shared object at `path`; an empty string, or what was wrong.
    std::string load(const char* path);

    // "CUDA_ERROR_INVALID_VALUE (1)"
    std::string describe(CUresult result) const;
};

// What a lost context answers from then on, and with it every session of the process is lost
// (CUDA driver API, "sticky" errors; measured on the H200: every context of the process).
inline bool is_sticky(CUresult result) {
    switch (result) {
        case CUDA_ERROR_ILLEGAL_ADDRESS:
        case CUDA_ERROR_LAUNCH_TIMEOUT:
        case CUDA_ERROR_HARDWARE_STACK_ERROR:
        case CUDA_ERROR_ILLEGAL_INSTRUCTION:
        case CUDA_ERROR_MISALIGNED_ADDRESS:
        case CUDA_ERROR_INVALID_ADDRESS_SPACE:
        case CUDA_ERROR_INVALID_PC:
        case CUDA_ERROR_LAUNCH_FAILED:
        case CUDA_ERROR_ASSERT:
        case CUDA_ERROR_ECC_UNCORRECTABLE:
        case CUDA_ERROR_CONTEXT_IS_DESTROYED:
        case CUDA_ERROR_DEINITIALIZED:
        case CUDA_ERROR_DEVICE_UNAVAILABLE:
        case CUDA_ERROR_MPS_CLIENT_TERMINATED:
        case CUDA_ERROR_UNKNOWN:
            return true;
        default:
            return false;
    }
}

}  // namespace fikit
