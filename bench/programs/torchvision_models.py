"""torchvision's models with random weights: inference of four and a training step, by cuDNN."""

import torch
import torchvision

torch.backends.cudnn.allow_tf32 = False
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.deterministic = True
images = torch.randn(4, 3, 128, 128, generator=torch.Generator().manual_seed(2)).cuda()
for name in ("resnet18", "mobilenet_v3_small", "efficientnet_b0", "convnext_tiny"):
    torch.manual_seed(1)
    model = getattr(torchvision.models, name)(weights=None).cuda().eval()
    with torch.inference_mode():
        out = model(images)
        half = model.to(memory_format=torch.channels_last).half()(images.half())
    print(name, round(out.abs().mean().item(), 4), round(half.float().abs().mean().item(), 2), flush=True)
torch.manual_seed(1)
model = torchvision.models.resnet18(weights=None).cuda().train()
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
for _ in range(3):
    loss = torch.nn.functional.cross_entropy(model(images), torch.tensor([1, 2, 3, 4], device="cuda"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(round(loss.item(), 3))
boxes = torch.tensor([[0, 0, 10, 10], [1, 1, 11, 11], [50, 50, 60, 60.0]], device="cuda")
print(torchvision.ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7], device="cuda"), 0.5).tolist())
