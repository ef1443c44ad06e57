"""``fikitctl run``: real children, real signals, a scripted daemon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fikit import protocol, unmodified
from fikit.protocol import Done, Failure, JobFinished, JobStarted, Submit, Submitted

Daemon = Any
START = [sys.executable, "-c", "from fikitctl.main import main; main()", "run"]
JOB = protocol.JobRecord(
    job="job-1",
    tenant="ada",
    uid=1000,
    name="x",
    command=["x"],
    directory="/",
    priority=5,
    gpus=[0],
    memory_limit_bytes=0,
    isolated=False,
    state="running",
    pid=None,
    exit_code=None,
    reason="",
    submitted_unix=0,
    started_unix=0,
    ended_unix=None,
    sessions=[],
    usage=protocol.Usage(),
)


@pytest.fixture
def admitting(daemon: Daemon) -> Iterator[Daemon]:
    daemon.script |= {
        Submit: Submitted(job=JOB, environment={"FIKIT_JOB": "job-1"}),
        JobStarted: Done(),
        JobFinished: Done(),
        protocol.Wait: protocol.Waited(job=JOB),
    }
    return daemon


def run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*START, *command], capture_output=True, text=True, timeout=30, check=False, **options
    )


def test_what_the_command_itself_cannot_know_of_its_end_is_told(admitting: Daemon) -> None:
    """Of a session that was refused it has an error of CUDA's, of kill a signal."""
    refused = msgspec.structs.replace(JOB, reason="a session was refused: you have 2 sessions")
    admitting.script[protocol.Wait] = protocol.Waited(job=refused)
    for code in (0, 3):  # a program may go on without a GPU
        told = run("sh", "-c", f"exit {code}")
        assert (told.returncode, told.stderr) == (code, f"fikitctl: {refused.reason}\n")


def test_a_job_whose_identifier_cannot_be_printed_is_told_of(admitting: Daemon) -> None:
    """Who called may have submitted it in vain otherwise, and would do so again."""
    for shell, code, reason in (
        (">/dev/full", 1, "No space left on device"),
        (">&-", 1, "Bad file descriptor"),
        ("| true", 141, "Broken pipe"),
    ):
        for option in ((), ("--json",)):
            command = [*START[:-1], "submit", *option, "true"]
            result = subprocess.run(
                ["bash", "-o", "pipefail", "-c", f'"$@" {shell}', "bash", *command],
                capture_output=True, text=True, timeout=30, check=False,
            )  # fmt: skip
            assert (result.returncode, reason in result.stderr) == (code, True), (shell, result)
            assert "the job was submitted: job-1" in result.stderr


def test_a_command_that_is_not_there_has_its_exit_code_beside_a_full_disk(admitting: Daemon) -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run([*START, "--", "/no/such"], stderr=full, timeout=30, check=False)
    assert result.returncode == 127
    assert admitting.of(JobFinished)[0].exit_code == 127


def test_exit_code_output_and_environment_are_the_commands(admitting: Daemon) -> None:
    ended = run("--", "sh", "-c", "read line; echo $FIKIT_JOB $line; echo aside >&2; exit 7", input="in\n")
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "job-1 in\n", "aside\n")
    assert [request.job for request in admitting.of(JobStarted)] == ["job-1"]
    assert admitting.of(JobFinished) == [JobFinished(job="job-1", exit_code=7)]
    assert admitting.of(Submit)[0].foreground


