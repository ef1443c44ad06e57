"""A daemon with two GPUs: what hangs, fails or is taken on one harms nobody on the other."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fikit import protocol as p
from msgspec.structs import replace

from tests.integration.conftest import DOUBLE, REAL, Client, Daemon

SOON_SECONDS = 5.0
"""An executor that does not answer is waited for for ten seconds."""


@pytest.fixture
def start(stopped_daemon: Daemon) -> Callable[..., Daemon]:
    """Start it with two GPUs and settings for executors."""

    def begin(settings: str = "unresponsive_seconds = 3600.0") -> Daemon:
        text = stopped_daemon.config.read_text()
        stopped_daemon.configure(settings=text.replace("[executor]", f"[executor]\n{settings}"))
        return stopped_daemon.start(FIKIT_SIM_DEVICES="2")

    return begin


def until(events: Client, **wished: Any) -> p.Event:
    """The next event that is so."""
    while True:
        event: p.Event = events.receive()[1]
        if all(getattr(event, name) == value for name, value in wished.items()):
            return event


def running_job(client: Client, events: Client, gpus: list[int]) -> str:
    request = p.Submit(command=["/bin/sleep", "1000"], environment={}, directory="/", gpus=gpus)
    job: str = client.ask(request).job.job
    until(events, kind="job_started", job=job)
    return job


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def executor_of(events: Client, gpu: int) -> int:
    """The process of the one that is about to be told of."""
    return int(until(events, kind="executor_started", gpu=gpu).detail["pid"])


def test_a_job_is_changed_wherever_its_executors_answer(start: Callable[..., Daemon]) -> None:
    daemon = start()
    client, events = daemon.client(), daemon.client()
    events.subscribe()
    job = running_job(client, events, [1, 0])
    hangs = executor_of(events, 1)
    sessions = [client.ask(p.OpenSession(name="x", job=job, gpu=gpu)).session for gpu in (1, 0)]
    with stopped(hangs):
        paused = client.send(p.Pause(target=job))
        until(events, kind="session_paused", session=sessions[1])
    assert client.receive() == (paused, p.Done())
    with stopped(hangs):
        changed = client.send(p.SetPriority(target=job, priority=9))
        until(events, kind="session_priority", session=sessions[1])
    assert client.receive() == (changed, p.Done())
    found = [client.ask(p.Show(target=each)).session for each in sessions]
    assert [(each.state, each.priority) for each in found] == [("paused", 9)] * 2


def test_a_program_waits_for_no_executor_of_a_gpu_that_it_does_not_see(start: Callable[..., Daemon]) -> None:
    daemon = start()
    client, events = daemon.client(), daemon.client()
    events.subscribe()
    client.ask(p.OpenSession(name="hangs", gpu=1))
    with stopped(executor_of(events, 1)):
        job = running_job(client, events, [0])
        client.socket.settimeout(SOON_SECONDS)
        assert [each.index for each in client.ask(p.ListVisibleGpus(job=job)).gpus] == [0]


def test_a_program_waits_for_no_executor_of_another_user(
    start: Callable[..., Daemon], as_user: Callable[[int, Callable[[], str]], str]
) -> None:
    """Though it is asked what is free on the GPU."""
    daemon = start()
    client, events = daemon.client(), daemon.client()
    events.subscribe()
    client.ask(p.OpenSession(name="hangs", gpu=1))

    def look() -> str:
        mine = Client(daemon.socket)
        mine.socket.settimeout(SOON_SECONDS)
        return str([each.index for each in mine.ask(p.ListVisibleGpus()).gpus])

    with stopped(executor_of(events, 1)):
        assert as_user(65534, look) == "[0, 1]"


def test_an_executor_that_is_known_not_to_answer_is_not_waited_for(start: Callable[..., Daemon]) -> None:
    daemon = start("unresponsive_seconds = 0.1\nkill_unresponsive = false")
    client, events = daemon.client(), daemon.client()
    events.subscribe()
    client.ask(p.OpenSession(name="hangs", gpu=1))
    with stopped(executor_of(events, 1)):
        until(events, kind="executor_unresponsive", gpu=1)
        client.socket.settimeout(SOON_SECONDS)
        assert [each.index for each in client.ask(p.ListVisibleGpus()).gpus] == [0, 1]


@pytest.fixture
def broken(stopped_daemon: Daemon) -> Path:
    """While this file is there no executor starts on GPU 1."""
    if REAL:
        pytest.skip("starts executors with a command of its own")
    broken = stopped_daemon.place / "broken"
    broken.touch()
    command = stopped_daemon.place / "executor"
    refusing = f'case "$*" in *"--gpu 1 "*) test ! -e {broken} || {{ echo it is lost >&2; exit 1; }};; esac'
    command.write_text(f'#!/bin/sh\n{refusing}\nexec {sys.executable} {DOUBLE} "$@"\n')
    command.chmod(0o755)
    double = f"command = [{sys.executable!r}, {str(DOUBLE)!r}]"
    text = stopped_daemon.config.read_text().replace(double, f"command = [{str(command)!r}]")
    stopped_daemon.configure(settings=text)
    stopped_daemon.prologue = "import fikitd.executor.supervisor as s; s.TRY_AGAIN_SECONDS = 0\n"
    return broken


def submitted(client: Client, memory: int, **more: Any) -> str:
    request = p.Submit(command=["/bin/sleep", "1000"], environment={}, directory="/", **more)
    job: str = client.ask(replace(request, memory_limit_bytes=memory)).job.job
    return job


def test_a_gpu_where_no_executor_starts_attracts_no_work(stopped_daemon: Daemon, broken: Path) -> None:
    """It has the most room, as nothing stays there."""
    daemon = stopped_daemon.start(FIKIT_SIM_DEVICES="2")
    client, events = daemon.client(), daemon.client()
    events.subscribe()

    def gpu_of_a_job(memory: int = 0, **more: Any) -> list[int]:
        job = submitted(client, memory, **more)
        until(events, kind="job_started", job=job)
        gpus: list[int] = client.ask(p.Show(target=job)).job.gpus
        return gpus

    assert gpu_of_a_job(memory=1 << 30, gpus=[0]) == [0]
    assert gpu_of_a_job() == [1]  # nobody knows yet
    until(events, kind="executor_ended", gpu=1)
    assert gpu_of_a_job(memory=1 << 20) == [0]
    checks = {each.name: each for each in client.ask(p.Doctor()).checks}
    assert (checks["gpu 0"].ok, checks["gpu 1"].ok) == (True, False)
    assert "its latest executor did not start: its process has ended" in checks["gpu 1"].detail
    until(events, kind="executor_ended", gpu=1)  # it was tried again
    broken.unlink()
    assert gpu_of_a_job() == [0]
    while client.ask(p.GetStatus()).gpus[1].executors == 0:  # and again
        pass
    assert gpu_of_a_job() == [1]


def test_no_queue_is_spent_on_a_gpu_where_no_executor_starts(stopped_daemon: Daemon, broken: Path) -> None:
    """Its jobs would fail there, one after another, while the others' GPU is full."""
    stopped_daemon.prologue += "import fikitd.jobs.jobs as j; j.LOOK_AGAIN_SECONDS = 0.05\n"
    daemon = stopped_daemon.start(FIKIT_SIM_DEVICES="2")
    client, events = daemon.client(), daemon.client()
    events.subscribe()
    until(events, kind="job_started", job=submitted(client, 4 << 30, gpus=[0]))
    until(events, kind="job_started", job=submitted(client, 1 << 30))
    until(events, kind="executor_ended", gpu=1)
    waits = submitted(client, 1 << 30)
    until(events, kind="executor_ended", gpu=1)  # it was tried again
    assert client.ask(p.Show(target=waits)).job.state == "queued"
    broken.unlink()
    until(events, kind="job_started", job=waits)
    assert client.ask(p.Show(target=waits)).job.gpus == [1]


