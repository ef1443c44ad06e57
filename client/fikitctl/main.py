"""fikitctl: the command line of fikitd. See ``failures`` for the exit codes."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

import click
from fikit import __version__

from fikitctl import failures
from fikitctl.failures import CommandError, ExitCode
from fikitctl.invocation import Invocation
from fikitctl.verb import LazyVerbs, shared_options

_COMMANDS: Final = "fikitctl.commands"
COMPLETE: Final = "_FIKITCTL_COMPLETE"
"""By this variable a shell asks what a word could be completed to (``shells``)."""
FAMILIES: Final = {
    "Run work": {
        "run": f"{_COMMANDS}.run:run",
        "submit": f"{_COMMANDS}.submit:submit",
        "wait": f"{_COMMANDS}.wait:wait",
        "logs": f"{_COMMANDS}.logs:logs",
        "env": f"{_COMMANDS}.env:env",
    },
    "Look at work": {
        "status": f"{_COMMANDS}.status:status",
        "ps": f"{_COMMANDS}.work:ps",
        "show": f"{_COMMANDS}.work:show",
        "top": f"{_COMMANDS}.top:top",
        "explain": f"{_COMMANDS}.explain:explain",
        "events": f"{_COMMANDS}.events:events",
        "trace": f"{_COMMANDS}.trace:trace",
    },
    "Steer work": {
        "pause": f"{_COMMANDS}.steer:pause",
        "resume": f"{_COMMANDS}.steer:resume",
        "priority": f"{_COMMANDS}.steer:priority",
        "kill": f"{_COMMANDS}.steer:kill",
    },
    "Operate the daemon": {
        "tenants": f"{_COMMANDS}.tenants:tenants",
        "profile": f"{_COMMANDS}.profile:profile",
        "config": f"{_COMMANDS}.config:config",
        "doctor": f"{_COMMANDS}.doctor:doctor",
        "drain": f"{_COMMANDS}.drain:drain",
        "undrain": f"{_COMMANDS}.drain:undrain",
    },
    "Get started": {
        "demo": f"{_COMMANDS}.demo:demo",
        "completion": f"{_COMMANDS}.completion:completion",
    },
}


def _print_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"fikitctl {__version__}")
        ctx.exit()


@click.pass_context
def _root(ctx: click.Context) -> int | None:
    """Share this machine's GPUs by priority.

    Without a verb: 'fikitctl status'.
    """
    if ctx.invoked_subcommand is not None:
        return None
    command = cli.verb("status")
    with command.make_context("status", [], parent=ctx) as status:
        result: int | None = command.invoke(status)
    return result


cli: Final = LazyVerbs(
    name="fikitctl",
    callback=_root,
    families=FAMILIES,
    help=_root.__doc__,
    examples=[
        "fikitctl run --priority high -- python serve.py",
        "fikitctl submit --priority low -- python train.py",
        "fikitctl ps",
    ],
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[
        *shared_options(),
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_print_version,
            help="Print the version and exit.",
        ),
    ],
)


def call(arguments: Sequence[str]) -> int:
    """Run fikitctl with ``arguments``; its exit code. Raises KeyboardInterrupt."""
    if COMPLETE in os.environ:
        from fikitctl import shells

        shells.add_shells()
        cli.main([], prog_name="fikitctl", complete_var=COMPLETE)
    invocation = Invocation()
    try:
        # Not cli.main, which ends the process itself, with 1, where the reader of our output went away.
        with cli.make_context("fikitctl", list(arguments), obj=invocation) as context:
            result = cli.invoke(context)
        sys.stdout.flush()
        return result if isinstance(result, int) else ExitCode.DONE
    except click.exceptions.Exit as ended:
        sys.stdout.flush()
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        failures.say(error.format_message())
        return ExitCode.USAGE
    except click.ClickException as error:
        as_json = invocation.as_json or "--json" in _options(arguments)
        failure = failures.of_usage(error)
        failures.report(failure, as_json=as_json)
        return ExitCode.RUN_FAILED if _is_run(error) else failure.exit_code
    except CommandError as failure:
        failures.report(failure, as_json=invocation.as_json)
        return failure.exit_code
    except click.Abort as aborted:  # so click calls Ctrl-C at a question, too
        if isinstance(aborted.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        return ExitCode.INTERRUPTED
    except OSError as error:
        _drop_output()
        gone, reason = isinstance(error, BrokenPipeError), failures.of_file(error)
        if reason.hint or not gone:
            failures.report(reason, as_json=invocation.as_json)
        return ExitCode.BROKEN_PIPE if gone else reason.exit_code


def _drop_output() -> None:
    """What could not be written must not be tried again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _options(arguments: Sequence[str]) -> Sequence[str]:
    """The arguments that are ours, not those of a command to run."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _is_run(error: click.ClickException) -> bool:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return context is not None and context.info_name == "run"


def _open_missing_streams() -> None:
    """A standard stream that the caller has closed is empty; a result that it should take is an error."""
    for name, mode, access in (
        ("stdin", "r", os.O_RDWR),
        ("stdout", "w", os.O_RDONLY),
        ("stderr", "w", os.O_RDWR),
    ):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, access), mode))


def main() -> None:
    """The entry point."""
    _open_missing_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # others' names may have what a locale cannot say
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # as `start` leaves it
            signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.exit(call(sys.argv[1:]))
    except KeyboardInterrupt:
        # Python ends by the signal, and by that a shell knows that its loop, or script, is to end.
        sys.excepthook = lambda *_: None
        raise
