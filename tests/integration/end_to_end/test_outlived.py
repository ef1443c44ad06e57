"""Work on the GPU that goes on when its program is gone: natively it would end with the program's context."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fikit
import pytest
from fikit import protocol as p

from fikitd.executor.supervisor_state import PASSING_SECONDS
from tests.integration.conftest import Client, Daemon
from tests.integration.end_to_end.conftest import PTX, SETTINGS

Connect = Callable[..., fikit.Session]
Program = Callable[[str], subprocess.Popen[str]]

SOON = SETTINGS.replace("[scheduling]", "outlived_seconds = 0.6\n[scheduling]")
"""Long before the simulated GPU's watchdog ends such a kernel."""
WAITS = """
.version 7.8
.target sm_80
.address_size 64
.visible .entry waits(.param .u64 flag)
{
    .reg .b64 %rd1; .reg .b32 %r1; .reg .pred %p1;
    ld.param.u64 %rd1, [flag];
W:  ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra W;
    ret;
}
"""
ENDLESS = f"""
WAITS = {WAITS!r}
session = fikit.connect(name="endless", priority=sys.argv[1] if len(sys.argv) > 1 else "normal")
memory = session.allocate(64 << 20)
memory.fill(0)
session.load(WAITS).kernel("waits", ["pointer"]).launch(memory, grid=1, block=1)
print(session.identifier, flush=True)
sys.stdin.read()
"""

FILLS_THE_GPU = ENDLESS.replace("grid=1, block=1", "grid=132 * 32, block=64")


@pytest.fixture
def daemon(stopped_daemon: Daemon, request: pytest.FixtureRequest) -> Daemon:
    stopped_daemon.configure(settings=getattr(request, "param", SOON))
    return stopped_daemon.start()


def shown(client: Client, session: str) -> p.SessionRecord:
    record = client.ask(p.Show(target=session)).session
    assert isinstance(record, p.SessionRecord)
    return record


def told(client: Client, kind: str, **what: Any) -> p.Event:
    """The next event of this kind about that."""
    while True:
        _, event = client.receive()
        if event.kind == kind and what.items() <= {**event.detail, "session": event.session}.items():
            return event


def started(process: subprocess.Popen[str], client: Client) -> p.SessionRecord:
    """Its session, once its kernel runs."""
    assert process.stdout is not None
    session = process.stdout.readline().strip()
    while (running := shown(client, session)).usage.launches == 0:
        pass
    return running


def left_by_a_killed_program(
    program: Program, client: Client, priority: str = "normal", text: str = ENDLESS
) -> p.SessionRecord:
    """The session, over but for its work."""
    process = program(text.replace("normal", priority))
    running = started(process, client)
    process.kill()
    client.subscribe()
    return running


def test_its_executor_is_ended_when_nobody_else_is_there(
    daemon: Daemon, connect: Connect, program: Program
) -> None:
    client = daemon.client()
    left = left_by_a_killed_program(program, client)
    told(client, "session_outlived", session=left.session, executor=left.executor)
    ended = told(client, "session_ended", session=left.session)
    assert f"session {left.session} is over, but its work on the GPU was not" in ended.detail["reason"]
    assert shown(client, left.session).usage.memory_bytes == 0
    with connect() as session, session.load(PTX) as module:
        module.kernel("nothing").launch(grid=1, block=1)
        session.synchronize(timeout=10)


def test_others_there_go_on_and_who_comes_is_served_elsewhere(
    daemon: Daemon, connect: Connect, program: Program
) -> None:
    client, other = daemon.client(), connect(name="other")
    kernel = other.load(PTX).kernel("nothing")
    left = left_by_a_killed_program(program, client)
    assert shown(client, other.identifier).executor == left.executor
    told(client, "session_outlived", session=left.session)
    assert shown(client, left.session).state == "ending"
    kernel.launch(grid=1, block=1)
    other.synchronize(timeout=10)
    with connect(name="later") as later:
        assert shown(client, later.identifier).executor != left.executor
    refused = client.ask(p.Kill(target=left.session))
    assert refused.code == "invalid"
    assert f"fikitctl kill {left.executor}" in refused.hint
    assert isinstance(client.ask(p.Kill(target=left.executor)), p.Done)
    ended = told(client, "session_ended", session=other.identifier)
    assert ended.detail["reason"] == f"executor {left.executor}: killed by {left.tenant}"
    with pytest.raises(fikit.SessionLostError):
        other.load(PTX)


