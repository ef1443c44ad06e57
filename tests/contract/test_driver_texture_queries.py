"""What kernels can ask of texture and surface objects: txq and suq, as the PTX ISA says."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_calls import Cuda
from texture_objects import (
    CUBEMAP,
    LAYERED,
    NORMALISED,
    SURFACE_LDST,
    ask,
    manner,
    module_of,
    resource_of,
    shape_of,
)

OF_TEXTURES = [
    "width",
    "height",
    "depth",
    "array_size",
    "num_mipmap_levels",
    "normalized_coords",
    "filter_mode",
]
READERS = {f"texture_{name}": f"txq.{name}.b32 %v0, [%object];" for name in OF_TEXTURES}
READERS |= {f"surface_{name}": f"suq.{name}.b32 %v0, [%object];" for name in OF_TEXTURES[:4]}
READERS |= {f"level_{name}": f"txq.level.{name}.b32 %v0, [%object], %c0;" for name in OF_TEXTURES[:3]}


@pytest.fixture(name="told")
def load_kernels(cuda: Cuda) -> Iterator[Any]:
    """Yield a function that asks an object for attributes by name."""
    if not cuda.simulated:
        pytest.skip("driver 580 refuses the module (NOT_SUPPORTED); for which of the queries is not known")
    module = cuda.cuModuleLoadData(module_of(READERS))

    def told(thing: Any, what: str, *names: str, level: int = 0) -> list[int]:
        kernels = [cuda.cuModuleGetFunction(module, f"{what}_{name}".encode()) for name in names]
        return [int(ask(cuda, kernel, thing, [(level,)], np.uint32)[0, 0]) for kernel in kernels]

    yield told
    cuda.cuCtxSynchronize()
    cuda.cuModuleUnload(module)


@pytest.mark.parametrize(
    ("extents", "flags", "names", "expected"),
    [
        ((8, 0, 0), 0, ["width", "array_size"], [8, 0]),
        ((8, 4, 0), 0, ["width", "height", "array_size"], [8, 4, 0]),
        ((8, 4, 3), 0, ["width", "height", "depth", "array_size"], [8, 4, 3, 0]),
        ((8, 0, 5), LAYERED, ["width", "array_size"], [8, 5]),
        ((8, 4, 5), LAYERED, ["width", "height", "array_size"], [8, 4, 5]),
        ((4, 4, 6), CUBEMAP, ["width", "height"], [4, 4]),
    ],
)
def test_extents(
    cuda: Cuda, told: Any, extents: Any, flags: int, names: list[str], expected: list[int]
) -> None:
    array = cuda.cuArray3DCreate(shape_of(cuda, extents, flags | SURFACE_LDST))
    texture = cuda.cuTexObjectCreate(resource_of(cuda, array), manner(cuda, "CLAMP"), None)
    surface = cuda.cuSurfObjectCreate(resource_of(cuda, array))
    assert told(texture, "texture", *names) == expected
    assert told(surface, "surface", *names) == expected
    cuda.cuTexObjectDestroy(texture)
    cuda.cuSurfObjectDestroy(surface)
    cuda.cuArrayDestroy(array)


def test_levels(cuda: Cuda, told: Any) -> None:
    mipmap = cuda.cuMipmappedArrayCreate(shape_of(cuda, (8, 4, 3), LAYERED), 3)
    wanted = manner(cuda, "CLAMP", flags=NORMALISED)
    wanted.maxMipmapLevelClamp = 2
    texture = cuda.cuTexObjectCreate(resource_of(cuda, mipmap), wanted, None)
    assert told(texture, "texture", "width", "height", "array_size", "num_mipmap_levels") == [8, 4, 3, 3]
    assert [told(texture, "level", "width", "height", level=level) for level in range(3)] == [
        [8, 4],
        [4, 2],
        [2, 1],
    ]
    cuda.cuTexObjectDestroy(texture)
    cuda.cuMipmappedArrayDestroy(mipmap)


def test_how_a_texture_is_read(cuda: Cuda, told: Any) -> None:
    array = cuda.cuArray3DCreate(shape_of(cuda, (8, 4, 0), 0))
    for linear, normalised in [(False, False), (True, False), (False, True), (True, True)]:
        wanted = manner(cuda, "CLAMP", linear=linear, normalised=normalised)
        texture = cuda.cuTexObjectCreate(resource_of(cuda, array), wanted, None)
        assert told(texture, "texture", "filter_mode", "normalized_coords") == [linear, normalised]
        cuda.cuTexObjectDestroy(texture)
    cuda.cuArrayDestroy(array)
