"""Services in C++ (services.cu) beside the models: for bench.workloads --models. Needs nvcc and PyTorch."""

import ctypes
import fcntl
import random
import runpy
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[2] / "build" / "bench"
NAMES = (
    *("polling", "thinking", "controlling", "asking", "called"),
    *("decoding", "spreading", "feeding", "pacing", "batching"),
)


def library():
    """The services, built once for all processes."""
    source = HERE / "services.cu"
    BUILD.mkdir(parents=True, exist_ok=True)
    place = BUILD / f"libservices-{source.stat().st_mtime_ns}.so"
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            made = f"{place}.made"
            options = ["-O2", "-arch=native", "-shared", "-Xcompiler", "-fPIC"]
            subprocess.run(["nvcc", *options, str(source), "-o", made], check=True)
            Path(made).rename(place)
    return ctypes.CDLL(str(place))


def service(name):
    """What makes a step of one of them."""

    def build():
        step = getattr(library(), name)
        step.restype = None
        return step

    return build


def asked():
    """Answers of `polling`, 2 or 12 ms after one another: nothing that it launches tells which."""
    step = service("polling")()
    random.seed(7)
    step.pause_s = lambda: random.choice((0.002, 0.012))
    return step


WORKLOADS = {
    **runpy.run_path(str(HERE / "models.py"))["WORKLOADS"],
    **{name: service(name) for name in NAMES},
    "asked": asked,
}
