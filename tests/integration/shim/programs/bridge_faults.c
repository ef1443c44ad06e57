/* Threads that copy and wait between two devices, and make and destroy what they use, until the second device
 * is lost; then the first is as good as before. A line says that all are under way. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 6, BYTES = 1 << 16, LARGE = 5 << 20, LEAST = 3 };
static const char* ptx =
    ".version 7.8\n.target sm_80\n.address_size 64\n"
    ".visible .entry increment(.param .u64 address)\n{\n.reg .b64 %rd<2>; .reg .b32 %r<3>;\n"
    "ld.param.u64 %rd1, [address];\nld.global.u32 %r1, [%rd1];\nadd.u32 %r2, %r1, 1;\n"
    "st.global.u32 [%rd1], %r2;\nret;\n}\n";
static CUcontext contexts[2];
static unsigned rounds[THREADS];
static int lost;

/* What was not made once the device is lost is no argument for anything. */
static void check(CUresult result, int line) {
    if (result == CUDA_SUCCESS || __atomic_load_n(&lost, __ATOMIC_RELAXED)) return;
    if (result != CUDA_ERROR_LAUNCH_FAILED) {
        printf("line %d: %d\n", line, (int)result);
        exit(1);
    }
    __atomic_store_n(&lost, 1, __ATOMIC_RELAXED);
}
#define DO(call) check(call, __LINE__)

struct Side {
    CUstream stream;
    CUevent event;
    CUdeviceptr memory;
};

static void open_side(struct Side* side, int device) {
    DO(cuCtxSetCurrent(contexts[device]));
    DO(cuStreamCreate(&side->stream, CU_STREAM_NON_BLOCKING));
    DO(cuEventCreate(&side->event, CU_EVENT_DISABLE_TIMING));
    DO(cuMemAlloc(&side->memory, LARGE));
    DO(cuMemsetD8Async(side->memory, (unsigned char)device, LARGE, side->stream));
}

static void close_side(struct Side* side, int device) {
    DO(cuCtxSetCurrent(contexts[device]));
    DO(cuStreamDestroy(side->stream));
    DO(cuEventDestroy(side->event));
    DO(cuMemFree(side->memory));
}

static void launch(int device, struct Side* side) {
    CUmodule module;
    CUfunction function;
    DO(cuCtxSetCurrent(contexts[device]));
    CUresult result = cuModuleLoadData(&module, ptx);
    if (result == CUDA_SUCCESS) result = cuModuleGetFunction(&function, module, "increment");
    void* parameters[] = {&side->memory};
    if (result == CUDA_SUCCESS)
        result = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, side->stream, parameters, NULL);
    if (result == CUDA_SUCCESS) result = cuModuleUnload(module);
    DO(result);
}

static void* work(void* argument) {
    const long index = (long)argument;
    unsigned char* const host = malloc(LARGE);
    while (!__atomic_load_n(&lost, __ATOMIC_RELAXED)) {
        struct Side sides[2] = {0};
        open_side(&sides[0], 0);
        if (!lost) open_side(&sides[1], 1);
        if (lost) break;
        const int from = (int)(index % 2), to = 1 - from;
        const size_t bytes = index % 3 == 0 ? LARGE : BYTES;
        launch(from, &sides[from]);
        DO(cuEventRecord(sides[from].event, sides[from].stream));
        DO(cuStreamWaitEvent(sides[to].stream, sides[from].event, 0));
        DO(cuMemcpyPeerAsync(sides[to].memory, contexts[to], sides[from].memory, contexts[from], bytes,
                             sides[to].stream));
        launch(to, &sides[to]);
        DO(cuCtxSetCurrent(contexts[from]));
        DO(cuMemsetD32(sides[from].memory, 7, 4));
        DO(cuCtxSetCurrent(contexts[to]));
        DO(cuMemcpyDtoHAsync(host, sides[from].memory, bytes, sides[to].stream));
        DO(cuMemcpyHtoDAsync(sides[from].memory, host, bytes, sides[to].stream));
        if (index % 2) DO(cuStreamSynchronize(sides[to].stream));
        close_side(&sides[0], 0);
        close_side(&sides[1], 1);
        __atomic_add_fetch(&rounds[index], 1, __ATOMIC_RELAXED);
    }
    DO(cuCtxSetCurrent(contexts[0]));
    cuCtxSynchronize();
    free(host);
    return NULL;
}

int main(void) {
    CUdeviceptr memory;
    unsigned value = 0, under_way = 0;
    DO(cuInit(0));
    for (int device = 1; device >= 0; --device) {
        DO(cuDevicePrimaryCtxRetain(&contexts[device], device));
        DO(cuCtxSetCurrent(contexts[device]));
    }
    DO(cuMemAlloc(&memory, 4));
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; ++i) pthread_create(&threads[i], NULL, work, (void*)i);
    while (under_way < THREADS) {
        under_way = 0;
        for (int i = 0; i < THREADS; ++i) under_way += __atomic_load_n(&rounds[i], __ATOMIC_RELAXED) >= LEAST;
    }
    printf("under way\n");
    fflush(stdout);
    for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
    cuCtxSynchronize(); /* it may tell of the lost device once more */
    int wrong = cuMemsetD32(memory, 42, 1);
    if (!wrong) wrong = cuMemcpyDtoH(&value, memory, 4);
    if (!wrong) wrong = cuCtxSynchronize();
    cuCtxSetCurrent(contexts[1]);
    printf("%d %u %d\n", wrong, value, cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED);
    return 0;
}
