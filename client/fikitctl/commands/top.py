"""``top``: who uses the GPUs right now. The one place that draws with rich."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click
from fikit.protocol import GetStatus, ListSessions, Sessions, Status, priority_name

from fikitctl.commands.status import gpu_columns, state_text
from fikitctl.invocation import Invocation
from fikitctl.leaving import handled, leave
from fikitctl.output import print_json
from fikitctl.plain import one_line, width
from fikitctl.quantities import DURATION, size_text
from fikitctl.rates import Rate, rates
from fikitctl.tables import PLAIN, Column, table
from fikitctl.verb import Verb

if TYPE_CHECKING:
    from fikit.control import Connection
    from rich.console import RenderableType


def rate_columns() -> list[Column]:
    """What ``top`` shows of a session."""
    return [
        Column("session", lambda rate: rate.session.session),
        Column("tenant", lambda rate: rate.session.tenant),
        Column("name", lambda rate: rate.session.name),
        Column("priority", lambda rate: priority_name(rate.session.priority)),
        Column("state", lambda rate: rate.session.state),
        Column("gpu", lambda rate: str(rate.session.gpu), right=True),
        Column("gpu%", lambda rate: f"{rate.gpu_share * 100:.1f}", right=True),
        Column("launches/s", lambda rate: f"{rate.launches_per_second:.0f}", right=True),
        Column("gate%", lambda rate: f"{rate.gate_share * 100:.1f}", right=True),
        Column("queued", lambda rate: str(rate.session.usage.queued), right=True),
        Column("memory", lambda rate: size_text(rate.session.usage.memory_bytes), right=True),
    ]


class _Sampler:
    """Looks at the daemon again and again; each look is compared with the one before."""

    def __init__(self, control: Connection) -> None:
        self._control = control
        self._before: dict[str, Rate] = {}
        self.look()

    def look(self) -> tuple[Status, list[Rate]]:
        status: Status = self._control.request(GetStatus())
        sessions: Sessions = self._control.request(ListSessions())
        scale = {gpu.index: gpu.time_scale for gpu in status.gpus}
        found = rates(self._before, sessions.sessions, scale)
        self._before = {rate.session.session: rate for rate in found}
        return status, found


def top_text(status: Status, found: list[Rate]) -> str:
    """The page without a screen."""
    return f"{table(gpu_columns(), status.gpus, PLAIN)}\n{table(rate_columns(), found, PLAIN)}"


def _screen(status: Status, found: list[Rate], room: int) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    counts = f"{status.jobs_running} jobs running, {status.jobs_queued} queued, {status.sessions} sessions"
    heading = one_line(f"fikitd {status.daemon}  {state_text(status)}  {counts}")
    parts: list[RenderableType] = [Text(heading), Text()]
    for columns, records in ((gpu_columns(), status.gpus), (rate_columns(), found)):
        drawn = Table(box=None, header_style="bold", padding=(0, _PADDING))
        rows = [[column.cell(record) for column in columns] for record in records]
        widest = [max((width(row[place]) for row in rows), default=0) for place in range(len(columns))]
        heads = [column.name.upper() for column in columns]
        narrow = (
            sum(max(width(head), most) + 2 * _PADDING for head, most in zip(heads, widest, strict=True))
            > room
        )
        for column, head, most in zip(columns, heads, widest, strict=True):
            # What others of it can be named by is never cut, however narrow the screen is, nor is a number.
            drawn.add_column(
                head,
                justify="right" if column.right else "left",
                no_wrap=column is columns[0],
                width=max(most, _LEAST) if narrow and column.right else None,
            )
        for record, row in zip(records, rows, strict=True):
            drawn.add_row(*map(Text, row), style=_style(record))
        parts += [drawn, Text()]
    return Group(*parts)


_PADDING: Final = 1
_LEAST: Final = 4
"""Of a column's name, where there is no room for it."""
_STYLES: Final = {"high": "bold", "low": "dim"}


def _style(record: object) -> str:
    return _STYLES.get(priority_name(record.session.priority), "") if isinstance(record, Rate) else ""


@click.command(
    cls=Verb,
    answer_seconds=None,
    examples=[
        "fikitctl top",
        "fikitctl top --interval 500ms",
        "fikitctl top --once",
        "fikitctl top --json -n 10",
    ],
)
@click.option("-i", "--interval", type=DURATION, default="1s", show_default=True)
@click.option("-n", "--count", type=click.IntRange(min=1), help="Stop after this many looks.")
@click.option("--once", is_flag=True, help="Print one look and stop; the default where there is no screen.")
@click.pass_obj
def top(invocation: Invocation, interval: float, count: int | None, once: bool) -> None:
    """Show who uses the GPUs, until Ctrl-C.

    gpu%: how long operations took; of those side by side each counts, so it may exceed 100. gate%: how long
    they waited for a gap in higher-priority work. With --json: one object per look.
    """
    drawn = sys.stdout.isatty() and _has_screen() and not invocation.as_json and not once
    looks = 1 if once or (count is None and not drawn and not invocation.as_json) else count
    pause = threading.Event()
    with invocation.connected() as control:
        sampler = _Sampler(control)
        if drawn:
            _draw(sampler, interval, looks)
            return
        while looks is None or looks > 0:
            pause.wait(max(interval, 0.05))
            status, found = sampler.look()
            if invocation.as_json:
                print_json({"status": status, "sessions": [_rate_record(rate) for rate in found]})
            else:
                click.echo(top_text(status, found), nl=False)
            looks = None if looks is None else looks - 1


def _has_screen() -> bool:
    """A terminal that can do no more than print a line after another has none: rich draws nothing there."""
    return os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def _rate_record(rate: Rate) -> dict[str, Any]:
    return rate._asdict()


_SUSPEND: Final = {signal.SIGTSTP}
"""Ctrl-Z: the shell gets the terminal as it was, with a cursor."""


@contextmanager
def _held_back(signals: set[signal.Signals]) -> Iterator[None]:
    """They wait to be asked for."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _draw(sampler: _Sampler, interval: float, looks: int | None) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(no_color="NO_COLOR" in os.environ)
    ended = handled(leave, signal.SIGTERM, signal.SIGHUP)  # the terminal is given back as it was
    with ended, _held_back(_SUSPEND), Live(console=console, screen=True, auto_refresh=False) as live:
        while looks is None or looks > 0:
            live.update(_screen(*sampler.look(), console.width), refresh=True)
            if signal.sigtimedwait(_SUSPEND, max(interval, 0.05)):
                live.stop()
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _SUSPEND)
                os.kill(os.getpid(), signal.SIGTSTP)  # until we are continued
                signal.pthread_sigmask(signal.SIG_BLOCK, _SUSPEND)
                live.start()
            looks = None if looks is None else looks - 1
