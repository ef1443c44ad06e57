// More of what ordinary programs do: packed arithmetic, wide integers, special functions, recursion, attention.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuComplex.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

// Keeps the odd values in order: a place for a whole warp with one atomic, in turns.
// @launch grid=1 block=128 in=u32:1024 out=u32:1025
extern "C" __global__ void keep_in_order(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ unsigned counts[4], start;
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) start = 0;
    for (unsigned first = 0; first < n; first += blockDim.x) {
        unsigned value = in[first + threadIdx.x];
        unsigned votes = __ballot_sync(~0u, value & 1);
        if (lane == 0) counts[warp] = __popc(votes);
        __syncthreads();
        unsigned before = start;
        for (unsigned w = 0; w < warp; ++w) before += counts[w];
        if (value & 1) out[1 + before + __popc(votes & ((1u << lane) - 1))] = value;
        __syncthreads();
        if (threadIdx.x == 0) start += counts[0] + counts[1] + counts[2] + counts[3];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[0] = start;
}

// The same without an order: who is active adds for all.
// @launch grid=4 block=64 in=u32:256 out=u32:8
extern "C" __global__ void add_for_all(const unsigned* in, unsigned* out, unsigned n) {
    unsigned key = in[INDEX] % 8;
    if (in[INDEX] % 3 == 0) return;
    unsigned peers = __match_any_sync(__activemask(), key);
    if (__ffs(peers) - 1 == (int)(threadIdx.x % 32)) atomicAdd(&out[key], __popc(peers));
}

__device__ unsigned rotated(unsigned x, unsigned by) { return __funnelshift_r(x, x, by); }
__constant__ unsigned rounds_of_sha[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// SHA-256 of each 32 bytes.
// @launch grid=1 block=32 in=u32:256 out=u32:256
extern "C" __global__ void digests(const unsigned* in, unsigned* out, unsigned n) {
    unsigned w[64], h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}, v[8];
    for (int k = 0; k < 8; ++k) w[k] = __byte_perm(in[INDEX * 8 + k], 0, 0x0123);
    w[8] = 0x80000000u;
    for (int k = 9; k < 15; ++k) w[k] = 0;
    w[15] = 256;
    for (int k = 16; k < 64; ++k) {
        unsigned a = w[k - 15], b = w[k - 2];
        w[k] = w[k - 16] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) + w[k - 7] + (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
    }
    for (int k = 0; k < 8; ++k) v[k] = h[k];
    for (int k = 0; k < 64; ++k) {
        unsigned e = v[4], a = v[0];
        unsigned first = v[7] + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + (e & v[5] ^ ~e & v[6]) + rounds_of_sha[k] + w[k];
        unsigned second = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + (a & v[1] ^ a & v[2] ^ v[1] & v[2]);
        for (int j = 7; j > 0; --j) v[j] = v[j - 1];
        v[4] += first;
        v[0] = first + second;
    }
    for (int k = 0; k < 8; ++k) out[INDEX * 8 + k] = __byte_perm(h[k] + v[k], 0, 0x0123);
}

// Convolution of bytes by dp4a and dp2a.
// @launch grid=2 block=64 in=u32:192 out=u32:256
extern "C" __global__ void bytes_of_images(const unsigned* in, unsigned* out, unsigned n) {
    int sum = 0;
    unsigned positive = 0;
    for (int k = 0; k < 8; ++k) {
        unsigned pixels = in[(INDEX + k) % n], weights = in[n - 1 - k];
        sum = __dp4a((int)pixels, (int)weights, sum);
        positive = __dp4a(pixels, weights, positive);
        sum = __dp2a_lo((int)pixels, (int)weights, sum);
        positive = __dp2a_hi(pixels, weights, positive);
    }
    out[INDEX * 2] = sum;
    out[INDEX * 2 + 1] = positive;
}

