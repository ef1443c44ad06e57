from calls import done, read, start
from cuda.bindings import driver

device, _ = start()
stream = done(driver.cuStreamCreate(1))
ordered = done(driver.cuMemAllocAsync(1 << 20, stream))
done(driver.cuMemsetD8Async(ordered, 9, 1 << 20, stream))
done(driver.cuStreamSynchronize(stream))
print(read(int(ordered) + (1 << 20) - 4))
done(driver.cuMemFreeAsync(ordered, stream))
pool = done(driver.cuDeviceGetDefaultMemPool(device))
threshold = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
print(int(done(driver.cuMemPoolGetAttribute(pool, threshold))))
done(driver.cuMemPoolSetAttribute(pool, threshold, driver.cuuint64_t(1 << 20)))
print(int(done(driver.cuMemPoolGetAttribute(pool, threshold))))
USED, MOST = (
    getattr(driver.CUmemPool_attribute, f"CU_MEMPOOL_ATTR_USED_MEM_{name}") for name in ("CURRENT", "HIGH")
)


def used():
    done(driver.cuStreamSynchronize(stream))
    return [int(done(driver.cuMemPoolGetAttribute(pool, attribute))) for attribute in (USED, MOST)]


again = done(driver.cuMemAllocFromPoolAsync(4096, pool, stream))
more = done(driver.cuMemAllocAsync(1 << 21, stream))
print(used())
done(driver.cuMemFreeAsync(more, stream))
print(used())
done(driver.cuMemPoolSetAttribute(pool, MOST, driver.cuuint64_t(0)))
print(used(), driver.cuMemPoolSetAttribute(pool, USED, driver.cuuint64_t(0))[0].name)
done(driver.cuMemFree(again))
print(int(done(driver.cuDeviceGetMemPool(device))) == int(pool), driver.cuMemPoolDestroy(pool)[0].name)
