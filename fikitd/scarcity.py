"""What the whole system may be short of for a while: descriptors and memory.

What has begun must not be given up, nor taken for over, because a file could not be opened just now.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final, TypeVar

import trio

SCARCE: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
PAUSE_SECONDS: Final = 0.1
Result = TypeVar("Result")


async def patiently(call: Callable[[], Result]) -> Result:
    """Call it in a thread, until it is not refused for want of descriptors or memory."""
    while True:
        try:
            return await trio.to_thread.run_sync(call)
        except OSError as error:
            if error.errno not in SCARCE:
                raise
        await trio.sleep(PAUSE_SECONDS)
