// Sums, scans, histograms, minima: by shared memory, shuffles and atomics.
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

// @launch grid=4 block=256 in=f32:1024 out=f32:4
extern "C" __global__ void block_sum(const float* in, float* out, unsigned n) {
    __shared__ float part[256];
    unsigned t = threadIdx.x;
    part[t] = in[INDEX];
    __syncthreads();
    for (unsigned step = 128; step > 0; step /= 2) {
        if (t < step) part[t] += part[t + step];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = part[0];
}

// @launch grid=4 block=256 in=f32:1024 out=f32:32
extern "C" __global__ void warp_sum(const float* in, float* out, unsigned n) {
    float value = in[INDEX];
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    if (threadIdx.x % 32 == 0) out[INDEX / 32] = value;
}

// @launch grid=4 block=200 in=u32:800 out=u32:4
extern "C" __global__ void ragged_sum(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ unsigned parts[7];
    unsigned value = in[INDEX] & 0xffff;
    unsigned mask = __activemask();
    for (int step = 16; step > 0; step /= 2) {
        unsigned other = __shfl_down_sync(mask, value, step);
        if ((threadIdx.x & 31) + step < (threadIdx.x / 32 == 6 ? 8 : 32)) value += other;
    }
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned sum = 0;
        for (int k = 0; k < 7; ++k) sum += parts[k];
        out[blockIdx.x] = sum;
    }
}

// @launch grid=1 block=512 in=u32:512 out=u32:512
extern "C" __global__ void hillis_steele_scan(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ unsigned a[2][512];
    unsigned t = threadIdx.x, side = 0;
    a[0][t] = in[t];
    __syncthreads();
    for (unsigned step = 1; step < 512; step *= 2) {
        a[1 - side][t] = t >= step ? a[side][t] + a[side][t - step] : a[side][t];
        side = 1 - side;
        __syncthreads();
    }
    out[t] = a[side][t];
}

// @launch grid=1 block=256 in=u32:512 out=u32:512
extern "C" __global__ void blelloch_scan(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ unsigned a[512];
    unsigned t = threadIdx.x, offset = 1;
    a[2 * t] = in[2 * t];
    a[2 * t + 1] = in[2 * t + 1];
    for (unsigned d = 256; d > 0; d >>= 1) {
        __syncthreads();
        if (t < d) a[offset * (2 * t + 2) - 1] += a[offset * (2 * t + 1) - 1];
        offset *= 2;
    }
    if (t == 0) a[511] = 0;
    for (unsigned d = 1; d < 512; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (t < d) {
            unsigned low = offset * (2 * t + 1) - 1, high = offset * (2 * t + 2) - 1, value = a[low];
            a[low] = a[high];
            a[high] += value;
        }
    }
    __syncthreads();
    out[2 * t] = a[2 * t];
    out[2 * t + 1] = a[2 * t + 1];
}

// @launch grid=2 block=96 in=u32:192 out=u32:192
extern "C" __global__ void warp_scan(const unsigned* in, unsigned* out, unsigned n) {
    unsigned lane = threadIdx.x % 32, value = in[INDEX];
    for (int step = 1; step < 32; step *= 2) {
        unsigned below = __shfl_up_sync(0xffffffffu, value, step);
        if (lane >= step) value += below;
    }
    out[INDEX] = value;
}

// @launch grid=8 block=128 in=u32:1024 out=u32:256
extern "C" __global__ void histogram(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ unsigned bins[256];
    for (unsigned k = threadIdx.x; k < 256; k += blockDim.x) bins[k] = 0;
    __syncthreads();
    atomicAdd(&bins[in[INDEX] % 251], 1);
    __syncthreads();
    for (unsigned k = threadIdx.x; k < 256; k += blockDim.x)
        if (bins[k]) atomicAdd(&out[k], bins[k]);
}

