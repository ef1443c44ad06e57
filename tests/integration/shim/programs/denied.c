/* Who may not connect to the daemon's socket, as one who has given up the user that its job is of. The pauses
 * in which the daemon could be started anew pass at once, and are told. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "skipped_time.h"

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
