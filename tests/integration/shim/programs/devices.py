"""Two devices in one process: each with a context, memory and kernels; copies and waits between them."""

import ctypes
import time

from calls import KERNELS, done, read
from cuda.bindings import driver

MANY = 5 << 20  # bytes: more than a copy's piece, and no multiple of it
HOST = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
library = ctypes.CDLL("libcuda.so.1")

done(driver.cuInit(0))
print(done(driver.cuDeviceGetCount()), driver.cuDeviceGet(2)[0].name)
devices = [done(driver.cuDeviceGet(ordinal)) for ordinal in range(2)]
attribute = driver.CUdevice_attribute
places = [done(driver.cuDeviceGetPCIBusId(20, device)).split(b"\0")[0] for device in devices]
print([int(done(driver.cuDeviceGetByPCIBusId(place))) for place in places])
print(len({bytes(done(driver.cuDeviceGetUuid(device)).bytes) for device in devices}))
for asked in ("MULTIPROCESSOR_COUNT", "COMPUTE_CAPABILITY_MAJOR", "PCI_BUS_ID"):
    name = getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{asked}")
    print([done(driver.cuDeviceGetAttribute(name, device)) for device in devices])
print(done(driver.cuDeviceGetName(30, devices[0])) == done(driver.cuDeviceGetName(30, devices[1])))
print([done(driver.cuDevicePrimaryCtxGetState(device)) for device in devices])

contexts = [done(driver.cuDevicePrimaryCtxRetain(device)) for device in devices]


class On:
    """Everything that a program has on one device."""

    def __init__(self, ordinal):
        self.context = contexts[ordinal]
        done(driver.cuCtxSetCurrent(self.context))
        self.module = done(driver.cuModuleLoadData(KERNELS))
        self.store = done(driver.cuModuleGetFunction(self.module, b"store"))
        self.increment = done(driver.cuModuleGetFunction(self.module, b"increment"))
        self.memory = done(driver.cuMemAlloc(MANY))
        self.stream = done(driver.cuStreamCreate(1))
        self.event = done(driver.cuEventCreate(0))

    def add(self, times=1, stream=None):
        done(driver.cuCtxSetCurrent(self.context))
        for _ in range(times):
            arguments = ((self.memory,), (None,))
            stream_used = self.stream if stream is None else stream
            done(driver.cuLaunchKernel(self.increment, 1, 1, 1, 1, 1, 1, 0, stream_used, arguments, 0))


