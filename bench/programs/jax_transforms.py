"""JAX's transformations: vmap, grad, scan, remat, callbacks to the host, donated memory."""

import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import functools

import jax
import jax.numpy as jnp
import numpy as np

x = jnp.arange(1024, dtype=jnp.float32).reshape(32, 32) / 100


@jax.checkpoint
def layer(w, h):
    return jnp.tanh(h @ w)


print(float(jax.grad(lambda w: layer(w, x).sum())(x).sum()))
print(jax.vmap(lambda row: jnp.sort(row)[::-1][:2])(x)[3])
carry, steps = jax.lax.scan(lambda c, r: (c + r.sum(), c), 0.0, x)
print(float(carry), steps.shape)
print(float(jax.lax.while_loop(lambda v: v < 100, lambda v: v * 1.5, 1.0)))
host = jax.pure_callback(lambda v: np.asarray(v) * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
print(float(host.sum()))


@functools.partial(jax.jit, donate_argnums=0)
def add(state, value):
    jax.debug.callback(lambda total: print("seen", round(float(total), 3)), value.sum())
    return state + value


state = add(jnp.zeros_like(x), x)
jax.effects_barrier()
print(float(state.sum()))
there, here = (
    jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind=kind)
    for kind in ("pinned_host", "device")
)
pinned = jax.device_put(x, there)
print(pinned.sharding.memory_kind, float(jax.device_put(pinned, here).sum()))
mesh = jax.make_mesh((1,), ("rows",))
spread = jax.device_put(x, jax.NamedSharding(mesh, jax.P("rows")))
print(float(jax.jit(lambda v: (v * v).sum())(spread)))

key = jax.random.key(7)
print(float(jax.random.normal(key, (1000,)).sum()), jax.random.permutation(key, 8))
