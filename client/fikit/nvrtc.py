"""CUDA C to PTX with NVRTC, which runs in this process and needs no GPU."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any, Final

from fikit.errors import FikitError, MissingExtraError


class CompileError(FikitError, ValueError):
    """The source does not compile; the message is NVRTC's log."""

    code = "compile"


OLDEST_VERSION: Final = b"9.0"
"""Of PTX, which every driver of CUDA 13 takes (PTX ISA, "Release Notes")."""


def compile_ptx(
    source: str, *, name: str = "source.cu", architecture: str, options: Sequence[str] = ()
) -> bytes:
    """PTX for ``architecture`` (``compute_90``, say). Raises CompileError, MissingExtraError."""
    try:
        nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")
    except ImportError as error:
        raise _missing(error) from error
    try:
        status, program = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], [])
    except RuntimeError as error:  # cuda.bindings found no library
        raise _missing(error) from error
    _check(nvrtc, status)
    try:
        flags = [f"--gpu-architecture={architecture}".encode(), *(option.encode() for option in options)]
        (compiled,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        if compiled != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            status, size = nvrtc.nvrtcGetProgramLogSize(program)
            _check(nvrtc, status)
            log = bytearray(size)
            _check(nvrtc, nvrtc.nvrtcGetProgramLog(program, log)[0])
            raise CompileError(f"{name} does not compile:\n{log.rstrip(bytes(1)).decode(errors='replace')}")
        status, size = nvrtc.nvrtcGetPTXSize(program)
        _check(nvrtc, status)
        ptx = bytearray(size)
        _check(nvrtc, nvrtc.nvrtcGetPTX(program, ptx)[0])
        return bytes(ptx)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def for_older_drivers(ptx: bytes) -> bytes:
    """``ptx`` as of a version that every driver of CUDA 13 takes, whatever NVRTC made it.

    Volatile accesses of local memory, which older drivers refuse, become plain ones, as the NVRTC of those
    drivers makes them. Everything else stays: a driver that does not know an instruction refuses it by name.
    """
    older = re.sub(rb"^(\.version )9\.\d+", rb"\g<1>" + OLDEST_VERSION, ptx, count=1, flags=re.MULTILINE)
    return re.sub(rb"\b(ld|st)\.volatile\.local\b", rb"\1.local", older)


def _missing(error: Exception) -> MissingExtraError:
    return MissingExtraError(f"compiling CUDA C needs NVRTC: pip install 'fikitd[nvrtc]' ({error})")


def _check(nvrtc: Any, status: Any) -> None:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC failed: {status.name}")
