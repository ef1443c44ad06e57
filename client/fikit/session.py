"""Sessions: the blocking flavour of the client, and the one implementation (fikit.trio wraps it)."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Sequence
from operator import index
from pathlib import Path
from typing import Any, Final, Self, SupportsIndex

import msgspec

from fikit import protocol
from fikit._channel import Channel, PinnedMemory, await_back
from fikit.control import (
    ANSWER_SECONDS,
    LONGEST_START_SECONDS,
    MOST_RESTARTS,
    Connection,
    once_it_answers,
)
from fikit.core import Core, public_name, refuse_copy
from fikit.device import Device, MemoryInformation
from fikit.errors import CudaError, FikitError, UnreachableError, UsageError
from fikit.memory import Memory
from fikit.modules import Module
from fikit.nvrtc import compile_ptx, for_older_drivers
from fikit.place import JOB_VARIABLE, PRIORITY_VARIABLE, default_socket
from fikit.streams import Event, Stream

_MOST_SECONDS: Final = 1e9
"""Sockets take no much longer limit."""


def connect(
    *,
    name: str | None = None,
    priority: str | int | None = None,
    gpu: int | str | None = None,
    memory_limit: int = 0,
    isolated: bool = False,
    socket: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
) -> Session:
    """Open a session with the daemon.

    ``name``: shown by ``fikitctl`` (None: the program's name). ``priority``: high, normal, low, or 0
    (highest) to 9; None: ``$FIKIT_PRIORITY``, else normal, or the highest that the tenant may. ``gpu``: its
    index, or how its UUID begins (``GPU-...``); None for any. ``memory_limit``: bytes, 0 for the tenant's
    own. ``isolated``: an executor of its own. ``socket``: None for ``$FIKIT_SOCKET`` or the usual place.
    ``timeout``: seconds for the daemon's answers; None: a minute for the daemon itself, and as long as it
    lets an executor start (``start_seconds`` of its configuration). A process that ``fikitctl submit``
    started belongs to its job (``$FIKIT_JOB``), and waits for a daemon that is being started anew. The job
    decides there: of ``priority``, ``memory_limit`` and ``isolated`` it has the job's, whatever is asked for
    here, and ``gpu`` is one of the job's. Raises UsageError, RefusedError,
    UnreachableError (there is no daemon, or it does not even greet in time); TimeoutError where it opens no
    session in time.
    """
    job = os.environ.get(JOB_VARIABLE) or None
    level = _level(priority, job)
    named = protocol.gpu_named(gpu) if isinstance(gpu, str) else gpu
    if named is None and gpu is not None:
        raise UsageError(f"gpu={gpu!r}: neither an index nor how a UUID begins (GPU-8932f937)")
    named = _checked("gpu", named, protocol.Count | protocol.GpuUuid | None)
    memory_limit = _checked("memory_limit", memory_limit, protocol.Bytes)
    isolated = _checked("isolated", isolated, bool)
    name = _checked("name", name, str | None)
    if timeout is not None and not 0 < timeout <= _MOST_SECONDS:
        raise UsageError(f"timeout={timeout!r}: not within 0 and {_MOST_SECONDS:g} seconds")
    shown = name or Path(sys.argv[0] if sys.argv else "").name or "python"
    wanted = protocol.OpenSession(
        name=shown.encode(errors="replace").decode()[:200],  # a program's name may be no text
        priority=level,
        gpu=named,
        memory_limit_bytes=memory_limit,
        isolated=isolated,
        job=job,
    )
    answer = ANSWER_SECONDS if timeout is None else timeout
    patience = 0.0 if job is None else answer
    restarts = 0
    while True:
        try:
            connection = once_it_answers(
                lambda: Connection(socket, client=f"fikit {os.getpid()}", timeout=answer), patience
            )
        except protocol.ProtocolError as error:
            place = socket or default_socket()
            raise UnreachableError(f"what answers at {place} is no fikitd: {error}") from error
        try:
            return _open_session(connection, wanted, timeout)
        except UnreachableError:  # that one was there, however long ago: its successor may be yet to come
            if job is None or restarts == MOST_RESTARTS:
                raise
        restarts += 1


def _level(priority: str | int | None, job: str | None) -> int | None:
    """The one to ask for; None: the daemon, or the job, decides. Raises UsageError."""
    variable = (os.environ.get(PRIORITY_VARIABLE) or None) if priority is None and job is None else None
    given = variable or priority
    try:
        return None if given is None else protocol.priority_level(str(given))
    except ValueError as error:
        raise UsageError(f"{PRIORITY_VARIABLE}: {error}" if variable else str(error)) from None


def _open_session(connection: Connection, wanted: protocol.OpenSession, timeout: float | None) -> Session:
    try:
        start = min(connection.welcome.start_seconds, LONGEST_START_SECONDS)
        limit = start + ANSWER_SECONDS if timeout is None else timeout
        try:
            opened = connection.expect(protocol.SessionOpened, wanted, timeout=limit)
        except TimeoutError:
            lets = f"; it lets an executor start for {start} s" if timeout is None else ""
            raise TimeoutError(
                f"fikitd at {connection.path} has opened no session within {limit:g} s{lets}"
            ) from None
        try:
            channel = Channel(*connection.take_descriptors(3))
        except RuntimeError as error:
            raise FikitError(str(error)) from None
        return Session(connection, channel, opened)
    except BaseException:
        connection.close()
        raise


def _checked(argument: str, value: object, kind: Any) -> Any:
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):  # NumPy's integers are no int
        value = index(value)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{argument}={value!r}: {error}") from None


_MOST: Final = 1 << 64
_MOST_URGENT: Final = (1 << 31) - 1
_END_SECONDS: Final = 2.0
_open: weakref.WeakSet[Core] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    # While the interpreter is whole: threads of callbacks, and those that wait, must not want it afterwards.
    Core.exiting = True
    for core in list(_open):
        core.channel.close()
    await_back(_END_SECONDS)


class Session:
    """A connection to one GPU. Thread-safe. After ``fork()`` only the parent may use it.

    Whatever CUDA or the daemon refuses is a FikitError; when the session itself is over, SessionLostError.
    """

    def __init__(self, connection: Connection, channel: Channel, opened: protocol.SessionOpened) -> None:
        self._connection = connection
        self.core = Core(channel)
        _open.add(self.core)
        self.identifier = opened.session
        self.priority = opened.priority
        """The level it got, 0 (highest) to 9."""
        self.memory_limit = opened.memory_limit_bytes
        status, attributes, memory, uuid, _ = channel.device_attributes()
        self.core.check(status, "device attributes")
        self.device = Device(opened.gpu, opened.device_name, uuid, memory, opened.time_scale, attributes)
        self.default_stream = Stream(self.core, 0, owned=False)

    __reduce_ex__ = refuse_copy

    def __repr__(self) -> str:
        return f"<{public_name(self)} {self._description}>"

    @property
    def _description(self) -> str:
        """Which it is, for the ``repr`` of either flavour."""
        return f"{self.identifier} on GPU {self.device.index}{', over' if self.core.lost else ''}"

    def allocate(self, size: int) -> Memory:
        """``size`` bytes of device memory. Raises OutOfMemoryError (also for the tenant's quota)."""
        return Memory(self.core, *self.allocate_address(size))

    def allocate_address(self, size: int) -> tuple[int, int]:
        """``allocate`` without the object: (address, size)."""
        if not 0 < (size := index(size)) < _MOST:
            raise UsageError(f"allocate: {size} bytes")
        self.core.unload()
        status, address, _ = self.core.channel.memory_allocate(size)
        self.core.check(status, f"allocate of {size} bytes")
        return address, size

    def allocate_pinned(self, size: int) -> PinnedMemory:
        """``size`` bytes of pinned host memory, for asynchronous copies at the link's full speed.

        Raises OutOfMemoryError (also for a 4096th buffer at a time).
        """
        if not 0 < (size := index(size)) < _MOST:
            raise UsageError(f"allocate_pinned: {size} bytes")
        self.core.unload()
        status, memory = self.core.channel.host_allocate(size)
        self.core.check_made(status, f"allocate_pinned of {size} bytes", "pinned buffers")
        assert memory is not None  # noqa: S101 - as the status says
        return memory

    def memory_information(self) -> MemoryInformation:
        """Free and total device memory, as the tenant's quota allows."""
        self.core.unload()
        status, free, total = self.core.channel.memory_information()
        self.core.check(status, "memory_information")
        return MemoryInformation(free, total)

    def load(self, image: bytes | str) -> Module:
        """A module from PTX (str or bytes), a cubin or a fatbin. A failed load's error has the JIT's log.

        Raises CudaError; OutOfMemoryError also for a 16384th module at a time.
        """
        content = image.encode() if isinstance(image, str) else bytes(memoryview(image))
        if not content.startswith((b"\x7fELF", b"\x50\xed\x55\xba")) and not content.endswith(b"\0"):
            content += b"\0"  # PTX is a C string
        self.core.unload()
        status, handle, log = self.core.channel.module_load(content)
        text = log.rstrip(b"\0").decode(errors="replace")
        self.core.check_made(status, "load of a module", "modules", text)
        return Module(self.core, handle)

    def compile(self, source: str, *, name: str = "source.cu", options: Sequence[str] = ()) -> Module:
        """A module from CUDA C, compiled by NVRTC for this device. Declare kernels ``extern "C"``.

        Raises CompileError with NVRTC's log; MissingExtraError without NVRTC. NVRTC may be newer than the
        driver, as pip gets the newest.
        """
        return self.load_compiled(self.compile_source(source, name=name, options=options))

    def compile_source(self, source: str, *, name: str, options: Sequence[str]) -> bytes:
        """The first half of ``compile``, which needs no answer of the session's: PTX."""
        if not isinstance(source, str):
            raise TypeError(f"compile: CUDA C is a str, not {type(source).__name__}")
        if isinstance(options, str):  # which would be one option for each of its letters
            raise TypeError(f"compile: options={options!r} is no sequence of options")
        major, minor = self.device.compute_capability
        return compile_ptx(source, name=name, architecture=f"compute_{major}{minor}", options=options)

    def load_compiled(self, ptx: bytes) -> Module:
        """The other half."""
        try:
            return self.load(ptx)
        except CudaError as error:
            if error.name != "CUDA_ERROR_UNSUPPORTED_PTX_VERSION":
                raise
            return self.load(for_older_drivers(ptx))

    def stream(self, *, priority: int = 0, non_blocking: bool = False) -> Stream:
        """A new stream. ``priority`` ranks it within the session (CUDA's numbers: lower is more urgent).

        Unless ``non_blocking``, it keeps CUDA's implicit order with the default stream. Raises
        OutOfMemoryError for a 4096th stream at a time, the default stream included.
        """
        return Stream(self.core, self.create_stream(priority, non_blocking), owned=True)

    def create_stream(self, priority: int, non_blocking: bool) -> int:
        """``stream`` without the object: its handle."""
        if not -_MOST_URGENT <= (priority := index(priority)) <= _MOST_URGENT:
            raise UsageError(f"stream: priority={priority}")
        status, handle = self.core.channel.stream_create(bool(non_blocking), priority)
        self.core.check_made(status, "stream", "streams")
        return handle

    def event(self, *, timing: bool = False) -> Event:
        """A new event; ``timing`` makes recording it dearer and ``elapsed`` possible.

        Raises OutOfMemoryError for a 65536th event at a time.
        """
        return Event(self.core, self.create_event(), timing=timing)

    def create_event(self) -> int:
        """``event`` without the object: its handle."""
        status, handle = self.core.channel.event_create()
        self.core.check_made(status, "event", "events")
        return handle

    def synchronize(self, timeout: float | None = None) -> None:
        """Wait until everything of this session has completed.

        Raises TimeoutError after ``timeout`` seconds, CudaError for an asynchronous error.
        """
        self.core.wait(self.core.channel.settle, timeout, "Session.synchronize")

    def attempt(self, timeout: float) -> bool:
        """``synchronize`` that says whether it was over within ``timeout`` seconds."""
        return self.core.attempt(self.core.channel.settle, timeout, "Session.synchronize")

    def close(self) -> None:
        """End the session: the daemon frees all it held. Work that was not waited for may not run."""
        self.core.channel.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
