"""Pools in host memory, and memory of a GPU: who reaches them, and as what."""

import ctypes
from typing import Any

import numpy as np
import pytest
from cuda_calls import Alone, Check, Cuda


def properties(cuda: Cuda, kind: str = "HOST", of: str = "PINNED") -> Any:
    made = cuda.CUmemPoolProps()
    made.allocType = getattr(cuda.CUmemAllocationType, "CU_MEM_ALLOCATION_TYPE_" + of)
    made.location = location(cuda, kind)
    return made


def location(cuda: Cuda, kind: str) -> Any:
    made = cuda.CUmemLocation()
    made.type = getattr(cuda.CUmemLocationType, "CU_MEM_LOCATION_TYPE_" + kind)
    made.id = int(cuda.device) if kind == "DEVICE" else 0
    return made


def host_pool(cuda: Cuda, kind: str = "HOST") -> Any:
    return cuda.cuMemPoolCreate(properties(cuda, kind))


def words_of(cuda: Cuda, pool: Any) -> int:
    memory = int(cuda.cuMemAllocFromPoolAsync(4096, pool, 0))
    cuda.cuCtxSynchronize()
    return memory


def allow(cuda: Cuda, pool: Any, kind: str, what: str) -> None:
    access = cuda.CUmemAccessDesc()
    access.location = location(cuda, kind)
    access.flags = getattr(cuda.CUmemAccess_flags, "CU_MEM_ACCESS_FLAGS_PROT_" + what)
    cuda.cuMemPoolSetAccess(pool, [access], 1)


def access_of(cuda: Cuda, pool: Any, kind: str) -> str:
    name = cuda.CUmemAccess_flags(cuda.cuMemPoolGetAccess(pool, location(cuda, kind))).name
    return str(name).rpartition("_")[2]


@pytest.mark.parametrize("kind", ["HOST", "HOST_NUMA"])
def test_a_pool_in_host_memory(cuda: Cuda, kind: str) -> None:
    """It is plain memory of the host's, and copied as such."""
    pool = host_pool(cuda, kind)
    memory, there = words_of(cuda, pool), cuda.device_words(4)
    words = (ctypes.c_uint32 * 4).from_address(memory)
    words[:] = (3, 1, 4, 1)
    cuda.cuMemcpyHtoD(there, memory, 16)
    assert cuda.read(there, 4).tolist() == [3, 1, 4, 1]
    cuda.cuMemsetD32(there, 5, 4)
    cuda.cuMemcpyDtoHAsync(memory, there, 16, 0)
    cuda.cuCtxSynchronize()
    assert words[3] == 5
    words[0] = 6
    cuda.cuMemcpy(there, memory, 16)
    assert cuda.read(there, 2).tolist() == [6, 5]
    cuda.cuMemcpyAsync(memory, there + 4, 4, 0)
    cuda.cuCtxSynchronize()
    assert words[0] == 5
    cuda.cuMemFreeAsync(memory, 0)
    cuda.cuCtxSynchronize()
    cuda.cuMemPoolDestroy(pool)


def test_memory_of_a_host_pool_is_no_device_s(cuda: Cuda, fails: Check) -> None:
    pool = host_pool(cuda)
    for allowed in (False, True):
        if allowed:
            allow(cuda, pool, "DEVICE", "READWRITE")
        memory, there, buffer = words_of(cuda, pool), cuda.device_words(4), np.zeros(4, dtype=np.uint32)
        fails("INVALID_VALUE", cuda.cuMemcpyDtoH, buffer.ctypes.data, memory, 16)
        fails("INVALID_VALUE", cuda.cuMemcpyHtoD, memory, buffer.ctypes.data, 16)
        fails("INVALID_VALUE", cuda.cuMemcpyDtoD, there, memory, 16)
        fails("INVALID_VALUE", cuda.cuMemcpyDtoD, memory, there, 16)
        fails("INVALID_VALUE", cuda.cuStreamWriteValue32, 0, memory, 3, 0)


