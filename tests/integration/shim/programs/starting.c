/* Its executor may start once the daemon is waited for longer than $PATIENCE milliseconds. Where $SILENT is
   there, the seconds that it is waited for pass at once; so do those that it has to accept who connects. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "check.h"
#include "skipped_time.h"

int poll(struct pollfd* entries, nfds_t count, int milliseconds) {
    const struct timespec step = {0, 10000000L}, limit = {0, milliseconds % 1000 * 1000000L};
    if (milliseconds < 1000) return ppoll(entries, count, milliseconds < 0 ? NULL : &limit, NULL);
    const char* const may_start = getenv("MAY_START");
    if (may_start != NULL && milliseconds > atol(getenv("PATIENCE"))) fclose(fopen(may_start, "w"));
    for (;;) {
        const int ready = ppoll(entries, count, &step, NULL);
        if (ready != 0) return ready;
        if (access(getenv("SILENT"), F_OK) != 0) continue;
        fprintf(stderr, "waits %d s\n", (milliseconds + 500) / 1000);
        skipped += milliseconds;
        return 0;
    }
}

int setsockopt(int descriptor, int level, int name, const void* value, socklen_t size) {
    const struct timeval soon = {0, 10000};
    if (name == SO_SNDTIMEO && getenv("MAY_START") == NULL) {
        fprintf(stderr, "connects within %ld s\n", (long)((const struct timeval*)value)->tv_sec);
        value = &soon;
    }
    return (int)syscall(SYS_setsockopt, descriptor, level, name, value, size);
}

int main(void) {
    CUcontext context;
    CUdeviceptr memory;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc(&memory, 4));
    puts("served");
    return 0;
}
