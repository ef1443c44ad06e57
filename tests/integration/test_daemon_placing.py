"""Jobs of several users on two GPUs: who waits for whom, and where what comes goes."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from fikit import protocol as p

from tests.integration.conftest import DEADLINE_SECONDS, SETTINGS, Client, Daemon

NOBODY = 65534
GIB = 1 << 30
AsUser = Callable[[int, Callable[[], str]], str]
Start = Callable[..., Daemon]


@pytest.fixture
def start(stopped_daemon: Daemon) -> Start:
    """Start it with two GPUs of 4 GiB and changed settings."""

    def begin(*changes: tuple[str, str]) -> Daemon:
        settings = SETTINGS
        for before, after in changes:
            assert before in settings
            settings = settings.replace(before, after)
        stopped_daemon.configure(settings=settings)
        return stopped_daemon.start(FIKIT_SIM_DEVICES="2")

    return begin


def submit(client: Client, *gpus: int, memory: int = 0, **more: Any) -> str:
    request = p.Submit(
        command=["/bin/sleep", "1000"], environment={}, directory="/", gpus=list(gpus),
        memory_limit_bytes=memory, **more,
    )  # fmt: skip
    job: str = client.ask(request).job.job
    return job


def shown(client: Client, job: str) -> p.JobRecord:
    record: p.JobRecord = client.ask(p.Show(target=job)).job
    return record


def until_running(client: Client, job: str) -> list[int]:
    """The GPUs that it has."""
    end = time.monotonic() + DEADLINE_SECONDS
    while (now := shown(client, job)).state == "queued":
        assert time.monotonic() < end, now.reason
    assert now.state == "running"
    return now.gpus


def until_waiting(client: Client, job: str) -> str:
    """Why it waits."""
    while not (now := shown(client, job)).reason:
        assert now.state == "queued"
    return now.reason


def end(client: Client, job: str) -> None:
    client.ask(p.Kill(target=job, signal=signal.SIGKILL))
    assert client.ask(p.Wait(job=job)).job.state == "killed"


@pytest.mark.parametrize("gpus", [(), (0, 1)])
def test_who_waits_for_himself_keeps_nobody_else_waiting(
    start: Start, as_user: AsUser, gpus: tuple[int, ...]
) -> None:
    """His other job has all that he may have on the one GPU, and another user has the other GPU."""
    daemon = start(("[tenants.nobody]", f"[tenants.nobody]\nmemory_limit_bytes = {GIB}"))
    client = daemon.client()
    until_running(client, submit(client, 0, memory=4 * GIB))

    def two_jobs() -> str:
        mine = Client(daemon.socket)
        until_running(mine, submit(mine, 1, memory=GIB))
        until_waiting(mine, submit(mine, *gpus, memory=GIB))
        return "one waits"

    assert as_user(NOBODY, two_jobs) == "one waits"
    assert until_running(client, submit(client, 1, memory=GIB)) == [1]


def test_a_job_waits_for_an_executor_that_it_needs_for_itself(start: Start) -> None:
    daemon = start(("[executor]", "[executor]\nmax_per_gpu = 1"))
    client = daemon.client()
    jobs = [submit(client, isolated=True) for _ in range(3)]
    assert sorted(until_running(client, job)[0] for job in jobs[:2]) == [0, 1]
    assert "already has 1 executors" in until_waiting(client, jobs[2])
    opened = [client.ask(p.OpenSession(name="own", job=job)) for job in jobs[:2]]
    assert [type(each) for each in opened] == [p.SessionOpened] * 2
    end(client, jobs[1])
    until_running(client, jobs[2])
    assert type(client.ask(p.OpenSession(name="own", job=jobs[2]))) is p.SessionOpened


def test_a_session_goes_where_an_executor_can_serve_it(start: Start) -> None:
    """Though the other GPU has more memory."""
    client = start(("[executor]", "[executor]\nmax_per_gpu = 2")).client()

    def isolated(memory: int, gpu: int | None = None) -> int:
        asked = p.OpenSession(name="one", isolated=True, gpu=gpu, memory_limit_bytes=memory)
        return int(client.ask(asked).gpu)

    assert [isolated(1, 0), isolated(1, 0), isolated(3 * GIB, 1)] == [0, 0, 1]
    assert isolated(1) == 1


def test_an_executor_that_is_full_has_others_go_elsewhere_or_wait(start: Start) -> None:
    daemon = start(("[profiles]", "[tenant_defaults]\nmax_sessions = 256\n[profiles]"))
    client = daemon.client()
    for _ in range(64):
        assert isinstance(client.ask(p.OpenSession(name="any", gpu=0)), p.SessionOpened)
    refused = client.ask(p.OpenSession(name="any", gpu=0))
    assert (refused.code, refused.message) == (
        "quota",
        "your executor on GPU 0 has 64 sessions, the most one takes",
    )
    assert isinstance(client.ask(p.OpenSession(name="alone", gpu=0, isolated=True)), p.SessionOpened)
    client.ask(p.OpenSession(name="elsewhere"))
    job = submit(client, 0)
    assert until_waiting(client, job) == refused.message
    first, *_ = (each for each in client.ask(p.ListSessions()).sessions if each.name == "any")
    client.ask(p.Kill(target=first.session))
    assert until_running(client, job) == [0]
    gpus = {each.name: each.gpu for each in client.ask(p.ListSessions()).sessions}
    assert gpus == {"any": 0, "alone": 0, "elsewhere": 1}


def test_a_job_has_its_session_on_each_of_its_gpus(start: Start, as_user: AsUser) -> None:
    """Also once it has begun to use one of them: nobody else takes its place on the others."""
    daemon = start(("[device]", "[device]\nmax_sessions = 1"))
    client = daemon.client()
    both = submit(client, 0, 1)
    until_running(client, both)
    assert client.ask(p.OpenSession(name="first", job=both, gpu=0)).gpu == 0

    def other() -> str:
        return str(Client(daemon.socket).ask(p.OpenSession(name="other", gpu=1)).message)

    assert as_user(NOBODY, other) == "GPU 1 has 1 sessions, the most it may have"
    assert client.ask(p.OpenSession(name="second", job=both, gpu=1)).gpu == 1


def test_a_program_sees_what_its_users_other_programs_have_of_his_limit(start: Start) -> None:
    """As cuMemGetInfo does, also in a job that has no limit of its own, or more than is left."""
    most = 3 << 19
    client = start(
        ("[tenants.nobody]", f"[tenant_defaults]\nmemory_limit_bytes = {most}\n[tenants.nobody]")
    ).client()
    session = client.ask(p.OpenSession(name="busy", gpu=0)).session  # it uses 1 MiB
    while client.ask(p.Show(target=session)).session.usage.memory_bytes == 0:
        pass

    def seen(job: str) -> tuple[int, int]:
        until_running(client, job)
        (gpu,) = client.ask(p.ListVisibleGpus(job=job)).gpus
        return gpu.memory_bytes, gpu.memory_bytes - gpu.memory_used_bytes

    assert seen(submit(client, 0)) == (most, 1 << 19)
    assert seen(submit(client, 0, memory=1 << 20)) == (1 << 20, 1 << 19)
    assert seen(submit(client, 0, memory=1 << 18)) == (1 << 18, 1 << 18)


def test_what_a_job_uses_of_what_it_has_reserved_counts_once(start: Start) -> None:
    client = start().client()
    job = submit(client, 0, memory=1 << 20)
    until_running(client, job)
    session = client.ask(p.OpenSession(name="busy", job=job)).session  # it uses 1 MiB
    while client.ask(p.Show(target=session)).session.usage.memory_bytes == 0:
        pass
    until_running(client, submit(client, 1, memory=3 << 19))
    assert client.ask(p.OpenSession(name="next")).gpu == 0
