"""The sessions of jobs: what they have used is in the job's record, and they are as their job is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio
from fikit.protocol import Usage
from msgspec.structs import replace

from fikitd.errors import Unavailable
from fikitd.jobs.model import Job
from fikitd.jobs.records import JobRecords
from fikitd.jobs.running import JobProcesses
from fikitd.session import Session
from fikitd.sessions import Sessions
from fikitd.store import Store
from fikitd.tenants.accounts import closed, whole

REMEMBERED_SESSIONS: Final = 4096
"""Of a job's that are over: its record is written for each that comes or goes. More than may end between two
times that the books are kept, so that after a crash none counts twice."""


class JobSessions(JobRecords):
    """Jobs, each with the sessions that its processes have opened."""

    def __init__(self, store: Store, processes: JobProcesses, sessions: Sessions) -> None:
        super().__init__(store, processes)
        self._sessions = sessions
        sessions.on_opened = self._session_opened
        sessions.on_closed = self._session_closed
        sessions.conform = self._conform_new

    def usage(self, job: Job) -> Usage:
        """Of all its sessions so far."""
        return whole(job.usage, [each.usage for each in self.sessions_of(job)])

    def sessions_of(self, job: Job) -> list[Session]:
        """Its living sessions."""
        return [each for each in self._sessions.living.values() if each.job == job.job]

    async def _conform(self, job: Job) -> None:
        """Its sessions are paused, or not, as it is. Raises Unavailable."""
        await self._each_session(
            job,
            lambda session: self._sessions.set_paused(session, lambda: self._now(job).state == "paused"),
        )

    async def _each_session(self, job: Job, change: Callable[[Session], Awaitable[None]]) -> None:
        """Change its sessions, all at once: one whose executor does not answer hinders none on another GPU.

        Raises Unavailable if one was not changed, once the others are.
        """
        refusals: list[Unavailable] = []

        async def change_one(session: Session) -> None:
            try:
                await change(session)
            except Unavailable as refusal:
                refusals.append(refusal)

        async with trio.open_nursery() as nursery:
            for session in self.sessions_of(job):
                nursery.start_soon(change_one, session)
        if refusals:
            raise refusals[0]

    async def _conform_new(self, session: Session) -> None:
        """The job may have changed while the session was opened. Raises Unavailable."""
        job = self.find(session.job) if session.job else None
        if job is None:
            return
        if job.over:
            await self._sessions.end(session, f"{job.job} is over")
            return
        if (session.state == "paused") != (self._now(job).state == "paused"):
            await self._sessions.set_paused(session, lambda: self._now(job).state == "paused")
        if session.priority != self._now(job).priority:
            await self._sessions.set_priority(session, lambda: self._now(job).priority)

    def _now(self, job: Job) -> Job:
        return self.known.get(job.number, job)

    def _session_opened(self, session: Session) -> None:
        job = self.find(session.job) if session.job else None
        if job is not None and session.session not in job.sessions:
            self.keep(replace(job, sessions=(*job.sessions, session.session)))
            self.unsaved.add(job.number)

    def _session_closed(self, session: str, name: str | None, usage: Usage) -> None:
        job = self.find(name) if name else None
        if job is not None and session not in job.closed:
            names = (*job.closed, session)
            forgotten = frozenset(names[:-REMEMBERED_SESSIONS])
            sessions = tuple(each for each in job.sessions if each not in forgotten)
            names = names[-REMEMBERED_SESSIONS:]
            used = closed(job.usage, usage, [each.usage for each in self.sessions_of(job)])
            self.keep(replace(job, usage=used, sessions=sessions, closed=names))
            self.unsaved.add(job.number)
