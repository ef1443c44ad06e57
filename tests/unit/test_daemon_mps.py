"""The life of MPS's control daemon, with a program that behaves like it in what we use of it."""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from fikitd.events import Events
from fikitd.mps import CONTROL, Mps

# In the foreground it makes the file that says it serves, and ends when told to; else it asks the other one.
PROGRAM = f"""#!{sys.executable}
import os, signal, sys
control = os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/control"
if sys.argv[1:] == ["-f"]:
    if os.environ.get("MPS_TEST") == "broken":
        sys.exit(1)
    if os.environ.get("MPS_TEST") == "slow":
        os.read(os.open(os.environ["MPS_GO"], os.O_RDONLY), 1)
    with open(control + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(control + ".new", control)
    signal.pause()
try:
    pid = int(open(control).read())
    os.kill(pid, 0)
except OSError:
    sys.exit(1)
if open("/proc/" + str(pid) + "/stat").read().rpartition(")")[2].split()[0] == "T":
    signal.pause()  # as one that waits for a daemon which hangs
if sys.stdin.read().startswith("quit"):
    os.kill(pid, signal.SIGTERM)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bin" / CONTROL
    path.parent.mkdir()
    path.write_text(PROGRAM)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")


def made(place: Path, events: Events, wanted: bool = True) -> Mps:
    return Mps(wanted, place, place, events)


@pytest.mark.usefixtures("program")
async def test_it_is_started_again_when_it_dies_and_stopped_at_the_end(tmp_path: Path) -> None:
    events = Events()
    mps = made(tmp_path, events)
    with events.subscribed(lambda uid: True) as subscription, trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(mps.run)
            first = await subscription.receive.receive()
            assert (first.kind, first.detail["taken_over"]) == ("mps_started", False)
            assert mps.environment["CUDA_MPS_PIPE_DIRECTORY"] == str(tmp_path / "mps")
            os.kill(first.detail["pid"], signal.SIGKILL)
            assert (await subscription.receive.receive()).kind == "mps_ended"
            assert mps.environment == {}
            second = await subscription.receive.receive()
            assert second.kind == "mps_started"
            assert second.detail["pid"] != first.detail["pid"]
            await mps.stop()
        with pytest.raises(ProcessLookupError):
            os.kill(second.detail["pid"], 0)


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("note", ["", '{"x":' + "[" * 100_000])
async def test_a_damaged_note_of_the_last_one_is_none(tmp_path: Path, note: str) -> None:
    (tmp_path / "mps.json").write_text(note)
    events = Events()
    mps = made(tmp_path, events)
    with events.subscribed(lambda uid: True) as subscription, trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(mps.run)
            assert (await subscription.receive.receive()).kind == "mps_started"
            await mps.stop()


@pytest.mark.usefixtures("program")
async def test_the_next_daemon_takes_it_over(tmp_path: Path) -> None:
    events = Events()
    with events.subscribed(lambda uid: True) as subscription, trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(made(tmp_path, events).run)
            first = await subscription.receive.receive()
            nursery.cancel_scope.cancel()  # as good as killed: nothing is stopped
        later = made(tmp_path, events)
        async with trio.open_nursery() as nursery:
            await nursery.start(later.run)
            again = await subscription.receive.receive()
            assert again.detail == {"pid": first.detail["pid"], "taken_over": True}
            await later.stop()


@pytest.mark.usefixtures("program")
async def test_one_that_hangs_makes_room_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would keep the GPU and its unit's name, and nobody would know of it any more."""
    for name in ("START_SECONDS", "ANSWER_SECONDS", "STOP_SECONDS"):
        monkeypatch.setattr(f"fikitd.mps.{name}", 1.0)
    events = Events()
    with events.subscribed(lambda uid: True) as subscription, trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(made(tmp_path, events).run)
            first = await subscription.receive.receive()
            nursery.cancel_scope.cancel()  # as good as killed
        os.kill(first.detail["pid"], signal.SIGSTOP)
        later = made(tmp_path, events)
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(later.run)
                again = await subscription.receive.receive()
                assert (again.kind, again.detail["taken_over"]) == ("mps_started", False)
                with pytest.raises(ProcessLookupError):
                    os.kill(first.detail["pid"], 0)
                await later.stop()
        finally:
            with suppress(ProcessLookupError):
                os.kill(first.detail["pid"], signal.SIGKILL)


@pytest.mark.usefixtures("program")
async def test_one_that_is_just_starting_is_stopped_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, note = tmp_path / "go", tmp_path / "mps.json"
    os.mkfifo(go)
    monkeypatch.setenv("MPS_TEST", "slow")
    monkeypatch.setenv("MPS_GO", str(go))
    mps = made(tmp_path, Events())
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mps.run)
            while not (note.exists() and note.stat().st_size):
                await trio.lowlevel.checkpoint()
            pid = msgspec.json.decode(note.read_bytes())["pid"]
            async with trio.open_nursery() as stopping:
                stopping.start_soon(mps.stop)
                await trio.testing.wait_all_tasks_blocked()
                go.write_text("go")  # once the program reads that, or is about to
            nursery.cancel_scope.cancel()  # as the daemon's end does
    try:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.usefixtures("program")
async def test_a_program_that_does_not_start_is_told_of_and_gone_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPS_TEST", "broken")
    events = Events()
    mps = made(tmp_path, events)
    with events.subscribed(lambda uid: True) as subscription, trio.fail_after(30):
        await mps.run()
        assert (await subscription.receive.receive()).kind == "mps_unavailable"
    assert mps.environment == {}
    await mps.stop()


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("missing", [True, False])
async def test_places_that_cannot_be_written_are_told_of(tmp_path: Path, missing: bool) -> None:
    """As on a full disk: the daemon goes on without it."""
    place = tmp_path / "run"
    if not missing:
        (place / "mps.json").mkdir(parents=True)
    events = Events()
    with events.subscribed(lambda uid: True) as subscription, trio.fail_after(30):
        mps = made(place, events)
        await mps.run()
        assert (await subscription.receive.receive()).kind == "mps_unavailable"
    assert mps.environment == {}
    await mps.stop()


async def test_where_it_is_not_wanted_nothing_is_started(tmp_path: Path) -> None:
    mps = made(tmp_path, Events(), wanted=False)
    await mps.run()
    assert mps.environment == {}
    assert await trio.to_thread.run_sync(os.listdir, tmp_path) == []


@pytest.mark.usefixtures("program")
async def test_that_no_descriptor_is_left_to_ask_it_with_is_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fikitd.mps.STOP_SECONDS", 0.1)
    mps = made(tmp_path, Events())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(mps.run)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            try:
                await mps.stop()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
