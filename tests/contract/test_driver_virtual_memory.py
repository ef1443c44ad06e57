"""Virtual memory: addresses that are reserved, memory that is mapped there, and who may reach it."""

import ctypes
import os

import pytest
from cuda_calls import SHIM, Alone, Check, Cuda, CudaError

MIB = 1 << 20


def test_granularity_is_two_mebibytes(cuda: Cuda) -> None:
    for option in cuda.CUmemAllocationGranularity_flags:
        assert cuda.cuMemGetAllocationGranularity(cuda.properties(), option) == 2 * MIB
    properties = ctypes.c_void_p(cuda.properties().getPtr())
    ask = ctypes.CDLL("libcuda.so.1").cuMemGetAllocationGranularity
    assert ask(ctypes.byref(ctypes.c_size_t()), properties, 2) == cuda.errors.CUDA_ERROR_INVALID_VALUE


def test_a_mapping_holds_real_bytes_and_moves(cuda: Cuda) -> None:
    size = 4 * MIB
    first = int(cuda.cuMemAddressReserve(size, 0, 0, 0))
    second = int(cuda.cuMemAddressReserve(size, 0, 0, 0))
    handle = cuda.cuMemCreate(size, cuda.properties(), 0)
    cuda.cuMemMap(first, size, 0, handle, 0)
    cuda.allow(first, size)
    cuda.cuMemsetD32(first, 0xC0FFEE, size // 4)
    cuda.cuCtxSynchronize()
    cuda.cuMemMap(second, size, 0, handle, 0)
    cuda.allow(second, size)
    cuda.launch("store", second + 4, ctypes.c_uint32(5))
    assert cuda.read(first, 3).tolist() == [0xC0FFEE, 5, 0xC0FFEE]
    cuda.cuMemUnmap(first, size)
    cuda.cuMemRelease(handle)
    assert cuda.read(second + size - 4)[0] == 0xC0FFEE
    cuda.cuMemUnmap(second, size)
    cuda.cuMemAddressFree(first, size)
    cuda.cuMemAddressFree(second, size)


def test_an_address_that_was_given_can_be_had_again(cuda: Cuda) -> None:
    size = 64 * MIB
    given = int(cuda.cuMemAddressReserve(size, 0, 0, 0))
    for _ in range(2):
        cuda.cuMemAddressFree(given, size)
        assert int(cuda.cuMemAddressReserve(size, 0, given, 0)) == given
    cuda.cuMemAddressFree(given, size)


def test_sixteen_tebibytes_at_once(cuda: Cuda) -> None:
    size = 16 << 40
    start = int(cuda.cuMemAddressReserve(size, 0, 0, 0))
    far = start + size - 2 * MIB
    handle = cuda.cuMemCreate(2 * MIB, cuda.properties(), 0)
    cuda.cuMemMap(far, 2 * MIB, 0, handle, 0)
    cuda.allow(far, 2 * MIB)
    cuda.cuMemsetD32(far, 3, 4)
    assert cuda.read(far, 4).tolist() == [3] * 4
    cuda.cuMemUnmap(far, 2 * MIB)
    cuda.cuMemRelease(handle)
    cuda.cuMemAddressFree(start, size)


@pytest.mark.parametrize("size", [2**64 - (2 << 20), 2**64 - (4 << 20), 2**63])
@pytest.mark.parametrize("alignment", [0, 4 << 20, 2**63])
def test_addresses_that_cannot_be(cuda: Cuda, size: int, alignment: int) -> None:
    """Also where size and alignment add up to little, in 64 bits."""
    refused = ("ERROR_OUT_OF_MEMORY", "ERROR_INVALID_VALUE")
    assert cuda.result("cuMemAddressReserve", size, alignment, 0, 0) in refused


def test_memory_is_free_again_when_neither_held_nor_mapped(cuda: Cuda) -> None:
    size = 256 * MIB
    start = int(cuda.cuMemAddressReserve(size, 0, 0, 0))
    before = cuda.cuMemGetInfo()[0]
    handle = cuda.cuMemCreate(size, cuda.properties(), 0)
    cuda.cuMemMap(start, size, 0, handle, 0)
    cuda.cuMemRelease(handle)
    assert before - cuda.cuMemGetInfo()[0] >= size - 8 * MIB
    cuda.cuMemUnmap(start, size)
    assert before - cuda.cuMemGetInfo()[0] < 8 * MIB
    cuda.cuMemAddressFree(start, size)


def test_virtual_memory_errors(cuda: Cuda, fails: Check) -> None:
    size = 4 * MIB
    start = int(cuda.cuMemAddressReserve(size, 0, 0, 0))
    handle = cuda.cuMemCreate(2 * MIB, cuda.properties(), 0)
    fails("INVALID_VALUE", cuda.cuMemCreate, 4096, cuda.properties(), 0)
    fails("INVALID_VALUE", cuda.cuMemAddressReserve, 4096, 0, 0, 0)
    fails("OUT_OF_MEMORY", cuda.cuMemCreate, 1 << 44, cuda.properties(), 0)
    places, wanted = cuda.CUmemLocationType, cuda.properties()
    wanted.location.type = places.CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT
    fails("INVALID_VALUE", cuda.cuMemCreate, 2 * MIB, wanted, 0)
    wanted.location.type = places.CU_MEM_LOCATION_TYPE_HOST
    descriptor = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    wanted.requestedHandleTypes = descriptor
    fails("INVALID_VALUE", cuda.cuMemCreate, 2 * MIB, wanted, 0)
    # An allocation is mapped whole or not at all.
    fails("NOT_SUPPORTED", cuda.cuMemMap, start, size, 0, handle, 0)
    fails("NOT_SUPPORTED", cuda.cuMemMap, start, 4096, 0, handle, 0)
    fails("NOT_SUPPORTED", cuda.cuMemMap, start, 2 * MIB, 2 * MIB, handle, 0)
    fails("INVALID_VALUE", cuda.cuMemMap, start + 4096, 2 * MIB, 0, handle, 0)
    cuda.cuMemMap(start, 2 * MIB, 0, handle, 0)
    fails("INVALID_VALUE", cuda.cuMemMap, start, 2 * MIB, 0, handle, 0)
    fails("INVALID_VALUE", cuda.cuMemUnmap, start, MIB)
    fails("INVALID_VALUE", cuda.cuMemAddressFree, start, size)
    cuda.cuMemUnmap(start, 2 * MIB)
    cuda.cuMemUnmap(start, 2 * MIB)
    cuda.cuMemRelease(handle)
    cuda.cuMemAddressFree(start, size)
    fails("INVALID_VALUE", cuda.cuMemAddressFree, start, size)


def test_unmapping_where_nothing_is_mapped(cuda: Cuda, fails: Check) -> None:
    """As an H200 answers: only nothing at all can't be unmapped, whatever its place and size."""
    step = 2 * MIB
    start = int(cuda.cuMemAddressReserve(3 * step, 0, 0, 0))
    fails("INVALID_VALUE", cuda.cuMemUnmap, start, 0)
    for place, size in ((start, step), (start + 4096, step), (start, 4096)):
        cuda.cuMemUnmap(place, size)
    cuda.cuMemAddressFree(start, 3 * step)


def test_what_is_mapped_without_access_is_not_filled(cuda: Cuda, fails: Check) -> None:
    step = 2 * MIB
    start = int(cuda.cuMemAddressReserve(step, 0, 0, 0))
    handle = cuda.cuMemCreate(step, cuda.properties(), 0)
    cuda.cuMemMap(start, step, 0, handle, 0)
    fails("INVALID_VALUE", cuda.cuMemsetD8, start, 1, 16)
    reads = cuda.CUmemAccessDesc()
    reads.location = cuda.properties().location
    reads.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READ
    cuda.cuMemSetAccess(start, step, [reads], 1)
    fails("INVALID_VALUE", cuda.cuMemsetD8, start, 1, 16)
    cuda.cuCtxSynchronize()
    cuda.allow(start, step)
    cuda.cuMemsetD8(start, 1, 16)
    cuda.cuCtxSynchronize()
    cuda.cuMemUnmap(start, step)
    cuda.cuMemRelease(handle)
    cuda.cuMemAddressFree(start, step)


def test_unmapping_more_than_is_mapped(cuda: Cuda, fails: Check) -> None:
    """Mappings go whole, with what holds nothing around them."""
    step = 2 * MIB
    start = int(cuda.cuMemAddressReserve(6 * step, 0, 0, 0))
    wide, handle = (cuda.cuMemCreate(size, cuda.properties(), 0) for size in (2 * step, step))
    cuda.cuMemMap(start, 2 * step, 0, wide, 0)
    cuda.cuMemMap(start + 3 * step, step, 0, handle, 0)
    cuda.allow(start, 2 * step)
    fails("INVALID_VALUE", cuda.cuMemUnmap, start, step)
    fails("INVALID_VALUE", cuda.cuMemUnmap, start + step, 2 * step)
    cuda.cuMemsetD8(start, 1, 2 * step)
    cuda.cuCtxSynchronize()
    cuda.cuMemUnmap(start, 7 * step)
    assert cuda.result("cuMemsetD8", start, 1, 4) == "ERROR_INVALID_VALUE"
    kind = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_RANGE_SIZE
    assert cuda.result("cuPointerGetAttribute", kind, start + 3 * step) == "ERROR_INVALID_VALUE"
    cuda.cuMemMap(start + step, 2 * step, 0, wide, 0)
    cuda.cuMemUnmap(start + step, 2 * step)
    for each in (wide, handle):
        cuda.cuMemRelease(each)
    cuda.cuMemAddressFree(start, 6 * step)


def test_a_mapping_names_its_allocation(cuda: Cuda) -> None:
    start = int(cuda.cuMemAddressReserve(2 * MIB, 0, 0, 0))
    handle = cuda.cuMemCreate(2 * MIB, cuda.properties(), 0)
    cuda.cuMemMap(start, 2 * MIB, 0, handle, 0)
    location = cuda.properties().location
    assert cuda.cuMemGetAccess(location, start) == 0
    cuda.allow(start, 2 * MIB)
    assert cuda.cuMemGetAccess(location, start) == 3
    again = cuda.cuMemRetainAllocationHandle(start + 100)
    assert cuda.cuMemGetAllocationPropertiesFromHandle(again).location.id == int(cuda.device)
    cuda.cuMemRelease(again)
    cuda.cuMemUnmap(start, 2 * MIB)
    cuda.cuMemRelease(handle)
    cuda.cuMemAddressFree(start, 2 * MIB)


def use_what_is_out_of_reach(cuda: Cuda) -> None:

    size, access, case = 2 << 20, cuda.CUmemAccessDesc(), os.environ["CASE"]
    place = int(cuda.cuMemAddressReserve(size, 0, 0, 0))
    cuda.cuMemMap(place, size, 0, cuda.cuMemCreate(size, cuda.properties(), 0), 0)
    if case != "mapped only":
        access.location = cuda.properties().location
        cuda.allow(place, size)
        cuda.cuMemsetD8Async(place, 1, size, 0)
        if "WAIT" in os.environ:
            cuda.cuCtxSynchronize()
        access.flags = getattr(cuda.CUmemAccess_flags, "CU_MEM_ACCESS_FLAGS_PROT_" + case)
        cuda.cuMemSetAccess(place, size, [access], 1)
    if case == "READ":
        print(cuda.read(place)[0] == 0x01010101)
    try:
        cuda.cuMemsetD8(place, 1, 64)
        cuda.cuCtxSynchronize()
    except CudaError as error:
        print(error.result.name)


@pytest.mark.parametrize("case", ["mapped only", "NONE", "READ"])
def test_memory_that_is_out_of_reach_is_an_error_of_its_program_alone(
    cuda: Cuda, alone: Alone, case: str
) -> None:
    words = cuda.device_words()
    # What is in flight as access is taken away CUDA leaves open; libcuda waits for it.
    wait = {} if SHIM else {"WAIT": "1"}
    said = alone(use_what_is_out_of_reach, beside=True, CASE=case, **wait).split()
    assert said[:-1] == (["True"] if case == "READ" else [])
    assert said[-1] in ("CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_INVALID_VALUE")
    cuda.launch("store", words, ctypes.c_uint32(5))
    assert list(cuda.read(words)) == [5]
