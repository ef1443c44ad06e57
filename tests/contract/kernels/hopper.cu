// What only this generation has: products of a warpgroup, copies of whole stretches, clusters.
// @architecture compute_90a
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

__device__ unsigned shared_place(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ unsigned long long descriptor(unsigned place, unsigned leading, unsigned stride, unsigned mode) {
    return (unsigned long long)(place >> 4 & 0x3fff) | (unsigned long long)(leading >> 4) << 16 |
           (unsigned long long)(stride >> 4) << 32 | (unsigned long long)mode << 62;
}
__device__ void begin_products() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ void end_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
// Where thread t has its k-th sum of a 64-row matrix.
__device__ unsigned sum_row(unsigned t, unsigned k) { return t / 32 * 16 + t % 32 / 4 + k / 2 % 2 * 8; }
__device__ unsigned sum_column(unsigned t, unsigned k) { return k / 4 * 8 + t % 4 * 2 + k % 2; }

// @launch grid=1 block=128 in=f32:1280 out=f32:1024 approx=1e-3 absolute=1e-2
extern "C" __global__ void warpgroup_plain(const float* in, float* out, unsigned n) {
    __shared__ __align__(128) unsigned char a[2048], b[512];
    for (unsigned e = threadIdx.x; e < 1024; e += 128) {
        unsigned row = e / 16, k = e % 16;
        *(__half*)(a + k / 8 * 1024 + row / 8 * 128 + row % 8 * 16 + k % 8 * 2) = __float2half(in[e]);
    }
    for (unsigned e = threadIdx.x; e < 256; e += 128) {
        unsigned row = e / 16, k = e % 16;
        *(__half*)(b + k / 8 * 256 + row / 8 * 128 + row % 8 * 16 + k % 8 * 2) = __float2half(in[1024 + e]);
    }
    begin_products();
    float d[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    unsigned long long da = descriptor(shared_place(a), 1024, 128, 0), db = descriptor(shared_place(b), 256, 128, 0);
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %10, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, p, 1, -1, 0, 0; }"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                 : "l"(da), "l"(db), "r"(n));
    end_products();
    for (unsigned k = 0; k < 8; ++k) out[sum_row(threadIdx.x, k) * 16 + sum_column(threadIdx.x, k)] = d[k];
}

// Rows of 128 bytes whose pieces of 16 change places; four steps along k; then b by columns.
// @launch grid=1 block=128 in=f32:6144 out=f32:2048 approx=1e-3 absolute=1e-1
extern "C" __global__ void warpgroup_swizzled(const float* in, float* out, unsigned n) {
    __shared__ __align__(1024) unsigned char a[8192], b[2048], c[8192];
    auto place = [](unsigned row, unsigned k) { return row * 128 + ((k / 8) ^ (row % 8)) * 16 + k % 8 * 2; };
    for (unsigned e = threadIdx.x; e < 4096; e += 128)
        *(__nv_bfloat16*)(a + place(e / 64, e % 64)) = __float2bfloat16(in[e]);
    for (unsigned e = threadIdx.x; e < 1024; e += 128)
        *(__nv_bfloat16*)(b + place(e / 64, e % 64)) = __float2bfloat16(in[4096 + e]);
    for (unsigned e = threadIdx.x; e < 4096; e += 128)  // c[k][n]
        *(__nv_bfloat16*)(c + place(e / 64, e % 64)) = __float2bfloat16(in[(e * 5 + 2048) % 6144]);
    begin_products();
    float d[8], f[8];
    for (unsigned step = 0; step < 4; ++step) {
        unsigned long long da = descriptor(shared_place(a) + step * 32, 16, 1024, 1);
        unsigned long long db = descriptor(shared_place(b) + step * 32, 16, 1024, 1);
        unsigned long long dc = descriptor(shared_place(c) + step * 2048, 1024, 1024, 1);
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %10, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, p, 1, 1, 0, 0; }"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                     : "l"(da), "l"(db), "r"(step));
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %10, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, p, 1, 1, 0, 1; }"
                     : "+f"(f[0]), "+f"(f[1]), "+f"(f[2]), "+f"(f[3]), "+f"(f[4]), "+f"(f[5]), "+f"(f[6]), "+f"(f[7])
                     : "l"(da), "l"(dc), "r"(step));
    }
    end_products();
    for (unsigned k = 0; k < 8; ++k) {
        unsigned at = sum_row(threadIdx.x, k) * 16 + sum_column(threadIdx.x, k);
        out[at] = d[k];
        out[1024 + at] = f[k];
    }
}

