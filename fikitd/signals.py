"""What signals do: SIGHUP reads the configuration, SIGTERM and SIGINT drain and end, a second one at once."""

from __future__ import annotations

import signal

import structlog
import trio

from fikitd import configuration_files, log
from fikitd.daemon import ENDS, Daemon
from fikitd.errors import ConfigurationError, Unavailable
from fikitd.notify import notify, reloading
from fikitd.scarcity import in_thread

ENDING = (signal.SIGTERM, signal.SIGINT)
KILL_GRACE_MS = 2000
KILL_SECONDS = 5.0
AFTER_DRAIN_SECONDS = 60.0
"""What ending all that is left may take. systemd is told, else it would kill us while we drain."""
LOOK_SECONDS = 1.0
"""What is begun and given up again is no event."""
FAREWELL_SECONDS = 0.1
"""So that who waited for the last job still gets the answer."""


async def obey_signals(daemon: Daemon, whole: trio.CancelScope) -> None:
    """For the life of the daemon; ends it by cancelling ``whole``."""
    with trio.open_signal_receiver(signal.SIGHUP, *ENDING) as received:
        async with trio.open_nursery() as nursery:
            patience = trio.CancelScope()
            draining, reloads = False, trio.Lock()
            async for number in received:
                if number == signal.SIGHUP:
                    nursery.start_soon(reload, daemon, reloads)
                elif not draining:
                    draining = True
                    nursery.start_soon(end_gracefully, daemon, patience, whole)
                else:
                    patience.cancel()


async def reload(daemon: Daemon, one_by_one: trio.Lock) -> None:
    """Take over a configuration that is right as a whole, or keep the one we have.

    Its disk may not answer: that keeps no other signal waiting, nor the daemon from its end.
    """
    async with one_by_one:
        reloading()
        try:
            file = daemon.configuration_file
            loaded = await in_thread(configuration_files.load, file, abandon_on_cancel=True)
        except ConfigurationError as error:
            daemon.events.tell("reload_refused", reason=str(error), warning=True)
        else:
            daemon.configuration, left = configuration_files.taken_over(daemon.configuration, loaded)
            log.set_up(loaded.daemon.log_level)
            daemon.reloaded.set()
            daemon.reloaded = trio.Event()
            daemon.events.tell("reloaded", warning=bool(left), needs_restart=left)
            daemon.jobs.wake()
        notify("READY=1")
    await daemon.sessions.set_weights()


async def end_gracefully(daemon: Daemon, patience: trio.CancelScope, whole: trio.CancelScope) -> None:
    """Refuse new work, wait for what runs, end what still does, then the daemon."""
    seconds = daemon.configuration.daemon.drain_seconds
    grace = int((seconds + AFTER_DRAIN_SECONDS) * 1e6)
    notify("STOPPING=1", "STATUS=Draining", f"EXTEND_TIMEOUT_USEC={grace}")
    daemon.ending = True
    daemon.events.tell("daemon_ending", drain_seconds=seconds)
    with patience:
        await daemon.taken_over.wait()
        patience.deadline = trio.current_time() + seconds
        await until_idle(daemon)
    daemon.stopping = True
    with trio.move_on_after(KILL_SECONDS):
        await end_jobs(daemon)
    await daemon.supervisor.stop_all(ENDS)
    await daemon.mps.stop()
    await trio.sleep(FAREWELL_SECONDS)
    whole.cancel()


async def end_jobs(daemon: Daemon) -> None:
    """Kill what runs, and what was being started meanwhile, and wait for its end."""
    asked: set[int] = set()
    with daemon.events.subscribed(lambda uid: True) as subscription:
        while daemon.jobs.starting or daemon.jobs.running():
            for job in daemon.jobs.running():
                if job.number not in asked:
                    asked.add(job.number)
                    try:
                        await daemon.jobs.kill(job, signal.SIGTERM, KILL_GRACE_MS, ENDS)
                    except Unavailable as refusal:  # the others must end all the same
                        structlog.get_logger().error("job_not_ended", job=job.job, reason=refusal.message)
            with trio.move_on_after(LOOK_SECONDS):
                await subscription.next()


def idle(daemon: Daemon) -> bool:
    """Whether nothing runs and nothing is about to."""
    sessions, jobs = daemon.sessions, daemon.jobs
    return not (sessions.living or sessions.opening or jobs.starting or jobs.running())


async def until_idle(daemon: Daemon) -> None:
    """Until no session lives and no job runs."""
    with daemon.events.subscribed(lambda uid: True) as subscription:
        while not idle(daemon):
            with trio.move_on_after(LOOK_SECONDS):
                await subscription.next()
