"""JAX: a small network trained with Adam, steps under jit and in a scan (XLA's command buffers)."""

import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import functools

import jax
import jax.numpy as jnp

jax.config.update("jax_default_matmul_precision", "highest")
keys = jax.random.split(jax.random.key(3), 6)
sizes = [64, 256, 256, 10]
weights = [
    (jax.random.normal(key, (m, n)) * (2 / m) ** 0.5, jnp.zeros(n))
    for key, m, n in zip(keys, sizes[:-1], sizes[1:], strict=False)
]
inputs = jax.random.normal(keys[4], (512, 64))
labels = jax.random.randint(keys[5], (512,), 0, 10)


def loss_of(weights, inputs, labels):
    x = inputs
    for w, b in weights[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = weights[-1]
    return -jnp.take_along_axis(jax.nn.log_softmax(x @ w + b), labels[:, None], 1).mean()


def step(state, _):
    weights, first, second, count = state
    loss, gradient = jax.value_and_grad(loss_of)(weights, inputs, labels)
    count += 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
    rate = 1e-3 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    weights = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-8), weights, first, second)
    return (weights, first, second, count), loss


first, second = (jax.tree.map(jnp.zeros_like, weights) for _ in range(2))
state = (weights, first, second, jnp.float32(0))
one = jax.jit(functools.partial(step, _=None), donate_argnums=0)
for _ in range(5):
    state, loss = one(state)
    print(round(float(loss), 4))
state, losses = jax.jit(lambda state: jax.lax.scan(step, state, length=20))(state)
print([round(float(loss), 3) for loss in losses[::5]])
