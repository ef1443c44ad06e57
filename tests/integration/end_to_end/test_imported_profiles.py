"""What is imported of kernels is as true as whoever wrote the file."""

from __future__ import annotations

from collections.abc import Callable

import fikit
import pytest
from fikit import protocol as p
from msgspec.structs import replace

from tests.integration.conftest import Client
from tests.integration.end_to_end.conftest import PTX

MOST = (1 << 32) - 1


@pytest.mark.shares_daemon
def test_an_executor_outlives_the_largest_counts_there_are(
    client: Client, connect: Callable[..., fikit.Session]
) -> None:
    def learn(session: fikit.Session) -> list[p.ProfileRecord]:
        kernel = session.load(PTX).kernel("nothing")
        for _ in range(50):
            kernel.launch(grid=1, block=1)
            session.synchronize()
        found: list[p.ProfileRecord] = client.ask(p.ListProfiles()).profiles
        return found

    (known,) = learn(connect(name="writes"))
    gap = p.KernelGap(before=known.key, samples=MOST, median_ns=5)
    assert client.ask(p.ClearProfiles()) == p.Done()
    assert client.ask(p.ImportProfiles(profiles=[replace(known, samples=MOST, gaps=[gap])])) == p.Done()
    (renewed,) = learn(connect(name="reads"))
    assert 0 < renewed.samples < MOST
    assert 0 < renewed.gaps[0].samples < MOST
