"""Streams write words and wait for them: device, pinned and registered memory, batches, graphs, mistakes."""

import ctypes
import mmap
import os
import time

from calls import KERNELS, done, read, start
from cuda.bindings import driver

device, context = start()
attribute = driver.CUdevice_attribute
for name in ("CAN_USE_64_BIT_STREAM_MEM_OPS", "CAN_USE_STREAM_WAIT_VALUE_NOR"):
    print(done(driver.cuDeviceGetAttribute(getattr(attribute, "CU_DEVICE_ATTRIBUTE_" + name), device)))
module = done(driver.cuModuleLoadData(KERNELS))
increment = done(driver.cuModuleGetFunction(module, b"increment"))
memory = done(driver.cuMemAlloc(64))
done(driver.cuMemsetD32(memory, 0, 16))
seen = memory
word = int(memory) + 8
pinned = done(driver.cuMemHostAlloc(4096, 2))
there = int(done(driver.cuMemHostGetDevicePointer(pinned, 0)))
flag = ctypes.c_uint32.from_address(int(pinned))
one, two = done(driver.cuStreamCreate(1)), done(driver.cuStreamCreate(1))
GEQ, EQ, AND, NOR = range(4)


def add(stream):
    done(driver.cuLaunchKernel(increment, 1, 1, 1, 1, 1, 1, 0, stream, ((memory,), (None,)), 0))


def number(address, size=4):
    return int.from_bytes(read(address, size), "little")


# One stream waits for the other.
done(driver.cuStreamWaitValue32(one, word, 5, GEQ))
add(one)
time.sleep(0.01)
print(driver.cuStreamQuery(one)[0].name)
done(driver.cuStreamWriteValue32(two, word, 7, 0))
done(driver.cuStreamSynchronize(one))
print(number(seen), number(word))

# The host ends a wait.
for value, condition, answer in ((3, EQ, 3), (4, AND, 6), (0xFFFFFFFE, NOR, 0xFFFFFFF0), (9, GEQ, 10)):
    flag.value = 0xFFFFFFFF if condition == NOR else 0
    done(driver.cuStreamWaitValue32(one, there, value, condition))
    add(one)
    time.sleep(0.01)
    before = driver.cuStreamQuery(one)[0].name
    flag.value = answer
    done(driver.cuStreamSynchronize(one))
    print(condition, before, number(seen))

# Words of eight bytes, to pinned memory too.
done(driver.cuStreamWriteValue64(two, there + 8, 1 << 40, 0))
done(driver.cuStreamWriteValue64(two, word + 8, (1 << 40) + 1, 0))
done(driver.cuStreamWaitValue64(one, word + 8, 1 << 40, GEQ))
done(driver.cuStreamSynchronize(one))
done(driver.cuStreamSynchronize(two))
print(ctypes.c_uint64.from_address(int(pinned) + 8).value, number(word + 8, 8))

# Registered memory that processes could share, by the host's address of it and by the GPU's.
file = os.memfd_create("words")
os.ftruncate(file, 4096)
shared = mmap.mmap(file, 4096)
host = ctypes.addressof(ctypes.c_char.from_buffer(shared))
done(driver.cuMemHostRegister(host, 4096, 2))
for number_of, at in enumerate((host, int(done(driver.cuMemHostGetDevicePointer(host, 0)))), 1):
    done(driver.cuStreamWaitValue32(one, at + 8, number_of, EQ))
    done(driver.cuStreamWriteValue32(one, at + 4, number_of, 0))
    done(driver.cuStreamWriteValue32(two, at + 12, number_of, 0))
    done(driver.cuStreamSynchronize(two))
    words = (ctypes.c_uint32 * 4).from_address(host)
    before = driver.cuStreamQuery(one)[0].name, *words
    words[2] = number_of
    done(driver.cuStreamSynchronize(one))
    print(before, *words)


def entry(kind, address, value, flags=0):
    parameters = driver.CUstreamBatchMemOpParams()
    parameters.operation = getattr(driver.CUstreamBatchMemOpType, "CU_STREAM_MEM_OP_" + kind)
    part = parameters.waitValue if kind.startswith("WAIT") else parameters.writeValue
    part.operation = parameters.operation
    part.address, part.value64, part.flags = driver.CUdeviceptr(address), driver.cuuint64_t(value), flags
    return parameters


batch = [
    entry("WRITE_VALUE_32", word, 20),
    entry("WAIT_VALUE_32", word + 4, 21, EQ),
    entry("WRITE_VALUE_32", word, 22),
]
done(driver.cuStreamBatchMemOp(one, len(batch), batch, 0))
done(driver.cuStreamWaitValue32(two, word, 20, EQ))
done(driver.cuStreamWriteValue32(two, word + 4, 21, 0))
done(driver.cuStreamSynchronize(one))
done(driver.cuStreamSynchronize(two))
print(number(word), number(word + 4))

# Captured, and launched twice.
done(driver.cuStreamBeginCapture(one, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
done(driver.cuStreamWaitValue32(one, there, 30, GEQ))
add(one)
done(driver.cuStreamWriteValue32(one, there, 0, 0))
graph = done(driver.cuStreamEndCapture(one))
nodes, count = done(driver.cuGraphGetNodes(graph, 3))
print([done(driver.cuGraphNodeGetType(node)).name for node in nodes[:count]])
parameters = done(driver.cuGraphBatchMemOpNodeGetParams(nodes[0]))
print(parameters.count, [int(each.waitValue.value) for each in parameters.paramArray[:1]])
executable = done(driver.cuGraphInstantiate(graph, 0))
flag.value = 0
for _ in range(2):
    done(driver.cuGraphLaunch(executable, one))
    before = driver.cuStreamQuery(one)[0].name
    flag.value = 31
    done(driver.cuStreamSynchronize(one))
    print(before, number(seen), flag.value)

for mistake in (
    lambda: driver.cuStreamWriteValue32(one, word + 2, 1, 0),
    lambda: driver.cuStreamWriteValue64(one, word + 4, 1, 0),
    lambda: driver.cuStreamWriteValue32(one, 0, 1, 0),
    lambda: driver.cuStreamWriteValue32(one, int(memory) + (1 << 30), 1, 0),
    lambda: driver.cuStreamWriteValue32(one, word, 1, 8),
    lambda: driver.cuStreamWaitValue32(one, word, 1, 8),
    lambda: driver.cuStreamWaitValue32(one, word, 1, 1 << 30),
    lambda: driver.cuStreamBatchMemOp(one, len(batch), batch, 1),
):
    print(mistake()[0].name)
done(driver.cuCtxSynchronize())
