"""Limits, attributes of streams and of pointers, and switches that change nothing here."""

from calls import done, names, start
from cuda.bindings import driver

device, _ = start()
for limit in driver.CUlimit:
    first, second = driver.cuCtxGetLimit(limit), driver.cuCtxSetLimit(limit, 1 << 20)
    print(limit.name, first, second[0].name, driver.cuCtxGetLimit(limit)[1])
for config in driver.CUfunc_cache:
    print(driver.cuCtxSetCacheConfig(config)[0].name, driver.cuCtxGetCacheConfig())
names(driver.cuProfilerStart(), driver.cuProfilerStop())

stream, other = done(driver.cuStreamCreateWithPriority(1, -3)), done(driver.cuStreamCreate(0))
kinds = driver.CUlaunchAttributeID
policy = kinds.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
value = driver.CUstreamAttrValue()
value.syncPolicy = driver.CUsynchronizationPolicy.CU_SYNC_POLICY_SPIN
print(done(driver.cuStreamGetAttribute(stream, policy)).syncPolicy)
names(driver.cuStreamSetAttribute(stream, policy, value), driver.cuStreamCopyAttributes(other, stream))
print(done(driver.cuStreamGetAttribute(other, policy)).syncPolicy)
print(done(driver.cuStreamGetAttribute(stream, kinds.CU_LAUNCH_ATTRIBUTE_PRIORITY)).priority)
names(driver.cuStreamGetAttribute(stream, kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE))

memory, pinned = int(done(driver.cuMemAlloc(100))), int(done(driver.cuMemHostAlloc(100, 2)))
pooled = int(done(driver.cuMemAllocAsync(100, 0)))
asked = driver.CUpointer_attribute
for name in ("MEMORY_TYPE", "IS_MANAGED", "DEVICE_ORDINAL", "RANGE_SIZE", "MAPPED", "SYNC_MEMOPS"):
    kind = getattr(asked, "CU_POINTER_ATTRIBUTE_" + name)
    print(name, [driver.cuPointerGetAttribute(kind, at) for at in (memory + 3, pinned + 3, memory + 4096)])
capable = asked.CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
print([done(driver.cuPointerGetAttribute(capable, at)) for at in (memory, pinned, pooled)])

properties = driver.CUmemPoolProps()
properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
pool = done(driver.cuMemPoolCreate(properties))
there = done(driver.cuMemAllocFromPoolAsync(4096, pool, stream))
print(done(driver.cuPointerGetAttribute(asked.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, there)))
names(driver.cuMemFreeAsync(there, stream), driver.cuStreamSynchronize(stream), driver.cuMemPoolDestroy(pool))
