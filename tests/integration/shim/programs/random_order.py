"""Random work on many streams, nothing of which is waited for: what CUDA orders comes in that order.

    random_order.py SEED OPERATIONS GPUS

Each piece of work draws a number from its GPU's counter when it begins, and one when it ends. For each is
kept what must be over before it begins, and so it is for each time that the program is told of an end.
"""

import ctypes
import random
import sys

from calls import done
from cuda.bindings import driver

KERNEL = b"""
.version 7.8
.target sm_80
.address_size 64
.visible .entry work(.param .u64 counter, .param .u64 log, .param .u64 nanoseconds)
{
    .reg .b64 %rd<7>; .reg .b32 %r<3>; .reg .pred %p1;
    ld.param.u64 %rd1, [counter];
    ld.param.u64 %rd2, [log];
    ld.param.u64 %rd3, [nanoseconds];
    atom.sys.global.add.u32 %r1, [%rd1], 1;
    st.global.u32 [%rd2], %r1;
    mov.u64 %rd4, %globaltimer;
L:  mov.u64 %rd5, %globaltimer;
    sub.s64 %rd6, %rd5, %rd4;
    setp.lt.s64 %p1, %rd6, %rd3;
    @%p1 bra L;
    atom.sys.global.add.u32 %r2, [%rd1], 1;
    st.global.u32 [%rd2+4], %r2;
    ret;
}
"""
LOG = 4096  # where the log begins, behind the counter
chance, wanted, gpus = random.Random(int(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
done(driver.cuInit(0))
contexts, kernels, shared = [], [], []
for gpu in range(gpus):
    contexts.append(done(driver.cuDevicePrimaryCtxRetain(done(driver.cuDeviceGet(gpu)))))
    done(driver.cuCtxSetCurrent(contexts[gpu]))
    module = done(driver.cuModuleLoadData(KERNEL))
    kernels.append(done(driver.cuModuleGetFunction(module, b"work")))
    shared.append(int(done(driver.cuMemHostAlloc(LOG + 8 * (wanted + 16), 3))))
    ctypes.memset(shared[gpu], 0, LOG + 8 * (wanted + 16))
counters = [ctypes.c_uint32.from_address(address) for address in shared]


class Stream:
    def __init__(self, gpu, flags=None):
        done(driver.cuCtxSetCurrent(contexts[gpu]))
        self.gpu, self.legacy, self.blocking = gpu, flags is None, flags != 1
        priority = chance.choice([0, -1, -3])
        self.handle = 0 if flags is None else done(driver.cuStreamCreateWithPriority(flags, priority))
        self.given = 0  # all that was, and what had to be over before that: bits
        self.last = (
            0  # the same up to its last work, without waits behind that: to who waits they may be none
        )
        self.gone = 0  # a default stream's: of blocking streams that are no more


class Event:
    def __init__(self, gpu):
        done(driver.cuCtxSetCurrent(contexts[gpu]))
        self.gpu, self.handle = gpu, done(driver.cuEventCreate(chance.choice([0, 2])))
        self.behind = None  # never recorded


class Graph:
    """Kernels and nodes without work, each behind some of those before."""

    def __init__(self):
        graph = done(driver.cuGraphCreate(0))
        self.nodes, self.launched = [], 0
        for place in range(chance.randrange(1, 5)):
            gpu, works = chance.randrange(gpus), chance.random() < 0.8
            after = [other for other in range(place) if chance.random() < 0.5]
            there = [self.nodes[other][0] for other in after]
            if works:
                node = done(driver.cuGraphAddKernelNode(graph, there, len(after), node_of(gpu, 0)))
            else:
                node = done(driver.cuGraphAddEmptyNode(graph, there, len(after)))
            self.nodes.append((node, gpu, works, after))
        self.handle = done(driver.cuGraphInstantiate(graph, 0))


def arguments(gpu, number):
    place = shared[gpu] + LOG + 8 * number
    duration = chance.choice([0, 0, 1000, 20_000, 100_000])
    return ((shared[gpu], place, duration), (ctypes.c_uint64,) * 3)


def node_of(gpu, number):
    node = driver.CUDA_KERNEL_NODE_PARAMS()
    node.func, node.kernelParams = kernels[gpu], arguments(gpu, number)
    node.gridDimX = node.gridDimY = node.gridDimZ = node.blockDimX = node.blockDimY = node.blockDimZ = 1
    return node


legacy = [Stream(gpu) for gpu in range(gpus)]
streams = legacy + [Stream(chance.randrange(gpus), chance.randrange(2)) for _ in range(5)]
events = [Event(chance.randrange(gpus)) for _ in range(4)]
graphs = []
work = []  # (GPU, or None where it leaves no trace; what is over before: bits; where)
told = []  # (what is over; the counters then; by what)


def behind(stream):
    """All that must be over before what the stream is given next."""
    if stream.legacy:
        beside = [each.given for each in streams if each.blocking and each.gpu == stream.gpu]
        return sum_of([stream.gone, *beside])
    return stream.given | (legacy[stream.gpu].given if stream.blocking else 0)


def sum_of(sets):
    total = 0
    for bits in sets:
        total |= bits
    return total


def add(gpu, before, where):
    work.append((gpu, before, where))
    return before | 1 << len(work) - 1


def give(stream, gpu=None, before=0):
    stream.given = add(gpu, behind(stream) | before, "stream")
    if gpu is not None:
        stream.last = stream.given


def kernel(stream):
    give(stream, stream.gpu)
    given = arguments(stream.gpu, len(work) - 1)
    done(driver.cuLaunchKernel(kernels[stream.gpu], 1, 1, 1, 1, 1, 1, 0, stream.handle, given, 0))


def record(stream):
    event = chance.choice(events)
    if event.gpu == stream.gpu:
        give(stream)
        event.behind = stream.given
        done(driver.cuEventRecord(event.handle, stream.handle))


def wait(stream):
    event = chance.choice(events)
    if event.behind is not None:
        give(stream, before=event.behind)
    done(driver.cuStreamWaitEvent(stream.handle, event.handle, 0))


def launch(stream):
    if not graphs or chance.random() < 0.1:
        graphs.append(Graph())
    graph, first = chance.choice(graphs), len(work)
    before = behind(stream) | graph.launched
    ends = []
    for node, gpu, works, after in graph.nodes:
        earlier = sum_of(ends[other] for other in after)
        ends.append(add(gpu if works else None, before | earlier, f"graph {first}"))
        if works:
            done(driver.cuGraphExecKernelNodeSetParams(graph.handle, node, node_of(gpu, len(work) - 1)))
    stream.given = stream.last = graph.launched = before | sum_of(ends)
    done(driver.cuCtxSetCurrent(contexts[stream.gpu]))
    done(driver.cuGraphLaunch(graph.handle, stream.handle))


def tell(over, by):
    told.append((over, [counter.value for counter in counters], by))


def synchronize(stream):
    done(driver.cuStreamSynchronize(stream.handle))
    tell(stream.last, "stream")


def query(_):
    event = chance.choice(events)
    if int(driver.cuEventQuery(event.handle)[0]) == 0:
        tell(event.behind or 0, "event")


def replace(stream):
    if not stream.legacy:
        if stream.blocking:
            legacy[stream.gpu].gone |= stream.given
        done(driver.cuStreamDestroy(stream.handle))
        streams[streams.index(stream)] = Stream(stream.gpu, chance.randrange(2))


kinds = {kernel: 20, record: 8, wait: 8, launch: 5, query: 2, synchronize: 0.5, replace: 0.5}
while len(work) < wanted:
    stream = chance.choice(streams)
    done(driver.cuCtxSetCurrent(contexts[stream.gpu]))
    chance.choices(list(kinds), list(kinds.values()))[0](stream)
for context in contexts:
    done(driver.cuCtxSetCurrent(context))
    done(driver.cuCtxSynchronize())


def numbers(place):
    """When it began and ended."""
    return tuple((ctypes.c_uint32 * 2).from_address(shared[work[place][0]] + LOG + 8 * place))


def late(over, seen):
    """What of that was not, when the counters were at these."""
    return [
        place
        for place, (gpu, _, _) in enumerate(work)
        if over >> place & 1 and gpu is not None and gpu in seen and numbers(place)[1] >= seen[gpu]
    ]


wrong = []
for place, (gpu, before, where) in enumerate(work):
    if gpu is not None:
        wrong += [(place, where, work[other]) for other in late(before, {gpu: numbers(place)[0]})]
for over, seen, by in told:
    wrong += [(by, work[other]) for other in late(over, dict(enumerate(seen)))]
print([(each[:2], each[-1][0], each[-1][2]) for each in wrong[:5]] or "in order")
