"""Builds the measured programs in build/bench, which is what ``--programs`` may replace."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "build/bench"


def build(targets: list[str]) -> Path:
    """Configure and build, one benchmark after the other; returns the folder with the programs."""
    cmake = (
        shutil.which("cmake", path=f"{Path(sys.executable).parent}:{Path('/usr/local/bin')}:/usr/bin")
        or "cmake"
    )
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (FOLDER / "build.ninja").exists():
            options = ["-DFIKIT_NATIVE_TESTS=ON", "-DFIKIT_PYTHON=OFF", "-DCMAKE_BUILD_TYPE=Release"]
            source = ["-S", str(ROOT / "fikitd/native"), "-B", str(FOLDER), "-G", "Ninja"]
            python = f"-DPython_EXECUTABLE={sys.executable}"
            subprocess.run([cmake, *source, *options, python], check=True, stdout=sys.stderr)
        subprocess.run([cmake, "--build", str(FOLDER), "--target", *targets], check=True, stdout=sys.stderr)
    return FOLDER / "bench"
