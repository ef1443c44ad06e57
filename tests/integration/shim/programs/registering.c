/* Two threads register the same memory at the same time, round for round: one of them does. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 200, BYTES = 8192 };
static CUcontext context;
static pthread_barrier_t barrier;
static void* memory;
static CUresult results[2][ROUNDS];

static void* work(void* argument) {
    const long index = (long)argument;
    cuCtxSetCurrent(context);
    for (int round = 0; round < ROUNDS; ++round) {
        pthread_barrier_wait(&barrier);
        results[index][round] = cuMemHostRegister(memory, BYTES, 0);
        pthread_barrier_wait(&barrier);
        if (index == 0 && cuMemHostUnregister(memory) != CUDA_SUCCESS) exit(1);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    int right = 0;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS || posix_memalign(&memory, 4096, BYTES) != 0)
        return 1;
    pthread_barrier_init(&barrier, NULL, 2);
    for (long i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, work, (void*)i);
    for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
    for (int round = 0; round < ROUNDS; ++round) {
        const CUresult one = results[0][round], other = results[1][round];
        right += one + other == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED && one * other == 0;
    }
    printf("%d\n", right);
    return 0;
}
