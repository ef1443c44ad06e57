"""What the system refuses the daemon, or fails at, for a while: that alone is lost which needed it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from fikit import protocol as p

from fikitd.errors import Unavailable
from fikitd.record_lock import holder
from fikitd.store import Store
from tests.integration.conftest import Client, Daemon
from tests.integration.test_daemon_gpus import stopped
from tests.integration.test_daemon_jobs import submit, until, wait_for

REFUSES = """
import functools, os, types, {module} as place
{within}
def refuse(real, *arguments, **named):
    if os.path.exists({refused!r}):
        raise OSError({number}, os.strerror({number}))
    return real(*arguments, **named)
place.{call} = functools.partial(refuse, place.{call})
"""


def refused(daemon: Daemon, module: str, call: str, number: int = errno.EIO) -> Path:
    """While this file is there, what the daemon's module calls so fails, and elsewhere it does not."""
    library, dot, _ = call.partition(".")
    within = f"place.{library} = types.SimpleNamespace(**vars(place.{library}))" if dot else ""
    path = daemon.place / "refused"
    daemon.prologue += REFUSES.format(
        module=module, within=within, call=call, number=number, refused=str(path)
    )
    return path


def reported(client: Client) -> dict[str, p.Check]:
    return {each.name: each for each in client.ask(p.Doctor()).checks}


def test_changes_that_are_not_told_are_looked_for(stopped_daemon: Daemon) -> None:
    """The daemon ended with the task that reads them, for all."""
    refusing = refused(stopped_daemon, "fikitd.file_watch", "os.read")
    client = stopped_daemon.start().client()
    gate = stopped_daemon.place / "gate"
    refusing.touch()
    job = client.ask(submit(f"while ! test -e {gate}; do sleep 0.01; done; echo out; exec sleep 100")).job.job
    client.pid_of(job)
    gate.touch()
    assert until(client, job, b"out\n")
    refusing.unlink()
    assert client.ask(p.Kill(target=job, signal=signal.SIGKILL)) == p.Done()
    assert wait_for(client, job).state == "killed"


def test_the_log_goes_on_where_standard_error_cannot_be_looked_at(stopped_daemon: Daemon) -> None:
    refusing = refused(stopped_daemon, "fikitd.log", "os.fstat")
    daemon = stopped_daemon.start()
    assert daemon.process is not None
    client = daemon.client()
    client.subscribe()
    refusing.touch()
    daemon.process.send_signal(signal.SIGHUP)
    while (event := client.receive()[1]).kind != "reloaded":
        pass
    assert '"reloaded"' in daemon.log.read_text(), event


def test_the_doctor_names_what_cannot_be_looked_at(stopped_daemon: Daemon) -> None:
    """A disk that fails is what it is asked for: it was a defect of the daemon, and no check was shown."""
    refusing = refused(stopped_daemon, "fikitd.doctor", "shutil.disk_usage")
    client = stopped_daemon.start().client()
    whole = reported(client)
    refusing.touch()
    found = reported(client)
    assert (found["state directory"].ok, "Input/output error" in found["state directory"].detail) == (
        False,
        True,
    )
    assert found["new work"] == whole["new work"]
    assert found["configuration"] == whole["configuration"]


@pytest.mark.parametrize("name", ["start_time", "depth_of"])
def test_who_asks_is_told_what_the_system_refuses(stopped_daemon: Daemon, name: str) -> None:
    refusing = refused(stopped_daemon, "fikitd.api.requests.jobs", name)
    client: Any = stopped_daemon.start().client()
    asked = p.Submit(command=["true"], environment={}, directory="/", foreground=True)
    refusing.touch()
    failure = client.ask(asked)
    assert (failure.code, "Input/output error" in failure.message) == ("unavailable", True)
    refusing.unlink()
    assert isinstance(client.ask(asked), p.Submitted)


