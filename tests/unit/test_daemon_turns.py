"""Connections of one user: a few of his requests are served at a time, and what he holds is limited."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing
from fikit import protocol as p
from trio.testing import wait_all_tasks_blocked

from fikitd.api.connection import Connection
from fikitd.api.listener import MOST_ACCEPTED, waiting
from fikitd.api.registry import HANDLERS, Caller
from fikitd.api.user import LONGEST_SECONDS, MOST_OUTSTANDING, MOST_SERVED, MOST_THREADS, Turn, User
from fikitd.file_watch import FileWatch
from fikitd.scarcity import in_thread
from fikitd.tenants.peer import Peer
from fikitd.wire import PeerClosedError, Wire

DAEMON: Any = SimpleNamespace(
    version="",
    allowance=lambda peer: SimpleNamespace(priority_ceiling=0),
    supervisor=SimpleNamespace(start_seconds=60.0),
    taken_over=SimpleNamespace(is_set=lambda: True),
)


class Tenant:
    """A user with connections, which end with the test."""

    def __init__(self, nursery: trio.Nursery, uid: int) -> None:
        self.nursery = nursery
        self.wires: list[Wire] = []
        self.user = User()
        self.peer = Peer(uid=uid, gid=uid, pid=1, groups=(), tenant=str(uid), administrator=False)

    async def connect(self) -> Wire:
        ours, theirs = trio.socket.socketpair()
        self.nursery.start_soon(Connection(theirs, DAEMON, self.peer, self.user).serve)
        wire = Wire(ours, p.AnyReply)
        self.wires.append(wire)
        await wire.send(p.encode(0, p.Hello(version=p.PROTOCOL_VERSION, client="test")))
        while not await wire.receive():
            pass
        return wire

    async def leave(self) -> None:
        """With all connections."""
        for wire in self.wires:
            wire.close()
        await wait_all_tasks_blocked()
        assert (self.user.outstanding, self.user.held_bytes) == (0, 0)
        for _ in range(MOST_SERVED):
            self.user.served.acquire_nowait()


async def answered(_: Caller, __: Any) -> p.Reply:
    return p.Done()


async def answers(wire: Wire, count: int) -> list[Any]:
    replies: list[Any] = []
    while len(replies) < count:
        replies += await wire.receive()
    return [reply for _, reply in replies]


async def test_who_asks_much_waits_for_himself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[int] = []
    most = 0

    async def handler(caller: Caller, _: Any) -> p.Reply:
        nonlocal most
        served.append(caller.peer.uid)
        before = len(served)
        await trio.lowlevel.checkpoint()
        most = max(most, len(served) - before)
        return p.Done()

    monkeypatch.setitem(HANDLERS, p.GetStatus, handler)
    async with trio.open_nursery() as nursery:
        many = Tenant(nursery, 1)
        wires = [await many.connect() for _ in range(10)]
        other = Tenant(nursery, 2)
        one = await other.connect()
        for wire in wires:
            await wire.send(p.encode(1, p.GetStatus()) * 60)
        await one.send(p.encode(1, p.GetStatus()))
        await answers(one, 1)
        assert served.count(1) < 100  # of 600, which came first
        for wire in wires:
            assert await answers(wire, 60) == [p.Done()] * 60
        assert most <= 2 * MOST_SERVED
        await many.leave()
        await other.leave()


async def test_who_waits_takes_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def waits(caller: Caller, _: Any) -> p.Reply:
        async with caller.turn.waiting():
            await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setitem(HANDLERS, p.Wait, waits)
    monkeypatch.setitem(HANDLERS, p.GetStatus, answered)
    async with trio.open_nursery() as nursery:
        tenant = Tenant(nursery, 1)
        for _ in range(MOST_OUTSTANDING // 64):
            wire = await tenant.connect()
            await wire.send(p.encode(1, p.Wait(job="job-1")) * 63 + p.encode(2, p.GetStatus()))
            assert await answers(wire, 1) == [p.Done()]
            await wire.send(p.encode(1, p.Wait(job="job-1")))
        other = await tenant.connect()
        await other.send(p.encode(1, p.GetStatus()))
        (refusal,) = await answers(other, 1)
        assert (refusal.code, "of this user" in refusal.message) == ("quota", True)
        await tenant.leave()


async def test_what_takes_long_keeps_others_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk or an executor that hangs, say."""
    begun = 0

    async def hangs(_: Caller, __: Any) -> p.Reply:
        nonlocal begun
        begun += 1
        await trio.sleep_forever()

    monkeypatch.setitem(HANDLERS, p.Explain, hangs)
    monkeypatch.setitem(HANDLERS, p.GetStatus, answered)
    async with trio.open_nursery() as nursery:
        tenant = Tenant(nursery, 1)
        hanging = await tenant.connect()
        await hanging.send(p.encode(1, p.Explain(session="s-1")) * 3 * MOST_SERVED)
        other = await tenant.connect()
        for _ in range(3):
            await other.send(p.encode(1, p.GetStatus()))
            assert await answers(other, 1) == [p.Done()]
        assert begun == 3 * MOST_SERVED
        await tenant.leave()


