"""How many GPUs NVML counts, before a session and after; whether CUDA's is the first, or where it is."""

import uuid

import pynvml as nvml
from calls import done, start
from cuda.bindings import driver

nvml.nvmlInit()
count = nvml.nvmlDeviceGetCount()
print(count, nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByIndex(count - 1)))
device, context = start()
nvml.nvmlShutdown()
nvml.nvmlInit()
name = f"GPU-{uuid.UUID(bytes=done(driver.cuDeviceGetUuid(device)).bytes)}"
print(nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByUUID(name)), nvml.nvmlDeviceGetCount())
