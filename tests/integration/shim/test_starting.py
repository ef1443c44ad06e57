"""Who opens a session waits as long as the daemon lets its executor start, and never without an end."""

from __future__ import annotations

import json
import math
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fikit import protocol as p
from fikit.unmodified import variables

from tests.integration.end_to_end.conftest import SETTINGS, Served
from tests.integration.shim.conftest import outcome

START_SECONDS = 1000
PATIENT = f"""
import os, socket, fikit
class Watched(socket.socket):
    def settimeout(self, seconds):
        if seconds is not None and seconds > {START_SECONDS}:
            open(os.environ["MAY_START"], "w").close()
        super().settimeout(seconds)
socket.socket = Watched
fikit.connect().close()
print("served")
"""


@pytest.mark.parametrize("unmodified", [True, False])
def test_an_executor_may_take_as_long_as_is_set(
    stopped_daemon: Served, build: Callable[..., str], tmp_path: Path, unmodified: bool
) -> None:
    """It starts once it is waited for as long as that: no machine is too slow for this test."""
    may_start = tmp_path / "may start"
    held = 'until [ -e "$0" ]; do sleep 0.05; done; exec "$@"'
    command = ["/bin/sh", "-c", held, str(may_start), sys.executable, "-P", "-m", "fikitd.executor"]
    chosen = f"[executor]\ncommand = {json.dumps(command)}\nstart_seconds = {START_SECONDS}"
    stopped_daemon.configure(settings=SETTINGS.replace("[executor]", chosen))
    place = str(stopped_daemon.start().socket)
    program = [build("starting", "-rdynamic")] if unmodified else [sys.executable, "-P", "-c", PATIENT]
    found = variables(place, os.environ) if unmodified else {"FIKIT_SOCKET": place}
    told = {"MAY_START": str(may_start), "PATIENCE": f"{START_SECONDS}000", "SILENT": str(tmp_path / "no")}
    assert outcome(program, {**found, **told}) == (0, "served\n", "")


def test_a_daemon_is_waited_for_anew_after_a_pause_of_the_machine(
    daemon: Served, build: Callable[..., str]
) -> None:
    found = variables(str(daemon.socket), os.environ)
    assert outcome([build("paused", "-rdynamic")], found) == (0, "served\n", "")


GPU = p.VisibleGpu(
    index=0, name="g", uuid=f"GPU-{0:032x}", pci="0000:01:00.0", compute_capability=90, driver_version="580",
    memory_bytes=1 << 30, memory_used_bytes=0, nvidia_driver=False, processes=[],
)  # fmt: skip


class Liar:
    """Greets, shows a GPU, and opens no session."""

    def __init__(self, place: Path, start: dict[str, Any], gpus: list[p.VisibleGpu]) -> None:
        self.gpus = gpus
        self.silent = place / "silent"
        self.path = place / "s"
        self.start = start
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(self.path))
        self.listening.listen()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        while True:
            with self.listening.accept()[0] as peer:
                decoder = p.Decoder(p.AnyRequest)
                while data := peer.recv(65536):
                    decoder.feed(data)
                    for number, request in decoder.frames():
                        match request:
                            case p.Hello(client="end"):
                                return
                            case p.Hello():
                                welcome = {"type": "welcome", **self.start}
                                peer.sendall(msgspec.msgpack.encode({"id": number, "body": welcome}))
                            case p.ListVisibleGpus():
                                peer.sendall(p.encode(number, p.VisibleGpus(gpus=self.gpus)))
                            case _:
                                self.silent.touch()

    def end(self) -> None:
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(self.path))
            last.sendall(p.encode(1, p.Hello(version=1, client="end")))
            self.thread.join()
        self.listening.close()


@pytest.fixture
def lies(tmp_path: Path) -> Iterator[Callable[..., Liar]]:
    liars: list[Liar] = []

    def start(told: dict[str, Any], gpus: list[p.VisibleGpu] | None = None) -> Liar:
        liars.append(Liar(tmp_path, told, gpus or [GPU]))
        return liars[-1]

    yield start
    for liar in liars:
        liar.end()


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ({"start_seconds": 7}, 7),
        ({}, 60),
        ({"start_seconds": 1 << 63}, 3600),
        ({"start_seconds": (1 << 64) - 1}, 3600),
        ({"start_seconds": -1}, 60),
        ({"start_seconds": math.nan}, 60),
        ({"start_seconds": math.inf}, 60),
        ({"start_seconds": 1e300}, 60),
        ({"start_seconds": "long"}, 60),
        ({"start_seconds": None}, 60),
    ],
)
def test_a_daemon_that_hangs_is_left_whatever_it_has_said(
    lies: Callable[..., Liar], build: Callable[..., str], told: dict[str, Any], seconds: int
) -> None:
    liar = lies(told)
    found = {**variables(str(liar.path), os.environ), "SILENT": str(liar.silent), "FIKIT_SHIM_LOG": "-"}
    code, output, errors = outcome([build("starting", "-rdynamic")], found)
    assert (code, output) == (1, f"{output.split(':')[0]}: cuDevicePrimaryCtxRetain(&context, 0): 802\n")
    waited = [line for line in errors.splitlines() if line.startswith("waits")]
    assert waited == [f"waits {seconds + 60} s"], errors
    reason = f"no session_opened within {seconds + 60} s, of which it lets an executor start for {seconds}"
    assert reason in errors


def test_a_user_may_have_as_many_processes_as_is_set(lies: Callable[..., Liar]) -> None:
    """What tells of the GPUs tells of the processes on each, too."""
    many = [p.VisibleProcess(pid=1 << 20, memory_bytes=1 << 34)] * 250
    liar = lies({}, [msgspec.structs.replace(GPU, index=index, processes=many) for index in range(8)])
    text = "from cuda.bindings import driver\nimport pynvml\npynvml.nvmlInit()\n"
    text += "listed = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(0))\n"
    text += "print(driver.cuInit(0)[0].name, len(listed))"
    found = variables(str(liar.path), os.environ)
    assert outcome([sys.executable, "-c", text], found) == (0, "CUDA_SUCCESS 250\n", "")


def test_a_daemon_that_accepts_nobody_is_not_waited_for_for_ever(
    build: Callable[..., str], tmp_path: Path
) -> None:
    place = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listening, ExitStack() as waiting:
        listening.bind(place)
        listening.listen(0)
        first = waiting.enter_context(socket.socket(socket.AF_UNIX))
        first.connect(place)  # the queue takes one
        found = {**variables(place, os.environ), "SILENT": place, "FIKIT_SHIM_LOG": "-"}
        code, output, errors = outcome([build("starting", "-rdynamic")], found)
    assert (code, output.split(": ")[1:]) == (1, ["cuInit(0)", "802\n"])
    assert "connects within 60 s" in errors
    assert f"no fikitd answers at {place}: Connection timed out" in errors


def test_who_may_not_connect_waits_for_no_other_daemon(build: Callable[..., str], tmp_path: Path) -> None:
    """Only as long as one that starts may take to let others in."""
    found = {**variables(str(tmp_path / "s"), os.environ), "FIKIT_JOB": "j-1", "FIKIT_SHIM_LOG": "-"}
    code, output, errors = outcome([build("denied", "-rdynamic")], found)
    assert (code, output) == (0, "802 after a moment\n")
    assert "Permission denied" in errors
