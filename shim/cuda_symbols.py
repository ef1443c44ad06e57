"""What the CUDA headers tell of the symbols that a libcuda ever had.

cuda.h and its like name the symbols, cudaTypedefs.h and its like the parameters of each and the CUDA version
that brought it: the versions of one name in ascending order are NAME, NAME_v2, NAME_v3 and so on.
"""

import pathlib
import re
import runpy
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

TYPEDEF = re.compile(r"typedef\s+\w+\s*\(CUDAAPI\s*\*PFN_(cu\w+?)_v(\d+)(_pt[sd][sz])?\)\(([^;]*)\)\s*;")
DECLARATION = re.compile(r"\bCUDAAPI\s+(cu[A-Z]\w*)\s*\(")
RENAME = re.compile(r"#\s*define\s+cu[A-Z]\w*\s+(?:__CUDA_API_PT[SD][SZ]?[SZ]?\()?(cu[A-Z]\w*)\)?")
PER_THREAD = re.compile(r"#\s*define\s+cu[A-Z]\w*\s+__CUDA_API_(PTDS|PTSZ)\((cu[A-Z]\w*)\)")
VARIANT = re.compile(r"_pt[sd][sz]$")
NUMBERED = re.compile(r"_v\d+$")
OTHERS = ("GL", "EGL", "VDPAU")
PROFILER = {"cuProfilerStart", "cuProfilerStop"}  # their header is not shipped, that of their types is
ERRORS = pathlib.Path(__file__).parents[1] / "client/fikit/cuda_errors.py"  # what the driver says of each
FORMER = {"cuProfilerInitialize"}  # CUDA 12 took its function away, not its name, which programs link


@dataclass(frozen=True)
class Symbol:
    """One name and what is known of it."""

    name: str
    base: str
    version: int
    parameters: str
    variant: str
    """The suffix of its variant for the per-thread default stream; empty: it has none."""
    other: bool
    """It is none of cuda.h's own: few programs ask for it."""

    @property
    def per_thread(self) -> str:
        """The name of that variant, or its own."""
        return self.name + self.variant

    @property
    def arguments(self) -> list[str]:
        """The names of its parameters."""
        return re.findall(r"(\w+)(?:\[\])?\s*(?:,|$)", self.parameters) if self.parameters != "void" else []


def text_of(path: pathlib.Path) -> str:
    """A header without comments; nothing where there is none, as not every distribution has all."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.DOTALL) if path.exists() else ""


def symbols_of(include: pathlib.Path) -> dict[str, Symbol]:
    """Every symbol by name, but for the variants that they have."""
    header = text_of(include / "cuda.h")
    others = "".join(text_of(include / f"cuda{other}.h") for other in OTHERS)
    own, foreign = names_in(header) | PROFILER, names_in(others) | FORMER
    by_base: dict[str, list[str]] = defaultdict(list)
    for name in sorted(name for name in own | foreign if not VARIANT.search(name)):
        by_base[NUMBERED.sub("", name)].append(name)
    versions: dict[str, dict[int, str]] = defaultdict(dict)
    for kind in ("", "Profiler", *OTHERS):
        for base, version, variant, parameters in TYPEDEF.findall(text_of(include / f"cuda{kind}Typedefs.h")):
            if not variant and base in by_base:
                versions[base][int(version)] = " ".join(parameters.split())
    # The headers name most where they make a name theirs, those of earlier versions as they are.
    variants = {name: f"_{kind.lower()}" for kind, name in PER_THREAD.findall(header + others)}
    variants |= {VARIANT.sub("", name): name[-5:] for name in own | foreign if VARIANT.search(name)}
    found = {}
    for base, there in by_base.items():
        there.sort(key=lambda name: int(name.rpartition("_v")[2]) if NUMBERED.search(name) else 1)
        for name, (version, parameters) in zip(there, sorted(versions[base].items()), strict=True):
            found[name] = Symbol(name, base, version, parameters, variants.get(name, ""), name not in own)
    return found


def names_in(header: str) -> set[str]:
    """The names that it declares, or makes of others."""
    named = {*DECLARATION.findall(header), *RENAME.findall(header)}
    return {name for name in named if "UNSUPPORTED" not in name}


def errors_of(include: pathlib.Path) -> dict[int, str]:
    """The names of cuda.h's results."""
    listed = text_of(include / "cuda.h").partition("typedef enum cudaError_enum")[2].partition("CUresult;")[0]
    return {int(code): name for name, code in re.findall(r"(CUDA_\w+)\s*=\s*(\d+)", listed)}


def error_rows(include: pathlib.Path) -> list[str]:
    """Numbers, names and texts of results: rows of a table in C++. Who has no text is told by his name."""
    told = {0: ("CUDA_SUCCESS", "no error"), **runpy.run_path(str(ERRORS))["NAMES"]}
    named = errors_of(include).items()
    return [f'    {{{code}, "{name}", "{told.get(code, ("", name))[1]}"}},' for code, name in named]


def listed(path: pathlib.Path, possible: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """The lines of a list of entry points, and the section of each: one of the possible ones."""
    section = ""
    for line in path.read_text().splitlines():
        entry = line.partition("#")[0].strip()
        if entry.startswith("["):
            section = entry.strip("[]")
            if section not in possible:
                sys.exit(f"{path}: no such section: {section}")
        elif entry:
            yield entry, section


def export_list(names: Iterable[str]) -> str:
    """The linker's, of these names alone."""
    return "{\n  global:\n" + "\n".join(f"    {name};" for name in names) + "\n  local: *;\n};\n"
