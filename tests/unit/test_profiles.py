"""The store of kernel profiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fikit.protocol import ProfileRecord

from fikitd import profiles
from fikitd.store import Store
from fikitd.tenants.peer import Peer

ROOT = Peer(uid=0, gid=0, pid=1, groups=(), tenant="root", administrator=True)
USER = Peer(uid=1000, gid=1000, pid=1, groups=(), tenant="user", administrator=False)


def record(function: str, samples: int = 1) -> ProfileRecord:
    return ProfileRecord(
        module="00000000000000aa", function=function, device="some GPU", grid=(1, 1, 1), block=(1, 1, 1),
        shared_bytes=0, samples=samples, median_ns=10, p95_ns=10, shortest_ns=10, block_ns=10,
        wrong=0, key="00000000000000bb", gaps=[],
    )  # fmt: skip


async def test_what_was_saved_longest_ago_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "MOST_PROFILES", 3)
    clock = iter(range(1, 100))
    monkeypatch.setattr(profiles.time, "time_ns", lambda: next(clock))
    store = await Store.open(tmp_path / "state.db")
    kept = profiles.Profiles(store, cast(Any, None))
    for function in "abc":
        await kept.save([record(function)])
    await kept.save([record("a", 2)])  # renewed
    await kept.save([record("d")])
    assert {each.function for each in await kept.list(ROOT, 10, 0)} == {"a", "c", "d"}
    await kept.save(record(function) for function in "efgh")  # what comes together stays together
    assert {each.function for each in await kept.list(ROOT, 10, 0)} == set("efgh")
    await store.close()


async def test_a_users_many_kernels_are_not_anothers_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "MOST_PROFILES", 6)
    store = await Store.open(tmp_path / "state.db")
    kept = profiles.Profiles(store, cast(Any, None))
    await kept.save([record("imported")])
    await kept.save([record("a"), record("b")], 1000)
    for number in range(20):
        await kept.save([record("a", 2), record(f"flood{number}")], 1001)

    async def seen(peer: Peer) -> list[tuple[str, int]]:
        return sorted((each.function, each.samples) for each in await kept.list(peer, 10, 0))

    flood = [("a", 2), ("flood18", 1), ("flood19", 1)]
    assert await seen(USER) == [("a", 1), ("b", 1), ("imported", 1)]
    assert await seen(replace(USER, uid=1001)) == [*flood, ("imported", 1)]
    assert await seen(ROOT) == sorted([("a", 1), ("b", 1), ("imported", 1), *flood])
    await store.close()


async def test_an_entry_with_a_long_name_is_as_many_as_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel's name may have 32 KiB, and its shapes be without end: 100 000 of them were 6 GB."""
    monkeypatch.setattr(profiles, "MOST_PROFILES", 50)
    store = await Store.open(tmp_path / "state.db")
    kept = profiles.Profiles(store, cast(Any, None))
    await kept.save([record(f"short{number}") for number in range(20)], 1000)
    for number in range(10):
        await kept.save([record(f"{number}{chr(0xE9) * 2560}")], 1001)  # 5 KiB
        await kept.save([record("short", 2)], 1001)
    listed = await kept.list(ROOT, 100, 0)
    assert sum(each.function.startswith("short") for each in listed) == 21
    assert sorted(each.function[0] for each in listed if len(each.function) > 100) == [*"789"]
    await store.close()


async def test_a_clock_that_is_set_back_keeps_what_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "MOST_PROFILES", 2)
    clock = iter([100, 100, 1, 2])
    monkeypatch.setattr(profiles.time, "time_ns", lambda: next(clock))
    store = await Store.open(tmp_path / "state.db")
    kept = profiles.Profiles(store, cast(Any, None))
    for function in "abcd":
        await kept.save([record(function)])
    assert {each.function for each in await kept.list(ROOT, 10, 0)} == {"c", "d"}
    await store.close()


@pytest.mark.parametrize("peer", [ROOT, USER])
async def test_what_comes_before_the_listed_is_not_read(tmp_path: Path, peer: Peer) -> None:
    """There may be 100 000, of which anybody may ask for the last, and others wait for the file meanwhile."""
    store = await Store.open(tmp_path / "state.db")
    kept = profiles.Profiles(store, cast(Any, None))
    plans = []

    async def plan(statement: str, _: Any, values: Any) -> list[Any]:
        plans.extend(await store.read(f"EXPLAIN QUERY PLAN {statement}", values))
        return []

    kept._store = cast(Any, SimpleNamespace(readable=plan))
    assert await kept.list(peer, 10, 99_990) == []
    described = " / ".join(row[-1] for row in plans)
    assert "SCAN profiles USING INDEX profiles_by_samples" in described
    assert "TEMP B-TREE" not in described
    await store.close()
