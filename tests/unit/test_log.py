"""How lines of a log look, and those that cannot always be written."""

from __future__ import annotations

import json
import os
import sys

import pytest

from fikitd import log

LINE: log.Line = {
    "job": "job-1",
    "name": "two words",
    "odd": "\x1b[31m",
    "exit_code": 3,
    "event": "job_ended",
    "level": "warning",
    "timestamp": "2026-01-02T03:04:05.678901Z",
}


class Errors:
    """What stands in for standard error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reader, self.writer = os.pipe()
        os.set_blocking(reader, False)
        self.read = os.fdopen(reader, "rb", buffering=0)
        self.written = os.fdopen(self.writer, "w")
        self._monkeypatch = monkeypatch

    def __enter__(self) -> Errors:
        self._monkeypatch.setattr(sys, "stderr", self.written)  # pytest sets it before a test
        return self

    def __exit__(self, *_: object) -> None:
        self._monkeypatch.undo()
        self.read.close()
        self.written.close()

    def lines(self) -> list[str]:
        return self.read.read(65536).decode().splitlines()


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> Errors:
    monkeypatch.setattr(log, "_tell", log._tell)
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    return Errors(monkeypatch)


def test_a_line_tells_how_many_before_it_were_lost(errors: Errors) -> None:
    with errors:
        log.set_up("info")
        os.write(errors.writer, bytes(65536))
        for number in range(3):
            log.Log().info("unheard", number=number)
        errors.lines()
        log.Log().info("heard")
        log.Log().info("whole")
        first, second = map(json.loads, errors.lines())
        assert (first["event"], first["lost_lines"]) == ("heard", 3)
        assert second["event"] == "whole"
        assert "lost_lines" not in second


def test_a_line_after_one_that_was_cut_begins_anew(errors: Errors) -> None:
    with errors:
        lines = log.Lines()
        lines.write("x" * 70_000 + "\n")
        assert errors.read.read(1 << 20) == b"x" * 65536
        lines.write("whole\n")
        assert errors.read.read(1 << 20) == b"\nwhole\n"


def test_only_what_is_important_enough_is_written_and_a_reload_changes_that(errors: Errors) -> None:
    with errors:
        told = log.Log(uid=7)
        told.error("before anything was set up")
        for level, heard in (("warning", ["warning", "error"]), ("info", ["info", "warning", "error"])):
            log.set_up(level)
            told.info("one", number=1)
            told.warning("two", place={1})
            told.error("three")
            seen = [json.loads(line) for line in errors.lines()]
            assert [each["level"] for each in seen] == heard
            assert all(each["uid"] == 7 and each["timestamp"].endswith("Z") for each in seen)
            assert next(each for each in seen if each["event"] == "two")["place"] == "{1}"


def test_a_defect_is_told_with_its_stack(errors: Errors) -> None:
    with errors:
        log.set_up("info")
        try:
            raise ValueError("wrong")
        except ValueError:
            log.Log().exception("request_failed")
        (line,) = map(json.loads, errors.lines())
        assert line["level"] == "error"
        assert line["exception"].startswith("Traceback")
        assert line["exception"].endswith("ValueError: wrong")


def test_systemd_reads_the_priority_in_front(errors: Errors, monkeypatch: pytest.MonkeyPatch) -> None:
    with errors:
        monkeypatch.setenv("JOURNAL_STREAM", "8:1")
        log.set_up("info")
        log.Log().warning("two")
        log.Log().info("one")
        two, one = errors.lines()
        assert (two[:3], json.loads(two[3:])["event"]) == ("<4>", "two")
        assert (one[:3], json.loads(one[3:])["event"]) == ("<6>", "one")


def test_people_read_the_event_first() -> None:
    head = "2026-01-02T03:04:05.678901Z [warning  ] job_ended                     "
    fields = r" exit_code=3 job=job-1 name='two words' odd='\x1b[31m'"
    assert log.ForPeople(colors=False)(LINE) == head + fields
    bare = {name: LINE[name] for name in ("event", "level", "timestamp")}
    assert log.ForPeople(colors=False)(bare) == head.rstrip()
    assert log.ForPeople(colors=False)(bare | {"exception": "Traceback:\n  x"}).splitlines()[1:] == [
        "Traceback:",
        "  x",
    ]
    colored = log.ForPeople(colors=True)({**bare, "job": "job-1"})
    assert colored.startswith("\x1b[2m2026-01-02T03:04:05.678901Z\x1b[0m [\x1b[33m\x1b[1mwarning  \x1b[0m] ")
    assert colored.endswith(" \x1b[36mjob\x1b[0m=\x1b[35mjob-1\x1b[0m")
