"""Processes as they are: forks, threads, sudden ends, no daemon at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fikit import protocol
from fikit.unmodified import variables

from tests import user_faults
from tests.integration.conftest import Client
from tests.integration.end_to_end.conftest import CHOICE, Served
from tests.integration.shim.conftest import PROGRAMS, Runner

pytestmark = pytest.mark.shares_daemon

START = f"import sys; sys.path.insert(0, {str(PROGRAMS)!r})\nfrom calls import *\nimport os\n"


def run(shared: Runner, text: str, **environment: str) -> tuple[int, str, str]:
    return shared(sys.executable, "-c", START + text, **environment)


def test_a_forked_child_gets_not_initialised_and_its_parent_goes_on(shared: Runner) -> None:
    code, output, errors = run(
        shared,
        """
start()
memory = done(driver.cuMemAlloc(4))
child = os.fork()
if child == 0:
    calls = driver.cuInit(0), driver.cuMemAlloc(4), driver.cuDeviceGetCount(), driver.cuStreamSynchronize(0)
    os._exit(0 if all(int(answer[0]) == 3 for answer in calls) else 1)
print(os.waitpid(child, 0)[1])
done(driver.cuMemsetD32(memory, 5, 1))
print(read(memory))
""",
    )
    assert (code, output) == (0, "0\nb'\\x05\\x00\\x00\\x00'\n"), errors


def test_children_forked_while_threads_are_in_calls(shared: Runner, build: Callable[..., str]) -> None:
    assert shared(build("forks")) == (0, "", "")


def test_children_forked_while_a_thread_asks_the_daemon(shared: Runner, build: Callable[..., str]) -> None:
    """In its first cuInit, or of NVML, as whoever samples it meanwhile does."""
    assert shared(build("forked_beside", "-ldl")) == (0, "0\n0\n", "")


def test_children_forked_while_a_thread_loads_the_driver(
    shared: Runner, build: Callable[..., str], driver_tables: Callable[..., str]
) -> None:
    """What they have of it is neither whole nor theirs."""
    driver = driver_tables("-DSLOW_MICROSECONDS=2000")
    assert shared(build("forked_beside", "-ldl"), FIKIT_NVIDIA_DRIVER=driver) == (0, "0\n0\n", "")


def test_threads_that_are_cancelled_in_calls_hold_up_no_others(
    natively: Runner, shared: Runner, build: Callable[..., str]
) -> None:
    program = build("cancelled", "-ldl")
    assert shared(program) == (0, "", "")
    if CHOICE == "sim":
        assert natively(program) == (0, "", "")


def test_what_a_thread_leaves_at_its_end_is_nobody_s(shared: Runner, build: Callable[..., str]) -> None:
    assert shared(build("thread_ends")) == (0, "4 0\n", "")


def test_threads_with_small_stacks(shared: Runner, build: Callable[..., str]) -> None:
    assert shared(build("small_stacks")) == (0, "0 7\n", "")


def test_a_program_that_threadsanitizer_watches(shared: Runner, build: Callable[..., str]) -> None:
    """It lets programs map nothing where addresses of the GPU's are kept free."""
    program = build("threads", "-fsanitize=thread")
    script = 'TSAN_OPTIONS=report_bugs=0 exec "$0"'  # what libcuda.so.1 orders it does not see
    assert shared("/bin/sh", "-c", script, program) == (0, "66 " * 12 + "\n", "")


@pytest.mark.skipif(not user_faults.there_are(), reason=user_faults.REASON)
def test_a_program_that_addresssanitizer_watches(shared: Runner, build: Callable[..., str]) -> None:
    """It has memory around what malloc gives that nobody may read."""
    program = build("registered_heap", "-fsanitize=address")
    script = 'ASAN_OPTIONS=detect_leaks=0 exec "$0"'
    assert shared("/bin/sh", "-c", script, program) == (0, "7 7 3\n7\n", "")


def test_what_a_program_without_standard_streams_prints_reaches_no_session(
    shared: Runner, tmp_path: Path
) -> None:
    """Who is started with the descriptors 0 to 2 closed prints to whatever it has there by then."""
    text = """
start()
memory = done(driver.cuMemAlloc(4))
there = [os.path.realpath(f"/proc/self/fd/{each}") for each in range(3)]
done(driver.cuMemsetD32(memory, 5, 1))
with open(sys.argv[1], "w") as file:
    print([each for each in there if "socket:" in each], read(memory), file=file)
"""
    script = 'exec "$@" <&- >&- 2>&-'
    shared("/bin/sh", "-c", script, "sh", sys.executable, "-c", START + text, str(tmp_path / "told"))
    assert (tmp_path / "told").read_text() == "[] b'\\x05\\x00\\x00\\x00'\n"


