/* While a stream waits for a function of the program's, what the function may wait for goes on: graphs that are
 * launched behind it are changed and destroyed, memory is freed in the order of another stream, and a thread that
 * unloads modules keeps no other one from a call. */
#include <pthread.h>
#include <sched.h>

#include "check.h"
#include "increment.h"

enum { ROUNDS = 40, FREES = 1100 };
static CUcontext context;
static int over;

static void wait_for(void* flag) {
    while (__atomic_load_n((int*)flag, __ATOMIC_ACQUIRE) == 0) sched_yield();
}

static void hold(CUstream stream, int* flag) {
    *flag = 0;
    CHECK(cuLaunchHostFunc(stream, wait_for, flag));
}

static void let_go(CUstream stream, int* flag) {
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    CHECK(cuStreamSynchronize(stream));
}

/* Both launches, and that of the graph as it was changed. */
static void change_graphs(CUstream held, CUstream other) {
    int flag;
    unsigned values[2];
    size_t count = 1;
    CUmodule module;
    CUfunction function;
    CUdeviceptr memory, next;
    CUgraph graph;
    CUgraphExec one, two;
    CUgraphNode node;
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&function, module, "increment"));
    CHECK(cuMemAlloc(&memory, 8));
    CHECK(cuMemsetD32(memory, 0, 2));
    void* parameters[] = {&memory};
    void* others[] = {&next};
    next = memory + 4;
    CHECK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, other, parameters, NULL));
    CHECK(cuStreamEndCapture(other, &graph));
    CHECK(cuGraphGetNodes(graph, &node, &count));
    CHECK(cuGraphInstantiate(&one, graph, 0));
    CHECK(cuGraphInstantiate(&two, graph, 0));
    hold(held, &flag);
    CHECK(cuGraphLaunch(one, held));
    CHECK(cuGraphLaunch(two, held));
    CHECK(cuGraphExecDestroy(one));
    CUDA_KERNEL_NODE_PARAMS changed = {.func = function,
                                       .gridDimX = 1,
                                       .gridDimY = 1,
                                       .gridDimZ = 1,
                                       .blockDimX = 1,
                                       .blockDimY = 1,
                                       .blockDimZ = 1,
                                       .kernelParams = others};
    CHECK(cuGraphExecKernelNodeSetParams(two, node, &changed));
    CHECK(cuGraphLaunch(two, held));
    CHECK(cuGraphExecDestroy(two));
    let_go(held, &flag);
    CHECK(cuMemcpyDtoH(values, memory, 8));
    printf("%u %u\n", values[0], values[1]);
    CHECK(cuGraphDestroy(graph));
    CHECK(cuModuleUnload(module));
}

/* More than the executor puts off. */
static void free_on_another_stream(CUstream held, CUstream other) {
    int flag;
    hold(held, &flag);
    for (int i = 0; i < FREES; ++i) {
        CUdeviceptr memory;
        CHECK(cuMemAllocAsync(&memory, 4096, other));
        CHECK(cuMemFreeAsync(memory, other));
    }
    CHECK(cuStreamSynchronize(other));
    let_go(held, &flag);
}

static void* load_and_unload(void* argument) {
    (void)argument;
    CHECK(cuCtxSetCurrent(context));
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        CUmodule module;
        CHECK(cuModuleLoadData(&module, ptx));
        CHECK(cuModuleUnload(module));
    }
    return NULL;
}

static void allocate_beside_unloading(CUstream held) {
    int flag;
    pthread_t thread;
    pthread_create(&thread, NULL, load_and_unload, NULL);
    for (int round = 0; round < ROUNDS; ++round) {
        CUdeviceptr memory;
        hold(held, &flag);
        sched_yield();
        CHECK(cuMemAlloc(&memory, 64));
        let_go(held, &flag);
        CHECK(cuMemFree(memory));
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
}

/* With an argument also what the driver may hang on: its unloading waits for the stream, and keeps other threads from
 * allocating. */
int main(int count, char** arguments) {
    (void)arguments;
    CUdevice device;
    CUstream held, other;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    change_graphs(held, other);
    free_on_another_stream(held, other);
    if (count > 1) allocate_beside_unloading(held);
    printf("went on\n");
    return 0;
}
