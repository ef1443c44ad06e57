"""Parts of the daemon that need neither a socket nor a process."""

from __future__ import annotations

import errno
import grp
import os
import socket
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pynvml
import pytest
import trio
from fikit import place as places
from fikit.protocol import GateStatistics, Usage
from trio.testing import wait_all_tasks_blocked

from fikitd import directories, metrics
from fikitd.configuration import DaemonSection, DeviceSection
from fikitd.device import ORDER, VISIBLE, DeviceSpec, Reading, choose, library_finding, reading
from fikitd.directories import Directories, socket_lock, state_lock
from fikitd.errors import (
    ConfigurationError,
    DeviceUnavailableError,
    QuotaReached,
    Unavailable,
)
from fikitd.events import QUEUE_EVENTS, Events
from fikitd.executor import final_accounts
from fikitd.executor.messages import SessionEnded
from fikitd.jobs import files
from fikitd.jobs.jobs import Jobs, Placing
from fikitd.jobs.model import Job
from fikitd.jobs.running import JobProcesses
from fikitd.notify import notify
from fikitd.processes import Process
from fikitd.session import Session, SessionNote
from fikitd.sessions import SUM, Sessions
from fikitd.store import Store, pack
from fikitd.tenants.accounts import Accounts
from fikitd.tenants.peer import group_number

GIB = 1 << 30


def gpu(index: int) -> DeviceSpec:
    return DeviceSpec(index, f"gpu {index}", f"uuid {index}", 8 * GIB, index, False, None, 1.0)


def test_device_choice_falls_back() -> None:
    (device,) = choose("sim", DeviceSection(time_scale=3.0, library="/x.so"))
    assert (device.time_scale, device.environment["FIKIT_LIBCUDA"]) == (3.0, "/x.so")


class NvmlError(Exception):
    pass


NVML = SimpleNamespace(
    NVMLError=NvmlError,
    nvmlDeviceGetCount=lambda: 3,
    nvmlDeviceGetHandleByIndex=lambda index: index,
    nvmlDeviceGetUUID=lambda handle: ("GPU-a0", "GPU-b1", "GPU-b2")[handle],
    nvmlDeviceGetCudaComputeCapability=lambda _handle: (9, 0),
    nvmlDeviceGetName=lambda _handle: b"NVIDIA H200",
    nvmlDeviceGetMemoryInfo=lambda _handle: SimpleNamespace(total=1 << 37),
    nvmlDeviceGetPciInfo=lambda handle: SimpleNamespace(busId=f"00000000:{handle:02X}:00.0"),
    nvmlSystemGetDriverVersion=lambda: "580.159.04",
)
"""As on a machine with three GPUs, as far as ``nvidia`` asks."""


@pytest.mark.parametrize(
    ("wished", "seen"),
    [
        (None, [0, 1, 2]),
        ("1", [1]),
        ("2,0", [2, 0]),
        ("GPU-b2,gpu", [2]),
        ("GPU-B1", [1]),
        ("MIG-b2,GPU-a", [2, 0]),
        ("MIG-a", []),
        ("0,7,1", [0]),
        ("0,GPU-b,1", [0]),
        ("1,1", []),
        ("", []),
        ("-1", []),
        ("GPU-", []),
    ],
)
def test_auto_takes_the_gpus_that_a_program_would_see(
    monkeypatch: pytest.MonkeyPatch, wished: str | None, seen: list[int]
) -> None:
    monkeypatch.setattr("fikitd.device.driver", lambda: NVML)
    monkeypatch.setenv(ORDER, "SLOWEST")  # which the driver would refuse
    monkeypatch.delenv(VISIBLE, raising=False)
    if wished is not None:
        monkeypatch.setenv(VISIBLE, wished)
    if not seen:
        with pytest.raises(DeviceUnavailableError, match=f"{VISIBLE}={wished} leaves none of 3 GPUs visible"):
            choose("auto", DeviceSection())
        return
    found = choose("auto", DeviceSection())
    assert [spec.index for spec in found] == seen
    # An executor asks the driver by the machine's numbers, which it is told.
    assert {spec.environment[VISIBLE] for spec in found} == {"GPU-a0,GPU-b1,GPU-b2"}
    assert {spec.environment[ORDER] for spec in found} == {"PCI_BUS_ID"}
    assert [spec.ordinal for spec in found] == seen
    assert [spec.index for spec in choose("2", DeviceSection())] == [2]


def lost(index: int) -> int:
    raise NvmlError("GPU is lost")


