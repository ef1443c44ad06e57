"""Modules and their kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any, Final, NamedTuple, NoReturn, Self

from fikit import _channel
from fikit.core import NOT_READY, Core, public_name, refuse_copy
from fikit.errors import UsageError
from fikit.memory import Memory
from fikit.streams import Stream, handle_in

# CUfunction_attribute
_MAX_DYNAMIC_SHARED_BYTES: Final = 8
_NON_PORTABLE_CLUSTER: Final = 14
_MOST: Final = (1 << 31) - 1
_TYPE: Final = re.compile(r"(?P<kind>[iuf])(?P<bits>8|16|32|64)")

Axes = int | tuple[int, ...]


class KernelAttributes(NamedTuple):
    """What the driver knows of a kernel. Sizes in bytes."""

    max_threads: int
    shared_bytes: int
    const_bytes: int
    local_bytes: int
    registers: int
    max_dynamic_shared_bytes: int
    ptx_version: int
    binary_version: int


class _Image:
    """A module in the executor: there until it is given up, or the last that holds on to it is dropped."""

    def __init__(self, core: Core, handle: int) -> None:
        self._core = core
        self.handle = handle
        self.functions: list[int] = []

    __reduce_ex__ = refuse_copy

    def give_up(self) -> None:
        if self.handle != 0:
            handle, self.handle = self.handle, 0
            self._core.give_up(handle, self.functions)

    def __del__(self) -> None:
        self.give_up()


class Kernel:
    """A kernel of a module, which stays loaded as long as there is the kernel."""

    def __init__(
        self,
        core: Core,
        image: _Image,
        kernel: _channel.Kernel,
        attributes: Mapping[str, int],
        parameter_sizes: Sequence[int],
    ) -> None:
        self._core = core
        self._image = image
        self._kernel: _channel.Kernel | None = kernel
        self._launch: Callable[..., int] = kernel.launch
        self.name = kernel.name
        self.attributes = KernelAttributes(**attributes)
        self.parameter_sizes = tuple(parameter_sizes)
        """In bytes."""

    def __repr__(self) -> str:
        return f"<{public_name(self)} {self._description}>"

    @property
    def _description(self) -> str:
        """Which it is, for the ``repr`` of either flavour."""
        return f"{self.name}, unloaded" if self._kernel is None else self.name

    def launch(
        self,
        *arguments: Any,
        grid: Axes,
        block: Axes,
        shared: int = 0,
        stream: Stream | None = None,
        cooperative: bool = False,
        cluster: Axes | None = None,
    ) -> None:
        """Enqueue the kernel; does not wait for it.

        ``grid``, ``block``, ``cluster``: an int or up to three; ``shared``: dynamic shared memory, bytes.
        Arguments: Memory, int, float, bool, NumPy scalars, ctypes objects, or bytes of exactly a
        parameter's size (structures). Without declared types (``Module.kernel``) the parameter's size and
        the value's type decide: a float in 8 bytes is a double, in 4 a float. TypeError, OverflowError and
        UsageError name the argument. A kernel that fails later is reported by the next synchronising call.
        What a kernel prints (``printf``) does not come out of this program.
        """
        self._enqueue(arguments, grid, block, shared, stream, cooperative, cluster, True)

    def launch_nowait(
        self,
        *arguments: Any,
        grid: Axes,
        block: Axes,
        shared: int = 0,
        stream: Stream | None = None,
        cooperative: bool = False,
        cluster: Axes | None = None,
    ) -> bool:
        """``launch`` that returns False instead of waiting for room in a full channel."""
        return self._enqueue(arguments, grid, block, shared, stream, cooperative, cluster, False)

    def _enqueue(
        self, arguments: tuple[Any, ...], grid: Axes, block: Axes, shared: int, stream: Stream | None,
        cooperative: bool, cluster: Axes | None, wait: bool,
    ) -> bool:  # fmt: skip
        handle = 0 if stream is None else handle_in(self._core, stream)
        try:
            if cooperative or cluster is not None:
                status = self._live().launch_attributed(
                    handle, grid, block, shared, arguments, wait, bool(cooperative), cluster
                )
            else:
                status = self._launch(handle, grid, block, shared, arguments, wait)
        except ValueError as error:
            raise UsageError(str(error)) from None
        if status:
            if status == NOT_READY:
                return False
            self._core.check(status, f"launch of kernel {self.name}")
        return True

    def occupancy(self, block_threads: int, shared: int = 0) -> int:
        """Blocks of ``block_threads`` threads and ``shared`` dynamic bytes that fit on one multiprocessor."""
        threads, shared = index(block_threads), index(shared)
        if not (0 <= threads <= _MOST and 0 <= shared <= _MOST):
            raise UsageError(f"occupancy: blocks of {threads} threads with {shared} bytes")
        status, blocks = self._core.channel.function_occupancy(self._live().function, threads, shared)
        self._core.check(status, f"occupancy of kernel {self.name}")
        return blocks

    def set_max_dynamic_shared(self, size: int) -> None:
        """Allow launches with up to ``size`` bytes of dynamic shared memory (needed above 48 KiB)."""
        if not 0 <= (size := index(size)) <= _MOST:
            raise UsageError(f"set_max_dynamic_shared: {size} bytes")
        self._set(_MAX_DYNAMIC_SHARED_BYTES, size)

    def allow_non_portable_cluster(self) -> None:
        """Allow clusters of more than eight blocks."""
        self._set(_NON_PORTABLE_CLUSTER, 1)

    def _live(self) -> _channel.Kernel:
        return self._refuse() if self._kernel is None else self._kernel

    def _refuse(self, *_: object) -> NoReturn:
        raise UsageError(f"kernel {self.name}: its module was unloaded")

    def _forget(self) -> None:
        # Its number may soon be another kernel's.
        self._kernel, self._launch = None, self._refuse

    def _set(self, attribute: int, value: int) -> None:
        status = self._core.channel.function_set_attribute(self._live().function, attribute, value)
        self._core.check(status, f"attribute {attribute} of kernel {self.name}")


class Module:
    """A loaded image. Leaving a ``with`` block, or ``unload()``, gives it up.

    So does dropping it together with its kernels and globals; then the session unloads it when it is next
    asked to load, to allocate, or for ``memory_information``.
    """

    def __init__(self, core: Core, handle: int) -> None:
        self._core = core
        self._image = _Image(core, handle)
        self._kernels: dict[tuple[str, tuple[str, ...] | None], Kernel] = {}

    def __repr__(self) -> str:
        return f"<{public_name(self)} {self._description}>"

    @property
    def _description(self) -> str:
        """Which it is, for the ``repr`` of either flavour."""
        return str(self._image.handle or "unloaded")

    def kernel(self, name: str, types: Sequence[str] | None = None) -> Kernel:
        """The kernel of that (mangled) name. Raises CudaError (500) when there is none.

        A session may have 65535 kernels at a time; OutOfMemoryError beyond that.

        ``types`` declares its parameters: ``i8`` to ``i64``, ``u8`` to ``u64``, ``f16`` to ``f64``,
        ``pointer``, ``bytes``, or ``any``, in order.
        """
        _check_name("kernel", name)
        declared = None if types is None else tuple(types)
        kinds = None if declared is None else b"".join(map(_kind, declared))
        if (known := self._kernels.get((name, declared))) is not None:
            return known
        try:
            status, kernel, attributes, sizes = self._core.channel.function_get(self._live(), name, kinds)
        except ValueError as error:
            raise UsageError(str(error)) from None
        self._core.check_made(status, f"kernel {name}", "functions")
        assert kernel is not None  # noqa: S101 - as the status says
        for number, (kind, size) in enumerate(zip(declared or (), sizes, strict=bool(declared))):
            if (match := _TYPE.fullmatch(kind)) and int(match["bits"]) != 8 * size:
                self._core.channel.function_forget(kernel.function)
                raise UsageError(f"parameter {number} of kernel {name} has {size} bytes; it is no {kind}")
        self._image.functions.append(kernel.function)
        self._kernels[name, declared] = found = Kernel(self._core, self._image, kernel, attributes, sizes)
        return found

    def global_(self, name: str) -> Memory:
        """A global variable of the module. Raises CudaError (500) when there is none."""
        _check_name("global_", name)
        status, address, size = self._core.channel.module_global(self._live(), name)
        self._core.check(status, f"global {name}")
        return Memory(self._core, address, size, part_of=self._image)

    def unload(self) -> None:
        """Give the module up; its kernels must not be launched any more. Never fails after the session."""
        self.give_up()
        self._core.unload()

    def give_up(self) -> None:
        """``unload`` that leaves it to the session's next call that waits."""
        for kernel in self._kernels.values():
            kernel._forget()
        self._kernels.clear()
        self._image.give_up()

    def _live(self) -> int:
        if self._image.handle == 0:
            raise UsageError("the module was unloaded")
        return self._image.handle

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.unload()


def _check_name(call: str, name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{call}: {name!r} is no str")


def _kind(declared: str) -> bytes:
    named = {"any": b"?", "pointer": b"p", "bytes": b"b"}
    if declared in named:
        return named[declared]
    match = _TYPE.fullmatch(declared)
    if match is None or declared == "f8":
        raise UsageError(
            f"{declared!r} is no parameter type (i8 to i64, u8 to u64, f16 to f64, pointer, bytes, any)"
        )
    return match["kind"].encode()
