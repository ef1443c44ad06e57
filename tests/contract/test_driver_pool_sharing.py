"""Pools that processes share by descriptors, and pointers into them; answers are those of an H200."""

import ctypes
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_calls import Alone, Check, Cuda
from test_driver_pools import physical, pool_properties

MIB = 1 << 20
SIZES = (4096, 100, 4 * MIB)


@pytest.fixture(name="file")
def file_type(cuda: Cuda) -> Any:
    return cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


@pytest.fixture
def pool(cuda: Cuda) -> Iterator[Any]:
    made = cuda.cuMemPoolCreate(pool_properties(cuda, shared=True))
    yield made
    cuda.cuMemPoolDestroy(made)


def allocations(cuda: Cuda, pool: Any, sizes: tuple[int, ...] = SIZES) -> list[int]:
    """Memory of the pool's; the first word of each says which one it is."""
    made = [int(cuda.cuMemAllocFromPoolAsync(size, pool, 0)) for size in sizes]
    for number, memory in enumerate(made):
        cuda.cuMemsetD32Async(memory, 5 + number, 4, 0)
    cuda.cuCtxSynchronize()
    return made


def exported(cuda: Cuda, memory: int) -> bytes:
    return ctypes.string_at(cuda.cuMemPoolExportPointer(memory).getPtr(), 64)


def pointer(cuda: Cuda, data: bytes) -> Any:
    made = cuda.CUmemPoolPtrExportData()
    ctypes.memmove(made.getPtr(), data, 64)
    return made


def free(cuda: Cuda, memories: list[int]) -> None:
    for memory in memories:
        cuda.cuMemFreeAsync(memory, 0)
    cuda.cuCtxSynchronize()


def test_the_device_shares_pools_by_descriptors(cuda: Cuda, file: Any) -> None:
    kind = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES
    assert cuda.cuDeviceGetAttribute(kind, cuda.device) & file.value


def test_pools_that_there_cannot_be(cuda: Cuda, fails: Check) -> None:
    kinds = cuda.CUmemAllocationHandleType
    wanted = pool_properties(cuda)
    for kind in (kinds.CU_MEM_HANDLE_TYPE_WIN32, kinds.CU_MEM_HANDLE_TYPE_WIN32_KMT):
        wanted.handleTypes = kind
        fails("INVALID_VALUE", cuda.cuMemPoolCreate, wanted)
    wanted = pool_properties(cuda, shared=True)
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    fails("INVALID_VALUE", cuda.cuMemPoolCreate, wanted)


def test_only_a_pool_made_for_it_is_exported(cuda: Cuda, fails: Check, pool: Any, file: Any) -> None:
    export, kinds = cuda.cuMemPoolExportToShareableHandle, cuda.CUmemAllocationHandleType
    plain = cuda.cuMemPoolCreate(pool_properties(cuda))
    fails("INVALID_VALUE", export, plain, file, 0)
    fails("INVALID_VALUE", export, cuda.cuDeviceGetDefaultMemPool(cuda.device), file, 0)
    fails("INVALID_VALUE", export, 0, file, 0)
    fails("INVALID_VALUE", export, pool, file, 1)
    for kind in (kinds.CU_MEM_HANDLE_TYPE_NONE, kinds.CU_MEM_HANDLE_TYPE_FABRIC):
        fails("INVALID_VALUE", export, pool, kind, 0)
    cuda.cuMemPoolDestroy(plain)


def test_only_the_beginning_of_an_exported_pool_s_memory_is_told(
    cuda: Cuda, fails: Check, pool: Any, file: Any
) -> None:
    export = cuda.cuMemPoolExportPointer
    [memory] = allocations(cuda, pool, (4096,))
    fails("INVALID_VALUE", export, memory)  # the pool was not exported yet
    os.close(int(cuda.cuMemPoolExportToShareableHandle(pool, file, 0)))
    assert exported(cuda, memory) == exported(cuda, memory)
    own, other = cuda.device_words(), int(cuda.cuMemAllocAsync(64, 0))
    for wrong in (memory + 16, own, other, 8):
        fails("INVALID_VALUE", export, wrong)
    kinds = cuda.CUpointer_attribute
    allowed = kinds.CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES
    assert int(cuda.cuPointerGetAttribute(allowed, memory)) == file.value
    assert int(cuda.cuPointerGetAttribute(allowed, other)) == 0
    for pooled in (memory, other):
        fails("INVALID_VALUE", cuda.cuIpcGetMemHandle, pooled)
    free(cuda, [memory, other])
    fails("INVALID_VALUE", export, memory)
    cuda.cuMemFree(own)


