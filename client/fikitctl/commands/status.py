"""``status``: the daemon and its GPUs at a glance."""

from __future__ import annotations

import click
from fikit.protocol import GetStatus, GpuRecord, Status

from fikitctl.invocation import Invocation
from fikitctl.output import print_json
from fikitctl.quantities import duration_text, size_text
from fikitctl.tables import PLAIN, Column, sheet, table
from fikitctl.verb import Verb


def _reading(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.0f}{unit}"


def gpu_columns() -> list[Column]:
    """What is printed of a GPU."""
    return [
        Column("gpu", lambda gpu: str(gpu.index), right=True),
        Column("name", lambda gpu: gpu.name),
        Column("memory", _memory, right=True),
        Column("reserved", lambda gpu: size_text(gpu.memory_reserved_bytes), right=True),
        Column("busy", lambda gpu: _reading(gpu.utilization_percent, "%"), right=True),
        Column("temperature", lambda gpu: _reading(gpu.temperature_celsius, "C"), right=True),
        Column("power", lambda gpu: _reading(gpu.power_watts, "W"), right=True),
        Column("sessions", lambda gpu: str(gpu.sessions), right=True),
        Column("executors", lambda gpu: str(gpu.executors), right=True),
    ]


def _memory(gpu: GpuRecord) -> str:
    return f"{size_text(gpu.memory_used_bytes)}/{size_text(gpu.memory_bytes)}"


def state_text(reply: Status) -> str:
    """Whether it takes work, or why it does not, and where it cannot."""
    draining = None if reply.draining is None else f"draining: {reply.draining or 'no reason given'}"
    failing = ", ".join(str(gpu.index) for gpu in reply.gpus if gpu.failing)
    broken = f"; no executor starts on GPU {failing} ('fikitctl doctor' tells why)" if failing else ""
    return f"{draining or 'accepting work'}{broken}"


def status_text(reply: Status) -> str:
    """The page that ``status`` prints."""
    heading = sheet(
        [
            ("fikitd", f"{reply.daemon} (pid {reply.pid}), up {duration_text(reply.uptime_seconds)}"),
            ("state", state_text(reply)),
            ("jobs", f"{reply.jobs_running} running, {reply.jobs_queued} queued"),
            ("sessions", str(reply.sessions)),
        ]
    )
    return f"{heading}\n{table(gpu_columns(), reply.gpus, PLAIN)}"


@click.command(
    cls=Verb,
    examples=["fikitctl", "fikitctl status --json", "fikitctl status -H /run/fikitd.sock --timeout 2s"],
)
@click.pass_obj
def status(invocation: Invocation) -> None:
    """Show the daemon and its GPUs at a glance."""
    reply: Status = invocation.request(GetStatus())
    if invocation.as_json:
        print_json(reply)
    else:
        click.echo(status_text(reply), nl=False)
