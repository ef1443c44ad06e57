"""Writes what follows from entry_points.txt and the CUDA headers.

cuda.h names every symbol that a libcuda ever had, cudaTypedefs.h the parameters of each and the CUDA version
that brought it: the versions of one name in ascending order are NAME, NAME_v2, NAME_v3 and so on. Output:

    exports.map       the linker's export list
    served.hpp        declarations of what is served, in namespace fikit::shim
    entry_points.cpp  the exported functions, the table behind cuGetProcAddress, the errors' names
"""

import pathlib
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

TYPEDEF = re.compile(r"typedef\s+\w+\s*\(CUDAAPI\s*\*PFN_(cu\w+?)_v(\d+)(_pt[sd][sz])?\)\(([^;]*)\)\s*;")
DECLARATION = re.compile(r"\bCUDAAPI\s+(cu[A-Z]\w*)\s*\(")
RENAME = re.compile(r"#\s*define\s+cu[A-Z]\w*\s+(?:__CUDA_API_PT[SD][SZ]?[SZ]?\()?(cu[A-Z]\w*)\)?")
PER_THREAD = re.compile(r"#\s*define\s+cu[A-Z]\w*\s+__CUDA_API_(PTDS|PTSZ)\((cu[A-Z]\w*)\)")
VARIANT = re.compile(r"_pt[sd][sz]$")
NUMBERED = re.compile(r"_v\d+$")
OTHER_HEADERS = ("cudaGL.h", "cudaEGL.h", "cudaVDPAU.h")
PROFILER = {"cuProfilerStart", "cuProfilerStop"}  # their header is not shipped, that of their types is
MARK = "fikit_shim"  # tells a stand-in from the genuine driver
NEEDS = ("anytime", "initialised", "launch", "context")


@dataclass
class Symbol:
    """One exported name and what is known of it."""

    name: str
    base: str
    version: int = 0
    parameters: str = ""
    needs: str = ""
    does: str = ""
    variant: str = ""

    @property
    def arguments(self) -> list[str]:
        """The names of its parameters."""
        return re.findall(r"(\w+)(?:\[\])?\s*(?:,|$)", self.parameters) if self.parameters != "void" else []


