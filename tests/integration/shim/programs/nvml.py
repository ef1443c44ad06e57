"""What nvidia-ml-py says of the GPU and this program's memory on it, beside what CUDA says."""

import ctypes
import os
import uuid

import pynvml as nvml
from calls import done, start
from cuda.bindings import driver


def refused(call, *arguments):
    try:
        call(*arguments)
    except nvml.NVMLError as error:
        return error.value
    return 0


print(refused(nvml.nvmlDeviceGetCount) == nvml.NVML_ERROR_UNINITIALIZED)
nvml.nvmlInit()
gpu = nvml.nvmlDeviceGetHandleByIndex(0)
empty = nvml.nvmlDeviceGetMemoryInfo(gpu)
print(nvml.nvmlDeviceGetCount(), empty.used, nvml.nvmlDeviceGetComputeRunningProcesses(gpu))
print(refused(nvml.nvmlDeviceGetHandleByIndex, 1) == nvml.NVML_ERROR_INVALID_ARGUMENT)

device, context = start()
memory = done(driver.cuMemAlloc(100 << 20))
free, total = done(driver.cuMemGetInfo())
now = nvml.nvmlDeviceGetMemoryInfo(gpu)
print(now.total == total, now.free == free, now.used == total - free)
print(empty.total == total and now.used == 100 << 20)
newer = nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2)
print((newer.total, newer.free, newer.used, newer.reserved) == (now.total, now.free, now.used, 0))
processes = nvml.nvmlDeviceGetComputeRunningProcesses(gpu)
seen = [(each.pid, each.usedGpuMemory) for each in processes]
print([(pid == os.getpid(), used >> 20, used == now.used) for pid, used in seen])
print(nvml.nvmlDeviceGetGraphicsRunningProcesses(gpu), nvml.nvmlDeviceGetMPSComputeRunningProcesses(gpu))

name = done(driver.cuDeviceGetName(100, device)).split(b"\0")[0].decode()
print(nvml.nvmlDeviceGetName(gpu) == name)
print(nvml.nvmlDeviceGetUUID(gpu) == f"GPU-{uuid.UUID(bytes=done(driver.cuDeviceGetUuid(device)).bytes)}")
attributes = driver.CUdevice_attribute
major = done(driver.cuDeviceGetAttribute(attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
minor = done(driver.cuDeviceGetAttribute(attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
print(list(nvml.nvmlDeviceGetCudaComputeCapability(gpu)) == [major, minor])
print(nvml.nvmlSystemGetCudaDriverVersion() == done(driver.cuDriverGetVersion()))
place = done(driver.cuDeviceGetPCIBusId(20, device)).split(b"\0")[0].decode()
same = [
    nvml.nvmlDeviceGetHandleByPciBusId(place),
    nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(gpu)),
    nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(gpu).removeprefix("GPU-")),
]
print(
    [nvml.nvmlDeviceGetIndex(each) for each in same],
    nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByPciBusId(place.removesuffix(".0"))),
    nvml.nvmlDeviceGetPciInfo(gpu).busId.endswith(place[4:].upper()),
)
extended = nvml.nvmlPciInfoExt_v1_t()
extended.version = nvml.nvmlPciInfoExt_v1
nvml.nvmlDeviceGetPciInfoExt(gpu, ctypes.byref(extended))
print(extended.busId == nvml.nvmlDeviceGetPciInfo(gpu).busId, extended.bus == int(place.split(":")[1], 16))
print(all(part.isdigit() for part in nvml.nvmlSystemGetDriverVersion().split(".")))
print(nvml.nvmlDeviceGetP2PStatus(gpu, gpu, 0))
print(refused(nvml.nvmlDeviceGetNvLinkState, gpu, 0) == nvml.NVML_ERROR_NOT_SUPPORTED)
print(refused(nvml.nvmlDeviceGetProcessUtilization, gpu, 0) == nvml.NVML_ERROR_NOT_SUPPORTED)

child = os.fork()
if child == 0:
    os._exit(0 if nvml.nvmlDeviceGetMemoryInfo(gpu).used == now.used else 1)
print(os.waitpid(child, 0)[1])
done(driver.cuMemFree(memory))
nvml.nvmlShutdown()
print(refused(nvml.nvmlDeviceGetMemoryInfo, gpu) == nvml.NVML_ERROR_UNINITIALIZED)
