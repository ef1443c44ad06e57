"""An executor that gets no processor on a busy machine is no executor that hangs."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack

import pytest
from fikit import protocol as p

from fikitd.process_times import processor_waits
from tests.integration.conftest import SETTINGS, Daemon

WAITS = """
import itertools, fikitd.executor.supervisor_state as s
seconds = itertools.count()
s.processor_waits = lambda pid: {"7": 10**9 * next(seconds)}
"""
NO_DESCRIPTORS = """
import errno, fikitd.process_times as times
def refuse(path):
    raise OSError(errno.EMFILE, "Too many open files", path)
times.os = type("os", (), {"listdir": staticmethod(refuse)})
"""


@pytest.mark.parametrize("prologue", [WAITS, NO_DESCRIPTORS])
def test_who_may_wait_for_a_processor_is_reported_and_lives(stopped_daemon: Daemon, prologue: str) -> None:
    stopped_daemon.configure(
        settings=SETTINGS.replace("[executor]", "[executor]\nunresponsive_seconds = 0.3")
    )
    stopped_daemon.prologue = f"exec({prologue!r}); "
    client, events = stopped_daemon.start().client(), stopped_daemon.client()
    events.subscribe()
    opened = client.ask(p.OpenSession(name="slow"))
    while (event := events.receive()[1]).kind != "executor_started":
        pass
    pid = event.detail["pid"]
    os.kill(pid, signal.SIGSTOP)
    with ExitStack() as held:
        ended = os.pidfd_open(pid)
        held.callback(os.close, ended)
        while (event := events.receive()[1]).kind != "executor_unresponsive":
            pass
        assert event.detail["killed"] is False
        os.kill(pid, signal.SIGCONT)
        assert [each.session for each in client.ask(p.ListSessions()).sessions] == [opened.session]
        assert client.ask(p.Pause(target=opened.session)) == p.Done()
        assert select.select([ended], [], [], 0)[0] == []


def test_so_does_one_that_a_daemon_before_has_left(stopped_daemon: Daemon) -> None:
    client, events = stopped_daemon.start().client(), stopped_daemon.client()
    events.subscribe()
    opened = client.ask(p.OpenSession(name="slow"))
    while (event := events.receive()[1]).kind != "executor_started":
        pass
    with ExitStack() as held:
        ended = os.pidfd_open(event.detail["pid"])
        held.callback(os.close, ended)
        signal.pidfd_send_signal(ended, signal.SIGSTOP)
        stopped_daemon.stop(signal.SIGKILL)
        stopped_daemon.configure(
            settings=SETTINGS.replace("[executor]", "[executor]\nunresponsive_seconds = 0.3")
        )
        stopped_daemon.prologue = f"exec({WAITS!r}); "
        starting = threading.Thread(target=stopped_daemon.start)
        starting.start()
        while "executor_silent" not in stopped_daemon.log.read_text():
            pass
        signal.pidfd_send_signal(ended, signal.SIGCONT)
        starting.join()
        sessions = stopped_daemon.client().ask(p.ListSessions()).sessions
        assert [each.session for each in sessions] == [opened.session]
        assert select.select([ended], [], [], 0)[0] == []


def test_how_long_a_process_has_waited_is_known() -> None:
    """Two that never rest, on one processor."""
    one = next(iter(os.sched_getaffinity(0)))
    rests_never = f"import os\nos.sched_setaffinity(0, {{{one}}})\nwhile True: pass"
    with ExitStack() as running:
        both = []
        for _ in range(2):
            both.append(running.enter_context(subprocess.Popen([sys.executable, "-c", rests_never])))
            running.callback(both[-1].kill)
        if not processor_waits(both[0].pid):
            pytest.skip("the kernel does not tell")
        before = processor_waits(both[0].pid)
        while max(processor_waits(both[0].pid).values()) < max(before.values()) + 10**8:
            pass
    assert processor_waits(both[0].pid) == {}