// What works on the bytes and halves of a word.
// @launch grid=2 block=64 in=u32:256 out=u32:2048
extern "C" __global__ void packed_words(const unsigned* in, unsigned* out, unsigned n) {
    unsigned a = in[INDEX * 2], b = in[INDEX * 2 + 1], *to = out + INDEX * 16;
    to[0] = __vadd4(a, b);
    to[1] = __vsub2(a, b);
    to[2] = __vavgu4(a, b);
    to[3] = __vabsdiffu4(a, b);
    to[4] = __vmaxs4(a, b);
    to[5] = __vminu2(a, b);
    to[6] = __vaddus4(a, b);
    to[7] = __vsubss2(a, b);
    to[8] = __vcmpgtu4(a, b);
    to[9] = __vsadu4(a, b);
    to[10] = __byte_perm(a, b, a & 0x7777);
    to[11] = __brev(a) ^ __ffs(b) ^ __clz(a);
    to[12] = __vabs2(a);
    to[13] = __vneg4(b);
    to[14] = __sad((int)a, (int)b, 5u);
    to[15] = __mul24((int)a, (int)b) + __umulhi(a, b) + __hadd((int)a, (int)b);
}

__device__ unsigned long long power(unsigned long long base, unsigned long long exponent, unsigned long long modulus) {
    unsigned __int128 result = 1, factor = base % modulus;
    for (; exponent != 0; exponent >>= 1) {
        if (exponent & 1) result = result * factor % modulus;
        factor = factor * factor % modulus;
    }
    return (unsigned long long)result;
}

// @launch grid=1 block=64 in=u64:192 out=u64:512
extern "C" __global__ void wide_integers(const unsigned long long* in, unsigned long long* out, unsigned n) {
    unsigned long long a = in[INDEX * 3], b = in[INDEX * 3 + 1], c = in[INDEX * 3 + 2] | 1, *to = out + INDEX * 8;
    to[0] = power(a, b, c);
    to[1] = __umul64hi(a, b);
    to[2] = (unsigned long long)__mul64hi((long long)a, (long long)b);
    unsigned long long x = a, y = c;
    while (y != 0) {
        unsigned long long rest = x % y;
        x = y;
        y = rest;
    }
    to[3] = x;
    to[4] = (unsigned long long)((long long)a / ((long long)b >> 20 | 1));
    to[5] = __popcll(a) | (unsigned long long)__clzll(b) << 8 | (unsigned long long)__ffsll(c) << 16;
    to[6] = __brevll(a) ^ (b >> (c & 63)) ^ (a << (b & 63));
    to[7] = (unsigned long long)((long long)b % 1000003) + a / 10;
}

// @launch grid=2 block=64 in=f64:128 out=f64:2560 approx=1e-12 absolute=1e-12
extern "C" __global__ void special_functions(const double* in, double* out, unsigned n) {
    double x = in[INDEX], p = fabs(x) + 0.25, u = x / 4.1, *to = out + INDEX * 20;
    to[0] = erf(x);
    to[1] = erfc(x);
    to[2] = tgamma(p);
    to[3] = lgamma(p);
    to[4] = cbrt(x);
    to[5] = expm1(u);
    to[6] = log1p(p);
    to[7] = asinh(x);
    to[8] = acosh(p + 1);
    to[9] = atanh(u);
    to[10] = sinpi(x);
    to[11] = pow(p, x);
    to[12] = fmod(x, 0.7);
    to[13] = remainder(x, 0.7);
    to[14] = hypot(x, p);
    to[15] = atan2(x, u + 2);
    to[16] = exp10(u);
    to[17] = normcdf(u);
    to[18] = ldexp(x, (int)(p * 4)) + ilogb(p) + nextafter(x, 9.0) + rint(x) + round(x) + trunc(x) + logb(p);
    to[19] = j0(p) + j1(p) + cyl_bessel_i0(u) + erfinv(u) + erfcx(p) + rsqrt(p) + rcbrt(p) + norm3d(x, p, u);
}

