"""The GPUs as a program may see them: all, or those of its job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import trio
from fikit.protocol import ListVisibleGpus, Reply, VisibleGpu, VisibleGpus, VisibleProcess

from fikitd.api.registry import Caller, handles
from fikitd.daemon import description_of
from fikitd.device import DeviceSpec
from fikitd.errors import NotFound, Unavailable
from fikitd.executor.messages import AttachedSessions, ListAttached, MemoryLeft, ReadMemory
from fikitd.executor.supervisor_state import ASK_SECONDS, Executor
from fikitd.jobs.model import Job
from fikitd.session import Session

OTHERS_SECONDS: Final = 0.2
"""So long an executor of another user's is waited for: it may hang, or wait for the driver."""


@handles(ListVisibleGpus)
async def list_visible_gpus(caller: Caller, request: ListVisibleGpus) -> Reply:
    """As they are now: the executors of the peer's user are asked, of these GPUs alone and all at once.

    So one that hangs keeps nobody waiting who does not see its GPU.
    """
    devices = caller.daemon.devices
    job = job_named(caller, request.job) if request.job else None
    indices = devices if job is None else [index for index in job.gpus if index in devices]
    seen: dict[int, VisibleGpu] = {}

    async def look(index: int) -> None:
        seen[index] = await visible(caller, devices[index], job)

    async with trio.open_nursery() as nursery:
        for index in indices:
            nursery.start_soon(look, index)
    return VisibleGpus(gpus=[seen[index] for index in indices])


def job_named(caller: Caller, name: str) -> Job:
    """The program's. Raises NotFound, and tells of it: a program that sees no GPU asks for no session."""
    try:
        return caller.daemon.job_named(caller.peer, name)
    except NotFound as refusal:
        caller.daemon.session_refused(caller.peer, name, refusal)
        raise


async def visible(caller: Caller, device: DeviceSpec, job: Job | None) -> VisibleGpu:
    """One of them; in a job, the memory is the job's."""
    daemon, uid = caller.daemon, caller.peer.uid

    async def hear(executor: Executor) -> None:
        with suppress(Unavailable):  # what was known before will do
            daemon.sessions.executor_beat(executor, await executor.ask(ListAttached(), AttachedSessions))

    async with trio.open_nursery() as nursery:
        for executor in answering(each.executor for each in daemon.sessions.of(uid, device.index)):
            nursery.start_soon(hear, executor)
    here = daemon.sessions.of(uid, device.index)
    executors = answering((*(each.executor for each in here), *daemon.supervisor.on(device.index)))
    seen = description_of(executors, device)
    most = daemon.allowance(caller.peer).memory_limit_bytes or seen.memory_bytes
    limit = min((job.memory_limit_bytes if job else 0) or most, seen.memory_bytes)
    counted = [each for each in here if job is None or each.job == job.job]
    free = min(limit - sum_used(counted), most - sum_used(here))  # of the job's limit, and of the user's
    used = min(limit, limit - free)
    left = await memory_left(uid, executors, limit, used)
    return VisibleGpu(
        index=device.index,
        name=seen.name,
        uuid=device.uuid,
        pci=device.pci,
        compute_capability=device.compute_capability,
        driver_version=device.driver_version,
        memory_bytes=left.total_bytes,
        memory_used_bytes=left.total_bytes - left.free_bytes,
        nvidia_driver=device.nvidia,
        processes=processes_of(here),
    )


def processes_of(sessions: Iterable[Session]) -> list[VisibleProcess]:
    """Each once, however many sessions it has."""
    used: Counter[int] = Counter()
    for each in sessions:
        used[each.pid] += each.usage.memory_bytes
    return [VisibleProcess(pid=pid, memory_bytes=memory_bytes) for pid, memory_bytes in used.items()]


def sum_used(sessions: Iterable[Session]) -> int:
    """The memory that they use."""
    return sum(each.usage.memory_bytes for each in sessions)


def answering(executors: Iterable[Executor]) -> list[Executor]:
    """Each once, without those that are known not to answer."""
    return [each for each in dict.fromkeys(executors) if not each.unresponsive]


async def memory_left(uid: int, executors: list[Executor], limit: int, used: int) -> MemoryLeft:
    """What CUDA tells a session, where an executor of anybody's can say what is free on its GPU."""
    for executor in executors:
        seconds = ASK_SECONDS if executor.uid == uid else OTHERS_SECONDS
        with suppress(Unavailable):
            return await executor.ask(ReadMemory(limit_bytes=limit, used_bytes=used), MemoryLeft, seconds)
    return MemoryLeft(free_bytes=limit - used, total_bytes=limit)
