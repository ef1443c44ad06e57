"""Arrays of every kind, copied to and from all memory, read by textures, written by surfaces; in graphs."""

import ctypes
import hashlib

from calls import done, launch, names, start
from cuda.bindings import driver

KERNELS = b"""
.version 8.0
.target sm_80
.address_size 64
// Sixteen elements of a row, from its beginning.
.visible .entry sample(.param .u64 object, .param .u64 out, .param .u32 row)
{
    .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [object];
    ld.param.u64 %rd2, [out];
    ld.param.u32 %r1, [row];
    mov.u32 %r2, 0;
again:
    tex.2d.v4.s32.s32 {%r3, %r4, %r5, %r6}, [%rd1, {%r2, %r1}];
    st.global.u32 [%rd2], %r3;
    add.u64 %rd2, %rd2, 4;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p, %r2, 16;
    @%p bra again;
    ret;
}
.visible .entry line(.param .u64 object, .param .u64 out, .param .u32 at)
{
    .reg .b32 %r<8>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [object];
    ld.param.u64 %rd2, [out];
    ld.param.u32 %r1, [at];
    tex.1d.v4.s32.s32 {%r3, %r4, %r5, %r6}, [%rd1, {%r1}];
    st.global.u32 [%rd2], %r3;
    ret;
}
// Adds 1000 to the element at (4, row).
.visible .entry mark(.param .u64 object, .param .u32 row)
{
    .reg .b32 %r<4>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [object];
    ld.param.u32 %r1, [row];
    mov.u32 %r2, 16;
    suld.b.2d.b32.trap {%r3}, [%rd1, {%r2, %r1}];
    add.u32 %r3, %r3, 1000;
    sust.b.2d.b32.trap [%rd1, {%r2, %r1}], {%r3};
    ret;
}
"""
types = driver.CUmemorytype
HOST, DEVICE = types.CU_MEMORYTYPE_HOST, types.CU_MEMORYTYPE_DEVICE
ANY, ARRAY = types.CU_MEMORYTYPE_UNIFIED, types.CU_MEMORYTYPE_ARRAY
FORMATS = driver.CUarray_format
INT32, UINT8 = FORMATS.CU_AD_FORMAT_SIGNED_INT32, FORMATS.CU_AD_FORMAT_UNSIGNED_INT8
LAYERED, SURFACE, CUBE = 1, 2, 4

_, context = start()
module = done(driver.cuModuleLoadData(KERNELS))
sample, line, mark = (
    done(driver.cuModuleGetFunction(module, name)) for name in (b"sample", b"line", b"mark")
)
stream, other = done(driver.cuStreamCreate(1)), done(driver.cuStreamCreate(0))


def digest(memory):
    return hashlib.sha256(bytes(memory)).hexdigest()[:16]


def shape(width, height=0, depth=0, flags=0, kind=INT32, channels=1):
    made = driver.CUDA_ARRAY3D_DESCRIPTOR()
    made.Width, made.Height, made.Depth, made.Flags = width, height, depth, flags
    made.Format, made.NumChannels = kind, channels
    return made


def told(array):
    of = done(driver.cuArray3DGetDescriptor(array))
    flat = done(driver.cuArrayGetDescriptor(array))
    print(of.Width, of.Height, of.Depth, of.Flags, of.Format.name, of.NumChannels, flat.Width, flat.Height)


def volume(kind=driver.CUDA_MEMCPY3D, **fields):
    made = kind()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def words(count, first=0):
    return (ctypes.c_int32 * count)(*range(first, first + count))


def to_array(array, memory, width, height, depth=1, **more):
    """A copy of whole rows from host memory."""
    fields = {"dstMemoryType": ARRAY, "dstArray": array, "srcMemoryType": HOST, "srcHost": memory}
    fields |= {
        "srcPitch": width,
        "srcHeight": height,
        "WidthInBytes": width,
        "Height": height,
        "Depth": depth,
    }
    return volume(**fields | more)


def from_array(array, memory, width, height, depth=1, **more):
    fields = {"srcMemoryType": ARRAY, "srcArray": array, "dstMemoryType": HOST, "dstHost": memory}
    fields |= {
        "dstPitch": width,
        "dstHeight": height,
        "WidthInBytes": width,
        "Height": height,
        "Depth": depth,
    }
    return volume(**fields | more)


