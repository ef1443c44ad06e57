"""Signals that come while the daemon, or a command, is busy with something else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from fikit import protocol as p

from fikitd.jobs import files
from tests.integration.conftest import Daemon, of_a_runner

ENDED_AS_IT_TAKES_OVER = """
import os, signal, trio
from fikitd.executor.supervisor import Supervisor
adopt = Supervisor._adopt
async def adopt_slowly(self):
    os.kill(os.getpid(), signal.SIGTERM)
    await trio.sleep(1)
    await adopt(self)
Supervisor._adopt = adopt_slowly
"""


def test_a_daemon_that_is_ended_as_it_starts_ends_what_an_earlier_one_left(stopped_daemon: Daemon) -> None:
    """It has to know of it before: SIGTERM ends the work, whenever it comes."""
    client = stopped_daemon.start().client()
    assert isinstance(client.ask(p.OpenSession(name="left")), p.SessionOpened)
    command = ["/bin/sleep", "1000"]
    submit = p.Submit(command=command, environment={}, directory="/", foreground=True)
    job = client.ask(submit).job.job
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            assert client.ask(p.JobStarted(job=job, pid=process.pid)) == p.Done()
            stopped_daemon.stop(signal.SIGKILL)
            stopped_daemon.prologue = ENDED_AS_IT_TAKES_OVER
            with stopped_daemon.log.open("ab") as log:
                ended = subprocess.run(
                    stopped_daemon.command(),
                    env=stopped_daemon.environment(),
                    stderr=log,
                    timeout=30,
                    check=False,
                )
            stopped_daemon.prologue = ""
            assert ended.returncode == 0
            assert process.wait(20) == -signal.SIGTERM
        finally:
            process.kill()
    assert not list((stopped_daemon.place / "run").glob("x-*.sock"))


def test_a_configuration_that_does_not_answer_keeps_nobody_from_ending_the_daemon(
    stopped_daemon: Daemon,
) -> None:
    """It may be a file server's."""
    stalled = stopped_daemon.place / "stalled"
    os.mkfifo(stalled)
    load = f"signals.configuration_files.load = lambda file: open({str(stalled)!r}).read()"
    main = "import fikitd.main; from fikitd import configuration_files, signals"
    kept = "from types import SimpleNamespace; signals.configuration_files = SimpleNamespace("
    kept += "load=None, taken_over=configuration_files.taken_over)"
    stopped_daemon.prologue = f"{main}; {kept}; {load}; "
    stopped_daemon.start()
    stopped_daemon.process.send_signal(signal.SIGHUP)
    with stalled.open("w"):  # it is being read by now
        assert stopped_daemon.stop() == 0
    stopped_daemon.prologue = ""


SLOW_TO_BECOME = """
import os, select, sys
from fikitd.jobs import runner
umask = os.umask
def held(mask):
    open(sys.argv[1] + "/held", "w").close()
    select.select([], [], [], 2)
    return umask(mask)
os.umask = held
sys.exit(runner.main())
"""


def test_what_a_command_is_sent_as_it_begins_is_not_lost(tmp_path: Path) -> None:
    """Its runner ignores signals; a job that was killed then ran on until its grace was over."""
    directory = tmp_path / "job-1"
    files.prepare(directory, of_a_runner("/bin/sh", "-c", "exit 3"))
    with subprocess.Popen([sys.executable, "-P", "-c", SLOW_TO_BECOME, str(directory)]) as runner:
        while not (directory / "held").exists():
            assert runner.poll() is None
        files.ask_runner(directory, signal.SIGTERM, 60_000)
    ending = files.read(directory / files.EXIT)
    assert ending is not None
    assert ending["exit_code"] == 128 + signal.SIGTERM
