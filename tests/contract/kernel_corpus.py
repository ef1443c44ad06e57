"""A corpus of kernels whose results are the same on the simulated and on the real GPU.

tests/contract/kernels/*.cu are ordinary CUDA C; a comment above each kernel says how it is launched:

    // @launch grid=4,4 block=16,16 shared=1024 cooperative=1 in=f32:64 out=u32:256 approx=1e-5

Every kernel takes (const input*, output*, unsigned number of input elements); the output starts as zeros.
A file with a line "// @architecture compute_90a" is compiled for that one, the others for compute_90.
With `approx` it uses approximate instructions: its values are compared within that relative error, or within
`absolute` (of sums whose terms cancel: the terms' error), and recorded whole; otherwise every bit counts and
a digest is recorded.

The PTX that NVRTC made of them lies in tests/data/kernels, so that both devices run the same.
"""

from __future__ import annotations

import base64
import ctypes
import hashlib
import importlib.util
import pathlib
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

HERE: Final = pathlib.Path(__file__).parent
DATA: Final = HERE.parent / "data" / "kernels"
EXPECTED: Final = DATA / "expected.json"
KINDS: Final = {"u32": np.uint32, "f32": np.float32, "f64": np.float64, "u16": np.uint16, "u64": np.uint64}


@dataclass(frozen=True)
class Kernel:
    """One kernel and its launch."""

    group: str
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    cooperative: bool
    inputs: tuple[str, int]
    outputs: tuple[str, int]
    approx: float  # 0: exact
    absolute: float

    @property
    def key(self) -> str:
        return f"{self.group}.{self.name}"


def _triple(text: str) -> tuple[int, int, int]:
    x, y, z = [*map(int, text.split(",")), 1, 1][:3]
    return x, y, z


def _kind(text: str) -> tuple[str, int]:
    kind, count = text.split(":")
    return kind, int(count)


def kernels_of(source: pathlib.Path) -> Iterator[Kernel]:
    """The kernels of one file."""
    for settings, name in re.findall(
        r"^// @launch (.*)\nextern \"C\" __global__ void (?:__\w+__\([^)]*\) )?(\w+)\(",
        source.read_text(),
        re.MULTILINE,
    ):
        given = dict(part.split("=") for part in settings.split())
        yield Kernel(
            source.stem,
            name,
            _triple(given["grid"]),
            _triple(given["block"]),
            int(given.get("shared", 0)),
            "cooperative" in given,
            _kind(given["in"]),
            _kind(given["out"]),
            approx := float(given.get("approx", 0)),
            float(given.get("absolute", 1e-3 * approx)),
        )


SOURCES: Final = sorted((HERE / "kernels").glob("*.cu"))
KERNELS: Final = {kernel.key: kernel for source in SOURCES for kernel in kernels_of(source)}


def include_folders() -> list[str]:
    """Where cuda_fp16.h and its like lie: the CUDA wheels, or the toolkit."""
    found = importlib.util.find_spec("nvidia.cu13") if importlib.util.find_spec("nvidia") else None
    wheels = (
        [pathlib.Path(place) / "include" for place in (found.submodule_search_locations or ())]
        if found
        else []
    )
    places = [*wheels, pathlib.Path("/usr/local/cuda/include")]
    return [str(place) for root in places for place in (root, root / "cccl") if place.is_dir()]


def compile_source(source: pathlib.Path) -> bytes:
    """The PTX that NVRTC makes of a file."""
    text = source.read_text()
    named = re.search(r"^// @architecture (\w+)$", text, re.MULTILINE)
    return compile_text(text, source.name, named[1] if named else "compute_90")


def compile_text(text: str, name: str = "source.cu", architecture: str = "compute_90") -> bytes:
    """The PTX that NVRTC makes of CUDA C, marked as of a version that every driver of CUDA 13 takes."""
    from fikit.nvrtc import compile_ptx, for_older_drivers

    options = [
        "--std=c++17",
        "--device-int128",
        "-default-device",
        *(f"-I{place}" for place in include_folders()),
    ]
    ptx = compile_ptx(text, name=name, architecture=architecture, options=options)
    return for_older_drivers(ptx.rstrip(b"\0"))


def stored_ptx(group: str) -> bytes:
    """The kept PTX of a file."""
    return zlib.decompress((DATA / f"{group}.ptx.z").read_bytes())


def random_words(seed: str, count: int) -> Any:
    """So many 64-bit words, the same for the same seed everywhere (splitmix64)."""
    state = np.uint64(zlib.crc32(seed.encode()))
    with np.errstate(over="ignore"):
        z = (np.arange(1, count + 1, dtype=np.uint64) + state) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def input_values(kernel: Kernel) -> Any:
    """What a kernel reads: any bits for integers, -4 to 4 for numbers of floating point."""
    kind, count = kernel.inputs
    words = random_words(kernel.key, count)
    if kind in ("f32", "f64"):
        return ((words >> np.uint64(11)).astype(np.float64) * 2.0**-50 - 4.0).astype(KINDS[kind])
    return words.astype(KINDS[kind])


def run(cuda: Any, function: Any, kernel: Kernel) -> Any:
    """Launch a kernel on its input; the output."""
    values = input_values(kernel)
    kind, count = kernel.outputs
    result = np.zeros(count, dtype=KINDS[kind])
    source, target = cuda.cuMemAlloc(values.nbytes), cuda.cuMemAlloc(result.nbytes)
    cuda.cuMemcpyHtoD(source, values.ctypes.data, values.nbytes)
    cuda.cuMemsetD8(target, 0, result.nbytes)
    stored = [ctypes.c_uint64(int(source)), ctypes.c_uint64(int(target)), ctypes.c_uint32(len(values))]
    pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in stored))
    launch = (function, *kernel.grid, *kernel.block, kernel.shared, 0, ctypes.addressof(pointers))
    if kernel.cooperative:
        cuda.cuLaunchCooperativeKernel(*launch)
    else:
        cuda.cuLaunchKernel(*launch, 0)
    cuda.cuCtxSynchronize()
    cuda.cuMemcpyDtoH(result.ctypes.data, target, result.nbytes)
    cuda.cuMemFree(source)
    cuda.cuMemFree(target)
    return result


def canonical(values: Any) -> Any:
    """The values with one NaN for all: which one double precision gives is the hardware's choice."""
    if values.dtype == np.float64:
        values = values.copy()
        values[np.isnan(values)] = np.nan
    return values


def record(kernel: Kernel, values: Any) -> str:
    """What is kept of a result."""
    if kernel.approx:
        return base64.b85encode(zlib.compress(values.tobytes(), 9)).decode()
    return digest(values)


def digest(values: Any) -> str:
    return hashlib.sha256(canonical(values).tobytes()).hexdigest()[:24]


def difference(kernel: Kernel, values: Any, expected: str) -> str:
    """How a result differs from what was recorded; empty: it does not."""
    if not kernel.approx:
        return "" if digest(values) == expected else f"digest {digest(values)}, recorded {expected}"
    wanted = np.frombuffer(zlib.decompress(base64.b85decode(expected)), dtype=values.dtype)
    error = np.abs(values - wanted) / np.maximum(kernel.approx * np.abs(wanted), kernel.absolute)
    worst = int(np.nanargmax(error))
    same = bool((np.isnan(values) == np.isnan(wanted)).all())
    if same and not error[worst] > 1:
        return ""
    return f"element {worst} is {values[worst]}, recorded {wanted[worst]}"
