"""Addresses of the GPU's are free wherever the kernel may have put the program, as far as it randomises."""

import ctypes
import re
from pathlib import Path

from calls import done, names, read, start
from cuda.bindings import driver

STEP, ROOM = 2 << 20, 64 << 30
PROGRAMS, MAPPINGS = (0x555555554000, 0x655555554000), (0x6FFF00000000, 0x7FFFFFFFF000)
NOTHING, PRIVATE, ANONYMOUS, NORESERVE, NOT_REPLACED = 0, 0x2, 0x20, 0x4000, 0x100000

start()
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
lines = re.findall(r"^(\w+)-(\w+)", Path("/proc/self/maps").read_text(), re.MULTILINE)
mappings = [(int(first, 16), int(last, 16)) for first, last in lines]
taken = 0
for lowest, highest in (PROGRAMS, MAPPINGS):
    here = [each for each in mappings if lowest <= each[0] < highest]
    # The neighbourhood of what is there already is left to it.
    ends = [lowest, *(last + ROOM for _, last in here)]
    begins = [*(first - ROOM for first, _ in here), highest]
    for first, last in zip(ends, begins, strict=True):
        if last > first:
            flags = PRIVATE | ANONYMOUS | NORESERVE | NOT_REPLACED
            assert libc.mmap(first, last - first, NOTHING, flags, -1, 0) == first, hex(first)
            taken += last - first
assert taken > 20 << 40

for _ in range(4):
    place = int(done(driver.cuMemAddressReserve(64 * STEP, 0, 0, 0)))
    wanted = driver.CUmemAllocationProp()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    handle = done(driver.cuMemCreate(STEP, wanted, 0))
    access = driver.CUmemAccessDesc()
    access.location = wanted.location
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    names(driver.cuMemMap(place, STEP, 0, handle, 0), driver.cuMemSetAccess(place, STEP, [access], 1))
    names(driver.cuMemsetD8(place, 7, STEP))
    pinned = int(done(driver.cuMemHostAlloc(STEP, driver.CU_MEMHOSTALLOC_DEVICEMAP)))
    print(int(done(driver.cuMemHostGetDevicePointer(pinned, 0))) == pinned)
    names(driver.cuMemcpyDtoD(pinned, place, STEP))
    print(ctypes.string_at(pinned + STEP - 4, 4), read(place))
    done(driver.cuMemAlloc(STEP))
    managed = int(done(driver.cuMemAllocManaged(STEP, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL)))
    names(driver.cuMemsetD8(managed, 5, STEP), driver.cuCtxSynchronize())
    print(ctypes.string_at(managed + STEP - 4, 4))
