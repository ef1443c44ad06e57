"""Arrays, copies, textures and surfaces that cannot be: shapes, places, handles, and what was destroyed."""

import ctypes

from calls import done, names, start
from cuda.bindings import driver

types = driver.CUmemorytype
HOST, DEVICE, ARRAY = types.CU_MEMORYTYPE_HOST, types.CU_MEMORYTYPE_DEVICE, types.CU_MEMORYTYPE_ARRAY
FLOAT = driver.CUarray_format.CU_AD_FORMAT_FLOAT
LAYERED, SURFACE, CUBE, SEAMLESS = 1, 2, 4, 64


def shape(width, height=0, depth=0, flags=0, channels=1):
    made = driver.CUDA_ARRAY3D_DESCRIPTOR()
    made.Width, made.Height, made.Depth, made.Flags = width, height, depth, flags
    made.Format, made.NumChannels = FLOAT, channels
    return made


start()
# Shapes.
for wanted in (
    shape(0),
    shape(8, 4, channels=3),
    shape(8, 4, channels=0),
    shape(1 << 20),
    shape(131073),
    shape(64, 65537),
    shape(1 << 40, 1 << 40, 1 << 40),
    shape(8, 4, 0, LAYERED),
    shape(8, 4, 6, CUBE),
    shape(4, 4, 7, CUBE | LAYERED),
):
    names(driver.cuArray3DCreate(wanted), driver.cuMipmappedArrayCreate(wanted, 1))
names(driver.cuArrayCreate(driver.CUDA_ARRAY_DESCRIPTOR()), driver.cuArray3DCreate(None))

stream = done(driver.cuStreamCreate(1))
plane = done(driver.cuArray3DCreate(shape(16, 8, 0, SURFACE)))
layers = done(driver.cuArray3DCreate(shape(16, 8, 3, LAYERED)))
mipmap = done(driver.cuMipmappedArrayCreate(shape(16, 8), 2))
level = done(driver.cuMipmappedArrayGetLevel(mipmap, 1))
host = (ctypes.c_uint8 * 4096)()
memory = int(done(driver.cuMemAlloc(4096)))
names(
    driver.cuArrayGetDescriptor(driver.CUarray(0)),
    driver.cuArray3DGetDescriptor(driver.CUarray(0)),
    driver.cuMipmappedArrayGetLevel(mipmap, 2),
    driver.cuMipmappedArrayGetLevel(driver.CUmipmappedArray(0), 0),
    driver.cuArrayDestroy(driver.CUarray(0)),
    driver.cuMipmappedArrayDestroy(driver.CUmipmappedArray(0)),
    driver.cuArrayDestroy(level),
)


# Copies.
def copy(**fields):
    made = driver.CUDA_MEMCPY3D()
    made.srcMemoryType, made.srcHost, made.srcPitch, made.srcHeight = HOST, ctypes.addressof(host), 64, 8
    made.dstMemoryType, made.dstArray = ARRAY, plane
    made.WidthInBytes, made.Height, made.Depth = 64, 8, 1
    for name, value in fields.items():
        setattr(made, name, value)
    return made


for fields in (
    {},
    {"WidthInBytes": 0},
    {"WidthInBytes": 68},
    {"WidthInBytes": 1 << 40},
    {"Height": 9},
    {"Depth": 2},
    {"Depth": 0},
    {"dstXInBytes": 4},
    {"dstXInBytes": 2, "WidthInBytes": 4},
    {"dstXInBytes": 1 << 63},
    {"dstY": 1},
    {"dstY": 8, "Height": 1},
    {"dstZ": 1},
    {"dstArray": level},
    {"dstArray": level, "WidthInBytes": 32, "Height": 4},
    {"dstArray": layers, "dstZ": 2},
    {"dstArray": layers, "dstZ": 3},
    {"dstArray": layers, "dstZ": 2, "Depth": 2},
    {"dstArray": driver.CUarray(0)},
    {"srcMemoryType": ARRAY, "srcArray": driver.CUarray(0)},
    {"srcMemoryType": ARRAY, "srcArray": layers, "srcZ": 1},
    {"srcMemoryType": ARRAY, "srcArray": layers, "srcZ": 3},
    {"srcMemoryType": DEVICE, "srcDevice": memory},
    {"srcMemoryType": DEVICE, "srcDevice": memory, "srcPitch": 60},
    {"srcMemoryType": DEVICE, "srcDevice": memory, "srcPitch": 1 << 24},
    {"srcMemoryType": DEVICE, "srcDevice": 12345},
    {"srcMemoryType": DEVICE, "srcDevice": 0},
    {"srcHost": 0},
    {"srcPitch": 60},
):
    wanted = copy(**fields)
    names(driver.cuMemcpy3D(wanted), driver.cuMemcpy3DAsync(wanted, stream))
    done(driver.cuStreamSynchronize(stream))
