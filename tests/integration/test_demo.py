"""The demonstration on a daemon of its own: real processes through the client library, and nothing left."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest
from fikit.control import Connection
from fikit.errors import UnreachableError
from fikit.protocol import ListSessions, Sessions
from fikitctl.demonstration.workloads import Row

FIKITCTL: Final = (sys.executable, "-P", "-c", "from fikitctl.main import main; main()")
DEVICE: Final = "auto" if os.environ.get("FIKIT_TEST_DEVICE") == "real" else "sim"
DEADLINE_SECONDS: Final = 120
FIGURES: Final = {"hp_p50_ms", "hp_p99_ms", "lp_per_s"}


def small_traces(path: Path) -> Path:
    """Two workloads of a few kernels, copies and fills."""
    kernel = ["kernel", 0, [264, 1, 1], [256, 1, 1], 0, 32, 7, None, 0.0, 21.0, None, 50]
    operations: list[list[Any]] = [
        kernel,
        ["gpu_memset", 1, None, None, None, None, 7, 30.0, 35.0, 1.0, 4096, None],
        ["gpu_memcpy", 2, None, None, None, None, 7, 40.0, 45.0, 1.0, 65536, None],
        ["gpu_memcpy", 3, None, None, None, None, 13, 50.0, 55.0, 1.0, 4096, None],
        ["gpu_memcpy", 4, None, None, None, None, 13, 60.0, 65.0, 1.0, 8192, None],
        [*kernel[:7], 400.0, 405.0, *kernel[9:]],
    ]
    recording = {
        "iter_ms_unprofiled": 0.45,
        "iters": 1,
        "names": ["void work<1>()", "Memset", "Memcpy DtoD", "Memcpy HtoD", "Memcpy DtoH"],
        "columns": Row.__struct_fields__,
        "ops": operations,
    }
    names = ("first", "second", "maker/first")
    document = {"device": "none", "workloads": dict.fromkeys(names, recording)}
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def start(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """The demo; what it makes lies in the directory, whose path must be short, as those of sockets."""
    (directory / "tmp").mkdir()
    return subprocess.Popen(
        [
            *FIKITCTL,
            "demo",
            "--own-daemon",
            "--device",
            DEVICE,
            "--output",
            str(directory / "out"),
            *arguments,
        ],
        env=os.environ | {"TMPDIR": str(directory / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def assert_nothing_is_left(directory: Path) -> None:
    assert list((directory / "tmp").iterdir()) == []
    mark = str(directory).encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            assert mark not in (process / "environ").read_bytes(), (process / "cmdline").read_text()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue


def test_the_recorded_workloads(place: Path) -> None:
    with start(place, "--json", "--seconds", "20ms") as demo:
        output, errors = demo.communicate(timeout=DEADLINE_SECONDS)
    assert demo.returncode == 0, errors
    assert re.search(r"four measurements of \d+\.\dms on ", errors)
    document = json.loads(output)
    assert document.keys() == {"device", "alone", "equal", "priority"}
    assert document["device"]
    for phase in ("alone", "equal", "priority"):
        assert document[phase].keys() == FIGURES
        assert all(value > 0 for value in document[phase].values())
    # An iteration was recorded with 13.06 ms, of which the host pauses for 0.24 ms afterwards.
    assert document["alone"]["hp_p50_ms"] > 12
    traces = {path.name for path in (place / "out").iterdir()}
    assert traces == {"alone-llama1b_decode.json", "alone-gpt2_train.json", "equal.json", "priority.json"}
    trace = json.loads((place / "out" / "priority.json").read_text())
    titles = {event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"}
    assert {"(llama1b_decode, high)", "(gpt2_train, low)"} <= {title[title.find("(") :] for title in titles}
    names = {event["name"] for event in trace["traceEvents"]}
    assert any(name.startswith("nvjet_sm90") for name in names)
    assert_nothing_is_left(place)


def test_traces_and_workloads_of_ones_own(place: Path) -> None:
    high = "maker/first"
    traces = small_traces(place / "traces.gz")
    with start(place, "--seconds", "5ms", "--traces", str(traces), "--high", high, "--low", "second") as demo:
        output, errors = demo.communicate(timeout=DEADLINE_SECONDS)
    assert demo.returncode == 0, errors
    lines = output.splitlines()
    assert lines[0].endswith(f": {high} (high) beside second (low)")
    assert (place / "out" / "alone-maker_first.json").is_file()
    assert [line[:14].rstrip() for line in lines[2:]] == ["each alone", "equal priority", "high and low"]
    assert_nothing_is_left(place)


def await_work(demo: subprocess.Popen[str], directory: Path) -> None:
    """Until a tenant's operations have arrived at the daemon."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while demo.poll() is None and time.monotonic() < deadline:
        for path in (directory / "tmp").glob("fikitd-*/fikitd.sock"):
            try:
                with Connection(path) as control:
                    sessions = control.expect(Sessions, ListSessions()).sessions
            except UnreachableError:
                continue
            if any(session.usage.launches > 100 for session in sessions):
                return
        time.sleep(0.02)
    raise AssertionError("no tenant has done anything")


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)])
def test_ctrl_c_ends_it_at_once_and_leaves_nothing(place: Path, number: int, exit_code: int) -> None:
    traces = small_traces(place / "traces.gz")
    arguments = ("--seconds", "1h", "--traces", str(traces), "--high", "first", "--low", "second")
    with start(place, *arguments) as demo:
        await_work(demo, place)
        demo.send_signal(number)
        demo.communicate(timeout=DEADLINE_SECONDS)
    assert demo.returncode == exit_code
    assert_nothing_is_left(place)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["--high", "llama"], 1, "no workload llama"),
        (["--gpu", "64"], 4, "no GPU 64"),
        (["--traces", "/nonexistent"], 1, "does not exist"),
    ],
)
def test_what_there_is_not(place: Path, arguments: list[str], exit_code: int, said: str) -> None:
    with start(place, *arguments) as demo:
        _, errors = demo.communicate(timeout=DEADLINE_SECONDS)
    assert demo.returncode in {exit_code, 2}
    assert said in errors
    assert_nothing_is_left(place)
