"""Requests that only look."""

from __future__ import annotations

import os
import time

from fikit.protocol import (
    Diagnosis,
    Doctor,
    Event,
    Explain,
    Explained,
    GetStatus,
    Gpus,
    Hello,
    Jobs,
    ListGpus,
    ListJobs,
    ListSessions,
    ListTenants,
    Metrics,
    ReadMetrics,
    Reply,
    Sessions,
    Show,
    Shown,
    Status,
    Subscribe,
    TenantRecord,
    Tenants,
    portions,
)

from fikitd import scraping
from fikitd.api.registry import Caller, handles
from fikitd.configuration import allowance
from fikitd.doctor import diagnose
from fikitd.errors import InvalidRequest
from fikitd.executor.messages import AttachedSessions, ListAttached
from fikitd.jobs.model import job_number
from fikitd.tenants.peer import tenant_name


@handles(Hello)
async def hello(caller: Caller, request: Hello) -> Reply:
    """Refused: the first one is the connection's own to answer."""
    raise InvalidRequest("hello was said already")


@handles(GetStatus)
async def get_status(caller: Caller, request: GetStatus) -> Reply:
    """The daemon at a glance."""
    daemon = caller.daemon
    return Status(
        daemon=daemon.version,
        pid=os.getpid(),
        uptime_seconds=time.monotonic() - daemon.started_at,
        draining=daemon.refusing,
        sessions=len(daemon.sessions.living),
        jobs_running=len(daemon.jobs.running()),
        jobs_queued=sum(job.state == "queued" for job in daemon.jobs.known.values()),
        gpus=await daemon.gpus(),
    )


@handles(ListGpus)
async def list_gpus(caller: Caller, request: ListGpus) -> Reply:
    """Every GPU."""
    return Gpus(gpus=await caller.daemon.gpus())


@handles(ListSessions)
async def list_sessions(caller: Caller, request: ListSessions) -> Reply:
    """The living sessions the peer may see."""
    living = caller.daemon.sessions.living.values()
    return Sessions(sessions=[each.record() for each in living if caller.peer.sees(each.uid)])


@handles(ListJobs)
async def list_jobs(caller: Caller, request: ListJobs) -> Reply:
    """The jobs the peer may see: as many as have room, since anybody's count for an administrator."""
    jobs, after = caller.daemon.jobs, job_number(request.after or "") or 0
    shown = [
        jobs.known[number]
        for number in sorted(number for number in jobs.known if number > after)
        if caller.peer.sees(jobs.known[number].uid) and (request.ended or not jobs.known[number].over)
    ]
    listed = next(portions(job.record(jobs.usage(job)) for job in shown), [])
    return Jobs(jobs=listed, more=len(listed) < len(shown))


@handles(ListTenants)
async def list_tenants(caller: Caller, request: ListTenants) -> Reply:
    """Whoever has used anything, or is connected."""
    daemon, peer = caller.daemon, caller.peer
    uids = daemon.users() | {job.uid for job in daemon.jobs.known.values()} | {peer.uid}
    return Tenants(tenants=[await tenant_record(caller, uid) for uid in sorted(uids) if peer.sees(uid)])


async def tenant_record(caller: Caller, uid: int) -> TenantRecord:
    """One tenant: what it may, what it has."""
    daemon = caller.daemon
    name = await tenant_name(uid)
    granted = daemon.allowance(caller.peer) if uid == caller.peer.uid else None
    granted = granted or allowance(daemon.configuration, name, str(uid))
    living = daemon.sessions.of(uid)
    return TenantRecord(
        tenant=name,
        uid=uid,
        priority_ceiling=granted.priority_ceiling,
        weight=granted.weight,
        memory_limit_bytes=granted.memory_limit_bytes,
        max_sessions=granted.max_sessions,
        sessions=len(living),
        jobs=sum(job.uid == uid and not job.over for job in daemon.jobs.known.values()),
        usage=daemon.accounts.of(uid, ((each.executor.device.index, each.usage) for each in living)),
    )


@handles(Show)
async def show(caller: Caller, request: Show) -> Reply:
    """A job or a session."""
    daemon = caller.daemon
    if job_number(request.target) is not None:
        job = daemon.job_of(caller.peer, request.target)
        return Shown(job=job.record(daemon.jobs.usage(job)))
    return Shown(session=daemon.session_of(caller.peer, request.target).record())


@handles(Explain)
async def explain(caller: Caller, request: Explain) -> Reply:
    """A session, and what the peer may see of those beside it; as they are now."""
    daemon = caller.daemon
    if job_number(request.session) is not None:
        job = daemon.job_of(caller.peer, request.session)
        living = [each.session for each in daemon.jobs.sessions_of(job)]
        hint = f"name one of its sessions: {', '.join(living)}" if living else "it has no session now"
        raise InvalidRequest(f"{job.job} is a job, and the gate treats sessions", hint)
    session = daemon.session_of(caller.peer, request.session)
    if session.state != "ended":
        attached = await session.executor.ask(ListAttached(), AttachedSessions)
        daemon.sessions.executor_beat(session.executor, attached)
    beside = [
        each.gated()
        for each in daemon.sessions.within(session.executor)
        if each is not session and caller.peer.sees(each.uid)
    ]
    description = session.executor.description
    policy = description.policy if description is not None else ""
    return Explained(policy=policy, gated=session.gated(), beside=beside)


@handles(ReadMetrics)
async def read_metrics(caller: Caller, request: ReadMetrics) -> Reply:
    """The Prometheus text of what the peer may see."""
    return Metrics(text=await scraping.render(caller.daemon, caller.peer.sees))


@handles(Doctor)
async def doctor(caller: Caller, request: Doctor) -> Reply:
    """Check the surroundings."""
    return Diagnosis(checks=await diagnose(caller.daemon, caller.peer.sees))


@handles(Subscribe)
async def subscribe(caller: Caller, request: Subscribe) -> Reply:
    """Events until the connection ends; the first says that the others will come."""
    with caller.daemon.events.subscribed(caller.peer.sees, caller.peer.uid) as subscription:
        caller.turn.give_back()
        await caller.send_event(Event(kind="subscribed", unix=time.time()))
        while True:
            await caller.send_event(await subscription.next())
