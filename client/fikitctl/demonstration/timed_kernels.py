"""Kernels that only wait, as PTX: one for each recorded name.

One for each, so that whoever tells kernels apart by their function sees as many as were recorded, and a
trace shows names that one recognises. They count the multiprocessor's clock: %globaltimer may move in
steps longer than the shortest kernels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_LONGEST_NAME: Final = 80
_HEADER: Final = """\
.version 7.0
.target sm_75
.address_size 64
"""
_ENTRY: Final = """
.visible .entry {name}(.param .u64 cycles)
{{
    .reg .b64 %rd<5>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [cycles];
    mov.u64 %rd2, %clock64;
WAIT:
    mov.u64 %rd3, %clock64;
    sub.s64 %rd4, %rd3, %rd2;
    setp.lt.s64 %p1, %rd4, %rd1;
    @%p1 bra WAIT;
    ret;
}}
"""


def entry_names(recorded: Iterable[str]) -> dict[str, str]:
    """What the entry of each recorded name is called: its plain name, and a number that sets it apart."""
    distinct = dict.fromkeys(recorded)
    return {name: f"{_plain(name)}_{number}" for number, name in enumerate(distinct)}


def module_text(entries: Iterable[str]) -> str:
    """A module with those entries, each taking the clock cycles to wait."""
    return _HEADER + "".join(_ENTRY.format(name=name) for name in entries)


def _plain(name: str) -> str:
    """A C++ name without its result, namespaces, template arguments and parameters, as an identifier."""
    name = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    name = re.split(r"[<(]", name, maxsplit=1)[0].rpartition("::")[2]
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)[:_LONGEST_NAME]
    return plain if re.match(r"[A-Za-z]", plain) else f"kernel_{plain}"
