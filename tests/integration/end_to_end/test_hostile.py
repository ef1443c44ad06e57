"""Tenants that write their channels by themselves, to harm others in the executor. Nobody is harmed."""

from __future__ import annotations

import array
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import fikit
import pytest
from fikit import protocol as p

from tests.integration.conftest import Daemon
from tests.integration.end_to_end.conftest import PTX, listener
from tests.integration.end_to_end.raw_channel import ANSWER_SECONDS, MODULE_LOAD, NOTES_OFFSET, RawChannel
from tests.integration.end_to_end.test_refusals import still_works
from tests.integration.test_daemon_hostile import lingering

Connect = Callable[..., fikit.Session]

FAILS = """
.version 7.8
.target sm_80
.address_size 64
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.global .align 1 .b8 text[8] = {110, 111, 195, 40, 255, 254, 33, 0};
.visible .entry fails()
{
    .reg .b64 %rd<3>; .reg .b32 %r<2>;
    mov.u64 %rd1, text;
    cvta.global.u64 %rd2, %rd1;
    mov.u32 %r1, 7;
    {
        .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 s;
        st.param.b64 [m+0], %rd2;
        st.param.b64 [f+0], %rd2;
        st.param.b32 [l+0], %r1;
        st.param.b64 [n+0], %rd2;
        st.param.b64 [s+0], 1;
        call.uni __assertfail, (m, f, l, n, s);
    }
    ret;
}
"""

COPY, ROWS, MEMORY_ALLOCATE = 3, 2, 2  # an operation, a flag of it, a call
STAGING_BYTES = 4 << 20
LINE_BYTES = 1024
PRINTS = f"""
.version 7.8
.target sm_80
.address_size 64
.extern .func (.param .b32 count) vprintf (.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 line[{LINE_BYTES + 1}] = {{{"120, " * (LINE_BYTES - 1)}10, 0}};
.visible .entry prints()
{{
    .reg .b64 %rd<4>; .reg .b32 %r<2>;
    mov.u64 %rd1, line;
    cvta.global.u64 %rd2, %rd1;
    mov.u64 %rd3, 0;
    {{
        .param .b64 format; .param .b64 arguments; .param .b32 count;
        st.param.b64 [format], %rd2;
        st.param.b64 [arguments], %rd3;
        call.uni (count), vprintf, (format, arguments);
        ld.param.b32 %r1, [count];
    }}
    ret;
}}
"""


def test_a_kernels_name_is_what_the_module_calls_it(daemon: Daemon, session: fikit.Session) -> None:
    """With more behind its end it would be another kernel every time, or no text at all."""
    raw = RawChannel(daemon.client())
    raw.load(PTX)
    for name in (b"nothing\0again", b"nothing\0\xff\xfe", b"\0", b""):
        assert raw.function(name, 1) == 1  # CUDA_ERROR_INVALID_VALUE
    assert raw.function(b"nothing", 2) == 0
    raw.launch(2)
    with session.load(PTX) as module:
        module.kernel("work").launch(10, grid=1, block=1)
        session.synchronize()
    client = daemon.client()
    known: set[str] = set()
    while len(known) < 2:
        known = {each.function for each in client.ask(p.ListProfiles()).profiles}
    assert known == {"nothing", "work"}


@pytest.mark.shares_daemon
def test_an_assertion_whose_text_is_none(daemon: Daemon, connect: Connect) -> None:
    culprit, neighbour = connect(name="culprit"), connect(name="neighbour")
    watcher = daemon.client()
    watcher.subscribe()
    culprit.load(FAILS).kernel("fails").launch(grid=1, block=1)
    for session in (culprit, neighbour):
        with pytest.raises(fikit.SessionLostError) as caught:
            while True:
                session.synchronize()
        assert caught.value.name == "CUDA_ERROR_ASSERT"
    reasons = []
    while len(reasons) < 2:
        event = watcher.receive()[1]
        if event.kind == "session_ended":
            reasons.append(event.detail["reason"])
    assert all("Assertion `no\ufffd(\ufffd\ufffd!` failed" in reason for reason in reasons), reasons


