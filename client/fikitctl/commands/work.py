"""``ps`` and ``show``: the jobs and sessions there are."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from typing import Final

import click
from fikit.protocol import (
    JobRecord,
    ListSessions,
    SessionRecord,
    Sessions,
    Show,
    Shown,
    Usage,
    priority_name,
)

from fikitctl.invocation import Invocation
from fikitctl.output import moment, print_json
from fikitctl.quantities import duration_text, size_text
from fikitctl.tables import Column, Layout, layout_options, sheet, table
from fikitctl.targets import TARGET, each, known_jobs
from fikitctl.verb import Verb

Work = JobRecord | SessionRecord
_ACTIVE: Final = ("queued", "running", "paused")
_LONG_NS: Final = 2_000_000_000


def _identifier(work: Work) -> str:
    return work.job if isinstance(work, JobRecord) else work.session


def _age(work: Work) -> str:
    if isinstance(work, SessionRecord):
        return duration_text(time.time() - work.opened_unix)
    if work.started_unix is None:
        return "-"
    return duration_text((work.ended_unix or time.time()) - work.started_unix)


def _exit_code(work: Work) -> str:
    known = isinstance(work, JobRecord) and work.exit_code is not None
    return str(work.exit_code) if known and isinstance(work, JobRecord) else "-"


def _command(work: Work) -> str:
    return shlex.join(work.command) if isinstance(work, JobRecord) else "-"


def _gpus(work: Work) -> str:
    gpus = work.gpus if isinstance(work, JobRecord) else [work.gpu]
    return ",".join(map(str, gpus)) or "-"


def _moment(of_job: str, of_session: str = "") -> Callable[[Work], str]:
    """When it was, by the fields that say so."""

    def text(work: Work) -> str:
        field = of_job if isinstance(work, JobRecord) else of_session
        return moment(getattr(work, field, None)) or "-"

    return text


def work_columns() -> list[Column]:
    """What ``ps`` can print of a job or session."""
    return [
        Column("id", _identifier),
        Column("tenant", lambda work: work.tenant),
        Column("name", lambda work: work.name),
        Column("priority", lambda work: priority_name(work.priority)),
        Column("state", lambda work: work.state),
        Column("gpu", _gpus, right=True),
        Column("memory", lambda work: size_text(work.usage.memory_bytes), right=True),
        Column("gpu_time", lambda work: duration_text(work.usage.gpu_ns / 1e9), right=True),
        Column("age", _age, right=True),
        Column("exit", _exit_code, right=True, hidden=True),
        Column("pid", lambda work: "-" if work.pid is None else str(work.pid), right=True, hidden=True),
        Column("uid", lambda work: str(work.uid), right=True, hidden=True),
        Column("limit", lambda work: size_text(work.memory_limit_bytes), right=True, hidden=True),
        Column("launches", lambda work: str(work.usage.launches), right=True, hidden=True),
        Column(
            "gate_wait", lambda work: duration_text(work.usage.gate_wait_ns / 1e9), right=True, hidden=True
        ),
        Column("submitted", _moment("submitted_unix"), hidden=True),
        Column("started", _moment("started_unix", "opened_unix"), hidden=True),
        Column("ended", _moment("ended_unix"), hidden=True),
        Column("job", lambda work: work.job or "-", hidden=True),
        Column("command", _command, hidden=True),
        Column("reason", lambda work: getattr(work, "reason", "") or "-", hidden=True),
    ]


@click.command(
    cls=Verb,
    examples=[
        "fikitctl ps",
        "fikitctl ps --all --format id,state,exit,command",
        "fikitctl ps -q | xargs -r fikitctl kill --yes",
    ],
)
@click.option("-a", "--all", "ended", is_flag=True, help="Jobs that are over, too.")
@click.option("-s", "--sessions", "every_session", is_flag=True, help="The sessions inside of jobs, too.")
@click.option("-t", "--tenant", metavar="NAME", help="Only this tenant's.")
@layout_options(work_columns())
@click.pass_obj
def ps(
    invocation: Invocation,
    ended: bool,
    every_session: bool,
    tenant: str | None,
    layout: Layout,
) -> None:
    """List jobs, and sessions that belong to none, or to one that is over.

    Of a command the daemon keeps 2000 characters; '...' stands for the rest.
    With --json: {"jobs": [...], "sessions": [...]}, every session of them.
    """
    with invocation.connected() as control:
        jobs = known_jobs(control, ended=ended)
        sessions: Sessions = control.request(ListSessions())
    chosen_jobs = [job for job in jobs if tenant in (None, job.tenant) and (ended or job.state in _ACTIVE)]
    chosen_sessions = [session for session in sessions.sessions if tenant in (None, session.tenant)]
    if invocation.as_json:
        print_json({"jobs": chosen_jobs, "sessions": chosen_sessions})
        return
    listed = {job.job for job in chosen_jobs}
    loose = [session for session in chosen_sessions if every_session or session.job not in listed]
    click.echo(table(work_columns(), [*chosen_jobs, *loose], layout), nl=False)


def usage_pairs(usage: Usage) -> list[tuple[str, str]]:
    """What something has used, by name."""
    return [
        ("gpu time", duration_text(usage.gpu_ns / 1e9)),
        ("launches", str(usage.launches)),
        ("operations", str(usage.operations)),
        ("to be issued", str(usage.queued)),
        ("copied", size_text(usage.bytes_copied)),
        ("memory", f"{size_text(usage.memory_bytes)} (peak {size_text(usage.memory_peak_bytes)})"),
        ("gate waits", f"{usage.gate_waits} ({duration_text(usage.gate_wait_ns / 1e9)})"),
        ("unsupported calls", unsupported_text(usage)),
    ]


def unsupported_text(usage: Usage) -> str:
    """The calls that were refused, most often first: cuGraphLaunch (12), ..."""
    ranked = sorted(usage.unsupported.items(), key=lambda call: (-call[1], call[0]))
    return ", ".join(f"{name} ({count})" for name, count in ranked)


def _job_pairs(job: JobRecord) -> list[tuple[str, str]]:
    return [
        ("job", job.job),
        ("name", job.name),
        ("tenant", f"{job.tenant} (uid {job.uid})"),
        ("command", shlex.join(job.command)),
        ("directory", job.directory),
        ("state", job.state),
        ("reason", job.reason),
        ("exit code", "" if job.exit_code is None else str(job.exit_code)),
        ("pid", "" if job.pid is None else str(job.pid)),
        ("priority", priority_name(job.priority)),
        ("gpu", ",".join(map(str, job.gpus))),
        ("isolated", "yes" if job.isolated else "no"),
        ("memory limit", size_text(job.memory_limit_bytes)),
        ("submitted", moment(job.submitted_unix)),
        ("started", moment(job.started_unix)),
        ("ended", moment(job.ended_unix)),
        ("sessions", ", ".join(job.sessions)),
        *usage_pairs(job.usage),
    ]


def _session_pairs(session: SessionRecord) -> list[tuple[str, str]]:
    return [
        ("session", session.session),
        ("name", session.name),
        ("tenant", f"{session.tenant} (uid {session.uid})"),
        ("job", session.job or ""),
        ("pid", str(session.pid)),
        ("state", session.state),
        ("reason", session.reason),
        ("priority", priority_name(session.priority)),
        ("gpu", str(session.gpu)),
        ("executor", session.executor),
        ("isolated", "yes" if session.isolated else "no"),
        ("memory limit", size_text(session.memory_limit_bytes)),
        ("opened", moment(session.opened_unix)),
        ("waiting in", _waiting(session)),
        *usage_pairs(session.usage),
    ]


def _waiting(session: SessionRecord) -> str:
    waiting = []
    if (streams := session.host_functions) > 0:
        waiting.append(f"host functions on {streams} streams")
    if session.call_ns >= _LONG_NS:
        seconds = session.call_ns / 1e9
        waiting.append(f"the driver, for {seconds:.0f} s, until what runs in {session.executor} ends")
    if session.overdue_ns >= _LONG_NS:
        seconds = session.overdue_ns / 1e9
        waiting.append(f"the GPU, where none of its work has ended for {seconds:.0f} s")
    return "; ".join(waiting)


@click.command(
    cls=Verb,
    examples=[
        "fikitctl show job-12",
        "fikitctl show job-12 s-1f0e9c0a11 --json",
        "fikitctl --json show job-12 | jq .usage.gpu_ns",
    ],
)
@click.argument("targets", type=TARGET, nargs=-1, required=True)
@click.pass_obj
def show(invocation: Invocation, targets: tuple[str, ...]) -> int:
    """Show everything about jobs or sessions.

    With --json: one object per line.
    """
    apart = ""

    def tell(target: str) -> None:
        nonlocal apart
        shown: Shown = invocation.request(Show(target=target))
        if invocation.as_json:
            print_json(shown.job or shown.session)
            return
        pairs = [] if shown.session is None else _session_pairs(shown.session)
        click.echo(apart + sheet(pairs if shown.job is None else _job_pairs(shown.job)), nl=False)
        apart = "\n"

    return each(targets, tell, as_json=invocation.as_json)
