"""What the daemon finds when it starts: a damaged state file, places that it cannot use, what others left."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from fikit import protocol as p
from msgspec.structs import replace

from fikitd.jobs import files
from fikitd.store import SCHEMA_PLACES, SCHEMA_VERSION
from tests.integration.conftest import Daemon, fill


def garbage(path: Path) -> None:
    path.write_bytes(os.urandom(20_000))


def truncated(path: Path) -> None:
    os.truncate(path, 3 * 4096 + 100)


def zeroed(path: Path) -> None:
    """As a file system may leave it after a power failure."""
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(bytes(2 * 4096))


def missing(path: Path) -> None:
    path.unlink()


def misspelt(path: Path) -> None:
    """A bit flipped in the name of a column."""
    path.write_bytes(path.read_bytes().replace(b"usage BLOB", b"usaee BLOB"))


def illegible(path: Path) -> None:
    """A bit flipped where SQLite's message quotes what it does not understand."""
    path.write_bytes(path.read_bytes().replace(b"TABLE tenants (uid", b"TABLE tenants \xf4uid"))


def newer(path: Path) -> None:
    """A bit flipped in the schema's version."""
    with path.open("r+b") as file:
        file.seek(60)  # where SQLite has its four bytes
        file.write((512 + SCHEMA_VERSION).to_bytes(4, "big"))


@pytest.mark.parametrize("damage", [garbage, truncated, zeroed, missing, misspelt, illegible, newer])
def test_a_damaged_state_file_is_set_aside_and_what_runs_is_taken_over(
    stopped_daemon: Daemon, damage: Callable[[Path], None]
) -> None:
    stopped_daemon.configure("[jobs]\nmax_running = 1\n")
    client = stopped_daemon.start().client()
    session = client.ask(p.OpenSession(name="kept")).session
    over = client.ask(p.Submit(command=["/bin/sh", "-c", "exit 3"], environment={}, directory="/")).job
    assert client.ask(p.Wait(job=over.job)).job.exit_code == 3
    waits = client.ask(p.Submit(command=["/bin/true"], environment={}, directory="/", name="next")).job
    runs = client.ask(p.Submit(command=["/bin/sleep", "1000"], environment={}, directory="/")).job
    while client.ask(p.Show(target=waits.job)).job.state != "finished":
        pass
    client.pid_of(runs.job)
    queued = client.ask(p.Submit(command=["/bin/true"], environment={}, directory="/", name="later")).job
    stopped_daemon.stop(signal.SIGKILL)
    state = stopped_daemon.place / "state" / "state.db"
    with sqlite3.connect(state) as connection:  # what the log beside it holds, into the file
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    damage(state)
    again = stopped_daemon.start().client()
    assert [each.session for each in again.ask(p.ListSessions()).sessions] == [session]
    jobs = {each.job: each for each in again.ask(p.ListJobs()).jobs}
    assert jobs[runs.job].state == "running"
    assert jobs[queued.job].state == "queued"
    assert again.ask(p.Wait(job=over.job)).job.exit_code == 3
    assert again.ask(p.Kill(target=runs.job)) == p.Done()
    assert again.ask(p.Wait(job=runs.job)).job.state == "killed"
    assert again.ask(p.Wait(job=queued.job)).job.state == "finished"
    later = again.ask(p.Submit(command=["/bin/true"], environment={}, directory="/")).job
    assert int(later.job.removeprefix("job-")) > int(queued.job.removeprefix("job-"))
    if damage is not missing:
        assert "state_set_aside" in stopped_daemon.log.read_text()
        assert len(list(state.parent.glob("state.db.damaged-*"))) == 1
        (finding,) = [each for each in again.ask(p.Doctor()).checks if each.name == "state file"]
        assert not finding.ok


