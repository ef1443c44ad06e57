"""FlexAttention, nested tensors and compiled functions tuned on the GPU (max-autotune)."""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

torch.manual_seed(5)
q, k, v = (
    torch.randn(1, 4, 256, 64, device="cuda", dtype=torch.float32, requires_grad=True) for _ in range(3)
)


def causal(batch, head, query, key):
    return query >= key


mask = create_block_mask(causal, 1, 1, 256, 256, device="cuda")
attend = torch.compile(flex_attention)
out = attend(q, k, v, block_mask=mask)
out.square().sum().backward()
plain = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
print(torch.allclose(out, plain, atol=2e-2), q.grad.isfinite().all().item())
nested = torch.nested.nested_tensor(
    [torch.arange(n, device="cuda", dtype=torch.float32)[:, None].expand(n, 8) for n in (3, 5, 7)],
    layout=torch.jagged,
)
print(nested.sum(dim=-1).unbind()[1].tolist(), nested.to_padded_tensor(0.0).sum().item())


@torch.compile(mode="max-autotune-no-cudagraphs")
def step(a, b):
    return torch.relu(a @ b).sum(dim=0)


a = torch.arange(512 * 256, device="cuda", dtype=torch.float32).remainder(7).view(512, 256)
b = torch.arange(256 * 128, device="cuda", dtype=torch.float32).remainder(5).view(256, 128)
print(step(a, b).sum().item())
