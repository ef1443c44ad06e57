"""A CUDA extension that PyTorch compiles and loads while the program runs (torch.utils.cpp_extension)."""

import os
import tempfile

import torch
from torch.utils.cpp_extension import load_inline

os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")
CUDA = r"""
#include <c10/cuda/CUDAStream.h>
__global__ void scaled_sum(const float* a, const float* b, float* out, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] * scale + b[i];
}
torch::Tensor scaled_add(torch::Tensor a, torch::Tensor b, double scale) {
    auto out = torch::empty_like(a);
    int n = a.numel();
    scaled_sum<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), scale, n);
    return out;
}
"""
with tempfile.TemporaryDirectory() as folder:
    built = load_inline(
        name="scaled_add",
        cpp_sources="torch::Tensor scaled_add(torch::Tensor a, torch::Tensor b, double scale);",
        cuda_sources=CUDA,
        functions=["scaled_add"],
        build_directory=folder,
    )
    a = torch.arange(1000, device="cuda", dtype=torch.float32)
    print(built.scaled_add(a, torch.ones_like(a), 2.0).sum().item())
    stream = torch.cuda.Stream(priority=-1)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        again = built.scaled_add(a, a, -1.0)
    stream.synchronize()
    print(again.abs().sum().item())
