"""Virtual memory: reserved, made, mapped and opened wrongly."""

from calls import done, names, read, start
from cuda.bindings import driver

start()
FLAGS = driver.CUmemAccess_flags


def properties(kind="DEVICE", device=0, allocation="PINNED"):
    made = driver.CUmemAllocationProp()
    made.type = getattr(driver.CUmemAllocationType, "CU_MEM_ALLOCATION_TYPE_" + allocation)
    made.location.type = getattr(driver.CUmemLocationType, "CU_MEM_LOCATION_TYPE_" + kind)
    made.location.id = device
    return made


least, best = (
    getattr(driver.CUmemAllocationGranularity_flags, "CU_MEM_ALLOC_GRANULARITY_" + name)
    for name in ("MINIMUM", "RECOMMENDED")
)
step = done(driver.cuMemGetAllocationGranularity(properties(), least))
print(step, done(driver.cuMemGetAllocationGranularity(properties(), best)))
for wrong in (properties(device=77), properties(allocation="INVALID"), properties("INVALID")):
    names(driver.cuMemGetAllocationGranularity(wrong, least), driver.cuMemCreate(step, wrong, 0))

# Addresses. An alignment of more than a step is refused or not, as it comes.
for size, alignment, flags in ((0, 0, 0), (step + 1, 0, 0), (step, 3, 0), (step, 0, 1)):
    print(size // step, alignment, driver.cuMemAddressReserve(size, alignment, 0, flags)[0].name)
base = int(done(driver.cuMemAddressReserve(4 * step, 0, 0, 0)))
names(driver.cuMemAddressFree(base, step), driver.cuMemAddressFree(base + step, step))
names(driver.cuMemAddressFree(0, step), driver.cuMemAddressFree(12345, step))

# Memory.
names(driver.cuMemCreate(0, properties(), 0), driver.cuMemCreate(step + 1, properties(), 0))
names(driver.cuMemCreate(step, properties(), 1), driver.cuMemCreate(1 << 50, properties(), 0))
names(driver.cuMemGetAllocationPropertiesFromHandle(0))
handle = done(driver.cuMemCreate(2 * step, properties(), 0))

# Mappings.
for at, size, offset, flags in (
    (base, 0, 0, 0),
    (base, step + 1, 0, 0),
    (base + 1, step, 0, 0),
    (base, step, step, 0),
    (base, 4 * step, 0, 0),
    (base, 2 * step, 0, 1),
    (12345 * step, 2 * step, 0, 0),
):
    names(driver.cuMemMap(at, size, offset, handle, flags))
names(driver.cuMemUnmap(base, step), driver.cuMemsetD8(base, 1, 4))  # nothing is there
names(driver.cuMemMap(base, 2 * step, 0, handle, 0), driver.cuMemMap(base + step, 2 * step, 0, handle, 0))
access = driver.CUmemAccessDesc()
access.location = properties().location


def allow(at, size, name="READWRITE"):
    access.flags = getattr(FLAGS, "CU_MEM_ACCESS_FLAGS_PROT_" + name)
    return driver.cuMemSetAccess(at, size, [access], 1)


names(
    allow(base, 0), allow(base, step + 1), allow(base + 1, step), allow(base, 3 * step), allow(base, 4 * step)
)
names(driver.cuMemSetAccess(base, step, [], 0), allow(base, 2 * step), driver.cuMemsetD8(base, 7, 2 * step))
print(read(base + 2 * step - 4), done(driver.cuMemGetAccess(access.location, base)))
names(driver.cuMemsetD8(base, 7, 2 * step + 1))
access.location.id = 77
names(allow(base, 2 * step), driver.cuMemGetAccess(access.location, base))
access.location.id = 0

# The other way round.
names(driver.cuMemAddressFree(base, 4 * step), driver.cuMemFree(base))
names(driver.cuMemUnmap(base, step), driver.cuMemUnmap(base + 1, step), driver.cuMemUnmap(base, 4 * step))
names(driver.cuMemRelease(handle), driver.cuMemRelease(handle))
names(driver.cuMemUnmap(base, 2 * step), driver.cuMemUnmap(base, 2 * step), driver.cuMemsetD8(base, 1, 4))
names(driver.cuMemAddressFree(base, 4 * step), driver.cuMemAddressFree(base, 4 * step))
