"""Layered arrays, cube maps and mipmaps: made, copied, read by textures, written by surfaces."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_calls import Check, Cuda
from texture_objects import (
    CUBEMAP,
    GATHER,
    LAYERED,
    SEAMLESS,
    SURFACE_LDST,
    ask,
    copy,
    filled,
    manner,
    module_of,
    resource_of,
    shape_of,
)

FETCH = "tex.{}.v4.f32.f32 {{%v0, %v1, %v2, %v3}}, [%object, {}];"
READERS = {
    "line": FETCH.format("a1d", "{%c0, %c1}"),
    "plane": FETCH.format("a2d", "{%c0, %c1, %c2, %c2}"),
    "whole": "tex.a2d.v4.s32.s32 {%v0, %v1, %v2, %v3}, [%object, {%c0, %c1, %c2, %c2}];",
    "cube": FETCH.format("cube", "{%c0, %c1, %c2, %c2}"),
    "cubes": FETCH.format("acube", "{%c0, %c1, %c2, %c3}"),
    "level": FETCH.format("level.2d", "{%c0, %c1}").replace(";", ", %c2;"),
    "layer_level": FETCH.format("level.a2d", "{%c0, %c1, %c2, %c2}").replace(";", ", %c3;"),
    "gradient": FETCH.format("grad.2d", "{%c0, %c1}").replace(";", ", {%c2, %c3}, {%c4, %c5};"),
    "base": FETCH.format("2d", "{%c0, %c1}"),
    "resident": """.reg .pred %p;
    tex.a2d.v4.f32.f32 {%v0, _, _, _}|%p, [%object, {%c0, %c1, %c2, %c2}];
    selp.b32 %v1, 0f3F800000, 0f00000000, %p;""",
    "gather": "tld4.r.2d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [%object, {%c0, %c1}];",
    "line_surface": """suld.b.a1d.b32.trap {%v0}, [%object, {%c0, %c1}];
    add.s32 %v1, %v0, 100;
    sust.b.a1d.b32.trap [%object, {%c0, %c1}], {%v1};""",
    "plane_surface": """suld.b.a2d.b32.zero {%v0}, [%object, {%c0, %c1, %c2, %c2}];
    add.s32 %v1, %v0, 100;
    sust.b.a2d.b32.zero [%object, {%c0, %c1, %c2, %c2}], {%v1};""",
}


@pytest.fixture(name="kernel")
def load_kernels(cuda: Cuda) -> Iterator[Any]:
    """Yield a function from a reader's name to its kernel."""
    module = cuda.cuModuleLoadData(module_of(READERS))
    yield lambda name: cuda.cuModuleGetFunction(module, name.encode())
    cuda.cuCtxSynchronize()
    cuda.cuModuleUnload(module)


def numbered(*shape: int, kind: Any = np.float32) -> Any:
    """Return an array whose elements all differ."""
    return np.arange(np.prod(shape), dtype=kind).reshape(shape) + 1


def test_what_can_be_made(cuda: Cuda, fails: Check) -> None:
    for extents, flags in [
        ((8, 0, 3), LAYERED),
        ((8, 4, 3), LAYERED),
        ((8, 4, 3), LAYERED | SURFACE_LDST),
        ((4, 4, 6), CUBEMAP),
        ((4, 4, 12), CUBEMAP | LAYERED),
        ((8, 4, 0), GATHER),
    ]:
        array = cuda.cuArray3DCreate(shape_of(cuda, extents, flags))
        found = cuda.cuArray3DGetDescriptor(array)
        assert ((found.Width, found.Height, found.Depth), found.Flags) == (extents, flags)
        cuda.cuArrayDestroy(array)
    for extents, flags in [
        ((8, 4, 0), LAYERED),  # no layers
        ((8, 4, 2049), LAYERED),
        ((32769, 4, 2), LAYERED),
        ((4, 8, 6), CUBEMAP),  # not square
        ((4, 4, 5), CUBEMAP),
        ((4, 4, 12), CUBEMAP),
        ((4, 4, 10), CUBEMAP | LAYERED),
        ((16385, 1, 1), 0),
        ((8, 0, 0), GATHER),
        ((8, 4, 3), GATHER),
    ]:
        fails("INVALID_VALUE", cuda.cuArray3DCreate, shape_of(cuda, extents, flags))


