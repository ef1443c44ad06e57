"""Stream-ordered allocation, pools, and memory that processes share."""

import ctypes
import os
import socket
from typing import Any

import numpy as np
import pytest
from cuda_calls import Alone, Check, Cuda

MIB = 1 << 20


def pool_properties(cuda: Cuda, *, shared: bool = False) -> Any:
    made = cuda.CUmemPoolProps()
    made.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    made.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    made.location.id = int(cuda.device)
    if shared:
        made.handleTypes = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return made


def test_memory_comes_and_goes_in_the_order_of_a_stream(cuda: Cuda) -> None:
    stream = cuda.stream()
    memory = cuda.cuMemAllocAsync(64, stream)
    cuda.cuMemsetD32Async(memory, 5, 16, stream)
    values = np.zeros(16, dtype=np.uint32)
    cuda.cuMemcpyDtoHAsync(values.ctypes.data, memory, 64, stream)
    cuda.cuMemFreeAsync(memory, stream)
    cuda.cuStreamSynchronize(stream)
    assert values.tolist() == [5] * 16


def test_attributes_of_a_pool(cuda: Cuda, fails: Check) -> None:
    pool, stream = cuda.cuMemPoolCreate(pool_properties(cuda)), cuda.stream()
    names = cuda.CUmemPool_attribute
    assert int(cuda.cuMemPoolGetAttribute(pool, names.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)) == 0
    cuda.cuMemPoolSetAttribute(pool, names.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, cuda.driver.cuuint64_t(MIB))
    assert int(cuda.cuMemPoolGetAttribute(pool, names.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)) == MIB
    assert cuda.cuMemPoolGetAttribute(pool, names.CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC) == 1
    memory = cuda.cuMemAllocFromPoolAsync(MIB, pool, stream)
    cuda.cuStreamSynchronize(stream)
    used = int(cuda.cuMemPoolGetAttribute(pool, names.CU_MEMPOOL_ATTR_USED_MEM_CURRENT))
    assert used >= MIB
    assert int(cuda.cuMemPoolGetAttribute(pool, names.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)) >= used
    owner = cuda.cuPointerGetAttribute(cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory)
    assert int(owner) == int(pool)
    cuda.cuMemFreeAsync(memory, stream)
    cuda.cuStreamSynchronize(stream)
    assert int(cuda.cuMemPoolGetAttribute(pool, names.CU_MEMPOOL_ATTR_USED_MEM_CURRENT)) == 0
    assert int(cuda.cuMemPoolGetAttribute(pool, names.CU_MEMPOOL_ATTR_USED_MEM_HIGH)) == used
    cuda.cuMemPoolTrimTo(pool, 0)
    cuda.cuMemPoolDestroy(pool)


def test_the_device_has_a_pool(cuda: Cuda) -> None:
    own = cuda.cuDeviceGetDefaultMemPool(cuda.device)
    assert int(cuda.cuDeviceGetMemPool(cuda.device)) == int(own)
    other = cuda.cuMemPoolCreate(pool_properties(cuda))
    cuda.cuDeviceSetMemPool(cuda.device, other)
    assert int(cuda.cuDeviceGetMemPool(cuda.device)) == int(other)
    assert int(cuda.cuDeviceGetDefaultMemPool(cuda.device)) == int(own)
    cuda.cuDeviceSetMemPool(cuda.device, own)
    cuda.cuMemPoolDestroy(other)


def test_access_of_a_pool(cuda: Cuda) -> None:
    pool = cuda.cuMemPoolCreate(pool_properties(cuda))
    location = pool_properties(cuda).location
    flags = cuda.CUmemAccess_flags
    assert cuda.cuMemPoolGetAccess(pool, location) == flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    cuda.cuMemPoolDestroy(pool)


def test_memory_of_a_pool_can_be_freed_at_once(cuda: Cuda, fails: Check) -> None:
    memory = cuda.cuMemAllocAsync(64, 0)
    cuda.cuCtxSynchronize()
    cuda.cuMemFree(memory)
    fails("INVALID_VALUE", cuda.cuMemFree, memory)


def physical(cuda: Cuda) -> Any:
    wanted = cuda.properties()
    wanted.requestedHandleTypes = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return cuda.cuMemCreate(2 * MIB, wanted, 0)


def mapped(cuda: Cuda, handle: Any) -> int:
    address = int(cuda.cuMemAddressReserve(2 * MIB, 0, 0, 0))
    cuda.cuMemMap(address, 2 * MIB, 0, handle, 0)
    cuda.allow(address, 2 * MIB)
    return address


def test_physical_memory_is_shared_by_a_descriptor(cuda: Cuda) -> None:
    kind = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    handle = physical(cuda)
    descriptor = int(cuda.cuMemExportToShareableHandle(handle, kind, 0))
    twin = cuda.cuMemImportFromShareableHandle(descriptor, kind)
    os.close(descriptor)
    first, second = mapped(cuda, handle), mapped(cuda, twin)
    cuda.cuMemsetD32(first, 77, 1)
    assert cuda.read(second)[0] == 77
    for address, owner in ((first, handle), (second, twin)):
        cuda.cuMemUnmap(address, 2 * MIB)
        cuda.cuMemAddressFree(address, 2 * MIB)
        cuda.cuMemRelease(owner)


def test_what_is_no_exported_memory(cuda: Cuda) -> None:
    kind = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    with open("/dev/null", "rb") as file:
        assert cuda.result("cuMemImportFromShareableHandle", file.fileno(), kind) != "SUCCESS"
    plain = cuda.cuMemCreate(2 * MIB, cuda.properties(), 0)
    assert cuda.result("cuMemExportToShareableHandle", plain, kind, 0) != "SUCCESS"
    cuda.cuMemRelease(plain)