@pytest.mark.parametrize("given", [{}, {"LC_CTYPE": "C"}, {"LC_CTYPE": "C.UTF-8"}])
def test_the_locale_is_the_callers(admitting: Daemon, given: dict[str, str]) -> None:
    """Python changes its own where that is C."""
    plain = {name: value for name, value in os.environ.items() if name[:3] not in ("LC_", "LAN")}
    command = [*START, "--", "sh", "-c", "echo ${LC_CTYPE-none}"]
    ended = subprocess.run(command, env=plain | given, capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == given.get("LC_CTYPE", "none") + "\n"


def test_a_signal_is_passed_on(admitting: Daemon) -> None:
    script = "trap 'echo caught; exit 5' USR1; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen([*START, "sh", "-c", script], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGUSR1)
        assert child.stdout.read() == "caught\n"
        assert child.wait(10) == 5


def test_a_signal_for_a_child_that_is_another_s_by_now_is_lost(admitting: Daemon) -> None:
    """Of another user, say: sudo. Here it is a group that is gone, as its leader went to another one."""
    code = (
        "import os, time; child = os.fork()\n"
        "if child == 0: os.setpgid(0, 0); os.write(1, b'ready\\n'); time.sleep(1000)\n"
        "while os.getpgid(child) != child: time.sleep(0.01)\n"
        "os.setpgid(0, child); os.write(1, b'gone\\n'); time.sleep(0.5); os.kill(child, 9); os._exit(6)"
    )
    with subprocess.Popen([*START, sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert sorted(child.stdout.readline() for _ in range(2)) == ["gone\n", "ready\n"]
        child.send_signal(signal.SIGUSR1)
        assert child.wait(10) == 6


def test_a_child_killed_by_a_signal_gives_128_and_its_number(admitting: Daemon) -> None:
    assert run("sh", "-c", "kill -KILL $$").returncode == 137
    assert admitting.of(JobFinished)[-1].exit_code == 137


def test_not_found_and_not_executable(admitting: Daemon, tmp_path: Path) -> None:
    missing = run("--", "no-such-command-here")
    assert (missing.returncode, missing.stderr) == (
        127,
        "fikitctl: no-such-command-here: command not found\n",
    )
    assert admitting.of(JobFinished)[-1].exit_code == 127
    unnamed = run("")
    assert (unnamed.returncode, unnamed.stderr) == (127, "fikitctl: '': command not found\n")
    assert run(str(tmp_path)).returncode == 126
    plain = tmp_path / "plain"
    plain.write_text("text")
    assert run(str(plain)).returncode == 126
    plain.write_text("#!/no/such/python\n")
    plain.chmod(0o755)
    for name in (str(plain), "plain"):
        script = run("-e", f"PATH={tmp_path}:/usr/bin", name)
        assert (script.returncode, script.stderr) == (126, f"fikitctl: {name}: interpreter not found\n")
    plain.write_text("echo a shell would run this\n")
    bare = run("-e", f"PATH={tmp_path}:/usr/bin", "plain")
    assert (bare.returncode, bare.stdout) == (126, "")
    assert "nor a script that begins with #! (as in #!/bin/sh)" in bare.stderr


def test_the_command_is_looked_for_where_its_own_path_says(admitting: Daemon, tmp_path: Path) -> None:
    tool = tmp_path / "ls"
    tool.write_text("#!/bin/sh\necho mine\n")
    tool.chmod(0o755)
    assert run("-e", f"PATH={tmp_path}:/usr/bin", "ls").stdout == "mine\n"
    assert run("-e", f"PATH={tmp_path}", "env").returncode == 127
    tool.chmod(0o644)
    assert run("-e", f"PATH=/no/such:{tool}:{tmp_path}:/usr/bin:/bin", "ls", "-d", "/").stdout == "/\n"
    assert run("-e", f"PATH={tmp_path}", "ls").returncode == 126


def test_fikitd_s_library_stays_in_front_of_a_search_path_that_is_set(admitting: Daemon) -> None:
    """A program would use the driver past the daemon, and nobody would see it."""
    folder = Path(unmodified.__file__).with_name("libcuda")
    told = run("-e", "LD_LIBRARY_PATH=/opt/mine", "sh", "-c", "echo $LD_LIBRARY_PATH").stdout
    assert told == f"{folder}:/opt/mine\n"
    told = run("--own-driver", "-e", "LD_LIBRARY_PATH=/opt/mine", "sh", "-c", "echo $LD_LIBRARY_PATH").stdout
    assert told == "/opt/mine\n"


def test_our_own_failures_are_125(daemon: Daemon) -> None:
    assert run("-H", "/nonexistent/socket", "true").returncode == 125
    daemon.script[Submit] = Failure(code="quota", message="too many jobs")
    refused = run("true")
    assert (refused.returncode, refused.stderr) == (125, "fikitctl: too many jobs\n")
    assert run("--priority", "urgent", "true").returncode == 125
    daemon.script[Submit] = None
    assert run("--timeout", "50ms", "true").returncode == 125


@pytest.mark.usefixtures("admitting")
@pytest.mark.parametrize(
    ("module", "call"), [("fikit.control", "socket.socket"), ("fikitctl.foreground", "os.write")]
)
def test_what_we_lack_ourselves_is_125(module: str, call: str) -> None:
    """It could be taken for the command's."""
    library = call.partition(".")[0]
    lacking = f"""
import errno, os, types, {module} as place
place.{library} = types.SimpleNamespace(**vars(place.{library}))
def refuse(*_, **__):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
place.{call} = refuse
"""
    start = [*START[:2], lacking + START[2], *START[3:], "true"]
    failed = subprocess.run(start, capture_output=True, text=True, timeout=30, check=False)
    assert (failed.returncode, failed.stderr) == (125, "fikitctl: Too many open files\n")


def test_the_result_stands_when_the_daemon_goes_away(admitting: Daemon) -> None:
    admitting.hang_up.add(JobFinished)
    ended = run("sh", "-c", "exit 3")
    assert ended.returncode == 3
    assert "did not take the job's end" in ended.stderr


def test_a_process_that_the_daemon_does_not_take_is_no_matter_of_its_end(admitting: Daemon) -> None:
    """As one that becomes another user's at once: sudo."""
    admitting.script[JobStarted] = Failure(code="permission", message="process 7 belongs to another user")
    ended = run("sh", "-c", "exit 3")
    note = "fikitctl: the daemon did not take the command's process: process 7 belongs to another user\n"
    assert (ended.returncode, ended.stderr) == (3, note)


def test_the_end_is_told_to_the_daemon_that_took_the_job_over(admitting: Daemon) -> None:
    ended: list[JobFinished] = []

    def taken_at_last(request: JobFinished) -> protocol.Reply:
        ended.append(request)
        return Done()

    admitting.script[JobFinished] = taken_at_last
    admitting.hang_up.add(JobStarted)
    result = run("sh", "-c", "sleep 0.3; exit 3")
    assert (result.returncode, result.stderr) == (3, "")
    assert ended == [JobFinished(job="job-1", exit_code=3)]


KILLED_AS_IT_REPORTS = """
import os
from fikit.control import Connection
from fikit.protocol import JobStarted
send = Connection.send
def killed(self, body):
    if isinstance(body, JobStarted):
        os.kill(os.getpid(), 9)
    return send(self, body)
Connection.send = killed
from fikitctl.main import main
main()
"""


@pytest.mark.usefixtures("admitting")
def test_no_command_runs_that_the_daemon_has_not_heard_of() -> None:
    start = [sys.executable, "-c", KILLED_AS_IT_REPORTS, "run"]
    ended = subprocess.run([*start, "sh", "-c", "echo ran"], stdout=subprocess.PIPE, timeout=30, check=False)
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, b"")  # the child, too, has closed its end


def test_the_child_leads_its_own_group(admitting: Daemon) -> None:
    ended = run(
        sys.executable, "-c", "import os; print(os.getpgrp() == os.getpid(), os.getpgrp() == os.getsid(0))"
    )
    assert ended.stdout == "True False\n"


def test_signal_mask_and_pipes_are_as_the_caller_had_them(admitting: Daemon) -> None:
    code = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    assert run(sys.executable, "-c", code).stdout == "set()\n"
    assert run("sh", "-c", "yes | head -n 1").stdout == "y\n"


@pytest.mark.usefixtures("admitting")
def test_the_end_is_seen_where_the_caller_ignores_the_ends_of_children() -> None:
    ignoring = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
    code = f"{ignoring}os.execv(sys.executable, sys.argv[1:])"
    ended = subprocess.run(
        [sys.executable, "-c", code, *START, "sh", "-c", "exit 3"], timeout=30, check=False
    )
    assert ended.returncode == 3


def test_whose_priority_is_not_named_leaves_it_to_the_daemon(admitting: Daemon) -> None:
    for options in ([], ["-p", "normal"]):
        subprocess.run([*START[:-1], "run", *options, "true"], timeout=30, check=True)
    assert [each.priority for each in admitting.of(Submit)] == [None, 5]


def test_a_person_is_told_that_there_is_no_room_yet(daemon: Daemon, on_terminal: Any) -> None:
    daemon.script[Submit] = None
    on_terminal("run", "true").read_until(b"fikitctl: waiting for room")


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({"state": "running"}, b"job-1\r\n"),
        ({"reason": "no room"}, b"job-1\r\nfikitctl: queued: no room\r\n"),
    ],
)
def test_a_person_who_submits_is_told_what_a_job_waits_for_that_does(
    daemon: Daemon, on_terminal: Any, found: dict[str, str], told: bytes
) -> None:
    """It is queued for a moment, too, where there is room."""
    queued = msgspec.structs.replace(JOB, state="queued", reason="")
    looks = iter([queued, msgspec.structs.replace(queued, **found)])
    daemon.script |= {
        Submit: Submitted(job=queued),
        protocol.Wait: lambda _request: protocol.Waited(job=next(looks)),
    }
    screen = on_terminal("submit", "true")
    assert screen.process.wait(20) == 0
    assert os.read(screen.terminal, 1024) == told


