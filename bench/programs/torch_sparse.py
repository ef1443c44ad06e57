"""cuSPARSE through PyTorch: COO and CSR, products with dense and sparse, sampled products, gradients."""

import torch

torch.manual_seed(1)
torch.backends.cuda.matmul.allow_tf32 = False
dense = torch.randn(200, 200, device="cuda")
dense[dense.abs() < 1.5] = 0
other = torch.randn(200, 64, device="cuda")
coo, csr = dense.to_sparse(), dense.to_sparse_csr()
print(coo._nnz(), csr.values().sum().item())
print("coo", torch.sparse.mm(coo, other).abs().sum().item())
print("csr", (csr @ other).abs().sum().item(), (csr @ other[:, 0]).abs().sum().item())
print("sparse", torch.sparse.mm(csr, csr).to_dense().abs().sum().item())
print("sampled", torch.sparse.sampled_addmm(csr, other, other.mT).values().abs().sum().item())
print(
    "sum",
    torch.sparse.sum(coo, 0).to_dense().sum().item(),
    torch.sparse.softmax(coo, 1).values().sum().item(),
)
weights = coo.detach().requires_grad_()
torch.sparse.mm(weights, other).square().mean().backward()
print("gradient", weights.grad.to_dense().abs().sum().item())
print("2:4", coo.coalesce().indices().sum().item(), (dense.to_sparse_bsr((8, 8)) @ other).abs().sum().item())
