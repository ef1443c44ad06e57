"""Who records operations of which GPU, and what he may see of them.

A trace belongs to the connection that started it and ends with that. It also covers executors that start
while it is on. An executor records while any trace covers it; each trace has its own place in the recording.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import structlog
import trio
from fikit.protocol import PORTION_BYTES, Trace, TraceOperation

from fikitd.errors import Unavailable
from fikitd.executor.messages import ReadTrace as ReadRecording
from fikitd.executor.messages import TraceControl, Traced, Tracing
from fikitd.executor.supervisor import Supervisor
from fikitd.executor.supervisor_state import Executor
from fikitd.sessions import Sessions
from fikitd.tenants.peer import Peer

MOST_OPERATIONS: Final = 20_000
"""In one reply: what the loop takes 30 ms to pass on."""


@dataclass(eq=False)
class Tracer:
    """One trace that is on: whose, of which GPU, and how far it has been read."""

    peer: Peer
    gpu: int
    cursors: dict[str, int] = field(default_factory=dict)
    """By executor, who was read longest ago first."""
    unbegun: set[str] = field(default_factory=set)
    """Executors that did not answer as they were to begin."""

    def covers(self, executor: Executor) -> bool:
        """Whether it records what the executor does."""
        mine = self.peer.administrator or executor.uid == self.peer.uid
        return mine and executor.device.index == self.gpu


class Traces:
    """The traces that are on."""

    def __init__(self, supervisor: Supervisor, sessions: Sessions) -> None:
        self._supervisor = supervisor
        self._sessions = sessions
        self._on: set[Tracer] = set()
        self._log = structlog.get_logger()

    async def start(self, peer: Peer, gpu: int) -> Tracer:
        """Record what the peer may see of a GPU. Who does not answer is missing from what is read."""
        tracer = Tracer(peer, gpu)
        self._on.add(tracer)
        try:
            async with trio.open_nursery() as nursery:
                for executor in self._covered(tracer):
                    nursery.start_soon(self._begin, tracer, executor)
        except BaseException:
            with trio.CancelScope(shield=True):
                await self.stop(tracer)
            raise
        return tracer

    async def serving(self, executor: Executor) -> None:
        """An executor serves: the traces that cover it begin. Never raises."""
        for tracer in [each for each in self._on if each.covers(executor)]:
            await self._begin(tracer, executor)

    async def _begin(self, tracer: Tracer, executor: Executor) -> None:
        try:
            tracing = await executor.ask(TraceControl(on=True), Tracing)
        except Unavailable as refusal:
            self._log.warning("trace_not_started", executor=executor.executor, reason=refusal.message)
            tracer.unbegun.add(executor.executor)
            return
        tracer.unbegun.discard(executor.executor)
        tracer.cursors.setdefault(executor.executor, tracing.cursor)

    async def read(self, tracer: Tracer) -> Trace:
        """What was recorded since it was last read. Never raises: who does not answer takes no other's."""
        operations: list[TraceOperation] = []
        read = size = dropped = 0
        ended = (tracer.cursors.keys() | tracer.unbegun) - self._supervisor.executors.keys()
        missing = sorted(ended | tracer.unbegun)
        tracer.unbegun -= ended
        for name in ended & tracer.cursors.keys():
            del tracer.cursors[name]
        covered = {each.executor: each for each in self._covered(tracer)}
        # One that always has more must not keep the others from being read. Who only starts has no cursor.
        for name in [each for each in tracer.cursors if each in covered]:
            if read >= MOST_OPERATIONS:
                break
            if (cursor := tracer.cursors.get(name)) is None:  # it has ended meanwhile
                continue
            executor = covered[name]
            question = ReadRecording(cursor=cursor, limit=MOST_OPERATIONS - read)
            try:
                traced = await executor.ask(question, Traced)
            except Unavailable as refusal:
                self._log.warning("trace_not_read", executor=executor.executor, reason=refusal.message)
                missing.append(executor.executor)
                continue
            tracer.cursors.pop(name, None)
            tracer.cursors[name] = traced.cursor
            read += len(traced.operations)
            size += sum(len(each.name) for each in traced.operations)
            operations += [each for each in traced.operations if self._sees(tracer.peer, each.session)]
            dropped += traced.dropped
            if traced.more or size > PORTION_BYTES:
                return Trace(operations=operations, dropped=dropped, missing=missing, more=True)
        more = read >= MOST_OPERATIONS
        return Trace(operations=operations, dropped=dropped, missing=missing, more=more)

    async def stop(self, tracer: Tracer) -> None:
        """It records no more; an executor that nobody traces any more stops recording. Never raises."""
        self._on.discard(tracer)
        for executor in self._covered(tracer):
            if any(other.covers(executor) for other in self._on):
                continue
            try:
                await executor.ask(TraceControl(on=False), Tracing)
            except Unavailable as refusal:
                self._log.warning("trace_not_stopped", executor=executor.executor, reason=refusal.message)

    def _covered(self, tracer: Tracer) -> list[Executor]:
        return [each for each in self._supervisor.on(tracer.gpu) if tracer.covers(each)]

    def _sees(self, peer: Peer, session: str) -> bool:
        found = self._sessions.find(session)
        return peer.administrator if found is None else peer.sees(found.uid)
