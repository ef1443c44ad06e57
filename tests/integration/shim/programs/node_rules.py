"""What nodes of graphs take: other fills and copies in executable graphs, and attributes of kernels.

A line for each pair of shapes: whether the node may have the second one, then whether an executable graph of
the first may be updated to a graph of the second. Then a line for each attribute and value.
"""

import ctypes
import itertools

from calls import KERNELS, done, short, start
from cuda.bindings import driver

device, context = start()
types = driver.CUmemorytype
memory, other = (int(done(driver.cuMemAlloc(4096))) for _ in range(2))
pinned = int(done(driver.cuMemHostAlloc(4096, 0)))
module = done(driver.cuModuleLoadData(KERNELS))
kernel = done(driver.cuModuleGetFunction(module, b"increment"))


def fill(element, width, height, pitch, address=memory):
    made = driver.CUDA_MEMSET_NODE_PARAMS()
    made.dst, made.elementSize, made.value = address, element, 3
    made.width, made.height, made.pitch = width, height, pitch
    return made


def copy(ends, width, height, depth, pitch):
    made = driver.CUDA_MEMCPY3D()
    places = {
        "device": (types.CU_MEMORYTYPE_DEVICE, memory, other),
        "host": (types.CU_MEMORYTYPE_HOST, pinned, pinned),
    }
    for prefix, place, which in zip(("src", "dst"), ends, (1, 2), strict=True):
        kind = places[place]
        setattr(made, prefix + "MemoryType", kind[0])
        setattr(made, prefix + ("Host" if place == "host" else "Device"), kind[which] + 2048 * (which - 1))
        setattr(made, prefix + "Pitch", pitch)
        setattr(made, prefix + "Height", height)
    made.WidthInBytes, made.Height, made.Depth = width, height, depth
    return made


def graph_of(kind, shape):
    graph = done(driver.cuGraphCreate(0))
    answer = getattr(driver, f"cuGraphAdd{kind}Node")(graph, None, 0, shape, context)
    return graph, answer[1] if int(answer[0]) == 0 else short(answer)


FILLS = (
    (4, 4, 1, 16),
    (4, 8, 1, 16),
    (4, 8, 1, 0),
    (1, 4, 1, 16),
    (2, 4, 1, 16),
    (4, 4, 2, 16),
    (4, 4, 2, 32),
)
FILLS += (
    (4, 8, 2, 32),
    (1, 4, 2, 16),
    (4, 4, 3, 16),
    (4, 8, 2, 16),
    (4, 0, 1, 16),
    (4, 4, 0, 16),
    (3, 4, 1, 16),
)
HERE, DOWN, UP = ("device", "device"), ("host", "device"), ("device", "host")
COPIES = ((HERE, 32, 1, 1, 32), (HERE, 16, 1, 1, 32), (HERE, 32, 2, 1, 32), (HERE, 16, 2, 1, 32))
COPIES += ((HERE, 16, 2, 2, 32), (HERE, 32, 3, 1, 32), (DOWN, 32, 1, 1, 32), (DOWN, 32, 2, 1, 32))
COPIES += (
    (UP, 32, 1, 1, 32),
    (UP, 16, 2, 1, 16),
    (HERE, 32, 2, 1, 16),
    (HERE, 0, 1, 1, 32),
    (HERE, 16, 1, 2, 32),
)
for kind, shapes in (
    ("Memset", [fill(*each) for each in FILLS]),
    ("Memcpy", [copy(*each) for each in COPIES]),
):
    names = FILLS if kind == "Memset" else COPIES
    for (number, shape), (then, wanted) in itertools.product(enumerate(shapes), repeat=2):
        graph, node = graph_of(kind, shape)
        if isinstance(node, str):
            if then == 0:
                print(kind, *names[number], node)
            continue
        executable = done(driver.cuGraphInstantiate(graph, 0))
        set_node = short(getattr(driver, f"cuGraph{kind}NodeSetParams")(node, wanted))
        change = getattr(driver, f"cuGraphExec{kind}NodeSetParams")(executable, node, wanted, context)
        source, added = graph_of(kind, wanted)
        fresh, _ = graph_of(kind, shape)
        second = done(driver.cuGraphInstantiate(fresh, 0))
        updated = added if isinstance(added, str) else short(driver.cuGraphExecUpdate(second, source))
        launched = [short(driver.cuGraphLaunch(each, 0)) for each in (executable, second)]
        done(driver.cuCtxSynchronize())
        print(kind, *names[number], "to", *names[then], set_node, short(change), updated, *launched)

