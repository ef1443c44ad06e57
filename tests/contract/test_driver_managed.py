"""Managed memory: one address for the host and the device, whatever lies where.

Real drivers move its pages, others leave them on the host; only what holds for both is asked here.
"""

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_calls import Check, Cuda

MIB = 1 << 20
PAGE = 4096
EVERY = 1  # CU_MEM_ATTACH_GLOBAL
PTX = b"""
.version 8.0
.target sm_90
.address_size 64

// Waits until the first word is no longer 0, then makes the second one twice as much.
.visible .entry answer(.param .u64 place)
{
    .reg .pred %p<2>;
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [place];
AGAIN:
    ld.acquire.sys.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra AGAIN;
    add.u32 %r2, %r1, %r1;
    st.release.sys.u32 [%rd1+4], %r2;
    ret;
}

.visible .entry twice(.param .u64 place)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [place];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.u32 %r2, [%rd3];
    add.u32 %r2, %r2, %r2;
    st.u32 [%rd3], %r2;
    ret;
}
"""


@pytest.fixture
def managed(cuda: Cuda) -> Iterator[int]:
    """Yield the address of 4 MiB."""
    address = int(cuda.cuMemAllocManaged(4 * MIB, EVERY))
    yield address
    cuda.cuCtxSynchronize()
    cuda.cuMemFree(address)


def words(address: int, count: int) -> Any:
    """Return an array over words of the host's."""
    return np.ctypeslib.as_array((ctypes.c_uint32 * count).from_address(address))


def location(cuda: Cuda, kind: str, number: int = 0) -> Any:
    """Return a CUmemLocation."""
    made = cuda.CUmemLocation()
    made.type = getattr(cuda.CUmemLocationType, "CU_MEM_LOCATION_TYPE_" + kind)
    made.id = number
    return made


def told(cuda: Cuda, name: str, address: int, size: int = 4 * MIB, data: int = 4) -> Any:
    """Return an attribute of a range."""
    kind = getattr(cuda.CUmem_range_attribute, "CU_MEM_RANGE_ATTRIBUTE_" + name)
    if name.endswith(("_TYPE", "_ID")):  # cuda-python 13.0 knows their names, but cannot ask
        value = ctypes.c_int32()
        ask = ctypes.CDLL("libcuda.so.1").cuMemRangeGetAttribute
        asked = ctypes.c_uint64(address), ctypes.c_size_t(size)
        assert ask(ctypes.byref(value), ctypes.c_size_t(4), ctypes.c_int(kind), *asked) == 0
        return value.value
    return cuda.cuMemRangeGetAttribute(data, kind, address, size)


def advise(cuda: Cuda, advice: str, address: int, size: int, where: Any) -> None:
    """Give advice."""
    cuda.cuMemAdvise(address, size, getattr(cuda.CUmem_advise, "CU_MEM_ADVISE_" + advice), where)


def test_the_host_and_kernels_have_the_same_bytes(cuda: Cuda, managed: int) -> None:
    module = cuda.cuModuleLoadData(PTX)
    twice = cuda.cuModuleGetFunction(module, b"twice")
    there = words(managed + MIB, 64)
    there[:] = np.arange(64)
    stream = cuda.stream()
    for _ in range(3):
        cuda.launch_function(twice, managed + MIB, block=64, stream=stream)
        cuda.cuStreamSynchronize(stream)
        there += 1
    assert there.tolist() == [8 * i + 7 for i in range(64)]
    cuda.cuStreamDestroy(stream)
    cuda.cuModuleUnload(module)


def test_the_host_and_a_running_kernel_talk(cuda: Cuda, managed: int) -> None:
    module = cuda.cuModuleLoadData(PTX)
    answer = cuda.cuModuleGetFunction(module, b"answer")
    there = words(managed, 2)
    there[:] = 0
    stream = cuda.stream()
    cuda.launch_function(answer, managed, stream=stream)
    assert cuda.result("cuStreamQuery", stream) == "ERROR_NOT_READY"
    there[0] = 21
    cuda.cuStreamSynchronize(stream)
    assert there[1] == 42
    cuda.cuStreamDestroy(stream)
    cuda.cuModuleUnload(module)