@pytest.mark.parametrize("linear", [False, True])
def test_layers_of_lines(cuda: Cuda, kernel: Any, linear: bool) -> None:
    values = numbered(3, 1, 8)
    array = filled(cuda, (8, 0, 3), values, LAYERED)
    texture = cuda.cuTexObjectCreate(resource_of(cuda, array), manner(cuda, "CLAMP", linear=linear), None)
    asked = [(layer, x) for layer in range(3) for x in (0.5, 3.5, 4.0, 7.5, 9.0, -1.0)]
    got = ask(cuda, kernel("line"), texture, asked)[:, 0]
    middle = 4.5 if linear else 5.0  # at 4.0, between the fourth and the fifth
    assert got.tolist() == [8 * layer + x for layer in range(3) for x in (1, 4, middle, 8, 8, 1)]
    cuda.cuTexObjectDestroy(texture)
    cuda.cuArrayDestroy(array)


def test_layers_of_lines_from_device_memory(cuda: Cuda, fails: Check) -> None:
    """They lie a pitch apart there, whatever the memory's height; but that must hold the rows."""
    words = numbered(6, 8, kind=np.int32)
    place = cuda.device_words(48)
    cuda.cuMemcpyHtoD(place, words.ctypes.data, words.nbytes)
    array = cuda.cuArray3DCreate(shape_of(cuda, (8, 0, 3), LAYERED, "int32"))
    wanted = cuda.CUDA_MEMCPY3D()
    types = cuda.CUmemorytype
    wanted.dstMemoryType, wanted.dstArray = types.CU_MEMORYTYPE_ARRAY, array
    wanted.srcMemoryType, wanted.srcDevice = types.CU_MEMORYTYPE_DEVICE, place
    wanted.srcPitch, wanted.srcHeight = 32, 2
    wanted.WidthInBytes, wanted.Height, wanted.Depth = 32, 1, 3
    cuda.cuMemcpy3D(wanted)
    got = np.zeros((3, 1, 8), dtype=np.int32)
    copy(cuda, array, got, read=True)
    assert got[:, 0].tolist() == words[:3].tolist()
    wanted.dstMemoryType, wanted.dstDevice, wanted.dstPitch = types.CU_MEMORYTYPE_DEVICE, place + 96, 32
    wanted.Height, wanted.Depth = 3, 1
    fails("INVALID_VALUE", cuda.cuMemcpy3D, wanted)
    cuda.cuArrayDestroy(array)
    cuda.cuMemFree(place)


def test_layers_of_planes(cuda: Cuda, kernel: Any) -> None:
    values = numbered(3, 4, 8)
    array = filled(cuda, (8, 4, 3), values, LAYERED)
    texture = cuda.cuTexObjectCreate(
        resource_of(cuda, array), manner(cuda, "WRAP", linear=True, normalised=True), None
    )
    asked = [(layer, (x + 0.5) / 8, (y + 0.5) / 4) for layer in range(3) for y in range(4) for x in range(8)]
    assert ask(cuda, kernel("plane"), texture, asked)[:, 0].tolist() == values.ravel().tolist()
    assert ask(cuda, kernel("resident"), texture, asked[:3])[:, :2].tolist() == [[1, 1], [2, 1], [3, 1]]
    # Between the last column and, around the end, the first; no layer shares with another.
    assert (
        ask(cuda, kernel("plane"), texture, [(1, 1.0, 0.125)])[0, 0]
        == (values[1, 0, 7] + values[1, 0, 0]) / 2
    )
    cuda.cuTexObjectDestroy(texture)
    cuda.cuArrayDestroy(array)


