/* Many threads that make, use and destroy streams, events, modules, graphs, memory and links at once: as many
 * rounds as the argument says, or, for 0, until the device is lost, which must end every call that waits. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "increment.h"

enum { THREADS = 24, LEAST = 2 };
static CUcontext context;
static CUfunction shared_function;
static unsigned wanted, rounds[THREADS], wrong;
static int lost;

static void called(void* argument) { __atomic_add_fetch((unsigned*)argument, 1, __ATOMIC_RELAXED); }

/* One round; the first error ends it. */
static CUresult round_of(long index) {
    struct {
        CUstream stream[3];
        CUevent event[3];
        CUmodule module;
        CUfunction function;
        CUdeviceptr memory;
        unsigned* host;
        CUgraph graph;
        CUgraphExec executable;
        CUlinkState link;
        void* image;
        size_t bytes;
    } own;
    unsigned calls = 0;
    CUresult result;
#define DO(call) \
    if ((result = (call)) != CUDA_SUCCESS) return result
    for (int i = 0; i < 3; ++i) {
        DO(cuStreamCreate(&own.stream[i], i == 0 ? 0 : CU_STREAM_NON_BLOCKING));
        DO(cuEventCreate(&own.event[i], i == 0 ? 0 : CU_EVENT_DISABLE_TIMING));
    }
    DO(cuMemAlloc(&own.memory, 4096));
    DO(cuMemAllocHost((void**)&own.host, 4096));
    DO(cuLinkCreate(0, NULL, NULL, &own.link));
    DO(cuLinkAddData(own.link, CU_JIT_INPUT_PTX, (void*)ptx, strlen(ptx) + 1, "increment", 0, NULL, NULL));
    DO(cuLinkComplete(own.link, &own.image, &own.bytes));
    DO(cuModuleLoadData(&own.module, own.image));
    DO(cuLinkDestroy(own.link));
    DO(cuModuleGetFunction(&own.function, own.module, "increment"));
    DO(cuMemsetD32Async(own.memory, 0, 1024, own.stream[0]));
    void* parameters[] = {&own.memory};
    for (int i = 0; i < 9; ++i) {
        const CUstream stream = own.stream[i % 3], next = own.stream[(i + 1) % 3];
        DO(cuLaunchKernel(i % 2 ? own.function : shared_function, 1, 1, 1, 1, 1, 1, 0, stream, parameters,
                          NULL));
        DO(cuEventRecord(own.event[i % 3], stream));
        DO(cuStreamWaitEvent(next, own.event[i % 3], 0));
    }
    DO(cuLaunchHostFunc(own.stream[0], called, &calls));
    DO(cuStreamBeginCapture(own.stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    DO(cuLaunchKernel(own.function, 1, 1, 1, 1, 1, 1, 0, own.stream[0], parameters, NULL));
    DO(cuStreamEndCapture(own.stream[0], &own.graph));
    DO(cuGraphInstantiate(&own.executable, own.graph, 0));
    DO(cuGraphLaunch(own.executable, own.stream[0]));
    DO(cuMemcpyDtoHAsync(own.host, own.memory, 4, own.stream[0]));
    DO(cuStreamSynchronize(own.stream[0]));
    if (*own.host != 10 || calls != 1) __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
    DO(cuGraphExecDestroy(own.executable));
    DO(cuGraphDestroy(own.graph));
    for (int i = 0; i < 3; ++i) {
        DO(cuStreamDestroy(own.stream[i]));
        DO(cuEventDestroy(own.event[(i + index) % 3]));
    }
    DO(cuMemFree(own.memory));
    DO(cuMemFreeHost(own.host));
    return cuModuleUnload(own.module);
}

static void* work(void* argument) {
    const long index = (long)argument;
    CUresult result = cuCtxSetCurrent(context);
    while (result == CUDA_SUCCESS && (wanted == 0 || rounds[index] < wanted)) {
        result = round_of(index);
        if (result == CUDA_SUCCESS) __atomic_add_fetch(&rounds[index], 1, __ATOMIC_RELAXED);
    }
    if (result == CUDA_ERROR_LAUNCH_FAILED)
        __atomic_add_fetch(&lost, 1, __ATOMIC_RELAXED);
    else if (result != CUDA_SUCCESS)
        printf("%ld: %d\n", index, (int)result);
    return NULL;
}

int main(int count, char** words) {
    CUmodule module;
    wanted = count > 1 ? (unsigned)atoi(words[1]) : 0;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuModuleLoadData(&module, ptx) || cuModuleGetFunction(&shared_function, module, "increment"))
        return 1;
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; ++i) pthread_create(&threads[i], NULL, work, (void*)i);
    for (unsigned under_way = 0; wanted == 0 && under_way < THREADS;) {
        under_way = 0;
        for (int i = 0; i < THREADS; ++i) under_way += __atomic_load_n(&rounds[i], __ATOMIC_RELAXED) >= LEAST;
    }
    printf("under way\n");
    fflush(stdout);
    for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
    printf("%u wrong, %d lost\n", wrong, lost);
    return 0;
}
