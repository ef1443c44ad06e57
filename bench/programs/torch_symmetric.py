"""Symmetric memory of torch.distributed and buffers registered with NCCL, in a group of one."""

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

    for name in (None, "CUDA"):
        try:
            if name is not None:
                symmetric.set_backend(name)
            x = symmetric.empty(1024, device="cuda")
            handle = symmetric.rendezvous(x, dist.group.WORLD.group_name)
            x.fill_(3)
            handle.barrier()
            print(
                name,
                handle.world_size,
                handle.rank,
                handle.get_buffer(0, (1024,), torch.float32).sum().item(),
            )
        except Exception as error:
            print(name, type(error).__name__)
    y = torch.arange(100.0, device="cuda")
    dist.all_reduce(y)
    work = dist.all_reduce(y, async_op=True)
    work.wait()
    print(y.sum().item())
    pool = None
    try:
        backend = dist.group.WORLD._get_backend(torch.device("cuda"))
        pool = torch.cuda.MemPool(backend.mem_allocator)
        with torch.cuda.use_mem_pool(pool):
            z = torch.ones(1 << 20, device="cuda")
        backend.register_mem_pool(pool)
        dist.all_reduce(z)
        print("registered", z.sum().item())
        backend.deregister_mem_pool(pool)
    except Exception as error:
        print("not registered", type(error).__name__)
    dist.destroy_process_group()