async def test_what_waits_for_a_disk_leaves_others_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """One user may have only some threads, and few places in a queue of all, as the store has."""
    disk_answers, queue, begun = threading.Event(), trio.CapacityLimiter(1), trio.Semaphore(0)

    async def reads(_: Caller, __: Any) -> p.Reply:
        begun.release()
        await in_thread(disk_answers.wait)
        return p.Done()

    async def writes(_: Caller, __: Any) -> p.Reply:
        begun.release()
        await in_thread(disk_answers.wait, limiter=queue)
        return p.Done()

    async def looks(_: Caller, __: Any) -> p.Reply:
        await in_thread(int)
        return p.Done()

    monkeypatch.setattr("fikitd.api.user.LONGEST_SECONDS", 0.001)
    for request, handler in ((p.Explain, reads), (p.ListJobs, writes), (p.GetStatus, looks)):
        monkeypatch.setitem(HANDLERS, request, handler)
    async with trio.open_nursery() as nursery:
        many, other = Tenant(nursery, 1), Tenant(nursery, 2)
        hanging, one = await many.connect(), await other.connect()
        try:
            asked = p.encode(1, p.ListJobs()) * 12 + p.encode(1, p.Explain(session="s-1")) * 48
            await hanging.send(asked)
            for _ in range(60):
                await begun.acquire()
            assert queue.statistics().tasks_waiting < MOST_THREADS
            with trio.fail_after(10):
                await one.send(p.encode(1, p.GetStatus()))
                assert await answers(one, 1) == [p.Done()]
                await in_thread(int)  # the daemon's own
        finally:
            disk_answers.set()
        assert await answers(hanging, 60) == [p.Done()] * 60
        await many.leave()
        await other.leave()


async def test_who_says_no_hello_keeps_no_turn() -> None:
    async with trio.open_nursery() as nursery:
        tenant = Tenant(nursery, 1)
        ours, theirs = trio.socket.socketpair()
        with ours:
            await ours.send(p.encode(1, p.GetStatus()))
            await Connection(theirs, DAEMON, tenant.peer, tenant.user).serve()
        await tenant.leave()


async def test_some_of_those_who_wait_are_accepted_at_a_time(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        listening.setblocking(False)
        for _ in range(MOST_ACCEPTED + 1):
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(str(tmp_path / "s"))
        for count in (MOST_ACCEPTED - 1, 2, 0):
            accepted = list(waiting(listening))
            assert len(accepted) == count
            for each in accepted:
                each.close()


async def test_what_a_user_sends_by_halves_is_limited_over_his_connections() -> None:
    half = b"\x82\xa2id\x01\xa4body\xdb\x00\xff\xff\xff" + bytes(15 << 20)
    async with trio.open_nursery() as nursery:
        tenant = Tenant(nursery, 1)
        wires = [await tenant.connect() for _ in range(5)]
        for wire in wires[:4]:
            await wire.send(half)
        with pytest.raises(PeerClosedError):
            await wires[4].send(half)
            while True:
                for _, refusal in await wires[4].receive():
                    assert "bytes of this user's" in refusal.message
        wires[0].close()
        await (await tenant.connect()).send(half)
        await wait_all_tasks_blocked()
        assert tenant.user.held_bytes == 4 * len(half)
        await tenant.leave()


async def test_a_crowd_that_waits_for_its_turn_gets_one_after_the_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Also where those before it keep theirs: each that looked at the clock would take one from them."""
    user, served = User(), 0

    async def keep_one() -> None:
        nonlocal served
        await Turn(user).take()
        served += 1
        await trio.sleep_forever()

    with trio.move_on_after(10.5 * LONGEST_SECONDS):
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(keep_one)
    assert served == MOST_SERVED + 10


async def test_who_waits_for_a_file_is_told_once_of_many_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program writes thousands of lines in a turn of the loop, and a thousand requests may follow it."""
    told = 0
    tell = FileWatch.tell

    def count(watch: FileWatch) -> None:
        nonlocal told
        told += 1
        tell(watch)

    monkeypatch.setattr(FileWatch, "tell", count)
    with ExitStack() as stack:
        watches = [stack.enter_context(FileWatch(tmp_path)) for _ in range(20)]
        files = [stack.enter_context((tmp_path / name).open("wb", buffering=0)) for name in ("a", "b")]
        for _ in range(500):
            for file in files:
                file.write(b"line\n")
        for watch in watches:
            await watch.changed()
    assert told == len(watches)
