/* What a thread with a small stack calls in each step, and to load, link and renew code: none of it may need much of one. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "increment.h"

enum { STACK = 32 << 10, BYTES = 1 << 20 };
static CUcontext context;
static char host[BYTES];

static int load(void) {
    CUmodule module;
    CUfunction function;
    CUlinkState link;
    void* image;
    size_t bytes;
    int result = cuModuleLoadData(&module, ptx);
    result |= cuModuleGetFunction(&function, module, "increment");
    result |= cuModuleUnload(module);
    result |= cuLinkCreate(0, NULL, NULL, &link);
    result |= cuLinkAddData(link, CU_JIT_INPUT_PTX, (void*)ptx, strlen(ptx) + 1, "increment", 0, NULL, NULL);
    result |= cuLinkComplete(link, &image, &bytes);
    return result | cuLinkDestroy(link);
}

static void* work(void* unused) {
    CUdeviceptr memory;
    CUstream stream;
    CUevent event;
    int result = cuDevicePrimaryCtxRetain(&context, 0); /* brings the library to the device again */
    result |= cuCtxSetCurrent(context);
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
    result |= load();
    printf("%d %d\n", result, host[BYTES - 1]);
    return unused;
}

int main(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    CUlibrary library;
    CUkernel kernel;
    if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0 || cuCtxSetCurrent(context) != 0) return 1;
    if (cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0) != 0) return 1;
    if (cuLibraryGetKernel(&kernel, library, "increment") != 0 || cuDevicePrimaryCtxReset(0) != 0) return 1;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    if (pthread_create(&thread, &attributes, work, NULL) != 0) return 2;
    return pthread_join(thread, NULL);
}
