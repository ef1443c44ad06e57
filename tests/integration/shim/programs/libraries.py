"""Libraries, modules and entry points: what is in them, and what is not."""

from calls import KERNELS, done, names, start
from cuda.bindings import driver

device, _ = start()
library = done(driver.cuLibraryLoadData(KERNELS, None, None, 0, None, None, 0))
module = done(driver.cuModuleLoadData(KERNELS))

# Kernels.
print(done(driver.cuLibraryGetKernelCount(library)), done(driver.cuModuleGetFunctionCount(module)))
kernels = done(driver.cuLibraryEnumerateKernels(3, library))
print(sorted(done(driver.cuKernelGetName(kernel)) for kernel in kernels))
functions = done(driver.cuModuleEnumerateFunctions(3, module))
print(sorted(done(driver.cuFuncGetName(function)) for function in functions))
kernel = done(driver.cuLibraryGetKernel(library, b"store"))
function = done(driver.cuModuleGetFunction(module, b"store"))
print(int(done(driver.cuKernelGetLibrary(kernel))) == int(library))
print(int(done(driver.cuFuncGetModule(function))) == int(module))
print([driver.cuKernelGetParamInfo(kernel, index)[1:] for index in (0, 1)])
names(driver.cuKernelGetParamInfo(kernel, 2), driver.cuKernelGetParamInfo(kernel, 1 << 40))
ATTRIBUTE = driver.CUfunction_attribute
for name in (
    "MAX_THREADS_PER_BLOCK",
    "SHARED_SIZE_BYTES",
    "CONST_SIZE_BYTES",
    "LOCAL_SIZE_BYTES",
    "CACHE_MODE_CA",
    "MAX_DYNAMIC_SHARED_SIZE_BYTES",
    "PREFERRED_SHARED_MEMORY_CARVEOUT",
    "CLUSTER_SIZE_MUST_BE_SET",
    "REQUIRED_CLUSTER_WIDTH",
    "NON_PORTABLE_CLUSTER_SIZE_ALLOWED",
    "CLUSTER_SCHEDULING_POLICY_PREFERENCE",
):
    kind = getattr(ATTRIBUTE, "CU_FUNC_ATTRIBUTE_" + name)
    told = driver.cuFuncGetAttribute(kind, function), driver.cuKernelGetAttribute(kind, kernel, device)
    print(name, [(answer[0].name, answer[1]) for answer in told])
names(
    *(
        driver.cuFuncSetAttribute(function, getattr(ATTRIBUTE, "CU_FUNC_ATTRIBUTE_" + name), value)
        for name, value in (
            ("MAX_DYNAMIC_SHARED_SIZE_BYTES", 232448),
            ("MAX_DYNAMIC_SHARED_SIZE_BYTES", 232449),
            ("MAX_DYNAMIC_SHARED_SIZE_BYTES", -1),
            ("PREFERRED_SHARED_MEMORY_CARVEOUT", 100),
            ("PREFERRED_SHARED_MEMORY_CARVEOUT", 101),
            ("PREFERRED_SHARED_MEMORY_CARVEOUT", -1),
            ("PREFERRED_SHARED_MEMORY_CARVEOUT", -2),
            ("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1),
            ("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 2),
            ("REQUIRED_CLUSTER_WIDTH", 2),
            ("MAX_THREADS_PER_BLOCK", 64),
            ("SHARED_SIZE_BYTES", 64),
        )
    )
)
names(*(driver.cuFuncSetCacheConfig(function, config) for config in driver.CUfunc_cache))
names(driver.cuFuncGetAttribute(ATTRIBUTE.CU_FUNC_ATTRIBUTE_MAX, function))
names(
    driver.cuKernelSetAttribute(
        ATTRIBUTE.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 30, kernel, device
    )
)
print(int(done(driver.cuFuncIsLoaded(function))), driver.cuFuncLoad(function)[0].name)

# Variables.
print(
    done(driver.cuLibraryGetGlobal(library, b"seen"))[1], done(driver.cuModuleGetGlobal(module, b"seen"))[1]
)
inside = done(driver.cuLibraryGetModule(library))
place = done(driver.cuModuleGetGlobal(inside, b"seen"))[0]
print(int(place) == int(done(driver.cuLibraryGetGlobal(library, b"seen"))[0]))
print(
    int(done(driver.cuKernelGetFunction(kernel))) == int(done(driver.cuModuleGetFunction(inside, b"store")))
)

# What is not there.
names(driver.cuLibraryGetKernel(library, b"none"), driver.cuLibraryGetGlobal(library, b"none"))
names(driver.cuModuleGetFunction(module, b""), driver.cuModuleGetGlobal(module, b""))
names(driver.cuLibraryGetKernelCount(0), driver.cuLibraryGetKernel(0, b"store"), driver.cuLibraryUnload(0))
names(driver.cuModuleGetFunctionCount(0), driver.cuModuleGetFunction(0, b"store"), driver.cuModuleUnload(0))
names(driver.cuKernelGetName(0), driver.cuFuncGetName(0), driver.cuFuncGetModule(0))
names(driver.cuModuleLoadData(b""))
names(driver.cuLibraryLoadFromFile(b"/none", None, None, 0, None, None, 0))
names(driver.cuModuleLoadFatBinary(b"garbage"), driver.cuModuleLoadDataEx(KERNELS, 0, [], []))

# Entry points.
for name, version, flags in (
    (b"cuMemAlloc", 13000, 0),
    (b"cuMemAlloc", 2000, 0),
    (b"cuMemAlloc", 3010, 0),
    (b"cuMemAlloc", 0, 0),
    (b"cuMemAlloc_v2", 13000, 0),
    (b"cuStreamSynchronize", 13000, 1),
    (b"cuStreamSynchronize", 13000, 2),
    (b"cuStreamSynchronize", 13000, 4),
    (b"cuStreamSynchronize", 6000, 2),
    (b"cuNone", 13000, 0),
    (b"", 13000, 0),
    (b"cuGraphAddNode", 12000, 0),
    (b"cuGraphAddNode", 12020, 0),
    (b"cuGreenCtxCreate", 12030, 0),
):
    result, address, status = driver.cuGetProcAddress(name, version, flags)
    print(name, version, flags, result.name, bool(address), None if status is None else status.name)
names(driver.cuLibraryUnload(library), driver.cuModuleUnload(module))
