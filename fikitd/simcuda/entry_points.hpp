// The entry points that the simulated driver serves: exported symbol, CUDA version that introduced
// it.
//
// The one list: the export map, the per-thread-stream variants, cuGetProcAddress' table
// (generate_exports.py) and the check that each is defined come from it. What cuda.h has beyond it
// is exported too and answers CUDA_ERROR_NOT_SUPPORTED; so do the 32-bit forms of CUDA 2
// (cuMemAlloc without _v2 and its like).
#pragma once

// clang-format off
#define FIKIT_SIM_ENTRY_POINTS(X) \
    /* Initialisation, errors, entry points */                    \
    X(cuInit, 2000)                                               \
    X(cuDriverGetVersion, 2020)                                   \
    X(cuGetErrorName, 6000)                                       \
    X(cuGetErrorString, 6000)                                     \
    X(cuGetProcAddress, 11030)                                    \
    X(cuGetProcAddress_v2, 12000)                                 \
    X(cuModuleGetLoadingMode, 11070)                              \
    X(cuProfilerStart, 4000)                                      \
    X(cuProfilerStop, 4000)                                       \
    /* Devices */                                                 \
    X(cuDeviceGet, 2000)                                          \
    X(cuDeviceGetCount, 2000)                                     \
    X(cuDeviceGetName, 2000)                                      \
    X(cuDeviceGetUuid, 9020)                                      \
    X(cuDeviceGetUuid_v2, 11040)                                  \
    X(cuDeviceTotalMem_v2, 3020)                                  \
    X(cuDeviceGetAttribute, 2000)                                 \
    X(cuDeviceGetPCIBusId, 4010)                                  \
    X(cuDeviceGetByPCIBusId, 4010)                                \
    X(cuDeviceComputeCapability, 2000)                            \
    X(cuDeviceCanAccessPeer, 4000)                                \
    X(cuDevicePrimaryCtxRetain, 7000)                             \
    X(cuDevicePrimaryCtxRelease, 7000)                            \
    X(cuDevicePrimaryCtxRelease_v2, 11000)                        \
    X(cuDevicePrimaryCtxReset, 7000)                              \
    X(cuDevicePrimaryCtxReset_v2, 11000)                          \
    X(cuDevicePrimaryCtxGetState, 7000)                           \
    X(cuDevicePrimaryCtxSetFlags, 7000)                           \
    X(cuDevicePrimaryCtxSetFlags_v2, 11000)                       \
    /* Contexts */                                                \
    X(cuCtxCreate, 2000)                                          \
    X(cuCtxCreate_v2, 3020)                                       \
    X(cuCtxCreate_v3, 11040)                                      \
    X(cuCtxCreate_v4, 12050)                                      \
    X(cuCtxDestroy, 2000)                                         \
    X(cuCtxDestroy_v2, 4000)                                      \
    X(cuCtxPushCurrent, 2000)                                     \
    X(cuCtxPushCurrent_v2, 4000)                                  \
    X(cuCtxPopCurrent, 2000)                                      \
    X(cuCtxPopCurrent_v2, 4000)                                   \
    X(cuCtxSetCurrent, 4000)                                      \
    X(cuCtxGetCurrent, 4000)                                      \
    X(cuCtxGetDevice, 2000)                                       \
    X(cuCtxGetDevice_v2, 13000)                                   \
    X(cuCtxGetFlags, 7000)                                        \
    X(cuCtxSetFlags, 12010)                                       \
    X(cuCtxGetId, 12000)                                          \
    X(cuCtxSynchronize, 2000)                                     \
    X(cuCtxSynchronize_v2, 13000)                                 \
    X(cuCtxSetLimit, 3010)                                        \
    X(cuCtxGetLimit, 3010)                                        \
    X(cuCtxGetCacheConfig, 3020)                                  \
    X(cuCtxSetCacheConfig, 3020)                                  \
    X(cuCtxGetApiVersion, 3020)                                   \
    X(cuCtxGetStreamPriorityRange, 5050)                          \
    /* Modules, libraries, functions */                           \
    X(cuModuleLoad, 2000)                                         \
    X(cuModuleLoadData, 2000)                                     \
    X(cuModuleLoadDataEx, 2010)                                   \
    X(cuModuleLoadFatBinary, 2000)                                \
    X(cuModuleUnload, 2000)                                       \
    X(cuModuleGetFunction, 2000)                                  \
    X(cuModuleGetGlobal_v2, 3020)                                 \
    X(cuModuleGetFunctionCount, 12040)                            \
    X(cuModuleEnumerateFunctions, 12040)                          \
    X(cuLibraryLoadData, 12000)                                   \
    X(cuLibraryLoadFromFile, 12000)                               \
    X(cuLibraryUnload, 12000)                                     \
    X(cuLibraryGetKernel, 12000)                                  \
    X(cuLibraryGetKernelCount, 12040)                             \
    X(cuLibraryEnumerateKernels, 12040)                           \
    X(cuLibraryGetModule, 12000)                                  \
    X(cuLibraryGetGlobal, 12000)                                  \
    X(cuLibraryGetManaged, 12000)                                 \
    X(cuLibraryGetUnifiedFunction, 12000)                         \
    X(cuKernelGetFunction, 12000)                                 \
    X(cuKernelGetLibrary, 12050)                                  \
    X(cuKernelGetAttribute, 12000)                                \
    X(cuKernelSetAttribute, 12000)                                \
    X(cuKernelGetName, 12030)                                     \
    X(cuKernelGetParamInfo, 12040)                                \
    X(cuKernelSetCacheConfig, 12000)                              \
    X(cuFuncGetAttribute, 2020)                                   \
    X(cuFuncSetAttribute, 9000)                                   \
    X(cuFuncSetCacheConfig, 3000)                                 \
    X(cuFuncGetModule, 11000)                                     \
    X(cuFuncGetName, 12030)                                       \
    X(cuFuncGetParamInfo, 12040)                                  \
    X(cuFuncIsLoaded, 12040)                                      \
    X(cuFuncLoad, 12040)                                          \
    /* Occupancy and launches */                                  \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050)          \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000) \
    X(cuOccupancyAvailableDynamicSMemPerBlock, 10020)             \
    X(cuLaunchKernel, 4000)                                       \
    X(cuLaunchKernelEx, 11060)                                    \
    X(cuLaunchCooperativeKernel, 9000)                            \
    X(cuLaunchHostFunc, 10000)                                    \
    /* Memory */                                                  \
    X(cuMemGetInfo_v2, 3020)                                      \
    X(cuMemAlloc_v2, 3020)                                        \
    X(cuMemAllocPitch_v2, 3020)                                   \
    X(cuMemFree_v2, 3020)                                         \
    X(cuMemGetAddressRange_v2, 3020)                              \
    X(cuMemAllocHost_v2, 3020)                                    \
    X(cuMemFreeHost, 2000)                                        \
    X(cuMemHostAlloc, 2020)                                       \
    X(cuMemHostGetDevicePointer_v2, 3020)                         \
    X(cuMemHostGetFlags, 2030)                                    \
    X(cuMemHostRegister, 4000)                                    \
    X(cuMemHostRegister_v2, 6050)                                 \
    X(cuMemHostUnregister, 4000)                                  \
    X(cuPointerGetAttribute, 4000)                                \
    X(cuPointerGetAttributes, 7000)                               \
    X(cuPointerSetAttribute, 6000)                                \
    /* Copies and fills */                                        \
    X(cuMemcpy, 4000)                                             \
    X(cuMemcpyAsync, 4000)                                        \
    X(cuMemcpyHtoD_v2, 3020)                                      \
    X(cuMemcpyDtoH_v2, 3020)                                      \
    X(cuMemcpyDtoD_v2, 3020)                                      \
    X(cuMemcpyHtoDAsync_v2, 3020)                                 \
    X(cuMemcpyDtoHAsync_v2, 3020)                                 \
    X(cuMemcpyDtoDAsync_v2, 3020)                                 \
    X(cuMemcpy2D_v2, 3020)                                        \
    X(cuMemcpy2DUnaligned_v2, 3020)                               \
    X(cuMemcpy2DAsync_v2, 3020)                                   \
    X(cuMemsetD8_v2, 3020)                                        \
    X(cuMemsetD16_v2, 3020)                                       \
    X(cuMemsetD32_v2, 3020)                                       \
    X(cuMemsetD2D8_v2, 3020)                                      \
    X(cuMemsetD2D16_v2, 3020)                                     \
    X(cuMemsetD2D32_v2, 3020)                                     \
    X(cuMemsetD8Async, 3020)                                      \
    X(cuMemsetD16Async, 3020)                                     \
    X(cuMemsetD32Async, 3020)                                     \
    X(cuMemsetD2D8Async, 3020)                                    \
    X(cuMemsetD2D16Async, 3020)                                   \
    X(cuMemsetD2D32Async, 3020)                                   \
    /* Virtual memory */                                          \
    X(cuMemAddressReserve, 10020)                                 \
    X(cuMemAddressFree, 10020)                                    \
    X(cuMemCreate, 10020)                                         \
    X(cuMemRelease, 10020)                                        \
    X(cuMemMap, 10020)                                            \
    X(cuMemUnmap, 10020)                                          \
    X(cuMemSetAccess, 10020)                                      \
    X(cuMemGetAccess, 10020)                                      \
    X(cuMemGetAllocationGranularity, 10020)                       \
    X(cuMemGetAllocationPropertiesFromHandle, 10020)              \
    X(cuMemRetainAllocationHandle, 11000)                         \
    /* Streams */                                                 \
    X(cuStreamCreate, 2000)                                       \
    X(cuStreamCreateWithPriority, 5050)                           \
    X(cuStreamDestroy, 2000)                                      \
    X(cuStreamDestroy_v2, 4000)                                   \
    X(cuStreamQuery, 2000)                                        \
    X(cuStreamSynchronize, 2000)                                  \
    X(cuStreamWaitEvent, 3020)                                    \
    X(cuStreamAddCallback, 5000)                                  \
    X(cuStreamGetPriority, 5050)                                  \
    X(cuStreamGetFlags, 5050)                                     \
    X(cuStreamGetId, 12000)                                       \
    X(cuStreamGetCtx, 9020)                                       \
    X(cuStreamGetCtx_v2, 12050)                                   \
    X(cuStreamGetDevice, 12080)                                   \
    X(cuStreamWriteValue32, 8000)                                 \
    X(cuStreamWriteValue32_v2, 11070)                             \
    X(cuStreamWriteValue64, 9000)                                 \
    X(cuStreamWriteValue64_v2, 11070)                             \
    X(cuStreamWaitValue32, 8000)                                  \
    X(cuStreamWaitValue32_v2, 11070)                              \
    X(cuStreamWaitValue64, 9000)                                  \
    X(cuStreamWaitValue64_v2, 11070)                              \
    X(cuStreamBatchMemOp, 8000)                                   \
    X(cuStreamBatchMemOp_v2, 11070)                               \
    X(cuStreamIsCapturing, 10000)                                 \
    X(cuStreamGetCaptureInfo, 10010)                              \
    X(cuStreamGetCaptureInfo_v2, 11030)                           \
    X(cuStreamGetCaptureInfo_v3, 12030)                           \
    X(cuThreadExchangeStreamCaptureMode, 10010)                   \
    /* Events */                                                  \
    X(cuEventCreate, 2000)                                        \
    X(cuEventDestroy, 2000)                                       \
    X(cuEventDestroy_v2, 4000)                                    \
    X(cuEventRecord, 2000)                                        \
    X(cuEventRecordWithFlags, 11010)                              \
    X(cuEventQuery, 2000)                                         \
    X(cuEventSynchronize, 2000)                                   \
    X(cuEventElapsedTime, 2000)                                   \
    X(cuEventElapsedTime_v2, 12080)                               \
    /* Green contexts */                                          \
    X(cuDeviceGetDevResource, 12040)                              \
    X(cuCtxGetDevResource, 12040)                                 \
    X(cuGreenCtxGetDevResource, 12040)                            \
    X(cuDevSmResourceSplitByCount, 12040)                         \
    X(cuDevResourceGenerateDesc, 12040)                           \
    X(cuGreenCtxCreate, 12040)                                    \
    X(cuGreenCtxDestroy, 12040)                                   \
    X(cuCtxFromGreenCtx, 12040)                                   \
    X(cuGreenCtxRecordEvent, 12040)                               \
    X(cuGreenCtxWaitEvent, 12040)                                 \
    X(cuGreenCtxStreamCreate, 12050)                              \
    X(cuStreamGetGreenCtx, 12040)                                 \
    /* Arrays */                                                  \
    X(cuArrayCreate_v2, 3020)                                     \
    X(cuArray3DCreate_v2, 3020)                                   \
    X(cuArrayGetDescriptor_v2, 3020)                              \
    X(cuArray3DGetDescriptor_v2, 3020)                            \
    X(cuArrayDestroy, 2000)                                       \
    X(cuArrayGetSparseProperties, 11010)                          \
    X(cuArrayGetMemoryRequirements, 11060)                        \
    X(cuMipmappedArrayGetSparseProperties, 11010)                 \
    X(cuMipmappedArrayGetMemoryRequirements, 11060)               \
    X(cuMipmappedArrayCreate, 5000)                               \
    X(cuMipmappedArrayGetLevel, 5000)                             \
    X(cuMipmappedArrayDestroy, 5000)                              \
    X(cuTexObjectCreate, 5000)                                    \
    X(cuTexObjectDestroy, 5000)                                   \
    X(cuTexObjectGetResourceDesc, 5000)                           \
    X(cuTexObjectGetTextureDesc, 5000)                            \
    X(cuSurfObjectCreate, 5000)                                   \
    X(cuSurfObjectDestroy, 5000)                                  \
    X(cuSurfObjectGetResourceDesc, 5000)                          \
    /* Stream capture */                                          \
    X(cuStreamBeginCapture_v2, 10010)                             \
    X(cuStreamBeginCapture, 10000)                                \
    X(cuStreamBeginCaptureToGraph, 12030)                         \
    X(cuStreamEndCapture, 10000)                                  \
    X(cuStreamUpdateCaptureDependencies, 11030)                   \
    X(cuStreamUpdateCaptureDependencies_v2, 12030)                \
    /* Copies of more dimensions, with arrays, between contexts */ \
    X(cuMemcpyPeer, 4000)                                         \
    X(cuMemcpyPeerAsync, 4000)                                    \
    X(cuMemcpyDtoA_v2, 3020)                                      \
    X(cuMemcpyAtoD_v2, 3020)                                      \
    X(cuMemcpyHtoA_v2, 3020)                                      \
    X(cuMemcpyAtoH_v2, 3020)                                      \
    X(cuMemcpyAtoA_v2, 3020)                                      \
    X(cuMemcpyHtoAAsync_v2, 3020)                                 \
    X(cuMemcpyAtoHAsync_v2, 3020)                                 \
    X(cuMemcpy3D_v2, 3020)                                        \
    X(cuMemcpy3DAsync_v2, 3020)                                   \
    X(cuMemcpy3DPeer, 4000)                                       \
    X(cuMemcpy3DPeerAsync, 4000)                                  \
    /* Batches of copies */                                       \
    X(cuMemcpyBatchAsync, 12080)                                  \
    X(cuMemcpyBatchAsync_v2, 13000)                               \
    X(cuMemcpy3DBatchAsync, 12080)                                \
    X(cuMemcpy3DBatchAsync_v2, 13000)                             \
    /* Graphs */                                                  \
    X(cuGraphCreate, 10000)                                       \
    X(cuGraphDestroy, 10000)                                      \
    X(cuGraphClone, 10000)                                        \
    X(cuGraphNodeFindInClone, 10000)                              \
    X(cuGraphNodeGetType, 10000)                                  \
    X(cuGraphGetNodes, 10000)                                     \
    X(cuGraphGetRootNodes, 10000)                                 \
    X(cuGraphGetEdges, 10000)                                     \
    X(cuGraphGetEdges_v2, 12030)                                  \
    X(cuGraphNodeGetDependencies_v2, 12030)                       \
    X(cuGraphNodeGetDependencies, 10000)                          \
    X(cuGraphNodeGetDependentNodes_v2, 12030)                     \
    X(cuGraphNodeGetDependentNodes, 10000)                        \
    X(cuGraphAddDependencies, 10000)                              \
    X(cuGraphAddDependencies_v2, 12030)                           \
    X(cuGraphRemoveDependencies, 10000)                           \
    X(cuGraphRemoveDependencies_v2, 12030)                        \
    X(cuGraphDestroyNode, 10000)                                  \
    /* Nodes of graphs */                                         \
    X(cuGraphAddNode, 12020)                                      \
    X(cuGraphAddNode_v2, 12030)                                   \
    X(cuGraphAddKernelNode, 10000)                                \
    X(cuGraphAddKernelNode_v2, 12000)                             \
    X(cuGraphAddMemcpyNode, 10000)                                \
    X(cuGraphAddMemsetNode, 10000)                                \
    X(cuGraphAddHostNode, 10000)                                  \
    X(cuGraphAddChildGraphNode, 10000)                            \
    X(cuGraphAddEmptyNode, 10000)                                 \
    X(cuGraphAddEventRecordNode, 11010)                           \
    X(cuGraphAddEventWaitNode, 11010)                             \
    X(cuGraphAddBatchMemOpNode, 11070)                            \
    X(cuGraphAddMemAllocNode, 11040)                              \
    X(cuGraphAddMemFreeNode, 11040)                               \
    X(cuGraphConditionalHandleCreate, 12030)                      \
    /* Executable graphs */                                       \
    X(cuGraphInstantiateWithFlags, 11040)                         \
    X(cuGraphInstantiate, 10000)                                  \
    X(cuGraphInstantiate_v2, 11000)                               \
    X(cuGraphInstantiateWithParams, 12000)                        \
    X(cuGraphExecGetFlags, 12000)                                 \
    X(cuGraphUpload, 11010)                                       \
    X(cuGraphLaunch, 10000)                                       \
    X(cuGraphExecDestroy, 10000)                                  \
    X(cuGraphExecUpdate_v2, 12000)                                \
    X(cuGraphExecUpdate, 10020)                                   \
    X(cuGraphNodeSetEnabled, 11060)                               \
    X(cuGraphNodeGetEnabled, 11060)                               \
    X(cuGraphDebugDotPrint, 11030)                                \
    X(cuDeviceGraphMemTrim, 11040)                                \
    X(cuDeviceGetGraphMemAttribute, 11040)                        \
    X(cuDeviceSetGraphMemAttribute, 11040)                        \
    X(cuUserObjectCreate, 11030)                                  \
    X(cuUserObjectRetain, 11030)                                  \
    X(cuUserObjectRelease, 11030)                                 \
    X(cuGraphRetainUserObject, 11030)                             \
    X(cuGraphReleaseUserObject, 11030)                            \
    /* What nodes do */                                           \
    X(cuGraphNodeSetParams, 12020)                                \
    X(cuGraphExecNodeSetParams, 12020)                            \
    X(cuGraphKernelNodeGetParams_v2, 12000)                       \
    X(cuGraphKernelNodeGetParams, 10000)                          \
    X(cuGraphKernelNodeSetParams, 10000)                          \
    X(cuGraphKernelNodeSetParams_v2, 12000)                       \
    X(cuGraphExecKernelNodeSetParams, 10010)                      \
    X(cuGraphExecKernelNodeSetParams_v2, 12000)                   \
    X(cuGraphKernelNodeSetAttribute, 11000)                       \
    X(cuGraphKernelNodeGetAttribute, 11000)                       \
    X(cuGraphKernelNodeCopyAttributes, 11000)                     \
    X(cuGraphMemcpyNodeGetParams, 10000)                          \
    X(cuGraphMemcpyNodeSetParams, 10000)                          \
    X(cuGraphExecMemcpyNodeSetParams, 10020)                      \
    X(cuGraphMemsetNodeGetParams, 10000)                          \
    X(cuGraphMemsetNodeSetParams, 10000)                          \
    X(cuGraphExecMemsetNodeSetParams, 10020)                      \
    X(cuGraphHostNodeGetParams, 10000)                            \
    X(cuGraphHostNodeSetParams, 10000)                            \
    X(cuGraphExecHostNodeSetParams, 10020)                        \
    X(cuGraphChildGraphNodeGetGraph, 10000)                       \
    X(cuGraphExecChildGraphNodeSetParams, 11010)                  \
    X(cuGraphEventRecordNodeGetEvent, 11010)                      \
    X(cuGraphEventRecordNodeSetEvent, 11010)                      \
    X(cuGraphExecEventRecordNodeSetEvent, 11010)                  \
    X(cuGraphEventWaitNodeGetEvent, 11010)                        \
    X(cuGraphEventWaitNodeSetEvent, 11010)                        \
    X(cuGraphExecEventWaitNodeSetEvent, 11010)                    \
    X(cuGraphBatchMemOpNodeGetParams, 11070)                      \
    X(cuGraphBatchMemOpNodeSetParams, 11070)                      \
    X(cuGraphExecBatchMemOpNodeSetParams, 11070)                  \
    X(cuGraphMemAllocNodeGetParams, 11040)                        \
    X(cuGraphMemFreeNodeGetParams, 11040)                         \
    /* Linker */                                                  \
    X(cuLinkCreate_v2, 6050)                                      \
    X(cuLinkAddData_v2, 6050)                                     \
    X(cuLinkAddFile_v2, 6050)                                     \
    X(cuLinkComplete, 5050)                                       \
    X(cuLinkDestroy, 5050)                                        \
    /* Occupancy */                                               \
    X(cuOccupancyMaxPotentialBlockSizeWithFlags, 7000)            \
    X(cuOccupancyMaxPotentialBlockSize, 6050)                     \
    X(cuOccupancyMaxPotentialClusterSize, 11070)                  \
    X(cuOccupancyMaxActiveClusters, 11070)                        \
    /* Memory pools */                                            \
    X(cuMemPoolCreate, 11020)                                     \
    X(cuMemPoolDestroy, 11020)                                    \
    X(cuMemPoolTrimTo, 11020)                                     \
    X(cuMemPoolSetAttribute, 11020)                               \
    X(cuMemPoolGetAttribute, 11020)                               \
    X(cuMemPoolSetAccess, 11020)                                  \
    X(cuMemPoolGetAccess, 11020)                                  \
    X(cuDeviceGetDefaultMemPool, 11020)                           \
    X(cuDeviceGetMemPool, 11020)                                  \
    X(cuDeviceSetMemPool, 11020)                                  \
    X(cuMemGetDefaultMemPool, 13000)                              \
    X(cuMemGetMemPool, 13000)                                     \
    X(cuMemSetMemPool, 13000)                                     \
    X(cuMemAllocAsync, 11020)                                     \
    X(cuMemAllocFromPoolAsync, 11020)                             \
    X(cuMemFreeAsync, 11020)                                      \
    /* Managed memory */                                          \
    X(cuMemAllocManaged, 6000)                                    \
    X(cuMemAdvise, 8000)                                          \
    X(cuMemAdvise_v2, 12020)                                      \
    X(cuMemPrefetchAsync, 8000)                                   \
    X(cuMemPrefetchAsync_v2, 12020)                               \
    X(cuMemPrefetchBatchAsync, 13000)                             \
    X(cuMemDiscardBatchAsync, 13000)                              \
    X(cuMemDiscardAndPrefetchBatchAsync, 13000)                   \
    X(cuMemRangeGetAttribute, 8000)                               \
    X(cuMemRangeGetAttributes, 8000)                              \
    X(cuStreamAttachMemAsync, 6000)                               \
    /* Memory that processes share */                             \
    X(cuMemExportToShareableHandle, 10020)                        \
    X(cuMemImportFromShareableHandle, 10020)                      \
    X(cuMemPoolExportToShareableHandle, 11020)                    \
    X(cuMemPoolImportFromShareableHandle, 11020)                  \
    X(cuMemPoolExportPointer, 11020)                              \
    X(cuMemPoolImportPointer, 11020)                              \
    X(cuIpcGetMemHandle, 4010)                                    \
    X(cuIpcOpenMemHandle_v2, 11000)                               \
    X(cuIpcOpenMemHandle, 4010)                                   \
    X(cuIpcCloseMemHandle, 4010)                                  \
    X(cuIpcGetEventHandle, 4010)                                  \
    X(cuIpcOpenEventHandle, 4010)                                 \
    /* Attributes of streams */                                   \
    X(cuStreamCopyAttributes, 11000)                              \
    X(cuStreamGetAttribute, 11000)                                \
    X(cuStreamSetAttribute, 11000)                                \
    /* api_context.cpp */                                         \
    X(cuCtxGetSharedMemConfig, 4020)                              \
    X(cuCtxSetSharedMemConfig, 4020)                              \
    X(cuCtxResetPersistingL2Cache, 11000)                         \
    X(cuCtxRecordEvent, 12050)                                    \
    X(cuCtxWaitEvent, 12050)                                      \
    /* Core dumps */                                              \
    X(cuCoredumpGetAttribute, 12010)                              \
    X(cuCoredumpGetAttributeGlobal, 12010)                        \
    X(cuCoredumpSetAttribute, 12010)                              \
    X(cuCoredumpSetAttributeGlobal, 12010)                        \
    /* api_device.cpp */                                          \
    X(cuDeviceGetProperties, 2000)                                \
    /* api_function.cpp */                                        \
    X(cuFuncSetSharedMemConfig, 4020)                             \
    /* api_green.cpp */                                           \
    X(cuGreenCtxGetId, 12090)                                     \
    /* Peers */                                                   \
    X(cuDeviceGetP2PAttribute, 8000)                              \
    X(cuCtxEnablePeerAccess, 4000)                                \
    X(cuCtxDisablePeerAccess, 4000)                               \
    /* Tensor maps */                                             \
    X(cuTensorMapEncodeTiled, 12000)                              \
    X(cuTensorMapEncodeIm2col, 12000)                             \
    X(cuTensorMapReplaceAddress, 12000)

// clang-format on