def test_integer_coordinates_and_integers(cuda: Cuda, kernel: Any) -> None:
    values = numbered(2, 2, 4, kind=np.int32) - 5
    array = filled(cuda, (4, 2, 2), values, LAYERED)
    texture = cuda.cuTexObjectCreate(resource_of(cuda, array), manner(cuda, "CLAMP"), None)
    asked = [(layer, x, y) for layer in range(2) for y in range(2) for x in range(4)]
    assert ask(cuda, kernel("whole"), texture, asked, np.int32)[:, 0].tolist() == values.ravel().tolist()
    cuda.cuTexObjectDestroy(texture)
    cuda.cuArrayDestroy(array)


def directions(face: int, size: int) -> Any:
    """Return directions to the middles of a face's elements, row by row (CUDA C++ Programming Guide)."""
    middles = [(2 * at + 1) / size - 1 for at in range(size)]
    sides = {
        0: lambda s, t: (1.0, -t, -s),
        1: lambda s, t: (-1.0, -t, s),
        2: lambda s, t: (s, 1.0, t),
        3: lambda s, t: (s, -1.0, -t),
        4: lambda s, t: (s, -t, 1.0),
        5: lambda s, t: (-s, -t, -1.0),
    }
    return [tuple(3 * part for part in sides[face](s, t)) for t in middles for s in middles]


def test_faces_of_a_cube(cuda: Cuda, kernel: Any) -> None:
    values = numbered(6, 4, 4)
    array = filled(cuda, (4, 4, 6), values, CUBEMAP)
    for linear in (False, True):
        wanted = manner(cuda, "CLAMP", linear=linear, normalised=True)
        texture = cuda.cuTexObjectCreate(resource_of(cuda, array), wanted, None)
        got = ask(cuda, kernel("cube"), texture, [to for face in range(6) for to in directions(face, 4)])[
            :, 0
        ]
        assert got == pytest.approx(values.ravel(), abs=0.05 if linear else 0)
        cuda.cuTexObjectDestroy(texture)
    cuda.cuArrayDestroy(array)


def test_cubes_one_behind_another(cuda: Cuda, kernel: Any) -> None:
    values = numbered(12, 2, 2)
    array = filled(cuda, (2, 2, 12), values, CUBEMAP | LAYERED)
    texture = cuda.cuTexObjectCreate(resource_of(cuda, array), manner(cuda, "CLAMP", normalised=True), None)
    asked = [(cube, *to) for cube in range(2) for face in range(6) for to in directions(face, 2)]
    assert ask(cuda, kernel("cubes"), texture, asked)[:, 0].tolist() == values.ravel().tolist()
    cuda.cuTexObjectDestroy(texture)
    cuda.cuArrayDestroy(array)


def test_filtering_across_the_edges_of_a_cube(cuda: Cuda, kernel: Any, fails: Check) -> None:
    values = np.zeros((6, 2, 2), dtype=np.float32)
    values[0], values[4] = 8, 16
    array = filled(cuda, (2, 2, 6), values, CUBEMAP)
    wanted = manner(cuda, "CLAMP", linear=True, normalised=True, flags=SEAMLESS)
    texture = cuda.cuTexObjectCreate(resource_of(cuda, array), wanted, None)
    # The middle of the edge between the first face and the fifth.
    assert ask(cuda, kernel("cube"), texture, [(1.0, 0.0, 1.0)])[0, 0] == pytest.approx(12, abs=0.1)
    cuda.cuTexObjectDestroy(texture)
    cuda.cuArrayDestroy(array)
    plane = filled(cuda, (8, 4, 0), numbered(1, 4, 8), 0)
    fails("INVALID_VALUE", cuda.cuTexObjectCreate, resource_of(cuda, plane), wanted, None)
    cuda.cuArrayDestroy(plane)


