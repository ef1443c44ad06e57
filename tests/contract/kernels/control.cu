// Divergent control flow, functions, local arrays, and threads that wait for each other.
#include <cooperative_groups.h>
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
typedef unsigned long long u64;

// @launch grid=4 block=128 in=u32:512 out=u32:512
extern "C" __global__ void collatz(const unsigned* in, unsigned* out, unsigned n) {
    unsigned value = in[INDEX] % 10000 + 1, steps = 0;
    while (value != 1) {
        value = value & 1 ? 3 * value + 1 : value / 2;
        ++steps;
    }
    out[INDEX] = steps;
}

// @launch grid=4 block=128 in=u32:512 out=u32:512
extern "C" __global__ void switches(const unsigned* in, unsigned* out, unsigned n) {
    unsigned v = in[INDEX], result = 0;
    for (int k = 0; k < 5; ++k) {
        switch (v % 11) {
            case 0: result += v; break;
            case 1: result ^= v >> 3; break;
            case 2: result = result * 31 + 7;  // and on
            case 3: result += 9; break;
            case 5: result -= v; break;
            case 7: result = ~result; break;
            case 8: result <<= 1; break;
            case 9: result = __brev(result); break;
            default: result += k;
        }
        v = v / 11 + result % 5;
    }
    out[INDEX] = result;
}

__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

// @launch grid=1 block=32 in=u32:32 out=u32:32
extern "C" __global__ void recursion(const unsigned* in, unsigned* out, unsigned n) {
    out[threadIdx.x] = ackermann(in[threadIdx.x] % 3, in[threadIdx.x] / 3 % 3);
}

