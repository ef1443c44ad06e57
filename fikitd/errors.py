"""Every error of the daemon, named by who must act. Each RequestError has the stable code that travels.

A RequestError is an answer (api/connection.py turns it into a Failure); the others end the program at start.
"""

from __future__ import annotations

from fikit.protocol import ErrorCode, Failure


class RequestError(Exception):
    """A request cannot be served. The message names the thing, the hint what to do next."""

    code: ErrorCode = "internal"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def failure(self) -> Failure:
        """The reply that says so."""
        return Failure(code=self.code, message=self.message, hint=self.hint)


class InvalidRequest(RequestError):
    """The peer must change the request."""

    code: ErrorCode = "invalid"


class NotPermitted(RequestError):
    """An administrator would have to permit it."""

    code: ErrorCode = "permission"


class NotFound(RequestError):
    """The peer named something that is not there, or not the peer's to see."""

    code: ErrorCode = "not_found"


class QuotaReached(RequestError):
    """The peer must end something first, or an administrator raise a limit."""

    code: ErrorCode = "quota"


class Draining(RequestError):
    """The peer must wait: the daemon takes no new work."""

    code: ErrorCode = "draining"


class Unavailable(RequestError):
    """The operator must look at the machine: a device, an executor or the disk does not serve."""

    code: ErrorCode = "unavailable"


class ConfigurationError(Exception):
    """The operator must correct a configuration file; the message names file and key."""


class AlreadyRunningError(Exception):
    """Another daemon serves this socket or this state directory."""


class DeviceUnavailableError(Exception):
    """The operator asked for a device that is not there."""
