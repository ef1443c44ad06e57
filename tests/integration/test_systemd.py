"""The service under a systemd of its own: in a namespace, over a copy of this machine's files.

Only root can make one. The files that systemd and the daemon write go to memory and are gone afterwards.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
SYSTEMD: Final = Path("/lib/systemd/systemd")
SECONDS: Final = 60.0
USER: Final = "nobody"
START: Final = "test.target"
UNITS: Final = {
    **dict.fromkeys(("basic.target", "shutdown.target", "sockets.target", "sysinit.target"), "[Unit]\n"),
    START: "[Unit]\nWants=fikitd.socket fikitd.service\nAfter=fikitd.service\n",
    # The tests' Python may lie in a home, which the service does not see.
    "fikitd.service.d/test.conf": f"""
[Service]
WatchdogSec=2s
TimeoutStopSec=2s
ProtectHome=tmpfs
BindReadOnlyPaths={sys.base_prefix}
""",
}
"""Beside the project's; nothing else of this machine is started."""
SETTINGS: Final = "[daemon]\ndrain_seconds = 0.0\n[device]\nchoice = 'sim'\n"
BOOT: Final = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$PLACE/written"
mkdir "$PLACE/written/upper" "$PLACE/written/work" "$PLACE/written/root"
mount -t overlay -o "lowerdir=/,upperdir=$PLACE/written/upper,workdir=$PLACE/written/work" \\
    overlay "$PLACE/written/root"
cd "$PLACE/written/root"
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs sys
mkdir -p sys/fs/cgroup
mount -t cgroup2 cgroup2 sys/fs/cgroup
mkdir -p opt/fikitd etc/fikitd run/old
mount --bind "$PREFIX" opt/fikitd
for name in fikitd fikitctl; do
    printf '#!/bin/sh\\nexec /opt/fikitd/bin/python /opt/fikitd/bin/%s "$@"\\n' $name > usr/local/bin/$name
    chmod 755 usr/local/bin/$name
done
cp "$PLACE/fikitd.toml" etc/fikitd/
way=.$BASE
while [ "$way" != . ]; do  # the tests' Python may be in root's home
    chmod a+x "$way"
    way=$(dirname "$way")
done
grep -q ^fikit: etc/group || printf 'fikit:x:990:nobody\\nfikit-admin:x:991:\\n' >> etc/group
pivot_root . run/old
umount -l /run/old
exec env -i PATH=/usr/local/bin:/usr/bin:/bin container=lxc SYSTEMD_UNIT_PATH="$PLACE_UNITS" \\
    /lib/systemd/systemd --system --unit=test.target --log-target=null --show-status=0
"""
OVER: Final = "/run/over"
JOB: Final = f"""
import itertools, os, fikit
with fikit.connect() as session, session.allocate(1 << 20) as memory:
    print("begun", flush=True)
    for count in itertools.count(1):
        memory.fill(count % 251)
        assert memory.read(4) == bytes([count % 251] * 4)
        if os.path.exists("{OVER}"):
            break
print("all as written")
"""


def cgroup_root() -> Path | None:
    """Where version 2 of control groups is mounted."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            return Path(place.split()[4])
    return None