// a by columns without a pattern, a in registers, sums of f16.
// @launch grid=1 block=128 in=f32:1280 out=f32:1024 approx=1e-2 absolute=1e-1
extern "C" __global__ void warpgroup_turned(const float* in, float* out, unsigned n) {
    __shared__ __align__(128) unsigned char a[2048], b[256];
    for (unsigned e = threadIdx.x; e < 1024; e += 128) {
        unsigned row = e / 16, k = e % 16;
        *(__half*)(a + row / 8 * 128 + k / 8 * 1024 + k % 8 * 16 + row % 8 * 2) = __float2half(in[e]);
    }
    for (unsigned e = threadIdx.x; e < 128; e += 128) {
        unsigned row = e / 16, k = e % 16;
        *(__half*)(b + k / 8 * 128 + row % 8 * 16 + k % 8 * 2) = __float2half(in[1024 + e]);
    }
    begin_products();
    unsigned d[2] = {0x3c003c00, 0x40003c00};
    float f[4] = {0, 0, 0, 0};
    unsigned long long da = descriptor(shared_place(a), 1024, 128, 0), db = descriptor(shared_place(b), 128, 128, 0);
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%0,%1}, %2, %3, 1, -1, 1, 1, 0;"
                 : "+r"(d[0]), "+r"(d[1]) : "l"(da), "l"(db));
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, r[4];
    for (unsigned k = 0; k < 4; ++k) {
        unsigned at = (warp * 16 + lane / 4 + k % 2 * 8) * 16 + lane % 4 * 2 + k / 2 * 8;
        __half2 pair = __floats2half2_rn(in[at], in[at + 1]);
        r[k] = *(unsigned*)&pair;
    }
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, 0, 1, 1, 0;"
                 : "+f"(f[0]), "+f"(f[1]), "+f"(f[2]), "+f"(f[3])
                 : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "l"(db));
    end_products();
    for (unsigned k = 0; k < 4; ++k) {
        unsigned at = sum_row(threadIdx.x, k) * 8 + sum_column(threadIdx.x, k);
        out[at] = f[k];
        out[512 + at] = __half2float(((__half*)d)[k]);
    }
}

// @launch grid=1 block=128 in=u32:1024 out=u32:1024
extern "C" __global__ void warpgroup_bytes(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ __align__(128) unsigned a[512], b[128];
    for (unsigned e = threadIdx.x; e < 512; e += 128) a[e] = in[e];
    b[threadIdx.x] = in[512 + threadIdx.x];
    begin_products();
    unsigned d[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    unsigned long long da = descriptor(shared_place(a), 1024, 128, 0), db = descriptor(shared_place(b), 256, 128, 0);
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.u8 {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, 0;"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7])
                 : "l"(da), "l"(db));
    end_products();
    for (unsigned k = 0; k < 8; ++k) out[threadIdx.x * 8 + k] = d[k];
}

// Stretches to shared memory and back, with sums and extremes on the way.
// @launch grid=1 block=32 in=u32:256 out=u32:512
extern "C" __global__ void stretches(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ __align__(128) unsigned stage[256];
    __shared__ __align__(8) unsigned long long barrier;
    unsigned where = shared_place(&barrier), to = shared_place(stage);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(where));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" ::"r"(where) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];" ::"r"(to),
                     "l"(in), "r"(where)
                     : "memory");
    }
    __syncwarp();
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(where) : "memory");
    for (unsigned k = threadIdx.x; k < 512; k += 32) out[k] = k * 0x01010101u;
    __threadfence();
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncwarp();
    if (threadIdx.x == 0) {
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], 256;" ::"l"(out), "r"(to) : "memory");
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s32 [%0], [%1], 256;" ::"l"(out + 64), "r"(to + 256) : "memory");
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.xor.b32 [%0], [%1], 256;" ::"l"(out + 128), "r"(to + 512) : "memory");
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%0], [%1], 256;" ::"l"(out + 192), "r"(to + 768) : "memory");
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024;" ::"l"(out + 256), "r"(to) : "memory");
        asm volatile("cp.async.bulk.commit_group;");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// Blocks of a cluster write into each other's memory, and one stretch comes to all of them.
