"""Limits, attributes of streams and of pointers, and switches that change nothing here."""

import ctypes

from calls import done, names, start
from cuda.bindings import driver

device, _ = start()
for name in (
    "STACK_SIZE",
    "PRINTF_FIFO_SIZE",
    "MALLOC_HEAP_SIZE",
    "DEV_RUNTIME_SYNC_DEPTH",
    "DEV_RUNTIME_PENDING_LAUNCH_COUNT",
    "MAX_L2_FETCH_GRANULARITY",
    "PERSISTING_L2_CACHE_SIZE",
    "SHMEM_SIZE",
    "CIG_ENABLED",
    "CIG_SHMEM_FALLBACK_ENABLED",
):
    limit = getattr(driver.CUlimit, "CU_LIMIT_" + name)
    first, second = driver.cuCtxGetLimit(limit), driver.cuCtxSetLimit(limit, 1 << 20)
    print(name, first, second[0].name, driver.cuCtxGetLimit(limit)[1])
done(driver.cuCtxSetLimit(driver.CUlimit.CU_LIMIT_STACK_SIZE, 5000))
print(done(driver.cuCtxGetLimit(driver.CUlimit.CU_LIMIT_STACK_SIZE)))
for config in driver.CUfunc_cache:
    print(driver.cuCtxSetCacheConfig(config)[0].name, driver.cuCtxGetCacheConfig())
names(driver.cuProfilerStart(), driver.cuProfilerStop())

stream, other = done(driver.cuStreamCreateWithPriority(1, -3)), done(driver.cuStreamCreate(0))
kinds = driver.CUlaunchAttributeID
policy = kinds.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
value = driver.CUstreamAttrValue()
value.syncPolicy = driver.CUsynchronizationPolicy.CU_SYNC_POLICY_SPIN
told = done(driver.cuStreamGetAttribute(stream, policy))  # of a policy that was never set: no policy
print(ctypes.c_int.from_address(told.getPtr()).value)
names(driver.cuStreamSetAttribute(stream, policy, value), driver.cuStreamCopyAttributes(other, stream))
print(done(driver.cuStreamGetAttribute(other, policy)).syncPolicy)
print(done(driver.cuStreamGetAttribute(stream, kinds.CU_LAUNCH_ATTRIBUTE_PRIORITY)).priority)
names(driver.cuStreamGetAttribute(stream, kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE))

for each in (0, driver.CUstream(1), driver.CUstream(2), other):
    told = done(driver.cuStreamGetAttribute(each, kinds.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP))
    print(told.memSyncDomainMap.default_, told.memSyncDomainMap.remote)
window = kinds.CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
value = driver.CUstreamAttrValue()
value.accessPolicyWindow.num_bytes, value.accessPolicyWindow.hitRatio = 4096, 0.5
names(driver.cuStreamSetAttribute(0, window, value), driver.cuStreamCopyAttributes(driver.CUstream(2), 0))
for each in (0, driver.CUstream(2), other):  # default streams have attributes, too
    print(done(driver.cuStreamGetAttribute(each, window)).accessPolicyWindow.num_bytes)

memory, pinned = int(done(driver.cuMemAlloc(100))), int(done(driver.cuMemHostAlloc(100, 2)))
pooled = int(done(driver.cuMemAllocAsync(100, 0)))
asked = driver.CUpointer_attribute
for name in ("MEMORY_TYPE", "IS_MANAGED", "DEVICE_ORDINAL", "RANGE_SIZE", "MAPPED", "SYNC_MEMOPS"):
    kind = getattr(asked, "CU_POINTER_ATTRIBUTE_" + name)
    print(name, [driver.cuPointerGetAttribute(kind, at) for at in (memory + 3, pinned + 3, memory + 4096)])
packed, unknown, told = int(asked.CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE), 99, ctypes.c_uint64()
ask = ctypes.CDLL("libcuda.so.1").cuPointerGetAttribute  # not every cuda.bindings asks for these
for kind, at in (packed, memory), (packed, pinned), (unknown, memory):
    print(ask(ctypes.byref(told), ctypes.c_int(kind), ctypes.c_uint64(at)), told.value)
capable = asked.CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
print([done(driver.cuPointerGetAttribute(capable, at)) for at in (memory, pinned, pooled)])

properties = driver.CUmemPoolProps()
properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
pool = done(driver.cuMemPoolCreate(properties))
there = done(driver.cuMemAllocFromPoolAsync(4096, pool, stream))
print(done(driver.cuPointerGetAttribute(asked.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, there)))
names(driver.cuMemFreeHost(int(there)), driver.cuMemFreeAsync(there, stream))
names(driver.cuStreamSynchronize(stream), driver.cuMemPoolDestroy(pool))
