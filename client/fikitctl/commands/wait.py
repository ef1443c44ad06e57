"""``wait``: until jobs are over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import click
from fikit.control import MOST_RESTARTS, Connection
from fikit.errors import UnreachableError
from fikit.protocol import JobRecord, Wait

from fikitctl.failures import ExitCode
from fikitctl.invocation import Invocation, successor
from fikitctl.output import print_json
from fikitctl.tables import Column, Layout, layout_options, table
from fikitctl.targets import JOB
from fikitctl.verb import Verb

_AT_A_TIME: Final = 60
"""A connection may have 64 requests outstanding."""
_OVER: Final = ("finished", "failed", "killed", "lost")


def wait_columns() -> list[Column]:
    """What can be printed of a job that is over."""
    return [
        Column("id", lambda job: job.job),
        Column("state", lambda job: job.state),
        Column("exit", lambda job: "-" if job.exit_code is None else str(job.exit_code), right=True),
        Column("reason", lambda job: job.reason or "-"),
    ]


@click.command(
    cls=Verb,
    answer_seconds=None,
    examples=[
        "fikitctl wait job-12",
        "fikitctl wait --timeout 10m job-12 job-13 && echo both are done",
        "fikitctl wait --no-header --format exit job-12",
    ],
)
@click.argument("jobs", type=JOB, nargs=-1, required=True)
@layout_options(wait_columns())
@click.pass_obj
def wait(invocation: Invocation, jobs: tuple[str, ...], layout: Layout) -> int:
    """Wait until jobs are over, also while the daemon is replaced.

    Exits with 0 when all of them succeeded, else with 1.
    With --json: one job record per line, as each is over.
    """
    ended: dict[str, JobRecord] = {}
    with invocation.connected() as control:
        for job, record in _over_restarts(control, jobs):
            ended[job] = record
            if invocation.as_json:
                print_json(record)
    if not invocation.as_json:
        click.echo(table(wait_columns(), [ended[job] for job in jobs], layout), nl=False)
    succeeded = all(job.state == "finished" and not job.exit_code for job in ended.values())
    return ExitCode.DONE if succeeded else ExitCode.REFUSED


def _over_restarts(
    control: Connection, jobs: Iterable[str], most: int = MOST_RESTARTS
) -> Iterator[tuple[str, JobRecord]]:
    """Each job once, when it is over. They outlive their daemon; the next one knows how they end."""
    left = dict.fromkeys(jobs)
    try:
        for job, record in _as_they_end(control, left):
            del left[job]
            yield job, record
    except UnreachableError:
        if most == 0:
            raise
        with successor(control.path) as following:
            yield from _over_restarts(following, left, most - 1)


def _as_they_end(control: Connection, jobs: Iterable[str]) -> Iterator[tuple[str, JobRecord]]:
    """Each of them, when it is over."""
    left = list(jobs)
    asked: dict[int, str] = {}
    while left or asked:
        while left and len(asked) < _AT_A_TIME:
            job = left.pop(0)
            asked[control.send(Wait(job=job))] = job
        identifier, waited = control.receive_first(asked)
        job = asked.pop(identifier)
        if waited.job.state in _OVER:
            yield job, waited.job
        else:
            left.append(job)
