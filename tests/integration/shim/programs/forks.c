/* Children forked while threads launch, load, allocate and initialise: each finds CUDA not initialised,
 * whatever its parent's threads were doing, and ends, with and without handlers at exit; the parent notices
 * nothing. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "increment.h"

enum { THREADS = 5, CHILDREN = 120, PATIENCE_SECONDS = 20 };
static CUcontext context;
static int over;
static unsigned launched[THREADS], counted[THREADS];
static void nothing(void* argument) { (void)argument; }

static void* work(void* argument) {
    const long index = (long)argument;
    CUdeviceptr memory, scratch;
    CUmodule module;
    CUfunction function;
    CUstream stream;
    CUevent event;
    void* host;
    CHECK(cuInit(0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc(&memory, 4));
    CHECK(cuMemsetD32(memory, 0, 1));
    CHECK(cuStreamSynchronize(CU_STREAM_LEGACY)); /* the streams below do not wait for it */
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        CHECK(cuInit(0));
        CHECK(cuModuleLoadData(&module, ptx));
        CHECK(cuModuleGetFunction(&function, module, "increment"));
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        CHECK(cuMemAlloc(&scratch, 1 << 12));
        CHECK(cuMemAllocHost(&host, 1 << 12));
        void* parameters[] = {&memory};
        for (int i = 0; i < 8; ++i, ++launched[index])
            CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
        CHECK(cuLaunchHostFunc(stream, nothing, NULL));
        CHECK(cuEventRecord(event, stream));
        CHECK(cuStreamWaitEvent(CU_STREAM_PER_THREAD, event, 0));
        CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        CHECK(cuMemsetD8Async(scratch, 1, 1 << 12, stream));
        CUgraph graph;
        CHECK(cuStreamEndCapture(stream, &graph));
        CHECK(cuGraphDestroy(graph));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuMemFreeHost(host));
        CHECK(cuMemFree(scratch));
        CHECK(cuEventDestroy(event));
        CHECK(cuStreamDestroy(stream));
        CHECK(cuModuleUnload(module));
    }
    CHECK(cuMemcpyDtoH(&counted[index], memory, 4));
    return NULL;
}

static int child(int quick) {
    CUdevice device;
    CUdeviceptr memory;
    CUmodule module;
    CUcontext current;
    CUstream stream;
    void* address;
    int count, version, wrong = 0;
    alarm(PATIENCE_SECONDS);
    wrong += cuInit(0) != CUDA_ERROR_NOT_INITIALIZED;
    wrong += cuDeviceGet(&device, 0) != CUDA_ERROR_NOT_INITIALIZED;
    wrong += cuDeviceGetCount(&count) != CUDA_ERROR_NOT_INITIALIZED;
    wrong += cuDriverGetVersion(&version) != CUDA_SUCCESS;
    wrong += cuGetProcAddress("cuMemAlloc", &address, 12000, 0, NULL) != CUDA_SUCCESS;
    wrong += cuMemAlloc(&memory, 4) != CUDA_ERROR_NOT_INITIALIZED;
    wrong += cuModuleLoadData(&module, ptx) != CUDA_ERROR_NOT_INITIALIZED;
    wrong += cuStreamCreate(&stream, 0) != CUDA_ERROR_NOT_INITIALIZED;
    wrong += cuStreamSynchronize(NULL) != CUDA_ERROR_NOT_INITIALIZED;
    wrong += cuCtxGetCurrent(&current) != CUDA_ERROR_NOT_INITIALIZED;
    wrong += cuCtxSynchronize() != CUDA_ERROR_NOT_INITIALIZED;
    if (quick) _exit(wrong);
    exit(wrong);
}

int main(void) {
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; ++i) pthread_create(&threads[i], NULL, work, (void*)i);
    for (int i = 0; i < CHILDREN; ++i) {
        int status = 0;
        const pid_t forked = fork();
        if (forked == 0) return child(i % 2);
        waitpid(forked, &status, 0);
        if (status != 0) printf("child %d ended with %x\n", i, (unsigned)status);
    }
    over = 1;
    for (int i = 0; i < THREADS; ++i) {
        pthread_join(threads[i], NULL);
        if (launched[i] != counted[i]) printf("thread %d: %u of %u\n", i, counted[i], launched[i]);
    }
    return 0;
}
