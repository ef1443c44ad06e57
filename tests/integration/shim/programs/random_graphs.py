"""Random calls on graphs made by hand: nodes, edges, clones, children, updates, launches.

    random_graphs.py SEED CALLS

Nodes may run in any order and more than once at a time, so each kernel adds to a word of its own atomically,
and what fills and copies leave in a place does not depend on which node does it. Each launch is waited for.
"""

import ctypes
import hashlib
import random
import sys

from calls import call, done, start
from cuda.bindings import driver

KERNEL = b"""
.version 7.8
.target sm_80
.address_size 64
.visible .entry add(.param .u64 address, .param .u32 value)
{
    .reg .b64 %rd<2>; .reg .b32 %r<3>;
    ld.param.u64 %rd1, [address];
    ld.param.u32 %r1, [value];
    red.global.add.u32 [%rd1], %r1;
    ret;
}
"""
PLACES = 24  # of each kind of node
ROOM = 64

chance = random.Random(int(sys.argv[1]))
device, context = start()
kernel = done(driver.cuModuleGetFunction(done(driver.cuModuleLoadData(KERNEL)), b"add"))
words, fills, copies, source = (int(done(driver.cuMemAlloc(PLACES * ROOM))) for _ in range(4))
for address in (words, fills, copies):
    done(driver.cuMemsetD8(address, 0, PLACES * ROOM))
done(driver.cuMemcpyHtoD(source, bytes(i * 7 & 255 for i in range(PLACES * ROOM)), PLACES * ROOM))
done(driver.cuCtxSynchronize())
streams = [
    driver.CUstream(0),
    driver.CUstream(1),
    done(driver.cuStreamCreate(1)),
    done(driver.cuStreamCreate(0)),
]
events = [done(driver.cuEventCreate(0)), done(driver.cuEventCreate(2))]
numbers = iter(range(10**9))
graphs, nodes, executables, made_of = (
    {},
    {},
    {},
    {},
)  # nodes: handle, kind and graph; of executables the graph
kept = []


def any_of(things):
    return chance.choice(list(things)) if things else None


def often(value, *others):
    return chance.choice((value,) * 12 + others)


def of(graph):
    return [number for number, (_, _, its) in nodes.items() if its == graph]


def kernel_parameters():
    params = driver.CUDA_KERNEL_NODE_PARAMS()
    values = ctypes.c_uint64(words + chance.randrange(PLACES) * ROOM), ctypes.c_uint32(chance.randrange(1, 9))
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
    kept.append((values, pointers))
    params.func, params.kernelParams = kernel, ctypes.addressof(pointers)
    params.gridDimX, params.gridDimY, params.gridDimZ = often(1, 3, 0), 1, 1
    params.blockDimX, params.blockDimY, params.blockDimZ = often(1, 32, 1025), 1, 1
    params.sharedMemBytes = often(0, 1024, 300000)
    return params


def fill_parameters():
    params, place = driver.CUDA_MEMSET_NODE_PARAMS(), chance.randrange(PLACES)
    params.dst, params.elementSize = fills + place * ROOM, often(4, 1, 2, 3)
    params.value = int.from_bytes(bytes([place]) * params.elementSize)  # whatever the width, the same bytes
    params.width, params.height, params.pitch = often(4, 0, 8), often(1, 1, 2), often(16, 32)
    return params


def copy_parameters():
    params, place = driver.CUDA_MEMCPY3D(), chance.randrange(PLACES)
    params.srcMemoryType = params.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    params.srcDevice, params.dstDevice = source + place * ROOM, copies + place * ROOM
    params.WidthInBytes, params.Height, params.Depth = often(32, 0, 7), often(1, 2), often(1, 0)
    params.srcPitch = params.dstPitch = often(0, 32)
    return params


def event_of_graph():
    return chance.choice(events)


def after(graph):
    """Nodes to come after, now and then of another graph or one twice."""
    mine = of(graph)
    chosen = chance.sample(mine, min(len(mine), chance.randrange(3)))
    if chance.random() < 0.05 and nodes:
        chosen.append(any_of(nodes))
    return [nodes[number][0] for number in chosen]