class Machine:
    """A systemd that runs, and commands under it."""

    def __init__(self, init: int) -> None:
        self._enter = ["nsenter", f"--target={init}", "--mount", "--pid", "--uts", "--ipc", "--cgroup"]

    def try_run(self, *command: str, user: str = "root") -> subprocess.CompletedProcess[str]:
        who = pwd.getpwnam(user)
        become = ["setpriv", f"--reuid={who.pw_uid}", f"--regid={who.pw_gid}", "--init-groups"]
        return subprocess.run(
            [*self._enter, *become, *command],
            env={"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "LC_ALL": "C.UTF-8"},
            cwd="/", capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip

    def run(self, *command: str, user: str = "root") -> str:
        done = self.try_run(*command, user=user)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout.strip()

    def value(self, unit: str, name: str) -> str:
        return self.run("systemctl", "show", unit, "--value", "-p", name)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not holds():
            assert time.monotonic() < deadline, what
            threading.Event().wait(0.05)

    def until_serving(self, but: str = "") -> str:
        """The daemon's process, once one other than ``but`` serves."""
        self.until(
            lambda: (
                self.value("fikitd", "MainPID") not in ("0", but)
                and self.value("fikitd", "ActiveState") == "active"
            ),
            self.try_run("systemctl", "status", "--no-pager", "fikitd").stdout,
        )
        return self.value("fikitd", "MainPID")

    def submit(self) -> str:
        """A job that has begun, and goes on until there is the file OVER."""
        python = ("/opt/fikitd/bin/python", "-P", "-c", JOB)
        job = self.run("fikitctl", "submit", "--directory", "/", "--", *python, user=USER)
        self.until(lambda: self.run("fikitctl", "logs", job) != "", "it has written nothing")
        return job

    def jobs(self) -> list[str]:
        return self.run("fikitctl", "ps", "--quiet").split()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    group = cgroup_root()
    tools = [shutil.which(name) for name in ("unshare", "nsenter", "setpriv", "systemd-run")]
    if os.geteuid() != 0 or group is None or not SYSTEMD.exists() or not all(tools):
        pytest.skip("needs root, systemd and a cgroup2 file system")
    if not (Path(sys.prefix) / "bin" / "fikitd").exists():
        pytest.skip("needs an installation of its own, as in a virtual environment")
    place = tmp_path_factory.mktemp("machine")
    (place / "written").mkdir()
    (place / "fikitd.toml").write_text(SETTINGS)
    shutil.copytree(ROOT / "systemd", place / "units")
    for name, text in UNITS.items():
        (place / "units" / name).parent.mkdir(exist_ok=True)
        (place / "units" / name).write_text(text)
    own = group / f"fikit-test-{os.getpid()}"
    own.mkdir()
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--cgroup"]
    environment = {**os.environ, "PLACE": str(place), "PREFIX": sys.prefix, "BASE": sys.base_prefix}
    with (place / "said").open("w+") as said:
        process = subprocess.Popen(
            [*command, "sh", "-c", BOOT.replace("$PLACE_UNITS", str(place / "units"))],
            env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            preexec_fn=lambda: (own / "cgroup.procs").write_text("0"),
        )  # fmt: skip
        try:
            yield booted(process, place)
        finally:
            process.kill()
            process.wait()
            clear(own)


def booted(process: subprocess.Popen[bytes], place: Path) -> Machine:
    """Once its systemd answers; skips where this machine lets nobody start one."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if found := children.read_text().split():
            machine = Machine(int(found[0]))
            with contextlib.suppress(subprocess.TimeoutExpired):
                if machine.try_run("systemctl", "is-active", START).stdout.strip() == "active":
                    return machine
        threading.Event().wait(0.1)
    pytest.skip(f"no systemd starts here: {(place / 'said').read_text()}")


def clear(group: Path) -> None:
    """Remove a control group whose processes are being killed."""
    deadline = time.monotonic() + SECONDS
    while group.exists() and time.monotonic() < deadline:
        for path, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                Path(path).rmdir()
        threading.Event().wait(0.05)


def test_it_serves_who_may_use_it(machine: Machine) -> None:
    machine.until_serving()
    assert "FAIL" not in machine.run("fikitctl", "doctor")
    assert machine.run("fikitctl", "ps", user=USER).startswith("ID")
    refused = machine.try_run("fikitctl", "ps", user="daemon")
    assert (refused.returncode, "not allowed to use /run/fikitd.sock" in refused.stderr) == (5, True)


def test_a_foreground_job_of_low_priority_gets_less_processor_time(machine: Machine) -> None:
    """Another user's process: the sandbox must let the daemon slow it down."""
    machine.until_serving()
    slowed = 'until [ "$(nice)" -gt 0 ]; do sleep 0.05; done'
    command = ("timeout", "20", "sh", "-c", slowed)
    machine.run("fikitctl", "run", "--priority", "low", "--", *command, user=USER)


def test_a_killed_daemon_leaves_jobs_and_executors_to_its_successor(machine: Machine) -> None:
    before = machine.until_serving()
    job = machine.submit()
    own = machine.value(f"fikitd-{job}", "MainPID")
    assert machine.value(f"fikitd-{job}", "Slice") == "fikitd.slice"
    for number in (signal.SIGKILL, signal.SIGSTOP):  # the watchdog ends what has stopped
        machine.run("systemctl", "kill", f"--signal={number}", "--kill-who=main", "fikitd")
        before = machine.until_serving(but=before)
        assert machine.jobs() == [job]
        assert machine.value(f"fikitd-{job}", "MainPID") == own
    machine.run("touch", OVER)
    machine.run("fikitctl", "wait", job)
    machine.run("rm", OVER)
    assert machine.run("fikitctl", "logs", job).split("\n") == ["begun", "all as written"]
    assert machine.value("fikitd", "NRestarts") == "2"


def test_memory_that_runs_out_ends_jobs_before_what_others_need(machine: Machine) -> None:
    """Executors map what their users have pinned, and to kill one frees none of it."""
    machine.until_serving()
    job = machine.submit()
    units = machine.run("systemctl", "list-units", "--plain", "--no-legend", "fikitd-executor-*")
    ranked = ("fikitd", units.split()[0], f"fikitd-{job}")
    ranks = [machine.value(unit, "OOMScoreAdjust") for unit in ranked]
    machine.run("fikitctl", "kill", job)
    assert ranks == ["-500", "-500", "0"]


def test_what_the_daemon_asks_may_be_killed_for_memory(machine: Machine) -> None:
    """By default systemd would stop the service then, which ends everybody's work."""
    machine.until_serving()
    assert machine.value("fikitd", "OOMPolicy") == "continue"


def test_a_job_may_raise_its_limit_of_files_as_elsewhere(machine: Machine) -> None:
    machine.until_serving()
    job = machine.submit()
    limits = [int(machine.value(f"fikitd-{job}", f"LimitNOFILE{which}")) for which in ("Soft", "")]
    machine.run("fikitctl", "kill", job)
    assert limits == [65536, 524288]


def test_a_wrong_setting_is_not_taken_over(machine: Machine) -> None:
    before = machine.until_serving()
    machine.run(
        "sh", "-c", "mkdir -p /etc/fikitd/conf.d; echo '[jobs]\nmax_runing = 1' > /etc/fikitd/conf.d/a.toml"
    )
    wrong = machine.try_run("fikitctl", "config", "check")
    assert (wrong.returncode, "conf.d/a.toml" in wrong.stderr, "max_runing" in wrong.stderr) == (
        1,
        True,
        True,
    )
    assert machine.try_run("systemctl", "reload", "fikitd").returncode != 0
    assert machine.value("fikitd", "ActiveState") == "active"
    machine.run("rm", "/etc/fikitd/conf.d/a.toml")
    machine.run("systemctl", "reload", "fikitd")
    assert machine.until_serving() == before


def test_a_stop_waits_as_long_as_it_is_told_to(machine: Machine) -> None:
    """Longer than the unit would: else systemd ends the daemon, and nobody ends what runs."""
    before = machine.until_serving()
    drain = "/etc/fikitd/conf.d/drain.toml"
    machine.run("sh", "-c", f"mkdir -p $(dirname {drain}); echo '[daemon]\ndrain_seconds = 300' > {drain}")
    machine.run("systemctl", "reload", "fikitd")
    job = machine.submit()
    machine.run("systemctl", "stop", "--no-block", "fikitd")
    threading.Event().wait(4)
    machine.run("touch", OVER)
    machine.until(lambda: machine.value("fikitd", "ActiveState") in ("inactive", "failed"), "it still ends")
    assert machine.value("fikitd", "Result") == "success"
    machine.run("rm", OVER, drain)
    assert machine.jobs() == []
    assert machine.until_serving(but=before)
    assert '"finished"' in machine.run("fikitctl", "show", "--json", job)


def test_a_stop_ends_everything_and_the_socket_starts_it_again(machine: Machine) -> None:
    before = machine.until_serving()
    job = machine.submit()
    machine.run("systemctl", "stop", "fikitd")
    units = machine.run("systemctl", "list-units", "--plain", "--no-legend", "fikitd-*")
    assert (machine.value("fikitd", "ActiveState"), units) == ("inactive", "")
    assert machine.jobs() == []
    assert machine.until_serving(but=before)
    assert '"killed"' in machine.run("fikitctl", "show", "--json", job)
