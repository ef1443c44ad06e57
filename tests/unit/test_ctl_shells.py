"""What shells complete a line of fikitctl's to, asked of themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

BASH: Final = """
source ./script
COMP_LINE=$1 COMP_POINT=${#1}
_fikitctl_completion fikitctl 2> /dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH: Final = """
compdef() { }
source ./script
words=("${(@Q)${(z)1}}")
[[ $1 == *" " ]] && words+=("")
CURRENT=$#words PREFIX=$words[-1]
compset() { IPREFIX=${PREFIX%%=*}=; PREFIX=${PREFIX#*=} }
compadd() { [[ " $* " == *" -U "* ]] && IPREFIX=; printf '%s\\n' $IPREFIX${^plain:-$completions} }
_describe() { printf '%s\\n' $described }
_path_files() { printf '%s\\n' "$* of $PREFIX" }
_fikitctl_completion
"""
FISH: Final = "source ./script; complete -C $argv[1]"


def completed(place: Path, line: str, shell: str, *, path: str = "") -> list[str]:
    """What the shell offers in ``place``."""
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    code = f"import sys; sys.path[:] = {sys.path!r}; from fikitctl.main import main; main()"
    (place / "code").write_text(code)
    (place / "bin").mkdir()
    program = place / "bin" / "fikitctl"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P {place}/code "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{place}/bin:{path or os.environ['PATH']}",
        "HOME": str(place),
        "LC_ALL": "C.UTF-8",
    }
    script = subprocess.run(
        [program, "completion", shell], env=environment, capture_output=True, text=True, check=True
    )
    (place / "script").write_text(script.stdout)
    command = {"bash": ["--norc", "-c", BASH, "bash"], "zsh": ["-fc", ZSH, "zsh"], "fish": ["-Nc", FISH]}
    program_path = shutil.which(shell)
    assert program_path is not None
    ended = subprocess.run(
        [program_path, *command[shell], line],
        env=environment, cwd=place, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.stderr == ""
    return ended.stdout.splitlines()


@pytest.mark.parametrize(
    ("shell", "offered"), [("bash", ["high"]), ("zsh", ["--priority=high"]), ("fish", ["--priority=high"])]
)
def test_what_follows_an_equals_sign_is_completed(tmp_path: Path, shell: str, offered: list[str]) -> None:
    assert completed(tmp_path, "fikitctl run --priority=h", shell) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_variable_is_no_command(tmp_path: Path, shell: str) -> None:
    assert completed(tmp_path, "fikitctl run -e A=b -n 'two words' -p n", shell) == ["normal"]


@pytest.mark.parametrize(
    ("shell", "offered"), [("zsh", ["-f of ./so"]), ("fish", ["--socket=./socket"])]
)  # bash looks for files by itself
def test_a_file_behind_an_equals_sign_is_completed(tmp_path: Path, shell: str, offered: list[str]) -> None:
    (tmp_path / "socket").touch()
    assert completed(tmp_path, "fikitctl ps --socket=./so", shell) == offered


def test_fish_takes_commas(tmp_path: Path) -> None:
    assert completed(tmp_path, "fikitctl ps --format id,sta", "fish") == ["id,started", "id,state"]


def test_fish_shows_what_stands_behind_a_comma(tmp_path: Path) -> None:
    (line,) = completed(tmp_path, "fikitctl eve", "fish")
    assert line == "events\tPrint events as they happen, until Ctrl-C."


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_command_begins_with_a_program(tmp_path: Path, shell: str) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, mode in (("trainer", 0o755), ("trains-not", 0o644)):
        (programs / name).touch()
        (programs / name).chmod(mode)
    path = f"{programs}:{os.environ['PATH']}"
    assert completed(tmp_path, "fikitctl run -- traine", shell, path=path) == ["trainer"]
