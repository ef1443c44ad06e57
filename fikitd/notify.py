"""What systemd is told, by its documented and stable datagram protocol (sd_notify(3)).

Without NOTIFY_SOCKET every message goes nowhere. Never blocks and never raises: what does not fit, or finds
no descriptor left, is dropped.
"""

from __future__ import annotations

import os
import socket
import time


def notify(*assignments: str) -> bool:
    """Send ``READY=1`` and the like; whether somebody was there to be told."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(assignments).encode(), f"\0{place[1:]}" if place[0] == "@" else place)
    except OSError:
        return False
    return True


def reloading() -> None:
    """The configuration is being read again; READY=1 follows."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def watchdog_seconds() -> float | None:
    """How often systemd wants to hear WATCHDOG=1 of us; None: never."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    return int(microseconds) / 1e6 if microseconds.isdigit() and int(microseconds) else None