// @launch grid=2 block=64 in=f32:128 out=f32:1536 approx=2e-5 absolute=2e-5
extern "C" __global__ void special_singles(const float* in, float* out, unsigned n) {
    float x = in[INDEX], p = fabsf(x) + 0.25f, u = x / 4.1f, *to = out + INDEX * 12;
    to[0] = erff(x);
    to[1] = tgammaf(p);
    to[2] = lgammaf(p);
    to[3] = cbrtf(x);
    to[4] = tanhf(x);
    to[5] = powf(p, x);
    to[6] = fmodf(x, 0.75f);
    to[7] = sinf(x * 100) + cosf(x * 100);
    to[8] = tanf(u);
    to[9] = logf(p) + log2f(p) + log10f(p) + log1pf(p);
    to[10] = atan2f(x, u + 2) + asinf(u) + acosf(u);
    int exponent, quotient;
    to[11] = frexpf(p, &exponent) + exponent + remquof(x, 0.75f, &quotient) + (quotient & 7) + fdimf(x, u) + sinhf(u);
}

__device__ int sorted_part(unsigned* values, int low, int high) {
    int depth = 0;
    if (low >= high) return 0;
    unsigned pivot = values[(low + high) / 2];
    int left = low, right = high;
    while (left <= right) {
        while (values[left] < pivot) ++left;
        while (values[right] > pivot) --right;
        if (left > right) break;
        unsigned kept = values[left];
        values[left++] = values[right];
        values[right--] = kept;
    }
    depth = max(sorted_part(values, low, right), sorted_part(values, left, high));
    return depth + 1;
}

// Recursion with a stack of its own in each thread, on shared memory that is cut up by hand.
// @launch grid=2 block=16 shared=5120 in=u32:1024 out=u32:1024
extern "C" __global__ void quick_sorts(const unsigned* in, unsigned* out, unsigned n) {
    extern __shared__ __align__(16) unsigned char room[];
    unsigned* values = (unsigned*)room;
    unsigned short* depths = (unsigned short*)(values + 16 * 64);
    double* check = (double*)(depths + 32);
    for (int k = 0; k < 32; ++k) values[threadIdx.x * 32 + k] = in[INDEX * 32 + k];
    depths[threadIdx.x] = (unsigned short)sorted_part(values + threadIdx.x * 32, 0, 31);
    check[threadIdx.x] = depths[threadIdx.x];
    __syncthreads();
    for (int k = 0; k < 32; ++k) out[INDEX * 32 + k] = values[threadIdx.x * 32 + k] + (check[threadIdx.x] > 31);
}

struct Node {
    unsigned key;
    Node *left, *right;
    __device__ explicit Node(unsigned k) : key(k), left(nullptr), right(nullptr) {}
    __device__ ~Node() {
        delete left;
        delete right;
    }
    __device__ void insert(unsigned k) {
        Node*& next = k < key ? left : right;
        if (next) next->insert(k);
        else next = new Node(k);
    }
    __device__ unsigned* walk(unsigned* to) const {
        if (left) to = left->walk(to);
        *to++ = key;
        return right ? right->walk(to) : to;
    }
};

// @launch grid=1 block=8 in=u32:256 out=u32:256
extern "C" __global__ void trees(const unsigned* in, unsigned* out, unsigned n) {
    const unsigned* mine = in + threadIdx.x * 32;
    Node* root = new Node(mine[0]);
    for (int k = 1; k < 32; ++k) root->insert(mine[k]);
    root->walk(out + threadIdx.x * 32);
    delete root;
}

// Rows of a symmetric matrix to its factor (Cholesky), then the solution of a system.
// @launch grid=1 block=32 in=f64:1056 out=f64:32 approx=1e-9 absolute=1e-9
extern "C" __global__ void cholesky(const double* in, double* out, unsigned n) {
    __shared__ double a[32][33], b[32];
    int i = threadIdx.x;
    for (int j = 0; j < 32; ++j) {
        double sum = i == j ? 1 : 0;
        for (int k = 0; k < 32; ++k) sum = fma(in[i * 32 + k], in[j * 32 + k], sum);
        a[i][j] = sum;
    }
    b[i] = in[1024 + i];
    __syncthreads();
    for (int k = 0; k < 32; ++k) {
        if (i == k) a[k][k] = sqrt(a[k][k]);
        __syncthreads();
        if (i > k) a[i][k] /= a[k][k];
        __syncthreads();
        for (int j = k + 1; j <= i; ++j) a[i][j] -= a[i][k] * a[j][k];
        __syncthreads();
    }
    for (int k = 0; k < 32; ++k) {
        if (i == k) b[k] /= a[k][k];
        __syncthreads();
        if (i > k) b[i] -= a[i][k] * b[k];
        __syncthreads();
    }
    for (int k = 31; k >= 0; --k) {
        if (i == k) b[k] /= a[k][k];
        __syncthreads();
        if (i < k) b[i] -= a[k][i] * b[k];
        __syncthreads();
    }
    out[i] = b[i];
}

