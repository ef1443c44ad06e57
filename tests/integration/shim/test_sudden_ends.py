"""kill -9 of either side, at any moment, leaves the other unharmed."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fikit import protocol
from fikit.unmodified import variables

from tests.integration.conftest import Client
from tests.integration.end_to_end.conftest import Served
from tests.integration.shim.conftest import PROGRAMS, Start, last_word, progress
from tests.integration.shim.test_processes import executors

SEEDS = range(3)


@pytest.mark.shares_daemon
@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_program_harms_no_other(start: Start, seed: int) -> None:
    chance = random.Random(seed)
    others = [start() for _ in range(2)]
    for _ in range(3):
        victim = start()
        progress(victim, chance.randrange(3))
        progress(chance.choice(others), chance.randrange(3))
        victim.kill()
    for other in others:
        progress(other, 1)
        assert last_word(other) == "right"


@pytest.mark.shares_daemon
@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_executor_is_an_error_of_each_program(start: Start, daemon: Served, seed: int) -> None:
    chance = random.Random(seed)
    programs = [start() for _ in range(2)]
    for program in programs:
        progress(program, 1 + chance.randrange(2))
    for pid in executors(daemon):
        os.kill(pid, signal.SIGKILL)
    for program in programs:
        program.wait(timeout=60)  # by itself
    said = [last_word(program) for program in programs]
    assert all(name.startswith("CUDA_ERROR_") for name in said), said
    assert [program.returncode for program in programs] == [0, 0]
    another = start()
    progress(another, 1)
    assert last_word(another) == "right"


@pytest.mark.shares_daemon
@pytest.mark.parametrize("of_what", ["event", "stream"])
def test_a_killed_executor_is_told_to_who_asks_and_never_waits(
    start: Start, daemon: Served, of_what: str
) -> None:
    program = start("asking", of_what)
    progress(program, 1)
    for pid in executors(daemon):
        os.kill(pid, signal.SIGKILL)
    assert last_word(program) == "CUDA_ERROR_LAUNCH_FAILED"


@pytest.mark.shares_daemon
def test_a_program_that_waits_for_ever_harms_no_other(start: Start, client: Client) -> None:
    other = start()
    progress(other, 1)
    for _ in range(3):
        victim = start("waiting")
        progress(victim, 1)
        progress(other, 2)
        late = start()  # loads its kernels meanwhile
        progress(late, 1)
        assert last_word(late) == "right"
        victim.kill()
        victim.wait()
    while len(client.ask(protocol.ListSessions()).sessions) > 1:
        progress(other, 1)
    assert last_word(other) == "right"


@pytest.mark.shares_daemon
def test_registered_memory_that_goes_away_harms_no_other(start: Start, daemon: Served) -> None:
    other = start()
    progress(other, 1)
    before = executors(daemon)
    victim = start("shrinking")
    said = victim.communicate("", timeout=60)[0].splitlines()
    assert said[-1] == r"b'\x01\x00\x00\x00'", said
    progress(other, 2)
    assert last_word(other) == "right"
    assert executors(daemon) == before


def test_what_is_over_is_found_so_though_the_executor_did_not_run_for_a_while(
    start: Start, daemon: Served
) -> None:
    maker = start("shared_event")
    assert maker.stdout is not None
    other = start("shared_event", maker.stdout.readline().strip())
    assert other.stdin is not None
    assert other.stdout is not None
    assert other.stdout.readline() == "opened\n"
    stopped = executors(daemon)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    other.stdin.write("\n")
    other.stdin.flush()
    assert other.stdout.readline() == "asking\n"
    time.sleep(0.02)  # a query that gave up meanwhile would say so
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    assert other.stdout.readline() == "CUDA_SUCCESS\n"


def test_a_killed_daemon_ends_no_program(start: Start, daemon: Served) -> None:
    program = start()
    progress(program, 1)
    daemon.stop(signal.SIGKILL)
    progress(program, 2)
    assert last_word(program) == "right"


ASKING = """
import os, sys, time
sys.path.insert(0, os.environ["PROGRAMS"])
from calls import done, driver, start
while not os.path.exists("killed"):
    time.sleep(0.01)
start()
done(driver.cuMemAlloc(4))
"""


def test_a_program_of_a_job_waits_for_a_daemon_that_starts_anew(
    daemon: Served, client: Client, tmp_path: Path
) -> None:
    environment = {**os.environ, **variables(str(daemon.socket), os.environ), "PROGRAMS": str(PROGRAMS)}
    command = [sys.executable, "-c", ASKING]
    submit = protocol.Submit(command=command, environment=environment, directory=str(tmp_path))
    job = client.ask(submit).job.job
    daemon.stop(signal.SIGKILL)
    (tmp_path / "killed").touch()
    daemon.start()
    assert daemon.client().ask(protocol.Wait(job=job)).job.exit_code == 0


@pytest.mark.shares_daemon
def test_threads_in_calls_get_an_error_when_their_executor_is_killed(
    daemon: Served, build: Callable[..., str]
) -> None:
    environment = {**os.environ, **variables(str(daemon.socket), os.environ)}
    with subprocess.Popen([build("crowd")], env=environment, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "under way\n"
        for pid in executors(daemon):
            os.kill(pid, signal.SIGKILL)
        assert program.communicate(timeout=60)[0] == "0 wrong, 24 lost\n"
    assert program.returncode == 0


def test_a_signal_does_not_make_a_wait_for_the_daemon_endless(
    build: Callable[..., str], tmp_path: Path
) -> None:
    """As of a profiler's timer: who answers nothing is waited for as long as without."""
    path = str(tmp_path / "silent.sock")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        silent.listen()
        command = [build("interrupted_wait")]
        done = subprocess.run(command, env={**os.environ, **variables(path, os.environ)}, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"802\n")
