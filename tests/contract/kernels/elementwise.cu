// One thread an element: arithmetic of every kind, conversions, bytes and shorts, structures, constants.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned long long u64;

#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

// @launch grid=8 block=128 in=f32:1024 out=f32:1024
extern "C" __global__ void saxpy(const float* in, float* out, unsigned n) {
    unsigned i = INDEX;
    if (i < n) out[i] = 2.5f * in[i] + in[n - 1 - i];
}

// @launch grid=8 block=128 in=u32:1024 out=u32:1024
extern "C" __global__ void mixed_integers(const unsigned* in, unsigned* out, unsigned n) {
    unsigned i = INDEX;
    if (i >= n) return;
    unsigned a = in[i];
    int b = (int)in[(i * 7) % n];
    u64 wide = (u64)a * (unsigned)b;
    long long both = (long long)(int)a * b;
    unsigned shifted = (a << (b & 31)) ^ (a >> (a & 31)) ^ (unsigned)(b >> 3);
    out[i] = (unsigned)(wide >> 32) ^ (unsigned)both ^ shifted ^ __popc(a) ^ __clz(b) ^ __brev(a) ^ __ffs(b) ^
             __byte_perm(a, b, 0x5140) ^ __umulhi(a, b) ^ (unsigned)__mulhi((int)a, b);
}

// @launch grid=4 block=256 in=u32:1024 out=u32:1024
extern "C" __global__ void divisions(const unsigned* in, unsigned* out, unsigned n) {
    unsigned i = INDEX;
    if (i >= n) return;
    unsigned a = in[i], b = in[(i + 1) % n] >> (i % 29) | 1;
    int c = (int)a, d = (int)b | 1;
    u64 e = (u64)a << 20 | b, f = (u64)b * 3 + 1;
    long long g = (long long)e - (1ll << 50), h = (long long)f - (1ll << 20) | 1;
    out[i] = a / b ^ a % b ^ (unsigned)(c / d) ^ (unsigned)(c % d) ^ (unsigned)(e / f) ^ (unsigned)(e % f) ^
             (unsigned)(g / h) ^ (unsigned)(g % h) ^ a / 10 ^ (unsigned)(c % 1000);
}

// @launch grid=4 block=256 in=f64:1024 out=f64:1024
extern "C" __global__ void doubles(const double* in, double* out, unsigned n) {
    unsigned i = INDEX;
    if (i >= n) return;
    double a = in[i], b = in[(i + 13) % n];
    double c = a * b + 1.0 / (b * b + 0.5) - sqrt(fabs(a));
    out[i] = fmin(c, fma(a, a, b)) + floor(b) * 0.25 + rint(a) - trunc(c) + fmod((double)i, 7.0);
}

// @launch grid=4 block=256 in=f32:1024 out=f32:1024
extern "C" __global__ void exact_floats(const float* in, float* out, unsigned n) {
    unsigned i = INDEX;
    if (i >= n) return;
    float a = in[i], b = in[(i + 13) % n];
    float c = __fadd_rz(a, b) + __fmul_ru(a, b) - __fmaf_rd(a, b, a) + __frcp_rn(b + 10.0f) + __fsqrt_rn(fabsf(a));
    c += a / (b + 9.0f) + __fdiv_rd(a, fabsf(b) + 1.0f) + sqrtf(fabsf(b));
    out[i] = fmaxf(c, -1e6f) + floorf(a) + ceilf(b) + truncf(a * 3.0f) + rintf(b * 5.0f) + roundf(a) + copysignf(0.5f, b) +
             __saturatef(a) + fminf(a, b) + nearbyintf(a);
}

// @launch grid=4 block=256 in=f32:1024 out=u32:4096
extern "C" __global__ void conversions(const float* in, unsigned* out, unsigned n) {
    unsigned i = INDEX;
    if (i >= n) return;
    float a = in[i] * (float)(1 << (i % 31));
    out[i] = (unsigned)(int)a ^ (unsigned)fabsf(a) ^ __float2int_rd(a) ^ __float2uint_ru(fabsf(a));
    out[n + i] = (unsigned)(long long)a ^ (unsigned)((long long)(double)a >> 7) ^ (unsigned)__double2ull_rz(fabs((double)a));
    out[2 * n + i] = __float_as_uint((float)(int)i * a) ^ __float_as_uint(__int2float_rz(0x7fffffff - (int)i)) ^
                     __float_as_uint(__ull2float_ru(((u64)i << 33) + 12345 * i)) ^ __float_as_uint(__double2float_rd((double)a / 3.0));
    out[3 * n + i] = (unsigned)(u8)(int)a | (unsigned)(u16)(short)(int)a << 8 | (unsigned)(signed char)i << 24;
}

