"""What only an administrator may."""

from __future__ import annotations

from fikit.protocol import Done, Drain, Reply, Undrain

from fikitd.api.registry import Caller, handles
from fikitd.daemon import DRAIN_SETTING
from fikitd.errors import NotPermitted


def check_administrator(caller: Caller) -> None:
    """Raises NotPermitted."""
    if not caller.peer.administrator:
        group = caller.daemon.configuration.daemon.administrator_group
        raise NotPermitted("only an administrator may do that", f"root and members of group {group} are")


@handles(Drain)
async def drain(caller: Caller, request: Drain) -> Reply:
    """Remembered across restarts: a machine that was drained stays so until somebody undrains it."""
    check_administrator(caller)
    await caller.daemon.store.remember(DRAIN_SETTING, request.reason)
    caller.daemon.draining = request.reason
    caller.daemon.events.tell("drain_started", reason=request.reason)
    return Done()


@handles(Undrain)
async def undrain(caller: Caller, request: Undrain) -> Reply:
    """Accept work again."""
    check_administrator(caller)
    await caller.daemon.store.remember(DRAIN_SETTING, None)
    caller.daemon.draining = None
    caller.daemon.events.tell("drain_ended")
    caller.daemon.jobs.wake()
    return Done()