def test_what_is_no_exported_pool(cuda: Cuda, fails: Check, pool: Any, file: Any) -> None:
    importing = cuda.cuMemPoolImportFromShareableHandle
    ours, theirs = socket.socketpair()
    with open("/dev/null", "rb") as file_of_nothing:
        others = [os.memfd_create("other"), ours.fileno(), file_of_nothing.fileno(), 999]
        os.write(others[0], bytes(range(256)))
        for other in others:
            fails("UNKNOWN", importing, other, file, 0)
            fails("UNKNOWN", cuda.cuMemImportFromShareableHandle, other, file)
    ours.close()
    theirs.close()
    os.close(others[0])
    descriptor = int(cuda.cuMemPoolExportToShareableHandle(pool, file, 0))
    fails("INVALID_VALUE", importing, descriptor, file, 1)
    fails("INVALID_VALUE", importing, descriptor, cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE, 0)
    fails("NOT_SUPPORTED", cuda.cuMemImportFromShareableHandle, descriptor, file)
    os.close(descriptor)
    memory = physical(cuda)
    descriptor = int(cuda.cuMemExportToShareableHandle(memory, file, 0))
    fails("NOT_SUPPORTED", importing, descriptor, file, 0)
    os.close(descriptor)
    cuda.cuMemRelease(memory)


def test_a_pool_is_imported_by_its_own_process(cuda: Cuda, fails: Check, pool: Any, file: Any) -> None:
    [memory] = allocations(cuda, pool, (4096,))
    descriptor = int(cuda.cuMemPoolExportToShareableHandle(pool, file, 0))
    twin = cuda.cuMemPoolImportFromShareableHandle(descriptor, file, 0)
    os.close(descriptor)
    told = pointer(cuda, exported(cuda, memory))
    fails("INVALID_VALUE", cuda.cuMemPoolImportPointer, pool, told)
    second = int(cuda.cuMemPoolImportPointer(twin, told))
    assert second != memory
    cuda.cuMemsetD32(second, 77, 1)
    assert cuda.read(memory)[0] == 77
    free(cuda, [second, memory])
    cuda.cuMemPoolDestroy(twin)


class Shared:
    """A pool's descriptor and its allocations on their way to another process."""

    def __init__(self, cuda: Cuda, pool: Any, file: Any, memories: list[int]) -> None:
        self.ours, self.theirs = socket.socketpair()
        descriptor = int(cuda.cuMemPoolExportToShareableHandle(pool, file, 0))
        told = [exported(cuda, memory) for memory in memories]
        socket.send_fds(self.ours, [b"".join(told)], [descriptor])
        os.close(descriptor)
        os.set_inheritable(self.theirs.fileno(), True)

    def taken_by(self, alone: Alone, body: Any) -> list[str]:
        number = self.theirs.fileno()
        said = alone(body, keep=[number], beside=True, CHANNEL=str(number)).splitlines()
        self.ours.close()
        self.theirs.close()
        return said


