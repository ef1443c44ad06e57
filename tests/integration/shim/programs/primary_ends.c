/* A thread retains the primary context while another one's release ends it, which takes as long as the work
 * that is under way: what the first makes in it then stays. */
#include <pthread.h>
#include <unistd.h>

#include "check.h"

enum { PATIENCE_STEPS = 300, STEP_MICROSECONDS = 1000 };
static int opened, made, ended;

static int is_set(const int* flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
static void set(int* flag) { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); }
static void wait_for(const int* flag) {
    while (!is_set(flag)) usleep(STEP_MICROSECONDS);
}

/* Not for ever: on an H200 whoever asks for the state of a context that ends waits for that. */
static void hold(void* unused) {
    (void)unused;
    for (int step = 0; !is_set(&opened) && step < PATIENCE_STEPS; ++step) usleep(STEP_MICROSECONDS);
}

static void* release(void* unused) {
    CHECK(cuDevicePrimaryCtxRelease(0));
    set(&ended);
    return unused;
}

static void* use(void* unused) {
    CUcontext context;
    CUdeviceptr memory;
    unsigned value = 0;
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc(&memory, sizeof value));
    CHECK(cuMemsetD32(memory, 7, 1));
    set(&made);
    wait_for(&ended);
    CHECK(cuMemcpyDtoH(&value, memory, sizeof value));
    printf("%u\n", value);
    CHECK(cuDevicePrimaryCtxRelease(0));
    return unused;
}

int main(void) {
    CUcontext context;
    pthread_t ending, using;
    unsigned flags;
    int active = 1;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuLaunchHostFunc(NULL, hold, NULL));
    pthread_create(&ending, NULL, release, NULL);
    for (int step = 0; active && step < PATIENCE_STEPS; ++step) {
        usleep(STEP_MICROSECONDS);
        CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    }
    pthread_create(&using, NULL, use, NULL);
    for (int step = 0; !is_set(&made) && step < PATIENCE_STEPS; ++step) usleep(STEP_MICROSECONDS);
    set(&opened);
    pthread_join(ending, NULL);
    pthread_join(using, NULL);
    CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    printf("%d\n", active);
    return 0;
}
