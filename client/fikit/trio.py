"""The trio flavour: the same objects, whose methods that may take time are ``async``.

It wraps the blocking flavour, so there is one implementation. What is ``async`` waits in a worker thread, and
can be cancelled wherever it waits, a session that is paused or not:

- Waits for the GPU and calls that need an answer: the task leaves at once. What a call makes all the same is
  given back when its answer comes; the session's other calls come after it.
- Copies, and launches into a full channel: the task leaves with its thread, after 0.05 s at most. Nothing
  writes to pageable memory any more by then. Work that was enqueued still runs, so pinned memory is in use
  until the stream has come so far.

What is not ``async`` never waits unless the channel is full; then it waits for room in trio's thread.
``Session.aclose`` waits for a callback that runs.

    async with await fikit.trio.connect() as session:
        memory = await session.allocate(4096)
        await kernel.launch(memory, grid=4, block=256)
        await session.synchronize()
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

import trio

from fikit import modules, streams
from fikit import session as blocking
from fikit._channel import PinnedMemory, interruptible
from fikit.core import Core, public_name
from fikit.device import Device, MemoryInformation
from fikit.memory import Memory as BlockingMemory
from fikit.modules import Axes, KernelAttributes

if TYPE_CHECKING:
    from fikit.memory import HostMemory

__all__ = ["Event", "Kernel", "Memory", "Module", "Session", "Stream", "connect"]

_FOR_EVER: Final = -1.0
P = ParamSpec("P")
T = TypeVar("T")


_turns: Final = trio.lowlevel.RunVar[WeakKeyDictionary[Core, trio.CapacityLimiter]]("fikit turns")
"""A run's own: what it has abandoned gives nothing back once it is over."""


async def _call(core: Core, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
    """What waits for an answer. A cancelled task abandons it; what it returns then is dropped."""
    # A session has one call at a time, so those that are abandoned take no more than one of the threads.
    try:
        turns = _turns.get()
    except LookupError:
        _turns.set(turns := WeakKeyDictionary())
    turn = turns.setdefault(core, trio.CapacityLimiter(1))
    call = partial(function, *arguments, **named)
    return await trio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=turn)


async def _together(function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
    """What must not go on without its task: when that is cancelled, it ends where it waits."""
    work = partial(function, *arguments, **named)
    done = await trio.to_thread.run_sync(interruptible, trio.from_thread.check_cancelled, work)
    return cast(T, done)


_waits: Final = trio.CapacityLimiter(math.inf)
"""However many tasks wait, the one whose work is done goes on."""


async def _finished(core: Core, wait: Callable[[float], int], call: str) -> None:
    """``Core.wait``. A cancelled task abandons its thread, which ends and leaves errors to who waits next."""
    if core.attempt(wait, 0.0, call):
        await trio.lowlevel.checkpoint()
        return
    work = partial(interruptible, trio.from_thread.check_cancelled, partial(wait, _FOR_EVER))
    status = await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=_waits)
    core.check_waited(cast(int, status), call)


async def connect(
    *,
    name: str | None = None,
    priority: str | int | None = None,
    gpu: int | str | None = None,
    memory_limit: int = 0,
    isolated: bool = False,
    socket: str | os.PathLike[str] | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 - the daemon's answers, in the worker thread
) -> Session:
    """As ``fikit.connect``."""
    opening = partial(
        blocking.connect,
        name=name,
        priority=priority,
        gpu=gpu,
        memory_limit=memory_limit,
        isolated=isolated,
        socket=socket,
        timeout=timeout,
    )
    return Session(await trio.to_thread.run_sync(opening, abandon_on_cancel=True))


class Stream(streams.Stream):
    """As ``fikit.Stream``; only waiting differs."""

    async def synchronize(self) -> None:  # type: ignore[override] # async here
        """Wait until everything enqueued so far has completed. Raises CudaError for an asynchronous error."""
        await _finished(self._core, self._wait, "Stream.synchronize")


class Event(streams.Event):
    """As ``fikit.Event``; only waiting differs."""

    async def synchronize(self) -> None:  # type: ignore[override] # async here
        """Wait for what was recorded last."""
        await _finished(self._core, self._wait, "Event.synchronize")

    async def elapsed(self, start: streams.Event) -> float:  # type: ignore[override] # async here
        """Device time from ``start`` to this event, in seconds. Both must have completed (CudaError 600)."""
        return await _call(self._core, super().elapsed, start)


class Memory(BlockingMemory):
    """As ``fikit.Memory``; copies between host and device are async."""

    async def copy_from(  # type: ignore[override] # async here
        self, source: HostMemory, *, offset: int = 0, stream: streams.Stream | None = None, wait: bool = True
    ) -> None:
        """As ``fikit.Memory.copy_from``."""
        await _together(super().copy_from, source, offset=offset, stream=stream, wait=wait)

    async def copy_to(  # type: ignore[override] # async here
        self,
        destination: HostMemory,
        *,
        offset: int = 0,
        stream: streams.Stream | None = None,
        wait: bool = True,
    ) -> None:
        """As ``fikit.Memory.copy_to``."""
        await _together(super().copy_to, destination, offset=offset, stream=stream, wait=wait)

    async def read(  # type: ignore[override] # async here
        self, size: int | None = None, *, offset: int = 0, stream: streams.Stream | None = None
    ) -> bytes:
        """``size`` bytes (None: all) from ``offset`` on."""
        content = self._room_for(size, offset)
        await self.copy_to(content, offset=offset, stream=stream)
        return bytes(content)


