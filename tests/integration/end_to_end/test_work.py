"""What a tenant's program does with the GPU: memory, kernels, order, events, host functions."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from functools import partial

import fikit
import numpy as np
import pytest

from tests.integration.end_to_end.conftest import PTX

pytestmark = pytest.mark.shares_daemon

Connect = Callable[..., fikit.Session]


def word(memory: fikit.Memory) -> int:
    (value,) = struct.unpack("<I", memory.read(4))
    return int(value)


def test_memory_keeps_what_is_copied_into_it(session: fikit.Session) -> None:
    numbers = np.random.default_rng(1).integers(0, 1 << 32, 3_000_001, dtype=np.uint32)
    with session.allocate(numbers.nbytes) as first, session.allocate(numbers.nbytes) as second:
        first.copy_from(numbers)
        second.copy_from_memory(first)
        back = np.zeros_like(numbers)
        second.copy_to(back)
        assert np.array_equal(back, numbers)
        assert second.read(8, offset=4) == numbers[1:3].tobytes()


def test_pinned_memory(session: fikit.Session) -> None:
    pinned = session.allocate_pinned(1 << 20)
    there = np.frombuffer(pinned, dtype=np.uint8)
    there[:] = np.arange(1 << 20, dtype=np.uint64).astype(np.uint8)
    with session.allocate(1 << 20) as memory:
        memory.copy_from(pinned, wait=False)
        session.synchronize()
        expected = there.copy()
        there[:] = 0
        memory.copy_to(pinned, wait=False)
        session.synchronize()
        assert np.array_equal(there, expected)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_fill(session: fikit.Session, width: int) -> None:
    with session.allocate(1 << 16) as memory:
        memory.fill(0)
        memory.fill(0xA7, width=width, count=100, offset=8)
        content = memory.read()
    expected = bytes(8) + (0xA7).to_bytes(width, "little") * 100
    assert content[: len(expected)] == expected
    assert not any(content[len(expected) :])


def test_kernels_run_in_order(session: fikit.Session) -> None:
    with session.load(PTX) as module, session.allocate(4) as memory:
        memory.fill(0)
        increment = module.kernel("increment")
        for _ in range(500):
            increment.launch(memory, grid=1, block=1)
        assert word(memory) == 500


def test_the_legacy_stream_waits_for_blocking_streams_and_they_for_it(session: fikit.Session) -> None:
    with session.load(PTX) as module, session.allocate(4) as memory:
        spin, store = module.kernel("spin"), module.kernel("store")
        blocking = session.stream()
        memory.fill(0)
        spin.launch(2_000_000, grid=1, block=1, stream=blocking)
        store.launch(memory, 1, grid=1, block=1, stream=blocking)
        store.launch(memory, 2, grid=1, block=1)  # the legacy stream: behind `blocking`
        spin.launch(2_000_000, grid=1, block=1)
        store.launch(memory, 3, grid=1, block=1, stream=blocking)  # behind the legacy stream
        session.synchronize()
        assert word(memory) == 3


def test_a_non_blocking_stream_waits_for_an_event_only(connect: Connect) -> None:
    session = connect(priority="high")  # no gate between its streams
    with session.load(PTX) as module, session.allocate(4) as memory:
        spin, store = module.kernel("spin"), module.kernel("store")
        first, second = session.stream(non_blocking=True), session.stream(non_blocking=True)
        event = session.event()
        spin.launch(20_000_000, grid=1, block=1, stream=first)
        store.launch(memory, 1, grid=1, block=1, stream=first)
        event.record(first)
        store.launch(memory, 7, grid=1, block=1, stream=second)
        second.synchronize()
        assert not event.query()
        second.wait(event)
        store.launch(memory, 2, grid=1, block=1, stream=second)
        session.synchronize()
        assert event.query()
        assert word(memory) == 2


def test_events_tell_the_time(session: fikit.Session) -> None:
    with session.load(PTX) as module:
        start, end = session.event(timing=True), session.event(timing=True)
        began = time.monotonic()
        start.record()
        module.kernel("spin").launch(3_000_000, grid=1, block=1)
        end.record()
        end.synchronize()
        assert 2.9e-3 < end.elapsed(start) < time.monotonic() - began


def test_host_functions_run_in_stream_order(session: fikit.Session) -> None:
    order: list[int] = []
    stream = session.stream()
    with session.load(PTX) as module:
        for number in range(3):
            module.kernel("spin").launch(200_000, grid=1, block=1, stream=stream)
            stream.add_callback(partial(order.append, number))
        stream.synchronize()
    assert order == [0, 1, 2]


def test_a_host_function_at_the_end_of_a_session_that_closes(connect: Connect) -> None:
    for _ in range(3):
        leaving = connect(name="leaving")
        leaving.allocate(1 << 20)
        leaving.allocate_pinned(1 << 16)
        leaving.default_stream.add_callback(lambda: None)
        leaving.close()
    with connect(name="next").allocate(64) as memory:
        memory.fill(1)
        assert memory.read(1) == b"\1"


def test_a_session_waits_for_its_own_work_only(connect: Connect) -> None:
    slow, quick = connect(name="slow", priority="high"), connect(name="quick", priority="high")
    spin, nothing = slow.load(PTX).kernel("spin"), quick.load(PTX).kernel("nothing")
    finished = slow.event()
    spin.launch(400_000_000, grid=1, block=1)
    finished.record()
    with quick.allocate(1 << 20) as memory:
        nothing.launch(grid=1, block=1)
        memory.fill(1)
        assert memory.read(1) == b"\1"
    assert not finished.query()
    slow.synchronize()


def test_many_streams(session: fikit.Session) -> None:
    with session.load(PTX) as module, session.allocate(4 * 128) as memory:
        store = module.kernel("store")
        streams = [session.stream(non_blocking=True) for _ in range(128)]
        for number, stream in enumerate(streams):
            store.launch(memory.address + 4 * number, number, grid=1, block=1, stream=stream)
        session.synchronize()
        assert np.array_equal(np.frombuffer(memory.read(), dtype=np.uint32), np.arange(128))
        for stream in streams:
            stream.close()


def test_threads_of_one_program(session: fikit.Session) -> None:
    with session.load(PTX) as module, session.allocate(4 * 4) as memory:
        memory.fill(0)
        session.synchronize()
        increment = module.kernel("increment")

        def work(number: int) -> None:
            stream = session.stream(non_blocking=True)
            for _ in range(200):
                increment.launch(memory.address + 4 * number, grid=1, block=1, stream=stream)
            stream.synchronize()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert np.frombuffer(memory.read(), dtype=np.uint32).tolist() == [200] * 4


def test_cuda_c(session: fikit.Session) -> None:
    """Whatever NVRTC is installed: the newest is newer than the driver."""
    pytest.importorskip("cuda.bindings.nvrtc")
    source = """extern "C" __global__ void square(float* data, unsigned count) {
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < count) data[i] *= data[i];
    }"""
    values = np.arange(1000, dtype=np.float32)
    with session.compile(source) as module, session.allocate(values.nbytes) as memory:
        memory.copy_from(values)
        module.kernel("square").launch(memory, 990, grid=4, block=256)
        session.synchronize()
        expected = np.where(values < 990, values * values, values)
        np.testing.assert_array_equal(np.frombuffer(memory.read(), dtype=np.float32), expected)
    with pytest.raises(fikit.CompileError, match="does not compile"):
        session.compile("__global__ void wrong( {}")


def test_cooperative_launch(session: fikit.Session) -> None:
    with session.load(PTX) as module:
        module.kernel("nothing").launch(grid=16, block=64, cooperative=True)
        session.synchronize()


def test_nothing_to_move(session: fikit.Session) -> None:
    pinned = session.allocate_pinned(8)
    with session.allocate(8) as memory, session.allocate(8) as other:
        memory.copy_from(b"unmoved!")
        memory.fill(1, count=0)
        memory.fill(1, offset=8)
        memory.copy_from_memory(other, size=0)
        for nothing in (b"", np.zeros((0, 3)), memoryview(pinned)[:0]):
            memory.copy_from(nothing, offset=8)
        memory.copy_to(bytearray())
        memory.copy_to(memoryview(pinned)[:0])
        session.synchronize()
        assert (memory.read(), memory.read(0)) == (b"unmoved!", b"")
