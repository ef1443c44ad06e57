/* What a thread with a small stack calls in each step: none of it may need much of one. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>

enum { STACK = 40 << 10, BYTES = 1 << 20 };
static CUcontext context;
static char host[BYTES];

static void* work(void* unused) {
    CUdeviceptr memory;
    CUstream stream;
    CUevent event;
    int result = cuCtxSetCurrent(context);
    result |= cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    result |= cuEventCreate(&event, CU_EVENT_DEFAULT);
    result |= cuMemAlloc(&memory, BYTES);
    result |= cuMemsetD8Async(memory, 7, BYTES, stream);
    result |= cuEventRecord(event, stream);
    result |= cuEventSynchronize(event);
    result |= cuMemcpyDtoHAsync(host, memory, BYTES, stream);
    result |= cuStreamSynchronize(stream);
    result |= cuCtxSynchronize();
    result |= cuMemFree(memory);
    result |= cuEventDestroy(event);
    result |= cuStreamDestroy(stream);
    printf("%d %d\n", result, host[BYTES - 1]);
    return unused;
}

int main(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0 || cuCtxSetCurrent(context) != 0) return 1;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    if (pthread_create(&thread, &attributes, work, NULL) != 0) return 2;
    return pthread_join(thread, NULL);
}
