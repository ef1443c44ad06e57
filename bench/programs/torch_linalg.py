"""Linear algebra through cuSOLVER, cuBLAS and MAGMA: factorisations, eigenvalues, batches, least squares."""

import torch

torch.manual_seed(1)
torch.backends.cuda.matmul.allow_tf32 = False
x = torch.randn(120, 120, device="cuda", dtype=torch.float64)
positive = x @ x.mT + 120 * torch.eye(120, device="cuda", dtype=torch.float64)
batch = torch.randn(32, 16, 16, device="cuda") + 16 * torch.eye(16, device="cuda")
print("cholesky", torch.linalg.cholesky(positive).sum().item())
print("lu", torch.linalg.lu_factor(x).LU.abs().sum().item(), torch.linalg.det(batch).mean().item())
print("qr", torch.linalg.qr(x).R.abs().sum().item())
print("eigh", torch.linalg.eigh(positive).eigenvalues.sum().item())
print("eig", torch.linalg.eigvals(x).abs().sum().item())
print("svd", torch.linalg.svdvals(x).sum().item(), torch.linalg.svdvals(batch).sum().item())
print("inverse", torch.linalg.inv(batch).abs().sum().item(), torch.linalg.pinv(x[:, :40]).abs().sum().item())
print("lstsq", torch.linalg.lstsq(x[:, :20], x[:, 20:22]).solution.abs().sum().item())
print("solve", torch.linalg.solve_triangular(positive.tril(), x, upper=False).abs().sum().item())
print("matrix_exp", torch.linalg.matrix_exp(batch / 100).sum().item())
