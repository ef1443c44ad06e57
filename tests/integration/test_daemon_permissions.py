"""Who may see and do what: the kernel's word on the peer, the configuration's on the tenant."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fikit import protocol as p
from fikit.control import Connection

from fikitd.configuration_files import load
from fikitd.jobs import files
from fikitd.main import main
from tests.integration.conftest import SETTINGS, Client, Daemon, of_a_runner

NOBODY = 65534
AsUser = Callable[[int, Callable[[], str]], str]


def session_text(client: Client) -> str:
    return str(client.ask(p.OpenSession(name="his")).session)


def test_user_sees_and_controls_only_what_is_his(daemon: Daemon, client: Client, as_user: AsUser) -> None:
    session = session_text(client)
    job = client.ask(p.Submit(command=["true"], environment={}, directory="/")).job.job
    executor = client.ask(p.Show(target=session)).session.executor

    def try_everything() -> str:
        mine = Client(daemon.socket)
        own = session_text(mine)
        assert mine.welcome.uid == NOBODY
        assert not mine.welcome.administrator
        assert [each.session for each in mine.ask(p.ListSessions()).sessions] == [own]
        assert mine.ask(p.ListJobs()).jobs == []
        assert [each.uid for each in mine.ask(p.ListTenants()).tenants] == [NOBODY]
        for request in (p.Show, p.Kill, p.Pause, p.Resume):
            for target in (session, job):
                assert mine.ask(request(target=target)).code == "not_found", (request, target)
        assert mine.ask(p.Kill(target=executor)).code == "not_found"
        assert mine.ask(p.Kill(target=mine.ask(p.Show(target=own)).session.executor)) == p.Done()
        for request in (p.ReadLogs, p.Wait):
            assert mine.ask(request(job=job)).code == "not_found"
        assert mine.ask(p.OpenSession(name="theirs", job=job)).code == "not_found"
        for request in (p.Drain(), p.Undrain(), p.ClearProfiles(), p.ImportProfiles(profiles=[])):
            assert mine.ask(request).code == "permission"
        assert "root" not in mine.ask(p.ReadMetrics()).text
        assert not any(executor in each.name for each in mine.ask(p.Doctor()).checks)
        return "all refused"

    assert any(executor in each.name for each in client.ask(p.Doctor()).checks)
    assert as_user(NOBODY, try_everything) == "all refused"
    assert client.ask(p.Show(target=session)).session.state == "running"


@pytest.mark.shares_daemon
def test_priority_ceiling_names_itself(daemon: Daemon, as_user: AsUser) -> None:
    def ask() -> str:
        mine = Client(daemon.socket)
        refused = mine.ask(p.OpenSession(name="high", priority=0))
        assert (
            mine.ask(p.Submit(command=["true"], environment={}, directory="/", priority=0)).code
            == "permission"
        )
        own = mine.ask(p.OpenSession(name="normal")).session
        assert mine.ask(p.SetPriority(target=own, priority=1)).code == "permission"
        return f"{refused.code}: {refused.message}"

    said = as_user(NOBODY, ask)
    assert said.startswith("permission: priority high is above normal, the priority ceiling of tenant nobody")


def test_who_asks_for_no_priority_has_one_that_he_may(stopped_daemon: Daemon, as_user: AsUser) -> None:
    """By default that is normal, with which one who may have low alone could do nothing."""
    stopped_daemon.configure('priority_ceiling = "low"\n')
    daemon = stopped_daemon.start()

    def ask() -> str:
        mine = Client(daemon.socket)
        opened = mine.ask(p.OpenSession(name="any"))
        job = mine.ask(p.Submit(command=["true"], environment={}, directory="/")).job
        refused = mine.ask(p.OpenSession(name="asks", priority=5))
        return str((opened.priority, job.priority, refused.code))

    assert as_user(NOBODY, ask) == "(9, 9, 'permission')"


def test_ceiling_and_limits_of_one_tenant(stopped_daemon: Daemon, as_user: AsUser) -> None:
    stopped_daemon.configure('priority_ceiling = "high"\nmax_sessions = 1\nmemory_limit_bytes = 1000000\n')
    daemon = stopped_daemon.start()

    def ask() -> str:
        mine = Client(daemon.socket)
        opened = mine.ask(p.OpenSession(name="first", priority=0))
        assert opened.memory_limit_bytes == 1_000_000
        assert mine.ask(p.OpenSession(name="big", memory_limit_bytes=1_000_001)).code == "quota"
        return str(mine.ask(p.OpenSession(name="second")).message)

    assert as_user(NOBODY, ask) == "you have 1 sessions, the most you may have"


@pytest.mark.shares_daemon
def test_job_runs_as_who_submitted_it(daemon: Daemon, as_user: AsUser) -> None:
    def ask() -> str:
        mine = Client(daemon.socket)
        command = ["/bin/sh", "-c", "id -u; id -g; id -G; cat /proc/self/oom_score_adj; ls /root"]
        job = mine.ask(p.Submit(command=command, environment={"PATH": "/bin:/usr/bin"}, directory="/")).job
        mine.ask(p.Wait(job=job.job))
        hidden = mine.ask(p.Submit(command=["/bin/true"], environment={}, directory="/root")).job
        hidden = mine.ask(p.Wait(job=hidden.job)).job
        return str((mine.ask(p.ReadLogs(job=job.job)).data, hidden.exit_code))

    text = as_user(NOBODY, ask)
    assert text.startswith(repr((b"65534\n65534\n65534\n0\n", 0))[:30]), text
    assert text.endswith(("126)", "0)"))


@pytest.mark.shares_daemon
def test_a_job_opens_its_outputs_by_name(daemon: Daemon, as_user: AsUser) -> None:
    """They are pipes that the runner has made, which is not the job's user."""

    def ask() -> str:
        mine = Client(daemon.socket)
        command = ["/bin/sh", "-c", "echo said > /dev/stdout; echo also >> /dev/stderr"]
        job = mine.ask(p.Submit(command=command, environment={}, directory="/")).job.job
        mine.ask(p.Wait(job=job))
        return str([mine.ask(p.ReadLogs(job=job, stream=stream)).data for stream in ("stdout", "stderr")])

    assert as_user(NOBODY, ask) == str([b"said\n", b"also\n"])


