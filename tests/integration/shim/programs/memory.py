import ctypes

from calls import done, read, start
from cuda.bindings import driver

device, _ = start()
host = bytes(range(256)) * 16
memory = done(driver.cuMemAlloc(4096))
other = done(driver.cuMemAlloc(4096))
done(driver.cuMemcpyHtoD(memory, host, 4096))
done(driver.cuMemcpyDtoD(other, memory, 4096))
print(read(other, 4096) == host)
done(driver.cuMemcpy(int(other) + 16, memory, 16))
print(read(other, 40).hex())
for fill, value, count in (
    (driver.cuMemsetD8, 0xAB, 5),
    (driver.cuMemsetD16, 0x1234, 3),
    (driver.cuMemsetD32, 0xDEADBEEF, 2),
):
    done(fill(memory, value, count))
    print(read(memory, 16).hex())
pitched, pitch = done(driver.cuMemAllocPitch(100, 8, 4))
done(driver.cuMemsetD2D8(pitched, pitch, 3, 100, 8))
print(pitch % 100 != 0, read(int(pitched) + 7 * pitch, 100).hex())
into = ctypes.create_string_buffer(800)
copy = driver.CUDA_MEMCPY2D()
copy.srcMemoryType, copy.srcDevice, copy.srcPitch = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE, pitched, pitch
copy.dstMemoryType, copy.dstHost = driver.CUmemorytype.CU_MEMORYTYPE_HOST, ctypes.addressof(into)
copy.dstPitch, copy.WidthInBytes, copy.Height = 100, 100, 8
done(driver.cuMemcpy2D(copy))
print(into.raw == b"\3" * 800)

pinned = done(driver.cuMemHostAlloc(8192, driver.CU_MEMHOSTALLOC_DEVICEMAP))
view = (ctypes.c_ubyte * 8192).from_address(int(pinned))
view[:16] = range(16)
print(int(done(driver.cuMemHostGetDevicePointer(pinned, 0))) == int(pinned))
done(driver.cuMemcpyHtoDAsync(memory, pinned, 16, 0))
done(driver.cuMemcpyDtoHAsync(int(pinned) + 100, memory, 16, 0))
done(driver.cuStreamSynchronize(0))
print(bytes(view[100:116]).hex())

kinds = driver.CUpointer_attribute
for address in (int(memory) + 8, int(pinned) + 8, ctypes.addressof(into)):
    status, kind = driver.cuPointerGetAttribute(kinds.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
    print(status.name, status.value == 0 and int(kind))
base, size = done(driver.cuMemGetAddressRange(int(memory) + 100))
print(int(base) == int(memory), size)
free, total = done(driver.cuMemGetInfo())
print(0 < free <= total)
print(driver.cuMemAlloc(0)[0].name, driver.cuMemFree(12345)[0].name, driver.cuMemFree(0)[0].name)
print(driver.cuMemAlloc(1 << 50)[0].name, driver.cuMemcpyHtoD(0, host, 4)[0].name)
done(driver.cuMemFree(memory))
print(driver.cuMemFree(memory)[0].name)
done(driver.cuMemFreeHost(pinned))
