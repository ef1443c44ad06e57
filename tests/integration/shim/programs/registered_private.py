"""Kernels and streams use private memory that is registered, while threads write to it and it is forked."""

import ctypes
import mmap
import os
import threading

from calls import KERNELS, done, launch, names, read, start
from cuda.bindings import driver

SIZE = 4 << 20
THROUGH = b"""
.version 7.8
.target sm_80
.address_size 64
.visible .entry through(.param .u64 table, .param .u32 value)
{
    .reg .b64 %rd<3>; .reg .b32 %r<2>;
    ld.param.u64 %rd1, [table];
    ld.param.u32 %r1, [value];
    ld.global.u64 %rd2, [%rd1];
    st.global.u32 [%rd2], %r1;
    ret;
}
"""
start()
module = done(driver.cuModuleLoadData(KERNELS))
store, increment = (done(driver.cuModuleGetFunction(module, name)) for name in (b"store", b"increment"))
stream, words = done(driver.cuStreamCreate(1)), int(done(driver.cuMemAlloc(SIZE)))


def word(address):
    return ctypes.c_uint32.from_address(address).value


# By the host's own address, and in the stream's order with copies.
memory = mmap.mmap(-1, SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
memory[4096:4100] = (41).to_bytes(4, "little")
for _ in range(2):
    names(driver.cuMemHostRegister(place, SIZE, 0), launch(increment, stream, place + 4096))
    names(launch(store, stream, place + SIZE - 4, ctypes.c_uint32(7)))
    names(driver.cuMemcpyHtoDAsync(words, place, SIZE, stream), driver.cuMemsetD32Async(place, 5, 4, stream))
    names(driver.cuMemcpyDtoHAsync(place + 8192, words + SIZE - 4, 4, stream))
    names(driver.cuStreamSynchronize(stream))
    print(*(word(place + at) for at in (0, 12, 16, 4096, 8192, SIZE - 4)), read(words + 4096))
    print(int(done(driver.cuMemHostGetDevicePointer(place + 8, 0))) == place + 8)
    names(driver.cuMemHostUnregister(place))
    print(*(word(place + at) for at in (0, 4096, SIZE - 4)))

# Found in memory by a kernel that was not given it.
through = done(driver.cuModuleGetFunction(done(driver.cuModuleLoadData(THROUGH)), b"through"))
names(driver.cuMemHostRegister(place, SIZE, driver.CU_MEMHOSTREGISTER_DEVICEMAP))
done(driver.cuMemcpyHtoD(words, (place + 64).to_bytes(8, "little"), 8))
names(launch(through, stream, words, ctypes.c_uint32(8)), driver.cuStreamSynchronize(stream))
print(word(place + 64))
names(driver.cuMemHostUnregister(place))

# Several on one page, of the heap.
whole = ctypes.create_string_buffer(3 * 4096)
first = ctypes.addressof(whole) + 4
parts = [first - first % 4, first - first % 4 + 1000, first - first % 4 + 5000]
names(*(driver.cuMemHostRegister(part, 500, 0) for part in parts))
names(*(launch(store, stream, part + 8, ctypes.c_uint32(part - first + 9)) for part in parts))
names(driver.cuStreamSynchronize(stream), driver.cuMemHostUnregister(parts[0]))
names(launch(increment, stream, parts[1] + 8), driver.cuStreamSynchronize(stream))
print(*(word(part + 8) for part in parts), whole.raw.count(0))
names(driver.cuMemHostUnregister(parts[2]), driver.cuMemHostUnregister(parts[1]))

# Beside what kernels reach already: on its pages, over their end, and between two such.
reach = driver.CU_MEMHOSTREGISTER_DEVICEMAP
beside = {256: (512, reach), 1024: (64, reach), 4000: (9000, 0), 24100: (4096, 0), 13004: (11000, reach)}
for at, (size, flags) in beside.items():
    names(driver.cuMemHostRegister(place + at, size, flags))
    names(launch(store, stream, place + at + 8, ctypes.c_uint32(at)))
    names(launch(store, stream, place + at + size - 4, ctypes.c_uint32(size)))
names(driver.cuStreamSynchronize(stream))
while beside:
    ends = [(place + at + 8, place + at + size - 4) for at, (size, _) in beside.items()]
    names(*(launch(increment, stream, each) for pair in ends for each in pair))
    names(driver.cuStreamSynchronize(stream))
    print(*(f"{word(begin)} {word(end)}" for begin, end in ends))
    names(driver.cuMemcpyHtoDAsync(words, ends[-1][0], 4, stream), driver.cuStreamSynchronize(stream))
    print(read(words))
    at = next(iter(beside))
    names(driver.cuMemHostUnregister(place + at))
    del beside[at]
print(word(place + 264), word(place + 13012))

# What a thread writes meanwhile is there afterwards.
written, over = [0], threading.Event()


def write():
    while not over.is_set():
        written[0] += 1
        ctypes.c_uint32.from_address(place + 64 * written[0] % 4096).value = written[0]


thread = threading.Thread(target=write)
thread.start()
for _ in range(20):
    done(driver.cuMemHostRegister(place, SIZE, 0))
    done(driver.cuStreamWriteValue32(stream, place + SIZE - 8, written[0], 0))
    done(launch(increment, stream, place + SIZE - 12))
    done(driver.cuStreamSynchronize(stream))
    done(driver.cuMemHostUnregister(place))
over.set()
thread.join()
latest = range(written[0] - 63, written[0] + 1)
print(all(word(place + 64 * turn % 4096) == turn for turn in latest), word(place + SIZE - 12))

# Made longer while it is registered, which moves it: all of it is the program's own, then and afterwards.
library = ctypes.CDLL(None)
library.malloc.restype = library.realloc.restype = ctypes.c_void_p
mapped = driver.CU_MEMHOSTREGISTER_DEVICEMAP
for step in (1, 2):
    grown = library.malloc(ctypes.c_size_t(SIZE))
    names(driver.cuMemHostRegister(grown, SIZE // step, mapped))
    ctypes.memset(grown, step, SIZE)
    longer = library.realloc(ctypes.c_void_p(grown), ctypes.c_size_t(4 * SIZE))
    ctypes.memset(longer + SIZE, 3, 3 * SIZE)
    names(driver.cuMemHostUnregister(grown))
    child = os.fork()
    if child == 0:
        ctypes.memset(longer, 9, 4 * SIZE)
        os._exit(0)
    os.waitpid(child, 0)
    print(
        *({word(longer + at) for at in part} for part in (range(0, SIZE, 4096), range(SIZE, 4 * SIZE, 4096)))
    )

# A child has what was there when it was forked.
names(driver.cuMemHostRegister(place, SIZE, 0), launch(store, stream, place, ctypes.c_uint32(1)))
names(driver.cuStreamSynchronize(stream))
ends = os.pipe()
child = os.fork()
if child == 0:
    os.read(ends[0], 1)
    kept = word(place) == 1
    memory[:4] = b"\2\0\0\0"
    os._exit(0 if kept and word(place) == 2 else 1)
names(launch(increment, stream, place), launch(increment, stream, place))
names(driver.cuStreamSynchronize(stream))
os.write(ends[1], b"-")
print(os.waitpid(child, 0)[1], word(place), flush=True)
