// f16 and bf16, alone and in pairs.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

// @launch grid=4 block=128 in=f32:512 out=u32:512
extern "C" __global__ void half_arithmetic(const float* in, unsigned* out, unsigned n) {
    unsigned i = INDEX;
    __half a = __float2half(in[i]), b = __float2half_rz(in[(i + 1) % n]), c = __float2half_ru(in[(i + 2) % n]);
    __half d = __hadd(__hmul(a, b), c), e = __hfma(a, b, c), f = __hsub(a, __hneg(b));
    __half g = __hmax(__habs(d), e), h = __hmin_nan(f, __hfma_sat(a, b, c));
    out[i] = __half_as_ushort(g) | (unsigned)__half_as_ushort(h) << 16;
}

// @launch grid=4 block=128 in=f32:512 out=u32:512
extern "C" __global__ void half_pairs(const float* in, unsigned* out, unsigned n) {
    unsigned i = INDEX;
    __half2 a = __floats2half2_rn(in[i], in[(i + 1) % n]), b = __floats2half2_rn(in[(i + 2) % n], in[(i + 3) % n]);
    __half2 c = __hfma2(a, b, __hadd2(a, b));
    c = __hmul2(c, __hmax2(a, b));
    c = __hsub2(__lowhigh2highlow(c), __hmin2(a, b));
    if (__hbgt2(a, b)) c = __hneg2(c);
    out[i] = *(unsigned*)&c ^ __half_as_ushort(__hlt(__low2half(a), __high2half(b)) ? __low2half(a) : __high2half(a));
}

// @launch grid=4 block=128 in=f32:512 out=u32:512
extern "C" __global__ void bfloat_arithmetic(const float* in, unsigned* out, unsigned n) {
    unsigned i = INDEX;
    __nv_bfloat16 a = __float2bfloat16(in[i]), b = __float2bfloat16_rz(in[(i + 1) % n]), c = __float2bfloat16_rd(in[(i + 2) % n]);
    __nv_bfloat16 d = __hfma(a, b, c), e = __hadd(__hmul(a, b), c), f = __hmax(__hsub(a, b), __hneg(c));
    __nv_bfloat162 g = __halves2bfloat162(d, e);
    g = __hfma2(g, __halves2bfloat162(f, a), __float2bfloat162_rn(0.5f));
    out[i] = *(unsigned*)&g ^ __bfloat16_as_ushort(f);
}

// @launch grid=4 block=128 in=f32:512 out=u32:512
extern "C" __global__ void half_conversions(const float* in, unsigned* out, unsigned n) {
    unsigned i = INDEX;
    float a = in[i] * (float)(1 << (i % 15));
    __half h = __float2half(a);
    int whole = __half2int_rn(h) ^ __half2int_rz(h) ^ (int)__half2short_rd(h) ^ (int)__half2uint_ru(__habs(h));
    unsigned bits = __half_as_ushort(__int2half_rn((int)i * 37 - 5000)) ^ __half_as_ushort(__double2half((double)a / 3));
    bits ^= (unsigned)__bfloat16_as_ushort(__double2bfloat16((double)a / 7)) << 8;
    out[i] = whole ^ bits << 3 ^ __float_as_uint(__half2float(hfloor(h)) + __half2float(htrunc(h)) + __half2float(hrint(h)));
}

// @launch grid=4 block=128 in=f32:512 out=u32:16
extern "C" __global__ void half_atomics(const float* in, unsigned* out, unsigned n) {
    // Small whole numbers: their sum does not depend on the order.
    float v = (float)((int)(in[INDEX] * 2.0f) % 3);
    atomicAdd((__half2*)&out[0], __floats2half2_rn(v, -v));
    atomicAdd((__half*)&out[1], __float2half(v));
    atomicAdd((__nv_bfloat162*)&out[2], __floats2bfloat162_rn((float)(INDEX % 2), 0.0f));
}

// @launch grid=1 block=256 in=f32:256 out=f32:1
extern "C" __global__ void half_dot(const float* in, float* out, unsigned n) {
    __shared__ float part[8];
    __half2 v = __floats2half2_rn(in[threadIdx.x], 1.0f);
    for (int step = 16; step > 0; step /= 2) {
        unsigned bits = *(unsigned*)&v;
        bits = __shfl_xor_sync(0xffffffffu, bits, step);
        v = __hadd2(v, *(__half2*)&bits);
    }
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = __low2float(v) * __high2float(v);
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int k = 0; k < 8; ++k) sum += part[k];
        out[0] = sum;
    }
}
