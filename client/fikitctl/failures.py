"""The one place where a failure becomes a message and an exit code.

| what happened                                | exit code          |
|----------------------------------------------|--------------------|
| done                                         | 0                  |
| refused or failed                            | 1                  |
| the command line was wrong                   | 2                  |
| the daemon is not reachable, or went away    | 3                  |
| no such job, session, GPU                    | 4                  |
| not allowed                                  | 5                  |
| ``--timeout`` passed                         | 124                |
| ``run``: any of these, so that the command's own codes stay its own | 125 |
| ``run``: the command could not be executed / was not found | 126 / 127 |
| no answer to a question / the reader of our output went away | 130 / 141 |

Ctrl-C ends us by its signal, which a shell calls 130, too.
"""

from __future__ import annotations

import json
import os
import sys
from enum import IntEnum
from typing import Final

import click

from fikitctl.plain import lines


class ExitCode(IntEnum):
    """What the shell sees."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    PERMISSION = 5
    TIMEOUT = 124
    RUN_FAILED = 125
    NOT_EXECUTABLE = 126
    COMMAND_NOT_FOUND = 127
    INTERRUPTED = 130
    BROKEN_PIPE = 141


_OF_REPLY: Final = {"permission": ExitCode.PERMISSION, "not_found": ExitCode.NOT_FOUND}


class CommandError(Exception):
    """A verb could not do what was asked. ``code`` is a word that scripts may rely on."""

    def __init__(self, exit_code: ExitCode, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.code = code
        self.message = message
        self.hint = hint


def of_reply(code: str, message: str, hint: str) -> CommandError:
    """What the daemon's refusal means here. ``message`` may have the hint at its end, in brackets."""
    exit_code = _OF_REPLY.get(code, ExitCode.REFUSED)
    return CommandError(exit_code, code, message.removesuffix(f" ({hint})"), hint)


def refused(message: str, hint: str = "") -> CommandError:
    """What was asked cannot be done."""
    return CommandError(ExitCode.REFUSED, "invalid", message, hint)


def of_file(error: OSError) -> CommandError:
    """A file, or our output, that cannot be read or written."""
    message = error.strerror or str(error)
    hint = "; ".join(getattr(error, "__notes__", ()))
    return refused(message if error.filename is None else f"{error.filename}: {message}", hint)


def unreachable(path: str, error: Exception) -> CommandError:
    """Connecting to the daemon failed with ``error``, because of its cause."""
    cause = error.__cause__ or error
    if isinstance(cause, PermissionError):
        hint = "your user needs to be in the socket's group (fikit by default); see 'fikitctl doctor'"
        return CommandError(ExitCode.PERMISSION, "permission", f"not allowed to use {path}", hint)
    if isinstance(cause, TimeoutError):
        hint = "it is stopped, or hangs: see 'systemctl status fikitd' and 'journalctl -u fikitd'"
        message = f"the daemon at {path} does not answer"
        return CommandError(ExitCode.UNREACHABLE, "unreachable", message, hint)
    hint = "is fikitd running? 'systemctl status fikitd', or choose a socket with -H or FIKIT_SOCKET"
    reason = getattr(cause, "strerror", None) or str(cause)
    return CommandError(ExitCode.UNREACHABLE, "unreachable", f"no daemon at {path}: {reason}", hint)


def stranger(path: str, error: Exception) -> CommandError:
    """Who listens there does not speak our protocol, as another service's socket."""
    hint = "choose the daemon's socket with -H or FIKIT_SOCKET"
    return CommandError(
        ExitCode.UNREACHABLE, "unreachable", f"what answers at {path} is no fikitd: {error}", hint
    )


def unsafe_place(error: Exception) -> CommandError:
    """Where the socket is looked for belongs to somebody else."""
    return CommandError(ExitCode.PERMISSION, "permission", str(error), "name the daemon's socket with -H")


def lost(error: Exception) -> CommandError:
    """The connection ended in the middle of a request."""
    hint = "the daemon may be restarting; running work goes on. See 'journalctl -u fikitd'"
    return CommandError(ExitCode.UNREACHABLE, "unreachable", f"the daemon went away: {error}", hint)


def timed_out(seconds: float) -> CommandError:
    """``--timeout`` passed."""
    return CommandError(ExitCode.TIMEOUT, "timeout", f"no result within {seconds:g} s")


def of_usage(error: click.ClickException) -> CommandError:
    """A wrong command line, or a file that cannot be opened."""
    message = error.format_message().replace("\n\t", " ")  # as click lists what there is to choose from
    if not isinstance(error, click.UsageError):
        return refused(message)
    hint = f"see '{error.ctx.command_path} --help'" if error.ctx else "see 'fikitctl --help'"
    return CommandError(ExitCode.USAGE, "usage", message, hint)


def report(failure: CommandError, *, as_json: bool) -> None:
    """Say it on standard error."""
    if as_json:
        fields = {"code": failure.code, "message": failure.message, "hint": failure.hint}
        say(json.dumps(fields))
        return
    say(f"fikitctl: {lines(failure.message)}")
    if failure.hint:
        say(f"  hint: {lines(failure.hint)}")


def say(text: str) -> None:
    """On standard error. Where that takes nothing the exit code is what is left to tell by."""
    try:
        print(text, file=sys.stderr)
    except OSError:  # nor may the rest be tried again at the end; a command that is run keeps the descriptor
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
