/* A program that has every key for thread-specific data that there is keeps what it has there. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>

#include "check.h"

static pthread_key_t first;
static CUcontext context;

static void gone(void* value) { printf("%s gone\n", (char*)value); }

static void* work(void* memory) {
    pthread_setspecific(first, "its own");
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemsetD8Async((CUdeviceptr)memory, 7, 4, CU_STREAM_PER_THREAD));
    CHECK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    return NULL;
}

int main(void) {
    pthread_key_t another;
    pthread_t thread;
    CUdeviceptr memory;
    pthread_key_create(&first, gone);
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc(&memory, 4));
    while (pthread_key_create(&another, NULL) == 0) continue;
    pthread_create(&thread, NULL, work, (void*)memory);
    return pthread_join(thread, NULL);
}
