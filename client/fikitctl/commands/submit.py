"""``submit``: hand a command to the daemon, which runs it as soon as there is room."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

import click
from fikit.protocol import JobRecord, Submitted, Wait, Waited

from fikitctl.failures import CommandError
from fikitctl.invocation import Invocation, is_terminal, note
from fikitctl.job_options import FROM_THE_COMMAND_ON, JobOptions, directory_names, takes_job_options
from fikitctl.output import print_json
from fikitctl.quantities import OUTPUT_LIMIT
from fikitctl.verb import Verb

_LOOK_MS: Final = 50
_LOOKS: Final = 20


@click.command(
    cls=Verb,
    answer_seconds=30,
    context_settings=FROM_THE_COMMAND_ON,
    examples=[
        "fikitctl submit --priority high -- python serve.py --port 8000",
        "fikitctl submit -p low -m 8G --name nightly -- python train.py",
        "fikitctl submit --gpus 0,1 -- torchrun --nproc-per-node 2 train.py",
        "fikitctl wait $(fikitctl submit -- ./sweep.sh)",
    ],
)
@takes_job_options
@click.option(
    "-C",
    "--directory",
    type=click.Path(readable=False),
    shell_complete=directory_names,
    help="Run it there instead of here.",
)
@click.option("--output-limit", type=OUTPUT_LIMIT, help="Keep this much of each output; else all it may.")
@click.pass_obj
def submit(invocation: Invocation, job: JobOptions, directory: str | None, output_limit: int | None) -> None:
    """Run a command as a job in the background; prints its identifier.

    --timeout limits the wait for the daemon, not the command: submit -- timeout 2h COMMAND does that. One
    after another: wait job-1 && submit -- COMMAND.
    """
    submitted: Submitted = invocation.request(
        job.request(invocation, directory, output_limit_bytes=output_limit or 0, umask=own_umask())
    )
    try:
        if invocation.as_json:
            print_json(submitted.job)
            return
        click.echo(submitted.job.job)
    except OSError as error:  # it runs all the same, and who called us would submit it again
        error.add_note(f"the job was submitted: {submitted.job.job}")
        raise
    if is_terminal() and (reason := why_it_waits(invocation, submitted.job)):
        note(f"queued: {reason}")


def why_it_waits(invocation: Invocation, job: JobRecord) -> str:
    """Once the daemon has looked for a place; empty for a job that starts, as where there is room."""
    with suppress(CommandError), invocation.connected() as control:
        for _ in range(_LOOKS):
            if job.state != "queued" or job.reason:
                break
            waited: Waited = control.request(Wait(job=job.job, wait_ms=_LOOK_MS))
            job = waited.job
    return job.reason if job.state == "queued" else ""


def own_umask() -> int:
    """Ours; the only way to read it is to set it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
