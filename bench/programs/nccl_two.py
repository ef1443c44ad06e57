"""torch.distributed with NCCL, two processes that see one GPU each: collectives, send and receive."""

import os
import subprocess
import sys
import tempfile

GPUS = 2

if len(sys.argv) == 1:
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, str(rank), f"file://{folder}/rendezvous"],
                env={**os.environ, "CUDA_VISIBLE_DEVICES": str(rank)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(GPUS)
        ]
        outputs = [rank.communicate()[0] for rank in ranks]
    print("".join(outputs), end="")
    sys.exit(max(abs(rank.returncode) for rank in ranks))

import torch
import torch.distributed as dist

rank = int(sys.argv[1])
dist.init_process_group("nccl", init_method=sys.argv[2], rank=rank, world_size=GPUS)
print("rank", rank, torch.cuda.device_count())
x = torch.arange(1 << 20, device="cuda", dtype=torch.float32) * (rank + 1)
dist.all_reduce(x)
print(x.double().sum().item())
parts = [torch.empty(4, device="cuda") for _ in range(GPUS)]
dist.all_gather(parts, torch.full((4,), float(rank), device="cuda"))
print([part.tolist() for part in parts])
if rank == 0:
    dist.send(x[:10], 1)
else:
    received = torch.empty(10, device="cuda")
    dist.recv(received, 0)
    print(received.tolist())
dist.barrier()
dist.destroy_process_group()
