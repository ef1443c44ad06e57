"""Copies of one to three dimensions, arrays, batches, and what is wrong with some."""

import contextlib
import ctypes
import itertools
import mmap
import os
from typing import Any

import numpy as np
import pytest
from cuda_calls import Check, Cuda, CudaError


def test_a_plane_between_pitches(cuda: Cuda) -> None:
    source = np.arange(8 * 10, dtype=np.uint8).reshape(8, 10)
    address, pitch = cuda.cuMemAllocPitch(6, 4, 4)
    assert pitch >= 6
    up = cuda.CUDA_MEMCPY2D()
    kinds = cuda.CUmemorytype
    up.srcMemoryType, up.srcHost, up.srcPitch = kinds.CU_MEMORYTYPE_HOST, source.ctypes.data, 10
    up.srcXInBytes, up.srcY = 2, 3
    up.dstMemoryType, up.dstDevice, up.dstPitch = kinds.CU_MEMORYTYPE_DEVICE, address, pitch
    up.WidthInBytes, up.Height = 6, 4
    cuda.cuMemcpy2D(up)
    back = np.zeros((4, 6), dtype=np.uint8)
    down = cuda.CUDA_MEMCPY2D()
    down.srcMemoryType, down.srcDevice, down.srcPitch = kinds.CU_MEMORYTYPE_DEVICE, address, pitch
    down.dstMemoryType, down.dstHost, down.dstPitch = kinds.CU_MEMORYTYPE_HOST, back.ctypes.data, 6
    down.WidthInBytes, down.Height = 6, 4
    cuda.cuMemcpy2D(down)
    assert (back == source[3:7, 2:8]).all()
    cuda.cuMemFree(address)


def volume(cuda: Cuda, **ends: Any) -> Any:
    shape = cuda.CUDA_MEMCPY3D()
    for name, value in ends.items():
        setattr(shape, name, value)
    return shape


def test_a_part_of_a_volume(cuda: Cuda) -> None:
    source = np.arange(4 * 5 * 8, dtype=np.uint8).reshape(4, 5, 8)
    kinds, place = cuda.CUmemorytype, int(cuda.cuMemAlloc(4 * 5 * 8))
    cuda.cuMemcpyHtoD(place, source.ctypes.data, source.nbytes)
    back = np.zeros((2, 3, 4), dtype=np.uint8)
    cuda.cuMemcpy3D(
        volume(
            cuda,
            srcMemoryType=kinds.CU_MEMORYTYPE_DEVICE,
            srcDevice=place,
            srcPitch=8,
            srcHeight=5,
            srcXInBytes=2,
            srcY=1,
            srcZ=1,
            dstMemoryType=kinds.CU_MEMORYTYPE_HOST,
            dstHost=back.ctypes.data,
            dstPitch=4,
            dstHeight=3,
            WidthInBytes=4,
            Height=3,
            Depth=2,
        )
    )
    assert (back == source[1:3, 1:4, 2:6]).all()
    cuda.cuMemFree(place)


def test_an_array_of_two_dimensions(cuda: Cuda, fails: Check) -> None:
    wanted = cuda.CUDA_ARRAY_DESCRIPTOR()
    wanted.Format = cuda.CUarray_format.CU_AD_FORMAT_FLOAT
    wanted.NumChannels, wanted.Width, wanted.Height = 1, 5, 3
    array = cuda.cuArrayCreate(wanted)
    told = cuda.cuArrayGetDescriptor(array)
    assert (int(told.Width), int(told.Height), told.NumChannels) == (5, 3, 1)
    source = np.arange(15, dtype=np.float32).reshape(3, 5)
    kinds = cuda.CUmemorytype
    up = cuda.CUDA_MEMCPY2D()
    up.srcMemoryType, up.srcHost, up.srcPitch = kinds.CU_MEMORYTYPE_HOST, source.ctypes.data, 20
    up.dstMemoryType, up.dstArray = kinds.CU_MEMORYTYPE_ARRAY, array
    up.WidthInBytes, up.Height = 20, 3
    cuda.cuMemcpy2D(up)
    back = np.zeros((2, 3), dtype=np.float32)
    down = cuda.CUDA_MEMCPY2D()
    down.srcMemoryType, down.srcArray, down.srcXInBytes, down.srcY = kinds.CU_MEMORYTYPE_ARRAY, array, 8, 1
    down.dstMemoryType, down.dstHost, down.dstPitch = kinds.CU_MEMORYTYPE_HOST, back.ctypes.data, 12
    down.WidthInBytes, down.Height = 12, 2
    cuda.cuMemcpy2D(down)
    assert (back == source[1:3, 2:5]).all()
    down.Height = 3
    fails("INVALID_VALUE", cuda.cuMemcpy2D, down)
    cuda.cuArrayDestroy(array)


