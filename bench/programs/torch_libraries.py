"""What other libraries PyTorch calls: cuFFT, cuSOLVER, cuSPARSE, attention."""

import torch

torch.manual_seed(1)
x = torch.randn(32, 256, device="cuda")
step = "attention"
for step, work in {
    "attention": lambda: torch.nn.functional.scaled_dot_product_attention(
        *(torch.randn(2, 8, 128, 64, device="cuda", dtype=torch.float16) for _ in range(3)), is_causal=True
    ).float(),
    "solve": lambda: torch.linalg.solve(x[:, :32] + 10 * torch.eye(32, device="cuda"), x[:, :4]),
    "svd": lambda: torch.linalg.svdvals(x),
    "sparse": lambda: torch.eye(256, device="cuda").to_sparse_csr() @ x.t(),
    "fft": lambda: torch.fft.fft(x).abs(),
}.items():
    try:
        print(step, round(work().abs().mean().item(), 4), flush=True)
    except RuntimeError as error:
        print(step, str(error).splitlines()[0], flush=True)
