"""Makes arrays of 8 MiB until there is no room, works on them, and says what it has whenever it is asked."""

import sys

from calls import done, start
from cuda.bindings import driver

start()
shape = driver.CUDA_ARRAY3D_DESCRIPTOR()
shape.Width, shape.Height, shape.NumChannels = 1024, 2048, 1
shape.Format = driver.CUarray_format.CU_AD_FORMAT_FLOAT
inside = driver.CUDA_MEMCPY3D()
inside.srcMemoryType = inside.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_ARRAY
inside.WidthInBytes, inside.Height, inside.Depth = 4096, 2048, 1
stream = done(driver.cuStreamCreate(1))
held = []

# N: that many arrays; -N: so many fewer; 0: all that there is room for.
for wish in map(int, sys.stdin):
    for _ in range(-wish):
        done(driver.cuArrayDestroy(held.pop()))
    while wish >= 0 and (wish == 0 or len(held) < wish):
        result, array = driver.cuArray3DCreate(shape)
        if int(result) != 0:
            break
        held.append(array)
    if held:
        inside.srcArray = inside.dstArray = held[0]
        for _ in range(3):
            done(driver.cuMemcpy3DAsync(inside, stream))
    free, total = done(driver.cuMemGetInfo())
    last = "SUCCESS" if wish != 0 else result.name.removeprefix("CUDA_ERROR_")
    print(len(held), free >> 20, total >> 20, last, flush=True)