@pytest.mark.shares_daemon
def test_a_copy_of_rows_reaches_nothing_beside_its_memory(daemon: Daemon, session: fikit.Session) -> None:
    raw = RawChannel(daemon.client())
    status, reply = raw.call(MEMORY_ALLOCATE, struct.pack("<Q", 2 << 20))
    assert status == 0
    (device,) = struct.unpack_from("<Q", reply)
    memory = (0, 0, 0, 0, 0, 64, 1)  # array, level, x, y, z, pitch, height
    beside = (0, 0, 64, 64, 4, 1 << 20, 1 << 20)
    for ends in ((memory, beside), (beside, memory)):
        for kind in range(3):  # to the device, to the host, on the device
            copy = struct.pack("<IIQQQ", kind, 0, device, device + 64 if kind == 2 else 0, 64)
            body = b"".join(struct.pack("<II5Q", *end) for end in ends) + struct.pack("<3Q", 64, 1, 1)
            raw.write(COPY, copy + body, flags=ROWS)
    assert raw.call(MEMORY_ALLOCATE, struct.pack("<Q", 2 << 20))[0] == 0
    still_works(session)


@pytest.mark.shares_daemon
def test_counts_of_calls_that_are_not_served(daemon: Daemon, session: fikit.Session) -> None:
    clients = [daemon.client() for _ in range(5)]
    for client in clients:
        note = struct.pack("<Q56s", (1 << 64) - 1, b"cuHostile")
        RawChannel(client).outbox[NOTES_OFFSET : NOTES_OFFSET + 64] = note
    watcher = daemon.client()
    while sum(bool(each.usage.unsupported) for each in watcher.ask(p.ListSessions()).sessions) < 5:
        pass
    tenants = watcher.ask(p.ListTenants())
    assert isinstance(tenants, p.Tenants), tenants
    assert tenants.tenants[0].usage.unsupported["cuHostile"] > 1 << 32
    still_works(session)


def test_names_of_kernels_that_fill_frames(daemon: Daemon, session: fikit.Session, connect: Connect) -> None:
    """As long as templates make them, in many shapes: what is told of them comes in portions."""
    client = daemon.client()
    name = "n" * 8000
    shapes = 700
    with session.load(PTX.replace(".entry nothing()", f".entry {name}()")) as module:
        kernel = module.kernel(name)
        assert client.ask(p.StartTrace()) == p.Done()
        for blocks in range(1, shapes + 1):
            kernel.launch(grid=blocks, block=1)
            session.synchronize()
    traced: list[p.TraceOperation] = []
    more = True
    portions = 0
    while more:
        trace = client.ask(p.ReadTrace())
        traced, more, portions = traced + trace.operations, trace.more, portions + 1
    assert len({each.blocks for each in traced if each.kind == "launch"}) == shapes
    assert portions > 1
    known = 0
    while known < shapes:
        known = 0
        more = True
        while more:
            listed = client.ask(p.ListProfiles(limit=10_000, offset=known))
            known, more = known + len(listed.profiles), listed.more
    connect(isolated=True).synchronize()  # an executor that was told of them


def test_what_kernels_print_and_nobody_takes_has_a_bound(daemon: Daemon, connect: Connect) -> None:
    """The client library takes nothing of it, and it is memory of the host's."""
    session = connect(isolated=True)
    executor = max((daemon.place / "run").glob("x-*.sock"), key=lambda path: path.stat().st_ctime_ns)
    printed = Path(f"/proc/{listener(executor)}/fd/1")
    kernel = session.load(PRINTS).kernel("prints")
    for _ in range(400):
        kernel.launch(grid=16, block=32)
        session.synchronize()
        if printed.stat().st_size > 80 << 20:
            break
    for _ in range(100):
        if printed.stat().st_blocks * 512 <= 64 << 20:
            return
        threading.Event().wait(0.1)
    raise AssertionError(f"{printed.stat().st_blocks * 512} bytes")


