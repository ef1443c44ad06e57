"""What memory pools of several sizes answer to allocations and frees, and hold afterwards.

A line for each call: its result, then the chunks and the bytes that the pool has once the context has waited.
"""

import random

from calls import done, short, start
from cuda.bindings import driver

MIB = 1 << 20
CHUNK = 32 * MIB
RUNS = (  # MiB that the pool may have (0: any), release threshold in MiB, sizes in MiB, seed
    (0, 0, (31, 32, 33, 64, 65), 7),
    (0, 1000, (31, 32, 33, 64, 65), 8),
    (64, 0, (0.001, 0.3, 3, 16), 23),
    (64, 1000, (2, 33, 40), 26),
    (128, 1000, (2, 33, 40), 46),
)
ATTRIBUTE = driver.CUmemPool_attribute
RESERVED = ATTRIBUTE.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
USED = ATTRIBUTE.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
THRESHOLD = ATTRIBUTE.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
start()


def make_pool(most, threshold):
    properties = driver.CUmemPoolProps()
    properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.maxSize = most * MIB
    pool = done(driver.cuMemPoolCreate(properties))
    done(driver.cuMemPoolSetAttribute(pool, THRESHOLD, driver.cuuint64_t(threshold * MIB)))
    return pool


def run(most, threshold, sizes, seed):
    print(f"at most {most} MiB, {threshold} kept")
    pool, live, chance = make_pool(most, threshold), {}, random.Random(seed)
    for _ in range(120):
        if live and chance.random() < 0.4:
            address = chance.choice(list(live))
            asked = f"free {live.pop(address)}"
            result = driver.cuMemFreeAsync(address, 0)[0]
        else:
            size = int(chance.choice(sizes) * MIB)
            asked = f"allocate {size}"
            result, address = driver.cuMemAllocFromPoolAsync(size, pool, 0)
            if int(result) == 0:
                live[int(address)] = size
        done(driver.cuCtxSynchronize())
        reserved, used = (int(done(driver.cuMemPoolGetAttribute(pool, each))) for each in (RESERVED, USED))
        result = short(result)
        print(f"{asked}: {result}, {reserved / CHUNK:g} chunks, {used} bytes")
    for address in live:
        done(driver.cuMemFreeAsync(address, 0))
    done(driver.cuMemPoolDestroy(pool))


for each in RUNS:
    run(*each)
