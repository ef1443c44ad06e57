"""``fikitctl trace`` of a daemon that does not see it to its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fikit import protocol
from msgspec.structs import replace

from tests.integration.test_ctl.conftest import Fikitctl, ScriptedDaemon
from tests.integration.test_ctl.test_top import GPU


@pytest.mark.parametrize(("end", "code"), [("it goes away", 3), ("--timeout", 124), ("it refuses", 1)])
def test_what_was_recorded_is_written(
    daemon: ScriptedDaemon, fikitctl: Fikitctl, tmp_path: Path, end: str, code: int
) -> None:
    operation = protocol.TraceOperation("session-2", 0, "launch", "gemm", 1000, 2000, 3000, 9000, 0, 8, 0)

    def read(_request: protocol.ReadTrace) -> protocol.Reply | None:
        if len(daemon.of(protocol.ReadTrace)) > 1:
            return protocol.Failure("unavailable", "not now") if end == "it refuses" else None
        if end == "it goes away":
            daemon.hang_up.add(protocol.ReadTrace)
        return protocol.Trace(operations=[operation], dropped=0)

    daemon.script |= {
        protocol.ListGpus: protocol.Gpus(gpus=[GPU]),
        protocol.StartTrace: protocol.Done(),
        protocol.ReadTrace: read,
        protocol.Show: protocol.Failure("not_found", "gone"),
    }
    file = tmp_path / "trace.json"
    limit = ("--timeout", "1s") if end == "--timeout" else ()
    result = fikitctl("trace", "--seconds", "1h", "--output", str(file), *limit)
    assert (result.code, "1 operations in" in result.err) == (code, True)
    assert json.loads(file.read_bytes())["otherData"]["operations"] == 1
    # Nothing was recorded of this one.
    assert fikitctl("trace", "--seconds", "1h", "--json", *limit)[:2] == (code, "")


@pytest.mark.parametrize(("named", "code", "asked"), [("GPU-f00d", 0, 1), ("1", 0, 1), ("GPU-f1", 4, None)])
def test_a_gpu_is_told_by_its_index_or_uuid(
    daemon: ScriptedDaemon, fikitctl: Fikitctl, tmp_path: Path, named: str, code: int, asked: int | None
) -> None:
    daemon.script |= {
        protocol.ListGpus: protocol.Gpus(gpus=[GPU, replace(GPU, index=1, uuid="GPU-f00d-2")]),
        protocol.StartTrace: protocol.Done(),
        protocol.ReadTrace: protocol.Trace(operations=[], dropped=0),
    }
    file = str(tmp_path / "trace.json")
    assert fikitctl("trace", "--gpu", named, "--seconds", "1ms", "--output", file).code == code
    assert [each.gpu for each in daemon.of(protocol.StartTrace)] == [asked] * (asked is not None)


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


def test_what_is_left_is_read_at_once(daemon: ScriptedDaemon, fikitctl: Fikitctl, tmp_path: Path) -> None:
    """Else a ring that fills faster than so much at a time runs over."""
    portions = 50

    def read(request: protocol.ReadTrace) -> protocol.Trace:
        return protocol.Trace(operations=[], dropped=0, more=len(daemon.of(type(request))) < portions)

    daemon.script |= {
        protocol.ListGpus: protocol.Gpus(gpus=[GPU]),
        protocol.StartTrace: protocol.Done(),
        protocol.ReadTrace: read,
    }
    assert fikitctl("trace", "--seconds", "5s", "--output", str(tmp_path / "trace.json")).code == 0
    assert not any(each.stop for each in daemon.of(protocol.ReadTrace)[:portions])
