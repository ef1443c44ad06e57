/* A program whose first thread ends before it uses the GPU: the kernel tells nothing of the process by its number. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

static const char* ptx =
    ".version 7.8\n.target sm_80\n.address_size 64\n"
    ".visible .entry store(.param .u64 address)\n{\n.reg .b64 %rd<2>;\n"
    "ld.param.u64 %rd1, [address];\nst.global.u32 [%rd1], 7;\nret;\n}\n";
enum { BYTES = 1 << 16 };

static void* work(void* first) {
    CUcontext context;
    CUmodule module;
    CUfunction store;
    CUdeviceptr seen;
    const int file = memfd_create("shared", 0);
    if (pthread_join(*(pthread_t*)first, NULL) != 0 || ftruncate(file, BYTES) != 0) exit(1);
    unsigned* const shared = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&store, module, "store"));
    CHECK(cuMemHostRegister(shared, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer(&seen, shared, 0));
    void* parameters[] = {&seen};
    CHECK(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    CHECK(cuCtxSynchronize());
    printf("%u\n", *shared);
    exit(0);
}

int main(void) {
    static pthread_t first;
    pthread_t thread;
    first = pthread_self();
    if (pthread_create(&thread, NULL, work, &first) != 0) return 1;
    pthread_exit(NULL);
}
