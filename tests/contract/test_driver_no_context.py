"""Calls of a thread without a current context: what a handle or an address tells needs none."""

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
from cuda_calls import KERNELS, Cuda


class Things:
    """Made while there is a context, used when there is none."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda
        self.stream, self.second = cuda.stream(), cuda.stream()
        self.event, self.other = (cuda.cuEventCreate(0) for _ in range(2))
        self.module = cuda.cuModuleLoadData(KERNELS)
        self.function = cuda.cuModuleGetFunction(self.module, b"store")
        self.library = cuda.cuLibraryLoadData(KERNELS, [], [], 0, [], [], 0)
        self.kernel = cuda.cuLibraryGetKernel(self.library, b"store")
        self.place = cuda.device_words(32)
        self.pinned, _ = cuda.pinned_words(16)
        self.words = (ctypes.c_uint32 * 16)()
        self.host = ctypes.addressof(self.words)
        self.memory_type = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        self.plan = cuda.cuGraphCreate(0)
        self.graph = cuda.cuGraphInstantiate(self.plan, 0)
        self.pool = cuda.cuDeviceGetDefaultMemPool(cuda.device)
        self.pooled = cuda.cuMemAllocAsync(64, self.stream)
        for event in (self.event, self.other):
            cuda.cuEventRecord(event, self.stream)
        cuda.cuStreamSynchronize(self.stream)
        cuda.cuCtxSetCurrent(None)

    def launch(self, function: Any, stream: Any) -> None:
        """Launch store(place, 7)."""
        self.cuda.launch_function(function, self.place, ctypes.c_uint32(7), stream=stream)

    def capture(self) -> Any:
        """Capture nothing."""
        self.cuda.cuStreamBeginCapture(
            self.stream, self.cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        )
        return self.cuda.cuStreamEndCapture(self.stream)


Call = Callable[[Cuda, Things], Any]
NEED_NONE: dict[str, Call] = {
    "cuStreamSynchronize": lambda cuda, my: cuda.cuStreamSynchronize(my.stream),
    "cuStreamQuery": lambda cuda, my: cuda.cuStreamQuery(my.stream),
    "cuStreamGetCtx": lambda cuda, my: cuda.cuStreamGetCtx(my.stream),
    "cuStreamGetFlags": lambda cuda, my: cuda.cuStreamGetFlags(my.stream),
    "cuStreamGetPriority": lambda cuda, my: cuda.cuStreamGetPriority(my.stream),
    "cuStreamGetId": lambda cuda, my: cuda.cuStreamGetId(my.stream),
    "cuStreamIsCapturing": lambda cuda, my: cuda.cuStreamIsCapturing(my.stream),
    "cuStreamGetCaptureInfo": lambda cuda, my: cuda.cuStreamGetCaptureInfo(my.stream),
    "capture": lambda _, my: my.capture(),
    "cuEventRecord": lambda cuda, my: cuda.cuEventRecord(my.event, my.stream),
    "cuEventQuery": lambda cuda, my: cuda.cuEventQuery(my.event),
    "cuEventSynchronize": lambda cuda, my: cuda.cuEventSynchronize(my.event),
    "cuEventElapsedTime": lambda cuda, my: cuda.cuEventElapsedTime(my.event, my.other),
    "cuStreamWaitEvent": lambda cuda, my: cuda.cuStreamWaitEvent(my.stream, my.event, 0),
    "cuMemsetD8Async": lambda cuda, my: cuda.cuMemsetD8Async(my.place, 1, 64, my.stream),
    "cuMemcpyHtoDAsync": lambda cuda, my: cuda.cuMemcpyHtoDAsync(my.place, my.host, 64, my.stream),
    "cuMemcpyDtoHAsync": lambda cuda, my: cuda.cuMemcpyDtoHAsync(my.host, my.place, 64, my.stream),
    "cuMemcpyDtoDAsync": lambda cuda, my: cuda.cuMemcpyDtoDAsync(my.place, my.place + 64, 64, my.stream),
    "cuMemcpyAsync": lambda cuda, my: cuda.cuMemcpyAsync(my.place, my.place + 64, 64, my.stream),
    "cuStreamWriteValue32": lambda cuda, my: cuda.cuStreamWriteValue32(my.stream, my.place, 1, 0),
    "cuLaunchKernel": lambda _, my: my.launch(my.function, my.stream),
    "cuLaunchKernel of a library": lambda cuda, my: my.launch(cuda.CUfunction(int(my.kernel)), my.stream),
    "cuStreamWaitValue32": lambda cuda, my: cuda.cuStreamWaitValue32(my.stream, my.place, 0, 1),
    "cuStreamBatchMemOp": lambda cuda, my: cuda.cuStreamBatchMemOp(my.stream, 0, [], 0),
    "cuStreamCopyAttributes": lambda cuda, my: cuda.cuStreamCopyAttributes(my.second, my.stream),
    "cuMemcpyPeerAsync": lambda cuda, my: cuda.cuMemcpyPeerAsync(
        my.place, cuda.context, my.place + 64, cuda.context, 64, my.stream
    ),
    "cuMemAllocAsync": lambda cuda, my: cuda.cuMemAllocAsync(64, my.stream),
    "cuMemAllocFromPoolAsync": lambda cuda, my: cuda.cuMemAllocFromPoolAsync(64, my.pool, my.stream),
    "cuMemFreeAsync": lambda cuda, my: cuda.cuMemFreeAsync(my.pooled, my.stream),
    "cuMemPoolTrimTo": lambda cuda, my: cuda.cuMemPoolTrimTo(my.pool, 0),
    "cuMemAddressReserve": lambda cuda, _: cuda.cuMemAddressReserve(2 << 20, 0, 0, 0),
    "cuPointerGetAttribute": lambda cuda, my: cuda.cuPointerGetAttribute(my.memory_type, my.place),
    "cuPointerGetAttribute of the host's": lambda cuda, my: cuda.cuPointerGetAttribute(
        my.memory_type, my.pinned
    ),
    "cuPointerGetAttributes": lambda cuda, my: cuda.cuPointerGetAttributes(1, [my.memory_type], my.place),
    "cuGraphLaunch": lambda cuda, my: cuda.cuGraphLaunch(my.graph, my.stream),
    "cuGraphCreate": lambda cuda, _: cuda.cuGraphCreate(0),
    "cuGraphClone": lambda cuda, my: cuda.cuGraphClone(my.plan),
    "cuGraphAddEmptyNode": lambda cuda, my: cuda.cuGraphAddEmptyNode(my.plan, None, 0),
    "cuGraphUpload": lambda cuda, my: cuda.cuGraphUpload(my.graph, my.stream),
    "cuGraphExecDestroy": lambda cuda, my: cuda.cuGraphExecDestroy(my.graph),
    "cuFuncGetAttribute": lambda cuda, my: cuda.cuFuncGetAttribute(
        cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS, my.function
    ),
    "cuFuncSetAttribute": lambda cuda, my: cuda.cuFuncSetAttribute(
        my.function, cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64
    ),
    "cuFuncLoad": lambda cuda, my: cuda.cuFuncLoad(my.function),
    "cuFuncGetName": lambda cuda, my: cuda.cuFuncGetName(my.function),
    "cuFuncGetModule": lambda cuda, my: cuda.cuFuncGetModule(my.function),
    "cuFuncGetParamInfo": lambda cuda, my: cuda.cuFuncGetParamInfo(my.function, 0),
    "cuKernelGetName": lambda cuda, my: cuda.cuKernelGetName(my.kernel),
    "cuKernelGetAttribute": lambda cuda, my: cuda.cuKernelGetAttribute(
        cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS, my.kernel, cuda.device
    ),
    "cuKernelSetAttribute": lambda cuda, my: cuda.cuKernelSetAttribute(
        cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64, my.kernel, cuda.device
    ),
    "cuLibraryLoadData": lambda cuda, _: cuda.cuLibraryLoadData(KERNELS, [], [], 0, [], [], 0),
    "cuLibraryGetKernel": lambda cuda, my: cuda.cuLibraryGetKernel(my.library, b"store"),
    "cuLibraryGetKernelCount": lambda cuda, my: cuda.cuLibraryGetKernelCount(my.library),
    "cuLibraryUnload": lambda cuda, my: cuda.cuLibraryUnload(my.library),
    "cuModuleGetFunctionCount": lambda cuda, my: cuda.cuModuleGetFunctionCount(my.module),
    "cuModuleGetGlobal": lambda cuda, my: cuda.cuModuleGetGlobal(my.module, b"counter"),
    "cuModuleGetFunction": lambda cuda, my: cuda.cuModuleGetFunction(my.module, b"store"),
    "cuModuleUnload": lambda cuda, my: cuda.cuModuleUnload(my.module),
    "cuMemFree": lambda cuda, my: cuda.cuMemFree(my.place),
    "cuMemFreeHost": lambda cuda, my: cuda.cuMemFreeHost(my.pinned),
    "cuEventDestroy": lambda cuda, my: cuda.cuEventDestroy(my.event),
    "cuStreamDestroy": lambda cuda, my: cuda.cuStreamDestroy(my.stream),
}
NEED_ONE: dict[str, Call] = {
    "cuStreamSynchronize": lambda cuda, _: cuda.cuStreamSynchronize(0),
    "cuEventRecord": lambda cuda, my: cuda.cuEventRecord(my.event, 0),
    "cuMemsetD8Async": lambda cuda, my: cuda.cuMemsetD8Async(my.place, 1, 64, 0),
    "cuLaunchKernel": lambda _, my: my.launch(my.function, 0),
    "cuMemsetD8": lambda cuda, my: cuda.cuMemsetD8(my.place, 1, 64),
    "cuMemcpyHtoD": lambda cuda, my: cuda.cuMemcpyHtoD(my.place, my.host, 64),
    "cuMemcpy": lambda cuda, my: cuda.cuMemcpy(my.place, my.place + 64, 64),
    "cuMemAlloc": lambda cuda, _: cuda.cuMemAlloc(16),
    "cuMemHostAlloc": lambda cuda, _: cuda.cuMemHostAlloc(64, 0),
    "cuMemGetInfo": lambda cuda, _: cuda.cuMemGetInfo(),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": lambda cuda, my: (
        cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(my.function, 32, 0)
    ),
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": lambda cuda, my: (
        cuda.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(my.function, 32, 0, 0)
    ),
    "cuOccupancyMaxPotentialBlockSize": lambda cuda, my: cuda.cuOccupancyMaxPotentialBlockSize(
        my.function, None, 0, 0
    ),
    "cuOccupancyAvailableDynamicSMemPerBlock": lambda cuda, my: cuda.cuOccupancyAvailableDynamicSMemPerBlock(
        my.function, 1, 32
    ),
    "cuMemAllocPitch": lambda cuda, _: cuda.cuMemAllocPitch(64, 4, 16),
    "cuMemAllocManaged": lambda cuda, _: cuda.cuMemAllocManaged(64, 1),
    "cuMemHostRegister": lambda cuda, my: cuda.cuMemHostRegister(my.host, 64, 0),
    "cuMemHostGetDevicePointer": lambda cuda, my: cuda.cuMemHostGetDevicePointer(my.pinned, 0),
    "cuMemHostGetFlags": lambda cuda, my: cuda.cuMemHostGetFlags(my.pinned),
    "cuMemGetAddressRange": lambda cuda, my: cuda.cuMemGetAddressRange(my.place),
    "cuIpcGetMemHandle": lambda cuda, my: cuda.cuIpcGetMemHandle(my.place),
    "cuGraphInstantiate": lambda cuda, my: cuda.cuGraphInstantiate(my.plan, 0),
    "cuLinkCreate": lambda cuda, _: cuda.cuLinkCreate(0, [], []),
    "cuModuleLoadData": lambda cuda, _: cuda.cuModuleLoadData(KERNELS),
    "cuLibraryGetGlobal": lambda cuda, my: cuda.cuLibraryGetGlobal(my.library, b"counter"),
    "cuLibraryGetModule": lambda cuda, my: cuda.cuLibraryGetModule(my.library),
    "cuKernelGetFunction": lambda cuda, my: cuda.cuKernelGetFunction(my.kernel),
    "cuEventCreate": lambda cuda, _: cuda.cuEventCreate(0),
    "cuStreamCreate": lambda cuda, _: cuda.cuStreamCreate(1),
    "cuCtxSynchronize": lambda cuda, _: cuda.cuCtxSynchronize(),
    "cuCtxGetDevice": lambda cuda, _: cuda.cuCtxGetDevice(),
    "cuCtxGetFlags": lambda cuda, _: cuda.cuCtxGetFlags(),
    "cuCtxGetStreamPriorityRange": lambda cuda, _: cuda.cuCtxGetStreamPriorityRange(),
    "cuCtxGetLimit": lambda cuda, _: cuda.cuCtxGetLimit(cuda.CUlimit.CU_LIMIT_STACK_SIZE),
}


@pytest.fixture
def things(cuda: Cuda) -> Things:
    """Make them, and leave the thread without a context."""
    return Things(cuda)


@pytest.mark.parametrize("name", NEED_NONE)
def test_calls_that_need_none(cuda: Cuda, things: Things, name: str) -> None:
    NEED_NONE[name](cuda, things)


@pytest.mark.parametrize("name", NEED_ONE)
def test_calls_that_need_one(cuda: Cuda, things: Things, fails: Callable[..., None], name: str) -> None:
    fails("INVALID_CONTEXT", NEED_ONE[name], cuda, things)
