"""What the whole system may be short of for a while: descriptors, memory, threads, processes.

What has begun must not be given up, nor taken for over, because a file could not be opened just now.
Nor must the daemon itself, or another user, be short of threads because one user's wait for a slow disk.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Final, TypeVar, TypeVarTuple

import trio

SCARCE: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EAGAIN}
PAUSE_SECONDS: Final = 0.1
NO_THREAD: Final = ("can't start new thread",)
"""What Python says of it."""
THREADS: ContextVar[trio.CapacityLimiter | None] = ContextVar("THREADS", default=None)
"""Those of the user for whom this task works; None: it works for the daemon."""
Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


async def in_thread(
    call: Callable[[*Arguments], Result],
    *arguments: *Arguments,
    limiter: trio.CapacityLimiter | None = None,
    abandon_on_cancel: bool = False,
) -> Result:
    """Call it in a thread, once there may be one; who waits for a limiter takes up a thread of his, too."""
    threads = THREADS.get()
    async with threads if threads is not None and limiter is not None else nullcontext():
        return await once_there_is_a_thread(
            lambda: trio.to_thread.run_sync(
                call, *arguments, limiter=limiter or threads, abandon_on_cancel=abandon_on_cancel
            )
        )


async def once_there_is_a_thread(call: Callable[[], Awaitable[Result]]) -> Result:
    """Await what needs a thread: a user and a container have only so many."""
    while True:
        try:
            return await call()
        except RuntimeError as error:
            if error.args != NO_THREAD:
                raise
        await trio.sleep(PAUSE_SECONDS)


async def patiently(call: Callable[[], Result]) -> Result:
    """Call it in a thread, until it is not refused for want of any of these."""
    return await once_there_is_room(lambda: in_thread(call))


async def once_there_is_room(call: Callable[[], Awaitable[Result]]) -> Result:
    """Await it, again where it was refused for want of any of these."""
    while True:
        try:
            return await call()
        except OSError as error:
            if error.errno not in SCARCE:
                raise
        await trio.sleep(PAUSE_SECONDS)
