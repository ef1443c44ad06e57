"""Recording operations."""

from __future__ import annotations

from fikit.protocol import Done, ReadTrace, Reply, StartTrace

from fikitd.api.registry import Caller, handles
from fikitd.errors import InvalidRequest


@handles(StartTrace)
async def start_trace(caller: Caller, request: StartTrace) -> Reply:
    """On every executor the peer may look into, now and later."""
    check_gpu(caller, request.gpu)
    await caller.daemon.traces.start(caller.peer, request.gpu)
    return Done()


@handles(ReadTrace)
async def read_trace(caller: Caller, request: ReadTrace) -> Reply:
    """What they recorded of sessions the peer may see."""
    check_gpu(caller, request.gpu)
    return await caller.daemon.traces.read(caller.peer, request.gpu, request.stop)


def check_gpu(caller: Caller, gpu: int) -> None:
    """Raises InvalidRequest."""
    if gpu not in caller.daemon.devices:
        raise InvalidRequest(f"there is no GPU {gpu}")