def read(array, width, height, depth=1, **more):
    into = (ctypes.c_uint8 * (width * height * depth))()
    done(driver.cuMemcpy3D(from_array(array, ctypes.addressof(into), width, height, depth, **more)))
    return into


# Every kind, from pageable memory and back, whole and in part.
for extents, flags, kind, channels in (
    ((40, 0, 0), 0, INT32, 1),
    ((33, 17, 0), 0, UINT8, 4),
    ((16, 8, 5), 0, INT32, 2),
    ((16, 0, 7), LAYERED, INT32, 1),
    ((16, 8, 3), LAYERED | SURFACE, INT32, 4),
    ((8, 8, 6), CUBE, UINT8, 1),
    ((8, 8, 12), CUBE | LAYERED, INT32, 1),
):
    array = done(driver.cuArray3DCreate(shape(*extents, flags, kind, channels)))
    told(array)
    width = extents[0] * channels * (4 if kind == INT32 else 1)
    height, depth = max(extents[1], 1), max(extents[2], 1)
    source = (ctypes.c_uint8 * (width * height * depth))(
        *[i * 7 % 251 for i in range(width * height * depth)]
    )
    done(driver.cuMemcpy3D(to_array(array, ctypes.addressof(source), width, height, depth)))
    print(bytes(read(array, width, height, depth)) == bytes(source))
    half = width // extents[0] * (extents[0] // 2)
    part = read(array, half, height, 1, srcXInBytes=width - half, srcZ=depth - 1)
    print(digest(part))
    done(driver.cuArrayDestroy(array))

