"""JAX's linear algebra: cuSOLVER and cuBLAS through XLA's custom calls."""

import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import jax
import jax.numpy as jnp

jax.config.update("jax_default_matmul_precision", "highest")
x = jax.random.normal(jax.random.key(2), (96, 96))
positive = x @ x.T + 96 * jnp.eye(96)
print("cholesky", float(jnp.linalg.cholesky(positive).sum()))
print("solve", float(jnp.linalg.solve(positive, x[:, :3]).sum()))
print("qr", float(jnp.abs(jnp.linalg.qr(x)[1]).sum()))
print("eigenvalues", float(jnp.linalg.eigvalsh(positive)[-3:].sum()))
print("singular values", float(jnp.linalg.svd(x, compute_uv=False)[:3].sum()))
print("determinant", float(jnp.linalg.slogdet(positive)[1]))
