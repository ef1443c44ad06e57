"""Random calls about code: modules, libraries, their kernels and variables, attributes, occupancy, launches.

    random_kernels.py SEED CALLS

One context; each launch is waited for.
"""

import ctypes
import hashlib
import random
import sys

from calls import KERNELS, call, done, start
from cuda.bindings import driver

OTHER = b"""
.version 7.8
.target sm_80
.address_size 64
.global .align 4 .u32 counter = 3;
.const .align 8 .u64 fixed[2] = {5, 6};
.visible .entry bounded(.param .u64 address) .maxntid 64,1,1
{
    .reg .b64 %rd<3>; .reg .b32 %r<3>; .shared .align 4 .b8 tile[2048];
    ld.param.u64 %rd1, [address];
    mov.u64 %rd2, counter;
    atom.global.add.u32 %r1, [%rd2], 1;
    red.global.max.u32 [%rd1], %r1;
    ret;
}
.visible .entry wide(.param .u64 address, .param .align 8 .b8 big[100], .param .u16 small)
{
    .reg .b64 %rd<3>; .reg .b32 %r<3>;
    ld.param.u64 %rd1, [address];
    ld.param.u32 %r1, [big+8];
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .func (.param .b32 result) helper(.param .b32 given)
{
    .reg .b32 %r<2>;
    ld.param.u32 %r1, [given];
    st.param.b32 [result], %r1;
    ret;
}
"""
# Threads that meet leave the same, whatever their order.
ONCE = b"ld.global.u32 %r1, [%rd1];\n    add.u32 %r2, %r1, 1;\n    st.global.u32 [%rd1], %r2;"
assert ONCE in KERNELS
TEXTS = {
    "kernels": KERNELS.replace(ONCE, b"red.global.add.u32 [%rd1], 1;"),
    "other": OTHER,
    "garbage": b"no image at all",
    "wrong": OTHER.replace(b"ret;", b"rat;", 1),
    "empty": b"",
    "later GPU": OTHER.replace(b"sm_80", b"sm_103"),
    "later PTX": OTHER.replace(b"7.8", b"99.9"),
}
NAMES = (b"nothing", b"store", b"increment", b"bounded", b"wide", b"helper", b"seen", b"counter", b"fixed")
NAMES += (b"none", b"")
# Registers and caches are whoever's who compiles; not all versions of cuda-python know the last.
UNASKED = ("NUM_REGS", "BINARY_VERSION", "CACHE_MODE_CA", "SHARED_MEMORY_MODE")
ATTRIBUTES = [each for each in driver.CUfunction_attribute if not each.name.endswith(UNASKED)]

chance = random.Random(int(sys.argv[1]))
device, _ = start()
numbers = iter(range(10**9))
modules, libraries = {}, {}  # by number
functions, kernels = [], []  # each with its module's or library's number
streams = [driver.CUstream(0), done(driver.cuStreamCreate(0)), done(driver.cuStreamCreate(1))]
SIZE = 1024
memory = int(done(driver.cuMemAlloc(SIZE)))
done(driver.cuMemsetD8(memory, 0, SIZE))
big = (ctypes.c_ubyte * 100)(*range(100))


def ask(name, *arguments):
    print(call(name, *arguments))


def any_of(things):
    return chance.choice(list(things)) if things else None


def load():
    text = chance.choice([*TEXTS, "kernels", "other", "kernels", "other"])
    print(text)
    if chance.random() < 0.5:
        if (module := call("cuModuleLoadData", TEXTS[text])) is not None:
            modules[next(numbers)] = module
    elif (library := call("cuLibraryLoadData", TEXTS[text], [], [], 0, [], [], 0)) is not None:
        libraries[next(numbers)] = library


def unload():
    if (number := any_of([*modules, *libraries])) is None:
        return
    if number in modules:
        call("cuModuleUnload", modules.pop(number))
    else:
        call("cuLibraryUnload", libraries.pop(number))
    for found in (functions, kernels):
        found[:] = [each for each in found if each[1] != number]


