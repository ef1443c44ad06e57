"""Requests that change a job, a session or an executor, whichever the identifier names."""

from __future__ import annotations

from fikit.protocol import Done, Kill, Pause, Reply, Resume, SetPriority

from fikitd.api.registry import Caller, handles
from fikitd.errors import InvalidRequest
from fikitd.jobs.model import Job, job_number
from fikitd.session import Session


def target_of(caller: Caller, target: str) -> Job | Session:
    """The job or session, if the peer may control it and it is not over. Raises RequestError."""
    if job_number(target) is not None:
        job = caller.daemon.job_of(caller.peer, target)
        if job.over:
            raise InvalidRequest(f"{target} is over: {job.state}")
        return job
    session = caller.daemon.session_of(caller.peer, target)
    if session.state == "ended":
        raise InvalidRequest(f"{target} is over")
    if session.state == "ending":
        raise InvalidRequest(
            f"{target} is over, but its work on the GPU, or the freeing of what it held, goes on",
            f"'fikitctl kill {session.executor.executor}' ends that, and all sessions of its executor",
        )
    return session


@handles(Kill)
async def kill(caller: Caller, request: Kill) -> Reply:
    """End it."""
    killed = f"killed by {caller.peer.tenant}"
    executor = caller.daemon.supervisor.executors.get(request.target)
    if executor is not None and (caller.peer.administrator or executor.uid == caller.peer.uid):
        caller.daemon.supervisor.kill(executor, killed)
        return Done()
    target = target_of(caller, request.target)
    if isinstance(target, Job):
        await caller.daemon.jobs.kill(target, request.signal, request.grace_ms, killed)
    else:
        await caller.daemon.sessions.end(target, f"ended by {caller.peer.tenant}")
    return Done()


@handles(Pause)
async def pause(caller: Caller, request: Pause) -> Reply:
    """Issue nothing more of it."""
    await set_paused(caller, target_of(caller, request.target), True)
    return Done()


@handles(Resume)
async def resume(caller: Caller, request: Resume) -> Reply:
    """Undo that."""
    await set_paused(caller, target_of(caller, request.target), False)
    return Done()


async def set_paused(caller: Caller, target: Job | Session, paused: bool) -> None:
    """Idempotent; a job that is queued has nothing to pause."""
    if isinstance(target, Session):
        await caller.daemon.sessions.set_paused(target, lambda: paused)
    elif target.state == "queued":
        raise InvalidRequest(f"{target.job} is queued; only what runs can be paused")
    else:
        await caller.daemon.jobs.set_paused(target, paused)


@handles(SetPriority)
async def set_priority(caller: Caller, request: SetPriority) -> Reply:
    """From the next operation on; the ceiling is that of who asks."""
    target = target_of(caller, request.target)
    priority = caller.daemon.priority(caller.peer, request.priority)
    if isinstance(target, Job):
        await caller.daemon.jobs.set_priority(target, priority)
    else:
        await caller.daemon.sessions.set_priority(target, lambda: priority)
    return Done()