def add():
    if (graph := any_of(graphs)) is None:
        return
    kind = chance.choice(
        ("Kernel",) * 4 + ("Memset", "Memcpy", "Empty", "EventRecord", "EventWait", "ChildGraph")
    )
    before = after(graph)
    begin = ("cuGraphAdd" + kind + "Node", graphs[graph], before, len(before))
    if kind == "Kernel":
        node = call(*begin, kernel_parameters())
    elif kind == "Memset":
        node = call(*begin, fill_parameters(), context)
    elif kind == "Memcpy":
        node = call(*begin, copy_parameters(), context)
    elif kind == "Empty":
        node = call(*begin)
    elif kind == "ChildGraph":
        # Graphs within graphs within graphs grow fast; one within itself crashes driver 580.
        child = any_of([other for other in graphs if other != graph and len(of(other)) < 6])
        if child is None or any(nodes[number][1] == "ChildGraph" for number in of(child)):
            return
        node = call(*begin, graphs[child])
    else:
        node = call(*begin, event_of_graph())
    if node is not None:
        nodes[next(numbers)] = (node, kind, graph)


def create():
    if len(graphs) < 6 and (graph := call("cuGraphCreate", often(0, 1))) is not None:
        graphs[next(numbers)] = graph


def destroy():
    if len(graphs) > 2 and chance.random() < 0.5:
        graph = any_of(graphs)
        for number in of(graph):
            del nodes[number]
        call("cuGraphDestroy", graphs.pop(graph))
    elif len(executables) > 2:
        call("cuGraphExecDestroy", executables.pop(any_of(executables)))


def clone():
    if len(graphs) < 6 and (graph := any_of(graphs)) is not None:
        copy = call("cuGraphClone", graphs[graph])
        if copy is None:
            return
        number = next(numbers)
        graphs[number] = copy
        for original in of(graph):
            handle, kind, _ = nodes[original]
            if (found := call("cuGraphNodeFindInClone", handle, copy)) is not None:
                nodes[next(numbers)] = (found, kind, number)


def look_for():
    if nodes and graphs:
        result, _ = driver.cuGraphNodeFindInClone(nodes[any_of(nodes)][0], graphs[any_of(graphs)])
        print("looked for", result.name)


def edges():
    graph = any_of(graphs)
    mine = of(graph) if graph is not None else []
    if len(mine) < 2:
        return
    ends = [sorted(chance.sample(mine, 2)) for _ in range(chance.choice((1, 1, 2)))]
    if chance.random() < 0.08:
        ends[0] = chance.choice((ends[0][::-1], [ends[0][0]] * 2, [any_of(nodes), any_of(nodes)]))
    name = chance.choice(("cuGraphAddDependencies", "cuGraphAddDependencies", "cuGraphRemoveDependencies"))
    froms, tos = ([nodes[end[side]][0] for end in ends] for side in (0, 1))
    call(name, graphs[graph], froms, tos, None, len(ends))


def drop():
    number = any_of(nodes)
    # An executable graph's nodes are still asked about by the nodes that it was made of.
    if number is None or nodes[number][2] in made_of.values():
        return
    if call("cuGraphDestroyNode", nodes[number][0]) is not None:
        del nodes[number]


def ask():
    if (graph := any_of(graphs)) is not None:
        print(done(driver.cuGraphGetNodes(graphs[graph], 0))[1], end=" ")
        print(done(driver.cuGraphGetRootNodes(graphs[graph], 0))[1], end=" ")
        print(done(driver.cuGraphGetEdges(graphs[graph], 0))[-1], "in the graph")
    if (number := any_of(nodes)) is not None:
        node, kind, _ = nodes[number]
        print(kind, done(driver.cuGraphNodeGetType(node)).name, end=" ")
        print(done(driver.cuGraphNodeGetDependencies(node, 0))[-1], end=" ")
        print(done(driver.cuGraphNodeGetDependentNodes(node, 0))[-1])
        ask_parameters(node, kind)


