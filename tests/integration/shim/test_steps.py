"""What the gate knows of an unmodified program's steps: where they end, what their launches are spared."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from fikit import protocol
from fikit.unmodified import variables

from tests.integration.end_to_end.conftest import SETTINGS, Served
from tests.integration.shim.conftest import DEADLINE_SECONDS, PROGRAMS

pytestmark = [pytest.mark.alone, pytest.mark.shares_daemon]

LEAST_NS = 10_000
STEPS, LAUNCHES = 30, 100
"""Of a step of the program."""


def stepped(daemon: Served, way: str) -> list[protocol.GateStatistics]:
    """How the gate sees a program that waits for each step in such a way, after its first steps and later."""
    program = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "bursts.py"), way],
        env={
            **os.environ,
            "PYTHONPATH": str(PROGRAMS),
            **variables(str(daemon.socket), os.environ),
            "FIKIT_PRIORITY": "high",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    seen = []
    try:
        for _ in range(2):
            program.stdin.write("\n")
            program.stdin.flush()
            assert program.stdout.readline() == "stepped\n"
            client = daemon.client()
            (session,) = client.ask(protocol.ListSessions()).sessions
            seen.append(client.ask(protocol.Explain(session=session.session)).gated.gate)
            client.close()
    finally:
        program.communicate("", timeout=DEADLINE_SECONDS)
    return seen


def beyond_share_ns(daemon: Served) -> float:
    """By how much the bound on the delay of a step is above a fiftieth of it."""
    _, gate = stepped(daemon, "stream")
    return gate.bound_ns - max(LEAST_NS, 0.02 * gate.step_ns)


WAYS = ("stream", "context", "event", "copy", "late", "default", "polled event", "polled stream")


@pytest.mark.parametrize("way", WAYS)
def test_a_step_ends_with_each_wait(daemon: Served, way: str) -> None:
    first, later = stepped(daemon, way)
    assert abs(later.steps - first.steps - STEPS) <= 1  # of a wait it may be told with the next launch only


def test_what_launches_spare_adds_to_the_bound(daemon: Served) -> None:
    assert beyond_share_ns(daemon) > LAUNCHES * 200


@pytest.mark.parametrize("share", [0, 0.25])
def test_only_its_share(stopped_daemon: Served, share: float) -> None:
    daemon = stopped_daemon
    daemon.start()
    whole = beyond_share_ns(daemon)
    daemon.stop()
    daemon.configure(settings=SETTINGS.replace("[scheduling]", f"[scheduling]\nspared_share = {share}"))
    daemon.start()
    part = beyond_share_ns(daemon)
    assert part < LEAST_NS if share == 0 else part < 0.8 * whole
