"""What ``fikitctl explain`` makes of the gate's figures."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fikit.protocol import Explained, Gated, GateStatistics, SessionRecord, Usage
from fikitctl.commands.explain import gated_pairs, high_pairs, idle_pairs, measuring_text
from fikitctl.invocation import Invocation
from fikitctl.main import call


def session(priority: int, gate: GateStatistics) -> Gated:
    return Gated(
        session=SessionRecord(
            session=f"s-{priority}", tenant="bob", uid=2, pid=2, name="train", priority=priority, gpu=0,
            executor="x-1", isolated=False, job=None, state="running", memory_limit_bytes=0,
            opened_unix=0.0, usage=Usage(),
        ),
        gate=gate,
    )  # fmt: skip


@pytest.fixture
def explained(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What is printed of a session."""

    def printed(policy: str, told: Gated, *beside: Gated) -> str:
        reply = Explained(policy=policy, gated=told, beside=list(beside))
        monkeypatch.setattr(Invocation, "request", lambda *_: reply)
        assert call(["explain", told.session.session]) == 0
        return capsys.readouterr().out

    return printed


def test_idle_time_is_told_apart_by_who_had_it() -> None:
    gate = GateStatistics(
        steps=100, step_ns=2_000_000, bound_ns=40_000, over_bound=1, predicted=1000, met=990,
        idle_ns=1_000_000_000, idle_filled_ns=600_000_000, idle_confined_ns=100_000_000,
        delays=3, delay_ns=90_000, worst_delay_ns=50_000, delayed_by="s-2",
        trust=0.5, beside_ns=100_000_000, slowed_ns=46_000_000,
    )  # fmt: skip
    told = dict([*high_pairs(gate), *idle_pairs(gate)])
    assert told["  filled"] == "600.0ms (60.0%)"
    assert told["  partitioned"] == "100.0ms (10.0%)"
    assert told["  left"] == "300.0ms (30.0%)"
    assert told["delays"] == "3, 90.0us in all, the worst 50.0us, by s-2"
    assert told["interference"] == "46% longer beside gated work, 46.0ms in all"
    assert told["trust"] == "50% of its idle time and of the bound is used"
    assert told["bound"] == "40.0us a step; over it: 1 steps"
    assert told["predictions"] == "1000, met: 990 (99.0%)"


def test_a_session_that_did_nothing_has_no_shares() -> None:
    told = dict([*high_pairs(GateStatistics()), *idle_pairs(GateStatistics())])
    assert told["  filled"] == told["idle"] == "0"
    assert told["delays"] == "none"


def test_what_is_measured_may_be_no_launch() -> None:
    """A trace measures copies and fills, too: of a session with no launch it told of thousands."""
    assert measuring_text(GateStatistics(measured=3, measuring_ns=2000)) == "3 operations, 2.0us added"
    assert measuring_text(GateStatistics()) == ""


def test_reasons_come_by_how_often() -> None:
    gate = GateStatistics(refused={"bound": 3, "too_long": 5})
    names = [name for name, _ in gated_pairs(gate) if name.startswith("refused")]
    assert names == ["refused: too long", "refused: bound"]


def test_delays_that_were_suffered_and_caused_are_told_apart(explained: Callable[..., str]) -> None:
    """The priority of each was changed meanwhile."""
    gate = GateStatistics(
        delays=3, delay_ns=90_000, worst_delay_ns=50_000, beside_ns=100_000, slowed_ns=46_000,
        caused_delays=2, caused_delay_ns=20_000, caused_worst_delay_ns=15_000,
        caused_beside_ns=10_000, caused_slowed_ns=1_000,
    )  # fmt: skip
    for told in (session(0, gate), session(9, gate)):
        lines = dict(line.split("  ", 1) for line in explained("fikit", told).splitlines())
        found = {name: text.strip() for name, text in lines.items()}
        assert found["delays"] == "3, 90.0us in all, the worst 50.0us"
        assert found["delays caused"] == "2, 20.0us in all, the worst 15.0us"
        assert found["interference"] == "46% longer beside gated work, 46.0us in all"
        assert found["interference caused"] == "10% longer beside its work, 1.0us in all"
    beside = explained("fikit", session(5, GateStatistics()), session(0, gate), session(9, gate))
    high, low = (line.split() for line in beside.splitlines()[-2:])
    assert (high[-4:-1], low[-4:-1]) == (["3", "50.0us", "46.0%"], ["2", "15.0us", "10.0%"])


def test_what_a_policy_does_not_count_is_not_told_as_none(explained: Callable[..., str]) -> None:
    high, low = session(0, GateStatistics(idle_ns=1000, idle_filled_ns=400)), session(9, GateStatistics())
    for told, other in ((high, low), (low, high)):
        text = explained("strict", told, other)
        assert "counts no steps, delays" in text
        assert not any(word in text for word in ("none", "delays caused", "operations", "REFUSED", "DELAYS"))
    assert "400ns (40.0%)" in explained("strict", high)
    assert "delays" in explained("fikit", high)
