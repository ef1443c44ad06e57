"""What an executor is started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from fikitd.executor.supervisor_launch import CODE_CACHE, compiled_code


async def test_each_user_has_a_place_for_compiled_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CODE_CACHE, raising=False)
    first, second = [Path((await compiled_code(tmp_path, uid))[CODE_CACHE]) for uid in (7, 8)]
    assert first != second
    assert first.stat().st_mode & 0o777 == 0o700
    assert await compiled_code(tmp_path, 7) == {CODE_CACHE: str(first)}


async def test_an_administrators_place_is_respected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CODE_CACHE, "/elsewhere")
    assert await compiled_code(tmp_path, 7) == {}


async def test_an_executor_starts_without_room_for_compiled_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CODE_CACHE, raising=False)
    (tmp_path / "compiled").write_text("a file")
    assert await compiled_code(tmp_path, 7) == {}
