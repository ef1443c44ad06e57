// The host and a kernel add to one word of managed memory at the same time, atomically for the system: how many
// additions were lost?
#include "check.h"

static const char text[] =
    ".version 7.8\n.target sm_80\n.address_size 64\n"
    ".visible .entry add(.param .u64 place, .param .u32 times)\n"
    "{ .reg .b64 %rd<2>; .reg .b32 %r<4>; .reg .pred %p<2>;\n"
    "ld.param.u64 %rd1, [place]; ld.param.u32 %r1, [times];\n"
    "LOOP: atom.global.sys.add.u32 %r2, [%rd1], 1;\n"
    "sub.u32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra LOOP; ret; }\n";

int main(void) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction add;
    CUstream stream;
    CUdeviceptr place;
    unsigned times = 2000, threads = 64, own = 0;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, text));
    CHECK(cuModuleGetFunction(&add, module, "add"));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAllocManaged(&place, sizeof(unsigned), CU_MEM_ATTACH_GLOBAL));
    unsigned* const word = (unsigned*)place;
    __atomic_store_n(word, 0, __ATOMIC_SEQ_CST);
    void* parameters[] = {&place, &times};
    CHECK(cuLaunchKernel(add, 1, 1, 1, threads, 1, 1, 0, stream, parameters, NULL));
    while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
        for (int i = 0; i < 1000; ++i, ++own) __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
    CHECK(cuStreamSynchronize(stream));
    const unsigned all = times * threads + own, seen = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    printf("%u lost\n", all - seen);
    fprintf(stderr, "%u of the host's\n", own);
    CHECK(cuMemFree(place));
    return 0;
}