def test_a_device_is_let_into_a_host_pool(cuda: Cuda, fails: Check) -> None:
    pool = host_pool(cuda)
    memory = words_of(cuda, pool)
    pointer = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_POINTER
    assert access_of(cuda, pool, "HOST") == "READWRITE"
    assert access_of(cuda, pool, "DEVICE") == "NONE"
    fails("INVALID_VALUE", cuda.cuPointerGetAttribute, pointer, memory)
    fails("INVALID_VALUE", cuda.cuMemsetD32, memory, 7, 4)
    fails("NOT_SUPPORTED", allow, cuda, pool, "DEVICE", "READ")
    allow(cuda, pool, "DEVICE", "READWRITE")
    assert access_of(cuda, pool, "DEVICE") == "READWRITE"
    assert int(cuda.cuPointerGetAttribute(pointer, memory)) == memory
    cuda.cuMemsetD32(memory, 7, 4)
    cuda.launch("store", memory, ctypes.c_uint32(9))
    cuda.cuCtxSynchronize()
    assert list((ctypes.c_uint32 * 2).from_address(memory)) == [9, 7]
    allow(cuda, pool, "DEVICE", "NONE")
    assert access_of(cuda, pool, "DEVICE") == "NONE"
    fails("INVALID_VALUE", cuda.cuMemsetD32, memory, 7, 4)
    cuda.cuMemFreeAsync(memory, 0)


def reach_into_a_host_pool(cuda: Cuda) -> None:
    wanted = cuda.CUmemPoolProps()
    wanted.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    memory = cuda.cuMemAllocFromPoolAsync(4096, cuda.cuMemPoolCreate(wanted), 0)
    cuda.launch("store", memory, ctypes.c_uint32(9))
    print(cuda.result("cuCtxSynchronize"))


def test_a_kernel_that_is_not_let_into_a_host_pool(cuda: Cuda, alone: Alone) -> None:
    assert alone(reach_into_a_host_pool).split() == ["ERROR_ILLEGAL_ADDRESS"]


@pytest.mark.parametrize("kind", ["HOST_NUMA", "HOST_NUMA_CURRENT"])
def test_a_pool_of_no_node(cuda: Cuda, fails: Check, kind: str) -> None:
    wanted = properties(cuda, kind)
    wanted.location.id = 7
    fails("INVALID_VALUE", cuda.cuMemPoolCreate, wanted)


def test_who_reaches_a_pool_without_being_let_in(cuda: Cuda, fails: Check) -> None:
    assert access_of(cuda, cuda.cuMemPoolCreate(properties(cuda, "DEVICE")), "HOST") == "NONE"
    pool = cuda.cuMemPoolCreate(properties(cuda, "DEVICE", "MANAGED"))
    for kind in ("DEVICE", "HOST"):
        assert access_of(cuda, pool, kind) == "NONE"
        allow(cuda, pool, kind, "READWRITE")
    pool = host_pool(cuda)
    allow(cuda, pool, "HOST", "READWRITE")
    fails("NOT_SUPPORTED", allow, cuda, pool, "HOST", "NONE")


def test_access_is_a_device_s_and_of_a_known_kind(cuda: Cuda) -> None:
    """As an H200's driver has it."""
    size = 2 << 20
    place, handle = int(cuda.cuMemAddressReserve(size, 0, 0, 0)), cuda.cuMemCreate(size, cuda.properties(), 0)
    cuda.cuMemMap(place, size, 0, handle, 0)
    ask = ctypes.CDLL("libcuda.so.1").cuMemSetAccess
    device, host = 1, 2
    answers = [
        ask(ctypes.c_uint64(place), ctypes.c_size_t(size), (ctypes.c_int * 3)(where, 0, flags), 1)
        for where, flags in ((device, 2), (host, 3), (device, 3))
    ]
    assert answers == [1, 801, 0]
    cuda.cuMemUnmap(place, size)
    cuda.cuMemRelease(handle)
    cuda.cuMemAddressFree(place, size)
