"""Arrays with contents, texture objects, and kernels that read them, for tests of textures."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from cuda_calls import Cuda

SURFACE_LDST, LAYERED, CUBEMAP, GATHER = 2, 1, 4, 8  # CUDA_ARRAY3D_*
NORMALISED, SEAMLESS = 2, 64  # CU_TRSF_*
FORMATS = {"float32": "FLOAT", "int32": "SIGNED_INT32", "uint8": "UNSIGNED_INT8"}


def reader(name: str, instruction: str) -> str:
    """Return a kernel (object, in, out): thread t takes b32 %c0 to %c7 from `in` and gives %v0 to %v3."""
    return f"""
.visible .entry {name}(.param .u64 object, .param .u64 in, .param .u64 out)
{{
    .reg .b32 %c<8>, %v<4>, %t;
    .reg .b64 %object, %in, %out, %offset;
    ld.param.u64 %object, [object];
    ld.param.u64 %in, [in];
    ld.param.u64 %out, [out];
    mov.u32 %t, %tid.x;
    mul.wide.u32 %offset, %t, 32;
    add.u64 %in, %in, %offset;
    mul.wide.u32 %offset, %t, 16;
    add.u64 %out, %out, %offset;
    ld.global.v4.b32 {{%c0, %c1, %c2, %c3}}, [%in];
    ld.global.v4.b32 {{%c4, %c5, %c6, %c7}}, [%in+16];
    mov.b32 %v0, 0;
    mov.b32 %v1, 0;
    mov.b32 %v2, 0;
    mov.b32 %v3, 0;
    {instruction}
    st.global.v4.b32 [%out], {{%v0, %v1, %v2, %v3}};
    ret;
}}
"""


def module_of(readers: dict[str, str]) -> bytes:
    """Return PTX with a reader for each instruction, by name."""
    head = ".version 8.0\n.target sm_90\n.address_size 64\n"
    return (head + "".join(reader(name, text) for name, text in readers.items())).encode()


def ask(
    cuda: Cuda, kernel: Any, texture: Any, coordinates: Sequence[Sequence[float]], kind: Any = np.float32
) -> Any:
    """Return what a reader gives for each tuple of coordinates (eight at most; `int`: u32, `float`: f32)."""
    kinds = ["".join("i" if isinstance(value, int) else "f" for value in each) for each in coordinates]
    words = b"".join(
        struct.pack(form, *each).ljust(32, b"\0") for form, each in zip(kinds, coordinates, strict=True)
    )
    place, out = cuda.device_words(8 * len(coordinates)), cuda.device_words(4 * len(coordinates))
    cuda.cuMemcpyHtoD(place, words, len(words))
    cuda.launch_function(kernel, texture, place, out, block=len(coordinates))
    values = cuda.read(out, 4 * len(coordinates), kind).reshape(-1, 4)
    cuda.cuMemFree(place)
    cuda.cuMemFree(out)
    return values


def shape_of(cuda: Cuda, extents: Sequence[int], flags: int, kind: str = "float32") -> Any:
    """Return the description of an array: width, height, depth."""
    shape = cuda.CUDA_ARRAY3D_DESCRIPTOR()
    shape.Width, shape.Height, shape.Depth = extents
    shape.NumChannels, shape.Flags = 1, flags
    shape.Format = getattr(cuda.CUarray_format, "CU_AD_FORMAT_" + FORMATS[kind])
    return shape


def copy(cuda: Cuda, array: Any, values: Any, *, read: bool = False) -> None:
    """Fill an array with values [plane, row, column], or read them."""
    wanted = cuda.CUDA_MEMCPY3D()
    types = cuda.CUmemorytype
    host, other = types.CU_MEMORYTYPE_HOST, types.CU_MEMORYTYPE_ARRAY
    pitch = values.shape[2] * values.itemsize
    if read:
        wanted.srcMemoryType, wanted.srcArray = other, array
        wanted.dstMemoryType, wanted.dstHost = host, values.ctypes.data
        wanted.dstPitch, wanted.dstHeight = pitch, values.shape[1]
    else:
        wanted.dstMemoryType, wanted.dstArray = other, array
        wanted.srcMemoryType, wanted.srcHost = host, values.ctypes.data
        wanted.srcPitch, wanted.srcHeight = pitch, values.shape[1]
    wanted.Depth, wanted.Height, wanted.WidthInBytes = *values.shape[:2], pitch
    cuda.cuMemcpy3D(wanted)


def filled(cuda: Cuda, extents: Sequence[int], values: Any, flags: int) -> Any:
    """Make an array that holds `values`."""
    array = cuda.cuArray3DCreate(shape_of(cuda, extents, flags, str(values.dtype)))
    copy(cuda, array, values)
    return array


def resource_of(cuda: Cuda, array: Any) -> Any:
    """Return the resource description of an array or of a mipmapped array."""
    resource = cuda.CUDA_RESOURCE_DESC()
    if isinstance(array, cuda.CUmipmappedArray):
        resource.resType = cuda.CUresourcetype.CU_RESOURCE_TYPE_MIPMAPPED_ARRAY
        resource.res.mipmap.hMipmappedArray = array
    else:
        resource.resType = cuda.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
        resource.res.array.hArray = array
    return resource


def manner(cuda: Cuda, mode: str, *, linear: bool = False, normalised: bool = False, flags: int = 0) -> Any:
    """Return how a texture is read: address mode, filter, flags."""
    wanted = cuda.CUDA_TEXTURE_DESC()
    address = getattr(cuda.CUaddress_mode, "CU_TR_ADDRESS_MODE_" + mode)
    wanted.addressMode = [address] * 3
    filters = cuda.CUfilter_mode
    wanted.filterMode = filters.CU_TR_FILTER_MODE_LINEAR if linear else filters.CU_TR_FILTER_MODE_POINT
    wanted.flags = flags | (NORMALISED if normalised else 0)
    return wanted