def use(cuda: Cuda) -> None:
    with socket.socket(fileno=int(os.environ["CHANNEL"])) as channel:
        told, [descriptor], _, _ = socket.recv_fds(channel, 4096, 1)
    file = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    pool = cuda.cuMemPoolImportFromShareableHandle(descriptor, file, 0)
    os.close(descriptor)
    kinds = cuda.CUpointer_attribute
    data, places = cuda.CUmemPoolPtrExportData(), []
    for at in range(0, len(told), 64):
        ctypes.memmove(data.getPtr(), told[at : at + 64], 64)
        place = int(cuda.cuMemPoolImportPointer(pool, data))
        assert int(cuda.cuMemPoolImportPointer(pool, data)) == place
        owner = int(cuda.cuPointerGetAttribute(kinds.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, place))
        start, size = cuda.cuMemGetAddressRange(place)
        print(cuda.read(place)[0], int(size), int(start) == place, owner == int(pool))
        places.append(place)
    stream = cuda.stream()
    for place in places:
        cuda.launch("store", place + 4, ctypes.c_uint32(place % 1000 + 1), stream=stream)
        cuda.launch("store", place, ctypes.c_uint32(13), stream=stream)
    print(cuda.result("cuMemFreeAsync", places[1] + 16, stream))
    cuda.cuMemFreeAsync(places[0], stream)
    print(cuda.result("cuMemFreeAsync", places[0], stream))
    cuda.cuStreamSynchronize(stream)
    cuda.cuMemFree(places[1])
    print(cuda.result("cuMemFree", places[1]))
    print(cuda.result("cuMemPoolDestroy", pool), cuda.read(places[2])[0])
    cuda.cuMemFreeAsync(places[2], stream)
    cuda.cuStreamSynchronize(stream)
    cuda.cuMemPoolDestroy(pool)


def test_memory_of_a_pool_is_shared_between_processes(cuda: Cuda, alone: Alone, pool: Any, file: Any) -> None:
    memories = allocations(cuda, pool)
    assert Shared(cuda, pool, file, memories).taken_by(alone, use) == [
        *(f"{5 + number} {size} True True" for number, size in enumerate(SIZES)),
        *["ERROR_INVALID_VALUE"] * 3,
        "ERROR_INVALID_VALUE 13",
    ]
    assert [cuda.read(memory)[0] for memory in memories] == [13] * 3
    assert all(cuda.read(memory + 4)[0] != 5 + number for number, memory in enumerate(memories))
    free(cuda, memories)


