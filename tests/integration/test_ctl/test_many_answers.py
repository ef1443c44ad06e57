"""Verbs that ask again and again until they have all: the daemon has as much time for each answer."""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec
import pytest
from fikit import protocol

from tests.integration.test_ctl.conftest import Fikitctl, ScriptedDaemon

PROFILE = protocol.ProfileRecord(
    module="00000000000000aa", function="k", grid=(8, 1, 1), block=(8, 1, 1), shared_bytes=0, samples=1,
    median_ns=1, p95_ns=1, device="H200",
)  # fmt: skip
SHORT = 5.0


class _Clock:
    """How much time there is left whenever the daemon is asked; after that there is little."""

    def __init__(self) -> None:
        self.left: list[float] = []

    def look(self) -> None:
        self.left.append(signal.getitimer(signal.ITIMER_REAL)[0])
        signal.setitimer(signal.ITIMER_REAL, SHORT)


@pytest.mark.parametrize("limit", [(), ("--timeout", "1h")])
@pytest.mark.parametrize("verb", ["export", "import"])
def test_each_answer_has_its_time(
    daemon: ScriptedDaemon,
    fikitctl: Fikitctl,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    limit: tuple[str, ...],
) -> None:
    clock = _Clock()

    def listed(_request: protocol.ListProfiles) -> protocol.Profiles:
        clock.look()
        return protocol.Profiles(profiles=[PROFILE], more=len(clock.left) < 3)

    def taken(_request: protocol.ImportProfiles) -> protocol.Done:
        clock.look()
        return protocol.Done()

    daemon.script |= {protocol.ListProfiles: listed, protocol.ImportProfiles: taken}
    monkeypatch.setattr("fikit.protocol.frames.PORTION_BYTES", 1)
    file = tmp_path / "profiles.json"
    file.write_bytes(msgspec.json.encode(protocol.Profiles(profiles=[PROFILE] * 3)))
    assert fikitctl("profile", verb, str(file), *limit).code == 0
    assert len(clock.left) == 3
    assert all((left > SHORT) == (not limit) for left in clock.left[1:])
