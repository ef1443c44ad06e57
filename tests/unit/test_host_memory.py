"""What the host has for an executor, in control groups of both versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fikitd.executor.core import settings_of
from fikitd.executor.host_memory import host_bytes
from fikitd.scheduling.settings import SchedulingSection

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
SECOND, FIRST = "0::/slice/unit\n", "4:cpu,memory:/slice/unit\n3:cpuset:/slice\n0::/\n"


@pytest.mark.parametrize(
    ("ours", "limits", "expected"),
    [
        (SECOND, {}, MACHINE),
        (SECOND, {"slice/unit/memory.max": "max\n"}, MACHINE),
        (SECOND, {"slice/unit/memory.max": "4096\n", "slice/memory.max": "max\n"}, 4096),
        (SECOND, {"slice/unit/memory.max": "8192\n", "slice/memory.max": "4096\n"}, 4096),
        ("0::/of/the/host\n", {"memory.max": "4096\n"}, 4096),  # a container's, shown as if it was the top
        ("0::/\n", {"memory.max": "4096\n"}, 4096),
        (SECOND, {"slice/unit/memory.max": f"{1 << 62}\n"}, MACHINE),
        (FIRST, {"memory/slice/memory.limit_in_bytes": "4096\n"}, 4096),
        (FIRST, {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, MACHINE),
    ],
)
def test_the_least_limit_counts(tmp_path: Path, ours: str, limits: dict[str, str], expected: int) -> None:
    (tmp_path / "ours").write_text(ours)
    for name, limit in limits.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(limit)
    assert host_bytes(tmp_path / "groups", tmp_path / "ours") == expected


def test_where_there_are_none_the_machine_s_counts(tmp_path: Path) -> None:
    assert host_bytes(tmp_path, tmp_path / "ours") == MACHINE


def test_a_user_may_have_half_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fikitd.executor.core.host_bytes", lambda: 4096)
    assert settings_of(SchedulingSection()).host_tenant_bytes == 2048
    assert settings_of(SchedulingSection(host_memory_limit_bytes=8192)).host_tenant_bytes == 8192