stored = ctypes.c_uint64(memory)
pointers = (ctypes.c_void_p * 1)(ctypes.addressof(stored))
params = driver.CUDA_KERNEL_NODE_PARAMS()
params.func, params.kernelParams = kernel, ctypes.addressof(pointers)
params.gridDimX, params.gridDimY, params.gridDimZ = 4, 1, 1
params.blockDimX, params.blockDimY, params.blockDimZ = 8, 1, 1
NAMES = ("IGNORE", "ACCESS_POLICY_WINDOW", "COOPERATIVE", "SYNCHRONIZATION_POLICY", "CLUSTER_DIMENSION")
NAMES += ("CLUSTER_SCHEDULING_POLICY_PREFERENCE", "PROGRAMMATIC_STREAM_SERIALIZATION", "PROGRAMMATIC_EVENT")
NAMES += ("PRIORITY", "MEM_SYNC_DOMAIN_MAP", "MEM_SYNC_DOMAIN", "LAUNCH_COMPLETION_EVENT")
NAMES += ("PREFERRED_SHARED_MEMORY_CARVEOUT",)
SIZE = 64


def value(content):
    made = driver.CUkernelNodeAttrValue()
    ctypes.memmove(made.getPtr(), bytes(content) + bytes(SIZE - len(content)), SIZE)
    return made


def content(made):
    return ctypes.string_at(made.getPtr(), 24).hex()


def word(number):
    return number.to_bytes(4, "little", signed=True)


VALUES = {
    "COOPERATIVE": (word(0), word(1), word(2)),
    "SYNCHRONIZATION_POLICY": (word(0), word(1), word(4), word(9)),
    "CLUSTER_DIMENSION": tuple(
        word(x) + word(y) + word(1) for x, y in ((1, 1), (2, 1), (3, 1), (0, 0), (16, 1))
    ),
    "CLUSTER_SCHEDULING_POLICY_PREFERENCE": (word(0), word(1), word(2), word(9)),
    "PROGRAMMATIC_STREAM_SERIALIZATION": (word(0), word(1)),
    "PRIORITY": (word(-5), word(-9), word(-1), word(0), word(3)),
    "MEM_SYNC_DOMAIN_MAP": (bytes((0, 1)), bytes((1, 0)), bytes((9, 9))),
    "MEM_SYNC_DOMAIN": (word(0), word(1), word(7)),
    "PREFERRED_SHARED_MEMORY_CARVEOUT": (word(-1), word(0), word(50), word(101)),
}
for name in NAMES:
    attribute = getattr(driver.CUlaunchAttributeID, "CU_LAUNCH_ATTRIBUTE_" + name)
    for wanted in VALUES.get(name, (bytes(4),)):
        graph = done(driver.cuGraphCreate(0))
        node, second = (done(driver.cuGraphAddKernelNode(graph, None, 0, params)) for _ in range(2))
        answer = driver.cuGraphKernelNodeGetAttribute(node, attribute)
        line = [content(answer[1]) if int(answer[0]) == 0 else short(answer)]
        line.append(short(driver.cuGraphKernelNodeSetAttribute(node, attribute, value(wanted))))
        line.append(short(driver.cuGraphKernelNodeCopyAttributes(second, node)))
        for each in (node, second):
            answer = driver.cuGraphKernelNodeGetAttribute(each, attribute)
            line.append(content(answer[1]) if int(answer[0]) == 0 else short(answer))
        answer = driver.cuGraphInstantiate(graph, 0)
        line.append(short(answer))
        if int(answer[0]) == 0:
            line.append(short(driver.cuGraphLaunch(answer[1], 0)))
            done(driver.cuCtxSynchronize())
        print(name, wanted.hex(), *line)
