"""What tenants have used and may use, over all their executors and whatever is killed meanwhile."""

from __future__ import annotations

import os
import select
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import fikit
import pytest
from fikit import protocol as p

from fikitd.session import SessionNote
from fikitd.store import unpack
from tests.integration.conftest import DEADLINE_SECONDS, Client, Daemon
from tests.integration.end_to_end.conftest import SETTINGS, listener
from tests.integration.end_to_end.raw_channel import RawChannel

Program = Callable[[str], "subprocess.Popen[str]"]
LIMIT = 64 << 20
PIECE = 2 << 20
OUT_OF_MEMORY = 2

WORKER = """
session = fikit.connect(name="worker")
with session.load(PTX) as module:
    kernel = module.kernel("nothing")
    for _ in range(37):
        kernel.launch(grid=1, block=32)
    session.synchronize()
    print("ready", flush=True)
    sys.stdin.read()
"""


def launches(client: Client) -> int:
    return sum(tenant.usage.launches for tenant in client.ask(p.ListTenants()).tenants)


def until_left(place: Path) -> None:
    """Until the executor has put the account down."""
    for _ in range(200):
        if list((place / "run").glob("*.account")):
            return
        threading.Event().wait(0.05)
    raise AssertionError("no account was left")


def until_noted(place: Path, what: str, amount: int) -> None:
    """Until the books hold that a session has used so much of it."""
    noted: list[int] = []
    end = time.monotonic() + DEADLINE_SECONDS
    while amount not in noted:
        assert time.monotonic() < end, noted
        threading.Event().wait(0.05)
        with closing(sqlite3.connect(place / "state" / "state.db")) as state:
            records = state.execute("SELECT record FROM sessions").fetchall()
        noted = [getattr(unpack(record, SessionNote).usage, what) for (record,) in records]


HOLDER = """
import sys, fikit
session = fikit.connect(name="holder")
memory = session.allocate(2 << 20)
sys.stdout.write("ready")
sys.stdout.flush()
while True:
    memory.fill(1)
    session.synchronize()
"""


def test_a_job_whose_executor_was_killed_holds_no_memory(daemon: Daemon, client: Client) -> None:
    watcher = daemon.client()
    watcher.subscribe()
    command = [sys.executable, "-P", "-c", HOLDER]
    job = client.ask(p.Submit(command=command, environment=dict(os.environ), directory="/")).job.job
    assert client.ask(p.ReadLogs(job=job, follow=True)).data == b"ready", client.ask(p.Show(target=job))
    while client.ask(p.Show(target=job)).job.usage.memory_bytes != 2 << 20:  # until its executor has told
        threading.Event().wait(0.05)
    os.kill(listener(next((daemon.place / "run").glob("x-*.sock"))), signal.SIGKILL)
    while watcher.receive()[1].kind != "job_ended":
        pass
    while (usage := client.ask(p.Show(target=job)).job.usage).memory_bytes:  # until a real driver has let go
        threading.Event().wait(0.05)
    assert usage.memory_peak_bytes == 2 << 20


def test_memory_that_nobody_reserved_is_in_use_all_the_same(
    daemon: Daemon, client: Client, connect_to: Callable[..., fikit.Session]
) -> None:
    session = connect_to(name="holder")
    with session.allocate(2 << 20):
        while [each.usage.memory_bytes for each in client.ask(p.ListSessions()).sessions] != [2 << 20]:
            threading.Event().wait(0.05)  # until its executor has told
        gpu = client.ask(p.GetStatus()).gpus[0]
        assert (gpu.memory_used_bytes, gpu.memory_reserved_bytes) == (2 << 20, 0)


def test_a_job_that_lost_its_executor_and_its_daemon_holds_no_memory(stopped_daemon: Daemon) -> None:
    """What the books say it had is over with it."""
    stopped_daemon.configure("[profiles]\ninterval_seconds = 0.2\n")
    client = stopped_daemon.start().client()
    command = [sys.executable, "-P", "-c", HOLDER]
    job = client.ask(p.Submit(command=command, environment=dict(os.environ), directory="/")).job.job
    until_noted(stopped_daemon.place, "memory_peak_bytes", 2 << 20)
    executor = listener(next((stopped_daemon.place / "run").glob("x-*.sock")))
    stopped_daemon.stop(signal.SIGKILL)
    os.kill(executor, signal.SIGKILL)
    client = stopped_daemon.start().client()
    while (ended := client.ask(p.Wait(job=job)).job).state == "running":
        pass
    assert (ended.usage.memory_bytes, ended.usage.memory_peak_bytes) == (0, 2 << 20)


