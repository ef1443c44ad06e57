// Real kernels for the sharing benchmark: bound by arithmetic, by memory, and by the length of their blocks.
typedef unsigned long long u64;

constexpr unsigned tile = 64, depth = 16, each = 4;

// c = a * b for square matrices; a block of 256 threads makes a tile of 64 x 64.
extern "C" __global__ void multiply(float* c, const float* a, const float* b, u64 size) {
    __shared__ float left[depth][tile], right[depth][tile];
    const unsigned column = threadIdx.x % 16 * each, row = threadIdx.x / 16 * each;
    const u64 first_row = blockIdx.y * tile, first_column = blockIdx.x * tile;
    float sum[each][each] = {};
    for (u64 step = 0; step < size; step += depth) {
        for (unsigned i = threadIdx.x; i < tile * depth; i += blockDim.x) {
            left[i % depth][i / depth] = a[(first_row + i / depth) * size + step + i % depth];
            right[i / tile][i % tile] = b[(step + i / tile) * size + first_column + i % tile];
        }
        __syncthreads();
        for (unsigned k = 0; k < depth; ++k)
            for (unsigned i = 0; i < each; ++i)
                for (unsigned j = 0; j < each; ++j) sum[i][j] += left[k][row + i] * right[k][column + j];
        __syncthreads();
    }
    for (unsigned i = 0; i < each; ++i)
        for (unsigned j = 0; j < each; ++j)
            c[(first_row + row + i) * size + first_column + column + j] = sum[i][j];
}

extern "C" __global__ void scale(float* to, const float* from, u64 count) {
    const u64 stride = u64(gridDim.x) * blockDim.x;
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) to[i] = from[i] * 2.0f;
}

extern "C" __global__ void iterate(float* to, u64 rounds) {
    float value = float(threadIdx.x);
    for (u64 i = 0; i < rounds; ++i) value = value * 0.999f + 1.0f;
    to[(u64(blockIdx.x) * blockDim.x + threadIdx.x) % (1 << 18)] = value;
}
