"""The GPUs as a program may see them: all, or those of its job."""

from __future__ import annotations

from contextlib import suppress

from fikit.protocol import ListVisibleGpus, Reply, VisibleGpu, VisibleGpus, VisibleProcess

from fikitd.api.registry import Caller, handles
from fikitd.daemon import description_of
from fikitd.device import DeviceSpec
from fikitd.errors import Unavailable
from fikitd.executor.messages import AttachedSessions, ListAttached
from fikitd.jobs.model import Job
from fikitd.session import Session


@handles(ListVisibleGpus)
async def list_visible_gpus(caller: Caller, request: ListVisibleGpus) -> Reply:
    """As they are now: the executors of the peer's user are asked."""
    daemon, uid = caller.daemon, caller.peer.uid
    job = daemon.job_of(caller.peer, request.job) if request.job else None
    for executor in {each.executor for each in daemon.sessions.living.values() if each.uid == uid}:
        with suppress(Unavailable):  # what was known before will do
            daemon.sessions.executor_beat(executor, await executor.ask(ListAttached(), AttachedSessions))
    own = [each for each in daemon.sessions.living.values() if each.uid == uid]
    indices = daemon.devices if job is None else [index for index in job.gpus if index in daemon.devices]
    return VisibleGpus(gpus=[visible(caller, daemon.devices[index], own, job) for index in indices])


def visible(caller: Caller, device: DeviceSpec, own: list[Session], job: Job | None) -> VisibleGpu:
    """One of them. ``own``: the sessions of the peer's user; in a job, the memory is the job's."""
    daemon = caller.daemon
    seen = description_of(daemon.supervisor.on(device.index), device)
    here = [each for each in own if each.executor.device.index == device.index]
    most = min(daemon.allowance(caller.peer).memory_limit_bytes or seen.memory_bytes, seen.memory_bytes)
    limit = (job.memory_limit_bytes if job else 0) or most
    counted = [each for each in here if job is None or each.job == job.job]
    return VisibleGpu(
        index=device.index,
        name=seen.name,
        uuid=device.uuid,
        pci=device.pci,
        compute_capability=device.compute_capability,
        driver_version=device.driver_version,
        memory_bytes=limit,
        memory_used_bytes=min(limit, sum(each.usage.memory_bytes for each in counted)),
        nvidia_driver=device.nvidia,
        processes=[VisibleProcess(pid=each.pid, memory_bytes=each.usage.memory_bytes) for each in here],
    )
