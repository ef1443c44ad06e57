"""What a program has by the thousand: the next one costs what the first did.

By the time of the processor: what else the machine does is not this process's. Each limit is several times
what it takes, and a fraction of what it took where every one of them was looked at for the next.
"""

import ctypes
import mmap
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cuda_calls import Cuda

from tests import user_faults


@contextmanager
def within(seconds: float) -> Iterator[None]:
    begin = time.process_time()
    yield
    assert time.process_time() - begin < seconds


@pytest.mark.skipif(not user_faults.there_are(), reason=user_faults.REASON)
def test_thousands_of_registered_pages(cuda: Cuda) -> None:
    count, apart = 2000, 2 * mmap.PAGESIZE
    memory = mmap.mmap(-1, count * apart, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    places = range(start, start + count * apart, apart)
    with within(4):
        for place in places:
            cuda.cuMemHostRegister(place, mmap.PAGESIZE, cuda.driver.CU_MEMHOSTREGISTER_DEVICEMAP)
        for place in places:
            cuda.cuMemHostUnregister(place)


def test_tens_of_thousands_of_textures(cuda: Cuda) -> None:
    resource, manner = cuda.CUDA_RESOURCE_DESC(), cuda.CUDA_TEXTURE_DESC()
    resource.resType = cuda.CUresourcetype.CU_RESOURCE_TYPE_LINEAR
    resource.res.linear.devPtr = address = cuda.cuMemAlloc(64)
    resource.res.linear.format = cuda.CUarray_format.CU_AD_FORMAT_FLOAT
    resource.res.linear.numChannels, resource.res.linear.sizeInBytes = 1, 64
    with within(15):
        textures = [cuda.cuTexObjectCreate(resource, manner, None) for _ in range(40_000)]
        for texture in textures:
            cuda.cuTexObjectDestroy(texture)
    cuda.cuMemFree(address)
