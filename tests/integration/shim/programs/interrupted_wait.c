/* Signals interrupt the wait for a daemon's answer, and then its time is over. What is received without a
   poll that told of it would have no deadline. */
#include <cuda.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "skipped_time.h"

int poll(struct pollfd* entries, nfds_t count, int milliseconds) {
    static int calls = 0;
    errno = EINTR;
    if (++calls < 3) return -1;
    skipped += milliseconds;
    return 0;
}

ssize_t recvmsg(int descriptor, struct msghdr* message, int flags) {
    puts("received");
    exit(1);
}

int main(void) {
    printf("%d\n", (int)cuInit(0));
    return 0;
}
