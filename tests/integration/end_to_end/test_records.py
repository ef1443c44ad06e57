"""A tenant that writes what it likes into its ring: its session ends with a named error, no other does."""

from __future__ import annotations

import json
import mmap
import os
import random
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import fikit
import pytest
from fikit import protocol as p

from tests.integration.conftest import Client, Daemon
from tests.integration.end_to_end.conftest import SETTINGS
from tests.integration.end_to_end.raw_channel import put_word

pytestmark = pytest.mark.shares_daemon

Connect = Callable[..., fikit.Session]
HEAD_AT = 64
"""In the outbox: bytes ever written to the ring (shim/abi.h)."""
DEFERRED_AT = 128
"""In the inbox: how many asynchronous errors there were; the text of the last is a cache line behind."""


class Tenant:
    """A session without a client library: its outbox is written by hand."""

    def __init__(self, daemon: Daemon) -> None:
        self.client = daemon.client()
        opened = self.client.ask(p.OpenSession(name="bad"))
        assert isinstance(opened, p.SessionOpened)
        self.session = opened.session
        outbox, inbox, self.lifeline = self.client.descriptors
        self.inbox = mmap.mmap(inbox, 4096, prot=mmap.PROT_READ)
        self.outbox = mmap.mmap(outbox, os.fstat(outbox).st_size)
        self.ring, self.ring_bytes = struct.unpack_from("<QQ", self.outbox, 8)
        self.client.subscribe()

    def write(self, record: bytes, head: int | None = None) -> None:
        self.outbox[self.ring : self.ring + len(record)] = record
        self.publish(-(-len(record) // 64) * 64 if head is None else head)

    def publish(self, head: int) -> None:
        put_word(self.outbox, HEAD_AT, head)
        with suppress(BrokenPipeError):  # it may have seen the record already, and ended the session
            os.write(self.lifeline, b"!")

    def ended(self) -> str:
        """Wait for the end of the session; the reason."""
        while (event := self.client.receive()[1]).kind != "session_ended" or event.session != self.session:
            pass
        return str(event.detail["reason"])


def header(op: int, *, size: int = 64, stream: int = 0, handle: int | None = None) -> bytes:
    begun = struct.pack("<IHHII", size, op, 0, stream, 0)
    return begun if handle is None else begun + struct.pack("<II", handle, 0)


def padded(*parts: bytes) -> bytes:
    record = b"".join(parts)
    return record.ljust(-(-len(record) // 64) * 64, b"\0")


LAUNCH, COPY, FILL, EVENT, STREAM, HOST_FREE, CALL, GRAPH = 1, 3, 4, 5, 9, 13, 14, 2
BAD = {
    "no size": (padded(header(LAUNCH, size=0)), "impossible record size"),
    "a size that is no multiple": (padded(header(LAUNCH, size=65)), "impossible record size"),
    "a size beyond what was written": (padded(header(LAUNCH, size=1 << 20)), "impossible record size"),
    "an operation that is none": (padded(header(999)), "unknown operation"),
    "padding in the middle": (padded(header(0)), "padding in its middle"),
    "a stream out of range": (padded(header(7, stream=5000)), "stream handle out of range"),
    "a stream that does not exist": (padded(header(7, stream=77)), "stream 77 does not exist"),
    "the default stream, created": (padded(header(STREAM)), "legacy default stream"),
    "an event out of range": (
        padded(header(EVENT, handle=1 << 30)),
        "event handle out of range",
    ),
    "a graph out of range": (
        padded(header(GRAPH, handle=1 << 30)),
        "graph handle out of range",
    ),
    "a host buffer out of range": (
        padded(header(HOST_FREE), struct.pack("<Q", 1 << 40)),
        "host buffer handle out of range",
    ),
    "a function out of range": (
        padded(header(LAUNCH), struct.pack("<12I", 1 << 20, *[1] * 6, 0, 0, 0, 0, 0)),
        "function handle out of range",
    ),
    "parameters beyond the record": (
        padded(header(LAUNCH), struct.pack("<12I", 1, *[1] * 6, 0, 4096, 0, 0, 0)),
        "exceed the record",
    ),
    "a copy of an impossible size": (
        padded(header(COPY), struct.pack("<IIQQQ", 0, 0, 0, 0, 1 << 60)),
        "copy: impossible size",
    ),
    "a copy of no kind": (padded(header(COPY), struct.pack("<IIQQQ", 9, 0, 0, 0, 4)), "copy: unknown kind"),
    "a fill of no width": (padded(header(FILL), struct.pack("<QQII", 0, 1, 0, 3)), "fill: width"),
    "a call that is none": (padded(header(CALL), struct.pack("<II", 9999, 0)), "call: unknown number"),
    "a call's payload beyond the record": (
        padded(header(CALL), struct.pack("<II", 1, 16000)),
        "payload exceeds the record",
    ),
}


@pytest.fixture
def bystander(connect: Connect) -> Iterator[fikit.Session]:
    """Another session in the same executor, with data that must stay."""
    session = connect(name="bystander")
    with session.allocate(1 << 20) as memory:
        memory.fill(42)
        session.synchronize()
        yield session
        assert memory.read() == bytes([42]) * (1 << 20)


def test_a_bad_record_ends_that_session_only(daemon: Daemon, bystander: fikit.Session) -> None:
    for what, (record, reason) in BAD.items():
        tenant = Tenant(daemon)
        tenant.write(record)
        assert reason in tenant.ended(), what
        tenant.client.close()
    assert sessions(daemon) == [bystander.identifier]


@pytest.mark.parametrize("head", [1, 63, 1 << 40, (1 << 64) - 64])
def test_an_impossible_head(daemon: Daemon, bystander: fikit.Session, head: int) -> None:
    tenant = Tenant(daemon)
    tenant.write(padded(header(7)), head)
    assert "impossible head" in tenant.ended()


SLOW_ACCOUNTS = """
import time
from fikitd.executor import final_accounts
leave = final_accounts.leave
def slowly(*arguments):
    time.sleep(1)
    leave(*arguments)
final_accounts.leave = slowly
from fikitd.executor.__main__ import main
main()
"""


def test_a_reason_is_told_however_long_disks_take(stopped_daemon: Daemon) -> None:
    """The executor has no such session any more and has not said why, for five of its beats."""
    command = json.dumps([sys.executable, "-P", "-c", SLOW_ACCOUNTS])
    stopped_daemon.configure(settings=SETTINGS.replace("[executor]", f"[executor]\ncommand = {command}"))
    tenant = Tenant(stopped_daemon.start())
    tenant.write(padded(header(7)), 1)
    assert "impossible head" in tenant.ended()


def test_a_record_for_a_handle_that_is_not_there_is_refused(daemon: Daemon, bystander: fikit.Session) -> None:
    """In range, but nobody made it: an asynchronous error as CUDA has them, and the session goes on."""
    tenant = Tenant(daemon)
    launch = padded(header(LAUNCH), struct.pack("<12I", 1234, *[1] * 6, 0, 0, 0, 0, 0))
    copy = padded(header(COPY), struct.pack("<IIQQQ", 0, 3000, 0x1000, 0, 64))
    tenant.write(launch + copy)
    while struct.unpack_from("<Q", tenant.inbox, DEFERRED_AT)[0] < 2:
        bystander.synchronize()
    text = tenant.inbox[DEFERRED_AT + 64 : DEFERRED_AT + 320].partition(b"\0")[0]
    assert text.startswith(b"copy: CUDA_ERROR_INVALID_VALUE")
    assert set(sessions(daemon)) == {tenant.session, bystander.identifier}


def sessions(daemon: Daemon) -> list[str]:
    client: Client = daemon.client()
    found = [each.session for each in client.ask(p.ListSessions()).sessions]
    client.close()
    return found


def scribble(tenant: Tenant, over: threading.Event, records: list[bytes], numbers: random.Random) -> None:
    while not over.is_set():
        at = tenant.ring + 64 * numbers.randrange(64)
        record = numbers.choice(records)
        tenant.outbox[at : at + len(record)] = record


def test_records_that_change_while_they_are_read(daemon: Daemon, bystander: fikit.Session) -> None:
    """A thread scribbles over the ring while the executor reads it: whatever it sees is judged as a whole."""
    numbers = random.Random(7)
    for _ in range(5):
        tenant, over = Tenant(daemon), threading.Event()
        records = [padded(header(op, stream=stream)) for op in range(16) for stream in (0, 1, 2000)]
        records += [record for record, _ in BAD.values()]

        writer = threading.Thread(target=scribble, args=(tenant, over, records, numbers))
        writer.start()
        for head in range(64, 64 * 64, 64):
            tenant.publish(head)
        tenant.ended()
        over.set()
        writer.join()
        tenant.client.close()
    assert sessions(daemon) == [bystander.identifier]
