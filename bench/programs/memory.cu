// C++ with memory of many kinds: own pools, registered and write-combined, copies of boxes, mappings that grow.
#include <cudaTypedefs.h>
#include <cuda_runtime.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "checked.hpp"

#define DRIVE(call) CHECK(static_cast<cudaError_t>(call))  // of the driver, whose numbers are the same

constexpr int count = 1 << 18;
constexpr size_t bytes = count * sizeof(int);
cudaStream_t first, second;

__global__ void number(int* values, int from) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    values[i] = from + i;
}

__global__ void twice(const int* in, int* out) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = 2 * in[i];
}

// How many are not `from`, `from + step`, ...
int wrong(const int* values, int from, int step, int how_many = count) {
    int found = 0;
    for (int i = 0; i < how_many; ++i) found += values[i] != from + i * step;
    return found;
}

void pools(int* host) {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t pool;
    CHECK(cudaMemPoolCreate(&pool, &properties));
    uint64_t threshold = 64 << 20, kept = 0, used = 0, most = 0, reserved = 0;
    int follow = 1, opportunistic = 0, internal = 0;
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolReuseFollowEventDependencies, &follow));
    std::printf("threshold %llu follow %d\n", static_cast<unsigned long long>(kept), follow);
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &opportunistic));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &opportunistic));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &internal));
    std::printf("threshold %d reuse %d %d\n", kept == threshold, opportunistic, internal);
    cudaMemAccessFlags access{};
    CHECK(cudaMemPoolGetAccess(&access, pool, &properties.location));
    std::printf("access %d\n", access);

    // Made on one stream, used and freed on another; then the pool's memory serves the first again.
    cudaEvent_t made, freed;
    CHECK(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&freed, cudaEventDisableTiming));
    for (int turn = 0; turn < 20; ++turn) {
        int *in = nullptr, *out = nullptr;
        CHECK(cudaMallocFromPoolAsync(&in, bytes, pool, first));
        CHECK(cudaMallocFromPoolAsync(&out, bytes, pool, first));
        number<<<count / 256, 256, 0, first>>>(in, turn);
        CHECK(cudaEventRecord(made, first));
        CHECK(cudaStreamWaitEvent(second, made));
        twice<<<count / 256, 256, 0, second>>>(in, out);
        CHECK(cudaFreeAsync(in, second));
        CHECK(cudaMemcpyAsync(host, out, bytes, cudaMemcpyDeviceToHost, second));
        CHECK(cudaFreeAsync(out, second));
        CHECK(cudaEventRecord(freed, second));
        CHECK(cudaStreamWaitEvent(first, freed));
    }
    CHECK(cudaStreamSynchronize(first));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &most));
    std::printf("wrong %d used %llu %d", wrong(host, 38, 2), static_cast<unsigned long long>(used), most >= 2 * bytes);
    CHECK(cudaMemPoolTrimTo(pool, 0));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    std::printf(" reserved %llu\n", static_cast<unsigned long long>(reserved));

    cudaMemPool_t usual, current;
    CHECK(cudaDeviceGetDefaultMemPool(&usual, 0));
    CHECK(cudaDeviceSetMemPool(0, pool));
    CHECK(cudaDeviceGetMemPool(&current, 0));
    int* own = nullptr;
    CHECK(cudaMallocAsync(&own, bytes, first));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    std::printf("current %d used %llu\n", current == pool, static_cast<unsigned long long>(used));
    CHECK(cudaStreamSynchronize(first));
    CHECK(cudaFree(own));  // which may be given to it, too
    CHECK(cudaDeviceSetMemPool(0, usual));
    CHECK(cudaMemPoolDestroy(pool));
    CHECK(cudaEventDestroy(made));
    CHECK(cudaEventDestroy(freed));
}

int kind(const void* pointer) {
    cudaPointerAttributes attributes{};
    CHECK(cudaPointerGetAttributes(&attributes, pointer));
    return attributes.type;
}

