from calls import done, read, start
from cuda.bindings import driver

device, _ = start()
properties = driver.CUmemAllocationProp()
properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
properties.location.id = 0
least = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
step = done(driver.cuMemGetAllocationGranularity(properties, least))
print(step)
base = done(driver.cuMemAddressReserve(8 * step, 0, 0, 0))
access = driver.CUmemAccessDesc()
access.location = properties.location
access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
descriptor = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
handles = []
for part in range(3):
    if part == 2:  # as PyTorch's expandable segments ask for all of theirs
        properties.requestedHandleTypes = descriptor
    handles.append(done(driver.cuMemCreate(step, properties, 0)))
    done(driver.cuMemMap(int(base) + part * step, step, 0, handles[-1], 0))
print([done(driver.cuMemGetAllocationPropertiesFromHandle(it)).requestedHandleTypes.name for it in handles])
done(driver.cuMemSetAccess(base, 3 * step, [access], 1))
done(driver.cuMemsetD8(base, 6, 3 * step))  # over all three
print(read(int(base) + 2 * step - 2, 4), read(int(base) + 3 * step - 4))
print(driver.cuMemMap(base, step, 0, handles[0], 0)[0].name)  # something is there
again = done(driver.cuMemRetainAllocationHandle(int(base) + 2 * step + 8))
done(driver.cuMemRelease(again))  # as NCCL frees: its size is asked for by an address
print(int(again) == int(handles[2]), done(driver.cuMemGetAddressRange(int(base) + 2 * step + 8))[1])
print(driver.cuMemRetainAllocationHandle(int(base) + 5 * step)[0].name)  # nothing is there
done(driver.cuMemRelease(handles[0]))
print(read(base))  # mapped memory stays
done(driver.cuMemUnmap(base, 3 * step))
for handle in handles[1:]:
    done(driver.cuMemRelease(handle))
done(driver.cuMemAddressFree(base, 8 * step))
again = done(driver.cuMemAddressReserve(step, 0, 0, 0))
done(driver.cuMemAddressFree(again, step))
