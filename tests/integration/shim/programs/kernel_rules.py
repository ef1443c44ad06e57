"""What a kernel of a library and its functions in contexts have in common, and what each has for itself.

A line for each way to set an attribute and what is set, and for each pair of them: what every handle tells
afterwards, how launches end and what fits.
"""

import ctypes
import itertools
import sys

from calls import done, short, start
from cuda.bindings import driver

TEXT = b"""
.version 7.8
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 address)
{
    .reg .b64 %rd<3>; .reg .b32 %r<3>;
    ld.param.u64 %rd1, [address];
    mov.u32 %r1, %ntid.x;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""
device, first = start()
second = done(driver.cuCtxCreate(None, 0, device))
done(driver.cuCtxSetCurrent(first))
memory = int(done(driver.cuMemAlloc(64)))
CHANGED = {
    "MAX_DYNAMIC_SHARED_SIZE_BYTES": (60000, 50000),
    "PREFERRED_SHARED_MEMORY_CARVEOUT": (10, 50),
    "REQUIRED_CLUSTER_WIDTH": (2, 4),
    "NON_PORTABLE_CLUSTER_SIZE_ALLOWED": (1, 0),
    "CLUSTER_SCHEDULING_POLICY_PREFERENCE": (1, 2),
}


def told(answer):
    """The value, or what went wrong."""
    return answer[1] if int(answer[0]) == 0 else short(answer[0])


def attribute(name):
    return getattr(driver.CUfunction_attribute, "CU_FUNC_ATTRIBUTE_" + name)


class Handles:
    """A library's kernel, and its functions in two contexts if they are asked for at once."""

    def __init__(self, *, early=True):
        done(driver.cuCtxSetCurrent(first))
        self.library = done(driver.cuLibraryLoadData(TEXT, [], [], 0, [], [], 0))
        self.kernel = done(driver.cuLibraryGetKernel(self.library, b"kernel"))
        self.functions = {}
        if early:
            self.get("first", "second")

    def get(self, *names):
        for name in names:
            done(driver.cuCtxSetCurrent(first if name == "first" else second))
            self.functions[name] = done(driver.cuKernelGetFunction(self.kernel))
        done(driver.cuCtxSetCurrent(first))

    def all(self):
        """Each handle that takes a function's calls, and the context it is used in."""
        self.get("first", "second")
        yield "first", self.functions["first"], first
        yield "kernel in first", driver.CUfunction(int(self.kernel)), first
        yield "second", self.functions["second"], second
        yield "kernel in second", driver.CUfunction(int(self.kernel)), second

    def set(self, whose, name, value):
        if whose == "kernel":
            return short(driver.cuKernelSetAttribute(attribute(name), value, self.kernel, device)[0])
        if whose in ("first", "second"):
            self.get(whose)
            return short(driver.cuFuncSetAttribute(self.functions[whose], attribute(name), value)[0])
        done(driver.cuCtxSetCurrent(first if whose == "kernel in first" else second))
        answer = driver.cuFuncSetAttribute(driver.CUfunction(int(self.kernel)), attribute(name), value)
        done(driver.cuCtxSetCurrent(first))
        return short(answer[0])

    def seen(self, name):
        told_all = [f"kernel {told(driver.cuKernelGetAttribute(attribute(name), self.kernel, device))}"]
        for whose, function, context in self.all():
            done(driver.cuCtxSetCurrent(context))
            told_all.append(f"{whose} {told(driver.cuFuncGetAttribute(attribute(name), function))}")
        done(driver.cuCtxSetCurrent(first))
        return ", ".join(told_all)

    def runs(self):
        for whose, function, context in self.all():
            done(driver.cuCtxSetCurrent(context))
            launches = [launch(function, grid, shared) for grid, shared in ((2, 0), (3, 0), (2, 55000))]
            fits = told(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 32, 20000))
            print("   ", whose, *launches, fits)
        done(driver.cuCtxSetCurrent(first))

    def end(self):
        done(driver.cuLibraryUnload(self.library))


WHO = ("kernel", "first", "second", "kernel in first", "kernel in second")


def launch(function, grid, shared=0):
    values = ((memory,), (ctypes.c_uint64,))
    result = short(driver.cuLaunchKernel(function, grid, 1, 1, 32, 1, 1, shared, 0, values, 0)[0])
    done(driver.cuCtxSynchronize())
    return result


