"""Memory: allocations, copies, fills, host memory, pointers."""

import ctypes
import mmap
import os
from collections.abc import Iterator

import numpy as np
import pytest
from cuda_calls import SHIM, Alone, Check, Cuda, CudaError

from tests import user_faults

MIB = 1 << 20


def test_bytes_survive_a_round_trip(cuda: Cuda) -> None:
    sent = np.arange(3 * MIB, dtype=np.uint8)
    address = cuda.cuMemAlloc(sent.nbytes)
    cuda.cuMemcpyHtoD(address, sent.ctypes.data, sent.nbytes)
    other = cuda.cuMemAlloc(sent.nbytes)
    cuda.cuMemcpyDtoD(other, address, sent.nbytes)
    assert (cuda.read(other, sent.size, np.uint8) == sent).all()
    base, size = cuda.cuMemGetAddressRange(int(other) + 5)
    assert (int(base), int(size)) == (int(other), sent.nbytes)
    cuda.cuMemFree(address)
    cuda.cuMemFree(other)


def test_pinned_copies_are_ordered_in_their_stream(cuda: Cuda) -> None:
    stream = cuda.stream()
    start, words = cuda.pinned_words(1024)
    back, result = cuda.pinned_words(1024)
    words[:] = np.arange(1024)
    address = cuda.cuMemAlloc(4096)
    cuda.cuMemcpyHtoDAsync(address, start, 4096, stream)
    cuda.cuMemsetD32Async(address, 77, 10, stream)
    cuda.cuMemcpyDtoHAsync(back, address, 4096, stream)
    cuda.cuStreamSynchronize(stream)
    assert (result[:10] == 77).all()
    assert (result[10:] == words[10:]).all()


def test_a_pageable_upload_has_read_its_source(cuda: Cuda) -> None:
    stream = cuda.stream()
    source = np.full(1024, 5, dtype=np.uint32)
    address = cuda.cuMemAlloc(4096)
    cuda.launch("spin", 2_000_000, stream=stream)
    cuda.cuMemcpyHtoDAsync(address, source.ctypes.data, 4096, stream)
    source[:] = 6
    assert (cuda.read(address, 1024) == 5).all()


def test_fills(cuda: Cuda) -> None:
    address = int(cuda.cuMemAlloc(4096))
    cuda.cuMemsetD8(address, 0xAA, 4096)
    cuda.cuMemsetD16(address + 16, 0x1234, 4)
    cuda.cuMemsetD32(address + 32, 0xDEADBEEF, 2)
    cuda.cuMemsetD2D8(address + 64, 32, 0x55, 8, 3)
    values = cuda.read(address, 4096, np.uint8)
    assert values[:16].tolist() == [0xAA] * 16
    assert values[16:24].view(np.uint16).tolist() == [0x1234] * 4
    assert values[32:40].view(np.uint32).tolist() == [0xDEADBEEF] * 2
    assert [values[64 + 32 * row + 7] for row in range(4)] == [0x55, 0x55, 0x55, 0xAA]
    assert values[64 + 8] == 0xAA


def test_a_fill_of_host_memory_is_done_when_it_returns(cuda: Cuda) -> None:
    place = int(cuda.cuMemHostAlloc(MIB, 0))
    seen = (ctypes.c_uint8 * MIB).from_address(place)
    for value in (0xAB, 0x17):
        cuda.cuMemsetD8(place, value, MIB)
        assert seen[0] == seen[MIB - 1] == value
    cuda.cuMemFreeHost(place)


def test_a_fill_must_be_aligned(cuda: Cuda, fails: Check) -> None:
    address = int(cuda.cuMemAlloc(4096))
    fails("INVALID_VALUE", cuda.cuMemsetD32, address + 2, 0, 1)


def test_rectangles(cuda: Cuda) -> None:
    source = np.arange(64, dtype=np.uint8)
    address = cuda.cuMemAlloc(256)
    cuda.cuMemsetD8(address, 0, 256)
    shape = cuda.CUDA_MEMCPY2D()
    shape.srcMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_HOST
    shape.srcHost = source.ctypes.data
    shape.srcPitch = 8
    shape.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    shape.dstDevice = address
    shape.dstPitch = 16
    shape.dstXInBytes = 2
    shape.dstY = 1
    shape.WidthInBytes = 4
    shape.Height = 3
    cuda.cuMemcpy2D(shape)
    values = cuda.read(address, 256, np.uint8).reshape(16, 16)
    assert values[1:4, 2:6].tolist() == [[0, 1, 2, 3], [8, 9, 10, 11], [16, 17, 18, 19]]
    assert values.sum() == values[1:4, 2:6].sum()


