"""What is the same for jobs and sessions: shown, ended, paused, resumed, their priority."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from fikit.protocol.jobs import JobRecord
from fikit.protocol.sessions import SessionRecord
from fikit.protocol.words import Identifier, Level, Reply, Request


class Show(Request, tag="show", frozen=True):
    """One job or session by its identifier."""

    target: Identifier


class Shown(Reply, tag="shown", frozen=True):
    """Answer to ``Show``: one of the two."""

    job: JobRecord | None = None
    session: SessionRecord | None = None


class Kill(Request, tag="kill", frozen=True):
    """End a job (what of its process group is its user's) or a session; frees what it held on the GPU.

    Or an executor, at once and with all its sessions: nothing else frees what the work of one that is over
    holds.
    """

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
