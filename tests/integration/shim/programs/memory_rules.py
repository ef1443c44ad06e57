"""What each kind of memory is called, what copies, fills and frees it takes, and what can be registered.

Prints no address. A line for each kind and each call.
"""

import ctypes
import itertools
import mmap

from calls import KERNELS, done, short, start
from cuda.bindings import driver

device, context = start()
SIZE = 4096
GRAIN = 2 << 20


def pages(count):
    """Pageable memory, and more of it around than is asked for."""
    kept.append(mmap.mmap(-1, (count + 2) * 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    return ctypes.addressof(ctypes.c_char.from_buffer(kept[-1])) + 4096


kept: list = []


def access(flags):
    wanted = driver.CUmemAccessDesc()
    wanted.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = 0
    wanted.flags = getattr(driver.CUmemAccess_flags, "CU_MEM_ACCESS_FLAGS_PROT_" + flags)
    return wanted


def mapping(flags, *, handles=0):
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location = access("NONE").location
    properties.requestedHandleTypes = driver.CUmemAllocationHandleType(handles)
    handle = done(driver.cuMemCreate(2 * GRAIN, properties, 0))
    address = int(done(driver.cuMemAddressReserve(4 * GRAIN, 0, 0, 0)))
    done(driver.cuMemMap(address, 2 * GRAIN, 0, handle, 0))
    if flags:
        done(driver.cuMemSetAccess(address, 2 * GRAIN, [access(flags)], 1))
    return address


def own_pool(maximum=0):
    properties = driver.CUmemPoolProps()
    properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location = access("NONE").location
    properties.maxSize = maximum
    return done(driver.cuMemPoolCreate(properties))


def registered(flags):
    address = pages(1)
    done(driver.cuMemHostRegister(address, SIZE, flags))
    return address


default = done(driver.cuDeviceGetDefaultMemPool(device))
module = done(driver.cuModuleLoadData(KERNELS))
KINDS = {
    "plain": lambda: done(driver.cuMemAlloc(SIZE)),
    "plain large": lambda: done(driver.cuMemAlloc(3 << 20)),
    "rows": lambda: done(driver.cuMemAllocPitch(64, 8, 4))[0],
    "variable": lambda: done(driver.cuModuleGetGlobal(module, b"seen"))[0],
    "in order": lambda: done(driver.cuMemAllocAsync(SIZE, 0)),
    "of a pool": lambda: done(driver.cuMemAllocFromPoolAsync(SIZE, own_pool(), 0)),
    "mapped": lambda: mapping("READWRITE"),
    "mapped to share": lambda: mapping("READWRITE", handles=1),
    "mapped to read": lambda: mapping("READ"),
    "mapped to nobody": lambda: mapping("NONE"),
    "mapped only": lambda: mapping(None),
    "reserved": lambda: done(driver.cuMemAddressReserve(GRAIN, 0, 0, 0)),
    "managed": lambda: done(driver.cuMemAllocManaged(SIZE, 1)),
    "managed of the host": lambda: done(driver.cuMemAllocManaged(SIZE, 2)),
    "pinned 0": lambda: done(driver.cuMemHostAlloc(SIZE, 0)),
    "pinned 1": lambda: done(driver.cuMemHostAlloc(SIZE, 1)),
    "pinned 2": lambda: done(driver.cuMemHostAlloc(SIZE, 2)),
    "pinned 4": lambda: done(driver.cuMemHostAlloc(SIZE, 4)),
    "pinned 7": lambda: done(driver.cuMemHostAlloc(SIZE, 7)),
    "pinned plainly": lambda: done(driver.cuMemAllocHost(SIZE)),
    "registered 0": lambda: registered(0),
    "registered 1": lambda: registered(1),
    "registered 2": lambda: registered(2),
    "registered 3": lambda: registered(3),
    "pageable": lambda: pages(1),
    "no memory": lambda: 64,
}
places = {name: int(make()) for name, make in KINDS.items()}
done(driver.cuCtxSynchronize())
ASKED = ("CONTEXT", "MEMORY_TYPE", "DEVICE_POINTER", "HOST_POINTER", "SYNC_MEMOPS", "BUFFER_ID", "IS_MANAGED")
ASKED += ("DEVICE_ORDINAL", "IS_LEGACY_CUDA_IPC_CAPABLE", "IS_GPU_DIRECT_RDMA_CAPABLE", "RANGE_START_ADDR")
ASKED += ("RANGE_SIZE", "MAPPED", "ALLOWED_HANDLE_TYPES", "ACCESS_FLAGS", "MEMPOOL_HANDLE")
NUMBERS = ("MEMORY_TYPE", "SYNC_MEMOPS", "IS_MANAGED", "DEVICE_ORDINAL", "IS_LEGACY_CUDA_IPC_CAPABLE")
NUMBERS += ("IS_GPU_DIRECT_RDMA_CAPABLE", "RANGE_SIZE", "MAPPED", "ALLOWED_HANDLE_TYPES", "ACCESS_FLAGS")
ADDRESSES = ("DEVICE_POINTER", "HOST_POINTER", "RANGE_START_ADDR")


def told(name, address, base):
    """What an attribute says, without what is whoever's who gives addresses out."""
    wanted = getattr(driver.CUpointer_attribute, "CU_POINTER_ATTRIBUTE_" + name)
    result, value = driver.cuPointerGetAttribute(wanted, address)
    if int(result) != 0:
        return short(result)
    if name in NUMBERS:
        return int(value)
    if name in ADDRESSES:
        return "none" if int(value) == 0 else f"{int(value) - base:+}"
    return "none" if int(value or 0) == 0 else "some"


def ask(name, base):
    for offset in (0,) if name == "variable" else (0, SIZE - 1):
        address = base + offset
        print(f"{name} +{offset}:", *(f"{each} {told(each, address, base)}," for each in ASKED))
        result, first, size = driver.cuMemGetAddressRange(address)
        found = f"{int(first) - base:+} {size}" if int(result) == 0 else short(result)
        pointer = driver.cuMemHostGetDevicePointer(address, 0)
        there = f"{int(pointer[1]) - base:+}" if int(pointer[0]) == 0 else short(pointer[0])
        flags = driver.cuMemHostGetFlags(address)
        # Whether small pinned memory is portable a real driver tells of all that lie together.
        hidden = 1 if name.startswith("pinned") else 0
        told_flags = flags[1] & ~hidden if int(flags[0]) == 0 else short(flags[0])
        print("   range", found, "device", there, "flags", told_flags)
        got = driver.cuMemGetAccess(access("NONE").location, address)
        kept_by = driver.cuMemRetainAllocationHandle(address)
        if int(kept_by[0]) == 0:
            done(driver.cuMemRelease(kept_by[1]))
        print("   access", got[1] if int(got[0]) == 0 else short(got[0]), "handle", short(kept_by[0]))


def rows(call, to, source, kinds):
    copy = driver.CUDA_MEMCPY2D()
    copy.srcMemoryType, copy.dstMemoryType = (driver.CUmemorytype(kind) for kind in kinds)
    copy.srcDevice, copy.srcHost, copy.dstDevice, copy.dstHost = source, source, to, to
    copy.srcPitch = copy.dstPitch = 64
    copy.WidthInBytes, copy.Height = 16, 4
    return call(copy)


COPIES = {
    "any": lambda to, source: driver.cuMemcpy(to, source, 16),
    "any async": lambda to, source: driver.cuMemcpyAsync(to, source, 16, 0),
    "within": lambda to, source: driver.cuMemcpyDtoD(to, source, 16),
    "within async": lambda to, source: driver.cuMemcpyDtoDAsync(to, source, 16, 0),
    "rows": lambda to, source: rows(driver.cuMemcpy2D, to, source, (4, 4)),
    "rows of the device": lambda to, source: rows(driver.cuMemcpy2D, to, source, (2, 2)),
}
UPLOADS = {
    "to": lambda to, source: driver.cuMemcpyHtoD(to, source, 16),
    "to async": lambda to, source: driver.cuMemcpyHtoDAsync(to, source, 16, 0),
    "rows to": lambda to, source: rows(driver.cuMemcpy2D, to, source, (1, 2)),
}
DOWNLOADS = {
    "from": lambda to, source: driver.cuMemcpyDtoH(to, source, 16),
    "from async": lambda to, source: driver.cuMemcpyDtoHAsync(to, source, 16, 0),
    "rows from": lambda to, source: rows(driver.cuMemcpy2D, to, source, (2, 1)),
}
FILLS = {
    "fill": lambda at: driver.cuMemsetD8(at, 1, 16),
    "fill async": lambda at: driver.cuMemsetD8Async(at, 1, 16, 0),
    "fill rows": lambda at: driver.cuMemsetD2D8(at, 64, 1, 16, 4),
    "fill words": lambda at: driver.cuMemsetD32(at, 1, 4),
    "write": lambda at: driver.cuStreamWriteValue32(0, at, 1, 0),
    "wait": lambda at: driver.cuStreamWaitValue32(0, at, 0, 0),
}
FREES = {
    "free": driver.cuMemFree,
    "free within": lambda at: driver.cuMemFree(at + 8),
    "free pinned": driver.cuMemFreeHost,
    "free pinned within": lambda at: driver.cuMemFreeHost(at + 8),
    "unregister": driver.cuMemHostUnregister,
    "unregister within": lambda at: driver.cuMemHostUnregister(at + 8),
    "unmap": lambda at: driver.cuMemUnmap(at, 2 * GRAIN),
    "unreserve": lambda at: driver.cuMemAddressFree(at, 4 * GRAIN),
}
HOST = [name for name in KINDS if name.startswith(("managed", "pinned", "registered", "pageable"))]


def settled(answer):
    result = short(answer[0])
    done(driver.cuCtxSynchronize())
    return result


def matrix(calls, targets, sources):
    for call, make in calls.items():
        for to in targets:
            results = [settled(make(places[to], places[source])) for source in sources]
            print(f"{call}, {to}:", *(f"{s} {r}," for s, r in zip(sources, results, strict=True)))


for name, base in places.items():
    ask(name, base)
# What may not be touched is a fault; the variable is smaller than what is copied.
SAFE = [
    name
    for name in KINDS
    if name not in ("no memory", "variable", "reserved", "mapped only", "mapped to read", "mapped to nobody")
]
matrix(COPIES, SAFE, SAFE)
matrix(UPLOADS, SAFE, HOST)
matrix(DOWNLOADS, HOST, SAFE)
for name in SAFE:
    for call, make in FILLS.items():
        if name.startswith("registered") and call in ("write", "wait"):
            continue  # stream values there fikitd does not serve
        if name != "pageable":
            print(f"{call}, {name}:", settled(make(places[name])))
SPARED = ("pageable", "no memory")
for flags in (0, 1, 2, 4, 5, 8, 9, 16):
    for where, address, size in (
        ("pages", pages(2), 8192),
        ("part", pages(2) + 100, 50),
        ("nothing", pages(1), 0),
        ("null", 0, 4096),
        *((name, places[name], 4096) for name in KINDS if flags in (0, 4, 8) and name not in SPARED),
    ):
        result = driver.cuMemHostRegister(address, size, flags)
        print(f"register {flags}, {where}:", short(result[0]))
        if int(result[0]) == 0:
            got = driver.cuMemHostGetFlags(address)
            print("   flags", got[1] if int(got[0]) == 0 else short(got[0]))
            print("   device", short(driver.cuMemHostGetDevicePointer(address, 0)[0]))
            print(
                "   again", *(short(driver.cuMemHostRegister(address, size, each)[0]) for each in (0, 4, 8))
            )
            print("   around", short(driver.cuMemHostRegister(address - 4096, 4096 * 4, flags)[0]))
            done(driver.cuMemHostUnregister(address))
for flags in range(12):
    result, address = driver.cuMemHostAlloc(64, flags)
    print("pin", flags, short(result))
    if int(result) == 0:
        done(driver.cuMemFreeHost(address))
for flags in range(8):
    result, address = driver.cuMemAllocManaged(64, flags)
    print("manage", flags, short(result))
    if int(result) == 0:
        done(driver.cuMemFree(address))
USED = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
for maximum in (0, 1, 100, GRAIN, GRAIN + 1, 3 * GRAIN, 1 << 25, (1 << 25) + 1):
    pool = own_pool(maximum)
    held = []
    for size in (5, 9000, 3 << 20, 1 << 24, 1 << 24, 1 << 25):
        result, address = driver.cuMemAllocFromPoolAsync(size, pool, 0)
        used = done(driver.cuMemPoolGetAttribute(pool, USED))
        print("pool of", maximum, "gives", size, short(result), int(used))
        if int(result) == 0:
            held.append(address)
    for address in held:
        done(driver.cuMemFreeAsync(address, 0))
    done(driver.cuCtxSynchronize())
    done(driver.cuMemPoolDestroy(pool))
for name in KINDS:
    for call, make in FREES.items():
        if call == "unreserve" and name.startswith("mapped"):
            continue
        print(f"{call}, {name}:", settled(make(places[name])), flush=True)
# Two registrations: where the second begins, from the beginning of the first, and how long it is.
BESIDE = {"same": (0, 8192), "first page": (0, 4096), "inside": (4096, 4096), "last and next": (4096, 8192)}
BESIDE |= {"before and first": (-4096, 8192), "around": (-4096, 16384), "next": (8192, 4096)}
BESIDE |= {"before": (-4096, 4096), "last bytes": (8192 - 100, 50), "bytes of next": (8192, 50)}


def beside(size, flags, distance, length, others):
    address = pages(3)
    first = driver.cuMemHostRegister(address, size, flags)
    second = driver.cuMemHostRegister(address + distance, length, others)
    for place, result in ((address, first), (address + distance, second)):
        if int(result[0]) == 0:
            done(driver.cuMemHostUnregister(place))
    return short(second[0])


for size, flags, others in itertools.product((8192, 8000), (0, 4, 8), (0, 4, 8, 12)):
    answers = (f"{name} {beside(size, flags, *place, others)}," for name, place in BESIDE.items())
    print(f"beside {size} {flags}, {others}:", *answers)
