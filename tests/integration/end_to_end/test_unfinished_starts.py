"""Daemons that are killed while an executor starts: the next one finds it, so that nobody is left over."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest
import trio
from fikit import protocol as p

from fikitd.processes import Process
from tests.integration.conftest import DEADLINE_SECONDS, Client, Daemon
from tests.integration.end_to_end.conftest import SETTINGS

HELD_UP = """
import os
from fikitd.executor import process, set_up
def held_up(begin):
    def begin_later(*arguments):
        if os.path.exists(begun):
            with open(begun, "w") as told:
                told.write(str(os.getpid()))
            open(gate).read()
        return begin(*arguments)
    return begin_later
{held_up}
from fikitd.executor.__main__ import main
main()
"""
BEFORE_IT_LISTENS = "process.listen = held_up(process.listen)"
AFTERWARDS = "set_up.set_up = held_up(set_up.set_up)"


@pytest.fixture
def starting(stopped_daemon: Daemon, request: pytest.FixtureRequest) -> int:
    """The executor that an earlier daemon was starting when it was killed."""
    gate, begun = stopped_daemon.place / "gate", stopped_daemon.place / "begun"
    for path in (gate, begun):
        os.mkfifo(path)
    code = f"begun, gate = {os.fspath(begun)!r}, {os.fspath(gate)!r}{HELD_UP.format(held_up=request.param)}"
    command = json.dumps([sys.executable, "-P", "-c", code])
    stopped_daemon.configure(settings=SETTINGS.replace("[executor]", f"[executor]\ncommand = {command}"))
    stopped_daemon.start().client().send(p.OpenSession(name="unlucky"))
    pid = int(begun.read_text())
    stopped_daemon.stop(signal.SIGKILL)
    begun.unlink()
    return pid


def greeted(daemon: Daemon) -> Client:
    """By a daemon that begins."""
    while True:
        with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
            probe.connect(str(daemon.socket))
            return daemon.client()


def executors(daemon: Daemon) -> list[int]:
    """Whatever was started as one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            words = (process / "cmdline").read_text().split("\0")
            found += [int(process.name)] if f"{daemon.place}/run/board-0" in words else []
    return found


@pytest.mark.parametrize("starting", [AFTERWARDS], indirect=True)
def test_an_executor_that_was_being_started_serves_the_next_daemon(
    stopped_daemon: Daemon, starting: int
) -> None:
    with ThreadPoolExecutor() as threads:
        started = threads.submit(stopped_daemon.start)
        client = greeted(stopped_daemon)
        (stopped_daemon.place / "gate").write_text("open")
        started.result()
    assert isinstance(client.ask(p.OpenSession(name="next")), p.SessionOpened)
    assert executors(stopped_daemon) == [starting]


@pytest.mark.parametrize("starting", [AFTERWARDS], indirect=True)
def test_an_executor_that_hangs_as_it_starts_is_ended_by_the_next_daemon(
    stopped_daemon: Daemon, starting: int
) -> None:
    settings = stopped_daemon.config.read_text()
    stopped_daemon.configure(
        settings=settings.replace("[executor]", "[executor]\nunresponsive_seconds = 1.0")
    )
    stopped_daemon.start()
    assert starting not in executors(stopped_daemon)


@pytest.mark.parametrize("starting", [BEFORE_IT_LISTENS], indirect=True)
def test_an_executor_that_the_next_daemon_could_not_find_ends_by_itself(
    stopped_daemon: Daemon, starting: int
) -> None:
    stopped_daemon.start()
    with closing(Process.by_pid(starting)) as process:
        assert process is not None
        (stopped_daemon.place / "gate").write_text("open")
        trio.run(ended, process)
    assert isinstance(stopped_daemon.client().ask(p.OpenSession(name="next")), p.SessionOpened)


async def ended(process: Process) -> None:
    with trio.fail_after(DEADLINE_SECONDS):
        await process.wait()
