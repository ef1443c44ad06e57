"""Kernel profiles: look, take over, forget."""

from __future__ import annotations

from fikit.protocol import ClearProfiles, Done, ImportProfiles, ListProfiles, Profiles, Reply

from fikitd.api.registry import Caller, handles
from fikitd.api.requests.administration import check_administrator


@handles(ListProfiles)
async def list_profiles(caller: Caller, request: ListProfiles) -> Reply:
    """The most sampled first, what executors have learnt by now included."""
    await caller.daemon.profiles.collect()
    return Profiles(profiles=await caller.daemon.profiles.list(request.limit))


@handles(ImportProfiles)
async def import_profiles(caller: Caller, request: ImportProfiles) -> Reply:
    """Keep them and give them to the executors of their device model."""
    check_administrator(caller)
    await caller.daemon.profiles.save(request.profiles)
    await caller.daemon.profiles.share()
    return Done()


@handles(ClearProfiles)
async def clear_profiles(caller: Caller, request: ClearProfiles) -> Reply:
    """Everywhere."""
    check_administrator(caller)
    await caller.daemon.profiles.clear()
    return Done()