def test_jobs_wait_for_a_gpu_where_no_executor_starts(stopped_daemon: Daemon, broken: Path) -> None:
    """One after another would be started there, and fail; who needs no such GPU waits for none of them."""
    stopped_daemon.prologue += "import fikitd.jobs.jobs as j; j.LOOK_AGAIN_SECONDS = 0.05\n"
    daemon = stopped_daemon.start(FIKIT_SIM_DEVICES="2")
    client, events = daemon.client(), daemon.client()
    events.subscribe()
    until(events, kind="job_started", job=submitted(client, 0, gpus=[1]))  # nobody knows yet
    until(events, kind="executor_ended", gpu=1)
    waits = [submitted(client, 0, gpus=gpus) for gpus in ([1], [0, 1])]
    until(events, kind="job_started", job=submitted(client, 0, gpus=[0]))
    for job in waits:
        while (now := client.ask(p.Show(target=job)).job).reason == "" and now.state == "queued":
            pass
        assert (now.state, now.reason) == ("queued", "no executor starts on GPU 1")
    assert [each.failing for each in client.ask(p.GetStatus()).gpus] == [False, True]
    assert 'fikit_gpu_failing{gpu="1"} 1.0' in client.ask(p.ReadMetrics()).text
    finding = next(each for each in client.ask(p.Doctor()).checks if each.name == "gpu 1")
    assert (finding.ok, finding.detail.endswith("did not start: its process has ended\n  it is lost")) == (
        False,
        True,
    )
    broken.unlink()
    for job in waits:
        until(events, kind="job_started", job=job)
    assert not any(each.failing for each in client.ask(p.GetStatus()).gpus)
    assert 'fikit_gpu_failing{gpu="1"} 0.0' in client.ask(p.ReadMetrics()).text


