"""JAX: jitted matrix products, elementwise work, reductions, sorting, convolution, FFT, random numbers."""

import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import jax
import jax.numpy as jnp

jax.config.update("jax_default_matmul_precision", "highest")
device = jax.devices()[0]
print(device.platform, device.device_kind)
keys = jax.random.split(jax.random.key(1), 4)
a, b = jax.random.normal(keys[0], (512, 256)), jax.random.normal(keys[1], (256, 384))


def show(name, value):
    value = jnp.abs(value)
    print(name, float(value.mean()), float(value.max()))


show("product", jax.jit(jnp.matmul)(a, b))
show(
    "bfloat16",
    jax.jit(lambda x, y: (x.astype(jnp.bfloat16) @ y.astype(jnp.bfloat16)).astype(jnp.float32))(a, b),
)
show("elementwise", jax.jit(lambda x: jnp.tanh(x) * jnp.exp(-x * x) + jax.nn.gelu(x))(a))
show("softmax", jax.jit(jax.nn.softmax)(a))
show("sort", jax.jit(lambda x: jnp.sort(x, axis=1)[:, :10])(a))
show("scan", jax.jit(lambda x: jnp.cumsum(x, axis=0))(a))
show("gather", jax.jit(lambda x: x[jnp.arange(0, 512, 7)][:, ::3])(a))
images, filters = jax.random.normal(keys[2], (4, 8, 32, 32)), jax.random.normal(keys[3], (16, 8, 3, 3))
show("convolution", jax.jit(lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"))(images, filters))
show("fft", jnp.abs(jax.jit(jnp.fft.fft2)(images)))
show(
    "while",
    jax.jit(lambda x: jax.lax.while_loop(lambda y: y.sum() < 1e5, lambda y: y * 1.5 + 1, x))(jnp.abs(a)),
)
show("cond", jax.jit(lambda x: jax.lax.cond(x.sum() > 0, lambda y: y * 2, lambda y: y * 3, x))(jnp.abs(a)))
print(float(jnp.asarray(jax.device_put(a, device)).sum()), jax.device_get(a).shape)
