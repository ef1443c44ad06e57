"""The state directory has room for few more files, its disk fails, or memory is short: nothing is lost."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from fikit import protocol as p

from tests.integration.conftest import Client, Daemon
from tests.integration.test_daemon_jobs import submit, wait_for
from tests.integration.test_daemon_races import RUNNER
from tests.integration.test_kept_jobs import held


def most_files(disk: Path, number: int) -> None:
    """0: as many as one likes."""
    subprocess.run(["mount", "-o", f"remount,nr_inodes={number}", str(disk)], check=True)


@pytest.mark.parametrize("left", [2, 3, 6])
def test_jobs_wait_until_their_runners_may_make_their_files(
    stopped_daemon: Daemon, small_disk: Path, left: int
) -> None:
    most_files(small_disk, 1000)  # else they are not counted
    stopped_daemon.configure("[jobs]\nmax_running = 1\n")
    client = stopped_daemon.start().client()
    assert isinstance(client.ask(p.OpenSession(name="first")), p.SessionOpened)  # its executor has its log
    gate = stopped_daemon.place / "gate"
    first = client.ask(held(gate)).job.job
    waits = client.ask(submit("echo out; exit 3")).job.job
    client.pid_of(first)
    room = os.statvfs(small_disk)
    most_files(small_disk, room.f_files - room.f_ffree + left)
    gate.write_bytes(b"\n")
    assert wait_for(client, first).exit_code == 0
    while "jobs run, " in (told := client.ask(p.Show(target=waits)).job).reason:
        pass
    assert (told.state, "No space left" in told.reason) == ("queued", True), told.reason
    most_files(small_disk, 1000)
    assert wait_for(client, waits).exit_code == 3
    assert client.ask(p.ReadLogs(job=waits)).data == b"out\n"


FAILING_DISK = RUNNER.format(changed="os.fsync = lambda _: os.close(-1)")


def test_jobs_run_and_tell_how_they_end_on_a_disk_that_fails_to_keep_it(stopped_daemon: Daemon) -> None:
    """As one behind a network may, whose quota is reached."""
    stopped_daemon.prologue = f"exec({FAILING_DISK!r}); "
    client = stopped_daemon.start().client()
    ended = wait_for(client, client.ask(submit("echo out; exit 3")).job.job)
    assert (ended.state, ended.exit_code, ended.reason) == ("failed", 3, "")


NO_MEMORY = """
import os, sqlite3
connect = sqlite3.connect
class Connection(sqlite3.Connection):
    def execute(self, statement, *values):
        if statement.startswith("INSERT") and os.path.exists(short):
            open(short + "-met", "w").close()
            raise MemoryError
        return super().execute(statement, *values)
sqlite3.connect = lambda *places, **named: connect(*places, factory=Connection, **named)
"""
"""As Python says that SQLite finds none."""


def test_a_job_ends_while_there_is_no_memory_for_the_state_file(stopped_daemon: Daemon) -> None:
    short = stopped_daemon.place / "short"
    stopped_daemon.prologue = f"exec({f'short = {os.fspath(short)!r}{NO_MEMORY}'!r}); "
    client = stopped_daemon.start().client()
    gate = stopped_daemon.place / "gate"
    first = client.ask(held(gate, "exit 3")).job.job
    client.pid_of(first)
    short.touch()
    refused = client.ask(submit("true"))
    assert "out of memory" in refused.message
    (met := short.with_name("short-met")).unlink()
    gate.write_bytes(b"\n")
    assert wait_for(client, first).exit_code == 3
    while not met.exists():
        pass
    short.unlink()
    assert wait_for(client, client.ask(submit("exit 4")).job.job).exit_code == 4


SLOW_DISK = """
import sqlite3
connect = sqlite3.connect
class Connection(sqlite3.Connection):
    def execute(self, statement, *values):
        if "INTO sessions" in statement:
            open(gate).read()
        return super().execute(statement, *values)
sqlite3.connect = lambda *places, **named: connect(*places, factory=Connection, **named)
import fikitd.doctor, fikitd.sessions
fikitd.doctor.SLOW_SECONDS = fikitd.doctor.LOOK_SECONDS = 0.5
fikitd.sessions.BESIDE_START_SECONDS = -58.0
"""


def test_who_waits_for_a_slow_disk_is_told_so(stopped_daemon: Daemon) -> None:
    """It was said that no executor took the session, and nothing was found wrong."""
    gate = stopped_daemon.place / "gate"
    os.mkfifo(gate)
    stopped_daemon.prologue = f"exec({f'gate = {os.fspath(gate)!r}{SLOW_DISK}'!r}); "
    client, other = stopped_daemon.start().client(), stopped_daemon.client()
    job = client.ask(submit("sleep 1000")).job.job
    while client.ask(p.GetStatus()).gpus[0].executors == 0:  # which starts with the job
        pass
    client.send(p.OpenSession(name="waits", job=job))
    waited = 0
    while waited < 3:  # longer than who asked for the session
        if not (check := checked(other, "state file")).ok:
            (told,) = re.findall(r"what is to be written has waited for (\d+) s", check.detail)
            waited = int(told)
    gate.write_text("")
    refused = client.receive()[1]
    assert refused.message == "the session was not noted in the state file within 2 s"
    while not checked(other, "state file").ok:  # it is being written now
        pass
    stopped_daemon.prologue = ""


FILE_SERVER_DOWN = """
import os
from pathlib import Path
opened = Path.open
def silent(self, *more, **named):
    if self.parent.name == "state":
        opened(gate).read()
    return opened(self, *more, **named)
Path.open = silent
import fikitd.doctor
fikitd.doctor.LOOK_SECONDS = 0.5
"""


def test_a_directory_that_does_not_answer_is_named(stopped_daemon: Daemon) -> None:
    gate = stopped_daemon.place / "gate"
    os.mkfifo(gate)
    stopped_daemon.prologue = f"exec({f'gate = {os.fspath(gate)!r}{FILE_SERVER_DOWN}'!r}); "
    client = stopped_daemon.start().client()
    check = checked(client, "state directory")
    assert (check.ok, check.detail) == (False, "it did not answer within 0.5 s")
    assert checked(client, "runtime directory writable").ok
    gate.write_text("")
    stopped_daemon.prologue = ""


def test_a_disk_that_fails_to_keep_what_is_written_is_named(stopped_daemon: Daemon) -> None:
    """Who is refused for it is sent to the doctor."""
    stopped_daemon.start().stop()
    stopped_daemon.prologue = "import os; os.fsync = lambda _: os.close(-1); "
    client = stopped_daemon.start().client()
    assert client.ask(submit("true")).hint == "'fikitctl doctor' looks at the state directory"
    check = checked(client, "state directory writable")
    state = stopped_daemon.place / "state"
    assert (check.ok, check.detail) == (False, f"{state}: Bad file descriptor")
    stopped_daemon.prologue = ""


def checked(client: Client, name: str) -> p.Check:
    """What is found of it."""
    (check,) = [each for each in client.ask(p.Doctor()).checks if each.name == name]
    return check
