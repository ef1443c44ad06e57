"""How fikitctl prints tables."""

from __future__ import annotations

import time
from typing import Any

import pytest
from fikit.protocol import JobRecord, SessionRecord, Usage
from fikitctl.commands.work import work_columns
from fikitctl.tables import PLAIN, Column, Layout, table


def test_what_is_drawn_wide_leaves_the_next_column_where_it_is() -> None:
    """Ideographs and pictures take two columns of a terminal, accents that follow their letter none."""
    names = ("plain", "名前", "\N{ROCKET}x", "e\N{COMBINING ACUTE ACCENT}")
    columns = [
        Column("name", lambda pair: pair[0]),
        Column("right", lambda pair: pair[0], right=True),
        Column("age", lambda pair: pair[1]),
    ]
    assert table(columns, [(name, "1s") for name in names], PLAIN) == (
        "NAME   RIGHT  AGE\n"
        "plain  plain  1s\n"
        "名前    名前  1s\n"
        "\N{ROCKET}x      \N{ROCKET}x  1s\n"
        "e\N{COMBINING ACUTE ACCENT}          e\N{COMBINING ACUTE ACCENT}  1s\n"
    )


def test_ps_tells_when_work_was_submitted_started_and_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.localtime", time.gmtime)
    shared: dict[str, Any] = {
        "tenant": "ada",
        "uid": 1,
        "name": "x",
        "priority": 5,
        "memory_limit_bytes": 0,
        "usage": Usage(),
    }
    job = JobRecord(
        job="job-1", command=["x"], directory="/", gpus=[0], isolated=False, state="finished", pid=1,
        exit_code=0, reason="", submitted_unix=0.0, started_unix=60.0, ended_unix=3600.0,
        sessions=[], **shared,
    )  # fmt: skip
    session = SessionRecord(
        session="s-1", pid=1, gpu=0, executor="x-1", isolated=False, job=None, state="running",
        opened_unix=120.0, **shared,
    )  # fmt: skip
    layout = Layout(["id", "submitted", "started", "ended"], header=False, quiet=False)
    assert table(work_columns(), [job, session], layout) == (
        "job-1  1970-01-01 00:00:00  1970-01-01 00:01:00  1970-01-01 01:00:00\n"
        "s-1    -                    1970-01-01 00:02:00  -\n"
    )
