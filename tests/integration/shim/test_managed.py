"""Managed memory under a daemon: what it counts against, what ends it, and what of it is not served."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fikit import protocol
from fikit.unmodified import variables

from tests.integration.conftest import Client
from tests.integration.end_to_end.conftest import CHOICE, SETTINGS, Served
from tests.integration.shim.conftest import Runner
from tests.integration.shim.test_processes import START, executors, run

pytestmark = pytest.mark.shares_daemon

MIB = 1 << 20


def pinned_bytes(daemon: Served) -> int:
    """What the executors have mapped of pinned memory."""
    total = 0
    for pid in executors(daemon):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if "fikit-pinned" in line:
                first, last = line.split()[0].split("-")
                total += int(last, 16) - int(first, 16)
    return total


def test_it_counts_as_pinned_memory(stopped_daemon: Served) -> None:
    limited = SETTINGS.replace("[scheduling]", f"[scheduling]\npinned_limit_bytes = {8 * MIB}")
    stopped_daemon.configure(settings=limited)
    stopped_daemon.start()
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            START
            + f"""
start()
names(driver.cuMemAllocManaged({9 * MIB}, 1))
first = driver.cuMemAllocManaged({5 * MIB}, 1)
names(first, driver.cuMemAllocManaged({5 * MIB}, 1), driver.cuMemHostAlloc({5 * MIB}, 0))
before = done(driver.cuMemGetInfo())
names(driver.cuMemFree(first[1]))
names(driver.cuMemAllocManaged({5 * MIB}, 1))
print(done(driver.cuMemGetInfo()) == before)
""",
        ],
        env={**os.environ, **variables(str(stopped_daemon.socket), os.environ)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split("\n")[:5] == [
        "OUT_OF_MEMORY",
        "SUCCESS OUT_OF_MEMORY OUT_OF_MEMORY",
        "SUCCESS",
        "SUCCESS",
        "True",
    ], done.stderr


@pytest.mark.parametrize("signal", [9, 15])
def test_it_goes_with_a_process_that_is_killed(daemon: Served, client: Client, signal: int) -> None:
    text = (
        START
        + f"""
start()
memory = int(done(driver.cuMemAllocManaged({64 * MIB}, 1)))
done(driver.cuMemsetD8(memory, 5, {64 * MIB}))
print(ctypes.string_at(memory + {32 * MIB}, 1)[0], flush=True)
sys.stdin.read()
"""
    )
    with subprocess.Popen(
        [sys.executable, "-c", "import ctypes\n" + text],
        env={**os.environ, **variables(str(daemon.socket), os.environ)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "5\n"
        assert pinned_bytes(daemon) >= 64 * MIB
        process.send_signal(signal)
        process.wait(timeout=60)
    last = time.monotonic() + 30
    while pinned_bytes(daemon) != 0 or client.ask(protocol.ListSessions()).sessions:
        assert time.monotonic() < last
        threading.Event().wait(0.02)


def test_exit_without_clean_up_and_forks(shared: Runner) -> None:
    code, output, errors = run(
        shared,
        """
import ctypes
start()
memory = int(done(driver.cuMemAllocManaged(4096, 1)))
child = os.fork()
if child == 0:
    calls = driver.cuMemAllocManaged(64, 1), driver.cuMemFree(memory), driver.cuMemPrefetchAsync(
        memory, 64, driver.CUmemLocation(), 0, 0)
    os._exit(0 if all(int(answer[0]) == 3 for answer in calls) else 1)
print(os.waitpid(child, 0)[1])
done(driver.cuMemsetD8(memory, 7, 64))
print(ctypes.string_at(memory, 2), flush=True)
os._exit(5)
""",
    )
    assert (code, output) == (5, "0\nb'\\x07\\x07'\n"), errors


def test_a_managed_variable_that_is_not_placed_is_refused_by_name(daemon: Served) -> None:
    text = (
        START
        + """
start()
module = done(driver.cuModuleLoadData(b\'\'\'
.version 7.8
.target sm_80
.address_size 64
.visible .global .attribute(.managed) .u32 both = 4;
.visible .global .u32 own = 5;
.visible .entry nothing(.param .u32 both) { ret; }  // which of the two a name means is not looked into
\'\'\'))
names(driver.cuModuleGetGlobal(module, b"both"), driver.cuModuleGetGlobal(module, b"own"))
names(driver.cuModuleGetGlobal(module, b"neither"))
"""
    )
    fikitctl = [sys.executable, "-P", "-c", "from fikitctl.main import main; main()"]
    told = subprocess.run(
        [*fikitctl, "-H", str(daemon.socket), "doctor", "--", sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "NOT_SUPPORTED SUCCESS\nNOT_FOUND\n" in told.stdout, told.stderr
    assert "calls that fikitd does not serve: cuLibraryGetManaged (1)" in told.stderr


@pytest.mark.skipif(
    CHOICE != "sim", reason="between a GPU and its host it is the machine's PCIe bridge that tells"
)
def test_the_host_and_a_kernel_add_to_one_word(
    natively: Runner, shared: Runner, build: Callable[..., str]
) -> None:
    program = build("host_atomics")
    for run_it in (natively, shared):
        code, output, errors = run_it(program)
        assert (code, output) == (0, "0 lost\n"), errors
