"""How an executor process is started and found again: its command line, its environment, its socket."""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio

from fikitd.configuration import ExecutorSection
from fikitd.device import DeviceSpec
from fikitd.executor.addresses import apart
from fikitd.executor.connection import ExecutorConnection
from fikitd.executor.messages import Start
from fikitd.executor.supervisor_state import Executor
from fikitd.launch import Launch, launch
from fikitd.processes import Process
from fikitd.scarcity import in_thread, once_there_is_room
from fikitd.scheduling.settings import SchedulingSection

FIRST_RETRY_SECONDS: Final = 0.005
CODE_CACHE: Final = "CUDA_CACHE_PATH"
LAST_RETRY_SECONDS: Final = 0.1
KEPT_LOGS: Final = 100


def new_executor(device: DeviceSpec, domain: str, uid: int, runtime: Path, logs: Path) -> Executor:
    """An executor that is about to be started."""
    name = f"x-{secrets.token_hex(4)}"
    return Executor(
        executor=name,
        device=device,
        domain=domain,
        uid=uid,
        socket=runtime / f"{name}.sock",
        log=logs / f"{name}.log",
    )


def users_domain(uid: int) -> str:
    """The trust domain of a user's sessions that are not isolated."""
    return f"uid-{uid}"


def nobodys_domain() -> str:
    """A trust domain without sessions: whether an executor starts is all that is asked."""
    return f"trial-{secrets.token_hex(4)}"


def domain_owner(domain: str) -> int | None:
    """The uid in the name of a trust domain, where it has one."""
    found = re.fullmatch(r"uid-(\d+)", domain)
    return int(found[1]) if found else None


async def compiled_code(state: Path, uid: int | None) -> dict[str, str]:
    """Where executors of a user find and keep what the driver compiled from PTX, by content.

    The driver keeps it in the home directory else, which a service has none of.
    """
    if uid is None or CODE_CACHE in os.environ:
        return {}
    place = state / "compiled" / str(uid)
    try:
        for directory in (place.parent, place):  # the state directory itself is made at start only
            await in_thread(partial(directory.mkdir, mode=0o700, exist_ok=True))
    except OSError:
        return {}  # no room for a directory: nothing is kept
    return {CODE_CACHE: str(place)}


async def start(
    executor: Executor,
    settings: ExecutorSection,
    scheduling: SchedulingSection,
    more: Mapping[str, str],
) -> Process:
    """Start the process, once there may be one more, with what more it needs in its environment.

    Raises OSError. What keeps it from that is told as its failure meanwhile.
    """
    command = settings.command or [sys.executable, "-P", "-m", "fikitd.executor"]
    given = Start(
        executor=executor.executor,
        daemon=os.getpid(),
        gpu=executor.device.index,
        device=executor.device.ordinal,
        domain=executor.domain,
        socket=str(executor.socket),
        uuid=executor.device.uuid,
        time_scale=executor.device.time_scale,
        board=str(executor.socket.with_name(f"board-{executor.device.index}")),
        ledger=str(executor.socket.with_name(f"memory-{executor.device.index}-{executor.uid}")),
        host_ledger=str(executor.socket.with_name(f"memory-{executor.uid}")),
        settings=msgspec.json.encode(scheduling).decode(),
    )
    unit = f"fikitd-executor-{executor.executor}"
    environment = {**executor.device.environment, **more}
    what = Launch(unit, apart([*command, *given.arguments()]), executor.log, environment)

    async def begin() -> Process:
        try:
            process = await launch(what)
        except OSError as error:
            executor.failure = executor.failure or str(error)
            raise
        if executor.state == "starting":
            executor.failure = ""
        return process

    return await once_there_is_room(begin)


async def connect(path: Path, *, listens: bool = False) -> ExecutorConnection:
    """Connect as soon as somebody accepts; the caller sets the deadline.

    There is no event for "a socket is being listened on" that holds for a process that is not ours, so
    this asks again at growing intervals, for as long as an executor takes to start. With ``listens``, one
    on whose socket nobody listens is gone: FileNotFoundError, ConnectionRefusedError.
    """
    pause = FIRST_RETRY_SECONDS
    while True:
        try:
            return await ExecutorConnection.open(path)
        except (FileNotFoundError, ConnectionRefusedError):
            if listens:
                raise
        except OSError:
            pass  # we have no descriptor to spare just now, or its backlog is full
        await trio.sleep(pause)
        pause = min(pause * 2, LAST_RETRY_SECONDS)


def left_behind(runtime: Path) -> list[Path]:
    """The sockets of executors that an earlier daemon started. Blocking."""
    return [path for path in runtime.glob("x-*.sock") if path.is_socket()]


def remove_oldest(logs: Path, living: Collection[Path]) -> None:
    """Of the logs of executors that have ended, keep the latest. Blocking."""
    ended = [(log.stat().st_mtime, log) for log in logs.glob("x-*.log") if log not in living]
    for _, log in sorted(ended)[: max(0, len(ended) - KEPT_LOGS)]:
        log.unlink(missing_ok=True)


def trim(log: Path, limit: int) -> None:
    """Keep the newer half of a log that has outgrown its limit. Blocking.

    The executor holds the file open for appending, so it is emptied in place rather than replaced.
    """
    try:
        if log.stat().st_size <= limit:
            return
        with log.open("r+b") as file:
            file.seek(-limit // 2, os.SEEK_END)
            newest = file.read()
            file.truncate(0)
        with log.open("ab") as file:
            file.write(b"[older lines were dropped]\n" + newest)
    except OSError:
        return  # it is gone, or cannot be changed just now
