"""Random calls about memory: own mappings, pools, managed, pinned and registered memory, copies between them.

    random_memory.py SEED CALLS

Prints what each call returns and what memory holds, but no address: those are whoever's who gives them out.
"""

import ctypes
import hashlib
import mmap
import random
import sys

from calls import call, done, start
from cuda.bindings import driver

GRAIN = 2 << 20  # of what is mapped
PAGES = 1 << 16
ASKED = ("MEMORY_TYPE", "DEVICE_ORDINAL", "IS_MANAGED", "RANGE_SIZE", "MAPPED", "IS_LEGACY_CUDA_IPC_CAPABLE")
ASKED += ("ALLOWED_HANDLE_TYPES", "SYNC_MEMOPS", "ACCESS_FLAGS")
ON_DEVICE = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
PINNED = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
ACCESS = driver.CUmemAccess_flags
BOTH = ACCESS.CU_MEM_ACCESS_FLAGS_PROT_READWRITE

chance = random.Random(int(sys.argv[1]))
device, _ = start()
numbers = iter(range(10**9))
reserved, physical, pools, given = {}, {}, {}, {}  # by number; of memory the pool's
mapped, writable, pooled, managed, pinned, registered, plain = {}, {}, {}, {}, {}, {}, {}  # sizes by address
streams = [driver.CUstream(0), done(driver.cuStreamCreate(1)), done(driver.cuStreamCreate(0))]
pages = [mmap.mmap(-1, PAGES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(4)]
hosts = [ctypes.addressof(ctypes.c_char.from_buffer(each)) for each in pages]
default = done(driver.cuDeviceGetDefaultMemPool(device))


def any_of(things):
    return chance.choice(list(things)) if things else None


def often(value, *others):
    return chance.choice((value,) * 4 + others)


def settle():
    call("cuCtxSynchronize")


def fill(address, size, value):
    call("cuMemsetD8", address, value, size)
    settle()


def reserve():
    size = chance.choice((1, 2, 4, 8)) * GRAIN + often(0, 4096)
    if (address := call("cuMemAddressReserve", size, chance.choice((0, GRAIN, 3)), 0, 0)) is not None:
        reserved[next(numbers)] = (int(address), size)


def unreserve():
    if (number := any_of(reserved)) is not None:
        address, size = reserved[number]
        if call("cuMemAddressFree", address, size - often(0, GRAIN)) is not None:
            del reserved[number]


def create():
    properties = driver.CUmemAllocationProp()
    properties.type, properties.location.type, properties.location.id = PINNED, ON_DEVICE, often(0, 7)
    size = chance.choice((1, 2, 3)) * GRAIN + often(0, 1)
    if len(physical) < 10 and (handle := call("cuMemCreate", size, properties, 0)) is not None:
        physical[next(numbers)] = (handle, size)


def release():
    if (number := any_of(physical)) is not None and call("cuMemRelease", physical[number][0]) is not None:
        del physical[number]


def map_memory():
    number, place = any_of(physical), any_of(reserved)
    if number is None or place is None:
        return
    (handle, size), (first, room) = physical[number], reserved[place]
    address = first + chance.randrange(max(1, room // GRAIN)) * GRAIN
    if address + size > first + room:
        return
    if call("cuMemMap", address, size - often(0, GRAIN), often(0, GRAIN), handle, 0) is not None:
        mapped[address] = size


def unmap():
    if (address := any_of(mapped)) is None:
        return
    if call("cuMemUnmap", address, often(mapped[address], GRAIN)) is not None:
        del mapped[address]
        writable.pop(address, None)


def allow():
    if (address := any_of(mapped)) is None:
        return
    access = driver.CUmemAccessDesc()
    access.location.type, access.location.id = ON_DEVICE, often(0, 5)
    access.flags = often(BOTH, ACCESS.CU_MEM_ACCESS_FLAGS_PROT_READ, ACCESS.CU_MEM_ACCESS_FLAGS_PROT_NONE)
    if call("cuMemSetAccess", address, often(mapped[address], GRAIN), [access], 1) is not None:
        writable.pop(address, None)
        if access.flags == BOTH:
            writable[address] = GRAIN
            fill(address, GRAIN, 1)


def ask_about_mapping():
    if (address := any_of(mapped)) is None:
        return
    location = driver.CUmemLocation()
    location.type, location.id = ON_DEVICE, 0
    print(call("cuMemGetAccess", location, address))
    if (handle := call("cuMemRetainAllocationHandle", address + chance.choice((0, 5)))) is not None:
        call("cuMemRelease", handle)


def allocate():
    size = chance.choice((1, 300, 70000))
    if (address := call("cuMemAlloc", size)) is not None:
        plain[int(address)] = size
        fill(address, size, 3)


def free():
    if (address := any_of(plain)) is not None and call("cuMemFree", address + often(0, 1)) is not None:
        plain.pop(address, None)


def make_pool():
    properties = driver.CUmemPoolProps()
    properties.allocType, properties.location.type, properties.location.id = PINNED, ON_DEVICE, often(0, 3)
    properties.maxSize = chance.choice((0, 1 << 30))
    if len(pools) < 4 and (pool := call("cuMemPoolCreate", properties)) is not None:
        pools[next(numbers)] = pool


# Not one that has given memory: driver 580 crashes later.
def drop_pool():
    number = any_of(pools)
    if number is None or number in given.values():
        return
    if call("cuMemPoolDestroy", pools[number]) is not None:
        del pools[number]


def a_pool():
    number = any_of(pools) if chance.random() < 0.5 else None
    return number, default if number is None else pools[number]


def allocate_from_pool():
    size, (number, pool) = chance.choice((5, 9000, 3 << 20, 1 << 24)), a_pool()
    if (address := call("cuMemAllocFromPoolAsync", size, pool, chance.choice(streams))) is not None:
        settle()
        pooled[int(address)], given[int(address)] = size, number
        fill(address, size, 4)


def free_in_order():
    if (address := any_of(often(pooled, plain))) is None:
        return
    if call("cuMemFreeAsync", address, chance.choice(streams)) is not None:
        pooled.pop(address, None)
        given.pop(address, None)
        plain.pop(address, None)
    settle()


def attribute(name):
    return getattr(driver.CUmemPool_attribute, "CU_MEMPOOL_ATTR_" + name)


def ask_pool():
    _, pool = a_pool()
    for name in ("RELEASE_THRESHOLD", "USED_MEM_CURRENT", "USED_MEM_HIGH", "REUSE_FOLLOW_EVENT_DEPENDENCIES"):
        print(name, call("cuMemPoolGetAttribute", pool, attribute(name)))


def set_pool():
    (_, pool), value = a_pool(), chance.choice((0, 1, 1 << 20))
    name = chance.choice(
        ("RELEASE_THRESHOLD", "USED_MEM_HIGH", "REUSE_ALLOW_OPPORTUNISTIC", "USED_MEM_CURRENT")
    )
    given = value if name.startswith("REUSE") else driver.cuuint64_t(value)
    call("cuMemPoolSetAttribute", pool, attribute(name), given)
    call("cuMemPoolTrimTo", pool, 0)


def manage():
    size = chance.choice((7, 5000))
    if (address := call("cuMemAllocManaged", size, chance.choice((1, 1, 2, 4)))) is not None:
        managed[int(address)] = size
        ctypes.memset(int(address), 6, size)


def unmanage():
    if (address := any_of(managed)) is not None and call("cuMemFree", address) is not None:
        del managed[address]


def pin():
    size, flags = chance.choice((50, 7000)), chance.choice((0, 1, 2, 3, 4, 8))
    if len(pinned) < 6 and (address := call("cuMemHostAlloc", size, flags)) is not None:
        pinned[int(address)] = size
        ctypes.memset(int(address), 9, size)


def unpin():
    if (address := any_of(pinned)) is not None and call("cuMemFreeHost", address + often(0, 8)) is not None:
        pinned.pop(address, None)


def register():
    address, size = chance.choice(hosts) + often(0, 4096, 100), chance.choice((4096, 8192, 16384, 50))
    if call("cuMemHostRegister", address, size, chance.choice((0, 1, 2, 3, 16))) is not None:
        registered[address] = size


def unregister():
    if (address := any_of(registered)) is None:
        return
    if call("cuMemHostUnregister", address + often(0, 4096)) is not None:
        registered.pop(address, None)


def on_host():
    return {**managed, **pinned, **registered}


def everywhere():
    return {**plain, **pooled, **on_host(), **writable}


def ask():
    places = everywhere()
    if (first := any_of(places)) is None:
        return
    address = first + chance.choice((0, 0, 1, places[first] - 1))
    for name in ASKED:
        wanted = getattr(driver.CUpointer_attribute, "CU_POINTER_ATTRIBUTE_" + name)
        result, value = driver.cuPointerGetAttribute(wanted, address)
        print(name, result.name, value if value is None else int(value))
    result, start_of, size = driver.cuMemGetAddressRange(address)
    print(result.name, int(result) == 0 and (int(start_of) - first, size))
    result, flags = driver.cuMemHostGetFlags(address)
    print(driver.cuMemHostGetDevicePointer(address, 0)[0].name, result.name, flags)


def copy():
    places = everywhere()
    to, source = any_of(places), any_of(places)
    if to is None:
        return
    size, stream = chance.randrange(1, min(places[to], places[source]) + 1), chance.choice(streams)
    kind = chance.choice(("", "DtoD", "HtoD", "DtoH", "Async", "2D", "fill", "fill rows"))
    if kind == "2D" and to == source:  # rows that overlap may become anything
        if (source := any_of([each for each in places if each != to])) is None:
            return
        size = min(size, places[source])
    rows = max(1, size // 64)
    if kind == "2D":
        copied = driver.CUDA_MEMCPY2D()
        copied.WidthInBytes, copied.Height = min(size, chance.randrange(1, 40)), rows
        copied.srcPitch, copied.dstPitch = chance.choice((64, 64, 0, 30)), 64
        copied.srcDevice, copied.dstDevice = source, to
        types = driver.CUmemorytype
        copied.srcMemoryType = often(types.CU_MEMORYTYPE_UNIFIED, types.CU_MEMORYTYPE_DEVICE)
        copied.dstMemoryType = often(types.CU_MEMORYTYPE_UNIFIED, types.CU_MEMORYTYPE_DEVICE)
        call(chance.choice(("cuMemcpy2D", "cuMemcpy2DUnaligned")), copied)
    elif kind == "fill":
        call("cuMemsetD8Async", to, chance.randrange(256), size, stream)
    elif kind == "fill rows":
        call("cuMemsetD2D8", to, 64, chance.randrange(256), min(size, chance.randrange(65)), rows)
    else:
        call("cuMemcpy" + kind, to, source, size, *([stream] if kind == "Async" else []))
    settle()


def look():
    settle()
    seen = on_host()
    for number, (address, size) in enumerate(everywhere().items()):
        content = ctypes.string_at(address, size) if address in seen else bytearray(size)
        if address not in seen:
            print(driver.cuMemcpyDtoH(content, address, size)[0].name)
        print(number, size, hashlib.md5(content).hexdigest())


OFTEN = {reserve: 3, unreserve: 2, create: 4, release: 2, map_memory: 6, unmap: 3, allow: 5}
OFTEN |= {ask_about_mapping: 2, allocate: 4, free: 2, make_pool: 2, drop_pool: 1, allocate_from_pool: 4}
OFTEN |= {free_in_order: 3, ask_pool: 1, set_pool: 1, manage: 2, unmanage: 1, pin: 3, unpin: 2, register: 4}
OFTEN |= {unregister: 3, ask: 8, copy: 16, look: 2}

for _ in range(int(sys.argv[2])):
    chance.choices(list(OFTEN), OFTEN.values())[0]()
look()
