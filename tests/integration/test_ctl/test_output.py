"""What the verbs print, for fixed records; and that JSON is the protocol's structs."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fikit import protocol
from fikit.protocol import (
    Event,
    GpuRecord,
    JobRecord,
    Jobs,
    ListJobs,
    ListSessions,
    ListTenants,
    Logs,
    ReadLogs,
    SessionRecord,
    Sessions,
    Show,
    Shown,
    Subscribe,
    TenantRecord,
    Tenants,
    Usage,
)

Daemon = Any
Fikitctl = Any
NOW = 1_800_000_000.0
USAGE = Usage(
    gpu_ns=90_000_000_000,
    launches=120_000,
    operations=130_000,
    bytes_copied=3 << 30,
    gate_wait_ns=1_500_000_000,
    gate_waits=40,
    memory_bytes=2 << 30,
    memory_peak_bytes=5 << 29,
    queued=7,
)
JOB = JobRecord(
    job="job-1",
    tenant="ada",
    uid=1000,
    name="train",
    command=["python", "train.py", "--note", "two words"],
    directory="/home/ada",
    priority=9,
    gpus=[0],
    memory_limit_bytes=8 << 30,
    isolated=False,
    state="running",
    pid=4711,
    exit_code=None,
    reason="",
    submitted_unix=NOW - 400,
    started_unix=NOW - 310,
    ended_unix=None,
    sessions=["session-1"],
    usage=USAGE,
)
QUEUED = msgspec.structs.replace(
    JOB, job="job-2", name="sweep", state="queued", gpus=[], pid=None, started_unix=None, sessions=[],
    reason="no room on gpu 0", priority=5, usage=Usage(),
)  # fmt: skip
ENDED = msgspec.structs.replace(
    JOB, job="job-3", name="old", state="failed", pid=None, exit_code=3, ended_unix=NOW - 300, priority=3
)
SESSION = SessionRecord(
    session="session-2",
    tenant="bob",
    uid=1001,
    pid=4712,
    name="python",
    priority=0,
    gpu=0,
    executor="gpu0-1001",
    isolated=True,
    job=None,
    state="paused",
    memory_limit_bytes=0,
    opened_unix=NOW - 90_000,
    usage=Usage(gpu_ns=1_500_000, memory_bytes=300),
)
TENANT = TenantRecord(
    tenant="ada",
    uid=1000,
    priority_ceiling=5,
    weight=1.5,
    memory_limit_bytes=16 << 30,
    max_sessions=64,
    sessions=1,
    jobs=2,
    usage=USAGE,
)


@pytest.fixture(autouse=True)
def _fixed_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)
    monkeypatch.setattr("time.localtime", __import__("time").gmtime)


@pytest.fixture
def busy(daemon: Daemon) -> Daemon:
    inside = msgspec.structs.replace(SESSION, session="session-1", tenant="ada", job="job-1", state="running")
    daemon.script[ListJobs] = lambda request: Jobs(jobs=[JOB, QUEUED, *([ENDED] if request.ended else [])])
    daemon.script[ListSessions] = Sessions(sessions=[inside, SESSION])
    daemon.script[ListTenants] = Tenants(tenants=[TENANT])
    return daemon


PS = """\
ID         TENANT  NAME    PRIORITY  STATE    GPU  MEMORY  GPU TIME    AGE
job-1      ada     train   low       running    0    2.0G     1m30s  5m10s
job-2      ada     sweep   normal    queued     -       -         -      -
session-2  bob     python  high      paused     0    300B     1.5ms  1d01h
"""


@pytest.mark.usefixtures("busy")
def test_ps(fikitctl: Fikitctl) -> None:
    assert fikitctl("ps") == (0, PS, "")
    assert fikitctl("ps", "-q").out == "job-1\njob-2\nsession-2\n"
    assert (
        fikitctl("ps", "--no-header", "--format", "id,limit,command", "-t", "bob").out == "session-2  -  -\n"
    )
    assert (
        fikitctl("ps", "--all", "--format", "id,state,exit").out.splitlines()[3] == "job-3      failed      3"
    )
    assert fikitctl("ps", "--sessions", "-q").out.split() == ["job-1", "job-2", "session-1", "session-2"]


def test_ps_asks_until_it_has_all_jobs(busy: Daemon, fikitctl: Fikitctl) -> None:
    """Those of many users do not fit into one reply."""
    rest = {None: Jobs(jobs=[JOB], more=True), "job-1": Jobs(jobs=[QUEUED])}
    busy.script[ListJobs] = lambda request: rest[request.after]
    assert fikitctl("ps", "-q").out == "job-1\njob-2\nsession-2\n"


@pytest.mark.usefixtures("busy")
def test_ps_as_json_is_the_protocol(fikitctl: Fikitctl) -> None:
    shown = json.loads(fikitctl("ps", "--json").out)
    assert msgspec.convert(shown["jobs"], list[JobRecord]) == [JOB, QUEUED]
    assert [session.session for session in msgspec.convert(shown["sessions"], list[SessionRecord])] == [
        "session-1",
        "session-2",
    ]


SHOWN_JOB = """\
job           job-1
name          train
tenant        ada (uid 1000)
command       python train.py --note 'two words'
directory     /home/ada
state         running
pid           4711
priority      low
gpu           0
isolated      no
memory limit  8.0G
submitted     2027-01-15 07:53:20
started       2027-01-15 07:54:50
sessions      session-1
gpu time      1m30s
launches      120000
operations    130000
to be issued  7
copied        3.0G
memory        2.0G (peak 2.5G)
gate waits    40 (1.5s)
"""
SHOWN_SESSION = """\
session       session-2
name          python
tenant        bob (uid 1001)
pid           4712
state         paused
priority      high
gpu           0
executor      gpu0-1001
isolated      yes
memory limit  -
opened        2027-01-14 07:00:00
gpu time      1.5ms
launches      0
operations    0
to be issued  0
copied        -
memory        300B (peak -)
gate waits    0 (-)
"""


def test_show(daemon: Daemon, fikitctl: Fikitctl) -> None:
    daemon.script[Show] = Shown(job=JOB)
    assert fikitctl("show", "job-1") == (0, SHOWN_JOB, "")
    assert msgspec.json.decode(fikitctl("show", "job-1", "--json").out, type=JobRecord) == JOB
    daemon.script[Show] = Shown(session=SESSION)
    assert fikitctl("show", "session-2") == (0, SHOWN_SESSION, "")
    assert msgspec.json.decode(fikitctl("--json", "show", "session-2").out, type=SessionRecord) == SESSION


TENANTS = """\
TENANT   UID  CEILING  WEIGHT  SESSIONS  JOBS  MEMORY  LIMIT  GPU TIME
ada     1000  normal      1.5         1     2    2.0G  16.0G     1m30s
"""


@pytest.mark.usefixtures("busy")
def test_tenants(fikitctl: Fikitctl) -> None:
    assert fikitctl("tenants") == (0, TENANTS, "")
    assert msgspec.json.decode(fikitctl("tenants", "--json").out, type=Tenants).tenants == [TENANT]


GPU = GpuRecord(
    index=0,
    name="H200",
    uuid="GPU-0",
    memory_bytes=140 << 30,
    memory_reserved_bytes=24 << 30,
    memory_used_bytes=31 << 30,
    time_scale=1.0,
    sessions=2,
    executors=1,
    utilization_percent=93,
)
STATUS = """\
fikitd    0.1.0 (pid 77), up 2h05m
state     draining: driver update
jobs      1 running, 1 queued
sessions  2

