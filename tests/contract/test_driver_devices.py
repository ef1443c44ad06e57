"""Initialisation, devices, contexts, entry points."""

import ctypes
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest
from cuda_calls import SHIM, Alone, Check, Cuda

ATTRIBUTES = Path(__file__).parents[1] / "data/h200-attributes.json"
"""All attributes of an H200 (driver 580) but where it sits on the bus."""


def test_version_and_device(cuda: Cuda) -> None:
    assert cuda.cuDriverGetVersion() >= 13000
    assert cuda.cuDeviceGetCount() >= 1
    assert cuda.cuDeviceGetName(64, cuda.device).startswith(b"NVIDIA H200" if cuda.simulated else b"NVIDIA ")
    assert cuda.cuDeviceTotalMem(cuda.device) >= 1 << 30


NOT_SIMULATED = {
    "COOPERATIVE_MULTI_DEVICE_LAUNCH",
    "DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED",
    "DMA_BUF_SUPPORTED",
    "GENERIC_COMPRESSION_SUPPORTED",
    "GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS",
    "GPU_DIRECT_RDMA_SUPPORTED",
    "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED",
    "GPU_DIRECT_RDMA_WRITES_ORDERING",
    "HANDLE_TYPE_FABRIC_SUPPORTED",
    "HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
    "IPC_EVENT_SUPPORTED",
    "MEMPOOL_SUPPORTED_HANDLE_TYPES",
    "READ_ONLY_HOST_REGISTER_SUPPORTED",
    "SPARSE_CUDA_ARRAY_SUPPORTED",
    "TIMELINE_SEMAPHORE_INTEROP_SUPPORTED",
}
"""Attributes that tell of features which the simulated device lacks."""

NOT_SHARED = {
    "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM",
    "DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED",
    "DMA_BUF_SUPPORTED",
    "GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS",
    "GPU_DIRECT_RDMA_SUPPORTED",
    "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED",
    "HANDLE_TYPE_FABRIC_SUPPORTED",
    "HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
    "HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
    "MEMPOOL_SUPPORTED_HANDLE_TYPES",
    "READ_ONLY_HOST_REGISTER_SUPPORTED",
    "SPARSE_CUDA_ARRAY_SUPPORTED",
    "TIMELINE_SEMAPHORE_INTEROP_SUPPORTED",
}
"""Attributes that tell of features of the device which fikitd's libcuda lacks: of pools, fabric handles."""

OF_THE_HOST = {"MULTICAST_SUPPORTED"}
"""Attributes that tell of how the GPUs of a host are linked."""


def test_attributes_of_an_h200(cuda: Cuda) -> None:
    if not cuda.simulated and b"H200" not in cuda.cuDeviceGetName(64, cuda.device):
        pytest.skip("what is recorded is an H200's; this is another device")
    wanted = json.loads(ATTRIBUTES.read_text())
    kinds = cuda.CUdevice_attribute
    got = {
        name: cuda.cuDeviceGetAttribute(getattr(kinds, "CU_DEVICE_ATTRIBUTE_" + name), cuda.device)
        for name in wanted
    }
    different = {name for name, value in wanted.items() if got[name] != value}
    if not cuda.simulated and not SHIM:
        different -= OF_THE_HOST
    assert different == (NOT_SIMULATED if cuda.simulated else set()) | (NOT_SHARED if SHIM else set())


def test_how_many_elements_a_line_of_a_texture_has(cuda: Cuda, fails: Check) -> None:
    most, real = cuda.cuDeviceGetTexture1DLinearMaxWidth, cuda.CUarray_format.CU_AD_FORMAT_FLOAT
    widest = cuda.cuDeviceGetAttribute(
        cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, cuda.device
    )
    assert [most(real, channels, cuda.device) for channels in (1, 4)] == [4 * widest, widest]
    fails("INVALID_VALUE", most, real, 3, cuda.device)
    fails("INVALID_DEVICE", most, real, 1, 99)


def test_no_such_attribute(cuda: Cuda, fails: Check) -> None:
    most = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX
    fails("INVALID_VALUE", cuda.cuDeviceGetAttribute, most, cuda.device)


