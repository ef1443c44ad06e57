"""``run``: a job in the foreground, with this terminal, this directory, and the command's exit code."""

from __future__ import annotations

import os

import click
from fikit.protocol import JobFinished, JobStarted, Submit, Submitted

from fikitctl.commands.submit import FROM_THE_COMMAND_ON, checked_command, environment_with, work_options
from fikitctl.failures import CommandError, ExitCode
from fikitctl.foreground import Foreground
from fikitctl.invocation import Invocation, lift_deadline, note
from fikitctl.verb import Verb


@click.command(
    cls=Verb,
    answer_seconds=None,
    context_settings=FROM_THE_COMMAND_ON,
    examples=[
        "fikitctl run -- python train.py --epochs 3",
        "fikitctl run --priority high --memory 4G -- python serve.py",
        "fikitctl run --timeout 1m -p low -- ./batch.sh || echo $?",
    ],
)
@work_options
@click.pass_obj
def run(
    invocation: Invocation,
    priority: int,
    gpu: int | None,
    memory: int,
    name: str | None,
    isolate: bool,
    variables: tuple[str, ...],
    command: tuple[str, ...],
) -> int:
    """Run a command as a job in the foreground; its exit code is ours.

    125: fikitd refused it; 126, 127: the command could not be executed, or was not found.
    Signals are passed on. --timeout limits the wait for a place, not the command.
    """
    request = Submit(
        command=checked_command(command),
        environment=environment_with(variables),
        directory=os.getcwd(),
        priority=priority,
        gpu=gpu,
        memory_limit_bytes=memory,
        name=name,
        isolated=isolate,
        foreground=True,
    )
    try:
        return _run(invocation, request)
    except CommandError as failure:
        if failure.exit_code not in (ExitCode.NOT_EXECUTABLE, ExitCode.COMMAND_NOT_FOUND):
            failure.exit_code = ExitCode.RUN_FAILED
        raise


def _run(invocation: Invocation, request: Submit) -> int:
    with invocation.connected() as control:
        submitted: Submitted = control.request(request)
        lift_deadline()
        environment = {**request.environment, **submitted.environment}
        with Foreground() as child:
            try:
                pid = child.start(request.command, environment)
            except CommandError as failure:
                control.request(JobFinished(job=submitted.job.job, exit_code=failure.exit_code))
                raise
            control.request(JobStarted(job=submitted.job.job, pid=pid))
            exit_code = child.wait()
        try:
            control.request(JobFinished(job=submitted.job.job, exit_code=exit_code))
        except OSError as error:  # the command's result stands, whatever became of the daemon
            note(f"the daemon went away meanwhile: {error}")
    return exit_code
