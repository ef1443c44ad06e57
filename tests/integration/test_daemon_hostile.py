"""Tenants that overdo it: floods, slow readers, many connections, processes left over. Others are served."""

from __future__ import annotations

import array
import os
import pwd
import resource
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
import pytest
from fikit import protocol as p

from fikitd.events import MOST_SUBSCRIPTIONS
from tests.integration.conftest import Client, Daemon

ANSWER_SECONDS = 5.0
"""Generous: on a loaded machine of two cores an answer takes milliseconds, a stalled daemon for ever."""


@contextmanager
def others_are_served(daemon: Daemon) -> Iterator[None]:
    """Meanwhile another client gets every answer in time."""
    other, over = daemon.client(), threading.Event()
    slowest = [0.0]

    def ask() -> None:
        while not over.is_set():
            started = time.monotonic()
            assert isinstance(other.ask(p.GetStatus()), p.Status)
            slowest[0] = max(slowest[0], time.monotonic() - started)

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        yield
    finally:
        over.set()
        asker.join()
    assert 0 < slowest[0] < ANSWER_SECONDS


def memory_of(daemon: Daemon) -> int:
    """Bytes resident."""
    assert daemon.process is not None
    with open(f"/proc/{daemon.process.pid}/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_a_flood_of_requests(daemon: Daemon) -> None:
    flooding = daemon.client()
    frame = p.encode(5, p.GetStatus())
    before = memory_of(daemon)
    with others_are_served(daemon), suppress(ConnectionError, TimeoutError):
        flooding.socket.settimeout(5)
        for _ in range(200):
            flooding.socket.sendall(frame * 500)  # and never reads
    assert memory_of(daemon) < before + (64 << 20)


def test_a_subscriber_that_does_not_read_loses_events_and_holds_up_nobody(daemon: Daemon) -> None:
    slow, quick = daemon.client(), daemon.client()
    for subscriber in (slow, quick):
        subscriber.subscribe()
    teller = daemon.client()
    session = teller.ask(p.OpenSession(name="busy")).session
    before = memory_of(daemon)
    with others_are_served(daemon):
        for number in range(1500):
            teller.ask(p.Pause(target=session) if number % 2 == 0 else p.Resume(target=session))
            while quick.receive()[1].kind not in ("session_paused", "session_resumed"):
                pass
    assert memory_of(daemon) < before + (32 << 20)


@pytest.mark.shares_daemon
def test_subscriptions_of_one_user_are_few(daemon: Daemon, client: Client) -> None:
    """Each event is sent to all of them, by the thread that serves everybody."""
    hoarding = [daemon.client() for _ in range(2)]
    for number in range(MOST_SUBSCRIPTIONS):
        assert hoarding[number % 2].ask(p.Subscribe()).kind == "subscribed"
    assert client.ask(p.Subscribe()).code == "quota"
    hoarding[0].close()
    daemon.clients.remove(hoarding[0])
    while isinstance(answer := client.ask(p.Subscribe()), p.Failure):
        assert answer.code == "quota"
    assert answer.kind == "subscribed"


@pytest.mark.shares_daemon
def test_a_follower_of_logs_that_does_not_read(daemon: Daemon) -> None:
    flood = "i=0; while [ $i -lt 20000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done"
    slow, client = daemon.client(), daemon.client()
    job = client.ask(p.Submit(command=["/bin/sh", "-c", flood], environment={}, directory="/")).job.job
    with others_are_served(daemon):
        for _ in range(50):
            slow.send(p.ReadLogs(job=job, follow=True))
        assert client.ask(p.Wait(job=job)).job.state == "finished"


@pytest.mark.shares_daemon
def test_who_waits_holds_up_none_of_his_own_requests(daemon: Daemon, client: Client) -> None:
    command = ["/bin/sleep", "1000"]
    fills = p.Submit(command=command, environment={}, directory="/", memory_limit_bytes=3 << 30)
    job = client.ask(fills).job.job
    waiting = [
        p.Wait(job=job),
        p.ReadLogs(job=job, follow=True),
        p.Subscribe(),
        p.Submit(command=command, environment={}, directory="/", memory_limit_bytes=3 << 30, foreground=True),
    ]
    for request in waiting:
        asking = daemon.client()
        for _ in range(3):
            asking.send(request)
        assert isinstance(client.ask(p.GetStatus()), p.Status)
        assert isinstance(client.ask(p.Show(target=job)), p.Shown)


@pytest.mark.shares_daemon
def test_followers_of_logs_share_one_instance_of_inotify(daemon: Daemon, client: Client) -> None:
    """A user may have 128 of them, and root's are those of all the machine's services."""
    wait = ["/bin/sh", "-c", "until [ -e word ]; do sleep 0.1; done; echo said"]
    job = client.ask(p.Submit(command=wait, environment={}, directory=str(daemon.place))).job.job
    for _ in range(20):
        client.send(p.ReadLogs(job=job, follow=True))
    other = daemon.client()
    for _ in range(2):
        other.ask(p.ReadLogs(job=job, follow=True, wait_ms=50))
    assert daemon.process is not None
    place = f"/proc/{daemon.process.pid}/fd"
    assert [os.readlink(f"{place}/{each}") for each in os.listdir(place)].count("anon_inode:inotify") == 1
    (daemon.place / "word").touch()
    assert {client.receive()[1].data for _ in range(20)} == {b"said\n"}


@pytest.mark.shares_daemon
def test_output_without_end_is_cut(daemon: Daemon, client: Client) -> None:
    flood = ["/bin/sh", "-c", "yes 'escape \033[31m' | head -c 30000000; exit 7"]
    submit = p.Submit(
        command=flood, environment={"PATH": "/bin:/usr/bin"}, directory="/", output_limit_bytes=100_000
    )
    with others_are_served(daemon):
        job = client.ask(submit).job.job
        assert client.ask(p.Wait(job=job)).job.exit_code == 7  # it is not held up by what nobody keeps
    output = daemon.place / "state" / "jobs" / job / "stdout"
    assert 100_000 <= output.stat().st_size < 101_000
    assert b"further output is discarded" in output.read_bytes()


def test_commands_that_are_too_long_to_be_listed(daemon: Daemon, client: Client) -> None:
    words = ["/bin/sh", "-c", "echo $# ${#1}; sleep 1000", "x", *["y" * 120_000] * 12]
    jobs = []
    for _ in range(16):
        answer = client.ask(p.Submit(command=words, environment=dict(os.environ), directory="/"))
        jobs.append(answer.job.job)
        assert len("".join(answer.job.command)) < 3000
    assert [each.job for each in client.ask(p.ListJobs()).jobs] == jobs
    assert client.ask(p.ReadLogs(job=jobs[0], follow=True)).data == b"12 120000\n"
    for job in jobs:
        client.ask(p.Kill(target=job, signal=9))
    far = p.Submit(command=["true"], environment={}, directory="/" + "d/" * 5000)
    assert client.ask(far).code == "invalid"
    long = client.ask(p.Submit(command=["n" * 5000], environment={}, directory="/")).job
    assert (len(long.name), len(long.command[0])) == (200, 2003)


def test_a_thousand_connections(stopped_daemon: Daemon) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip(f"a process may open {hard} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
    try:
        text = stopped_daemon.config.read_text()
        stopped_daemon.configure(
            settings=text.replace("[daemon]", "[daemon]\nmax_connections_per_user = 1100")
        )
        daemon = stopped_daemon.start()
        with others_are_served(daemon):
            clients = [daemon.client() for _ in range(1000)]
        for client in clients[::50]:
            assert isinstance(client.ask(p.GetStatus()), p.Status)
        for client in clients:
            client.close()
        assert isinstance(daemon.client().ask(p.GetStatus()), p.Status)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


LINGER_SECONDS = 60


@contextmanager
def lingering() -> Iterator[int]:
    """A socket whose last close waits for a peer that does not read; closed by us inside."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
    ours.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            ours.send(bytes(65536))
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_SECONDS))
    with peer:
        yield ours.detach()


@contextmanager
def stopped(daemon: Daemon) -> Iterator[None]:
    """The daemon does nothing inside."""
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGSTOP)
    while Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        pass
    try:
        yield
    finally:
        daemon.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("where", ["hello", "many", "unread", "refused"])
def test_descriptors_whose_close_takes_for_ever(stopped_daemon: Daemon, where: str) -> None:
    """With a request, or with bytes that nobody comes to read."""
    text = stopped_daemon.config.read_text()
    stopped_daemon.configure(settings=text.replace("[daemon]", "[daemon]\nmax_connections_per_user = 3"))
    daemon = stopped_daemon.start()
    hello = p.encode(1, p.Hello(version=p.PROTOCOL_VERSION, client="hostile"))
    others = [daemon.client() for _ in range(2 if where == "refused" else 0)]
    with lingering() as descriptor, others_are_served(daemon):
        with stopped(daemon):  # all of it is there when the daemon looks
            client = Client(daemon.socket, hello=False)
            if where == "unread":
                client.socket.sendall(b"\xc1")
            descriptors = array.array("i", [descriptor] * (200 if where == "many" else 1))
            client.socket.sendmsg([hello], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
            os.close(descriptor)
            client.close()
        time.sleep(0.5)
        for other in others:
            assert isinstance(other.ask(p.GetStatus()), p.Status)


def test_refused_connections_whose_descriptors_close_for_ever(stopped_daemon: Daemon) -> None:
    """One user's must not use up the daemon's descriptors, which are everybody's."""
    text = stopped_daemon.config.read_text()
    stopped_daemon.configure(settings=text.replace("[daemon]", "[daemon]\nmax_connections_per_user = 2"))
    daemon = stopped_daemon.start()
    assert daemon.process is not None
    others, place = [daemon.client() for _ in range(2)], f"/proc/{daemon.process.pid}/fd"
    before = len(os.listdir(place))
    with ExitStack() as stack:
        slow = [stack.enter_context(lingering()) for _ in range(8)]
        quick = [os.open(os.devnull, os.O_RDONLY) for _ in range(200)]
        with stopped(daemon):
            for descriptor in (*slow, *quick):
                client = Client(daemon.socket, hello=False)
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))
                client.socket.sendmsg([b"x"], [rights])
                os.close(descriptor)
                client.close()
        limit = time.monotonic() + LINGER_SECONDS / 4
        time.sleep(0.5)
        while len(os.listdir(place)) > before:
            assert time.monotonic() < limit
        for other in others:
            assert isinstance(other.ask(p.GetStatus()), p.Status)