def test_an_array_of_one_dimension(cuda: Cuda) -> None:
    wanted = cuda.CUDA_ARRAY_DESCRIPTOR()
    wanted.Format = cuda.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8
    wanted.NumChannels, wanted.Width, wanted.Height = 4, 16, 0
    array, source = cuda.cuArrayCreate(wanted), np.arange(64, dtype=np.uint8)
    cuda.cuMemcpyHtoA(array, 0, source.ctypes.data, 64)
    back = np.zeros(32, dtype=np.uint8)
    cuda.cuMemcpyAtoH(back.ctypes.data, array, 16, 32)
    assert (back == source[16:48]).all()
    cuda.cuArrayDestroy(array)


def test_an_array_without_a_width(cuda: Cuda, fails: Check) -> None:
    fails("INVALID_VALUE", cuda.cuArrayCreate, cuda.CUDA_ARRAY_DESCRIPTOR())


def test_copies_between_contexts_of_one_device(cuda: Cuda) -> None:
    first, second = cuda.device_words(), cuda.device_words()
    cuda.cuMemsetD32(first, 9, 1)
    cuda.cuMemcpyPeer(second, cuda.context, first, cuda.context, 4)
    assert cuda.read(second)[0] == 9


def test_a_batch_of_copies(cuda: Cuda, fails: Check) -> None:
    host, words = cuda.pinned_words(2)
    words[:] = [5, 6]
    place, stream = cuda.device_words(2), cuda.stream()
    attributes = cuda.CUmemcpyAttributes()
    attributes.srcAccessOrder = cuda.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    to = [cuda.CUdeviceptr(place + 4), cuda.CUdeviceptr(place)]
    source = [cuda.CUdeviceptr(host), cuda.CUdeviceptr(host + 4)]
    arguments = (to, source, [4, 4], 2, [attributes], [0], 1)
    cuda.cuMemcpyBatchAsync(*arguments, stream)
    cuda.cuStreamSynchronize(stream)
    assert cuda.read(place, 2).tolist() == [6, 5]
    words[:] = [7, 8]
    cuda.cuMemcpyBatchAsync(*arguments, own := cuda.CUstream(cuda.CU_STREAM_PER_THREAD))
    cuda.cuStreamSynchronize(own)
    assert cuda.read(place, 2).tolist() == [8, 7]
    for legacy in (0, cuda.CUstream(cuda.CU_STREAM_LEGACY)):
        fails("INVALID_VALUE", cuda.cuMemcpyBatchAsync, *arguments, legacy)
    fails("INVALID_VALUE", cuda.cuMemcpyBatchAsync, to, source, [4, 0], 2, [attributes], [0], 1, stream)
    for first in ([1], [0, 0], [0, 2]):
        wrong = (to, source, [4, 4], 2, [attributes] * len(first), first, len(first))
        fails("INVALID_VALUE", cuda.cuMemcpyBatchAsync, *wrong, stream)
    attributes.srcAccessOrder = cuda.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_INVALID
    fails("INVALID_VALUE", cuda.cuMemcpyBatchAsync, *arguments[:4], [attributes], [0], 1, stream)


def pointer(cuda: Cuda, address: int, row: int = 0, layer: int = 0) -> Any:
    side = cuda.CUmemcpy3DOperand()
    side.type = cuda.CUmemcpy3DOperandType.CU_MEMCPY_OPERAND_TYPE_POINTER
    place = side.op.ptr
    place.ptr, place.rowLength, place.layerHeight = address, row, layer
    side.op.ptr = place
    return side


def of_array(cuda: Cuda, array: Any, x: int, y: int) -> Any:
    side = cuda.CUmemcpy3DOperand()
    side.type = cuda.CUmemcpy3DOperandType.CU_MEMCPY_OPERAND_TYPE_ARRAY
    place = side.op.array
    offset = place.offset
    offset.x, offset.y, offset.z = x, y, 0
    place.array, place.offset = array, offset
    side.op.array = place
    return side


def one_of_batch(cuda: Cuda, to: Any, source: Any, *sizes: int) -> Any:
    copy = cuda.CUDA_MEMCPY3D_BATCH_OP()
    copy.dst, copy.src = to, source
    extent = copy.extent
    extent.width, extent.height, extent.depth = sizes
    copy.extent = extent
    copy.srcAccessOrder = cuda.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    return copy


