"""What bad requests get: an error that names the thing, and a session that goes on where it can."""

from __future__ import annotations

import contextlib
import copy
import math
import threading
from collections.abc import Callable

import fikit
import numpy as np
import pytest
from fikit.modules import Axes

from tests.integration.conftest import Daemon
from tests.integration.end_to_end.conftest import PTX

pytestmark = pytest.mark.shares_daemon

Connect = Callable[..., fikit.Session]


def still_works(session: fikit.Session) -> None:
    with session.allocate(64) as memory:
        memory.fill(3)
        assert memory.read() == bytes([3] * 64)


@pytest.mark.parametrize(
    "image",
    [
        b"\0" * 100,
        b"\x7fELF" + b"\xff" * 200,
        b"\x50\xed\x55\xba" + b"\xff" * 60,
        b"no such thing",
        PTX[:150],
    ],
)
def test_garbage_is_no_module(session: fikit.Session, image: bytes | str) -> None:
    with pytest.raises(fikit.CudaError) as caught:
        session.load(image)
    assert caught.value.name in (
        "CUDA_ERROR_INVALID_IMAGE",
        "CUDA_ERROR_INVALID_PTX",
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
    )
    still_works(session)


def test_unknown_kernel(session: fikit.Session) -> None:
    with session.load(PTX) as module, pytest.raises(fikit.CudaError, match="nosuch"):
        module.kernel("nosuch")
    still_works(session)


@pytest.mark.parametrize(("grid", "block"), [((1, 70000, 1), 1), (1, 2048), (1, (1, 1, 128))])
def test_impossible_launch_shapes(session: fikit.Session, grid: Axes, block: Axes) -> None:
    with session.load(PTX) as module:
        with pytest.raises(fikit.CudaError, match="nothing"):
            module.kernel("nothing").launch(grid=grid, block=block)
            session.synchronize()
        still_works(session)


@pytest.mark.parametrize("asks_stream", [True, False])
def test_who_asks_is_told_of_a_refusal(session: fikit.Session, asks_stream: bool) -> None:
    """Else who never waits would take for the result what was not computed."""
    with session.load(PTX) as module, session.stream() as stream, session.event() as event:
        module.kernel("nothing").launch(grid=1, block=1, shared=1 << 20, stream=stream)
        event.record(stream)
        with pytest.raises(fikit.CudaError, match="nothing"):
            while not (stream if asks_stream else event).query():
                pass
        session.synchronize()  # it is told once
        still_works(session)


def test_too_much_shared_memory(session: fikit.Session) -> None:
    with session.load(PTX) as module:
        with pytest.raises(fikit.CudaError, match="nothing"):
            module.kernel("nothing").launch(grid=1, block=1, shared=1 << 20)
            session.synchronize()
        still_works(session)


def test_copies_beyond_a_buffer(session: fikit.Session) -> None:
    with session.allocate(100) as memory:
        with pytest.raises(fikit.FikitError):
            memory.copy_from(bytes(101))
        # Past the library's own check, to the executor's.
        session.core.channel.fill(0, memory.address, 1 << 30, 0, 1)
        with pytest.raises(fikit.CudaError, match="fill"):
            session.synchronize()
        session.core.channel.copy_on_device(0, memory.address, 0x1000, 16)
        with pytest.raises(fikit.CudaError, match="copy"):
            session.synchronize()
    still_works(session)


def test_one_session_cannot_copy_from_another(connect: Connect) -> None:
    owner, other = connect(name="owner"), connect(name="other")
    with owner.allocate(4096) as secret, other.allocate(4096) as mine:
        secret.fill(42)
        owner.synchronize()
        mine.fill(0)
        other.core.channel.copy_on_device(0, mine.address, secret.address, 4096)
        with pytest.raises(fikit.CudaError, match="copy"):
            other.synchronize()
        assert mine.read() == bytes(4096)


def test_memory_quota(connect: Connect) -> None:
    session = connect(name="small", memory_limit=64 << 20)
    assert session.memory_information().total == 64 << 20
    with contextlib.ExitStack() as held:
        for _ in range(8):
            held.enter_context(session.allocate(8 << 20))
        assert session.memory_information().free == 0
        with pytest.raises(fikit.OutOfMemoryError):
            session.allocate(2 << 20)
    # What was freed is there again, without waiting for anything by hand.
    with session.allocate(64 << 20) as all_of_it:
        all_of_it.fill(1)
        assert all_of_it.read(4) == b"\1\1\1\1"


def test_the_tenants_memory_limit_is_for_all_its_sessions(
    stopped_daemon: Daemon, connect_to: Connect
) -> None:
    stopped_daemon.configure("memory_limit_bytes = 67108864\n")  # of [tenant_defaults], the last table
    stopped_daemon.start()
    first, second = connect_to(name="first"), connect_to(name="second")
    with first.allocate(40 << 20):
        assert second.memory_information().free <= 24 << 20
        with second.allocate(16 << 20), pytest.raises(fikit.OutOfMemoryError):
            second.allocate(16 << 20)
    first.memory_information()  # answered behind the free; what is being freed then, an allocation waits for
    with second.allocate(40 << 20) as memory:
        memory.fill(1)
        assert memory.read(1) == b"\1"