def misuse(cuda: Cuda) -> None:
    with socket.socket(fileno=int(os.environ["CHANNEL"])) as channel:
        told, [descriptor], _, _ = socket.recv_fds(channel, 4096, 1)
    file = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    pool = cuda.cuMemPoolImportFromShareableHandle(descriptor, file, 0)
    assert int(cuda.cuMemPoolImportFromShareableHandle(descriptor, file, 0)) == int(pool)
    names, stream = cuda.CUmemPool_attribute, cuda.stream()
    own = cuda.CUmemPoolProps()
    own.allocType = cuda.properties().type
    own.location = cuda.properties().location
    own.handleTypes = file
    mine = cuda.cuMemPoolCreate(own)
    for call, *arguments in (
        ("cuMemAllocFromPoolAsync", 64, pool, stream),
        ("cuMemAllocFromPoolAsync", 0, pool, stream),
        ("cuDeviceSetMemPool", cuda.device, pool),
        ("cuMemPoolExportToShareableHandle", pool, file, 0),
        ("cuMemPoolTrimTo", pool, 0),
        ("cuMemPoolGetAttribute", pool, names.CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
        ("cuMemPoolGetAttribute", pool, names.CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC),
        ("cuMemPoolSetAttribute", pool, names.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, cuda.driver.cuuint64_t(1)),
    ):
        print(call, cuda.result(call, *arguments))
    flags = cuda.CUmemAccess_flags
    assert cuda.cuMemPoolGetAccess(pool, own.location) == flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    data = cuda.CUmemPoolPtrExportData()
    bent = bytes([told[0] ^ 85]) + told[1:64]
    for wrong in (bytes(64), bent):
        ctypes.memmove(data.getPtr(), wrong, 64)
        print(cuda.result("cuMemPoolImportPointer", pool, data))
    ctypes.memmove(data.getPtr(), told[:64], 64)
    for other in (mine, cuda.cuDeviceGetDefaultMemPool(cuda.device), 0):
        print(cuda.result("cuMemPoolImportPointer", other, data))
    place = int(cuda.cuMemPoolImportPointer(pool, data))
    print(cuda.result("cuMemPoolExportPointer", place), cuda.result("cuIpcGetMemHandle", place))
    print(cuda.read(place)[0])
    cuda.cuMemFree(place)


def test_what_an_imported_pool_is_not_for(cuda: Cuda, alone: Alone, pool: Any, file: Any) -> None:
    memories = allocations(cuda, pool)
    said = Shared(cuda, pool, file, memories).taken_by(alone, misuse)
    assert {line.split()[-1] for line in said[:8]} == {"ERROR_INVALID_VALUE"}
    assert said[8:] == [*["ERROR_INVALID_VALUE"] * 5, "ERROR_INVALID_VALUE ERROR_INVALID_VALUE", "5"]
    free(cuda, memories)


def free_behind(cuda: Cuda) -> None:
    with socket.socket(fileno=int(os.environ["CHANNEL"])) as channel:
        told, [descriptor], _, _ = socket.recv_fds(channel, 4096, 1)
    file = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    pool = cuda.cuMemPoolImportFromShareableHandle(descriptor, file, 0)
    data = cuda.CUmemPoolPtrExportData()
    ctypes.memmove(data.getPtr(), told, 64)
    place = int(cuda.cuMemPoolImportPointer(pool, data))
    stream, (address, words) = cuda.stream(), cuda.pinned_words()
    cuda.cuStreamWaitValue32(stream, address, 1, 0)
    cuda.cuMemsetD32Async(place, 21, 1, stream)
    cuda.cuMemFreeAsync(place, stream)
    print(cuda.result("cuStreamQuery", stream), cuda.result("cuMemFreeAsync", place, stream))
    words[0] = 1
    cuda.cuStreamSynchronize(stream)
    print(cuda.result("cuMemcpyDtoH", words.ctypes.data, place, 4))
    cuda.cuMemPoolDestroy(pool)


def test_an_imported_pointer_is_freed_in_the_order_of_a_stream(
    cuda: Cuda, alone: Alone, pool: Any, file: Any
) -> None:
    [memory] = allocations(cuda, pool, (64,))
    said = Shared(cuda, pool, file, [memory]).taken_by(alone, free_behind)
    assert said == ["ERROR_NOT_READY ERROR_INVALID_VALUE", "ERROR_INVALID_VALUE"]
    assert cuda.read(memory)[0] == 21
    free(cuda, [memory])


def give_and_go(cuda: Cuda) -> None:
    file = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    wanted = cuda.CUmemPoolProps()
    wanted.allocType = cuda.properties().type
    wanted.location = cuda.properties().location
    wanted.handleTypes = file
    pool = cuda.cuMemPoolCreate(wanted)
    descriptor = int(cuda.cuMemPoolExportToShareableHandle(pool, file, 0))
    memory = cuda.cuMemAllocFromPoolAsync(4096, pool, 0)
    cuda.cuMemsetD32Async(memory, 99, 1, 0)
    cuda.cuCtxSynchronize()
    told = ctypes.string_at(cuda.cuMemPoolExportPointer(memory).getPtr(), 64)
    with socket.socket(fileno=int(os.environ["CHANNEL"])) as channel:
        socket.send_fds(channel, [told], [descriptor])
        channel.recv(1)
        os._exit(0)


def test_what_is_imported_outlives_who_exported_it(cuda: Cuda, alone: Alone, fails: Check, file: Any) -> None:
    ours, theirs = socket.socketpair()
    number = theirs.fileno()
    os.set_inheritable(number, True)
    exporter = threading.Thread(
        target=lambda: alone(give_and_go, keep=[number], beside=True, CHANNEL=str(number))
    )
    exporter.start()
    told, [descriptor], _, _ = socket.recv_fds(ours, 64, 1)
    pool = cuda.cuMemPoolImportFromShareableHandle(descriptor, file, 0)
    memory = int(cuda.cuMemPoolImportPointer(pool, pointer(cuda, told)))
    ours.send(b"1")
    exporter.join()
    assert cuda.read(memory)[0] == 99
    cuda.launch("store", memory, ctypes.c_uint32(98))
    values = np.zeros(1, dtype=np.uint32)
    cuda.cuMemcpyDtoH(values.ctypes.data, memory, 4)
    assert values[0] == 98
    assert int(cuda.cuMemPoolImportFromShareableHandle(descriptor, file, 0)) == int(pool)
    os.close(descriptor)
    ours.close()
    theirs.close()
    fails("INVALID_VALUE", cuda.cuMemPoolDestroy, pool)
    cuda.cuMemFree(memory)
    fails("INVALID_VALUE", cuda.cuMemFree, memory)
    cuda.cuMemPoolDestroy(pool)
