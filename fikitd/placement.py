"""Where a session or job goes, and whether there is room: pure decisions over what is running now.

What was asked for is reserved: a memory limit that a request names is counted against the GPU until the
session or job ends (sessions of a job are covered by the job's). Who names none reserves nothing and may
use what the tenant is allowed, as long as it is there. Among GPUs with room the one with the most memory
left wins, then the one with the fewest sessions. One on which no executor starts, so that nothing is ever
taken of it, is for who has no other to wait for and cannot wait for it either.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from fikitd.configuration import Allowance
from fikitd.device import DeviceSpec
from fikitd.errors import InvalidRequest, NotFound, QuotaReached

KEPT_SHARE: Final = 4
"""One in so many of the places that all users share is for those who have none yet."""
EXECUTOR_SESSIONS: Final = 64
"""That one executor takes."""


class MachineFull(QuotaReached):
    """There is no room now; there will be when others end. A job waits for that, on ``gpus``."""

    def __init__(self, message: str, hint: str = "", gpus: Iterable[int] = ()) -> None:
        super().__init__(message, hint)
        self.gpus = frozenset(gpus)


@dataclass(frozen=True)
class Claim:
    """What one session or job takes of a GPU."""

    gpu: int
    uid: int
    reserved_bytes: int
    used_bytes: int
    sessions: int
    domain: str | None = None
    """Whose executor it has a place of; None: one that takes no more sessions, beside another that does."""


class Limits(Protocol):
    """What the configuration says of every GPU."""

    @property
    def max_sessions(self) -> int:
        """Sessions at a time."""

    @property
    def memory_overcommit(self) -> float:
        """Multiple of the memory that may be reserved."""


class Executors(Protocol):
    """Which GPUs have executors for whom."""

    @property
    def failing(self) -> Container[int]:
        """GPUs where none starts."""

    def check_place(self, gpu: int, domain: str, uid: int) -> None:
        """Raises QuotaReached where a trust domain of this user's has none on a GPU, and gets none.

        Who waits for one keeps nobody else waiting: many need none, and the next that is to be had is his.
        """


@dataclass(frozen=True)
class Ask:
    """What is wanted. ``memory_bytes`` 0: nothing in particular."""

    uid: int
    gpu: int | None
    memory_bytes: int
    allowance: Allowance
    domain: str = ""
    """The trust domain that it is for."""
    waits: bool = False
    """It is no loss to it that it has to wait until an executor starts, as what would fail is."""


def index_of(gpu: int | str, devices: Mapping[int, DeviceSpec]) -> int:
    """The index that is meant by an index or by the beginning of a UUID. Raises NotFound, InvalidRequest."""
    if not isinstance(gpu, str):
        return gpu
    meant = [index for index, device in devices.items() if device.uuid.lower().startswith(gpu.lower())]
    if len(meant) > 1:
        several = ", ".join(f"{index} ({devices[index].uuid})" for index in meant)
        raise InvalidRequest(f"{gpu} may be GPU {several}", "write more of it, or the number")
    if not meant:
        raise no_such_gpu(gpu, devices)
    return meant[0]


def no_such_gpu(gpu: int | str, devices: Iterable[int]) -> NotFound:
    """The refusal of a GPU that this daemon does not serve."""
    known = ", ".join(str(index) for index in devices)
    return NotFound(f"there is no GPU {gpu}", f"the daemon serves GPU {known}")


def places_for(has_one: bool, places: int) -> int:
    """How many of the places may be taken before a user, who has one already or none, gets no other."""
    return places - (places // KEPT_SHARE if has_one else 0)


def size(count: int) -> str:
    """Bytes, as people ask for them."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >> shift:
            return f"{count / (1 << shift):.2f}".removesuffix(".00") + f" {unit}"
    return f"{count} bytes"


