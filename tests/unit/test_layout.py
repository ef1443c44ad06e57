"""The rules of the tree (CONTRIBUTING.md, "Layout"), held by reading it: no import, no compiler, no GPU."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PYTHON: Final = (".py",)
NATIVE: Final = (".cpp", ".hpp", ".h")
OURS: Final = {"fikit", "fikitd", "fikitctl"}

MAX_LINES: Final = 500
MAX_POLICY_LINES: Final = 250

NAMES_OF_NOTHING: Final = {"utils", "util", "helpers", "helper", "common", "misc"}

SIMULATOR: Final = re.compile(r"\bsim\b|simcuda|simulat", re.IGNORECASE)
MAY_NAME_THE_SIMULATOR: Final = {
    "fikitd/device.py": "chooses the device",
    "fikitd/configuration.py": "the setting that device.py reads lists its values",
    "fikitd/main.py": "so does the option",
    "fikitd/native/clock.hpp": "says whose time it scales; no branch there",
}

IMPURE: Final = {
    "asyncio", "datetime", "multiprocessing", "os", "pathlib", "random", "select", "selectors", "socket",
    "sqlite3", "subprocess", "threading", "time",
}  # fmt: skip
"""What `fikitd.scheduling` may not import: time is an argument, and it does no I/O."""

PURE_HEADERS: Final = {
    "algorithm", "array", "bit", "cmath", "cstdint", "memory", "string_view", "utility",
}  # fmt: skip
"""What native policies may include besides each other."""


def files(*folders: str, kinds: tuple[str, ...]) -> list[Path]:
    found = [
        path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.suffix in kinds
    ]
    return [
        path for path in found if not {"build", ".venv", "__pycache__"} & set(path.relative_to(ROOT).parts)
    ]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


def imports(path: Path, *, everywhere: bool = True) -> Iterator[str]:
    """The modules a file imports, with what it imports from them; at its top only, or everywhere."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree) if everywhere else tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(path, node)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _absolute(path: Path, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    parts = path.relative_to(ROOT / "client" if "client" in path.parts else ROOT).with_suffix("").parts
    return ".".join([*parts[: -node.level], *([node.module] if node.module else [])])


def packages(path: Path, *, everywhere: bool = True) -> set[str]:
    return {module.partition(".")[0] for module in imports(path, everywhere=everywhere)}


@pytest.mark.parametrize("path", files("client/fikit/protocol", kinds=PYTHON), ids=name_of)
def test_the_protocol_imports_nothing_else_of_ours_and_does_no_io(path: Path) -> None:
    ours = {module for module in imports(path) if module.partition(".")[0] in OURS}
    assert all(module.startswith("fikit.protocol.") for module in ours)
    assert not packages(path) & {"trio", "socket", "select", "asyncio", "os"}


@pytest.mark.parametrize("path", files("client/fikit", kinds=PYTHON), ids=name_of)
def test_the_client_library_stands_alone(path: Path) -> None:
    assert not packages(path) & {"fikitd", "fikitctl"}


@pytest.mark.parametrize("path", files("fikitd", kinds=PYTHON), ids=name_of)
def test_the_daemon_does_not_know_its_command_line(path: Path) -> None:
    assert "fikitctl" not in packages(path)


@pytest.mark.parametrize("path", files("client/fikitctl", kinds=PYTHON), ids=name_of)
def test_the_command_line_starts_lean_and_speaks_the_protocol(path: Path) -> None:
    assert "trio" not in packages(path)
    assert not packages(path, everywhere=False) & {"rich", "fikitd", "numpy"}
    if name_of(path) != "client/fikitctl/commands/config.py":
        assert "fikitd" not in packages(path)


@pytest.mark.parametrize("path", files("fikitd/scheduling", kinds=PYTHON), ids=name_of)
def test_policies_are_pure_and_short(path: Path) -> None:
    allowed = (set(sys.stdlib_module_names) | {"msgspec", "fikitd", "fikit"}) - IMPURE
    assert packages(path) <= allowed
    ours = {module for module in imports(path) if module.startswith(("fikitd", "fikit."))}
    assert all(re.match(r"fikitd\.scheduling\b|fikit\.protocol\b|fikitd$", module) for module in ours)
    assert lines_of(path) <= MAX_POLICY_LINES


