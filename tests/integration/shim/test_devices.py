"""Programs that use several GPUs, on the driver itself and under a daemon."""

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

from tests.integration.conftest import daemons
from tests.integration.end_to_end.conftest import CHOICE, SETTINGS, Served
from tests.integration.shim.conftest import PROGRAMS, Runner
from tests.integration.shim.test_processes import START, executors, run

pytestmark = pytest.mark.shares_daemon

EVERY_GPU = SETTINGS.replace(f'choice = "{CHOICE}"', f'choice = "{"sim" if CHOICE == "sim" else "auto"}"')


class WithGpus(Served):
    """A daemon with two GPUs, or, of real ones, all that there are."""

    def configure(self, extra: str = "", settings: str = EVERY_GPU) -> None:
        super().configure(extra, settings)

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "FIKIT_SIM_DEVICES": "2"}


stopped_daemon, lasting_daemon = daemons(WithGpus)


@pytest.fixture
def shown() -> dict[str, str]:
    return {}  # all


@pytest.fixture
def uuids(daemon: Served) -> list[str]:
    """Those of the daemon's GPUs, two at least, in its order."""
    found = [gpu.uuid for gpu in gpus(daemon)]
    if len(found) < 2:
        pytest.skip(f"needs two GPUs, there are {len(found)}")
    return found


@pytest.fixture
def two_gpus(daemon: Served, uuids: list[str]) -> Served:
    return daemon


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("name", ["devices", "devices_graphs", "devices_more", "exchange"])
def test_a_program_with_two_devices_prints_the_same(
    monkeypatch: pytest.MonkeyPatch, natively: Runner, shared: Runner, name: str
) -> None:
    monkeypatch.setenv("FIKIT_SIM_DEVICES", "2")
    program = (sys.executable, str(PROGRAMS / f"{name}.py"))
    alone = natively(*program)
    assert alone[0] == 0, alone[2]
    assert shared(*program) == alone


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("seed", range(3))
def test_random_work_on_two_devices_comes_in_order(
    monkeypatch: pytest.MonkeyPatch, natively: Runner, shared: Runner, seed: int
) -> None:
    monkeypatch.setenv("FIKIT_SIM_DEVICES", "2")
    program = (sys.executable, str(PROGRAMS / "random_order.py"), str(seed), "300", "2")
    assert natively(*program) == shared(*program) == (0, "in order\n", "")


@pytest.mark.usefixtures("two_gpus")
def test_a_wait_between_devices_holds_up_nothing_else(shared: Runner) -> None:
    """A promise of ours, which NVIDIA's driver (580.159, on two H200) does not keep."""
    code, printed, _ = shared(sys.executable, str(PROGRAMS / "devices_waiting.py"))
    over, waits, six = "CUDA_SUCCESS", "CUDA_ERROR_NOT_READY", ["01010101"] * 6
    copies = [*[f"{over} {over} {waits}"] * 2, over, f"0 {six}", f"1 {six}", over, "13131313 13131313"]
    graphs = [line for turn in (1, 2, 3) for line in (f"{over} {waits}", f"{over} {[turn, turn]}")]
    assert (code, printed.splitlines()) == (0, copies + graphs)


def on_both(text: str) -> str:
    """A program with the primary contexts of two devices."""
    return f"""
done(driver.cuInit(0))
contexts = [done(driver.cuDevicePrimaryCtxRetain(device)) for device in range(2)]
def use(device):
    done(driver.cuCtxSetCurrent(contexts[device]))
{text}"""


def answers(shared: Runner, text: str, **environment: str) -> list[str]:
    code, output, errors = run(shared, text, **environment)
    assert (code, errors) == (0, "")
    return output.splitlines()


@pytest.mark.usefixtures("stopped_daemon")
def test_only_the_devices_that_are_used_have_executors(
    shared: Runner, two_gpus: Served, uuids: list[str]
) -> None:
    count = len(uuids)
    assert answers(shared, "driver.cuInit(0)\nprint(done(driver.cuDeviceGetCount()))") == [str(count)]
    assert [gpu.executors for gpu in gpus(two_gpus)] == [0] * count
    asked = """
start()
sizes = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
print(*(done(driver.cuDeviceGetAttribute(sizes, device)) > 0 for device in (0, 1)))
print(done(driver.cuDeviceTotalMem(1)) > 0)
print(done(driver.cuDeviceGetPCIBusId(20, 1)).split(b"\\0")[0].decode())
"""
    seen = two_gpus.client().ask(protocol.ListVisibleGpus()).gpus[1]
    for _ in range(2):  # also where the daemon knows more of the one than of the other
        assert answers(shared, asked) == ["True True", "True", seen.pci.lower()[4:]]
        assert [gpu.executors for gpu in gpus(two_gpus)] == [1] + [0] * (count - 1)


