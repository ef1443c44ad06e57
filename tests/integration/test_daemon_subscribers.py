"""Who follows events."""

from __future__ import annotations

from contextlib import suppress

from fikit import protocol as p

from tests.integration.conftest import Daemon


def test_a_subscriber_that_reads_late_loses_events_and_not_his_connection(stopped_daemon: Daemon) -> None:
    """As one whose terminal was stopped, or whose pager waits for a key."""
    stopped_daemon.prologue = (
        "import fikitd.api.connection as c; c.SEND_SECONDS = c.Outgoing.patience = 0.2; "
        # What waits for him beside what the system holds: so many requests are needed to fill it.
        "import fikitd.events as e; e.QUEUE_EVENTS //= 16; c.MAX_QUEUED_FRAMES //= 16; "
    )
    slow, teller = stopped_daemon.start().client(), stopped_daemon.client()
    slow.subscribe()
    session = teller.ask(p.OpenSession(name="busy")).session
    for _ in range(1200):
        teller.ask(p.Pause(target=session))
        teller.ask(p.Resume(target=session))
    stuck = stopped_daemon.client()  # which does not read answers, is cut off after the slow one would be
    with suppress(ConnectionError, TimeoutError):
        while True:
            stuck.socket.sendall(p.encode(5, p.GetStatus()) * 100)
    while slow.receive()[1].kind != "events_lost":  # though nothing happens any more
        pass
