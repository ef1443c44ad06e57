"""The control protocol: what travels over the daemon's Unix socket, described once for both sides.

A frame is one MessagePack map: ``{"id": int, "body": {"type": NAME, ...}}``. Requests and replies are the
structs below, told apart by ``type``; ``id`` pairs a reply with its request, and a subscription's events
carry the id of the request that asked for them. The first request of a connection must be ``Hello``.
Requests refuse unknown fields; replies ignore them (an old client may speak to a newer daemon).
File descriptors travel beside the frame that mentions them (SCM_RIGHTS).

No I/O here: ``Decoder`` turns bytes into frames, ``encode`` frames into bytes.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeVar, get_args

import msgpack
import msgspec
from msgspec import Meta, Struct

PROTOCOL_VERSION: Final = 1
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Identifier = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
Level = Annotated[int, Meta(ge=0, le=9)]
Bytes = Annotated[int, Meta(ge=0, le=1 << 62)]
Count = Annotated[int, Meta(ge=0, le=1 << 62)]
KernelKey = Annotated[str, Meta(pattern=r"^[0-9a-f]{1,16}$")]
GpuUuid = Annotated[str, Meta(pattern=r"^GPU-[0-9a-f-]{1,36}$")]
Microseconds = Annotated[int, Meta(ge=0, le=1 << 62)]

PRIORITIES: Final[dict[str, int]] = {"high": 0, "normal": 5, "low": 9}


def priority_level(text: str) -> int:
    """The level 0 (highest) to 9 that ``high``, ``normal``, ``low`` or a digit names."""
    if text in PRIORITIES:
        return PRIORITIES[text]
    if len(text) == 1 and text.isdigit():
        return int(text)
    raise ValueError(f"priority {text!r} is none of high, normal, low, 0 to 9")


def priority_name(level: int) -> str:
    """``high``, ``normal`` or ``low`` where a level has a name, else its digit."""
    return next((name for name, number in PRIORITIES.items() if number == level), str(level))


class Request(Struct, tag_field="type", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What a client sends."""


class Reply(Struct, tag_field="type", frozen=True, kw_only=True):
    """What the daemon answers."""


# --- records that replies carry ---------------------------------------------------------------


class Usage(Struct, frozen=True, kw_only=True):
    """What a session, job or tenant has used so far. Times in nanoseconds of device time."""

    gpu_ns: Count = 0
    launches: Count = 0
    operations: Count = 0
    bytes_copied: Bytes = 0
    gate_wait_ns: Count = 0
    gate_waits: Count = 0
    memory_bytes: Bytes = 0
    memory_peak_bytes: Bytes = 0
    queued: Count = 0
    unsupported: dict[str, Count] = {}
    """Calls of the CUDA driver API that an unmodified program made and fikitd does not serve, by name."""


class GateStatistics(Struct, frozen=True, kw_only=True):
    """What the gate did for or because of a session since it was opened. Nanoseconds of device time.

    A session that the gate holds back has the first fields, one of the highest priority those from ``steps``
    on, and both have what concerns delays: it suffered them, or it caused them.
    """

    filled: Count = 0
    """Operations issued beside high-priority work, on the whole GPU; what they take is ``filled_ns``."""
    filled_ns: Count = 0
    confined: Count = 0
    """Likewise, confined to a part of the multiprocessors."""
    confined_ns: Count = 0
    refused: dict[str, Count] = {}
    """Operations that had to wait, by why: level, unknown, too_long, bound, in_flight."""
    steps: Count = 0
    """A step ends when the program waits for what it had issued."""
    step_ns: Count = 0
    """What one takes, at present."""
    bound_ns: Count = 0
    """On the delay of one step, at present."""
    over_bound: Count = 0
    """Steps that were delayed by more than that."""
    predicted: Count = 0
    """Launches whose time was predicted; ``met``: those that came as predicted."""
    met: Count = 0
    idle_ns: Count = 0
    """Nothing of it was on the GPU."""
    delays: Count = 0
    delay_ns: Count = 0
    worst_delay_ns: Count = 0
    delayed_by: Identifier | None = None
    """The session that caused the worst delay."""
    measured: Count = 0
    """Launches measured by timing events, which add ``measuring_ns`` in all."""
    measuring_ns: Count = 0


