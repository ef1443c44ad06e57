"""Two pools of one process, used by another one until after it was killed.

The parent imports what the child has made; both write. Prints what the parent sees.
"""

import ctypes
import os
import signal
import socket

from calls import KERNELS, done, launch, names, read, start
from cuda.bindings import driver

MEGABYTE = 1 << 20
SIZES = (64, 100, 3 * MEGABYTE)
FILE = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
ours, theirs = socket.socketpair()
child = os.fork()
device, context = start()
module = done(driver.cuModuleLoadData(KERNELS))
store = done(driver.cuModuleGetFunction(module, b"store"))
increment = done(driver.cuModuleGetFunction(module, b"increment"))
stream = done(driver.cuStreamCreate(1))


def number(address):
    return int.from_bytes(read(address), "little")


def export(address):
    told = done(driver.cuMemPoolExportPointer(address))
    return ctypes.string_at(told.getPtr(), 64)


def pointer(told):
    data = driver.CUmemPoolPtrExportData()
    ctypes.memmove(data.getPtr(), told, 64)
    return data


if child == 0:
    ours.close()
    properties = driver.CUmemPoolProps()
    properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.handleTypes = FILE
    pools = [done(driver.cuMemPoolCreate(properties)) for _ in range(2)]
    descriptors = [int(done(driver.cuMemPoolExportToShareableHandle(pool, FILE, 0))) for pool in pools]
    memories = [int(done(driver.cuMemAllocFromPoolAsync(size, pools[0], stream))) for size in SIZES]
    done(driver.cuDeviceSetMemPool(device, pools[1]))
    memories.append(int(done(driver.cuMemAllocAsync(4096, stream))))
    for at, memory in enumerate(memories):
        done(driver.cuMemsetD32Async(memory, 10 * at, 16, stream))
    done(driver.cuStreamSynchronize(stream))
    socket.send_fds(theirs, [b"".join(export(memory) for memory in memories)], descriptors)
    theirs.recv(1)
    for memory in memories:  # the parent has written there, too
        done(launch(increment, stream, memory))
    done(driver.cuMemFreeAsync(memories[0], stream))
    done(driver.cuStreamSynchronize(stream))
    theirs.send(b"1")
    theirs.recv(1)  # until it is killed
    os._exit(1)

theirs.close()
message, descriptors, _, _ = socket.recv_fds(ours, 4096, 2)
told = [message[at : at + 64] for at in range(0, len(message), 64)]
first, second = (done(driver.cuMemPoolImportFromShareableHandle(each, FILE, 0)) for each in descriptors)
memories = [int(done(driver.cuMemPoolImportPointer(first, pointer(each)))) for each in told[:3]]
memories.append(int(done(driver.cuMemPoolImportPointer(second, pointer(told[3])))))
print([number(memory) for memory in memories])
print([int(done(driver.cuMemGetAddressRange(memory))[1]) for memory in memories])
for memory in memories:
    done(launch(store, stream, memory, ctypes.c_uint32(number(memory) + 100)))
done(driver.cuMemcpyDtoDAsync(memories[2] + 8, memories[3] + 4, 4, stream))
done(driver.cuStreamSynchronize(stream))
ours.send(b"1")
ours.recv(1)
print([number(memory) for memory in memories], number(memories[2] + 8))
names(driver.cuMemFreeAsync(memories[0], stream), driver.cuMemFreeAsync(memories[0], stream))
done(driver.cuMemcpyDtoD(memories[1], memories[2], 100))
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
done(launch(increment, stream, memories[2]))
done(driver.cuStreamSynchronize(stream))
print([number(memory) for memory in memories[1:]])
names(driver.cuMemPoolDestroy(first), driver.cuMemFree(memories[1]), driver.cuMemFree(memories[1]))
names(driver.cuMemFreeAsync(memories[2], stream), driver.cuStreamSynchronize(stream))
names(driver.cuMemPoolDestroy(first), driver.cuMemPoolDestroy(second))
print(number(memories[3]))
names(driver.cuMemFreeAsync(memories[3], 0), driver.cuCtxSynchronize(), driver.cuMemPoolDestroy(second))
