"""What is known of kernels, kept across executors and restarts.

A key names the module's content, the function, the shape of the launch and the device model, so another
build or another GPU never reuses an entry. Executors learn; this collects what changed, and gives it to new
executors of the same user on the same model. Users have entries of their own: how long a kernel takes is its
data's affair, and modules of one hash are easily made, so one could have others' programs held back, or
delayed by their own; and names tell what somebody runs. All are given what an administrator has imported.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec
import structlog
import trio
from fikit.protocol import MOST_PROFILES, KernelProfile, ProfileRecord, portions

from fikitd.errors import Unavailable
from fikitd.executor.messages import (
    ForgetProfiles,
    LoadProfiles,
    Ok,
    ProfilesTaken,
    TakeProfiles,
)
from fikitd.executor.supervisor import Supervisor
from fikitd.executor.supervisor_state import Executor
from fikitd.store import Row, Store
from fikitd.tenants.peer import Peer

COLUMNS: Final = (
    *("module", "function", "grid", "block", "shared_bytes", "device", "samples", "median_ns", "p95_ns"),
    *("shortest_ns", "block_ns", "wrong", "key", "gaps"),
)
LISTED: Final = ", ".join(COLUMNS)
AS_JSON: Final = {"grid", "block", "gaps"}
MOST_LOADED: Final = 5_000
"""Entries that a new executor is given: its user's, the most sampled ones, then imported ones."""
NOBODY: Final = -1
"""Whose entries are that were imported."""
KEY: Final = ("module", "function", "grid", "block", "shared_bytes", "device")
SAVE: Final = f"""
INSERT INTO profiles ({LISTED}, saved_ns, uid) VALUES ({", ".join("?" for _ in COLUMNS)}, ?, ?)
ON CONFLICT ({", ".join(KEY)}, uid)
DO UPDATE SET {", ".join(f"{name}=excluded.{name}" for name in (*COLUMNS, "saved_ns"))}
"""
FORGET: Final = f"DELETE FROM profiles WHERE {' AND '.join(f'{name}=?' for name in KEY)}"
SEEN: Final = f"""
(:all OR uid IN (:uid, {NOBODY})) AND (uid <> {NOBODY} OR NOT EXISTS (
    SELECT * FROM profiles AS own WHERE {" AND ".join(f"own.{name} = profiles.{name}" for name in KEY)}
    AND own.uid <> {NOBODY} AND (:all OR own.uid = :uid)))
"""
"""What was imported is of use until somebody has learnt it himself."""
PRUNE: Final = """
WITH users AS (SELECT uid, sum(size) AS takes FROM profiles GROUP BY uid),
most AS (SELECT uid, takes, takes + :most - (SELECT sum(takes) FROM users) AS left FROM users
         ORDER BY takes DESC LIMIT 1),
latest AS (SELECT saved_ns, sum(size) OVER (ORDER BY saved_ns DESC ROWS UNBOUNDED PRECEDING) AS takes
           FROM profiles WHERE uid = (SELECT uid FROM most WHERE left < takes))
DELETE FROM profiles WHERE uid = (SELECT uid FROM most) AND saved_ns < (
    SELECT max(saved_ns) FROM latest WHERE takes >= (SELECT max(left - :most / 100, 1) FROM most))
"""
"""Of whose take most: one user's many kernels are nobody else's loss. Some more than must go, as to add up
what is left takes long.
"""


Kind = TypeVar("Kind", bound=KernelProfile)


