"""Packed and grouped products: four-bit weights, experts, encoders' fast path, norms and losses."""

import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(16)
a = torch.randn(32, 256, device="cuda", dtype=torch.bfloat16)


def four_bits():
    nibbles = torch.randint(0, 255, (128, 128), device="cuda", dtype=torch.uint8)
    packed = torch._convert_weight_to_int4pack(nibbles, 8)
    scales = torch.rand(256 // 64, 128, 2, device="cuda", dtype=torch.bfloat16)
    return torch._weight_int4pack_mm(a, packed, 64, scales).float().abs().sum().item()


def eight_bits():
    weight = torch.randint(-128, 127, (64, 256), device="cuda", dtype=torch.int8)
    return (
        torch._weight_int8pack_mm(a, weight, torch.rand(64, device="cuda", dtype=torch.bfloat16))
        .float()
        .abs()
        .sum()
        .item()
    )


def grouped():
    experts = torch.randn(4, 64, 256, device="cuda", dtype=torch.bfloat16)
    ends = torch.tensor([5, 9, 20, 32], device="cuda", dtype=torch.int32)
    return torch._grouped_mm(a, experts.transpose(-2, -1), offs=ends).float().abs().sum().item()


print("int4", four_bits())
print("int8", eight_bits())
print("grouped", grouped())
encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2).cuda().eval()
x = torch.randn(8, 20, 64, device="cuda")
padding = (
    torch.arange(20, device="cuda")[None]
    >= torch.tensor([20, 15, 3, 8, 1, 20, 11, 6], device="cuda")[:, None]
)
with torch.inference_mode():
    print("fast path", encoder(x, src_key_padding_mask=padding)[~padding].abs().sum().item())
encoder.train()
torch.manual_seed(17)
print("slow path", encoder(x, src_key_padding_mask=padding).shape)
attention = nn.MultiheadAttention(64, 8, batch_first=True).cuda()
out, weights = attention(x, x, x, key_padding_mask=padding, average_attn_weights=False)
print(out.abs().sum().item(), weights.shape)
logits = torch.randn(100, 50, device="cuda", requires_grad=True)
target = torch.randint(0, 50, (100,), device="cuda")
for name, loss in (
    ("cross", functional.cross_entropy(logits, target, label_smoothing=0.1, ignore_index=3)),
    ("nll", functional.nll_loss(logits.log_softmax(1), target)),
    ("margin", functional.multi_margin_loss(logits, target)),
    ("kl", functional.kl_div(logits.log_softmax(1), logits.detach().softmax(1).flip(0))),
    ("huber", functional.huber_loss(logits, logits.detach().roll(1))),
    ("cosine", 1 - functional.cosine_similarity(logits, logits.detach().flip(1)).mean()),
    ("triplet", functional.triplet_margin_loss(logits[:30], logits[30:60], logits[60:90])),
    ("bce", functional.binary_cross_entropy_with_logits(logits, logits.detach().sigmoid())),
):
    logits.grad = None
    loss.backward()
    print(name, loss.item(), logits.grad.abs().sum().item())
for norm in (nn.LayerNorm(64), nn.RMSNorm(64), nn.BatchNorm1d(20), nn.SyncBatchNorm(20), nn.GroupNorm(4, 20)):
    print(type(norm).__name__, norm.cuda()(x).abs().sum().item())
print(
    functional.glu(x).sum().item(),
    functional.silu(x).sum().item(),
    functional.gelu(x, approximate="tanh").sum().item(),
    functional.mish(x).sum().item(),
    functional.hardswish(x).sum().item(),
)
rotary = torch.polar(
    torch.ones(20, 32, device="cuda"),
    torch.outer(torch.arange(20.0, device="cuda"), 0.01 ** torch.linspace(0, 1, 32, device="cuda")),
)
print(torch.view_as_real(torch.view_as_complex(x.view(8, 20, 32, 2)) * rotary).abs().sum().item())
