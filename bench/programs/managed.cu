// C++ with managed memory: the host and kernels in turn, advice, prefetching, copies, atomics, a tree
#include <cuda_runtime.h>

#include <cstdio>
#include <new>
#include <numeric>
#include <vector>

#include "checked.hpp"

// Objects that both sides make, follow and change.
struct Managed {
    static void* operator new(std::size_t bytes) {
        void* place = nullptr;
        CHECK(cudaMallocManaged(&place, bytes));
        return place;
    }
    static void operator delete(void* place) { CHECK(cudaFree(place)); }
};

struct Node : Managed {
    int value = 0;
    Node* left = nullptr;
    Node* right = nullptr;
};

Node* tree(int first, int last) {
    if (first > last) return nullptr;
    const int middle = (first + last) / 2;
    Node* node = new Node();
    node->value = middle;
    node->left = tree(first, middle - 1);
    node->right = tree(middle + 1, last);
    return node;
}

void cut(Node* node) {
    if (node == nullptr) return;
    cut(node->left);
    cut(node->right);
    delete node;
}

__global__ void look_up(const Node* root, int* depths, int count) {
    const int wanted = blockIdx.x * blockDim.x + threadIdx.x;
    if (wanted >= count) return;
    int depth = 0;
    for (const Node* node = root; node != nullptr && node->value != wanted; ++depth)
        node = wanted < node->value ? node->left : node->right;
    depths[wanted] = depth;
}

__global__ void add(float* x, const float* y, int count) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) x[i] += y[i];
}

__global__ void gather(const float* x, int count, unsigned* bins, float* most) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        atomicAdd(&bins[static_cast<int>(x[i]) % 16], 1);
        atomicMax(reinterpret_cast<int*>(most), __float_as_int(x[i]));
    }
}

int main() {
    int device = 0, managed = 0, concurrent = 0;
    CHECK(cudaGetDevice(&device));
    CHECK(cudaDeviceGetAttribute(&managed, cudaDevAttrManagedMemory, device));
    CHECK(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, device));
    std::printf("%d %d\n", managed, concurrent);

    constexpr int count = 1 << 18;
    float *x = nullptr, *y = nullptr, *most = nullptr;
    unsigned* bins = nullptr;
    CHECK(cudaMallocManaged(&x, count * sizeof(float)));
    CHECK(cudaMallocManaged(&y, count * sizeof(float), cudaMemAttachHost));
    CHECK(cudaMallocManaged(&bins, 16 * sizeof(unsigned)));
    CHECK(cudaMallocManaged(&most, sizeof(float)));
    for (int i = 0; i < count; ++i) x[i] = static_cast<float>(i % 100), y[i] = 2;

    const cudaMemLocation here = {cudaMemLocationTypeDevice, {device}}, host = {cudaMemLocationTypeHost, {0}};
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamAttachMemAsync(stream, y, 0, cudaMemAttachGlobal));
    CHECK(cudaMemAdvise(y, count * sizeof(float), cudaMemAdviseSetReadMostly, here));
    CHECK(cudaMemPrefetchAsync(x, count * sizeof(float), here, 0, stream));
    for (int turn = 0; turn < 3; ++turn) {
        add<<<64, 256, 0, stream>>>(x, y, count);
        CHECK(cudaStreamSynchronize(stream));
        x[turn] += 1;
    }
    CHECK(cudaMemPrefetchAsync(x, count * sizeof(float), host, 0, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("%.1f %.1f\n", x[0], std::accumulate(x, x + count, 0.0));

    *most = 0;
    CHECK(cudaMemset(bins, 0, 16 * sizeof(unsigned)));
    gather<<<32, 256, 0, stream>>>(x, count, bins, most);
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < 16; ++i) std::printf("%u ", bins[i]);
    std::printf("%.1f\n", *most);

    std::vector<float> copy(count);
    float* plain = nullptr;
    CHECK(cudaMalloc(&plain, count * sizeof(float)));
    CHECK(cudaMemcpy(plain, x, count * sizeof(float), cudaMemcpyDefault));
    CHECK(cudaMemcpy(y, plain, count * sizeof(float), cudaMemcpyDefault));
    CHECK(cudaMemcpyAsync(copy.data(), y, count * sizeof(float), cudaMemcpyDefault, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("%.1f\n", std::accumulate(copy.begin(), copy.end(), 0.0));

    cudaPointerAttributes attributes = {};
    CHECK(cudaPointerGetAttributes(&attributes, x + 5));
    std::printf("%d %d %d %d\n", attributes.type == cudaMemoryTypeManaged, attributes.device,
                attributes.devicePointer == x + 5, attributes.hostPointer == x + 5);
    int last = 0, mostly = 0;
    CHECK(cudaMemRangeGetAttribute(&last, sizeof last, cudaMemRangeAttributeLastPrefetchLocation, x,
                                   count * sizeof(float)));
    CHECK(cudaMemRangeGetAttribute(&mostly, sizeof mostly, cudaMemRangeAttributeReadMostly, y, 4096));
    std::printf("%d %d\n", last, mostly);

    constexpr int nodes = 1000;
    Node* root = tree(0, nodes - 1);
    int* depths = nullptr;
    CHECK(cudaMallocManaged(&depths, nodes * sizeof(int)));
    look_up<<<(nodes + 255) / 256, 256>>>(root, depths, nodes);
    CHECK(cudaDeviceSynchronize());
    std::printf("%d %d\n", depths[0], std::accumulate(depths, depths + nodes, 0));
    cut(root);

    for (void* each : {static_cast<void*>(x), static_cast<void*>(y), static_cast<void*>(bins),
                       static_cast<void*>(most), static_cast<void*>(depths), static_cast<void*>(plain)})
        CHECK(cudaFree(each));
    CHECK(cudaStreamDestroy(stream));
    std::printf("%s\n", cudaGetErrorString(cudaMallocManaged(&x, 0)));
}