def test_allocation_errors(cuda: Cuda, fails: Check) -> None:
    fails("INVALID_VALUE", cuda.cuMemAlloc, 0)
    fails("OUT_OF_MEMORY", cuda.cuMemAlloc, 1 << 50)
    address = int(cuda.cuMemAlloc(4096))
    fails("INVALID_VALUE", cuda.cuMemFree, address + 16)
    cuda.cuMemFree(address)
    cuda.cuMemFree(0)


@pytest.mark.parametrize("size", [2**64 - 8, 2**64 - 1, 2**64 - (2 << 20)])
def test_sizes_that_cannot_be(cuda: Cuda, size: int) -> None:
    refused = ("ERROR_OUT_OF_MEMORY", "ERROR_INVALID_VALUE")
    assert cuda.result("cuMemAlloc", size) in refused
    assert cuda.result("cuMemAllocAsync", size, 0) in refused


@pytest.mark.parametrize("shape", [(100, 2**55 + 2), (2**32, 2**32), (2**64 - 1, 1), (2**64 - 100, 2)])
def test_rows_that_cannot_be(cuda: Cuda, shape: tuple[int, int]) -> None:
    if shape == (100, 2**55 + 2) and not cuda.simulated:
        pytest.skip("an H200 gives the 1024 bytes that the product overflows to")
    assert cuda.result("cuMemAllocPitch", *shape, 4) == "ERROR_INVALID_VALUE"


def test_host_memory_is_the_same_on_both_sides(cuda: Cuda, fails: Check) -> None:
    start = int(cuda.cuMemHostAlloc(8192, 0))
    assert int(cuda.cuMemHostGetDevicePointer(start, 0)) == start
    kind = cuda.CUpointer_attribute
    assert cuda.cuPointerGetAttribute(kind.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, start) == 1
    cuda.launch("store", start + 4, ctypes.c_uint32(99))
    cuda.cuCtxSynchronize()
    assert ctypes.c_uint32.from_address(start + 4).value == 99
    cuda.cuMemFreeHost(start)
    fails("INVALID_VALUE", cuda.cuMemFreeHost, start)