def test_a_batch_of_copies_of_rows(cuda: Cuda, fails: Check) -> None:
    wanted = cuda.CUDA_ARRAY_DESCRIPTOR()
    wanted.Format = cuda.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT32
    wanted.NumChannels, wanted.Width, wanted.Height = 1, 8, 4
    array, stream = cuda.cuArrayCreate(wanted), cuda.stream()
    host, words = cuda.pinned_words(32)
    words[:] = np.arange(32)
    place, other = cuda.device_words(32), cuda.device_words(32)
    # Bytes between pointers, elements where an array is one side.
    batch = [
        one_of_batch(cuda, of_array(cuda, array, 0, 0), pointer(cuda, host, 8, 4), 8, 4, 1),
        one_of_batch(cuda, pointer(cuda, place, 16, 2), pointer(cuda, host, 32), 8, 2, 2),
    ]
    cuda.cuMemcpy3DBatchAsync(2, batch, 0, stream)
    back = [one_of_batch(cuda, pointer(cuda, other), of_array(cuda, array, 2, 1), 3, 2, 1)]
    cuda.cuMemcpy3DBatchAsync(1, back, 0, stream)
    cuda.cuStreamSynchronize(stream)
    assert cuda.read(place, 14).tolist() == [0, 1, 0, 0, 8, 9, 0, 0, 16, 17, 0, 0, 24, 25]
    assert cuda.read(other, 7).tolist() == [10, 11, 12, 18, 19, 20, 0]
    fails("INVALID_VALUE", cuda.cuMemcpy3DBatchAsync, 1, back, 0, 0)
    fails("INVALID_VALUE", cuda.cuMemcpy3DBatchAsync, 0, back, 0, stream)
    fails("INVALID_VALUE", cuda.cuMemcpy3DBatchAsync, 1, back, 1, stream)
    beyond = [one_of_batch(cuda, pointer(cuda, other), of_array(cuda, array, 6, 1), 3, 2, 1)]
    fails("INVALID_VALUE", cuda.cuMemcpy3DBatchAsync, 1, beyond, 0, stream)
    back[0].srcAccessOrder = cuda.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_INVALID
    fails("INVALID_VALUE", cuda.cuMemcpy3DBatchAsync, 1, back, 0, stream)
    cuda.cuArrayDestroy(array)