def test_what_may_be_asked_for(cuda: Cuda, fails: Check) -> None:
    for flags in (1, 2):
        address = cuda.cuMemAllocManaged(100, flags)
        assert int(address) % 256 == 0
        cuda.cuMemFree(address)
    for flags in (0, 3, 4, 8):
        fails("INVALID_VALUE", cuda.cuMemAllocManaged, 100, flags)
    fails("INVALID_VALUE", cuda.cuMemAllocManaged, 0, EVERY)
    fails("OUT_OF_MEMORY", cuda.cuMemAllocManaged, 1 << 60, EVERY)


def test_it_is_freed_as_device_memory(cuda: Cuda, fails: Check) -> None:
    address = int(cuda.cuMemAllocManaged(MIB, EVERY))
    fails("INVALID_VALUE", cuda.cuMemFreeHost, address)
    fails("INVALID_VALUE", cuda.cuMemFree, address + 256)
    cuda.cuMemFree(address)
    fails("INVALID_VALUE", cuda.cuMemFree, address)


def test_thousands_of_small_ones(cuda: Cuda, fails: Check) -> None:
    sizes = [8 + 8 * (i * 37 % 200) for i in range(6000)]
    places = [int(cuda.cuMemAllocManaged(size, EVERY)) for size in sizes]
    for index, (place, size) in enumerate(zip(places, sizes, strict=True)):
        words(place, size // 4)[:] = index
    cuda.launch("store", places[4000], ctypes.c_uint32(77))
    cuda.cuMemsetD32(places[4001], 78, 1)
    cuda.cuCtxSynchronize()
    assert words(places[4000], 2).tolist() == [77, 4000]
    assert words(places[4001], 2).tolist() == [78, 4001]
    for index in (0, 3999, 4002, 5999):
        assert (words(places[index], sizes[index] // 4) == index).all()
    base, size = cuda.cuMemGetAddressRange(places[9] + 4)
    assert (int(base), size) == (places[9], sizes[9])
    fails("INVALID_VALUE", cuda.cuMemFree, places[9] + 4)
    for place in places[::2] + places[1::2]:
        cuda.cuMemFree(place)
    fails("INVALID_VALUE", cuda.cuMemFree, places[9])


def test_what_its_address_is(cuda: Cuda, managed: int) -> None:
    names = ("IS_MANAGED", "MEMORY_TYPE", "DEVICE_POINTER", "HOST_POINTER", "RANGE_START_ADDR", "RANGE_SIZE")
    kinds = [getattr(cuda.CUpointer_attribute, "CU_POINTER_ATTRIBUTE_" + name) for name in names]
    inside = managed + 12
    wanted = [1, 2, inside, inside, managed, 4 * MIB]
    assert [int(cuda.cuPointerGetAttribute(kind, inside)) for kind in kinds] == wanted
    assert [int(value) for value in cuda.cuPointerGetAttributes(len(kinds), kinds, inside)] == wanted
    ordinal = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    assert cuda.cuPointerGetAttribute(ordinal, inside) == int(cuda.device)
    base, size = cuda.cuMemGetAddressRange(inside)
    assert (int(base), size) == (managed, 4 * MIB)
    device, pinned = int(cuda.cuMemAlloc(64)), int(cuda.cuMemHostAlloc(64, 0))
    assert [cuda.cuPointerGetAttribute(kinds[0], other) for other in (device, pinned)] == [0, 0]
    cuda.cuMemFree(device)
    cuda.cuMemFreeHost(pinned)


def test_copies(cuda: Cuda, managed: int) -> None:
    size = MIB // 4
    sent = np.arange(size, dtype=np.uint32)
    back = np.zeros(size, dtype=np.uint32)
    bytes_ = sent.nbytes
    other, device = int(cuda.cuMemAllocManaged(bytes_, EVERY)), int(cuda.cuMemAlloc(bytes_))
    pinned = int(cuda.cuMemHostAlloc(bytes_, 0))
    stream = cuda.stream()
    cuda.cuMemcpyHtoDAsync(managed, sent.ctypes.data, bytes_, stream)
    cuda.cuMemcpyDtoDAsync(device, managed, bytes_, stream)
    cuda.cuMemcpyDtoDAsync(other, device, bytes_, stream)
    cuda.cuMemcpyDtoDAsync(managed + MIB, other, bytes_, stream)
    cuda.cuMemcpyDtoHAsync(pinned, managed + MIB, bytes_, stream)
    cuda.cuMemcpyHtoDAsync(managed + 2 * MIB, pinned, bytes_, stream)
    cuda.cuMemcpyDtoHAsync(back.ctypes.data, managed + 2 * MIB, bytes_, stream)
    cuda.cuStreamSynchronize(stream)
    assert (back == sent).all()
    assert (words(other, size) == sent).all()
    words(managed, size)[:] = 7
    cuda.cuMemcpy(other, managed, bytes_)
    assert (words(other, size) == 7).all()
    cuda.cuMemcpyHtoD(device, managed, bytes_)
    assert (cuda.read(device, size) == 7).all()
    cuda.cuMemcpyDtoH(managed + MIB, device, bytes_)
    assert (words(managed + MIB, size) == 7).all()
    cuda.cuStreamDestroy(stream)
    cuda.cuMemFreeHost(pinned)
    cuda.cuMemFree(device)
    cuda.cuMemFree(other)


def test_rectangles(cuda: Cuda, managed: int) -> None:
    kinds = cuda.CUmemorytype
    there = words(managed, 64)
    there[:] = np.arange(64)
    shape = cuda.CUDA_MEMCPY2D()
    shape.srcMemoryType = kinds.CU_MEMORYTYPE_UNIFIED
    shape.srcDevice = managed
    shape.srcPitch = 32
    shape.dstMemoryType = kinds.CU_MEMORYTYPE_DEVICE
    shape.dstDevice = managed + MIB
    shape.dstPitch = 64
    shape.WidthInBytes = 16
    shape.Height = 8
    cuda.cuMemcpy2D(shape)
    assert words(managed + MIB, 128).reshape(8, 16)[:, :4].tolist() == there.reshape(8, 8)[:, :4].tolist()


def test_fills(cuda: Cuda, managed: int) -> None:
    cuda.cuMemsetD8(managed, 0xAB, 64)
    assert (words(managed, 16) == 0xABABABAB).all()
    cuda.cuMemsetD2D32(managed + PAGE, 32, 5, 4, 3)
    assert words(managed + PAGE, 24).reshape(3, 8)[:, :4].tolist() == [[5] * 4] * 3
    stream = cuda.stream()
    cuda.cuMemsetD16Async(managed, 0x1234, 32, stream)
    cuda.cuStreamSynchronize(stream)
    assert (words(managed, 16) == 0x12341234).all()
    cuda.cuStreamDestroy(stream)


def test_work_is_in_the_order_of_its_stream(cuda: Cuda, managed: int) -> None:
    stream = cuda.stream()
    there = words(managed, 1024)
    there[:] = 0
    device = cuda.device_words(1024)
    cuda.launch("spin_store", 2_000_000, managed, ctypes.c_uint32(9), stream=stream)
    cuda.cuMemcpyDtoDAsync(device, managed, 4096, stream)
    cuda.cuMemsetD32Async(managed, 3, 1024, stream)
    cuda.cuMemcpyDtoDAsync(managed + MIB, managed, 4096, stream)
    cuda.cuStreamSynchronize(stream)
    assert cuda.read(device)[0] == 9
    assert there[0] == words(managed + MIB, 1024)[1023] == 3
    cuda.cuStreamDestroy(stream)
    cuda.cuMemFree(device)


def test_streams_write_no_words_of_it(cuda: Cuda, managed: int, fails: Check) -> None:
    """Nor wait for any, though they do of device and of pinned memory."""
    there = words(managed, 4)
    there[:] = 0
    stream = cuda.stream()
    for wide in ("32", "64"):
        fails("INVALID_VALUE", getattr(cuda, "cuStreamWriteValue" + wide), stream, managed, 6, 0)
        fails("INVALID_VALUE", getattr(cuda, "cuStreamWaitValue" + wide), stream, managed, 0, 0)
    cuda.cuStreamSynchronize(stream)
    assert there[:2].tolist() == [0, 0]
    cuda.cuStreamDestroy(stream)


def test_a_graph_uses_it(cuda: Cuda, managed: int) -> None:
    module = cuda.cuModuleLoadData(PTX)
    twice = cuda.cuModuleGetFunction(module, b"twice")
    stream = cuda.stream()
    device = cuda.device_words(64)
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    cuda.cuMemsetD32Async(managed, 3, 32, stream)
    cuda.launch_function(twice, managed, block=64, stream=stream)
    cuda.cuMemcpyDtoDAsync(device, managed, 256, stream)
    cuda.launch_function(twice, device, block=64, stream=stream)
    cuda.cuMemcpyDtoDAsync(managed + MIB, device, 256, stream)
    graph = cuda.cuStreamEndCapture(stream)
    made = cuda.cuGraphInstantiate(graph, 0)
    words(managed, 64)[32:] = 1
    for _ in range(2):
        cuda.cuGraphLaunch(made, stream)
        cuda.cuStreamSynchronize(stream)
    assert words(managed, 64).tolist() == [6] * 32 + [4] * 32
    assert words(managed + MIB, 64).tolist() == [12] * 32 + [8] * 32
    cuda.cuGraphExecDestroy(made)
    cuda.cuGraphDestroy(graph)
    cuda.cuStreamDestroy(stream)
    cuda.cuMemFree(device)
    cuda.cuModuleUnload(module)


def test_advice_is_remembered_by_page(cuda: Cuda, managed: int) -> None:
    gpu, host = location(cuda, "DEVICE", int(cuda.device)), location(cuda, "HOST")
    assert told(cuda, "READ_MOSTLY", managed) == 0
    assert told(cuda, "PREFERRED_LOCATION", managed) == -2
    assert told(cuda, "LAST_PREFETCH_LOCATION", managed) == -2
    assert list(told(cuda, "ACCESSED_BY", managed, data=8)) == [-2, -2]
    advise(cuda, "SET_READ_MOSTLY", managed, 2 * MIB, host)
    assert told(cuda, "READ_MOSTLY", managed) == 0
    assert told(cuda, "READ_MOSTLY", managed + PAGE, MIB) == 1
    advise(cuda, "SET_READ_MOSTLY", managed + 2 * MIB, 2 * MIB, host)
    assert told(cuda, "READ_MOSTLY", managed) == 1
    advise(cuda, "UNSET_READ_MOSTLY", managed + PAGE, 1, host)
    assert told(cuda, "READ_MOSTLY", managed) == told(cuda, "READ_MOSTLY", managed + 2 * PAGE - 1, 1) == 0
    assert told(cuda, "READ_MOSTLY", managed, PAGE) == told(cuda, "READ_MOSTLY", managed + 2 * PAGE, 1) == 1

    advise(cuda, "SET_PREFERRED_LOCATION", managed, MIB, gpu)
    advise(cuda, "SET_PREFERRED_LOCATION", managed + MIB, 3 * MIB, host)
    assert told(cuda, "PREFERRED_LOCATION", managed, MIB) == int(cuda.device)
    assert told(cuda, "PREFERRED_LOCATION", managed + MIB, MIB) == -1
    assert told(cuda, "PREFERRED_LOCATION", managed) == -2
    kinds = cuda.CUmemLocationType
    assert told(cuda, "PREFERRED_LOCATION_TYPE", managed, MIB) == kinds.CU_MEM_LOCATION_TYPE_DEVICE
    assert told(cuda, "PREFERRED_LOCATION_ID", managed, MIB) == int(cuda.device)
    assert told(cuda, "PREFERRED_LOCATION_TYPE", managed + MIB, MIB) == kinds.CU_MEM_LOCATION_TYPE_HOST
    assert told(cuda, "PREFERRED_LOCATION_ID", managed + MIB, MIB) == -1
    assert told(cuda, "PREFERRED_LOCATION_TYPE", managed) == kinds.CU_MEM_LOCATION_TYPE_INVALID
    advise(cuda, "SET_PREFERRED_LOCATION", managed, MIB, location(cuda, "HOST_NUMA"))
    assert told(cuda, "PREFERRED_LOCATION_TYPE", managed, MIB) == kinds.CU_MEM_LOCATION_TYPE_DEVICE
    advise(cuda, "UNSET_PREFERRED_LOCATION", managed, MIB, host)
    assert told(cuda, "PREFERRED_LOCATION", managed, MIB) == -2

    advise(cuda, "SET_ACCESSED_BY", managed, 4 * MIB, gpu)
    assert list(told(cuda, "ACCESSED_BY", managed, data=8)) == [int(cuda.device), -2]
    advise(cuda, "SET_ACCESSED_BY", managed, MIB, host)
    assert sorted(told(cuda, "ACCESSED_BY", managed, MIB, data=12)) == [-2, -1, int(cuda.device)]
    advise(cuda, "UNSET_ACCESSED_BY", managed, 4 * MIB, gpu)
    assert list(told(cuda, "ACCESSED_BY", managed, MIB, data=8)) == [-1, -2]


def test_prefetching_is_remembered_and_changes_no_byte(cuda: Cuda, managed: int) -> None:
    gpu, host = location(cuda, "DEVICE", int(cuda.device)), location(cuda, "HOST")
    there = words(managed, MIB)
    there[:] = np.arange(MIB)
    stream = cuda.stream()
    cuda.cuMemPrefetchAsync(managed, 4 * MIB, gpu, 0, stream)
    cuda.launch("store", managed, ctypes.c_uint32(99), stream=stream)
    cuda.cuMemPrefetchAsync(managed, MIB, host, 0, stream)
    cuda.cuStreamSynchronize(stream)
    assert there[0] == 99
    assert (there[1:] == np.arange(1, MIB)).all()
    assert told(cuda, "LAST_PREFETCH_LOCATION", managed, MIB) == -1
    assert told(cuda, "LAST_PREFETCH_LOCATION", managed + MIB, MIB) == int(cuda.device)
    assert told(cuda, "LAST_PREFETCH_LOCATION", managed) == -2
    host_type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    assert told(cuda, "LAST_PREFETCH_LOCATION_TYPE", managed, MIB) == host_type
    names = ("READ_MOSTLY", "LAST_PREFETCH_LOCATION")
    kinds = [getattr(cuda.CUmem_range_attribute, "CU_MEM_RANGE_ATTRIBUTE_" + name) for name in names]
    values = cuda.cuMemRangeGetAttributes([4, 4], kinds, 2, managed, MIB)
    assert [int(value) for value in values] == [0, -1]
    cuda.cuStreamDestroy(stream)


def test_a_batch_of_prefetches(cuda: Cuda, managed: int, fails: Check) -> None:
    gpu, host = location(cuda, "DEVICE", int(cuda.device)), location(cuda, "HOST")
    stream = cuda.stream()
    ranges, sizes = [cuda.CUdeviceptr(managed + i * MIB) for i in range(3)], [MIB] * 3
    cuda.cuMemPrefetchBatchAsync(ranges, sizes, 3, [gpu, host], [0, 2], 2, 0, stream)
    cuda.cuStreamSynchronize(stream)
    assert told(cuda, "LAST_PREFETCH_LOCATION", managed, 2 * MIB) == int(cuda.device)
    assert told(cuda, "LAST_PREFETCH_LOCATION", managed + 2 * MIB, MIB) == -1
    fails("INVALID_VALUE", cuda.cuMemPrefetchBatchAsync, ranges, sizes, 3, [gpu], [1], 1, 0, stream)
    cuda.cuStreamDestroy(stream)


def test_bad_advice(cuda: Cuda, managed: int, fails: Check) -> None:
    gpu, host = location(cuda, "DEVICE", int(cuda.device)), location(cuda, "HOST")
    nobody = location(cuda, "DEVICE", 99)
    advices = cuda.CUmem_advise
    preferred, accessed = (
        advices.CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
        advices.CU_MEM_ADVISE_SET_ACCESSED_BY,
    )
    fails("INVALID_VALUE", cuda.cuMemAdvise, managed, MIB, preferred, nobody)
    fails("INVALID_VALUE", cuda.cuMemAdvise, managed, MIB, accessed, nobody)
    for advice in (preferred, advices.CU_MEM_ADVISE_SET_READ_MOSTLY):
        fails("INVALID_VALUE", cuda.cuMemAdvise, managed, MIB, advice, location(cuda, "INVALID"))
    fails("INVALID_DEVICE", cuda.cuMemPrefetchAsync, managed, MIB, nobody, 0, 0)
    stream = cuda.stream()
    batch = [cuda.CUdeviceptr(managed)], [MIB], 1, [nobody], [0], 1, 0, stream
    fails("INVALID_VALUE", cuda.cuMemPrefetchBatchAsync, *batch)
    cuda.cuStreamDestroy(stream)
    earlier = ctypes.CDLL("libcuda.so.1").cuMemAdvise  # its first version takes a device's number
    for advice in (preferred, accessed):
        asked = ctypes.c_uint64(managed), ctypes.c_size_t(MIB), ctypes.c_int(advice), ctypes.c_int(99)
        assert earlier(*asked) == cuda.errors.CUDA_ERROR_INVALID_DEVICE
    fails("INVALID_VALUE", cuda.cuMemPrefetchAsync, managed, MIB, gpu, 1, 0)
    fails("INVALID_VALUE", cuda.cuMemAdvise, managed, MIB, accessed, location(cuda, "HOST_NUMA"))
    device = int(cuda.cuMemAlloc(MIB))
    fails("INVALID_VALUE", cuda.cuMemPrefetchAsync, device, MIB, gpu, 0, 0)
    fails("INVALID_VALUE", cuda.cuMemAdvise, device, MIB, preferred, host)
    cuda.cuMemFree(device)
    mostly = cuda.CUmem_range_attribute.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY
    fails("INVALID_VALUE", cuda.cuMemRangeGetAttribute, 8, mostly, managed, MIB)
    fails("INVALID_VALUE", cuda.cuMemRangeGetAttribute, 4, mostly, device, MIB)


def test_attachments(cuda: Cuda, managed: int, fails: Check) -> None:
    stream = cuda.stream()
    for flags in (1, 2, 4):
        cuda.cuStreamAttachMemAsync(stream, managed, 0, flags)
    cuda.cuStreamAttachMemAsync(stream, managed, 4 * MIB, 1)
    cuda.cuStreamSynchronize(stream)
    fails("INVALID_VALUE", cuda.cuStreamAttachMemAsync, stream, managed, 0, 7)
    cuda.cuStreamDestroy(stream)


def test_it_goes_with_its_context(cuda: Cuda, fails: Check) -> None:
    other = cuda.cuCtxCreate(None, 0, cuda.device)
    address = cuda.cuMemAllocManaged(4096, EVERY)
    cuda.cuCtxDestroy(other)
    fails("INVALID_VALUE", cuda.cuMemFree, address)


def test_arrays(cuda: Cuda, managed: int) -> None:
    """Copied to an array and back, and there for the host when the calls return."""
    shape = cuda.CUDA_ARRAY_DESCRIPTOR()
    shape.Width, shape.Height, shape.NumChannels = 8, 4, 1
    shape.Format = cuda.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT32
    array = cuda.cuArrayCreate(shape)
    there = words(managed, 64)
    there[:] = np.arange(64)
    kinds = cuda.CUmemorytype
    rows = cuda.CUDA_MEMCPY2D()
    rows.srcMemoryType, rows.srcDevice, rows.srcPitch = kinds.CU_MEMORYTYPE_UNIFIED, managed, 64
    rows.dstMemoryType, rows.dstArray = kinds.CU_MEMORYTYPE_ARRAY, array
    rows.WidthInBytes, rows.Height = 32, 4
    cuda.cuMemcpy2D(rows)
    back = cuda.CUDA_MEMCPY2D()
    back.srcMemoryType, back.srcArray = kinds.CU_MEMORYTYPE_ARRAY, array
    back.dstMemoryType, back.dstDevice, back.dstPitch = kinds.CU_MEMORYTYPE_DEVICE, managed + MIB, 32
    back.WidthInBytes, back.Height = 32, 4
    cuda.cuMemcpy2D(back)
    assert words(managed + MIB, 32).reshape(4, 8).tolist() == there.reshape(4, 16)[:, :8].tolist()
    cuda.cuArrayDestroy(array)