def memory_limit(ask: Ask, device: DeviceSpec) -> int:
    """The limit that the session gets. Raises QuotaReached for what will never be granted."""
    most = min(ask.allowance.memory_limit_bytes or device.memory_bytes, device.memory_bytes)
    if ask.memory_bytes > most:
        limited = most < device.memory_bytes
        raise QuotaReached(
            f"{size(ask.memory_bytes)} are more than the {size(most)} you may have on GPU {device.index}",
            "ask for less, or have the tenant's memory_limit_bytes raised" if limited else "ask for less",
        )
    return ask.memory_bytes or most


def place(
    ask: Ask,
    devices: Mapping[int, DeviceSpec],
    claims: Iterable[Claim],
    limits: Limits,
    executors: Executors,
) -> DeviceSpec:
    """The GPU to use. Raises MachineFull, QuotaReached, NotFound."""
    held = list(claims)
    if ask.gpu is not None and ask.gpu not in devices:
        raise no_such_gpu(ask.gpu, devices)
    wanted = [device for index, device in devices.items() if ask.gpu in (None, index)]
    if sum(claim.sessions for claim in held if claim.uid == ask.uid) >= ask.allowance.max_sessions:
        raise QuotaReached(
            f"you have {ask.allowance.max_sessions} sessions, the most you may have",
            "end one first, or have the tenant's max_sessions raised",
        )
    never: list[QuotaReached] = []
    later: dict[int, QuotaReached] = {}
    fitting = []
    for device in wanted:
        try:
            memory_limit(ask, device)
        except QuotaReached as refusal:
            never.append(refusal)
            continue
        try:
            executors.check_place(device.index, ask.domain, ask.uid)
            left, works = room(ask, device, held, limits), device.index not in executors.failing
            fitting.append((works, left, -device.index, device))
        except QuotaReached as refusal:
            later[device.index] = refusal
    works, _, _, best = max(fitting, key=lambda entry: entry[:3], default=(False, (0.0, 0), 0, None))
    if best is not None and (works or (not ask.waits and all(index in executors.failing for index in later))):
        return best
    full = [index for index, refusal in later.items() if isinstance(refusal, MachineFull)]
    if full:
        raise MachineFull(later[full[0]].message, later[full[0]].hint, full)
    if best is not None:
        raise QuotaReached(f"no executor starts on GPU {best.index}", "'fikitctl doctor' tells why")
    raise [*later.values(), *never][0]


def room(ask: Ask, device: DeviceSpec, held: list[Claim], limits: Limits) -> tuple[float, int]:
    """How good the GPU is for this: bytes left, then fewer sessions. Raises MachineFull, QuotaReached.

    The latter first: who has himself to wait for keeps nobody else waiting.
    """
    here = [claim for claim in held if claim.gpu == device.index]
    own = ask.allowance.memory_limit_bytes
    mine = sum(claim.reserved_bytes for claim in here if claim.uid == ask.uid)
    if own and ask.memory_bytes and mine + ask.memory_bytes > own:
        raise QuotaReached(
            f"you have reserved {size(mine)} of your {size(own)} on GPU {device.index},"
            f" {size(ask.memory_bytes)} were asked for",
            "wait until others of yours end, or ask for less",
        )
    if sum(claim.sessions for claim in here if claim.domain == ask.domain) >= EXECUTOR_SESSIONS:
        raise QuotaReached(
            f"your executor on GPU {device.index} has {EXECUTOR_SESSIONS} sessions, the most one takes",
            "end one first; isolated jobs and sessions have an executor of their own",
        )
    sessions = sum(claim.sessions for claim in here)
    if sessions >= limits.max_sessions:
        raise MachineFull(f"GPU {device.index} has {sessions} sessions, the most it may have")
    capacity = device.memory_bytes * limits.memory_overcommit
    reserved = sum(claim.reserved_bytes for claim in here)
    if ask.memory_bytes and reserved + ask.memory_bytes > capacity:
        left = max(0, int(capacity - reserved))
        raise MachineFull(
            f"GPU {device.index} has {size(left)} left to reserve, {size(ask.memory_bytes)} were asked for",
            "wait until others end, or ask for less",
        )
    taken = sum(max(claim.reserved_bytes, claim.used_bytes) for claim in here)
    return capacity - taken, -sessions
