// C++ that relies on order: default and prioritised streams, events, host functions, dependent launches, conditions.
#include <cuda_runtime.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checked.hpp"

constexpr int count = 1 << 16;
constexpr unsigned blocks = count / 256;
constexpr size_t bytes = count * sizeof(int);
int *a, *b, *c, *host;

__global__ void change(int* values, int factor, int more) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    values[i] = values[i] * factor + more;
}

__global__ void join(const int* left, const int* right, int* out) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = left[i] - right[i];
}

// May begin before the kernel ahead of it has ended, but waits for that before it reads.
__global__ void pass_on(const int* in, int* out) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
#endif
    out[i] = in[(i + 1) % count] + 1;
}

__global__ void again(int* left, cudaGraphConditionalHandle loop, cudaGraphConditionalHandle last) {
    --*left;
    cudaGraphSetConditional(loop, *left > 0);
    cudaGraphSetConditional(last, *left == 0);
}

std::pair<int, int> ends(const int* device, cudaStream_t stream) {
    CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    return {host[0], host[count - 1]};
}

void show(const char* what, std::pair<int, int> got, std::pair<int, int> expected) {
    std::printf("%s: %d %d, expected %d %d\n", what, got.first, got.second, expected.first, expected.second);
}

cudaEvent_t event() {
    cudaEvent_t made;
    CHECK(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
    return made;
}

cudaStream_t stream(unsigned flags, int priority = 0) {
    cudaStream_t made;
    CHECK(cudaStreamCreateWithPriority(&made, flags, priority));
    return made;
}

void priorities() {
    int least = 0, greatest = 0, low = 0, high = 0, beyond = 0;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    const cudaStream_t slow = stream(cudaStreamNonBlocking, least), fast = stream(cudaStreamDefault, greatest),
                       fastest = stream(cudaStreamNonBlocking, greatest - 10);
    unsigned flags = 0, others = 0;
    CHECK(cudaStreamGetPriority(slow, &low));
    CHECK(cudaStreamGetPriority(fast, &high));
    CHECK(cudaStreamGetPriority(fastest, &beyond));
    CHECK(cudaStreamGetFlags(slow, &flags));
    CHECK(cudaStreamGetFlags(fast, &others));
    std::printf("priorities %d to %d: %d %d %d, flags %u %u\n", least, greatest, low, high, beyond, flags, others);

    cudaStreamAttrValue value{}, copied{}, priority{};
    value.accessPolicyWindow.base_ptr = a;
    value.accessPolicyWindow.num_bytes = bytes;
    value.accessPolicyWindow.hitRatio = 0.5F;
    value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
    value.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
    CHECK(cudaStreamSetAttribute(slow, cudaStreamAttributeAccessPolicyWindow, &value));
    CHECK(cudaStreamCopyAttributes(fastest, slow));
    CHECK(cudaStreamGetAttribute(fastest, cudaStreamAttributeAccessPolicyWindow, &copied));
    CHECK(cudaStreamGetAttribute(fast, cudaStreamAttributePriority, &priority));
    std::printf("window %d %zu %d %d, priority %d\n", copied.accessPolicyWindow.base_ptr == a,
                copied.accessPolicyWindow.num_bytes, copied.accessPolicyWindow.hitProp,
                copied.accessPolicyWindow.missProp, priority.priority);

    // A diamond: one stream's work is two others' beginning, and theirs is the first's again.
    const cudaEvent_t top = event(), left = event(), right = event();
    CHECK(cudaMemsetAsync(c, 0, bytes, fast));
    for (int turn = 1; turn <= 30; ++turn) {
        change<<<blocks, 256, 0, fast>>>(c, 1, turn);
        CHECK(cudaEventRecord(top, fast));
        CHECK(cudaStreamWaitEvent(slow, top));
        CHECK(cudaStreamWaitEvent(fastest, top));
        CHECK(cudaMemcpyAsync(a, c, bytes, cudaMemcpyDeviceToDevice, slow));
        CHECK(cudaMemcpyAsync(b, c, bytes, cudaMemcpyDeviceToDevice, fastest));
        change<<<blocks, 256, 0, slow>>>(a, 3, turn);
        change<<<blocks, 256, 0, fastest>>>(b, 2, 0);
        CHECK(cudaEventRecord(left, slow));
        CHECK(cudaEventRecord(right, fastest));
        CHECK(cudaStreamWaitEvent(fast, left));
        CHECK(cudaStreamWaitEvent(fast, right));
        join<<<blocks, 256, 0, fast>>>(a, b, c);
    }
    show("diamonds", ends(c, fast), {30 * 31, 30 * 31});
    CHECK(cudaEventQuery(right));
    for (const cudaStream_t each : {slow, fast, fastest}) CHECK(cudaStreamDestroy(each));
    for (const cudaEvent_t each : {top, left, right}) CHECK(cudaEventDestroy(each));
}

// A host function holds up one stream; who waits for that, and who does not?
void defaults() {
    static std::atomic<bool> open{false};
    const cudaStream_t blocking = stream(cudaStreamDefault), independent = stream(cudaStreamNonBlocking);
    CHECK(cudaMemset(a, 0, bytes));
    CHECK(cudaMemset(b, 0, bytes));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaLaunchHostFunc(blocking, [](void*) { while (!open) std::this_thread::yield(); }, nullptr));
    change<<<blocks, 256, 0, blocking>>>(a, 1, 5);
    change<<<blocks, 256>>>(a, 10, 0);               // of the default stream: after the other's
    change<<<blocks, 256, 0, blocking>>>(a, 1, 1);   // and before what comes then
    change<<<blocks, 256, 0, independent>>>(b, 1, 3);
    CHECK(cudaGetLastError());
    show("independent", ends(b, independent), {3, 3});
    std::printf("%s", cudaGetErrorName(cudaStreamQuery(blocking)));
    std::printf(" %s\n", cudaGetErrorName(cudaStreamQuery(cudaStreamLegacy)));
    open = true;
    CHECK(cudaStreamSynchronize(blocking));
    std::printf("%s\n", cudaGetErrorName(cudaStreamQuery(cudaStreamLegacy)));
    show("default", ends(a, independent), {51, 51});
    CHECK(cudaStreamDestroy(independent));
    CHECK(cudaStreamDestroy(blocking));
}