def gpus(daemon: Served) -> list[protocol.GpuRecord]:
    status: protocol.Status = daemon.client().ask(protocol.GetStatus())
    return status.gpus


NAMES = """
if int(driver.cuInit(0)[0]):
    print([])
    sys.exit()
count = done(driver.cuDeviceGetCount())
names = [f"GPU-{uuid.UUID(bytes=done(driver.cuDeviceGetUuid(index)).bytes)}" for index in range(count)]
print([UUIDS.index(each) for each in names])
"""
NVML_NAMES = """
from pynvml import *
nvmlInit()
handles = [nvmlDeviceGetHandleByIndex(index) for index in range(nvmlDeviceGetCount())]
print([UUIDS.index(nvmlDeviceGetUUID(each)) for each in handles])
"""


def naming(uuids: list[str]) -> str:
    """A program that calls the GPUs that it sees by their places in the daemon's list."""
    return f"import uuid\nUUIDS = {uuids}{NAMES}"


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        ("1,0", [1, 0]),
        ("1", [1]),
        ("0,{beyond},1", [0]),
        ("{second},{first}", [1, 0]),
        ("{second},0", [1]),
        ("{every},1", []),
        ("0,0", []),
    ],
)
def test_the_program_says_which_devices_it_sees(
    natively: Runner, shared: Runner, uuids: list[str], visible: str, seen: list[int]
) -> None:
    every = uuids[0][: next(at for at in range(50) if uuids[0][at] != uuids[1][at])]
    wished = visible.format(first=uuids[0], second=uuids[1], every=every, beyond=len(uuids))
    for runner in (natively, shared):
        visible = {"CUDA_VISIBLE_DEVICES": wished, "FIKIT_SIM_DEVICES": str(len(uuids))}
        assert answers(runner, naming(uuids), **visible) == [str(seen)]


@pytest.mark.parametrize(
    ("asked", "seen"),
    [([], [0]), (["--gpus", "1"], [1]), (["--gpus", "1,0"], [1, 0]), (["--gpus", "all"], None)],
)
def test_a_job_sees_its_gpus_in_its_order(
    two_gpus: Served, uuids: list[str], asked: list[str], seen: list[int] | None
) -> None:
    expected = str(list(range(len(uuids))) if seen is None else seen)
    command = [sys.executable, "-c", START + naming(uuids) + NVML_NAMES]
    done = fikitctl(two_gpus, "run", *asked, "--", *command)
    assert done.stdout.splitlines() == [expected, expected], done.stderr
    jobs = two_gpus.client().ask(protocol.ListJobs()).jobs
    assert str(jobs[-1].gpus) == expected