def test_a_job_whose_record_cannot_be_read_is_known_from_its_directory(stopped_daemon: Daemon) -> None:
    client = stopped_daemon.start().client()
    over, runs = (
        client.ask(p.Submit(command=["/bin/sleep", seconds], environment={}, directory="/")).job.job
        for seconds in ("0", "1000")
    )
    assert client.ask(p.Wait(job=over)).job.state == "finished"
    client.pid_of(runs)
    stopped_daemon.stop(signal.SIGKILL)
    connection = sqlite3.connect(stopped_daemon.place / "state" / "state.db")
    connection.execute("UPDATE jobs SET record=x'00ff'")
    connection.commit()
    connection.close()
    again = stopped_daemon.start().client()
    assert "record_unreadable" in stopped_daemon.log.read_text()
    assert again.ask(p.Wait(job=over)).job.state == "finished"
    assert again.ask(p.Show(target=runs)).job.state == "running"
    assert again.ask(p.Kill(target=runs, signal=9)) == p.Done()
    assert again.ask(p.Wait(job=runs)).job.exit_code == 137


@pytest.mark.parametrize("last", ["1x", str(2**63), "-1"])
def test_what_a_flipped_bit_makes_unreadable_is_left_out(stopped_daemon: Daemon, last: str) -> None:
    client = stopped_daemon.start().client()
    kernel = p.ProfileRecord(
        function="whole", module="ab", device="double", grid=(1, 1, 1), block=(1, 1, 1), shared_bytes=0,
        samples=5, median_ns=10, p95_ns=11,
    )  # fmt: skip
    others = [replace(kernel, function=name) for name in ("gaps", "text", "number")]
    assert client.ask(p.ImportProfiles(profiles=[kernel, *others])) == p.Done()
    assert client.ask(p.Drain(reason="maintenance")) == p.Done()
    assert stopped_daemon.stop() == 0
    connection = sqlite3.connect(stopped_daemon.place / "state" / "state.db")
    for statement in (
        "UPDATE profiles SET gaps='[{' WHERE function='gaps'",
        "UPDATE profiles SET module=CAST(x'ff' AS TEXT) WHERE function='text'",
        "UPDATE profiles SET samples='many' WHERE function='number'",
        "UPDATE settings SET value=CAST(x'6dff' AS TEXT)",
        f"INSERT INTO settings VALUES ('last_job', '{last}')",
        "INSERT INTO tenants VALUES ('x', 0, x'80')",
    ):
        connection.execute(statement)
    connection.commit()
    connection.close()
    again = stopped_daemon.start().client()
    assert again.ask(p.Undrain()) == p.Done()
    assert isinstance(again.ask(p.OpenSession(name="served")), p.SessionOpened)
    assert [each.function for each in again.ask(p.ListProfiles()).profiles] == ["whole"]
    assert again.ask(p.Submit(command=["/bin/true"], environment={}, directory="/")).job.job == "job-1"


