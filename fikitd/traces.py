"""Who records operations of which GPU, and what he may see of them.

A trace also covers executors that start while it is on. Two who trace the same executor share its recording:
it goes on until both have stopped, and each operation goes to who reads first.
"""

from __future__ import annotations

from typing import Final

import structlog
from fikit.protocol import Trace, TraceOperation

from fikitd.errors import InvalidRequest, Unavailable
from fikitd.executor.messages import Ok, TakeTrace, TraceControl, Traced
from fikitd.executor.supervisor import Supervisor
from fikitd.executor.supervisor_state import Executor
from fikitd.sessions import Sessions
from fikitd.tenants.peer import Peer

MOST_OPERATIONS: Final = 50_000
"""In one reply; well below the frame limit."""


class Traces:
    """The traces that are on."""

    def __init__(self, supervisor: Supervisor, sessions: Sessions) -> None:
        self._supervisor = supervisor
        self._sessions = sessions
        self._tracers: dict[int, dict[int, Peer]] = {}
        self._log = structlog.get_logger()

    async def start(self, peer: Peer, gpu: int) -> None:
        """Record what the peer may see of a GPU. Raises Unavailable."""
        self._tracers.setdefault(gpu, {})[peer.uid] = peer
        for executor in self._covered(peer, gpu):
            await executor.ask(TraceControl(on=True), Ok)

    async def serving(self, executor: Executor) -> None:
        """An executor serves: is it covered by a trace that is on? Never raises."""
        if any(self._covers(peer, executor) for peer in self._on(executor)):
            try:
                await executor.ask(TraceControl(on=True), Ok)
            except Unavailable as refusal:
                self._log.warning("trace_not_started", executor=executor.executor, reason=refusal.message)

    async def read(self, peer: Peer, gpu: int, stop: bool) -> Trace:
        """What was recorded. Raises InvalidRequest, Unavailable."""
        if peer.uid not in self._tracers.get(gpu, {}):
            raise InvalidRequest(f"you have started no trace of GPU {gpu}")
        operations: list[TraceOperation] = []
        dropped = 0
        for executor in self._covered(peer, gpu):
            traced = await executor.ask(TakeTrace(limit=MOST_OPERATIONS - len(operations)), Traced)
            operations += [each for each in traced.operations if self._sees(peer, each.session)]
            dropped += traced.dropped
        if stop:
            await self._stop(peer, gpu)
        return Trace(operations=operations, dropped=dropped)

    async def _stop(self, peer: Peer, gpu: int) -> None:
        self._tracers.get(gpu, {}).pop(peer.uid, None)
        for executor in self._covered(peer, gpu):
            if not any(self._covers(other, executor) for other in self._on(executor)):
                await executor.ask(TraceControl(on=False), Ok)

    def _on(self, executor: Executor) -> list[Peer]:
        return list(self._tracers.get(executor.device.index, {}).values())

    def _covered(self, peer: Peer, gpu: int) -> list[Executor]:
        return [each for each in self._supervisor.on(gpu) if self._covers(peer, each)]

    def _covers(self, peer: Peer, executor: Executor) -> bool:
        return peer.administrator or executor.uid == peer.uid

    def _sees(self, peer: Peer, session: str) -> bool:
        found = self._sessions.find(session)
        return peer.administrator if found is None else peer.sees(found.uid)
