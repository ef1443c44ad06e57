"""Nice values that stand for CPU weights."""

from __future__ import annotations

import pytest

from fikitd.niceness import nice_of


@pytest.mark.parametrize(("weight", "nice"), [(100, 0), (10_000, 0), (80, 1), (20, 7), (2, 18), (1, 19)])
def test_each_step_is_worth_a_quarter_more(weight: int, nice: int) -> None:
    assert nice_of(weight) == nice
