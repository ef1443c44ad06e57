"""Memory pools: their attributes, trimming and access, and pools used wrongly."""

from calls import done, names, start
from cuda.bindings import driver

device, _ = start()
stream = done(driver.cuStreamCreate(1))
ATTRIBUTE = driver.CUmemPool_attribute
KINDS = [
    getattr(ATTRIBUTE, "CU_MEMPOOL_ATTR_" + name)
    for name in (
        "REUSE_FOLLOW_EVENT_DEPENDENCIES",
        "REUSE_ALLOW_OPPORTUNISTIC",
        "REUSE_ALLOW_INTERNAL_DEPENDENCIES",
        "RELEASE_THRESHOLD",
        "RESERVED_MEM_CURRENT",
        "RESERVED_MEM_HIGH",
        "USED_MEM_CURRENT",
        "USED_MEM_HIGH",
    )
]


def properties(**fields):
    made = driver.CUmemPoolProps()
    made.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    made.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    for name, value in fields.items():
        if name == "id":
            made.location.id = value
        else:
            setattr(made, name, value)
    return made


# What a new pool is, and what can be set.
pool = done(driver.cuMemPoolCreate(properties()))
print([int(done(driver.cuMemPoolGetAttribute(pool, kind))) for kind in KINDS])
for kind in KINDS[:3]:
    done(driver.cuMemPoolSetAttribute(pool, kind, 0))
    print(int(done(driver.cuMemPoolGetAttribute(pool, kind))))
    done(driver.cuMemPoolSetAttribute(pool, kind, 1))
for kind in KINDS[4:]:
    names(*(driver.cuMemPoolSetAttribute(pool, kind, driver.cuuint64_t(value)) for value in (0, 1)))

# What is freed is used until the stream has got there, and kept up to the threshold.
first = done(driver.cuMemAllocFromPoolAsync(1 << 20, pool, stream))
second = done(driver.cuMemAllocFromPoolAsync(100, pool, stream))
print([int(done(driver.cuMemPoolGetAttribute(pool, kind))) for kind in KINDS[6:]])
names(driver.cuMemFreeAsync(first, stream), driver.cuMemFreeAsync(second, stream))
names(driver.cuStreamSynchronize(stream))
print([int(done(driver.cuMemPoolGetAttribute(pool, kind))) for kind in KINDS[6:]])
names(driver.cuMemPoolTrimTo(pool, 0))
print([int(done(driver.cuMemPoolGetAttribute(pool, kind))) for kind in (KINDS[4], KINDS[6])])
names(driver.cuMemPoolTrimTo(pool, 1 << 40), driver.cuMemPoolTrimTo(0, 0))

# Memory that is freed twice, elsewhere, or not from its beginning.
memory = int(done(driver.cuMemAllocFromPoolAsync(4096, pool, stream)))
names(driver.cuMemFreeAsync(memory + 16, stream), driver.cuMemFreeAsync(memory, stream))
names(driver.cuMemFreeAsync(memory, stream), driver.cuStreamSynchronize(stream))
plain = done(driver.cuMemAlloc(64))
names(driver.cuMemFreeAsync(plain, stream), driver.cuStreamSynchronize(stream))
names(driver.cuMemFreeAsync(0, stream), driver.cuMemFreeAsync(12345, stream))
names(driver.cuMemAllocAsync(0, stream), driver.cuMemAllocFromPoolAsync(0, pool, stream))
names(driver.cuMemAllocFromPoolAsync(16, 0, stream), driver.cuMemAllocAsync(1 << 50, stream))

# Who may use it.
location = driver.CUmemLocation()
location.type, location.id = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
print(done(driver.cuMemPoolGetAccess(pool, location)).name)
access = driver.CUmemAccessDesc()
access.location = location
for flags in ("READWRITE", "READ", "NONE"):
    access.flags = getattr(driver.CUmemAccess_flags, "CU_MEM_ACCESS_FLAGS_PROT_" + flags)
    names(driver.cuMemPoolSetAccess(pool, [access], 1))
access.location.id = 77
names(driver.cuMemPoolSetAccess(pool, [access], 1), driver.cuMemPoolSetAccess(pool, [], 0))

# Pools that there cannot be.
for wrong in (
    properties(allocType=driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_INVALID),
    properties(id=77),
    properties(id=-1),
):
    names(driver.cuMemPoolCreate(wrong))
names(driver.cuMemPoolCreate(None), driver.cuMemPoolDestroy(0))
names(
    driver.cuDeviceSetMemPool(device, 0), driver.cuDeviceGetMemPool(77), driver.cuDeviceGetDefaultMemPool(77)
)
preset = done(driver.cuDeviceGetDefaultMemPool(device))
names(driver.cuMemPoolDestroy(preset), driver.cuDeviceSetMemPool(device, pool))
print(int(done(driver.cuDeviceGetMemPool(device))) == int(pool))

# A pool that goes while its memory is used: that stays, and the device has its own pool again.
memory = int(done(driver.cuMemAllocAsync(4096, stream)))
names(driver.cuMemPoolDestroy(pool), driver.cuMemsetD8Async(memory, 1, 4096, stream))
print(int(done(driver.cuDeviceGetMemPool(device))) == int(preset))
names(driver.cuMemFreeAsync(memory, stream), driver.cuStreamSynchronize(stream))
