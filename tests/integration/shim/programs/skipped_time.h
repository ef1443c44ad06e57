/* A clock on which pauses pass at once: what they would have lasted is added to it. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long skipped; /* milliseconds */

int clock_gettime(clockid_t clock, struct timespec* now) {
    if (syscall(SYS_clock_gettime, clock, now) != 0) return -1;
    now->tv_nsec += skipped % 1000 * 1000000L;
    now->tv_sec += skipped / 1000 + now->tv_nsec / 1000000000L;
    now->tv_nsec %= 1000000000L;
    return 0;
}
