/* Memory that the program guards: its handler of faults opens it, whoever touches it first. */
#include <cuda.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>

#include "check.h"

enum { BYTES = 16 << 20, PAGE = 4096 };
static char* guarded;

static void open_page(int signal, siginfo_t* fault, void* unused) {
    (void)signal, (void)unused;
    mprotect((void*)((size_t)fault->si_addr & ~(size_t)(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE);
}

static void CUDA_CB touch(void* unused) {
    (void)unused;
    guarded[PAGE] = 5;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = open_page, .sa_flags = SA_SIGINFO};
    CUcontext context;
    CUdeviceptr memory;
    sigaction(SIGSEGV, &action, NULL);
    guarded = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc(&memory, BYTES));
    CHECK(cuMemsetD8(memory, 7, BYTES));
    CHECK(cuMemcpyDtoH(guarded, memory, BYTES));
    mprotect(guarded, BYTES, PROT_NONE);
    CHECK(cuLaunchHostFunc(NULL, touch, NULL));
    CHECK(cuStreamSynchronize(NULL));
    printf("%d %d\n", guarded[BYTES - 1], guarded[PAGE]);
    return 0;
}