def identity():
    """Which handles are the same, and what each belongs to."""
    handles = Handles()
    in_first, in_second = handles.functions["first"], handles.functions["second"]
    print("the kernel is its function:", int(handles.kernel) == int(in_first))
    print("the functions are one:", int(in_first) == int(in_second))
    handles.get("first")
    print("asked again:", int(handles.functions["first"]) == int(in_first))
    modules = []
    for context in (first, second):
        done(driver.cuCtxSetCurrent(context))
        modules.append(done(driver.cuLibraryGetModule(handles.library)))
        function = told(driver.cuModuleGetFunction(modules[-1], b"kernel"))
        print("of the module:", [int(function) == int(each) for each in (in_first, in_second)])
    print("modules are one:", int(modules[0]) == int(modules[1]), int(modules[0]) == int(handles.library))
    done(driver.cuCtxSetCurrent(first))
    for whose, function, context in handles.all():
        done(driver.cuCtxSetCurrent(context))
        module = told(driver.cuFuncGetModule(function))
        print(
            whose, [str(module) if isinstance(module, str) else int(module) == int(each) for each in modules]
        )
        print(whose, told(driver.cuFuncGetName(function)), told(driver.cuFuncGetParamInfo(function, 0)))
        as_kernel = driver.CUkernel(int(function))
        print(whose, "as a kernel", told(driver.cuKernelGetName(as_kernel)))
        library = told(driver.cuKernelGetLibrary(as_kernel))
        print(whose, library if isinstance(library, str) else int(library) == int(handles.library))
        again = told(driver.cuKernelGetFunction(as_kernel))
        print(
            whose, again if isinstance(again, str) else [int(again) == int(e) for e in (in_first, in_second)]
        )
        print(whose, told(driver.cuKernelGetAttribute(attribute("NUM_REGS"), as_kernel, device)) != 0)
        print(whose, told(driver.cuFuncIsLoaded(function)))
    done(driver.cuCtxSetCurrent(second))
    print("another context's:", launch(in_first, 1), launch(in_second, 1))
    print("set and asked there:", handles.set("first", "PREFERRED_SHARED_MEMORY_CARVEOUT", 10))
    done(driver.cuCtxSetCurrent(second))
    print(told(driver.cuFuncGetAttribute(attribute("PREFERRED_SHARED_MEMORY_CARVEOUT"), in_first)))
    print(told(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(in_first, 32, 20000)))
    done(driver.cuCtxSetCurrent(first))
    handles.end()


def nodes():
    """What a graph tells of a node made of each handle."""
    handles = Handles()
    known = {int(handles.kernel): "kernel"} | {int(f): name for name, f in handles.functions.items()}
    stored = ctypes.c_uint64(memory)
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(stored))
    for field, handle in itertools.product(("func", "kern", "both"), ("kernel", "first", "second")):
        number = int(handles.kernel) if handle == "kernel" else int(handles.functions[handle])
        params = driver.CUDA_KERNEL_NODE_PARAMS()
        params.gridDimX = params.gridDimY = params.gridDimZ = 1
        params.blockDimX, params.blockDimY, params.blockDimZ = 8, 1, 1
        params.kernelParams = ctypes.addressof(pointers)
        if field != "kern":
            params.func = driver.CUfunction(number)
        if field != "func":
            params.kern = driver.CUkernel(number)
        for context in (first, second):
            done(driver.cuCtxSetCurrent(context))
            graph = done(driver.cuGraphCreate(0))
            params.ctx = None
            node = told(driver.cuGraphAddKernelNode(graph, None, 0, params))
            if isinstance(node, str):
                print(field, handle, "first" if context is first else "second", node)
                continue
            got = done(driver.cuGraphKernelNodeGetParams(node))
            whose = {int(first): "first", int(second): "second"}.get(int(got.ctx or 0), int(got.ctx or 0))
            names = [known.get(int(each or 0), int(each or 0)) for each in (got.func, got.kern)]
            ready = told(driver.cuGraphInstantiate(graph, 0))
            ran = ready if isinstance(ready, str) else short(driver.cuGraphLaunch(ready, 0)[0])
            done(driver.cuCtxSynchronize())
            print(field, handle, "first" if context is first else "second", *names, whose, ran)
    done(driver.cuCtxSetCurrent(first))


def shapes():
    """A launch without arguments, of a shape that was set before: whose is it?"""
    for set_in, launched in itertools.product(("first", "kernel in first"), repeat=2):
        handles = Handles()
        functions = {whose: function for whose, function, _ in handles.all()}
        function = functions[set_in]
        results = [driver.cuFuncSetBlockShape(function, 7, 1, 1)[0]]
        results.append(driver.cuParamSetSize(function, 8)[0])
        results.append(driver.cuParamSeti(function, 0, memory & 0xFFFFFFFF)[0])
        results.append(driver.cuParamSeti(function, 4, memory >> 32)[0])
        done(driver.cuMemsetD8(memory, 0, 64))
        # A launch of what was told nothing runs into what lies around.
        if int(results[0]) == 0:
            results.append(driver.cuLaunch(functions[launched])[0])
        results.append(driver.cuCtxSynchronize()[0])
        into = bytearray(4)
        done(driver.cuMemcpyDtoH(into, memory, 4))
        print(set_in, launched, *map(short, results), into[0])
        handles.end()


def attributes():
    """Set through one handle, or through one and then another: what all tell, and how they run."""
    for early in (True, False):
        for name, values in CHANGED.items():
            for whose in WHO:
                handles = Handles(early=early)
                print(name, "early" if early else "late", whose, handles.set(whose, name, values[0]))
                print("   ", handles.seen(name))
                handles.runs()
                handles.end()
            for one, other in itertools.permutations(WHO, 2):
                handles = Handles(early=early)
                results = [handles.set(one, name, values[0]), handles.set(other, name, values[1])]
                print(name, "early" if early else "late", one, "then", other, *results)
                print("   ", handles.seen(name))
                handles.end()


for section in (nodes, attributes, shapes, identity):
    if section.__name__ in (sys.argv[1:] or section.__name__):
        section()
