"""Random calls on contexts: made, stacked, ended; streams, events, memory and code of one used in another.

    random_contexts.py SEED CALLS

What a context that has ended had is not named again, other than the context where the stack still has it.
"""

import ctypes
import random
import sys

from calls import KERNELS, call, done
from cuda.bindings import driver

chance = random.Random(int(sys.argv[1]))
done(driver.cuInit(0))
device = done(driver.cuDeviceGet(0))
numbers = iter(range(10**9))
contexts = {}  # by number; 0 is the primary one, while somebody retains it
known = {}  # every context's number, by its handle
streams, events, memory, functions = {}, {}, {}, {}  # by number: the handle, and its context's number
LIMITS = (
    "STACK_SIZE",
    "PRINTF_FIFO_SIZE",
    "MALLOC_HEAP_SIZE",
    "MAX_L2_FETCH_GRANULARITY",
    "DEV_RUNTIME_SYNC_DEPTH",
)


def any_of(things):
    return chance.choice(list(things)) if things else None


def often(value, *others):
    return chance.choice((value,) * 8 + others)


def name_of(context):
    handle = int(context or 0)
    return known.get(handle, "another") if handle else "none"


def current():
    """The number of the current context; None where there is none, or it has ended."""
    result, context = driver.cuCtxGetCurrent()
    number = known.get(int(context)) if int(result) == 0 else None
    return number if number in contexts else None


def forget(number):
    contexts.pop(number, None)
    for things in (streams, events, memory, functions):
        for gone in [each for each, (_, its) in things.items() if its == number]:
            del things[gone]


def create():
    if (
        len(contexts) < 4
        and (context := call("cuCtxCreate", None, often(0, 1, 4, 8, 16, 3, 256), device)) is not None
    ):
        number = next(numbers) + 1
        contexts[number] = context
        known[int(context)] = number


def destroy():
    number = any_of([number for number in contexts if number != 0])
    if number is not None:
        call("cuCtxDestroy", contexts[number])
        forget(number)


def push():
    if (number := any_of(contexts)) is not None:
        call("cuCtxPushCurrent", contexts[number])


def pop():
    if (context := call("cuCtxPopCurrent")) is not None:
        print(name_of(context))


def switch():
    number = any_of(contexts)
    if number is None or chance.random() < 0.15:
        call("cuCtxSetCurrent", driver.CUcontext(0))
    else:
        call("cuCtxSetCurrent", contexts[number])


def retain():
    if (context := call("cuDevicePrimaryCtxRetain", device)) is not None:
        contexts[0] = context
        known[int(context)] = 0


def state():
    flags, active = call("cuDevicePrimaryCtxGetState", device)
    print(flags, active)
    if not active:
        forget(0)


def release():
    call(often("cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxReset"), device)
    state()


def set_flags():
    call("cuDevicePrimaryCtxSetFlags", device, chance.choice((0, 1, 2, 4, 8, 16, 3, 512)))


def ask():
    print("current", name_of(driver.cuCtxGetCurrent()[1]))
    for name in ("cuCtxGetDevice", "cuCtxGetFlags", "cuCtxGetCacheConfig", "cuCtxGetStreamPriorityRange"):
        if (answer := call(name)) is not None:
            print(*(int(each) for each in (answer if isinstance(answer, (list, tuple)) else [answer])))
    if (number := any_of(contexts)) is not None:
        print(call("cuCtxGetApiVersion", contexts[number]))
        print((call("cuCtxGetId", contexts[number]) or 0) > 0)


def limits():
    limit = getattr(driver.CUlimit, "CU_LIMIT_" + chance.choice(LIMITS))
    if chance.random() < 0.6:
        call("cuCtxSetLimit", limit, chance.choice((0, 1, 100, 1024, 4096, 1 << 20, 1 << 25)))
    print(call("cuCtxGetLimit", limit))


