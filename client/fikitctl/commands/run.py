"""``run``: a job in the foreground, with this terminal, this directory, and the command's exit code."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import click
from fikit.control import MOST_RESTARTS, Connection
from fikit.errors import RefusedError, UnreachableError
from fikit.protocol import (
    JobFinished,
    JobStarted,
    ListSessions,
    ProtocolError,
    Request,
    Sessions,
    Submit,
    Submitted,
    Wait,
    Waited,
)

from fikitctl.failures import CommandError, ExitCode, of_file
from fikitctl.foreground import Foreground
from fikitctl.invocation import Invocation, is_terminal, lift_deadline, note, successor
from fikitctl.job_options import FROM_THE_COMMAND_ON, JobOptions, takes_job_options
from fikitctl.verb import Verb

_PATIENCE_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 5.0
"""How long the end of the command waits for the daemon to hear of it."""
_SETTLE_SECONDS: Final = 5.0
_PROCESS: Final = "the command's process"


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
@takes_job_options
@click.pass_obj
def run(invocation: Invocation, job: JobOptions) -> int:
    """Run a command as a job in the foreground; its exit code is ours.

    125: fikitd refused it, or --timeout passed; 126, 127: the command could not be executed, or was not
    found. Signals are passed on. --timeout limits the wait for a place, not the command.
    The job ends with the command: what that leaves running has no GPU any more.
    """
    try:
        return run_job(invocation, job.request(invocation, foreground=True)).leave()
    except CommandError as failure:
        if failure.exit_code not in (ExitCode.NOT_EXECUTABLE, ExitCode.COMMAND_NOT_FOUND):
            failure.exit_code = ExitCode.RUN_FAILED
        raise
    except OSError as error:
        ours = of_file(error)
        ours.exit_code = ExitCode.RUN_FAILED
        raise ours from error


class Ended(NamedTuple):
    """How a command ended."""

    job: str
    exit_code: int
    """As shells have it: 128 + signal when one ended it."""
    interrupted: bool
    """By Ctrl-C's signal."""
    had_terminal: bool

    def leave(self) -> int:
        """Its exit code for ours. Raises KeyboardInterrupt where that ended it.

        A shell ends a loop of commands where Ctrl-C ends one of them. Who has the terminal is interrupted in
        place of our group: a script, a pipe.
        """
        if self.interrupted:
            if self.had_terminal:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # we leave in our own way
                os.kill(0, signal.SIGINT)
            raise KeyboardInterrupt
        return self.exit_code


def run_job(invocation: Invocation, request: Submit) -> Ended:
    """Run it to its end."""
    with invocation.connected() as first, ExitStack() as later:
        control, submitted = _admitted(first, request, later)
        lift_deadline()
        job = submitted.job.job
        reports: dict[str, int | None] = {}

        def known(pid: int) -> None:
            reports.update(_known(control, JobStarted(job=job, pid=pid)))

        with Foreground() as child:
            try:
                child.start(request.command, {**request.environment, **submitted.environment}, known)
            except CommandError as failure:
                _report_end(control, JobFinished(job=job, exit_code=failure.exit_code), reports)
                raise
            status = child.wait()
        exit_code = status if status >= 0 else 128 - status
        _report_end(control, JobFinished(job=job, exit_code=exit_code), reports)
    return Ended(job, exit_code, status == -signal.SIGINT, child.had_terminal)


def await_sessions(invocation: Invocation, job: str) -> None:
    """A session whose program has ended may still have to enter what it did; its end comes after that."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < deadline:
        sessions: Sessions = invocation.request(ListSessions())
        if all(each.job != job for each in sessions.sessions):
            return
        threading.Event().wait(0.02)


def _admitted(control: Connection, request: Submit, later: ExitStack) -> tuple[Connection, Submitted]:
    """Once there is room for it, and by whom: where the daemon is replaced meanwhile, the next is asked."""
    restarts = 0
    while True:
        try:
            return control, _once_there_is_room(control, request)
        except UnreachableError:
            if restarts == MOST_RESTARTS:
                raise
        restarts += 1
        control = later.enter_context(successor(control.path))


def _once_there_is_room(control: Connection, request: Submit) -> Submitted:
    """The job; a person who waits for it is told."""
    identifier = control.send(request)
    try:
        submitted: Submitted = control.receive(identifier, timeout=_PATIENCE_SECONDS)
    except TimeoutError:
        if is_terminal():
            note("waiting for room; 'fikitctl ps --format id,name,reason' tells for what")
        submitted = control.receive(identifier)
    return submitted


def _known(control: Connection, started: JobStarted) -> dict[str, int | None]:
    """Have the daemon know the process, or the one that follows it, before that becomes the command.

    A reply that takes long is read at the end, by what is returned: signals for the child must not wait.
    """
    sent = {_PROCESS: _told(control, started)}
    try:
        if _answered(control, sent, _PATIENCE_SECONDS):
            return {}
        _tell_successor(control.path, started)
    except TimeoutError:
        return sent
    except ConnectionError:
        pass  # nobody is there: the command goes on
    except (OSError, ProtocolError, RefusedError) as error:
        note(f"the daemon did not take {_PROCESS}: {error}")
    return {}


def _report_end(control: Connection, finished: JobFinished, reports: dict[str, int | None]) -> None:
    """Tell how the command ended: the daemon, or the one that follows it."""
    reports["the job's end"] = _told(control, finished)
    try:
        if not _answered(control, reports):
            _tell_successor(control.path, finished)
        elif reason := _reason(control, finished.job):
            note(reason)
    except (OSError, ProtocolError, RefusedError) as error:
        note(f"the daemon did not take the job's end: {error}")


def _told(control: Connection, report: Request) -> int | None:
    """Send a report; None where nobody is there: the command goes on, its result stands."""
    try:
        return control.send(report)
    except ConnectionError:
        return None


def _answered(
    control: Connection, reports: Mapping[str, int | None], seconds: float = _ANSWER_SECONDS
) -> bool:
    """Whether every report was answered, what is refused with a note; not where the daemon went away."""
    try:
        for what, identifier in reports.items():
            if identifier is None:
                return False
            try:
                control.receive(identifier, timeout=seconds)
            except RefusedError as error:
                note(f"the daemon did not take {what}: {error}")
    except ConnectionError:
        return False
    return True


def _reason(control: Connection, job: str) -> str:
    """Why it was killed, or was refused a session, which to its program is a signal or an error of CUDA's."""
    try:
        waited: Waited = control.request(Wait(job=job, wait_ms=0), timeout=_ANSWER_SECONDS)
    except (OSError, RefusedError):
        return ""
    return waited.job.reason


def _tell_successor(path: Path, report: Request) -> None:
    """The daemon that took the job over, or is about to, has not heard of it from us.

    It is where the one before was. Another daemon, which may serve us too, has jobs of its own by that name.
    """
    with successor(path, _ANSWER_SECONDS) as control:
        control.request(report)