def test_freeing_does_not_wait_and_does_not_pull_memory_from_under_a_kernel(session: fikit.Session) -> None:
    with session.load(PTX) as module:
        spin, store = module.kernel("spin"), module.kernel("store")
        for _ in range(20):
            memory = session.allocate(4 << 20)
            spin.launch(1_000_000, grid=1, block=1)
            store.launch(memory, 1, grid=1, block=1)
            memory.free()
        session.synchronize()
    still_works(session)


def test_priority_above_the_ceiling(daemon: Daemon, connect: Connect) -> None:
    del daemon
    with pytest.raises(fikit.UsageError, match="urgent"):
        connect(priority="urgent")


def test_what_cannot_be_asked_for_is_named_before_anything_is_made_for_it(session: fikit.Session) -> None:
    with session.allocate(64) as memory, session.event() as event, session.stream() as stream:
        for call in (
            lambda: memory.read(1 << 60),
            lambda: memory.read(-1),
            lambda: memory.read(offset=65),
        ):
            with pytest.raises(fikit.UsageError, match="do not lie within"):
                call()
        wrong: list[Callable[[], object]] = [
            lambda: memory.copy_from_memory(b"bytes"),  # type: ignore[arg-type]
            lambda: stream.wait(None),  # type: ignore[arg-type]
            lambda: event.elapsed("start"),  # type: ignore[arg-type]
            lambda: session.load(1 << 60),  # type: ignore[arg-type]
            lambda: session.allocate(1.5),  # type: ignore[arg-type]
            lambda: session.allocate_pinned("4096"),  # type: ignore[arg-type]
            lambda: session.stream(priority=0.5),  # type: ignore[arg-type]
            lambda: copy.copy(session),
        ]
        for each in wrong:
            with pytest.raises(TypeError) as caught:
                each()
            assert "incompatible function arguments" not in str(caught.value)
        with pytest.raises(fikit.UsageError, match="priority"):
            session.stream(priority=1 << 31)
    with session.load(PTX) as module:
        for shared in (-1, 1 << 32, 0.5):
            with pytest.raises(ValueError, match="shared"):
                module.kernel("nothing").launch(grid=1, block=1, shared=shared)  # type: ignore[arg-type]
    still_works(session)


def test_what_an_error_was_about_is_not_told_of_the_next(session: fikit.Session) -> None:
    told: list[str] = []

    def forbidden() -> None:
        try:
            session.synchronize()
        except fikit.CudaError as error:
            told.append(str(error))

    with session.load(PTX) as module:
        module.kernel("nothing").launch(grid=1, block=1, shared=1 << 20)
        with pytest.raises(fikit.CudaError, match="nothing"):
            session.synchronize()
        session.default_stream.add_callback(forbidden)
        session.synchronize()
    (one,) = told
    assert "NOT_PERMITTED" in one
    assert "nothing" not in one


def test_no_number_of_seconds_is_no_time_to_wait(session: fikit.Session) -> None:
    goes_on = threading.Event()
    session.default_stream.add_callback(lambda: goes_on.wait(30) and None)
    with pytest.raises(TimeoutError):
        session.synchronize(timeout=math.nan)
    goes_on.set()
    session.synchronize()


def test_python_objects_are_nothing_for_a_gpu(session: fikit.Session) -> None:
    """Their addresses would go there, and what comes back would crash the program."""
    objects = np.array([None, "text"], dtype=object)
    fields = np.zeros(2, dtype=[("Offset", "f4"), ("what", object)])
    with session.allocate(64) as memory, session.load(PTX) as module:
        for array in (objects, fields):
            with pytest.raises(TypeError, match="Python objects"):
                memory.copy_from(array)
            with pytest.raises(TypeError, match="Python objects"):
                memory.copy_to(array)
        with pytest.raises(TypeError, match="argument 0 of kernel store"):
            module.kernel("store").launch(np.array(memory, dtype=object), 1, grid=1, block=1)
        memory.copy_from(np.zeros(2, dtype=[("Offset", "f4")]))
    assert list(objects) == [None, "text"]


def test_a_number_of_another_order_of_bytes_is_that_number(session: fikit.Session) -> None:
    structure = np.zeros((), dtype=[("number", ">i4")])
    with session.allocate(64) as memory, session.load(PTX) as module:
        module.kernel("store").launch(memory, np.array(5, dtype=">i4"), grid=1, block=1)
        assert memory.read(4) == (5).to_bytes(4, "little")
        with pytest.raises(TypeError, match="argument 1 of kernel store"):
            module.kernel("store").launch(memory, structure, grid=1, block=1)
