"""What can go wrong, by who must act. Every class has a stable ``code``.

FikitError
    UsageError          your code: a call made wrongly (also a ValueError)
    UnreachableError    start the daemon, or name its socket
    RefusedError        the daemon said no: see ``reason`` and ``hint``
    MissingExtraError   install an optional part of the package
    CudaError           CUDA refused a call or a kernel; the session goes on
        OutOfMemoryError    the device or your quota is full
    SessionLostError    the session is over; connect again
"""

from __future__ import annotations

from typing import Any, ClassVar

from fikit.cuda_errors import NAMES, describe


def _made_again(kind: type[Exception], *arguments: object) -> Exception:
    return Exception.__new__(kind, *arguments)  # not kind.__new__, which may be MemoryError's


def _as_it_is(error: Exception) -> tuple[Any, ...]:
    """``__reduce__`` of what is made of other arguments than its text, for pools of processes."""
    return _made_again, (type(error), *error.args), error.__dict__


class FikitError(Exception):
    """Base of every error of this library."""

    code: ClassVar[str] = "error"


class UsageError(FikitError, ValueError):
    """The caller's own mistake; the message says what to change."""

    code = "usage"


class UnreachableError(FikitError, ConnectionError):
    """No daemon answers where it was looked for."""

    code = "unreachable"


class RefusedError(FikitError):
    """The daemon refused a request. ``reason`` is its error code (``fikit.protocol.ErrorCode``)."""

    code = "refused"

    def __init__(self, reason: str, message: str, hint: str = "") -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.reason = reason
        self.hint = hint

    __reduce__ = _as_it_is


class MissingExtraError(FikitError, ImportError):
    """An optional part of the package is not installed."""

    code = "missing_extra"


class _StatusError(FikitError):
    def __init__(self, status: int, call: str, detail: str = "") -> None:
        message = f"{call}: {describe(status)}"
        super().__init__(f"{message}: {detail}" if detail else message)
        self.status = status
        """The CUresult."""
        self.name = NAMES.get(status, ("CUDA error", ""))[0]
        """``CUDA_ERROR_...``"""
        self.call = call
        """What was called, with the kernel or symbol concerned."""

    __reduce__ = _as_it_is


class CudaError(_StatusError):
    """CUDA refused a call, or an earlier asynchronous operation. The session can go on."""

    code = "cuda"


class OutOfMemoryError(CudaError, MemoryError):
    """The device, or what the tenant may use of it, is full."""

    code = "out_of_memory"


class SessionLostError(_StatusError):
    """The session is over: its context is lost, it was ended, or the executor is gone. Connect again."""

    code = "session_lost"
