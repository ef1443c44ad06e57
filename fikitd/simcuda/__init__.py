"""The simulated GPU: a libcuda.so.1 that models an H200 (see DESIGN.md beside this file)."""

import os
import pathlib
import sys

_PACKAGE = ("fikitd", "simcuda")


def library_path() -> pathlib.Path:
    """Return where the simulated libcuda.so.1 lies.

    FIKIT_SIMCUDA, the library itself or a CMake build folder, stands in for the installed one in development.
    """
    wished = os.environ.get("FIKIT_SIMCUDA")
    if wished is None:
        # Whoever stands in a checkout imports that, which has no native parts: the installed one's serve.
        packages = [pathlib.Path(__file__).parent, *(pathlib.Path(each, *_PACKAGE) for each in sys.path)]
        places = [package / "lib" / "libcuda.so.1" for package in packages]
        found = next((place for place in places if place.is_file()), places[0])
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