def test_a_gpu_that_is_lost_hinders_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def but_the_second(index: int) -> int:
        return lost(index) if index == 1 else index

    nvml = SimpleNamespace(**{**vars(NVML), "nvmlDeviceGetHandleByIndex": but_the_second})
    monkeypatch.setattr("fikitd.device.driver", lambda: nvml)
    monkeypatch.delenv(VISIBLE, raising=False)
    found = choose("auto", DeviceSection())
    assert [(spec.index, spec.ordinal) for spec in found] == [(0, 0), (2, 1)]
    assert {spec.environment[VISIBLE] for spec in found} == {"GPU-a0,GPU-b2"}
    nvml.nvmlDeviceGetHandleByIndex = lost
    with pytest.raises(DeviceUnavailableError, match="none of its 3 GPUs: GPU is lost"):
        choose("auto", DeviceSection())


def test_of_a_gpu_that_is_lost_the_driver_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = SimpleNamespace(**{**vars(NVML), "nvmlDeviceGetHandleByIndex": lost}, nvmlDeviceGetPowerUsage=None)
    monkeypatch.setattr("fikitd.device.driver", lambda: nvml)
    assert reading(gpu(1)) == Reading()


@pytest.mark.parametrize(
    ("error", "on_the_bus", "served"),
    [
        (pynvml.NVMLError_LibraryNotFound(), "0x10de 0x030200", "simulated"),  # in a container without GPUs
        (pynvml.NVMLError_DriverNotLoaded(), "0x10de 0x068000", "simulated"),  # a switch, and no GPU
        (pynvml.NVMLError_DriverNotLoaded(), "0x10de 0x030200", "refused"),
        (pynvml.NVMLError_LibRmVersionMismatch(), "0x1af4 0x010000", "refused"),
    ],
)
def test_a_driver_that_does_not_answer_is_no_reason_to_simulate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, on_the_bus: str, served: str
) -> None:
    def init() -> None:
        raise error

    for name, text in zip(("vendor", "class"), on_the_bus.split(), strict=True):
        (tmp_path / "0000:01:00.0").mkdir(exist_ok=True)
        (tmp_path / "0000:01:00.0" / name).write_text(f"{text}\n")
    (tmp_path / "0000:02:00.0").mkdir()  # one that tells nothing of itself
    monkeypatch.setattr("fikitd.device.PCI", tmp_path)
    monkeypatch.setattr(pynvml, "nvmlInit", init)
    if served == "simulated":
        assert [spec.simulated for spec in choose("auto", DeviceSection())] == [True]
        return
    for choice in ("auto", "0"):
        with pytest.raises(DeviceUnavailableError, match=f"the NVIDIA driver does not answer: {error}"):
            choose(choice, DeviceSection())
    assert reading(gpu(1)) == Reading()
    found, words = library_finding(gpu(1))
    assert not found
    assert "does not answer" in words


async def test_slow_subscriber_is_told_what_it_lost() -> None:
    events = Events()
    with events.subscribed(lambda uid: uid == 7) as subscription:
        events.tell("unseen", uid=8)
        for _ in range(QUEUE_EVENTS + 5):
            events.tell("seen", uid=7)
        for _ in range(QUEUE_EVENTS):
            assert subscription.receive.receive_nowait().kind == "seen"
        events.tell("last", uid=7)
        assert subscription.receive.receive_nowait().detail == {"count": 5}
        assert subscription.receive.receive_nowait().kind == "last"


