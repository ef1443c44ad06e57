"""The vocabulary that every part of the protocol uses."""

from __future__ import annotations

import re
from typing import Annotated, Final

from msgspec import Meta, Struct

PROTOCOL_VERSION: Final = 1

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Identifier = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,63}\Z")]
Level = Annotated[int, Meta(ge=0, le=9)]
Bytes = Annotated[int, Meta(ge=0, le=1 << 62)]
Count = Annotated[int, Meta(ge=0, le=1 << 62)]
KernelKey = Annotated[str, Meta(pattern=r"^[0-9a-f]{1,16}\Z")]
GpuUuid = Annotated[str, Meta(pattern=r"^GPU-[0-9a-f-]{1,36}\Z")]

PRIORITIES: Final[dict[str, int]] = {"high": 0, "normal": 5, "low": 9}


def priority_level(text: str) -> int:
    """The level 0 (highest) to 9 that ``high``, ``normal``, ``low`` or a digit names."""
    if text in PRIORITIES:
        return PRIORITIES[text]
    if len(text) == 1 and text.isascii() and text.isdigit():
        return int(text)
    raise ValueError(f"priority {text!r} is none of high, normal, low, 0 to 9")


def gpu_named(text: str) -> int | str | None:
    """A GPU by its index, or by how its UUID begins, or by all of that behind MIG-; None: it is neither."""
    if re.fullmatch("[0-9]{1,9}", text):
        return int(text)
    uuid = re.fullmatch("GPU-([0-9a-fA-F-]{1,36})|MIG-([0-9a-fA-F-]{36})", text)
    return f"GPU-{(uuid[1] or uuid[2]).lower()}" if uuid else None


def priority_name(level: int) -> str:
    """``high``, ``normal`` or ``low`` where a level has a name, else its digit."""
    return next((name for name, number in PRIORITIES.items() if number == level), str(level))


class Request(
    Struct, tag_field="type", forbid_unknown_fields=True, omit_defaults=True, frozen=True, kw_only=True
):
    """What a client sends."""


class Reply(Struct, tag_field="type", frozen=True, kw_only=True):
    """What the daemon answers."""
