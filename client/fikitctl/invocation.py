"""One call of fikitctl: which daemon, how long to wait, how to print; and the way to the daemon.

The deadline is an alarm over the whole verb rather than a limit on each reply, so that a daemon which
answers a little now and then cannot stretch it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from fikitctl import failures
from fikitctl.plain import lines

if TYPE_CHECKING:
    from fikit.control import Connection
    from fikit.protocol import Request


_AGAIN_SECONDS: Final = 0.5


@dataclass
class Invocation:
    """What the options before and after the verb said."""

    socket: str | None = None
    timeout: float | None = None
    as_json: bool = False
    _answer_seconds: float | None = field(default=None, init=False)

    @property
    def path(self) -> str:
        """The daemon's socket: the option, or where the client library looks for it."""
        from fikit.place import UnsafePlaceError, default_socket

        try:
            return self.socket or str(default_socket())
        except UnsafePlaceError as error:
            raise failures.unsafe_place(error) from error

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """A connection for the length of the block; what goes wrong with it becomes CommandError."""
        from fikit.control import Connection
        from fikit.errors import RefusedError, UnreachableError, UsageError
        from fikit.protocol import ProtocolError

        try:
            connection = Connection(self.path, client="fikitctl", timeout=None)
        except UnreachableError as error:
            raise failures.unreachable(self.path, error) from error
        except RefusedError as error:
            raise failures.of_reply(error.reason, str(error), error.hint) from error
        except ProtocolError as error:
            raise failures.stranger(self.path, error) from error
        try:
            yield connection
        except RefusedError as error:
            raise failures.of_reply(error.reason, str(error), error.hint) from error
        except UsageError as error:
            raise failures.refused(str(error)) from error
        except (UnreachableError, ProtocolError) as error:
            raise failures.lost(error) from error
        finally:
            connection.close()

    def request(self, body: Request) -> Any:
        """The reply to a single request."""
        with self.connected() as control:
            return control.request(body)

    @contextmanager
    def deadline(self, default: float | None) -> Iterator[None]:
        """Raise the timeout failure when the block takes longer than ``--timeout`` (or ``default``)."""
        seconds = self.timeout if self.timeout is not None else default
        if not seconds:
            yield
            return

        def expire(_signal: int, _frame: FrameType | None) -> None:
            raise failures.timed_out(seconds)

        self._answer_seconds = None if self.timeout is not None else seconds
        previous = signal.signal(signal.SIGALRM, expire)
        # Again until the block is left: Python may have looked for signals just before a call that waits, and
        # what is imported, or a finaliser, may take what is raised there for its own affair.
        signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_SECONDS)
        try:
            yield
        finally:
            self._answer_seconds = None
            lift_deadline()
            signal.signal(signal.SIGALRM, previous)

    def answered(self) -> None:
        """One answer of several has come: the next has as much time, unless ``--timeout`` limits them all."""
        if self._answer_seconds is not None:
            signal.setitimer(signal.ITIMER_REAL, self._answer_seconds, _AGAIN_SECONDS)


def successor(path: Path, timeout: float | None = None) -> Connection:
    """A connection to the daemon that follows one that went away, and takes over what runs.

    ``timeout``: of its answers. Raises UnreachableError where none comes soon.
    """
    from fikit.control import RESTART_SECONDS, Connection, once_it_answers

    return once_it_answers(lambda: Connection(path, client="fikitctl", timeout=timeout), RESTART_SECONDS)


def lift_deadline() -> None:
    """From here on no ``--timeout``: what it was meant for has happened."""
    signal.setitimer(signal.ITIMER_REAL, 0)


def is_terminal() -> bool:
    """Whether a person can answer a question here."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def note(text: str) -> None:
    """A remark beside the result."""
    failures.say(f"fikitctl: {lines(text)}")