async def test_store_survives_a_torn_write_and_refuses_whole(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "state.db")
    await store.remember("name", "kept")
    await store.write([(SUM, (1, 0, pack(Usage(launches=3))))])
    with pytest.raises(Unavailable) as refused:
        await store.write([("DELETE FROM settings", ()), ("INSERT INTO nowhere VALUES (1)", ())])
    assert refused.value.hint == "'fikitctl doctor' looks at the state directory"  # it was not a full disk
    wal = tmp_path / "state.db-wal"
    image, torn = (tmp_path / "state.db").read_bytes(), wal.read_bytes()
    await store.remember("name", "torn")
    longer = wal.read_bytes()
    await store.close()
    again = tmp_path / "again"
    again.mkdir()
    (again / "state.db").write_bytes(image)
    (again / "state.db-wal").write_bytes(longer[: len(torn) + (len(longer) - len(torn)) // 2])
    recovered = await Store.open(again / "state.db")
    assert await recovered.setting("name") == "kept"
    assert await recovered.load_usage() == {(1, 0): Usage(launches=3)}
    await recovered.close()


async def test_a_store_that_another_program_holds_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fikitd.store.LOCK_SECONDS", 0.0)
    store = await Store.open(tmp_path / "state.db")
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="database is locked") as refused:
            await store.remember("name", "late")
    assert refused.value.hint == "another program holds it: end that and try again"
    await store.remember("name", "later")
    await store.close()


@pytest.mark.parametrize(
    ("variable", "value"),
    [("FIKIT_SIM_DEVICES", each) for each in ("0", "17", "two", "")] + [("FIKIT_SIM_MEMORY", "4G")],
)
def test_a_machine_that_cannot_be_simulated_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """Some were a daemon without a GPU, or with GPUs on which no executor starts, and some a traceback."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(DeviceUnavailableError, match=f"{variable}={value}: wanted"):
        choose("sim", DeviceSection())


def test_a_group_that_cannot_be_looked_for_is_not_taken_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name service knows nobody while it cannot open a file: an administrator was told he was none."""

    def unknown(name: str) -> Any:
        raise KeyError(name)

    def refuse(*_: Any) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(grp, "getgrnam", unknown)
    assert group_number("fikit-admin") is None
    monkeypatch.setattr("fikitd.tenants.peer.os", SimpleNamespace(**{**vars(os), "open": refuse}))
    with pytest.raises(OSError, match="Too many open files"):
        group_number("fikit-admin")


def test_accounts_never_go_down() -> None:
    accounts = Accounts({})
    accounts.close(1, 0, Usage(launches=3, memory_bytes=5, memory_peak_bytes=9), GateStatistics())
    accounts.close(1, 1, Usage(launches=4, queued=2), GateStatistics())
    assert accounts.of(1) == Usage(launches=7, memory_peak_bytes=9)


def test_the_memory_peak_is_of_what_was_used_at_a_time() -> None:
    """Of sessions one after the other it was the sum: more than the GPU has."""
    accounts = Accounts({})
    living: list[Usage] = []
    for peak, ends in ((4, True), (4, True), (3, False), (2, False)):
        living.append(Usage(memory_bytes=peak, memory_peak_bytes=peak))
        if ends:
            accounts.close(1, 0, living.pop(), GateStatistics(), living)
    assert accounts.of(1).memory_peak_bytes == 4
    assert accounts.of(1, [(0, each) for each in living]) == Usage(memory_bytes=5, memory_peak_bytes=5)
    while living:
        accounts.close(1, 0, living.pop(), GateStatistics(), living)
    assert accounts.of(1) == Usage(memory_peak_bytes=5)


def test_place_of_the_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIKIT_SOCKET", "/a/b")
    assert str(places.default_socket()) == str(places.listen_path()) == "/a/b"
    monkeypatch.delenv("FIKIT_SOCKET")
    monkeypatch.setattr("os.getuid", lambda: 12345)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert places.listen_path() == tmp_path / "fikitd.sock"
    assert places.default_socket() == tmp_path / "fikitd.sock"
    monkeypatch.setattr(places, "RUNTIME_DIRECTORIES", tmp_path)
    (tmp_path / "12345").mkdir()
    assert places.listen_path() == tmp_path / "fikitd.sock"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert places.listen_path() == places.default_socket() == tmp_path / "12345" / "fikitd.sock"
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(stat.S_IRWXU | stat.S_IWOTH)
    with pytest.raises(places.UnsafePlaceError):
        places.check_directory(shared)


def test_executors_listen_in_nobody_elses_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever owns the one above theirs could put sockets of his own there, wherever the daemon's is."""
    user = 1 << 30 | os.getpid()
    monkeypatch.setattr("os.getuid", lambda: user)
    monkeypatch.setenv("FIKIT_SOCKET", "/a/b")
    for name in ("XDG_RUNTIME_DIR", "RUNTIME_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    others = Path(f"/tmp/fikitd-{user}")  # noqa: S108 - that is the point
    others.mkdir(mode=0o700)
    try:
        others.chmod(0o777)
        with pytest.raises(places.UnsafePlaceError, match=str(others)):
            directories.choose(DaemonSection(), None)
    finally:
        others.rmdir()


def test_a_user_without_a_home_needs_none_or_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a container's user is, whom its image does not know."""
    monkeypatch.setattr("os.geteuid", lambda: 1 << 30)
    monkeypatch.setattr("os.getuid", lambda: 1 << 30)
    for name in ("HOME", "XDG_STATE_HOME", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    settings = DaemonSection(runtime_directory="/c", socket="/d")
    with pytest.raises(ConfigurationError, match="state_directory"):
        directories.choose(settings, None)
    monkeypatch.setenv("STATE_DIRECTORY", "/b")
    assert directories.choose(settings, None).state == Path("/b")


def test_a_lock_is_no_way_to_another_file(tmp_path: Path) -> None:
    """The place of the socket may be one where others make files first."""
    other = tmp_path / "other"
    other.write_text("of somebody else")
    (tmp_path / "sock.lock").symlink_to(other)
    with pytest.raises(OSError, match=r"sock\.lock"):
        socket_lock(Directories(tmp_path / "sock", tmp_path, tmp_path)).take()
    assert other.read_text() == "of somebody else"


@pytest.mark.parametrize("left", [b"", b"\x81\xa1\x80\x00", b"\x91" * 5000])
def test_what_an_executor_left_damaged_is_nothing(tmp_path: Path, left: bytes) -> None:
    final_accounts.place(tmp_path, "s-1").write_bytes(left)
    assert final_accounts.find(tmp_path, "s-1") is None


def test_a_lock_that_a_full_disk_refuses_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(OSError, match=str(tmp_path)):
        state_lock(Directories(tmp_path / "sock", tmp_path, tmp_path)).take()


async def test_a_long_queue_is_not_placed_job_by_job(tmp_path: Path) -> None:
    """Else thousands that wait for a limit of their tenant's stop the daemon for seconds, each time."""
    store, events = await Store.open(tmp_path / "state.db"), Events()
    asked = []

    def placing(_awaited: set[int]) -> Placing:
        def refuse(job: Job) -> DeviceSpec:
            asked.append(job.number)
            raise QuotaReached("your limit")

        return refuse

    sessions = Sessions(store, Accounts({}), events, tmp_path)
    jobs = Jobs(store, JobProcesses(tmp_path), sessions, events, placing)
    for number in range(1, 1001):
        jobs.keep(
            Job(
                number=number, tenant="x", uid=7, gid=7, groups=(), name="x", command=["x"], directory="/",
                priority=5, gpu_asked=None, memory_limit_bytes=number // 1000,
            )
        )  # fmt: skip
    async with trio.open_nursery() as nursery:
        await nursery.start(jobs.run)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert asked == [1, 1000]
    assert {job.reason for job in jobs.known.values()} == {"your limit"}
    await store.close()


def test_an_executor_ends_its_own_sessions_alone(tmp_path: Path) -> None:
    """One whose connection broke may have attached a session that its successor was then given."""
    late, successor = (cast(Any, SimpleNamespace(executor=name, device=gpu(0))) for name in ("x-1", "x-2"))
    sessions = Sessions(cast(Any, None), Accounts({}), Events(), tmp_path)
    session = Session(
        session="s-1", tenant="x", uid=7, pid=1, name="x", priority=5, weight=1.0, memory_limit_bytes=0,
        job=None, executor=successor, note=SessionNote(opened_unix=0.0, isolated=False, reserved_bytes=0),
    )  # fmt: skip
    sessions.living["s-1"] = session
    ended = SessionEnded(session="s-1", error=0, reason="closed", usage=Usage(launches=3))
    sessions.session_ended(late, ended)
    assert (session.state, session.usage.launches, sessions.living) == ("running", 0, {"s-1": session})
    sessions.session_ended(successor, ended)
    assert (session.state, session.usage.launches, sessions.living) == ("ended", 3, {})


def test_a_runner_that_listens_is_asked_though_the_disk_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    os.mkfifo(tmp_path / files.CONTROL)
    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(OSError, match="Read-only"):
        files.ask_runner(tmp_path, 15, 100)
    listening = os.open(tmp_path / files.CONTROL, os.O_RDWR | os.O_NONBLOCK)
    files.ask_runner(tmp_path, 15, 100)
    assert os.read(listening, 100) == b"15 100\n"
    os.close(listening)


def test_a_thread_s_number_is_no_process() -> None:
    """A pid that was noted may have become one; the process that has such a thread is another."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    assert thread.native_id is not None
    assert Process.by_pid(thread.native_id) is None
    over.set()
    thread.join()


@pytest.mark.parametrize("name", ["\0fikit-test-{}@here", "{}/who@where"])
def test_systemd_is_told_wherever_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An @ stands for the zero of an abstract name only where it is first (sd_notify(3))."""
    place = name.format(os.getpid() if name[0] == "\0" else tmp_path)
    monkeypatch.setenv("NOTIFY_SOCKET", place.replace("\0", "@"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(place)
        assert notify("READY=1")
        assert listening.recv(100, socket.MSG_DONTWAIT) == b"READY=1"


def test_each_metric_says_by_itself_what_it_counts() -> None:
    """A dashboard shows a help without the one before."""
    declared = (metrics.USAGE_COUNTERS, metrics.USAGE_GAUGES, metrics.GATE_COUNTERS, metrics.GATE_GAUGES)
    helps = [text for family in declared for _, _, text in family.values()]
    assert len(set(helps)) == len(helps)
    assert not [text for text in helps if text.startswith("Of it") or "those" in text]
