"""What ``fikitctl explain`` makes of the gate's figures."""

from __future__ import annotations

from fikit.protocol import Gated, GateStatistics, SessionRecord, Usage
from fikitctl.commands.explain import gated_pairs, high_pairs

FILLER = Gated(
    session=SessionRecord(
        session="s-2", tenant="bob", uid=2, pid=2, name="train", priority=9, gpu=0, executor="x-1",
        isolated=False, job=None, state="running", memory_limit_bytes=0, opened_unix=0.0, usage=Usage(),
    ),
    gate=GateStatistics(filled=10, filled_ns=600_000_000, confined=5, confined_ns=100_000_000),
)  # fmt: skip


def test_idle_time_is_told_apart_by_who_had_it() -> None:
    gate = GateStatistics(
        steps=100, step_ns=2_000_000, bound_ns=40_000, over_bound=1, predicted=1000, met=990,
        idle_ns=1_000_000_000, delays=3, delay_ns=90_000, worst_delay_ns=50_000, delayed_by="s-2",
        trust=0.5, beside_ns=100_000_000, slowed_ns=46_000_000,
    )  # fmt: skip
    told = dict(high_pairs(gate, [FILLER]))
    assert told["  filled"] == "600.0ms (60.0%)"
    assert told["  partitioned"] == "100.0ms (10.0%)"
    assert told["  left"] == "300.0ms (30.0%)"
    assert told["delays"] == "3, 90.0us in all, the worst 50.0us, by s-2"
    assert told["interference"] == "46% longer beside gated work, 46.0ms in all"
    assert told["trust"] == "50% of its idle time and of the bound is used"
    assert told["bound"] == "40.0us a step; over it: 1 steps"
    assert told["predictions"] == "1000, met: 990 (99.0%)"


def test_a_session_that_did_nothing_has_no_shares() -> None:
    told = dict(high_pairs(GateStatistics(), []))
    assert told["  filled"] == told["idle"] == "0"
    assert told["delays"] == "none"


def test_reasons_come_by_how_often() -> None:
    gate = GateStatistics(refused={"bound": 3, "too_long": 5})
    names = [name for name, _ in gated_pairs(gate) if name.startswith("refused")]
    assert names == ["refused: too long", "refused: bound"]