def refusal(daemon: Daemon, **environment: str) -> str:
    """What a daemon says that does not start."""
    result = subprocess.run(
        daemon.command(),
        env={**daemon.environment(), **environment},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    return result.stderr


def test_a_newer_state_file_is_refused_and_left_alone(stopped_daemon: Daemon) -> None:
    state = stopped_daemon.place / "state"
    state.mkdir()
    connection = sqlite3.connect(state / "state.db")
    for place in SCHEMA_PLACES:
        connection.execute(f"PRAGMA {place}=99")
    connection.close()
    before = (state / "state.db").read_bytes()
    assert "written by a newer fikitd" in refusal(stopped_daemon)
    assert (state / "state.db").read_bytes() == before
    (state / "state.db").unlink()


def test_an_older_state_file_is_brought_up_to_date(stopped_daemon: Daemon) -> None:
    state = stopped_daemon.place / "state"
    state.mkdir()
    connection = sqlite3.connect(state / "state.db")
    oldest = Path(__file__).resolve().parents[1] / "data" / "state-1.sql"
    connection.executescript(oldest.read_text())
    connection.execute("PRAGMA user_version=1")
    connection.close()
    client = stopped_daemon.start().client()
    assert client.ask(p.Show(target="job-7")).job.exit_code == 3
    assert client.ask(p.ListProfiles()).profiles[0].samples == 3
    assert client.ask(p.GetStatus()).draining == "maintenance"


def test_a_socket_path_that_is_too_long_is_named(stopped_daemon: Daemon) -> None:
    path = str(stopped_daemon.place / ("long" * 30))
    said = refusal(stopped_daemon, FIKIT_SOCKET=path)
    assert path in said
    assert "107" in said
    run = str(stopped_daemon.place / ("long" * 20))
    assert run in refusal(stopped_daemon, RUNTIME_DIRECTORY=run)


@pytest.mark.parametrize("variable", ["FIKIT_SOCKET", "RUNTIME_DIRECTORY", "STATE_DIRECTORY"])
def test_a_path_that_is_not_utf_8_is_named(stopped_daemon: Daemon, variable: str) -> None:
    said = refusal(stopped_daemon, **{variable: f"{stopped_daemon.place}/x\udcffy"})
    assert f"{stopped_daemon.place}/x" in said
    assert "is not UTF-8" in said


def test_a_socket_that_nobody_listens_on_is_replaced(stopped_daemon: Daemon) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
        gone.bind(str(stopped_daemon.socket))
    assert isinstance(stopped_daemon.start().client().ask(p.GetStatus()), p.Status)


def test_what_is_no_socket_is_not_removed(stopped_daemon: Daemon) -> None:
    stopped_daemon.socket.write_text("precious")
    assert str(stopped_daemon.socket) in refusal(stopped_daemon)
    assert stopped_daemon.socket.read_text() == "precious"
    stopped_daemon.socket.unlink()


def test_a_state_directory_where_nobody_keeps_locks_is_named(stopped_daemon: Daemon) -> None:
    """As some file servers' are."""
    raising = "(_ for _ in ()).throw(OSError(errno.ENOLCK, 'No locks available'))"
    stopped_daemon.prologue = f"import errno, fcntl; fcntl.lockf = lambda *_: {raising}; "
    expected = f"fikitd: {stopped_daemon.place}/state/lock: it cannot be locked: No locks available\n"
    assert refusal(stopped_daemon) == expected
    stopped_daemon.prologue = ""


def test_a_read_only_state_directory_is_named(stopped_daemon: Daemon, small_disk: Path) -> None:
    client = stopped_daemon.start().client()
    kept = client.ask(p.Submit(command=["/bin/true"], environment={}, directory="/")).job.job
    assert client.ask(p.Wait(job=kept)).job.state == "finished"
    assert stopped_daemon.stop() == 0
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert str(small_disk) in refusal(stopped_daemon)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert stopped_daemon.start().client().ask(p.Show(target=kept)).job.state == "finished"
    assert stopped_daemon.stop() == 0


@pytest.mark.parametrize("pages", [0, 1, 2])
def test_a_command_begins_where_there_is_room_to_note_it_and_its_end(small_disk: Path, pages: int) -> None:
    """Else nobody could end what is left of it once its runner is killed."""
    directory, marker = small_disk / "job-1", small_disk.parent / "marker"
    spec = {"command": ["/usr/bin/touch", str(marker)], "environment": {}, "directory": "/", "groups": []}
    files.prepare(
        directory, {**spec, "uid": os.getuid(), "gid": os.getgid(), "output_limit_bytes": files.TAKEN_BYTES}
    )
    filler = fill(small_disk)
    os.truncate(filler, filler.stat().st_size - pages * files.TAKEN_BYTES)
    command = [sys.executable, "-P", "-m", "fikitd.jobs.runner", str(directory)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if pages == 2:
        assert marker.exists(), ran.stderr
        assert (files.read(directory / files.EXIT) or {})["exit_code"] == 0
        assert (files.read(directory / files.STARTED) or {})["pid"] > 0
    else:
        assert "No space left on device" in ran.stderr
        assert not marker.exists()


def test_jobs_that_wait_are_not_lost_while_the_disk_is_full(stopped_daemon: Daemon, small_disk: Path) -> None:
    """The state file has room of its own: what was moved from its log to the file itself is overwritten."""
    stopped_daemon.configure("[jobs]\nmax_running = 1\n")
    client = stopped_daemon.start().client()
    gate = stopped_daemon.place / "gate"
    os.mkfifo(gate)
    scripts = [f"read word < {gate}", *(f"exit {number}" for number in range(3))]
    first, *waiting = (
        client.ask(p.Submit(command=["/bin/sh", "-c", each], environment={}, directory="/")).job.job
        for each in scripts
    )
    client.pid_of(first)
    with closing(sqlite3.connect(small_disk / "state.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint")
    filler = fill(small_disk)
    gate.write_text("go\n")
    assert client.ask(p.Wait(job=first)).job.exit_code == 0
    while "jobs run, " in (told := client.ask(p.Show(target=waiting[0])).job).reason:
        pass
    assert (told.state, "No space left" in told.reason) == ("queued", True), told.reason
    filler.unlink()
    assert [client.ask(p.Wait(job=each)).job.exit_code for each in waiting] == [0, 1, 2]


def test_a_job_s_files_that_tell_nothing(stopped_daemon: Daemon) -> None:
    client = stopped_daemon.start().client()
    submit = p.Submit(command=["/bin/sh", "-c", "echo up; sleep 1000"], environment={}, directory="/")
    runs = client.ask(submit).job.job
    ends = client.ask(submit).job.job
    for job in (runs, ends):
        client.pid_of(job)
    (ended, held) = (client.pid_of(ends), stopped_daemon.place / "state" / "jobs")
    stopped_daemon.stop(signal.SIGKILL)
    connection = sqlite3.connect(stopped_daemon.place / "state" / "state.db")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    (stopped_daemon.place / "state" / "state.db").unlink()  # it knows their processes
    gone = os.pidfd_open(int(Path(f"/proc/{ended}/stat").read_text().rpartition(")")[2].split()[1]))
    os.kill(ended, signal.SIGKILL)
    assert select.select([gone], [], [], 10)[0]
    os.close(gone)
    (held / runs / "started").write_text('{"pie": 7}')
    (held / ends / "exit").write_text('{"exit_code": "three"}')
    again = stopped_daemon.start().client()
    assert again.ask(p.Show(target=runs)).job.state == "running"
    assert again.ask(p.Wait(job=ends)).job.state == "lost"
    assert again.ask(p.Kill(target=runs, signal=9)) == p.Done()
    assert again.ask(p.Wait(job=runs)).job.exit_code == 137


UNREACHABLE = """
from fikitd.errors import Unavailable
from fikitd.jobs.jobs import Jobs
kill = Jobs.kill
async def kill_but_the_first(self, job, number, grace_ms, why):
    if job.number == 1:
        raise Unavailable("out of reach")
    await kill(self, job, number, grace_ms, why)
Jobs.kill = kill_but_the_first
"""


def test_a_job_that_cannot_be_ended_keeps_no_other_from_its_end(stopped_daemon: Daemon) -> None:
    stopped_daemon.prologue = f"exec({UNREACHABLE!r}); "
    client = stopped_daemon.start().client()
    submit = p.Submit(command=["/bin/sh", "-c", "sleep 1000"], environment={}, directory="/")
    jobs = [client.ask(submit).job.job for _ in range(2)]
    for job in jobs:
        client.pid_of(job)
    gone = os.pidfd_open(client.pid_of(jobs[1]))
    assert stopped_daemon.stop() == 0, stopped_daemon.log.read_text()
    assert select.select([gone], [], [], 0)[0]
    os.close(gone)
    assert '"job_not_ended"' in stopped_daemon.log.read_text()
    stopped_daemon.prologue = ""
    again = stopped_daemon.start().client()
    assert again.ask(p.Kill(target=jobs[0], signal=9)) == p.Done()
    assert again.ask(p.Wait(job=jobs[0])).job.state == "killed"


def test_a_job_whose_directory_is_gone_is_killed_all_the_same(stopped_daemon: Daemon) -> None:
    client = stopped_daemon.start().client()
    stubborn = "trap 'echo asked > {0}/asked' TERM; echo up > {0}/up; while :; do sleep 0.05; done"
    script = stubborn.format(stopped_daemon.place)
    request = p.Submit(
        command=["/bin/sh", "-c", script], environment={"PATH": os.environ["PATH"]}, directory="/"
    )
    job = client.ask(request).job.job
    while (pid := client.ask(p.Show(target=job)).job.pid) is None:
        pass
    while not (stopped_daemon.place / "up").exists():
        pass
    shutil.rmtree(stopped_daemon.place / "state" / "jobs")
    assert client.ask(p.Kill(target=job, grace_ms=500)) == p.Done()
    assert client.ask(p.Wait(job=job)).job.state == "killed"
    assert (stopped_daemon.place / "asked").exists()
    assert not Path(f"/proc/{pid}").exists()
    assert client.ask(request).code == "unavailable"
    (stopped_daemon.place / "state" / "jobs").mkdir()


@pytest.mark.parametrize("isolated", [True, False])
def test_a_job_of_a_lost_state_keeps_its_number_while_it_is_served(
    stopped_daemon: Daemon, isolated: bool
) -> None:
    """Else the next job of this number, whoever's it is, would share its executor and end its sessions."""
    client = stopped_daemon.start().client()
    request = p.Submit(command=["/bin/sleep", "1000"], environment={}, directory="/", isolated=isolated)
    job = client.ask(request).job.job
    while (pid := client.ask(p.Show(target=job)).job.pid) is None:
        pass
    session = client.ask(p.OpenSession(name="mine", job=job)).session
    stopped_daemon.stop(signal.SIGKILL)
    shutil.rmtree(stopped_daemon.place / "state")
    again = stopped_daemon.start().client()
    assert [each.session for each in again.ask(p.ListSessions()).sessions] == [session]
    other = again.ask(request).job.job
    assert other != job
    assert again.ask(p.Kill(target=other, signal=9)) == p.Done()
    assert again.ask(p.Wait(job=other)).job.state == "killed"
    assert [each.session for each in again.ask(p.ListSessions()).sessions] == [session]
    os.kill(pid, signal.SIGKILL)


def test_a_queued_job_whose_gpu_is_gone_waits_for_it(stopped_daemon: Daemon) -> None:
    stopped_daemon.configure("[jobs]\nmax_running = 1\n")
    client = stopped_daemon.start(FIKIT_SIM_DEVICES="2").client()
    runs = client.ask(p.Submit(command=["/bin/sleep", "1000"], environment={}, directory="/")).job.job
    request = p.Submit(command=["/bin/true"], environment={}, directory="/", gpus=[1])
    waits = client.ask(request).job.job
    stopped_daemon.stop(signal.SIGKILL)
    fewer = stopped_daemon.start().client()
    assert fewer.ask(p.Kill(target=runs, signal=9)) == p.Done()
    assert fewer.ask(p.Wait(job=runs)).job.state == "killed"
    other = fewer.ask(p.Submit(command=["/bin/true"], environment={}, directory="/")).job.job
    assert fewer.ask(p.Wait(job=other)).job.state == "finished"
    told = fewer.ask(p.Show(target=waits)).job
    assert (told.state, told.reason) == ("queued", "there is no GPU 1")
    stopped_daemon.stop(signal.SIGKILL)
    again = stopped_daemon.start(FIKIT_SIM_DEVICES="2").client()
    assert again.ask(p.Wait(job=waits)).job.state == "finished"


def test_an_executor_whose_gpu_is_gone_is_told_of_and_leaves_nothing(stopped_daemon: Daemon) -> None:
    client = stopped_daemon.start(FIKIT_SIM_DEVICES="2").client()
    gone, kept = (client.ask(p.OpenSession(name="x", gpu=gpu)).session for gpu in (1, 0))
    stopped_daemon.stop(signal.SIGKILL)
    fewer = stopped_daemon.start().client()
    assert [each.session for each in fewer.ask(p.ListSessions()).sessions] == [kept] != [gone]
    assert "its GPU (then number 1) is no longer served" in stopped_daemon.log.read_text()
    assert len(list((stopped_daemon.place / "run").glob("x-*.sock"))) == 1


def test_an_executor_whose_gpu_has_another_number_by_now_is_not_taken_for_that_one_s(
    stopped_daemon: Daemon,
) -> None:
    client = stopped_daemon.start(FIKIT_DOUBLE_UUID="GPU-that-had-it-before").client()
    assert isinstance(client.ask(p.OpenSession(name="x")), p.SessionOpened)
    stopped_daemon.stop(signal.SIGKILL)
    later = stopped_daemon.start().client()
    assert later.ask(p.ListSessions()).sessions == []
    assert "its GPU (then number 0) is no longer served" in stopped_daemon.log.read_text()
    assert isinstance(later.ask(p.OpenSession(name="y")), p.SessionOpened)


@pytest.mark.parametrize("killed", [True, False])
def test_an_executor_that_hangs_holds_up_the_next_daemon_no_longer_than_it_is_asked(
    stopped_daemon: Daemon, killed: bool
) -> None:
    chosen = f"[executor]\nkill_unresponsive = {str(killed).lower()}"
    stopped_daemon.configure(settings=stopped_daemon.config.read_text().replace("[executor]", chosen))
    client = stopped_daemon.start().client()
    assert isinstance(client.ask(p.OpenSession(name="hangs")), p.SessionOpened)
    started = next(line for line in stopped_daemon.log.read_text().splitlines() if "executor_started" in line)
    hanging = os.pidfd_open(json.loads(started)["pid"])
    signal.pidfd_send_signal(hanging, signal.SIGSTOP)
    stopped_daemon.stop(signal.SIGKILL)
    chosen = "[executor]\nunresponsive_seconds = 0.2"
    stopped_daemon.configure(settings=stopped_daemon.config.read_text().replace("[executor]", chosen))
    stopped_daemon.prologue = "import fikitd.executor.supervisor as s; s.STOP_SECONDS = 1000\n"
    again = stopped_daemon.start().client()
    assert again.ask(p.ListSessions()).sessions == []
    assert isinstance(again.ask(p.OpenSession(name="next")), p.SessionOpened)
    ended, _, _ = select.select([hanging], [], [], 0)
    assert bool(ended) == killed
    if not killed:
        signal.pidfd_send_signal(hanging, signal.SIGKILL)
    os.close(hanging)


def test_the_doctor_names_a_directory_that_is_gone(stopped_daemon: Daemon) -> None:
    client = stopped_daemon.start().client()
    gone = stopped_daemon.place / "run"
    gone.rename(stopped_daemon.place / "elsewhere")
    (wrong,) = [each for each in client.ask(p.Doctor()).checks if each.name.startswith("runtime directory")]
    assert (wrong.ok, wrong.detail) == (False, f"{gone}: No such file or directory")
    (stopped_daemon.place / "elsewhere").rename(gone)


def test_a_state_directory_that_is_gone_is_named_and_not_made_anew(stopped_daemon: Daemon) -> None:
    client = stopped_daemon.start().client()
    gone = stopped_daemon.place / "state"
    gone.rename(stopped_daemon.place / "elsewhere")
    assert client.ask(p.OpenSession(name="late")).code == "unavailable"
    refused = client.ask(p.Submit(command=["/bin/true"], environment={}, directory="/"))
    assert (refused.code, refused.hint) == ("unavailable", "'fikitctl doctor' looks at the state directory")
    checks = {each.name: each for each in client.ask(p.Doctor()).checks}
    assert checks["state directory writable"].detail == f"{gone}: No such file or directory"
    assert "it is gone" in checks["state file"].detail
    (stopped_daemon.place / "elsewhere").rename(gone)
    assert all(each.ok for each in client.ask(p.Doctor()).checks if each.name.startswith("state"))


def test_clocks_that_jump_change_nothing(stopped_daemon: Daemon) -> None:
    """Wall-clock times are shown and never reckoned with: a job that ended before it began is only odd."""
    for offset in (0, 10_000_000, -10_000_000):
        stopped_daemon.prologue = f"import time; real = time.time; time.time = lambda: real() + {offset}; "
        client = stopped_daemon.start().client()
        job = client.ask(p.Submit(command=["/bin/true"], environment={}, directory="/")).job
        assert client.ask(p.Wait(job=job.job)).job.state == "finished"
        assert isinstance(client.ask(p.ListJobs()), p.Jobs)
        stopped_daemon.stop(signal.SIGKILL)
