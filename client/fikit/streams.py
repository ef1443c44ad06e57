"""Streams and events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from fikit.core import NOT_READY, Core, public_name, refuse_copy
from fikit.errors import UsageError


class Stream:
    """Operations of one stream run in order; of several, in any order. Handle 0 is the default stream.

    Leaving a ``with`` block, ``close()``, or dropping it, gives the stream up; what was enqueued still runs.
    """

    def __init__(self, core: Core, handle: int, *, owned: bool) -> None:
        self._core = core
        self._handle: int | None = handle
        self._owned = owned

    __reduce_ex__ = refuse_copy

    def __repr__(self) -> str:
        return f"<{public_name(self)} {'closed' if self._handle is None else self._handle}>"

    @property
    def handle(self) -> int:
        """The stream's number in its session."""
        if self._handle is None:
            raise UsageError("the stream was closed")
        return self._handle

    def query(self) -> bool:
        """Whether everything enqueued so far has completed. Never waits."""
        status = self._core.channel.stream_query(self.handle)
        if status == NOT_READY:
            return False
        self._core.check_synchronized(status, "Stream.query")
        return True

    def synchronize(self, timeout: float | None = None) -> None:
        """Wait until everything enqueued so far has completed.

        Raises TimeoutError after ``timeout`` seconds, CudaError for an asynchronous error of this session.
        """
        self._core.wait(self._wait, timeout, "Stream.synchronize")

    def attempt(self, timeout: float) -> bool:
        """``synchronize`` that says whether it was over within ``timeout`` seconds."""
        return self._core.attempt(self._wait, timeout, "Stream.synchronize")

    def _wait(self, timeout: float) -> int:
        return self._core.channel.stream_settle(self.handle, timeout)

    def wait(self, event: Event) -> None:
        """What is enqueued from now on waits for what ``event`` recorded last. The caller does not wait."""
        status = self._core.channel.event_wait(_event_in(self._core, event), self.handle)
        self._core.check(status, "Stream.wait")

    def add_callback(self, function: Callable[[], object]) -> None:
        """Call ``function`` in a thread of its own once everything enqueued so far has completed.

        What is enqueued later waits for it. It must not use this session. Exceptions go to
        ``sys.unraisablehook``. When the session ends first, it is never called.
        """
        if not callable(function):
            raise TypeError(f"add_callback: {function!r} cannot be called")
        self._core.check(self._core.channel.add_callback(self.handle, function), "Stream.add_callback")

    def close(self) -> None:
        """Give the stream up. Does nothing for the default stream, or a second time."""
        if self._owned and self._handle is not None:
            handle, self._handle = self._handle, None
            self._core.channel.stream_destroy(handle)  # refused only when the session is over

    def __del__(self) -> None:
        if hasattr(self, "_owned"):
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Event:
    """A point in a stream to wait for; with ``timing``, also a time stamp of the device.

    Leaving a ``with`` block, ``close()``, or dropping it, gives the event up.
    """

    def __init__(self, core: Core, handle: int, *, timing: bool) -> None:
        self._core = core
        self._handle = handle
        self.timing = timing

    __reduce_ex__ = refuse_copy

    def __repr__(self) -> str:
        timing = " with timing" if self.timing else ""
        return f"<{public_name(self)} {self._handle or 'closed'}{timing}>"

    @property
    def handle(self) -> int:
        """The event's number in its session."""
        if self._handle == 0:
            raise UsageError("the event was closed")
        return self._handle

    def record(self, stream: Stream | None = None) -> None:
        """Mark what was enqueued in ``stream`` (None: the default stream) so far."""
        status = self._core.channel.event_record(self.handle, handle_in(self._core, stream), self.timing)
        self._core.check(status, "Event.record")

    def query(self) -> bool:
        """Whether what was recorded last has completed (True before the first record). Never waits."""
        status = self._core.channel.event_query(self.handle)
        if status == NOT_READY:
            return False
        self._core.check_synchronized(status, "Event.query")
        return True

    def synchronize(self, timeout: float | None = None) -> None:
        """Wait for what was recorded last. Raises TimeoutError after ``timeout`` seconds."""
        self._core.wait(self._wait, timeout, "Event.synchronize")

    def attempt(self, timeout: float) -> bool:
        """``synchronize`` that says whether it was over within ``timeout`` seconds."""
        return self._core.attempt(self._wait, timeout, "Event.synchronize")

    def _wait(self, timeout: float) -> int:
        return self._core.channel.event_settle(self.handle, timeout)

    def elapsed(self, start: Event) -> float:
        """Device time from ``start`` to this event, in seconds. Both must have completed (CudaError 600)."""
        begun = _event_in(self._core, start)
        if not (self.timing and start.timing):
            raise UsageError("elapsed needs two events made with timing=True")
        status, milliseconds = self._core.channel.event_elapsed(begun, self.handle)
        self._core.check(status, "Event.elapsed")
        return milliseconds / 1e3

    def close(self) -> None:
        """Give the event up."""
        if self._handle != 0:
            handle, self._handle = self._handle, 0
            self._core.channel.event_destroy(handle)  # refused only when the session is over

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def handle_in(core: Core, stream: Stream | None) -> int:
    """What a call of that session names the stream by (None: the default stream)."""
    if stream is None:
        return 0
    if not isinstance(stream, Stream):
        raise TypeError(f"stream: {stream!r} is no fikit.Stream")
    if stream._core is not core:
        raise UsageError(f"{stream!r} is a stream of another session")
    return stream.handle


def _event_in(core: Core, event: Event) -> int:
    if not isinstance(event, Event):
        raise TypeError(f"event: {event!r} is no fikit.Event")
    if event._core is not core:
        raise UsageError(f"{event!r} is an event of another session")
    return event.handle