@pytest.mark.parametrize("executor_too", [False, True])
def test_a_session_that_ends_without_a_daemon_is_accounted_for(
    daemon: Daemon, program: Program, executor_too: bool
) -> None:
    worker = program(WORKER)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    executor = listener(next((daemon.place / "run").glob("x-*.sock")))
    daemon.stop(signal.SIGKILL)
    worker.kill()
    until_left(daemon.place)
    if executor_too:
        os.kill(executor, signal.SIGKILL)
    daemon.start()
    client = daemon.client()
    assert launches(client) == 37
    daemon.stop(signal.SIGKILL)  # before or after it is in the store: once, either way
    daemon.start()
    assert launches(daemon.client()) == 37
    daemon.stop()
    assert list((daemon.place / "run").glob("*.account")) == []
    daemon.start()
    assert launches(daemon.client()) == 37


def test_usage_of_a_lost_executor_is_as_old_as_the_books(stopped_daemon: Daemon, program: Program) -> None:
    stopped_daemon.configure("[profiles]\ninterval_seconds = 0.2\n")
    stopped_daemon.start()
    worker = program(WORKER)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    executor = listener(next((stopped_daemon.place / "run").glob("x-*.sock")))
    until_noted(stopped_daemon.place, "launches", 37)
    stopped_daemon.stop(signal.SIGKILL)
    os.kill(executor, signal.SIGKILL)
    stopped_daemon.start()
    assert launches(stopped_daemon.client()) == 37


def test_a_reload_to_a_shorter_interval_does_not_wait_for_the_end_of_the_longer(
    stopped_daemon: Daemon, program: Program
) -> None:
    stopped_daemon.configure("[profiles]\ninterval_seconds = 3600.0\n")
    process = stopped_daemon.start().process
    client = stopped_daemon.client()
    client.subscribe()
    worker = program(WORKER)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    executor = listener(next((stopped_daemon.place / "run").glob("x-*.sock")))
    other = stopped_daemon.client()
    while launches(other) != 37:
        threading.Event().wait(0.05)
    stopped_daemon.configure("[profiles]\ninterval_seconds = 0.2\n")
    assert process is not None
    process.send_signal(signal.SIGHUP)
    while client.receive()[1].kind != "reloaded":
        pass
    until_noted(stopped_daemon.place, "launches", 37)
    stopped_daemon.stop(signal.SIGKILL)
    os.kill(executor, signal.SIGKILL)
    stopped_daemon.start()
    assert launches(stopped_daemon.client()) == 37


def fill(session: fikit.Session, held: list[fikit.Memory]) -> None:
    while True:
        try:
            held.append(session.allocate(PIECE))
        except fikit.OutOfMemoryError:
            return


def test_a_memory_limit_spans_a_tenants_executors(
    stopped_daemon: Daemon, connect_to: Callable[..., fikit.Session]
) -> None:
    limited = SETTINGS.replace("[tenant_defaults]", f"[tenant_defaults]\nmemory_limit_bytes = {LIMIT}")
    stopped_daemon.configure(settings=limited)
    stopped_daemon.start()
    sessions = [connect_to(name=f"isolated {number}", isolated=True) for number in range(2)]
    held: list[list[fikit.Memory]] = [[], []]
    fillers = [threading.Thread(target=fill, args=pair) for pair in zip(sessions, held, strict=True)]
    for filler in fillers:
        filler.start()
    for filler in fillers:
        filler.join()
    assert sum(map(len, held)) == LIMIT // PIECE
    full = max(held, key=len)
    other = sessions[1 - held.index(full)]
    assert other.memory_information().free == 0
    full.pop().free()
    sessions[held.index(full)].synchronize()
    for _ in range(100):
        if other.memory_information().free == PIECE:
            break
        threading.Event().wait(0.02)
    other.allocate(PIECE).free()


