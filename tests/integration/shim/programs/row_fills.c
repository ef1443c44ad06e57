/* A fill of very many rows is enqueued as one operation is, though the stream waits. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { PATIENCE_SECONDS = 30, ROWS = 200000, WIDTH = 12, PITCH = 32 };
static unsigned char host[ROWS * PITCH], wanted[ROWS * PITCH];
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void hold(void* unused) {
    (void)unused;
    pthread_mutex_lock(&held);
}

int main(void) {
    CUcontext context;
    CUstream stream;
    CUdeviceptr memory;
    alarm(PATIENCE_SECONDS);
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, sizeof host));
    CHECK(cuMemsetD8Async(memory, 1, sizeof host, stream));
    pthread_mutex_lock(&held);
    CHECK(cuLaunchHostFunc(stream, hold, NULL));
    CHECK(cuMemsetD2D32Async(memory, PITCH, 0x05040302, WIDTH / 4, ROWS, stream));
    CHECK(cuMemsetD2D16Async(memory + 16, PITCH, 0x0706, 2, ROWS - 7, stream));
    pthread_mutex_unlock(&held);
    CHECK(cuMemcpyDtoHAsync(host, memory, sizeof host, stream));
    CHECK(cuStreamSynchronize(stream));
    memset(wanted, 1, sizeof wanted);
    for (int row = 0; row < ROWS; ++row) {
        for (int at = 0; at < WIDTH; ++at) wanted[row * PITCH + at] = (unsigned char)(2 + at % 4);
        for (int at = 0; at < 4 && row < ROWS - 7; ++at)
            wanted[row * PITCH + 16 + at] = (unsigned char)(6 + at % 2);
    }
    printf("%d\n", memcmp(host, wanted, sizeof host));
    return 0;
}