GPU  NAME      MEMORY  RESERVED  BUSY  TEMPERATURE  POWER  SESSIONS  EXECUTORS
  0  H200  31.0G/140G     24.0G   93%            -      -         2          1
"""


def test_a_bare_command_is_status(daemon: Daemon, fikitctl: Fikitctl) -> None:
    status = protocol.Status(
        daemon="0.1.0",
        pid=77,
        uptime_seconds=7500,
        draining="driver update",
        sessions=2,
        jobs_running=1,
        jobs_queued=1,
        gpus=[GPU],
    )
    daemon.script[protocol.GetStatus] = status
    assert fikitctl() == (0, STATUS, "")
    assert fikitctl("status") == (0, STATUS, "")
    assert msgspec.json.decode(fikitctl("--json").out, type=protocol.Status) == status
    lost = msgspec.structs.replace(status, draining=None, gpus=[msgspec.structs.replace(GPU, failing=True)])
    daemon.script[protocol.GetStatus] = lost
    state = "accepting work; no executor starts on GPU 0 ('fikitctl doctor' tells why)"
    assert f"state     {state}\n" in fikitctl().out
    daemon.script[ListSessions] = Sessions(sessions=[SESSION])
    looks = fikitctl("top", "--json", "-n", "2", "--interval", "50ms").out.splitlines()
    assert [json.loads(look)["status"]["pid"] for look in looks] == [77, 77]
    assert "GPU%" in fikitctl("top", "--interval", "50ms").out


def test_other_people_s_words_do_not_steer_the_terminal(daemon: Daemon, fikitctl: Fikitctl) -> None:
    evil = "a\nb\x1b[31m\u202e"
    job = msgspec.structs.replace(JOB, name=evil, command=[evil], reason="first\n  second\x07")
    daemon.script[ListJobs] = Jobs(jobs=[job])
    daemon.script[ListSessions] = Sessions(sessions=[])
    listed = fikitctl("ps", "--no-header", "--format", "id,name,reason").out
    assert listed == "job-1  a\\nb\\x1b[31m\\u202e  first\\n  second\\x07\n"
    daemon.script[Show] = Shown(job=job)
    shown = fikitctl("show", "job-1").out.splitlines()
    assert shown[1] == "name          a"
    assert shown[2] == "              b\\x1b[31m\\u202e"
    daemon.script[Show] = protocol.Failure(code="not_found", message=evil, hint=evil)
    assert fikitctl("show", "job-1").err == ("fikitctl: a\nb\\x1b[31m\\u202e\n  hint: a\nb\\x1b[31m\\u202e\n")
    daemon.script[Subscribe] = [Event(kind="drain_started", unix=NOW, detail={"reason": evil})]
    told = fikitctl("events", "--count", "1").out
    assert told.endswith("drain_started reason=a\\nb\\x1b[31m\\u202e\n")


def _output(request: ReadLogs) -> Logs:
    data = {"stdout": b"out \xff\n", "stderr": b"err\n"}[request.stream][request.offset :]
    over = request.follow and not data
    return Logs(data=data, offset=request.offset + len(data), end=over, truncated=False)


def test_logs(daemon: Daemon, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    from fikitctl import main

    daemon.script[ReadLogs] = _output
    for arguments in (["logs", "job-1"], ["logs", "-f", "job-1"]):
        assert main.call(arguments) == 0
        assert capfdbinary.readouterr() == (b"out \xff\n", b"err\n")
    assert main.call(["logs", "--json", "--stream", "stdout", "job-1"]) == 0
    assert base64.b64decode(json.loads(capfdbinary.readouterr().out)["data"]) == b"out \xff\n"


def test_one_of_two_outputs_that_cannot_be_followed_is_told_at_once(
    daemon: Daemon, fikitctl: Fikitctl
) -> None:
    refused = protocol.Failure(code="quota", message="too many connections")
    daemon.script[ReadLogs] = lambda request: refused if request.stream == "stderr" else None
    assert fikitctl("logs", "-f", "job-1") == (1, "", "fikitctl: too many connections\n")


def test_logs_of_nothing(daemon: Daemon, fikitctl: Fikitctl) -> None:
    daemon.script[ReadLogs] = protocol.Failure(code="not_found", message="no job-9")
    assert fikitctl("logs", "-f", "job-9").code == 4


def test_events(daemon: Daemon, fikitctl: Fikitctl) -> None:
    happened = [
        Event(kind="job_started", unix=NOW + 0.25, tenant="ada", job="job-1"),
        Event(kind="job_ended", unix=NOW + 1, job="job-1", detail={"exit_code": 3}),
    ]
    daemon.script[Subscribe] = happened
    result = fikitctl("events", "-f", "--count", "2")
    assert result.out == (
        "08:00:00.250 job_started tenant=ada job=job-1\n08:00:01.000 job_ended job=job-1 exit_code=3\n"
    )
    line = fikitctl("events", "--json", "--kind", "job_ended", "-n", "1").out
    assert msgspec.json.decode(line, type=Event) == happened[1]
    daemon.script[Subscribe] = [Event(kind="subscribed", unix=NOW), *happened]
    assert " job_started " in fikitctl("events", "-n", "1").out
    assert " subscribed\n" in fikitctl("events", "-n", "1", "-k", "subscribed").out


def test_wait(daemon: Daemon, fikitctl: Fikitctl) -> None:
    answers = [protocol.Waited(job=JOB), protocol.Waited(job=ENDED)]
    daemon.script[protocol.Wait] = lambda _request: answers.pop(0)
    assert fikitctl("wait", "--no-header", "job-3") == (1, "job-3  failed  3  -\n", "")
    daemon.script[protocol.Wait] = protocol.Waited(
        job=msgspec.structs.replace(ENDED, state="finished", exit_code=0)
    )
    assert fikitctl("wait", "-q", "job-3") == (0, "job-3\n", "")


def test_jobs_are_printed_as_each_is_over(daemon: Daemon, fikitctl: Fikitctl) -> None:
    over = {name: msgspec.structs.replace(ENDED, job=name) for name in ("job-1", "job-2")}
    late = [msgspec.structs.replace(JOB, job="job-1"), over["job-1"]]
    daemon.script[protocol.Wait] = lambda request: protocol.Waited(
        job=late.pop(0) if request.job == "job-1" else over[request.job]
    )
    printed = fikitctl("wait", "--json", "job-1", "job-2").out.splitlines()
    assert [json.loads(line)["job"] for line in printed] == ["job-2", "job-1"]
    late += [over["job-1"]]
    table = fikitctl("wait", "--no-header", "--format", "id", "job-2", "job-1", "job-2").out
    assert table == "job-2\njob-1\njob-2\n"
    many = [f"job-{number}" for number in range(3, 203)]
    over |= {name: msgspec.structs.replace(ENDED, job=name) for name in many}
    assert fikitctl("wait", "-q", *many).out.split() == many


def test_submit(daemon: Daemon, fikitctl: Fikitctl, tmp_path: Path) -> None:
    daemon.script[protocol.Submit] = protocol.Submitted(job=QUEUED)
    arguments = ["-p", "high", "-m", "1.5G", "-e", "A=b=c", "-C", str(tmp_path)]
    earlier = os.umask(0o027)
    assert fikitctl("submit", *arguments, "--", "python", "-p", "x") == (0, "job-2\n", "")
    assert os.umask(earlier) == 0o027
    sent = daemon.of(protocol.Submit)[0]
    assert (sent.command, sent.priority, sent.memory_limit_bytes) == (["python", "-p", "x"], 0, 3 << 29)
    assert (sent.environment["A"], sent.directory, sent.foreground) == ("b=c", str(tmp_path), False)
    assert sent.umask == 0o027


def test_profiles_travel(daemon: Daemon, fikitctl: Fikitctl, tmp_path: Path) -> None:
    record = protocol.ProfileRecord(
        function="gemm",
        module="ab12",
        device="H200",
        grid=(8, 1, 1),
        block=(256, 1, 1),
        shared_bytes=0,
        samples=9,
        median_ns=12_000,
        p95_ns=15_000,
    )
    daemon.script[protocol.ListProfiles] = protocol.Profiles(profiles=[record])
    daemon.script[protocol.ImportProfiles] = protocol.Done()
    assert fikitctl("profile", "list", "--no-header").out == "gemm  8x1x1  256x1x1  9  12.0us  15.0us\n"
    file = tmp_path / "profiles.json"
    assert fikitctl("profile", "export", str(file)).code == 0
    assert fikitctl("profile", "import", str(file)).code == 0
    assert daemon.of(protocol.ImportProfiles)[0].profiles == [record]
    for text in (b"{}", b'{"x":' + b"[" * 100_000, b'{"profiles":[{"name":"\x80"}]}'):
        file.write_bytes(text)
        refused = fikitctl("profile", "import", str(file))
        assert (refused.code, f"{file}: no profiles" in refused.err) == (1, True)


def test_what_is_done_is_said_in_json_by_every_verb(
    daemon: Daemon, fikitctl: Fikitctl, tmp_path: Path
) -> None:
    file = tmp_path / "profiles.json"
    file.write_text('{"type": "profiles", "profiles": []}')
    for request in (protocol.Pause, protocol.Drain, protocol.ClearProfiles):
        daemon.script[request] = protocol.Done()
    for words in (
        ["pause", "job-1"],
        ["drain"],
        ["profile", "clear", "-y"],
        ["profile", "import", str(file)],
    ):
        assert json.loads(fikitctl("--json", *words).out) == {"type": "done"}, words


def test_a_long_name_leaves_a_table_readable(daemon: Daemon, fikitctl: Fikitctl) -> None:
    """And is whole where it was asked for."""
    records = [
        protocol.ProfileRecord(
            function=name, module="ab12", device="H200", grid=(1, 1, 1), block=(1, 1, 1), shared_bytes=0,
            samples=9, median_ns=1000, p95_ns=1000,
        )
        for name in ("k" * 8000, "gemm")
    ]  # fmt: skip
    daemon.script[protocol.ListProfiles] = protocol.Profiles(profiles=records)
    long, short = fikitctl("profile", "list", "--no-header").out.splitlines()
    assert long.split() == ["k" * 77 + "...", "1x1x1", "1x1x1", "9", "1.0us", "1.0us"]
    assert len(short) == len(long) < 120
    for arguments in (("--format", "function,samples"), ("--json",), ("-q",)):
        assert records[0].function in fikitctl("profile", "list", *arguments).out


def test_doctor(daemon: Daemon, fikitctl: Fikitctl) -> None:
    driver = protocol.Check(name="driver", ok=False, detail="no NVIDIA driver")
    daemon.script[protocol.Doctor] = protocol.Diagnosis(checks=[driver])
    result = fikitctl("doctor")
    assert result.code == 1
    assert result.out.splitlines()[-1] == "FAIL  driver      no NVIDIA driver"
    assert fikitctl("doctor", "-H", "/nonexistent/socket").code == 3


def test_doctor_advises_no_group_that_would_not_help(
    daemon: Daemon, fikitctl: Fikitctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of root above all."""
    daemon.script[protocol.Doctor] = protocol.Diagnosis(checks=[])
    monkeypatch.setattr("os.access", lambda *_arguments: False)
    daemon.path.chmod(0o600)
    told = fikitctl("doctor").out.splitlines()[0]
    assert "usermod" not in told
    assert "not allowed; it is open to no group" in told


