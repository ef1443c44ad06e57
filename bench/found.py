"""The programs of bench/programs: what each covers, how it is run, and what it lacks on this machine.

A program says by itself what it needs: a Python one by what it imports, by `GPUS` (how many, if not one) and
`SECONDS` (if more than others get), one of C++ by being one. The first sentence of its docstring, or its
first comment, is what it covers.
"""

from __future__ import annotations

import ast
import concurrent.futures
import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROGRAMS: Final = Path(__file__).with_name("programs")
GUARD: Final = (
    "import faulthandler, runpy, sys; faulthandler.enable();"
    " faulthandler.dump_traceback_later(float(sys.argv[1]), exit=True);"
    " sys.argv = sys.argv[2:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)


@dataclass(frozen=True)
class Program:
    """A program to be run: its command, or (`lacks`) why there is none."""

    name: str
    covers: str
    command: tuple[str, ...] = ()
    lacks: str = ""
    modules: tuple[str, ...] = ()
    seconds: float = 0
    """It may take; 0: as long as all others."""


def _imported(tree: ast.Module) -> list[str]:
    """The outermost names of the modules that a file imports, wherever in it."""
    found = [
        name
        for node in ast.walk(tree)
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    ]
    return sorted({name.partition(".")[0] for name in found} - sys.stdlib_module_names)


def _said(tree: ast.Module, name: str, otherwise: float) -> float:
    """The program's GPUS or SECONDS."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return float(ast.literal_eval(node.value))
    return otherwise


def sentence(text: str) -> str:
    """The first one, in one line."""
    return " ".join(text.split()).partition(". ")[0].removesuffix(".")


def python_program(path: Path, seconds: float, gpus: int) -> Program:
    """One of Python, which is ended with a traceback after so many seconds."""
    tree = ast.parse(path.read_text())
    modules = tuple(_imported(tree))
    absent = [name for name in modules if importlib.util.find_spec(name) is None]
    lacks = f"not installed: {', '.join(absent)}" if absent else ""
    needed = _said(tree, "GPUS", 1)
    if not lacks and needed > gpus:
        lacks = f"needs {needed:.0f} GPUs"
    seconds = max(seconds, _said(tree, "SECONDS", seconds))
    command = (sys.executable, "-P", "-c", GUARD, str(seconds), str(path))
    return Program(path.stem, sentence(ast.get_docstring(tree) or ""), command, lacks, modules, seconds)


BUILDS: Final = {
    "static": ("static libcudart", "--cudart=static"),
    "shared": ("shared libcudart", "--cudart=shared"),
    "linked": ("device code that is linked, -rdc=true", "-rdc=true"),
}


def cpp_program(path: Path, kind: str, folder: Path) -> Program:
    """One of C++, built into a folder with either form of the runtime, or of parts that are linked."""
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    how, option = BUILDS[kind]
    name = f"{path.stem}_{kind}"
    comment = path.read_text().partition("\n")[0].strip("/ ")
    covers = f"{sentence(comment)} ({how})"
    if nvcc is None:
        return Program(name, covers, lacks="not installed: nvcc")
    made = str(folder / name)
    command = [nvcc, "-std=c++17", "-arch=native", option, "-o", made, str(path)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    lacks = "" if built.returncode == 0 else f"not built: {built.stderr.strip()[-300:]}"
    return Program(name, covers, (made,), lacks)


def programs(names: Iterable[str], folder: Path, seconds: float, gpus: int) -> list[Program]:
    """The named ones (by their files), or all. What is built goes into the folder, several at once."""
    chosen = set(names)
    there = sorted(path for path in PROGRAMS.iterdir() if path.suffix in (".py", ".cu"))
    unknown = chosen - {path.stem for path in there}
    if unknown:
        raise ValueError(f"no such program: {', '.join(sorted(unknown))}")
    wanted = [path for path in there if not chosen or path.stem in chosen]
    with concurrent.futures.ThreadPoolExecutor() as several:
        builds = [
            several.submit(cpp_program, path, kind, folder)
            for path in wanted
            if path.suffix == ".cu"
            for kind in BUILDS
        ]
        found = [python_program(path, seconds, gpus) for path in wanted if path.suffix == ".py"]
        return sorted((*found, *(build.result() for build in builds)), key=lambda program: program.name)


def versions(found: Iterable[Program]) -> dict[str, str]:
    """The versions of the libraries that the programs import, by distribution."""
    wanted = {name for program in found if not program.lacks for name in program.modules}
    names = {each for module, all_of in importlib.metadata.packages_distributions().items()
             if module in wanted for each in all_of}  # fmt: skip
    return {name: importlib.metadata.version(name) for name in sorted(names, key=str.lower)}