// Softmax of rows of pairs of halves.
// @launch grid=4 block=32 in=f32:256 out=f32:256 approx=1e-2 absolute=1e-3
extern "C" __global__ void softmax_of_pairs(const float* in, float* out, unsigned n) {
    __half2 x = __floats2half2_rn(in[INDEX * 2], in[INDEX * 2 + 1]);
    __half2 top = x;
    for (int by = 16; by > 0; by /= 2) top = __hmax2(top, __shfl_xor_sync(~0u, top, by));
    top = __half2half2(__hmax(__low2half(top), __high2half(top)));
    __half2 e = h2exp(__hsub2(x, top)), sum = e;
    for (int by = 16; by > 0; by /= 2) sum = __hadd2(sum, __shfl_xor_sync(~0u, sum, by));
    __half2 both = __hadd2(sum, __lowhigh2highlow(sum));
    float2 share = __half22float2(__h2div(e, both));
    out[INDEX * 2] = share.x;
    out[INDEX * 2 + 1] = share.y;
}

// Attention of 16 queries over 64 keys, by tensor cores, eight keys at a time with a running maximum; keys and
// values come by cp.async.
// @launch grid=1 block=32 in=f32:2304 out=f32:256 approx=2e-2 absolute=2e-2
extern "C" __global__ void attention(const float* in, float* out, unsigned n) {
    __shared__ __align__(16) float stage[2][256];
    __shared__ __align__(16) __half keys[16][16], values[16][16];
    unsigned lane = threadIdx.x, row = lane / 4, pair = lane % 4 * 2;
    auto fetch = [&](unsigned step, unsigned buffer) {
        for (unsigned k = 0; k < 2; ++k) {
            unsigned to = (unsigned)__cvta_generic_to_shared(&stage[buffer][(lane * 2 + k) * 4]);
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + 256 + step * 256 + (lane * 2 + k) * 4) : "memory");
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    auto packed = [](float a, float b) {
        __half2 both = __floats2half2_rn(a, b);
        return *(unsigned*)&both;
    };
    unsigned q[4];
    for (int k = 0; k < 4; ++k) {
        const float* at = in + (row + k % 2 * 8) * 16 + pair + k / 2 * 8;
        q[k] = packed(at[0] * 0.25f, at[1] * 0.25f);
    }
    float most[2] = {-1e30f, -1e30f}, sums[2] = {0, 0}, o[2][4] = {};
    fetch(0, 0);
    for (unsigned step = 0; step < 8; ++step) {
        if (step < 7) fetch(step + 1, (step + 1) % 2);
        if (step < 7) asm volatile("cp.async.wait_group 1;" ::: "memory");
        else asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncwarp();
        for (unsigned e = lane; e < 128; e += 32) {
            keys[e / 16][e % 16] = __float2half(stage[step % 2][e]);
            values[e / 16][e % 16] = __float2half(stage[step % 2][128 + e]);
            values[8 + e / 16][e % 16] = __float2half(0);
        }
        __syncwarp();
        unsigned k0 = *(unsigned*)&keys[row][pair], k1 = *(unsigned*)&keys[row][pair + 8];
        float s[4] = {0, 0, 0, 0};
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]) : "r"(q[0]), "r"(q[1]), "r"(q[2]), "r"(q[3]), "r"(k0), "r"(k1));
        for (int half = 0; half < 2; ++half) {
            float top = fmaxf(s[half * 2], s[half * 2 + 1]);
            for (int by = 1; by < 4; by *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, by));
            float now = fmaxf(most[half], top), scale = __expf(most[half] - now), part = 0;
            for (int k = 0; k < 2; ++k) part += s[half * 2 + k] = __expf(s[half * 2 + k] - now);
            for (int by = 1; by < 4; by *= 2) part += __shfl_xor_sync(~0u, part, by);
            sums[half] = sums[half] * scale + part;
            most[half] = now;
            for (int block = 0; block < 2; ++block)
                for (int k = 0; k < 2; ++k) o[block][half * 2 + k] *= scale;
        }
        unsigned p0 = packed(s[0], s[1]), p1 = packed(s[2], s[3]);
        for (int block = 0; block < 2; ++block) {
            unsigned v, from = (unsigned)__cvta_generic_to_shared(&values[lane % 8][block * 8]);
            asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(v) : "r"(from));
            asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                         : "+f"(o[block][0]), "+f"(o[block][1]), "+f"(o[block][2]), "+f"(o[block][3]) : "r"(p0), "r"(p1), "r"(v));
        }
        __syncwarp();
    }
    for (int block = 0; block < 2; ++block)
        for (int k = 0; k < 4; ++k) out[(row + k / 2 * 8) * 16 + block * 8 + pair + k % 2] = o[block][k] / sums[k / 2];
}

