"""Texture and surface objects: what kernels read through them, and write."""

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_calls import Check, Cuda
from texture_objects import manner, resource_of

WIDTH, HEIGHT, COUNT = 8, 4, 24
SOURCE = b"""
.version 8.0
.target sm_90
.address_size 64

.visible .entry elements(.param .u64 object, .param .u64 out)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [object];
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x;
    tex.1d.v4.s32.s32 {%r2, %r3, %r4, %r5}, [%rd1, {%r1}];
    mul.wide.u32 %rd3, %r1, 4;
    add.u64 %rd2, %rd2, %rd3;
    st.global.u32 [%rd2], %r2;
    ret;
}

// At x = 0.5 t - 2, y = 0.25 t - 1, both times `scale`.
.visible .entry plane(.param .u64 object, .param .u64 out, .param .f32 scale_x, .param .f32 scale_y)
{
    .reg .b32 %r<2>;
    .reg .f32 %f<9>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [object];
    ld.param.u64 %rd2, [out];
    ld.param.f32 %f7, [scale_x];
    ld.param.f32 %f8, [scale_y];
    mov.u32 %r1, %tid.x;
    cvt.rn.f32.u32 %f1, %r1;
    fma.rn.f32 %f2, %f1, 0f3E800000, 0fBF800000;
    fma.rn.f32 %f1, %f1, 0f3F000000, 0fC0000000;
    mul.f32 %f1, %f1, %f7;
    mul.f32 %f2, %f2, %f8;
    tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%rd1, {%f1, %f2}];
    mul.wide.u32 %rd3, %r1, 4;
    add.u64 %rd2, %rd2, %rd3;
    st.global.f32 [%rd2], %f3;
    ret;
}

// Row 1 plus 1 becomes row 2.
.visible .entry surface(.param .u64 object)
{
    .reg .b32 %r<5>;
    .reg .f32 %f<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [object];
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, 1;
    suld.b.2d.b32.trap {%r4}, [%rd1, {%r2, %r3}];
    mov.b32 %f1, %r4;
    add.f32 %f1, %f1, 0f3F800000;
    mov.b32 %r4, %f1;
    mov.u32 %r3, 2;
    sust.b.2d.b32.zero [%rd1, {%r2, %r3}], {%r4};
    ret;
}
"""
VALUES = (np.arange(WIDTH * HEIGHT, dtype=np.float32) * 3 % 17).reshape(HEIGHT, WIDTH)


@pytest.fixture(name="kernel")
def load_kernels(cuda: Cuda) -> Iterator[Any]:
    """Yield a function from a kernel's name to the kernel."""
    module = cuda.cuModuleLoadData(SOURCE)
    yield lambda name: cuda.cuModuleGetFunction(module, name)
    cuda.cuCtxSynchronize()
    cuda.cuModuleUnload(module)


@pytest.fixture(name="array")
def fill_array(cuda: Cuda) -> Iterator[Any]:
    """Yield an array that holds VALUES and that surfaces may write."""
    shape = cuda.CUDA_ARRAY3D_DESCRIPTOR()
    shape.Width, shape.Height, shape.NumChannels = WIDTH, HEIGHT, 1
    shape.Format = cuda.CUarray_format.CU_AD_FORMAT_FLOAT
    shape.Flags = 2  # CUDA_ARRAY3D_SURFACE_LDST
    array = cuda.cuArray3DCreate(shape)
    copy = cuda.CUDA_MEMCPY2D()
    copy.srcMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_HOST
    copy.srcHost, copy.srcPitch = VALUES.ctypes.data, WIDTH * 4
    copy.dstMemoryType, copy.dstArray = cuda.CUmemorytype.CU_MEMORYTYPE_ARRAY, array
    copy.WidthInBytes, copy.Height = WIDTH * 4, HEIGHT
    cuda.cuMemcpy2D(copy)
    yield array
    cuda.cuArrayDestroy(array)


def index(position: int, count: int, mode: str) -> int | None:
    if mode == "WRAP":
        return position % count
    if mode == "MIRROR":
        return min(position % (2 * count), 2 * count - 1 - position % (2 * count))
    if mode == "BORDER":
        return position if 0 <= position < count else None
    return min(max(position, 0), count - 1)


