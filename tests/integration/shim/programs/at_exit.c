/* What programs give up where they end: in handlers at exit that were there before CUDA's first call, and in
 * such as came later. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

static CUdeviceptr memory;
static CUstream stream;

static void first(void) {
    const CUresult waited = cuStreamSynchronize(stream), freed = cuMemFree(memory);
    printf("%d %d %d\n", waited, freed, cuStreamDestroy(stream));
}

static void later(void) {
    unsigned char read = 0;
    const CUresult waited = cuStreamSynchronize(stream), result = cuMemcpyDtoH(&read, memory, 1);
    printf("%d %d %d\n", waited, result, read);
}

int main(void) {
    CUcontext context;
    atexit(first);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    atexit(later);
    if (cuMemAlloc(&memory, 4) || cuStreamCreate(&stream, CU_STREAM_DEFAULT)) return 2;
    return cuMemsetD8Async(memory, 7, 4, stream) ? 3 : 0;
}
