"""Conjugate gradients in one cooperative kernel, on managed memory that the host fills and reads."""

import ctypes

import numpy as np
from calls import done, names, start
from compiled import load
from cuda.bindings import driver

SOURCE = b"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

struct Matrix { const int* rows; const int* columns; const float* values; int size; };

__device__ void multiply(const Matrix& a, const float* x, float* y, const cg::grid_group& grid) {
    for (int row = grid.thread_rank(); row < a.size; row += grid.size()) {
        float sum = 0;
        for (int at = a.rows[row]; at < a.rows[row + 1]; ++at) sum += a.values[at] * x[a.columns[at]];
        y[row] = sum;
    }
}

__device__ void dot(const float* x, const float* y, int size, double* into, const cg::grid_group& grid) {
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    double sum = 0;
    for (int i = grid.thread_rank(); i < size; i += grid.size()) sum += double(x[i]) * y[i];
    sum = cg::reduce(tile, sum, cg::plus<double>());
    if (tile.thread_rank() == 0) atomicAdd(into, sum);
}

extern "C" __global__ void solve(Matrix a, float* x, float* r, float* p, float* ap, double* dots,
                                 int* turns) {
    const auto grid = cg::this_grid();
    const bool first = grid.thread_rank() == 0;
    for (int i = grid.thread_rank(); i < a.size; i += grid.size()) p[i] = r[i];
    dot(r, r, a.size, &dots[0], grid);
    grid.sync();
    double rr = dots[0];
    int turn = 0;
    for (; turn < 500 && rr > 1e-10; ++turn) {
        multiply(a, p, ap, grid);
        if (first) dots[1] = dots[2] = 0;
        grid.sync();
        dot(p, ap, a.size, &dots[1], grid);
        grid.sync();
        const float alpha = rr / dots[1];
        for (int i = grid.thread_rank(); i < a.size; i += grid.size()) {
            x[i] += alpha * p[i];
            r[i] -= alpha * ap[i];
        }
        grid.sync();
        dot(r, r, a.size, &dots[2], grid);
        grid.sync();
        const float beta = dots[2] / rr;
        rr = dots[2];
        for (int i = grid.thread_rank(); i < a.size; i += grid.size()) p[i] = r[i] + beta * p[i];
        grid.sync();
    }
    if (first) *turns = turn;
}
"""

device, context = start()
solve = done(driver.cuModuleGetFunction(load(SOURCE), b"solve"))
size = 512


def managed(count, kind):
    """An array in managed memory."""
    address = int(done(driver.cuMemAllocManaged(count * np.dtype(kind).itemsize, 1)))
    raw = (ctypes.c_uint8 * (count * np.dtype(kind).itemsize)).from_address(address)
    array = np.frombuffer(raw, dtype=kind)
    array[:] = 0
    return address, array


# A tridiagonal matrix, row by row; the host fills it in place.
rows, columns, values = (
    managed(size + 1, np.int32),
    managed(3 * size, np.int32),
    managed(3 * size, np.float32),
)
at = 0
for row in range(size):
    rows[1][row] = at
    for column in (row - 1, row, row + 1):
        if 0 <= column < size:
            columns[1][at], values[1][at] = column, 4.0 if column == row else -1.0
            at += 1
rows[1][size] = at
x, r, p, ap = (managed(size, np.float32) for _ in range(4))
dots, turns = managed(3, np.float64), managed(1, np.int32)
r[1][:] = 1

gpu = driver.CUmemLocation()
gpu.type, gpu.id = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, int(device)
mostly = driver.CUmem_advise.CU_MEM_ADVISE_SET_READ_MOSTLY
names(
    driver.cuMemAdvise(values[0], 12 * size, mostly, gpu),
    driver.cuMemPrefetchAsync(values[0], 12 * size, gpu, 0, 0),
)


class Matrix(ctypes.Structure):
    """As the kernel's."""

    _fields_ = (
        ("rows", ctypes.c_uint64),
        ("columns", ctypes.c_uint64),
        ("values", ctypes.c_uint64),
        ("size", ctypes.c_int),
    )


most = done(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(solve, 128, 0))
stored = [Matrix(rows[0], columns[0], values[0], size)]
stored += [ctypes.c_uint64(each[0]) for each in (x, r, p, ap, dots, turns)]
pointers = (ctypes.c_void_p * len(stored))(*(ctypes.addressof(value) for value in stored))
print(most > 0)
names(driver.cuLaunchCooperativeKernel(solve, 4, 1, 1, 128, 1, 1, 0, 0, ctypes.addressof(pointers)))
names(driver.cuCtxSynchronize())

product = 4 * x[1]
product[1:] -= x[1][:-1]
product[:-1] -= x[1][1:]
print(0 < turns[1][0] < 100, float(abs(product - 1).max()) < 1e-4)
