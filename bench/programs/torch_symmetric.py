"""Symmetric memory of torch.distributed, and NCCL's reductions beside it, in a group of one."""

import os
import tempfile

import torch
import torch.distributed as dist

with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group(
        "nccl",
        init_method=f"file://{os.path.join(folder, 'store')}",
        rank=0,
        world_size=1,
        device_id=torch.device("cuda:0"),
    )
    import torch.distributed._symmetric_memory as symmetric

    x = symmetric.empty(1024, device="cuda")
    handle = symmetric.rendezvous(x, dist.group.WORLD.group_name)
    x.fill_(3)
    handle.barrier()
    print(handle.world_size, handle.rank, handle.get_buffer(0, (1024,), torch.float32).sum().item())
    y = torch.arange(100.0, device="cuda")
    dist.all_reduce(y)
    work = dist.all_reduce(y, async_op=True)
    work.wait()
    print(y.sum().item())
    dist.destroy_process_group()
