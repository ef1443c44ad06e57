"""What the demonstration's processes say to each other: a line of JSON each.

The parent passes a Task as the only argument, and says ``measure`` once the tenant is Ready. The end of its
pipe means that the tenant is to end, at any time, so that none outlives it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

MEASURE: Final = b"measure\n"


class Task(Struct, frozen=True):
    """What a tenant is to replay, and where."""

    socket: str
    gpu: int
    priority: str
    workload: str
    traces: str | None
    seconds: float
    """Of the device."""


class Ready(Struct, frozen=True, tag=True):
    """It has warmed up and waits for the start."""


class Measured(Struct, frozen=True, tag=True):
    """The iterations; it goes on until it is stopped."""

    steps_ms: list[float]
    seconds: float


class Failed(Struct, frozen=True, tag=True):
    """It has ended. ``code``: the daemon's where the daemon refused."""

    code: str
    message: str
    hint: str = ""


Answer = Ready | Measured | Failed


def line(message: Struct) -> bytes:
    """A message as it travels."""
    return msgspec.json.encode(message) + b"\n"


def answer(text: bytes) -> Any:
    """An answer as it arrived. Raises one of fikit.protocol.UNDECODABLE."""
    return msgspec.json.decode(text, type=Answer)
