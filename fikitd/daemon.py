"""The daemon's state, put together: what a request handler may touch. The tasks are in main.py."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import trio
from fikit.place import JOB_VARIABLE
from fikit.protocol import PRIORITIES, EventKind, GpuRecord, OpenSession, priority_name

from fikitd import __version__
from fikitd.configuration import Allowance, Configuration, allowance
from fikitd.device import DeviceSpec, Reading, reading
from fikitd.directories import Directories
from fikitd.errors import Draining, InvalidRequest, NotFound, NotPermitted, QuotaReached, RequestError
from fikitd.events import Events
from fikitd.executor.supervisor import Supervisor
from fikitd.executor.supervisor_launch import domain_owner, users_domain
from fikitd.executor.supervisor_state import Executor
from fikitd.jobs.jobs import Jobs, Placing
from fikitd.jobs.model import Job
from fikitd.jobs.running import JobProcesses
from fikitd.mps import Mps
from fikitd.placement import Ask, Claim, MachineFull, index_of, memory_limit, place
from fikitd.profiles import Profiles
from fikitd.scarcity import in_thread
from fikitd.session import Opening, Session, new_identifier
from fikitd.sessions import Sessions
from fikitd.store import Store
from fikitd.tenants.accounts import Accounts
from fikitd.tenants.peer import Peer
from fikitd.traces import Traces

HIGHEST: Final = 0
DRAIN_SETTING: Final = "drain_reason"
ENDS: Final = "the daemon is ending"
REFUSAL_SECONDS: Final = 1.0
OUTSIDE: Final = f"without {JOB_VARIABLE} a program works outside of a job"
"""As of a shell that a command of the job has left behind: tmux, screen."""
OTHERS_FIRST: Final = "others that wait for room come before it"


@dataclass
class Daemon:
    """Everything there is, for whoever serves a request."""

    configuration: Configuration
    directories: Directories
    devices: dict[int, DeviceSpec]
    store: Store
    accounts: Accounts
    events: Events
    sessions: Sessions
    mps: Mps = field(init=False)
    supervisor: Supervisor = field(init=False)
    jobs: Jobs = field(init=False)
    profiles: Profiles = field(init=False)
    traces: Traces = field(init=False)
    configuration_file: Path | None = None
    """None: the default one, which need not be there."""
    draining: str | None = None
    """Why an administrator had it refuse new work, which is remembered."""
    ending: bool = False
    """After SIGTERM; there is no way back."""
    taken_over: trio.Event = field(default_factory=trio.Event)
    """What an earlier daemon left is known, executors and jobs: before, nobody could end it."""
    reloaded: trio.Event = field(default_factory=trio.Event)
    """Settings are taken over; then there is another, for the next time."""
    stopping: bool = False
    """The drain after SIGTERM is over: executors are being stopped."""
    version: str = __version__
    started_at: float = field(default_factory=time.monotonic)
    refusals: dict[tuple[EventKind, int, str | None], float] = field(default_factory=dict)
    """When a user, or a job of his, was refused a session of which was told."""

    def __post_init__(self) -> None:
        logs = self.directories.state / "logs"
        wanted = self.configuration.executor.mps == "auto"
        has_mps = any(device.has_mps for device in self.devices.values())
        self.mps = Mps(wanted and has_mps, self.directories.runtime, logs, self.events)
        self.supervisor = Supervisor(
            lambda: self.configuration.executor,
            lambda: self.configuration.scheduling,
            list(self.devices.values()),
            self.directories.runtime,
            self.directories.state,
            self.events,
            self.sessions,
            lambda: self.mps.environment,
            self._lasts,
            self._owner,
            self._expected,
        )
        self.profiles = Profiles(self.store, self.supervisor)
        self.sessions.supervisor = self.supervisor
        self.sessions.weight_of = lambda each: (
            allowance(self.configuration, each.tenant, str(each.uid)).weight
        )
        self.traces = Traces(self.supervisor, self.sessions)
        self.sessions.on_lost = self._session_lost
        self.sessions.on_serving = [self._heed_jobs, self.profiles.load_into, self.traces.serving]
        self.sessions.on_stopping = [self.profiles.collect_from]
        processes = JobProcesses(self.directories.state / "jobs")
        processes.low_cpu_weight = lambda: self.configuration.jobs.low_cpu_weight
        self.jobs = Jobs(
            self.store,
            processes,
            self.sessions,
            self.events,
            self.placing,
        )
        self.jobs.admits = lambda: self.refusing is None
        self.jobs.on_started = self._expect
        self.jobs.max_running = lambda: self.configuration.jobs.max_running
        self.jobs.keep_ended = lambda: self.configuration.jobs.keep_ended

    @classmethod
    async def open(
        cls, configuration: Configuration, directories: Directories, devices: list[DeviceSpec]
    ) -> Daemon:
        """Read the state of an earlier daemon. Raises Unavailable."""
        store = await Store.open(directories.state / "state.db")
        accounts, events = Accounts(await store.load_usage()), Events()
        if store.aside is not None:
            lost = "accounts, profiles and jobs that were over are lost"
            events.tell("state_set_aside", file=str(store.aside), reason=f"damaged: {lost}", warning=True)
        sessions = Sessions(store, accounts, events, directories.runtime)
        by_index = {device.index: device for device in devices}
        daemon = cls(configuration, directories, by_index, store, accounts, events, sessions)
        await sessions.load()
        await daemon.jobs.load()
        daemon.draining = await store.setting(DRAIN_SETTING)
        return daemon

    async def save(self) -> None:
        """Write what is not written at once. Raises Unavailable."""
        await self.jobs.settle()
        await self.sessions.settle()

    @property
    def refusing(self) -> str | None:
        """Why new work is refused; None: it is not."""
        return ENDS if self.ending else self.draining

    # --- who may what ----------------------------------------------------------------------------

    def allowance(self, peer: Peer) -> Allowance:
        """What the peer's tenant may; an administrator may any priority."""
        granted = allowance(self.configuration, peer.tenant, str(peer.uid))
        if not peer.administrator:
            return granted
        fields = {name: getattr(granted, name) for name in granted.__struct_fields__}
        return Allowance(**{**fields, "priority_ceiling": HIGHEST})

    def priority(self, peer: Peer, asked: int | None) -> int:
        """What is asked for, or else normal or the lower ceiling. Raises NotPermitted above the ceiling."""
        ceiling = self.allowance(peer).priority_ceiling
        priority = max(PRIORITIES["normal"], ceiling) if asked is None else asked
        if priority < ceiling:
            raise NotPermitted(
                f"priority {priority_name(priority)} is above {priority_name(ceiling)},"
                f" the priority ceiling of tenant {peer.tenant}",
                f"ask for {priority_name(ceiling)}, or have the tenant's priority_ceiling raised",
            )
        return priority

    def check_open(self) -> None:
        """Raises Draining while no new work is taken."""
        if self.refusing is not None:
            raise Draining(f"the daemon is draining: {self.refusing or 'no reason given'}", "try again later")

    def job_of(self, peer: Peer, target: str) -> Job:
        """A job the peer may see. Raises NotFound, in the same words for one that is not his."""
        job = self.jobs.find(target)
        if job is None or not peer.sees(job.uid):
            raise NotFound(f"there is no job {target}", "fikitctl ps lists yours")
        return job

    def session_of(self, peer: Peer, target: str) -> Session:
        """A session the peer may see. Raises NotFound."""
        session = self.sessions.find(target)
        if session is None or not peer.sees(session.uid):
            raise NotFound(f"there is no job or session {target}", "fikitctl ps lists yours")
        return session

    def users(self) -> set[int]:
        """Whoever has used anything, or is connected."""
        used = {uid for uid, _ in self.accounts.sums()}
        return used | {each.uid for each in self.sessions.living.values()}

    # --- where to, and is there room -------------------------------------------------------------

    def claims(self, besides: Job | None = None) -> list[Claim]:
        """What is taken of the GPUs: by sessions, by sessions being opened, by running jobs.

        ``besides``: one whose reservation is left out, as its sessions live inside that.
        """
        counted = {job.job: job for job in self.jobs.running() if job is not besides}
        claims: list[Claim] = []
        used: Counter[tuple[str | None, int]] = Counter()  # within a job's reservation, where it has one
        with_sessions = set()
        for each in self.sessions.living.values():
            gpu, reserved = each.executor.device.index, 0 if each.job else each.note.reserved_bytes
            domain = each.executor.domain if each.executor.takes_sessions else None
            inside = each.usage.memory_bytes if each.job in counted else 0
            claims.append(Claim(gpu, each.uid, reserved, each.usage.memory_bytes - inside, 1, domain))
            used[each.job, gpu] += inside
            with_sessions.add((each.job, gpu))
        for opening in self.sessions.opening.values():
            reserved = 0 if opening.request.job else opening.reserved_bytes
            claims.append(Claim(opening.device.index, opening.peer.uid, reserved, 0, 1, opening.domain))
            with_sessions.add((opening.request.job, opening.device.index))
        for name, job in counted.items():
            for gpu in job.gpus:
                coming, domain = 0 if (name, gpu) in with_sessions else 1, domain_of(job)
                claims.append(Claim(gpu, job.uid, job.memory_limit_bytes, used[name, gpu], coming, domain))
        return claims

    def placing(self, awaited: set[int]) -> Placing:
        """Finds the GPU that has room for a job now; of several, which all must have it, the first.

        ``awaited``: GPUs that it gets none of, as jobs before it wait for them. Those of one that has to wait
        for others are added; who waits for himself, or for a GPU to work again, keeps nobody else waiting.
        """
        claims = self.claims()

        def place_job(job: Job) -> DeviceSpec:
            granted = allowance(self.configuration, job.tenant, str(job.uid))
            asks = [
                Ask(job.uid, gpu, job.memory_limit_bytes, granted, domain_of(job), waits=True)
                for gpu in job.gpus or (None,)
            ]
            if not job.gpus and awaited.issuperset(self.devices):
                raise MachineFull(OTHERS_FIRST)
            placed, full = [], [MachineFull(OTHERS_FIRST)] if awaited.intersection(job.gpus) else []
            for ask in asks:
                try:
                    placed.append(self._place(ask, claims, awaited if ask.gpu is None else frozenset()))
                except MachineFull as refusal:
                    full.append(refusal)
                except QuotaReached:
                    self.supervisor.try_again(job.uid)
                    raise
            if full:
                awaited.update(job.gpus or full[0].gpus)
                self.supervisor.try_again(job.uid)
                raise full[0]
            return placed[0]

        return place_job

    def _place(self, ask: Ask, claims: list[Claim], besides: Set[int] = frozenset()) -> DeviceSpec:
        devices = {index: device for index, device in self.devices.items() if index not in besides}
        return place(ask, devices, claims, self.configuration.device, self.supervisor)

    def decide(self, peer: Peer, request: OpenSession) -> Opening:
        """Authorise and place a session, which must be opened at once. Raises RequestError."""
        job = self._job_to_join(peer, request.job) if request.job else None
        granted = self.allowance(peer)
        gpu = None if request.gpu is None else index_of(request.gpu, self.devices)
        if job is not None:
            if gpu is not None and gpu not in job.gpus:
                raise NotFound(
                    f"GPU {gpu} is none of {job.job}", "fikitctl submit --gpus gives a job several"
                )
            gpu = job.gpu if gpu is None else gpu
            priority = job.priority
            request = OpenSession(
                name=request.name,
                gpu=gpu,
                memory_limit_bytes=job.memory_limit_bytes,
                isolated=job.isolated,
                job=job.job,
                unmodified=request.unmodified,
            )
        else:
            self.check_open()
            priority = self.priority(peer, request.priority)
        session = new_identifier()
        alone = f"job-{session}" if request.isolated else users_domain(peer.uid)
        domain = domain_of(job) if job else alone
        ask = Ask(peer.uid, gpu, request.memory_limit_bytes, granted, domain)
        device = self._place(ask, self.claims(besides=job))
        return Opening(
            request=request,
            priority=priority,
            peer=peer,
            device=device,
            domain=domain,
            allowance=granted,
            memory_limit_bytes=memory_limit(ask, device),
            reserved_bytes=request.memory_limit_bytes,
            measured=job is not None and job.measured,
            session=session,
        )

    def session_refused(self, peer: Peer, named: str | None, refusal: RequestError) -> None:
        """Tell of it: an unmodified program gets an error of CUDA's, which says nothing of why."""
        job = self.jobs.find(named) if named else None
        own = job if job is not None and job.uid == peer.uid else None
        if own:
            self.jobs.note(own, f"a session was refused: {refusal.message}")
        name = own.job if own else None
        if self._is_to_be_told("session_refused", peer.uid, name):
            self.events.tell(
                "session_refused",
                uid=peer.uid,
                tenant=peer.tenant,
                job=name,
                code=refusal.code,
                reason=refusal.message,
            )
            self.jobs.wake()  # to write it down

    def connection_refused(self, uid: int, reason: str) -> None:
        """Tell of it: to an unmodified program it is as if a session was refused."""
        if self._is_to_be_told("connection_refused", uid):
            self.events.tell("connection_refused", uid=uid, reason=reason)

    def _is_to_be_told(self, refusal: EventKind, uid: int, job: str | None = None) -> bool:
        """Once in a while: a program may ask without pause, and each is a line of the log."""
        now, what = trio.current_time(), (refusal, uid, job)
        self.refusals = {each: at for each, at in self.refusals.items() if now - at < REFUSAL_SECONDS}
        if what in self.refusals:
            return False
        self.refusals[what] = now
        return True

    def _session_lost(self, session: str, of: str | None, reason: str) -> None:
        if of and (job := self.jobs.find(of)) is not None:
            self.jobs.note(job, f"{session} ended: {reason}")

    def _expect(self, job: Job, device: DeviceSpec) -> None:
        """Most of a program's start is its own: the executor's goes on beside it."""
        self.supervisor.expect(device, domain_of(job), job.uid)
        self.supervisor.try_again(job.uid)

    def _expected(self, gpu: int) -> dict[str, int]:
        """The trust domains of the jobs that run on a GPU, and whose they are."""
        return {domain_of(job): job.uid for job in self.jobs.running() if gpu in job.gpus}

    async def _heed_jobs(self, executor: Executor) -> None:
        """Those it serves have numbers, though our state may be another than that of who started them."""
        served = filter(None, (each.job for each in self.sessions.within(executor)))
        for job in (executor.domain, *served):
            self.jobs.taken(job)

    def _lasts(self, domain: str) -> bool:
        """Whether a trust domain may have more sessions: a user's always, an isolated job's while it runs."""
        job = self.jobs.find(domain)
        return domain_owner(domain) is not None or (job is not None and job.runs)

    def _owner(self, domain: str) -> int | None:
        """Whose a trust domain is: a user's by its name, an isolated one by its job or its session."""
        if (uid := domain_owner(domain)) is not None:
            return uid
        job = self.jobs.find(domain)
        return job.uid if job is not None else self.sessions.noted_owner(domain.removeprefix("job-"))

    def job_named(self, peer: Peer, name: str) -> Job:
        """The job that the peer's environment names. Raises NotFound, also for another's."""
        job = self.jobs.find(name)
        if job is None or not peer.sees(job.uid):
            raise NotFound(f"{peer.tenant} has no job {name}, which {JOB_VARIABLE} names", OUTSIDE)
        return job

    def _job_to_join(self, peer: Peer, name: str) -> Job:
        """The job that a session of the peer's is to belong to. Raises RequestError."""
        job = self.job_named(peer, name)
        named = f"{name}, which {JOB_VARIABLE} names,"
        if job.uid != peer.uid:
            raise NotPermitted(f"{named} belongs to another user, and so would its sessions", OUTSIDE)
        if not job.runs:
            raise InvalidRequest(f"{named} is {job.state}; only a running job opens sessions", OUTSIDE)
        if self.stopping:
            raise Draining(ENDS)
        return job

    # --- what it looks like ----------------------------------------------------------------------

    async def gpus(self) -> list[GpuRecord]:
        """Every GPU, with what its driver says of it now."""
        claims, records = self.claims(), []
        for device in self.devices.values():
            now = await in_thread(reading, device)
            records.append(self._gpu(device, now, [claim for claim in claims if claim.gpu == device.index]))
        return records

    def _gpu(self, device: DeviceSpec, now: Reading, claims: list[Claim]) -> GpuRecord:
        executors = self.supervisor.on(device.index)
        seen = description_of(executors, device)
        return GpuRecord(
            index=device.index,
            name=seen.name,
            uuid=seen.uuid,
            memory_bytes=seen.memory_bytes,
            memory_reserved_bytes=sum(claim.reserved_bytes for claim in claims),
            memory_used_bytes=sum(claim.used_bytes for claim in claims),
            time_scale=seen.time_scale,
            sessions=sum(
                each.executor.device.index == device.index for each in self.sessions.living.values()
            ),
            executors=len(executors),
            utilization_percent=now.utilization_percent,
            temperature_celsius=now.temperature_celsius,
            power_watts=now.power_watts,
            failing=device.index in self.supervisor.failing,
        )


def domain_of(job: Job) -> str:
    """The trust domain of its sessions."""
    return job.job if job.isolated else users_domain(job.uid)


def description_of(executors: list[Executor], device: DeviceSpec) -> DeviceSpec:
    """The device as an executor that holds it describes it, else as it was chosen."""
    for executor in executors:
        if seen := executor.description:
            return replace(
                device,
                name=seen.device_name,
                memory_bytes=seen.memory_bytes,
                time_scale=seen.time_scale,
            )
    return device
