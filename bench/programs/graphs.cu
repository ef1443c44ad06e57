// C++ with CUDA graphs: captured over two streams, updated, built by hand, with fills, copies and host functions.
#include <cuda_runtime.h>

#include <cstdio>

#include "checked.hpp"

__global__ void add(int* values, int amount) { values[blockIdx.x * blockDim.x + threadIdx.x] += amount; }
__global__ void merge(const int* a, const int* b, int* out) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = a[i] * 1000 + b[i];
}

int main() {
    constexpr int count = 1024;
    constexpr size_t bytes = count * sizeof(int);
    int *a = nullptr, *b = nullptr, *out = nullptr, *host = nullptr;
    CHECK(cudaMalloc(&a, bytes));
    CHECK(cudaMalloc(&b, bytes));
    CHECK(cudaMalloc(&out, bytes));
    CHECK(cudaMallocHost(&host, bytes));
    cudaStream_t first, second;
    cudaEvent_t fork, join;
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CHECK(cudaMemsetAsync(a, 0, bytes, first));
    CHECK(cudaMemsetAsync(b, 0, bytes, first));

    cudaGraphExec_t executable = nullptr;
    for (int amount = 1; amount <= 3; ++amount) {
        cudaGraph_t graph;
        CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
        CHECK(cudaEventRecord(fork, first));
        CHECK(cudaStreamWaitEvent(second, fork));
        add<<<count / 128, 128, 0, first>>>(a, amount);
        add<<<count / 128, 128, 0, second>>>(b, amount + 1);
        CHECK(cudaEventRecord(join, second));
        CHECK(cudaStreamWaitEvent(first, join));
        merge<<<count / 128, 128, 0, first>>>(a, b, out);
        CHECK(cudaMemcpyAsync(host, out, bytes, cudaMemcpyDeviceToHost, first));
        CHECK(cudaStreamEndCapture(first, &graph));
        cudaGraphExecUpdateResultInfo information{};
        if (executable == nullptr)
            CHECK(cudaGraphInstantiate(&executable, graph, 0));
        else
            CHECK(cudaGraphExecUpdate(executable, graph, &information));
        size_t nodes = 0, edges = 0;
        CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
        CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
        CHECK(cudaGraphLaunch(executable, first));
        CHECK(cudaGraphLaunch(executable, first));
        CHECK(cudaStreamSynchronize(first));
        std::printf("%zu %zu %d %d\n", nodes, edges, host[0], host[count - 1]);
        CHECK(cudaGraphDestroy(graph));
    }
    CHECK(cudaGraphExecDestroy(executable));

    cudaGraph_t graph;
    cudaGraphNode_t fill, kernel, copy, call;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaMemsetParams fills{};
    fills.dst = a;
    fills.value = 7;
    fills.elementSize = 4;
    fills.width = count;
    fills.height = 1;
    CHECK(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &fills));
    int amount = 5;
    void* arguments[] = {&a, &amount};
    cudaKernelNodeParams launches{};
    launches.func = reinterpret_cast<void*>(&add);
    launches.gridDim = dim3(count / 128);
    launches.blockDim = dim3(128);
    launches.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&kernel, graph, &fill, 1, &launches));
    CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, &kernel, 1, host, a, bytes, cudaMemcpyDeviceToHost));
    int calls = 0;
    cudaHostNodeParams functions{};
    functions.fn = [](void* word) { ++*static_cast<int*>(word); };
    functions.userData = &calls;
    CHECK(cudaGraphAddHostNode(&call, graph, &copy, 1, &functions));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (amount = 5; amount <= 6; ++amount) {
        CHECK(cudaGraphExecKernelNodeSetParams(executable, kernel, &launches));
        CHECK(cudaGraphLaunch(executable, second));
        CHECK(cudaStreamSynchronize(second));
        std::printf("%d %d %d\n", host[0], host[count - 1], calls);
    }
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));

    // What a graph keeps alive is given back when the graph and all made from it are gone.
    static int destroyed = 0;
    cudaUserObject_t kept;
    CHECK(cudaUserObjectCreate(&kept, &destroyed, [](void* word) { __atomic_fetch_add(static_cast<int*>(word), 1, 0); },
                               1, cudaUserObjectNoDestructorSync));
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddEmptyNode(&kernel, graph, nullptr, 0));
    CHECK(cudaGraphRetainUserObject(graph, kept, 1, cudaGraphUserObjectMove));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphLaunch(executable, first));
    CHECK(cudaStreamSynchronize(first));
    std::printf("%d\n", destroyed);
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaDeviceSynchronize());
    while (__atomic_load_n(&destroyed, __ATOMIC_ACQUIRE) == 0) {
    }
    std::printf("%d\ndone\n", destroyed);
}