def configure():
    call("cuCtxSetCacheConfig", driver.CUfunc_cache(chance.choice((0, 1, 2, 3))))
    flags = chance.choice((0, 1, 4, 16, 3))
    # In a context that has ended it crashes driver 580.
    if current() is not None or int(driver.cuCtxGetCurrent()[1]) == 0:
        call("cuCtxSetFlags", flags)


def settle(stream=0):
    """What was given to a stream, perhaps another context's, is over."""
    driver.cuStreamSynchronize(stream)
    call("cuCtxSynchronize")


def make_stream():
    if len(streams) < 6 and (stream := call("cuStreamCreate", often(0, 1))) is not None:
        streams[next(numbers)] = (stream, current())


def make_event():
    if len(events) < 6 and (event := call("cuEventCreate", often(0, 2))) is not None:
        events[next(numbers)] = (event, current())


def allocate():
    if len(memory) < 6 and (address := call("cuMemAlloc", 256)) is not None:
        memory[next(numbers)] = (int(address), current())


def load():
    if len(functions) < 4 and (module := call("cuModuleLoadData", KERNELS)) is not None:
        functions[next(numbers)] = (call("cuModuleGetFunction", module, b"increment"), current())


def use_stream():
    if (number := any_of(streams)) is None:
        return
    stream, whose = streams[number]
    if (context := call("cuStreamGetCtx", stream)) is not None:
        print(name_of(context) == whose)
    print(call("cuStreamGetPriority", stream), call("cuStreamGetFlags", stream))
    call("cuStreamSynchronize", stream)
    call("cuStreamQuery", stream)
    if chance.random() < 0.3:
        call("cuStreamDestroy", stream)
        del streams[number]


def a_stream():
    return streams[any_of(streams)][0] if streams and chance.random() < 0.7 else driver.CUstream(0)


def use_event():
    if (number := any_of(events)) is None:
        return
    event, stream = events[number][0], a_stream()
    call("cuEventRecord", event, stream)
    call("cuStreamSynchronize", stream)
    call("cuStreamWaitEvent", a_stream(), event, 0)
    call("cuEventSynchronize", event)
    call("cuEventQuery", event)
    if chance.random() < 0.3:
        call("cuEventDestroy", event)
        del events[number]


def use_memory():
    if (number := any_of(memory)) is None:
        return
    address, whose = memory[number]
    call("cuMemsetD8", address, 7, 256)
    call("cuMemsetD32Async", address, 9, 4, stream := a_stream())
    settle(stream)
    result, context = driver.cuPointerGetAttribute(driver.CUpointer_attribute(1), address)
    print(result.name, int(result) == 0 and name_of(context) == whose)
    into = bytearray(256)
    result = driver.cuMemcpyDtoH(into, address, 256)[0]
    print(result.name)
    if chance.random() < 0.3:
        call("cuMemFree", address)
        del memory[number]


def launch():
    number, place = any_of(functions), any_of(memory)
    if number is None or place is None:
        return
    values = ((memory[place][0],), (ctypes.c_uint64,))
    call("cuLaunchKernel", functions[number][0], 1, 1, 1, 1, 1, 1, 0, stream := a_stream(), values, 0)
    call("cuOccupancyMaxActiveBlocksPerMultiprocessor", functions[number][0], 32, 0)
    settle(stream)


OFTEN = {
    create: 4,
    destroy: 2,
    push: 5,
    pop: 5,
    switch: 6,
    retain: 3,
    state: 1,
    release: 2,
    set_flags: 1,
    ask: 5,
}
OFTEN |= {
    limits: 4,
    configure: 2,
    settle: 2,
    make_stream: 4,
    make_event: 4,
    allocate: 4,
    load: 2,
    use_stream: 6,
}
OFTEN |= {use_event: 6, use_memory: 6, launch: 6}

for _ in range(int(sys.argv[2])):
    chance.choices(list(OFTEN), OFTEN.values())[0]()