// @launch grid=8 block=32 in=u32:256 out=u32:1024
extern "C" __global__ void __cluster_dims__(4, 1, 1) neighbours(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ __align__(128) unsigned stage[32], got[32], word;
    __shared__ __align__(8) unsigned long long barrier, second;
    unsigned where = shared_place(&barrier), other = shared_place(&second), rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    got[threadIdx.x] = 0;
    if (threadIdx.x == 0) {
        word = 7;
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(where));
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(other));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 128;" ::"r"(where) : "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(other) : "memory");
    }
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (rank == 2 && threadIdx.x == 0) {
        const unsigned* from = in + blockIdx.x / 4 * 128;
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 128, [%2], %3;" ::"r"(
                         shared_place(stage)),
                     "l"(from), "r"(where), "h"((unsigned short)15)
                     : "memory");
    }
    unsigned to, told, far;
    unsigned next = (rank + 1) % 4;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(shared_place(&got[threadIdx.x])), "r"(next));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(told) : "r"(other), "r"(next));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(far) : "r"(shared_place(&word)), "r"(next));
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(to),
                 "r"(rank * 1000 + threadIdx.x), "r"(told)
                 : "memory");
    asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];" ::"r"(far),
                 "r"(threadIdx.x), "r"(told)
                 : "memory");
    for (unsigned which : {where, other}) {
        unsigned done = 0;
        while (!done)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done) : "r"(which) : "memory");
    }
    out[INDEX * 4] = stage[threadIdx.x];
    out[INDEX * 4 + 1] = got[threadIdx.x];
    out[INDEX * 4 + 2] = word;
    out[INDEX * 4 + 3] = rank;
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// @launch grid=1 block=32 in=u32:256 out=f32:256 approx=1e-2 absolute=1e-1
extern "C" __global__ void mma_quarters(const unsigned* in, float* out, unsigned n) {
    unsigned lane = threadIdx.x, a[4], b[2];
    for (int k = 0; k < 4; ++k) a[k] = in[lane * 4 + k] & 0xbfbfbfbfu;
    for (int k = 0; k < 2; ++k) b[k] = in[128 + lane * 2 + k] & 0xbfbfbfbfu;
    float d[4] = {0, 1, 2, 3}, e[4] = {0, 0, 0, 0};
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(e[0]), "+f"(e[1]), "+f"(e[2]), "+f"(e[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    for (int k = 0; k < 4; ++k) {
        out[lane * 4 + k] = d[k];
        out[128 + lane * 4 + k] = e[k];
    }
}

// @launch grid=1 block=32 in=u32:256 out=u32:416
extern "C" __global__ void mma_small(const unsigned* in, unsigned* out, unsigned n) {
    unsigned lane = threadIdx.x, a[4], b[2], d[4] = {1, 2, 3, 4}, e[4] = {0, 0, 0, 0}, f[4] = {5, 6, 7, 8};
    for (int k = 0; k < 4; ++k) a[k] = in[lane * 4 + k];
    for (int k = 0; k < 2; ++k) b[k] = in[128 + lane * 2 + k];
    asm volatile("mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    asm volatile("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(e[0]), "+r"(e[1]), "+r"(e[2]), "+r"(e[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    asm volatile("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.xor.popc {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+r"(f[0]), "+r"(f[1]), "+r"(f[2]), "+r"(f[3]) : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    for (int k = 0; k < 4; ++k) {
        out[lane * 4 + k] = d[k];
        out[128 + lane * 4 + k] = e[k];
        out[256 + lane * 4 + k] = f[k];
    }
    unsigned turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(a[0]));
    out[384 + lane] = turned;
}

// @launch grid=1 block=32 in=f64:256 out=f64:192
extern "C" __global__ void mma_double(const double* in, double* out, unsigned n) {
    unsigned lane = threadIdx.x;
    // Small integers, so that the order of the sums does not matter.
    auto at = [&](unsigned k) { return rint(in[k] * 8); };
    double d[2] = {1, 2}, e[4] = {0, 0, 0, 0};
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+d"(d[0]), "+d"(d[1]) : "d"(at(lane)), "d"(at(32 + lane)));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+d"(e[0]), "+d"(e[1]), "+d"(e[2]), "+d"(e[3])
                 : "d"(at(64 + lane)), "d"(at(96 + lane)), "d"(at(128 + lane)), "d"(at(160 + lane)), "d"(at(192 + lane)), "d"(at(224 + lane)));
    for (int k = 0; k < 2; ++k) out[lane * 2 + k] = d[k];
    for (int k = 0; k < 4; ++k) out[64 + lane * 4 + k] = e[k];
}

// @launch grid=2 block=64 in=u32:128 out=u64:8
extern "C" __global__ void wide_atomics(const unsigned* in, unsigned long long* out, unsigned n) {
    unsigned long long add = in[INDEX];
    bool mine = false;
    while (!mine) {
        unsigned long long low, high;
        asm volatile("{ .reg .b128 q; ld.relaxed.gpu.global.b128 q, [%2]; mov.b128 {%0, %1}, q; }"
                     : "=l"(low), "=l"(high) : "l"(out) : "memory");
        unsigned long long was_low, was_high;
        asm volatile("{ .reg .b128 q, c, s; mov.b128 c, {%3, %4}; mov.b128 s, {%5, %6};\n"
                     "atom.relaxed.gpu.global.cas.b128 q, [%2], c, s; mov.b128 {%0, %1}, q; }"
                     : "=l"(was_low), "=l"(was_high)
                     : "l"(out), "l"(low), "l"(high), "l"(low + add), "l"(high + 1)
                     : "memory");
        mine = was_low == low && was_high == high;
    }
}
