"""Checks of the daemon's own surroundings: what an operator would look at first when something is wrong."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio
from fikit.protocol import Check

from fikitd import configuration_files
from fikitd.device import library_finding
from fikitd.errors import ConfigurationError
from fikitd.events import Sees
from fikitd.scarcity import in_thread
from fikitd.tenants.peer import group_number

if TYPE_CHECKING:
    from fikitd.configuration import DaemonSection
    from fikitd.daemon import Daemon

LEAST_FREE_BYTES: Final = 256 << 20
LOOK_SECONDS: Final = 5.0
"""That one place is looked at: what does not answer, as a file server that is down, is to be named."""
SLOW_SECONDS: Final = 2.0
"""A disk that takes longer keeps everybody waiting who wants something remembered."""


async def diagnose(daemon: Daemon, sees: Sees) -> list[Check]:
    """All checks; of executors, which are users', those whose owner the peer may see."""
    places = daemon.directories
    looks: dict[str, Callable[[], Iterable[Check]]] = {
        "configuration": partial(configuration_checks, daemon),
        "gpus": partial(gpu_checks, daemon),
        "state directory": partial(directory_checks, places.state, "state directory"),
        "state file": partial(state_file_checks, daemon, daemon.store.waits),
        "runtime directory": partial(directory_checks, places.runtime, "runtime directory"),
        "users": partial(user_checks, daemon),
    }
    found = [work_check(daemon)]
    for name, look in looks.items():
        silent = Check(name=name, ok=False, detail=f"it did not answer within {LOOK_SECONDS:g} s")
        with trio.move_on_after(LOOK_SECONDS) as patience:
            try:
                found += await in_thread(list, look(), abandon_on_cancel=True)
            except OSError as error:
                found += [Check(name=name, ok=False, detail=f"it cannot be looked at: {error}")]
        found += [silent] if patience.cancelled_caught else []
    return [*found, *executor_checks(daemon, sees)]


def work_check(daemon: Daemon) -> Check:
    """Whether new jobs and sessions are taken."""
    if (why := daemon.refusing) is None:
        return Check(name="new work", ok=True, detail="accepted")
    return Check(
        name="new work", ok=False, detail=f"refused, the daemon is draining: {why or 'no reason given'}"
    )


def configuration_checks(daemon: Daemon) -> Iterator[Check]:
    """Whether the next reload, or start, would take what the files say by now."""
    current, file = daemon.configuration, daemon.configuration_file
    try:
        taken, left = configuration_files.taken_over(current, configuration_files.load(file))
    except ConfigurationError as error:
        detail = f"{error}; what was read before is kept, but fikitd would not start anew"
        yield Check(name="configuration", ok=False, detail=detail)
        return
    detail = f"{file or configuration_files.default_file()}, as it was read"
    if left:
        detail = f"{', '.join(left)} changed: read when fikitd starts anew"
    if taken != current:
        detail = "changed since it was read: SIGHUP (systemctl reload fikitd) reads it again"
    yield Check(name="configuration", ok=True, detail=detail)


def gpu_checks(daemon: Daemon) -> Iterator[Check]:
    """The GPUs and their drivers."""
    for device in daemon.devices.values():
        detail, failed = (
            f"{device.name}, {device.memory_bytes >> 20} MiB",
            daemon.supervisor.failing.get(device.index),
        )
        if failed is not None:
            detail += f"; its latest executor {failed.told()}"
        yield Check(name=f"gpu {device.index}", ok=failed is None, detail=detail)
        ok, detail = library_finding(device)
        yield Check(name=f"driver library of gpu {device.index}", ok=ok, detail=detail)


def state_file_checks(daemon: Daemon, waits: float) -> Iterator[Check]:
    """Whole, there, and written in time."""
    try:
        names = sorted(os.listdir(daemon.directories.state))
        wrong = [f"set aside: {each}" for each in names if each.startswith("state.db.damaged-")]
    except OSError as error:
        wrong = [f"{daemon.directories.state}: {error.strerror}"]
    if not daemon.store.there:
        wrong.append("it is gone, or another: what is noted from now on is lost with this daemon")
    if waits > SLOW_SECONDS:
        wrong.append(
            f"what is to be written has waited for {waits:.0f} s: its disk is slow or does not answer"
        )
    yield Check(name="state file", ok=not wrong, detail=", ".join(wrong) or "none was ever damaged")


def user_checks(daemon: Daemon) -> Iterator[Check]:
    """Who is served. Asks the name service."""
    if os.geteuid() == 0:
        yield from group_checks(daemon.configuration.daemon, daemon.directories.socket)
    else:
        yield Check(name="user", ok=True, detail=f"runs as uid {os.geteuid()}: serves this user only")


def group_checks(settings: DaemonSection, socket: Path) -> Iterator[Check]:
    """A group that does not exist is missed where it alone lets others than root in."""
    to_all = False
    with suppress(OSError):
        to_all = bool(socket.stat().st_mode & stat.S_IWOTH)
    remedy = f"sudo groupadd --system {settings.socket_group}, then start fikitd anew"
    let_in = "everybody may connect" if to_all else f"only root may connect; {remedy}"
    missing = {settings.administrator_group: "root alone is an administrator", settings.socket_group: let_in}
    for name in (settings.socket_group, settings.administrator_group):
        there = group_number(name) is not None
        detail = name if there else f"{name} does not exist: {missing[name]}"
        yield Check(
            name=f"group {name}",
            ok=there or to_all or name != settings.socket_group,
            detail=detail,
        )


def directory_checks(directory: Path, name: str) -> Iterator[Check]:
    """Writable, and with room."""
    probe = directory / ".doctor"
    try:
        with probe.open("wb", buffering=0) as file:
            file.write(b"x" * 4096)
            os.fsync(file.fileno())  # a disk that fails may say so only then
        yield Check(name=f"{name} writable", ok=True, detail=str(directory))
    except OSError as error:
        yield Check(name=f"{name} writable", ok=False, detail=f"{directory}: {error.strerror}")
    with suppress(OSError):  # it may have been made, and only then have found no room
        probe.unlink()
    if directory.is_dir():
        free = shutil.disk_usage(directory).free
        yield Check(name=f"{name} free", ok=free >= LEAST_FREE_BYTES, detail=f"{free >> 20} MiB")


def executor_checks(daemon: Daemon, sees: Sees) -> Iterator[Check]:
    """Each executor answers when it is asked, and is asked in time."""
    now = trio.current_time()
    for executor in daemon.supervisor.executors.values():
        if not sees(executor.uid):
            continue
        ok = executor.state != "failed" and not executor.unresponsive and now <= executor.turns_by
        detail = f"{executor.state}, gpu {executor.device.index}, {executor.domain}"
        if executor.heartbeat is not None:
            detail += f", answered {now - executor.answered_at:.1f} s ago"
        if executor.held:
            detail += f"; held by the work of {executor.outlived}, which is over"
        if executor.foreign:
            detail += "; of another release, takes no more sessions"
        yield Check(name=f"executor {executor.executor}", ok=ok and not executor.held, detail=detail)