@pytest.mark.usefixtures("admitting")
def test_a_child_that_reads_the_terminal_gets_it(on_terminal: Any) -> None:
    screen = on_terminal("run", "sh", "-c", 'read line; echo "got $line"; exit 4')
    os.write(screen.terminal, b"hello\n")
    screen.read_until(b"got hello")
    assert screen.process.wait(20) == 4


@pytest.mark.usefixtures("admitting")
def test_ctrl_c_at_the_terminal_reaches_the_child(on_terminal: Any) -> None:
    screen = on_terminal("run", "sh", "-c", "trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done")
    screen.read_until(b"ready")
    os.write(screen.terminal, b"\x03")
    assert screen.process.wait(20) == 9


def test_the_job_named_by_the_daemon_is_reported(admitting: Daemon) -> None:
    admitting.script[Submit] = Submitted(job=msgspec.structs.replace(JOB, job="job-42"))
    assert run("true").returncode == 0
    assert admitting.of(JobStarted)[0].job == "job-42"


@pytest.mark.usefixtures("admitting")
def test_ctrl_z_stops_us_with_the_child_and_cont_goes_on(on_terminal: Any) -> None:
    """What a shell does for fg: see us stopped, then continue our group."""
    screen = on_terminal("run", "sh", "-c", "echo ready; read line; exit 6")
    pid = screen.process.pid
    screen.read_until(b"ready")
    while os.tcgetpgrp(screen.terminal) == pid:  # until the child has read, and so was lent the terminal
        time.sleep(0.01)
    os.write(screen.terminal, b"\x1a")
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    assert os.tcgetpgrp(screen.terminal) == pid
    os.kill(pid, signal.SIGCONT)
    os.write(screen.terminal, b"go on\n")
    assert screen.process.wait(20) == 6


