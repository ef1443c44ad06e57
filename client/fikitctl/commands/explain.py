"""``explain``: how the gate treated a session, whom it was delayed by, and who used the time it left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click
from fikit.protocol import Explain, Explained, Gated, GateStatistics, priority_name

from fikitctl.invocation import Invocation
from fikitctl.output import print_json
from fikitctl.quantities import duration_text
from fikitctl.tables import PLAIN, Column, sheet, table
from fikitctl.targets import TARGET
from fikitctl.verb import Verb

_REASONS: Final = {
    "level": "more important work was waiting or running",
    "unknown": "not measured often enough yet",
    "too_long": "one block of it lasts longer than the bound, scheduling.delay_share",
    "bound": "the step at hand would have been delayed by more than the bound, scheduling.delay_share",
    "in_flight": "enough was on the GPU already",
}
_JUDGES_NOTHING: Final = {"strict": "strict (it counts no steps, delays or refusals)"}
"""Policies whose zeros say nothing."""


def time_text(nanoseconds: int) -> str:
    """A time, zero too."""
    return duration_text(nanoseconds / 1e9) if nanoseconds else "0"


def part(value: int, whole: int) -> str:
    """A share in per cent; empty where there is no whole."""
    return f" ({value / whole:.1%})" if whole else ""


def delay_text(gate: GateStatistics) -> str:
    """Count, sum and worst."""
    if not gate.delays:
        return "none"
    text = f"{gate.delays}, {time_text(gate.delay_ns)} in all, the worst {time_text(gate.worst_delay_ns)}"
    return f"{text}, by {gate.delayed_by}" if gate.delayed_by else text


def interference_text(gate: GateStatistics) -> str:
    """By how much kernels of high priority last longer beside others' work."""
    if not gate.beside_ns:
        return ""
    return (
        f"{gate.slowed_ns / gate.beside_ns:.0%} longer beside gated work, {time_text(gate.slowed_ns)} in all"
    )


def measuring_text(gate: GateStatistics) -> str:
    """What measuring launches cost."""
    return f"{gate.measured} launches, {time_text(gate.measuring_ns)} added" if gate.measured else ""


def high_pairs(gate: GateStatistics) -> Iterator[tuple[str, str]]:
    """Of a session of the highest priority: its steps and its delays."""
    yield "steps", f"{gate.steps}, {time_text(gate.step_ns)} each at present" if gate.steps else ""
    yield "delays", delay_text(gate)
    if gate.steps:
        yield "bound", f"{time_text(gate.bound_ns)} a step; over it: {gate.over_bound} steps"
        yield "trust", f"{gate.trust:.0%} of its idle time and of the bound is used"
    yield "interference", interference_text(gate)
    if gate.predicted:
        yield "predictions", f"{gate.predicted}, met: {gate.met}{part(gate.met, gate.predicted)}"


def idle_pairs(gate: GateStatistics) -> Iterator[tuple[str, str]]:
    """Of a session of the highest priority: its idle time, by what others had of it."""
    yield "idle", time_text(gate.idle_ns)
    filled, confined = gate.idle_filled_ns, gate.idle_confined_ns
    left = gate.idle_ns - filled - confined
    for name, value in (("filled", filled), ("partitioned", confined), ("left", left)):
        yield f"  {name}", f"{time_text(value)}{part(value, gate.idle_ns)}"


def gated_pairs(gate: GateStatistics) -> Iterator[tuple[str, str]]:
    """Of a session that the gate holds back: what it was given, what it was refused, what it caused."""
    yield "filled", f"{gate.filled} operations, {time_text(gate.filled_ns)}"
    yield "partitioned", f"{gate.confined} operations, {time_text(gate.confined_ns)}"
    for reason, count in sorted(gate.refused.items(), key=lambda item: -item[1]):
        yield f"refused: {reason.replace('_', ' ')}", f"{count} ({_REASONS.get(reason, 'unknown reason')})"
    yield "interference", interference_text(gate)
    yield "delays caused", delay_text(gate)


def session_columns() -> list[Column]:
    """The sessions of the same executor."""
    return [
        Column("session", lambda each: each.session.session),
        Column("tenant", lambda each: each.session.tenant),
        Column("name", lambda each: each.session.name),
        Column("priority", lambda each: priority_name(each.session.priority)),
    ]


def gate_columns() -> list[Column]:
    """How the gate treated each."""

    def refused(each: Gated) -> str:
        counts = sorted(each.gate.refused.items(), key=lambda item: -item[1])
        return ", ".join(f"{reason.replace('_', ' ')} {count}" for reason, count in counts) or "-"

    def slows(each: Gated) -> str:
        return part(each.gate.slowed_ns, each.gate.beside_ns).strip(" ()") or "-"

    return [
        Column("filled", lambda each: time_text(each.gate.filled_ns), right=True),
        Column("partitioned", lambda each: time_text(each.gate.confined_ns), right=True),
        Column("delays", lambda each: str(each.gate.delays), right=True),
        Column("worst", lambda each: time_text(each.gate.worst_delay_ns), right=True),
        Column("slows", slows, right=True),
        Column("refused", refused),
    ]


@click.command(cls=Verb, examples=["fikitctl explain s-1f0e9c0a11", "fikitctl explain s-1f0e9c0a11 --json"])
@click.argument("session", type=TARGET)
@click.pass_obj
def explain(invocation: Invocation, session: str) -> None:
    """Tell how the gate treated SESSION.

    For the highest priority: its delays against the bound and who used the time it left idle. For others:
    what was issued in such time, what had to wait and why, and the delays it caused.
    """
    reply: Explained = invocation.request(Explain(session=session))
    if invocation.as_json:
        print_json(reply)
        return
    record, gate = reply.gated.session, reply.gated.gate
    head = [
        ("session", f"{record.session} ({record.name}, {priority_name(record.priority)})"),
        ("tenant", record.tenant),
        ("policy", _JUDGES_NOTHING.get(reply.policy, reply.policy)),
    ]
    judges, high = reply.policy not in _JUDGES_NOTHING, record.priority == 0
    if judges:
        head += high_pairs(gate) if high else gated_pairs(gate)
    if high:
        head += idle_pairs(gate)
    click.echo(sheet([*head, ("measuring", measuring_text(gate))]), nl=False)
    if reply.beside:
        columns = [*session_columns(), *(gate_columns() if judges else ())]
        click.echo("\n" + table(columns, reply.beside, PLAIN), nl=False)