def take_descriptor(cuda: Cuda) -> None:
    with socket.socket(fileno=int(os.environ["CHANNEL"])) as channel:
        _, [descriptor], _, _ = socket.recv_fds(channel, 16, 1)
    kind = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    handle = cuda.cuMemImportFromShareableHandle(descriptor, kind)
    address = int(cuda.cuMemAddressReserve(2 << 20, 0, 0, 0))
    cuda.cuMemMap(address, 2 << 20, 0, handle, 0)
    cuda.allow(address, 2 << 20)
    print(cuda.read(address)[0])
    cuda.cuMemsetD32(address, 13, 1)
    cuda.cuCtxSynchronize()


def test_physical_memory_is_shared_between_processes(cuda: Cuda, alone: Alone) -> None:
    kind = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    handle = physical(cuda)
    address = mapped(cuda, handle)
    cuda.cuMemsetD32(address, 31, 1)
    cuda.cuCtxSynchronize()
    ours, theirs = socket.socketpair()
    descriptor = int(cuda.cuMemExportToShareableHandle(handle, kind, 0))
    socket.send_fds(ours, [b"memory"], [descriptor])
    os.set_inheritable(theirs.fileno(), True)
    out = alone(take_descriptor, keep=[theirs.fileno()], beside=True, CHANNEL=str(theirs.fileno()))
    assert out.split() == ["31"]
    assert cuda.read(address)[0] == 13
    ours.close()
    theirs.close()
    os.close(descriptor)
    cuda.cuMemUnmap(address, 2 * MIB)
    cuda.cuMemRelease(handle)


def open_handle(cuda: Cuda) -> None:
    handle = cuda.CUipcMemHandle()
    ctypes.memmove(handle.getPtr(), bytes.fromhex(os.environ["HANDLE"]), 64)
    flags = cuda.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.value
    address = cuda.cuIpcOpenMemHandle(handle, flags)
    print(cuda.read(address)[0])
    cuda.cuMemsetD32(address, 21, 1)
    cuda.cuIpcCloseMemHandle(address)


def test_an_allocation_is_shared_by_a_handle(cuda: Cuda, alone: Alone) -> None:
    place = cuda.device_words()
    cuda.cuMemsetD32(place, 8, 1)
    cuda.cuCtxSynchronize()
    handle = cuda.cuIpcGetMemHandle(place)
    named = ctypes.string_at(handle.getPtr(), 64)
    assert alone(open_handle, beside=True, HANDLE=named.hex()).split() == ["8"]
    assert cuda.read(place)[0] == 21


def test_a_handle_is_for_other_processes(cuda: Cuda, fails: Check) -> None:
    place = cuda.device_words()
    flags = cuda.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.value
    fails("INVALID_CONTEXT", cuda.cuIpcOpenMemHandle, cuda.cuIpcGetMemHandle(place), flags)


TWICE = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry twice(.param .u64 place)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [place];
    ld.global.u32 %r1, [%rd1];
    add.u32 %r1, %r1, %r1;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""


def managed_pool(cuda: Cuda, kind: str) -> Any:
    made = pool_properties(cuda)
    made.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_MANAGED
    made.location.type = getattr(cuda.CUmemLocationType, "CU_MEM_LOCATION_TYPE_" + kind)
    made.location.id = int(cuda.device) if kind == "DEVICE" else 0
    return made


@pytest.mark.parametrize("kind", ["NONE", "DEVICE", "HOST"])
@pytest.mark.parametrize("own", [True, False])
def test_a_pool_of_managed_memory(cuda: Cuda, kind: str, own: bool) -> None:
    asked, stream = managed_pool(cuda, kind), cuda.stream()
    pool = cuda.cuMemPoolCreate(asked) if own else cuda.cuMemGetMemPool(asked.location, asked.allocType)
    memory = int(cuda.cuMemAllocFromPoolAsync(4096, pool, stream))
    cuda.cuStreamSynchronize(stream)
    word = ctypes.c_uint32.from_address(memory)
    word.value = 21
    twice = cuda.cuModuleGetFunction(cuda.cuModuleLoadData(TWICE), b"twice")
    cuda.launch_function(twice, memory, stream=stream)
    cuda.cuStreamSynchronize(stream)
    assert word.value == 42
    names = cuda.CUpointer_attribute
    assert int(cuda.cuPointerGetAttribute(names.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory)) == int(pool)
    assert cuda.cuPointerGetAttribute(names.CU_POINTER_ATTRIBUTE_IS_MANAGED, memory)
    preferred = cuda.CUmem_range_attribute.CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION
    wanted = {"NONE": -2, "DEVICE": int(cuda.device), "HOST": -1}[kind]
    assert int(cuda.cuMemRangeGetAttribute(4, preferred, memory, 4096)) == wanted
    cuda.cuMemFreeAsync(memory, stream)
    cuda.cuStreamSynchronize(stream)
    if own:
        cuda.cuMemPoolDestroy(pool)


def test_what_is_no_pool_of_managed_memory(cuda: Cuda, fails: Check) -> None:
    asked = managed_pool(cuda, "DEVICE")
    asked.maxSize = MIB
    fails("INVALID_VALUE", cuda.cuMemPoolCreate, asked)
    asked = managed_pool(cuda, "DEVICE")
    asked.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    asked.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_NONE
    fails("INVALID_VALUE", cuda.cuMemGetMemPool, asked.location, asked.allocType)