def test_no_such_device(cuda: Cuda, fails: Check) -> None:
    fails("INVALID_DEVICE", cuda.cuDeviceGet, 99)
    fails("INVALID_VALUE", cuda.cuInit, 1)


def test_pci_bus_id_names_the_device(cuda: Cuda, fails: Check) -> None:
    fails("INVALID_VALUE", cuda.cuDeviceGetPCIBusId, 12, cuda.device)
    text = cuda.cuDeviceGetPCIBusId(32, cuda.device).split(b"\0")[0]
    shorter = [text.removesuffix(b".0")] + ([text[5:]] if text.startswith(b"0000:") else [])
    for form in (text, *shorter):
        assert int(cuda.cuDeviceGetByPCIBusId(form)) == int(cuda.device)


def test_errors_have_names(cuda: Cuda) -> None:
    assert cuda.cuGetErrorName(cuda.errors.CUDA_ERROR_NOT_READY) == b"CUDA_ERROR_NOT_READY"
    assert cuda.cuGetErrorString(cuda.errors.CUDA_ERROR_OUT_OF_MEMORY) == b"out of memory"
    assert cuda.cuGetErrorString(cuda.errors.CUDA_SUCCESS) == b"no error"


def test_errors_have_the_texts_that_the_runtime_has_for_them(cuda: Cuda) -> None:
    wheel = importlib.util.find_spec("nvidia.cu13") if importlib.util.find_spec("nvidia") else None
    places = [Path(place) / "lib" for place in (wheel.submodule_search_locations or () if wheel else ())]
    found = [library for place in places for library in place.glob("libcudart.so.*")]
    if not found:
        pytest.skip("nvidia-cuda-runtime is not installed")
    runtime = ctypes.CDLL(str(found[0]))
    runtime.cudaGetErrorString.restype = ctypes.c_char_p
    later = {227, 917, 918, 919}  # than CUDA 13.0
    errors = [error for error in cuda.errors if int(error) not in later]
    texts = {error: runtime.cudaGetErrorString(int(error)) for error in errors}
    known = {error: text for error, text in texts.items() if text != b"unrecognized error code"}
    assert len(known) > 90
    assert {error: cuda.cuGetErrorString(error) for error in known} == known


def test_entry_points_by_version_and_kind_of_stream(cuda: Cuda) -> None:
    library = ctypes.CDLL("libcuda.so.1")

    def find(name: Any, version: int, flags: int = 0) -> Any:
        pointer, status = ctypes.c_void_p(), ctypes.c_int(-1)
        result = library.cuGetProcAddress_v2(
            name, ctypes.byref(pointer), version, ctypes.c_uint64(flags), ctypes.byref(status)
        )
        return cuda.errors(result).name, pointer.value or 0, status.value

    old = find(b"cuMemAlloc", 2000)
    new = find(b"cuMemAlloc", 13000)
    assert new[0] == "CUDA_SUCCESS"
    assert old[1] != new[1]
    assert find(b"cuMemAlloc", 3020) == new
    assert find(b"cuLaunchKernelEx", 11000) == ("CUDA_SUCCESS", 0, 2)
    assert find(b"cuNoSuchThing", 13000) == ("CUDA_SUCCESS", 0, 1)
    plain, own = find(b"cuStreamSynchronize", 13000, 1), find(b"cuStreamSynchronize", 13000, 2)
    assert plain[1] != 0
    assert own[1] not in (0, plain[1])
    # Programs built with CUDA 12 ask for versions of before.
    for name, version in ((b"cuStreamGetCaptureInfo", 12000), (b"cuMemPrefetchAsync", 12000)):
        plain, own = find(name, version, 1), find(name, version, 2)
        assert own[1] not in (0, plain[1])
    # Those of later versions are not known, whoever asks: a runtime library may be newer than the driver.
    known = cuda.cuDriverGetVersion()
    for name in (b"cuLaunchHostFunc", b"cuGraphAddNode", b"cuGraphNodeSetParams", b"cuMulticastBindMem"):
        assert find(name, 99990) == find(name, known)
    if known < 13010:
        assert find(b"cuGraphGetId", 99990) == ("CUDA_SUCCESS", 0, 1)