@pytest.mark.parametrize("daemon", [SETTINGS], indirect=True, ids=["default"])
@pytest.mark.parametrize(("others", "after"), [(0, 0.0), (0, 2 * PASSING_SECONDS), (1, 0.0)])
def test_who_comes_meanwhile_is_not_lost_with_it(
    daemon: Daemon, connect: Connect, program: Program, others: int, after: float
) -> None:
    client, watching = daemon.client(), daemon.client()
    watching.subscribe()
    there = [connect(name="other") for _ in range(others)]
    kernels = [each.load(PTX).kernel("nothing") for each in there]
    left = left_by_a_killed_program(program, client)
    while shown(client, left.session).state != "ending":
        pass
    time.sleep(after)  # the daemon has seen by then that it lasts
    with connect(name="later") as later, later.load(PTX) as module:
        assert shown(client, later.identifier).executor != left.executor
        module.kernel("nothing").launch(grid=1, block=1)
        later.synchronize(timeout=10)
    for session, kernel in zip(there, kernels, strict=True):
        kernel.launch(grid=1, block=1)
        session.synchronize(timeout=10)
    if not others:  # so its memory is free again
        assert (
            told(watching, "executor_ended", executor=left.executor)
            .detail["reason"]
            .endswith("held up who came")
        )


def test_its_executor_is_ended_when_it_holds_up_others(
    daemon: Daemon, connect: Connect, program: Program
) -> None:
    client, other = daemon.client(), connect(name="other")
    left = left_by_a_killed_program(program, client)
    with pytest.raises(fikit.SessionLostError):  # the driver loads nothing before that ends
        other.load(PTX)
    assert "held up others" in told(client, "executor_ended", executor=left.executor).detail["reason"]


@pytest.mark.parametrize("priority", ["high", "low"])
def test_its_executor_is_ended_when_it_leaves_others_no_room(
    daemon: Daemon, connect: Connect, program: Program, priority: str
) -> None:
    client, other, idle = daemon.client(), connect(name="other"), connect(name="idle")
    kernel = other.load(PTX).kernel("nothing")
    left = left_by_a_killed_program(program, client, priority, FILLS_THE_GPU)
    with pytest.raises(fikit.SessionLostError):  # natively the kernel would have ended with its program
        while True:
            kernel.launch(grid=1, block=1)
            other.synchronize(timeout=60)
    ended = told(client, "executor_ended", executor=left.executor)
    assert "held up others" in ended.detail["reason"]
    assert shown(client, idle.identifier).state == "ended"


def test_its_executor_lasts_while_somebody_gets_on(
    daemon: Daemon, connect: Connect, program: Program
) -> None:
    client, other, stuck = daemon.client(), connect(name="other"), connect(name="stuck")
    flag = stuck.allocate(4096)
    flag.fill(0)
    spins = other.load(PTX).kernel("spin", ["u64"])
    waits = stuck.load(WAITS).kernel("waits", ["pointer"])
    left = left_by_a_killed_program(program, client)
    for _ in range(400):  # ahead: it gets on however long this test is held up
        spins.launch(10_000_000, grid=1, block=1)
    waits.launch(flag, grid=1, block=1)
    while (held := shown(client, stuck.identifier)).overdue_ns < 2.5e9:
        assert held.state == "running"  # that it waits is its own affair
    assert shown(client, other.identifier).state == "running"
    assert shown(client, left.session).state == "ending"


def test_ps_lists_it_although_its_job_is_over(daemon: Daemon, connect: Connect) -> None:
    client, other = daemon.client(), connect(name="other")  # which keeps the executor
    command = [sys.executable, "-P", "-c", "import sys, fikit, time\n" + ENDLESS + "time.sleep(1000)"]
    environment = {**os.environ, "FIKIT_SOCKET": str(daemon.socket)}
    job = client.ask(p.Submit(command=command, environment=environment, directory="/")).job.job
    launched = []
    while not launched:
        there = client.ask(p.ListSessions()).sessions
        launched = [each.session for each in there if each.job == job and each.usage.launches > 0]
    client.subscribe()
    assert isinstance(client.ask(p.Kill(target=job, signal=9)), p.Done)
    told(client, "session_outlived", session=launched[0])
    fikitctl = "from fikitctl.main import main; main()"
    asked = [
        sys.executable,
        "-P",
        "-c",
        fikitctl,
        "--socket",
        str(daemon.socket),
        "ps",
        "--format",
        "id,state",
    ]
    listed = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    assert [line.split() for line in listed.splitlines() if "ending" in line] == [[launched[0], "ending"]]
    assert other.identifier in listed


@pytest.mark.parametrize("image", [PTX, f"{PTX}.visible .global .u32 variable;"], ids=["code", "variable"])
@pytest.mark.parametrize("priority", ["high", "low"])
def test_a_kernel_without_an_end_holds_up_who_loads_code_and_nobody_else(
    daemon: Daemon, connect: Connect, program: Program, priority: str, image: str
) -> None:
    client, other, loader = daemon.client(), connect(name="other", priority=priority), connect(name="loader")
    kernel = other.load(PTX).kernel("nothing")
    process = program(ENDLESS)
    left = started(process, client)
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(loader.load, image)
        while shown(client, loader.identifier).call_ns < 1_000_000_000:
            kernel.launch(grid=1, block=1)
            other.synchronize(timeout=10)
        assert shown(client, other.identifier).call_ns == 0
        assert shown(client, left.session).state == "running"
        process.kill()
        with pytest.raises(fikit.SessionLostError):
            loading.result(timeout=60)
