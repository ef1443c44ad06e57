"""Kernel profiles: look, take over, forget."""

from __future__ import annotations

from typing import Final

from fikit.protocol import ClearProfiles, Done, ImportProfiles, ListProfiles, Profiles, Reply, portions

from fikitd.api.registry import Caller, handles
from fikitd.api.requests.administration import check_administrator

MOST_LISTED: Final = 500
"""In one reply: what the loop takes a moment to read."""


@handles(ListProfiles)
async def list_profiles(caller: Caller, request: ListProfiles) -> Reply:
    """The peer's, the most sampled first, what executors have learnt by now included."""
    if request.offset == 0:
        await caller.daemon.profiles.collect()
    profiles = caller.daemon.profiles
    found = await profiles.list(caller.peer, min(request.limit, MOST_LISTED), request.offset)
    listed = next(portions(found), [])
    left = min(await profiles.count(caller.peer) - request.offset, request.limit) - len(listed)
    return Profiles(profiles=listed, more=bool(listed) and left > 0)


@handles(ImportProfiles)
async def import_profiles(caller: Caller, request: ImportProfiles) -> Reply:
    """Keep them and give them to the executors of their device model."""
    check_administrator(caller)
    await caller.daemon.profiles.save(request.profiles)
    if not request.more:
        await caller.daemon.profiles.share()
    return Done()


@handles(ClearProfiles)
async def clear_profiles(caller: Caller, request: ClearProfiles) -> Reply:
    """Everywhere."""
    check_administrator(caller)
    await caller.daemon.profiles.clear()
    return Done()