def create_memory(channel: RawChannel) -> int:
    return channel.call(17, struct.pack("<IIQ", 1, 0, LIMIT))[0]


def create_array(channel: RawChannel) -> int:
    single_precision = 0x20
    shape = (LIMIT // 256 // 4, 256, 0, single_precision, 1, 0, 0)
    return channel.call(40, struct.pack("<II3Q4I", 1, 0, *shape))[0]


def load_variable(channel: RawChannel) -> int:
    head = ".version 7.8\n.target sm_80\n.address_size 64\n"
    return channel.load_status(f"{head}.visible .global .align 8 .b8 large[{LIMIT}];")


def allocate_memory(channel: RawChannel) -> int:
    return channel.call(2, struct.pack("<Q", LIMIT))[0]


def information(channel: RawChannel) -> tuple[int, int]:
    """Free and total."""
    free, total = struct.unpack("<QQ", channel.call(3, bytes(8))[1])
    return free, total


@pytest.mark.parametrize("take", [allocate_memory, create_memory, create_array, load_variable])
def test_an_executor_that_was_killed_uses_nothing_of_the_limit(
    stopped_daemon: Daemon, connect_to: Callable[..., fikit.Session], take: Callable[[RawChannel], int]
) -> None:
    limited = SETTINGS.replace("[tenant_defaults]", f"[tenant_defaults]\nmemory_limit_bytes = {LIMIT}")
    stopped_daemon.configure(settings=limited)
    stopped_daemon.start()
    doomed = connect_to(isolated=True)
    victim = listener(next((stopped_daemon.place / "run").glob("x-*.sock")))
    kept = RawChannel(stopped_daemon.client())
    lost: list[fikit.Memory] = []
    fill(doomed, lost)
    assert take(kept) == OUT_OF_MEMORY
    assert information(kept) == (0, LIMIT)
    ending = os.pidfd_open(victim)
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(fikit.SessionLostError):
        doomed.allocate(PIECE)
    select.select([ending], [], [], 30.0)  # a driver takes its time to end a process
    os.close(ending)
    assert information(kept) == (LIMIT, LIMIT)
    assert take(kept) == 0


def packed(text: str) -> bytes:
    """PTX in a fatbin as nvcc packs it, by LZ4's block format (literals alone)."""
    content = text.encode() + b"\0"
    longer, rest = divmod(len(content) - 15, 255)
    block = b"\xf0" + b"\xff" * longer + bytes([rest]) + content
    kind, flags = 1, 0x2011
    header = struct.pack("<HHIQIIII8xQ8xQII8x", kind, 0x101, 80, len(block), len(block), 64, 0, 90, flags,
                         len(content), 72, 0)  # fmt: skip
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(header + block)) + header + block


@pytest.mark.shares_daemon
@pytest.mark.parametrize("image", [str, packed])
def test_variables_are_memory_however_they_are_packed(
    connect: Callable[..., fikit.Session], image: Callable[[str], str | bytes]
) -> None:
    text = f".version 7.8\n.target sm_80\n.address_size 64\n.visible .global .align 8 .b8 x[{LIMIT}];\n"
    session = connect(memory_limit=2 * LIMIT)
    free = session.memory_information().free
    with session.load(image(text)) as module:
        assert module.global_("x").size == LIMIT
        assert session.memory_information().free == free - LIMIT
    limited = connect(memory_limit=LIMIT // 2)
    with pytest.raises(fikit.OutOfMemoryError):
        limited.load(image(text))


def test_a_process_is_listed_once_on_a_gpu_with_all_its_memory(daemon: Daemon, client: Client) -> None:
    """However many sessions it has there, as NVML lists processes."""
    with (
        fikit.connect(socket=daemon.socket) as one,
        fikit.connect(socket=daemon.socket) as other,
        one.allocate(PIECE),
        other.allocate(2 * PIECE),
    ):
        (process,) = client.ask(p.ListVisibleGpus()).gpus[0].processes
    assert (process.pid, process.memory_bytes) == (os.getpid(), 3 * PIECE)