// @launch grid=4 block=256 in=u32:1024 out=u32:1024
extern "C" __global__ void bytes_and_shorts(const unsigned* in, unsigned* out, unsigned n) {
    unsigned i = INDEX;
    if (i >= n) return;
    const u8* bytes = (const u8*)in;
    const signed char* chars = (const signed char*)in;
    const short* shorts = (const short*)in;
    u8 b = bytes[4 * i + 1];
    b += bytes[4 * i + 2];
    short s = shorts[2 * i];
    s = (short)(s * shorts[2 * i + 1]);
    ((u16*)out)[2 * i] = (u16)s;
    ((u8*)out)[4 * i + 2] = b;
    ((signed char*)out)[4 * i + 3] = (signed char)(chars[4 * i] >> 2);
}

struct Particle {
    float x, y, z;
    int kind;
    double mass;
    short tag[3];
};

// @launch grid=2 block=128 in=f32:1024 out=f32:1024
extern "C" __global__ void structures(const float* in, float* out, unsigned n) {
    unsigned i = INDEX;
    if (4 * i + 3 >= n) return;
    Particle p{in[4 * i], in[4 * i + 1], in[4 * i + 2], (int)i, in[4 * i + 3] * 2.0, {(short)i, 2, 3}};
    for (int step = 0; step < 4; ++step) {
        p.x += p.y * 0.5f;
        p.y -= p.z * 0.25f;
        p.tag[step % 3] += (short)p.kind;
        p.mass *= 1.5;
    }
    float4 v = make_float4(p.x, p.y, (float)p.mass, (float)(p.tag[0] + p.tag[1] + p.tag[2]));
    ((float4*)out)[i] = v;
}

__constant__ float weights[8] = {0.5f, -1.0f, 2.0f, 0.25f, 3.0f, -0.125f, 1.5f, 7.0f};
__constant__ unsigned char order[8] = {3, 1, 4, 1, 5, 0, 2, 6};
__device__ int table[4] = {10, -20, 30, -40};
__device__ int* pointer_to_table = table + 1;

// @launch grid=4 block=256 in=f32:1024 out=f32:1024
extern "C" __global__ void constants(const float* in, float* out, unsigned n) {
    unsigned i = INDEX;
    if (i >= n) return;
    float sum = 0;
    for (int k = 0; k < 8; ++k) sum = fmaf(in[(i + k) % n], weights[order[(k + i) % 8]], sum);
    out[i] = sum + pointer_to_table[i % 3];
}

// @launch grid=2 block=128 in=u32:512 out=u32:512
extern "C" __global__ void vectors(const uint2* in, uint4* out, unsigned n) {
    unsigned i = INDEX;
    if (2 * i + 1 >= n / 2) return;
    uint2 a = in[2 * i], b = in[2 * i + 1];
    out[i] = make_uint4(a.x + b.y, a.y ^ b.x, a.x * b.x, min(a.y, b.y));
}

// @launch grid=4 block=256 in=u32:1024 out=u32:1024
extern "C" __global__ void wide_arithmetic(const unsigned* in, unsigned* out, unsigned n) {
    unsigned i = INDEX;
    if (i >= n) return;
    unsigned __int128 a = ((unsigned __int128)in[i] << 70) | in[(i + 1) % n];
    unsigned __int128 b = ((unsigned __int128)in[(i + 2) % n] << 33) | in[(i + 3) % n];
    unsigned __int128 c = a * b + (a >> 17) - (b << 5);
    u64 x = (u64)(c >> 64), y = (u64)c;
    out[i] = (unsigned)x ^ (unsigned)(x >> 32) ^ (unsigned)y ^ (unsigned)(y >> 32) ^ (unsigned)__umul64hi(x, y) ^ __funnelshift_l(in[i], (unsigned)x, i);
}

// @launch grid=4 block=256 in=u32:1024 out=u32:1024
extern "C" __global__ void packed_video(const unsigned* in, unsigned* out, unsigned n) {
    unsigned i = INDEX;
    if (i >= n) return;
    unsigned a = in[i], b = in[(i + 5) % n];
    out[i] = __vadd4(a, b) ^ __vsub2(a, b) ^ __vmaxs4(a, b) ^ __vminu2(a, b) ^ __vabsdiffu4(a, b) ^ __vcmpgts2(a, b) ^
             __dp4a((int)a, (int)b, 7) ^ __dp2a_lo((int)a, (int)b, 9) ^ __sad((int)a, (int)b, 3u) ^ __uhadd(a, b) ^ __vavgu4(a, b);
}
