"""How log lines look: for people on a terminal, else one JSON object a line, for systemd with its priority.

Every event of ``fikitctl events`` is also a log line of the same name, so the two can be laid side by side.
A log that takes nothing more (a full disk, a pipe whose reader is gone or does not read) costs its lines and
nothing else: who writes to it goes on at once, and the next line that is taken tells how many are missing.

Written by hand, as a library for this took a third of the time in which a daemon or an executor starts.
"""

from __future__ import annotations

import json
import os
import select
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

PRIORITIES: Final = {"debug": 7, "info": 6, "warning": 4, "error": 3}
DIM, BOLD, RESET = "\x1b[2m", "\x1b[1m", "\x1b[0m"
NAME, VALUE = "\x1b[36m", "\x1b[35m"
LEVELS: Final = {"debug": "\x1b[32m", "info": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m"}
EVENT_WIDTH: Final = 30

Line = dict[str, object]
Render = Callable[[Line], str]


class Lines:
    """Standard error, line by line; never waits, never raises."""

    def __init__(self) -> None:
        self._descriptor = None if sys.stderr is None else sys.stderr.fileno()
        self._cut = False
        self.lost = 0
        """How many lines were not taken since the last that was."""

    def write(self, line: str) -> None:
        """The line, if all of it is taken now; else it counts as lost."""
        text = (b"\n" if self._cut else b"") + line.encode(errors="backslashreplace")
        written = self._taken(text)
        if written == len(text):
            self._cut, self.lost = False, 0
        else:
            self._cut, self.lost = written > 0 or self._cut, self.lost + 1

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


def as_json(line: Line) -> str:
    """For programs."""
    return json.dumps(line, default=repr)


def for_systemd(line: Line) -> str:
    """As JSON behind the ``<N>`` that systemd reads as the line's priority."""
    return f"<{PRIORITIES[str(line['level'])]}>{as_json(line)}"


class ForPeople:
    """One line with the event in front, and a stack below it."""

    def __init__(self, colors: bool) -> None:
        self._colors = colors

    def __call__(self, line: Line) -> str:
        """The line, or lines."""
        told = dict(line)
        level, event, at = (str(told.pop(name)) for name in ("level", "event", "timestamp"))
        stack = told.pop("exception", None)
        head = f"{self._in(DIM, at)} [{self._in(LEVELS[level] + BOLD, f'{level:9}')}]"
        fields = [
            f" {self._in(NAME, name)}={self._in(VALUE, _shown(value))}"
            for name, value in sorted(told.items())
        ]
        text = f"{head} {self._in(BOLD, event.ljust(EVENT_WIDTH))}{''.join(fields)}".rstrip()
        return text if stack is None else f"{text}\n{stack}"

    def _in(self, color: str, text: str) -> str:
        return f"{color}{text}{RESET}" if self._colors else text


def _shown(value: object) -> str:
    """A text as it is where that leaves no doubt of where it ends."""
    plain = isinstance(value, str) and value.isprintable() and not set(value) & set(" ='\"")
    return str(value) if plain else repr(value)


class Log:
    """Tells of events: each has a name, fields of its own, and those that all events of this have."""

    def __init__(self, **fields: object) -> None:
        self._fields = fields

    def info(self, event: str, /, **fields: object) -> None:
        """What happens as it should."""
        _tell("info", event, {**self._fields, **fields})

    def warning(self, event: str, /, **fields: object) -> None:
        """What somebody may want to look into."""
        _tell("warning", event, {**self._fields, **fields})

    def error(self, event: str, /, **fields: object) -> None:
        """What should not be."""
        _tell("error", event, {**self._fields, **fields})

    def exception(self, event: str, /, **fields: object) -> None:
        """A defect: the exception that is being handled."""
        self.error(event, **fields, exception=traceback.format_exc().rstrip("\n"))


def _untold(_level: str, _event: str, _fields: Line) -> None:
    """Before anything was set up."""


_tell: Callable[[str, str, Line], None] = _untold


def write_lines(render: Render, least: str = "info") -> None:
    """From here on write what is at least so important to standard error."""
    global _tell
    lines, limit = Lines(), PRIORITIES[least]

    def tell(level: str, event: str, fields: Line) -> None:
        if PRIORITIES[level] > limit:
            return
        timestamp = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        line = {**fields, "event": event, "level": level, "timestamp": timestamp}
        lost = {"lost_lines": lines.lost} if lines.lost else {}
        lines.write(render({**line, **lost}) + "\n")

    _tell = tell


def set_up(level: str) -> None:
    """Choose the looks once, at start; again after a reload changed the level."""
    render: Render = as_json
    if "JOURNAL_STREAM" in os.environ:
        render = for_systemd
    elif sys.stderr is not None and sys.stderr.isatty():
        render = ForPeople(colors="NO_COLOR" not in os.environ)
    write_lines(render, level)