void hosts(int* device) {
    auto* const plain = static_cast<int*>(std::aligned_alloc(4096, bytes));
    for (int i = 0; i < count; ++i) plain[i] = i;
    std::printf("kinds %d", kind(plain));
    CHECK(cudaHostRegister(plain, bytes, cudaHostRegisterDefault));
    std::printf(" %d %d", kind(plain), kind(device + 7));
    CHECK(cudaMemcpyAsync(device, plain, bytes, cudaMemcpyHostToDevice, first));
    twice<<<count / 256, 256, 0, first>>>(device, device);
    CHECK(cudaMemcpyAsync(plain, device, bytes, cudaMemcpyDeviceToHost, first));
    CHECK(cudaStreamSynchronize(first));
    CHECK(cudaHostUnregister(plain));
    std::printf(" %d wrong %d\n", kind(plain), wrong(plain, 0, 2));
    // The same memory, now pageable, in order with the kernel all the same.
    CHECK(cudaMemcpyAsync(device, plain, bytes, cudaMemcpyHostToDevice, first));
    twice<<<count / 256, 256, 0, first>>>(device, device);
    CHECK(cudaMemcpyAsync(plain, device, bytes, cudaMemcpyDeviceToHost, first));
    CHECK(cudaStreamSynchronize(first));
    std::printf("wrong %d\n", wrong(plain, 0, 4));
    std::free(plain);

    // A file in memory that is registered is within the reach of kernels.
    const int file = memfd_create("memory", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, bytes) != 0) std::exit(2);
    void* const view = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (view == MAP_FAILED) std::exit(2);
    int *reached = nullptr, *mapped = nullptr, *combined = nullptr;
    CHECK(cudaHostRegister(view, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable));
    CHECK(cudaHostGetDevicePointer(&reached, view, 0));
    number<<<count / 256, 256, 0, first>>>(reached, 100);
    CHECK(cudaStreamSynchronize(first));
    std::printf("wrong %d\n", wrong(static_cast<int*>(view), 100, 1));
    CHECK(cudaHostUnregister(view));
    munmap(view, bytes);
    close(file);

    unsigned flags = 0;
    CHECK(cudaHostAlloc(&mapped, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
    CHECK(cudaHostAlloc(&combined, bytes, cudaHostAllocMapped | cudaHostAllocWriteCombined));
    CHECK(cudaHostGetFlags(&flags, combined));
    for (int i = 0; i < count; ++i) combined[i] = 3 + i;
    CHECK(cudaHostGetDevicePointer(&reached, combined, 0));
    twice<<<count / 256, 256, 0, first>>>(reached, mapped);
    CHECK(cudaStreamSynchronize(first));
    std::printf("wrong %d combined %d\n", wrong(mapped, 6, 2), (flags & cudaHostAllocWriteCombined) != 0);
    CHECK(cudaFreeHost(mapped));
    CHECK(cudaFreeHost(combined));
}

// Memory of both sides that stays with the host, and is said to be used by the device.
void advised() {
    int *values = nullptr, where = 7, users = 7, *range = nullptr;
    cudaMemLocation device{}, home{};
    device.type = cudaMemLocationTypeDevice;
    home.type = cudaMemLocationTypeHost;
    CHECK(cudaMallocManaged(&values, bytes));
    CHECK(cudaMallocManaged(&range, bytes));
    CHECK(cudaMemAdvise(values, bytes, cudaMemAdviseSetPreferredLocation, home));
    CHECK(cudaMemAdvise(values, bytes, cudaMemAdviseSetAccessedBy, device));
    CHECK(cudaMemRangeGetAttribute(&where, sizeof where, cudaMemRangeAttributePreferredLocation, values, bytes));
    CHECK(cudaMemRangeGetAttribute(&users, sizeof users, cudaMemRangeAttributeAccessedBy, values, bytes));
    CHECK(cudaMemPrefetchAsync(range, bytes, device, 0, first));
    number<<<count / 256, 256, 0, first>>>(values, 9);
    twice<<<count / 256, 256, 0, first>>>(values, range);
    CHECK(cudaMemPrefetchAsync(range, bytes, home, 0, first));
    CHECK(cudaStreamSynchronize(first));
    std::printf("at home %d used by %d wrong %d %d\n", where == cudaCpuDeviceId, users, wrong(values, 9, 1),
                wrong(range, 18, 2));
    CHECK(cudaFree(values));
    CHECK(cudaFree(range));
}

// Copies of boxes: 12 planes of 10 rows of 25 ints, on the host without gaps, on the device with them.
void boxes() {
    constexpr int wide = 25, high = 10, deep = 12;
    constexpr size_t line = wide * sizeof(int);
    std::vector<int> from(wide * high * deep), back(from.size());
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<int>(i);
    const int all = static_cast<int>(from.size());
    cudaPitchedPtr box{}, other{};
    CHECK(cudaMalloc3D(&box, make_cudaExtent(line, high, deep)));
    CHECK(cudaMalloc3D(&other, make_cudaExtent(line, high, deep)));
    std::printf("pitch %zu %zu\n", box.pitch, box.ysize);
    CHECK(cudaMemset3D(other, 0xff, make_cudaExtent(line, high, deep)));
    cudaMemcpy3DParms copy{};
    copy.srcPtr = make_cudaPitchedPtr(from.data(), line, wide, high);
    copy.dstPtr = box;
    copy.extent = make_cudaExtent(line, high, deep);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    CHECK(cudaDeviceSynchronize());  // the stream does not wait for the default one
    // From one box on the device to the other, a part of it, elsewhere.
    copy.srcPtr = box;
    copy.srcPos = make_cudaPos(5 * sizeof(int), 2, 3);
    copy.dstPtr = other;
    copy.dstPos = make_cudaPos(sizeof(int), 1, 0);
    copy.extent = make_cudaExtent(10 * sizeof(int), 6, 4);
    copy.kind = cudaMemcpyDeviceToDevice;
    CHECK(cudaMemcpy3DAsync(&copy, first));
    copy = {};
    copy.srcPtr = other;
    copy.dstPtr = make_cudaPitchedPtr(back.data(), line, wide, high);
    copy.extent = make_cudaExtent(line, high, deep);
    copy.kind = cudaMemcpyDefault;
    CHECK(cudaMemcpy3DAsync(&copy, first));
    CHECK(cudaStreamSynchronize(first));
    int differ = 0;
    for (int z = 0; z < deep; ++z)
        for (int y = 0; y < high; ++y)
            for (int x = 0; x < wide; ++x) {
                const bool within = x >= 1 && x < 11 && y >= 1 && y < 7 && z < 4;
                const int expected = within ? ((z + 3) * high + y + 1) * wide + x + 4 : -1;
                differ += back[static_cast<size_t>((z * high + y) * wide + x)] != expected;
            }
    std::printf("wrong %d\n", differ);

    char* rows = nullptr;
    size_t pitch = 0;
    CHECK(cudaMallocPitch(&rows, &pitch, line, high * deep));
    CHECK(cudaMemset2DAsync(rows, pitch, 1, line, high * deep, first));
    CHECK(cudaMemcpy2DAsync(rows, pitch, from.data(), line, line, high * deep, cudaMemcpyHostToDevice, first));
    CHECK(cudaMemcpy2DAsync(box.ptr, box.pitch, rows, pitch, line, high * deep, cudaMemcpyDeviceToDevice, first));
    CHECK(cudaMemset2DAsync(rows, pitch, 0, 2 * sizeof(int), high * deep, first));  // the first two columns
    CHECK(cudaStreamSynchronize(first));
    CHECK(cudaMemcpy2D(back.data(), line, box.ptr, box.pitch, line, high * deep, cudaMemcpyDeviceToHost));
    std::printf("wrong %d", wrong(back.data(), 0, 1, all));
    CHECK(cudaMemcpy2D(back.data(), line, rows, pitch, line, high * deep, cudaMemcpyDefault));
    std::printf(" row %d %d %d\n", back[wide], back[wide + 1], back[wide + 2]);
    std::vector<int> column(high * deep);
    CHECK(cudaMemcpy2D(column.data(), sizeof(int), from.data() + 4, line, sizeof(int), high * deep,
                       cudaMemcpyHostToHost));
    std::printf("wrong %d\n", wrong(column.data(), 4, wide, high * deep));
    CHECK(cudaFree(rows));
    CHECK(cudaFree(box.ptr));
    CHECK(cudaFree(other.ptr));
}

template <class Function>
Function entry(const char* name, unsigned version) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    CHECK(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result));
    if (result != cudaDriverEntryPointSuccess) std::exit(3);
    return reinterpret_cast<Function>(found);
}

