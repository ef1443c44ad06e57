// What the language itself brings: atomics and fences by scope, words of several parts, wide integers, tiles of a warp.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <mma.h>
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
namespace cg = cooperative_groups;

// @launch grid=1 block=32 in=f64:64 out=f64:64
extern "C" __global__ void tile_of_doubles(const double* in, double* out, unsigned n) {
    using namespace nvcuda::wmma;
    __shared__ double a[32], b[32];
    a[threadIdx.x] = rint(in[threadIdx.x] * 8);
    b[threadIdx.x] = rint(in[threadIdx.x + 32] * 8);
    __syncwarp();
    fragment<matrix_a, 8, 8, 4, double, row_major> left;
    fragment<matrix_b, 8, 8, 4, double, col_major> right;
    fragment<accumulator, 8, 8, 4, double> sum;
    load_matrix_sync(left, a, 4);
    load_matrix_sync(right, b, 4);
    fill_fragment(sum, 3.0);
    mma_sync(sum, left, right, sum);
    store_matrix_sync(out, sum, 8, mem_col_major);
}

__device__ unsigned turn, total;

// One block after another: what each adds, the next has seen.
// @launch grid=4 block=64 in=u32:256 out=u32:8
extern "C" __global__ void scoped_atomics(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ unsigned sum, most;
    if (threadIdx.x == 0) sum = most = 0;
    __syncthreads();
    __nv_atomic_fetch_add(&sum, in[INDEX], __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_BLOCK);
    __nv_atomic_fetch_max(&most, in[INDEX], __NV_ATOMIC_ACQ_REL, __NV_THREAD_SCOPE_CLUSTER);
    __syncthreads();
    if (threadIdx.x != 0) return;
    while (__nv_atomic_load_n(&turn, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_DEVICE) != blockIdx.x) __nanosleep(100);
    __nv_atomic_thread_fence(__NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_DEVICE);
    total += sum;
    out[blockIdx.x] = total;
    unsigned before = 0;
    while (before < most && !__nv_atomic_compare_exchange_n(out + 4, &before, most, false, __NV_ATOMIC_SEQ_CST, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_SYSTEM)) continue;
    out[5] = __nv_atomic_exchange_n(out + 6, blockIdx.x + 1, __NV_ATOMIC_RELEASE, __NV_THREAD_SCOPE_DEVICE);
    __nv_atomic_thread_fence(__NV_ATOMIC_RELEASE, __NV_THREAD_SCOPE_DEVICE);
    bool last = blockIdx.x + 1 == gridDim.x;
    if (last) total = 0;
    __nv_atomic_store_n(&turn, last ? 0 : blockIdx.x + 1, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_DEVICE);
}

// @launch grid=2 block=64 in=u32:128 out=u32:768
extern "C" __global__ void labels(const unsigned* in, unsigned* out, unsigned n) {
    unsigned value = in[INDEX] % 1000, *to = out + INDEX * 6;
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    auto same = cg::labeled_partition(tile, value % 3);
    auto odd = cg::binary_partition(tile, value & 1);
    to[0] = cg::reduce(same, value, cg::plus<unsigned>());
    to[1] = cg::exclusive_scan(same, value, cg::plus<unsigned>());
    to[2] = cg::reduce(odd, value, cg::greater<unsigned>());
    to[3] = odd.size() * 100 + odd.thread_rank();
    to[4] = cg::inclusive_scan(tile, value, cg::bit_xor<unsigned>());
    to[5] = same.shfl(value, 0) + tile.meta_group_rank();
}

// @launch grid=1 block=128 in=u32:128 out=u32:4096
extern "C" __global__ void parts_of_words(const unsigned* in, unsigned* out, unsigned n) {
    unsigned a = in[INDEX], b = in[(INDEX + 7) % n], c = in[(INDEX + 13) % n], *to = out + INDEX * 32;
    *to++ = __vaddss2(a, b);
    *to++ = __vaddus2(a, b);
    *to++ = __vsubss4(a, b);
    *to++ = __vsubus4(a, b);
    *to++ = __vavgs2(a, b);
    *to++ = __vavgs4(a, b);
    *to++ = __vhaddu2(a, b);
    *to++ = __vcmpges2(a, b);
    *to++ = __vcmpleu4(a, b);
    *to++ = __vcmpne2(a, b & a);
    *to++ = __vseteq4(a, b);
    *to++ = __vsetltu2(a, b);
    *to++ = __vsads2(a, b);
    *to++ = __vsads4(a, b);
    *to++ = __vsadu2(a, b);
    *to++ = __vnegss4(a);
    *to++ = __vabsss2(a);
    *to++ = __vabsdiffs4(a, b);
    *to++ = __vmins4(a, b);
    *to++ = __vmaxu2(a, b);
    *to++ = __vimax3_s32(a, b, c);
    *to++ = __vimin3_u16x2(a, b, c);
    *to++ = __viaddmax_s16x2(a, b, c);
    *to++ = __viaddmax_s16x2_relu(a, b, c);
    *to++ = __vimax3_s16x2_relu(a, b, c);
    *to++ = __viaddmin_u32(a, b, c);
    bool high, low;
    *to++ = __vibmin_u16x2(a, b, &high, &low);
    *to++ = high + 2 * low;
    *to++ = __funnelshift_lc(a, b, c & 63);
    *to++ = __funnelshift_r(a, b, c);
    *to++ = __dp2a_hi(a, b, c);
    *to++ = __urhadd(a, b) ^ __rhadd((int)a, (int)b);
}

// @launch grid=1 block=64 in=u64:192 out=u64:640
extern "C" __global__ void wide_numbers(const unsigned long long* in, unsigned long long* out, unsigned n) {
    unsigned long long a = in[INDEX * 3], b = in[INDEX * 3 + 1], c = in[INDEX * 3 + 2], *to = out + INDEX * 10;
    __int128 wide = (__int128)((unsigned __int128)a << 64 | b);
    unsigned __int128 plain = wide;
    to[0] = __double_as_longlong((double)wide);
    to[1] = __double_as_longlong((double)plain);
    to[2] = __float_as_uint((float)wide) | (unsigned long long)__float_as_uint((float)plain) << 32;
    to[3] = (unsigned long long)(__int128)((double)(long long)a * 1048576.0);
    to[4] = (unsigned long long)(wide >> (c & 127)) ^ (unsigned long long)(plain >> (c >> 7 & 127));
    to[5] = (unsigned long long)(wide / (long long)(c | 1));
    to[6] = (unsigned long long)(wide % (long long)(c | 1));
    to[7] = (unsigned long long)(plain * c >> 64);
    struct { unsigned long long first : 13; long long second : 29; unsigned third : 22; } fields;
    memcpy(&fields, &a, sizeof fields);
    fields.second = fields.second * 3 - (long long)fields.first;
    fields.third ^= (unsigned)c;
    memcpy(to + 8, &fields, sizeof fields);
    to[9] = (wide < (__int128)c) + 2 * (plain < c) + 4 * (wide == (__int128)b);
}
