"""What every object of a session shares: the channel, and the one place where CUresults become exceptions."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, NoReturn, SupportsIndex

from fikit._channel import Channel
from fikit.errors import CudaError, OutOfMemoryError, SessionLostError

SUCCESS: Final = 0
OUT_OF_MEMORY: Final = 2
NOT_READY: Final = 600


def public_name(owner: object) -> str:
    """Of its class, as programs name it: fikit.Stream, fikit.trio.Stream, or what they derived from it."""
    home = type(owner).__module__
    if home.startswith("fikit.") and home != "fikit.trio":
        home = "fikit"
    return f"{home}.{type(owner).__qualname__}"


def refuse_copy(owner: object, _: SupportsIndex) -> NoReturn:
    """``__reduce_ex__`` of what gives up a session, or some of it: its copy would, too, under the other."""
    raise TypeError(f"a {public_name(owner)} can be neither copied nor pickled")


class Core:
    """A session's channel, and the modules that are still to be unloaded."""

    exiting: ClassVar = False
    """The interpreter exits, and with it daemon threads: one in a call ends there, without a word."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._given_up: deque[tuple[int, Sequence[int]]] = deque()

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
            if Core.exiting and threading.current_thread() is not threading.main_thread():
                raise SystemExit
            raise SessionLostError(sticky, call, text)
        if status == OUT_OF_MEMORY:
            raise OutOfMemoryError(status, call, detail)
        raise CudaError(status, call, detail)

    def check_made(self, status: int, call: str, kind: str, detail: str = "") -> None:
        """``check`` for calls that make one of ``kind`` (a plural), of which a session has a limit."""
        if status == OUT_OF_MEMORY and (limit := self.channel.limit_reached(kind)):
            detail = f"the session has {limit} {kind}, the most it may have"
        self.check(status, call, detail)

    def give_up(self, module: int, functions: Sequence[int]) -> None:
        """Leave a module to ``unload``, as a finaliser must not wait for an answer. Never waits."""
        self._given_up.append((module, functions))

    def unload(self) -> None:
        """Unload what was given up. Waits, so it is for calls that wait for an answer in any case."""
        while self._given_up:
            try:
                module, functions = self._given_up.popleft()
            except IndexError:  # another thread was faster
                return
            status = self.channel.module_unload(module, functions)
            if not self.lost:
                self.check(status, "Module.unload")

    def check_synchronized(self, status: int, call: str) -> None:
        """``check`` for calls that also report asynchronous errors of earlier operations."""
        self.check(status, call, self.channel.deferred_text() if status != SUCCESS else "")

    def attempt(self, wait: Callable[[float], int], timeout: float, call: str) -> bool:
        """Whether ``wait`` was over within ``timeout`` seconds (negative: no limit)."""
        status = wait(timeout)
        if status == NOT_READY:
            return False
        self.check_waited(status, call)
        return True

    def check_waited(self, status: int, call: str) -> None:
        """``check`` behind a wait, which tells of asynchronous errors, too. Each is told once."""
        self.check_synchronized(status or self.channel.take_deferred(), call)

    def wait(self, wait: Callable[[float], int], timeout: float | None, call: str) -> None:
        """``attempt``, with TimeoutError. ``timeout`` in seconds, None: no limit."""
        if not self.attempt(wait, -1.0 if timeout is None else max(0.0, timeout), call):
            raise TimeoutError(f"{call}: not done after {timeout} s")
