"""State files of released versions must load for ever: tests/data/state-N.sql is what schema N wrote."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from fikit.protocol import Usage

from fikitd.errors import Unavailable
from fikitd.jobs.model import Job
from fikitd.session import SessionNote
from fikitd.store import SCHEMA_PLACES, SCHEMA_VERSION, Store, unpack

DATA = Path(__file__).resolve().parents[1] / "data"


def restore(version: int, place: Path) -> Path:
    path = place / "state.db"
    connection = sqlite3.connect(path)
    connection.executescript((DATA / f"state-{version}.sql").read_text())
    connection.execute(f"PRAGMA user_version={version}")
    connection.close()
    return path


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
async def test_old_state_loads(version: int, tmp_path: Path) -> None:
    store = await Store.open(restore(version, tmp_path))
    ((number, data),) = await store.read("SELECT number, record FROM jobs")
    job = unpack(data, Job)
    assert (number, job.number, job.state, job.exit_code, job.command) == (
        7,
        7,
        "failed",
        3,
        ["python", "x.py"],
    )
    assert job.usage == Usage(gpu_ns=10, launches=2)
    ((session, note),) = await store.read("SELECT session, record FROM sessions")
    assert (session, unpack(note, SessionNote).reserved_bytes) == ("s-0011223344", 1024)
    assert await store.load_usage() == {(1000, 0): Usage(gpu_ns=10, launches=2)}
    assert await store.setting("drain_reason") == "maintenance"
    ((module, samples, gaps),) = await store.read("SELECT module, samples, gaps FROM profiles")
    assert (module, samples) == ("ab", 3)
    assert json.loads(gaps) == ([["00000000000000cd", 3, 7000]] if version > 1 else [])
    await store.close()


async def test_newer_state_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "state.db")
    for place in SCHEMA_PLACES:
        connection.execute(f"PRAGMA {place}={SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(Unavailable, match="newer fikitd"):
        await Store.open(tmp_path / "state.db")


@pytest.mark.parametrize("version", [-SCHEMA_VERSION, 1, SCHEMA_VERSION + 512])
async def test_a_schema_that_the_file_does_not_have_is_damage(version: int, tmp_path: Path) -> None:
    """A bit has flipped in its number: that of none, of one whose columns are there, or of a newer one."""
    path = restore(SCHEMA_VERSION, tmp_path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version={version}")
    connection.close()
    store = await Store.open(path)
    assert store.aside is not None
    assert await store.read("SELECT * FROM jobs") == []
    await store.close()
