import ctypes
import threading
import time

from calls import KERNELS, done, read, start
from cuda.bindings import driver

device, context = start()
module = done(driver.cuModuleLoadData(KERNELS))
increment = done(driver.cuModuleGetFunction(module, b"increment"))
memory = done(driver.cuMemAlloc(4))
done(driver.cuMemsetD32(memory, 0, 1))
plain, free = done(driver.cuStreamCreate(0)), done(driver.cuStreamCreateWithPriority(1, -1))
print(done(driver.cuStreamGetFlags(free)), done(driver.cuStreamGetPriority(free)))
print(done(driver.cuStreamGetPriority(plain)), int(done(driver.cuStreamIsCapturing(plain))))


def add(stream, times, word=memory):
    for _ in range(times):
        arguments = ((word,), (None,))
        done(driver.cuLaunchKernel(increment, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0))


before, after = (done(driver.cuEventCreate(0)) for _ in range(2))
print(driver.cuEventQuery(before)[0].name)  # never recorded
done(driver.cuEventRecord(before, free))
add(free, 50)
done(driver.cuEventRecord(after, free))
done(driver.cuStreamWaitEvent(plain, after, 0))
add(plain, 50)
add(0, 50)  # behind the plain one
done(driver.cuStreamSynchronize(0))
print(read(memory), driver.cuStreamQuery(plain)[0].name)
done(driver.cuEventSynchronize(after))
print(done(driver.cuEventElapsedTime(before, after)) >= 0)
untimed = done(driver.cuEventCreate(2))
done(driver.cuEventRecord(untimed, free))
print(driver.cuEventElapsedTime(before, untimed)[0].name)

order = []
HOST = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
host = HOST(lambda _argument: order.append("host"))
callback = CALLBACK(lambda _stream, status, argument: order.append((status, argument)))
library = ctypes.CDLL("libcuda.so.1")
assert library.cuLaunchHostFunc(ctypes.c_void_p(int(free)), host, None) == 0
assert library.cuStreamAddCallback(ctypes.c_void_p(int(free)), callback, ctypes.c_void_p(5), 0) == 0
done(driver.cuStreamSynchronize(free))
print(order)


def worker(word):
    done(driver.cuCtxSetCurrent(context))
    own = driver.CUstream(2)  # CU_STREAM_PER_THREAD
    add(own, 25, word)
    done(driver.cuStreamSynchronize(own))


words = done(driver.cuMemAlloc(16))  # each thread's own: increments of several streams may overlap
done(driver.cuMemsetD32(words, 0, 4))
places = [driver.CUdeviceptr(int(words) + 4 * number) for number in range(4)]
threads = [threading.Thread(target=worker, args=(place,)) for place in places]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
done(driver.cuCtxSynchronize())
print([read(place) for place in places])

# A wait of the default stream, if only for what is over, comes between what blocking streams do, and so does
# a graph whose kernels are disabled; a wait for what never was, and a graph of empty nodes or none, do not.
gate = int(done(driver.cuMemHostAlloc(8, 0)))
held, seen = (ctypes.c_uint32.from_address(gate + 4 * number) for number in range(2))
never = done(driver.cuEventCreate(0))
empty = done(driver.cuGraphInstantiate(done(driver.cuGraphCreate(0)), 0))
graph = done(driver.cuGraphCreate(0))
done(driver.cuGraphAddEmptyNode(graph, [], 0))
idle = done(driver.cuGraphInstantiate(graph, 0))
outer = done(driver.cuGraphCreate(0))
done(driver.cuGraphAddChildGraphNode(outer, [], 0, graph))
nested = done(driver.cuGraphInstantiate(outer, 0))
shape = driver.CUDA_KERNEL_NODE_PARAMS()
shape.func = done(driver.cuModuleGetFunction(module, b"nothing"))
shape.gridDimX = shape.gridDimY = shape.gridDimZ = shape.blockDimX = shape.blockDimY = shape.blockDimZ = 1
graph = done(driver.cuGraphCreate(0))
node = done(driver.cuGraphAddKernelNode(graph, [], 0, shape))
disabled = done(driver.cuGraphInstantiate(graph, 0))
done(driver.cuGraphNodeSetEnabled(disabled, node, 0))
other = done(driver.cuStreamCreate(0))
for act in (
    lambda: driver.cuStreamWaitEvent(0, untimed, 0),
    lambda: driver.cuStreamWaitEvent(0, never, 0),
    lambda: driver.cuGraphLaunch(empty, 0),
    lambda: driver.cuGraphLaunch(idle, 0),
    lambda: driver.cuGraphLaunch(nested, 0),
    lambda: driver.cuGraphLaunch(disabled, 0),
):
    held.value = seen.value = 0
    done(driver.cuMemsetD32(memory, 0, 1))
    done(driver.cuStreamWaitValue32(plain, gate, 1, 0))
    add(plain, 1)
    done(act())
    done(driver.cuMemcpyAsync(gate + 4, memory, 4, other))
    time.sleep(0.03)
    held.value = 1
    done(driver.cuCtxSynchronize())
    print(seen.value)

# Launches of one graph come one behind another, in whatever streams, unless it has empty nodes alone.
second = done(driver.cuStreamCreate(1))
for graph in (idle, nested, disabled):
    held.value = seen.value = 0
    done(driver.cuMemsetD32(memory, 0, 1))
    done(driver.cuStreamWaitValue32(free, gate, 1, 0))
    add(free, 1)
    done(driver.cuGraphLaunch(graph, free))
    done(driver.cuGraphLaunch(graph, second))
    done(driver.cuMemcpyAsync(gate + 4, memory, 4, second))
    time.sleep(0.03)
    held.value = 1
    done(driver.cuCtxSynchronize())
    print(seen.value)

# So does what the host itself copies for a blocking stream come behind the default one's work.
add(0, 1)  # so that it is loaded
held.value = seen.value = 0
done(driver.cuStreamWaitValue32(0, gate, 1, 0))
done(driver.cuMemsetD32Async(gate + 4, 5, 1, 0))
opener = threading.Timer(0.03, lambda: setattr(held, "value", 1))
opener.start()
done(driver.cuMemcpyAsync(ctypes.addressof(copied := ctypes.c_uint32()), gate + 4, 4, other))
done(driver.cuStreamSynchronize(other))
print(copied.value)
opener.join()
done(driver.cuStreamDestroy(plain))
done(driver.cuEventDestroy(before))
done(driver.cuCtxSynchronize())
