"""Random calls on streams, events, memory, captures and graphs: what each returns, and what memory holds.

    random_calls.py SEED CALLS

What the calls do is in order, so that every run prints the same: outside of captures each is waited for; a
capture has one stream, and beside it only the default one works; what graphs refer to stays.
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
.visible .entry work(.param .u64 address, .param .u32 count, .param .u32 factor)
{
    .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [address];
    ld.param.u32 %r1, [count];
    ld.param.u32 %r2, [factor];
    mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;
    mad.lo.u32 %r3, %r3, %r4, %r5;
    setp.ge.u32 %p, %r3, %r1;
    @%p bra END;
    mul.wide.u32 %rd2, %r3, 4;
    add.u64 %rd1, %rd1, %rd2;
    ld.global.u32 %r6, [%rd1];
    mad.lo.u32 %r6, %r6, %r2, %r3;
    st.global.u32 [%rd1], %r6;
END: ret;
}
"""
MODES = ("GLOBAL", "THREAD_LOCAL", "RELAXED")

chance = random.Random(int(sys.argv[1]))
start()
kernel = done(driver.cuModuleGetFunction(done(driver.cuModuleLoadData(KERNEL)), b"work"))
numbers = iter(range(10**9))
memory, pinned, fresh = {}, {}, []  # by number: address and size
streams = {"default": driver.CUstream(0), "legacy": driver.CUstream(1), "own": driver.CUstream(2)}
events, graphs, executables = {}, {}, {}
captured = None  # the stream
kept = []  # host memory that copies of graphs refer to


def any_of(things):
    return things[chance.choice(list(things))]


def a_stream():
    if captured is None:
        return any_of(streams)
    return streams[captured] if chance.random() < 0.7 else streams["default"]


def part(size):
    first = chance.randrange(size)
    return first, chance.randrange(1, size - first + 1)


def host(size):
    kept.append((ctypes.c_ubyte * size).from_buffer_copy(chance.randbytes(size)))
    return ctypes.addressof(kept[-1])


def settle():
    """What is there from before is over; new memory gets something to hold."""
    if captured is not None:
        return
    while fresh:
        address, size = fresh.pop()
        call("cuMemsetD8", address, 5, size)
        memory[next(numbers)] = (address, size)
    call("cuCtxSynchronize")


def allocate():
    size = chance.choice((256, 4097, 65536))
    if (address := call("cuMemAlloc", size)) is not None:
        fresh.append((int(address), size))


def allocate_in_order():
    stream = a_stream()
    if (address := call("cuMemAllocAsync", 5000, stream)) is None:
        return
    if captured is None:
        fresh.append((int(address), 5000))
    else:
        call("cuMemFreeAsync", address, stream)


def free():
    if len(memory) > 3 and not graphs and captured is None:
        call("cuMemFree", memory.pop(chance.choice(list(memory)))[0])


def allocate_pinned():
    size = chance.choice((64, 10000))
    if len(pinned) < 4 and (address := call("cuMemHostAlloc", size, chance.choice((0, 1, 2)))) is not None:
        ctypes.memset(int(address), len(pinned), size)
        pinned[next(numbers)] = (int(address), size)


def make_stream():
    flags, priority = chance.choice((0, 1, 1, 7)), chance.choice((0, 0, -5, 3))
    if len(streams) < 12 and (stream := call("cuStreamCreateWithPriority", flags, priority)) is not None:
        streams[next(numbers)] = stream
        print(done(driver.cuStreamGetPriority(stream)), done(driver.cuStreamGetFlags(stream)))


def make_event():
    if len(events) < 8 and (event := call("cuEventCreate", chance.choice((0, 1, 2, 3)))) is not None:
        events[next(numbers)] = event


def record():
    if events:
        call("cuEventRecord", any_of(events), a_stream())


def wait():
    if events and (captured is None or chance.random() < 0.3):
        call("cuStreamWaitEvent", a_stream(), any_of(events), 0)


def synchronize():
    if events and chance.random() < 0.5:
        call("cuEventSynchronize", any_of(events))
    else:
        call("cuStreamSynchronize", a_stream())


