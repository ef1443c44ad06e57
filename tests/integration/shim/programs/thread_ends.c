/* Threads that end with work on their own default stream: some begin a capture there, some launch once more from
 * a destructor of thread-specific data. None of it is anybody else's affair. */
#include <pthread.h>

#include "check.h"

enum { STREAMS = 4096 }; /* more than there are numbers for under fikitd */
static CUcontext context;
static CUdeviceptr memory;
static pthread_key_t key;

/* Whether the driver still serves the thread is its own affair. */
static void late(void* argument) { cuMemsetD32Async(memory, 2, 1, (CUstream)argument); }

/* The key is made after that of any library's, whose destructor comes first. */
static void* ends(void* argument) {
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemsetD32Async(memory, 1, 1, CU_STREAM_PER_THREAD));
    if (argument != NULL) pthread_key_create(&key, late);
    pthread_setspecific(key, CU_STREAM_PER_THREAD);
    return NULL;
}

static void* captures(void* argument) {
    (void)argument;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemsetD32Async(memory, 3, 1, CU_STREAM_PER_THREAD));
    return NULL;
}

static void run(void* (*function)(void*), void* argument) {
    pthread_t thread;
    pthread_create(&thread, NULL, function, argument);
    pthread_join(thread, NULL);
}

int main(void) {
    CUdevice device;
    unsigned value = 0, captured = 0;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc(&memory, 4));
    run(ends, &memory);
    for (int i = 0; i < 3; ++i) run(ends, NULL);
    CHECK(cuMemsetD32(memory, 4, 1));
    CHECK(cuCtxSynchronize());
    run(captures, NULL);
    for (int i = 0; i < STREAMS; ++i) {
        CUstream stream;
        CUstreamCaptureStatus status;
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CHECK(cuStreamIsCapturing(stream, &status));
        captured += status != CU_STREAM_CAPTURE_STATUS_NONE;
        CHECK(cuStreamDestroy(stream));
    }
    CHECK(cuMemcpyDtoH(&value, memory, 4));
    printf("%u %u\n", value, captured);
    return 0;
}
