"""Where a session or job goes, and whether there is room."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fikitd import _core
from fikitd.configuration import Allowance, DeviceSection
from fikitd.device import DeviceSpec
from fikitd.errors import InvalidRequest, NotFound, QuotaReached
from fikitd.placement import Ask, Claim, MachineFull, index_of, memory_limit, place

GIB = 1 << 30
ALLOWED = Allowance(priority_ceiling=5, weight=1.0, memory_limit_bytes=0, max_sessions=3, max_jobs=1)


def gpu(index: int, memory: int = 8 * GIB) -> DeviceSpec:
    return DeviceSpec(index, f"gpu {index}", f"uuid {index}", memory, index, False, None, 1.0)


TWO = {0: gpu(0), 1: gpu(1)}
LIMITS = DeviceSection(max_sessions=2)
SERVED: Any = SimpleNamespace(failing=(), check_place=lambda gpu, domain, uid: None)


def ask(memory: int = 0, index: int | None = None, allowed: Allowance = ALLOWED) -> Ask:
    return Ask(7, index, memory, allowed)


def test_the_emptier_gpu_wins() -> None:
    assert place(ask(), TWO, [], LIMITS, SERVED).index == 0
    assert place(ask(), TWO, [Claim(0, 1, GIB, 0, 1)], LIMITS, SERVED).index == 1
    assert place(ask(), TWO, [Claim(0, 1, 0, GIB, 1)], LIMITS, SERVED).index == 1
    assert place(ask(index=0), TWO, [Claim(0, 1, GIB, 0, 1)], LIMITS, SERVED).index == 0


def test_a_gpu_is_named_by_the_beginning_of_its_uuid_alone() -> None:
    assert [index_of(name, TWO) for name in (1, "uuid 0", "UUID 1")] == [1, 0, 1]
    with pytest.raises(NotFound, match="no GPU uuid 2"):
        index_of("uuid 2", TWO)
    with pytest.raises(InvalidRequest, match=r"uuid may be GPU 0 \(uuid 0\), 1 \(uuid 1\)"):
        index_of("uuid", TWO)


def test_no_room() -> None:
    with pytest.raises(MachineFull, match="2 sessions"):
        place(ask(index=0), TWO, [Claim(0, 1, 0, 0, 2)], LIMITS, SERVED)
    with pytest.raises(MachineFull, match=r"^GPU 0 has 3\.50 GiB left to reserve, 5 GiB were asked for"):
        place(ask(5 * GIB, 0), TWO, [Claim(0, 1, 9 * GIB // 2, 0, 1)], LIMITS, SERVED)
    with pytest.raises(QuotaReached, match="3 sessions") as reached:
        place(ask(), TWO, [Claim(0, 7, 0, 0, 1), Claim(1, 7, 0, 0, 2)], LIMITS, SERVED)
    assert reached.value.hint == "end one first, or have the tenant's max_sessions raised"
    with pytest.raises(QuotaReached, match=r"^9 GiB are more than the 8 GiB you may have on GPU 0"):
        place(ask(9 * GIB), TWO, [], LIMITS, SERVED)
    with pytest.raises(NotFound, match="no GPU 4"):
        place(ask(index=4), TWO, [], LIMITS, SERVED)


def test_who_waits_for_room_waits_where_there_can_be_some() -> None:
    """Jobs that come later wait behind him there alone."""
    quota = Allowance(priority_ceiling=5, weight=1.0, memory_limit_bytes=2 * GIB, max_sessions=3, max_jobs=1)
    full = Claim(0, 1, 8 * GIB, 0, 1)
    with pytest.raises(MachineFull) as waits:
        place(ask(3 * GIB), {0: gpu(0), 1: gpu(1, 2 * GIB)}, [full], LIMITS, SERVED)
    assert waits.value.gpus == {0}
    with pytest.raises(MachineFull) as waits:
        place(ask(GIB, None, quota), TWO, [full, Claim(1, 7, 2 * GIB, 0, 1)], LIMITS, SERVED)
    assert waits.value.gpus == {0}
    with pytest.raises(QuotaReached, match="you have reserved") as waits:
        place(
            ask(GIB, 0, quota), TWO, [Claim(0, 7, 2 * GIB, 0, 1), Claim(0, 1, 6 * GIB, 0, 1)], LIMITS, SERVED
        )
    assert not isinstance(waits.value, MachineFull)


def test_an_executor_takes_so_many_sessions() -> None:
    """Whose is full gets one on another GPU, or waits for himself; others are not in his way."""
    many = Allowance(priority_ceiling=5, weight=1.0, memory_limit_bytes=0, max_sessions=256, max_jobs=1)
    mine = Ask(7, None, 0, many, "uid-7")
    full, theirs = (Claim(gpu, uid, 0, 0, _core.MAX_SESSIONS, f"uid-{uid}") for gpu, uid in ((0, 7), (1, 8)))
    others = [Claim(0, 7, 0, 0, 1, None), theirs, Claim(1, 8, GIB, 0, 1)]
    limits = DeviceSection(max_sessions=256)
    assert place(replace(mine, gpu=0), TWO, [replace(full, sessions=63), *others], limits, SERVED).index == 0
    assert place(mine, TWO, [full, *others], limits, SERVED).index == 1
    assert place(replace(mine, domain="job-3"), TWO, [full, *others], limits, SERVED).index == 0
    with pytest.raises(QuotaReached, match=r"^your executor on GPU 0 has 64 sessions") as refused:
        place(replace(mine, gpu=0), TWO, [full, *others], limits, SERVED)
    assert not isinstance(refused.value, MachineFull)


def test_memory_limit() -> None:
    quota = Allowance(priority_ceiling=5, weight=1.0, memory_limit_bytes=2 * GIB, max_sessions=3, max_jobs=1)
    assert memory_limit(ask(), gpu(0)) == 8 * GIB
    assert memory_limit(ask(allowed=quota), gpu(0)) == 2 * GIB
    assert memory_limit(ask(GIB, allowed=quota), gpu(0)) == GIB
    for allowed, hint in ((quota, "memory_limit_bytes raised"), (ALLOWED, "ask for less")):
        with pytest.raises(QuotaReached) as refused:
            memory_limit(ask(9 * GIB, allowed=allowed), gpu(0))
        assert refused.value.hint.endswith(hint)
    reserved = "^you have reserved 1 GiB of your 2 GiB on GPU 0, 2 GiB were asked for$"
    with pytest.raises(QuotaReached, match=reserved):
        place(ask(2 * GIB, 0, quota), TWO, [Claim(0, 7, GIB, 0, 1)], LIMITS, SERVED)