def test_trace(daemon: Daemon, fikitctl: Fikitctl, tmp_path: Path) -> None:
    operation = protocol.TraceOperation("session-2", 0, "launch", "gemm", 1000, 2000, 3000, 9000, 0, 8, 16)
    daemon.script |= {
        protocol.StartTrace: protocol.Done(),
        protocol.ReadTrace: protocol.Trace(operations=[operation], dropped=2, missing=["x-1"]),
        protocol.Show: protocol.Shown(session=msgspec.structs.replace(SESSION, session="session-2")),
        protocol.ListGpus: protocol.Gpus(gpus=[msgspec.structs.replace(GPU, index=3)]),
    }
    file = tmp_path / "trace.json"
    result = fikitctl("trace", "--seconds", "10ms", "-o", str(file))
    assert (result.code, result.out) == (0, "")
    assert [ask.gpu for ask in daemon.of(protocol.StartTrace)] == [3]
    assert fikitctl("trace", "--gpu", "0").code == 4
    assert "2 operations did not fit" in result.err
    assert "x-1 ended or did not answer" in result.err
    assert {ask.target for ask in daemon.of(protocol.Show)} == {"session-2"}
    events = json.loads(file.read_bytes())["traceEvents"]
    assert any(event["ph"] == "X" for event in events)
    names = [event["args"] for event in events if event["name"] == "process_name"]
    assert any(f"{SESSION.tenant} / session-2" in name["name"] for name in names)


@pytest.mark.usefixtures("busy")
def test_identifiers_are_completed(
    fikitctl: Fikitctl, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_FIKITCTL_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "fikitctl show job-")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit):
        fikitctl()
    assert capfd.readouterr().out.split() == ["plain,job-1", "plain,job-2", "plain,job-3"]
    monkeypatch.setenv("COMP_WORDS", "fikitctl kill job-")  # of which one that is over is no target
    with pytest.raises(SystemExit):
        fikitctl()
    assert capfd.readouterr().out.split() == ["plain,job-1", "plain,job-2"]
    monkeypatch.setenv("COMP_WORDS", "fikitctl explain ")  # which takes no job
    with pytest.raises(SystemExit):
        fikitctl()
    assert capfd.readouterr().out.split() == ["plain,session-1", "plain,session-2"]
    monkeypatch.setenv("FIKIT_SOCKET", "/nonexistent/socket")
    with pytest.raises(SystemExit):
        fikitctl()
    assert capfd.readouterr().out.strip() == ""
