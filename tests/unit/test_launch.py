"""How what outlives the daemon is started: by systemd where that started us, else by ourselves."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from fikitd.launch import EndedAtOnce, Launch, launch, set_cpu_weight
from fikitd.quote import quoted

STAND_IN = f"""#!{sys.executable}
import json, os, pathlib, sys
place = pathlib.Path(__file__).parent
with (place / "calls").open("a") as calls:
    print(json.dumps(sys.argv), file=calls)
print((place / "answer").read_text(), end="")
sys.exit((place / "refusal").read_text() if (place / "refusal").exists() else 0)
"""


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with programs that stand in for systemd's, which believes that it started us."""
    for name in ("systemd-run", "systemctl"):
        (tmp_path / name).write_text(STAND_IN)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "answer").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SYSTEMD_EXEC_PID", str(os.getpid()))
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
    monkeypatch.delenv("MANAGERPID", raising=False)
    return tmp_path


def calls(place: Path) -> list[list[str]]:
    return [json.loads(line) for line in (place / "calls").read_text().splitlines()]


def job(place: Path, *command: str) -> Launch:
    return Launch("fikitd-job-1", [sys.executable, *command], place / "log", {"COLOUR": "red"}, 20)


async def test_without_systemd_it_is_our_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYSTEMD_EXEC_PID", "1")  # inherited from something that systemd started
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")  # which GPUs the daemon takes: not what its jobs see
    code = """if True:
        import os
        print(*map(os.environ.get, ("COLOUR", "NOTIFY_SOCKET", "CUDA_VISIBLE_DEVICES")), os.getppid())
    """
    process = await launch(job(tmp_path, "-c", code))
    await process.wait()
    process.close()
    assert (tmp_path / "log").read_text().split() == ["red", "None", "None", str(os.getpid())]
    await set_cpu_weight("fikitd-job-1", 50)


async def test_under_systemd_it_is_a_unit(systemd: Path) -> None:
    with pytest.raises(EndedAtOnce):  # no process has the unit's name in its control group
        await launch(job(systemd, "-c", "print('$HOME')"))
    run, show = calls(systemd)
    options, command = run[1 : run.index("--")], run[run.index("--") + 1 :]
    assert {"--system", "--unit=fikitd-job-1.service", "--slice=fikitd.slice"} <= set(options)
    assert {"--property=CPUWeight=20", "--setenv=COLOUR=red"} <= set(options)
    assert not [option for option in options if "NOTIFY_SOCKET" in option]
    assert command == [sys.executable, "-c", "print('$$HOME')"]
    assert show[1:3] == ["--system", "show"]


async def test_a_process_of_another_unit_is_not_taken_for_ours(systemd: Path) -> None:
    (systemd / "answer").write_text(f"{os.getpid()}\n")
    with pytest.raises(EndedAtOnce):
        await launch(job(systemd))


async def test_what_systemd_says_is_passed_on(systemd: Path) -> None:
    (systemd / "refusal").write_text("Unit fikitd-job-1.service was already loaded")
    with pytest.raises(OSError, match="already loaded"):
        await launch(job(systemd))


async def test_it_is_started_once_there_may_be_a_thread(
    systemd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_sync, refusals = trio.to_thread.run_sync, [RuntimeError("can't start new thread")] * 2

    async def scarce(*arguments: Any, **options: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return await run_sync(*arguments, **options)

    monkeypatch.setattr(trio.to_thread, "run_sync", scarce)
    await set_cpu_weight("fikitd-job-1", 50)
    assert len(calls(systemd)) == 1
    assert refusals == []


async def test_a_users_manager_is_asked_for_his_daemon(
    systemd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANAGERPID", "77")
    await set_cpu_weight("fikitd-job-1", 50)
    (asked,) = calls(systemd)
    assert asked[1:] == ["--user", "set-property", "--runtime", "fikitd-job-1.service", "CPUWeight=50"]


def test_the_end_of_a_log_is_quoted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert quoted(log) == ""
    log.write_text("\n".join(f"line {number}" for number in range(1000)))
    assert quoted(log).splitlines()[-1] == "  line 999"
    assert len(quoted(log)) < 2000
