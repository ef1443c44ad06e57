/* For each line of input 30 steps of 100 launches one behind another, as fast as can be, each step waited for. */
#include "check.h"
#include "increment.h"

enum { STEPS = 30, LAUNCHES = 100 };

int main(void) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUdeviceptr memory;
    CUstream stream;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&function, module, "increment"));
    CHECK(cuMemAlloc(&memory, 4));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    void* parameters[] = {&memory};
    for (int c = getchar(); c != EOF; c = getchar()) {
        for (int step = 0; step < STEPS; ++step) {
            for (int launch = 0; launch < LAUNCHES; ++launch)
                CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
            CHECK(cuStreamSynchronize(stream));
        }
        puts("stepped");
        fflush(stdout);
    }
    return 0;
}