def test_surfaces_of_layers(cuda: Cuda, kernel: Any) -> None:
    values = numbered(3, 1, 4, kind=np.int32)
    array = filled(cuda, (4, 0, 3), values, LAYERED | SURFACE_LDST)
    surface = cuda.cuSurfObjectCreate(resource_of(cuda, array))
    asked = [(1, 4 * x) for x in range(4)]
    assert ask(cuda, kernel("line_surface"), surface, asked, np.int32)[:, 0].tolist() == [5, 6, 7, 8]
    got = np.zeros_like(values)
    copy(cuda, array, got, read=True)
    assert got.ravel().tolist() == [1, 2, 3, 4, 105, 106, 107, 108, 9, 10, 11, 12]
    cuda.cuSurfObjectDestroy(surface)
    cuda.cuArrayDestroy(array)


def test_faces_are_layers_of_a_surface(cuda: Cuda, kernel: Any) -> None:
    values = numbered(6, 2, 2, kind=np.int32)
    array = filled(cuda, (2, 2, 6), values, CUBEMAP | SURFACE_LDST)
    surface = cuda.cuSurfObjectCreate(resource_of(cuda, array))
    # .zero: beyond the last row there is nothing, and nothing is written.
    asked = [(4, 0, 1), (4, 4, 1), (4, 0, 2)]
    assert ask(cuda, kernel("plane_surface"), surface, asked, np.int32)[:, 0].tolist() == [19, 20, 0]
    got = np.zeros_like(values)
    copy(cuda, array, got, read=True)
    values[4, 1] += 100
    assert got.tolist() == values.tolist()
    cuda.cuSurfObjectDestroy(surface)
    cuda.cuArrayDestroy(array)


def test_four_neighbours_at_once(cuda: Cuda, kernel: Any) -> None:
    values = numbered(1, 4, 8)
    array = filled(cuda, (8, 4, 0), values, GATHER)
    texture = cuda.cuTexObjectCreate(resource_of(cuda, array), manner(cuda, "CLAMP"), None)
    got = ask(cuda, kernel("gather"), texture, [(3.0, 2.0)])[0]
    assert got.tolist() == [values[0, 2, 2], values[0, 2, 3], values[0, 1, 3], values[0, 1, 2]]
    cuda.cuTexObjectDestroy(texture)
    cuda.cuArrayDestroy(array)


def mipmap_of(cuda: Cuda, extents: tuple[int, int, int], count: int, flags: int = 0) -> tuple[Any, list[Any]]:
    """Make a mipmap of `count` levels, each filled with 100 * its number + the number of the plane."""
    mipmap = cuda.cuMipmappedArrayCreate(shape_of(cuda, extents, flags), count)
    levels = [cuda.cuMipmappedArrayGetLevel(mipmap, number) for number in range(count)]
    for number, level in enumerate(levels):
        shape = cuda.cuArray3DGetDescriptor(level)
        values = np.zeros((max(shape.Depth, 1), max(shape.Height, 1), shape.Width), dtype=np.float32)
        values += 100 * number + np.arange(len(values)).reshape(-1, 1, 1)
        copy(cuda, level, values)
    return mipmap, levels


def leveled(cuda: Cuda, *, linear: bool = False, low: float = 0, high: float = 9, bias: float = 0) -> Any:
    """Return how a mipmap is read: between levels, from `low` to `high`."""
    wanted = manner(cuda, "CLAMP", normalised=True)
    filters = cuda.CUfilter_mode
    wanted.mipmapFilterMode = filters.CU_TR_FILTER_MODE_LINEAR if linear else filters.CU_TR_FILTER_MODE_POINT
    wanted.minMipmapLevelClamp, wanted.maxMipmapLevelClamp, wanted.mipmapLevelBias = low, high, bias
    return wanted


