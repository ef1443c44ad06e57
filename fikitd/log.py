"""How log lines look: for people on a terminal, else one JSON object a line, for systemd with its priority.

Every event of ``fikitctl events`` is also a log line of the same name, so the two can be laid side by side.
A log that takes nothing more (a full disk, a pipe whose reader is gone or does not read) costs its lines and
nothing else: who writes to it goes on at once, and the next line that is taken tells how many are missing.
"""

from __future__ import annotations

import logging
import os
import select
import sys
from typing import Final, TextIO, cast

import structlog
from structlog.typing import EventDict, WrappedLogger

PRIORITIES: Final = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}


class Lines:
    """Standard error, line by line; never waits, never raises."""

    def __init__(self) -> None:
        self._descriptor = None if sys.stderr is None else sys.stderr.fileno()
        self._cut = False
        self._lost = 0

    def write(self, line: str) -> None:
        """The line, if all of it is taken now; else it counts as lost."""
        text = (b"\n" if self._cut else b"") + line.encode(errors="backslashreplace")
        written = self._taken(text)
        if written == len(text):
            self._cut, self._lost = False, 0
        else:
            self._cut, self._lost = written > 0 or self._cut, self._lost + 1

    def flush(self) -> None:
        """Nothing is kept back."""

    def name_lost(self, _: WrappedLogger, __: str, line: EventDict) -> EventDict:
        """A processor: the line tells how many before it were lost."""
        return {**line, "lost_lines": self._lost} if self._lost else line

    def _taken(self, text: bytes) -> int:
        """How much is written without waiting: a pipe that is writable has room for PIPE_BUF bytes."""
        written = 0
        try:
            while written < len(text) and self._descriptor is not None:
                if not select.select([], [self._descriptor], [], 0)[1]:
                    break
                written += os.write(self._descriptor, text[written : written + select.PIPE_BUF])
        except OSError:
            return written
        return written


def to_lines(lines: Lines) -> structlog.WriteLoggerFactory:
    """A logger factory that writes there."""
    return structlog.WriteLoggerFactory(cast(TextIO, lines))


class Prefixed:
    """Render as JSON behind the ``<N>`` that systemd reads as the line's priority."""

    def __init__(self) -> None:
        self._json = structlog.processors.JSONRenderer()

    def __call__(self, logger: WrappedLogger, name: str, line: EventDict) -> str:
        """One line."""
        rendered = self._json(logger, name, line)
        text = rendered if isinstance(rendered, str) else rendered.decode()
        return f"<{PRIORITIES.get(name, 6)}>{text}"


def is_journal() -> bool:
    """Whether standard error is the journal's. ``JOURNAL_STREAM`` names that; whoever a service of systemd's
    starts inherits it, with whatever standard error (systemd.exec(5)).
    """
    if sys.stderr is None:
        return False
    try:
        ours = os.fstat(sys.stderr.fileno())
    except OSError:  # a file's whose disk does not tell: the journal's is a socket
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{ours.st_dev}:{ours.st_ino}"


class FromLibraries(logging.Handler):
    """What libraries tell by Python's logging, which would wait for a full log, in our lines."""

    def emit(self, record: logging.LogRecord) -> None:
        """Tell it by the library's name."""
        log = structlog.get_logger().bind(library=record.name, reason=record.getMessage())
        tell = log.error if record.levelno >= logging.ERROR else log.warning
        tell("library_told", exc_info=record.exc_info)


_libraries: Final = FromLibraries()


def set_up(level: str) -> None:
    """Choose the looks once, at start; again after a reload changed the level."""
    renderer: structlog.typing.Processor
    lines = Lines()
    if is_journal():
        renderer = Prefixed()
    elif sys.stderr is not None and sys.stderr.isatty():
        renderer = structlog.dev.ConsoleRenderer(colors="NO_COLOR" not in os.environ)
    else:
        renderer = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            lines.name_lost,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=to_lines(lines),
        cache_logger_on_first_use=False,
    )
    logging.getLogger().addHandler(_libraries)  # once, whoever calls this again
