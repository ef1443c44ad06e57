/* Two threads launch graphs into one stream, without a word between them. Each graph sets a word, counts in
 * it and looks at it in the end: natively nothing comes between its nodes. A host function makes it a graph
 * that fikitd issues node by node. */
#include <pthread.h>

#include "check.h"

enum { THREADS = 2, ROUNDS = 150, COUNTS = 20 };
static const char* ptx =
    ".version 7.8\n.target sm_80\n.address_size 64\n"
    ".visible .entry increment(.param .u64 address)\n{\n.reg .b64 %rd<2>; .reg .b32 %r<3>;\n"
    "ld.param.u64 %rd1, [address];\nld.global.u32 %r1, [%rd1];\nadd.u32 %r2, %r1, 1;\n"
    "st.global.u32 [%rd1], %r2;\nret;\n}\n"
    ".visible .entry look(.param .u64 address, .param .u32 wanted)\n{\n.reg .b64 %rd<2>; .reg .b32 %r<4>; "
    ".reg .pred %p1;\n"
    "ld.param.u64 %rd1, [address];\nld.param.u32 %r1, [wanted];\nld.global.u32 %r2, [%rd1];\n"
    "setp.eq.u32 %p1, %r1, %r2;\n@%p1 bra END;\nld.global.u32 %r3, [%rd1+4];\nadd.u32 %r3, %r3, 1;\n"
    "st.global.u32 [%rd1+4], %r3;\nEND:\nret;\n}\n";
static CUcontext context;
static CUstream stream;
static CUfunction increment, look;
static CUdeviceptr words; /* the one counted in, and how often that was not as it should be */
static CUgraphExec graphs[THREADS];

static void CUDA_CB nothing(void* unused) { (void)unused; }

static CUgraphExec made(void) {
    CUgraph graph;
    CUgraphExec executable;
    unsigned wanted = COUNTS;
    void* parameters[] = {&words, &wanted};
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemsetD32Async(words, 0, 1, stream));
    for (int i = 0; i < COUNTS; ++i)
        CHECK(cuLaunchKernel(increment, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    CHECK(cuLaunchKernel(look, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    CHECK(cuLaunchHostFunc(stream, nothing, NULL));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphDestroy(graph));
    return executable;
}

static void* launches(void* executable) {
    CHECK(cuCtxSetCurrent(context));
    for (int round = 0; round < ROUNDS; ++round) CHECK(cuGraphLaunch(executable, stream));
    return NULL;
}

int main(void) {
    CUdevice device;
    CUmodule module;
    pthread_t threads[THREADS];
    unsigned seen[2];
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&increment, module, "increment"));
    CHECK(cuModuleGetFunction(&look, module, "look"));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&words, sizeof seen));
    CHECK(cuMemsetD8(words, 0, sizeof seen));
    for (int i = 0; i < THREADS; ++i) graphs[i] = made();
    for (int i = 0; i < THREADS; ++i) pthread_create(&threads[i], NULL, launches, graphs[i]);
    for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(seen, words, sizeof seen));
    printf("%u wrong\n", seen[1]);
    return 0;
}