def test_levels_of_a_mipmap(cuda: Cuda, fails: Check) -> None:
    for extents, flags, wanted, expected in [
        ((8, 4, 0), 0, 9, [(8, 4, 0), (4, 2, 0), (2, 1, 0), (1, 1, 0)]),
        ((8, 4, 0), 0, 2, [(8, 4, 0), (4, 2, 0)]),
        ((5, 0, 0), 0, 0, [(5, 0, 0)]),
        ((2, 2, 4), 0, 9, [(2, 2, 4), (1, 1, 2), (1, 1, 1)]),
        ((4, 0, 5), LAYERED, 2, [(4, 0, 5), (2, 0, 5)]),
        ((4, 4, 6), CUBEMAP, 3, [(4, 4, 6), (2, 2, 6), (1, 1, 6)]),
    ]:
        mipmap = cuda.cuMipmappedArrayCreate(shape_of(cuda, extents, flags), wanted)
        found = [
            cuda.cuArray3DGetDescriptor(cuda.cuMipmappedArrayGetLevel(mipmap, level))
            for level in range(len(expected))
        ]
        assert [(level.Width, level.Height, level.Depth) for level in found] == expected
        fails("INVALID_VALUE", cuda.cuMipmappedArrayGetLevel, mipmap, len(expected) + 1)
        cuda.cuMipmappedArrayDestroy(mipmap)


def test_levels_that_are_named(cuda: Cuda, kernel: Any) -> None:
    mipmap, _ = mipmap_of(cuda, (8, 8, 0), 4)
    asked = [(0.5, 0.5, level) for level in (0.0, 0.25, 1.0, 1.75, 3.0, 7.0)]
    for given, expected in [
        ({}, [0, 0, 100, 200, 300, 300]),
        ({"linear": True}, [0, 25, 100, 175, 300, 300]),
        ({"linear": True, "low": 0.5, "high": 1.5}, [50, 50, 100, 150, 150, 150]),
        ({"high": 1}, [0, 0, 100, 100, 100, 100]),
    ]:
        texture = cuda.cuTexObjectCreate(resource_of(cuda, mipmap), leveled(cuda, **given), None)
        assert ask(cuda, kernel("level"), texture, asked)[:, 0].tolist() == pytest.approx(expected, abs=1)
        cuda.cuTexObjectDestroy(texture)
    cuda.cuMipmappedArrayDestroy(mipmap)


def test_layers_of_levels(cuda: Cuda, kernel: Any) -> None:
    mipmap, _ = mipmap_of(cuda, (4, 4, 3), 3, LAYERED)
    texture = cuda.cuTexObjectCreate(resource_of(cuda, mipmap), leveled(cuda), None)
    asked = [(layer, 0.5, 0.5, float(level)) for level in range(3) for layer in range(3)]
    got = ask(cuda, kernel("layer_level"), texture, asked)[:, 0]
    assert got.tolist() == [100 * level + layer for level in range(3) for layer in range(3)]
    cuda.cuTexObjectDestroy(texture)
    cuda.cuMipmappedArrayDestroy(mipmap)


def test_levels_that_are_calculated(cuda: Cuda, kernel: Any) -> None:
    mipmap, _ = mipmap_of(cuda, (8, 8, 0), 4)
    # From thread to thread one, two, four elements; the longer way counts.
    steps = [(1 / 8, 0.0, 0.0, 1 / 8), (2 / 8, 0.0, 0.0, 1 / 8), (0.0, 1 / 8, 0.0, 4 / 8)]
    asked = [(0.5, 0.5, *step) for step in steps]
    for bias, expected in [(0, [0, 100, 200]), (1, [100, 200, 300])]:
        texture = cuda.cuTexObjectCreate(resource_of(cuda, mipmap), leveled(cuda, bias=bias), None)
        assert ask(cuda, kernel("gradient"), texture, asked)[:, 0].tolist() == expected
        assert ask(cuda, kernel("base"), texture, [(0.5, 0.5)])[0, 0] == 0
        cuda.cuTexObjectDestroy(texture)
    cuda.cuMipmappedArrayDestroy(mipmap)


def test_a_level_is_an_array_for_surfaces(cuda: Cuda, kernel: Any) -> None:
    mipmap = cuda.cuMipmappedArrayCreate(shape_of(cuda, (4, 4, 2), LAYERED | SURFACE_LDST, "int32"), 2)
    level = cuda.cuMipmappedArrayGetLevel(mipmap, 1)
    copy(cuda, level, numbered(2, 2, 2, kind=np.int32))
    surface = cuda.cuSurfObjectCreate(resource_of(cuda, level))
    asked = [(1, 4 * x, y) for y in range(2) for x in range(2)]
    assert ask(cuda, kernel("plane_surface"), surface, asked, np.int32)[:, 0].tolist() == [5, 6, 7, 8]
    got = np.zeros((2, 2, 2), dtype=np.int32)
    copy(cuda, level, got, read=True)
    assert got.ravel().tolist() == [1, 2, 3, 4, 105, 106, 107, 108]
    cuda.cuSurfObjectDestroy(surface)
    cuda.cuMipmappedArrayDestroy(mipmap)


