/* What malloc gave is registered for kernels: beside it lies what is not the program's. */
#include "check.h"

int main(void) {
    enum { words = 100000 };
    CUdevice device;
    CUcontext context;
    CUdeviceptr address;
    unsigned* const memory = calloc(words, sizeof(unsigned));
    memory[words - 1] = 3;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuCtxCreate(&context, NULL, 0, device));
    CHECK(cuMemHostRegister(memory, words * sizeof(unsigned), CU_MEMHOSTREGISTER_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer(&address, memory, 0));
    CHECK(cuMemsetD32(address, 7, words - 1));
    CHECK(cuCtxSynchronize());
    printf("%u %u %u\n", memory[0], memory[words - 2], memory[words - 1]);
    CHECK(cuMemHostUnregister(memory));
    printf("%u\n", memory[words - 2]);
    CHECK(cuCtxDestroy(context));
    free(memory);
    return 0;
}