def test_earlier_versions_with_the_thread_s_own_default_stream(cuda: Cuda) -> None:
    library = ctypes.CDLL("libcuda.so.1")
    own = cuda.CUstream(2)
    cuda.cuStreamBeginCapture(own, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    status = ctypes.c_int(-1)
    asked = library.cuStreamGetCaptureInfo_v2_ptsz(None, ctypes.byref(status), None, None, None, None)
    cuda.cuGraphDestroy(cuda.cuStreamEndCapture(own))
    assert (asked, status.value) == (0, 1)


def test_what_cuda_12_took_away_is_still_found(cuda: Cuda) -> None:
    # Programs link it; the documentation says what it returns.
    initialise = ctypes.CDLL("libcuda.so.1").cuProfilerInitialize
    assert cuda.errors(initialise(b"settings", b"output", 0)) == cuda.errors.CUDA_ERROR_NOT_SUPPORTED


def test_names_of_graphics_headers_are_found() -> None:
    # What cudaGL.h and cudaVDPAU.h make of a function's name, and so what a program links or looks up.
    names = ["cuGLInit", "cuGLGetDevices_v2", "cuGLMapBufferObject_v2_ptds", "cuVDPAUCtxCreate_v2"]
    library = ctypes.CDLL("libcuda.so.1")
    assert [name for name in names if not hasattr(library, name)] == []


def test_primary_context_is_one(cuda: Cuda) -> None:
    again = cuda.cuDevicePrimaryCtxRetain(cuda.device)
    assert int(again) == int(cuda.context)
    assert cuda.cuDevicePrimaryCtxGetState(cuda.device)[1] == 1
    cuda.cuDevicePrimaryCtxRelease(cuda.device)
    assert cuda.cuDevicePrimaryCtxGetState(cuda.device)[1] == 1


def test_context_stack(cuda: Cuda, fails: Check) -> None:
    other = cuda.cuCtxCreate(None, 0, cuda.device)
    assert int(cuda.cuCtxGetCurrent()) == int(other)
    assert int(cuda.cuCtxPopCurrent()) == int(other)
    assert int(cuda.cuCtxGetCurrent()) == int(cuda.context)
    cuda.cuCtxPushCurrent(other)
    cuda.cuCtxDestroy(other)
    assert int(cuda.cuCtxGetCurrent()) == int(cuda.context)


def test_calls_without_a_context(cuda: Cuda, fails: Check) -> None:
    cuda.cuCtxSetCurrent(None)
    fails("INVALID_CONTEXT", cuda.cuMemAlloc, 16)
    fails("INVALID_CONTEXT", cuda.cuCtxGetDevice)


def test_memory_of_a_context_goes_with_it(cuda: Cuda, fails: Check) -> None:
    other = cuda.cuCtxCreate(None, 0, cuda.device)
    address = cuda.cuMemAlloc(4096)
    cuda.cuCtxDestroy(other)
    fails("INVALID_VALUE", cuda.cuMemFree, address)


def test_limits(cuda: Cuda, fails: Check) -> None:
    limit = cuda.CUlimit
    assert cuda.cuCtxGetLimit(limit.CU_LIMIT_STACK_SIZE) == 1024
    before = cuda.cuCtxGetLimit(limit.CU_LIMIT_PRINTF_FIFO_SIZE)
    assert before >= 1 << 20
    cuda.cuCtxSetLimit(limit.CU_LIMIT_PRINTF_FIFO_SIZE, 2 * before)
    assert cuda.cuCtxGetLimit(limit.CU_LIMIT_PRINTF_FIFO_SIZE) >= 2 * before
    cuda.cuCtxSetLimit(limit.CU_LIMIT_PRINTF_FIFO_SIZE, before)
    assert cuda.cuCtxGetStreamPriorityRange() == (0, -5)
    fails("INVALID_VALUE", cuda.cuCtxSetLimit, limit.CU_LIMIT_STACK_SIZE, 1 << 20)
    fails("UNSUPPORTED_LIMIT", cuda.cuCtxGetLimit, limit.CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH)


def test_limits_are_what_the_device_can(cuda: Cuda, fails: Check) -> None:
    limit = cuda.CUlimit
    other = cuda.cuCtxCreate(None, 0, cuda.device)
    kinds = cuda.CUdevice_attribute

    def of_device(name: str) -> int:
        return int(cuda.cuDeviceGetAttribute(getattr(kinds, "CU_DEVICE_ATTRIBUTE_" + name), cuda.device))

    sixteenth = of_device("L2_CACHE_SIZE") // 16
    for name, first, asked, becomes in (
        ("STACK_SIZE", 1024, 5000, 5008),
        ("PRINTF_FIFO_SIZE", 65536 * of_device("MULTIPROCESSOR_COUNT"), 1 << 20, 1 << 20),
        ("MALLOC_HEAP_SIZE", 8 << 20, 1 << 20, 4 << 20),
        ("DEV_RUNTIME_PENDING_LAUNCH_COUNT", 2048, 1 << 20, 599186),
        ("PERSISTING_L2_CACHE_SIZE", 3 * sixteenth, 1 << 20, sixteenth),
    ):
        kind = getattr(limit, "CU_LIMIT_" + name)
        assert cuda.cuCtxGetLimit(kind) == first
        cuda.cuCtxSetLimit(kind, asked)
        assert cuda.cuCtxGetLimit(kind) == becomes
    fails("INVALID_VALUE", cuda.cuCtxSetLimit, limit.CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 1 << 20)
    assert cuda.cuCtxGetLimit(limit.CU_LIMIT_SHMEM_SIZE) == of_device("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
    fails("NOT_PERMITTED", cuda.cuCtxSetLimit, limit.CU_LIMIT_SHMEM_SIZE, 1024)
    cuda.cuCtxDestroy(other)


def counting(cuda: Cuda) -> None:
    device = cuda.device
    two = ["Retain", "Retain"]
    for step in ("Reset", "Release", "Release", *two, "Reset", "Retain", *["Release"] * 3):
        result = cuda.result(f"cuDevicePrimaryCtx{step}", device)
        print(step, result, cuda.cuDevicePrimaryCtxGetState(device)[1])


def test_a_reset_takes_no_reference_of_a_primary_context(alone: Alone) -> None:
    steps = [line.split() for line in alone(counting).splitlines()]
    results = ["SUCCESS", "SUCCESS", "ERROR_INVALID_CONTEXT", *["SUCCESS"] * 7]
    assert [result for _, result, _ in steps] == results
    assert [int(active) for _, _, active in steps] == [0, 0, 0, 1, 1, 0, 1, 1, 1, 0]


def setting(cuda: Cuda) -> None:
    for call, *more in (("Reset",), ("SetFlags", 1), ("Release",)):
        getattr(cuda, f"cuDevicePrimaryCtx{call}")(cuda.device, *more)
        print(*cuda.cuDevicePrimaryCtxGetState(cuda.device))


def test_the_last_release_resets_flags_also_of_what_has_ended(alone: Alone) -> None:
    """CUDA driver API, cuDevicePrimaryCtxRelease: the last one resets the context."""
    assert alone(setting).splitlines() == ["0 0", "1 0", "0 0"]


def test_a_context_is_destroyed_once(cuda: Cuda) -> None:
    """An H200's driver looks at what lies there by then, so that either answer may come."""
    other = cuda.cuCtxCreate(None, 0, cuda.device)
    cuda.cuCtxDestroy(other)
    assert cuda.result("cuCtxDestroy", other) in ("ERROR_INVALID_CONTEXT", "ERROR_CONTEXT_IS_DESTROYED")


def test_a_copy_between_peers_knows_no_pageable_memory(cuda: Cuda, fails: Check) -> None:
    memory, bytes_ = cuda.cuMemAlloc(4), ctypes.create_string_buffer(4)
    pageable = ctypes.addressof(bytes_)
    for to, source in ((memory, pageable), (pageable, memory)):
        fails("INVALID_VALUE", cuda.cuMemcpyPeer, to, cuda.context, source, cuda.context, 4)
        fails("INVALID_VALUE", cuda.cuMemcpyPeerAsync, to, cuda.context, source, cuda.context, 4, 0)
    cuda.cuMemFree(memory)


def ended(cuda: Cuda) -> None:
    context = cuda.cuCtxCreate(None, 0, cuda.device)
    cuda.cuCtxPushCurrent(cuda.context)
    cuda.cuCtxDestroy(context)
    cuda.cuDevicePrimaryCtxReset(cuda.device)
    for each in (cuda.context, context):
        print(cuda.result("cuCtxGetApiVersion", each), cuda.result("cuCtxGetId", each))
        print(cuda.result("cuCtxGetApiVersion", None), cuda.result("cuCtxGetId", None))
        print(cuda.result("cuMemAlloc", 64), cuda.result("cuStreamQuery", 0), cuda.cuCtxGetFlags())
        cuda.cuCtxPopCurrent()
    for each in (cuda.cuDevicePrimaryCtxRetain(cuda.device), context):
        cuda.cuCtxSetCurrent(each)
        print(int(cuda.cuCtxGetCurrent()) == int(each), cuda.result("cuMemAlloc", 64))
    # The real driver may crash at exit then: driver 580 did once in three times, in free().
    print(end="", flush=True)
    os._exit(0)


def test_contexts_that_have_ended(alone: Alone) -> None:
    """As on an H100, of a primary one that was reset and one that was destroyed."""
    asked = ["INVALID_CONTEXT CONTEXT_IS_DESTROYED", "CONTEXT_IS_DESTROYED CONTEXT_IS_DESTROYED"]
    used = "CONTEXT_IS_DESTROYED CONTEXT_IS_DESTROYED 0"
    seen = [line.replace("ERROR_", "") for line in alone(ended).splitlines()]
    assert seen == 2 * [*asked, used] + ["True SUCCESS", "True CONTEXT_IS_DESTROYED"]


def test_flags_of_contexts(cuda: Cuda, fails: Check) -> None:
    mapping = cuda.CUctx_flags.CU_CTX_MAP_HOST.value
    before = cuda.cuCtxGetFlags()
    cuda.cuCtxSetFlags(before | mapping)
    cuda.cuCtxSetFlags(before)
    fails("INVALID_VALUE", cuda.cuDevicePrimaryCtxSetFlags, cuda.device, mapping)
    for two_ways in (cuda.cuCtxSetFlags, lambda flags: cuda.cuDevicePrimaryCtxSetFlags(cuda.device, flags)):
        fails("INVALID_VALUE", two_ways, 3)


def test_how_two_gpus_are_linked(cuda: Cuda, fails: Check) -> None:
    kinds = cuda.CUdevice_P2PAttribute
    partial = kinds.CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED
    for kind in (kinds.CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, partial):
        fails("INVALID_DEVICE", cuda.cuDeviceGetP2PAttribute, kind, cuda.device, cuda.device)
        if cuda.cuDeviceGetCount() > 1:
            assert cuda.cuDeviceGetP2PAttribute(kind, 0, 1) in (0, 1)


def test_no_context_is_a_peer_of_one_of_its_device(cuda: Cuda, fails: Check) -> None:
    other = cuda.cuCtxCreate(None, 0, cuda.device)
    cuda.cuCtxPopCurrent()
    for peer in (cuda.context, other):
        fails("PEER_ACCESS_UNSUPPORTED", cuda.cuCtxEnablePeerAccess, peer, 0)
        fails("INVALID_VALUE", cuda.cuCtxEnablePeerAccess, peer, 1)
        fails("PEER_ACCESS_NOT_ENABLED", cuda.cuCtxDisablePeerAccess, peer)
    cuda.cuCtxDestroy(other)


def fork_after_use(cuda: Cuda) -> None:
    words = cuda.device_words()
    child = os.fork()
    if child == 0:
        calls = [("cuInit", 0), ("cuDeviceGetCount",), ("cuCtxGetCurrent",)]
        calls += [("cuMemAlloc", 4), ("cuMemsetD32", words, 1, 1), ("cuCtxSynchronize",)]
        calls += [("cuDriverGetVersion",)]
        print(*(cuda.result(*call) for call in calls), flush=True)
        os._exit(0)
    print(os.waitpid(child, 0)[1], cuda.result("cuMemsetD32", words, 1, 1), cuda.result("cuCtxSynchronize"))


def test_a_forked_child_has_no_driver(alone: Alone) -> None:
    assert alone(fork_after_use).split() == [*6 * ["ERROR_NOT_INITIALIZED"], "SUCCESS", "0", *2 * ["SUCCESS"]]