// Components of a graph: each node takes the least number that it can reach.
// @launch grid=1 block=128 in=u32:192 out=u32:128
extern "C" __global__ void components(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ unsigned parent[128];
    auto root = [&](unsigned x) {
        while (((volatile unsigned*)parent)[x] != x) x = ((volatile unsigned*)parent)[x];
        return x;
    };
    parent[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x < 96) {
        unsigned a = in[threadIdx.x * 2] % 128, b = in[threadIdx.x * 2 + 1] % 128;
        for (;;) {
            a = root(a);
            b = root(b);
            if (a == b) break;
            if (a < b) { unsigned kept = a; a = b; b = kept; }
            if (atomicCAS(&parent[a], a, b) == a) break;
        }
    }
    __syncthreads();
    out[threadIdx.x] = root(threadIdx.x);
}

// Floats of eight bits, there and back; halves by their own functions.
// @launch grid=1 block=64 in=f32:64 out=f32:512 approx=5e-3 absolute=5e-3
extern "C" __global__ void small_floats(const float* in, float* out, unsigned n) {
    float x = in[INDEX], *to = out + INDEX * 8;
    to[0] = (float)__nv_fp8_e4m3(x);
    to[1] = (float)__nv_fp8_e5m2(x * 100);
    float4 four = (float4)__nv_fp8x4_e4m3(make_float4(x, -x, x * 2, x / 2));
    to[2] = four.x + four.y + four.z + four.w;
    __half h = __float2half(x), p = __habs(h);
    to[3] = __half2float(hsin(h)) + __half2float(hcos(h));
    to[4] = __half2float(hexp(h));
    to[5] = __half2float(hlog(__hadd(p, __float2half(1)))) + __half2float(hsqrt(p));
    to[6] = __bfloat162float(hexp2(__float2bfloat16(x)));
    to[7] = __half2float(__hfma_relu(h, h, __float2half(-1))) + __half2int_rn(h) + __half2float(htanh(h));
}

struct __align__(4) Mixed {
    unsigned char tag : 3, more : 5, spare;
    unsigned short middle;
    union { float number; unsigned bits; };
    signed char tail[4];
};

