"""Asks whether what never ends is over, of an event or of its stream, and prints what puts an end to that."""

import sys

from calls import done, start
from cuda.bindings import driver

start()
stream, word = done(driver.cuStreamCreate(1)), int(done(driver.cuMemAlloc(4)))
event = done(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
done(driver.cuMemsetD32(word, 0, 1))
done(driver.cuStreamWaitValue32(stream, word, 1, driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ))
done(driver.cuEventRecord(event, stream))
print(0, flush=True)
ask, what = (driver.cuEventQuery, event) if sys.argv[1] == "event" else (driver.cuStreamQuery, stream)
while (answer := ask(what)[0]) == driver.CUresult.CUDA_ERROR_NOT_READY:
    pass
print(answer.name)