def find_function():
    if (number := any_of(modules)) is None:
        return
    if (function := call("cuModuleGetFunction", modules[number], chance.choice(NAMES))) is not None:
        functions.append((function, number))


def find_kernel():
    if (number := any_of(libraries)) is None:
        return
    if (kernel := call("cuLibraryGetKernel", libraries[number], chance.choice(NAMES))) is not None:
        kernels.append((kernel, number))


def ask_kernel():
    if (found := any_of(kernels)) is None:
        return
    kernel, number = found
    if (function := call("cuKernelGetFunction", kernel)) is not None:
        functions.append((function, number))
    ask("cuKernelGetName", kernel)
    ask("cuKernelGetParamInfo", kernel, chance.randrange(5))
    ask("cuKernelGetAttribute", chance.choice(ATTRIBUTES), kernel, device)


def ask_library():
    if (number := any_of(libraries)) is None:
        return
    library, name = libraries[number], chance.choice(NAMES)
    if (module := call("cuLibraryGetModule", library)) is not None:
        ask("cuModuleGetFunctionCount", module)
        if (function := call("cuModuleGetFunction", module, name)) is not None:
            functions.append((function, number))
        if chance.random() < 0.2:
            call("cuModuleUnload", module)
    ask("cuLibraryGetKernelCount", library)
    call("cuLibraryGetManaged", library, name)
    call("cuLibraryGetUnifiedFunction", library, name)


def look_at_variable():
    if (number := any_of([*modules, *libraries])) is None:
        return
    if number in modules:
        found = call("cuModuleGetGlobal", modules[number], chance.choice(NAMES))
    else:
        found = call("cuLibraryGetGlobal", libraries[number], chance.choice(NAMES))
    if found is not None:
        address, size = found
        content = bytearray(size)
        call("cuMemcpyDtoH", content, address, size)
        print(size, content.hex())
        if chance.random() < 0.3:
            call("cuMemsetD8", address, 2, size)


def attributes():
    if (found := any_of(functions)) is None:
        return
    function, asked, changed = found[0], chance.choice(ATTRIBUTES), chance.choice(ATTRIBUTES)
    ask("cuFuncGetAttribute", asked, function)
    value = chance.choice((0, 1, 1024, 100000, 300000, -1))
    # A real driver keeps what is set on a kernel and on its function apart, other than fikitd.
    if found[1] in modules:
        print(changed.name)
        call("cuFuncSetAttribute", function, changed, value)
    ask("cuFuncGetName", function)
    ask("cuFuncGetParamInfo", function, chance.randrange(4))
    threads, shared = chance.choice((32, 64, 65, 1024, 0)), chance.choice((0, 1024, 60000, 300000))
    ask("cuOccupancyMaxActiveBlocksPerMultiprocessor", function, threads, shared)
    ask("cuOccupancyAvailableDynamicSMemPerBlock", function, chance.choice((0, 1, 8, 33)), threads)
    call("cuFuncLoad", function)
    ask("cuFuncIsLoaded", function)


def launch():
    if (found := any_of(chance.choice((functions, kernels)))) is None:
        return
    values = [ctypes.c_uint64(memory + 4 * chance.randrange(SIZE // 4)), big, ctypes.c_uint16(7)]
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    grid, block = chance.choice((1, 2, 0)), chance.choice((1, 32, 64, 65, 2000))
    shared, stream = chance.choice((0, 0, 1024, 60000)), chance.choice(streams)
    call("cuLaunchKernel", found[0], grid, 1, 1, block, 1, 1, shared, stream, ctypes.addressof(pointers), 0)
    call("cuCtxSynchronize")
    look()


def look():
    content = bytearray(SIZE)
    done(driver.cuMemcpyDtoH(content, memory, SIZE))
    print(hashlib.md5(content).hexdigest())


OFTEN = {load: 8, unload: 2, find_function: 6, find_kernel: 5, ask_kernel: 3, ask_library: 2}
OFTEN |= {look_at_variable: 5, attributes: 8, launch: 10}

for _ in range(int(sys.argv[2])):
    chance.choices(list(OFTEN), OFTEN.values())[0]()
look()
