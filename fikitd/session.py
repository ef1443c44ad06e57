"""One session: what the daemon knows of it, and how it comes to be: opened here, or taken over."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import trio
from fikit.protocol import Bytes, Gated, GateStatistics, OpenSession, SessionRecord, Usage
from msgspec import Struct
from msgspec.structs import replace

from fikitd.configuration import Allowance
from fikitd.device import DeviceSpec
from fikitd.executor.messages import Attach, AttachedSession, Ok
from fikitd.executor.supervisor_launch import domain_owner
from fikitd.executor.supervisor_state import Executor
from fikitd.tenants.accounts import since
from fikitd.tenants.peer import Peer

CONTEXT_DESTROYED: Final = 709
"""CUDA_ERROR_CONTEXT_IS_DESTROYED: what a session that was ended from outside gets."""


class SessionNote(Struct, frozen=True, kw_only=True):
    """What of a session only the daemon knows."""

    opened_unix: float
    isolated: bool
    reserved_bytes: Bytes
    executor: str = ""
    uid: int | None = None
    gpu: int = 0
    job: str | None = None
    usage: Usage = Usage()
    """As it was when the books were last kept."""


@dataclass(eq=False)
class Session:
    """A connected process."""

    session: str
    tenant: str
    uid: int
    pid: int
    name: str
    priority: int
    weight: float
    memory_limit_bytes: int
    job: str | None
    executor: Executor
    note: SessionNote
    state: Literal["running", "paused", "ending", "ended"] = "running"
    usage: Usage = field(default_factory=Usage)
    usage_unix: float = field(default_factory=time.time)
    reason: str = ""
    """Why it ended, unless as usual."""
    gate: GateStatistics = field(default_factory=GateStatistics)
    gate_before: GateStatistics = field(default_factory=GateStatistics)
    """When this daemon came to know it."""
    tenant_limit_bytes: int = 0
    """What the tenant's sessions on this GPU may have together; 0: no limit."""
    unmodified: bool = False
    """Its program makes CUDA's own calls."""
    host_functions: int = 0
    """Its streams that wait for a host function to return."""
    call_ns: int = 0
    """So long a call of it has waited for the driver."""
    overdue_ns: int = 0
    """So long none of its work on the GPU has ended, though some should have."""
    missed: int = 0
    """Heartbeats in a row that did not list it."""
    changing: trio.Lock = field(default_factory=trio.Lock)
    """Held while its executor is asked for a change: what is noted here is the last that it was asked."""

    @property
    def gate_counted(self) -> GateStatistics:
        """Under this daemon."""
        return since(self.gate_before, self.gate)

    def record(self) -> SessionRecord:
        """As the protocol shows it."""
        return SessionRecord(
            session=self.session,
            tenant=self.tenant,
            uid=self.uid,
            pid=self.pid,
            name=self.name,
            priority=self.priority,
            gpu=self.executor.device.index,
            executor=self.executor.executor,
            isolated=self.note.isolated,
            job=self.job,
            state=self.state,
            memory_limit_bytes=self.memory_limit_bytes,
            opened_unix=self.note.opened_unix,
            host_functions=self.host_functions,
            call_ns=self.call_ns,
            overdue_ns=self.overdue_ns,
            usage=self.usage,
            usage_unix=self.usage_unix,
            reason=self.reason,
        )

    def gated(self) -> Gated:
        """With what the gate did."""
        return Gated(session=self.record(), gate=self.gate)

    def attach(self) -> Attach:
        """How its executor is told of it."""
        return Attach(
            session=self.session,
            tenant=self.tenant,
            uid=self.uid,
            pid=self.pid,
            name=self.name,
            job=self.job,
            priority=self.priority,
            weight=self.weight,
            memory_limit_bytes=self.memory_limit_bytes,
            tenant_limit_bytes=self.tenant_limit_bytes,
            unmodified=self.unmodified,
        )

    async def ask(self, body: Any) -> None:
        """Ask its executor for a change. Raises Unavailable."""
        await self.executor.ask(body, Ok)


@dataclass
class Opening:
    """A decided request for a session: where, how much, for whom."""

    request: OpenSession
    priority: int
    peer: Peer
    device: DeviceSpec
    domain: str
    allowance: Allowance
    memory_limit_bytes: int
    reserved_bytes: int
    measured: bool
    """Each of its launches is."""
    session: str
    noting: bool = False
    """It is being written down in the store."""


def new_identifier() -> str:
    """A session's identifier: random, since sessions outlive the daemon that numbers them."""
    return f"s-{secrets.token_hex(5)}"


def new_session(opening: Opening, executor: Executor) -> Session:
    """The session that an opening decides."""
    request, peer = opening.request, opening.peer
    note = SessionNote(
        opened_unix=time.time(),
        isolated=domain_owner(opening.domain) is None,
        reserved_bytes=opening.reserved_bytes,
        executor=executor.executor,
        uid=peer.uid,
        gpu=executor.device.index,
        job=request.job,
    )
    return Session(
        session=opening.session,
        tenant=peer.tenant,
        uid=peer.uid,
        pid=peer.pid,
        name=request.name,
        priority=opening.priority,
        weight=opening.allowance.weight,
        memory_limit_bytes=opening.memory_limit_bytes,
        tenant_limit_bytes=opening.allowance.memory_limit_bytes,
        unmodified=request.unmodified,
        job=request.job,
        executor=executor,
        note=note,
    )


def taken_over(attached: AttachedSession, executor: Executor, note: SessionNote | None) -> Session:
    """A session that an earlier daemon opened."""
    note = note or SessionNote(
        opened_unix=time.time(), isolated=domain_owner(executor.domain) is None, reserved_bytes=0
    )
    note = replace(
        note, executor=executor.executor, uid=attached.uid, gpu=executor.device.index, job=attached.job
    )
    return Session(
        session=attached.session,
        tenant=attached.tenant,
        uid=attached.uid,
        pid=attached.pid,
        name=attached.name,
        priority=attached.priority,
        weight=attached.weight,
        memory_limit_bytes=attached.memory_limit_bytes,
        job=attached.job,
        executor=executor,
        note=note,
        state="paused" if attached.paused else "running",
        usage=attached.usage,
        gate=attached.gate,
        gate_before=attached.gate,
    )
