/* Threads that launch on streams of their own and on the per-thread default stream, with copies, events and
 * allocations between them; modules that one thread unloads while others use their own. */
#include <pthread.h>
#include <string.h>

#include "check.h"

enum { THREADS = 12, ROUNDS = 60 };
static const char* ptx =
    ".version 7.8\n.target sm_80\n.address_size 64\n"
    ".global .u32 step = 1;\n"
    ".visible .entry increment(.param .u64 address)\n{\n.reg .b64 %rd<2>; .reg .b32 %r<4>;\n"
    "ld.param.u64 %rd1, [address];\nld.global.u32 %r1, [%rd1];\nld.global.u32 %r3, [step];\nadd.u32 %r2, "
    "%r1, %r3;\n"
    "st.global.u32 [%rd1], %r2;\nret;\n}\n";
static CUcontext context;
static CUfunction shared_function;
static unsigned totals[THREADS];
static void* work(void* argument) {
    const long index = (long)argument;
    CUdeviceptr memory, scratch;
    CUstream stream = NULL;
    CUevent event;
    CUmodule module;
    CUfunction function;
    unsigned* host;
    CHECK(cuCtxSetCurrent(context));
    if (index % 3 != 0) CHECK(cuStreamCreate(&stream, index % 3 == 1 ? CU_STREAM_NON_BLOCKING : 0));
    if (index % 3 == 0) stream = CU_STREAM_PER_THREAD;
    CHECK(cuMemAlloc(&memory, 4));
    CHECK(cuMemAllocHost((void**)&host, 4));
    CHECK(cuMemsetD32Async(memory, 0, 1, stream));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int round = 0; round < ROUNDS; ++round) {
        void* parameters[] = {&memory};
        CHECK(cuLaunchKernel(shared_function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
        if (round % 10 == 0) {
            CHECK(cuModuleLoadData(&module, ptx));
            CHECK(cuModuleGetFunction(&function, module, "increment"));
            CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
            CHECK(cuModuleUnload(module));
        }
        if (round % 7 == 0) {
            CHECK(cuMemAlloc(&scratch, 1 << 16));
            CHECK(cuMemsetD8Async(scratch, 1, 1 << 16, stream));
            CHECK(cuMemFree(scratch));
        }
        if (round % 5 == 0) {
            CHECK(cuEventRecord(event, stream));
            CHECK(cuStreamWaitEvent(stream, event, 0));
            CHECK(cuEventSynchronize(event));
        }
    }
    CHECK(cuMemcpyDtoHAsync(host, memory, 4, stream));
    CHECK(cuStreamSynchronize(stream));
    totals[index] = *host;
    CHECK(cuMemFreeHost(host));
    CHECK(cuMemFree(memory));
    CHECK(cuEventDestroy(event));
    if (index % 3 != 0) CHECK(cuStreamDestroy(stream));
    return NULL;
}
int main(void) {
    CUdevice device;
    CUmodule module;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&shared_function, module, "increment"));
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; ++i) pthread_create(&threads[i], NULL, work, (void*)i);
    for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; ++i) printf("%u ", totals[i]);
    printf("\n");
    return 0;
}
