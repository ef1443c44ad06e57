"""Captures that are aborted, crossed, left behind, or disturbed by what they forbid."""

import threading

from calls import KERNELS, done, launch, names, start
from cuda.bindings import driver

device, context = start()
module = done(driver.cuModuleLoadData(KERNELS))
nothing = done(driver.cuModuleGetFunction(module, b"nothing"))
memory = done(driver.cuMemAlloc(64))
event = done(driver.cuEventCreate(2))


def begin(stream, mode="THREAD_LOCAL"):
    return driver.cuStreamBeginCapture(
        stream, getattr(driver.CUstreamCaptureMode, "CU_STREAM_CAPTURE_MODE_" + mode)
    )


def end(stream):
    return driver.cuStreamEndCapture(stream)


def elsewhere(call):
    """What another thread gets."""
    got = []

    def work():
        driver.cuCtxSetCurrent(context)
        got.append(call())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return got[0]


# A stream takes its capture with it; the next one has nothing of it.
stream, other = done(driver.cuStreamCreate(1)), done(driver.cuStreamCreate(1))
names(begin(stream), launch(nothing, stream), driver.cuStreamDestroy(stream))
stream = done(driver.cuStreamCreate(1))
print(done(driver.cuStreamIsCapturing(stream)).name)
names(launch(nothing, stream), driver.cuStreamSynchronize(stream))

for forbidden in (
    lambda: driver.cuStreamQuery(stream),
    lambda: driver.cuMemcpyDtoH(bytearray(4), memory, 4),
    driver.cuCtxSynchronize,
    lambda: driver.cuMemFree(memory),
    lambda: driver.cuMemAllocHost(64),
    lambda: driver.cuStreamAddCallback(stream, driver.CUstreamCallback(1), 0, 0),
):
    names(begin(stream), forbidden(), end(stream), launch(nothing, stream))
for mode in ("GLOBAL", "THREAD_LOCAL", "RELAXED"):
    names(begin(stream, mode), elsewhere(lambda: driver.cuMemAlloc(64)), end(stream))
    names(begin(stream, mode), elsewhere(lambda: end(stream)), end(stream))
for harmless in (
    lambda: driver.cuModuleLoadData(KERNELS),
    driver.cuMemGetInfo,
    lambda: driver.cuStreamCreate(0),
    lambda: driver.cuEventSynchronize(done(driver.cuEventCreate(0))),
):
    names(begin(stream, "GLOBAL"), harmless(), end(stream))

names(begin(stream), launch(nothing, stream), driver.cuEventRecord(event, stream), end(stream))
names(driver.cuStreamWaitEvent(other, event, 0), launch(nothing, other), driver.cuStreamSynchronize(other))
names(begin(stream), driver.cuEventRecord(event, stream), driver.cuStreamWaitEvent(other, event, 0))
names(launch(nothing, other), end(other), end(stream))
names(begin(stream), begin(other), driver.cuEventRecord(event, stream))
names(driver.cuStreamWaitEvent(other, event, 0), end(stream), end(other))
names(begin(0), begin(1), begin(2), launch(nothing, 1), driver.cuStreamSynchronize(1), end(2))

# A record that fails leaves the event what it stood for.
names(begin(stream), driver.cuEventRecord(event, stream), driver.cuEventRecordWithFlags(event, other, 1))
names(driver.cuStreamWaitEvent(other, event, 0), launch(nothing, other), end(other), end(stream))

# The legacy default stream would have to wait for a blocking one.
blocking = done(driver.cuStreamCreate(0))
for legacy in (
    lambda: launch(nothing, 1),
    lambda: driver.cuEventRecord(event, 1),
    lambda: driver.cuStreamWaitEvent(1, done(driver.cuEventCreate(0)), 0),
    lambda: driver.cuMemsetD8Async(memory, 1, 4, 1),
    lambda: driver.cuMemAllocAsync(16, 1),
    lambda: driver.cuStreamSynchronize(1),
):
    names(begin(blocking), legacy(), end(blocking))
    names(begin(stream), legacy(), end(stream))

# Another context has streams of its own: whoever waits for these has nothing to do with the capture.
second = done(driver.cuCtxCreate(None, 0, device))
apart, elsewhere_recorded = done(driver.cuMemAlloc(64)), done(driver.cuEventCreate(0))
for inside in (
    driver.cuCtxSynchronize,
    lambda: driver.cuMemsetD8Async(apart, 1, 64, 0),
    lambda: driver.cuEventRecord(elsewhere_recorded, 1),
    lambda: driver.cuCtxRecordEvent(second, elsewhere_recorded),
    lambda: driver.cuCtxWaitEvent(second, elsewhere_recorded),
    lambda: driver.cuCtxRecordEvent(context, event),
):
    names(begin(blocking, "RELAXED"), inside())
    done(driver.cuCtxSetCurrent(context))
    names(end(blocking))
    done(driver.cuCtxSetCurrent(second))
