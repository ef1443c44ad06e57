"""Arrays that PyTorch, CuPy and JAX hand to each other without a copy, on streams of each."""

import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import cupy
import jax
import torch

jax.devices()
torch.cuda.set_device(0)  # JAX leaves the last GPU current
a = torch.arange(1000, device="cuda", dtype=torch.float32)
b = cupy.from_dlpack(a)
b *= 2
print(a.sum().item(), float(b.sum()), b.data.ptr == a.data_ptr())
c = torch.as_tensor(b, device="cuda")
c += 1
print(float(b[10]), c.data_ptr() == a.data_ptr())
d = jax.dlpack.from_dlpack(a)
print(float((d * 2).sum()))
e = torch.from_dlpack(jax.numpy.arange(16, dtype="float32") * 3)
print(e.device.type, e.sum().item())
stream = torch.cuda.Stream()
with torch.cuda.stream(stream), cupy.cuda.ExternalStream(stream.cuda_stream):
    f = torch.full((1 << 20,), 2.0, device="cuda")
    g = cupy.from_dlpack(f) ** 3
    h = torch.from_dlpack(g).sum()
stream.synchronize()
print(h.item())
