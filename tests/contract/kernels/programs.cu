// What programs do with a GPU, as their authors write it.
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

// Each thread has a row of a sparse matrix.
// @launch grid=4 block=64 in=u32:2048 out=u32:256
extern "C" __global__ void sparse_rows(const unsigned* in, unsigned* out, unsigned n) {
    unsigned row = INDEX, first = row * 7 % 1024, sum = 0;
    for (unsigned k = 0; k < in[row] % 23; ++k) sum += in[first + k] * in[1024 + in[first + k] % 1024];
    out[row] = sum;
}

// Radix-2, in shared memory.
// @launch grid=2 block=128 in=f32:1024 out=f32:1024 approx=1e-4 absolute=1e-3
extern "C" __global__ void fourier(const float* in, float* out, unsigned n) {
    __shared__ float2 data[256];
    const float* mine = in + blockIdx.x * 512;
    for (unsigned k = threadIdx.x; k < 256; k += 128)
        data[__brev(k) >> 24] = make_float2(mine[2 * k], mine[2 * k + 1]);
    __syncthreads();
    for (unsigned size = 2; size <= 256; size *= 2) {
        unsigned half = size / 2, pair = threadIdx.x / half * size + threadIdx.x % half;
        float s, c;
        sincospif(-2.0f * (threadIdx.x % half) / size, &s, &c);
        float2 a = data[pair], b = data[pair + half];
        float2 t = make_float2(b.x * c - b.y * s, b.x * s + b.y * c);
        data[pair] = make_float2(a.x + t.x, a.y + t.y);
        data[pair + half] = make_float2(a.x - t.x, a.y - t.y);
        __syncthreads();
    }
    for (unsigned k = threadIdx.x; k < 256; k += 128) {
        out[blockIdx.x * 512 + 2 * k] = data[k].x;
        out[blockIdx.x * 512 + 2 * k + 1] = data[k].y;
    }
}

// @launch grid=2 block=64 in=f32:512 out=f32:384 approx=1e-3 absolute=1e-3
extern "C" __global__ void n_bodies(const float* in, float* out, unsigned n) {
    __shared__ float4 tile[64];
    const float4* bodies = (const float4*)in;
    float4 me = bodies[INDEX];
    float3 a = {0, 0, 0};
    for (unsigned first = 0; first < 128; first += 64) {
        tile[threadIdx.x] = bodies[first + threadIdx.x];
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < 64; ++k) {
            float x = tile[k].x - me.x, y = tile[k].y - me.y, z = tile[k].z - me.z;
            float inverse = rsqrtf(x * x + y * y + z * z + 0.1f);
            float s = tile[k].w * inverse * inverse * inverse;
            a.x += x * s;
            a.y += y * s;
            a.z += z * s;
        }
        __syncthreads();
    }
    out[INDEX * 3] = a.x;
    out[INDEX * 3 + 1] = a.y;
    out[INDEX * 3 + 2] = a.z;
}

__constant__ float sobel[2][9] = {{-1, 0, 1, -2, 0, 2, -1, 0, 1}, {-1, -2, -1, 0, 0, 0, 1, 2, 1}};
// A halo in shared memory, weights in constants.
// @launch grid=2,2 block=16,16 in=f32:1024 out=f32:1024 approx=1e-5
extern "C" __global__ void edges_of_image(const float* in, float* out, unsigned n) {
    __shared__ float tile[18][19];
    int x0 = blockIdx.x * 16 - 1, y0 = blockIdx.y * 16 - 1;
    for (int k = threadIdx.y * 16 + threadIdx.x; k < 18 * 18; k += 256) {
        int x = min(max(x0 + k % 18, 0), 31), y = min(max(y0 + k / 18, 0), 31);
        tile[k / 18][k % 18] = in[y * 32 + x];
    }
    __syncthreads();
    float g[2] = {0, 0};
    for (int k = 0; k < 9; ++k)
        for (int w = 0; w < 2; ++w) g[w] += sobel[w][k] * tile[threadIdx.y + k / 3][threadIdx.x + k % 3];
    out[(y0 + 1 + threadIdx.y) * 32 + x0 + 1 + threadIdx.x] = sqrtf(g[0] * g[0] + g[1] * g[1]);
}

// @launch grid=8,8 block=8,8 in=f64:1 out=u32:4096
extern "C" __global__ void mandelbrot(const double* in, unsigned* out, unsigned n) {
    unsigned px = blockIdx.x * 8 + threadIdx.x, py = blockIdx.y * 8 + threadIdx.y;
    double cx = px / 64.0 * 3 - 2, cy = py / 64.0 * 2 - 1, x = 0, y = 0;
    unsigned turns = 0;
    while (x * x + y * y < 4 && turns < 200) {
        double next = __dadd_rn(__dsub_rn(__dmul_rn(x, x), __dmul_rn(y, y)), cx);
        y = __dadd_rn(__dmul_rn(2 * x, y), cy);
        x = next;
        ++turns;
    }
    out[py * 64 + px] = turns;
}