def element(x: int, y: int, mode: str) -> float:
    column, row = index(x, WIDTH, mode), index(y, HEIGHT, mode)
    return 0.0 if column is None or row is None else float(VALUES[row, column])


def looked_up(x: float, y: float, mode: str, *, linear: bool) -> float:
    if not linear:
        return element(int(np.floor(x)), int(np.floor(y)), mode)
    x, y = x - 0.5, y - 0.5
    i, j = int(np.floor(x)), int(np.floor(y))
    a, b = x - i, y - j
    upper = (1 - a) * element(i, j, mode) + a * element(i + 1, j, mode)
    lower = (1 - a) * element(i, j + 1, mode) + a * element(i + 1, j + 1, mode)
    return (1 - b) * upper + b * lower


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("mode", ["WRAP", "CLAMP", "MIRROR", "BORDER"])
def test_a_plane_between_and_beyond_its_elements(
    cuda: Cuda, kernel: Any, array: Any, mode: str, linear: bool
) -> None:
    normalised = mode in ("WRAP", "MIRROR")
    wanted = manner(cuda, mode, linear=linear, normalised=normalised)
    texture = cuda.cuTexObjectCreate(resource_of(cuda, array), wanted, None)
    out = cuda.device_words(COUNT)
    scales = (1 / WIDTH, 1 / HEIGHT) if normalised else (1.0, 1.0)
    cuda.launch_function(kernel(b"plane"), texture, out, *map(ctypes.c_float, scales), block=COUNT)
    expected = [looked_up(0.5 * t - 2, 0.25 * t - 1, mode, linear=linear) for t in range(COUNT)]
    assert cuda.read(out, COUNT, np.float32) == pytest.approx(expected, abs=0.05 if linear else 0)
    cuda.cuTexObjectDestroy(texture)


def test_plain_memory_as_a_texture(cuda: Cuda, kernel: Any) -> None:
    data = np.array([-5, 7, 100, -128, 127, 1, 2, 3], dtype=np.int8)
    place, out = cuda.device_words(2), cuda.device_words(12)
    cuda.cuMemcpyHtoD(place, data.ctypes.data, data.nbytes)
    resource = cuda.CUDA_RESOURCE_DESC()
    resource.resType = cuda.CUresourcetype.CU_RESOURCE_TYPE_LINEAR
    resource.res.linear.devPtr = place
    resource.res.linear.format = cuda.CUarray_format.CU_AD_FORMAT_SIGNED_INT8
    resource.res.linear.numChannels = 1
    resource.res.linear.sizeInBytes = data.nbytes
    wanted = manner(cuda, "CLAMP")
    wanted.flags = 1  # CU_TRSF_READ_AS_INTEGER
    texture = cuda.cuTexObjectCreate(resource, wanted, None)
    cuda.launch_function(kernel(b"elements"), texture, out, block=12)
    assert cuda.read(out, 12, np.int32).tolist() == [*data.tolist(), 0, 0, 0, 0]
    found = cuda.cuTexObjectGetResourceDesc(texture)
    assert int(found.res.linear.devPtr) == place
    assert cuda.cuTexObjectGetTextureDesc(texture).flags == 1
    cuda.cuTexObjectDestroy(texture)


def rows_of(cuda: Cuda, place: int, width: int, height: int, pitch: int) -> Any:
    """Return the resource description of rows of floats."""
    resource = cuda.CUDA_RESOURCE_DESC()
    resource.resType = cuda.CUresourcetype.CU_RESOURCE_TYPE_PITCH2D
    rows = resource.res.pitch2D
    rows.devPtr, rows.pitchInBytes, rows.width, rows.height = place, pitch, width, height
    rows.format, rows.numChannels = cuda.CUarray_format.CU_AD_FORMAT_FLOAT, 1
    return resource


def test_where_plain_memory_may_lie(cuda: Cuda, fails: Check) -> None:
    place, how = cuda.device_words(1024), manner(cuda, "CLAMP")
    for resource in (rows_of(cuda, place + 4, 8, 4, 64), rows_of(cuda, place, 8, 4, 100)):
        fails("INVALID_VALUE", cuda.cuTexObjectCreate, resource, how, None)
    # Rows may be longer than their pitch; flags of no meaning have none.
    for width, flags in ((8, 0), (32, 0), (8, 8)):
        wanted = manner(cuda, "CLAMP", flags=flags)
        cuda.cuTexObjectDestroy(cuda.cuTexObjectCreate(rows_of(cuda, place, width, 4, 64), wanted, None))
    cuda.cuMemFree(place)