// A vector that grows where it is: addresses first, memory as needed.
void mappings() {
    const auto granularity = entry<PFN_cuMemGetAllocationGranularity_v10020>("cuMemGetAllocationGranularity", 10020);
    const auto reserve = entry<PFN_cuMemAddressReserve_v10020>("cuMemAddressReserve", 10020);
    const auto create = entry<PFN_cuMemCreate_v10020>("cuMemCreate", 10020);
    const auto map = entry<PFN_cuMemMap_v10020>("cuMemMap", 10020);
    const auto let = entry<PFN_cuMemSetAccess_v10020>("cuMemSetAccess", 10020);
    const auto unmap = entry<PFN_cuMemUnmap_v10020>("cuMemUnmap", 10020);
    const auto release = entry<PFN_cuMemRelease_v10020>("cuMemRelease", 10020);
    const auto give_back = entry<PFN_cuMemAddressFree_v10020>("cuMemAddressFree", 10020);
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t chunk = 0;
    DRIVE(granularity(&chunk, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    const int each = static_cast<int>(chunk / sizeof(int));
    CUdeviceptr base = 0, elsewhere = 0;
    DRIVE(reserve(&base, 4 * chunk, 0, 0, 0));
    DRIVE(reserve(&elsewhere, chunk, 0, 0, 0));
    CUmemGenericAllocationHandle parts[4];
    std::vector<int> host(static_cast<size_t>(each) * 4);
    auto* const values = reinterpret_cast<int*>(base);
    std::printf("chunk %zu wrong", chunk);
    for (int part = 0; part < 4; ++part) {
        const CUdeviceptr place = base + static_cast<size_t>(part) * chunk;
        DRIVE(create(&parts[part], chunk, &properties, 0));
        DRIVE(map(place, chunk, 0, parts[part], 0));
        DRIVE(let(place, chunk, &access, 1));
        number<<<static_cast<unsigned>(each) / 256, 256>>>(values + part * each, part * each);
        CHECK(cudaMemcpy(host.data(), values, (static_cast<size_t>(part) + 1) * chunk, cudaMemcpyDeviceToHost));
        std::printf(" %d", wrong(host.data(), 0, 1, (part + 1) * each));
    }
    // What is in the memory moves with it.
    DRIVE(unmap(base + chunk, chunk));
    DRIVE(map(elsewhere, chunk, 0, parts[1], 0));
    DRIVE(let(elsewhere, chunk, &access, 1));
    CHECK(cudaMemcpy(host.data(), reinterpret_cast<void*>(elsewhere), chunk, cudaMemcpyDefault));
    std::printf(" moved %d kind %d\n", wrong(host.data(), each, 1, each), kind(values));
    DRIVE(unmap(elsewhere, chunk));
    DRIVE(unmap(base, chunk));
    DRIVE(unmap(base + 2 * chunk, 2 * chunk));
    for (const auto part : parts) DRIVE(release(part));
    DRIVE(give_back(base, 4 * chunk));
    DRIVE(give_back(elsewhere, chunk));
}

int main() {
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    int *device = nullptr, *host = nullptr;
    CHECK(cudaMalloc(&device, bytes));
    CHECK(cudaMallocHost(&host, bytes));
    pools(host);
    hosts(device);
    advised();
    boxes();
    mappings();
    CHECK(cudaFree(device));
    CHECK(cudaFreeHost(host));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    std::puts("done");
}
