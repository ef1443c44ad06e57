"""Users of one machine run the same modules, and neither may tell the other's executors what these take."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import fikit
import pytest
from fikit import protocol as p
from msgspec.structs import replace

from tests.integration.conftest import Client, Daemon
from tests.integration.end_to_end.conftest import PTX, SETTINGS

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

Connect = Callable[..., fikit.Session]
ONE, OTHER = 1, 65534
MILLISECOND = 1_000_000


@contextmanager
def acting_as(uid: int) -> Iterator[None]:
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


def learnt(client: Client) -> list[p.ProfileRecord]:
    return [each for each in client.ask(p.ListProfiles()).profiles if each.function == "spin"]


def test_what_a_kernel_takes_is_each_users_own(stopped_daemon: Daemon, connect_to: Connect) -> None:
    stopped_daemon.configure(settings=SETTINGS.replace("[daemon]", '[daemon]\nsocket_mode = "0666"'))
    stopped_daemon.start()
    clients, sessions = {}, {}
    for uid in (ONE, OTHER):
        with acting_as(uid):
            clients[uid], sessions[uid] = stopped_daemon.client(), connect_to(name=f"of {uid}")

    def run(uid: int, nanoseconds: int) -> p.ProfileRecord:
        kernel = sessions[uid].load(PTX).kernel("spin")
        for _ in range(3):
            kernel.launch(nanoseconds, grid=1, block=1)
            sessions[uid].synchronize()
        while not (found := learnt(clients[uid])):
            pass
        (profile,) = found
        return profile

    long = run(ONE, 4 * MILLISECOND)
    assert learnt(clients[OTHER]) == []
    short = run(OTHER, MILLISECOND // 4)
    assert short.median_ns < long.median_ns // 4
    assert learnt(clients[ONE]) == [long]
    administrator = stopped_daemon.client()
    assert sorted(each.median_ns for each in learnt(administrator)) == [short.median_ns, long.median_ns]

    imported = replace(long, samples=9, median_ns=3 * MILLISECOND)
    assert administrator.ask(p.ImportProfiles(profiles=[imported])) == p.Done()
    assert [learnt(each) for each in (*clients.values(), administrator)] == [[imported]] * 3
