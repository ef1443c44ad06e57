"""What a session promises, against whatever daemon the fixtures give."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import fikit
import numpy as np
import pytest
from fikit._channel import Channel
from fikit.core import Core


def test_axpy_end_to_end(session: fikit.Session, axpy: fikit.Kernel) -> None:
    x = np.arange(1000, dtype=np.float32)
    y = np.ones(1000, dtype=np.float32)
    with session.allocate(x.nbytes) as device_x, session.allocate(y.nbytes) as device_y:
        device_x.copy_from(x)
        device_y.copy_from(y)
        axpy.launch(2.0, device_x, device_y, 1000, grid=4, block=256)
        session.synchronize()
        result = np.empty_like(y)
        device_y.copy_to(result)
    np.testing.assert_array_equal(result, 1 + 2 * x)


def test_device_says_what_it_is(session: fikit.Session) -> None:
    device = session.device
    assert device.name
    assert device.memory_bytes > 0
    assert device.compute_capability >= (7, 0)
    assert device.multiprocessors > 0
    assert len(device.uuid) == 16
    assert device.time_scale > 0
    information = session.memory_information()
    assert 0 < information.free <= information.total


@pytest.mark.parametrize("size", [1, 4096, 65_537, 3 << 20, 20 << 20])
def test_pageable_copies_of_every_size(session: fikit.Session, size: int) -> None:
    content = np.random.default_rng(size).integers(0, 255, size, dtype=np.uint8)
    with session.allocate(size) as memory:
        source = content.copy()
        memory.copy_from(source)
        source[:] = 0  # it was read before copy_from returned
        assert memory.read() == content.tobytes()


def test_parts_of_memory(session: fikit.Session) -> None:
    with session.allocate(64) as memory, session.allocate(64) as other:
        memory.fill(0)
        memory.fill(0x0102, width=2, offset=4, count=3)
        memory.copy_from(b"abc", offset=60)
        other.copy_from_memory(memory)
        assert other.read(16) == bytes(4) + b"\2\1" * 3 + bytes(6)
        assert other.read(4, offset=60) == b"abc\0"
        with pytest.raises(fikit.UsageError, match="do not lie within"):
            memory.copy_from(b"abc", offset=62)
        with pytest.raises(fikit.UsageError, match="fill"):
            memory.fill(256)


def test_numpy_s_integers_are_integers(session: fikit.Session, module: fikit.Module) -> None:
    small: Any = np.int32
    with session.allocate(64) as memory:
        memory.fill(0)
        memory.fill(7, width=small(4), count=small(2), offset=small(16))
        memory.copy_from(b"abcd", offset=small(4))
        memory.copy_from_memory(memory, size=small(4), offset=small(8), source_offset=small(4))
        written = bytes(4) + b"abcdabcd" + bytes(4) + b"\7\0\0\0" * 2
        assert memory.read(small(24), offset=small(0)) == written
        before: Any = np.uint64(2**64 - 4)
        with pytest.raises(fikit.UsageError, match="do not lie within"):
            memory.copy_from(b"abcd", offset=before)
    module.kernel("nothing").launch(grid=(small(2), small(1)), block=small(32))
    session.synchronize()


class Resizing:
    """A channel during whose copies another thread would resize the host's side."""

    def __init__(self) -> None:
        self.content = bytearray(8)

    def resize(self) -> tuple[int, bool]:
        with pytest.raises(BufferError):
            self.content.extend(bytes(8))
        return 0, False

    def copy_to_device(self, stream: int, to: int, source: object) -> tuple[int, bool]:
        return self.resize()

    def copy_to_host(self, stream: int, to: object, source: int) -> tuple[int, bool]:
        return self.resize()