def test_administrator_controls_everything(daemon: Daemon, client: Client, as_user: AsUser) -> None:
    def ask() -> str:
        mine = Client(daemon.socket)
        command = ["/bin/sleep", "1000"]
        return str(mine.ask(p.Submit(command=command, environment={}, directory="/")).job.job)

    job = as_user(NOBODY, ask)
    assert [each.job for each in client.ask(p.ListJobs()).jobs] == [job]
    assert client.ask(p.Kill(target=job, signal=9)) == p.Done()
    assert client.ask(p.Wait(job=job)).job.state == "killed"


@pytest.mark.shares_daemon
def test_foreground_process_must_be_the_callers(daemon: Daemon, client: Client, as_user: AsUser) -> None:
    import os

    roots = os.getpid()

    def ask() -> str:
        mine = Client(daemon.socket)
        request = p.Submit(command=["x"], environment={}, directory="/", foreground=True)
        job = mine.ask(request).job.job
        return str(mine.ask(p.JobStarted(job=job, pid=roots)).code)

    assert as_user(NOBODY, ask) == "permission"


def test_administrator_group(stopped_daemon: Daemon, as_user: Any) -> None:
    settings = stopped_daemon.config.read_text()
    stopped_daemon.configure(
        settings=settings.replace("[daemon]", '[daemon]\nadministrator_group = "nogroup"')
    )
    daemon = stopped_daemon.start()
    assert as_user(NOBODY, lambda: str(Client(daemon.socket).welcome.administrator)) == "True"


