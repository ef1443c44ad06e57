"""``doctor``: what stands between this user and a working daemon, from here and from the daemon's side."""

from __future__ import annotations

import grp
import os
import stat
from pathlib import Path

import click
from fikit.protocol import Check, Diagnosis, Show, Shown, Usage
from fikit.protocol import Doctor as DoctorRequest

from fikitctl.commands.run import await_sessions, run_job
from fikitctl.commands.work import unsupported_text
from fikitctl.failures import CommandError, ExitCode
from fikitctl.invocation import Invocation, note
from fikitctl.job_options import FROM_THE_COMMAND_ON, JobOptions, command_words
from fikitctl.output import print_json
from fikitctl.plain import lines
from fikitctl.verb import ANSWER_SECONDS, Verb


def _group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def socket_check(path: str) -> Check:
    """Whether there is a socket that we may connect to."""
    try:
        found = Path(path).stat()
    except OSError as error:
        return Check(name="socket", ok=False, detail=f"{path}: {error.strerror}; is fikitd running?")
    if not stat.S_ISSOCK(found.st_mode):
        return Check(name="socket", ok=False, detail=f"{path} is no socket")
    group = _group_name(found.st_gid)
    if not os.access(path, os.W_OK):
        hint = f"join the group: sudo usermod -aG {group} $USER, then log in again"
        if found.st_gid == 0 or not found.st_mode & stat.S_IWGRP:
            hint = "it is open to no group of users: see socket_group and socket_mode of its settings"
        return Check(name="socket", ok=False, detail=f"{path}: not allowed; {hint}")
    return Check(name="socket", ok=True, detail=f"{path} (group {group})")


def _daemon_checks(invocation: Invocation) -> list[Check]:
    with invocation.connected() as control:
        welcome = control.welcome
        role = "administrator" if welcome.administrator else f"tenant {welcome.tenant}"
        here = Check(name="connection", ok=True, detail=f"fikitd {welcome.daemon}; you are {role}")
        diagnosis: Diagnosis = control.request(DoctorRequest())
    return [here, *diagnosis.checks]


def _examine(invocation: Invocation, command: tuple[str, ...]) -> int:
    """Run a command and tell what it called in vain; its exit code."""
    ended = run_job(invocation, JobOptions(command=command).request(invocation, foreground=True))
    await_sessions(invocation, ended.job)
    shown: Shown = invocation.request(Show(target=ended.job))
    usage = shown.job.usage if shown.job is not None else Usage()
    if invocation.as_json:
        print_json({"exit_code": ended.exit_code, "unsupported": usage.unsupported})
    elif usage.unsupported:
        note(f"calls that fikitd does not serve: {unsupported_text(usage)}")
    else:
        note(f"fikitd served every call ({usage.launches} launches)")
    return ended.leave()


@click.command(
    cls=Verb,
    answer_seconds=None,
    context_settings=FROM_THE_COMMAND_ON,
    examples=[
        "fikitctl doctor",
        "fikitctl doctor -- python train.py",
        "fikitctl doctor --json | jq '.checks[] | select(.ok | not)'",
    ],
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, shell_complete=command_words)
@click.pass_obj
def doctor(invocation: Invocation, command: tuple[str, ...]) -> int:
    """Check the daemon; or what of CUDA a command misses.

    Without a command: socket, permissions, driver and daemon. Exits with 1 when a check fails, 3 when the
    daemon is not reachable. With one: runs it as 'run' does and lists the calls that fikitd does not serve;
    its exit code is ours.
    """
    if command:
        return _examine(invocation, command)
    with invocation.deadline(ANSWER_SECONDS):
        return _check(invocation)


def _check(invocation: Invocation) -> int:
    checks = [socket_check(invocation.path)]
    exit_code = ExitCode.DONE
    try:
        checks += _daemon_checks(invocation)
    except CommandError as failure:
        if failure.code == "timeout":
            raise
        checks.append(Check(name="connection", ok=False, detail=failure.message))
        exit_code = failure.exit_code
    if invocation.as_json:
        print_json(Diagnosis(checks=checks))
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            detail = lines(check.detail)
            click.echo(f"{'ok  ' if check.ok else 'FAIL'}  {check.name.ljust(width)}  {detail}".rstrip())
    if exit_code == ExitCode.DONE and not all(check.ok for check in checks):
        exit_code = ExitCode.REFUSED
    return exit_code
