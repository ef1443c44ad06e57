/* A program linked against libcuda, the per-thread default stream among its symbols. */
#include <string.h>

#include "check.h"

int main(void) {
    CUdevice device;
    CUcontext context;
    CUdeviceptr memory;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuCtxCreate(&context, NULL, 0, device));
    CHECK(cuMemAlloc(&memory, 1 << 20));
    char* host = malloc(1 << 20);
    memset(host, 3, 1 << 20);
    CHECK(cuMemcpyHtoDAsync(memory, host, 1 << 20, NULL));
    CHECK(cuMemsetD8Async(memory, 9, 100, NULL));
    CHECK(cuStreamSynchronize(NULL));
    CHECK(cuMemcpyDtoH(host, memory, 1 << 20));
    printf("%d %d %d\n", host[0], host[99], host[100]);
    CHECK(cuCtxDestroy(context));
    printf("%d\n", (int)cuCtxSynchronize());
    return 0;
}
