"""What a program asks about the GPU and its own memory: statistics, history, snapshots, NVML's figures."""

import warnings

import torch

warnings.simplefilter("ignore")
print(
    torch.cuda.is_available(),
    torch.cuda.device_count(),
    torch.cuda.get_device_name(),
    torch.cuda.get_device_capability(),
)
properties = torch.cuda.get_device_properties(0)
print(
    properties.multi_processor_count, properties.warp_size, properties.L2_cache_size, properties.is_integrated
)
print(torch.cuda.get_arch_list(), torch.cuda.is_bf16_supported(), torch.cuda.is_current_stream_capturing())
torch.cuda.memory._record_memory_history(max_entries=1000)
x = [torch.empty(1 << 20, device="cuda") for _ in range(10)]
del x[::2]
snapshot = torch.cuda.memory._snapshot()
print(len(snapshot["segments"]) > 0, [event["action"] for event in snapshot["device_traces"][0]][-3:])
torch.cuda.memory._record_memory_history(enabled=None)
stats = torch.cuda.memory_stats()
print(stats["allocated_bytes.all.current"], stats["num_alloc_retries"], stats["num_ooms"])
print(
    torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved() >= 5 << 22
)
free, total = torch.cuda.mem_get_info()
print(0 < free < total)
torch.cuda.set_per_process_memory_fraction(0.01)
try:
    torch.empty(total // 50, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    print("memory" in str(error))
torch.cuda.set_per_process_memory_fraction(1.0)
for name in ("utilization", "memory_usage", "temperature", "power_draw", "clock_rate"):
    print(name, type(getattr(torch.cuda, name)()).__name__)
print(type(torch.cuda.list_gpu_processes()).__name__)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
torch.cuda._sleep(1_000_000)
end.record()
end.synchronize()
print(0.2 < start.elapsed_time(end) < 20, start.query(), end.query())
state = torch.cuda.get_rng_state()
a = torch.rand(5, device="cuda")
torch.cuda.set_rng_state(state)
print(torch.equal(a, torch.rand(5, device="cuda")))
torch.cuda.set_sync_debug_mode("error")
try:
    a.sum().item()
except RuntimeError as error:
    print("synchroniz" in str(error))
torch.cuda.set_sync_debug_mode("default")
stream = torch.cuda.ExternalStream(torch.cuda.Stream().cuda_stream)
with torch.cuda.stream(stream):
    b = a * 2
a.record_stream(stream)
stream.synchronize()
print(torch.equal(b, a * 2), torch.cuda.current_stream().query(), stream.priority)
torch.cuda.reset_peak_memory_stats()
torch.cuda.empty_cache()
torch.cuda.ipc_collect()
