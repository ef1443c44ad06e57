/* A function in a stream that ends the thread it runs on, as a function of Python's does once Python ends. */
#include <cuda.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

static sem_t begun;

static void end_thread(void* unused) {
    (void)unused;
    sem_post(&begun);
    pthread_exit(NULL);
}

int main(void) {
    CUcontext context;
    sem_init(&begun, 0, 0);
    if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0 || cuCtxSetCurrent(context) != 0) return 1;
    if (cuLaunchHostFunc(NULL, end_thread, NULL) != 0) return 2;
    sem_wait(&begun);
    usleep(50000);
    puts("ended");
    return 0;
}
