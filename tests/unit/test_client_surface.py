"""What importing costs, where the daemon is looked for, what errors say."""

from __future__ import annotations

import ast
import copy
import importlib.metadata
import inspect
import os
import pickle
import runpy
import subprocess
import sys
from pathlib import Path

import fikit
import fikit.trio
import nvidia.cu13
import pytest
from fikit import errors, place
from fikit.cuda_errors import NAMES, describe

PACKAGE = Path(fikit.__file__).parent
ROOT = Path(__file__).resolve().parents[2]


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True
    )
    return set(done.stdout.split())


def test_importing_loads_only_what_is_used() -> None:
    assert not {"trio", "numpy", "fikit._channel", "msgspec"} & loaded_by("import fikit")
    assert not {"trio", "numpy", "fikit._channel"} & loaded_by("import fikit.control")
    assert not {"trio", "numpy", "cuda"} & loaded_by("import fikit; fikit.connect")


def test_every_public_name_is_there() -> None:
    for name in fikit.__all__:
        assert getattr(fikit, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = fikit.nothing_of_the_kind


def test_the_version_is_the_installed_one_s() -> None:
    assert fikit.__version__ == importlib.metadata.version("fikitd")


def test_devices_can_be_told_apart_in_a_dictionary() -> None:
    first, same, other = (fikit.Device(index, "H200", b"", 1 << 30, 1.0, {16: 132}) for index in (0, 0, 1))
    assert {first: "here"}[same] == "here"
    assert len({first, same, other}) == 2


def test_a_notebook_completes_names_that_nobody_has_used() -> None:
    code = "import fikit; print(*dir(fikit))"
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True
    )
    assert {*fikit.__all__, "trio"} <= set(done.stdout.split())


def test_modules_that_do_no_io_and_know_no_native_code() -> None:
    alone = [PACKAGE / f"{name}.py" for name in ("errors", "cuda_errors", "place", "control")]
    for path in [*alone, *PACKAGE.glob("protocol/*.py")]:
        tree = ast.parse(path.read_text())
        imported = {
            alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
        }
        imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not {"trio", "fikit._channel", "numpy"} & imported, path


def test_the_place_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIKIT_SOCKET", "/some/where")
    assert place.default_socket() == Path("/some/where")


def test_every_cuda_error_has_the_driver_s_name_and_text() -> None:
    """As a lost GPU's has, which programs meet seldom. What is generated for C++ is made of the same."""
    symbols = runpy.run_path(str(ROOT / "shim" / "cuda_symbols.py"))
    (folder,) = nvidia.cu13.__path__
    named = symbols["errors_of"](Path(folder) / "include")
    assert {code: name for code, (name, _) in NAMES.items()}.items() <= named.items()
    assert all(text for _, text in NAMES.values())
    assert describe(46).startswith("CUDA_ERROR_DEVICE_UNAVAILABLE (46): ")