class GpuRecord(Struct, frozen=True, kw_only=True):
    """One GPU of the machine."""

    index: int
    name: str
    uuid: str
    memory_bytes: Bytes
    memory_reserved_bytes: Bytes
    time_scale: float
    """Host seconds per device second; 1.0 on a real GPU."""
    sessions: Count
    executors: Count
    utilization_percent: int | None = None
    temperature_celsius: int | None = None
    power_watts: float | None = None


class SessionRecord(Struct, frozen=True, kw_only=True):
    """One connected process."""

    session: Identifier
    tenant: str
    uid: int
    pid: int
    name: str
    priority: Level
    gpu: int
    executor: str
    isolated: bool
    job: str | None
    state: Literal["running", "paused", "ended"]
    memory_limit_bytes: Bytes
    opened_unix: float
    host_functions: Count = 0
    """Its streams that wait for a host function to return."""
    usage: Usage


class JobRecord(Struct, frozen=True, kw_only=True):
    """One submitted command."""

    job: Identifier
    tenant: str
    uid: int
    name: str
    command: list[str]
    directory: str
    priority: Level
    gpu: int | None
    memory_limit_bytes: Bytes
    isolated: bool
    state: Literal["queued", "running", "paused", "finished", "failed", "killed", "lost"]
    pid: int | None
    exit_code: int | None
    """The command's own code; 128 + signal when a signal ended it."""
    reason: str
    """Why it is queued, failed or lost; empty otherwise."""
    submitted_unix: float
    started_unix: float | None
    ended_unix: float | None
    sessions: list[Identifier]
    usage: Usage


class TenantRecord(Struct, frozen=True, kw_only=True):
    """Whom work is accounted to, with what the configuration allows."""

    tenant: str
    uid: int
    priority_ceiling: Level
    weight: float
    memory_limit_bytes: Bytes
    max_sessions: Count
    sessions: Count
    jobs: Count
    usage: Usage


class KernelGap(Struct, frozen=True, array_like=True):
    """From the launch of one kernel to that of another, its usual successor in a session."""

    before: KernelKey
    """The first of the two."""
    samples: Count
    median_ns: Count


class ProfileRecord(Struct, frozen=True, kw_only=True):
    """What is known of one kernel key: durations are of the latest measured launches."""

    function: str
    module: KernelKey
    """Hash of the module's content."""
    device: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: Bytes
    samples: Count
    median_ns: Count
    p95_ns: Count
    shortest_ns: Count = 0
    """What it takes undisturbed: the lowest eighth."""
    block_ns: Count = 0
    """What one block takes: what it may delay others by."""
    wrong: Count = 0
    """Durations less than half or more than twice of what was known."""
    key: str = ""
    """Hash of module, function and shape: how gaps name it."""
    gaps: list[KernelGap] = []


class Check(Struct, frozen=True, kw_only=True):
    """One finding of ``doctor``."""

    name: str
    ok: bool
    detail: str


# --- requests, each with its reply ----------------------------------------------------------------


class Hello(Request, tag="hello", frozen=True):
    """The first request: who speaks, and which protocol version."""

    version: int
    client: Name


class Welcome(Reply, tag="welcome", frozen=True):
    """The daemon's own version and who it takes the peer to be."""

    version: int
    daemon: str
    uid: int
    tenant: str
    administrator: bool
    priority_ceiling: Level


class OpenSession(Request, tag="open_session", frozen=True):
    """Open a session for this connection's process. ``memory_limit_bytes`` 0: the tenant's own limit.

    ``gpu`` is a GPU's index, or how its UUID begins.
    """

    name: Name
    priority: Level = PRIORITIES["normal"]
    gpu: int | GpuUuid | None = None
    memory_limit_bytes: Bytes = 0
    isolated: bool = False
    job: Identifier | None = None


class SessionOpened(Reply, tag="session_opened", frozen=True):
    """Descriptors beside it: outbox, inbox, lifeline (see shim/abi.h)."""

    session: Identifier
    gpu: int
    device_name: str
    time_scale: float
    priority: Level
    memory_limit_bytes: Bytes
    nvidia_driver: bool = False
    """The NVIDIA driver of the peer's own process knows this GPU too."""