def test_more_descriptors_wanted_than_there_are(stopped_daemon: Daemon) -> None:
    stopped_daemon.prologue = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60)); "
    daemon = stopped_daemon.start()
    first = daemon.client()
    held = []
    with suppress(OSError, EOFError):
        for _ in range(80):
            client = Client(daemon.socket, hello=False)
            client.socket.settimeout(0.2)
            held.append(client)
            client.send(p.Hello(version=p.PROTOCOL_VERSION, client="greedy"))
            client.receive()
    assert isinstance(first.ask(p.GetStatus()), p.Status)
    for client in held:
        client.close()
    assert isinstance(daemon.client().ask(p.GetStatus()), p.Status)


def test_descriptors_run_out_as_a_tenant_is_to_be_named(
    stopped_daemon: Daemon, as_user: Callable[..., str]
) -> None:
    """The name service then says that it knows nobody, and limits are by name: he must come again."""
    stopped_daemon.prologue = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60)); "
    stopped_daemon.configure(f'[tenants.{pwd.getpwuid(1).pw_name}]\npriority_ceiling = "low"\n')
    daemon = stopped_daemon.start()
    assert daemon.process is not None
    open_ones = Path(f"/proc/{daemon.process.pid}/fd")
    held = [daemon.client()]
    while len(list(open_ones.iterdir())) < 59:
        held.append(daemon.client())

    def ceiling() -> str:
        with suppress(EOFError, ConnectionError):
            return str(Client(daemon.socket).welcome.priority_ceiling)
        return "refused"

    assert as_user(1, ceiling) == "refused"
    held.pop().close()
    assert as_user(1, ceiling) == str(p.PRIORITIES["low"])