// Fields of bits, unions, copies of whole structures, a switch with a table, a table of functions.
// @launch grid=2 block=64 in=u32:384 out=u32:384
extern "C" __global__ void structures(const unsigned* in, unsigned* out, unsigned n) {
    Mixed record;
    memcpy(&record, in + INDEX * 3, sizeof record);
    unsigned (*const steps[4])(unsigned) = {[](unsigned x) { return x + 1; }, [](unsigned x) { return x * 3; },
                                            [](unsigned x) { return ~x; }, [](unsigned x) { return x >> 1; }};
    record.bits = steps[record.tag & 3](record.bits);
    switch (record.more) {
        case 0: record.middle += 1; break;
        case 1: record.middle *= 3; break;
        case 2: record.middle ^= 0xff; break;
        case 3: record.middle = 7; break;
        case 4: record.middle -= 9; break;
        case 5: record.middle <<= 2; break;
        case 6: record.middle = ~record.middle; break;
        case 7: record.middle >>= 1; break;
        default: record.middle |= record.more;
    }
    record.tail[record.tag & 3] = (signed char)(-record.tail[3 - (record.tag & 3)] >> 1);
    Mixed copies[4] = {record, record, record, record};
    copies[record.tag & 3].more ^= 1;
    memcpy(out + INDEX * 3, &copies[INDEX & 3], sizeof record);
}

// @launch grid=4 block=64 in=u32:256 out=u32:16
extern "C" __global__ void kinds_of_atomics(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ unsigned short narrow[2];
    __shared__ float greatest;
    unsigned value = in[INDEX];
    if (threadIdx.x == 0) narrow[0] = narrow[1] = 0, greatest = 0;
    __syncthreads();
    unsigned short old = narrow[1], seen;
    do seen = old, old = atomicCAS(&narrow[1], seen, (unsigned short)(seen + 3));
    while (old != seen);
    float number = (float)(value >> 8);
    for (int kept = __float_as_int(greatest); number > __int_as_float(kept);) {
        int now = atomicCAS((int*)&greatest, kept, __float_as_int(number));
        if (now == kept) break;
        kept = now;
    }
    atomicInc(out, 99);
    atomicDec(out + 1, 1000);
    atomicMin((int*)out + 2, (int)value);
    atomicMax((unsigned long long*)out + 2, (unsigned long long)value << 7);
    atomicAdd((double*)out + 3, (double)(value % 1000));
    atomicXor_system(out + 8, value);
    atomicAnd_block(out + 9, value);
    atomicOr(out + 10, value & 0xff00);
    atomicAdd((__half2*)(out + 11), __floats2half2_rn(value % 2, value % 3));
    atomicAdd((float*)out + 12, (float)(value % 8));
    int odd = __syncthreads_count(value & 1), any = __syncthreads_or(value == 0), all = __syncthreads_and(value != 1);
    if (threadIdx.x == 0) {
        atomicAdd(out + 13, odd + any * 1000 + all * 10000);
        atomicMax((int*)out + 14, __float_as_int(greatest));
        atomicAdd(out + 15, narrow[1] + narrow[0]);
    }
}

// @launch grid=1 block=64 in=f32:256 out=f32:256 approx=1e-4 absolute=1e-4
extern "C" __global__ void complex_numbers(const float* in, float* out, unsigned n) {
    cuFloatComplex a = make_cuFloatComplex(in[INDEX * 4], in[INDEX * 4 + 1]), b = make_cuFloatComplex(in[INDEX * 4 + 2], in[INDEX * 4 + 3]);
    cuFloatComplex product = cuCmulf(a, b), ratio = cuCdivf(a, b);
    out[INDEX * 4] = product.x + cuCabsf(a);
    out[INDEX * 4 + 1] = product.y;
    out[INDEX * 4 + 2] = ratio.x;
    out[INDEX * 4 + 3] = ratio.y;
}

// Tiles of several warps, which meet in the memory that the system keeps for them.
// @launch grid=2 block=128 in=u32:256 out=u32:256
extern "C" __global__ void wide_tiles(const unsigned* in, unsigned* out, unsigned n) {
    namespace cg = cooperative_groups;
    __shared__ cg::block_tile_memory<128> room;
    auto block = cg::this_thread_block(room);
    auto tile = cg::tiled_partition<64>(block);
    unsigned sum = cg::reduce(tile, in[INDEX], cg::plus<unsigned>());
    unsigned third = tile.shfl(in[INDEX], 35);
    out[INDEX] = (sum ^ third) + tile.any(in[INDEX] % 64 == 5) + __isConstant(rounds_of_sha + 63) * 2 + __isConstant(in) * 4;
}