class Submit(Request, tag="submit", frozen=True):
    """Run a command as a job, once there is room for it.

    With ``foreground`` the caller starts the process itself: the daemon answers when it is admitted
    and the caller reports with ``JobStarted``; the job ends with the connection.
    """

    command: Annotated[list[Annotated[str, Meta(max_length=131072)]], Meta(min_length=1)]
    environment: dict[str, str]
    directory: str
    priority: Level = PRIORITIES["normal"]
    gpu: int | None = None
    memory_limit_bytes: Bytes = 0
    name: Name | None = None
    isolated: bool = False
    foreground: bool = False
    output_limit_bytes: Bytes = 0
    """0: the configured limit."""
    measured: bool = False
    """Measure every launch of its sessions, at some cost to each."""


class JobStarted(Request, tag="job_started", frozen=True):
    """A foreground job's process runs."""

    job: Identifier
    pid: Annotated[int, Meta(ge=1)]


class JobFinished(Request, tag="job_finished", frozen=True):
    """A foreground job's process has ended."""

    job: Identifier
    exit_code: Annotated[int, Meta(ge=0, le=255)]


class Submitted(Reply, tag="submitted", frozen=True):
    """The job, and for a foreground job the environment its process must have."""

    job: JobRecord
    environment: dict[str, str] = {}


class ListGpus(Request, tag="list_gpus", frozen=True):
    """Every GPU the daemon serves."""


class Gpus(Reply, tag="gpus", frozen=True):
    """Answer to ``ListGpus``."""

    gpus: list[GpuRecord]


class ListSessions(Request, tag="list_sessions", frozen=True):
    """The sessions the peer may see."""


class Sessions(Reply, tag="sessions", frozen=True):
    """Answer to ``ListSessions``."""

    sessions: list[SessionRecord]


class ListJobs(Request, tag="list_jobs", frozen=True):
    """The jobs the peer may see; ``ended`` includes those that are over."""

    ended: bool = True


class Jobs(Reply, tag="jobs", frozen=True):
    """Answer to ``ListJobs``."""

    jobs: list[JobRecord]


class ListTenants(Request, tag="list_tenants", frozen=True):
    """The tenants the peer may see."""


class Tenants(Reply, tag="tenants", frozen=True):
    """Answer to ``ListTenants``."""

    tenants: list[TenantRecord]


class Show(Request, tag="show", frozen=True):
    """One job or session by its identifier."""

    target: Identifier


class Shown(Reply, tag="shown", frozen=True):
    """Answer to ``Show``: one of the two."""

    job: JobRecord | None = None
    session: SessionRecord | None = None


class Explain(Request, tag="explain", frozen=True):
    """How the gate treated a session, and those that share its executor."""

    session: Identifier


class Gated(Struct, frozen=True, kw_only=True):
    """A session, and what the gate did."""

    session: SessionRecord
    gate: GateStatistics


class Explained(Reply, tag="explained", frozen=True):
    """Answer to ``Explain``. ``beside``: the sessions that live in the same executor."""

    policy: str
    gated: Gated
    beside: list[Gated]


class ReadLogs(Request, tag="read_logs", frozen=True):
    """A piece of a job's output from ``offset``; with ``follow``, wait up to ``wait_ms`` for more."""

    job: Identifier
    stream: Literal["stdout", "stderr"] = "stdout"
    offset: Bytes = 0
    follow: bool = False
    wait_ms: Annotated[int, Meta(ge=0, le=60_000)] = 10_000


class Logs(Reply, tag="logs", frozen=True):
    """``end``: the job is over and this was the last of its output."""

    data: bytes
    offset: Bytes
    end: bool
    truncated: bool


class Wait(Request, tag="wait", frozen=True):
    """Answer when the job has ended, or after ``wait_ms``."""

    job: Identifier
    wait_ms: Annotated[int, Meta(ge=0, le=60_000)] = 60_000


class Waited(Reply, tag="waited", frozen=True):
    """The job as it is now; look at its state."""

    job: JobRecord


