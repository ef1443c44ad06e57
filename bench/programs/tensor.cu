// C++ with tensor cores: products by wmma (half, bfloat16, tf32), cp.async, ldmatrix and mma in PTX.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <type_traits>
#include <vector>

#include "checked.hpp"

namespace wmma = nvcuda::wmma;

// One warp for each tile of 16 x 16; b is stored by columns.
template <typename Kind, int depth, typename Stored>
__global__ void multiply(const Stored* a, const Stored* b, float* c, int size) {
    wmma::fragment<wmma::matrix_a, 16, 16, depth, Kind, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, depth, Kind, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, depth, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k = 0; k < size; k += depth) {
        wmma::load_matrix_sync(left, a + blockIdx.y * 16 * size + k, size);
        wmma::load_matrix_sync(right, b + blockIdx.x * 16 * size + k, size);
        if constexpr (std::is_same_v<Kind, wmma::precision::tf32>) {
            for (float& each : left.x) each = wmma::__float_to_tf32(each);
            for (float& each : right.x) each = wmma::__float_to_tf32(each);
        }
        wmma::mma_sync(sum, left, right, sum);
    }
    wmma::store_matrix_sync(c + blockIdx.y * 16 * size + blockIdx.x * 16, sum, size, wmma::mem_row_major);
}

// One warp: c (16 x 8) = a (16 x 16) b (16 x 8), all by rows.
__global__ void fragments(const __half* a, const __half* b, float* c) {
    __shared__ __align__(16) __half left[16 * 16], right[16 * 8];
    const int lane = threadIdx.x;
    __pipeline_memcpy_async(left + 8 * lane, a + 8 * lane, 16);
    if (lane < 16) __pipeline_memcpy_async(right + 8 * lane, b + 8 * lane, 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    const auto of_a = static_cast<unsigned>(__cvta_generic_to_shared(left + lane % 16 * 16 + lane / 16 * 8));
    const auto of_b = static_cast<unsigned>(__cvta_generic_to_shared(right + lane % 16 * 8));
    unsigned x[4], y[2];
    float sum[4] = {};
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(of_a) : "memory");
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(y[0]), "=r"(y[1]) : "r"(of_b) : "memory");
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9},"
                 " {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    for (int i = 0; i < 4; ++i) c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sum[i];
}

template <typename Kind, int depth, typename Stored>
void product(const char* name) {
    constexpr int size = 64;
    std::vector<Stored> a(size * size), b(size * size);
    std::vector<float> c(size * size);
    const auto x = [](int i, int k) { return (i * 5 + k * 3) % 17 - 8; };
    const auto y = [](int k, int j) { return (k * 7 + j * 2) % 13 - 6; };
    for (int i = 0; i < size; ++i)
        for (int j = 0; j < size; ++j) {
            a[i * size + j] = Stored(static_cast<float>(x(i, j)));
            b[j * size + i] = Stored(static_cast<float>(y(i, j)));
            for (int k = 0; k < size; ++k) c[i * size + j] += static_cast<float>(x(i, k) * y(k, j));
        }
    float* out = upload(std::vector<float>(size * size));
    multiply<Kind, depth><<<dim3(size / 16, size / 16), 32>>>(upload(a), upload(b), out, size);
    report(name, out, c);
}

int main() {
    product<__half, 16, __half>("half");
    product<__nv_bfloat16, 16, __nv_bfloat16>("bfloat16");
    product<wmma::precision::tf32, 8, float>("tf32");

    std::vector<__half> a(16 * 16), b(16 * 8);
    std::vector<float> c(16 * 8);
    for (int i = 0; i < 16 * 16; ++i) a[i] = __half(static_cast<float>(i * 5 % 23));
    for (int i = 0; i < 16 * 8; ++i) b[i] = __half(static_cast<float>(i * 3 % 19 - 9));
    for (int i = 0; i < 16 * 8 * 16; ++i) {
        const int row = i / 128, column = i / 16 % 8, k = i % 16;
        c[row * 8 + column] += __half2float(a[row * 16 + k]) * __half2float(b[k * 8 + column]);
    }
    float* out = upload(std::vector<float>(c.size()));
    fragments<<<1, 32>>>(upload(a), upload(b), out);
    report("fragments", out, c);
    std::puts("done");
}
