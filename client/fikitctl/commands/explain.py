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
from fikitctl.targets import SESSION
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


def delay_text(count: int, nanoseconds: int, worst: int, cause: str | None = None) -> str:
    """Count, sum and worst."""
    if not count:
        return "none"
    text = f"{count}, {time_text(nanoseconds)} in all, the worst {time_text(worst)}"
    return f"{text}, by {cause}" if cause else text


def interference_text(beside_ns: int, slowed_ns: int, beside: str) -> str:
    """By how much kernels of high priority last longer beside others' work."""
    if not beside_ns:
        return ""
    return f"{slowed_ns / beside_ns:.0%} longer beside {beside}, {time_text(slowed_ns)} in all"


def suffered_pairs(gate: GateStatistics) -> Iterator[tuple[str, str]]:
    """While it was of the highest priority."""
    yield "delays", delay_text(gate.delays, gate.delay_ns, gate.worst_delay_ns, gate.delayed_by)
    yield "interference", interference_text(gate.beside_ns, gate.slowed_ns, "gated work")


def caused_pairs(gate: GateStatistics) -> Iterator[tuple[str, str]]:
    """While the gate held it back."""
    yield "delays caused", delay_text(gate.caused_delays, gate.caused_delay_ns, gate.caused_worst_delay_ns)
    yield "interference caused", interference_text(gate.caused_beside_ns, gate.caused_slowed_ns, "its work")


def measuring_text(gate: GateStatistics) -> str:
    """What measuring operations cost: some launches, and all that a trace records."""
    return f"{gate.measured} operations, {time_text(gate.measuring_ns)} added" if gate.measured else ""


def high_pairs(gate: GateStatistics) -> Iterator[tuple[str, str]]:
    """Of a session of the highest priority: its steps and its delays."""
    yield "steps", f"{gate.steps}, {time_text(gate.step_ns)} each at present" if gate.steps else ""
    yield from suffered_pairs(gate)
    if gate.steps:
        yield "bound", f"{time_text(gate.bound_ns)} a step; over it: {gate.over_bound} steps"
        yield "trust", f"{gate.trust:.0%} of its idle time and of the bound is used"
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
    yield from caused_pairs(gate)


def is_high(gated: Gated) -> bool:
    """Whether it suffers delays now, rather than causing them."""
    return gated.session.priority == 0


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
        gate = each.gate
        suffered, caused = (gate.slowed_ns, gate.beside_ns), (gate.caused_slowed_ns, gate.caused_beside_ns)
        return part(*(suffered if is_high(each) else caused)).strip(" ()") or "-"

    def delays(each: Gated) -> int:
        return each.gate.delays if is_high(each) else each.gate.caused_delays

    def worst(each: Gated) -> int:
        return each.gate.worst_delay_ns if is_high(each) else each.gate.caused_worst_delay_ns

    return [
        Column("filled", lambda each: time_text(each.gate.filled_ns), right=True),
        Column("partitioned", lambda each: time_text(each.gate.confined_ns), right=True),
        Column("delays", lambda each: str(delays(each)), right=True),
        Column("worst", lambda each: time_text(worst(each)), right=True),
        Column("slows", slows, right=True),
        Column("refused", refused),
    ]


@click.command(cls=Verb, examples=["fikitctl explain s-1f0e9c0a11", "fikitctl explain s-1f0e9c0a11 --json"])
@click.argument("session", type=SESSION)
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
    judges, high = reply.policy not in _JUDGES_NOTHING, is_high(reply.gated)
    if judges:
        head += high_pairs(gate) if high else gated_pairs(gate)
        if high and gate.caused_beside_ns + gate.caused_delays:  # before its priority was changed
            head += caused_pairs(gate)
        elif not high and gate.beside_ns + gate.delays:
            head += suffered_pairs(gate)
    if high:
        head += idle_pairs(gate)
    click.echo(sheet([*head, ("measuring", measuring_text(gate))]), nl=False)
    if reply.beside:
        columns = [*session_columns(), *(gate_columns() if judges else ())]
        click.echo("\n" + table(columns, reply.beside, PLAIN), nl=False)