def test_descriptors_run_out_as_signals_come(stopped_daemon: Daemon) -> None:
    """What systemd is to be told of them needs a socket."""
    stopped_daemon.prologue = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60)); "
    daemon = stopped_daemon.start()
    first = daemon.client()
    first.subscribe()
    held = [Client(daemon.socket, hello=False) for _ in range(80)]
    assert daemon.process is not None
    while len(os.listdir(f"/proc/{daemon.process.pid}/fd")) < 60:
        pass
    daemon.process.send_signal(signal.SIGHUP)
    assert first.receive()[1].kind in ("reloaded", "reload_refused")
    assert isinstance(first.ask(p.GetStatus()), p.Status)
    assert daemon.stop() == 0
    for client in held:
        client.close()


def test_descriptors_run_out_while_a_foreground_job_starts(stopped_daemon: Daemon) -> None:
    stopped_daemon.prologue = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60)); "
    daemon = stopped_daemon.start()
    first = daemon.client()
    command = ["/bin/sleep", "1000"]
    submitted = first.ask(p.Submit(command=command, environment={}, directory="/", foreground=True))
    held = [Client(daemon.socket, hello=False) for _ in range(80)]
    found: dict[str, str] = {}
    while found.keys() != {"state directory writable", "state file"}:  # not all of them are accepted yet
        checks = first.ask(p.Doctor()).checks
        found = {each.name: each.detail for each in checks if each.name.startswith("state ") and not each.ok}
    assert all("Too many open files" in detail for detail in found.values()), found
    with subprocess.Popen(command) as process:
        started = first.send(p.JobStarted(job=submitted.job.job, pid=process.pid))
        first.send(p.GetStatus())
        replies = [first.receive()]  # one of the two is served meanwhile
        for client in held:
            client.close()
        replies.append(first.receive())
        assert dict(replies)[started] == p.Done()
        assert first.ask(p.Show(target=submitted.job.job)).job.pid == process.pid
        process.kill()


