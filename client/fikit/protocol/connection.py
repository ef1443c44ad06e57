"""The connection itself: the greeting, the general answers, events."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import field

from fikit.protocol.words import Count, Level, Name, Reply, Request

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


EventKind = Literal[
    "subscribed",
    "events_lost",
    "job_submitted",
    "job_started",
    "job_taken_over",
    "job_paused",
    "job_resumed",
    "job_priority",
    "job_ended",
    "session_opened",
    "session_refused",
    "session_taken_over",
    "session_paused",
    "session_resumed",
    "session_priority",
    "session_outlived",
    "session_ended",
    "connection_refused",
    "executor_started",
    "executor_silent",
    "executor_unresponsive",
    "executor_ended",
    "device_failed",
    "mps_started",
    "mps_unavailable",
    "mps_ended",
    "drain_started",
    "drain_ended",
    "reloaded",
    "reload_refused",
    "state_set_aside",
    "daemon_ending",
]
"""What a daemon of this version tells; a newer one may tell more."""


class Hello(Request, tag="hello", frozen=True):
    """The first request: who speaks, and which protocol version."""

    version: int
    client: Name


class Welcome(Reply, tag="welcome", frozen=True):
    """The daemon's own version and who it takes the peer to be.

    ``start_seconds``: so long an executor may take to start. To ``open_session`` the daemon answers within as
    long and half a minute; clients wait for it and a minute, and no longer than an hour and a minute.
    """

    version: int
    daemon: str
    uid: int
    tenant: str
    administrator: bool
    priority_ceiling: Level
    start_seconds: Count = 60


class Done(Reply, tag="done", frozen=True):
    """It was done; nothing else to say."""


class Failure(Reply, tag="error", frozen=True):
    """The request was refused; ``message`` names what was wrong, ``hint`` what to do next."""

    code: ErrorCode
    message: str
    hint: str = ""


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
    detail: dict[str, Any] = field(default_factory=dict)
