"""The simulated GPU: a libcuda.so.1 that models an H200 (see DESIGN.md beside this file)."""

import os
import pathlib


def library_path() -> pathlib.Path:
    """Return where the simulated libcuda.so.1 lies.

    FIKIT_SIMCUDA, the library itself or a CMake build folder, stands in for the installed one in development.
    """
    wished = os.environ.get("FIKIT_SIMCUDA")
    if wished is None:
        found = pathlib.Path(__file__).with_name("lib") / "libcuda.so.1"
        hint = "build and install fikitd, or set FIKIT_SIMCUDA to a CMake build folder"
    else:
        root = pathlib.Path(wished)
        places = [
            root,
            root / "libcuda.so.1",
            root / "lib/libcuda.so.1",
            root / "simcuda/lib/libcuda.so.1",
        ]
        found = next((place for place in places if place.is_file()), root)
        hint = "FIKIT_SIMCUDA must name it or a CMake build folder that has it"
    if not found.is_file():
        raise FileNotFoundError(f"no simulated libcuda.so.1 at {found}: {hint}")
    return found.resolve()
