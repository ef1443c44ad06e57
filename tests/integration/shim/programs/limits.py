"""What CUDA refuses, what it says of limits, and that a program goes on afterwards."""

import ctypes

from calls import KERNELS, done, read, start
from cuda.bindings import driver

device, _ = start()
module = done(driver.cuModuleLoadData(KERNELS))
store, nothing = (done(driver.cuModuleGetFunction(module, name)) for name in (b"store", b"nothing"))
memory = done(driver.cuMemAlloc(64))


def names(*answers):
    print(*(answer[0].name for answer in answers))


def launch(grid, block=(1, 1, 1), shared=0):
    answer = driver.cuLaunchKernel(nothing, *grid, *block, shared, 0, 0, 0)
    names(answer, driver.cuStreamSynchronize(0))


for grid in ((0, 1, 1), (1, 65536, 1), (1, 1, 65536), (2**31, 1, 1), (70000, 1, 1), (1, 1, 65535)):
    launch(grid)
for block in ((0, 1, 1), (1025, 1, 1), (1, 1, 65), (1024, 2, 1), (1 << 31, 1 << 31, 4), (1024, 1, 1)):
    launch((1, 1, 1), block)
launch((1, 1, 1), (1, 1, 1), 300000)
blocks = done(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(nothing, 1024, 0))
processors = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
blocks *= done(driver.cuDeviceGetAttribute(processors, device))
for more in (0, 1):  # all blocks of a cooperative launch have to be there at once
    names(
        driver.cuLaunchCooperativeKernel(nothing, blocks + more, 1, 1, 1024, 1, 1, 0, 0, 0),
        driver.cuStreamSynchronize(0),
    )
names(driver.cuMemAlloc(1 << 50), driver.cuMemAllocHost(1 << 50), driver.cuMemAlloc(0))

buffer = ctypes.create_string_buffer(int(memory).to_bytes(8, "little") + (55).to_bytes(4, "little"), 12)
size = ctypes.c_size_t(12)
extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
one = 1, 1, 1, 1, 1, 1, 0, 0
done(driver.cuLaunchKernel(store, *one, 0, ctypes.addressof(extra)))
print(read(memory))
size.value = 8
names(
    driver.cuLaunchKernel(store, *one, 0, ctypes.addressof(extra)), driver.cuLaunchKernel(store, *one, 0, 0)
)
names(driver.cuModuleGetFunction(module, b"none"), driver.cuModuleGetGlobal(module, b"none"))
names(driver.cuModuleLoadData(b"garbage\0"), driver.cuModuleLoad(b"/none"))
names(driver.cuModuleLoadData(KERNELS.replace(b"st.global.u32", b"st.glabol.u32")))

timed, other, untimed = (done(driver.cuEventCreate(flags)) for flags in (0, 0, 2))
names(driver.cuEventElapsedTime(timed, other))
for event in (timed, untimed, other):
    done(driver.cuEventRecord(event, 0))
done(driver.cuCtxSynchronize())
names(driver.cuEventElapsedTime(timed, untimed))
print(0 <= done(driver.cuEventElapsedTime(timed, other)) < 10000)

shared = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
for value in (100000, 1000000):
    names(driver.cuFuncSetAttribute(store, shared, value))
print(done(driver.cuFuncGetAttribute(shared, store)))
for threads in (32, 128, 1000, 1024):
    print(
        done(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(store, threads, 0)),
        done(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(store, threads, 40000)),
        done(driver.cuOccupancyAvailableDynamicSMemPerBlock(store, 2, threads)),
    )
names(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(store, 0, 0))
print(done(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(store, 2000, 0)))
print(done(driver.cuOccupancyMaxPotentialBlockSize(store, None, 0, 0)))
print(done(driver.cuOccupancyMaxPotentialBlockSize(store, None, 1000, 100)))
print([driver.cuFuncGetParamInfo(store, index)[1:] for index in (0, 1)])
names(driver.cuFuncGetParamInfo(store, 2))

kinds = driver.CUpointer_attribute
for kind in (
    kinds.CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
    kinds.CU_POINTER_ATTRIBUTE_IS_MANAGED,
    kinds.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    kinds.CU_POINTER_ATTRIBUTE_RANGE_SIZE,
):
    answers = [driver.cuPointerGetAttribute(kind, at) for at in (memory, int(memory) + 5, 1234567)]
    print([(answer[0].name, None if int(answer[0]) else int(answer[1])) for answer in answers])
print(done(driver.cuMemGetAddressRange(int(memory) + 7))[1])
names(driver.cuMemGetAddressRange(99), driver.cuDeviceGet(1), driver.cuDeviceGet(-1))
names(driver.cuStreamCreate(7), driver.cuEventCreate(64))
streams = [done(driver.cuStreamCreateWithPriority(1, priority)) for priority in (5, 0, -1, -3, -100)]
print([done(driver.cuStreamGetPriority(stream)) for stream in streams])
