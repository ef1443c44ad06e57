"""What a library has in each context: a primary one, another one, and a green one of the primary.

First which handles and addresses are one, then whose variables launches reach, which calls take a kernel for
a function, and what becomes of attributes and handles when contexts end.
"""

import ctypes

from calls import KERNELS, done, short, start
from cuda.bindings import driver

TEXT = b"""
.version 7.8
.target sm_90
.address_size 64
.global .align 4 .u32 seen = 7;
.const .align 4 .u32 fixed = 9;
.global .attribute(.managed) .align 4 .u32 shared = 11;
.visible .entry bump(.param .u64 address)
{
    .reg .b64 %rd<4>; .reg .b32 %r<4>;
    ld.param.u64 %rd1, [address];
    mov.u64 %rd2, seen;
    atom.global.add.u32 %r1, [%rd2], 1;
    st.global.u32 [%rd1], %r1;
    mov.u64 %rd3, shared;
    atom.global.add.u32 %r2, [%rd3], 1;
    st.global.u32 [%rd1+4], %r2;
    ret;
}
"""
REGISTERS = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS
SHARED = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
CARVEOUT = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
RELAXED = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED


def told(answer):
    """The values, or what went wrong."""
    if int(answer[0]) != 0:
        return short(answer)
    return answer[1] if len(answer) == 2 else answer[1:]


def green_context():
    whole = done(driver.cuDeviceGetDevResource(device, driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
    groups = done(driver.cuDevSmResourceSplitByCount(1, whole, 0, 16))[0]
    wanted = done(driver.cuDevResourceGenerateDesc([groups[0]], 1))
    return done(driver.cuCtxFromGreenCtx(done(driver.cuGreenCtxCreate(wanted, device, 1))))


device, first = start()
second = done(driver.cuCtxCreate(None, 0, device))
contexts = {"first": first, "second": second, "green": green_context()}
done(driver.cuCtxSetCurrent(first))
memory = int(done(driver.cuMemAlloc(64)))
library = done(driver.cuLibraryLoadData(TEXT, [], [], 0, [], [], 0))
kernel = done(driver.cuLibraryGetKernel(library, b"bump"))
as_function = driver.CUfunction(int(kernel))
parameters = ((memory,), (ctypes.c_uint64,))


def current(name):
    done(driver.cuCtxSetCurrent(contexts[name]))


def launch(function, stream=0):
    """What a launch saw of the context's variable and of the managed one."""
    answer = driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, 0)
    if int(answer[0]) != 0:
        return short(answer)
    done(driver.cuStreamSynchronize(stream))
    values = bytearray(8)
    done(driver.cuMemcpyDtoH(values, memory, 8))
    return list(memoryview(values).cast("I"))


def parts():
    """A number for each thing that a context's library has."""
    module = done(driver.cuLibraryGetModule(library))
    return {
        "variable": done(driver.cuLibraryGetGlobal(library, b"seen"))[0],
        "constant": done(driver.cuLibraryGetGlobal(library, b"fixed"))[0],
        "managed": done(driver.cuLibraryGetManaged(library, b"shared"))[0],
        "managed by its name": done(driver.cuLibraryGetGlobal(library, b"shared"))[0],
        "module": module,
        "function": done(driver.cuKernelGetFunction(kernel)),
        "the module's variable": done(driver.cuModuleGetGlobal(module, b"seen"))[0],
        "the module's managed": done(driver.cuModuleGetGlobal(module, b"shared"))[0],
        "the module's function": done(driver.cuModuleEnumerateFunctions(1, module))[0],
    }


has, streams = {}, {}
for name in contexts:
    current(name)
    has[name] = parts()
    streams[name] = done(driver.cuStreamCreate(1))
functions = {name: has[name]["function"] for name in contexts}
for part in has["first"]:
    numbers = [int(has[name][part]) for name in contexts]
    print(part, [numbers.index(number) for number in numbers])
print("one function", [int(has[name]["the module's function"]) == int(functions[name]) for name in contexts])


def launches(stream=0):
    return [launch(as_function, stream)] + [launch(function, stream) for function in functions.values()]


for name in contexts:
    current(name)
    print("launched in", name, *launches())
for name in contexts:
    for whose, stream in streams.items():
        current(name)
        print("launched in", name, "by a stream of", whose, *launches(stream))
current("first")


def configuration():
    made = driver.CUlaunchConfig()
    made.gridDimX = made.gridDimY = made.gridDimZ = made.blockDimX = made.blockDimY = made.blockDimZ = 1
    made.hStream = driver.CUstream(0)
    return made


CALLS = {
    "cuFuncSetCacheConfig": (driver.CUfunc_cache(1),),
    "cuFuncSetSharedMemConfig": (driver.CUsharedconfig(0),),
    "cuFuncLoad": (),
    "cuFuncIsLoaded": (),
    "cuFuncGetParamInfo": (0,),
    "cuOccupancyAvailableDynamicSMemPerBlock": (1, 32),
    "cuOccupancyMaxPotentialBlockSize": (None, 0, 0),
    "cuOccupancyMaxPotentialBlockSizeWithFlags": (None, 0, 0, 0),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (32, 0),
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": (32, 0, 0),
    "cuOccupancyMaxActiveClusters": (configuration(),),
    "cuOccupancyMaxPotentialClusterSize": (configuration(),),
    "cuLaunchCooperativeKernel": (1, 1, 1, 1, 1, 1, 0, 0, parameters),
    "cuFuncSetBlockShape": (1, 1, 1),
    "cuFuncSetSharedSize": (0,),
    "cuParamSetSize": (8,),
    "cuParamSeti": (0, 0),
    "cuLaunch": (),
    "cuLaunchGrid": (1, 1),
    "cuLaunchGridAsync": (1, 1, 0),
}
for name, arguments in CALLS.items():
    print(name, "of a kernel", short(getattr(driver, name)(as_function, *arguments)))
print("cuFuncGetAttribute of a kernel", short(driver.cuFuncGetAttribute(REGISTERS, as_function)))
extended = driver.cuLaunchKernelEx(configuration(), as_function, parameters, 0)
print("cuLaunchKernelEx of a kernel", short(extended))
print("of itself", short(driver.cuKernelSetCacheConfig(kernel, driver.CUfunc_cache(1), device)))
print("of itself", told(driver.cuKernelGetParamInfo(kernel, 0)))
done(driver.cuCtxSynchronize())


def captured(function):
    """What a graph tells of a launch that was captured."""
    done(driver.cuStreamBeginCapture(streams["first"], RELAXED))
    done(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, streams["first"], parameters, 0))
    graph = done(driver.cuStreamEndCapture(streams["first"]))
    node = done(driver.cuGraphKernelNodeGetParams(done(driver.cuGraphGetNodes(graph, 1))[0][0]))
    return int(node.func or 0), int(node.kern or 0), int(node.ctx or 0)


