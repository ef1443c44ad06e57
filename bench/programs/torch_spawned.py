"""Processes of torch.multiprocessing: queues, shared tensors of the host, gloo's collectives on the GPU's."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, world, store, queue):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    x = torch.full((1000,), rank + 1.0, device="cuda")
    dist.all_reduce(x)
    gathered = [torch.empty(10, device="cuda") for _ in range(world)]
    dist.all_gather(gathered, torch.arange(10.0, device="cuda") * rank)
    y = torch.arange(5.0, device="cuda") if rank == 0 else torch.empty(5, device="cuda")
    dist.broadcast(y, 0)
    queue.put(
        (
            rank,
            x.sum().item(),
            sum(each.sum().item() for each in gathered),
            y.sum().item(),
            torch.cuda.device_count(),
        )
    )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.set_start_method("spawn")
    with tempfile.TemporaryDirectory() as folder:
        queue = mp.get_context("spawn").SimpleQueue()
        processes = mp.spawn(work, (2, os.path.join(folder, "store"), queue), nprocs=2, join=False)
        for result in sorted(queue.get() for _ in range(2)):
            print(*result)
        processes.join()
    shared = torch.zeros(10).share_memory_()
    pinned = torch.arange(10.0).pin_memory()
    shared.copy_(pinned.cuda(non_blocking=True) * 2)
    print(shared.sum().item(), pinned.is_pinned())
    registered = torch.ones(1 << 16).share_memory_()
    done = torch.cuda.cudart().cudaHostRegister(registered.data_ptr(), registered.nbytes, 0)
    print(int(done), registered.is_pinned(), registered.cuda(non_blocking=True).sum().item())
    print(int(torch.cuda.cudart().cudaHostUnregister(registered.data_ptr())))
