"""Opening a session."""

from __future__ import annotations

from fikit.protocol import OpenSession, SessionOpened

from fikitd.api.registry import Caller, Handed, handles
from fikitd.errors import InvalidRequest, RequestError
from fikitd.scarcity import SCARCE
from fikitd.wire import close_all


@handles(OpenSession)
async def open_session(caller: Caller, request: OpenSession) -> Handed:
    """Attach the peer's process to an executor; its end of the channel travels beside the reply."""
    try:
        pidfd = caller.open_pidfd()
    except OSError as error:
        if error.errno in SCARCE:
            raise
        raise InvalidRequest(f"the process that asked has ended: {error.strerror}") from None
    try:
        opening = caller.daemon.decide(caller.peer, request)
        caller.turn.give_back()  # an executor may have to be started, and its number is limited
        session, descriptors = await caller.daemon.sessions.open(opening, pidfd)
    except RequestError as refusal:
        caller.daemon.session_refused(caller.peer, request.job, refusal)
        raise
    finally:
        close_all([pidfd])
    described = session.executor.description
    device = session.executor.device
    reply = SessionOpened(
        session=session.session,
        gpu=device.index,
        device_name=described.device_name if described else device.name,
        time_scale=described.time_scale if described else device.time_scale,
        priority=session.priority,
        memory_limit_bytes=session.memory_limit_bytes,
        nvidia_driver=device.nvidia,
    )
    return Handed(reply, descriptors)
