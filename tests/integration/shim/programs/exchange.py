"""Two processes, on two GPUs, whose kernels pass numbers on through a file that both have registered.

As NCCL's processes do that share a host: each maps the file, and its kernels write to and poll what the GPU
has of it.
"""

import ctypes
import mmap
import os
import sys
import tempfile
import time

from calls import done, launch, start
from cuda.bindings import driver

ROUNDS = 20
KERNEL = b"""
.version 7.8
.target sm_80
.address_size 64
// Waits for `value` in the one word, and writes the next one to the other.
.visible .entry pass(.param .u64 mine, .param .u64 theirs, .param .u32 value)
{
    .reg .b64 %rd<3>; .reg .b32 %r<3>; .reg .pred %p1;
    ld.param.u64 %rd1, [mine];
    ld.param.u64 %rd2, [theirs];
    ld.param.u32 %r1, [value];
    bra LOOK;
AGAIN:
    nanosleep.u32 20000;  // so that the simulated GPU takes no long wait for an endless loop
LOOK:
    ld.volatile.global.u32 %r2, [%rd1];
    setp.ne.u32 %p1, %r2, %r1;
    @%p1 bra AGAIN;
    add.u32 %r2, %r2, 1;
    st.volatile.global.u32 [%rd2], %r2;
    ret;
}
"""
SIZE = 2 << 20


def player(path, index):
    """One of the two, on a GPU of its own: 0 begins."""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(index)
    with open(path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), SIZE)
    start()
    place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    flags = driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP
    done(driver.cuMemHostRegister(place, SIZE, flags))
    shared = int(done(driver.cuMemHostGetDevicePointer(place, 0)))
    kernel = done(driver.cuModuleGetFunction(done(driver.cuModuleLoadData(KERNEL)), b"pass"))
    stream = done(driver.cuStreamCreate(1))
    words = [shared, shared + SIZE // 2]
    memory[64 + index] = 1
    while not memory[64 + 1 - index]:  # no kernel waits for a process that has yet to start
        time.sleep(0.01)
    for turn in range(ROUNDS):
        value = ctypes.c_uint32(2 * turn + index)
        done((launch(kernel, stream, words[index], words[1 - index], value)[0],))
    done(driver.cuStreamSynchronize(stream))
    done(driver.cuMemHostUnregister(place))
    return memory


if len(sys.argv) > 1:
    memory = player(sys.argv[1], 1)
    print(int.from_bytes(memory[SIZE // 2 :][:4], "little"), flush=True)
else:
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.truncate(SIZE)
        child = os.spawnl(os.P_NOWAIT, sys.executable, sys.executable, "-P", __file__, file.name)
        memory = player(file.name, 0)
        print(os.waitpid(child, 0)[1], int.from_bytes(memory[:4], "little"), flush=True)