def launch():
    address, size = any_of(memory)
    count, block = chance.choice((1, 64, size // 4)), chance.choice((32, 256, 256, 1024, 1025, 0))
    shared, grid = chance.choice((0, 0, 0, 1024, 300000)), (count + 255) // 256
    values = ((address, count, chance.choice((3, 5))), (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32))
    call("cuLaunchKernel", kernel, grid, 1, 1, block, 1, 1, shared, a_stream(), values, 0)


def copy():
    address, size = any_of(memory)
    kind = chance.choice(("HtoD", "DtoH", "DtoD", "pinned"))
    ends = [address, size]
    if kind == "pinned" and pinned:
        ends = list(any_of(pinned))
    elif kind == "DtoD":
        ends = list(any_of(memory))
    first, count = part(min(size, ends[1]))
    other = host(count) if kind in ("HtoD", "DtoH") else ends[0] + first
    name, there, here = {
        "HtoD": ("cuMemcpyHtoD", address + first, other),
        "DtoH": ("cuMemcpyDtoH", other, address + first),
        "DtoD": ("cuMemcpyDtoD", address + first, other),
        "pinned": ("cuMemcpy", *chance.sample((address + first, other), 2)),
    }[kind]
    if chance.random() < 0.5:
        call(name, there, here, count)
    else:
        call(name + "Async", there, here, count, a_stream())


def fill():
    address, size = any_of(memory)
    width = chance.choice((1, 2, 4))
    first, count = part(size // width)
    misplaced = chance.random() < 0.05
    arguments = (address + first * width + misplaced, chance.randrange(256), count - misplaced)
    if chance.random() < 0.5:
        call(f"cuMemsetD{8 * width}", *arguments)
    else:
        call(f"cuMemsetD{8 * width}Async", *arguments, a_stream())


def write_value():
    address, size = any_of(memory)
    place = address + chance.randrange(size // 8) * 8
    call("cuStreamWriteValue32", a_stream(), place, chance.randrange(99), 0)


def capture():
    global captured
    if captured is None:
        captured = chance.choice(list(streams))
        mode = getattr(driver.CUstreamCaptureMode, "CU_STREAM_CAPTURE_MODE_" + chance.choice(MODES))
        if call("cuStreamBeginCapture", streams[captured], mode) is None:
            captured = None
        return
    graph = call("cuStreamEndCapture", streams[captured])
    captured = None
    if graph is not None:
        print(done(driver.cuGraphGetNodes(graph, 0))[1], "nodes")
        graphs[next(numbers)] = graph


def ask_about_capture():
    if (status := call("cuStreamIsCapturing", a_stream())) is not None:
        print(status.name)


def instantiate():
    if graphs and (made := call("cuGraphInstantiate", any_of(graphs), chance.choice((0, 1)))) is not None:
        executables[next(numbers)] = made


def launch_graph():
    if executables:
        call("cuGraphLaunch", any_of(executables), a_stream())


def update():
    if executables:
        call("cuGraphExecUpdate", any_of(executables), any_of(graphs))


def look():
    if captured is not None:
        return
    for number, (address, size) in memory.items():
        content = bytearray(size)
        done(driver.cuMemcpyDtoH(content, address, size))
        print(number, hashlib.md5(content).hexdigest())
    for number, (address, size) in pinned.items():
        print(number, hashlib.md5(ctypes.string_at(address, size)).hexdigest())


OFTEN = {allocate: 3, allocate_in_order: 2, free: 2, allocate_pinned: 2, make_stream: 3, make_event: 3}
OFTEN |= {record: 8, wait: 6, synchronize: 5, launch: 14, copy: 20, fill: 8, write_value: 2, capture: 6}
OFTEN |= {ask_about_capture: 2, instantiate: 3, launch_graph: 6, update: 2, look: 3}

for _ in range(3):
    allocate()
    settle()
for _ in range(int(sys.argv[2])):
    chance.choices(list(OFTEN), OFTEN.values())[0]()
    settle()
if captured is not None:
    capture()
settle()
look()