__device__ __noinline__ unsigned fibonacci(unsigned n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

// @launch grid=1 block=64 in=u32:64 out=u32:64
extern "C" __global__ void divergent_recursion(const unsigned* in, unsigned* out, unsigned n) {
    out[threadIdx.x] = fibonacci(in[threadIdx.x] % 10);
}

__device__ __noinline__ unsigned twice(unsigned x) { return 2 * x; }
__device__ __noinline__ unsigned square(unsigned x) { return x * x; }
__device__ __noinline__ unsigned increment(unsigned x) { return x + 1; }
typedef unsigned (*Function)(unsigned);
__device__ Function functions[3] = {twice, square, increment};

// @launch grid=2 block=64 in=u32:128 out=u32:128
extern "C" __global__ void function_pointers(const unsigned* in, unsigned* out, unsigned n) {
    unsigned v = in[INDEX], result = v % 100;
    for (int k = 0; k < 4; ++k) {
        result = functions[v % 3](result);
        v /= 3;
    }
    out[INDEX] = result;
}

struct Shape {
    __device__ virtual unsigned area(unsigned x) const { return x; }
    __device__ virtual ~Shape() {}
};
struct Square : Shape {
    __device__ unsigned area(unsigned x) const override { return x * x; }
};
struct Triangle : Shape {
    unsigned height;
    __device__ explicit Triangle(unsigned h) : height(h) {}
    __device__ unsigned area(unsigned x) const override { return x * height / 2; }
};

// @launch grid=1 block=64 in=u32:64 out=u32:64
extern "C" __global__ void virtual_functions(const unsigned* in, unsigned* out, unsigned n) {
    Square square;
    Triangle triangle(in[threadIdx.x] % 9);
    Shape plain;
    const Shape* shapes[3] = {&square, &triangle, &plain};
    unsigned sum = 0;
    for (unsigned k = 0; k < 6; ++k) sum += shapes[(in[threadIdx.x] + k) % 3]->area(k + 3);
    out[threadIdx.x] = sum;
}

// @launch grid=2 block=64 in=u32:2048 out=u32:2048
extern "C" __global__ void local_arrays(const unsigned* in, unsigned* out, unsigned n) {
    unsigned keys[16];
    for (int k = 0; k < 16; ++k) keys[k] = in[16 * INDEX + k] % 997;
    for (int i = 1; i < 16; ++i) {
        unsigned key = keys[i];
        int j = i - 1;
        while (j >= 0 && keys[j] > key) {
            keys[j + 1] = keys[j];
            --j;
        }
        keys[j + 1] = key;
    }
    for (int k = 0; k < 16; ++k) out[16 * INDEX + k] = keys[k];
}

struct Big {
    unsigned values[12];
    u64 total;
};
__device__ __noinline__ Big combine(Big a, const Big& b, unsigned shift) {
    for (int k = 0; k < 12; ++k) {
        a.values[k] += b.values[(k + shift) % 12];
        a.total += a.values[k];
    }
    return a;
}

// @launch grid=1 block=64 in=u32:768 out=u32:64
extern "C" __global__ void big_arguments(const unsigned* in, unsigned* out, unsigned n) {
    Big a{}, b{};
    for (int k = 0; k < 12; ++k) {
        a.values[k] = in[12 * threadIdx.x + k];
        b.values[11 - k] = in[12 * threadIdx.x + k] >> 4;
    }
    Big c = combine(a, b, threadIdx.x % 5);
    out[threadIdx.x] = (unsigned)c.total ^ c.values[threadIdx.x % 12] ^ (unsigned)(c.total >> 32);
}

// @launch grid=4 block=64 in=u32:256 out=u32:256
extern "C" __global__ void early_exits(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ unsigned count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    unsigned v = in[INDEX];
    if (v % 5 == 0) return;
    atomicAdd(&count, 1);
    __syncthreads();
    out[INDEX] = count * 1000 + (__syncthreads_count(v & 1) << 20 >> 20);
}

// @launch grid=4 block=64 in=u32:256 out=u32:256
extern "C" __global__ void block_votes(const unsigned* in, unsigned* out, unsigned n) {
    unsigned v = in[INDEX];
    unsigned count = __syncthreads_count(v & 1);
    unsigned all = __syncthreads_and(v % 1000 < 999), any = __syncthreads_or(v % 64 == 3);
    out[INDEX] = count | all << 16 | any << 17;
}

// @launch grid=2 block=64 in=u32:128 out=u32:640
extern "C" __global__ void warp_votes(const unsigned* in, unsigned* out, unsigned n) {
    unsigned v = in[INDEX] % 4, i = INDEX;
    out[i] = __ballot_sync(0xffffffffu, v & 1);
    out[n + i] = __any_sync(0xffffffffu, v == 3) | __all_sync(0xffffffffu, v < 4) << 1;
    out[2 * n + i] = __match_any_sync(0xffffffffu, v);
    int same;
    out[3 * n + i] = __match_all_sync(0xffffffffu, v / 4, &same) ^ same;
    if (v & 1) out[4 * n + i] = __popc(__ballot_sync(__activemask(), 1)) ? 1 : 0;
}

// @launch grid=2 block=64 in=u32:128 out=u32:512
extern "C" __global__ void shuffles(const unsigned* in, unsigned* out, unsigned n) {
    unsigned v = in[INDEX], i = INDEX;
    out[i] = __shfl_sync(0xffffffffu, v, i * 5 + 3);
    out[n + i] = __shfl_sync(0xffffffffu, v, i, 8) ^ __shfl_up_sync(0xffffffffu, v, 3, 16);
    out[2 * n + i] = __shfl_down_sync(0xffffffffu, v, 5, 8) ^ __shfl_xor_sync(0xffffffffu, v, 9);
    out[3 * n + i] = (unsigned)__double2int_rz(__shfl_xor_sync(0xffffffffu, (double)(v % 1000) * 0.5, 1));
}

// @launch grid=4 block=64 in=u32:256 out=u32:260
extern "C" __global__ void spin_lock(const unsigned* in, unsigned* out, unsigned n) {
    int* lock = (int*)&out[n];
    volatile unsigned* count = &out[n + 1];
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *count = *count + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
    out[INDEX] = in[INDEX] + 1;
}

// @launch grid=1 block=64 in=u32:64 out=u32:64
extern "C" __global__ void lane_to_lane(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ volatile unsigned flag[64];
    unsigned t = threadIdx.x;
    flag[t] = 0;
    __syncthreads();
    // Each thread waits for the one after it, in its own warp too.
    if (t < 63)
        while (flag[t + 1] == 0) {
        }
    __threadfence_block();
    out[t] = in[t] ^ (t < 63 ? flag[t + 1] : 7);
    flag[t] = t + 1;
}

// @launch grid=8 block=64 in=u32:512 out=u32:520 cooperative=1
extern "C" __global__ void grid_barrier(const unsigned* in, unsigned* out, unsigned n) {
    auto grid = cooperative_groups::this_grid();
    unsigned v = in[INDEX] & 0xffff;
    for (unsigned step = 0; step < 3; ++step) {
        atomicAdd(&out[n + step], v + step);
        grid.sync();
        v ^= out[n + step] & 0xffff;
    }
    out[INDEX] = v;
}

// @launch grid=2 block=128 in=u32:256 out=u32:256
extern "C" __global__ void tiles_of_groups(const unsigned* in, unsigned* out, unsigned n) {
    auto block = cooperative_groups::this_thread_block();
    auto tile = cooperative_groups::tiled_partition<8>(block);
    unsigned v = in[INDEX] & 0xff;
    for (unsigned step = tile.size() / 2; step > 0; step /= 2) v += tile.shfl_down(v, step);
    v = tile.shfl(v, 0) + tile.thread_rank();
    if (v & 1) {
        auto active = cooperative_groups::coalesced_threads();
        v += active.size() ? 100 : 0;
    }
    block.sync();
    out[INDEX] = v + tile.any(v > 1000) + 2 * tile.meta_group_rank();
}

// @launch grid=1 block=96 in=u32:96 out=u32:96
extern "C" __global__ void named_barriers(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ unsigned box[64];
    unsigned t = threadIdx.x;
    if (t < 64) {
        box[t] = in[t];
        asm volatile("bar.arrive 1, 96;" ::: "memory");
        out[t] = in[t] * 2;
    } else {
        asm volatile("bar.sync 1, 96;" ::: "memory");
        out[t] = box[t - 64] + box[t - 32];
    }
}

// @launch grid=1 block=64 in=u32:64 out=u32:64
extern "C" __global__ void heap(const unsigned* in, unsigned* out, unsigned n) {
    unsigned count = in[threadIdx.x] % 7 + 1;
    unsigned* room = (unsigned*)malloc(count * sizeof(unsigned));
    unsigned sum = 0;
    for (unsigned k = 0; k < count; ++k) room[k] = in[threadIdx.x] + k;
    for (unsigned k = 0; k < count; ++k) sum += room[k] * (k + 1);
    free(room);
    out[threadIdx.x] = sum;
}

// @launch grid=4 block=64 in=u32:256 out=u32:256
extern "C" __global__ void gotos(const unsigned* in, unsigned* out, unsigned n) {
    unsigned v = in[INDEX], result = 0, k = 0;
again:
    if (k == 8) goto done;
    if (v & (1u << k)) goto odd;
    result += k;
    ++k;
    goto again;
odd:
    result = result * 3 + 1;
    for (unsigned inner = 0; inner < (v >> 28); ++inner) {
        if (inner == k) {
            ++k;
            goto again;
        }
        result ^= inner;
    }
    ++k;
    goto again;
done:
    out[INDEX] = result;
}
