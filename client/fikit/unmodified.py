"""Programs that know nothing of fikitd: the library that they load in place of the driver's, and how.

The library is a libcuda.so.1 in a folder of its own inside this package. A program finds it when that folder
comes first in LD_LIBRARY_PATH, and it finds the daemon by FIKIT_SOCKET.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fikit.place import SOCKET_VARIABLE

SEARCH_PATH: Final = "LD_LIBRARY_PATH"


def library_folder() -> Path:
    """The folder of our libcuda.so.1. Raises FileNotFoundError where it was not installed."""
    folder = Path(__file__).with_name("libcuda")
    if not (folder / "libcuda.so.1").is_file():
        raise FileNotFoundError(f"no libcuda.so.1 in {folder}: install fikitd's package whole")
    return folder


def variables(socket: str, environment: Mapping[str, str]) -> dict[str, str]:
    """What to set, for the daemon at ``socket``, in a program that would have run in ``environment``."""
    folder = str(library_folder())
    rest = [part for part in environment.get(SEARCH_PATH, "").split(":") if part and part != folder]
    return {SEARCH_PATH: ":".join([folder, *rest]), SOCKET_VARIABLE: os.path.abspath(socket)}


def without_library(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` for a process that must get the genuine driver, such as an executor."""
    folder = str(Path(__file__).with_name("libcuda"))
    cleaned = dict(environment)
    rest = [part for part in cleaned.get(SEARCH_PATH, "").split(":") if part != folder]
    if SEARCH_PATH in cleaned:
        cleaned[SEARCH_PATH] = ":".join(rest)
    return cleaned
