"""Events and streams: their flags and priorities, times that cannot be, handles of nothing."""

from calls import KERNELS, done, launch, names, start
from cuda.bindings import driver

device, context = start()
module = done(driver.cuModuleLoadData(KERNELS))
nothing = done(driver.cuModuleGetFunction(module, b"nothing"))

# Flags.
for flags in (0, 1, 2, 3, 4, 6, 8, 1 << 31):
    names(
        driver.cuEventCreate(flags), driver.cuStreamCreate(flags), driver.cuStreamCreateWithPriority(flags, 0)
    )

# Priorities beyond the range are taken as its ends.
least, greatest = done(driver.cuCtxGetStreamPriorityRange())
for priority in (1000, 1, 0, -1, -1000):
    stream = done(driver.cuStreamCreateWithPriority(1, priority))
    print(done(driver.cuStreamGetPriority(stream)) - least, done(driver.cuStreamGetFlags(stream)))
for special in (0, 1, 2):
    print(done(driver.cuStreamGetPriority(special)), done(driver.cuStreamGetFlags(special)))
    print(int(done(driver.cuStreamGetCtx(special))) == int(context), done(driver.cuStreamGetDevice(special)))
own, other = done(driver.cuStreamCreate(1)), done(driver.cuStreamCreate(0))
ids = [int(done(driver.cuStreamGetId(each))) for each in (0, 1, 2, own, other)]
print(ids[0] == ids[1], len(set(ids)))

# Times.
timed, later, untimed, blocking = (done(driver.cuEventCreate(flags)) for flags in (0, 0, 2, 1))
names(driver.cuEventElapsedTime(timed, later), driver.cuEventQuery(timed), driver.cuEventSynchronize(timed))
done(driver.cuEventRecord(timed, own))
names(driver.cuEventElapsedTime(timed, later), driver.cuEventElapsedTime(later, timed))
done(driver.cuEventSynchronize(timed))
print(done(driver.cuEventElapsedTime(timed, timed)))
names(driver.cuEventElapsedTime(timed, untimed), driver.cuEventElapsedTime(untimed, timed))
done(driver.cuEventRecord(untimed, own))
names(driver.cuEventElapsedTime(timed, untimed))
done(driver.cuEventRecord(blocking, own))
names(driver.cuEventSynchronize(blocking))
print(
    done(driver.cuEventElapsedTime(timed, blocking)) >= 0,
    done(driver.cuEventElapsedTime(blocking, timed)) <= 0,
)
names(*(driver.cuEventRecordWithFlags(timed, own, flags) for flags in (0, 1, 2, 3)))
names(*(driver.cuStreamWaitEvent(own, timed, flags) for flags in (0, 1, 2)))
names(driver.cuStreamWaitEvent(own, later, 0))  # never recorded

# An event whose stream is gone, and a stream that waits for an event that is gone.
done(driver.cuEventRecord(later, other))
names(driver.cuStreamDestroy(other), driver.cuEventSynchronize(later), driver.cuEventQuery(later))
done(driver.cuStreamWaitEvent(own, later, 0))
names(driver.cuEventDestroy(later), launch(nothing, own), driver.cuStreamSynchronize(own))

# Handles of nothing.
names(
    driver.cuEventRecord(0, own),
    driver.cuEventQuery(0),
    driver.cuEventSynchronize(0),
    driver.cuEventDestroy(0),
)
names(driver.cuEventElapsedTime(0, timed), driver.cuEventElapsedTime(timed, 0))
names(driver.cuStreamWaitEvent(own, 0, 0), driver.cuStreamDestroy(0), driver.cuStreamDestroy(1))
names(driver.cuStreamCopyAttributes(own, own))

# Work of another context's.
done(driver.cuCtxCreate(None, 0, device))
names(driver.cuStreamWaitEvent(0, timed, 0), driver.cuStreamSynchronize(own))
names(driver.cuEventSynchronize(timed), driver.cuEventQuery(timed), driver.cuStreamQuery(own))
print(int(done(driver.cuStreamGetCtx(own))) == int(context))
names(driver.cuCtxDestroy(done(driver.cuCtxGetCurrent())), driver.cuCtxSynchronize())
