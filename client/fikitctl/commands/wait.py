"""``wait``: until jobs are over."""

from __future__ import annotations

from typing import Final

import click
from fikit.protocol import JobRecord, Wait, Waited

from fikitctl.failures import ExitCode
from fikitctl.invocation import Invocation
from fikitctl.output import print_json
from fikitctl.tables import Column, Layout, layout_options, table
from fikitctl.targets import JOB
from fikitctl.verb import Verb

_OVER: Final = ("finished", "failed", "killed", "lost")
_COLUMNS: Final = [
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
@layout_options
@click.pass_obj
def wait(
    invocation: Invocation, jobs: tuple[str, ...], names: str | None, no_header: bool, quiet: bool
) -> int:
    """Wait until jobs are over.

    Exits with 0 when all of them succeeded, else with 1.
    With --json: one job record per line, as each is over.
    """
    ended: list[JobRecord] = []
    with invocation.connected() as control:
        for job in jobs:
            waited: Waited = control.request(Wait(job=job))
            while waited.job.state not in _OVER:
                waited = control.request(Wait(job=job))
            ended.append(waited.job)
            if invocation.as_json:
                print_json(waited.job)
    if not invocation.as_json:
        click.echo(table(_COLUMNS, ended, Layout(names, not no_header, quiet)), nl=False)
    succeeded = all(job.state == "finished" and not job.exit_code for job in ended)
    return ExitCode.DONE if succeeded else ExitCode.REFUSED
