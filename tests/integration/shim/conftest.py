"""Unmodified programs on the driver itself and under a daemon with real executors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fikit import protocol as p
from fikit.unmodified import variables

from tests.integration.conftest import daemons
from tests.integration.end_to_end.conftest import CHOICE, Served
from tests.integration.shim.programs import headers

PROGRAMS = Path(__file__).with_name("programs")
ALONE = [] if CHOICE != "sim" else [sys.executable, "-P", "-m", "fikitd.simcuda", "--"]
DEADLINE_SECONDS = 120

Outcome = tuple[int, str, str]
Runner = Callable[..., Outcome]
Program = subprocess.Popen[str]
Start = Callable[..., Program]


stopped_daemon, lasting_daemon = daemons(Served)


def outcome(command: list[str], environment: dict[str, str]) -> Outcome:
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(PROGRAMS), **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def compiler() -> list[str]:
    """The C compiler with CUDA's headers."""
    return ["gcc", *(f"-I{folder}" for folder in headers.folders())]


@pytest.fixture
def build(compiler: list[str], tmp_path: Path) -> Callable[..., str]:
    """Compile one of the C programs, and link it with libcuda.so.1."""
    import fikit

    folder = Path(fikit.__file__).with_name("libcuda")

    def made(name: str, *options: str) -> str:
        program = str(tmp_path / f"{name}{len(options)}")
        source = str(PROGRAMS / f"{name}.c")
        command = [*compiler, *options, source, "-o", program, f"-L{folder}", "-l:libcuda.so.1", "-pthread"]
        subprocess.run(command, check=True)
        return program

    return made


@pytest.fixture
def driver_tables(compiler: list[str], tmp_path: Path) -> Callable[..., str]:
    """Compile a library in the place of the NVIDIA driver's."""

    def made(*options: str) -> str:
        driver, source = str(tmp_path / "libcuda.so.1"), str(PROGRAMS / "driver_tables.c")
        subprocess.run([*compiler, *options, "-shared", "-fPIC", source, "-o", driver], check=True)
        return driver

    return made


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Where programs keep what NVRTC makes, for the next run."""
    return {"KEPT_PTX": str(tmp_path_factory.mktemp("ptx"))}


@pytest.fixture
def shown() -> dict[str, str]:
    """What shows a program that runs natively the GPUs that the daemon serves."""
    return {} if CHOICE == "sim" else {"CUDA_VISIBLE_DEVICES": CHOICE}


@pytest.fixture
def natively(kept: dict[str, str], shown: dict[str, str]) -> Runner:
    """Run a command on the driver itself."""
    return lambda *command, **more: outcome([*ALONE, *command], {**kept, **shown, **more})


@pytest.fixture
def shared(daemon: Served, kept: dict[str, str]) -> Runner:
    """Run a command under the daemon, and wait for the end of its sessions, which takes their memory."""
    found = {**variables(str(daemon.socket), os.environ), **kept}
    client = daemon.client()

    def run(*command: str, **more: str) -> Outcome:
        ended = outcome([*command], {**found, **more})
        while any(not Path(f"/proc/{each.pid}").exists() for each in client.ask(p.ListSessions()).sessions):
            pass
        return ended

    return run


@pytest.fixture
def start(daemon: Served) -> Iterator[Start]:
    """Start a program under the daemon."""
    running: list[Program] = []

    def begin(name: str = "busy", *arguments: str) -> Program:
        running.append(
            subprocess.Popen(
                [sys.executable, str(PROGRAMS / f"{name}.py"), *arguments],
                env={**os.environ, "PYTHONPATH": str(PROGRAMS), **variables(str(daemon.socket), os.environ)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        return running[-1]

    yield begin
    for program in running:
        program.kill()
        program.communicate()


def progress(program: Program, lines: int) -> None:
    """Wait until it has got on."""
    assert program.stdout is not None
    for _ in range(lines):
        assert program.stdout.readline().strip().isdigit()


def last_word(program: Program) -> str:
    """Let it end. Returns what it says at last."""
    return program.communicate("", timeout=60)[0].splitlines()[-1]