// Without pivots, of a matrix whose diagonal is large.
// @launch grid=1 block=32,32 in=f64:1024 out=f64:1024 approx=1e-12 absolute=1e-11
extern "C" __global__ void lower_upper(const double* in, double* out, unsigned n) {
    __shared__ double m[32][33];
    unsigned i = threadIdx.y, j = threadIdx.x;
    m[i][j] = in[i * 32 + j] + (i == j ? 100 : 0);
    __syncthreads();
    for (unsigned k = 0; k < 31; ++k) {
        if (j == k && i > k) m[i][k] /= m[k][k];
        __syncthreads();
        if (i > k && j > k) m[i][j] -= m[i][k] * m[k][j];
        __syncthreads();
    }
    out[i * 32 + j] = m[i][j];
}

// One step, points of whole numbers: sums and counts by atomics.
// @launch grid=4 block=128 in=u32:1024 out=u32:24
extern "C" __global__ void k_means(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ unsigned sums[8][3];
    unsigned t = threadIdx.x;
    if (t < 24) ((unsigned*)sums)[t] = 0;
    __syncthreads();
    int x = in[2 * INDEX] % 1000, y = in[2 * INDEX + 1] % 1000, best = 0, least = 1 << 30;
    for (int c = 0; c < 8; ++c) {
        int dx = x - (c % 4 * 250 + 125), dy = y - (c / 4 * 500 + 250), d = dx * dx + dy * dy;
        if (d < least) least = d, best = c;
    }
    atomicAdd(&sums[best][0], x);
    atomicAdd(&sums[best][1], y);
    atomicAdd(&sums[best][2], 1u);
    __syncthreads();
    if (t < 24) atomicAdd(&out[t], ((unsigned*)sums)[t]);
}

// Where a pattern stands in a text.
// @launch grid=8 block=64 in=u32:128 out=u32:64
extern "C" __global__ void text_search(const unsigned* in, unsigned* out, unsigned n) {
    const unsigned char* text = (const unsigned char*)in;
    auto letter = [&](unsigned at) { return "abab"[text[at % 512] & 3]; };
    const char* pattern = "abba";
    if (INDEX > 508) return;
    bool same = true;
    for (int k = 0; pattern[k] && same; ++k) same = letter(INDEX + k) == pattern[k];
    if (same) atomicOr(&out[INDEX / 32], 1u << INDEX % 32), atomicAdd(&out[32], 1u);
}

// A hash table with open addresses: how often each key came.
// @launch grid=4 block=128 in=u32:512 out=u32:2048
extern "C" __global__ void hash_table(const unsigned* in, unsigned* out, unsigned n) {
    unsigned key = in[INDEX] % 300 + 1, slot = key * 2654435761u >> 22;
    for (;; slot = (slot + 1) % 1024) {
        unsigned found = atomicCAS(&out[slot], 0u, key);
        if (found == 0 || found == key) break;
    }
    atomicAdd(&out[1024 + key], 1u);
    // Which key lies where depends on the order; which places are taken does not.
    __threadfence();
    if (atomicAdd(&out[1024], 1u) == gridDim.x * blockDim.x - 1)
        for (unsigned k = 0; k < 1024; ++k) out[k] = out[k] != 0;
}

__device__ volatile unsigned queue_items[256];
__device__ unsigned queue_head, queue_tail;
// Half of the blocks make, the others take.
// @launch grid=8 block=32 in=u32:128 out=u32:128
extern "C" __global__ void message_queue(const unsigned* in, unsigned* out, unsigned n) {
    unsigned number = blockIdx.x / 2 * 32 + threadIdx.x;
    if (blockIdx.x % 2 == 0) {
        unsigned place = atomicAdd(&queue_tail, 1u);
        queue_items[place % 256] = number << 1 | 1;
        __threadfence();
        return;
    }
    unsigned place = atomicAdd(&queue_head, 1u), item;
    while (((item = queue_items[place % 256]) & 1) == 0) __nanosleep(20);
    queue_items[place % 256] = 0;
    out[item >> 1] = in[item >> 1] ^ 0x5a5a5a5a;
}

__device__ uint4 philox(uint4 c, uint2 k) {
    for (int round = 0; round < 10; ++round) {
        unsigned long long p = 0xD2511F53ull * c.x, q = 0xCD9E8D57ull * c.z;
        c = make_uint4((unsigned)(q >> 32) ^ c.y ^ k.x, (unsigned)q, (unsigned)(p >> 32) ^ c.w ^ k.y, (unsigned)p);
        k.x += 0x9E3779B9u;
        k.y += 0xBB67AE85u;
    }
    return c;
}
// @launch grid=4 block=64 in=u32:2 out=u32:1024
extern "C" __global__ void counter_random(const unsigned* in, unsigned* out, unsigned n) {
    ((uint4*)out)[INDEX] = philox(make_uint4(INDEX, 0, 1, 2), make_uint2(in[0], in[1]));
}

