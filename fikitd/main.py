"""The fikitd program: the command line, and the whole daemon as one nursery.

Nothing here outlives the process, and nothing that matters ends with it: sessions live in executors, jobs
under their runners, records in the store. So every way of ending is safe, kill -9 included; SIGTERM is the
polite one, which ends jobs and sessions first.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Final

import click
import structlog
import trio
from fikit.place import UnsafePlaceError

from fikitd import __version__, configuration_files, directories, scraping
from fikitd.api import requests as _requests  # noqa: F401  registers the handlers
from fikitd.api.listener import Listener, passed_sockets, place_of
from fikitd.clock import LoopClock
from fikitd.configuration import Configuration
from fikitd.daemon import Daemon
from fikitd.device import CHOICES, DeviceSpec, choose
from fikitd.directories import Directories
from fikitd.errors import AlreadyRunningError, ConfigurationError, DeviceUnavailableError, RequestError
from fikitd.init import leave_pid_1
from fikitd.keeping import feed_watchdog, keep_books
from fikitd.log import set_up
from fikitd.notify import notify
from fikitd.places import OwnSocket, Runtime, keep_places
from fikitd.signals import obey_signals

START_FAILURES: Final = (
    *(ConfigurationError, DeviceUnavailableError, AlreadyRunningError, UnsafePlaceError),
    *(OSError, RequestError),
)


class Clock(LoopClock, trio.abc.Clock):
    """The daemon's."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", metavar="auto|sim|INDEX", help=f"Which GPU: {CHOICES}.")
@click.option("--socket", "socket_path", type=click.Path(path_type=Path), help="Where to listen.")
@click.option("--config", "file", type=click.Path(path_type=Path), help="Configuration file.")
@click.version_option(__version__)
def main(device: str | None, socket_path: Path | None, file: Path | None) -> None:
    """Share the machine's GPUs among tenants by priority.

    Clients find the daemon at FIKIT_SOCKET, or at the default place of its user.
    """
    leave_pid_1()
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # as `start` leaves it
            signal.signal(signal.SIGINT, signal.default_int_handler)
        configuration = configuration_files.load(file)
        set_up(configuration.daemon.log_level)
        os.umask(0o077)  # what it keeps is nobody else's to read, whoever made the directories
        passed = passed_sockets()
        places = directories.choose(configuration.daemon, place_of(passed) or socket_path)
        devices = choose(device or configuration.device.choice, configuration.device, places.runtime)
        places.make()
        directories.state_lock(places).take()
        places.make_runtime()
        own = None if passed else OwnSocket(places, configuration.daemon)
        runtime = Runtime(places)
        listening = [own.make()] if own else passed
        try:
            port = configuration.metrics.port
            scraped = scraping.listen_http(port) if port else None
            parts = (configuration, places, devices, listening, own, runtime, scraped, file)
            trio.run(serve, *parts, clock=Clock())
        finally:
            if own is not None:
                own.remove()
    except START_FAILURES as error:
        click.echo(f"fikitd: {told(error)}", err=True)
        sys.exit(1)


def told(error: Exception) -> str:
    """What kept it from starting, without Python's number of it."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


async def serve(
    configuration: Configuration,
    places: Directories,
    devices: list[DeviceSpec],
    listening: list[socket.socket],
    own: OwnSocket | None,
    runtime: Runtime,
    scraped: socket.socket | None,
    file: Path | None,
) -> None:
    """The daemon: one nursery. Executors are taken over before jobs, jobs before anybody is served.

    Who comes meanwhile is greeted: that may take as long as an executor may be silent.
    """
    daemon = await Daemon.open(configuration, places, devices)
    daemon.configuration_file = file
    try:
        await run(daemon, listening, own, runtime, scraped)
    except ExceptionGroup as failures:
        if daemon.taken_over.is_set():
            raise
        raise first(failures) from failures
    await daemon.save()
    await daemon.store.close()


def first(failures: ExceptionGroup[Exception]) -> Exception:
    """Of those of nested nurseries, what ended them."""
    failure = failures.exceptions[0]
    return first(failure) if isinstance(failure, ExceptionGroup) else failure


async def run(
    daemon: Daemon,
    listening: list[socket.socket],
    own: OwnSocket | None,
    runtime: Runtime,
    scraped: socket.socket | None,
) -> None:
    """All of its tasks, until the end. What keeps it from starting is among what the nursery raises."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(obey_signals, daemon, nursery.cancel_scope)
        listener = Listener(daemon)
        for each in listening:
            nursery.start_soon(listener.run, each)
        await nursery.start(daemon.mps.run)
        await nursery.start(daemon.supervisor.run)
        await daemon.sessions.close_left()
        await nursery.start(daemon.jobs.run)
        daemon.taken_over.set()
        nursery.start_soon(keep_books, daemon)
        nursery.start_soon(feed_watchdog, daemon)
        nursery.start_soon(keep_places, daemon, listener, own, runtime)
        if scraped is not None:
            nursery.start_soon(scraping.serve_http, daemon, scraped)
        gpus = ", ".join(device.name for device in daemon.devices.values())
        place = str(daemon.directories.socket)
        structlog.get_logger().info("serving", socket=place, gpus=gpus, version=__version__)
        notify("READY=1", f"STATUS=Serving {gpus}")