std::string seen() { return std::to_string(host[0]) + " " + std::to_string(host[count - 1]); }

void called(cudaStream_t, cudaError_t status, void* story) {
    *static_cast<std::string*>(story) += seen() + " " + cudaGetErrorName(status) + " ";
}

// Functions of the host's see what is before them in their stream, and nothing behind it.
void functions() {
    std::string story;
    const cudaStream_t own = stream(cudaStreamNonBlocking);
    CHECK(cudaMemsetAsync(a, 0, bytes, own));
    for (int turn = 1; turn <= 5; ++turn) {
        change<<<blocks, 256, 0, own>>>(a, 1, turn);
        CHECK(cudaMemcpyAsync(host, a, bytes, cudaMemcpyDeviceToHost, own));
        if (turn % 2 != 0)
            CHECK(cudaLaunchHostFunc(own, [](void* all) { *static_cast<std::string*>(all) += seen() + " "; }, &story));
        else
            CHECK(cudaStreamAddCallback(own, called, &story, 0));
    }
    CHECK(cudaStreamSynchronize(own));
    std::printf("functions %d: %s\n", story == "1 1 3 3 cudaSuccess 6 6 10 10 cudaSuccess 15 15 ", story.c_str());
    CHECK(cudaStreamDestroy(own));
}

void launch_early(cudaStream_t on, int turns) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(256);
    config.stream = on;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    for (int turn = 0; turn < turns; ++turn)
        CHECK(cudaLaunchKernelEx(&config, pass_on, static_cast<const int*>(turn % 2 == 0 ? a : b),
                                 turn % 2 == 0 ? b : a));
}

void dependent() {
    const cudaStream_t own = stream(cudaStreamNonBlocking);
    for (int i = 0; i < count; ++i) host[i] = i;
    CHECK(cudaMemcpyAsync(a, host, bytes, cudaMemcpyHostToDevice, own));
    CHECK(cudaStreamSynchronize(own));
    launch_early(own, 100);
    show("dependent", ends(a, own), {200, 199});
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(own, cudaStreamCaptureModeGlobal));
    launch_early(own, 10);
    CHECK(cudaStreamEndCapture(own, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (int turn = 0; turn < 3; ++turn) CHECK(cudaGraphLaunch(executable, own));
    show("in a graph", ends(a, own), {260, 259});
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(own));
}

// c becomes (a + 2) - (b + 3) of two streams that fork from a third; `more` puts one more kernel behind it.
cudaGraph_t captured(const cudaStream_t* three, bool more) {
    const cudaEvent_t fork = event(), left = event(), right = event();
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(three[0], cudaStreamCaptureModeRelaxed));
    CHECK(cudaEventRecord(fork, three[0]));
    CHECK(cudaStreamWaitEvent(three[1], fork));
    CHECK(cudaStreamWaitEvent(three[2], fork));
    change<<<blocks, 256, 0, three[1]>>>(a, 1, 2);
    change<<<blocks, 256, 0, three[2]>>>(b, 1, 3);
    CHECK(cudaEventRecord(left, three[1]));
    CHECK(cudaEventRecord(right, three[2]));
    CHECK(cudaStreamWaitEvent(three[0], left));
    CHECK(cudaStreamWaitEvent(three[0], right));
    join<<<blocks, 256, 0, three[0]>>>(a, b, c);
    if (more) change<<<blocks, 256, 0, three[0]>>>(c, 2, 0);
    cudaStreamCaptureStatus status{};
    CHECK(cudaStreamIsCapturing(three[2], &status));
    CHECK(cudaStreamEndCapture(three[0], &graph));
    std::printf("capturing %d\n", status == cudaStreamCaptureStatusActive);
    for (const cudaEvent_t each : {fork, left, right}) CHECK(cudaEventDestroy(each));
    return graph;
}

