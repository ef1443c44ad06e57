"""Random calls on arrays: what they are made as, copies between them and memory, their textures and surfaces.

    random_arrays.py SEED CALLS

Each call is waited for. Copies never overlap themselves.
"""

import ctypes
import hashlib
import random
import sys

from calls import call, done, start
from cuda.bindings import driver

KERNELS = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry sample(.param .u64 object, .param .u64 out)
{
    .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [object];
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, 0;
again:
    and.b32 %r2, %r1, 7;
    shr.u32 %r7, %r1, 3;
    tex.2d.v4.s32.s32 {%r3, %r4, %r5, %r6}, [%rd1, {%r2, %r7}];
    st.global.v4.u32 [%rd2], {%r3, %r4, %r5, %r6};
    add.u64 %rd2, %rd2, 16;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p, %r1, 32;
    @%p bra again;
    ret;
}
.visible .entry mark(.param .u64 object, .param .u32 value)
{
    .reg .b32 %r<4>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [object];
    ld.param.u32 %r1, [value];
    mov.u32 %r2, 4;
    mov.u32 %r3, 0;
    sust.b.2d.b32.trap [%rd1, {%r2, %r3}], {%r1};
    ret;
}
"""
ROOM = 1 << 17
LAYERED, SURFACE, CUBE, GATHER = 1, 2, 4, 8
types = driver.CUmemorytype
PLACES = {"host": types.CU_MEMORYTYPE_HOST, "device": types.CU_MEMORYTYPE_DEVICE}
ARRAY, ANY = types.CU_MEMORYTYPE_ARRAY, types.CU_MEMORYTYPE_UNIFIED
FORMATS = {"UNSIGNED_INT8": 1, "SIGNED_INT16": 2, "SIGNED_INT32": 4, "UNSIGNED_INT32": 4}
FORMATS |= {"FLOAT": 4, "HALF": 2}

chance = random.Random(int(sys.argv[1]))
start()
module = done(driver.cuModuleLoadData(KERNELS))
sample, mark = (done(driver.cuModuleGetFunction(module, name)) for name in (b"sample", b"mark"))
out = int(done(driver.cuMemAlloc(512)))
host = (ctypes.c_uint8 * ROOM).from_buffer_copy(chance.randbytes(ROOM))
devices = [int(done(driver.cuMemAlloc(ROOM))) for _ in range(2)]
for address in devices:
    done(driver.cuMemcpyHtoD(address, chance.randbytes(ROOM), ROOM))
streams = [driver.CUstream(0), done(driver.cuStreamCreate(1))]
numbers = iter(range(10**9))
arrays, mipmaps, textures, surfaces = {}, {}, {}, {}


class Array:
    """One that is there: its handle, its extents in bytes and rows, and what its elements are."""

    def __init__(self, handle, extents, flags, kind, channels):
        self.handle, self.flags, self.kind = handle, flags, kind
        self.element = FORMATS[kind] * channels
        self.row = extents[0] * self.element
        layered = flags & (LAYERED | CUBE)
        self.rows, self.slices = max(extents[1], 1), max(extents[2], 1)
        self.plain = extents[1] > 0 and extents[2] == 0 and not layered


def any_of(things):
    return things[chance.choice(list(things))] if things else None


def often(value, *others):
    return chance.choice((value,) * 12 + others)


def shape():
    made = driver.CUDA_ARRAY3D_DESCRIPTOR()
    extents = [often(8, 16, 33, 0), chance.choice((0, 4, 8)), chance.choice((0, 0, 3, 6))]
    flags = chance.choice((0, 0, SURFACE, LAYERED, CUBE, LAYERED | SURFACE, CUBE | LAYERED, GATHER))
    if flags & CUBE and chance.random() < 0.8:
        extents[1:] = [extents[0], 6]
    kind, channels = chance.choice(list(FORMATS)), often(1, 2, 4, 3)
    made.Width, made.Height, made.Depth, made.Flags = *extents, flags
    made.Format, made.NumChannels = getattr(driver.CUarray_format, "CU_AD_FORMAT_" + kind), channels
    return made, (extents, flags, kind, channels)


def clear(array):
    """What a new array holds is nobody's."""
    filled = driver.CUDA_MEMCPY3D()
    filled.srcMemoryType, filled.srcHost = PLACES["host"], ctypes.addressof(host)
    filled.srcPitch, filled.srcHeight = array.row, array.rows
    filled.dstMemoryType, filled.dstArray = ARRAY, array.handle
    filled.WidthInBytes, filled.Height, filled.Depth = array.row, array.rows, array.slices
    call("cuMemcpy3D", filled)


def create():
    made, what = shape()
    if len(arrays) > 7:
        return
    handle = call("cuArray3DCreate", made)
    if handle is not None:
        number = next(numbers)
        arrays[number] = Array(handle, *what)
        clear(arrays[number])