def test_mipmaps_that_cannot_be(cuda: Cuda, fails: Check) -> None:
    fails("INVALID_VALUE", cuda.cuMipmappedArrayCreate, shape_of(cuda, (32769, 4, 0), 0), 1)
    fails("INVALID_VALUE", cuda.cuMipmappedArrayCreate, shape_of(cuda, (4, 2, 6), CUBEMAP), 1)
    mipmap = cuda.cuMipmappedArrayCreate(shape_of(cuda, (8, 8, 0), 0), 4)
    # Coordinates of a mipmap need not be normalised (seen on an H200).
    cuda.cuTexObjectDestroy(cuda.cuTexObjectCreate(resource_of(cuda, mipmap), manner(cuda, "CLAMP"), None))
    fails("INVALID_VALUE", cuda.cuSurfObjectCreate, resource_of(cuda, mipmap))
    cuda.cuMipmappedArrayDestroy(mipmap)


def test_what_only_other_arrays_tell(cuda: Cuda, fails: Check) -> None:
    array = cuda.cuArray3DCreate(shape_of(cuda, (64, 64, 0), 0))
    mipmap = cuda.cuMipmappedArrayCreate(shape_of(cuda, (64, 64, 0), 0), 2)
    fails("INVALID_VALUE", cuda.cuArrayGetPlane, array, 0)
    fails("INVALID_VALUE", cuda.cuArrayGetSparseProperties, array)
    fails("INVALID_VALUE", cuda.cuMipmappedArrayGetSparseProperties, mipmap)
    fails("INVALID_VALUE", cuda.cuArrayGetMemoryRequirements, array, 0)
    fails("INVALID_VALUE", cuda.cuMipmappedArrayGetMemoryRequirements, mipmap, 0)
    cuda.cuArrayDestroy(array)
    cuda.cuMipmappedArrayDestroy(mipmap)


def test_parts_of_elements(cuda: Cuda, fails: Check) -> None:
    """A copy counts bytes, whatever an array's elements are."""
    sent = np.arange(100, 132, dtype=np.uint8)
    array = filled(cuda, (8, 2, 0), np.zeros((1, 2, 8), np.float32), 0)
    whole = np.zeros((1, 2, 8), np.float32)
    cuda.cuMemcpyHtoA(array, 2, sent.ctypes.data, 7)
    rows = cuda.CUDA_MEMCPY2D()
    rows.srcMemoryType, rows.srcHost = cuda.CUmemorytype.CU_MEMORYTYPE_HOST, sent.ctypes.data
    rows.dstMemoryType, rows.dstArray = cuda.CUmemorytype.CU_MEMORYTYPE_ARRAY, array
    rows.srcPitch, rows.dstXInBytes, rows.WidthInBytes, rows.Height = 16, 17, 6, 2
    cuda.cuMemcpy2D(rows)
    copy(cuda, array, whole, read=True)
    got = whole.view(np.uint8).reshape(2, 32)
    assert got[0].tolist() == [0, 0, *range(100, 107), *[0] * 8, *range(100, 106), *[0] * 9]
    assert got[1].tolist() == [*[0] * 17, *range(116, 122), *[0] * 9]
    back = np.zeros(3, np.uint8)
    cuda.cuMemcpyAtoH(back.ctypes.data, array, 3, 3)
    assert back.tolist() == [101, 102, 103]
    for offset, count in [(30, 4), (32, 1)]:
        fails("INVALID_VALUE", cuda.cuMemcpyHtoA, array, offset, sent.ctypes.data, count)
    cuda.cuArrayDestroy(array)
