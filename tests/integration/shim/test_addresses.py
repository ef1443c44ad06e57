"""Private memory that kernels reach is at one address in its program and in the executor."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

import pytest

from fikitd.executor.addresses import ROOM_BYTES, STACK_BYTES
from tests.integration.end_to_end.conftest import Served
from tests.integration.shim.conftest import PROGRAMS, Runner, Start, last_word, progress
from tests.integration.shim.test_processes import executors

pytestmark = pytest.mark.shares_daemon

OF_THE_KERNELS = {"[stack]", "[vsyscall]"}


def test_an_address_that_another_program_has_is_refused(shared: Runner) -> None:
    assert shared(sys.executable, "-W", "ignore::DeprecationWarning", str(PROGRAMS / "same_address.py")) == (
        0,
        "SUCCESS SUCCESS\nSUCCESS\n"
        "NOT_SUPPORTED HOST_MEMORY_NOT_REGISTERED\nSUCCESS NOT_SUPPORTED\nSUCCESS SUCCESS\nSUCCESS\n"
        "3 b'\\x03\\x00\\x00\\x00'\n\n"
        "SUCCESS SUCCESS\nSUCCESS\n5\n",
        "",
    )


def test_kernels_reach_memory_where_other_heaps_lie(shared: Runner) -> None:
    """mimalloc's lie from 2 to 30 TiB (``_mi_os_get_aligned_hint`` in its src/os.c), ZGC's from 4 to 20."""
    text = """
import ctypes
from calls import *
start()
increment = done(driver.cuModuleGetFunction(done(driver.cuModuleLoadData(KERNELS)), b"increment"))
map_at = ctypes.CDLL(None).mmap
map_at.restype = ctypes.c_uint64
map_at.argtypes = [ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
size, readable_and_writable, private_and_fixed = 2 << 20, 3, 0x100022
for tebibytes in range(2, 30, 3):
    place = map_at(tebibytes << 40, size, readable_and_writable, private_and_fixed, -1, 0)
    assert place == tebibytes << 40
    done(driver.cuMemHostRegister(place, size, driver.CU_MEMHOSTREGISTER_DEVICEMAP))
    done(launch(increment, 0, place))
    done(driver.cuCtxSynchronize())
    assert ctypes.c_uint32.from_address(place).value == 1
    done(driver.cuMemHostUnregister(place))
"""
    assert shared(sys.executable, "-W", "ignore::DeprecationWarning", "-c", text) == (0, "", "")


def test_memory_is_registered_again_beside_a_busy_program(start: Start, shared: Runner) -> None:
    """Though the executor does not unregister it before nothing runs."""
    other = start()
    progress(other, 1)
    text = """
import mmap, ctypes
from calls import *
start()
increment = done(driver.cuModuleGetFunction(done(driver.cuModuleLoadData(KERNELS)), b"increment"))
memory = mmap.mmap(-1, 4 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
for part in [place, place + 8192] * 10:
    done(driver.cuMemHostRegister(part, (4 << 20) - 8192, driver.CU_MEMHOSTREGISTER_DEVICEMAP))
    done(launch(increment, 0, place + 8192))
    done(driver.cuCtxSynchronize())
    done(driver.cuMemHostUnregister(part))
print(memory[8192])
"""
    assert shared(sys.executable, "-W", "ignore::DeprecationWarning", "-c", text) == (0, "20\n", "")
    assert last_word(other) == "right"


def test_an_executor_has_nothing_where_programs_map(shared: Runner, daemon: Served) -> None:
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    if hard not in (resource.RLIM_INFINITY, ROOM_BYTES):
        pytest.skip(f"no process may have more than {hard} bytes for its stack here")
    text = "from calls import *; start()"
    assert shared(sys.executable, "-W", "ignore::DeprecationWarning", "-c", text)[0] == 0
    for pid in executors(daemon):
        mappings = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
        stack = next(int(line[0].split("-")[0], 16) for line in mappings if line[-1] == "[stack]")
        own = [int(line[0].split("-")[1], 16) for line in mappings if line[-1] not in OF_THE_KERNELS]
        assert max(own) <= stack - ROOM_BYTES
        limits = Path(f"/proc/{pid}/limits").read_text()
        assert re.search(rf"Max stack size +{STACK_BYTES} ", limits), limits


def test_a_program_of_few_addresses_is_told_of_its_limit(shared: Runner) -> None:
    """The GPU has more than all that it may have: they were said to be taken."""
    text = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from calls import *
start()
memory = done(driver.cuMemAlloc(4))
done(driver.cuMemsetD32(memory, 7, 1))
assert read(memory) == (7).to_bytes(4, "little")
"""
    status, _, said = shared(sys.executable, "-c", text, FIKIT_SHIM_LOG="-")
    assert status == 0, said
    assert "something of this process is there" not in said
    assert re.search(r"device addresses 0x\w+, \d+ bytes: Cannot allocate memory", said), said