@pytest.mark.shares_daemon
def test_who_keeps_the_descriptor_of_a_channel_keeps_no_memory(daemon: Daemon) -> None:
    """It is the executor's, and a session more can be had each time."""
    client = daemon.client()
    raw = RawChannel(client)
    outbox = client.descriptors[-3]
    raw.outbox[-STAGING_BYTES:] = bytes(STAGING_BYTES)
    assert os.fstat(outbox).st_blocks * 512 >= STAGING_BYTES
    assert client.ask(p.Kill(target=raw.session)) == p.Done()
    limit = time.monotonic() + ANSWER_SECONDS
    while os.fstat(outbox).st_blocks > 0:
        assert time.monotonic() < limit


@pytest.mark.shares_daemon
def test_an_image_in_a_file_of_holes_fills_none_of_them(daemon: Daemon) -> None:
    """What is read through a mapping takes memory, of which the tenant has the file."""
    raw, size = RawChannel(daemon.client()), 64 << 20
    image = os.memfd_create("image")
    os.write(image, PTX.encode())
    os.ftruncate(image, size)
    with socket.socket(fileno=os.dup(raw.lifeline)) as lifeline:
        lifeline.sendmsg([b"d"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [image]))])
    assert raw.call(MODULE_LOAD, struct.pack("<IIQQ", 0, 1, 0, size))[0] == 0
    assert raw.function(b"nothing", 0) == 0
    assert os.fstat(image).st_blocks * 512 < size // 8
    os.close(image)


@pytest.mark.parametrize("where", ["displaced", "several"])
def test_descriptors_whose_close_takes_for_ever(daemon: Daemon, connect: Connect, where: str) -> None:
    """Of those that come with no call, one after the other or together, the last is kept."""
    other, hostile = connect(name="other"), RawChannel(daemon.client())
    kernel = other.load(PTX).kernel("nothing")
    executor = listener(next((daemon.place / "run").glob("x-*.sock")))
    memory = os.memfd_create("image")
    first = [memory] if where == "several" else []
    with lingering() as slow, socket.socket(fileno=os.dup(hostile.lifeline)) as lifeline:
        os.kill(executor, signal.SIGSTOP)  # until all of it is there
        for sent in ([*first, slow], [memory]):
            lifeline.sendmsg([b"d"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", sent))])
            os.close(sent[-1])
        os.kill(executor, signal.SIGCONT)
        for _ in range(20):
            kernel.launch(grid=1, block=1)
            other.synchronize(timeout=5.0)
            time.sleep(0.01)


def targets(descriptors: Path) -> Iterator[str]:
    """What a process has open by now."""
    for each in descriptors.iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            yield os.readlink(each)


def test_descriptors_whose_close_takes_for_ever_take_few_threads(daemon: Daemon, connect: Connect) -> None:
    """The number of one is free before it is closed, and the threads of a machine are everybody's."""
    other, hostile = connect(name="other"), RawChannel(daemon.client())
    executor = listener(next((daemon.place / "run").glob("x-*.sock")))
    tasks, place = f"/proc/{executor}/task", Path(f"/proc/{executor}/fd")
    before, sent = len(os.listdir(tasks)), set()
    with ExitStack() as stack, socket.socket(fileno=os.dup(hostile.lifeline)) as lifeline:
        for _ in range(64):
            slow = stack.enter_context(lingering())
            sent.add(os.readlink(f"/proc/self/fd/{slow}"))
            lifeline.sendmsg([b"d"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [slow]))])
            os.close(slow)
        while len(os.listdir(tasks)) == before:
            pass
        time.sleep(0.5)
        assert len(os.listdir(tasks)) <= before + 32
        other.synchronize(timeout=5.0)
    while len([each for each in targets(place) if each in sent]) > 1:  # the last is kept
        pass
