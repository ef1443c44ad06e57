"""Ctrl-C while a program is still being loaded: a person who mistyped is quick."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTED = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nsignal.pause()\n"


def heed_interrupts() -> None:
    """Which who runs the tests in the background ignores."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("program", ["fikitctl", "fikitd"])
def test_ctrl_c_while_it_imports(program: str, tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text(INTERRUPTED)
    command = Path(sys.executable).with_name(program)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(
        [command],
        env=environment,
        capture_output=True,
        timeout=30,
        check=False,
        preexec_fn=heed_interrupts,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, b"", b"")
