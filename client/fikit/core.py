"""What every object of a session shares: the channel, and the one place where CUresults become exceptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fikit._channel import Channel
from fikit.errors import CudaError, OutOfMemoryError, SessionLostError

SUCCESS: Final = 0
OUT_OF_MEMORY: Final = 2
NOT_READY: Final = 600


class Core:
    """A session's channel."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    @property
    def lost(self) -> bool:
        """Whether the session is over."""
        return self.channel.failure()[0] != SUCCESS

    def check(self, status: int, call: str, detail: str = "") -> None:
        """Raise the exception for a status other than success. ``call`` names the call and its subject."""
        if status == SUCCESS:
            return
        sticky, text = self.channel.failure()
        if sticky != SUCCESS:
            raise SessionLostError(sticky, call, text)
        if status == OUT_OF_MEMORY:
            raise OutOfMemoryError(status, call, detail)
        raise CudaError(status, call, detail)

    def check_synchronized(self, status: int, call: str) -> None:
        """``check`` for calls that also report asynchronous errors of earlier operations."""
        self.check(status, call, self.channel.deferred_text() if status != SUCCESS else "")

    def attempt(self, wait: Callable[[float], int], timeout: float, call: str) -> bool:
        """Whether ``wait`` was over within ``timeout`` seconds (negative: no limit)."""
        status = wait(timeout)
        if status == NOT_READY:
            return False
        self.check_synchronized(status, call)
        return True

    def wait(self, wait: Callable[[float], int], timeout: float | None, call: str) -> None:
        """``attempt``, with TimeoutError. ``timeout`` in seconds, None: no limit."""
        if not self.attempt(wait, -1.0 if timeout is None else max(timeout, 0.0), call):
            raise TimeoutError(f"{call}: not done after {timeout} s")
