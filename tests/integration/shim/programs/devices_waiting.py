"""What a stream does on two GPUs while it waits for what comes later holds up no other stream there."""

import ctypes
import sys
import threading
import time

from calls import KERNELS, done, read, start
from cuda.bindings import driver

SIZE = 6 << 20  # more than one piece
start()
contexts = [done(driver.cuDevicePrimaryCtxRetain(index)) for index in (0, 1)]
memory, streams = [], []
for context in contexts:
    done(driver.cuCtxSetCurrent(context))
    memory.append(int(done(driver.cuMemAlloc(SIZE))))
    done(driver.cuMemsetD8(memory[-1], len(memory), SIZE))
    streams.append([done(driver.cuStreamCreate(1)) for _ in range(4)])
done(driver.cuCtxSetCurrent(contexts[0]))
word = int(done(driver.cuMemAlloc(8)))
done(driver.cuMemsetD32(word, 0, 2))
pinned = int(done(driver.cuMemHostAlloc(4096, 2)))
flag = ctypes.c_uint32.from_address(pinned)


def copy(target, at, stream, size=SIZE):
    """To a GPU from the other one."""
    done(
        driver.cuMemcpyPeerAsync(at, contexts[target], memory[1 - target], contexts[1 - target], size, stream)
    )


def over(stream):
    """Has it ended, in a time in which it must?"""
    end = time.monotonic() + 10
    while (result := driver.cuStreamQuery(stream)[0]) == driver.CUresult.CUDA_ERROR_NOT_READY:
        if time.monotonic() > end:
            sys.exit("it waits for what has nothing to do with it")
    return result.name


# One waits for the host, one for what the other GPU sends last.
flag.value = 0
done(driver.cuStreamWaitValue32(streams[0][0], pinned, 1, 0))
copy(1, memory[1], streams[0][0])
done(driver.cuStreamWaitValue32(streams[0][1], word, 0x01010101, 1))
copy(1, memory[1], streams[0][1], 1 << 20)
done(driver.cuCtxSetCurrent(contexts[1]))
done(driver.cuMemsetD8Async(memory[1] + SIZE - 64, 1, 64, streams[1][0]))
done(driver.cuMemcpyPeerAsync(word, contexts[0], memory[1] + SIZE - 64, contexts[1], 4, streams[1][0]))
print(over(streams[1][0]), over(streams[0][1]), driver.cuStreamQuery(streams[0][0])[0].name)
copy(0, memory[0] + (1 << 20), streams[1][1], 1 << 20)
copy(0, memory[0] + (2 << 20), streams[1][2], 1 << 20)
print(over(streams[1][1]), over(streams[1][2]), driver.cuStreamQuery(streams[0][0])[0].name)
flag.value = 1
print(over(streams[0][0]))
for index, context in enumerate(contexts):
    done(driver.cuCtxSetCurrent(context))
    print(index, [read(memory[index] + (place << 20), 4).hex() for place in range(6)])

# Copies of one stream stay in order, and so do those of two that an event orders.
done(driver.cuCtxSetCurrent(contexts[0]))
event = done(driver.cuEventCreate(2))
for round_ in range(20):
    done(driver.cuMemsetD8Async(memory[0], round_, SIZE, streams[0][round_ % 4]))
    copy(1, memory[1], streams[0][round_ % 4])
    done(driver.cuEventRecord(event, streams[0][round_ % 4]))
    done(driver.cuStreamWaitEvent(streams[0][(round_ + 1) % 4], event, 0))
print(over(streams[0][3]))
done(driver.cuCtxSetCurrent(contexts[1]))
print(read(memory[1], 4).hex(), read(memory[1] + SIZE - 4, 4).hex())

# Graphs with a kernel on the second GPU, launched by two streams of the first: one waits there for the host.
may_end = threading.Event()


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def wait(_):
    may_end.wait(30)


def on_second(offset, waits):
    graph = done(driver.cuGraphCreate(0))
    node = driver.CUDA_KERNEL_NODE_PARAMS()
    node.func = increment
    node.gridDimX = node.gridDimY = node.gridDimZ = node.blockDimX = node.blockDimY = node.blockDimZ = 1
    node.kernelParams = ((memory[1] + offset,), (ctypes.c_uint64,))
    first = done(driver.cuGraphAddKernelNode(graph, [], 0, node))
    if waits:
        function = driver.CUDA_HOST_NODE_PARAMS()
        function.fn = ctypes.cast(wait, ctypes.c_void_p).value
        done(driver.cuGraphAddHostNode(graph, [first], 1, function))
    done(driver.cuCtxSetCurrent(contexts[0]))
    done(driver.cuGraphAddMemsetNode(graph, [first], 1, fill_of_first, contexts[0]))
    return done(driver.cuGraphInstantiate(graph, 0))


fill_of_first = driver.CUDA_MEMSET_NODE_PARAMS()
fill_of_first.dst, fill_of_first.elementSize, fill_of_first.width, fill_of_first.height = word, 4, 1, 1
done(driver.cuCtxSetCurrent(contexts[1]))
increment = done(driver.cuModuleGetFunction(done(driver.cuModuleLoadData(KERNELS)), b"increment"))
done(driver.cuMemsetD32(memory[1], 0, 16))
done(driver.cuCtxSynchronize())
waiting, other = on_second(0, True), on_second(32, False)
for _ in range(3):
    may_end.clear()
    done(driver.cuGraphLaunch(waiting, streams[0][2]))
    done(driver.cuGraphLaunch(other, streams[0][3]))
    print(over(streams[0][3]), driver.cuStreamQuery(streams[0][2])[0].name)
    may_end.set()
    print(over(streams[0][2]), memoryview(read(memory[1], 64)).cast("I").tolist()[::8])
