/* The machine is paused for an hour while the daemon is waited for. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdbool.h>

#include "check.h"
#include "skipped_time.h"

int poll(struct pollfd* entries, nfds_t count, int milliseconds) {
    static bool paused = false;
    if (paused || milliseconds < 1000) return (int)syscall(SYS_poll, entries, count, milliseconds);
    paused = true;
    skipped += 3600 * 1000;
    return 0;
}

int main(void) {
    CHECK(cuInit(0));
    puts("served");
    return 0;
}
