"""How log lines look: for people on a terminal, else one JSON object a line, for systemd with its priority.

Every event of ``fikitctl events`` is also a log line of the same name, so the two can be laid side by side.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

import structlog
from structlog.typing import EventDict, WrappedLogger

PRIORITIES: Final = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}


class Prefixed:
    """Render as JSON behind the ``<N>`` that systemd reads as the line's priority."""

    def __init__(self) -> None:
        self._json = structlog.processors.JSONRenderer()

    def __call__(self, logger: WrappedLogger, name: str, line: EventDict) -> str:
        """One line."""
        rendered = self._json(logger, name, line)
        text = rendered if isinstance(rendered, str) else rendered.decode()
        return f"<{PRIORITIES.get(name, 6)}>{text}"


def set_up(level: str) -> None:
    """Choose the looks once, at start; again after a reload changed the level."""
    renderer: structlog.typing.Processor
    if "JOURNAL_STREAM" in os.environ:
        renderer = Prefixed()
    elif sys.stderr.isatty():
        renderer = structlog.dev.ConsoleRenderer(colors="NO_COLOR" not in os.environ)
    else:
        renderer = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
