/* Code comes through a pipe, piece by piece, and signals interrupt who reads it. */
#include <cuda.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "increment.h"

enum { PIECE = 16 };
static pthread_t reader;
static int ends[2];

static void nothing(int signal) { (void)signal; }

static void* feed(void* unused) {
    for (size_t at = 0; at < strlen(ptx); at += PIECE) {
        const size_t left = strlen(ptx) - at;
        if (write(ends[1], ptx + at, left < PIECE ? left : PIECE) < 0) break;
        pthread_kill(reader, SIGUSR1);
    }
    close(ends[1]);
    return unused;
}

int main(void) {
    const struct sigaction action = {.sa_handler = nothing};
    char path[32];
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    for (int turn = 0; turn < 5; ++turn) {
        pthread_t writer;
        if (pipe(ends) != 0) return 1;
        snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
        reader = pthread_self();
        sigaction(SIGUSR1, &action, NULL);
        pthread_create(&writer, NULL, feed, NULL);
        CHECK(cuModuleLoad(&module, path));
        CHECK(cuModuleGetFunction(&function, module, "increment"));
        pthread_join(writer, NULL);
        close(ends[0]);
        CHECK(cuModuleUnload(module));
    }
    puts("whole");
    return 0;
}
