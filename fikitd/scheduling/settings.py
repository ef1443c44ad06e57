"""What an executor is told when it starts, besides its device: the bounds of scheduling and of sessions."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

Share = Annotated[float, Meta(ge=0.0, le=1.0)]


class SchedulingSection(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The gate. Times in microseconds of device time. An executor reads it when it starts."""

    policy: Annotated[
        Literal["fikit", "strict"],
        Meta(description="fikit fills what high-priority work is predicted to leave idle; strict waits."),
    ] = "fikit"
    in_flight_us: Annotated[
        float,
        Meta(
            gt=0,
            le=1e6,
            description="Gated work of one session in flight, by expected duration; of all, twice that.",
        ),
    ] = 200.0
    partition_block_us: Annotated[
        float,
        Meta(
            ge=0, le=1e6, description="strict: beside high-priority work, confine kernels with longer blocks."
        ),
    ] = 20.0
    partitions: Annotated[
        list[Annotated[float, Meta(gt=0.0, lt=1.0)]],
        Meta(
            max_length=6,
            description="Shares of the multiprocessors that work can be confined to; "
            "strict uses the largest only, and is at its best with [0.73].",
        ),
    ] = field(default_factory=lambda: [0.91, 0.79, 0.73, 0.61, 0.49, 0.25])
    high_memory_ms: Annotated[
        float,
        Meta(
            gt=0,
            le=1e5,
            description="A high-priority session counts as active so long after its last work; for 200 times "
            "as long policy fikit confines what would hold up its next.",
        ),
    ] = 50.0
    delay_share: Annotated[
        Share, Meta(description="What a step of a high-priority session may be delayed by, of its own time;")
    ] = 0.02
    delay_least_us: Annotated[float, Meta(ge=0, le=1e6, description="but at least this much.")] = 10.0
    spared_share: Annotated[
        Share,
        Meta(
            description="And by this share of the time that fikitd spares an unmodified program's launches: "
            "1: it stays as fast as natively on a GPU of its own; 0: as fast as alone under fikitd."
        ),
    ] = 1.0
    starvation_share: Annotated[
        Share,
        Meta(
            description="Share of the time that levels get which would otherwise get nothing; 2.5 times as "
            "much for kernels that are not known yet."
        ),
    ] = 0.002
    spin_us: Annotated[
        float, Meta(ge=0, le=1e6, description="Look for work so long before sleeping (host time).")
    ] = 200.0
    poll_us: Annotated[
        float, Meta(ge=1, le=1e6, description="Look for completions this often while sleeping (host time).")
    ] = 50.0
    staging_bytes: Annotated[
        int, Meta(ge=1 << 20, le=1 << 32, description="Staging memory of a session, for pageable copies.")
    ] = 32 << 20
    pinned_limit_bytes: Annotated[
        int, Meta(ge=0, le=1 << 46, description="Pinned and managed memory that one session may have.")
    ] = 16 << 30
    host_memory_limit_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 46,
            description="That and the code that they have loaded, of all sessions of a user; 0: half of the "
            "machine's memory, or of its control group's limit.",
        ),
    ] = 0
