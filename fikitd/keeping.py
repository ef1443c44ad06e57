"""What is done from time to time: accounts saved, profiles collected, the watchdog fed."""

from __future__ import annotations

import socket

import structlog
import trio
from fikit.protocol import PROTOCOL_VERSION, AnyReply, Hello, ProtocolError, Welcome, encode

from fikitd.daemon import Daemon
from fikitd.errors import Unavailable
from fikitd.notify import notify, watchdog_seconds
from fikitd.wire import PeerClosedError, Wire


async def keep_books(daemon: Daemon) -> None:
    """For ever. A disk that refuses is reported, and tried again next time."""
    log = structlog.get_logger()
    while True:
        with trio.move_on_after(daemon.configuration.profiles.interval_seconds):
            await daemon.reloaded.wait()  # to another interval, maybe
        await daemon.profiles.collect()
        try:
            await daemon.save()
        except Unavailable as refusal:
            log.error("accounts_unsaved", reason=refusal.message)


async def feed_watchdog(daemon: Daemon) -> None:
    """Tell systemd that we live only when the loops that matter have turned."""
    interval = watchdog_seconds()
    if interval is None:
        return
    while True:
        await trio.sleep(interval / 2)
        with trio.move_on_after(interval / 4):
            if heartbeats_turn(daemon) and await api_answers(daemon):
                sessions, executors = len(daemon.sessions.living), len(daemon.supervisor.executors)
                # Ready again: when that was said first, there may have been no room for it to be heard.
                notify("WATCHDOG=1", "READY=1", f"STATUS={sessions} sessions, {executors} executors")


def heartbeats_turn(daemon: Daemon) -> bool:
    """Each executor's heartbeat loop turns in time (an executor that is silent is reported there)."""
    serving = [each for each in daemon.supervisor.executors.values() if each.state == "serving"]
    return all(trio.current_time() <= each.turns_by for each in serving)


async def api_answers(daemon: Daemon) -> bool:
    """Whether a client of our own is welcomed: accept, dispatch and send have all turned then."""
    try:
        stream = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError:
        return False
    wire = Wire(stream, AnyReply)
    try:
        await stream.connect(str(daemon.directories.socket))
        await wire.send(encode(1, Hello(version=PROTOCOL_VERSION, client="watchdog")))
        while not (frames := await wire.receive()):
            pass
        return isinstance(frames[0][1], Welcome)
    except (OSError, PeerClosedError, ProtocolError):
        return False
    finally:
        wire.close()
