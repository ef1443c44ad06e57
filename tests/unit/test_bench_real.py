"""What the replay makes of the sharing benchmark's real kernels, which slow each other down."""

from __future__ import annotations

import pytest

from bench.real import real
from bench.replayed import Replayer, ReplayError, Setup, program

try:
    program()
except ReplayError:
    pytest.skip("the native replay is not installed", allow_module_level=True)


@pytest.mark.parametrize(("low", "measured"), [("gemm_chain", 1.32), ("memory_chain", 2.48)])
def test_kernels_that_slow_each_other_down_keep_to_the_bound(low: str, measured: float) -> None:
    high, lows = real()
    replayer = Replayer([*high, *lows])

    def tail(policy: str) -> float:
        setup = Setup(policy=policy, seconds=0.5, warmup=0.5)
        return float(replayer.compare(["gemm_service"], [low], setup)["hp_p99_ratio"])

    assert tail("streams") == pytest.approx(measured, rel=0.1)
    assert tail("fikit") < 1.03
