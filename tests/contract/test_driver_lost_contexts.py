"""What a fault has ended, and what no current context is: as an H200 with driver 580 answers."""

import os

import pytest
from cuda_calls import KERNELS, Alone, Cuda

LOST, NONE, OK = "ERROR_ILLEGAL_ADDRESS", "ERROR_INVALID_CONTEXT", "SUCCESS"
ANSWERS = {  # after a fault; without a current context
    "cuStreamGetFlags": (LOST, OK),
    "cuStreamGetPriority": (LOST, OK),
    "cuStreamGetId": (LOST, OK),
    "cuStreamGetCtx": (LOST, OK),
    "cuStreamGetDevice": (LOST, OK),
    "cuStreamGetAttribute": (LOST, OK),
    "cuStreamCopyAttributes": (LOST, OK),
    "cuStreamGetFlags 0": (LOST, NONE),
    "cuStreamGetPriority 0": (LOST, NONE),
    "cuFuncGetName": (LOST, OK),
    "cuFuncGetModule": (LOST, OK),
    "cuFuncGetParamInfo": (LOST, OK),
    "cuFuncIsLoaded": (LOST, OK),
    "cuFuncSetBlockShape": (LOST, NONE),
    "cuParamSetSize": (LOST, NONE),
    "cuKernelGetName": (OK, OK),
    "cuKernelGetAttribute": (OK, OK),
    "cuKernelGetParamInfo": (LOST, NONE),
    "cuCtxGetApiVersion 0": (LOST, NONE),
    "cuCtxGetId 0": (LOST, NONE),
    "cuCtxGetCacheConfig": (LOST, NONE),
    "cuCtxGetSharedMemConfig": (LOST, NONE),
    "cuCtxGetStreamPriorityRange": (LOST, NONE),
    "cuCtxResetPersistingL2Cache": (LOST, NONE),
    "cuProfilerStart": (LOST, NONE),
    "cuMemcpyDtoD": (LOST, NONE),
    "cuMemcpyDtoDAsync": (LOST, OK),
    "cuMemsetD32": (LOST, NONE),
    "cuMemsetD32Async": (LOST, OK),
    "cuMemPoolGetAttribute": (OK, OK),
    "cuArray3DGetDescriptor": (LOST, OK),
    "cuArrayGetSparseProperties": ("ERROR_INVALID_VALUE", "ERROR_INVALID_VALUE"),
    "cuTensorMapReplaceAddress": (LOST, NONE),
    "cuGraphGetNodes": (OK, OK),
    "cuGraphNodeGetType": (OK, OK),
    "cuGraphAddEmptyNode": (OK, OK),
    "cuGraphMemsetNodeGetParams": (OK, OK),
    "cuGraphMemsetNodeSetParams": (LOST, OK),
    "cuGraphExecGetFlags": (OK, OK),
    "cuGraphUpload": (LOST, OK),
    "cuGraphClone": (OK, OK),
}


def asked(cuda: Cuda) -> None:
    driver = cuda.driver
    stream, other, zero = cuda.stream(), cuda.stream(), driver.CUstream(0)
    place = cuda.device_words(16)
    kernel = cuda.function("store")
    library = cuda.cuLibraryLoadData(KERNELS, [], [], 0, [], [], 0)
    of_library = cuda.cuLibraryGetKernel(library, b"store")
    shape = driver.CUDA_ARRAY_DESCRIPTOR()
    shape.Width, shape.Height, shape.NumChannels = 16, 16, 1
    shape.Format = driver.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8
    array = cuda.cuArrayCreate(shape)
    graph = cuda.cuGraphCreate(0)
    empty = cuda.cuGraphAddEmptyNode(graph, [], 0)
    fill = driver.CUDA_MEMSET_NODE_PARAMS()
    fill.dst, fill.elementSize, fill.width, fill.height = place, 4, 1, 1
    node = cuda.cuGraphAddMemsetNode(graph, [], 0, fill, cuda.cuCtxGetCurrent())
    executable = cuda.cuGraphInstantiate(graph, 0)
    registers = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS
    policy = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
    pool = cuda.cuDeviceGetDefaultMemPool(0)
    threshold = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    if os.environ["AFTER"] == "fault":
        cuda.launch("store", 0x10, 1)
        cuda.result("cuCtxSynchronize")
    else:
        cuda.cuCtxPopCurrent()
    for name, *arguments in (
        ("cuStreamGetFlags", stream),
        ("cuStreamGetPriority", stream),
        ("cuStreamGetId", stream),
        ("cuStreamGetCtx", stream),
        ("cuStreamGetDevice", stream),
        ("cuStreamGetAttribute", stream, policy),
        ("cuStreamCopyAttributes", other, stream),
        ("cuStreamGetFlags 0", zero),
        ("cuStreamGetPriority 0", zero),
        ("cuFuncGetName", kernel),
        ("cuFuncGetModule", kernel),
        ("cuFuncGetParamInfo", kernel, 0),
        ("cuFuncIsLoaded", kernel),
        ("cuFuncSetBlockShape", kernel, 1, 1, 1),
        ("cuParamSetSize", kernel, 12),
        ("cuKernelGetName", of_library),
        ("cuKernelGetAttribute", registers, of_library, 0),
        ("cuKernelGetParamInfo", of_library, 0),
        ("cuCtxGetApiVersion 0", None),
        ("cuCtxGetId 0", None),
        ("cuCtxGetCacheConfig",),
        ("cuCtxGetSharedMemConfig",),
        ("cuCtxGetStreamPriorityRange",),
        ("cuCtxResetPersistingL2Cache",),
        ("cuProfilerStart",),
        ("cuMemcpyDtoD", place, place, 0),
        ("cuMemcpyDtoDAsync", place, place, 0, stream),
        ("cuMemsetD32", place, 0, 0),
        ("cuMemsetD32Async", place, 0, 0, stream),
        ("cuMemPoolGetAttribute", pool, threshold),
        ("cuArray3DGetDescriptor", array),
        ("cuArrayGetSparseProperties", array),
        ("cuTensorMapReplaceAddress", driver.CUtensorMap(), place),
        ("cuGraphGetNodes", graph, 0),
        ("cuGraphNodeGetType", empty),
        ("cuGraphAddEmptyNode", graph, [], 0),
        ("cuGraphMemsetNodeGetParams", node),
        ("cuGraphMemsetNodeSetParams", node, fill),
        ("cuGraphExecGetFlags", executable),
        ("cuGraphUpload", executable, stream),
        ("cuGraphClone", graph),
    ):
        print(f"{name}: {cuda.result(name.split()[0], *arguments)}")


@pytest.mark.parametrize(("after", "which"), [("fault", 0), ("pop", 1)])
def test_who_answers(alone: Alone, after: str, which: int) -> None:
    told = dict(line.split(": ") for line in alone(asked, AFTER=after).splitlines())
    assert told == {name: answers[which] for name, answers in ANSWERS.items()}
