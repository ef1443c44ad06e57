"""The trio flavour: the same promises, and a loop that is never blocked."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import fikit.trio
import numpy as np
import pytest
import trio


async def test_axpy_end_to_end(socket_path: Path, axpy_ptx: str) -> None:
    x = np.arange(1000, dtype=np.float32)
    async with await fikit.trio.connect(priority="high") as session, await session.load(axpy_ptx) as module:
        kernel = await module.kernel("axpy")
        with await session.allocate(x.nbytes) as device_x, await session.allocate(x.nbytes) as device_y:
            await device_x.copy_from(x)
            device_y.fill(0)
            await kernel.launch(2.0, device_x, device_y, 1000, grid=4, block=256)
            await session.synchronize()
            result = np.empty_like(x)
            await device_y.copy_to(result)
            assert await device_y.read(4, offset=4) == np.float32(2).tobytes()
        assert await kernel.occupancy(256) > 0
        pinned = await session.allocate_pinned(4096)
        assert memoryview(pinned).nbytes == 4096
        assert (await session.memory_information()).free > 0
    np.testing.assert_array_equal(result, 2 * x)


async def test_waits_leave_the_loop_alone_and_can_be_cancelled(
    socket_path: Path, ptx: str, let_go: Callable[[], None]
) -> None:
    async with await fikit.trio.connect() as session, await session.load(ptx) as module:
        with session.stream() as stream, session.event() as event:
            await (await module.kernel("stall")).launch(grid=1, block=1, stream=stream)
            event.record(stream)
            with trio.move_on_after(0.05) as scope:
                await stream.synchronize()
            assert scope.cancelled_caught
            async with trio.open_nursery() as nursery:
                nursery.start_soon(event.synchronize)
                for _ in range(4):
                    await trio.sleep(0.01)
                    assert not event.query()
                let_go()
            assert event.query()
            await stream.synchronize()


async def test_a_full_channel_does_not_block_the_loop(
    socket_path: Path, ptx: str, let_go: Callable[[], None]
) -> None:
    async with await fikit.trio.connect() as session, await session.load(ptx) as module:
        kernel = await module.kernel("nothing")
        await (await module.kernel("stall")).launch(grid=1, block=1)
        enqueued = 0
        while kernel.launch_nowait(grid=1, block=1):
            enqueued += 1
        assert enqueued > 100
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(kernel.launch, grid=1, block=1))
            await trio.sleep(0.01)
            let_go()
        await session.synchronize()


async def test_errors_are_the_same(socket_path: Path, tmp_path: Path) -> None:
    with pytest.raises(fikit.UnreachableError):
        await fikit.trio.connect(socket=tmp_path / "nobody")
    async with await fikit.trio.connect() as session:
        with pytest.raises(fikit.OutOfMemoryError):
            await session.allocate(1 << 50)
    with pytest.raises(fikit.SessionLostError):
        await session.synchronize()


async def test_objects_tell_what_they_are(socket_path: Path, axpy_ptx: str) -> None:
    async with await fikit.trio.connect() as session:
        name, number = session.identifier, session.device.index
        assert repr(session) == f"<fikit.trio.Session {name} on GPU {number}>"
        assert repr(session.blocking) == f"<fikit.Session {name} on GPU {number}>"
        module = await session.load(axpy_ptx)
        kernel = await module.kernel("axpy")
        memory, stream, event = await session.allocate(64), session.stream(), session.event(timing=True)
        assert repr(kernel) == "<fikit.trio.Kernel axpy>"
        assert repr(kernel.blocking) == "<fikit.Kernel axpy>"
        assert re.fullmatch(r"<fikit\.trio\.Module \d+>", repr(module))
        assert repr(memory) == f"<fikit.trio.Memory {memory.address:#x}, 64 bytes>"
        assert repr(stream) == f"<fikit.trio.Stream {stream.handle}>"
        assert repr(event) == f"<fikit.trio.Event {event.handle} with timing>"
        with pytest.raises(TypeError, match=r"a fikit\.trio\.Stream can be neither copied nor pickled"):
            copy.copy(stream)
        with session.blocking.event() as plain, session.blocking.stream() as other:
            assert repr(plain) == f"<fikit.Event {plain.handle}>"
        assert (repr(plain), repr(other)) == ("<fikit.Event closed>", "<fikit.Stream closed>")
        pinned = await session.allocate_pinned(64)
        assert repr(pinned) == "<fikit.PinnedMemory 64 bytes>"
        pinned.free()
        assert repr(pinned) == "<fikit.PinnedMemory 64 bytes freed>"
        await module.unload()
        assert repr(module) == "<fikit.trio.Module unloaded>"
        assert repr(kernel) == "<fikit.trio.Kernel axpy, unloaded>"
    assert repr(session) == f"<fikit.trio.Session {name} on GPU {number}, over>"
