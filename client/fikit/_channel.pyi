"""The channel producer: what a session's process writes and waits for."""

from collections.abc import Sequence

from typing_extensions import Buffer


class DeviceBuffer:
    """Device memory, as kernel arguments."""

    def __init__(self, address: int, size: int, channel: Channel) -> None: ...

    @property
    def address(self) -> int: ...

    @property
    def size(self) -> int:
        """In bytes."""

    @property
    def freed(self) -> bool: ...

    def mark_freed(self) -> None: ...

class PinnedMemory(Buffer):
    """Pinned host memory; supports the buffer protocol (numpy.frombuffer)."""

    def free(self) -> None:
        """Raises BufferError while an array or a memoryview still uses it."""

    @property
    def size(self) -> int:
        """In bytes."""

    @property
    def device_address(self) -> int:
        """The same memory as the GPU sees it."""

    @property
    def freed(self) -> bool: ...

    def __repr__(self) -> str: ...

class Kernel:
    def launch(self, stream: int, grid: int | tuple[int, ...], block: int | tuple[int, ...], shared: int, arguments: tuple[object, ...], wait: bool) -> int: ...

    def launch_attributed(self, stream: int, grid: int | tuple[int, ...], block: int | tuple[int, ...], shared: int, arguments: tuple[object, ...], wait: bool, cooperative: bool, cluster: int | tuple[int, ...] | None) -> int: ...

    @property
    def function(self) -> int: ...

    @property
    def name(self) -> str: ...

class Channel:
    """
    The tenant's end of a session's channel. Methods return CUresult numbers.
    """

    def __init__(self, outbox: int, inbox: int, lifeline: int) -> None:
        """Takes over the three descriptors, also when it raises RuntimeError."""

    def close(self) -> None: ...

    def failure(self) -> tuple[int, str]:
        """The sticky error and its text; 0 while the session lives."""

    def take_deferred(self) -> int:
        """The asynchronous error that was not reported yet, or 0."""

    def deferred_text(self) -> str:
        """What the asynchronous error reported last meant; told once."""

    def device_attributes(self) -> tuple[int, dict[int, int], int, bytes, str]:
        """(status, attributes, memory in bytes, UUID, name)"""

    def limit_reached(self, kind: str) -> int:
        """
        How many streams, events, modules, functions or pinned buffers there may be; 0 below that.
        """

    def memory_allocate(self, size: int) -> tuple[int, int, int]: ...

    def memory_free(self, address: int) -> int: ...

    def memory_information(self) -> tuple[int, int, int]:
        """(status, free, total), in bytes."""

    def host_allocate(self, size: int) -> tuple[int, PinnedMemory | None]: ...

    def is_pinned(self, buffer: object) -> bool: ...

    def copy_to_device(self, stream: int, to: int, source: object) -> tuple[int, bool]:
        """
        (status, whether the source was pinned and so may not have been read yet)
        """

    def copy_to_host(self, stream: int, to: object, source: int) -> tuple[int, bool]:
        """
        (status, whether the destination was pinned and so may not have been written yet)
        """

    def copy_on_device(self, stream: int, to: int, source: int, size: int) -> int: ...

    def fill(self, stream: int, address: int, count: int, value: int, width: int) -> int: ...

    def module_load(self, image: bytes) -> tuple[int, int, bytes]:
        """(status, module, log)"""

    def module_unload(self, module: int, functions: Sequence[int]) -> int: ...

    def function_forget(self, function: int) -> None: ...

    def module_global(self, module: int, name: str) -> tuple[int, int, int]:
        """(status, address, size)"""

    def function_get(self, module: int, name: str, kinds: bytes | None) -> tuple[int, Kernel | None, dict[str, int], list[int]]: ...

    def function_set_attribute(self, function: int, attribute: int, value: int) -> int: ...

    def function_occupancy(self, function: int, block_threads: int, shared: int) -> tuple[int, int]: ...

    def stream_create(self, non_blocking: bool, priority: int) -> tuple[int, int]: ...

    def stream_destroy(self, stream: int) -> int: ...

    def stream_query(self, stream: int) -> int: ...

    def stream_settle(self, stream: int, timeout: float) -> int: ...

    def settle(self, timeout: float) -> int:
        """
        Waits for what was enqueued so far. Negative: no limit. 600 (not ready) once the timeout, in seconds, has passed.
        """

    def add_callback(self, stream: int, function: object) -> int: ...

    def event_create(self) -> tuple[int, int]: ...

    def event_destroy(self, event: int) -> int: ...

    def event_record(self, event: int, stream: int, timing: bool) -> int: ...

    def event_wait(self, event: int, stream: int) -> int: ...

    def event_query(self, event: int) -> int: ...

    def event_settle(self, event: int, timeout: float) -> int: ...

    def event_elapsed(self, start: int, end: int) -> tuple[int, float]:
        """(status, milliseconds)"""

def interruptible(interrupt_with: object, function: object) -> object:
    """
    function(), whose waits call interrupt_with now and then, to be ended by its exception.
    """

def await_back(seconds: float) -> None:
    """
    Until no thread waits in a call of a channel any more, or so much time has passed.
    """

ABI_VERSION: int = 7

MAX_PARAMETER_BYTES: int = 32764