@pytest.mark.parametrize(("program", "told"), [("forks", ""), ("forked_beside", "0\n0\n"), ("cancelled", "")])
def test_a_log_of_all_calls_holds_up_none(
    shared: Runner, build: Callable[..., str], tmp_path: Path, program: str, told: str
) -> None:
    log = tmp_path / "log"
    logged = {"FIKIT_SHIM_TRACE": "1", "FIKIT_SHIM_LOG": str(log)}
    assert shared(build(program, "-ldl"), **logged) == (0, told, "")
    assert "cuInit(" in log.read_text()


@pytest.mark.parametrize(
    ("log", "limit"),
    [
        ("log", "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))"),
        ("-", "reader, writer = os.pipe(); os.dup2(writer, 2); os.close(reader)"),
    ],
)
def test_a_log_that_cannot_go_on_ends_no_program(
    shared: Runner, tmp_path: Path, log: str, limit: str
) -> None:
    """Where its file is as long as it may be, or nobody reads it any more. Python ignores both signals."""
    text = f"""
import resource, signal
for each in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(each, signal.SIG_DFL)
{limit}
start()
for _ in range(200):
    done(driver.cuMemGetInfo())
print("went on")
"""
    path = log if log == "-" else str(tmp_path / log)
    assert run(shared, text, FIKIT_SHIM_TRACE="1", FIKIT_SHIM_LOG=path)[:2] == (0, "went on\n")


def test_a_call_that_finds_no_descriptor_free_is_an_error_and_no_end(shared: Runner) -> None:
    code, output, errors = run(
        shared,
        """
import resource
start()
memory = done(driver.cuMemAlloc(4))
most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most[1]))
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass
print(*(driver.cuMemAllocHost(4096)[0].name for _ in range(2)))
done(driver.cuMemsetD32(memory, 5, 1))
for each in taken:
    os.close(each)
print(driver.cuMemAllocHost(4096)[0].name, read(memory))
""",
    )
    refused = "CUDA_ERROR_OPERATING_SYSTEM"
    assert output == f"{refused} {refused}\nCUDA_SUCCESS b'\\x05\\x00\\x00\\x00'\n", errors
    assert code == 0


def test_a_limit_that_a_process_has_is_an_error_and_no_end(shared: Runner) -> None:
    """Of addresses, pinned memory finds none; of a file's size, that of a large image."""
    code, output, errors = run(
        shared,
        """
import resource, signal
start()
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (128 << 20), resource.RLIM_INFINITY))
names(driver.cuMemAllocHost(256 << 20), driver.cuMemAllocHost(4096))
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
names(driver.cuModuleLoadData(KERNELS + (b"//" + b"-" * 1021 + b"\\n") * (40 << 10)))
names(driver.cuModuleLoadData(KERNELS))
""",
    )
    assert (code, output) == (0, "OUT_OF_MEMORY SUCCESS\nOUT_OF_MEMORY\nSUCCESS\n"), errors


def test_a_child_forked_before_has_a_session_of_its_own(shared: Runner) -> None:
    code, output, errors = run(
        shared,
        """
child = os.fork()
start()
memory = done(driver.cuMemAlloc(4))
if child == 0:
    os._exit(0)
print(os.waitpid(child, 0)[1])
""",
    )
    assert (code, output) == (0, "0\n"), errors


def test_a_program_that_only_imports_asks_nobody(shared: Runner) -> None:
    silent = {"FIKIT_SOCKET": "/no/such/socket"}
    code, output, errors = run(shared, "print(driver.CUresult(0).name)", **silent)
    assert (code, output, errors) == (0, "CUDA_SUCCESS\n", "")


def test_without_a_daemon_the_system_is_not_ready(shared: Runner) -> None:
    code, output, errors = run(
        shared, "print(driver.cuInit(0)[0].name)", FIKIT_SOCKET="/no/such/socket", FIKIT_SHIM_LOG="-"
    )
    assert (code, output) == (0, "CUDA_ERROR_SYSTEM_NOT_READY\n")
    assert "no fikitd answers at /no/such/socket" in errors


def test_a_priority_that_there_is_not_is_told_to_who_asks(shared: Runner) -> None:
    variables = {"FIKIT_PRIORITY": "urgent", "FIKIT_SHIM_LOG": "-"}
    code, _, errors = run(shared, "start()", **variables)
    assert (code, "FIKIT_PRIORITY is 'urgent'" in errors) == (0, True), errors