# So large that they travel in parts: many rows, and a row that is one.
for extents, channels in (((1000, 1300, 0), 1), ((131072, 0, 0), 4), ((60, 50, 700), 1), ((16000, 9, 5), 4)):
    array = done(driver.cuArray3DCreate(shape(*extents, channels=channels)))
    width, height, depth = extents[0] * 4 * channels, max(extents[1], 1), max(extents[2], 1)
    pitch = width + 24
    source = (ctypes.c_uint8 * (pitch * height * depth)).from_buffer_copy(
        (bytes(range(251)) * (pitch * height * depth // 251 + 1))[: pitch * height * depth]
    )
    done(
        driver.cuMemcpy3DAsync(
            to_array(array, ctypes.addressof(source), width, height, depth, srcPitch=pitch), stream
        )
    )
    ctypes.memset(source, 0, len(source))  # it has been read
    into = (ctypes.c_uint8 * len(source))()
    done(
        driver.cuMemcpy3DAsync(
            from_array(array, ctypes.addressof(into), width, height, depth, dstPitch=pitch), stream
        )
    )
    print(digest(into))
    done(driver.cuArrayDestroy(array))

# Lines, planes and volumes between arrays, device and pinned memory.
plane = done(driver.cuArray3DCreate(shape(64, 16, 0, SURFACE)))
twin = done(
    driver.cuArrayCreate(
        volume(driver.CUDA_ARRAY_DESCRIPTOR, Width=64, Height=16, Format=INT32, NumChannels=1)
    )
)
told(twin)
numbers = words(1024)
done(driver.cuMemcpy3D(to_array(twin, ctypes.addressof(numbers), 256, 16)))
memory = done(driver.cuMemAlloc(1 << 16))
done(driver.cuMemsetD32(memory, 5, 1 << 14))
pinned = done(driver.cuMemHostAlloc(1 << 16, 0))
seen = (ctypes.c_int32 * (1 << 14)).from_address(int(pinned))
seen[:] = range(1 << 14)
done(driver.cuCtxSynchronize())  # `stream` waits for no default stream
done(driver.cuMemcpy3DAsync(to_array(plane, pinned, 256, 16), stream))
done(
    driver.cuMemcpy3DAsync(
        volume(
            srcMemoryType=ARRAY,
            srcArray=plane,
            srcXInBytes=32,
            srcY=2,
            dstMemoryType=ARRAY,
            dstArray=twin,
            dstXInBytes=64,
            dstY=5,
            WidthInBytes=100,
            Height=7,
            Depth=1,
        ),
        stream,
    )
)
done(
    driver.cuMemcpy3DAsync(
        volume(
            srcMemoryType=ARRAY,
            srcArray=twin,
            srcY=4,
            dstMemoryType=DEVICE,
            dstDevice=memory,
            dstXInBytes=8,
            dstY=1,
            dstPitch=512,
            WidthInBytes=256,
            Height=9,
            Depth=1,
        ),
        stream,
    )
)
done(
    driver.cuMemcpy2DAsync(
        volume(
            driver.CUDA_MEMCPY2D,
            srcMemoryType=DEVICE,
            srcDevice=memory,
            srcPitch=512,
            srcY=1,
            dstMemoryType=ARRAY,
            dstArray=plane,
            dstXInBytes=128,
            WidthInBytes=64,
            Height=8,
        ),
        stream,
    )
)
done(driver.cuMemcpy3DAsync(from_array(plane, pinned, 256, 16), stream))
done(driver.cuStreamSynchronize(stream))
print(digest(seen), seen[32], seen[64 * 15])
back = (ctypes.c_int32 * 4096)()
done(driver.cuMemcpyDtoH(back, memory, 16384))
print(digest(back))
done(driver.cuMemcpyHtoA(plane, 16, words(8, 100), 32))
done(driver.cuMemcpyAtoA(twin, 0, plane, 16, 32))
done(driver.cuMemcpyAtoD(memory, twin, 8, 24))
done(driver.cuMemcpyDtoA(twin, 64, memory, 16))
done(driver.cuCtxSynchronize())
done(driver.cuMemcpyHtoAAsync(twin, 128, words(4, 7), 16, stream))
done(driver.cuMemcpyAtoHAsync(back, twin, 0, 256, stream))
done(driver.cuStreamSynchronize(stream))
print(list(back[:64]))
done(driver.cuMemcpyAtoH(back, plane, 16, 32))
print(list(back[:8]))
peer = volume(
    driver.CUDA_MEMCPY3D_PEER, srcMemoryType=ARRAY, srcArray=plane, dstMemoryType=ARRAY, dstArray=twin
)
peer.srcContext = peer.dstContext = context
peer.WidthInBytes, peer.Height, peer.Depth = 256, 16, 1
done(driver.cuMemcpy3DPeer(peer))
done(driver.cuMemcpy3DPeerAsync(peer, stream))
done(driver.cuStreamSynchronize(stream))
print(bytes(read(twin, 256, 16)) == bytes(read(plane, 256, 16)))

# Levels of a mipmapped array are arrays.
mipmap = done(driver.cuMipmappedArrayCreate(shape(64, 32, 0), 3))
for number in range(3):
    level = done(driver.cuMipmappedArrayGetLevel(mipmap, number))
    told(level)
    wide, high = 256 >> number, 32 >> number
    numbers = words(wide * high // 4, number)
    done(driver.cuMemcpy3D(to_array(level, ctypes.addressof(numbers), wide, high)))
    print(digest(read(level, wide, high)))


# Textures and surfaces: what kernels get is the object's value.
def resource(kind, **fields):
    made = driver.CUDA_RESOURCE_DESC()
    made.resType = getattr(driver.CUresourcetype, "CU_RESOURCE_TYPE_" + kind)
    part = {"ARRAY": "array", "MIPMAPPED_ARRAY": "mipmap", "LINEAR": "linear", "PITCH2D": "pitch2D"}[kind]
    for name, value in fields.items():
        setattr(getattr(made.res, part), name, value)
    return made


manner = driver.CUDA_TEXTURE_DESC()
manner.addressMode = [driver.CUaddress_mode.CU_TR_ADDRESS_MODE_CLAMP] * 3
manner.filterMode = driver.CUfilter_mode.CU_TR_FILTER_MODE_POINT
manner.flags = 1
out = done(driver.cuMemAlloc(64))


def sampled(texture, row, kernel=sample):
    done(launch(kernel, other, int(texture), out, ctypes.c_uint32(row)))
    done(driver.cuMemcpyDtoH(back, out, 64))
    return list(back[:16])


of_plane = done(driver.cuTexObjectCreate(resource("ARRAY", hArray=plane), manner, None))
print(sampled(of_plane, 0), sampled(of_plane, 3))
surface = done(driver.cuSurfObjectCreate(resource("ARRAY", hArray=plane)))
done(launch(mark, other, int(surface), ctypes.c_uint32(3)))
print(sampled(of_plane, 3))
of_mipmap = done(driver.cuTexObjectCreate(resource("MIPMAPPED_ARRAY", hMipmappedArray=mipmap), manner, None))
print(sampled(of_mipmap, 2))
done(driver.cuMemcpyHtoD(memory, words(1 << 14), 1 << 16))
fields = {"format": INT32, "numChannels": 1}
of_line = done(
    driver.cuTexObjectCreate(resource("LINEAR", devPtr=memory, sizeInBytes=4000, **fields), manner, None)
)
print(sampled(of_line, 17, line)[0])
rows = resource("PITCH2D", devPtr=memory, width=16, height=8, pitchInBytes=512, **fields)
of_rows = done(driver.cuTexObjectCreate(rows, manner, None))
print(sampled(of_rows, 5))
found = done(driver.cuTexObjectGetResourceDesc(of_rows))
print(found.resType.name, int(found.res.pitch2D.devPtr) == int(memory), found.res.pitch2D.pitchInBytes)
print(int(done(driver.cuTexObjectGetResourceDesc(of_plane)).res.array.hArray) == int(plane))
print(int(done(driver.cuSurfObjectGetResourceDesc(surface)).res.array.hArray) == int(plane))
print(done(driver.cuTexObjectGetTextureDesc(of_line)).flags)

# In a graph: copies there and back around a kernel.
copy_in = to_array(plane, pinned, 256, 16)
copy_out = from_array(plane, int(pinned) + 8192, 256, 16)
done(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
done(driver.cuMemcpy3DAsync(copy_in, stream))
done(launch(mark, stream, int(surface), ctypes.c_uint32(2)))
done(driver.cuMemcpy3DAsync(copy_out, stream))
graph = done(driver.cuStreamEndCapture(stream))
executable = done(driver.cuGraphInstantiate(graph, 0))
for first in (0, 5000):
    seen[:1024] = range(first, first + 1024)
    done(driver.cuGraphLaunch(executable, stream))
    done(driver.cuStreamSynchronize(stream))
    print(seen[2048], seen[2048 + 128 + 4], seen[2048 + 1023])
done(driver.cuGraphExecDestroy(executable))
by_hand = done(driver.cuGraphCreate(0))
node = done(driver.cuGraphAddMemcpyNode(by_hand, [], 0, copy_in, context))
after = done(driver.cuGraphAddMemcpyNode(by_hand, [node], 1, copy_out, context))
executable = done(driver.cuGraphInstantiate(by_hand, 0))
fewer = to_array(plane, int(pinned) + 1024, 256, 4)
names(driver.cuGraphExecMemcpyNodeSetParams(executable, node, fewer, context))  # only of lines
done(driver.cuGraphExecDestroy(executable))
done(driver.cuGraphMemcpyNodeSetParams(node, fewer))
executable = done(driver.cuGraphInstantiate(by_hand, 0))
seen[:1024] = range(7000, 8024)
done(driver.cuGraphLaunch(executable, stream))
done(driver.cuStreamSynchronize(stream))
print(seen[2048], seen[2048 + 255], seen[2048 + 256], done(driver.cuGraphMemcpyNodeGetParams(node)).Height)
done(driver.cuGraphExecDestroy(executable))

# A context takes its arrays with it.
before = done(driver.cuMemGetInfo())[0]
done(driver.cuCtxPushCurrent(own := done(driver.cuCtxCreate(None, 0, 0))))
large = done(driver.cuArray3DCreate(shape(4096, 4096)))
done(driver.cuTexObjectCreate(resource("ARRAY", hArray=large), manner, None))
print(done(driver.cuMemGetInfo())[0] <= before - (60 << 20))
done(driver.cuCtxDestroy(own))
done(driver.cuCtxSetCurrent(context))
print(done(driver.cuMemGetInfo())[0] > before - (30 << 20))

for texture in (of_plane, of_mipmap, of_line, of_rows):
    done(driver.cuTexObjectDestroy(texture))
done(driver.cuSurfObjectDestroy(surface))
done(driver.cuMipmappedArrayDestroy(mipmap))
done(driver.cuArrayDestroy(twin))
# What still runs on it ends first.
done(driver.cuMemcpy3DAsync(copy_out, stream))
done(driver.cuArrayDestroy(plane))
print(seen[2048 + 1023])
