"""torch.distributed on one GPU: FSDP2, a device mesh, distributed tensors, a checkpoint saved and loaded."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
store = dist.HashStore()
dist.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=torch.device("cuda", 0))
mesh = dist.init_device_mesh("cuda", (1,))
torch.manual_seed(2)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)).cuda()
for layer in model:
    if isinstance(layer, torch.nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
x = torch.randn(32, 64, device="cuda")
for _ in range(5):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(round(loss.item(), 5))
spread = distribute_tensor(torch.arange(16.0, device="cuda"), mesh, [Shard(0)])
print((spread * 2).full_tensor().sum().item())
with tempfile.TemporaryDirectory() as folder:
    state = {"model": model.state_dict()}
    checkpoint.save(state, checkpoint_id=folder)
    for value in state["model"].values():
        value.zero_()
    checkpoint.load(state, checkpoint_id=folder)
    print(round(model(x).square().mean().item(), 5))
dist.destroy_process_group()
