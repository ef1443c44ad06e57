"""``fikitctl trace`` of what does not go well."""

from __future__ import annotations

from pathlib import Path

from fikit import protocol

from tests.integration.test_ctl.conftest import Fikitctl, ScriptedDaemon
from tests.integration.test_ctl.test_top import GPU


def test_a_session_that_the_daemon_has_forgotten(
    daemon: ScriptedDaemon, fikitctl: Fikitctl, tmp_path: Path
) -> None:
    operation = protocol.TraceOperation("session-2", 0, "launch", "gemm", 1000, 2000, 3000, 9000, 0, 8, 0)
    daemon.script |= {
        protocol.ListGpus: protocol.Gpus(gpus=[GPU]),
        protocol.StartTrace: protocol.Done(),
        protocol.ReadTrace: protocol.Trace(operations=[operation], dropped=0),
        protocol.Show: protocol.Failure("not_found", "no session-2"),
    }
    file = tmp_path / "trace.json"
    assert fikitctl("trace", "--seconds", "10ms", "--output", str(file)).code == 0
    assert "session-2" in file.read_text()
