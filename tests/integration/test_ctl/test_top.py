"""``top`` on a screen: a terminal of its own, real drawing."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Any

import pytest
from fikit import protocol
from msgspec import structs

Daemon = Any
GPU = protocol.GpuRecord(
    index=0,
    name="H200",
    uuid="GPU-0",
    memory_bytes=140 << 30,
    memory_reserved_bytes=0,
    time_scale=1.0,
    sessions=1,
    executors=1,
)
SESSION = protocol.SessionRecord(
    session="session-1",
    tenant="ada",
    uid=1000,
    pid=1,
    name="[bold]serve",
    priority=0,
    gpu=0,
    executor="x",
    isolated=False,
    job=None,
    state="running",
    memory_limit_bytes=0,
    opened_unix=0,
    usage=protocol.Usage(),
)
STATUS = protocol.Status(
    daemon="0.1.0",
    pid=1,
    uptime_seconds=1,
    draining=None,
    sessions=1,
    jobs_running=0,
    jobs_queued=0,
    gpus=[GPU],
)


def everything(screen: Any) -> bytes:
    """What is drawn until it ends by itself."""
    seen = b""
    with suppress(OSError):  # how Linux tells that the other end of a terminal is closed
        while piece := os.read(screen.terminal, 4096):
            seen += piece
    assert screen.process.wait(20) == 0
    return seen


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}])
def test_a_screen(daemon: Daemon, on_terminal: Any, variables: dict[str, str]) -> None:
    daemon.script |= {
        protocol.GetStatus: STATUS,
        protocol.ListSessions: protocol.Sessions(sessions=[SESSION]),
    }
    screen = on_terminal(
        "top", "-n", "1", "-i", "50ms", TERM="xterm-256color", COLUMNS="150", LINES="40", **variables
    )
    seen = everything(screen)
    for text in (b"session-1", b"H200", b"GPU%", b"[bold]serve", b"accepting work"):
        assert text in seen
    assert b"\x1b[38;" not in seen


def test_what_a_session_is_named_by_is_whole_on_any_screen(daemon: Daemon, on_terminal: Any) -> None:
    """Who sees it wants to pause it, or to end it."""
    session = structs.replace(SESSION, session="s-1f0e9c0a11", name="training of the large model")
    daemon.script |= {
        protocol.GetStatus: STATUS,
        protocol.ListSessions: protocol.Sessions(sessions=[session]),
    }
    screen = on_terminal("top", "-i", "50ms", TERM="xterm-256color", COLUMNS="80", LINES="24")
    screen.read_until(b"s-1f0e9c0a11")
    screen.process.terminate()
    assert screen.process.wait(20) == 128 + signal.SIGTERM


def test_a_number_is_whole_on_any_screen(daemon: Daemon, on_terminal: Any) -> None:
    """Of 12345678 it left the first digits, as of a name."""
    usage = protocol.Usage(queued=12345678, memory_bytes=45 << 30)
    daemon.script |= {
        protocol.GetStatus: structs.replace(STATUS, gpus=[structs.replace(GPU, memory_used_bytes=123 << 30)]),
        protocol.ListSessions: protocol.Sessions(sessions=[structs.replace(SESSION, usage=usage)]),
    }
    screen = on_terminal("top", "-n", "1", "-i", "50ms", TERM="xterm-256color", COLUMNS="80", LINES="40")
    seen = everything(screen)
    for number in (b"123G/140G", b"12345678", b"45.0G"):
        assert number in seen


def test_a_screen_tells_of_a_drain_without_a_reason(daemon: Daemon, on_terminal: Any) -> None:
    daemon.script |= {
        protocol.GetStatus: structs.replace(STATUS, draining=""),
        protocol.ListSessions: protocol.Sessions(sessions=[SESSION]),
    }
    screen = on_terminal("top", "-i", "50ms", TERM="xterm-256color", COLUMNS="150", LINES="40")
    screen.read_until(b"draining: no reason given")
    screen.process.terminate()
    assert screen.process.wait(20) == 128 + signal.SIGTERM


def test_a_terminal_without_a_screen_gets_one_look(daemon: Daemon, on_terminal: Any) -> None:
    daemon.script |= {
        protocol.GetStatus: STATUS,
        protocol.ListSessions: protocol.Sessions(sessions=[SESSION]),
    }
    screen = on_terminal("top", "-i", "50ms", TERM="dumb", COLUMNS="150", LINES="40")
    screen.read_until(b"session-1")
    assert screen.process.wait(20) == 0


def test_the_terminal_is_given_back_whatever_ends_it(daemon: Daemon, on_terminal: Any) -> None:
    daemon.script |= {
        protocol.GetStatus: STATUS,
        protocol.ListSessions: protocol.Sessions(sessions=[SESSION]),
    }
    screen = on_terminal("top", TERM="xterm-256color", COLUMNS="150", LINES="40")
    screen.read_until(b"session-1")
    screen.process.terminate()
    screen.read_until(b"\x1b[?1049l")
    assert screen.process.wait(20) == 128 + signal.SIGTERM


def test_who_goes_on_after_a_hangup_does(daemon: Daemon, on_terminal: Any) -> None:
    """As nohup lets a program."""
    daemon.script |= {
        protocol.GetStatus: STATUS,
        protocol.ListSessions: protocol.Sessions(sessions=[SESSION]),
    }
    shell = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh")
    screen = on_terminal("top", "-i", "50ms", shell=shell, TERM="xterm-256color", COLUMNS="150", LINES="40")
    screen.read_until(b"session-1")
    screen.process.send_signal(signal.SIGHUP)
    screen.read_until(b"session-1")
    screen.read_until(b"session-1")
    screen.process.terminate()
    assert screen.process.wait(20) == 128 + signal.SIGTERM


def test_ctrl_z_gives_the_terminal_to_the_shell_as_it_was(daemon: Daemon, on_terminal: Any) -> None:
    """It was left on the other screen, without a cursor."""
    daemon.script |= {
        protocol.GetStatus: STATUS,
        protocol.ListSessions: protocol.Sessions(sessions=[SESSION]),
    }
    shell = ["bash", "-mc", '"$@"; echo "then $?"; fg', "bash"]
    screen = on_terminal("top", "-i", "20s", shell=shell, TERM="xterm-256color", COLUMNS="150", LINES="40")
    screen.read_until(b"session-1")
    os.write(screen.terminal, b"\x1a")
    seen = b""
    while b"then 148" not in seen:
        seen += os.read(screen.terminal, 4096)
    assert seen.rindex(b"\x1b[?1049l") < seen.index(b"then 148")
    assert seen.rindex(b"\x1b[?25h") < seen.index(b"then 148")
    screen.read_until(b"session-1")  # it draws again
    os.write(screen.terminal, b"\x03")
    screen.read_until(b"\x1b[?1049l")
