"""Each way a verb can end, as the shell sees it."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import fikit
import pytest
from fikit import protocol
from fikit.protocol import ClearProfiles, Done, Failure, Kill, Pause, Show, Wait
from fikitctl.failures import CommandError
from fikitctl.invocation import Invocation
from msgspec import structs

from tests.integration.test_ctl.conftest import HANG_UP
from tests.integration.test_ctl.test_top import GPU, SESSION

Daemon = Any
Fikitctl = Any


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("protocol", 1),
        ("invalid", 1),
        ("permission", 5),
        ("not_found", 4),
        ("quota", 1),
        ("draining", 1),
        ("unavailable", 1),
        ("internal", 1),
    ],
)
def test_every_refusal_has_its_exit_code(
    daemon: Daemon, fikitctl: Fikitctl, code: Any, exit_code: int
) -> None:
    daemon.script[Show] = Failure(code=code, message="what was wrong", hint="what to do")
    text = fikitctl("show", "job-1")
    assert (text.code, text.out) == (exit_code, "")
    assert text.err == "fikitctl: what was wrong\n  hint: what to do\n"
    as_json = fikitctl("show", "--json", "job-1")
    assert json.loads(as_json.err) == {"code": code, "message": "what was wrong", "hint": "what to do"}
    assert (as_json.code, as_json.out) == (exit_code, "")


def test_no_refusal_was_forgotten() -> None:
    assert len(protocol.Failure.__struct_fields__) == 3
    assert len(protocol.ErrorCode.__args__) == 8


def test_daemon_not_reachable(fikitctl: Fikitctl, tmp_path: Path) -> None:
    result = fikitctl("ps", "-H", str(tmp_path / "nothing"), "--json")
    assert result.code == 3
    assert json.loads(result.err)["code"] == "unreachable"
    assert fikitctl("-H", str(tmp_path / "nothing"), "ps").code == 3


def test_another_service_s_socket(fikitctl: Fikitctl, tmp_path: Path) -> None:
    """As FIKIT_SOCKET=/run/docker.sock: its answer was told as a daemon that went away."""
    place = tmp_path / "other"
    with socket.create_server(str(place), family=socket.AF_UNIX) as listener:

        def serve() -> None:
            for _ in range(2):
                with listener.accept()[0] as peer:
                    peer.recv(65536)
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        serving = threading.Thread(target=serve)
        serving.start()
        told = fikitctl("ps", "-H", str(place))
        with pytest.raises(fikit.UnreachableError, match="other is no fikitd"):
            fikit.connect(socket=place)
        serving.join()
    assert told.code == 3
    assert told.err.startswith(f"fikitctl: what answers at {place} is no fikitd: ")
    assert told.err.endswith("  hint: choose the daemon's socket with -H or FIKIT_SOCKET\n")


@pytest.mark.parametrize("arguments", [("--help",), ("show", "--help"), ("completion", "bash")])
def test_a_reader_that_went_away(arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", "from fikitctl.main import main; main()", *arguments]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=30, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_socket_of_others(fikitctl: Fikitctl, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert fikitctl("ps").code == 5


def test_daemon_goes_away(daemon: Daemon, fikitctl: Fikitctl) -> None:
    daemon.hang_up.add(Show)
    result = fikitctl("show", "job-1")
    assert result.code == 3
    assert "went away" in result.err


def test_waiting_for_a_job_outlives_its_daemon(daemon: Daemon, fikitctl: Fikitctl) -> None:
    """Which may be killed and replaced while jobs go on; ``fikitctl wait && ...`` must not fail of it."""
    over = protocol.Failure(code="not_found", message="no such job")
    answers: list[protocol.Reply | None] = [
        protocol.Logs(data=b"one ", offset=4, end=False, truncated=False),
        None,
        protocol.Logs(data=b"two", offset=7, end=True, truncated=False),
    ]

    def answer(request: Any) -> protocol.Reply:
        said = answers.pop(0) if answers else None
        if said is None:
            raise ConnectionResetError
        return said

    daemon.script |= {protocol.ReadLogs: answer, Wait: answer}
    assert fikitctl("logs", "-f", "--stream", "stdout", "job-1") == (0, "one two", "")
    assert [request.offset for request in daemon.of(protocol.ReadLogs)] == [0, 4, 4]
    answers[:] = [None, None, over]
    assert fikitctl("wait", "job-1") == (4, "", "fikitctl: no such job\n")
    assert fikitctl("wait", "job-1").code == 3  # of a daemon that hangs up whenever it is asked
    answers[:] = [None, over]
    assert fikitctl("logs", "job-1").code == 3


def test_events_go_on_where_the_daemon_is_replaced(daemon: Daemon, fikitctl: Fikitctl) -> None:
    subscribed, begun = (protocol.Event(kind=kind, unix=0.0) for kind in ("subscribed", "drain_started"))
    lives = [[subscribed, begun, HANG_UP], [HANG_UP], [subscribed, begun]]
    daemon.script[protocol.Subscribe] = lambda _: lives.pop(0)
    result = fikitctl("events", "--count", "2")
    assert [line.split()[1] for line in result.out.splitlines()] == ["drain_started", "drain_started"]
    assert (result.code, result.err) == (
        0, "fikitctl: the daemon was replaced; what happened meanwhile is missing\n",
    )  # fmt: skip
    daemon.script[protocol.Subscribe] = [HANG_UP]
    assert fikitctl("events").code == 3


def test_refused_hello(daemon: Daemon, fikitctl: Fikitctl) -> None:
    daemon.script[protocol.Hello] = Failure(code="protocol", message="version 9 is not spoken here")
    assert fikitctl("ps").code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["ps", "--nonsense"],
        ["events", "--kind", "job_endde"],
        ["show"],
        ["show", "NOT AN ID"],
        ["priority", "urgent", "job-1"],
        ["submit", "--memory", "lots", "--", "true"],
        ["submit", "--memory", "8", "--", "true"],
        ["submit"],
        ["kill", "-s", "NOSUCH", "job-1"],
        ["completion", "csh"],
        ["kill", "--grace", "11m", "job-1"],
        ["submit", "-n", "", "--", "true"],
        ["submit", "--output-limit", "0", "--", "true"],
        ["profile", "import", "/no/such/file"],
        ["submit", "-n", "x" * 201, "--", "true"],
        ["profile"],
    ],
)
def test_wrong_command_line(fikitctl: Fikitctl, arguments: list[str]) -> None:
    result = fikitctl(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err


def test_wrong_command_line_as_json(fikitctl: Fikitctl) -> None:
    assert json.loads(fikitctl("ps", "--json", "--nonsense").err)["code"] == "usage"
    assert json.loads(fikitctl("show", "--json", "NOT AN ID").err)["code"] == "usage"


@pytest.mark.parametrize("verb", [["tenants"], ["ps"], ["wait", "job-1"], ["profile", "list"]])
def test_unknown_column(daemon: Daemon, fikitctl: Fikitctl, verb: list[str]) -> None:
    """It is told before anything is asked or waited for, with the columns that there are."""
    for columns in ("colour", ","):
        result = fikitctl(*verb, "--format", columns)
        assert (result.code, result.out) == (2, "")
        assert "no column" in result.err
    assert daemon.received == []
    assert "max_sessions" in fikitctl("tenants", "--format", "tenant,colour").err


def spoken(shell: str, directory: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A process of its own, called by a shell."""
    program = f"{sys.executable} -P -c 'from fikitctl.main import main; main()'"
    return subprocess.run(
        ["/bin/sh", "-c", shell.replace("fikitctl", program)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=directory,
    )


def test_output_that_cannot_be_written(daemon: Daemon) -> None:
    daemon.script[protocol.ListTenants] = protocol.Tenants(tenants=[])
    for verb in ("tenants", "tenants --json", "completion bash"):
        full = spoken(f"fikitctl {verb} >/dev/full")
        assert (full.returncode, full.stderr.count("No space left"), full.stderr.count("\n")) == (1, 1, 1)
        closed = spoken(f"fikitctl {verb} >&-")
        assert (closed.returncode, closed.stderr.count("Bad file descriptor")) == (1, 1)
    daemon.script[protocol.Undrain] = protocol.Done()
    assert spoken("fikitctl undrain >&-").returncode == 0  # it prints nothing
    assert spoken("fikitctl tenants --nonsense 2>&- <&-").returncode == 2


def test_messages_that_cannot_be_written_leave_the_exit_code(daemon: Daemon) -> None:
    daemon.script[Show] = Failure(code="not_found", message="no job-9")
    daemon.script[protocol.ReadLogs] = protocol.Logs(data=b"said", offset=4, end=True, truncated=False)
    for verb, code in (("show job-9", 4), ("--nonsense", 2), ("profile", 2), ("logs job-9", 1)):
        assert spoken(f"fikitctl {verb} 2>/dev/full").returncode == code


@pytest.mark.usefixtures("daemon")
def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    for verb, code in (("submit", 1), ("run", 125)):
        result = spoken(f"mkdir -p {gone}; cd {gone}; rmdir {gone}; fikitctl {verb} -- true")
        assert result.returncode == code
        assert result.stderr.startswith("fikitctl: the current directory: No such file or directory\n")


def test_what_is_not_utf_8_is_refused_by_name(tmp_path: Path, daemon: Daemon) -> None:
    odd = tmp_path / os.fsdecode(b"\xff")
    odd.mkdir()
    for verb, code in (("submit", 1), ("run", 125)):
        result = spoken(f"fikitctl {verb} -- true", odd)
        assert (result.returncode, result.stderr.splitlines()[0]) == (
            code,
            f"fikitctl: the directory is not UTF-8: {os.fspath(odd)!r}",
        )
    result = spoken("fikitctl drain --reason \"$(printf '\\377')\"")
    assert (result.returncode, result.stderr) == (
        1,
        "fikitctl: a text in Drain is not UTF-8: '\\udcff'\n",
    )
    assert daemon.of(protocol.Drain) == []


def test_what_a_locale_has_no_letters_for_is_written_out(daemon: Daemon) -> None:
    """And JSON is UTF-8 in each of them."""
    tenant = protocol.TenantRecord(
        tenant="日é",
        uid=1000,
        priority_ceiling=0,
        weight=1.0,
        memory_limit_bytes=0,
        max_sessions=64,
        sessions=0,
        jobs=0,
        usage=protocol.Usage(),
    )
    daemon.script[protocol.ListTenants] = protocol.Tenants(tenants=[tenant])
    result = spoken("PYTHONIOENCODING=latin-1 fikitctl tenants -q | od -c")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.split("\n")[0].split() == ["0000000", "\\", "u", "6", "5", "e", "5", "351", "\\n"]
    result = spoken("PYTHONIOENCODING=latin-1 fikitctl tenants --json")
    assert (result.returncode, json.loads(result.stdout)["tenants"][0]["tenant"]) == (0, "日é")


def test_profiles_are_exported_in_utf_8(daemon: Daemon, tmp_path: Path) -> None:
    profile = protocol.ProfileRecord(
        function="日",
        module="ab12",
        grid=(1, 1, 1),
        block=(1, 1, 1),
        shared_bytes=0,
        samples=1,
        median_ns=1,
        p95_ns=1,
        device="H200",
    )
    daemon.script[protocol.ListProfiles] = protocol.Profiles(profiles=[profile])
    result = spoken("LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 fikitctl profile export exported", tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads((tmp_path / "exported").read_bytes())["profiles"][0]["function"] == "日"


def test_a_trace_that_could_not_be_written_is_not_recorded(
    daemon: Daemon, fikitctl: Fikitctl, tmp_path: Path
) -> None:
    result = fikitctl("trace", "--seconds", "1h", "--output", str(tmp_path / "nowhere" / "trace.json"))
    assert result.code == 1
    assert result.err == f"fikitctl: {tmp_path / 'nowhere'}: No such file or directory\n"
    assert daemon.received == []


def test_a_trace_is_not_recorded_for_a_directory(daemon: Daemon, fikitctl: Fikitctl, tmp_path: Path) -> None:
    result = fikitctl("trace", "--seconds", "1h", "--output", str(tmp_path))
    assert (result.code, result.err) == (1, f"fikitctl: {tmp_path}: Is a directory\n")
    assert daemon.received == []


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
def test_a_trace_that_is_ended_while_the_daemon_is_asked_is_written(
    daemon: Daemon, fikitctl: Fikitctl, tmp_path: Path, ended_by: signal.Signals
) -> None:
    def interrupted(request: protocol.ReadTrace) -> protocol.Trace:
        if not request.stop:
            os.kill(os.getpid(), ended_by)
        return protocol.Trace(operations=[], dropped=0)

    daemon.script |= {
        protocol.ListGpus: protocol.Gpus(gpus=[GPU]),
        protocol.StartTrace: Done(),
        protocol.ReadTrace: interrupted,
    }
    file = tmp_path / "trace.json"
    result = fikitctl("trace", "--seconds", "1h", "--output", str(file))
    assert (result.code, "stopped early" in result.err) == (0, True)
    assert [ask.stop for ask in daemon.of(protocol.ReadTrace)] == [False, True]
    assert json.loads(file.read_bytes())["otherData"]["operations"] == 0


def test_several_are_shown_whatever_becomes_of_one(daemon: Daemon, fikitctl: Fikitctl) -> None:
    """As the other verbs take several: fikitctl ps -q | xargs fikitctl show."""
    gone = Failure(code="not_found", message="there is no job or session s-2")
    daemon.script[Show] = lambda ask: (
        gone if ask.target == "s-2" else protocol.Shown(session=session(ask.target))
    )

    def session(name: str) -> protocol.SessionRecord:
        return structs.replace(SESSION, session=name)

    told = fikitctl("show", "s-1", "s-2", "s-3")
    assert (told.code, told.err) == (4, "fikitctl: there is no job or session s-2\n")
    sheets = told.out.split("\n\n")
    assert [sheet.split("\n", 1)[0].split() for sheet in sheets] == [["session", "s-1"], ["session", "s-3"]]
    as_json = fikitctl("show", "--json", "s-1", "s-3").out
    assert [json.loads(line)["session"] for line in as_json.splitlines()] == ["s-1", "s-3"]


def test_timeout(daemon: Daemon, fikitctl: Fikitctl) -> None:
    daemon.script[Wait] = None
    assert fikitctl("wait", "--timeout", "50ms", "job-1").code == 124
    assert fikitctl("--timeout", "50ms", "wait", "job-1").code == 124


FILE_READERS = pytest.mark.parametrize("arguments", [("profile", "import"), ("demo", "--traces")])


@FILE_READERS
def test_timeout_before_a_file_that_nobody_writes(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    os.mkfifo(waits := tmp_path / "waits")
    command = [sys.executable, "-P", "-c", "from fikitctl.main import main; main()", "--timeout", "50ms"]
    assert subprocess.run([*command, *arguments, str(waits)], check=False, timeout=20).returncode == 124


def test_an_alarm_that_comes_just_before_a_wait_is_not_the_last() -> None:
    """Python runs a handler between two calls; what waits already when it would have is interrupted again."""
    with pytest.raises(CommandError, match="no result"), Invocation(timeout=0.05).deadline(None):
        expire = signal.signal(signal.SIGALRM, lambda *_: None)
        signal.pause()
        signal.signal(signal.SIGALRM, expire)
        select.select([], [], [], 20)
        pytest.fail("no second alarm")


def test_a_timeout_that_somebody_catches_comes_again() -> None:
    """As a library does that tries an import, whatever may come of it."""
    with pytest.raises(CommandError, match="no result"), Invocation(timeout=0.05).deadline(None):
        with contextlib.suppress(Exception):
            select.select([], [], [], 20)
        select.select([], [], [], 20)
        pytest.fail("no second alarm")


@FILE_READERS
def test_a_file_without_an_end(fikitctl: Fikitctl, arguments: tuple[str, ...]) -> None:
    result = fikitctl(*arguments, "/dev/zero")
    assert (result.code, "/dev/zero" in result.err) == (1, True)
    assert "it has more than 256 MiB" in result.err


def test_compressed_traces_that_are_too_large(
    fikitctl: Fikitctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fikitctl.whole_file.MOST_BYTES", 1 << 20)
    traces = tmp_path / "traces.json.gz"
    traces.write_bytes(gzip.compress(bytes(2 << 20)))
    result = fikitctl("demo", "--traces", str(traces))
    assert (result.code, "it has more than 1 MiB" in result.err) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [("ps",), ("top",), ("events",), ("logs", "job-1"), ("wait", "job-1"), ("kill", "job-1"), ("trace",)],
)
def test_a_daemon_that_hangs_is_told_by_every_verb(
    daemon: Daemon, fikitctl: Fikitctl, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr("fikit.control._GREETING_SECONDS", 0.05)
    daemon.script[protocol.Hello] = None
    result = fikitctl(*arguments)
    assert (result.code, result.out) == (3, "")
    assert "does not answer\n  hint: it is stopped, or hangs" in result.err


def test_people_are_not_timed(daemon: Daemon, fikitctl: Fikitctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual deadline is for the daemon: a password may be typed before there is something to read."""
    before = signal.getsignal(signal.SIGALRM)
    alarms: dict[str, Any] = {}

    class Typed(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            alarms["read"] = signal.getsignal(signal.SIGALRM)
            return super().read(size)

    def asked(*_arguments: object, **_options: object) -> bool:
        alarms["asked"] = signal.getsignal(signal.SIGALRM)
        return True

    typed = io.TextIOWrapper(Typed(b'{"type": "profiles", "profiles": []}'))
    monkeypatch.setattr("sys.stdin", typed)
    monkeypatch.setattr("fikitctl.verb.is_terminal", lambda: True)
    monkeypatch.setattr("click.confirm", asked)
    daemon.script[ClearProfiles] = Done()
    assert fikitctl("profile", "import").code == 0
    assert fikitctl("profile", "clear").code == 0
    assert alarms == {"read": before, "asked": before}


def test_several_targets_go_on_after_a_failure(daemon: Daemon, fikitctl: Fikitctl) -> None:
    def answer(request: Pause) -> protocol.Reply:
        return Failure(code="not_found", message="no job-1") if request.target == "job-1" else Done()

    daemon.script[Pause] = answer
    result = fikitctl("pause", "job-1", "job-2")
    assert result.code == 4
    assert [request.target for request in daemon.of(Pause)] == ["job-1", "job-2"]
    assert fikitctl("pause", "job-2").code == 0


def test_what_there_is_to_choose_from_is_legible(fikitctl: Fikitctl) -> None:
    result = fikitctl("completion")
    assert (result.code, "Choose from: bash, zsh, fish\n" in result.err) == (2, True)


def test_kill_does_not_ask_without_a_terminal(daemon: Daemon, fikitctl: Fikitctl) -> None:
    daemon.script[Kill] = Done()
    assert fikitctl("kill", "-s", "INT", "--grace", "2s", "job-1") == (0, "", "")
    assert daemon.of(Kill) == [Kill(target="job-1", signal=2, grace_ms=2000)]


def test_kill_asks_at_a_terminal(daemon: Daemon, fikitctl: Fikitctl, monkeypatch: pytest.MonkeyPatch) -> None:
    import click

    daemon.script[Kill] = Done()
    monkeypatch.setattr("fikitctl.verb.is_terminal", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda *_arguments, **_options: False)
    assert fikitctl("kill", "job-1").code == 130
    assert not daemon.of(Kill)
    assert fikitctl("kill", "--yes", "job-1").code == 0
    assert len(daemon.of(Kill)) == 1


@pytest.mark.parametrize("verb", ["kill", "wait"])
def test_ctrl_c_ends_us_as_a_shell_expects(daemon: Daemon, on_terminal: Any, verb: str) -> None:
    """At a question, and while we wait: by its signal, as a shell goes on with the next turn otherwise."""
    daemon.script[Wait] = None
    screen = on_terminal(verb, "job-1")  # bash itself misses some where the machine is busy
    if verb == "kill":
        screen.read_until(b"End job-1?")
    while verb == "wait" and not daemon.of(Wait):
        assert screen.process.poll() is None
    # Again, as a person does: Python misses one that comes just before it reads the terminal.
    for _ in range(200):
        os.write(screen.terminal, b"\x03")
        with contextlib.suppress(subprocess.TimeoutExpired):
            screen.process.wait(0.1)
            break
    assert screen.process.wait(0) == -signal.SIGINT
