// Tensor cores, and copies that run beside the threads.
#include <cuda_fp16.h>
#include <mma.h>
#include <cuda_pipeline.h>
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
using namespace nvcuda;

// @launch grid=1 block=32 in=f32:512 out=f32:256 approx=1e-3
extern "C" __global__ void wmma_half(const float* in, float* out, unsigned n) {
    __shared__ __half a[256], b[256];
    for (unsigned k = threadIdx.x; k < 256; k += 32) {
        a[k] = __float2half(in[k]);
        b[k] = __float2half(in[256 + k]);
    }
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.5f);
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(out, fc, 16, wmma::mem_row_major);
}

// @launch grid=1 block=32 in=f32:512 out=f32:128 approx=1e-3
extern "C" __global__ void mma_half(const float* in, float* out, unsigned n) {
    unsigned lane = threadIdx.x, group = lane / 4, part = lane % 4;
    unsigned a[4], b[2];
    float d[4] = {0, 1, 2, 3};
    auto pack = [](float x, float y) { __half2 h = __floats2half2_rn(x, y); return *(unsigned*)&h; };
    for (int k = 0; k < 4; ++k) {
        unsigned row = group + (k & 1) * 8, column = part * 2 + (k >> 1) * 8;
        a[k] = pack(in[row * 16 + column], in[row * 16 + column + 1]);
    }
    for (int k = 0; k < 2; ++k) {
        unsigned row = part * 2 + k * 8;
        b[k] = pack(in[256 + row * 8 + group], in[256 + (row + 1) * 8 + group]);
    }
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    for (int k = 0; k < 4; ++k) out[lane * 4 + k] = d[k];
}

// @launch grid=1 block=32 in=f32:512 out=f32:128 approx=1e-3
extern "C" __global__ void mma_tensor_float(const float* in, float* out, unsigned n) {
    unsigned lane = threadIdx.x;
    unsigned a[4], b[2];
    float d[4] = {0.5f, 1, 2, 3};
    for (int k = 0; k < 4; ++k) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(a[k]) : "f"(in[lane * 4 + k]));
    for (int k = 0; k < 2; ++k) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(b[k]) : "f"(in[128 + lane * 2 + k]));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    for (int k = 0; k < 4; ++k) out[lane * 4 + k] = d[k];
}

// @launch grid=1 block=32 in=u32:512 out=u32:128
extern "C" __global__ void mma_bytes(const unsigned* in, unsigned* out, unsigned n) {
    unsigned lane = threadIdx.x;
    int d[4] = {1, -2, 3, -4};
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(in[lane * 4]), "r"(in[lane * 4 + 1]), "r"(in[lane * 4 + 2]), "r"(in[lane * 4 + 3]),
                   "r"(in[128 + lane * 2]), "r"(in[129 + lane * 2]));
    for (int k = 0; k < 4; ++k) out[lane * 4 + k] = (unsigned)d[k];
}

// @launch grid=1 block=32 in=u32:256 out=u32:256
extern "C" __global__ void load_matrices(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ __align__(16) unsigned tile[128];
    for (unsigned k = threadIdx.x; k < 128; k += 32) tile[k] = in[k];
    __syncwarp();
    unsigned place = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x * 4]), r[4], s[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(place));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(s[0]), "=r"(s[1]), "=r"(s[2]), "=r"(s[3]) : "r"(place));
    for (int k = 0; k < 4; ++k) {
        out[threadIdx.x * 4 + k] = r[k];
        out[128 + threadIdx.x * 4 + k] = s[k];
    }
}

// @launch grid=4 block=64 in=u32:1024 out=u32:256
extern "C" __global__ void async_copies(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ __align__(16) unsigned stage[2][256];
    for (int k = 0; k < 2; ++k) {
        __pipeline_memcpy_async(&stage[k][threadIdx.x * 4], &in[((blockIdx.x + k) % 4) * 256 + threadIdx.x * 4], 16);
        __pipeline_commit();
    }
    __pipeline_wait_prior(1);
    __syncthreads();
    unsigned v = stage[0][(threadIdx.x * 7) % 256];
    __pipeline_wait_prior(0);
    __syncthreads();
    out[INDEX] = v ^ stage[1][(threadIdx.x * 5 + 3) % 256];
}
