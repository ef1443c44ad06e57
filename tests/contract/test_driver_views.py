"""Textures over views of arrays: other elements, some of the layers, some of the levels."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_calls import Check, Cuda
from texture_objects import LAYERED, ask, copy, filled, manner, module_of, resource_of, shape_of

READERS = {
    "line": "tex.a1d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [%object, {%c0, %c1}];",
    "element": "tex.2d.v4.u32.s32 {%v0, %v1, %v2, %v3}, [%object, {%c0, %c1}];",
    "level": "tex.level.2d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [%object, {%c0, %c1}], %c2;",
}


@pytest.fixture(name="kernel")
def load_kernels(cuda: Cuda) -> Iterator[Any]:
    module = cuda.cuModuleLoadData(module_of(READERS))
    yield lambda name: cuda.cuModuleGetFunction(module, name.encode())
    cuda.cuModuleUnload(module)


def view_of(cuda: Cuda, extents: tuple[int, int, int], kind: str = "NONE", **other: int) -> Any:
    view = cuda.CUDA_RESOURCE_VIEW_DESC()
    view.format = getattr(cuda.CUresourceViewFormat, f"CU_RES_VIEW_FORMAT_{kind}")
    view.width, view.height, view.depth = extents
    for name, value in other.items():
        setattr(view, name, value)
    return view


def test_some_layers(cuda: Cuda, kernel: Any) -> None:
    values = np.arange(32, dtype=np.float32).reshape(4, 1, 8)
    array = filled(cuda, (8, 0, 4), values, LAYERED)
    view = view_of(cuda, (8, 0, 4), "FLOAT_1X32", firstLayer=1, lastLayer=2)
    texture = cuda.cuTexObjectCreate(resource_of(cuda, array), manner(cuda, "CLAMP"), view)
    assert ask(cuda, kernel("line"), texture, [(0, 0.5), (1, 3.5)])[:, 0].tolist() == [8, 19]
    told = cuda.cuTexObjectGetResourceViewDesc(texture)
    assert (told.width, told.height, told.depth, told.firstLayer, told.lastLayer) == (8, 0, 4, 1, 2)
    cuda.cuTexObjectDestroy(texture)
    cuda.cuArrayDestroy(array)


def test_the_same_bytes_as_other_elements(cuda: Cuda, kernel: Any) -> None:
    values = np.arange(1, 33, dtype=np.float32).reshape(1, 4, 8)
    array = filled(cuda, (8, 4, 0), values, 0)
    asked = [(x, y) for y in range(4) for x in range(8)]
    for kind, parts in (("UINT_1X32", 1), ("UINT_2X16", 2), ("UINT_4X8", 4)):
        view = view_of(cuda, (8, 4, 0), kind)
        wanted = manner(cuda, "CLAMP", flags=1)  # read as integers
        texture = cuda.cuTexObjectCreate(resource_of(cuda, array), wanted, view)
        got = ask(cuda, kernel("element"), texture, asked, np.uint32)[:, :parts]
        assert (got == values.ravel().view(f"uint{32 // parts}").reshape(-1, parts)).all()
        cuda.cuTexObjectDestroy(texture)
    cuda.cuArrayDestroy(array)


def test_some_levels(cuda: Cuda, kernel: Any) -> None:
    mipmap = cuda.cuMipmappedArrayCreate(shape_of(cuda, (8, 8, 0), 0), 4)
    for level in range(4):
        size = 8 >> level
        content = np.full((1, size, size), 100 * level, np.float32)
        copy(cuda, cuda.cuMipmappedArrayGetLevel(mipmap, level), content)
    wanted = manner(cuda, "CLAMP", normalised=True)
    wanted.maxMipmapLevelClamp = 9
    view = view_of(cuda, (8, 8, 0), "FLOAT_1X32", firstMipmapLevel=1, lastMipmapLevel=2)
    texture = cuda.cuTexObjectCreate(resource_of(cuda, mipmap), wanted, view)
    asked = [(0.5, 0.5, level) for level in (0.0, 1.0, 3.0)]
    assert ask(cuda, kernel("level"), texture, asked)[:, 0].tolist() == [100, 200, 200]
    cuda.cuTexObjectDestroy(texture)
    cuda.cuMipmappedArrayDestroy(mipmap)


def test_views_that_cannot_be(cuda: Cuda, fails: Check) -> None:
    values = np.zeros((1, 4, 8), np.float32)
    array = filled(cuda, (8, 4, 0), values, 0)
    wanted = manner(cuda, "CLAMP")
    for view in (
        view_of(cuda, (8, 4, 0), "NONE"),
        view_of(cuda, (9, 4, 0), "FLOAT_1X32"),
        view_of(cuda, (8, 4, 1), "FLOAT_1X32"),
        view_of(cuda, (8, 4, 0), "FLOAT_2X32"),
        view_of(cuda, (8, 4, 0), "FLOAT_1X32", firstMipmapLevel=1, lastMipmapLevel=1),
        view_of(cuda, (8, 4, 0), "FLOAT_1X32", lastLayer=3),
    ):
        fails("INVALID_VALUE", cuda.cuTexObjectCreate, resource_of(cuda, array), wanted, view)
    cuda.cuArrayDestroy(array)
    layers = cuda.cuArray3DCreate(shape_of(cuda, (8, 0, 4), LAYERED))
    for view in (
        view_of(cuda, (8, 0, 0), "FLOAT_1X32", firstLayer=1, lastLayer=2),
        view_of(cuda, (8, 0, 2), "FLOAT_1X32", firstLayer=1, lastLayer=2),
        view_of(cuda, (8, 0, 4), "FLOAT_1X32", firstLayer=2, lastLayer=1),
    ):
        fails("INVALID_VALUE", cuda.cuTexObjectCreate, resource_of(cuda, layers), wanted, view)
    cuda.cuArrayDestroy(layers)


def test_a_texture_without_a_view(cuda: Cuda) -> None:
    array = cuda.cuArray3DCreate(shape_of(cuda, (8, 4, 0), 0))
    texture = cuda.cuTexObjectCreate(resource_of(cuda, array), manner(cuda, "CLAMP"), None)
    told = cuda.cuTexObjectGetResourceViewDesc(texture)
    assert told.format == cuda.CUresourceViewFormat.CU_RES_VIEW_FORMAT_NONE
    assert (told.width, told.height, told.depth, told.lastMipmapLevel, told.lastLayer) == (0, 0, 0, 0, 0)
    cuda.cuTexObjectDestroy(texture)
    cuda.cuArrayDestroy(array)


def test_a_view_of_plain_memory_means_nothing(cuda: Cuda) -> None:
    words = cuda.device_words(64)
    resource = cuda.CUDA_RESOURCE_DESC()
    resource.resType = cuda.CUresourcetype.CU_RESOURCE_TYPE_LINEAR
    resource.res.linear.devPtr, resource.res.linear.sizeInBytes = words, 256
    resource.res.linear.format = cuda.CUarray_format.CU_AD_FORMAT_FLOAT
    resource.res.linear.numChannels = 1
    for view in (view_of(cuda, (64, 1, 1)), view_of(cuda, (0, 0, 0), "FLOAT_1X32")):
        cuda.cuTexObjectDestroy(cuda.cuTexObjectCreate(resource, manner(cuda, "CLAMP"), view))
    cuda.cuMemFree(words)