CONTROL_FAILS = """
import errno, os, types, fikitd.jobs.files as files
files.os, left = types.SimpleNamespace(**vars(os)), list({numbers!r})
def opened(path, *rest, **named):
    if os.fspath(path).endswith("/control") and left:
        number = left.pop()
        raise OSError(number, os.strerror(number), os.fspath(path))
    return os.open(path, *rest, **named)
files.os.open = opened
"""


def test_a_job_whose_end_cannot_be_read_says_so(stopped_daemon: Daemon) -> None:
    """It was said that its runner had left none."""
    refusing = refused(stopped_daemon, "fikitd.jobs.running", "files.read")
    client = stopped_daemon.start().client()
    gate = stopped_daemon.place / "gate"
    os.mkfifo(gate)
    job = client.ask(submit(f"read line < {gate}; exit 3")).job.job
    client.pid_of(job)
    refusing.touch()
    gate.write_bytes(b"\n")
    lost = wait_for(client, job)
    assert (lost.state, lost.exit_code) == ("lost", None)
    assert lost.reason.startswith("how it ended cannot be read: [Errno 5] Input/output error")


@pytest.mark.parametrize("numbers", [[errno.EMFILE, errno.ENFILE], [errno.EIO]])
def test_a_job_is_killed_though_its_runner_cannot_be_asked_at_once(
    stopped_daemon: Daemon, numbers: list[int]
) -> None:
    """It went on, and who had killed it was told that all was done."""
    stopped_daemon.prologue = CONTROL_FAILS.format(numbers=numbers)
    client = stopped_daemon.start().client()
    job = client.ask(submit("exec sleep 1000")).job.job
    client.pid_of(job)
    assert client.ask(p.Kill(target=job)) == p.Done()
    assert wait_for(client, job).state == "killed"


def test_a_job_is_killed_though_its_runner_reads_nothing(stopped_daemon: Daemon) -> None:
    client = stopped_daemon.start().client()
    job = client.ask(submit("exec sleep 1000")).job.job
    pid = client.pid_of(job)
    place = stopped_daemon.place / "state" / "jobs" / job
    control = os.open(place / "control", os.O_RDWR | os.O_NONBLOCK)
    runner = holder(place / "lock")
    assert runner is not None
    with stopped(runner):
        for text in (b"\n" * 4096, b"\n"):
            with pytest.raises(BlockingIOError):
                while True:
                    os.write(control, text)
        assert client.ask(p.Kill(target=job)) == p.Done()
        with open(f"/proc/{pid}/stat") as ended:
            while " Z " not in ended.read():
                ended.seek(0)
    os.close(control)
    assert wait_for(client, job).state == "killed"


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_state_file_that_can_only_be_read_is_refused_at_once(
    place: Path, as_user: Callable[[int, Callable[[], str]], str], suffix: str
) -> None:
    """SQLite opens it so by itself, as for want of a descriptor: nothing was ever written again."""
    place.chmod(0o777)

    async def opened() -> str:
        await Store.open(place / "state.db")
        (place / f"state.db{suffix}").chmod(0o400)
        try:
            await Store.open(place / "state.db")
        except Unavailable as refusal:
            return refusal.message
        return "opened"

    told = as_user(65534, lambda: trio.run(opened))
    assert told == f"cannot open the state file {place}/state.db: it could be opened for reading alone"


@pytest.mark.parametrize(
    ("module", "call", "told"),
    [
        ("fikitd.api.listener", "socket.socket", "fikitd: Too many open files\n"),
        ("fikitd.configuration_files", "tomllib.loads", "fikitd: {}: Too many open files\n"),
        ("fikitd.executor.supervisor", "left_behind", "fikitd: Input/output error\n"),
    ],
)
def test_what_keeps_it_from_starting_is_told_without_pythons_number(
    stopped_daemon: Daemon, module: str, call: str, told: str
) -> None:
    number = errno.EIO if "output error" in told else errno.EMFILE
    refused(stopped_daemon, module, call, number).touch()
    command, environment = stopped_daemon.command(), stopped_daemon.environment()
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (1, told.format(stopped_daemon.config))
    stopped_daemon.prologue = ""