def ask_parameters(node, kind):
    if kind == "Kernel" and (params := call("cuGraphKernelNodeGetParams", node)) is not None:
        print(params.gridDimX, params.blockDimX, params.sharedMemBytes)
    elif kind == "Memset" and (params := call("cuGraphMemsetNodeGetParams", node)) is not None:
        print(
            int(params.dst) - fills,
            params.elementSize,
            params.value,
            params.width,
            params.height,
            params.pitch,
        )
    elif kind == "Memcpy" and (params := call("cuGraphMemcpyNodeGetParams", node)) is not None:
        print(
            int(params.dstDevice) - copies, params.WidthInBytes, params.Height, params.Depth, params.dstPitch
        )
    elif kind == "ChildGraph" and (child := call("cuGraphChildGraphNodeGetGraph", node)) is not None:
        print(done(driver.cuGraphGetNodes(child, 0))[1], "in the child")


def attributes():
    number = any_of([number for number, (_, kind, _) in nodes.items() if kind == "Kernel"])
    if number is None:
        return
    node, attribute = nodes[number][0], driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PRIORITY
    value = driver.CUkernelNodeAttrValue()
    value.priority = chance.choice((-5, -1, 0, 3))
    call("cuGraphKernelNodeSetAttribute", node, attribute, value)
    if (got := call("cuGraphKernelNodeGetAttribute", nodes[any_of([number])][0], attribute)) is not None:
        print(got.priority)


def set_parameters():
    number = any_of(nodes)
    if number is None:
        return
    node, kind, _ = nodes[number]
    if kind == "Kernel":
        call("cuGraphKernelNodeSetParams", node, kernel_parameters())
    elif kind == "Memset":
        call("cuGraphMemsetNodeSetParams", node, fill_parameters())
    elif kind == "Memcpy":
        call("cuGraphMemcpyNodeSetParams", node, copy_parameters())
    elif kind.startswith("Event"):
        call(f"cuGraph{kind}NodeSetEvent", node, event_of_graph())


def instantiate():
    if len(executables) < 6 and (graph := any_of(graphs)) is not None:
        made = call("cuGraphInstantiate", graphs[graph], often(0, 1, 8, 64))
        if made is not None:
            number = next(numbers)
            executables[number], made_of[number] = made, graph
            print(int(done(driver.cuGraphExecGetFlags(made))))


def change():
    """An executable graph's node."""
    executable = any_of(executables)
    if executable is None:
        return
    number = any_of(nodes if chance.random() < 0.1 else of(made_of[executable]))
    if number is None:
        return
    (node, kind, _), made = nodes[number], executables[executable]
    if kind in ("Kernel", "Memset", "Memcpy") and chance.random() < 0.4:
        call("cuGraphNodeSetEnabled", made, node, chance.choice((0, 1)))
        print(call("cuGraphNodeGetEnabled", made, node))
    elif kind == "Kernel":
        call("cuGraphExecKernelNodeSetParams", made, node, kernel_parameters())
    elif kind == "Memset":
        call("cuGraphExecMemsetNodeSetParams", made, node, fill_parameters(), context)
    elif kind == "Memcpy":
        call("cuGraphExecMemcpyNodeSetParams", made, node, copy_parameters(), context)
    elif kind.startswith("Event"):
        call(f"cuGraphExec{kind}NodeSetEvent", made, node, event_of_graph())


def update():
    executable, graph = any_of(executables), any_of(graphs)
    if executable is None or graph is None:
        return
    if chance.random() < 0.6 and made_of[executable] in graphs:
        graph = made_of[executable]
    result, info = driver.cuGraphExecUpdate(executables[executable], graphs[graph])
    print("cuGraphExecUpdate", result.name, info.result.name if int(result) == 0 else "")


def launch():
    if (executable := any_of(executables)) is not None:
        if chance.random() < 0.2:
            call("cuGraphUpload", executables[executable], chance.choice(streams))
        call("cuGraphLaunch", executables[executable], chance.choice(streams))
        call("cuCtxSynchronize")


def look():
    for address in (words, fills, copies):
        content = bytearray(PLACES * ROOM)
        done(driver.cuMemcpyDtoH(content, address, len(content)))
        print(hashlib.md5(content).hexdigest())


OFTEN = {create: 2, destroy: 2, clone: 2, look_for: 1, add: 24, edges: 10, drop: 3, ask: 8, attributes: 2}
OFTEN |= {set_parameters: 6, instantiate: 5, change: 8, update: 5, launch: 12, look: 3}

create()
for _ in range(int(sys.argv[2])):
    chance.choices(list(OFTEN), OFTEN.values())[0]()
look()
