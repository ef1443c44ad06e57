"""Lines of a log that cannot always be written."""

from __future__ import annotations

import json
import os
import sys

import pytest
import structlog

from fikitd import log


def test_a_line_tells_how_many_before_it_were_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as read, os.fdopen(writer, "w") as written:
        monkeypatch.setattr(sys, "stderr", written)
        monkeypatch.delenv("JOURNAL_STREAM", raising=False)
        log.set_up("info")
        try:
            os.write(writer, bytes(65536))
            for number in range(3):
                structlog.get_logger().info("unheard", number=number)
            read.read(65536)
            structlog.get_logger().info("heard")
            structlog.get_logger().info("whole")
            first, second = map(json.loads, read.read(65536).decode().splitlines())
        finally:
            structlog.reset_defaults()
    assert (first["event"], first["lost_lines"]) == ("heard", 3)
    assert second["event"] == "whole"
    assert "lost_lines" not in second


def test_a_line_after_one_that_was_cut_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as read, os.fdopen(writer, "w") as written:
        monkeypatch.setattr(sys, "stderr", written)
        lines = log.Lines()
        lines.write("x" * 70_000 + "\n")
        assert read.read(1 << 20) == b"x" * 65536
        lines.write("whole\n")
        assert read.read(1 << 20) == b"\nwhole\n"
