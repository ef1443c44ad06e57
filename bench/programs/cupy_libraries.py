"""CuPy's libraries: cuFFT, cuBLAS, cuSOLVER, cuSPARSE, cuRAND."""

import cupy
import cupyx.scipy.sparse

cupy.random.seed(4)
x = cupy.random.rand(128, 128)
positive = x @ x.T + 128 * cupy.eye(128)
print("fft", float(cupy.abs(cupy.fft.fft(x)).sum()), float(cupy.fft.irfft(cupy.fft.rfft(x)).sum()))
print("fft2", float(cupy.abs(cupy.fft.fft2(x.astype(cupy.complex64))).sum()))
print("product", float((x @ x).sum()), float(cupy.einsum("ij,jk->ik", x, x).sum()))
print("solve", float(cupy.linalg.solve(positive, x[:, :2]).sum()))
print("cholesky", float(cupy.linalg.cholesky(positive).sum()))
print("svd", float(cupy.linalg.svd(x, compute_uv=False).sum()), float(cupy.linalg.norm(x)))
print("eigh", float(cupy.linalg.eigh(positive)[0].sum()), float(cupy.linalg.qr(x)[1].diagonal().sum()))
matrix = cupyx.scipy.sparse.csr_matrix(cupy.where(x > 0.9, x, 0))
print("sparse", matrix.nnz, float((matrix @ x).sum()), float((matrix @ matrix).sum()))
print("random", float(cupy.random.standard_normal(1000).sum()), float(cupy.random.rand(1000).sum()))
