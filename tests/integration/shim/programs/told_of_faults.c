/* Callbacks behind a kernel with an illegal address are called, with the error; host functions are not. */
#include <cuda.h>
#include <semaphore.h>
#include <stdio.h>
#include <time.h>

static const char *const code =
    ".version 7.0\n.target sm_52\n.address_size 64\n"
    ".visible .entry bad() { .reg .b64 %a; mov.u64 %a, 16; st.global.u64 [%a], %a; ret; }\n";
static sem_t told;
static int with[2] = {-1, -1}, ran;

static void tell(CUstream stream, CUresult result, void* place) {
    (void)stream;
    *(int*)place = result;
    sem_post(&told);
}
static void run(void* unused) {
    (void)unused;
    ran = 1;
}

int main(void) {
    CUcontext context;
    CUmodule module;
    CUfunction bad;
    CUstream streams[2];
    struct timespec until;
    sem_init(&told, 0, 0);
    if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0 || cuCtxSetCurrent(context) != 0) return 1;
    if (cuModuleLoadData(&module, code) != 0 || cuModuleGetFunction(&bad, module, "bad") != 0) return 2;
    for (int i = 0; i < 2; ++i)
        if (cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) != 0) return 3;
    /* Nothing of it begins before all of it is there. */
    CUdeviceptr gate;
    if (cuMemAlloc(&gate, 8) != 0 || cuMemsetD32(gate, 0, 2) != 0) return 4;
    for (int i = 0; i < 2; ++i)
        if (cuStreamWaitValue32(streams[i], gate, 1, CU_STREAM_WAIT_VALUE_GEQ) != 0) return 5;
    if (cuLaunchKernel(bad, 1, 1, 1, 1, 1, 1, 0, streams[0], NULL, NULL) != 0) return 6;
    if (cuLaunchHostFunc(streams[0], run, NULL) != 0) return 7;
    if (cuStreamAddCallback(streams[0], tell, &with[0], 0) != 0) return 8;
    if (cuLaunchKernel(bad, 1, 1, 1, 1, 1, 1, 0, streams[1], NULL, NULL) != 0) return 9;
    if (cuStreamAddCallback(streams[1], tell, &with[1], 0) != 0) return 10;
    CUstream opening;
    if (cuStreamCreate(&opening, CU_STREAM_NON_BLOCKING) != 0) return 11;
    if (cuStreamWriteValue32(opening, gate, 1, 0) != 0) return 12;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    for (int i = 0; i < 2; ++i)
        if (sem_timedwait(&told, &until) != 0) break;
    printf("%d %d, %d\n", with[0], with[1], ran);
    printf("%d\n", cuStreamSynchronize(streams[0]));
    return 0;
}