place = ctypes.addressof(host)
names(
    driver.cuMemcpyHtoA(plane, 0, place, 64),
    driver.cuMemcpyHtoA(plane, 0, place, 68),
    driver.cuMemcpyHtoA(plane, 64, place, 4),
    driver.cuMemcpyHtoA(plane, 64, place, 0),
    driver.cuMemcpyHtoA(driver.CUarray(0), 0, place, 4),
    driver.cuMemcpyAtoH(place, level, 0, 32),
    driver.cuMemcpyAtoH(place, level, 0, 36),
    driver.cuMemcpyAtoA(plane, 0, level, 0, 36),
    driver.cuMemcpyAtoD(12345, plane, 0, 4),
    driver.cuMemcpyDtoA(plane, 0, memory, 1 << 32),
)


# Textures and surfaces.
def resource(kind, part, **fields):
    made = driver.CUDA_RESOURCE_DESC()
    made.resType = getattr(driver.CUresourcetype, "CU_RESOURCE_TYPE_" + kind)
    for name, value in fields.items():
        setattr(getattr(made.res, part), name, value)
    return made


def manner(flags=0, linear=False):
    made = driver.CUDA_TEXTURE_DESC()
    filters = driver.CUfilter_mode
    made.filterMode = filters.CU_TR_FILTER_MODE_LINEAR if linear else filters.CU_TR_FILTER_MODE_POINT
    made.flags = flags
    return made


of_plane = resource("ARRAY", "array", hArray=plane)
of_mipmap = resource("MIPMAPPED_ARRAY", "mipmap", hMipmappedArray=mipmap)
line = {"format": FLOAT, "numChannels": 1}
names(
    driver.cuTexObjectCreate(resource("ARRAY", "array", hArray=driver.CUarray(0)), manner(), None),
    driver.cuTexObjectCreate(of_plane, manner(flags=SEAMLESS), None),
    driver.cuTexObjectCreate(of_plane, None, None),
    driver.cuTexObjectCreate(None, manner(), None),
    driver.cuTexObjectCreate(resource("LINEAR", "linear", devPtr=0, sizeInBytes=64, **line), manner(), None),
    driver.cuTexObjectCreate(
        resource("LINEAR", "linear", devPtr=memory, sizeInBytes=0, **line), manner(), None
    ),
    driver.cuSurfObjectCreate(of_mipmap),
    driver.cuSurfObjectCreate(resource("LINEAR", "linear", devPtr=memory, sizeInBytes=64, **line)),
    driver.cuSurfObjectCreate(None),
)
texture = done(driver.cuTexObjectCreate(of_plane, manner(), None))
surface = done(driver.cuSurfObjectCreate(of_plane))
names(
    driver.cuTexObjectGetTextureDesc(driver.CUtexObject(987654321)),
    driver.cuTexObjectDestroy(driver.CUtexObject(987654321)),
    driver.cuTexObjectDestroy(texture),
    driver.cuTexObjectDestroy(texture),
    driver.cuSurfObjectDestroy(surface),
    driver.cuSurfObjectDestroy(surface),
)
names(driver.cuMipmappedArrayDestroy(mipmap), driver.cuArrayDestroy(layers), driver.cuArrayDestroy(plane))
names(driver.cuCtxSynchronize())
