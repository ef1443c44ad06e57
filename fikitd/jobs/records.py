"""The records of jobs: in memory as they are now, in the store as soon as it can be written.

Where the store cannot be written on a path that nobody waits for (a job ended), the record is kept as unsaved
and written by ``settle`` later; until then the runner's exit file says the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import structlog
import trio
from msgspec.structs import replace

from fikitd.errors import Unavailable
from fikitd.jobs.model import Job, checked, job_number
from fikitd.jobs.running import JobProcesses
from fikitd.store import Store, pack, unpack

LAST_JOB: Final = "last_job"


class JobRecords:
    """All jobs that are known, by number."""

    def __init__(self, store: Store, processes: JobProcesses) -> None:
        self._store = store
        self._processes = processes
        self._log = structlog.get_logger()
        self._next = 1
        self._ended = 0
        self._settling = trio.Lock()
        self._forgetting = trio.Lock()
        self._changed: dict[int, trio.Event] = {}
        self.known: dict[int, Job] = {}
        self.unsaved: set[int] = set()
        self.starting: set[int] = set()
        """Admitted, and not yet running."""
        self.coming: Counter[int] = Counter()
        """How many of each user are being written down, and so not yet known."""
        self._needed: Counter[int] = Counter()
        self._spared: set[int] = set()
        """Those that are over and were in use when it was last looked which are to be forgotten."""
        self._taken: dict[int, int] = {}
        """Bytes on the disk of those that are over."""
        self.keep_ended: Callable[[], int] = lambda: 1000

    async def load(self) -> None:
        """Read what an earlier daemon knew; where that is lost, what the jobs' directories tell."""
        rows = "SELECT number, record FROM jobs ORDER BY number"
        found = await self._store.readable(rows, lambda row: checked(unpack(row[1], Job), row[0]))
        self.known = {job.number: job for job in found}
        for job in await self._processes.left(self.known.keys()):
            if self._store.fresh or job.state != "queued":  # its record, too, may be damaged
                self.keep(job)
                self.unsaved.add(job.number)
            else:  # its submission was not completed
                await self._processes.remove(job)
        statement = "SELECT value FROM settings WHERE name=?"
        highest = await self._store.readable(statement, lambda row: _number(f"job-{row[0]}"), (LAST_JOB,))
        self._next = 1 + max([await self._processes.highest(), *highest, *self.known])
        self._ended = max((job.ended_as for job in self.known.values()), default=0)

    def find(self, job: str) -> Job | None:
        """A job by its identifier."""
        number = job_number(job)
        return None if number is None else self.known.get(number)

    def running(self) -> list[Job]:
        """Those that run, paused ones among them."""
        return [job for job in self.known.values() if job.runs]

    def next_number(self) -> int:
        """A number that no job has had."""
        self._next += 1
        return self._next - 1

    def taken(self, job: str) -> None:
        """Something of this name lives: no other job gets its number, also where nothing is known of it."""
        self._next = max(self._next, 1 + (job_number(job) or 0))

    def next_end(self) -> int:
        """A later one than any job has had."""
        self._ended += 1
        return self._ended

    @contextmanager
    def needed(self, job: Job) -> Iterator[None]:
        """Not forgotten while inside, whatever becomes of it."""
        self._needed[job.number] += 1
        try:
            yield
        finally:
            self._needed[job.number] -= 1
            if not self._needed[job.number] and job.number in self._spared:
                self._spared.discard(job.number)
                self.wake()

    def wake(self) -> None:
        """Something has changed that run() waits for."""

    def change(self, job: Job) -> trio.Event:
        """Set once the job has changed after this call."""
        return self._changed.setdefault(job.number, trio.Event())

    def note(self, job: Job, reason: str) -> None:
        """What became of a session of its: its program has an error of CUDA's, which does not tell."""
        if job.runs and not job.kill_asked:
            self.keep(replace(job, reason=reason), quietly=True)
            self.unsaved.add(job.number)

    def keep(self, job: Job, quietly: bool = False) -> None:
        """Remember a job as it is now; ``quietly``: nobody who waits for a change needs to look."""
        self.known[job.number] = job
        if not quietly:
            self._changed.pop(job.number, trio.Event()).set()

    async def settle(self) -> None:
        """Write what is unsaved. Never raises: it will be tried again."""
        async with self._settling:
            jobs = [self.known[number] for number in self.unsaved if number in self.known]
            try:
                for job in jobs:
                    await self._store.write(saving(job))
                    if (
                        self.known.get(job.number) is job
                    ):  # else it has changed meanwhile, and must be written again
                        self.unsaved.discard(job.number)
            except Unavailable as refusal:
                self._log.error("jobs_unsaved", reason=refusal.message, jobs=len(jobs))

    async def forget(self) -> None:
        """Forget some that are over, if nobody is at it. Never raises: it will be tried again.

        One by one: thousands may be too many at once, and nobody who settles is to wait for more than one.
        """
        if self._forgetting.locked():
            return
        async with self._forgetting:
            try:
                while jobs := await self._too_many():
                    for job in jobs:
                        async with self._settling:
                            await self._forget(job)
            except Unavailable as refusal:
                self._log.error("jobs_not_forgotten", reason=refusal.message)

    async def _too_many(self) -> list[Job]:
        self._needed = +self._needed
        over = [job for job in self.known.values() if job.over]
        self._spared = {job.number for job in over if self._in_use(job)}
        over = [job for job in over if job.number not in self._spared]
        more = [job for job in over if job.number not in self._taken]
        if not more and len(over) <= self.keep_ended():
            return []
        self._taken |= await self._processes.taken(more)
        return surplus(over, self.keep_ended(), self._taken, await self._processes.room())

    async def _forget(self, job: Job) -> None:
        if self._in_use(job):
            return
        await self._store.write([("DELETE FROM jobs WHERE number=?", (job.number,))])
        await self._processes.remove(job)
        self.known.pop(job.number, None)
        self._taken.pop(job.number, None)

    def _in_use(self, job: Job) -> bool:
        return job.number in self.starting or self._needed[job.number] > 0


def surplus(over: list[Job], most: int, taken: Mapping[int, int], room: int) -> list[Job]:
    """Of jobs that are over, those to be forgotten: the first to have ended of whoever has most of them.

    Or whose take most, where those take more than there is room for; the last of each user stays.
    """
    by_user: dict[int, deque[Job]] = defaultdict(deque)
    for job in sorted(over, key=lambda job: (job.ended_as, job.number)):
        by_user[job.uid].append(job)
    forgotten = [max(by_user.values(), key=len).popleft() for _ in range(len(over) - most)]
    filling = {uid: [job for job in [*jobs][:-1] if taken[job.number]] for uid, jobs in by_user.items()}
    bytes_of = {uid: sum(taken[job.number] for job in jobs) for uid, jobs in filling.items()}
    while sum(bytes_of.values()) > room:
        most_of = max(bytes_of, key=lambda uid: bytes_of[uid])
        job = filling[most_of].pop(0)
        bytes_of[most_of] -= taken[job.number]
        forgotten.append(job)
    return forgotten


def _number(job: str) -> int:
    """Raises ValueError: it is no job's, as if a bit has flipped."""
    number = job_number(job)
    if number is None:
        raise ValueError(f"{job} is no job")
    return number


def saving(job: Job) -> list[tuple[str, tuple[Any, ...]]]:
    """The statement that stores a job."""
    return [("INSERT OR REPLACE INTO jobs VALUES (?, ?)", (job.number, pack(job)))]