struct Shape {
    __device__ virtual ~Shape() {}
    __device__ virtual float area() const = 0;
};
struct Square : Shape {
    float side;
    __device__ Square(float s) : side(s) {}
    __device__ float area() const override { return side * side; }
};
struct Disc : Shape {
    float radius;
    __device__ Disc(float r) : radius(r) {}
    __device__ float area() const override { return 3.0f * radius * radius; }
};
// Objects on the heap of the device, and a list of them.
// @launch grid=1 block=64 in=f32:64 out=f32:64 approx=1e-6
extern "C" __global__ void objects(const float* in, float* out, unsigned n) {
    struct Node {
        Shape* shape;
        Node* next;
    }* list = nullptr;
    for (unsigned k = 0; k <= threadIdx.x % 5; ++k) {
        float size = in[(threadIdx.x + k) % 64];
        Shape* shape = k & 1 ? (Shape*)new Disc(size) : new Square(size);
        list = new Node{shape, list};
    }
    float sum = 0;
    while (list) {
        sum += list->shape->area();
        Node* next = list->next;
        delete list->shape;
        delete list;
        list = next;
    }
    out[threadIdx.x] = sum;
}

// @launch grid=2 block=64 in=u32:2048 out=u32:128
extern "C" __global__ void edit_distance(const unsigned* in, unsigned* out, unsigned n) {
    unsigned short row[17];
    const unsigned* mine = in + INDEX * 16;
    for (int k = 0; k <= 16; ++k) row[k] = k;
    for (int i = 1; i <= 16; ++i) {
        unsigned short corner = row[0];
        row[0] = i;
        for (int k = 1; k <= 16; ++k) {
            unsigned short above = row[k];
            unsigned cost = (mine[i - 1] & 3) != (mine[k - 1] >> 7 & 3);
            row[k] = min(min(row[k] + 1, row[k - 1] + 1), corner + cost);
            corner = above;
        }
    }
    out[INDEX] = row[16];
}

// Breadth first, one block, until nothing changes.
// @launch grid=1 block=256 in=u32:1024 out=u32:256
extern "C" __global__ void breadth_first(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ unsigned level[256];
    unsigned t = threadIdx.x;
    level[t] = t == 0 ? 0 : 999;
    __syncthreads();
    for (unsigned depth = 0;; ++depth) {
        bool changed = false;
        if (level[t] == depth)
            for (int k = 0; k < 4; ++k) {
                unsigned next = in[4 * t + k] % 256;
                if (atomicMin(&level[next], depth + 1) > depth + 1) changed = true;
            }
        if (!__syncthreads_or(changed)) break;
    }
    out[t] = level[t];
}

// The largest pieces first: merge sort of one block, whose turns differ.
// @launch grid=1 block=128 in=u32:128 out=u32:128
extern "C" __global__ void merge_sort(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ unsigned a[2][128];
    unsigned t = threadIdx.x;
    a[0][t] = in[t];
    __syncthreads();
    int from = 0;
    for (unsigned width = 1; width < 128; width *= 2, from ^= 1) {
        unsigned pair = t / (2 * width) * 2 * width, mine = a[from][t];
        bool left = t - pair < width;
        unsigned other = left ? pair + width : pair, low = 0, high = width;
        while (low < high) {
            unsigned middle = (low + high) / 2;
            bool before = left ? a[from][other + middle] < mine : a[from][other + middle] <= mine;
            if (before) low = middle + 1;
            else high = middle;
        }
        a[from ^ 1][pair + (t - pair) % width + low] = mine;
        __syncthreads();
    }
    out[t] = a[from][t];
}

// A prefix sum over the grid in one pass: each block waits for those before it.
// @launch grid=16 block=64 in=u32:1024 out=u32:1040
extern "C" __global__ void scan_in_one_pass(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ unsigned warps[2], before;
    unsigned t = threadIdx.x, lane = t % 32, v = in[INDEX] & 0xffff, sum = v;
    for (int d = 1; d < 32; d *= 2) {
        unsigned left = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += left;
    }
    if (lane == 31) warps[t / 32] = sum;
    __syncthreads();
    if (t == 63) {
        volatile unsigned* ready = out + 1024;
        unsigned all = sum + warps[0], base = 0;
        if (blockIdx.x > 0)
            while ((base = ready[blockIdx.x - 1]) == 0) {
            }
        base = blockIdx.x > 0 ? base - 1 : 0;
        __threadfence();
        ready[blockIdx.x] = base + all + 1;
        before = base;
    }
    __syncthreads();
    out[INDEX] = before + sum + (t >= 32 ? warps[0] : 0);
}