one, two = here = [On(0), On(1)]
for ordinal, each in enumerate(here):
    done(driver.cuCtxSetCurrent(each.context))
    print(int(done(driver.cuCtxGetDevice())), done(driver.cuModuleGetGlobal(each.module, b"seen"))[1])
    done(driver.cuMemsetD32(each.memory, 10 * (ordinal + 1), MANY // 4))
    done(driver.cuCtxSynchronize())
    each.add(3)
    done(driver.cuStreamSynchronize(each.stream))
    ordinals = [
        done(driver.cuPointerGetAttribute(driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at))
        for at in (each.memory, here[1 - ordinal].memory)
    ]
    print(read(each.memory), ordinals, int(done(driver.cuStreamGetDevice(each.stream))))
    owner = done(
        driver.cuPointerGetAttribute(driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_CONTEXT, each.memory)
    )
    print(int(owner) == int(each.context), int(done(driver.cuStreamGetCtx(each.stream))) == int(each.context))

# A kernel of one device on a stream of the other.
done(driver.cuCtxSetCurrent(one.context))
arguments = ((two.memory, 1), (None, ctypes.c_uint))
print(int(driver.cuLaunchKernel(two.store, 1, 1, 1, 1, 1, 1, 0, one.stream, arguments, 0)[0]) != 0)
print(driver.cuEventRecord(two.event, one.stream)[0].name)

# Copies, each in the order of what is on either side of it.
done(driver.cuMemcpyPeer(two.memory, two.context, one.memory, one.context, MANY))
print(read(two.memory), read(int(two.memory) + MANY - 4))
one.add(2)
done(driver.cuMemcpyPeerAsync(two.memory, two.context, one.memory, one.context, MANY, one.stream))
one.add(7)
done(driver.cuEventRecord(one.event, one.stream))
done(driver.cuStreamWaitEvent(two.stream, one.event, 0))
two.add(1)
done(driver.cuStreamSynchronize(two.stream))
print(read(one.memory), read(two.memory))
done(driver.cuMemsetD32(two.memory, 77, MANY // 4))
done(driver.cuCtxSynchronize())
done(driver.cuCtxSetCurrent(one.context))
done(driver.cuMemcpyDtoD(one.memory, two.memory, MANY))
print(read(one.memory), read(int(one.memory) + MANY - 4))
done(driver.cuMemcpyAsync(two.memory, one.memory, 8, two.stream))
two.add(1)
done(driver.cuMemcpyAsync(one.memory, two.memory, 8, two.stream))
done(driver.cuStreamSynchronize(two.stream))
print(read(one.memory, 8))

# From the default stream a copy stands between what either device was given before and is given later.
pause = HOST(lambda _argument: time.sleep(0.02))
for first in here:
    done(driver.cuCtxSetCurrent(first.context))
    assert library.cuLaunchHostFunc(None, pause, None) == 0
    two.add(stream=0)
    done(driver.cuCtxSetCurrent(one.context))
    done(driver.cuMemcpyDtoD(one.memory, two.memory, 4))
    two.add(stream=0)
    done(driver.cuCtxSynchronize())
    print(read(one.memory), read(two.memory))

# Memory of the other device, from a stream of this one.
done(driver.cuCtxSetCurrent(one.context))
print(driver.cuMemsetD32Async(two.memory, 5, 2, one.stream)[0].name)
source, back = bytearray(b"abcdefgh"), bytearray(8)
done(driver.cuMemcpyDtoHAsync(back, two.memory, 8, one.stream))
print(bytes(back))
done(driver.cuMemcpyHtoDAsync(int(two.memory) + 4, source, 4, one.stream))
source[:] = b"--------"
done(driver.cuStreamSynchronize(one.stream))
print(read(two.memory, 8))

rows = driver.CUDA_MEMCPY3D_PEER()
rows.srcMemoryType = rows.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
rows.srcDevice, rows.dstDevice = two.memory, one.memory
rows.srcContext, rows.dstContext = two.context, one.context
rows.srcPitch, rows.dstPitch, rows.WidthInBytes, rows.Height, rows.Depth = 16, 8, 4, 3, 1
done(driver.cuMemsetD8(one.memory, 1, 24))
print(driver.cuMemsetD8(two.memory, 2, 64)[0].name)
done(driver.cuCtxSetCurrent(two.context))
done(driver.cuMemsetD8(two.memory, 2, 64))
done(driver.cuCtxSetCurrent(one.context))
done(driver.cuMemcpy3DPeer(rows))
print(read(one.memory, 24))

# Pinned memory is everybody's.
pinned = done(driver.cuMemAllocHost(16))
words = (ctypes.c_uint32 * 4).from_address(int(pinned))
words[0] = 41
done(driver.cuMemcpyHtoDAsync(two.memory, pinned, 4, two.stream))
two.add()
done(driver.cuMemcpyDtoHAsync(int(pinned) + 4, two.memory, 4, two.stream))
done(driver.cuStreamSynchronize(two.stream))
print(list(words[:2]))

# A stream waits for another device's host function.
gate = []
function = HOST(lambda _argument: gate.append(read_later()))


def read_later():
    return len(gate)


done(driver.cuCtxSetCurrent(one.context))
done(driver.cuMemsetD32(one.memory, 100, 1))
done(driver.cuCtxSynchronize())
assert library.cuLaunchHostFunc(ctypes.c_void_p(int(one.stream)), function, None) == 0
one.add(1)
done(driver.cuMemcpyPeerAsync(two.memory, two.context, one.memory, one.context, 4, one.stream))
done(driver.cuEventRecord(one.event, one.stream))
done(driver.cuStreamWaitEvent(two.stream, one.event, 0))
two.add(1500)
done(driver.cuMemcpyPeerAsync(one.memory, one.context, two.memory, two.context, 4, two.stream))
done(driver.cuEventRecord(two.event, two.stream))
done(driver.cuStreamWaitEvent(one.stream, two.event, 0))
one.add(1)
done(driver.cuStreamSynchronize(one.stream))
print(read(one.memory), read(two.memory), gate)
print(driver.cuEventElapsedTime(one.event, two.event)[0].name)

for each in here:
    done(driver.cuCtxSetCurrent(each.context))
    done(driver.cuMemFree(each.memory))
    done(driver.cuModuleUnload(each.module))
    done(driver.cuStreamDestroy(each.stream))
    done(driver.cuEventDestroy(each.event))
for device in devices:
    done(driver.cuDevicePrimaryCtxRelease(device))
    print(done(driver.cuDevicePrimaryCtxGetState(device)))
