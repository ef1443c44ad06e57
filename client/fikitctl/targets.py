"""Naming jobs and sessions on the command line, with completion from the running daemon."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from fikitctl.failures import CommandError
from fikitctl.invocation import Invocation
from fikitctl.plain import one_line
from fikitctl.quantities import Parameter

if TYPE_CHECKING:
    from fikit.control import Connection
    from fikit.protocol import JobRecord

_COMPLETION_SECONDS: Final = 0.5


def known_jobs(control: Connection, *, ended: bool = True) -> list[JobRecord]:
    """The jobs that we may see, in as many requests as it takes."""
    from fikit.protocol import Jobs, ListJobs

    found: list[JobRecord] = []
    while True:
        after = found[-1].job if found else None
        reply = control.expect(Jobs, ListJobs(ended=ended, after=after))
        found += reply.jobs
        if not reply.more:
            return found


def _known(ctx: click.Context, jobs: bool, sessions: bool, ended: bool) -> list[tuple[str, str]]:
    from fikit.protocol import ListSessions

    invocation = ctx.ensure_object(Invocation)
    with invocation.deadline(_COMPLETION_SECONDS), invocation.connected() as control:
        known = [(job.job, job.name) for job in known_jobs(control, ended=ended)] if jobs else []
        if sessions:
            known += [(one.session, one.name) for one in control.request(ListSessions()).sessions]
    return known


class _Target(Parameter):
    def __init__(self, name: str, *, jobs: bool = True, sessions: bool, ended: bool = True) -> None:
        self.name = name
        self._jobs = jobs
        self._sessions = sessions
        self._ended = ended

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        import msgspec
        from fikit.protocol import Identifier

        try:
            return msgspec.convert(value, Identifier)
        except msgspec.ValidationError:
            self.fail(f"{value!r} is no identifier; 'fikitctl ps -q' lists them", param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            known = _known(ctx, self._jobs, self._sessions, self._ended)
        except CommandError:
            return []
        return [
            CompletionItem(name, help=one_line(text)) for name, text in known if name.startswith(incomplete)
        ]


JOB: Final = _Target("job", sessions=False)
SESSION: Final = _Target("session", jobs=False, sessions=True)
TARGET: Final = _Target("target", sessions=True)
CURRENT: Final = _Target("target", sessions=True, ended=False)
"""For what can be done to those alone that are not over."""


def each(targets: tuple[str, ...], action: Callable[[str], None], *, as_json: bool) -> int:
    """Do ``action`` for every target, report what fails, and return the first failure's exit code."""
    from fikitctl.failures import report

    first = 0
    for target in targets:
        try:
            action(target)
        except CommandError as failure:
            if len(targets) == 1 or failure.code in ("timeout", "unreachable"):
                raise
            report(failure, as_json=as_json)
            first = first or failure.exit_code
    return first