print("captured:", captured(as_function) == (int(functions["first"]), int(kernel), int(first)))
module = done(driver.cuModuleLoadData(KERNELS))
alone = done(driver.cuModuleGetFunction(module, b"increment"))
print("a module's captured:", captured(alone) == (int(alone), 0, int(first)))
taken = driver.CUkernel(int(alone))
print("a module's as a kernel", short(driver.cuKernelGetName(taken)), short(driver.cuKernelGetLibrary(taken)))
print(short(driver.cuKernelGetFunction(taken)), short(driver.cuKernelGetAttribute(REGISTERS, taken, device)))

mine = functions["first"]


def preferences():
    of_function = [told(driver.cuFuncGetAttribute(each, mine)) for each in (SHARED, CARVEOUT)]
    return of_function, [
        told(driver.cuKernelGetAttribute(each, kernel, device)) for each in (SHARED, CARVEOUT)
    ]


print(short(driver.cuFuncSetAttribute(mine, SHARED, 60000)), *preferences())
print(short(driver.cuKernelSetAttribute(CARVEOUT, 10, kernel, device)), *preferences())
print(short(driver.cuKernelSetAttribute(SHARED, 300000, kernel, device)), *preferences())
print(short(driver.cuKernelSetAttribute(REGISTERS, 3, kernel, device)), *preferences())
print(short(driver.cuFuncSetAttribute(mine, CARVEOUT, 10)), *preferences())
print(short(driver.cuKernelSetAttribute(CARVEOUT, 20, kernel, device)), *preferences())

done(driver.cuFuncSetAttribute(functions["second"], CARVEOUT, 33))
done(driver.cuCtxDestroy(second))
print("its context is gone", short(driver.cuFuncGetAttribute(CARVEOUT, functions["second"])))
third = done(driver.cuCtxCreate(None, 0, device))
function = done(driver.cuKernelGetFunction(kernel))
print(
    "in a third", told(driver.cuFuncGetAttribute(CARVEOUT, function)), launch(as_function), launch(function)
)
current("first")
print("module", short(driver.cuModuleUnload(has["first"]["module"])), launch(as_function))
print("library", short(driver.cuLibraryUnload(library)), short(driver.cuFuncGetAttribute(CARVEOUT, mine)))
print(short(driver.cuKernelGetName(kernel)), short(driver.cuModuleGetFunctionCount(has["first"]["module"])))