def create_mipmapped():
    made, _ = shape()
    levels = chance.choice((1, 2, 3, 9))
    handle = call("cuMipmappedArrayCreate", made, levels)
    if handle is None:
        return
    for level in range(3):
        if (array := call("cuMipmappedArrayGetLevel", handle, level)) is not None:
            describe(array)
    call("cuMipmappedArrayDestroy", handle)


def destroy():
    if len(arrays) > 3 and not textures and not surfaces:
        call("cuArrayDestroy", arrays.pop(chance.choice(list(arrays))).handle)


def describe(handle):
    of = call("cuArray3DGetDescriptor", handle)
    if of is not None:
        print(of.Width, of.Height, of.Depth, of.Flags, of.Format.name, of.NumChannels)
    flat = call("cuArrayGetDescriptor", handle)
    if flat is not None:
        print(flat.Width, flat.Height, flat.Format.name, flat.NumChannels)


def ask():
    if (array := any_of(arrays)) is None:
        return
    describe(array.handle)
    call("cuArrayGetPlane", array.handle, 0)
    call("cuArrayGetSparseProperties", array.handle)


def side(copied, prefix, array):
    """One end of a copy: an array, or memory."""
    if array is not None and chance.random() < 0.6:
        setattr(copied, prefix + "MemoryType", ARRAY)
        setattr(copied, prefix + "Array", array.handle)
        setattr(copied, prefix + "XInBytes", often(0, array.element, 1))
        setattr(copied, prefix + "Y", often(0, 1))
        return
    kind = chance.choice(list(PLACES))
    setattr(copied, prefix + "MemoryType", often(PLACES[kind], ANY))
    place = ctypes.addressof(host) if kind == "host" else chance.choice(devices)
    # Source and destination within the same memory lie apart.
    place += ROOM // 2 if prefix == "dst" else 0
    named = "Host" if kind == "host" and int(getattr(copied, prefix + "MemoryType")) == 1 else "Device"
    setattr(copied, prefix + named, place)
    setattr(copied, prefix + "Pitch", often(256, 0, 64, 7))


