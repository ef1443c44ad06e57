"""An event of two processes: who is given its name on the command line opens it and asks for it."""

import ctypes
import sys

from calls import done, start
from cuda.bindings import driver

start()
handle = driver.CUipcEventHandle()
if len(sys.argv) == 1:
    flags = driver.CUevent_flags
    event = done(
        driver.cuEventCreate(flags.CU_EVENT_INTERPROCESS.value | flags.CU_EVENT_DISABLE_TIMING.value)
    )
    done(driver.cuEventRecord(event, 0))
    done(driver.cuCtxSynchronize())
    print(ctypes.string_at(done(driver.cuIpcGetEventHandle(event)).getPtr(), 64).hex(), flush=True)
    sys.stdin.read()
else:
    ctypes.memmove(handle.getPtr(), bytes.fromhex(sys.argv[1]), 64)
    event = done(driver.cuIpcOpenEventHandle(handle))
    done(driver.cuCtxSynchronize())
    print("opened", flush=True)
    sys.stdin.readline()
    print("asking", flush=True)
    print(driver.cuEventQuery(event)[0].name, flush=True)
