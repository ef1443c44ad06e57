"""What callgrind counted: instructions by object file and function.

Only what a function itself executed is summed, so that a callee's share can be left out by its object: the
null driver stands where libcuda would be, and is nobody's cost.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_POSITION = re.compile(r"^(ob|fn|cob|cfn)=\((\d+)\)(?: (.*))?$")


class Place(NamedTuple):
    """A function in an object file."""

    object: str
    function: str


def parse(text: str, with_callees: bool = False) -> Counter[Place]:
    """Instructions of each function's own, or with those of what it called, from a callgrind.out file."""
    names: dict[tuple[str, str], str] = {}
    costs: Counter[Place] = Counter()
    current = {"ob": "", "fn": ""}
    inclusive = False
    for line in text.splitlines():
        if found := _POSITION.match(line):
            kind, number, name = found.groups()
            table = kind.removeprefix("c")
            if name is not None:
                names[table, number] = name
            if kind in current:
                current[kind] = names.get((table, number), "")
        elif line.startswith("calls="):
            inclusive = True  # the next line is what the callee cost: it has lines of its own
        elif line[:1] in "+-*0123456789" and line:
            if with_callees or not inclusive:
                costs[Place(Path(current["ob"]).name, current["fn"])] += int(line.split()[1])
            inclusive = False
    return costs


def run(
    program: list[str],
    collected: str,
    *,
    environment: Mapping[str, str] | None = None,
    with_callees: bool = False,
) -> Counter[Place]:
    """Run a program under callgrind; collect only within functions of that pattern."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = [
            "valgrind",
            "--tool=callgrind",
            f"--toggle-collect={collected}",
            f"--callgrind-out-file={out}",
        ]
        done = subprocess.run(
            [*command, *program], capture_output=True, text=True, check=False, env=environment
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(program)}: {done.stderr[-2000:]}")
        return parse(out.read_text(), with_callees)