@pytest.mark.parametrize(("width", "height"), [(0, 4), (8, 0), (0, 0)])
def test_no_rows_are_a_line(cuda: Cuda, width: int, height: int) -> None:
    place = cuda.device_words(1024)
    rows = rows_of(cuda, place, width, height, 64)
    texture = cuda.cuTexObjectCreate(rows, manner(cuda, "CLAMP"), None)
    told, kinds = cuda.cuTexObjectGetResourceDesc(texture).resType, cuda.CUresourcetype
    assert told == (kinds.CU_RESOURCE_TYPE_PITCH2D if height else kinds.CU_RESOURCE_TYPE_LINEAR)
    cuda.cuTexObjectDestroy(texture)
    cuda.cuMemFree(place)


def test_integers_may_have_a_linear_filter(cuda: Cuda) -> None:
    # FFmpeg's thumbnail_cuda and, before 4.4, scale_cuda have them. What they read then is nowhere said.
    resource = cuda.CUDA_RESOURCE_DESC()
    resource.resType = cuda.CUresourcetype.CU_RESOURCE_TYPE_PITCH2D
    rows = resource.res.pitch2D
    rows.devPtr, rows.pitchInBytes, rows.width, rows.height = cuda.device_words(1024), 512, 320, 8
    rows.format, rows.numChannels = cuda.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8, 1
    wanted = manner(cuda, "WRAP", linear=True, flags=1)  # CU_TRSF_READ_AS_INTEGER
    texture = cuda.cuTexObjectCreate(resource, wanted, None)
    assert cuda.cuTexObjectGetTextureDesc(texture).filterMode == wanted.filterMode
    cuda.cuTexObjectDestroy(texture)


def test_a_texture_destroyed_before_the_kernel_that_reads_it_begins(
    cuda: Cuda, kernel: Any, array: Any
) -> None:
    out, stream = cuda.device_words(WIDTH), cuda.stream()
    texture = cuda.cuTexObjectCreate(resource_of(cuda, array), manner(cuda, "CLAMP"), None)
    cuda.launch("spin", 20_000_000, stream=stream)
    scales = (ctypes.c_float(1), ctypes.c_float(1))
    cuda.launch_function(kernel(b"plane"), texture, out, *scales, block=WIDTH, stream=stream)
    cuda.cuTexObjectDestroy(texture)
    cuda.cuStreamSynchronize(stream)
    expected = [looked_up(0.5 * t - 2, 0.25 * t - 1, "CLAMP", linear=False) for t in range(WIDTH)]
    assert cuda.read(out, WIDTH, np.float32).tolist() == expected


def test_surfaces_read_and_write(cuda: Cuda, kernel: Any, array: Any) -> None:
    surface = cuda.cuSurfObjectCreate(resource_of(cuda, array))
    cuda.launch_function(kernel(b"surface"), surface, block=WIDTH)
    cuda.cuCtxSynchronize()
    got = np.zeros((HEIGHT, WIDTH), dtype=np.float32)
    copy = cuda.CUDA_MEMCPY2D()
    copy.srcMemoryType, copy.srcArray = cuda.CUmemorytype.CU_MEMORYTYPE_ARRAY, array
    copy.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_HOST
    copy.dstHost, copy.dstPitch = got.ctypes.data, WIDTH * 4
    copy.WidthInBytes, copy.Height = WIDTH * 4, HEIGHT
    cuda.cuMemcpy2D(copy)
    assert got.tolist() == [*VALUES[:2].tolist(), (VALUES[1] + 1).tolist(), VALUES[3].tolist()]
    cuda.cuSurfObjectDestroy(surface)


def test_objects_that_cannot_be(cuda: Cuda, fails: Check, array: Any) -> None:
    resource = cuda.CUDA_RESOURCE_DESC()
    resource.resType = cuda.CUresourcetype.CU_RESOURCE_TYPE_LINEAR
    fails("INVALID_VALUE", cuda.cuTexObjectCreate, resource, manner(cuda, "CLAMP"), None)
    fails("INVALID_VALUE", cuda.cuSurfObjectCreate, resource)
