"""Processes in odd states: processes.py WHAT."""

import multiprocessing
import os
import signal
import sys
import threading
import time

from calls import KERNELS, done, launch, names, read, start
from cuda.bindings import driver

SPIN = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry spin(.param .u64 nanoseconds)
{
    .reg .pred %p1; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [nanoseconds];
    mov.u64 %rd2, %globaltimer;
L:  mov.u64 %rd3, %globaltimer;
    sub.s64 %rd4, %rd3, %rd2;
    setp.lt.s64 %p1, %rd4, %rd1;
    @%p1 bra L;
    ret;
}
"""


def kernel(image, name):
    return done(driver.cuModuleGetFunction(done(driver.cuModuleLoadData(image)), name))


def in_flight():
    """Ends with work on the GPU."""
    start()
    nothing = kernel(KERNELS, b"nothing")
    for _ in range(3000):
        done(launch(nothing, 0))
    print("launched", flush=True)
    os._exit(7)


def daemon_threads():
    """Ends while threads launch and wait."""
    _, context = start()
    nothing = kernel(KERNELS, b"nothing")
    begun = threading.Barrier(5)

    def work():
        driver.cuCtxSetCurrent(context)
        begun.wait()
        while True:
            launch(nothing, 2)
            driver.cuStreamSynchronize(2)

    for _ in range(4):
        threading.Thread(target=work, daemon=True).start()
    begun.wait()
    sys.exit(3)


def exec_again():
    """Becomes itself, from another folder."""
    os.chdir("/")
    start()
    print(len(read(done(driver.cuMemAlloc(4)))), flush=True)
    left = int(os.environ.get("LEFT", "3")) - 1
    if left:
        os.environ["LEFT"] = str(left)
        os.execv(sys.executable, [sys.executable, *sys.argv])


def signals():
    """Is interrupted all the time while it waits."""
    start()
    spin = kernel(SPIN, b"spin")
    hits = []
    signal.signal(signal.SIGALRM, lambda *_: hits.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    while len(hits) < 10:
        done(launch(spin, 0, 5_000_000))
        done(driver.cuStreamSynchronize(0))
    signal.setitimer(signal.ITIMER_REAL, 0)
    names(driver.cuCtxSynchronize())
    done(launch(spin, 0, 2_000_000_000))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
    driver.cuCtxSynchronize()
    time.sleep(60)


def less_rights():
    """Gives up its user, its umask and its folder."""
    start()
    memory = done(driver.cuMemAlloc(16))
    done(driver.cuMemsetD32(memory, 3, 4))
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    os.umask(0o777)
    print(read(memory))
    names(driver.cuMemAlloc(1 << 20), driver.cuModuleLoadData(KERNELS), driver.cuMemAllocHost(4096))
    names(driver.cuCtxSynchronize())


def job(value):
    start()
    memory = int(done(driver.cuMemAlloc(4)))
    done(launch(kernel(KERNELS, b"store"), 0, memory, value))
    return int.from_bytes(read(memory), "little")


def pools():
    """Has workers of every kind."""
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(3) as pool:
            print(method, pool.map(job, range(6)))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