class Profiles:
    """The store of profiles."""

    def __init__(self, store: Store, supervisor: Supervisor) -> None:
        self._store = store
        self._supervisor = supervisor
        self._log = structlog.get_logger()
        self._collecting = trio.Lock()
        """Else a listing could miss what another has taken and not saved, older figures replace newer, or
        what was cleared come back."""
        self._taken: list[ProfileRecord] = []
        """What an executor has handed over and the disk refused so far. It is saved before more is taken."""
        self._taken_of = NOBODY

    async def load_into(self, executor: Executor) -> None:
        """Give an executor what is known on its device model. Never raises: it can learn anew."""
        try:
            await self._load_into(executor)
        except Unavailable as refusal:
            self._log.warning("profiles_not_loaded", executor=executor.executor, reason=refusal.message)

    async def _load_into(self, executor: Executor) -> None:
        if executor.description is None:
            return
        known = await self._store.readable(
            f"SELECT {LISTED} FROM profiles WHERE device=? AND uid IN (?, {NOBODY})"
            " ORDER BY uid DESC, samples DESC LIMIT ?",
            lambda row: entry(row, KernelProfile),
            (executor.description.device_name, executor.uid, MOST_LOADED),
        )
        for portion in portions(known):
            await executor.ask(LoadProfiles(profiles=portion), Ok)

    async def collect(self) -> None:
        """Take what the executors have learnt since. Never raises: what is missed now comes next time."""
        for executor in [each for each in self._supervisor.executors.values() if each.state == "serving"]:
            await self.collect_from(executor)

    async def collect_from(self, executor: Executor) -> None:
        """Of one, if it is known whose it is. Never raises."""
        if executor.uid is None:
            return
        async with self._collecting:
            try:
                more = True
                while more:
                    await self._save_taken()
                    taken = await executor.ask(TakeProfiles(), ProfilesTaken)
                    more = taken.more
                    if executor.description is not None:
                        device = executor.description.device_name
                        self._taken = [profile_record(each, device) for each in taken.profiles]
                        self._taken_of = executor.uid
                await self._save_taken()
            except Unavailable as refusal:
                self._log.warning("profiles_not_taken", executor=executor.executor, reason=refusal.message)

    async def _save_taken(self) -> None:
        """Raises Unavailable."""
        if self._taken:
            await self.save(self._taken, self._taken_of)
            self._taken = []

    async def save(self, records: Iterable[ProfileRecord], uid: int = NOBODY) -> None:
        """Keep what a user's executor has learnt; what is imported takes the place of everybody's.

        Those saved longest ago go, of the user whose take most. Raises Unavailable.
        """
        ((latest,),) = await self._store.read("SELECT max(saved_ns) FROM profiles")
        now = max(time.time_ns(), (latest or 0) + 1)  # a clock that was set back makes nothing the oldest
        rows = [values(each) for each in records]
        replaced = [(FORGET, row[: len(KEY)]) for row in rows if uid == NOBODY]
        kept = [(SAVE, (*row, now, uid)) for row in rows]
        await self._store.write([*replaced, *kept, (PRUNE, {"most": MOST_PROFILES})])

    async def list(self, peer: Peer, limit: int, offset: int) -> list[ProfileRecord]:
        """The most sampled entries of those that the peer may see, from the offset on."""
        order = "samples DESC, uid, rowid"
        return await self._store.readable(
            f"SELECT {LISTED} FROM profiles WHERE {SEEN} ORDER BY {order} LIMIT :limit OFFSET :offset",
            lambda row: entry(row, ProfileRecord),
            {**seen(peer), "limit": limit, "offset": offset},
        )

    async def count(self, peer: Peer) -> int:
        """How many entries those are."""
        statement = f"SELECT count(*) FROM profiles WHERE {SEEN}"
        ((count,),) = await self._store.read(statement, seen(peer))
        return int(count)

    async def clear(self) -> None:
        """Forget all, here and in all executors that answer. Raises Unavailable if one did not."""
        refused: Unavailable | None = None
        async with self._collecting:
            await self._store.write([("DELETE FROM profiles", ())])
            self._taken = []
            for executor in list(self._supervisor.executors.values()):
                if executor.state == "serving":
                    try:
                        await executor.ask(ForgetProfiles(), Ok)
                    except Unavailable as refusal:
                        refused = refusal
        if refused is not None:
            raise refused

    async def share(self) -> None:
        """Give every executor what was imported."""
        for executor in list(self._supervisor.executors.values()):
            if executor.state == "serving":
                await self.load_into(executor)


def seen(peer: Peer) -> dict[str, int]:
    """Whose entries the peer may see."""
    return {"all": peer.administrator, "uid": peer.uid}


def values(record: ProfileRecord) -> tuple[Any, ...]:
    """An entry as a row."""
    plain = msgspec.to_builtins(record)
    return tuple(json.dumps(plain[name]) if name in AS_JSON else plain[name] for name in COLUMNS)


def entry(row: Row, kind: type[Kind]) -> Kind:
    """A row as an entry, with its device or without."""
    named = dict(zip(COLUMNS, row, strict=True))
    return msgspec.convert(named | {name: json.loads(named[name]) for name in AS_JSON}, kind)


def profile_record(profile: KernelProfile, device: str) -> ProfileRecord:
    """As users and the store see it."""
    return ProfileRecord(
        device=device, **{name: getattr(profile, name) for name in profile.__struct_fields__}
    )