class Kill(Request, tag="kill", frozen=True):
    """End a job (its process group) or a session; frees what it held on the GPU."""

    target: Identifier
    signal: Annotated[int, Meta(ge=1, le=64)] = 15
    grace_ms: Annotated[int, Meta(ge=0, le=600_000)] = 5_000
    """Then SIGKILL."""


class Pause(Request, tag="pause", frozen=True):
    """Issue nothing more of a job or session until ``Resume``."""

    target: Identifier


class Resume(Request, tag="resume", frozen=True):
    """Undo ``Pause``."""

    target: Identifier


class SetPriority(Request, tag="set_priority", frozen=True):
    """Change the priority of a job or session from its next operation on."""

    target: Identifier
    priority: Level


class Done(Reply, tag="done", frozen=True):
    """It was done; nothing else to say."""


class Subscribe(Request, tag="subscribe", frozen=True):
    """Send an ``Event`` for each thing that happens to what the peer may see, from now on."""


class Event(Reply, tag="event", frozen=True):
    """Something happened. ``kind`` is also the name of the log line."""

    kind: Name
    unix: float
    tenant: str | None = None
    job: str | None = None
    session: str | None = None
    gpu: int | None = None
    detail: dict[str, Any] = {}


class StartTrace(Request, tag="start_trace", frozen=True):
    """Record operations of a GPU (all of the peer's sessions there) with device timestamps.

    The trace belongs to the connection and ends with it; others that run meanwhile see the same operations.
    """

    gpu: int = 0


class ReadTrace(Request, tag="read_trace", frozen=True):
    """What was recorded since ``StartTrace`` or the last ``ReadTrace``; ``stop`` ends the trace."""

    gpu: int = 0
    stop: bool = True


class TraceOperation(Struct, frozen=True, array_like=True):
    """One recorded operation. Times in nanoseconds of one device clock; 0 where unknown."""

    session: str
    stream: int
    kind: str
    name: str
    arrived_ns: int
    issued_ns: int
    started_ns: int
    ended_ns: int
    bytes: int
    blocks: int
    partition: int
    """Multiprocessors it was confined to; 0: the whole GPU."""


class Trace(Reply, tag="trace", frozen=True):
    """``dropped`` operations did not fit in the ring buffer."""

    operations: list[TraceOperation]
    dropped: Count


class ListProfiles(Request, tag="list_profiles", frozen=True):
    """Kernel profiles, the most sampled first."""

    limit: Annotated[int, Meta(ge=1, le=100_000)] = 1000


class Profiles(Reply, tag="profiles", frozen=True):
    """Answer to ``ListProfiles``."""

    profiles: list[ProfileRecord]


class ImportProfiles(Request, tag="import_profiles", frozen=True):
    """Take over profiles that were exported elsewhere (administrator)."""

    profiles: list[ProfileRecord]


class ClearProfiles(Request, tag="clear_profiles", frozen=True):
    """Forget every profile (administrator)."""


class Doctor(Request, tag="doctor", frozen=True):
    """Check the daemon's own surroundings."""


class Diagnosis(Reply, tag="diagnosis", frozen=True):
    """Answer to ``Doctor``."""

    checks: list[Check]


class Drain(Request, tag="drain", frozen=True):
    """Refuse new sessions and jobs until ``Undrain`` (administrator)."""

    reason: str = ""


class Undrain(Request, tag="undrain", frozen=True):
    """Accept work again (administrator)."""


class GetStatus(Request, tag="get_status", frozen=True):
    """The daemon at a glance."""


class Status(Reply, tag="status", frozen=True):
    """Answer to ``GetStatus``."""

    daemon: str
    pid: int
    uptime_seconds: float
    draining: str | None
    """The reason, while it drains."""
    sessions: Count
    jobs_running: Count
    jobs_queued: Count
    gpus: list[GpuRecord]


class ReadMetrics(Request, tag="read_metrics", frozen=True):
    """The Prometheus text (administrator: all tenants; others: their own)."""


class Metrics(Reply, tag="metrics", frozen=True):
    """Answer to ``ReadMetrics``."""

    text: str


ErrorCode = Literal[
    "protocol",  # the frame or the order of requests was wrong; the connection ends
    "invalid",  # a field was wrong
    "permission",  # not yours, or not allowed to you
    "not_found",  # no such job, session, GPU
    "quota",  # a limit of yours is reached
    "draining",  # no new work for now
    "unavailable",  # the executor or the device did not answer
    "internal",  # a defect of the daemon
]


