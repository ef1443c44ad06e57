"""PyTorch's optimisers: one by one, fused and foreach, with scaling, clipping and averaging."""

import torch
from torch import nn

x = torch.linspace(-1, 1, 64 * 16).view(64, 16).cuda()
target = torch.linspace(0, 1, 64 * 4).view(64, 4).cuda()
CASES = [
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.1, "fused": True}),
    ("SGD", {"lr": 0.1, "foreach": True}),
    ("Adam", {"fused": True}),
    ("Adam", {"foreach": True, "amsgrad": True}),
    ("Adam", {"capturable": True}),
    ("AdamW", {"fused": True, "weight_decay": 0.1}),
    ("AdamW", {"foreach": False}),
    ("Adagrad", {"foreach": True}),
    ("RMSprop", {"centered": True}),
    ("Adadelta", {}),
    ("Adamax", {}),
    ("NAdam", {}),
    ("RAdam", {}),
    ("ASGD", {}),
    ("Rprop", {}),
]
for name, options in CASES:
    torch.manual_seed(10)
    model = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 4)).cuda()
    optimizer = getattr(torch.optim, name)(model.parameters(), **options)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    for _ in range(6):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.mse_loss(model(x), target.half())
        scaler.scale(loss.float()).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        average.update_parameters(model)
    print(name, *options, round(loss.item(), 3), round(norm.item(), 2), round(average(x).mean().item(), 2))
model = nn.Linear(16, 4).cuda()
nn.init.ones_(model.weight), nn.init.zeros_(model.bias)
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=10, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), target)
    loss.backward()
    return loss


optimizer.step(closure)
print("LBFGS", round(closure().item(), 3))