def fikitctl(daemon: Served, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-P", "-c", "from fikitctl.main import main; main()"]
    environment = {**os.environ, "FIKIT_SOCKET": str(daemon.socket), **more}
    return subprocess.run([*program, *words], env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("asked", "visible", "seen"),
    [
        ([], "1", "[1]"),
        ([], "1,0", "[1, 0]"),
        ([], "1,-1,0", "[1]"),
        ([], "{second},{first}", "[1, 0]"),
        ([], "{second},0", "[1]"),
        ([], "MIG-{second}", "[1]"),
        ([], "all", "[]"),
        (["--gpus", "1,0"], "1", "[0]"),
        (["--gpus", "{second}"], "0", "[1]"),
        (["--gpus", "all"], "", "[]"),
    ],
)
def test_a_job_s_numbers_are_its_own(
    two_gpus: Served, uuids: list[str], asked: list[str], visible: str, seen: str
) -> None:
    names = {"first": uuids[0], "second": uuids[1]}
    visible = visible.format(**names).replace("MIG-GPU-", "MIG-")
    asked = [word.format(**names) for word in asked]
    text = START + naming(uuids)
    done = fikitctl(two_gpus, "run", *asked, "--", sys.executable, "-c", text, CUDA_VISIBLE_DEVICES=visible)
    assert done.stdout == f"{seen}\n", done.stderr


def test_a_job_has_memory_on_each_of_its_gpus_and_no_other(two_gpus: Served) -> None:
    client = two_gpus.client()
    text = "import time; time.sleep(60)"
    submit = protocol.Submit(
        command=[sys.executable, "-c", text],
        environment={},
        directory="/",
        gpus=[1],
        memory_limit_bytes=1 << 20,
    )
    both = protocol.Submit(
        command=[sys.executable, "-c", text],
        environment={},
        directory="/",
        gpus="all",
        memory_limit_bytes=2 << 20,
    )
    one, two = (client.ask(each).job.job for each in (submit, both))
    while client.ask(protocol.Wait(job=two, wait_ms=10)).job.state == "queued":
        pass
    assert [gpu.memory_reserved_bytes for gpu in gpus(two_gpus)[:2]] == [2 << 20, 3 << 20]
    refused = client.ask(protocol.OpenSession(name="stray", gpu=0, job=one))
    assert (refused.code, refused.message) == ("not_found", f"GPU 0 is none of {one}")
    twice = protocol.Submit(command=["true"], environment={}, directory="/", gpus=[0, 0])
    assert client.ask(twice).message == "a GPU is named twice: 0, 0"
    for job in (one, two):
        client.ask(protocol.Kill(target=job))


def started(daemon: Served, text: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", START + text],
        env={**os.environ, **variables(str(daemon.socket), os.environ)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def kill_executor_of(daemon: Served, gpu: int) -> None:
    wished = f"--gpu\0{gpu}\0".encode()
    (found,) = [pid for pid in executors(daemon) if wished in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(found, signal.SIGKILL)


def test_an_executor_s_end_is_one_device_s(two_gpus: Served) -> None:
    program = on_both(
        """
memories, streams = [], []
for device in range(2):
    use(device)
    memories.append(done(driver.cuMemAlloc(4)))
    streams.append(done(driver.cuStreamCreate(1)))
    done(driver.cuMemsetD32(memories[-1], 7, 1))
    done(driver.cuCtxSynchronize())
event = done(driver.cuEventCreate(0))
print("ready", flush=True)
input()
use(1)
print(driver.cuMemAlloc(4)[0].name, driver.cuCtxSynchronize()[0].name)
use(0)
print(driver.cuMemcpyPeer(memories[0], contexts[0], memories[1], contexts[1], 4)[0].name)
print(driver.cuStreamWaitEvent(streams[0], event, 0)[0].name)
print(read(memories[0]))
done(driver.cuMemsetD32(memories[0], 9, 1))
print(read(memories[0]), driver.cuCtxSynchronize()[0].name)
"""
    )
    with started(two_gpus, program) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        kill_executor_of(two_gpus, 1)
        lines = running.communicate("\n", timeout=60)[0].splitlines()
    lost = "CUDA_ERROR_LAUNCH_FAILED"
    assert lines == [
        f"{lost} {lost}",
        lost,
        lost,
        "b'\\x07\\x00\\x00\\x00'",
        "b'\\t\\x00\\x00\\x00' CUDA_SUCCESS",
    ]


@pytest.mark.parametrize(
    "ends",
    [
        "driver.cuStreamSynchronize(streams[0])",
        "asked(driver.cuStreamQuery, streams[0])",
        "asked(driver.cuEventQuery, after)",
    ],
)
def test_what_waits_for_a_lost_device_goes_on_with_an_error(two_gpus: Served, ends: str) -> None:
    """Also for a program that asks and never waits: it would take what was not computed for the result."""
    program = on_both(
        """
def asked(query, what):
    while (answer := query(what))[0].name == "CUDA_ERROR_NOT_READY":
        pass
    return answer
import ctypes, threading
held = threading.Event()
HOST = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def hold(_argument):
    held.set()
    input()
function = HOST(hold)
streams = []
for device in range(2):
    use(device)
    streams.append(done(driver.cuStreamCreate(1)))
event = done(driver.cuEventCreate(0))
library = ctypes.CDLL("libcuda.so.1")
assert library.cuLaunchHostFunc(ctypes.c_void_p(int(streams[1])), function, None) == 0
done(driver.cuEventRecord(event, streams[1]))
use(0)
done(driver.cuStreamWaitEvent(streams[0], event, 0))
after = done(driver.cuEventCreate(0))
done(driver.cuEventRecord(after, streams[0]))
held.wait()
print(driver.cuStreamQuery(streams[0])[0].name, flush=True)
"""
        f"print([({ends})[0].name, driver.cuStreamSynchronize(streams[0])[0].name], flush=True)\n"
        "os._exit(0)\n"
    )
    with started(two_gpus, program) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "CUDA_ERROR_NOT_READY\n"
        kill_executor_of(two_gpus, 1)
        assert running.communicate(timeout=60)[0] == "['CUDA_ERROR_LAUNCH_FAILED', 'CUDA_SUCCESS']\n"


def test_a_blocking_copy_from_a_device_that_is_lost_meanwhile_is_an_error(two_gpus: Served) -> None:
    program = on_both(
        """
import ctypes, time
HOST = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def hold(_argument):
    time.sleep(0.2)  # the copy has begun: before, it would be refused
    print("held", flush=True)
    input()
function = HOST(hold)
memories = []
for device in (1, 0):
    use(device)
    memories.append(done(driver.cuMemAlloc(4)))
    done(driver.cuMemsetD32(memories[-1], device, 1))
    done(driver.cuCtxSynchronize())
copy = memories[1], contexts[0], memories[0], contexts[1], 4
done(driver.cuMemcpyPeer(*copy))
assert ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc(None, function, None) == 0
print(driver.cuMemcpyPeer(*copy)[0].name)
print(driver.cuCtxSynchronize()[0].name, flush=True)
os._exit(0)
"""
    )
    with started(two_gpus, program) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "held\n"
        kill_executor_of(two_gpus, 1)
        assert running.communicate("\n", timeout=60)[0] == "CUDA_ERROR_LAUNCH_FAILED\nCUDA_SUCCESS\n"


def test_what_goes_between_devices_ends_with_one_of_them(two_gpus: Served, build: Callable[..., str]) -> None:
    environment = {**os.environ, **variables(str(two_gpus.socket), os.environ)}
    command = [build("bridge_faults")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "under way\n"
        kill_executor_of(two_gpus, 1)
        assert running.communicate(timeout=60)[0] == "0 42 1\n"


@pytest.mark.usefixtures("two_gpus")
def test_there_is_no_peer_access(shared: Runner) -> None:
    """Each device's memory is another process's: what goes between them is copied."""
    text = """
print([done(driver.cuDeviceCanAccessPeer(*pair)) for pair in ((0, 1), (1, 0))])
use(0)
print(driver.cuCtxEnablePeerAccess(contexts[1], 0)[0].name)
print(driver.cuCtxDisablePeerAccess(contexts[1])[0].name)
"""
    errors = ["CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED"]
    assert answers(shared, on_both(text)) == ["[0, 0]", *errors]


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("kind", ["allocated", "pooled", "mapped", "variable"])
def test_kernels_do_not_reach_another_device_s_memory(
    monkeypatch: pytest.MonkeyPatch, natively: Runner, shared: Runner, kind: str
) -> None:
    if CHOICE != "sim":
        pytest.skip("natively these GPUs may be peers")
    monkeypatch.setenv("FIKIT_SIM_DEVICES", "2")
    program = (sys.executable, str(PROGRAMS / "peers.py"), kind)
    alone = natively(*program)
    assert alone[1].splitlines()[-2:] == ["SUCCESS SUCCESS", "SUCCESS ILLEGAL_ADDRESS"], alone
    assert shared(*program) == alone


def test_no_capture_goes_across_devices(shared: Runner, two_gpus: Served) -> None:
    program = on_both(
        """
streams, memories = [], []
for device in range(2):
    use(device)
    streams.append(done(driver.cuStreamCreate(1)))
    memories.append(done(driver.cuMemAlloc(4)))
use(0)
event = done(driver.cuEventCreate(0))
relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
done(driver.cuStreamBeginCapture(streams[0], relaxed))
done(driver.cuEventRecord(event, streams[0]))
print(driver.cuStreamWaitEvent(streams[1], event, 0)[0].name)
print(driver.cuMemcpyDtoDAsync(memories[1], memories[0], 4, streams[0])[0].name)
print(driver.cuStreamEndCapture(streams[0])[0].name)
"""
    )
    refused = "CUDA_ERROR_NOT_SUPPORTED"
    assert answers(shared, program) == [
        refused,
        refused,
        "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
    ]


def test_nvml_counts_the_gpus_as_cuda_does(shared: Runner, uuids: list[str]) -> None:
    count = len(uuids)
    program = (sys.executable, str(PROGRAMS / "nvml_devices.py"))
    last = count - 1
    assert shared(*program) == (0, f"{count} {last}\n0 {count}\n", "")
    assert shared(*program, CUDA_VISIBLE_DEVICES=str(last)) == (0, f"{count} {last}\n{last} {count}\n", "")
