"""Every setting, declared once: its type, its default, its limits and its help.

The default fikitd.toml is written from these declarations (configuration_files.default_text), and a test
holds the shipped file to it. Unknown keys are refused. A setting that a reload cannot change says so.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fikit.control import LONGEST_START_SECONDS
from fikit.protocol import Bytes, Count, priority_level
from msgspec import Meta, Struct, field

from fikitd.scheduling.settings import SchedulingSection

Seconds = Annotated[float, Meta(ge=0, le=86_400 * 365)]
Weight = Annotated[float, Meta(gt=0, le=1000)]
Interval = Annotated[float, Meta(ge=0.01, le=86_400)]
TEXT_PATTERN: Final = r"^[^\0]*\Z"
PRIORITY_PATTERN: Final = r"^(high|normal|low|[0-9])\Z"
MODE_PATTERN: Final = r"^0[0-7]{3}\Z"
CHOICE_PATTERN: Final = r"^(auto|sim|[0-9]+)\Z"
IN_WORDS: Final = {
    TEXT_PATTERN: "text without a zero character",
    PRIORITY_PATTERN: 'one of "high", "normal", "low" and "0" (highest) to "9"',
    MODE_PATTERN: 'four octal digits with a 0 in front, as "0660"',
    CHOICE_PATTERN: '"auto", "sim" or the index of a GPU, as "0"',
}
"""What each pattern of a setting takes."""
Text = Annotated[str, Meta(pattern=TEXT_PATTERN)]
"""For the system, to which a zero is the end."""
AT_START: Final = Meta(extra={"read": "at start only"})
"""Of a setting that a reload does not take over."""
PriorityText = Annotated[str, Meta(pattern=PRIORITY_PATTERN)]


class Section(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A table of the file."""


class DaemonSection(Section, frozen=True):
    """The process itself."""

    socket: Annotated[
        Text, Meta(description="Path of the Unix socket; empty: the default place."), AT_START
    ] = ""
    socket_group: Annotated[
        Text,
        Meta(description="Group that may connect, where it exists and the daemon runs as root."),
        AT_START,
    ] = "fikit"
    socket_mode: Annotated[
        str, Meta(pattern=MODE_PATTERN, description="Permissions of the socket, in octal."), AT_START
    ] = "0660"
    administrator_group: Annotated[
        Text, Meta(description="Members of this group see and control everything, like root.")
    ] = "fikit-admin"
    state_directory: Annotated[
        Text, Meta(description="Jobs, accounts, profiles, logs; empty: the default place."), AT_START
    ] = ""
    runtime_directory: Annotated[
        Text,
        Meta(description="Sockets of the executors, on a file system that a boot empties; empty: default."),
        AT_START,
    ] = ""
    drain_seconds: Annotated[
        Seconds, Meta(description="After SIGTERM, wait this long for sessions and jobs to end by themselves.")
    ] = 60.0
    max_connections_per_user: Annotated[
        int, Meta(ge=1, le=1 << 62, description="Connections that one user may hold at a time.")
    ] = 128
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="The least important lines to log.")
    ] = "info"


class DeviceSection(Section, frozen=True):
    """The GPUs."""

    choice: Annotated[
        str, Meta(pattern=CHOICE_PATTERN, description="auto, sim or the index of one GPU."), AT_START
    ] = "auto"
    library: Annotated[
        Text,
        Meta(description="Path of the driver library the executors load; empty: the device's own."),
        AT_START,
    ] = ""
    time_scale: Annotated[
        float,
        Meta(
            ge=0.001,
            le=1e6,
            description="Host seconds per device second, for a device whose time is modelled.",
        ),
        AT_START,
    ] = 8.0
    max_sessions: Annotated[Count, Meta(description="Sessions that one GPU may have at a time.")] = 256
    memory_overcommit: Annotated[
        float,
        Meta(
            gt=0, le=100, description="Reserve up to this multiple of a GPU's memory for sessions and jobs."
        ),
    ] = 1.0


class ExecutorSection(Section, frozen=True):
    """The processes that hold the CUDA contexts."""

    command: Annotated[
        list[Text],
        Meta(description="Program and first arguments of an executor; empty: the one that comes along."),
    ] = field(default_factory=list)
    start_seconds: Annotated[
        float,
        Meta(ge=0.01, le=LONGEST_START_SECONDS, description="An executor must accept connections within."),
    ] = 60.0
    idle_seconds: Annotated[Seconds, Meta(description="Stop an executor without sessions after.")] = 30.0
    heartbeat_seconds: Annotated[Interval, Meta(description="Ask each executor this often.")] = 1.0
    unresponsive_seconds: Annotated[
        Interval,
        Meta(
            description="An executor that has not answered for this long, also one that an earlier daemon "
            "has left to this one, is reported."
        ),
    ] = 10.0
    kill_unresponsive: Annotated[
        bool,
        Meta(
            description="And killed, so that a new one can serve, unless it has waited for a processor for "
            "half of that time."
        ),
    ] = True
    outlived_seconds: Annotated[
        Interval,
        Meta(
            description="Work of a session that is over may go on this long. Then its executor, which "
            "takes no more sessions after a second of it, is killed if it has no other, or one of them has "
            "waited for the driver as long, or no work of any of them has ended for as long."
        ),
    ] = 10.0
    log_bytes: Annotated[Bytes, Meta(description="Keep at most this much of an executor's output.")] = 1 << 20
    max_per_gpu: Annotated[
        int,
        Meta(
            ge=0,
            le=48,  # of 64 on their board (native/board.hpp): one that is to end has its place until then
            description="Executors that one GPU may have at a time; a quarter is for users without one.",
        ),
    ] = 32
    mps: Annotated[
        Literal["auto", "off"],
        Meta(description="Run executors under NVIDIA's MPS where it can be had (auto)."),
        AT_START,
    ] = "off"


