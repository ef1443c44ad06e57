// Tiled products, transposes, stencils, sorts, softmax: shared memory, static and dynamic.
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

// @launch grid=4,4 block=16,16 in=f32:8192 out=f32:4096
extern "C" __global__ void tiled_product(const float* in, float* out, unsigned n) {
    __shared__ float a[16][16], b[16][17];
    const float* left = in;
    const float* right = in + 4096;
    unsigned row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (unsigned tile = 0; tile < 4; ++tile) {
        a[threadIdx.y][threadIdx.x] = left[row * 64 + tile * 16 + threadIdx.x];
        b[threadIdx.y][threadIdx.x] = right[(tile * 16 + threadIdx.y) * 64 + column];
        __syncthreads();
        for (unsigned k = 0; k < 16; ++k) sum += a[threadIdx.y][k] * b[k][threadIdx.x];
        __syncthreads();
    }
    out[row * 64 + column] = sum;
}

// @launch grid=2,2 block=32,8 in=u32:4096 out=u32:4096
extern "C" __global__ void transpose(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ unsigned tile[32][33];
    unsigned x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32;
    for (unsigned k = threadIdx.y; k < 32; k += 8) tile[k][threadIdx.x] = in[(y + k) * 64 + x];
    __syncthreads();
    unsigned tx = blockIdx.y * 32 + threadIdx.x, ty = blockIdx.x * 32;
    for (unsigned k = threadIdx.y; k < 32; k += 8) out[(ty + k) * 64 + tx] = tile[threadIdx.x][k];
}

// @launch grid=8 block=128 in=f32:1024 out=f32:1024 shared=544
extern "C" __global__ void stencil_1d(const float* in, float* out, unsigned n) {
    extern __shared__ float row[];
    int i = (int)INDEX, t = (int)threadIdx.x;
    row[t + 4] = in[i];
    if (t < 4) {
        row[t] = i >= 4 ? in[i - 4] : 0.0f;
        row[t + 132] = i + 128 < (int)n ? in[i + 128] : 0.0f;
    }
    __syncthreads();
    float sum = 0;
    for (int k = -4; k <= 4; ++k) sum += row[t + 4 + k] * (1.0f - 0.125f * k);
    out[i] = sum;
}

// @launch grid=4,4 block=16,16 in=f32:4096 out=f32:4096
extern "C" __global__ void stencil_2d(const float* in, float* out, unsigned n) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    auto at = [&](int r, int c) { return in[min(max(r, 0), 63) * 64 + min(max(c, 0), 63)]; };
    out[y * 64 + x] = 0.5f * at(y, x) + 0.125f * (at(y - 1, x) + at(y + 1, x) + at(y, x - 1) + at(y, x + 1));
}

// @launch grid=1 block=256 in=u32:512 out=u32:512 shared=2048
extern "C" __global__ void bitonic_sort(const unsigned* in, unsigned* out, unsigned n) {
    extern __shared__ unsigned keys[];
    unsigned t = threadIdx.x;
    keys[t] = in[t];
    keys[t + 256] = in[t + 256];
    for (unsigned size = 2; size <= 512; size *= 2) {
        for (unsigned stride = size / 2; stride > 0; stride /= 2) {
            __syncthreads();
            unsigned low = 2 * t - (t & (stride - 1)), high = low + stride;
            bool up = (low & size) == 0;
            unsigned a = keys[low], b = keys[high];
            if ((a > b) == up) {
                keys[low] = b;
                keys[high] = a;
            }
        }
    }
    __syncthreads();
    out[t] = keys[t];
    out[t + 256] = keys[t + 256];
}

// @launch grid=1 block=128 in=u32:128 out=u32:128
extern "C" __global__ void odd_even_sort(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ unsigned keys[128];
    unsigned t = threadIdx.x;
    keys[t] = in[t] % 1000;
    __syncthreads();
    for (unsigned pass = 0; pass < 128; ++pass) {
        if ((t & 1) == (pass & 1) && t + 1 < 128 && keys[t] > keys[t + 1]) {
            unsigned k = keys[t];
            keys[t] = keys[t + 1];
            keys[t + 1] = k;
        }
        __syncthreads();
    }
    out[t] = keys[t];
}

// @launch grid=1 block=256 in=u32:256 out=u32:256
extern "C" __global__ void radix_sort(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ unsigned keys[256], zeros[8];
    unsigned t = threadIdx.x, lane = t % 32, warp = t / 32;
    keys[t] = in[t];
    for (unsigned bit = 0; bit < 32; ++bit) {
        __syncthreads();
        unsigned key = keys[t];
        bool one = key >> bit & 1;
        unsigned clear = __ballot_sync(0xffffffffu, !one);
        if (lane == 0) zeros[warp] = __popc(clear);
        __syncthreads();
        unsigned total = 0, before = 0;
        for (unsigned w = 0; w < 8; ++w) {
            before += w < warp ? zeros[w] : 0;
            total += zeros[w];
        }
        unsigned below = __popc(clear & ((1u << lane) - 1));
        unsigned rank = before + below;
        unsigned place = one ? total + t - rank : rank;
        __syncthreads();
        keys[place] = key;
    }
    __syncthreads();
    out[t] = keys[t];
}

// @launch grid=16 block=64 in=f32:1024 out=f32:1024 approx=1e-5
extern "C" __global__ void softmax(const float* in, float* out, unsigned n) {
    __shared__ float part[2];
    float v = in[INDEX], top = v;
    for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = top;
    __syncthreads();
    top = fmaxf(part[0], part[1]);
    float e = expf(v - top), sum = e;
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    out[INDEX] = e / (part[0] + part[1]);
}

// @launch grid=16 block=64 in=f32:1024 out=f32:1024 approx=1e-5
extern "C" __global__ void layer_norm(const float* in, float* out, unsigned n) {
    __shared__ float sums[2], squares[2];
    float v = in[INDEX], sum = v, square = v * v;
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
        square += __shfl_xor_sync(0xffffffffu, square, step);
    }
    if (threadIdx.x % 32 == 0) {
        sums[threadIdx.x / 32] = sum;
        squares[threadIdx.x / 32] = square;
    }
    __syncthreads();
    float mean = (sums[0] + sums[1]) / 64, variance = (squares[0] + squares[1]) / 64 - mean * mean;
    out[INDEX] = (v - mean) * rsqrtf(variance + 1e-5f);
}

// @launch grid=2 block=8,8,4 in=f32:4096 out=f32:512
extern "C" __global__ void three_dimensions(const float* in, float* out, unsigned n) {
    unsigned z = blockIdx.x * blockDim.z + threadIdx.z;
    unsigned i = (z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[i] = in[8 * i] + in[(8 * i + 7 * z) % n];
}

// @launch grid=4 block=32 in=f32:4096 out=f32:128
extern "C" __global__ void matrix_vector(const float* in, float* out, unsigned n) {
    const float* row = in + (INDEX % 32) * 128;
    float sum = 0;
    for (unsigned k = 0; k < 128; k += 4) {
        float4 v = *(const float4*)(row + k);
        sum += v.x * in[k] + v.y * in[k + 1] + v.z * in[k + 2] + v.w * in[k + 3];
    }
    out[INDEX] = sum + blockIdx.x;
}
