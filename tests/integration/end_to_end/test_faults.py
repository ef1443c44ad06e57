"""Deaths: a tenant's, an executor's, the daemon's, and faults of kernels. Tested by killing."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import fikit
import pytest
from fikit import protocol as p

from tests.integration.conftest import Client, Daemon
from tests.integration.end_to_end.conftest import PTX, SETTINGS, listener

Connect = Callable[..., fikit.Session]
Program = Callable[[str], subprocess.Popen[str]]

HOLD_MEMORY = """
session = fikit.connect(name="holder")
memory = session.allocate(256 << 20)
memory.fill(1)
session.synchronize()
print("ready", flush=True)
sys.stdin.read()
"""
COUNT = """
session = fikit.connect(name="counter", priority=sys.argv[1] if len(sys.argv) > 1 else "normal")
increment = session.load(PTX).kernel("increment")
memory = session.allocate(4)
memory.fill(0)
for turn in range(1_000_000):
    for _ in range(20):
        increment.launch(memory, grid=1, block=1)
    session.synchronize()
    print(int.from_bytes(memory.read(), "little"), flush=True)
"""


def wait_for(client: Client, what: Callable[[p.Sessions], bool]) -> p.Sessions:
    """The sessions once they are so; an event follows each change, so this asks no more often than that."""
    client.subscribe()
    while True:
        sessions: p.Sessions = client.ask(p.ListSessions())
        if what(sessions):
            return sessions
        client.receive()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.shares_daemon
def test_a_killed_tenant_leaves_nothing(daemon: Daemon, session: fikit.Session, program: Program) -> None:
    before = session.memory_information().free
    holder = program(HOLD_MEMORY)
    assert line(holder) == "ready"
    assert session.memory_information().free <= before - (256 << 20)
    watcher = daemon.client()
    watcher.subscribe()
    holder.kill()
    while watcher.receive()[1].kind != "session_ended":
        pass
    assert session.memory_information().free == before
    assert [each.name for each in watcher.ask(p.ListSessions()).sessions if each.name == "holder"] == []


def executor_pids(daemon: Daemon) -> dict[str, int]:
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text().split("\0")
        except OSError:  # it has ended
            continue
        if "fikitd.executor" in words and any(str(daemon.place) in word for word in words):
            found[words[words.index("--domain") + 1]] = int(process.name)
    return found


@pytest.mark.shares_daemon
def test_a_killed_executor_ends_its_sessions_and_no_others(daemon: Daemon, connect: Connect) -> None:
    victim, bystander = connect(name="victim"), connect(name="bystander", isolated=True)
    isolated = next(domain for domain in executor_pids(daemon) if not domain.startswith("uid-"))
    shared = next(pid for domain, pid in executor_pids(daemon).items() if domain != isolated)
    mine = victim.allocate(64)
    with bystander.allocate(64) as memory:
        memory.fill(9)
        os.kill(shared, signal.SIGKILL)
        with pytest.raises(fikit.SessionLostError) as caught:
            while True:
                mine.fill(1)
                victim.synchronize()
        assert caught.value.name == "CUDA_ERROR_LAUNCH_FAILED"
        with pytest.raises(fikit.SessionLostError):
            victim.allocate(1)
        assert memory.read() == bytes([9] * 64)
    successor = connect(name="successor")
    with successor.allocate(64) as memory:
        memory.fill(5)
        assert memory.read(1) == b"\5"


@pytest.mark.shares_daemon
def test_an_illegal_address_is_the_sticky_error_of_everybody_in_the_executor(connect: Connect) -> None:
    culprit, neighbour = connect(name="culprit"), connect(name="neighbour")
    apart = connect(name="apart", isolated=True)
    module = culprit.load(PTX)
    neighbour.synchronize()
    module.kernel("store").launch(0x10, 1, grid=1, block=1)
    for session in (culprit, neighbour):
        with pytest.raises(fikit.SessionLostError) as caught:
            while True:
                session.synchronize()
        assert caught.value.name == "CUDA_ERROR_ILLEGAL_ADDRESS"
        assert "the CUDA context was lost (seen at: " in str(caught.value)
    with apart.allocate(4) as memory:
        memory.fill(1)
        assert memory.read() == b"\1\1\1\1"
    again = connect(name="again")
    with again.allocate(4) as memory:
        memory.fill(2)
        assert memory.read() == b"\2\2\2\2"


def test_sessions_outlive_a_killed_daemon(daemon: Daemon, program: Program, connect: Connect) -> None:
    counter = program(COUNT)
    first = int(line(counter))
    daemon.stop(signal.SIGKILL)
    lost = [int(line(counter)) for _ in range(20)]  # under way while there is no daemon
    assert lost == [first + 20 * number for number in range(1, 21)]
    daemon.start()
    client = daemon.client()
    sessions = client.ask(p.ListSessions()).sessions
    assert [(each.name, each.state) for each in sessions] == [("counter", "running")]
    target = sessions[0].session
    after = [int(line(counter)) for _ in range(5)]
    assert after == [lost[-1] + 20 * number for number in range(1, 6)]
    assert client.ask(p.Pause(target=target)) == p.Done()
    assert client.ask(p.Resume(target=target)) == p.Done()
    assert int(line(counter)) > 0
    assert client.ask(p.Kill(target=target)) == p.Done()
    wait_for(client, lambda found: not found.sessions)
    with connect(name="next").allocate(4) as memory:
        memory.fill(1)
        assert memory.read(1) == b"\1"


@pytest.mark.shares_daemon
def test_the_inbox_cannot_be_written_by_a_tenant(daemon: Daemon) -> None:
    client = daemon.client()
    assert isinstance(client.ask(p.OpenSession(name="curious")), p.SessionOpened)
    _, inbox, _ = client.descriptors
    with pytest.raises(PermissionError):
        os.pwrite(inbox, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(inbox, 0)


def test_an_executor_that_has_no_descriptor_for_a_daemon_keeps_its_sessions(
    daemon: Daemon, session: fikit.Session
) -> None:
    (place,) = (daemon.place / "run").glob("x-*.sock")
    (log,) = (daemon.place / "state" / "logs").glob("x-*.log")
    executor = listener(place)
    limits = resource.prlimit(executor, resource.RLIMIT_NOFILE)
    daemon.stop(signal.SIGKILL)
    while "accept_failed" not in log.read_text():
        held = {int(each) for each in os.listdir(f"/proc/{executor}/fd")}
        free = next(number for number in range(len(held) + 1) if number not in held)
        resource.prlimit(executor, resource.RLIMIT_NOFILE, (free, limits[1]))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, suppress(BlockingIOError):
            probe.setblocking(False)
            probe.connect(str(place))
    resource.prlimit(executor, resource.RLIMIT_NOFILE, limits)
    assert [each.session for each in daemon.start().client().ask(p.ListSessions()).sessions] == [
        session.identifier
    ]
    session.synchronize()


SHORT_OF_DESCRIPTORS = """
import os, resource
from itertools import count, islice
from fikitd.executor.core import DispatchCore
attach, left = DispatchCore.attach, iter([None, 0, None, 1, None, 2, None, 3])
def short(*arguments):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if (most := next(left, None)) is not None:
        held = {int(each) for each in os.listdir("/proc/self/fd")}
        last = next(islice((each for each in count() if each not in held), most, None))
        resource.setrlimit(resource.RLIMIT_NOFILE, (last, limits[1]))
    try:
        return attach(*arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
DispatchCore.attach = short
from fikitd.executor.__main__ import main
main()
"""


def test_an_executor_that_had_no_descriptor_for_a_session_serves_the_next(
    stopped_daemon: Daemon, connect_to: Callable[..., fikit.Session]
) -> None:
    """Whether it lacked one for the session's channel or to hand that over."""
    command = json.dumps([sys.executable, "-P", "-c", SHORT_OF_DESCRIPTORS])
    stopped_daemon.configure(settings=SETTINGS.replace("[executor]", f"[executor]\ncommand = {command}"))
    stopped_daemon.start()
    first, refused = connect_to(), 0
    for _ in range(4):
        try:
            connect_to().close()
        except fikit.RefusedError:
            refused += 1
        connect_to().close()
    assert refused
    first.synchronize()


SHORT_OF_MEMORY = """
from fikitd.executor.core import DispatchCore
def short(call, answers):
    def sometimes(*arguments):
        if next(answers):
            return call(*arguments)
        raise MemoryError("std::bad_alloc")
    return sometimes
DispatchCore.attach = short(DispatchCore.attach, iter([True, False, True]))
DispatchCore.change = short(DispatchCore.change, iter([False, True, True]))
from fikitd.executor import process
from itertools import chain, repeat
process.encode = short(process.encode, chain(repeat(True, 40), [False], repeat(True)))
from fikitd.executor.__main__ import main
main()
"""


def test_an_executor_that_is_short_of_memory_refuses_and_keeps_its_sessions(
    stopped_daemon: Daemon, connect_to: Callable[..., fikit.Session]
) -> None:
    command = json.dumps([sys.executable, "-P", "-c", SHORT_OF_MEMORY])
    stopped_daemon.configure(settings=SETTINGS.replace("[executor]", f"[executor]\ncommand = {command}"))
    client = stopped_daemon.start().client()
    first = connect_to()
    with pytest.raises(fikit.RefusedError, match="bad_alloc"):
        connect_to()
    assert client.ask(p.Pause(target=first.identifier)).code == "unavailable"
    assert client.ask(p.Pause(target=first.identifier)) == p.Done()
    assert client.ask(p.Resume(target=first.identifier)) == p.Done()
    both = [first.identifier, connect_to().identifier]
    (log,) = (stopped_daemon.place / "state" / "logs").glob("x-*.log")
    while "daemon_gone" not in log.read_text():
        pass
    first.synchronize()
    assert {each.session for each in client.ask(p.ListSessions()).sessions} == set(both)


SLOW_TO_TELL = """
import sys, time
from fikitd.executor.core import DispatchCore
attach = DispatchCore.attach
def slowly(*arguments):
    attached = attach(*arguments)
    print("begun", arguments[1], file=sys.stderr)
    time.sleep(0.5)
    return attached
DispatchCore.attach = slowly
from fikitd.executor.__main__ import main
main()
"""
DIES_OPENING = """
import os, socket, sys
from fikit import protocol as p
connection = socket.socket(fileno=int(sys.argv[1]))
connection.connect(sys.argv[2])
connection.sendall(p.encode(1, p.Hello(version=p.PROTOCOL_VERSION, client="test")))
connection.sendall(p.encode(2, p.OpenSession(name="brief")))
sys.stdin.read()
"""


def test_a_session_whose_process_ends_before_it_is_told_of_is_over(stopped_daemon: Daemon) -> None:
    """The executor hears of its end before its beginning; whoever has its connection lives."""
    command = json.dumps([sys.executable, "-P", "-c", SLOW_TO_TELL])
    stopped_daemon.configure(settings=SETTINGS.replace("[executor]", f"[executor]\ncommand = {command}"))
    client = stopped_daemon.start().client()
    assert isinstance(client.ask(p.OpenSession(name="first")), p.SessionOpened)
    with socket.socket(socket.AF_UNIX) as kept:
        words = [sys.executable, "-P", "-c", DIES_OPENING, str(kept.fileno()), str(stopped_daemon.socket)]
        brief = subprocess.Popen(words, pass_fds=[kept.fileno()], stdin=subprocess.PIPE)
        log = next((stopped_daemon.place / "state" / "logs").glob("x-*.log"))
        while log.read_text().count("begun") < 2:
            pass
        brief.kill()
        brief.communicate()
        while log.read_text().count('"session_attached"') < 2:
            pass
        limit = time.monotonic() + 20
        while [each.name for each in client.ask(p.ListSessions()).sessions] != ["first"]:
            assert time.monotonic() < limit, log.read_text()