@pytest.mark.parametrize(
    ("visible", "answer"),
    [
        ("", "NO_DEVICE"),
        ("-1", "NO_DEVICE"),
        ("-1,0", "NO_DEVICE"),
        ("NoDevFiles", "NO_DEVICE"),
        ("7", "NO_DEVICE"),
        ("0", "SUCCESS"),
        ("0,1", "SUCCESS"),
        ("0,-1", "SUCCESS"),
        ("+0x1", "SUCCESS"),
        ("0,0", "INVALID_DEVICE"),
        ("GPU-fedcba98", "NO_DEVICE"),
        ("GPU-{uuid}", "SUCCESS"),
        ("GPU-{uuid:.4},7", "SUCCESS"),
        ("MIG-{uuid}", "SUCCESS"),
    ],
)
def test_the_program_says_which_device_it_sees(
    natively: Runner, shared: Runner, client: Client, visible: str, answer: str
) -> None:
    uuid = client.ask(protocol.ListGpus()).gpus[0].uuid.removeprefix("GPU-")
    for runner in (natively, shared):
        wished = visible.format(uuid=uuid)
        text = "print(driver.cuInit(0)[0].name, driver.cuDeviceGetCount()[0].name)"
        output = run(runner, text, CUDA_VISIBLE_DEVICES=wished)[1]
        counted = "SUCCESS" if answer == "SUCCESS" else "NOT_INITIALIZED"
        assert output.replace("ERROR_", "") == f"CUDA_{answer} CUDA_{counted}\n"


def test_nothing_is_told_before_the_beginning(natively: Runner, shared: Runner) -> None:
    for runner in (natively, shared):
        text = "print(driver.cuModuleGetLoadingMode()[0].name, driver.cuDeviceGetCount()[0].name)"
        assert run(runner, text)[1] == "CUDA_ERROR_NOT_INITIALIZED CUDA_ERROR_NOT_INITIALIZED\n"


@pytest.mark.parametrize(
    ("order", "answer"),
    [("PCI_BUS_ID", "SUCCESS"), ("FASTEST_FIRST", "SUCCESS"), ("SLOWEST", "ERROR_INVALID_DEVICE")],
)
def test_the_order_of_devices_is_one_that_there_is(
    natively: Runner, shared: Runner, order: str, answer: str
) -> None:
    for runner in (natively, shared):
        output = run(runner, "print(driver.cuInit(0)[0].name)", CUDA_DEVICE_ORDER=order)[1]
        assert output == f"CUDA_{answer}\n"


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("in_flight", 7),
        ("daemon_threads", 3),
        ("exec_again", 0),
        ("signals", -signal.SIGTERM),
        ("less_rights", 0),
        ("pools", 0),
    ],
)
def test_a_process_in_an_odd_state(natively: Runner, shared: Runner, what: str, code: int) -> None:
    program = (sys.executable, str(PROGRAMS / "processes.py"), what)
    alone = natively(*program)
    assert alone[0] == code, alone[2]
    assert shared(*program)[:2] == alone[:2]


@pytest.mark.parametrize(
    "ending", ["os._exit(0)", "os.kill(os.getpid(), 9)", "os.execv('/bin/true', ['true'])"]
)
def test_an_end_without_clean_up_gives_everything_back(
    shared: Runner, daemon: Served, client: Client, ending: str
) -> None:
    run(shared, f"start()\ndone(driver.cuMemAlloc(1 << 20))\n{ending}")

    deadline = 50
    while client.ask(protocol.ListSessions()).sessions and deadline:
        deadline -= 1
        os.sched_yield()
    assert run(shared, "start()\nprint(len(read(done(driver.cuMemAlloc(4)))))")[1] == "4\n"


