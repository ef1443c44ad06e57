"""Copies and fills of rows, of layers and in batches, between every two kinds of memory; and wrong ones."""

import ctypes

from calls import done, read, start
from cuda.bindings import driver

start()
types = driver.CUmemorytype
HOST, DEVICE, ANY = types.CU_MEMORYTYPE_HOST, types.CU_MEMORYTYPE_DEVICE, types.CU_MEMORYTYPE_UNIFIED
WIDTH, HEIGHT = 40, 6
stream = done(driver.cuStreamCreate(1))
source = (ctypes.c_uint8 * 512)(*[i % 251 for i in range(512)])
back = (ctypes.c_uint8 * 512)()
there = ctypes.addressof(back)
pitched, pitch = done(driver.cuMemAllocPitch(WIDTH, HEIGHT, 4))
print(pitch % 512)
done(driver.cuMemsetD8(pitched, 0, pitch * HEIGHT))


def described(kind, **fields):
    description = kind()
    for name, value in fields.items():
        setattr(description, name, value)
    return description


def show():
    ctypes.memset(back, 0, 512)
    out = described(driver.CUDA_MEMCPY2D, dstMemoryType=ANY, dstDevice=there, dstPitch=50, srcMemoryType=ANY)
    out.srcDevice, out.srcPitch, out.WidthInBytes, out.Height = pitched, pitch, WIDTH, HEIGHT
    done(driver.cuMemcpy2DUnaligned(out))
    print(bytes(back).hex())


rows = described(driver.CUDA_MEMCPY2D, srcMemoryType=HOST, srcHost=ctypes.addressof(source), srcPitch=64)
rows.srcXInBytes, rows.srcY = 3, 1
rows.dstMemoryType, rows.dstDevice, rows.dstPitch, rows.dstXInBytes, rows.dstY = DEVICE, pitched, pitch, 4, 2
rows.WidthInBytes, rows.Height = 20, 3
done(driver.cuMemcpy2D(rows))
show()
done(driver.cuMemsetD2D8(pitched, pitch, 9, 10, 2))
done(driver.cuMemsetD2D16(int(pitched) + pitch * 2, pitch, 0x102, 5, 2))
done(driver.cuMemsetD2D32Async(int(pitched) + pitch * 4, pitch, 0x01020304, 5, 2, stream))
done(driver.cuStreamSynchronize(stream))
show()

cube, other = done(driver.cuMemAlloc(4096)), done(driver.cuMemAlloc(4096))
done(driver.cuMemsetD8(cube, 0, 4096))
done(driver.cuMemsetD8(other, 1, 4096))
layers = described(driver.CUDA_MEMCPY3D, srcMemoryType=HOST, srcHost=ctypes.addressof(source), srcPitch=16)
layers.srcHeight, layers.srcXInBytes, layers.srcY, layers.srcZ = 4, 2, 1, 1
layers.dstMemoryType, layers.dstDevice, layers.dstPitch, layers.dstHeight = DEVICE, cube, 32, 5
layers.dstXInBytes, layers.dstY, layers.dstZ = 1, 2, 3
layers.WidthInBytes, layers.Height, layers.Depth = 8, 2, 3
done(driver.cuMemcpy3D(layers))
print(read(cube, 1400).hex())
inside = described(driver.CUDA_MEMCPY3D, srcMemoryType=DEVICE, srcDevice=cube, srcPitch=32, srcHeight=5)
inside.dstMemoryType, inside.dstDevice, inside.dstPitch, inside.dstHeight = DEVICE, other, 40, 6
inside.WidthInBytes, inside.Height, inside.Depth = 30, 5, 6
done(driver.cuMemcpy3DAsync(inside, stream))
done(driver.cuStreamSynchronize(stream))
print(read(other, 1440).hex())
peer = described(driver.CUDA_MEMCPY3D_PEER, srcMemoryType=DEVICE, srcDevice=other, srcPitch=40, srcHeight=6)
peer.dstMemoryType, peer.dstDevice, peer.dstPitch, peer.dstHeight = DEVICE, cube, 32, 5
peer.srcContext = peer.dstContext = done(driver.cuCtxGetCurrent())
peer.WidthInBytes, peer.Height, peer.Depth = 12, 3, 2
done(driver.cuMemcpy3DPeer(peer))
done(driver.cuMemcpy3DPeerAsync(peer, stream))
done(driver.cuStreamSynchronize(stream))
print(read(cube, 1400).hex())

attributes = driver.CUmemcpyAttributes()
attributes.srcAccessOrder = driver.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
two = *([driver.CUdeviceptr(int(at) + step) for step in (0, 512)] for at in (cube, other)), [16, 32]
done(driver.cuMemcpyBatchAsync(*two, 2, [attributes], [0], 1, stream))
done(driver.cuStreamSynchronize(stream))
print(read(cube, 600).hex())

inside.dstDevice = 0
rows.WidthInBytes = pitch + 1
wrong = [
    driver.cuMemcpy2D(rows),
    driver.cuMemcpy3D(inside),
    driver.cuMemAllocPitch(0, 1, 4),
    driver.cuMemAllocPitch(4, 1, 3),
    driver.cuMemsetD2D32(int(cube) + 1, 32, 1, 2, 2),
    driver.cuMemcpyBatchAsync(*two, 2, [attributes], [0], 1, 0),
    driver.cuMemcpyDtoH(back, other, 1 << 40),
    driver.cuMemcpyHtoDAsync(other, back, 1 << 40, stream),
    driver.cuMemcpyDtoDAsync(cube, other, 1 << 40, stream),
    driver.cuMemcpyHtoD(12345, bytes(4), 4),
    driver.cuMemcpyDtoD(cube, 12345, 4),
    driver.cuMemsetD8(12345, 0, 4),
    driver.cuMemsetD8(cube, 0, 1 << 40),
    driver.cuMemFree(12345),
    driver.cuMemFree(int(cube) + 4),
    driver.cuMemFree(0),
]
print([answer[0].name for answer in wrong])
