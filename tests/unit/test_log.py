"""Lines of a log that cannot always be written."""

from __future__ import annotations

import json
import logging
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


def test_only_the_journal_is_told_priorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whom a service starts, as a terminal or supervisord, inherits the name of the service's own stream."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as read, os.fdopen(writer, "w") as written:
        monkeypatch.setattr(sys, "stderr", written)
        pipe, told = os.fstat(writer), []
        for stream in (f"{pipe.st_dev}:{pipe.st_ino}", f"{pipe.st_dev}:{pipe.st_ino + 1}"):
            monkeypatch.setenv("JOURNAL_STREAM", stream)
            log.set_up("info")
            try:
                structlog.get_logger().info("said")
            finally:
                structlog.reset_defaults()
            told.append(read.read(65536))
    assert told[0].startswith(b'<6>{"')
    assert json.loads(told[1])["event"] == "said"


def test_what_libraries_tell_is_a_line_that_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As trio that a scraper could not be accepted: the daemon stood still where nobody read its log."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as read, os.fdopen(writer, "w") as written:
        monkeypatch.setattr(sys, "stderr", written)
        monkeypatch.delenv("JOURNAL_STREAM", raising=False)
        log.set_up("info")
        log.set_up("info")
        os.write(writer, bytes(65536))
        library = logging.getLogger("a.library")
        library.error("unheard %d", 1)
        read.read(65536)
        try:
            raise OSError(24, "no descriptors")
        except OSError as error:
            library.error("heard %d", 2, exc_info=error)
        (line,) = map(json.loads, read.read(65536).splitlines())
    assert (line["event"], line["library"], line["reason"]) == ("library_told", "a.library", "heard 2")
    assert (line["level"], line["lost_lines"]) == ("error", 1)
    assert line["exception"].endswith("OSError: [Errno 24] no descriptors")