def copy_rows():
    to, source = any_of(arrays), any_of(arrays)
    if to is source:
        return
    copied = driver.CUDA_MEMCPY2D()
    side(copied, "src", source)
    side(copied, "dst", to)
    width = min(each.row for each in (to, source))
    copied.WidthInBytes = often(width, width // 2, width + 64, 0)
    copied.Height = often(min(to.rows, source.rows), 1, 0, 9)
    name = chance.choice(("cuMemcpy2D", "cuMemcpy2DUnaligned", "cuMemcpy2DAsync"))
    call(name, copied, *([chance.choice(streams)] if name.endswith("Async") else []))
    call("cuCtxSynchronize")


def copy_volume():
    to, source = any_of(arrays), any_of(arrays)
    if to is source:
        return
    copied = driver.CUDA_MEMCPY3D()
    side(copied, "src", source)
    side(copied, "dst", to)
    copied.srcHeight, copied.dstHeight = often(8, 0), often(8, 0)
    copied.srcZ, copied.dstZ = often(0, 1), often(0, 1)
    width = min(each.row for each in (to, source))
    copied.WidthInBytes = often(width, width // 2, width + 64, 0)
    copied.Height = often(min(to.rows, source.rows), 1, 0, 9)
    copied.Depth = often(min(to.slices, source.slices), 1, 0, 7)
    if chance.random() < 0.5:
        call("cuMemcpy3D", copied)
    else:
        call("cuMemcpy3DAsync", copied, chance.choice(streams))
    call("cuCtxSynchronize")


def copy_line():
    if (array := any_of(arrays)) is None:
        return
    first, size = often(0, array.element, 1), often(array.row, 4, array.row * 2, 0)
    memory, place = chance.choice(devices), ctypes.addressof(host)
    kind = chance.choice(("AtoD", "DtoA", "AtoH", "HtoA", "AtoA", "AtoHAsync", "HtoAAsync"))
    if kind == "AtoA":
        other = any_of(arrays)
        if other is array:
            return
        arguments = (array.handle, first, other.handle, often(0, other.element), size)
    elif kind.startswith("Ato"):
        arguments = (place if "H" in kind else memory, array.handle, first, size)
    else:
        arguments = (array.handle, first, place if "H" in kind else memory, size)
    call("cuMemcpy" + kind, *arguments, *([chance.choice(streams)] if kind.endswith("Async") else []))
    call("cuCtxSynchronize")


def resource(array):
    made = driver.CUDA_RESOURCE_DESC()
    kinds = driver.CUresourcetype
    if array is not None and chance.random() < 0.7:
        made.resType, made.res.array.hArray = kinds.CU_RESOURCE_TYPE_ARRAY, array.handle
        return made
    kind, channels = chance.choice(list(FORMATS)), often(1, 2, 4)
    if chance.random() < 0.5:
        made.resType, linear = kinds.CU_RESOURCE_TYPE_LINEAR, made.res.linear
        linear.sizeInBytes = often(1024, 0, 7)
    else:
        made.resType, linear = kinds.CU_RESOURCE_TYPE_PITCH2D, made.res.pitch2D
        linear.width, linear.height, linear.pitchInBytes = often(8, 0), often(4, 0), often(256, 64, 100, 16)
    linear.devPtr = often(devices[0], devices[0] + 4, 0)
    linear.format, linear.numChannels = getattr(driver.CUarray_format, "CU_AD_FORMAT_" + kind), channels
    return made


def manner():
    made = driver.CUDA_TEXTURE_DESC()
    modes = list(driver.CUaddress_mode)
    made.addressMode = [chance.choice(modes) for _ in range(3)]
    made.filterMode = often(driver.CUfilter_mode.CU_TR_FILTER_MODE_POINT, driver.CUfilter_mode(1))
    made.flags = often(1, 0, 2, 3, 8, 32)
    made.maxAnisotropy, made.borderColor = often(0, 4), [1.0, 2.0, 0.5, 0.0]
    return made


def make_texture():
    array = any_of(arrays)
    of, how = resource(array), manner()
    texture = call("cuTexObjectCreate", of, how, None)
    if texture is None:
        return
    told = done(driver.cuTexObjectGetTextureDesc(texture))
    print([int(mode) for mode in told.addressMode], int(told.filterMode), told.flags, told.maxAnisotropy)
    print(done(driver.cuTexObjectGetResourceDesc(texture)).resType.name)
    call("cuTexObjectGetResourceViewDesc", texture)
    # Elements as they are, of what has two dimensions: other kinds are read by other instructions.
    pitched = of.resType == driver.CUresourcetype.CU_RESOURCE_TYPE_PITCH2D
    flat = array.plain if of.resType == driver.CUresourcetype.CU_RESOURCE_TYPE_ARRAY else pitched
    exact = told.flags == 1 and int(told.filterMode) == 0 and all(int(m) in (1, 3) for m in told.addressMode)
    if flat and exact:
        values = ((int(texture), out), (ctypes.c_uint64, ctypes.c_uint64))
        call("cuLaunchKernel", sample, 1, 1, 1, 1, 1, 1, 0, 0, values, 0)
        call("cuCtxSynchronize")
        content = bytearray(512)
        done(driver.cuMemcpyDtoH(content, out, 512))
        print(hashlib.md5(content).hexdigest())
    call("cuTexObjectDestroy", texture)


def make_surface():
    array = any_of(arrays)
    surface = call("cuSurfObjectCreate", resource(array))
    if surface is None:
        return
    of = done(driver.cuSurfObjectGetResourceDesc(surface))
    print(of.resType.name)
    if array.plain and array.element == 4 and array.flags & SURFACE:
        values = ((int(surface), chance.randrange(1000)), (ctypes.c_uint64, ctypes.c_uint32))
        call("cuLaunchKernel", mark, 1, 1, 1, 1, 1, 1, 0, 0, values, 0)
        call("cuCtxSynchronize")
    call("cuSurfObjectDestroy", surface)


def look():
    print("host", hashlib.md5(bytes(host)).hexdigest())
    for address in devices:
        content = bytearray(ROOM)
        done(driver.cuMemcpyDtoH(content, address, ROOM))
        print(hashlib.md5(content).hexdigest())
    for number, array in arrays.items():
        into = (ctypes.c_uint8 * (array.row * array.rows * array.slices))()
        copied = driver.CUDA_MEMCPY3D()
        copied.dstMemoryType, copied.dstHost = PLACES["host"], ctypes.addressof(into)
        copied.dstPitch, copied.dstHeight = array.row, array.rows
        copied.srcMemoryType, copied.srcArray = ARRAY, array.handle
        copied.WidthInBytes, copied.Height, copied.Depth = array.row, array.rows, array.slices
        print(number, driver.cuMemcpy3D(copied)[0].name, hashlib.md5(bytes(into)).hexdigest())


OFTEN = {create: 10, create_mipmapped: 2, destroy: 4, ask: 4, copy_rows: 14, copy_volume: 14, copy_line: 12}
OFTEN |= {make_texture: 10, make_surface: 5, look: 2}

for _ in range(3):
    create()
for _ in range(int(sys.argv[2])):
    if arrays:
        chance.choices(list(OFTEN), OFTEN.values())[0]()
    else:
        create()
look()