@pytest.mark.parametrize(("element", "kind"), [(1, np.uint8), (2, np.uint16), (4, np.uint32)])
def test_a_plane_is_filled(cuda: Cuda, element: int, kind: Any) -> None:
    place = int(cuda.cuMemAlloc(256))
    cuda.cuMemsetD8(place, 0, 256)
    fill = getattr(cuda, f"cuMemsetD2D{8 * element}")
    fill(place, 32, 7, 3, 4)
    plane = cuda.read(place, 4 * 32 // element, kind).reshape(4, -1)
    assert (plane[:, :3] == 7).all()
    assert (plane[:, 3:] == 0).all()
    cuda.cuMemFree(place)


def test_what_is_not_the_devices(cuda: Cuda, fails: Check) -> None:
    word = np.zeros(1, dtype=np.uint32)
    fails("INVALID_VALUE", cuda.cuMemcpyHtoD, 0x10, word.ctypes.data, 4)
    fails("INVALID_VALUE", cuda.cuMemsetD32, 0x10, 1, 1)
    place = cuda.device_words()
    fails("INVALID_VALUE", cuda.cuMemsetD32, place + 1, 1, 1)
    fails("INVALID_VALUE", cuda.cuMemsetD2D8, place, 2, 1, 4, 2)
    fails("INVALID_VALUE", cuda.cuMemcpyDtoH, word.ctypes.data, 0, 4)


def test_zero_bytes_are_nothing(cuda: Cuda) -> None:
    place, word = cuda.device_words(), ctypes.c_uint32(3)
    cuda.cuMemcpyHtoD(place, ctypes.addressof(word), 0)
    cuda.cuMemsetD32(place, 1, 0)
    assert cuda.read(place)[0] == 0


def test_more_bytes_than_there_are_addresses(cuda: Cuda, fails: Check) -> None:
    """Such as a length that was counted down below 0. An H200 starts such a fill, and its context ends."""
    start, target = cuda.cuMemAlloc(1 << 12), cuda.cuMemAlloc(1 << 12)
    host = ctypes.create_string_buffer(16)
    for length in (2**64 - 1, 2**64 - 8, 2**64 - int(start)):
        if cuda.simulated:
            fails("INVALID_VALUE", cuda.cuMemsetD8, start, 1, length)
            fails("INVALID_VALUE", cuda.cuMemsetD2D8, start, length, 1, 1, 2)
        fails("INVALID_VALUE", cuda.cuMemcpyDtoD, target, start, length)
        fails("INVALID_VALUE", cuda.cuMemcpyHtoD, start, ctypes.addressof(host), length)
    cuda.cuMemFree(start)
    cuda.cuMemFree(target)


def test_a_neighbour_s_memory_is_beyond_an_allocation(cuda: Cuda, fails: Check) -> None:
    places = sorted(int(cuda.cuMemAlloc(4096)) for _ in range(16))
    first = next(one for one, other in itertools.pairwise(places) if other - one == 4096)
    host = np.zeros(8192, dtype=np.uint8)
    fails("INVALID_VALUE", cuda.cuMemcpyHtoD, first, host.ctypes.data, 4097)
    fails("INVALID_VALUE", cuda.cuMemcpyDtoH, host.ctypes.data, first + 1, 4096)
    fails("INVALID_VALUE", cuda.cuMemsetD8, first, 1, 4097)
    cuda.cuMemsetD8(first, 1, 4096)
    for place in places:
        cuda.cuMemFree(place)


def test_copies_across_memory_that_was_registered_apart(cuda: Cuda) -> None:
    memory = mmap.mmap(-1, 3 * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    parts = range(start, start + 3 * mmap.PAGESIZE, mmap.PAGESIZE)
    device = int(cuda.cuMemAlloc(16))
    for part in parts:
        cuda.cuMemHostRegister(part, mmap.PAGESIZE, 0)
    for part in parts[1:]:
        with contextlib.suppress(CudaError):  # whether a real driver takes it is not known
            cuda.cuMemcpyDtoH(part - 8, device, 16)
    for part in parts:
        cuda.cuMemHostUnregister(part)  # nothing is lost by it
    cuda.cuMemFree(device)


@pytest.mark.skipif(
    os.environ.get("FIKIT_TEST_DEVICE") == "real", reason="a GPU's copies cost the host nothing"
)
def test_calls_are_answered_while_a_large_copy_goes_on(cuda: Cuda) -> None:
    size = 256 << 20
    device, stream = cuda.cuMemAlloc(size), cuda.stream()
    pinned = int(cuda.cuMemHostAlloc(size, 0))
    words = np.ctypeslib.as_array((ctypes.c_uint32 * (size // 4)).from_address(pinned))
    answered = False
    for turn in range(1, 11):  # this thread may be late, but not each time
        cuda.cuMemsetD32Async(device, turn, size // 4, stream)
        cuda.cuMemcpyDtoHAsync(pinned, device, size, stream)
        while words[0] != turn:
            pass
        cuda.cuMemGetInfo()
        answered = words[-1] != turn
        cuda.cuStreamSynchronize(stream)
        assert words[-1] == turn
        if answered:
            break
    assert answered
    cuda.cuMemFreeHost(pinned)
    cuda.cuMemFree(device)


def test_rows_that_nobody_says_how_far_apart_they_are(cuda: Cuda) -> None:
    """They reach as far as the copy reaches into them, and so do layers, as on an H200."""
    place = int(cuda.cuMemAlloc(512))
    source, target = place, place + 256
    cuda.cuMemcpyHtoD(source, bytes(range(256)), 256)
    device = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE

    def copied(**fields: int) -> list[int]:
        copy = cuda.CUDA_MEMCPY3D()
        copy.srcMemoryType = copy.dstMemoryType = device
        copy.srcDevice, copy.dstDevice = source, target
        copy.WidthInBytes, copy.Height, copy.Depth, copy.dstPitch, copy.dstHeight = 4, 2, 2, 4, 2
        for name, value in fields.items():
            setattr(copy, name, value)
        cuda.cuMemcpy3D(copy)
        return list(cuda.read(target, 16, np.uint8)[::4])

    assert copied(srcXInBytes=3, srcHeight=4) == [3, 10, 31, 38]
    assert copied(srcPitch=16, srcY=1) == [16, 32, 64, 80]
    assert copied(srcXInBytes=3, srcY=1, srcZ=1) == [31, 38, 52, 59]
    cuda.cuMemFree(place)
