/* Who may not connect to the daemon's socket, as one who has given up the user that its job is of. The pauses
 * in which the daemon could be started anew pass at once, and are told. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static long skipped; /* milliseconds */

int clock_gettime(clockid_t clock, struct timespec* now) {
    if (syscall(SYS_clock_gettime, clock, now) != 0) return -1;
    now->tv_nsec += skipped % 1000 * 1000000L;
    now->tv_sec += skipped / 1000 + now->tv_nsec / 1000000000L;
    now->tv_nsec %= 1000000000L;
    return 0;
}

int nanosleep(const struct timespec* pause, struct timespec* left) {
    (void)left;
    skipped += pause->tv_sec * 1000 + pause->tv_nsec / 1000000;
    return 0;
}

int connect(int descriptor, const struct sockaddr* address, socklen_t size) {
    (void)descriptor, (void)address, (void)size;
    errno = EACCES;
    return -1;
}

int main(void) {
    const CUresult result = cuInit(0);
    printf("%d after %s\n", (int)result, skipped > 2000 ? "long" : skipped > 500 ? "a moment" : "nothing");
    return 0;
}