NO_THREAD = """
import os, threading
start = threading._start_new_thread
def scarce(*arguments):
    if os.path.exists(os.environ["STATE_DIRECTORY"] + "/no-thread"):
        raise RuntimeError("can't start new thread")
    return start(*arguments)
threading._start_new_thread = scarce
"""


def test_threads_run_out(stopped_daemon: Daemon) -> None:
    """As where a user has all the processes that he may have, or a container."""
    stopped_daemon.prologue = f"exec({NO_THREAD!r}); "
    daemon = stopped_daemon.start()
    mark = daemon.place / "state" / "no-thread"
    mark.touch()
    waiting = [Client(daemon.socket, hello=False) for _ in range(10)]
    command = ["/bin/sh", "-c", "exit 3"]
    for client in waiting:
        client.send(p.Hello(version=p.PROTOCOL_VERSION, client="test"))
        client.send(p.OpenSession(name="test"))
        client.send(p.Submit(command=command, environment={}, directory="/"))
    time.sleep(1)
    assert daemon.process is not None
    assert daemon.process.poll() is None
    mark.unlink()
    for client in waiting:
        replies = [client.receive()[1] for _ in range(3)]
        assert isinstance(replies[0], p.Welcome)
        assert {type(each) for each in replies[1:]} == {p.SessionOpened, p.Submitted}, replies
        job = next(each.job.job for each in replies if isinstance(each, p.Submitted))
        assert client.ask(p.Wait(job=job)).job.exit_code == 3
        client.close()


def test_descriptors_run_out_as_the_caller_of_a_foreground_job_goes(stopped_daemon: Daemon) -> None:
    stopped_daemon.prologue = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60)); "
    daemon = stopped_daemon.start()
    caller, other = daemon.client(), daemon.client()
    assert isinstance(other.ask(p.OpenSession(name="first")), p.SessionOpened)
    command = ["/bin/sleep", "1000"]
    submit = p.Submit(command=command, environment={}, directory="/", foreground=True)
    job = caller.ask(submit).job.job
    with subprocess.Popen(command) as process:
        assert caller.ask(p.JobStarted(job=job, pid=process.pid)) == p.Done()
        held = [Client(daemon.socket, hello=False) for _ in range(80)]
        while "accept_failed" not in daemon.log.read_text():
            pass
        refused = other.ask(p.OpenSession(name="second"))
        assert (refused.code, "Too many open files" in refused.message) == ("unavailable", True), refused
        caller.socket.shutdown(socket.SHUT_RDWR)
        while other.ask(p.Show(target=job)).job.reason != "its caller went away":
            pass
        time.sleep(0.5)
        for client in held:
            client.close()
        assert process.wait(20) == -15
    assert other.ask(p.Wait(job=job)).job.state == "killed"


