"""Following what a job writes, until it is over."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from fikit.protocol import Logs, ReadLogs
from msgspec.structs import replace

from fikitd.api.requests import jobs as requests
from fikitd.api.user import Turn, User
from fikitd.jobs.model import Job
from fikitd.jobs.records import JobRecords


def finished_job() -> Job:
    return Job(
        number=1, tenant="x", uid=7, gid=7, groups=(), name="x", command=["x"], directory="/", priority=5,
        gpu_asked=None, state="finished",
    )  # fmt: skip


async def test_a_job_that_is_looked_at_as_it_should_be_forgotten_is_forgotten_behind_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else may happen for hours: `keep_ended` was exceeded as long."""

    async def taken(jobs: list[Job]) -> dict[int, int]:
        return dict.fromkeys((job.number for job in jobs), 0)

    async def nothing_more(*_: Any) -> int:
        return 0

    processes: Any = SimpleNamespace(taken=taken, room=nothing_more, remove=nothing_more)
    store: Any = SimpleNamespace(write=nothing_more)
    records, job, woken = JobRecords(store, processes), finished_job(), []
    monkeypatch.setattr(records, "wake", lambda: woken.append(True))
    records.keep_ended = lambda: 0
    records.keep(job)
    with records.needed(job):
        with records.needed(job):
            await records.forget()
        assert (list(records.known), woken) == ([1], [])
    assert woken == [True]
    await records.forget()
    assert list(records.known) == []
    with records.needed(job):
        pass
    assert woken == [True]


async def test_who_follows_a_job_that_ends_as_its_output_is_looked_at_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end was waited for from then on, which had been: `logs -f` ended 10 s later."""
    nothing: Any = None
    records = JobRecords(nothing, nothing)
    job = replace(finished_job(), state="running")
    records.keep(job)
    (tmp_path / "jobs" / job.job).mkdir(parents=True)

    def ends(_output: Path) -> int:
        trio.from_thread.run_sync(records.keep, replace(job, state="finished"))
        return 0

    monkeypatch.setattr(requests, "size_of", ends)
    daemon = SimpleNamespace(
        jobs=records, job_of=lambda _peer, _name: job, directories=SimpleNamespace(state=tmp_path)
    )
    caller: Any = SimpleNamespace(daemon=daemon, peer=None, turn=Turn(User()))
    with trio.fail_after(5):
        reply = await requests.read_logs(caller, ReadLogs(job=job.job, follow=True))
    assert isinstance(reply, Logs)
    assert reply.end
