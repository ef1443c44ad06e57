"""Image operations: layouts, transposed and grouped and deep convolutions, sampling, pooling, detection's."""

import torch
from torch.nn import functional

torch.manual_seed(11)
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True
x = torch.randn(4, 16, 24, 24, device="cuda", requires_grad=True)
w = torch.randn(32, 16, 3, 3, device="cuda")


def show(name, y):
    x.grad = None
    y.float().square().mean().backward()
    print(name, tuple(y.shape), round(y.float().abs().mean().item(), 4), round(x.grad.abs().sum().item(), 3))


show("plain", functional.conv2d(x, w, padding=1))
show(
    "last",
    functional.conv2d(
        x.to(memory_format=torch.channels_last), w.to(memory_format=torch.channels_last), padding=1
    ),
)
show("grouped", functional.conv2d(x, torch.randn(32, 4, 3, 3, device="cuda"), groups=4, stride=2))
show("depthwise", functional.conv2d(x, torch.randn(16, 1, 5, 5, device="cuda"), groups=16, padding=2))
show("dilated", functional.conv2d(x, w, dilation=3))
show(
    "transposed", functional.conv_transpose2d(x, torch.randn(16, 8, 4, 4, device="cuda"), stride=2, padding=1)
)
show(
    "deep",
    functional.conv3d(x.unsqueeze(2).expand(-1, -1, 5, -1, -1), torch.randn(8, 16, 3, 3, 3, device="cuda")),
)
show("line", functional.conv1d(x.flatten(2), torch.randn(8, 16, 9, device="cuda"), stride=4))
for mode in ("nearest", "bilinear", "bicubic", "area"):
    show(mode, functional.interpolate(x, scale_factor=1.5, mode=mode))
theta = torch.tensor([[[0.8, 0.2, 0.1], [-0.2, 0.8, 0.0]]], device="cuda").expand(4, 2, 3)
for padding in ("zeros", "border", "reflection"):
    show(
        padding,
        functional.grid_sample(
            x,
            functional.affine_grid(theta, [4, 16, 20, 20], align_corners=False),
            padding_mode=padding,
            align_corners=False,
        ),
    )
show("max", functional.max_pool2d(x, 3, 2))
show("average", functional.avg_pool2d(x, 3, 2, 1))
show("adaptive", functional.adaptive_avg_pool2d(x, 5))
show("fractional", functional.lp_pool2d(x, 2, 3))
show("shuffle", functional.pixel_shuffle(x, 4))
show("unfold", functional.unfold(x, 3))
show("norm", functional.group_norm(x, 4))
show("instance", functional.instance_norm(x))
show("local", functional.local_response_norm(x, 5))
show("pad", functional.pad(x, (2, 3, 1, 4), mode="reflect"))
show("dft", torch.fft.rfft2(x).abs())
try:
    from torchvision import ops
except ImportError:
    pass
else:
    boxes = torch.rand(200, 2, device="cuda") * 20
    boxes = torch.cat([boxes, boxes + torch.rand(200, 2, device="cuda") * 8 + 1], 1)
    scores = torch.rand(200, device="cuda")
    print("nms", ops.nms(boxes, scores, 0.4).sum().item(), ops.box_iou(boxes, boxes).sum().item())
    rois = torch.cat([torch.randint(0, 4, (200, 1), device="cuda").float(), boxes], 1)
    show("align", ops.roi_align(x, rois, 7, 0.9))
    show("deformed", ops.deform_conv2d(x, torch.randn(4, 18, 24, 24, device="cuda"), w, padding=1))