def text_of(path: pathlib.Path) -> str:
    """A header without comments."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.DOTALL) if path.exists() else ""


def sections(path: pathlib.Path) -> Iterator[tuple[str, str, str]]:
    """The served names with what each needs first, and whose function each is."""
    needs = ""
    for line in path.read_text().splitlines():
        name = line.partition("#")[0].strip()
        if name.startswith("["):
            needs = name.strip("[]")
            if needs not in NEEDS:
                sys.exit(f"{path}: no such section: {needs}")
        elif name:
            name, _, other = (word.strip() for word in name.partition("="))
            yield name, needs, other or name


def symbols_of(include: pathlib.Path) -> tuple[dict[str, Symbol], set[str]]:
    """Every symbol of cuda.h by name, and those names that only need to exist."""
    header = text_of(include / "cuda.h")
    names = {name for name in DECLARATION.findall(header) if "UNSUPPORTED" not in name}
    names |= {name for name in RENAME.findall(header) if "UNSUPPORTED" not in name} | PROFILER
    by_base: dict[str, list[str]] = defaultdict(list)
    for name in sorted(name for name in names if not VARIANT.search(name)):
        by_base[NUMBERED.sub("", name)].append(name)
    versions: dict[str, dict[int, str]] = defaultdict(dict)
    types = text_of(include / "cudaTypedefs.h") + text_of(include / "cudaProfilerTypedefs.h")
    for base, version, variant, parameters in TYPEDEF.findall(types):
        if not variant and base in by_base:
            versions[base][int(version)] = " ".join(parameters.split())
    # Those of earlier versions are declared, but no name is made theirs.
    earlier = (name for name in DECLARATION.findall(header) if VARIANT.search(name))
    variants = {VARIANT.sub("", name): name[-5:] for name in earlier}
    variants |= {name: "_" + kind.lower() for kind, name in PER_THREAD.findall(header)}
    names |= {name + variant for name, variant in variants.items()}
    found = {}
    for base, there in by_base.items():
        there.sort(key=lambda name: int(name.rpartition("_v")[2]) if NUMBERED.search(name) else 1)
        for name, (version, parameters) in zip(there, sorted(versions[base].items()), strict=True):
            found[name] = Symbol(name, base, version, parameters, variant=variants.get(name, ""))
    others = "".join(text_of(include / other) for other in OTHER_HEADERS)
    exists = {*DECLARATION.findall(others), *RENAME.findall(others), "cuProfilerInitialize"}
    exists |= {name + "_" + kind.lower() for kind, name in PER_THREAD.findall(others)}
    exists |= {name for name in names if VARIANT.search(name)}
    return found, exists - found.keys()


def wrapper(symbol: Symbol, number: int) -> list[str]:
    """The exported function, and its variant for the per-thread default stream."""
    arguments = "".join(f", {name}" for name in symbol.arguments)
    parameters = "" if symbol.parameters == "void" else symbol.parameters
    call = f"enter<Needs::{symbol.needs}, fikit::shim::{symbol.does}>({number}{arguments})"
    whole = "[[gnu::flatten]] " if symbol.needs == "launch" else ""
    lines = [f'extern "C" {whole}EXPORTED CUresult CUDAAPI {symbol.name}({parameters}) {{ return {call}; }}']
    if symbol.variant:
        lines.append(
            f'extern "C" CUresult CUDAAPI {symbol.name}{symbol.variant}({parameters}) {{\n'
            f"    const PerThreadDefault scope;\n    return {call};\n}}"
        )
    return lines


def main(include: pathlib.Path, list_path: pathlib.Path, output: pathlib.Path) -> None:
    """Read the list and the headers in `include`; write the three files to `output`."""
    found, bare = symbols_of(include)
    for name, needs, does in sections(list_path):
        if name in found:  # a toolkit older than the list lacks what it brought
            found[name].needs, found[name].does = needs, does
    served = [symbol for symbol in found.values() if symbol.needs]
    variants = {symbol.name + symbol.variant for symbol in served if symbol.variant}
    stubs = sorted((found.keys() | bare) - {symbol.name for symbol in served} - variants)
    exported = sorted(found.keys() | bare | variants)

    output.mkdir(parents=True, exist_ok=True)
    listed = "\n".join(f"    {name};" for name in [*exported, MARK])
    (output / "exports.map").write_text("{\n  global:\n" + listed + "\n  local: *;\n};\n")
    head = "// Generated by generate.py from entry_points.txt and the CUDA headers.\n"
    declarations = [
        f"CUresult {symbol.name}({symbol.parameters});" for symbol in served if symbol.does == symbol.name
    ]
    (output / "served.hpp").write_text(
        head + '#pragma once\n\n#include "cuda_interface.hpp"\n\nnamespace fikit::shim {\n'
        f"inline constexpr unsigned name_count = {len(served) + len(stubs)};\n"
        + "\n".join(declarations)
        + "\n}  // namespace fikit::shim\n"
    )

    names = [symbol.name for symbol in served] + stubs
    number = {name: index for index, name in enumerate(names)}
    lines = [head, '#include "entry.hpp"', '#include "served.hpp"', "", "using namespace fikit::shim;", ""]
    lines.append('#define EXPORTED __attribute__((visibility("default")))')
    lines.append(f'extern "C" EXPORTED const int {MARK} = 1;')
    for symbol in served:
        lines += wrapper(symbol, number[symbol.name])
    # A stub must not meet cuda.h's declaration of its own name.
    for name in stubs:
        lines.append(f'extern "C" EXPORTED CUresult fikit_stub_{name}() __asm__("{name}");')
        lines.append(f'extern "C" CUresult fikit_stub_{name}() {{ return not_served({number[name]}); }}')
    lines += ["namespace fikit::shim {", "const char* const names[] = {"]
    lines += [f'    "{name}",' for name in names]
    lines += ["};", "const EntryPoint entry_points[] = {"]
    for symbol in sorted(found.values(), key=lambda each: (each.base, each.version)):
        plain = f"&::{symbol.name}" if symbol.needs else f"&fikit_stub_{symbol.name}"
        other = symbol.name + symbol.variant
        thread = f"&::{other}" if symbol.needs else f"&fikit_stub_{other}"
        lines.append(
            f'    {{"{symbol.base}", {symbol.version}, reinterpret_cast<void*>({plain}), '
            f"reinterpret_cast<void*>({thread})}},"
        )
    lines += ["};", "const unsigned entry_point_count = sizeof entry_points / sizeof *entry_points;"]
    errors = text_of(include / "cuda.h").partition("typedef enum cudaError_enum")[2].partition("CUresult;")[0]
    lines += ["const ErrorName error_names[] = {"]
    lines += [f'    {{{code}, "{name}"}},' for name, code in re.findall(r"(CUDA_\w+)\s*=\s*(\d+)", errors)]
    lines += ["};", "const unsigned error_name_count = sizeof error_names / sizeof *error_names;"]
    lines += ["}  // namespace fikit::shim", ""]
    (output / "entry_points.cpp").write_text("\n".join(lines))


if __name__ == "__main__":
    main(*(pathlib.Path(argument) for argument in sys.argv[1:4]))
