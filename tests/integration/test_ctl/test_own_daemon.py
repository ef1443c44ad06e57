"""A daemon for the length of a block leaves nothing behind: no process, no file, whatever ends the block.

The daemon here is a script that behaves like the real one where it matters: it reports READY=1, has an
executor in a session of its own, and ends without it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.integration.conftest import heed_hangups

DAEMON: Final = textwrap.dedent(
    """
    import os, signal, socket, subprocess, sys
    ignoring = "import signal as s; s.signal(s.SIGTERM, s.SIG_IGN); print(1, flush=True); s.pause()"
    executor = subprocess.Popen(
        [sys.executable, "-c", ignoring], start_new_session=True, stdout=subprocess.PIPE
    )
    executor.stdout.readline()
    with open(os.environ["PIDS"], "w") as pids:
        print(os.getpid(), executor.pid, file=pids)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        ready.sendto(b"STATUS=starting", os.environ["NOTIFY_SOCKET"])
        ready.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
    signal.pause()
    """
)
USER: Final = textwrap.dedent(
    """
    import select, sys
    from fikitctl import own_daemon
    own_daemon._STOP_SECONDS = 0.2
    with own_daemon.own_daemon("sim", [sys.executable, "-c", sys.argv[1]]) as socket:
        print(socket, flush=True)
        # No endless wait: a signal just before it would be handled after it.
        while not select.select([sys.stdin], [], [], 0.05)[0]:
            pass
    """
)


def start(daemon: str, directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", USER, daemon],
        env=os.environ | {"TMPDIR": str(directory), "PIDS": str(directory / "pids")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_hangups,
    )


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("number", "exit_code"),
    [(None, 0), (signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_nothing_is_left_behind(tmp_path: Path, number: int | None, exit_code: int) -> None:
    with start(DAEMON, tmp_path) as user:
        assert user.stdin is not None
        assert user.stdout is not None
        assert user.stderr is not None
        place = Path(user.stdout.readline().strip()).parent
        assert place.parent == tmp_path
        settings = tomllib.loads((place / "fikitd.toml").read_text())
        assert settings["device"]["choice"] == "sim"
        assert settings["daemon"]["socket"] == str(place / "fikitd.sock")
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        assert all(map(alive, pids))
        if number is None:
            user.stdin.write("\n")
            user.stdin.flush()
        else:
            user.send_signal(number)
        assert user.wait(20) == exit_code
        assert number == signal.SIGINT or user.stderr.read() == ""
    assert not any(map(alive, pids))
    assert [entry.name for entry in tmp_path.iterdir()] == ["pids"]


def test_a_daemon_that_does_not_start(tmp_path: Path) -> None:
    with start("raise SystemExit('no device here')", tmp_path) as user:
        assert user.stderr is not None
        said = user.stderr.read()
    assert "the daemon ended; its log ends with:\nno device here" in said
    assert list(tmp_path.iterdir()) == []


def test_a_daemon_that_dies_meanwhile_is_quoted(tmp_path: Path) -> None:
    failing = textwrap.dedent(
        """
        import sys
        from fikitctl import failures, own_daemon
        own_daemon._STOP_SECONDS = 0.2
        with own_daemon.own_daemon("sim", [sys.executable, "-c", sys.argv[1]]):
            raise failures.lost(EOFError("end of stream"))
        """
    )
    dying = "import sys; print('out of luck', file=sys.stderr, flush=True)\n" + DAEMON
    said = subprocess.run(
        [sys.executable, "-c", failing, dying],
        env=os.environ | {"TMPDIR": str(tmp_path), "PIDS": str(tmp_path / "pids")},
        capture_output=True,
        text=True,
        check=False,
    ).stderr
    assert "the daemon went away: end of stream; its log ends with:\nout of luck" in said


def test_what_runs_in_a_job_of_another_daemon_is_in_none_of_this(tmp_path: Path) -> None:
    inside = textwrap.dedent(
        """
        import os, sys
        from fikitctl import own_daemon
        own_daemon._STOP_SECONDS = 0.2
        with own_daemon.own_daemon("sim", [sys.executable, "-c", sys.argv[1]]):
            print(os.environ.get("FIKIT_JOB"))
        print(os.environ.get("FIKIT_JOB"))
        """
    )
    places = {"TMPDIR": str(tmp_path), "PIDS": str(tmp_path / "pids"), "FIKIT_JOB": "job-5"}
    command = [sys.executable, "-c", inside, DAEMON]
    said = subprocess.run(command, env=os.environ | places, capture_output=True, text=True, check=True)
    assert said.stdout == "None\njob-5\n"