def test_what_fails_for_once_is_tried_again_at_once(stopped_daemon: Daemon, broken: Path) -> None:
    """As an executor that finds no memory just then: jobs are not kept for a minute by that."""
    stopped_daemon.prologue = ""
    command = stopped_daemon.place / "executor"
    command.write_text(command.read_text().replace("exit 1", f"rm {broken}; exit 1"))
    daemon = stopped_daemon.start(FIKIT_SIM_DEVICES="2")
    client, events = daemon.client(), daemon.client()
    events.subscribe()
    until(events, kind="job_started", job=submitted(client, 0, gpus=[1]))
    until(events, kind="executor_ended", gpu=1)
    until(events, kind="job_started", job=submitted(client, 0, gpus=[1]))


def test_it_is_tried_again_for_who_has_an_executor_there(stopped_daemon: Daemon, broken: Path) -> None:
    """His own says nothing of the next; his jobs waited for as long as he had it."""
    stopped_daemon.prologue += "import fikitd.jobs.jobs as j; j.LOOK_AGAIN_SECONDS = 0.05\n"
    broken.unlink()
    daemon = stopped_daemon.start(FIKIT_SIM_DEVICES="2")
    client, events = daemon.client(), daemon.client()
    events.subscribe()
    client.ask(p.OpenSession(name="first", gpu=1))
    broken.touch()
    assert isinstance(client.ask(p.OpenSession(name="alone", gpu=1, isolated=True)), p.Failure)
    waits = submitted(client, 0, gpus=[1])
    while client.ask(p.Show(target=waits)).job.reason != "no executor starts on GPU 1":
        pass
    broken.unlink()
    until(events, kind="job_started", job=waits)
    while client.ask(p.GetStatus()).gpus[1].executors != 1:  # nobody uses what told
        pass


def test_a_gpu_whose_executor_has_failed_attracts_no_work_until_another_serves(
    stopped_daemon: Daemon, broken: Path
) -> None:
    """It may have fallen off the bus."""
    broken.unlink()
    daemon = stopped_daemon.start(FIKIT_SIM_DEVICES="2")
    client, events = daemon.client(), daemon.client()
    events.subscribe()
    until(events, kind="job_started", job=submitted(client, 1 << 30, gpus=[0]))
    client.ask(p.OpenSession(name="first", gpu=1))
    executor = until(events, kind="executor_started", gpu=1)
    broken.touch()
    os.kill(executor.detail["pid"], signal.SIGKILL)
    until(events, kind="executor_ended", gpu=1)
    job = submitted(client, 1 << 20)
    until(events, kind="job_started", job=job)
    assert client.ask(p.Show(target=job)).job.gpus == [0]
    finding = next(each for each in client.ask(p.Doctor()).checks if each.name == "gpu 1")
    assert (finding.ok, "its latest executor " in finding.detail) == (False, True)
    broken.unlink()
    while client.ask(p.GetStatus()).gpus[1].executors == 0:
        job = submitted(client, 1 << 20)
        until(events, kind="job_started", job=job)
    job = submitted(client, 1 << 20)
    until(events, kind="job_started", job=job)
    assert client.ask(p.Show(target=job)).job.gpus == [1]


def test_an_executor_that_fails_is_followed_by_another_in_its_place(start: Callable[..., Daemon]) -> None:
    daemon = start("max_per_gpu = 1")
    client, events = daemon.client(), daemon.client()
    events.subscribe()
    client.ask(p.OpenSession(name="first", gpu=1))
    os.kill(executor_of(events, 1), signal.SIGKILL)
    assert executor_of(events, 1)
    while client.ask(p.GetStatus()).gpus[1].executors == 0:
        pass
    assert next(each.ok for each in client.ask(p.Doctor()).checks if each.name == "gpu 1")


def test_a_job_that_needs_several_gpus_gets_them(start: Callable[..., Daemon]) -> None:
    """Others, each on one of them in turn, would keep it waiting for ever."""
    client = start().client()

    def submit(*gpus: int, memory: int = 3 << 30) -> str:
        command = ["/bin/sleep", "1000"]
        asked = p.Submit(
            command=command, environment={}, directory="/", gpus=list(gpus), memory_limit_bytes=memory
        )
        job: str = client.ask(asked).job.job
        return job

    def end(job: str) -> None:
        client.ask(p.Kill(target=job, signal=signal.SIGKILL))
        assert client.ask(p.Wait(job=job)).job.state == "killed"

    def until_running(job: str) -> None:
        while client.ask(p.Show(target=job)).job.state == "queued":
            pass

    first = submit(0)
    until_running(first)
    both, second, small = submit(0, 1), submit(1), submit(memory=1 << 20)
    end(first)
    until_running(both)
    assert client.ask(p.Show(target=second)).job.state == "queued"
    end(both)
    until_running(second)
    until_running(small)
    started = [client.ask(p.Show(target=job)).job.started_unix for job in (both, small)]
    assert started == sorted(started)