void graphs() {
    const cudaStream_t three[] = {stream(cudaStreamNonBlocking), stream(cudaStreamNonBlocking),
                                  stream(cudaStreamDefault, -1)};
    CHECK(cudaMemset(a, 0, bytes));
    CHECK(cudaMemset(b, 0, bytes));
    CHECK(cudaDeviceSynchronize());
    const cudaGraph_t graph = captured(three, false), longer = captured(three, true);
    cudaGraphExec_t executable;
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, three[1]));
    show("captured", ends(c, three[1]), {-1, -1});
    // What a captured kernel was given is read, changed and put into the executable graph.
    std::vector<cudaGraphNode_t> nodes(8);
    size_t found = nodes.size();
    CHECK(cudaGraphGetNodes(graph, nodes.data(), &found));
    for (size_t i = 0; i < found; ++i) {
        cudaKernelNodeParams parameters{};
        CHECK(cudaGraphKernelNodeGetParams(nodes[i], &parameters));
        if (parameters.func != reinterpret_cast<void*>(&change)) continue;
        int added = *static_cast<int*>(parameters.kernelParams[2]) * 100;
        void* arguments[] = {parameters.kernelParams[0], parameters.kernelParams[1], &added};
        parameters.kernelParams = arguments;
        CHECK(cudaGraphExecKernelNodeSetParams(executable, nodes[i], &parameters));
    }
    CHECK(cudaGraphLaunch(executable, three[2]));
    show("parameters", ends(c, three[2]), {-101, -101});
    cudaGraphExecUpdateResultInfo result{};
    CHECK(cudaGraphExecUpdate(executable, graph, &result));
    CHECK(cudaGraphLaunch(executable, three[0]));
    show("updated", ends(c, three[0]), {-102, -102});
    const cudaError_t refused = cudaGraphExecUpdate(executable, longer, &result);
    std::printf("longer: %s, topology %d\n", cudaGetErrorName(refused),
                result.result == cudaGraphExecUpdateErrorTopologyChanged);
    (void)cudaGetLastError();
    CHECK(cudaGraphLaunch(executable, three[0]));
    show("as before", ends(c, three[0]), {-103, -103});
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(longer));
    for (const cudaStream_t each : three) CHECK(cudaStreamDestroy(each));
}

// while (--left > 0) ..., then something once if nothing is left.
void conditions() {
    const cudaStream_t own = stream(cudaStreamNonBlocking);
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaGraphConditionalHandle loop, last;
    cudaGraphNode_t turns, once;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphConditionalHandleCreate(&loop, graph, 1, cudaGraphCondAssignDefault));
    CHECK(cudaGraphConditionalHandleCreate(&last, graph, 0, cudaGraphCondAssignDefault));
    cudaGraphNodeParams parameters{};
    parameters.type = cudaGraphNodeTypeConditional;
    parameters.conditional.handle = loop;
    parameters.conditional.type = cudaGraphCondTypeWhile;
    parameters.conditional.size = 1;
    CHECK(cudaGraphAddNode(&turns, graph, nullptr, nullptr, 0, &parameters));
    cudaGraph_t body = parameters.conditional.phGraph_out[0];
    CHECK(cudaStreamBeginCaptureToGraph(own, body, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
    change<<<blocks, 256, 0, own>>>(a, 1, 2);
    again<<<1, 1, 0, own>>>(b, loop, last);
    CHECK(cudaStreamEndCapture(own, &body));
    parameters = {};
    parameters.type = cudaGraphNodeTypeConditional;
    parameters.conditional.handle = last;
    parameters.conditional.type = cudaGraphCondTypeIf;
    parameters.conditional.size = 1;
    CHECK(cudaGraphAddNode(&once, graph, &turns, nullptr, 1, &parameters));
    body = parameters.conditional.phGraph_out[0];
    CHECK(cudaStreamBeginCaptureToGraph(own, body, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
    change<<<blocks, 256, 0, own>>>(a, -1, 0);
    CHECK(cudaStreamEndCapture(own, &body));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (const int left : {1, 10, 0}) {  // 0: once all the same, and then it is -1
        CHECK(cudaMemsetAsync(a, 0, bytes, own));
        host[0] = left;
        CHECK(cudaMemcpyAsync(b, host, sizeof left, cudaMemcpyHostToDevice, own));
        CHECK(cudaGraphLaunch(executable, own));
        const int value = left == 0 ? 2 : -2 * left;
        show("conditions", ends(a, own), {value, value});
    }
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(own));
}

int main() {
    for (int** each : {&a, &b, &c}) CHECK(cudaMalloc(each, bytes));
    CHECK(cudaMallocHost(&host, bytes));
    priorities();
    defaults();
    functions();
    dependent();
    graphs();
    conditions();
    for (int* each : {a, b, c}) CHECK(cudaFree(each));
    CHECK(cudaFreeHost(host));
    std::puts("done");
}