@pytest.fixture(params=["private", "file"])
def memory(request: pytest.FixtureRequest, cuda: Cuda) -> Iterator[mmap.mmap]:
    """4 MiB of the program's own, or of a file in memory that others could map."""
    if request.param == "private":
        if SHIM and not user_faults.there_are():
            pytest.skip(user_faults.REASON)
        mapped = mmap.mmap(-1, 4 * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    else:
        file = os.memfd_create("memory")
        os.ftruncate(file, 8 * MIB)
        mapped = mmap.mmap(file, 4 * MIB, offset=2 * MIB)  # it has a descriptor of its own
        os.close(file)
    yield mapped
    cuda.result("cuMemHostUnregister", address_of(mapped))  # where the test came to no end


def address_of(memory: mmap.mmap) -> int:
    return ctypes.addressof((ctypes.c_char * len(memory)).from_buffer(memory))


def test_registered_memory_is_within_the_gpu_s_reach(cuda: Cuda, fails: Check, memory: mmap.mmap) -> None:
    start = address_of(memory)
    cuda.cuMemHostRegister(start, 4 * MIB, 0)
    fails("HOST_MEMORY_ALREADY_REGISTERED", cuda.cuMemHostRegister, start, 4 * MIB, 0)
    fails("HOST_MEMORY_ALREADY_REGISTERED", cuda.cuMemHostRegister, start + MIB, MIB, 0)
    attribute = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
    address = int(cuda.cuMemHostGetDevicePointer(start + MIB, 0))
    if cuda.cuDeviceGetAttribute(attribute, cuda.device):
        assert address == start + MIB
    cuda.launch("store", address, ctypes.c_uint32(0x31323334))
    cuda.cuCtxSynchronize()
    assert memory[MIB : MIB + 4] == b"4321"
    # Copies know it by either address.
    word = cuda.device_words()
    for source, text in ((address, b"abcd"), (start + MIB, b"efgh")):
        memory[MIB : MIB + 4] = text
        cuda.cuMemcpyDtoD(word, address, 4)
        assert cuda.read(word, 4, np.uint8).tobytes() == text
        cuda.cuMemsetD32(word, 0, 1)
        cuda.cuMemcpyHtoDAsync(word, source, 4, 0)
        assert cuda.read(word, 4, np.uint8).tobytes() == text
    kind = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_POINTER
    assert int(cuda.cuPointerGetAttribute(kind, start + MIB)) == address
    cuda.cuMemHostUnregister(start)
    fails("HOST_MEMORY_NOT_REGISTERED", cuda.cuMemHostUnregister, start)
    fails("INVALID_VALUE", cuda.cuMemHostGetDevicePointer, start, 0)
    assert cuda.result("cuPointerGetAttribute", kind, address) == "ERROR_INVALID_VALUE"
    cuda.cuMemFree(word)


def test_copies_by_the_gpu_s_address_of_registered_memory(cuda: Cuda, memory: mmap.mmap) -> None:
    start = address_of(memory)
    cuda.cuMemHostRegister(start, 4 * MIB, cuda.driver.CU_MEMHOSTREGISTER_DEVICEMAP)
    address, words = int(cuda.cuMemHostGetDevicePointer(start + MIB, 0)), cuda.device_words(2)
    for copy in (cuda.cuMemcpyDtoDAsync, cuda.cuMemcpyAsync):
        cuda.cuMemsetD32(words, 0x31323334, 2)
        memory[MIB : MIB + 8] = bytes(8)
        copy(address + 4, words, 4, 0)
        cuda.cuCtxSynchronize()
        assert memory[MIB : MIB + 8] == b"\0\0\0\x004321"
        copy(words, address, 8, 0)
        assert cuda.read(words, 8, np.uint8).tobytes() == b"\0\0\0\x004321"
    cuda.cuMemHostUnregister(start)


@pytest.mark.skipif(not SHIM, reason="a driver's kernels reach it")
def test_a_kernel_is_not_given_memory_out_of_its_reach(cuda: Cuda, fails: Check) -> None:
    mapped = mmap.mmap(-1, MIB)  # to be shared with forked processes, but of no file that can be opened
    start = address_of(mapped)
    within_reach = cuda.driver.CU_MEMHOSTREGISTER_DEVICEMAP
    fails("NOT_SUPPORTED", cuda.cuMemHostRegister, start, MIB, within_reach)
    cuda.cuMemHostRegister(start, MIB, 0)
    address = int(cuda.cuMemHostGetDevicePointer(start + 4096, 0))
    fails("NOT_SUPPORTED", cuda.launch, "store", address, ctypes.c_uint32(1))
    cuda.cuMemHostUnregister(start)
    cuda.launch("store", cuda.device_words(), ctypes.c_uint32(1))
    cuda.cuCtxSynchronize()


def register_at_a_place_in_use(cuda: Cuda) -> None:
    place, size, words = int(os.environ["PLACE"]), 1 << 20, cuda.device_words()
    system = ctypes.CDLL(None)
    system.mmap.restype = ctypes.c_void_p
    file = os.memfd_create("memory")
    os.ftruncate(file, size)
    fixed = 0x100000  # MAP_FIXED_NOREPLACE
    for flags, descriptor in ((fixed | 0x01, file), (fixed | 0x22, -1)):  # shared; private, of no file
        arguments = (ctypes.c_void_p(place), ctypes.c_size_t(size), 3, flags, descriptor, ctypes.c_long(0))
        assert system.mmap(*arguments) == place
        ctypes.c_uint32.from_address(place + 8).value = 5
        cuda.cuMemHostRegister(place, size, 0)
        address = int(cuda.cuMemHostGetDevicePointer(place + 8, 0))
        try:
            cuda.launch("store", place + 8, ctypes.c_uint32(6))
        except CudaError as error:
            print(error, address == place + 8)
        cuda.cuMemcpyDtoDAsync(words, address, 4, 0)
        print(cuda.read(words, 1)[0])
        cuda.cuMemHostUnregister(place)
        system.munmap(ctypes.c_void_p(place), ctypes.c_size_t(size))


@pytest.mark.skipif(not SHIM, reason="a driver shares no addresses with other programs")
@pytest.mark.skipif(not user_faults.there_are(), reason=user_faults.REASON)
def test_registered_memory_where_another_program_has_some(cuda: Cuda, alone: Alone) -> None:
    memory = mmap.mmap(-1, MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = address_of(memory)
    cuda.cuMemHostRegister(start, MIB, 0)
    cuda.launch("store", start, ctypes.c_uint32(7))
    cuda.cuCtxSynchronize()
    refused = "cuLaunchKernel: CUDA_ERROR_NOT_SUPPORTED"
    lines = alone(register_at_a_place_in_use, beside=True, PLACE=str(start)).splitlines()
    assert lines == [f"{refused} False", "5", f"{refused} True", "5"]
    assert memory[0] == 7
    cuda.cuMemHostUnregister(start)


def test_a_part_of_memory_is_registered(cuda: Cuda, memory: mmap.mmap) -> None:
    start = address_of(memory)
    cuda.cuMemHostRegister(start, 5000, cuda.driver.CU_MEMHOSTREGISTER_DEVICEMAP)
    for place in (4, 4996):
        cuda.launch("store", int(cuda.cuMemHostGetDevicePointer(start + place, 0)), ctypes.c_uint32(place))
    cuda.cuCtxSynchronize()
    assert [memory[place : place + 4][0] for place in (4, 4996)] == [4, 4996 % 256]
    cuda.cuMemHostUnregister(start)
    cuda.cuMemHostRegister(start + 4100, 100, 0)  # where no page begins
    cuda.launch("store", int(cuda.cuMemHostGetDevicePointer(start + 4104, 0)), ctypes.c_uint32(77))
    cuda.cuCtxSynchronize()
    assert memory[4104] == 77
    cuda.cuMemHostUnregister(start + 4100)


def test_parts_of_registered_memory(cuda: Cuda, fails: Check) -> None:
    memory = mmap.mmap(-1, 4 * MIB)
    start = address_of(memory)
    cuda.cuMemHostRegister(start, 4 * MIB, 0)
    fails("INVALID_VALUE", cuda.cuMemHostUnregister, start + MIB)
    cuda.cuMemHostGetFlags(start)
    cuda.cuMemHostUnregister(start)
    pinned = int(cuda.cuMemHostAlloc(MIB, 0))
    fails("INVALID_VALUE", cuda.cuMemHostRegister, pinned, MIB, 0)
    cuda.cuMemFreeHost(pinned)


def test_what_is_not_there_is_not_registered(cuda: Cuda, fails: Check) -> None:
    memory = mmap.mmap(-1, 4 * MIB)
    hole = address_of(memory) + MIB
    ctypes.CDLL(None).munmap(ctypes.c_void_p(hole), ctypes.c_size_t(MIB))
    fails("INVALID_VALUE", cuda.cuMemHostRegister, hole, MIB, 0)
    fails("INVALID_VALUE", cuda.cuMemHostRegister, hole - MIB, 4 * MIB, 0)


def test_what_a_pointer_is(cuda: Cuda, fails: Check) -> None:
    address = int(cuda.cuMemAlloc(4096))
    kind = cuda.CUpointer_attribute
    assert cuda.cuPointerGetAttribute(kind.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == 2
    assert cuda.cuPointerGetAttribute(kind.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) == int(cuda.device)
    assert int(cuda.cuPointerGetAttribute(kind.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 9)) == address
    assert int(cuda.cuPointerGetAttribute(kind.CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 9)) == 4096
    local = ctypes.c_int()
    fails(
        "INVALID_VALUE",
        cuda.cuPointerGetAttribute,
        kind.CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        ctypes.addressof(local),
    )


@pytest.mark.parametrize("size", [1, 4096, 2 * MIB, 40 * MIB])
def test_odd_sizes(cuda: Cuda, size: int) -> None:
    address = int(cuda.cuMemAlloc(size))
    assert address % 256 == 0
    cuda.cuMemsetD8(address, 9, size)
    assert cuda.read(address + size - 1, 1, np.uint8)[0] == 9
    cuda.cuMemFree(address)