@pytest.mark.usefixtures("admitting")
@pytest.mark.parametrize("waits", ["signal.pause()", "sys.stdin.readline()"])
def test_ctrl_c_ends_the_loop_that_we_are_in(on_terminal: Any, waits: str) -> None:
    """As natively, with the child in our group. The second has the terminal."""
    loop = """for turn in one two; do echo "turn $turn"; "$@"; done; echo after"""
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); print('ready', flush=True); "
    child = (sys.executable, "-c", code + waits)
    screen = on_terminal("run", *child, shell=["bash", "-c", loop, "bash"])
    screen.read_until(b"ready")
    while "stdin" in waits and os.tcgetpgrp(screen.terminal) == screen.process.pid:  # until it has read
        time.sleep(0.01)
    os.write(screen.terminal, b"\x03")
    assert screen.process.wait(20) == -signal.SIGINT


def test_ctrl_c_ends_the_loop_also_while_there_is_no_room(daemon: Daemon, on_terminal: Any) -> None:
    daemon.script[Submit] = None
    loop = """for turn in one two; do "$@"; done; echo after"""
    screen = on_terminal("run", "true", shell=["bash", "-c", loop, "bash"])
    screen.read_until(b"waiting for room")
    os.write(screen.terminal, b"\x03")
    assert screen.process.wait(20) == -signal.SIGINT


