"""Recording operations."""

from __future__ import annotations

from fikit.protocol import Done, ReadTrace, Reply, StartTrace

from fikitd.api.registry import Caller, handles
from fikitd.errors import InvalidRequest
from fikitd.placement import no_such_gpu


@handles(StartTrace)
async def start_trace(caller: Caller, request: StartTrace) -> Reply:
    """On every executor the peer may look into, now and later."""
    check_gpu(caller, request.gpu)
    traces = caller.daemon.traces
    if (earlier := caller.tracers.pop(request.gpu, None)) is not None:
        await traces.stop(earlier)
    caller.tracers[request.gpu] = await traces.start(caller.peer, request.gpu)
    return Done()


@handles(ReadTrace)
async def read_trace(caller: Caller, request: ReadTrace) -> Reply:
    """What they recorded of sessions the peer may see."""
    check_gpu(caller, request.gpu)
    tracer = caller.tracers.get(request.gpu)
    if tracer is None:
        raise InvalidRequest(f"this connection has started no trace of GPU {request.gpu}")
    if request.stop:
        await caller.daemon.traces.stop(tracer)
    recorded = await caller.daemon.traces.read(tracer)
    if request.stop and not recorded.more and caller.tracers.get(request.gpu) is tracer:
        del caller.tracers[request.gpu]
    return recorded


def check_gpu(caller: Caller, gpu: int) -> None:
    """Raises NotFound."""
    if gpu not in caller.daemon.devices:
        raise no_such_gpu(gpu, caller.daemon.devices)