@pytest.mark.parametrize("path", files("fikitd/native/scheduling", kinds=NATIVE), ids=name_of)
def test_native_policies_are_pure(path: Path) -> None:
    """Of clocks they have the type of a time alone."""
    text = path.read_text()
    included = set(re.findall(r'^#include [<"]([^>"]+)', text, re.MULTILINE))
    each_other = {other.name for other in path.parent.iterdir()}
    assert included <= PURE_HEADERS | each_other | {"../clock.hpp"}
    assert not re.search(r"\b(?:Clock|host_now)\b", text)


def test_what_native_policies_have_to_offer_is_short() -> None:
    assert lines_of(ROOT / "fikitd/native/scheduling/policy.hpp") <= MAX_POLICY_LINES


def test_one_module_imports_the_native_core() -> None:
    core = {
        name_of(path)
        for path in files("fikitd", "client", kinds=PYTHON)
        if any(module.startswith("fikitd._core") for module in imports(path))
    }
    assert core <= {"fikitd/executor/core.py"}


def test_production_code_does_not_know_that_a_device_is_simulated() -> None:
    production = files("fikitd", "client", "shim", kinds=PYTHON + NATIVE)
    mentions = {
        name_of(path)
        for path in production
        if "simcuda" not in path.parts and SIMULATOR.search(path.read_text())
    }
    assert mentions <= MAY_NAME_THE_SIMULATOR.keys()


SOURCES: Final = files("fikitd", "client", "shim", "tests", "bench", kinds=PYTHON + NATIVE)


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_every_file_has_a_subject_and_a_size(path: Path) -> None:
    assert path.stem not in NAMES_OF_NOTHING
    assert path.parent.name not in NAMES_OF_NOTHING
    assert lines_of(path) <= MAX_LINES


def test_unit_tests_do_not_sleep() -> None:
    call = re.compile(r"\bsleep" + r"\(")
    assert [
        name_of(path) for path in files("tests/unit", kinds=PYTHON) if call.search(path.read_text())
    ] == []


def test_documents_name_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in ("README.md", "CONTRIBUTING.md", ".ci/run"):
        named = set(
            re.findall(
                r"(?:`|^\s*|&& |step )make ([a-z][a-z-]*)", (ROOT / document).read_text(), re.MULTILINE
            )
        )
        assert named <= targets, document
    assert {"demo", "test"} <= targets


@pytest.mark.parametrize("folder", ["shim", "shim/libcuda", "shim/libnvml", "fikitd/simcuda"])
def test_design_notes_tell_of_each_file(folder: str) -> None:
    """And their tables of none that is gone."""
    notes = (ROOT / folder / "DESIGN.md").read_text()
    name = re.compile(r"`([a-z_0-9.*]+)`")
    told = {Path(each).stem for each in re.findall(r"`([\w.*/]+)`", notes)}
    here = {path.stem for path in (ROOT / folder).iterdir() if path.suffix in NATIVE}
    assert {each for each in here if not any(fnmatch(each, pattern) for pattern in told)} == set()
    rows = re.findall(r"^\| (`[^|]*)", notes, re.MULTILINE)
    there = {path.stem for path in (ROOT / folder).rglob("*")}
    listed = {Path(each).stem for row in rows for each in name.findall(row)}
    assert {each for each in listed if not any(fnmatch(stem, each) for stem in there)} == set()


def test_readme_names_verbs_that_exist() -> None:
    places = set(
        re.findall(
            r'^        "([a-z]+)": f"{_COMMANDS}', (ROOT / "client/fikitctl/main.py").read_text(), re.M
        )
    )
    named = set(re.findall(r"\bfikitctl ([a-z]+)", (ROOT / "README.md").read_text()))
    assert named <= places


def test_only_make_builds_in_the_checkout() -> None:
    """README installs by root's pip from there, who would leave what its owner's next `make` cannot write."""
    assert "build-dir" not in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]
    assert "--config-settings=build-dir=build/release" in (ROOT / "Makefile").read_text()
