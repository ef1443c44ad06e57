"""Programs that know nothing of fikitd print the same natively and under it."""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from fikit import protocol

import bench
from tests import user_faults
from tests.integration.conftest import Client
from tests.integration.end_to_end.conftest import CHOICE, Served
from tests.integration.shim.conftest import PROGRAMS, Runner
from tests.integration.shim.programs import headers
from tests.integration.shim.test_processes import executors

pytestmark = pytest.mark.shares_daemon

PYTHON = (sys.executable, "-W", "ignore::DeprecationWarning")
FIKITCTL = (sys.executable, "-P", "-c", "from fikitctl.main import main; main()")
UNMODIFIED = Path(bench.__file__).with_name("programs")
LIBRARIES = {
    "driver_api": ["cuda.bindings.nvrtc"],
    "cuda_core": ["cuda.core", "cuda.bindings.nvrtc"],
    "cuda_core_graphs": ["cuda.core.graph", "cuda.bindings.nvrtc"],
    "cuda_core_images": ["cuda.core.texture", "cuda.bindings.nvrtc", "numpy"],
    "cuda_core_ipc": ["cuda.core"],
    "numba_kernels": ["numba_cuda", "numpy"],
    "query": [],
}
NAMES = [
    "contexts",
    "memory",
    "rows",
    "launches",
    "limits",
    "streams",
    "stream_values",
    "host_functions",
    "many",
    "names",
    "earlier_versions",
    "virtual_memory",
    "graphs",
    "graphs_by_hand",
    "graphs_kept",
    "pools",
    "printing",
    "tensor_maps",
    "array_misuse",
    "arrays",
    "attributes",
    "capture_misuse",
    "capture_rules",
    "function_rules",
    "graph_rules",
    "memory_rules",
    "node_rules",
    "pinned_rules",
    "pool_rules",
    "conditions",
    "context_ends",
    "crowds",
    "graph_memory",
    "graph_misuse",
    "linking",
    "persistent",
    "registered",
    "registered_private",
    "wide_parameters",
    "copy_misuse",
    "event_misuse",
    "host_memory",
    "managed",
    "managed_gradient",
    "mapped_histogram",
    "dialogue",
    "launch_misuse",
    "libraries",
    "refused_before",
    "pool_misuse",
    "pool_sharing",
    "vmm_misuse",
]
NEEDED = {"managed_gradient": ["cooperative_groups.h", "nv/target"], "dialogue": ["cuda/atomic"]}
"""Headers that a program includes, of which nvidia-cuda-cccl brings some."""
LINKED = {
    "at_exit": "0 0 7\n4 4 4\n",
    "ended_callback": "ended\n",
    "graph_threads": "0 wrong\n",
    "guarded_memory": "7 5\n",
    "held_up": "2 1\nwent on\n",
    "leaderless": "7\n",
    "no_keys": "its own gone\n",
    "plain": "9 9 3\n201\n",
    "primary_ends": "7\n0\n",
    "row_fills": "0\n",
    "threads": "66 " * 12 + "\n",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_program_prints_the_same(name: str, natively: Runner, shared: Runner) -> None:
    if not headers.has(*(needed := NEEDED.get(name, []))):
        pytest.skip(f"{' or '.join(needed)} is not installed")
    if name == "registered_private" and not user_faults.there_are():
        pytest.skip(user_faults.REASON)
    program = [*PYTHON, str(PROGRAMS / f"{name}.py")]
    alone = natively(*program)
    assert alone[0] == 0, alone[2]
    under = shared(*program)
    assert under[0] == 0, under[2]
    assert under == alone


@pytest.mark.parametrize("priority", ["high", "low"])
def test_kernels_of_many_streams_run_at_once(priority: str, natively: Runner, shared: Runner) -> None:
    program = [*PYTHON, str(PROGRAMS / "persistent.py")]
    under = shared(*program, FIKIT_PRIORITY=priority)
    assert under[0] == 0, under[2]
    assert under == natively(*program)


@pytest.mark.parametrize(
    "family",
    ["capture", "function", "graph", "kernel", "library", "memory", "node", "pinned", "pool"],
)
def test_calls_return_what_a_real_driver_does(family: str, natively: Runner) -> None:
    seen = Path(__file__).with_name(f"{family}_rules.txt")  # on an H200, driver 580.159.04
    assert natively(*PYTHON, str(PROGRAMS / f"{family}_rules.py")) == (0, seen.read_text(), "")


SEEN = dict(line.split() for line in Path(__file__).with_name("random_arrays.txt").read_text().splitlines())
"""What random_arrays prints on an H200, driver 580.159.04, by seed: a letter of each line's digest."""


@pytest.mark.parametrize("seed", SEEN)
def test_random_calls_return_what_a_real_driver_s_do(seed: str, natively: Runner) -> None:
    code, output, errors = natively(*PYTHON, str(PROGRAMS / "random_arrays.py"), seed, "400")
    assert code == 0, errors
    digests = (hashlib.md5(line.encode()).digest() for line in output.splitlines())
    assert "".join(base64.b64encode(digest)[:1].decode() for digest in digests) == SEEN[seed]


def same_random_calls(
    seed: int, natively: Runner, shared: Runner, name: str = "random_calls", **environment: str
) -> None:
    calls = "100" if name == "random_contexts" else "400"  # a real GPU makes contexts slowly
    program = [*PYTHON, str(PROGRAMS / f"{name}.py"), str(seed), calls]
    alone = natively(*program, **environment)
    assert alone[0] == 0, alone[2]
    assert shared(*program, **environment) == alone


@pytest.mark.parametrize("seed", [*range(6), 340])  # 340: a graph's launch fails
def test_random_calls_give_the_same(seed: int, natively: Runner, shared: Runner) -> None:
    same_random_calls(seed, natively, shared)


@pytest.mark.parametrize("seed", [0, 1, 340])
def test_random_calls_by_a_default_stream_of_the_thread(seed: int, natively: Runner, shared: Runner) -> None:
    same_random_calls(seed, natively, shared, CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM="1")


@pytest.mark.parametrize(
    "name", ["random_arrays", "random_contexts", "random_graphs", "random_kernels", "random_memory"]
)
@pytest.mark.parametrize("seed", range(3))
def test_other_random_calls_give_the_same(name: str, seed: int, natively: Runner, shared: Runner) -> None:
    same_random_calls(seed, natively, shared, name)


@pytest.mark.parametrize("seed", range(3))
def test_random_work_comes_in_order(seed: int, natively: Runner, shared: Runner) -> None:
    program = (*PYTHON, str(PROGRAMS / "random_order.py"), str(seed), "300", "1")
    assert natively(*program) == shared(*program) == (0, "in order\n", "")


def test_parts_are_linked_where_the_whole_is_another_device_s(shared: Runner) -> None:
    # An executor of its own: what an H200's linker says depends on the wrong images that it had before.
    isolated = (*FIKITCTL, "run", "--isolate", "--", *PYTHON)
    code, output, errors = shared(*isolated, str(PROGRAMS / "linked_parts.py"))
    assert code == 0, errors
    assert output == "42\nSUCCESS\nINVALID_SOURCE\nINVALID_IMAGE\nNO_BINARY_FOR_GPU\n"


def test_addresses_are_free_wherever_a_program_lies(shared: Runner) -> None:
    code, output, errors = shared(*PYTHON, str(PROGRAMS / "addresses.py"))
    assert (code, errors) == (0, "")
    bytes_of = {each: repr(bytes([each] * 4)) for each in (5, 7)}
    once = ["SUCCESS SUCCESS", "SUCCESS", "True", "SUCCESS", f"{bytes_of[7]} {bytes_of[7]}"]
    assert output.splitlines() == 4 * [*once, "SUCCESS SUCCESS", bytes_of[5]]


@pytest.mark.skipif(CHOICE != "sim", reason="a GPU's memory lies elsewhere")
def test_a_simulated_gpu_s_memory_lies_where_no_program_does(shared: Runner, daemon: Served) -> None:
    """At an address of its there an executor cannot have what a program registers."""
    code, _, errors = shared(*PYTHON, str(PROGRAMS / "names.py"))
    assert code == 0, errors
    found = []
    for pid in executors(daemon):  # one that starts, or ends, as after another test's fault, has none
        with suppress(ProcessLookupError, FileNotFoundError):
            found += [
                int(each.split("-")[0], 16)
                for each in Path(f"/proc/{pid}/maps").read_text().splitlines()
                if "memfd:fikit-sim-device" in each
            ]
    assert found
    assert max(found) < 0x5555 << 32


def test_a_launch_waits_for_its_kernel_when_told_to(natively: Runner, shared: Runner) -> None:
    """So that whoever looks for the kernel that fails finds it where it is launched."""
    program = [*PYTHON, str(PROGRAMS / "blocking.py")]
    for runner in (natively, shared):
        code, output, errors = runner(*program, CUDA_LAUNCH_BLOCKING="1")
        assert (code, output) == (0, "SUCCESS\nSUCCESS\nSUCCESS\n1\nILLEGAL_ADDRESS\n"), errors


def test_a_program_is_told_which_assertion_failed(natively: Runner, shared: Runner) -> None:
    program = [*PYTHON, str(PROGRAMS / "assertions.py")]
    alone = natively(*program)
    assert 'thread: [0,0,0] Assertion `number < 3 && "three are enough"` failed.' in alone[2]
    assert shared(*program) == alone


def test_a_program_prints_nothing_of_one_that_is_over(natively: Runner, shared: Runner) -> None:
    program = [*PYTHON, str(PROGRAMS / "printing.py")]
    alone = natively(*program)
    assert shared(*program, "unread") == (0, "", "")
    assert shared(*program) == alone


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_s_program_prints_the_same(name: str, natively: Runner, shared: Runner) -> None:
    for module in LIBRARIES[name]:
        pytest.importorskip(module)
    program = [*PYTHON, "-P", str(UNMODIFIED / f"{name}.py")]
    alone = natively(*program)
    assert alone[0] == 0, alone[2]
    assert shared(*program) == alone


def test_a_primary_context_is_as_the_runtime_needs_it(
    shared: Runner, driver_tables: Callable[..., str]
) -> None:
    program = [*PYTHON, str(PROGRAMS / "as_the_runtime.py")]
    code, output, errors = shared(*program, FIKIT_NVIDIA_DRIVER=driver_tables())
    assert (code, errors) == (0, "")
    assert output.splitlines()[:2] == ["cuCtxSetCurrent SUCCESS", "1 active"]
    assert "cuStreamSynchronize SUCCESS" in output
    assert "ERROR" not in output
    assert "False" not in output


def test_the_driver_s_tables_know_our_handles(shared: Runner, driver_tables: Callable[..., str]) -> None:
    program = [*PYTHON, str(PROGRAMS / "tables.py")]
    code, output, errors = shared(*program, FIKIT_NVIDIA_DRIVER=driver_tables())
    assert code == 0, errors
    kernels = "[(5, b'increment'), (5, b'nothing'), (5, b'store')]"
    assert output == f"3\n{kernels}\n0\n0 True\n" + "0 0\n" * 5 + f"4 4\n400\n999\n{[0] * 9}\n"


@pytest.mark.parametrize("name", LINKED)
def test_a_program_that_is_linked_prints_the_same(
    natively: Runner, shared: Runner, build: Callable[..., str], name: str
) -> None:
    for kind in ((), ("-DCUDA_API_PER_THREAD_DEFAULT_STREAM",)):
        program = build(name, *kind)
        alone = natively(program)
        assert alone == (0, LINKED[name], "")
        assert shared(program) == alone


def test_graphs_that_end_while_they_are_captured_into(shared: Runner, build: Callable[..., str]) -> None:
    """What has been freed reads otherwise at once, so that who looks there still is found out."""
    assert shared(build("captured_ends"), MALLOC_PERTURB_="90") == (0, "went on\n", "")


@pytest.mark.skipif(CHOICE != "sim", reason="an H200's driver ends in such a call")
def test_what_is_no_context_is_named_as_that(natively: Runner, shared: Runner) -> None:
    under = shared(*PYTHON, str(PROGRAMS / "no_context.py"))
    assert under == natively(*PYTHON, str(PROGRAMS / "no_context.py"))
    assert under[1].splitlines()[1] == "INVALID_CONTEXT INVALID_CONTEXT INVALID_CONTEXT"


def test_callbacks_are_told_of_a_fault(shared: Runner, build: Callable[..., str]) -> None:
    code, output, _ = shared(build("told_of_faults"))  # as on an H200; the simulated driver calls none
    assert (code, output) == (0, "700 700, 0\n700\n")


def test_a_thread_that_unloads_modules_keeps_no_other_from_a_call(
    shared: Runner, build: Callable[..., str]
) -> None:
    assert shared(build("held_up"), "unload") == (0, LINKED["held_up"], "")


def test_many_threads_make_and_destroy_what_they_use(
    natively: Runner, shared: Runner, build: Callable[..., str]
) -> None:
    program = build("crowd")
    alone = natively(program, "3")
    assert alone == (0, "under way\n0 wrong, 0 lost\n", "")
    assert shared(program, "3") == alone


def test_processes_share_memory_and_events(shared: Runner) -> None:
    code, output, errors = shared(*PYTHON, str(PROGRAMS / "sharing.py"))
    assert (code, errors) == (0, "")
    assert output.splitlines() == [
        "[3, 4, True, 'CUDA_ERROR_INVALID_VALUE', 5]",
        "13 14 15",
        "CUDA_ERROR_INVALID_CONTEXT",
        "CUDA_ERROR_INVALID_VALUE CUDA_ERROR_INVALID_VALUE",
        "3 99",
        "CUDA_ERROR_INVALID_VALUE",
    ]


def test_a_graph_is_one_operation_with_its_own_profile(shared: Runner, client: Client) -> None:
    assert shared(*PYTHON, str(PROGRAMS / "graphs.py"))[0] == 0
    known = client.ask(protocol.ListProfiles()).profiles
    assert "graph of 6 operations" in [profile.function for profile in known]
