"""Device memory and pinned host memory."""

from __future__ import annotations

import re
from operator import index
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias, cast

from fikit._channel import DeviceBuffer, PinnedMemory
from fikit.core import Core, public_name, refuse_copy
from fikit.errors import UsageError
from fikit.streams import Stream, handle_in

if TYPE_CHECKING:
    from typing_extensions import Buffer

    class Array(Protocol):
        """NumPy's, which its stubs call a buffer since Python 3.12 alone."""

        @property
        def __array_interface__(self) -> dict[str, Any]: ...

    HostMemory: TypeAlias = Buffer | Array

__all__ = ["Memory", "PinnedMemory"]

_WIDTHS: Final = (1, 2, 4)
_NAME: Final = re.compile(":[^:]*:")
"""Of a field, in a buffer's format (PEP 3118)."""


class Memory(DeviceBuffer):
    """Device memory: ``address`` and ``size`` in bytes. A kernel argument as it is.

    Leaving a ``with`` block, ``free()``, or dropping it, gives it back once everything enqueued before has
    completed.
    The host side of a copy is any contiguous object with the buffer protocol: a NumPy array, bytes,
    PinnedMemory.
    """

    def __init__(self, core: Core, address: int, size: int, *, part_of: object = None) -> None:
        super().__init__(address, size, core.channel)
        self._core = core
        self._part_of = part_of

    __reduce_ex__ = refuse_copy

    def __repr__(self) -> str:
        state = " freed" if self.freed else ""
        return f"<{public_name(self)} {self.address:#x}, {self.size} bytes{state}>"

    def copy_from(
        self, source: HostMemory, *, offset: int = 0, stream: Stream | None = None, wait: bool = True
    ) -> None:
        """Copy all of ``source`` to ``offset`` (bytes). On return the source may be changed.

        With ``wait=False`` pinned memory may not have been read yet on return: synchronise the stream.
        """
        with _memory_of(source) as view:  # which keeps the size
            address = self._address(offset, view.nbytes)
            status, pinned = self._core.channel.copy_to_device(handle_in(self._core, stream), address, view)
        self._core.check(status, "Memory.copy_from")
        if pinned and wait:
            self._drain(stream, "Memory.copy_from")

    def copy_to(
        self, destination: HostMemory, *, offset: int = 0, stream: Stream | None = None, wait: bool = True
    ) -> None:
        """Fill all of ``destination`` from ``offset`` (bytes). On return the data are there.

        With ``wait=False``, which needs pinned memory (UsageError), they are there once the stream has
        come so far.
        """
        with _memory_of(destination) as view:  # which keeps the size
            address = self._address(offset, view.nbytes)
            if not wait and not self._core.channel.is_pinned(view):
                raise UsageError("copy_to without waiting needs pinned memory (Session.allocate_pinned)")
            status, pinned = self._core.channel.copy_to_host(handle_in(self._core, stream), view, address)
        self._core.check_synchronized(status, "Memory.copy_to")
        if pinned and wait:
            self._drain(stream, "Memory.copy_to")

    def copy_from_memory(
        self, source: Memory, *, size: int | None = None, offset: int = 0, source_offset: int = 0,
        stream: Stream | None = None,
    ) -> None:  # fmt: skip
        """Copy ``size`` bytes (None: all from ``source_offset`` on) on the device. Asynchronous."""
        if not isinstance(source, Memory):
            raise TypeError(f"copy_from_memory: {source!r} is no fikit.Memory")
        if source._core is not self._core:
            raise UsageError(f"{source!r} is memory of another session")
        count = source.size - index(source_offset) if size is None else index(size)
        status = self._core.channel.copy_on_device(
            handle_in(self._core, stream),
            self._address(offset, count),
            source._address(source_offset, count),
            count,
        )
        self._core.check(status, "Memory.copy_from_memory")

    def fill(
        self,
        value: int,
        *,
        width: int = 1,
        count: int | None = None,
        offset: int = 0,
        stream: Stream | None = None,
    ) -> None:
        """Set ``count`` elements (None: all) of ``width`` bytes (1, 2 or 4) to ``value``. Asynchronous."""
        value, width, offset = index(value), index(width), index(offset)
        if width not in _WIDTHS or not 0 <= value < 1 << 8 * width or offset % width:
            raise UsageError(
                f"fill: {value} in elements of {width} bytes at {offset} (width 1, 2 or 4; aligned)"
            )
        elements = (self.size - offset) // width if count is None else index(count)
        address = self._address(offset, elements * width)
        self._core.check(
            self._core.channel.fill(handle_in(self._core, stream), address, elements, value, width),
            "Memory.fill",
        )

    def read(self, size: int | None = None, *, offset: int = 0, stream: Stream | None = None) -> bytes:
        """``size`` bytes (None: all) from ``offset`` on."""
        content = self._room_for(size, offset)
        self.copy_to(content, offset=offset, stream=stream)
        return bytes(content)

    def free(self) -> None:
        """Give the memory back once everything enqueued before has completed. Never waits for that."""
        if not self.freed:
            self.mark_freed()
            if self._part_of is None:
                self._core.channel.memory_free(self.address)  # refused only when the session is over

    def __del__(self) -> None:
        if hasattr(self, "_part_of"):
            self.free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

    def _address(self, offset: int, count: int) -> int:
        if self.freed:
            raise UsageError(f"{self!r} was freed")
        offset, count = index(offset), index(count)  # NumPy's integers wrap
        if offset < 0 or count < 0 or offset + count > self.size:
            raise UsageError(f"{count} bytes at {offset} do not lie within {self!r}")
        return self.address + offset

    def _room_for(self, size: int | None, offset: int) -> bytearray:
        """Where ``size`` bytes (None: all) from ``offset`` on go to; none is made for more than there are."""
        count = max(self.size - index(offset), 0) if size is None else index(size)
        self._address(offset, count)
        return bytearray(count)

    def _drain(self, stream: Stream | None, call: str) -> None:
        handle = handle_in(self._core, stream)
        self._core.wait(lambda timeout: self._core.channel.stream_settle(handle, timeout), None, call)


def _memory_of(buffer: HostMemory) -> memoryview:
    view = memoryview(cast("Buffer", buffer))
    if "O" in _NAME.sub("", view.format):  # what came in their place would crash this process
        raise TypeError(f"a copy of Python objects ({type(buffer).__name__} of format {view.format!r})")
    return view
