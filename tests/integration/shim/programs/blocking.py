"""Launches under CUDA_LAUNCH_BLOCKING=1: each returns when its kernel has ended, and tells how."""

import ctypes

from calls import KERNELS, done, launch, names, start
from cuda.bindings import driver
from processes import SPIN, kernel

MILLISECONDS = 20 * 10**6

start()
store, spin = kernel(KERNELS, b"store"), kernel(SPIN, b"spin")
stream = done(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
done(launch(spin, stream, MILLISECONDS))
names(driver.cuStreamQuery(stream))

config = driver.CUlaunchConfig()
config.gridDimX = config.gridDimY = config.gridDimZ = 1
config.blockDimX = config.blockDimY = config.blockDimZ = 1
config.hStream = stream
done(driver.cuLaunchKernelEx(config, spin, ((MILLISECONDS,), (ctypes.c_uint64,)), 0))
names(driver.cuStreamQuery(stream))

done(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
names(launch(spin, stream, MILLISECONDS))
graph = done(driver.cuStreamEndCapture(stream))
print(done(driver.cuGraphGetNodes(graph, 2))[1])

names(launch(store, stream, 16, ctypes.c_uint32(1)))
