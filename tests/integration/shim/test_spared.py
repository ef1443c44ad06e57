"""What fikitd spares an unmodified program's launches may be spent on others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from fikit import protocol
from fikit.unmodified import variables

from tests.integration.end_to_end.conftest import SETTINGS, Served
from tests.integration.shim.conftest import DEADLINE_SECONDS, PROGRAMS

LEAST_NS = 10_000
LAUNCHES = 100
"""Of a step of the program."""


def beyond_share_ns(daemon: Served) -> float:
    """By how much the bound on the delay of a step is above a fiftieth of it."""
    program = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "bursts.py")],
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
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "stepped\n"
        client = daemon.client()
        (session,) = client.ask(protocol.ListSessions()).sessions
        gate = client.ask(protocol.Explain(session=session.session)).gated.gate
        client.close()
    finally:
        program.communicate("", timeout=DEADLINE_SECONDS)
    assert gate.steps > 10
    return gate.bound_ns - max(LEAST_NS, 0.02 * gate.step_ns)


def test_what_launches_spare_adds_to_the_bound(daemon: Served) -> None:
    assert beyond_share_ns(daemon) > LAUNCHES * 200


@pytest.mark.parametrize("share", [0, 0.25])
def test_only_its_share(daemon: Served, share: float) -> None:
    whole = beyond_share_ns(daemon)
    daemon.stop()
    daemon.configure(settings=SETTINGS.replace("[scheduling]", f"[scheduling]\nspared_share = {share}"))
    daemon.start()
    part = beyond_share_ns(daemon)
    assert part < LEAST_NS if share == 0 else part < 0.8 * whole
