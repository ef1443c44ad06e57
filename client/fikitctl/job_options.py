"""What ``submit``, ``run`` and ``profile measure`` take: a command, and what it is given."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import click
from click.shell_completion import CompletionItem
from fikit import unmodified
from fikit.protocol import Submit, gpu_named

from fikitctl.failures import refused
from fikitctl.invocation import Invocation, note
from fikitctl.quantities import GPUS, MEMORY, NAME, PRIORITY

Gpus = list[int | str] | Literal["all"]
FROM_THE_COMMAND_ON = {"allow_interspersed_args": False}
"""Options after the command's name are the command's own."""


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """As the command line has them, by the options' names."""

    command: tuple[str, ...]
    priority: int | None = None
    gpus: Gpus = field(default_factory=list)
    memory: int = 0
    name: str | None = None
    isolate: bool = False
    variables: tuple[str, ...] = ()
    own_driver: bool = False

    def request(self, invocation: Invocation, directory: str | None = None, **more: Any) -> Submit:
        """The job to ask for, in the directory (none: the current one)."""
        if not all(_is_text(word) for word in self.command):
            raise click.BadParameter("the command is not UTF-8", param_hint="COMMAND")
        place = _absolute(directory)
        if not _is_text(place):
            raise refused(f"the directory is not UTF-8: {place!r}", "go to another one")
        environment = self._environment(invocation)
        return Submit(
            command=list(self.command),
            gpus=_gpus_with(self.gpus, environment),
            environment=environment,
            directory=place,
            priority=self.priority,
            memory_limit_bytes=self.memory,
            name=self.name,
            isolated=self.isolate,
            **more,
        )

    def _environment(self, invocation: Invocation) -> dict[str, str]:
        """Our environment with ``variables``, and fikitd's libcuda.so.1 in front.

        What is not text cannot travel and is left out, with a note.
        """
        environment = _given_environment()
        for variable in self.variables:
            name, equals, value = variable.partition("=")
            if not equals or not name:
                raise click.BadParameter(f"{variable!r} is not NAME=VALUE", param_hint="--env")
            environment[name] = value
        if not self.own_driver:
            try:
                environment |= unmodified.variables(invocation.path, environment)
            except FileNotFoundError as error:
                raise refused(str(error), "or run it with --own-driver") from None
        unsendable = [name for name, value in environment.items() if not _is_text(name + value)]
        for name in unsendable:
            del environment[name]
            note(f"variable {name!r} is not UTF-8 and was left out")
        return environment


def _given_environment() -> dict[str, str]:
    """Our environment as it was given to us: in a locale of C's Python has set LC_CTYPE by now (PEP 538)."""
    environment = dict(os.environ)
    with suppress(OSError):
        given = Path("/proc/self/environ").read_bytes().split(b"\0")
        environment.pop("LC_CTYPE", None)
        for each in given:
            if each.startswith(b"LC_CTYPE="):
                environment["LC_CTYPE"] = os.fsdecode(each.removeprefix(b"LC_CTYPE="))
    return environment


def command_words(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """What completes a word of a command: programs the first, files the others, which the shell finds."""
    if "/" not in incomplete and not context.params.get(parameter.name or ""):
        return [CompletionItem(name) for name in sorted(_programs(incomplete))]
    return [CompletionItem(incomplete, type="file")]


def _programs(beginning: str) -> set[str]:
    """Those in PATH."""
    found: set[str] = set()
    for directory in os.get_exec_path():
        with suppress(OSError), os.scandir(directory) as entries:
            found |= {
                entry.name
                for entry in entries
                if entry.name.startswith(beginning) and os.access(entry.path, os.X_OK) and not entry.is_dir()
            }
    return found


def directory_names(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Directories, by the shell itself."""
    return [CompletionItem(incomplete, type="dir")]


def takes_job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command of click's the options and COMMAND; it gets them as ``job``."""

    @functools.wraps(command)
    def with_options(**given: Any) -> Any:
        job = JobOptions(**{name: given.pop(name) for name in JobOptions.__dataclass_fields__})
        return command(job=job, **given)

    options = (
        click.option(
            "-p", "--priority", type=PRIORITY,
            help="high, normal, low, or 0 (highest) to 9; else normal, or the highest that you may.",
        ),
        click.option(
            "-g", "--gpus", "--gpu", type=GPUS, default="", metavar="N,...|all",
            help="Which GPUs it sees, in this order, by number or UUID; else one that the daemon chooses.",
        ),
        click.option("-m", "--memory", type=MEMORY, default="0", help="Memory limit on each GPU: 8G, 512M."),
        click.option("-n", "--name", type=NAME, help="A name to show; else the command's."),
        click.option("--isolate", is_flag=True, help="Share no CUDA context with other work."),
        click.option("-e", "--env", "variables", multiple=True, metavar="NAME=VALUE", help="Set a variable."),
        click.option(
            "--own-driver", is_flag=True, help="Let it load the driver's libcuda.so.1 instead of fikitd's."
        ),
        click.argument(
            "command", nargs=-1, required=True, type=click.UNPROCESSED, shell_complete=command_words
        ),
    )  # fmt: skip
    taking: Callable[..., Any] = with_options
    for option in reversed(options):
        taking = option(taking)
    return taking


def _gpus_with(gpus: Gpus, environment: dict[str, str]) -> Gpus:
    """What ``--gpus`` says; else what our own CUDA_VISIBLE_DEVICES does, by the machine's numbers or UUIDs.

    In the job's environment it would count the job's GPUs, so there it is left out then. As CUDA does, up to
    the first that is wrong or of the other kind; what has none before shows the job none.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if gpus or not visible or environment.get("CUDA_VISIBLE_DEVICES") != visible:
        return gpus
    named = [gpu_named(word) for word in visible.split(",")]
    kind = type(named[0])
    shown = [gpu for gpu in itertools.takewhile(lambda gpu: type(gpu) is kind, named) if gpu is not None]
    if shown:
        del environment["CUDA_VISIBLE_DEVICES"]
    return shown


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _absolute(directory: str | None) -> str:
    """A directory as the daemon needs it; none: the current one."""
    if directory is not None and os.path.isabs(directory):
        return os.path.normpath(directory)
    try:
        here = os.getcwd()
    except OSError as error:
        raise refused(f"the current directory: {error.strerror}", "go to another one") from None
    return os.path.normpath(os.path.join(here, directory or ""))
