"""cuda-python's driver bindings and NVRTC: a kernel compiled, launched on two streams, read back."""

import ctypes
import re

from cuda.bindings import driver, nvrtc

SOURCE = rb"""
extern "C" __global__ void mix(float* out, const float* in, float scale, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = in[i] * scale + (float)(i & 3);
}
"""


def done(answer):
    assert int(answer[0]) == 0, answer
    return answer[1] if len(answer) == 2 else answer[1:]


done(driver.cuInit(0))
device = done(driver.cuDeviceGet(0))
context = done(driver.cuDevicePrimaryCtxRetain(device))
done(driver.cuCtxSetCurrent(context))
program = done(nvrtc.nvrtcCreateProgram(SOURCE, b"mix.cu", 0, [], []))
done(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_90"]))
ptx = b" " * done(nvrtc.nvrtcGetPTXSize(program))
done(nvrtc.nvrtcGetPTX(program, ptx))
# An NVRTC newer than the driver marks its text with a version that the driver refuses; 9.0 is CUDA 13.0's.
version = re.search(rb"\.version (\d+\.\d+)", ptx)
if float(version[1]) > 9.0:
    ptx = ptx.replace(version[0], b".version 9.0", 1)
module = done(driver.cuModuleLoadData(ptx))
kernel = done(driver.cuModuleGetFunction(module, b"mix"))
count = 10_000
values = (ctypes.c_float * count)(*[i % 17 for i in range(count)])
source, target = (done(driver.cuMemAlloc(4 * count)) for _ in range(2))
first, second = (done(driver.cuStreamCreate(1)) for _ in range(2))
event = done(driver.cuEventCreate(0))
done(driver.cuMemcpyHtoDAsync(source, ctypes.addressof(values), 4 * count, first))
done(driver.cuEventRecord(event, first))
done(driver.cuStreamWaitEvent(second, event, 0))
arguments = (
    # As numbers: for an object, c_void_p takes where it keeps its value.
    (int(target), int(source), 1.5, count),
    (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_float, ctypes.c_int),
)
done(driver.cuLaunchKernel(kernel, -(-count // 256), 1, 1, 256, 1, 1, 0, second, arguments, 0))
result = (ctypes.c_float * count)()
done(driver.cuMemcpyDtoHAsync(ctypes.addressof(result), target, 4 * count, second))
done(driver.cuStreamSynchronize(second))
print(sum(result), result[5], result[count - 1])
print(done(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel, 256, 0)))
done(driver.cuModuleUnload(module))