@pytest.mark.usefixtures("admitting")
def test_a_child_that_stops_itself_gives_the_terminal_back(on_terminal: Any) -> None:
    """As bash's suspend and nano do."""
    screen = on_terminal("run", "sh", "-c", "read line; kill -STOP $$; read line; exit 6")
    pid = screen.process.pid
    os.write(screen.terminal, b"first\n")
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    assert os.tcgetpgrp(screen.terminal) == pid
    os.kill(pid, signal.SIGCONT)
    os.write(screen.terminal, b"go on\n")
    assert screen.process.wait(20) == 6


@pytest.mark.usefixtures("admitting")
def test_ctrl_z_stops_the_script_that_we_are_in(on_terminal: Any) -> None:
    """Which is not in the child's group, and so not in the one that the terminal stops."""
    script = """sh -c '"$@"; echo goes on' sh "$@"; echo "status $?"; fg"""
    child = ["sh", "-c", "echo ready; read line; echo read; read line"]
    screen = on_terminal("run", *child, shell=["bash", "-mc", script, "bash"])
    os.write(screen.terminal, b"first\n")
    screen.read_until(b"read\r")  # so it was lent the terminal
    os.write(screen.terminal, b"\x1a")
    screen.read_until(b"status 147")
    os.write(screen.terminal, b"second\n")
    screen.read_until(b"goes on")
    assert screen.process.wait(20) == 0


def test_signals_do_not_wait_for_a_daemon_that_hangs(admitting: Daemon) -> None:
    admitting.script[JobStarted] = None
    admitting.hang_up.add(JobFinished)
    script = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(
        [*START, "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.terminate()
        assert child.wait(10) == 5


def test_doctor_waits_for_none_of_a_commands_sessions_that_is_over(admitting: Daemon) -> None:
    """A job keeps their names: it waited five seconds for them to go."""
    over = msgspec.structs.replace(JOB, state="finished", sessions=["s-1"])
    admitting.script |= {
        protocol.ListSessions: protocol.Sessions(sessions=[]),
        protocol.Show: protocol.Shown(job=over),
    }
    command = [*START[:-1], "doctor", "--", "true"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (told.returncode, "served every call" in told.stderr) == (0, True)
    assert len(admitting.of(protocol.Show)) == 1


def test_a_job_begins_where_its_user_may_go_and_not_look(
    admitting: Daemon, fikitctl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a folder of mode 0711: without -C, from within, it did."""
    monkeypatch.setattr("os.access", lambda _path, mode, **_options: mode != os.R_OK)
    assert fikitctl("submit", "-C", str(tmp_path), "--", "true").code == 0
    assert [ask.directory for ask in admitting.of(Submit)] == [str(tmp_path)]


def test_what_others_call_their_commands_is_no_field_of_an_event(daemon: Daemon, fikitctl: Any) -> None:
    """A job could tell of another's end."""
    detail = {"command": "x state=lost job=job-7", "other": 'a"b', "gpus": [0], "code": 3, "path": "/bin/x"}
    daemon.script[protocol.Subscribe] = [
        protocol.Event(kind="job_submitted", unix=0.0, job="job-1", detail=detail)
    ]
    told = fikitctl("events", "-n", "1").out
    assert told.split(" ", 1)[1] == (
        'job_submitted job=job-1 command="x state=lost job=job-7" other="a\\"b" gpus=[0] code=3 path=/bin/x\n'
    )
