"""Two processes of one user: one opens the other's memory, by cuIpc and by descriptor, and awaits its event.

The first is the parent; each has a session of its own. Prints what the child says, then what the parent sees.
"""

import ctypes
import os
import socket
import sys

from calls import KERNELS, done, read, start
from cuda.bindings import driver

MEGABYTE = 1 << 20
ours, theirs = socket.socketpair()
child = os.fork()
device, context = start()
module = done(driver.cuModuleLoadData(KERNELS))
store = done(driver.cuModuleGetFunction(module, b"store"))
attributes = driver.CUdevice_attribute
FILE = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


def write(address, value):
    done(
        driver.cuLaunchKernel(
            store, 1, 1, 1, 1, 1, 1, 0, 0, ((address, value), (ctypes.c_uint64, ctypes.c_uint32)), 0
        )
    )
    done(driver.cuCtxSynchronize())


def mapped(handle, size):
    address = int(done(driver.cuMemAddressReserve(size, 0, 0, 0)))
    done(driver.cuMemMap(address, size, 0, handle, 0))
    access = driver.CUmemAccessDesc()
    access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = 0
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    done(driver.cuMemSetAccess(address, size, [access], 1))
    return address


def number(address):
    return int.from_bytes(read(address), "little")


if child == 0:
    ours.close()
    message, descriptors, _, _ = socket.recv_fds(theirs, 4096, 1)
    parts = [message[at : at + 64] for at in range(0, len(message), 64)]
    memories = []
    for part in parts[:2]:
        memories.append(driver.CUipcMemHandle())
        ctypes.memmove(memories[-1].getPtr(), part, 64)
    event_handle = driver.CUipcEventHandle()
    ctypes.memmove(event_handle.getPtr(), parts[2], 64)
    event = done(driver.cuIpcOpenEventHandle(event_handle))
    stream = done(driver.cuStreamCreate(1))
    done(driver.cuStreamWaitEvent(stream, event, 0))
    done(driver.cuStreamSynchronize(stream))
    done(driver.cuEventSynchronize(event))
    while driver.cuEventQuery(event)[0] == driver.CUresult.CUDA_ERROR_NOT_READY:
        pass
    large, small = (int(done(driver.cuIpcOpenMemHandle(handle, 1))) for handle in memories)
    again = int(done(driver.cuIpcOpenMemHandle(memories[0], 1)))
    said = [number(large), number(small), again == large, driver.cuIpcOpenMemHandle(memories[0], 7)[0].name]
    write(large + 4, 13)
    write(small + 4, 14)
    imported = done(driver.cuMemImportFromShareableHandle(descriptors[0], FILE))
    third = mapped(imported, 2 * MEGABYTE)
    said.append(number(third))
    write(third + 4, 15)
    theirs.sendall(repr(said).encode())
    theirs.recv(1)  # until the parent has ended
    write(large + 8, 99)
    print(number(large), number(large + 8), flush=True)
    for address in (large, again, small):
        done(driver.cuIpcCloseMemHandle(address))
    print(driver.cuIpcCloseMemHandle(large)[0].name, flush=True)
    done(driver.cuMemUnmap(third, 2 * MEGABYTE))
    done(driver.cuMemRelease(imported))
    done(driver.cuEventDestroy(event))
    done(driver.cuCtxSynchronize())
    os._exit(0)

theirs.close()
large, small = (int(done(driver.cuMemAlloc(size))) for size in (4 * MEGABYTE, 64))
properties = driver.CUmemAllocationProp()
properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
properties.location.id = 0
properties.requestedHandleTypes = FILE
created = done(driver.cuMemCreate(2 * MEGABYTE, properties, 0))
third = mapped(created, 2 * MEGABYTE)
event = done(driver.cuEventCreate(2 | 4))
for address, value in ((large, 3), (small, 4), (third, 5)):
    done(driver.cuMemsetD32Async(address, value, 2, 0))
done(driver.cuEventRecord(event, 0))
handles = [done(driver.cuIpcGetMemHandle(address)) for address in (large, small)]
handles.append(done(driver.cuIpcGetEventHandle(event)))
message = b"".join(ctypes.string_at(handle.getPtr(), 64) for handle in handles)
descriptor = int(done(driver.cuMemExportToShareableHandle(created, FILE, 0)))
socket.send_fds(ours, [message], [descriptor])
print(ours.recv(4096).decode())
print(number(large + 4), number(small + 4), number(third + 4))
print(driver.cuIpcOpenMemHandle(done(driver.cuIpcGetMemHandle(large)), 1)[0].name)
print(driver.cuIpcGetMemHandle(driver.CUdeviceptr(8))[0].name, driver.cuEventCreate(4)[0].name, flush=True)
done(driver.cuMemFree(large))
sys.exit()  # the child goes on