def test_descriptors_run_out_while_an_executor_starts_and_a_job_ends(stopped_daemon: Daemon) -> None:
    stopped_daemon.prologue = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60)); "
    words = [stopped_daemon.place / name for name in ("end", "start")]
    end, start = (f"until [ -e {word} ]; do sleep 0.05; done; " for word in words)
    late = f"command = ['/bin/sh', '-c', '{start}exec \"$@\"', 'sh', "
    text = stopped_daemon.config.read_text()
    stopped_daemon.configure(settings=text.replace("command = [", late))
    daemon = stopped_daemon.start()
    first, watcher, owner = daemon.client(), daemon.client(), daemon.client()
    watcher.subscribe()
    first.send(p.OpenSession(name="first"))
    while watcher.receive()[1].kind != "executor_started":
        pass
    ends = ["/bin/sh", "-c", f"{end}exit 7"]
    job = owner.ask(p.Submit(command=ends, environment=dict(os.environ), directory="/")).job.job
    owner.pid_of(job)
    held = [Client(daemon.socket, hello=False) for _ in range(80)]
    words[0].touch()
    time.sleep(0.5)
    for client in held:
        client.close()
    assert daemon.client().ask(p.Wait(job=job)).job.exit_code == 7  # who came before it was served, too
    words[1].touch()
    assert isinstance(first.receive()[1], p.SessionOpened)


@pytest.mark.shares_daemon
def test_a_job_that_leaves_a_daemon_behind(daemon: Daemon, client: Client) -> None:
    """What leaves the process group outlives the job, but neither keeps the job nor its output open."""
    marker = daemon.place / "daemon.pid"
    script = f"setsid sh -c 'echo $$ >{marker}; exec sleep 1000' & until [ -s {marker} ]; do :; done; exit 5"
    environment = {"PATH": os.environ["PATH"]}
    job = client.ask(p.Submit(command=["/bin/sh", "-c", script], environment=environment, directory="/")).job
    started = time.monotonic()
    assert client.ask(p.Wait(job=job.job)).job.exit_code == 5
    assert time.monotonic() - started < ANSWER_SECONDS
    os.kill(int(marker.read_text()), 9)


@pytest.mark.shares_daemon
def test_half_a_hello_and_half_a_close(daemon: Daemon) -> None:
    client = daemon.client()
    client.socket.sendall(p.encode(7, p.GetStatus())[:-3])
    client.socket.shutdown(socket.SHUT_WR)
    with suppress(ConnectionError, EOFError):
        while not isinstance(client.receive()[1], p.Failure):
            pass
    assert isinstance(daemon.client().ask(p.GetStatus()), p.Status)


SMALLER = 16
"""Replies and their portions, and so the jobs that it takes: each is written down before it is answered."""


def test_jobs_that_fit_into_no_reply_together_are_listed(stopped_daemon: Daemon) -> None:
    """An administrator is shown everybody's, who could keep him from seeing any."""
    stopped_daemon.prologue = (
        "from fikit.protocol import frames\n"
        f"frames.MAX_FRAME_BYTES //= {SMALLER}; frames.PORTION_BYTES //= {SMALLER}; "
    )
    stopped_daemon.configure("[tenant_defaults]\nmax_jobs = 10000\n[jobs]\nmax_running = 1\n")
    client = stopped_daemon.start().client()
    job = p.Submit(command=["sleep", "1000"], environment={"PATH": os.environ["PATH"]}, directory="/")
    jobs = [client.ask(job).job.job]
    long = msgspec.structs.replace(job, command=["true", "\U0001f600" * 2000], directory="/" + "d/" * 2000)
    size = len(p.encode(1, client.ask(long)))
    jobs += [client.ask(long).job.job for _ in range(p.MAX_FRAME_BYTES // SMALLER * 9 // 8 // size)]
    found: list[p.JobRecord] = []
    more = True
    while more:
        reply = client.ask(p.ListJobs(after=found[-1].job if found else None))
        found, more = found + reply.jobs, reply.more
    assert {each.job for each in found} >= set(jobs)
    assert len(found) == len(jobs) + 1
    assert client.ask(p.ListJobs(after=found[-2].job)).jobs == [found[-1]]
