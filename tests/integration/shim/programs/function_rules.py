"""What attributes a function takes, and what becomes of its launches and occupancy.

A line for each attribute and each kernel: for each value whether it is taken, what the attribute is then, and
how launches end.
"""

import ctypes

from calls import done, short, start
from cuda.bindings import driver

HEAD = b".version 7.8\n.target sm_90\n.address_size 64\n"
KERNELS = {
    "plain": b".visible .entry kernel() { ret; }",
    "bounded": b""".visible .entry kernel(.param .u64 address) .maxntid 64,1,1
{
    .reg .b64 %rd<3>; .reg .b32 %r<3>; .shared .align 4 .b8 tile[2048];
    ld.param.u64 %rd1, [address];
    mov.u32 %r1, tile;
    st.global.u32 [%rd1], %r1;
    ret;
}""",
    "clustered": b".visible .entry kernel() .explicitcluster .reqnctapercluster 2,1,1 { ret; }",
    "in clusters": b".visible .entry kernel() .explicitcluster { ret; }",
}
device, _ = start()
memory = int(done(driver.cuMemAlloc(64)))
PREFIX = "CU_FUNC_ATTRIBUTE_"
# Not all versions of cuda-python know the others.
NAMES = ("MAX_THREADS_PER_BLOCK", "SHARED_SIZE_BYTES", "CONST_SIZE_BYTES", "LOCAL_SIZE_BYTES")
NAMES += ("MAX_DYNAMIC_SHARED_SIZE_BYTES", "PREFERRED_SHARED_MEMORY_CARVEOUT", "CLUSTER_SIZE_MUST_BE_SET")
NAMES += ("REQUIRED_CLUSTER_WIDTH", "REQUIRED_CLUSTER_HEIGHT", "REQUIRED_CLUSTER_DEPTH")
NAMES += ("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", "CLUSTER_SCHEDULING_POLICY_PREFERENCE")
CHANGED = {
    "MAX_DYNAMIC_SHARED_SIZE_BYTES": (-1, 0, 1, 1024, 46080, 48000, 231424, 232448, 300000),
    "PREFERRED_SHARED_MEMORY_CARVEOUT": (-2, -1, 0, 1, 8, 17, 100, 101),
    "REQUIRED_CLUSTER_WIDTH": (-1, 0, 1, 2, 3, 17),
    "REQUIRED_CLUSTER_HEIGHT": (-1, 0, 1, 2),
    "REQUIRED_CLUSTER_DEPTH": (-1, 0, 1, 2),
    "NON_PORTABLE_CLUSTER_SIZE_ALLOWED": (-1, 0, 1, 2),
    "CLUSTER_SCHEDULING_POLICY_PREFERENCE": (-1, 0, 1, 2, 3),
}
SIZES = ((0, 0, 0), (1, 1, 1), (2, 0, 0), (0, 2, 0), (2, 1, 1), (2, 2, 1), (2, 2, 2), (3, 1, 1), (4, 1, 1))
SIZES += ((8, 1, 1), (9, 1, 1), (16, 1, 1), (4, 4, 1), (1, 1, 2), (1, 2, 0), (8, 2, 1), (17, 1, 1))


def attribute(name):
    return getattr(driver.CUfunction_attribute, PREFIX + name)


def get(function, name):
    result, value = driver.cuFuncGetAttribute(attribute(name), function)
    return value if int(result) == 0 else short(result)


def launch(function, grid, block=(32, 1, 1), shared=0):
    values = ((memory,), (ctypes.c_uint64,)) if get(function, "SHARED_SIZE_BYTES") else 0
    result = short(driver.cuLaunchKernel(function, *grid, *block, shared, 0, values, 0)[0])
    done(driver.cuCtxSynchronize())
    return result


def after(function):
    """Launches and what fits."""
    launches = [launch(function, grid) for grid in ((1, 1, 1), (2, 1, 1), (16, 2, 2))]
    launches += [launch(function, (1, 1, 1), shared=shared) for shared in (40000, 60000)]
    fits = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 32, 0)
    more = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 64, 40000)
    left = [driver.cuOccupancyAvailableDynamicSMemPerBlock(function, blocks, 32) for blocks in (1, 2, 8, 32)]
    values = [value if int(result) == 0 else short(result) for result, value in (fits, more, *left)]
    return f"{' '.join(launches)}; {' '.join(map(str, values))}"


def fresh(text):
    module = done(driver.cuModuleLoadData(HEAD + text))
    return module, done(driver.cuModuleGetFunction(module, b"kernel"))


for kernel, text in KERNELS.items():
    module, function = fresh(text)
    print(f"{kernel}:", " ".join(f"{name} {get(function, name)}," for name in NAMES), after(function))
    done(driver.cuModuleUnload(module))
    for name in NAMES:
        for value in CHANGED.get(name, (0, 1)):
            module, function = fresh(text)
            taken = short(driver.cuFuncSetAttribute(function, attribute(name), value)[0])
            print(f"{kernel} {name} {value}: {taken} {get(function, name)} {after(function)}")
            done(driver.cuModuleUnload(module))
    for size in SIZES:
        for beyond in (0, 1):
            module, function = fresh(text)
            allowed = driver.cuFuncSetAttribute(
                function, attribute("NON_PORTABLE_CLUSTER_SIZE_ALLOWED"), beyond
            )
            taken = [
                short(driver.cuFuncSetAttribute(function, attribute(f"REQUIRED_CLUSTER_{side}"), length)[0])
                for side, length in zip(("WIDTH", "HEIGHT", "DEPTH"), size, strict=True)
            ]
            sizes = [get(function, f"REQUIRED_CLUSTER_{side}") for side in ("WIDTH", "HEIGHT", "DEPTH")]
            print(f"{kernel} {size} {beyond}:", short(allowed[0]), *taken, *sizes, after(function))
            done(driver.cuModuleUnload(module))
