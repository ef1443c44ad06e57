"""Copies and fills of rows and layers that cannot be: pitches, places, sizes and kinds of memory."""

import ctypes
import hashlib

from calls import done, names, read, start
from cuda.bindings import driver

start()
types = driver.CUmemorytype
HOST, DEVICE, ANY = (getattr(types, "CU_MEMORYTYPE_" + name) for name in ("HOST", "DEVICE", "UNIFIED"))
stream = done(driver.cuStreamCreate(1))
host = (ctypes.c_uint8 * 4096)(*[i % 251 for i in range(4096)])
place = ctypes.addressof(host)
memory = int(done(driver.cuMemAlloc(4096)))
done(driver.cuMemsetD8(memory, 0, 4096))


def plane(**fields):
    made = driver.CUDA_MEMCPY2D()
    made.srcMemoryType, made.srcHost, made.srcPitch = HOST, place, 64
    made.dstMemoryType, made.dstDevice, made.dstPitch = DEVICE, memory, 64
    made.WidthInBytes, made.Height = 32, 4
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def volume(**fields):
    made = driver.CUDA_MEMCPY3D()
    made.srcMemoryType, made.srcHost, made.srcPitch, made.srcHeight = HOST, place, 64, 8
    made.dstMemoryType, made.dstDevice, made.dstPitch, made.dstHeight = DEVICE, memory, 64, 8
    made.WidthInBytes, made.Height, made.Depth = 32, 4, 2
    for name, value in fields.items():
        setattr(made, name, value)
    return made


for fields in (
    {},
    {"WidthInBytes": 0},
    {"Height": 0},
    {"srcPitch": 31},
    {"dstPitch": 31},
    {"srcPitch": 0},
    {"dstPitch": 0},
    {"srcPitch": 0, "Height": 1},
    {"srcXInBytes": 40},
    {"dstXInBytes": 40},
    {"dstY": 1 << 26},
    {"dstY": 60},
    {"dstDevice": 0},
    {"srcHost": 0},
    {"dstDevice": 12345},
    {"srcMemoryType": ANY, "srcDevice": place},
    {"dstMemoryType": ANY, "dstDevice": memory},
    {"dstMemoryType": HOST, "dstHost": memory},
    {"srcMemoryType": DEVICE, "srcDevice": place},
    {"Height": 1 << 40},
    {"WidthInBytes": 1 << 40},
):
    copy = plane(**fields)
    names(driver.cuMemcpy2D(copy), driver.cuMemcpy2DUnaligned(copy), driver.cuMemcpy2DAsync(copy, stream))
    done(driver.cuStreamSynchronize(stream))
for fields in (
    {},
    {"WidthInBytes": 0},
    {"Height": 0},
    {"Depth": 0},
    {"srcPitch": 31},
    {"dstPitch": 31},
    {"srcHeight": 3},
    {"dstHeight": 3},
    {"srcHeight": 0},
    {"dstHeight": 0, "Depth": 1},
    {"dstZ": 1 << 23},
    {"dstZ": 6},
    {"srcLOD": 1},
    {"dstDevice": 0},
    {"Depth": 1 << 30},
):
    copy = volume(**fields)
    names(driver.cuMemcpy3D(copy), driver.cuMemcpy3DAsync(copy, stream))
    done(driver.cuStreamSynchronize(stream))
print(hashlib.sha256(read(memory, 4096)).hexdigest())

# Fills.
names(
    driver.cuMemsetD2D8(memory, 16, 1, 32, 2),
    driver.cuMemsetD2D8(memory, 0, 1, 32, 2),
    driver.cuMemsetD2D8(memory, 0, 1, 32, 1),
    driver.cuMemsetD2D8(memory, 64, 1, 0, 2),
    driver.cuMemsetD2D8(memory, 64, 1, 32, 0),
    driver.cuMemsetD2D8(memory, 1 << 30, 1, 64, 2),
    driver.cuMemsetD2D16(memory, 63, 1, 8, 2),
    driver.cuMemsetD2D32(memory, 66, 1, 8, 2),
)
names(
    driver.cuMemsetD16(memory + 1, 1, 4),
    driver.cuMemsetD32(memory + 2, 1, 4),
    driver.cuMemsetD32(memory, 1, 1 << 30),
    driver.cuMemsetD8(memory, 1, 0),
    driver.cuMemsetD8(0, 1, 0),
    driver.cuMemsetD8(0, 1, 1),
    driver.cuMemsetD8(place, 1, 1),
)

# Plain copies.
names(
    driver.cuMemcpyHtoD(memory, host, 0),
    driver.cuMemcpyHtoD(0, host, 0),
    driver.cuMemcpyHtoD(0, host, 1),
    driver.cuMemcpyDtoH(host, memory, 1 << 32),
    driver.cuMemcpyDtoH(host, memory + 4000, 96),
    driver.cuMemcpyDtoD(memory, memory + 8, 64),
    driver.cuMemcpy(memory, place, 64),
    driver.cuMemcpy(place, place + 64, 64),
    driver.cuMemcpyAsync(memory, 0, 4, stream),
    driver.cuMemcpyPeer(memory, 0, memory, 0, 4),
)
names(driver.cuStreamSynchronize(stream))

# What pitched memory there can be.
for width, height, element in (
    (1, 1, 4),
    (512, 1, 16),
    (513, 3, 8),
    (0, 1, 4),
    (1, 0, 4),
    (1, 1, 2),
    (1 << 45, 1, 4),
):
    result, address, pitch = driver.cuMemAllocPitch(width, height, element)
    print(width, height, element, result.name, pitch if int(result) == 0 else None)
    if int(result) == 0:
        print(done(driver.cuMemGetAddressRange(address))[1], int(address) % 512)
        done(driver.cuMemFree(address))