// @launch grid=4 block=256 in=u32:1024 out=u32:16
extern "C" __global__ void atomics(const unsigned* in, unsigned* out, unsigned n) {
    unsigned v = in[INDEX];
    atomicAdd(&out[0], v);
    atomicMin((int*)&out[1], (int)v);
    atomicMax((int*)&out[2], (int)v);
    atomicMax(&out[3], v);
    atomicOr(&out[4], v & 0x0f0f0f0f);
    atomicXor(&out[5], v);
    atomicSub(&out[6], v >> 3);
    atomicInc(&out[7], 99);
    atomicDec(&out[8], 77);
    atomicAdd((unsigned long long*)&out[10], (unsigned long long)v << 8);
    atomicMax((unsigned long long*)&out[12], (unsigned long long)v << 3);
    atomicAnd(&out[14], v | 0xff);
}

// @launch grid=4 block=256 in=f32:1024 out=f32:16
extern "C" __global__ void float_atomics(const float* in, float* out, unsigned n) {
    // Whole numbers: their sum does not depend on the order.
    float v = rintf(in[INDEX] * 4.0f);
    atomicAdd(&out[0], v);
    atomicAdd((double*)&out[2], (double)v * 3.0);
    int* place = (int*)&out[4];
    int old = *place, assumed;
    do {
        assumed = old;
        old = atomicCAS(place, assumed, __float_as_int(fmaxf(v, __int_as_float(assumed))));
    } while (assumed != old);
}

// @launch grid=4 block=256 in=u32:1024 out=u32:8
extern "C" __global__ void argmin(const unsigned* in, unsigned* out, unsigned n) {
    unsigned long long best = (unsigned long long)in[INDEX] << 32 | INDEX;
    for (int step = 16; step > 0; step /= 2) {
        unsigned long long other = __shfl_down_sync(0xffffffffu, best, step);
        best = other < best ? other : best;
    }
    __shared__ unsigned long long least[8];
    if (threadIdx.x % 32 == 0) least[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int k = 1; k < 8; ++k) best = least[k] < best ? least[k] : best;
        out[2 * blockIdx.x] = (unsigned)best;
        out[2 * blockIdx.x + 1] = (unsigned)(best >> 32);
    }
}

// @launch grid=4 block=256 in=u32:1024 out=u32:128
extern "C" __global__ void warp_reduce_instructions(const unsigned* in, unsigned* out, unsigned n) {
    unsigned v = in[INDEX], w = INDEX / 32;
    unsigned sum = __reduce_add_sync(0xffffffffu, v), low = __reduce_min_sync(0xffffffffu, (int)v);
    unsigned bits = __reduce_xor_sync(0xffffffffu, v) ^ __reduce_or_sync(0xffffffffu, v & 3);
    if (threadIdx.x % 32 == 5) {
        out[4 * w] = sum;
        out[4 * w + 1] = low;
        out[4 * w + 2] = bits;
        out[4 * w + 3] = __reduce_max_sync(1u << 5, v);
    }
}

// Each block waits for the one before it: blocks must make progress together.
// @launch grid=32 block=64 in=u32:2048 out=u32:2144
extern "C" __global__ void look_back(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ unsigned before;
    volatile unsigned* flags = out + n;  // and the sums behind them
    volatile unsigned* sums = out + n + 32;
    unsigned v = in[INDEX] & 0xff, lane = threadIdx.x % 32;
    unsigned scan = v;
    for (int step = 1; step < 32; step *= 2) {
        unsigned below = __shfl_up_sync(0xffffffffu, scan, step);
        if (lane >= step) scan += below;
    }
    __shared__ unsigned first;
    if (threadIdx.x == 31) first = scan;
    __syncthreads();
    if (threadIdx.x >= 32) scan += first;
    if (threadIdx.x == 63) {
        unsigned sum = 0;
        if (blockIdx.x > 0) {
            while (flags[blockIdx.x - 1] == 0) {
            }
            __threadfence();
            sum = sums[blockIdx.x - 1];
        }
        before = sum;
        sums[blockIdx.x] = sum + scan;
        __threadfence();
        flags[blockIdx.x] = 1;
    }
    __syncthreads();
    out[INDEX] = before + scan;
}
