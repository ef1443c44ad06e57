"""The simulated driver's PTX loader and its settings: garbage gets an error, never a crash."""

import ctypes
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fikitd.simcuda import library_path

LINES = [
    b".version 8.0",
    b".target sm_90",
    b".address_size 64",
    b".visible .entry k(.param .u64 a)",
    b"{",
    b"}",
    b".reg .b64 %rd<4>;",
    b".reg .pred %p;",
    b"ld.param.u64 %rd1, [a];",
    b"mov.u64 %rd2, %globaltimer;",
    b"L:",
    b"@%p bra L;",
    b"st.global.u64 [%rd1], %rd2;",
    b".global .u32 x[3] = {1, 2};",
    b"ret;",
]
IMAGES = st.one_of(
    st.binary(max_size=300),
    st.lists(st.sampled_from(LINES), max_size=20).map(b"\n".join),
    st.tuples(st.just(b"\n".join(LINES[:3]) + b"\n"), st.binary(max_size=100)).map(b"".join),
)
ALLOWED = {0, 1, 200, 209, 218, 222}  # success, value, image, no binary, PTX, PTX version


@pytest.fixture(scope="module")
def driver() -> Any:
    library = ctypes.CDLL(str(library_path()), mode=ctypes.RTLD_GLOBAL)
    context = ctypes.c_void_p()
    assert library.cuInit(0) == 0
    assert library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert library.cuCtxSetCurrent(context) == 0
    return library


@settings(max_examples=200)
@given(image=IMAGES)
def test_any_image_is_loaded_or_refused(driver: Any, image: bytes) -> None:
    module = ctypes.c_void_p()
    result = driver.cuModuleLoadData(ctypes.byref(module), image)
    assert result in ALLOWED
    if result == 0:
        assert driver.cuModuleUnload(module) == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FIKIT_SIM_SCALE", "slow"),
        ("FIKIT_SIM_SCALE", "0"),
        ("FIKIT_SIM_MEMORY", "-1"),
        ("FIKIT_SIM_MEMORY", "4G"),
        ("FIKIT_SIM_DEVICES", "17"),
        ("FIKIT_SIM_FAULT", "launch:0=700"),
        ("FIKIT_SIM_FAULT", "copy:1=maybe"),
        ("FIKIT_SIM_FAULT", "launch"),
    ],
)
def test_a_bad_setting_is_named(name: Any, value: Any) -> None:
    program = f"import ctypes; print(ctypes.CDLL({str(library_path())!r}).cuInit(0))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, name: value},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "1"
    assert done.stderr.count("\n") == 1
    assert f"{name}={value}" in done.stderr


def test_every_symbol_of_the_header_is_there(driver: Any) -> None:
    for name in (
        "cuInit",
        "cuGraphLaunch",
        "cuMemAlloc",
        "cuMemcpyHtoD_v2_ptds",
        "cuTexRefCreate",
        "cuMemAllocAsync",
    ):
        assert getattr(driver, name)
    assert driver.cuTexRefCreate(None) == 801


def test_any_program_can_be_run_on_it() -> None:
    program = (
        "import ctypes; lib = ctypes.CDLL('libcuda.so.1'); print(lib.cuInit(0), lib.cuTexRefCreate(None))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fikitd.simcuda", "--", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["0", "801"], done.stderr


def test_a_missing_library_is_explained(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIKIT_SIMCUDA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="FIKIT_SIMCUDA"):
        library_path()


def test_who_stands_in_a_checkout_gets_the_installed_library(tmp_path: pathlib.Path) -> None:
    """Which is first on the path of ``python -m``, and has no native parts."""
    checkout = tmp_path / "fikitd" / "simcuda"
    checkout.mkdir(parents=True)
    ours = pathlib.Path(__file__).parents[2] / "fikitd"
    (checkout.parent / "__init__.py").write_bytes((ours / "__init__.py").read_bytes())
    for name in ("__init__.py", "__main__.py"):
        (checkout / name).write_bytes((ours / "simcuda" / name).read_bytes())
    code = "import os; print(os.environ['LD_LIBRARY_PATH'].partition(':')[0])"
    done = subprocess.run(
        [sys.executable, "-m", "fikitd.simcuda", "--", sys.executable, "-c", code],
        env={name: value for name, value in os.environ.items() if name != "FIKIT_SIMCUDA"},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert (pathlib.Path(done.stdout.strip()) / "libcuda.so.1").is_file()