def test_a_place_that_is_somebody_else_s_is_named(as_user: AsUser) -> None:
    uid = 64_998
    place = Path(f"/tmp/fikitd-{uid}")  # noqa: S108 - where it is looked for
    place.mkdir(exist_ok=True)
    place.chmod(0o777)

    def start() -> str:
        for name in ("FIKIT_SOCKET", "XDG_RUNTIME_DIR"):
            os.environ.pop(name, None)
        reader, writer = os.pipe()
        sys.stderr = os.fdopen(writer, "w")
        with pytest.raises(SystemExit) as ended:
            main(["--device", "sim"])
        sys.stderr.close()
        with os.fdopen(reader) as said:
            return f"{ended.value.code} {said.read()}"

    try:
        said = as_user(uid, start)
    finally:
        place.rmdir()
    assert said.startswith(f"1 fikitd: {place} is not a directory that only user {uid} may write to"), said


def test_another_user_s_runtime_directory_hides_no_daemon(
    daemon: Daemon, as_user: AsUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As su leaves it in the environment."""
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setattr("fikit.place.SYSTEM_SOCKET", daemon.socket)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("FIKIT_SOCKET", raising=False)

    def ask() -> str:
        with Connection(client="test") as connection:
            return str(connection.welcome.uid)

    assert as_user(NOBODY, ask) == str(NOBODY)


def test_what_the_daemon_keeps_is_nobody_else_s_to_read(stopped_daemon: Daemon) -> None:
    """In directories that the operator has made for everybody."""
    earlier = os.umask(0o022)
    places = [stopped_daemon.place / name for name in ("state", "run")]
    for place in places:
        place.mkdir()
    client = stopped_daemon.start().client()
    os.umask(earlier)
    session_text(client)
    client.ask(p.Wait(job=client.ask(p.Submit(command=["true"], environment={}, directory="/")).job.job))
    kept = [each for place in places for each in place.rglob("*") if not each.is_socket()]
    assert {each.name for each in kept} >= {"state.db", "stdout"}
    assert [each for each in kept if each.stat().st_mode & 0o077] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="groups are looked at for root")
@pytest.mark.parametrize(("mode", "missed"), [("0660", True), ("0666", False)])
def test_the_doctor_misses_the_group_that_alone_lets_users_in(
    stopped_daemon: Daemon, mode: str, missed: bool
) -> None:
    groups = 'socket_group = "no-such-users"\nadministrator_group = "no-such-admins"\n'
    settings = SETTINGS.replace('socket_mode = "0666"\n', f'socket_mode = "{mode}"\n{groups}')
    stopped_daemon.configure(settings=settings)
    checks = stopped_daemon.start().client().ask(p.Doctor()).checks
    told = {check.name: (check.ok, check.detail) for check in checks if check.name.startswith("group ")}
    to_all = "no-such-users does not exist: everybody may connect"
    remedy = "sudo groupadd --system no-such-users, then start fikitd anew"
    only_root = f"no-such-users does not exist: only root may connect; {remedy}"
    assert told == {
        "group no-such-users": (False, only_root) if missed else (True, to_all),
        "group no-such-admins": (True, "no-such-admins does not exist: root alone is an administrator"),
    }


def test_jobs_of_one_user_leave_others_places_and_their_output(
    stopped_daemon: Daemon, as_user: AsUser
) -> None:
    stopped_daemon.configure("[jobs]\nmax_running = 4\nkeep_ended = 3\n")
    daemon = stopped_daemon.start()
    client = daemon.client()

    def submit(client: Client, *command: str) -> str:
        return str(client.ask(p.Submit(command=list(command), environment={}, directory="/")).job.job)

    jobs = [submit(client, "/bin/sleep", "1000") for _ in range(4)]
    while not (reason := client.ask(p.Show(target=jobs[3])).job.reason):
        pass
    assert reason == "3 jobs run of at most 4; the rest is kept for users of whom none runs"

    def other() -> str:
        mine = Client(daemon.socket)
        mine.ask(p.Wait(job=submit(mine, "/bin/echo", "his")))
        return str(mine.ask(p.ListJobs()).jobs[0].job)

    his = as_user(NOBODY, other)
    for job in jobs[:2]:
        client.ask(p.Kill(target=job))
    for _ in range(5):
        client.ask(p.Wait(job=submit(client, "/bin/true")))
    while len(kept := [each for each in client.ask(p.ListJobs()).jobs if each.ended_unix]) > 3:
        pass
    assert [each.uid for each in kept] == [NOBODY, 0, 0]
    assert client.ask(p.ReadLogs(job=his)).data == b"his\n"


OF_TWO_USERS = """
import os, signal, subprocess, sys, threading
others = subprocess.Popen(["sh", "-c", 'cat < "$0" > "$1"', *sys.argv[1:]])
own = subprocess.Popen(["sleep", "1000"], user=65534)
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
threading.Thread(target=threading.Event().wait, daemon=True).start()
print(others.pid, own.pid, flush=True)
signal.pause()
"""
"""Leads a process group, and becomes nobody's; in the group stays a process of root's, as sudo leaves it."""


class Others:
    """The process of root's: answers what it is asked, as long as it lives."""

    def __init__(self, place: Path) -> None:
        self.ways = [place / "ask", place / "answer"]
        for way in self.ways:
            os.mkfifo(way)
        self.ask, self.answer = (os.open(way, os.O_RDWR) for way in self.ways)
        self.command = [sys.executable, "-c", OF_TWO_USERS, *map(str, self.ways)]

    def live(self) -> bool:
        os.write(self.ask, b"?")
        return bool(select.select([self.answer], [], [], 10)[0])

    def close(self) -> None:
        os.close(self.ask)  # which is all that it waits for
        os.close(self.answer)


@pytest.fixture
def others(place: Path) -> Iterator[Others]:
    if os.geteuid() != 0:
        pytest.skip("only root has processes of two users")
    others = Others(place)
    yield others
    others.close()


def nice_values(*threads: int) -> list[int]:
    return [os.getpriority(os.PRIO_PROCESS, each) for each in threads]


def ends(pidfd: int) -> bool:
    ended = bool(select.select([pidfd], [], [], 10)[0])
    os.close(pidfd)
    return ended


@pytest.mark.shares_daemon
def test_others_in_the_group_of_a_foreground_job_are_left_alone(
    daemon: Daemon, as_user: AsUser, others: Others
) -> None:
    with subprocess.Popen(others.command, process_group=0, stdout=subprocess.PIPE) as leader:
        assert leader.stdout is not None
        roots, his = map(int, leader.stdout.readline().split())
        his_end = os.pidfd_open(his)

        def ask() -> str:
            mine = Client(daemon.socket)
            request = p.Submit(command=["x"], environment={}, directory="/", foreground=True, priority=9)
            job = mine.ask(request).job.job
            assert mine.ask(p.JobStarted(job=job, pid=leader.pid)) == p.Done()
            threads = map(int, os.listdir(f"/proc/{leader.pid}/task"))
            found = nice_values(*threads, his, roots)
            assert mine.ask(p.Kill(target=job)) == p.Done()
            assert ends(os.pidfd_open(leader.pid))
            return str(found)

        assert as_user(NOBODY, ask) == "[7, 7, 7, 0]"
        assert leader.wait(10) == -signal.SIGTERM
        assert ends(his_end)
        assert others.live()


@pytest.mark.parametrize("runner_dies", [False, True])
def test_others_in_the_group_of_a_background_job_are_left_alone(
    stopped_daemon: Daemon, as_user: AsUser, others: Others, place: Path, runner_dies: bool
) -> None:
    """The runner leaves its command root's, which becomes its user's itself, as if it had called sudo."""
    (place / "sitecustomize.py").write_text("import os; os.setresuid = lambda *_: None")
    daemon = stopped_daemon.start(PYTHONPATH=str(place))

    def ask() -> str:
        mine = Client(daemon.socket)
        request = p.Submit(command=others.command, environment={"PATH": os.environ["PATH"]}, directory="/")
        job = mine.ask(request).job.job
        logs = mine.ask(p.ReadLogs(job=job, follow=True))
        return f"{job} {mine.pid_of(job)} {logs.data.decode()}"

    job, *pids = as_user(NOBODY, ask).split()
    leader, roots, his = map(int, pids)
    client, his_end = daemon.client(), os.pidfd_open(his)
    client.ask(p.SetPriority(target=job, priority=9))
    assert nice_values(leader, his, roots) == [7, 7, 0]
    client.ask(p.SetPriority(target=job, priority=5))
    assert nice_values(leader, his, roots) == [0, 0, 0]
    if runner_dies:
        os.kill(int(Path(f"/proc/{leader}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
    else:
        client.ask(p.Kill(target=job))
    ended = client.ask(p.Wait(job=job)).job
    assert (ended.state, ended.exit_code) == (("lost", None) if runner_dies else ("killed", 128 + 15))
    assert ends(his_end)
    assert others.live()


def test_a_command_is_its_users_before_it_is_noted(place: Path, others: Others) -> None:
    """Else whom a signal is meant for would not be found."""
    files.prepare(place / "job-1", of_a_runner("true", uid=NOBODY, gid=NOBODY))
    tells = (
        "from fikitd.jobs import files, runner\nfrom fikitd.process_group import owned\n"
        "real = files.fill_space\n"
        "def tell(path, space, content):\n"
        f"    if 'pid' in content: print(owned(content['pid'], {NOBODY}))\n"
        "    real(path, space, content)\n"
        "files.fill_space = tell; runner.main()"
    )
    command = [sys.executable, "-P", "-c", tells, str(place / "job-1")]
    assert subprocess.check_output(command, text=True) == "True\n"


def test_a_job_of_more_gpus_than_its_user_may_have_sessions_opens_as_many(stopped_daemon: Daemon) -> None:
    stopped_daemon.configure("\n[tenant_defaults]\nmax_sessions = 2\n")
    client = stopped_daemon.start(FIKIT_SIM_DEVICES="4").client()
    submit = p.Submit(command=["/bin/sleep", "1000"], environment={}, directory="/", gpus="all")
    job = client.ask(submit).job.job
    while client.ask(p.Wait(job=job, wait_ms=10)).job.state == "queued":
        pass
    for gpu in (3, 0):
        opened = client.ask(p.OpenSession(name="x", gpu=gpu, job=job))
        assert isinstance(opened, p.SessionOpened), opened
    refused = client.ask(p.OpenSession(name="x", gpu=1, job=job))
    assert refused.message == "you have 2 sessions, the most you may have"
    assert client.ask(p.Kill(target=job, signal=9)) == p.Done()


def test_as_many_jobs_as_sessions_that_a_user_may_have_open_one_each(stopped_daemon: Daemon) -> None:
    stopped_daemon.configure("\n[tenant_defaults]\nmax_sessions = 2\n")
    client = stopped_daemon.start().client()
    submit = p.Submit(command=["/bin/sleep", "1000"], environment={}, directory="/")
    jobs = [client.ask(submit).job.job for _ in range(2)]
    for job in jobs:
        while client.ask(p.Wait(job=job, wait_ms=10)).job.state == "queued":
            pass
    for job in jobs:
        opened = client.ask(p.OpenSession(name="x", job=job))
        assert isinstance(opened, p.SessionOpened), opened
    for job in jobs:
        assert client.ask(p.Kill(target=job, signal=9)) == p.Done()


def test_settings_that_may_not_be_read_are_not_passed_over(place: Path, as_user: Any) -> None:
    """As a service the daemon may read less than root: limits that an operator wrote would not hold."""
    more = place / "conf.d"
    more.mkdir(mode=0o700)
    (more / "limits.toml").write_text("[jobs]\nmax_running = 1\n")
    (place / "fikitd.toml").touch()
    refused = as_user(65534, lambda: str(load(place / "fikitd.toml").jobs.max_running))
    assert refused == f"ConfigurationError: {more}: Permission denied"
    more.chmod(0o755)
    assert as_user(65534, lambda: str(load(place / "fikitd.toml").jobs.max_running)) == "1"
