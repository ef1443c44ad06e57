"""The README's tour of five minutes, command by command as it is printed there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.integration.conftest import ROOT
from tests.integration.end_to_end.conftest import Served

BEFORE: Final = ("make install", ". .venv/bin/activate", "fikitd &")
"""What the test has done already."""
ENDLESS: Final = ("top", " -f")
"""Verbs that go on until somebody interrupts them: given a moment."""


def tour() -> list[str]:
    """The commands, a here-document with the one that it belongs to."""
    section = (ROOT / "README.md").read_text().partition("## Five minutes\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", section, re.MULTILINE)
    lines = [line.removeprefix("    ").rstrip() for block in blocks for line in block.splitlines()]
    commands: list[str] = []
    for line in lines:
        if commands and "<< 'END'" in commands[-1] and not commands[-1].endswith("\nEND"):
            commands[-1] += f"\n{line}"
        elif command := line.partition("  #")[0].strip():
            commands.append(command)
    return commands


def test_every_command_of_the_tour_works(place: Path) -> None:
    commands = tour()
    assert commands[: len(BEFORE)] == list(BEFORE)
    daemon = Served(place)
    daemon.start()
    binaries = place / "bin"
    binaries.mkdir()
    fikitctl = "-P -c 'from fikitctl.main import main; main()'"
    for name, arguments in (("fikitctl", fikitctl), ("python", "")):
        (binaries / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        (binaries / name).chmod(0o755)
    environment = daemon.environment() | {"PATH": f"{binaries}:{os.environ['PATH']}"}
    try:
        for command in commands[len(BEFORE) :]:
            endless = any(part in f"{command} " for part in ENDLESS)
            shell = ["timeout", "--foreground", "1.5"] if endless else []
            done = subprocess.run(
                [*shell, "bash", "-c", command],
                env=environment, cwd=place, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=60, check=False,
            )  # fmt: skip
            allowed = (0, 124) if endless else (0, 1) if command == "fikitctl doctor" else (0,)
            assert done.returncode in allowed, (command, done.stdout, done.stderr)
            assert "Traceback" not in done.stderr
        assert "state         killed" in done.stdout
    finally:
        daemon.clear()