class TenantSection(Section, frozen=True):
    """What a tenant may: ``[tenant_defaults]`` for all, ``[tenants.NAME]`` (user name or uid) for one.

    A reload changes the weight of sessions that are open; their memory and priority they keep.
    Who connects under a subordinate id of a user's (subuid(5), as rootless containers do) is a tenant of its
    own, with what ``[tenant_defaults]`` grants: what is less in ``[tenants.NAME]`` binds who has no such ids.
    """

    priority_ceiling: Annotated[
        PriorityText | None, Meta(description="The highest priority the tenant may ask for.")
    ] = None
    weight: Annotated[
        Weight | None,
        Meta(
            description="Share among equals of an executor, relative to other tenants there. Users have "
            "executors of their own, which take turns as the driver has it, so for now it decides nothing."
        ),
    ] = None
    memory_limit_bytes: Annotated[
        Bytes | None, Meta(description="Device memory on one GPU; 0: all of it.")
    ] = None
    max_sessions: Annotated[
        Count | None,
        Meta(
            description="Sessions at a time. An executor has 64 at most, "
            "so more need several GPUs, or some that are isolated."
        ),
    ] = None
    max_jobs: Annotated[Count | None, Meta(description="Jobs queued and running at a time.")] = None


DEFAULT_TENANT = TenantSection(
    priority_ceiling="normal", weight=1.0, memory_limit_bytes=0, max_sessions=64, max_jobs=1000
)


class JobsSection(Section, frozen=True):
    """Submitted commands."""

    max_running: Annotated[
        Count, Meta(description="Jobs that run at a time; a quarter is for users of whom none runs.")
    ] = 64
    output_bytes: Annotated[
        Bytes, Meta(description="Keep this much of each output of a job, unless it asks for less.")
    ] = 64 << 20
    low_cpu_weight: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="CPU weight of jobs below normal priority, beside 100 of others; "
            "a nice value where systemd did not start them.",
        ),
    ] = 20
    keep_ended: Annotated[
        Count,
        Meta(
            description="Remember this many jobs that are over, with their output, as long as all of it "
            "takes a quarter of its file system at most."
        ),
    ] = 1000


class ProfilesSection(Section, frozen=True):
    """What is learnt about kernels."""

    interval_seconds: Annotated[
        Interval, Meta(description="Take what executors have learnt, and save accounts, this often.")
    ] = 30.0


class MetricsSection(Section, frozen=True):
    """Prometheus."""

    port: Annotated[
        int, Meta(ge=0, le=65535, description="Serve /metrics on 127.0.0.1 here; 0: do not."), AT_START
    ] = 0


class Configuration(Section, frozen=True):
    """The whole file."""

    daemon: DaemonSection = DaemonSection()
    device: DeviceSection = DeviceSection()
    executor: ExecutorSection = ExecutorSection()
    scheduling: SchedulingSection = SchedulingSection()
    tenant_defaults: TenantSection = DEFAULT_TENANT
    tenants: dict[str, TenantSection] = field(default_factory=dict)
    jobs: JobsSection = JobsSection()
    profiles: ProfilesSection = ProfilesSection()
    metrics: MetricsSection = MetricsSection()


class Allowance(Struct, frozen=True, kw_only=True):
    """What one tenant is allowed, every field decided."""

    priority_ceiling: int
    weight: float
    memory_limit_bytes: int
    """0: the whole GPU."""
    max_sessions: int
    max_jobs: int


def allowance(configuration: Configuration, *names: str) -> Allowance:
    """What the tenant called by the first of ``names`` that has a table may; else what all may."""
    own = next(
        (configuration.tenants[name] for name in names if name in configuration.tenants), TenantSection()
    )
    decided = {
        name: next(
            value
            for section in (own, configuration.tenant_defaults, DEFAULT_TENANT)
            if (value := getattr(section, name)) is not None
        )
        for name in TenantSection.__struct_fields__
    }
    return Allowance(**{**decided, "priority_ceiling": priority_level(decided["priority_ceiling"])})
