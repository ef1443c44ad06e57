import ctypes

from calls import KERNELS, done, read, start
from cuda.bindings import driver

device, _ = start()
module = done(driver.cuModuleLoadData(KERNELS))
store = done(driver.cuModuleGetFunction(module, b"store"))
memory = done(driver.cuMemAlloc(64))
one = (1, 1, 1, 1, 1, 1, 0, 0)
done(driver.cuLaunchKernel(store, *one, ((memory, 41), (None, ctypes.c_uint32)), 0))
print(read(memory))
config = driver.CUlaunchConfig()
config.gridDimX = config.gridDimY = config.gridDimZ = 1
config.blockDimX = config.blockDimY = config.blockDimZ = 1
done(driver.cuLaunchKernelEx(config, store, ((memory, 42), (None, ctypes.c_uint32)), 0))
print(read(memory))
packed = int(memory).to_bytes(8, "little") + (43).to_bytes(4, "little")
size = ctypes.c_size_t(len(packed))
extra = (ctypes.c_void_p * 5)(1, ctypes.cast(packed, ctypes.c_void_p), 2, ctypes.addressof(size), 0)
done(driver.cuLaunchKernel(store, *one, 0, ctypes.addressof(extra)))
print(read(memory))
address, bytes_there = done(driver.cuModuleGetGlobal(module, b"seen"))
print(bytes_there, read(address))
done(driver.cuMemcpyHtoD(address, b"\5\0\0\0", 4))
print(read(address))
attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
print(done(driver.cuFuncGetAttribute(attribute, store)), done(driver.cuFuncGetName(store)))
print(done(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(store, 128, 0)))
print([done(driver.cuFuncGetParamInfo(store, index)) for index in range(2)])
print(driver.cuFuncGetParamInfo(store, 2)[0].name, driver.cuModuleGetFunction(module, b"none")[0].name)
print(driver.cuModuleGetGlobal(module, b"none")[0].name)
library = done(driver.cuLibraryLoadData(KERNELS, None, None, 0, None, None, 0))
kernel = done(driver.cuLibraryGetKernel(library, b"increment"))
print(int(done(driver.cuLibraryGetKernel(library, b"increment"))) == int(kernel))
function = done(driver.cuKernelGetFunction(kernel))
for _ in range(1000):
    done(driver.cuLaunchKernel(function, *one, ((memory,), (None,)), 0))
print(read(memory))
done(driver.cuLibraryUnload(library))
done(driver.cuModuleUnload(module))
log = bytearray(512)
options = [
    driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER,
    driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
]
bad = KERNELS.replace(b"add.u32", b"no.such")
print(driver.cuModuleLoadDataEx(bad, 2, options, [log, len(log)])[0].name, log.strip(b"\0") != b"")
print(driver.cuModuleLoad(b"/no/such/file")[0].name)
