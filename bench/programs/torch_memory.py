"""PyTorch's memory management: own pools, fractions, statistics, snapshots, running out of memory."""

import torch

torch.cuda.init()
a = torch.zeros(64 << 20, device="cuda", dtype=torch.uint8)
print(torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved())
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    b = torch.full((1 << 20,), 3.0, device="cuda")
print(b.sum().item(), len(pool.snapshot()), torch.cuda.memory_stats()["allocation.all.current"])
del b, pool
torch.cuda.memory._record_memory_history(max_entries=100)
c = [torch.ones(1 << 20, device="cuda") for _ in range(3)]
del c[1]
traces = torch.cuda.memory._snapshot()["device_traces"][0]
print([each["action"] for each in traces if each["action"] in ("alloc", "free_requested", "free_completed")])
torch.cuda.memory._record_memory_history(enabled=None)
free, total = torch.cuda.mem_get_info()
print(0 < free < total, total == torch.cuda.get_device_properties(0).total_memory)
torch.cuda.set_per_process_memory_fraction(0.05)
for size in (0.2, 4.0):
    try:
        torch.empty(int(size * total), device="cuda", dtype=torch.uint8)
        print("fits")
    except torch.OutOfMemoryError as error:
        print("out of memory", "allowed" in str(error))
torch.cuda.set_per_process_memory_fraction(1.0)
try:
    torch.empty(total * 2, device="cuda", dtype=torch.uint8)
except torch.OutOfMemoryError:
    print("out of memory")
print(torch.ones(1 << 20, device="cuda").sum().item())
pinned = torch.arange(1 << 20, dtype=torch.float32).pin_memory()
back = torch.empty(1 << 20, dtype=torch.float32, pin_memory=True)
back.copy_(pinned.to("cuda", non_blocking=True) * 2, non_blocking=True)
torch.cuda.synchronize()
print(pinned.is_pinned(), back.sum().item())
raw = torch.cuda.caching_allocator_alloc(1 << 20)
torch.cuda.caching_allocator_delete(raw)
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
print(torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated())
print(torch.cuda.utilization() >= 0, torch.cuda.device_memory_used() > 0)
