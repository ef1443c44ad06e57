"""What is known of kernels outlives the daemon: kill -9, a full disk; and travels as it is."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fikit import protocol as p

from tests.integration.conftest import REAL, Daemon, fill

KNOWN = p.ProfileRecord(
    module="00000000000000aa", function="gemm", device="some GPU", grid=(8, 2, 1), block=(128, 1, 1),
    shared_bytes=1024, samples=40, median_ns=12_000, p95_ns=15_000, shortest_ns=11_000, block_ns=5_000,
    wrong=2, key="00000000000000bb",
    gaps=[p.KernelGap("00000000000000cc", 9, 7_000), p.KernelGap("00000000000000dd", 3, 900)],
)  # fmt: skip


def profiles(client: Any) -> list[p.ProfileRecord]:
    found: list[p.ProfileRecord] = client.ask(p.ListProfiles()).profiles
    return found


def test_profiles_survive_kill_9(daemon: Daemon) -> None:
    client = daemon.client()
    assert client.ask(p.ImportProfiles(profiles=[KNOWN])) == p.Done()
    daemon.stop(signal.SIGKILL)
    daemon.start()
    assert profiles(daemon.client()) == [KNOWN]


def test_a_full_disk_refuses_what_is_new_and_keeps_what_was(stopped_daemon: Daemon, small_disk: Path) -> None:
    client = stopped_daemon.start().client()
    assert client.ask(p.ImportProfiles(profiles=[KNOWN])) == p.Done()
    filler = fill(small_disk)
    others = [msgspec.structs.replace(KNOWN, function=f"other{number}") for number in range(2000)]
    assert client.ask(p.ImportProfiles(profiles=others)).code == "unavailable"
    assert profiles(client) == [KNOWN]
    filler.unlink()
    assert client.ask(p.ImportProfiles(profiles=others[:5])) == p.Done()
    assert len(profiles(client)) == 6


@pytest.mark.shares_daemon
def test_a_key_of_another_build_or_gpu_is_another_entry(client: Any) -> None:
    others = [
        msgspec.structs.replace(KNOWN, module="00000000000000ab"),
        msgspec.structs.replace(KNOWN, device="another GPU"),
        msgspec.structs.replace(KNOWN, block=(256, 1, 1)),
    ]
    assert client.ask(p.ImportProfiles(profiles=[KNOWN, *others])) == p.Done()
    assert len(profiles(client)) == 4
    newer = msgspec.structs.replace(KNOWN, samples=41)
    assert client.ask(p.ImportProfiles(profiles=[newer])) == p.Done()
    assert newer in profiles(client)
    assert len(profiles(client)) == 4


@pytest.mark.shares_daemon
def test_a_module_is_named_by_a_hash(client: Any) -> None:
    bad = msgspec.structs.replace(KNOWN, module="gemm.cu")
    assert client.ask(p.ImportProfiles(profiles=[bad])).code == "invalid"


@pytest.mark.shares_daemon
@pytest.mark.parametrize("gap", [("zz", 1, 1), ("", 1, 1), ("00", -1, 1), ("00", 1, 1 << 32)])
def test_a_gap_that_is_none_is_refused(client: Any, gap: tuple[Any, ...]) -> None:
    bad = msgspec.structs.replace(KNOWN, gaps=[p.KernelGap(*gap)])
    assert client.ask(p.ImportProfiles(profiles=[bad])).code == "invalid"
    assert profiles(client) == []


@pytest.mark.shares_daemon
@pytest.mark.parametrize(
    "wrong",
    [
        {"grid": (-1, 1, 1)},
        {"grid": (1, 0, 1)},
        {"block": (1 << 32, 1, 1)},
        {"shared_bytes": 1 << 32},
        {"samples": 1 << 32},
        {"median_ns": 1 << 62},
    ],
)
def test_a_launch_that_cannot_be_is_refused(client: Any, wrong: dict[str, Any]) -> None:
    """An executor that was told of it would end."""
    assert client.ask(p.ImportProfiles(profiles=[msgspec.structs.replace(KNOWN, **wrong)])).code == "invalid"
    assert profiles(client) == []


def test_more_than_fits_into_a_frame_travels_in_portions(stopped_daemon: Daemon) -> None:
    """Names of kernels are as long as templates make them."""
    client = stopped_daemon.start().client()
    device = "double" if not REAL else client.ask(p.ListGpus()).gpus[0].name
    long = msgspec.structs.replace(KNOWN, function="f" * 8192, device=device)
    known = [msgspec.structs.replace(long, grid=(number + 1, 1, 1)) for number in range(3000)]
    for portion in p.portions(known):
        assert client.ask(p.ImportProfiles(profiles=portion)) == p.Done()
    assert isinstance(client.ask(p.OpenSession(name="told of them")), p.SessionOpened)
    found: list[p.ProfileRecord] = []
    more = True
    while more:
        reply = client.ask(p.ListProfiles(limit=100_000, offset=len(found)))
        found, more = found + reply.profiles, reply.more
    assert sorted(each.grid for each in found) == sorted(each.grid for each in known)
    assert len(client.ask(p.ListProfiles(limit=7)).profiles) == 7
    assert not client.ask(p.ListProfiles(limit=7)).more


def test_executors_are_told_once_of_what_is_imported_in_portions(stopped_daemon: Daemon) -> None:
    """They are given thousands of entries each time: a large file took longer than its importer waits."""
    stopped_daemon.prologue = """
import os, fikitd.profiles
async def share(self):
    os.write(2, b"told\\n")
fikitd.profiles.Profiles.share = share
"""
    stopped_daemon.start()
    long = msgspec.structs.replace(KNOWN, function="f" * 8192)
    known = [msgspec.structs.replace(long, grid=(number + 1, 1, 1)) for number in range(3000)]
    assert len(list(p.portions(known))) > 2
    file = stopped_daemon.place / "profiles.json"
    file.write_bytes(msgspec.json.encode(p.Profiles(profiles=known)))
    program = [sys.executable, "-P", "-c", "from fikitctl.main import main; main()"]
    arguments = ["profile", "import", str(file)]
    subprocess.run([*program, *arguments], env=stopped_daemon.environment(), check=True)
    assert stopped_daemon.log.read_text().count("told\n") == 1
