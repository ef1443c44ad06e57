"""``fikitctl run`` that waits for room goes on waiting under the daemon that follows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from fikit import protocol as p

from tests.integration.conftest import DEADLINE_SECONDS, SETTINGS, Daemon
from tests.integration.end_to_end.conftest import listener
from tests.integration.test_daemon_jobs import wait_for
from tests.integration.test_kept_jobs import held

Run = Callable[..., subprocess.Popen[str]]
DIES_AS_IT_ADMITS = """
import os
from fikitd.daemon import Daemon
expect = Daemon._expect
def die_once(self, job, device):
    if not os.path.exists(died):
        open(died, "w").close()
        os.kill(os.getpid(), 9)
    expect(self, job, device)
Daemon._expect = die_once
"""


@pytest.fixture
def run(stopped_daemon: Daemon) -> Iterator[Run]:
    started = []

    def start(*command: str) -> subprocess.Popen[str]:
        code = "from fikitctl.main import main; main()"
        command = (sys.executable, "-P", "-c", code, "run", "--", *(command or ("sh", "-c", "exit 7")))
        environment = stopped_daemon.environment()
        started.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_who_waits_for_room_waits_on(stopped_daemon: Daemon, run: Run) -> None:
    stopped_daemon.configure("[jobs]\nmax_running = 1\n")
    client = stopped_daemon.start().client()
    gate = stopped_daemon.place / "gate"
    first = client.ask(held(gate)).job.job
    client.pid_of(first)
    waits = run()
    while len(client.ask(p.ListJobs()).jobs) < 2:
        pass
    stopped_daemon.stop(signal.SIGKILL)
    client = stopped_daemon.start().client()
    gate.write_bytes(b"\n")
    assert wait_for(client, first).state == "finished"
    assert (waits.communicate(timeout=DEADLINE_SECONDS)[1], waits.returncode) == ("", 7)


def test_a_place_that_nobody_heard_of_is_taken_by_nobody(stopped_daemon: Daemon, run: Run) -> None:
    """The daemon is killed as it gives it."""
    died = stopped_daemon.place / "died"
    stopped_daemon.prologue = f"exec({f'died = {os.fspath(died)!r}{DIES_AS_IT_ADMITS}'!r}); "
    stopped_daemon.configure("[jobs]\nmax_running = 1\n")
    stopped_daemon.start()
    asks = run()
    assert stopped_daemon.process is not None
    assert stopped_daemon.process.wait(DEADLINE_SECONDS) == -signal.SIGKILL
    client = stopped_daemon.start().client()
    assert (asks.communicate(timeout=DEADLINE_SECONDS)[1], asks.returncode) == ("", 7)
    jobs = client.ask(p.ListJobs()).jobs
    assert [(job.state, job.exit_code) for job in jobs] == [("killed", None), ("failed", 7)]


DIES_AS_IT_IS_TOLD = (
    "import os; from fikitd.jobs.jobs import Jobs; Jobs.foreground_started = lambda *_: os._exit(9); "
)


def test_a_process_that_was_told_to_a_daemon_that_died_is_told_to_the_next(
    stopped_daemon: Daemon, run: Run
) -> None:
    """Else nobody could end it."""
    stopped_daemon.prologue = DIES_AS_IT_IS_TOLD
    stopped_daemon.start()
    process = run("sleep", "1000")
    assert stopped_daemon.process is not None
    assert stopped_daemon.process.wait(DEADLINE_SECONDS) == 9
    stopped_daemon.prologue = ""
    client = stopped_daemon.start().client()
    (job,) = client.ask(p.ListJobs()).jobs
    client.pid_of(job.job)
    assert client.ask(p.Kill(target=job.job)) == p.Done()
    assert process.wait(DEADLINE_SECONDS) == 128 + signal.SIGTERM
    assert wait_for(client, job.job).state == "killed"


def test_a_command_that_cannot_be_executed_is_told_to_the_next_daemon(
    stopped_daemon: Daemon, run: Run
) -> None:
    stopped_daemon.prologue = DIES_AS_IT_IS_TOLD
    stopped_daemon.start()
    process = run("/nowhere")
    assert stopped_daemon.process is not None
    assert stopped_daemon.process.wait(DEADLINE_SECONDS) == 9
    stopped_daemon.prologue = ""
    client = stopped_daemon.start().client()
    said = process.communicate(timeout=DEADLINE_SECONDS)[1]
    assert (said, process.returncode) == ("fikitctl: /nowhere: command not found\n", 127)
    (job,) = client.ask(p.ListJobs()).jobs
    assert (job.state, job.exit_code) == ("failed", 127)


TELLS_HOW_LONG_IT_ASKS = """
from fikitd.executor.connection import ExecutorConnection as Connection
from fikitd.executor.messages import Describe
ask = Connection.ask
async def told(self, body, kind, seconds, *more):
    if isinstance(body, Describe):
        with open(asks, "a") as file:
            file.write(f"{seconds:g} s\\n")
    return await ask(self, body, kind, seconds, *more)
Connection.ask = told
"""


def test_an_executor_may_be_as_silent_to_the_next_daemon_as_is_set(stopped_daemon: Daemon) -> None:
    """Who comes meanwhile is greeted, and served once it is known what is there."""
    patient = SETTINGS.replace("[executor]", "[executor]\nunresponsive_seconds = 1000.0")
    stopped_daemon.configure(settings=patient)
    client = stopped_daemon.start().client()
    opened = client.ask(p.OpenSession(name="slow"))
    (executor,) = (stopped_daemon.place / "run").glob("x-*.sock")
    pid = listener(executor)
    os.kill(pid, signal.SIGSTOP)
    stopped_daemon.stop(signal.SIGKILL)
    asks = stopped_daemon.place / "asks"
    stopped_daemon.prologue = f"exec({f'asks = {os.fspath(asks)!r}{TELLS_HOW_LONG_IT_ASKS}'!r}); "
    with ThreadPoolExecutor() as threads:
        starts = threads.submit(stopped_daemon.start)
        while not asks.exists() or not asks.read_text():
            pass
        early = stopped_daemon.client()
        assert early.welcome.start_seconds == 60
        listed = early.send(p.ListSessions())
        assert not starts.done()
        os.kill(pid, signal.SIGCONT)
        starts.result()
    assert asks.read_text().split("\n")[0] == "1000 s"
    number, reply = early.receive()
    assert (number, [each.session for each in reply.sessions]) == (listed, [opened.session])
