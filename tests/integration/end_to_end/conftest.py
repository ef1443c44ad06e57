"""A real daemon with real executors, on the simulated GPU or (FIKIT_TEST_DEVICE=real) a real one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fikit
import pytest

from fikitd.configuration import DeviceSection
from fikitd.device import choose
from tests.integration.conftest import Daemon, daemons

REAL = os.environ.get("FIKIT_TEST_DEVICE") == "real"
CHOICE = str(choose("auto", DeviceSection())[0].index) if REAL else "sim"
SETTINGS = f"""
[daemon]
drain_seconds = 0.0
[device]
choice = "{CHOICE}"
time_scale = 4.0
[executor]
heartbeat_seconds = 0.2
[scheduling]
staging_bytes = 4194304
[tenant_defaults]
priority_ceiling = "high"
"""

PTX = """
.version 7.8
.target sm_80
.address_size 64
.visible .entry nothing() { ret; }
.visible .entry spin(.param .u64 nanoseconds)
{
    .reg .b64 %rd<6>; .reg .pred %p1;
    ld.param.u64 %rd1, [nanoseconds];
    mov.u64 %rd2, %globaltimer;
L:  mov.u64 %rd3, %globaltimer;
    sub.s64 %rd4, %rd3, %rd2;
    setp.lt.s64 %p1, %rd4, %rd1;
    @%p1 bra L;
    ret;
}
.visible .entry work(.param .u32 rounds)
{
    .reg .b32 %r<3>; .reg .pred %p1;
    ld.param.u32 %r1, [rounds];
    mov.u32 %r2, 0;
W:  add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r1;
    @%p1 bra W;
    ret;
}
.visible .entry store(.param .u64 address, .param .u32 value)
{
    .reg .b64 %rd<2>; .reg .b32 %r<2>;
    ld.param.u64 %rd1, [address];
    ld.param.u32 %r1, [value];
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry increment(.param .u64 address)
{
    .reg .b64 %rd<2>; .reg .b32 %r<3>;
    ld.param.u64 %rd1, [address];
    ld.global.u32 %r1, [%rd1];
    add.u32 %r2, %r1, 1;
    st.global.u32 [%rd1], %r2;
    ret;
}
"""


def listener(path: Path) -> int:
    """The process that listens on a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.connect(str(path))
        return int.from_bytes(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], sys.byteorder)


class Served(Daemon):
    """A daemon whose executors are the real ones."""

    def configure(self, extra: str = "", settings: str = SETTINGS) -> None:
        super().configure(extra, settings)


stopped_daemon, lasting_daemon = daemons(Served)


@pytest.fixture
def connect(daemon: Daemon, connect_to: Callable[..., fikit.Session]) -> Callable[..., fikit.Session]:
    """Open sessions with a daemon that runs."""
    return connect_to


@pytest.fixture
def connect_to(chosen_daemon: Daemon) -> Iterator[Callable[..., fikit.Session]]:
    """Open sessions with a daemon that the test starts; they are closed at the end."""
    sessions = []

    def open_session(**options: Any) -> fikit.Session:
        sessions.append(fikit.connect(socket=chosen_daemon.socket, **options))
        return sessions[-1]

    yield open_session
    for session in sessions:
        session.close()


@pytest.fixture
def session(connect: Callable[..., fikit.Session]) -> fikit.Session:
    return connect(name="test")


@pytest.fixture
def program(chosen_daemon: Daemon) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start a Python program as a tenant of its own; it speaks through its standard output."""
    running = []
    prologue = f"import sys, fikit\nPTX = {PTX!r}\n"

    def start(text: str) -> subprocess.Popen[str]:
        running.append(
            subprocess.Popen(
                [sys.executable, "-P", "-c", prologue + text],
                env={**os.environ, "FIKIT_SOCKET": str(chosen_daemon.socket)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()