def test_the_executor_s_end_is_an_error_and_not_an_end(daemon: Served, client: Client) -> None:
    text = START + "start()\nprint('ready', flush=True)\nsys.stdin.read()\n"
    text += "print(driver.cuMemAlloc(4)[0].name, driver.cuStreamSynchronize(0)[0].name)\n"
    with subprocess.Popen(
        [sys.executable, "-c", text],
        env={**os.environ, **variables(str(daemon.socket), os.environ)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for pid in executors(daemon):
            os.kill(pid, signal.SIGKILL)
        output, _ = process.communicate("", timeout=60)
    assert output.split()[0] == output.split()[1] != "CUDA_SUCCESS"
    assert process.returncode == 0


def executors(daemon: Served) -> list[int]:
    """The executors among the daemon's children."""
    assert daemon.process is not None
    lists = Path(f"/proc/{daemon.process.pid}/task").glob("*/children")
    found = [int(pid) for each in lists for pid in each.read_text().split()]
    return [pid for pid in found if b"fikitd.executor" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_what_is_not_served_is_counted_and_told(daemon: Served, client: Client) -> None:
    text = START + (
        "start()\nnobody = driver.CUmulticastObjectProp()\n"
        "for _ in range(3): driver.cuMulticastCreate(nobody)\nos.kill(os.getpid(), 9)\n"
    )
    fikitctl = [
        sys.executable,
        "-P",
        "-c",
        "from fikitctl.main import main; main()",
        "-H",
        str(daemon.socket),
    ]
    told = subprocess.run(
        [*fikitctl, "doctor", "--", sys.executable, "-c", text], capture_output=True, text=True, timeout=60
    )
    assert told.returncode == 128 + signal.SIGKILL
    assert "calls that fikitd does not serve: cuMulticastCreate (3)" in told.stderr
    job = client.ask(protocol.ListJobs()).jobs[-1].job
    shown = subprocess.run([*fikitctl, "show", job], capture_output=True, text=True, timeout=60)
    assert "unsupported calls  cuMulticastCreate (3)" in shown.stdout


def test_libraries_get_a_no_that_they_can_go_on_with(shared: Runner) -> None:
    """What NCCL, XLA and CuPy ask for where attributes do not tell them beforehand."""
    code, output, errors = run(
        shared,
        """
device, context = start()
kinds, attributes = driver.CUmemLocationType, driver.CUdevice_attribute
properties = driver.CUmemAllocationProp()
properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
least = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
properties.location.type = kinds.CU_MEM_LOCATION_TYPE_HOST_NUMA
step = done(driver.cuMemGetAllocationGranularity(properties, least))
print(step, driver.cuMemCreate(step, properties, 0)[0].name)
properties.location.type = kinds.CU_MEM_LOCATION_TYPE_DEVICE
properties.requestedHandleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_FABRIC
print(driver.cuMemCreate(step, properties, 0)[0].name)
descriptor = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
properties.requestedHandleTypes = descriptor
handle = done(driver.cuMemCreate(step, properties, 0))
print(driver.cuMulticastCreate(driver.CUmulticastObjectProp())[0].name)
memory = done(driver.cuMemAlloc(step))
range_handle = driver.CUmemRangeHandleType.CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
print(driver.cuMemGetHandleForAddressRange(memory, step, range_handle, 0)[0].name)
for name in ("MULTICAST", "HANDLE_TYPE_FABRIC", "DMA_BUF", "GPU_DIRECT_RDMA"):
    attribute = getattr(attributes, f"CU_DEVICE_ATTRIBUTE_{name}_SUPPORTED")
    print(done(driver.cuDeviceGetAttribute(attribute, device)), end=" ")
done(driver.cuMemRelease(handle))
done(driver.cuMemsetD32(memory, 5, 1))
print(read(memory))
""",
    )
    refused = "CUDA_ERROR_NOT_SUPPORTED\n"
    assert (code, output) == (0, f"2097152 {refused}{refused * 3}0 0 0 0 b'\\x05\\x00\\x00\\x00'\n"), errors


def test_two_programs_share_by_priority(daemon: Served, client: Client) -> None:
    """Both at once, each with its own data, and the daemon knows their levels."""
    text = START + (
        "device, context = start()\nmemory = done(driver.cuMemAlloc(4))\n"
        "done(driver.cuMemsetD32(memory, int(sys.argv[1]), 1))\n"
        "print('ready', flush=True)\nsys.stdin.read()\nprint(int.from_bytes(read(memory), 'little'))\n"
    )
    fikitctl = [
        sys.executable,
        "-P",
        "-c",
        "from fikitctl.main import main; main()",
        "-H",
        str(daemon.socket),
    ]
    running = {}
    for priority, value in (("high", 11), ("low", 22)):
        command = [*fikitctl, "run", "-p", priority, "--", sys.executable, "-c", text, str(value)]
        running[value] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    for process in running.values():
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    sessions = client.ask(protocol.ListSessions()).sessions
    assert sorted(session.priority for session in sessions) == [0, 9]
    for value, process in running.items():
        assert process.communicate("", timeout=60)[0] == f"{value}\n"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"", "?"),
        (b"\xff", "?"),
        (b"\xe9t\xc3\xa9", "?t\u00e9"),
        (b"\xed\xa0\x80\xf4\x90\x80\x80", "???????"),
        ("\u0e01\uff21\U0001f600".encode(), "\u0e01\uff21\U0001f600"),
        (b"x" * 199 + b"\xc3\xa9", "x" * 199),
    ],
)
def test_a_program_may_be_called_anything(shared: Runner, client: Client, name: bytes, shown: str) -> None:
    client.subscribe()
    text = """
import ctypes
name = ctypes.c_char_p.in_dll(ctypes.CDLL(None), "program_invocation_short_name")
name.value = bytes.fromhex(sys.argv[1])
start()
"""
    code, _, errors = shared(sys.executable, "-c", START + text, name.hex())
    assert code == 0, errors
    while (event := client.receive()[1]).kind != "session_opened":
        pass
    client.send(protocol.Show(target=event.session))
    while not isinstance(reply := client.receive()[1], protocol.Shown):
        pass
    assert reply.session is not None
    assert reply.session.name == shown
