"""``submit``: hand a command to the daemon, which runs it as soon as there is room."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, Literal

import click
from fikit import unmodified
from fikit.protocol import Submit, Submitted

from fikitctl.failures import refused
from fikitctl.invocation import Invocation, is_terminal, note
from fikitctl.output import print_json
from fikitctl.quantities import GPUS, PRIORITY, SIZE, parse_gpus
from fikitctl.verb import Verb

FROM_THE_COMMAND_ON = {"allow_interspersed_args": False}
"""Options after the command's name are the command's own."""


def work_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What ``submit`` and ``run`` both take."""
    options = (
        click.option(
            "-p", "--priority", type=PRIORITY, default="normal", show_default=True,
            help="high, normal, low, or 0 (highest) to 9.",
        ),
        click.option(
            "-g", "--gpus", "--gpu", type=GPUS, default="", metavar="N,...|all",
            help="Which GPUs it sees, in this order; else one that the daemon chooses.",
        ),
        click.option("-m", "--memory", type=SIZE, default="0", help="Memory limit on each GPU: 8G, 512M."),
        click.option("-n", "--name", help="A name to show; else the command's."),
        click.option("--isolate", is_flag=True, help="Share no CUDA context with other work."),
        click.option("-e", "--env", "variables", multiple=True, metavar="NAME=VALUE", help="Set a variable."),
        click.option(
            "--own-driver", is_flag=True, help="Let it load the driver's libcuda.so.1 instead of fikitd's."
        ),
        click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def environment_with(invocation: Invocation, variables: Iterable[str], own_driver: bool) -> dict[str, str]:
    """Our environment, fikitd's libcuda.so.1 in front, and ``variables``.

    What is not text cannot travel and is left out, with a note.
    """
    environment = dict(os.environ)
    if not own_driver:
        try:
            environment |= unmodified.variables(invocation.path, environment)
        except FileNotFoundError as error:
            raise refused(str(error), "or run it with --own-driver") from None
    for variable in variables:
        name, equals, value = variable.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{variable!r} is not NAME=VALUE", param_hint="--env")
        environment[name] = value
    unsendable = [name for name, value in environment.items() if not _is_text(name + value)]
    for name in unsendable:
        del environment[name]
        note(f"variable {name!r} is not UTF-8 and was left out")
    return environment


def gpus_with(gpus: list[int] | Literal["all"], environment: dict[str, str]) -> list[int] | Literal["all"]:
    """What ``--gpus`` says; else what our own CUDA_VISIBLE_DEVICES does, by the machine's numbers.

    In the job's environment it would count the job's GPUs, so there it is left out then.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if gpus or not visible or environment.get("CUDA_VISIBLE_DEVICES") != visible:
        return gpus
    try:
        gpus = parse_gpus(visible)
    except ValueError:
        return gpus
    del environment["CUDA_VISIBLE_DEVICES"]
    return gpus


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def absolute(directory: str | None) -> str:
    """A directory as the daemon needs it; none: the current one."""
    if directory is not None and os.path.isabs(directory):
        return os.path.normpath(directory)
    return os.path.normpath(os.path.join(here(), directory or ""))


def here() -> str:
    """The current directory."""
    try:
        return os.getcwd()
    except OSError as error:
        raise refused(f"the current directory: {error.strerror}", "go to another one") from None


def checked_command(command: tuple[str, ...]) -> list[str]:
    """The command, if it can travel."""
    if not all(_is_text(word) for word in command):
        raise click.BadParameter("the command is not UTF-8", param_hint="COMMAND")
    return list(command)


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
@work_options
@click.option("-C", "--directory", type=click.Path(), help="Run it there instead of here.")
@click.option("--output-limit", type=SIZE, default="0", help="Keep this much of its output.")
@click.pass_obj
def submit(
    invocation: Invocation,
    priority: int,
    gpus: list[int] | Literal["all"],
    memory: int,
    name: str | None,
    isolate: bool,
    variables: tuple[str, ...],
    own_driver: bool,
    command: tuple[str, ...],
    directory: str | None,
    output_limit: int,
) -> None:
    """Run a command as a job in the background; prints its identifier."""
    environment = environment_with(invocation, variables, own_driver)
    submitted: Submitted = invocation.request(
        Submit(
            command=checked_command(command),
            environment=environment,
            directory=absolute(directory),
            priority=priority,
            gpus=gpus_with(gpus, environment),
            memory_limit_bytes=memory,
            name=name,
            isolated=isolate,
            output_limit_bytes=output_limit,
        )
    )
    if invocation.as_json:
        print_json(submitted.job)
        return
    click.echo(submitted.job.job)
    if submitted.job.state == "queued" and is_terminal():
        note(f"queued: {submitted.job.reason or 'waiting for room'}")