class Kernel:
    """As ``fikit.Kernel``."""

    def __init__(self, core: Core, kernel: modules.Kernel) -> None:
        self._core = core
        self.blocking: Final = kernel
        """The same kernel, whose ``launch_nowait`` a task may call."""

    def __repr__(self) -> str:
        return f"<{public_name(self)} {self.blocking._description}>"

    @property
    def name(self) -> str:
        """The kernel's own name."""
        return self.blocking.name

    @property
    def attributes(self) -> KernelAttributes:
        """What the driver knows of it."""
        return self.blocking.attributes

    async def launch(
        self,
        *arguments: Any,
        grid: Axes,
        block: Axes,
        shared: int = 0,
        stream: streams.Stream | None = None,
        cooperative: bool = False,
        cluster: Axes | None = None,
    ) -> None:
        """Enqueue the kernel, as ``fikit.Kernel.launch``; waits only for room in a full channel."""
        options: dict[str, Any] = {
            "grid": grid, "block": block, "shared": shared, "stream": stream,
            "cooperative": cooperative, "cluster": cluster,
        }  # fmt: skip
        if self.blocking.launch_nowait(*arguments, **options):
            await trio.lowlevel.checkpoint()
        else:
            await _together(self.blocking.launch, *arguments, **options)

    def launch_nowait(
        self,
        *arguments: Any,
        grid: Axes,
        block: Axes,
        shared: int = 0,
        stream: streams.Stream | None = None,
        cooperative: bool = False,
        cluster: Axes | None = None,
    ) -> bool:
        """Enqueue the kernel; False when the channel is full. Never waits, and is no checkpoint."""
        return self.blocking.launch_nowait(
            *arguments, grid=grid, block=block, shared=shared, stream=stream,
            cooperative=cooperative, cluster=cluster,
        )  # fmt: skip

    async def occupancy(self, block_threads: int, shared: int = 0) -> int:
        """As ``fikit.Kernel.occupancy``."""
        return await _call(self._core, self.blocking.occupancy, block_threads, shared)

    async def set_max_dynamic_shared(self, size: int) -> None:
        """As ``fikit.Kernel.set_max_dynamic_shared``."""
        await _call(self._core, self.blocking.set_max_dynamic_shared, size)

    async def allow_non_portable_cluster(self) -> None:
        """As ``fikit.Kernel.allow_non_portable_cluster``."""
        await _call(self._core, self.blocking.allow_non_portable_cluster)


class Module(trio.abc.AsyncResource):
    """As ``fikit.Module``."""

    def __init__(self, core: Core, module: modules.Module) -> None:
        self._core = core
        self._module = module

    def __repr__(self) -> str:
        return f"<{public_name(self)} {self._module._description}>"

    async def kernel(self, name: str, types: Sequence[str] | None = None) -> Kernel:
        """As ``fikit.Module.kernel``."""
        return Kernel(self._core, await _call(self._core, self._module.kernel, name, types))

    async def global_(self, name: str) -> Memory:
        """As ``fikit.Module.global_``."""
        found = await _call(self._core, self._module.global_, name)
        return Memory(self._core, found.address, found.size, part_of=found)

    async def unload(self) -> None:
        """As ``fikit.Module.unload``. When it is cancelled, a later call of the session's does it."""
        self._module.give_up()
        await _call(self._core, self._core.unload)

    async def aclose(self) -> None:
        """``unload``."""
        await self.unload()


class Session(trio.abc.AsyncResource):
    """As ``fikit.Session``."""

    def __init__(self, session: blocking.Session) -> None:
        self.blocking: Final = session
        """The same session; its methods that wait are not for trio's thread."""
        self._core = session.core
        self.identifier = session.identifier
        self.priority = session.priority
        self.memory_limit = session.memory_limit
        self.device: Device = session.device
        self.default_stream = Stream(self._core, 0, owned=False)

    def __repr__(self) -> str:
        return f"<{public_name(self)} {self.blocking._description}>"

    async def allocate(self, size: int) -> Memory:
        """As ``fikit.Session.allocate``."""
        return await _call(self._core, self._allocate, size)

    def _allocate(self, size: int) -> Memory:
        return Memory(self._core, *self.blocking.allocate_address(size))

    async def allocate_pinned(self, size: int) -> PinnedMemory:
        """As ``fikit.Session.allocate_pinned``."""
        return await _call(self._core, self.blocking.allocate_pinned, size)

    async def memory_information(self) -> MemoryInformation:
        """As ``fikit.Session.memory_information``."""
        return await _call(self._core, self.blocking.memory_information)

    async def load(self, image: bytes | str) -> Module:
        """As ``fikit.Session.load``."""
        return Module(self._core, await _call(self._core, self.blocking.load, image))

    async def compile(self, source: str, *, name: str = "source.cu", options: Sequence[str] = ()) -> Module:
        """As ``fikit.Session.compile``."""
        compiling = partial(self.blocking.compile_source, source, name=name, options=options)
        ptx = await trio.to_thread.run_sync(compiling, abandon_on_cancel=True)
        return Module(self._core, await _call(self._core, self.blocking.load_compiled, ptx))

    def stream(self, *, priority: int = 0, non_blocking: bool = False) -> Stream:
        """As ``fikit.Session.stream``."""
        return Stream(self._core, self.blocking.create_stream(priority, non_blocking), owned=True)

    def event(self, *, timing: bool = False) -> Event:
        """As ``fikit.Session.event``."""
        return Event(self._core, self.blocking.create_event(), timing=timing)

    async def synchronize(self) -> None:
        """Wait until everything of this session has completed. Raises CudaError for an asynchronous error."""
        await _finished(self._core, self._core.channel.settle, "Session.synchronize")

    async def aclose(self) -> None:
        """End the session: the daemon frees all it held."""
        self.blocking.close()
        await trio.lowlevel.checkpoint()