def test_the_host_side_of_a_copy_keeps_its_size(
    session: fikit.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = Resizing()
    with session.allocate(8) as memory:
        with monkeypatch.context() as patched:
            patched.setattr(memory, "_core", Core(cast(Channel, channel)))
            memory.copy_from(channel.content)
            memory.copy_to(channel.content)
        channel.content.extend(bytes(8))


def test_what_was_given_up_is_refused_by_name(session: fikit.Session, ptx: str) -> None:
    """Its number may be another's by then."""
    module, stream, event, other = session.load(ptx), session.stream(), session.event(), session.event()
    kernel = module.kernel("nothing")
    for give_up in (module.unload, stream.close, event.close):
        give_up()
        give_up()
    with session.allocate(8) as memory, session.load(ptx) as after, session.stream(), session.event():
        after.kernel("shapes")
        for call in (
            lambda: kernel.launch(grid=1, block=1),
            lambda: kernel.launch_nowait(grid=1, block=1, cluster=1),
            lambda: kernel.occupancy(32),
            kernel.allow_non_portable_cluster,
        ):
            with pytest.raises(fikit.UsageError, match="kernel nothing: its module was unloaded"):
                call()
        for call in (
            stream.query,
            stream.synchronize,
            lambda: stream.add_callback(print),
            lambda: stream.wait(other),
            lambda: other.record(stream),
            lambda: memory.fill(0, stream=stream),
            lambda: memory.copy_from(b"x", stream=stream),
            lambda: memory.read(stream=stream),
            lambda: after.kernel("nothing").launch(grid=1, block=1, stream=stream),
        ):
            with pytest.raises(fikit.UsageError, match="the stream was closed"):
                call()
        for call in (
            event.record,
            event.query,
            event.synchronize,
            lambda: session.default_stream.wait(event),
        ):
            with pytest.raises(fikit.UsageError, match="the event was closed"):
                call()
    session.synchronize()


def test_what_is_another_sessions_is_refused_by_name(session: fikit.Session, module: fikit.Module) -> None:
    with fikit.connect() as another:
        foreign, stream, event = another.allocate(8), another.stream(), another.event(timing=True)
        memory = session.allocate(8)
        for call in (
            lambda: memory.fill(0, stream=stream),
            lambda: memory.copy_from(b"x", stream=stream),
            lambda: memory.copy_from_memory(foreign),
            lambda: module.kernel("trap").launch(foreign, grid=1, block=1),
            lambda: module.kernel("nothing").launch(grid=1, block=1, stream=another.default_stream),
            lambda: session.event().record(stream),
            lambda: session.default_stream.wait(event),
            lambda: session.event(timing=True).elapsed(event),
        ):
            with pytest.raises(fikit.UsageError, match="another session"):
                call()
        with pytest.raises(TypeError, match=r"stream: 1 is no fikit\.Stream"):
            memory.fill(0, stream=1)  # type: ignore[arg-type]
    session.synchronize()


def test_pinned_memory_is_a_buffer(session: fikit.Session) -> None:
    pinned = session.allocate_pinned(1 << 16)
    array = np.frombuffer(pinned, dtype=np.uint32)
    assert array.size == 1 << 14
    array[:] = np.arange(1 << 14)
    with session.allocate(1 << 16) as memory:
        memory.copy_from(pinned, wait=False)
        back = session.allocate_pinned(1 << 16)
        memory.copy_to(back, wait=False)
        session.synchronize()
        np.testing.assert_array_equal(np.frombuffer(back, dtype=np.uint32), array)
        with pytest.raises(fikit.UsageError, match="pinned"):
            memory.copy_to(bytearray(8), wait=False)
    with pytest.raises(BufferError):
        pinned.free()
    del array
    gc.collect()
    pinned.free()
    with pytest.raises(ValueError, match="freed"):
        memoryview(pinned)


def test_streams_events_and_callbacks(session: fikit.Session, module: fikit.Module) -> None:
    kernel = module.kernel("nothing")
    called = threading.Event()
    with session.stream() as first, session.stream(priority=-1, non_blocking=True) as second:
        with session.event(timing=True) as start, session.event(timing=True) as end:
            assert start.query()
            start.record(first)
            kernel.launch(grid=1, block=32, stream=first)
            end.record(first)
            second.wait(end)
            kernel.launch(grid=1, block=32, stream=second)
            end.synchronize()
            assert end.query()
            assert end.elapsed(start) >= 0
        second.add_callback(called.set)
        second.synchronize()
        assert called.is_set()
        assert second.query()
        first.synchronize()
    session.default_stream.synchronize()


def test_kernel_attributes_and_occupancy(module: fikit.Module) -> None:
    kernel = module.kernel("shapes")
    assert kernel.parameter_sizes == (1, 2, 4, 8, 4, 8, 12)
    assert kernel.attributes.max_threads > 0
    assert kernel.occupancy(256) > 0
    assert module.kernel("shapes") is kernel
    with pytest.raises(fikit.CudaError, match=r"kernel absent: CUDA_ERROR_NOT_FOUND \(500\)"):
        module.kernel("absent")
    with pytest.raises(fikit.UsageError, match="parameter 0"):
        module.kernel("shapes", ["f64", *["any"] * 6])
    for types in ([], ["u8"]):
        with pytest.raises(fikit.UsageError, match="7 parameters"):
            module.kernel("shapes", types)


def test_errors_name_the_call(session: fikit.Session, ptx: str) -> None:
    with pytest.raises(fikit.OutOfMemoryError, match=r"allocate of .* CUDA_ERROR_OUT_OF_MEMORY") as caught:
        session.allocate(1 << 50)
    assert caught.value.status == 2
    with pytest.raises(fikit.CudaError, match="ptxas") as refused:
        session.load(ptx.replace("ret;", "no instruction;"))
    assert refused.value.name == "CUDA_ERROR_INVALID_PTX"
    memory = session.allocate(8)
    memory.free()
    with pytest.raises(fikit.UsageError, match="freed"):
        memory.copy_from(b"x")


def test_asynchronous_errors_come_with_the_next_wait(
    session: fikit.Session, axpy: fikit.Kernel, real: bool
) -> None:
    if real:
        pytest.skip("a bad address ends a real session")
    axpy.launch(1.0, 16, 16, 4, grid=1, block=32)
    with pytest.raises(
        fikit.CudaError, match=r"Session\.synchronize: CUDA_ERROR_INVALID_VALUE .* no memory .* 0x10"
    ):
        session.synchronize()
    session.synchronize()


def test_a_trap_ends_the_session(session: fikit.Session, module: fikit.Module) -> None:
    kernel = module.kernel("trap")
    kernel.launch(0x10, grid=1, block=1)
    with pytest.raises(fikit.SessionLostError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        session.synchronize()
    with pytest.raises(fikit.SessionLostError, match="launch of kernel trap"):
        kernel.launch(0x10, grid=1, block=1)


def test_the_executor_is_gone(session: fikit.Session, module: fikit.Module, real: bool) -> None:
    if real:
        pytest.skip("a real executor does not vanish on request")
    module.kernel("vanish").launch(grid=1, block=1)
    with pytest.raises(fikit.SessionLostError, match="the executor is gone") as caught:
        session.allocate(8)
    assert caught.value.status == 719


def test_waits_can_have_a_limit(
    session: fikit.Session, module: fikit.Module, let_go: Callable[[], None]
) -> None:
    module.kernel("stall").launch(grid=1, block=1)
    assert not session.default_stream.query()
    with pytest.raises(TimeoutError, match=r"Session.synchronize: not done after 0\.01 s"):
        session.synchronize(timeout=0.01)
    let_go()
    session.synchronize()


def test_closed_session(socket_path: Path) -> None:
    session = fikit.connect()
    memory = session.allocate(8)
    session.close()
    session.close()
    memory.free()
    with pytest.raises(fikit.SessionLostError, match="closed"):
        session.synchronize()


def test_refusals_and_absent_daemons(socket_path: Path, tmp_path: Path) -> None:
    with pytest.raises(fikit.RefusedError) as caught:
        fikit.connect(gpu=99)
    assert caught.value.reason == "not_found"
    with pytest.raises(fikit.UnreachableError, match="is it running"):
        fikit.connect(socket=tmp_path / "nobody")
    with pytest.raises(fikit.UsageError, match="priority"):
        fikit.connect(priority="urgent")
    wrong: list[dict[str, Any]] = [
        {"memory_limit": 1 << 70},
        {"memory_limit": -1},
        {"memory_limit": "8G"},
        {"gpu": "first"},
        {"gpu": ""},
        {"gpu": 1.5},
        {"gpu": 1 << 70},
        {"name": 7},
        {"isolated": "yes"},
        *({"timeout": seconds} for seconds in (0, -1, 1e30, float("nan"))),
    ]
    for arguments in wrong:
        with pytest.raises(fikit.UsageError, match=next(iter(arguments))):
            fikit.connect(**arguments)
    limit: Any = np.int64(1 << 30)
    with fikit.connect(timeout=np.float64(30), gpu=limit * 0, memory_limit=limit) as session:
        assert (session.device.index, session.memory_limit) == (0, 1 << 30)


@pytest.mark.usefixtures("socket_path")
def test_a_program_s_name_may_be_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [os.fsdecode(b"/bin/\xff\xe9t\xc3\xa9")])
    fikit.connect().close()
    fikit.connect(name="\ud800" + "x" * 300).close()


def test_a_forked_child_has_no_session(session: fikit.Session, module: fikit.Module, ptx: str) -> None:
    kernel = module.kernel("nothing")
    memory, pinned = session.allocate(1 << 20), session.allocate_pinned(16)
    stream, event = session.stream(), session.event()
    calls: list[Callable[[], object]] = [
        session.synchronize,
        session.stream,
        session.event,
        stream.query,
        stream.synchronize,
        event.query,
        event.record,
        event.synchronize,
        lambda: stream.add_callback(print),
        lambda: kernel.launch(grid=1, block=1),
        lambda: memory.copy_from(b"pageable"),
        lambda: memory.copy_from(bytes(1 << 20)),
        lambda: memory.copy_from(pinned),
        lambda: memory.fill(0),
        memory.read,
        lambda: session.allocate(8),
        lambda: session.allocate_pinned(8),
        lambda: session.load(ptx),
        lambda: module.kernel("shapes"),
    ]
    session.synchronize()
    child = os.fork()
    if child == 0:
        try:
            for call in calls:
                with pytest.raises(fikit.SessionLostError, match="forked"):
                    call()
            for give_up in (
                memory.free,
                pinned.free,
                stream.close,
                event.close,
                module.unload,
                session.close,
            ):
                give_up()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    memory.copy_from(b"pageable")
    assert memory.read(8) == b"pageable"


def test_threads_share_a_session(session: fikit.Session, axpy: fikit.Kernel) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with session.stream() as stream, session.allocate(400) as x, session.allocate(400) as y:
                x.fill(0, stream=stream)
                y.copy_from(np.full(100, number, np.float32), stream=stream)
                for _ in range(100):
                    axpy.launch(1, x, y, 100, grid=1, block=128, stream=stream)
                assert np.frombuffer(y.read(stream=stream), np.float32).tolist() == [number] * 100
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def ends_without_a_word(program: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(fikit.__file__).parents[1])}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, timeout=30, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_interpreter_exit_with_everything_open(socket_path: Path) -> None:
    program = (
        "import fikit\n"
        "session = fikit.connect()\n"
        "memory, pinned = session.allocate(8), session.allocate_pinned(8)\n"
        "session.default_stream.add_callback(lambda: None)\n"
    )
    ends_without_a_word(program)


def test_daemon_threads_end_with_the_interpreter_and_say_nothing(socket_path: Path) -> None:
    """As one that prefetches, or looks after something, for as long as its program runs."""
    program = (
        "import fikit, threading\n"
        "session, begun = fikit.connect(), threading.Event()\n"
        "memory = session.allocate(1 << 20)\n"
        "def work():\n"
        "    while True:\n"
        "        memory.fill(1)\n"
        "        session.synchronize()\n"
        "        begun.set()\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "begun.wait()\n"
    )
    ends_without_a_word(program)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_gives_something_up_has_no_copies(
    session: fikit.Session, module: fikit.Module, again: Callable[[Any], Any]
) -> None:
    """Each would give it up when it is dropped, and what the session makes next has the same number."""
    owners = [session.stream(), session.event(), session.allocate(16), session.allocate_pinned(16)]
    for owner in (*owners, module._image):
        with pytest.raises(TypeError, match=r"copied|pickle"):
            again(owner)
