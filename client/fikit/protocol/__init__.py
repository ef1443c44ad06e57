"""The control protocol: what travels over the daemon's Unix socket, described once for both sides.

A frame is one MessagePack map: ``{"id": int, "body": {"type": NAME, ...}}``. Requests and replies are the
structs below, told apart by ``type``; ``id`` pairs a reply with its request, and a subscription's events
carry the id of the request that asked for them. The first request of a connection must be ``Hello``.
Requests refuse unknown fields; replies ignore them (an old client may speak to a newer daemon).
File descriptors travel beside the frame that mentions them (SCM_RIGHTS).

No I/O here: ``Decoder`` turns bytes into frames, ``encode`` frames into bytes.
"""

from __future__ import annotations

from typing import Final, get_args

from msgspec import Struct

from fikit.protocol.connection import (
    Done,
    ErrorCode,
    Event,
    EventKind,
    Failure,
    Hello,
    Subscribe,
    Welcome,
)
from fikit.protocol.frames import (
    MAX_FRAME_BYTES,
    PORTION_BYTES,
    UNDECODABLE,
    Decoder,
    InvalidBody,
    ProtocolError,
    UnsendableError,
    encode,
    portions,
)
from fikit.protocol.jobs import (
    JobFinished,
    JobRecord,
    Jobs,
    JobStarted,
    ListJobs,
    Logs,
    ReadLogs,
    Submit,
    Submitted,
    Wait,
    Waited,
)
from fikit.protocol.machine import (
    Check,
    Diagnosis,
    Doctor,
    Drain,
    GetStatus,
    GpuRecord,
    Gpus,
    ListGpus,
    ListTenants,
    ListVisibleGpus,
    Metrics,
    ReadMetrics,
    Status,
    TenantRecord,
    Tenants,
    Undrain,
    VisibleGpu,
    VisibleGpus,
    VisibleProcess,
)
from fikit.protocol.profiles import (
    MOST_PROFILES,
    ClearProfiles,
    ImportProfiles,
    KernelGap,
    KernelProfile,
    ListProfiles,
    ProfileRecord,
    Profiles,
)
from fikit.protocol.sessions import (
    Explain,
    Explained,
    Gated,
    ListSessions,
    OpenSession,
    SessionOpened,
    SessionRecord,
    Sessions,
)
from fikit.protocol.targets import (
    Kill,
    Pause,
    Resume,
    SetPriority,
    Show,
    Shown,
)
from fikit.protocol.traces import (
    ReadTrace,
    StartTrace,
    Trace,
    TraceOperation,
)
from fikit.protocol.usage import (
    GateStatistics,
    Usage,
)
from fikit.protocol.words import (
    PRIORITIES,
    PROTOCOL_VERSION,
    Bytes,
    Count,
    GpuUuid,
    Identifier,
    KernelKey,
    Level,
    Name,
    Reply,
    Request,
    gpu_named,
    priority_level,
    priority_name,
)

__all__ = [
    "MAX_FRAME_BYTES",
    "MOST_PROFILES",
    "PORTION_BYTES",
    "PRIORITIES",
    "PROTOCOL_VERSION",
    "RECORDS",
    "REPLIES",
    "REQUESTS",
    "UNDECODABLE",
    "AnyReply",
    "AnyRequest",
    "Bytes",
    "Check",
    "ClearProfiles",
    "Count",
    "Decoder",
    "Diagnosis",
    "Doctor",
    "Done",
    "Drain",
    "ErrorCode",
    "Event",
    "EventKind",
    "Explain",
    "Explained",
    "Failure",
    "GateStatistics",
    "Gated",
    "GetStatus",
    "GpuRecord",
    "GpuUuid",
    "Gpus",
    "Hello",
    "Identifier",
    "ImportProfiles",
    "InvalidBody",
    "JobFinished",
    "JobRecord",
    "JobStarted",
    "Jobs",
    "KernelGap",
    "KernelKey",
    "KernelProfile",
    "Kill",
    "Level",
    "ListGpus",
    "ListJobs",
    "ListProfiles",
    "ListSessions",
    "ListTenants",
    "ListVisibleGpus",
    "Logs",
    "Metrics",
    "Name",
    "OpenSession",
    "Pause",
    "ProfileRecord",
    "Profiles",
    "ProtocolError",
    "ReadLogs",
    "ReadMetrics",
    "ReadTrace",
    "Reply",
    "Request",
    "Resume",
    "SessionOpened",
    "SessionRecord",
    "Sessions",
    "SetPriority",
    "Show",
    "Shown",
    "StartTrace",
    "Status",
    "Submit",
    "Submitted",
    "Subscribe",
    "TenantRecord",
    "Tenants",
    "Trace",
    "TraceOperation",
    "Undrain",
    "UnsendableError",
    "Usage",
    "VisibleGpu",
    "VisibleGpus",
    "VisibleProcess",
    "Wait",
    "Waited",
    "Welcome",
    "encode",
    "gpu_named",
    "portions",
    "priority_level",
    "priority_name",
]  # fmt: skip

AnyRequest = (
    Hello | OpenSession | Submit | JobStarted | JobFinished | ListGpus | ListSessions | ListJobs
    | ListTenants | Show | Explain | ReadLogs | Wait | Kill | Pause | Resume | SetPriority | Subscribe
    | StartTrace | ReadTrace | ListProfiles | ImportProfiles | ClearProfiles | Doctor | Drain
    | Undrain | GetStatus | ReadMetrics | ListVisibleGpus
)  # fmt: skip
AnyReply = (
    Welcome | SessionOpened | Submitted | Gpus | Sessions | Jobs | Tenants | Shown | Explained | Logs | Waited
    | Done | Event | Trace | Profiles | Diagnosis | Status | Metrics | VisibleGpus | Failure
)  # fmt: skip

REQUESTS: Final[tuple[type[Request], ...]] = get_args(AnyRequest)
REPLIES: Final[tuple[type[Reply], ...]] = get_args(AnyReply)
RECORDS: Final[tuple[type[Struct], ...]] = (
    Usage, GateStatistics, GpuRecord, SessionRecord, JobRecord, TenantRecord, KernelGap, ProfileRecord, Check,
    Gated, TraceOperation, VisibleGpu, VisibleProcess,
)  # fmt: skip
"""What replies carry that is no reply itself."""
