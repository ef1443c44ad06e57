"""``doctor``: what stands between this user and a working daemon, from here and from the daemon's side."""

from __future__ import annotations

import grp
import os
import stat
from pathlib import Path

import click
from fikit.protocol import Check, Diagnosis
from fikit.protocol import Doctor as DoctorRequest

from fikitctl.failures import CommandError, ExitCode
from fikitctl.invocation import Invocation
from fikitctl.output import print_json
from fikitctl.verb import Verb


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
        detail = f"{path}: not allowed; join the group: sudo usermod -aG {group} $USER, then log in again"
        return Check(name="socket", ok=False, detail=detail)
    return Check(name="socket", ok=True, detail=f"{path} (group {group})")


def _daemon_checks(invocation: Invocation) -> list[Check]:
    with invocation.connected() as control:
        welcome = control.welcome
        role = "administrator" if welcome.administrator else f"tenant {welcome.tenant}"
        here = Check(name="connection", ok=True, detail=f"fikitd {welcome.daemon}; you are {role}")
        diagnosis: Diagnosis = control.request(DoctorRequest())
    return [here, *diagnosis.checks]


@click.command(
    cls=Verb,
    examples=["fikitctl doctor", "fikitctl doctor --json | jq '.checks[] | select(.ok | not)'"],
)
@click.pass_obj
def doctor(invocation: Invocation) -> int:
    """Check socket, permissions, driver and daemon.

    Exits with 1 when a check fails, 3 when the daemon is not reachable.
    """
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
            click.echo(
                f"{'ok  ' if check.ok else 'FAIL'}  {check.name.ljust(width)}  {check.detail}".rstrip()
            )
    if exit_code == ExitCode.DONE and not all(check.ok for check in checks):
        exit_code = ExitCode.REFUSED
    return exit_code
