"""Neither kernels nor mappings reach another device's memory, as no peer access is told of.

peers.py KIND
"""

import ctypes
import sys

from calls import KERNELS, done, launch, names
from cuda.bindings import driver

DEVICE = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
PINNED = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
BOTH = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
GRAIN = 2 << 20


def let_in(device):
    allowed = driver.CUmemAccessDesc()
    allowed.location.type, allowed.location.id, allowed.flags = DEVICE, device, BOTH
    return allowed


def mapped():
    kind = driver.CUmemAllocationProp()
    kind.type, kind.location.type = PINNED, DEVICE
    address = done(driver.cuMemAddressReserve(GRAIN, 0, 0, 0))
    done(driver.cuMemMap(address, GRAIN, 0, done(driver.cuMemCreate(GRAIN, kind, 0)), 0))
    for device in (0, 1):
        names(driver.cuMemSetAccess(address, GRAIN, [let_in(device)], 1))
        print(done(driver.cuMemGetAccess(let_in(device).location, address)))
    return address


def pooled():
    address = done(driver.cuMemAllocAsync(64, 0))
    pool = done(driver.cuDeviceGetDefaultMemPool(0))
    names(driver.cuMemPoolSetAccess(pool, [let_in(1)], 1))
    done(driver.cuCtxSynchronize())
    return address


MADE = {
    "allocated": lambda: done(driver.cuMemAlloc(64)),
    "pooled": pooled,
    "mapped": mapped,
    "variable": lambda: done(driver.cuModuleGetGlobal(done(driver.cuModuleLoadData(KERNELS)), b"seen"))[0],
}

done(driver.cuInit(0))
contexts = [done(driver.cuDevicePrimaryCtxRetain(device)) for device in (0, 1)]
print(*(done(driver.cuDeviceCanAccessPeer(one, 1 - one)) for one in (0, 1)))
done(driver.cuCtxSetCurrent(contexts[0]))
place = MADE[sys.argv[1]]()
for context in contexts:
    done(driver.cuCtxSetCurrent(context))
    store = done(driver.cuModuleGetFunction(done(driver.cuModuleLoadData(KERNELS)), b"store"))
    names(launch(store, 0, place, ctypes.c_uint32(7)), driver.cuCtxSynchronize())
