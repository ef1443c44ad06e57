"""Launches, their attributes and queries of occupancy, used wrongly."""

import ctypes

from calls import KERNELS, done, launch, names, start
from cuda.bindings import driver

start()
module = done(driver.cuModuleLoadData(KERNELS))
nothing, store = (done(driver.cuModuleGetFunction(module, name)) for name in (b"nothing", b"store"))
stream = done(driver.cuStreamCreate(1))
memory = int(done(driver.cuMemAlloc(64)))
ID = driver.CUlaunchAttributeID


def configured(grid=(1, 1, 1), block=(1, 1, 1), shared=0, attributes=()):
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes, config.hStream = shared, stream
    config.attrs, config.numAttrs = list(attributes), len(attributes)
    return config


def attribute(name, set_value=lambda value: None):
    made = driver.CUlaunchAttribute()
    made.id = getattr(ID, "CU_LAUNCH_ATTRIBUTE_" + name)
    set_value(made.value)
    return made


def cluster(x, y, z):
    def set_value(value):
        value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = x, y, z

    return attribute("CLUSTER_DIMENSION", set_value)


def number(name, field, content):
    return attribute(name, lambda value: setattr(value, field, content))


def run(**shape):
    answer = driver.cuLaunchKernelEx(configured(**shape), nothing, 0, 0)
    names(answer, driver.cuStreamSynchronize(stream))


# Attributes.
run()
run(attributes=[attribute("IGNORE")])
run(attributes=[cluster(1, 1, 1)])
run(grid=(8, 1, 1), attributes=[cluster(8, 1, 1)])
run(grid=(8, 1, 1), attributes=[cluster(3, 1, 1)])
run(grid=(16, 1, 1), attributes=[cluster(16, 1, 1)])
run(grid=(2, 2, 2), attributes=[cluster(2, 2, 2)])
run(grid=(8, 1, 1), attributes=[cluster(0, 1, 1)])
run(grid=(8, 1, 1), attributes=[cluster(2, 1, 1), cluster(4, 1, 1)])
for policy in (0, 1, 2, 3):
    run(
        grid=(4, 1, 1),
        attributes=[
            cluster(2, 1, 1),
            number(
                "CLUSTER_SCHEDULING_POLICY_PREFERENCE",
                "clusterSchedulingPolicyPreference",
                driver.CUclusterSchedulingPolicy(policy),
            ),
        ]
        if policy < 3
        else [],
    )
for value in (0, 1):
    run(attributes=[number("COOPERATIVE", "cooperative", value)])
    run(
        attributes=[
            number("PROGRAMMATIC_STREAM_SERIALIZATION", "programmaticStreamSerializationAllowed", value)
        ]
    )
for value in (5, 0, -5, -50):
    run(attributes=[number("PRIORITY", "priority", value)])
for value in (0, 1):
    run(attributes=[number("MEM_SYNC_DOMAIN", "memSyncDomain", driver.CUlaunchMemSyncDomain(value))])
run(attributes=[attribute("SYNCHRONIZATION_POLICY")])
run(grid=(200000, 1, 1), block=(1024, 1, 1), attributes=[number("COOPERATIVE", "cooperative", 1)])
run(shared=232448)
run(shared=232449)
run(shared=49152)
run(shared=49153)

# What is missing.
names(driver.cuLaunchKernelEx(configured(), 0, 0, 0), launch(0, stream))
names(driver.cuLaunchKernel(nothing, 1, 1, 1, 0, 1, 1, 0, stream, 0, 0))
names(driver.cuLaunchKernel(nothing, 1, 0, 1, 1, 1, 1, 0, stream, 0, 0))
names(driver.cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0))
names(driver.cuLaunchCooperativeKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, 0))
names(launch(store, stream, memory, ctypes.c_uint32(5)), driver.cuStreamSynchronize(stream))

# Occupancy.
blocks = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
for threads, shared in (
    (1, 0),
    (0, 0),
    (-1, 0),
    (1024, 0),
    (1025, 0),
    (32, 49152),
    (32, 49153),
    (32, 1 << 40),
):
    answer = blocks(nothing, threads, shared)
    print(threads, shared, answer[0].name, answer[1])
for flags in (0, 1, 2, 3):
    answer = driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(nothing, 256, 0, flags)
    print(flags, answer[0].name, answer[1])
for limit in (-1, 0, 1, 100, 1024, 5000):
    print(limit, driver.cuOccupancyMaxPotentialBlockSize(nothing, None, 0, limit))
print(driver.cuOccupancyMaxPotentialBlockSize(nothing, None, 1 << 30, 0))  # no block fits
for count, threads in ((1, 256), (8, 256), (0, 256), (1, 0), (64, 1024), (1, 2000)):
    answer = driver.cuOccupancyAvailableDynamicSMemPerBlock(nothing, count, threads)
    print(count, threads, answer[0].name, answer[1])
names(blocks(0, 32, 0))
clusters = configured(grid=(8, 1, 1), block=(128, 1, 1), attributes=[cluster(4, 1, 1)])
print(driver.cuOccupancyMaxPotentialClusterSize(nothing, clusters))
answer = driver.cuOccupancyMaxActiveClusters(nothing, clusters)
print(answer[0].name, answer[1] > 0)
clusters = configured(grid=(8, 1, 1), block=(128, 1, 1))
names(
    driver.cuOccupancyMaxActiveClusters(nothing, clusters), driver.cuOccupancyMaxActiveClusters(0, clusters)
)
clusters = configured(grid=(8, 1, 1), block=(128, 1, 1), attributes=[cluster(0, 1, 1)])
names(
    driver.cuOccupancyMaxPotentialClusterSize(nothing, clusters),
    driver.cuOccupancyMaxActiveClusters(nothing, clusters),
)
