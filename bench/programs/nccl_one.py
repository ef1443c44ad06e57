"""torch.distributed with NCCL, one process on one GPU: collectives, and DistributedDataParallel."""

import tempfile

import torch
import torch.distributed as dist

with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("nccl", init_method=f"file://{folder}/rendezvous", rank=0, world_size=1)
    torch.cuda.set_device(0)
    torch.manual_seed(1)
    x = torch.arange(1000, device="cuda", dtype=torch.float32)
    dist.all_reduce(x)
    dist.broadcast(x, 0)
    gathered = [torch.empty_like(x)]
    dist.all_gather(gathered, x)
    scattered = torch.empty_like(x)
    dist.reduce_scatter_tensor(scattered, x)
    dist.barrier()
    print(x.sum().item(), gathered[0].sum().item(), scattered[-1].item())
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8).cuda(), device_ids=[0])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    inputs = torch.randn(32, 64, device="cuda")
    for _ in range(3):
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(round(loss.item(), 4))
    dist.destroy_process_group()
