"""fikit: run CUDA work through fikitd.

    with fikit.connect(priority="high") as session:
        module = session.compile(source)
        with session.allocate(4096) as memory:
            module.kernel("work").launch(memory, 1024, grid=4, block=256)
            session.synchronize()

``fikit.trio.connect`` is the same for trio. Names are imported when first used, so that ``fikitctl`` and the
daemon, which need the protocol alone, load nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fikit import trio as trio
    from fikit._channel import PinnedMemory
    from fikit.device import Device, MemoryInformation
    from fikit.errors import (
        CudaError,
        FikitError,
        MissingExtraError,
        OutOfMemoryError,
        RefusedError,
        SessionLostError,
        UnreachableError,
        UsageError,
    )
    from fikit.memory import Memory
    from fikit.modules import Kernel, KernelAttributes, Module
    from fikit.nvrtc import CompileError
    from fikit.session import Session, connect
    from fikit.streams import Event, Stream

__version__ = "0.1.0"

_HOMES = {
    "errors": (
        "CudaError", "FikitError", "MissingExtraError", "OutOfMemoryError", "RefusedError",
        "SessionLostError", "UnreachableError", "UsageError",
    ),
    "device": ("Device", "MemoryInformation"),
    "memory": ("Memory", "PinnedMemory"),
    "modules": ("Kernel", "KernelAttributes", "Module"),
    "nvrtc": ("CompileError",),
    "session": ("Session", "connect"),
    "streams": ("Event", "Stream"),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "CompileError",
    "CudaError",
    "Device",
    "Event",
    "FikitError",
    "Kernel",
    "KernelAttributes",
    "Memory",
    "MemoryInformation",
    "MissingExtraError",
    "Module",
    "OutOfMemoryError",
    "PinnedMemory",
    "RefusedError",
    "Session",
    "SessionLostError",
    "Stream",
    "UnreachableError",
    "UsageError",
    "connect",
]


if not TYPE_CHECKING:  # to a type checker there would be whatever somebody asks for

    def __getattr__(name: str) -> Any:
        if name == "trio":
            return importlib.import_module("fikit.trio")
        if name not in _HOME_OF:
            raise AttributeError(f"module 'fikit' has no attribute {name!r}")
        value = getattr(importlib.import_module(f"fikit.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """For notebooks and shells, which look here for what they may complete."""
    return sorted({*globals(), *__all__, "trio"})