def test_errors_name_call_and_cuda_error() -> None:
    error = errors.CudaError(1, "launch of kernel axpy", "no memory at 0x10")
    assert (
        str(error)
        == "launch of kernel axpy: CUDA_ERROR_INVALID_VALUE (1): invalid argument: no memory at 0x10"
    )
    assert (error.status, error.name, error.code) == (1, "CUDA_ERROR_INVALID_VALUE", "cuda")
    assert describe(12345) == "CUDA error (12345): unrecognized error code"
    classes = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and each.__module__ == errors.__name__
    ]
    codes = [each.code for each in classes if "code" in vars(each)]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(
    "error",
    [
        errors.CudaError(700, "launch of kernel k", "behind a copy"),
        errors.OutOfMemoryError(2, "allocate of 8 bytes"),
        errors.SessionLostError(709, "stream", "the session is closed"),
        errors.RefusedError("quota", "no more", "ask for less"),
        errors.UnreachableError("nobody is there"),
        errors.MissingExtraError("no NVRTC"),
        fikit.CompileError("source.cu does not compile"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_comes_home_from_another_process_as_it_was(error: Exception, protocol: int) -> None:
    """One that cannot be unpickled breaks a ProcessPoolExecutor; a multiprocessing.Pool waits for ever."""
    error.add_note("in worker 3")
    again = pickle.loads(pickle.dumps(error, protocol))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    assert repr(copy.copy(error)) == repr(error)


def test_the_stub_is_the_modules_own(tmp_path: Path) -> None:
    pytest.importorskip("nanobind.stubgen")
    made = tmp_path / "_channel.pyi"
    # In a process of its own: what copies objects here leaves its notes in their classes.
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "fikit._channel", "-o", str(made)]
    subprocess.run(command, check=True, timeout=60)
    assert made.read_text() == (PACKAGE / "_channel.pyi").read_text()


def test_pinned_memory_is_a_buffer_to_a_type_checker_too() -> None:
    """Else it refuses Memory.copy_from and memoryview() of what is made for them."""
    stub = ast.parse((PACKAGE / "_channel.pyi").read_text())
    bases = {
        each.name: [*map(ast.unparse, each.bases)] for each in stub.body if isinstance(each, ast.ClassDef)
    }
    assert [base.rpartition(".")[2] for base in bases["PinnedMemory"]] == ["Buffer"]


BENEATH = {
    "core", "attempt", "allocate_address", "create_stream", "create_event", "blocking", "give_up",
    "compile_source", "load_compiled",
}  # fmt: skip
"""What the flavours build on, which is neither's own."""
ENDS = {"close": "aclose", "__enter__": "__aenter__", "__exit__": "__aexit__"}


def methods(flavour: type) -> dict[str, inspect.Signature]:
    """The public methods and properties by name, context management included."""
    return {
        name: inspect.signature(value) if inspect.isfunction(value) else inspect.Signature()
        for name, value in inspect.getmembers(flavour)
        if (not name.startswith("_") or name in {*ENDS, *ENDS.values()}) and name not in BENEATH
    }


def without_timeout(signature: inspect.Signature) -> list[tuple[str, object, object]]:
    """A cancel scope is trio's timeout, so only the blocking flavour has parameters for that."""
    return [
        (name, each.kind, each.default)
        for name, each in signature.parameters.items()
        if name not in ("timeout", "self")
    ]


@pytest.mark.parametrize("name", ["Session", "Module", "Kernel", "Memory", "Stream", "Event"])
def test_both_flavours_have_the_same_methods(name: str) -> None:
    blocking, other = methods(getattr(fikit, name)), methods(getattr(fikit.trio, name))
    for method, signature in blocking.items():
        there = method if method in other else ENDS.get(method, method)
        assert there in other, f"fikit.trio.{name} has no {there}"
        if there == method:
            assert without_timeout(other[there]) == without_timeout(signature), f"fikit.trio.{name}.{there}"
    known = {*blocking, *(ENDS[method] for method in blocking if method in ENDS)}
    properties = {each for each in other if isinstance(getattr(getattr(fikit.trio, name), each), property)}
    assert other.keys() - known - properties <= {"aclose", "__aenter__", "__aexit__"}
    assert without_timeout(inspect.signature(fikit.trio.connect)) == without_timeout(
        inspect.signature(fikit.connect)
    )


def test_a_type_checker_takes_numpy_s_arrays_and_knows_what_comes_back(tmp_path: Path) -> None:
    """With Python 3.11, for which NumPy's stubs call an array no buffer."""
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(
        "import fikit\n"
        "import numpy as np\n"
        "def copy(session: fikit.Session, memory: fikit.Memory) -> str:\n"
        "    array = np.zeros(8, dtype=np.float32)\n"
        "    memory.copy_from(array)\n"
        "    memory.copy_to(memoryview(session.allocate_pinned(32)))\n"
        "    memory.copy_to(array)\n"
        "    return fikit.__version__\n"
        "async def copy_too(memory: fikit.trio.Memory) -> bytes:\n"
        "    await memory.copy_from(np.zeros(8))\n"
        "    return await memory.read()\n"
        "def wrong(memory: fikit.Memory) -> None:\n"
        "    memory.copy_from(7)\n"
        "    fikit.conect()\n"
    )
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.11", "program.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    errors = [line.partition(" error: ")[0] for line in checked.stdout.splitlines() if " error: " in line]
    assert errors == ["program.py:13:", "program.py:14:"], checked.stdout + checked.stderr