class Failure(Reply, tag="error", frozen=True):
    """The request was refused; ``message`` names what was wrong, ``hint`` what to do next."""

    code: ErrorCode
    message: str
    hint: str = ""


AnyRequest = (
    Hello | OpenSession | Submit | JobStarted | JobFinished | ListGpus | ListSessions | ListJobs
    | ListTenants | Show | Explain | ReadLogs | Wait | Kill | Pause | Resume | SetPriority | Subscribe
    | StartTrace | ReadTrace | ListProfiles | ImportProfiles | ClearProfiles | Doctor | Drain
    | Undrain | GetStatus | ReadMetrics
)  # fmt: skip
AnyReply = (
    Welcome | SessionOpened | Submitted | Gpus | Sessions | Jobs | Tenants | Shown | Explained | Logs | Waited
    | Done | Event | Trace | Profiles | Diagnosis | Status | Metrics | Failure
)  # fmt: skip

REQUESTS: Final[tuple[type[Request], ...]] = get_args(AnyRequest)
REPLIES: Final[tuple[type[Reply], ...]] = get_args(AnyReply)


class ProtocolError(Exception):
    """The peer broke the protocol; the message says how. The connection cannot go on."""


Body = TypeVar("Body", bound=Struct)


def encode(identifier: int, body: Struct) -> bytes:
    """One frame. Raises ProtocolError when it would exceed MAX_FRAME_BYTES."""
    packed: bytes = msgpack.packb(
        {"id": identifier, "body": msgspec.to_builtins(body, builtin_types=(bytes,))}
    )
    if len(packed) > MAX_FRAME_BYTES:
        raise ProtocolError(f"frame of {len(packed)} bytes exceeds the limit of {MAX_FRAME_BYTES}")
    return packed


class Decoder:
    """Bytes in, ``(id, body)`` out. ``union`` is what the bodies may be (``AnyRequest`` or ``AnyReply``)."""

    def __init__(self, union: Any) -> None:
        self._union = union
        self._unpacker = msgpack.Unpacker(
            max_buffer_size=MAX_FRAME_BYTES,
            max_str_len=MAX_FRAME_BYTES,
            max_bin_len=MAX_FRAME_BYTES,
            max_array_len=1 << 20,
            max_map_len=1 << 16,
            max_ext_len=0,
            strict_map_key=True,
        )

    def feed(self, data: bytes) -> None:
        """Add what was received. Raises ProtocolError when an unfinished frame grows too large."""
        try:
            self._unpacker.feed(data)
        except msgpack.BufferFull:
            raise ProtocolError(f"frame exceeds the limit of {MAX_FRAME_BYTES} bytes") from None

    def frames(self) -> list[tuple[int, Any]]:
        """The frames completed so far. Raises ProtocolError for the first that is not one.

        A frame whose envelope is right but whose body is not yields InvalidBody with its id, so that
        the peer can be told and the connection can go on.
        """
        complete = []
        while (frame := self._next()) is not None:
            complete.append(frame)
        return complete

    def _next(self) -> tuple[int, Any] | None:
        try:
            raw = self._unpacker.unpack()
        except msgpack.OutOfData:
            return None
        except Exception as error:  # msgpack raises ValueError, its own classes and UnicodeDecodeError
            raise ProtocolError(f"not a MessagePack frame: {error}") from None
        if not isinstance(raw, dict) or raw.keys() != {"id", "body"}:
            raise ProtocolError("a frame is a map of 'id' and 'body'")
        identifier, body = raw["id"], raw["body"]
        if not isinstance(identifier, int) or isinstance(identifier, bool) or not 0 <= identifier < 1 << 63:
            raise ProtocolError("'id' is not an integer between 0 and 2^63")
        try:
            return identifier, msgspec.convert(body, self._union)
        except msgspec.ValidationError as error:
            return identifier, InvalidBody(str(error))


class InvalidBody(Struct, frozen=True):
    """Takes the place of a body that does not fit any struct; ``message`` names the field."""

    message: str
