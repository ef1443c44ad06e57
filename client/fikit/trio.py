"""The trio flavour: the same objects, whose methods that may take time are ``async``.

It wraps the blocking flavour, so there is one implementation. Nothing here blocks trio's thread: what waits
for an answer runs in a worker thread; a wait for the GPU is first tried at once, and then goes on in a worker
thread in slices, so that a cancelled task leaves at once and its thread soon after. Enqueueing never waits
unless the channel is full.

    async with await fikit.trio.connect() as session:
        memory = await session.allocate(4096)
        await kernel.launch(memory, grid=4, block=256)
        await session.synchronize()
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import trio

from fikit import modules, streams
from fikit import session as blocking
from fikit._channel import PinnedMemory
from fikit.core import Core
from fikit.device import Device, MemoryInformation
from fikit.memory import Memory as BlockingMemory
from fikit.modules import Axes, KernelAttributes

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Event", "Kernel", "Memory", "Module", "Session", "Stream", "connect"]

_SLICE: Final = 0.1  # seconds
P = ParamSpec("P")
T = TypeVar("T")


async def _in_thread(function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
    return await trio.to_thread.run_sync(partial(function, *arguments, **named))


async def _finished(attempt: Callable[[float], bool]) -> None:
    """Until ``attempt`` is over. Cancellable: an abandoned slice does no harm."""
    if attempt(0.0):
        await trio.lowlevel.checkpoint()
        return
    while not await trio.to_thread.run_sync(attempt, _SLICE, abandon_on_cancel=True):
        pass


async def connect(
    *,
    name: str | None = None,
    priority: str | int = "normal",
    gpu: int | None = None,
    memory_limit: int = 0,
    isolated: bool = False,
    socket: str | os.PathLike[str] | None = None,
    timeout: float | None = 30.0,  # noqa: ASYNC109 - the daemon's answers, in the worker thread
) -> Session:
    """As ``fikit.connect``."""
    session = await _in_thread(
        blocking.connect,
        name=name,
        priority=priority,
        gpu=gpu,
        memory_limit=memory_limit,
        isolated=isolated,
        socket=socket,
        timeout=timeout,
    )
    return Session(session)


class Stream(streams.Stream):
    """As ``fikit.Stream``; only waiting differs."""

    async def synchronize(self) -> None:  # type: ignore[override] # async here
        """Wait until everything enqueued so far has completed. Raises CudaError for an asynchronous error."""
        await _finished(self.attempt)


class Event(streams.Event):
    """As ``fikit.Event``; only waiting differs."""

    async def synchronize(self) -> None:  # type: ignore[override] # async here
        """Wait for what was recorded last."""
        await _finished(self.attempt)

    async def elapsed(self, start: streams.Event) -> float:  # type: ignore[override] # async here
        """Device time from ``start`` to this event, in seconds. Both must have completed (CudaError 600)."""
        return await _in_thread(super().elapsed, start)


class Memory(BlockingMemory):
    """As ``fikit.Memory``; copies between host and device are async."""

    async def copy_from(  # type: ignore[override] # async here
        self, source: Buffer, *, offset: int = 0, stream: streams.Stream | None = None, wait: bool = True
    ) -> None:
        """As ``fikit.Memory.copy_from``."""
        await _in_thread(super().copy_from, source, offset=offset, stream=stream, wait=wait)

    async def copy_to(  # type: ignore[override] # async here
        self, destination: Buffer, *, offset: int = 0, stream: streams.Stream | None = None, wait: bool = True
    ) -> None:
        """As ``fikit.Memory.copy_to``."""
        await _in_thread(super().copy_to, destination, offset=offset, stream=stream, wait=wait)

    async def read(  # type: ignore[override] # async here
        self, size: int | None = None, *, offset: int = 0, stream: streams.Stream | None = None
    ) -> bytes:
        """``size`` bytes (None: all) from ``offset`` on."""
        content = self._room_for(size, offset)
        await self.copy_to(content, offset=offset, stream=stream)
        return bytes(content)


class Kernel:
    """As ``fikit.Kernel``."""

    def __init__(self, kernel: modules.Kernel) -> None:
        self.blocking: Final = kernel
        """The same kernel, whose ``launch_nowait`` a task may call."""

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
            await _in_thread(self.blocking.launch, *arguments, **options)

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
        return await _in_thread(self.blocking.occupancy, block_threads, shared)

    async def set_max_dynamic_shared(self, size: int) -> None:
        """As ``fikit.Kernel.set_max_dynamic_shared``."""
        await _in_thread(self.blocking.set_max_dynamic_shared, size)

    async def allow_non_portable_cluster(self) -> None:
        """As ``fikit.Kernel.allow_non_portable_cluster``."""
        await _in_thread(self.blocking.allow_non_portable_cluster)


class Module(trio.abc.AsyncResource):
    """As ``fikit.Module``."""

    def __init__(self, core: Core, module: modules.Module) -> None:
        self._core = core
        self._module = module

    async def kernel(self, name: str, types: Sequence[str] | None = None) -> Kernel:
        """As ``fikit.Module.kernel``."""
        return Kernel(await _in_thread(self._module.kernel, name, types))

    async def global_(self, name: str) -> Memory:
        """As ``fikit.Module.global_``."""
        found = await _in_thread(self._module.global_, name)
        return Memory(self._core, found.address, found.size, part_of=found)

    async def unload(self) -> None:
        """As ``fikit.Module.unload``."""
        await _in_thread(self._module.unload)

    async def aclose(self) -> None:
        """``unload``."""
        with trio.CancelScope(shield=True):
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

    async def allocate(self, size: int) -> Memory:
        """As ``fikit.Session.allocate``."""
        return Memory(self._core, *await _in_thread(self.blocking.allocate_address, size))

    async def allocate_pinned(self, size: int) -> PinnedMemory:
        """As ``fikit.Session.allocate_pinned``."""
        return await _in_thread(self.blocking.allocate_pinned, size)

    async def memory_information(self) -> MemoryInformation:
        """As ``fikit.Session.memory_information``."""
        return await _in_thread(self.blocking.memory_information)

    async def load(self, image: bytes | str) -> Module:
        """As ``fikit.Session.load``."""
        return Module(self._core, await _in_thread(self.blocking.load, image))

    async def compile(self, source: str, *, name: str = "source.cu", options: Sequence[str] = ()) -> Module:
        """As ``fikit.Session.compile``."""
        return Module(self._core, await _in_thread(self.blocking.compile, source, name=name, options=options))

    def stream(self, *, priority: int = 0, non_blocking: bool = False) -> Stream:
        """As ``fikit.Session.stream``."""
        return Stream(self._core, self.blocking.create_stream(priority, non_blocking), owned=True)

    def event(self, *, timing: bool = False) -> Event:
        """As ``fikit.Session.event``."""
        return Event(self._core, self.blocking.create_event(), timing=timing)

    async def synchronize(self) -> None:
        """Wait until everything of this session has completed. Raises CudaError for an asynchronous error."""
        await _finished(self.blocking.attempt)

    async def aclose(self) -> None:
        """End the session: the daemon frees all it held."""
        self.blocking.close()
        await trio.lowlevel.checkpoint()
