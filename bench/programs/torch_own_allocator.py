"""PyTorch on memory of an allocator that is the program's own (CUDAPluggableAllocator)."""

import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <stddef.h>
#include <sys/types.h>
int cudaMallocAsync(void**, size_t, void*);
int cudaFreeAsync(void*, void*);
static long taken, given;
void* mine_take(ssize_t size, int device, void* stream) {
    void* memory = 0;
    if (cudaMallocAsync(&memory, size, stream) != 0) return 0;
    ++taken;
    return memory;
}
void mine_give(void* memory, ssize_t size, int device, void* stream) {
    ++given;
    cudaFreeAsync(memory, stream);
}
long mine_taken(void) { return taken; }
long mine_given(void) { return given; }
"""
folder = tempfile.mkdtemp()
source, library = Path(folder) / "mine.c", Path(folder) / "libmine.so"
source.write_text(SOURCE)
subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
allocator = torch.cuda.memory.CUDAPluggableAllocator(str(library), "mine_take", "mine_give")
torch.cuda.memory.change_current_allocator(allocator)
torch.manual_seed(9)
x = torch.randn(256, 256, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    y = x @ x
    y = y.softmax(-1)
torch.cuda.current_stream().wait_stream(side)
print(y.sum().item(), x.abs().sum().item())
for size in (1, 1000, 1 << 20, 1 << 26):
    z = torch.ones(size, device="cuda")
    print(size, int(z.sum().item()))
    del z
import ctypes

counts = ctypes.CDLL(str(library))
counts.mine_taken.restype = counts.mine_given.restype = ctypes.c_long
print(counts.mine_taken() > 5, counts.mine_given() > 3)
