"""What people type and read: sizes, durations, priorities, signals."""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Literal

import click
from click.shell_completion import CompletionItem

_BINARY: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LEAST_MEMORY: Final = 1 << 20
_MOST_BYTES: Final = 1 << 62
"""What the protocol has room for; so it has for the number of a GPU."""
_MOST_SECONDS: Final = 1e9
"""Thirty years: timers have room for that."""
_MOST_GRACE_SECONDS: Final = 600
_MOST_NAME: Final = 200
"""The protocol's limits, as the one before."""
_AS_A_MINUTE: Final = 59.95
"""From here on seconds would be written as 60.0."""
_PARTS: Final = ((1, "s", 0.99995), (1e3, "ms", 0.99995), (1e6, "us", 0.9995))
"""Below the last of each the smaller unit does, whose number has fewer digits than 1000."""
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)")


def parse_size(text: str) -> int:
    """Bytes of ``8G``, ``512M``, ``1.5GiB`` or a plain number; units are powers of 1024."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no size: write it like 512M or 8G")
    count = ceil(Fraction(match[1]) * _BINARY[match[2].upper()])
    if count > _MOST_BYTES:
        raise ValueError(f"{text!r} is more than there can be")
    return count


def parse_memory(text: str) -> int:
    """A limit of memory, which programs live with; to the daemon none is the tenant's."""
    size = parse_size(text)
    if 0 < size < _LEAST_MEMORY:
        raise ValueError(f"{text!r} is {size} bytes, which no program can use: write it like 512M or 8G")
    return size


def parse_output_limit(text: str) -> int:
    """A size that something fits into; to the daemon none is its own limit."""
    size = parse_size(text)
    if size == 0:
        raise ValueError("an output limit of 0 would keep nothing; the least is 1")
    return size


def parse_duration(text: str) -> float:
    """Seconds of ``10``, ``1.5s``, ``500ms``, ``2m`` or ``1h``."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no duration: write it like 500ms, 10s or 2m")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds > _MOST_SECONDS:
        raise ValueError(f"{text!r} is longer than can be waited")
    return seconds


def parse_grace(text: str) -> float:
    """A duration that the daemon will wait before it kills."""
    seconds = parse_duration(text)
    if seconds > _MOST_GRACE_SECONDS:
        raise ValueError(f"{text!r} is longer than ten minutes")
    return seconds


def parse_name(text: str) -> str:
    """What a job may be called."""
    if not 1 <= len(text) <= _MOST_NAME:
        raise ValueError(f"a name has 1 to {_MOST_NAME} characters, not {len(text)}")
    return text


def parse_priority(text: str) -> int:
    """The level that a name or a digit stands for."""
    from fikit.protocol import priority_level

    return priority_level(text)


def parse_gpus(text: str) -> list[int | str] | Literal["all"]:
    """The GPUs of ``0``, ``1,0``, ``GPU-8932f937`` or ``all``; none of an empty text."""
    from fikit.protocol import gpu_named

    if text == "all":
        return "all"
    gpus = [gpu_named(word) for word in text.split(",")] if text else []
    if any(gpu is None for gpu in gpus):
        raise ValueError(f"{text!r} is no list of GPUs: write it like 0, 1,0, GPU-8932f937 or all")
    return [gpu for gpu in gpus if gpu is not None]


def parse_gpu(text: str) -> int | str:
    """The GPU of ``0`` or ``GPU-8932f937``."""
    from fikit.protocol import gpu_named

    gpu = gpu_named(text)
    if gpu is None:
        raise ValueError(f"{text!r} is no GPU: write it like 0 or GPU-8932f937")
    return gpu


def parse_signal(text: str) -> int:
    """The number of ``TERM``, ``SIGTERM`` or ``15``."""
    if text.isascii() and text.isdigit() and len(text) < 3 and 1 <= int(text) <= 64:
        return int(text)
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    try:
        return int(signals.Signals[name])
    except KeyError:
        raise ValueError(f"{text!r} is no signal: write it like TERM, SIGINT or 9") from None


if TYPE_CHECKING:
    Parameter = click.ParamType[Any]
else:  # generic since click 8.4 only
    Parameter = click.ParamType


class _Parsed(Parameter):
    """A click type made of a parsing function that raises ValueError."""

    def __init__(self, name: str, parse: Callable[[str], Any], words: Sequence[str] = ()) -> None:
        self.name = name
        self._parse = parse
        self._words = words
        """What shells offer of it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The parsed value; a usage error where it does not parse."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The words that it begins."""
        return [CompletionItem(word) for word in self._words if word.startswith(incomplete)]


MEMORY: Final = _Parsed("size", parse_memory)
OUTPUT_LIMIT: Final = _Parsed("size", parse_output_limit)
DURATION: Final = _Parsed("duration", parse_duration)
PRIORITY: Final = _Parsed("priority", parse_priority, ("high", "normal", "low"))
GRACE: Final = _Parsed("duration", parse_grace)
NAME: Final = _Parsed("text", parse_name)
GPU: Final = _Parsed("gpu", parse_gpu)
GPUS: Final = _Parsed("gpus", parse_gpus, ("all",))
SIGNAL: Final = _Parsed("signal", parse_signal, [each.name.removeprefix("SIG") for each in signals.Signals])


def size_text(count: int) -> str:
    """``8.0G`` for 8589934592; ``-`` for nothing."""
    if count == 0:
        return "-"
    amount = float(count)
    for unit in ("B", "K", "M", "G"):
        shown = f"{amount:.0f}" if unit == "B" or amount >= 100 else f"{amount:.1f}"
        if float(shown) < 1024:
            return f"{shown}{unit}"
        amount /= 1024
    return f"{amount:.1f}T"


def duration_text(seconds: float) -> str:
    """``1.2ms``, ``3.4s``, ``5m10s``, ``2h05m`` or ``3d04h``."""
    if seconds <= 0:
        return "-"
    if seconds < _AS_A_MINUTE:
        for factor, unit, least in _PARTS:
            if seconds * factor >= least:
                return f"{seconds * factor:.1f}{unit}"
        return f"{seconds * 1e9:.0f}ns"
    minutes, rest = divmod(max(int(seconds), 60), 60)
    hours, minutes = divmod(minutes, 60)
    if hours == 0:
        return f"{minutes}m{rest:02}s"
    if hours < 24:
        return f"{hours}h{minutes:02}m"
    return f"{hours // 24}d{hours % 24:02}h"
