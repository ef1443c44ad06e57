"""``fikitctl logs`` with a real daemon: what a job wrote, all of it, once."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from fikit import protocol as p

from fikitd.jobs.runner import Output
from tests.integration.conftest import DEADLINE_SECONDS, Daemon
from tests.integration.test_daemon_jobs import submit, wait_for

LOGS = [sys.executable, "-P", "-c", "from fikitctl.main import main; main()", "logs"]


@pytest.mark.shares_daemon
def test_output_of_many_pieces_is_whole(daemon: Daemon, client: Any) -> None:
    job = client.ask(submit("seq 500000")).job
    assert wait_for(client, job.job).state == "finished"
    told = subprocess.run([*LOGS, job.job], env=daemon.environment(), capture_output=True, check=True)
    assert told.stdout.split() == [str(number).encode() for number in range(1, 500_001)]


@pytest.mark.shares_daemon
def test_every_piece_is_followed(daemon: Daemon, client: Any, tmp_path: Path) -> None:
    words = tmp_path / "words"
    os.mkfifo(words)
    job = client.ask(submit(f"exec cat {words}")).job
    following = [*LOGS, "-f", "--stream", "stdout", job.job]
    with (
        subprocess.Popen(following, env=daemon.environment(), stdout=subprocess.PIPE) as follower,
        words.open("wb", buffering=0) as said,
    ):
        assert follower.stdout is not None
        for word in (b"one\n", b"two\n", b"three\n", b"four\n"):
            said.write(word)
            assert select.select([follower.stdout], [], [], DEADLINE_SECONDS)[0], word
            assert os.read(follower.stdout.fileno(), 100) == word
        said.close()
        assert follower.wait(DEADLINE_SECONDS) == 0


@pytest.mark.shares_daemon
@pytest.mark.parametrize(
    ("lines", "stdout", "stderr"),
    [
        ("0", b"", b""),
        ("2", b"300000\nend", b"2\n3\n"),
        ("5", b"299997\n299998\n299999\n300000\nend", b"1\n2\n3\n"),
    ],
)
def test_the_last_lines_of_each_output(
    daemon: Daemon, client: Any, lines: str, stdout: bytes, stderr: bytes
) -> None:
    job = client.ask(submit("seq 300000; printf end; seq 3 >&2")).job
    assert wait_for(client, job.job).state == "finished"
    for options in (["-n", lines], ["-f", "--tail", lines]):
        told = subprocess.run(
            [*LOGS, *options, job.job], env=daemon.environment(), capture_output=True, check=True
        )
        assert (told.stdout, told.stderr) == (stdout, stderr)


@pytest.mark.shares_daemon
def test_what_follows_the_last_lines_is_followed(daemon: Daemon, client: Any, tmp_path: Path) -> None:
    words = tmp_path / "words"
    os.mkfifo(words)
    job = client.ask(submit(f"exec cat {words}")).job
    following = [*LOGS, "-f", "--tail", "1", "--stream", "stdout", job.job]
    with words.open("wb", buffering=0) as said:
        said.write(b"one\ntwo\nth")
        while client.ask(p.ReadLogs(job=job.job)).data != b"one\ntwo\nth":
            pass
        with subprocess.Popen(following, env=daemon.environment(), stdout=subprocess.PIPE) as follower:
            assert follower.stdout is not None
            for more, whole in ((b"ree\n", b"th"), (b"four\n", b"ree\n"), (b"", b"four\n")):
                assert follower.stdout.read(len(whole)) == whole
                said.write(more)
            said.close()
            assert follower.wait(DEADLINE_SECONDS) == 0


def test_what_the_command_takes_of_its_own_output_is_not_waited_for(tmp_path: Path) -> None:
    """It may open /dev/stdout and read: its runner, which saw it coming, must go on listening."""
    output = Output(tmp_path / "stdout", 100)
    os.write(output.writer, b"taken")
    assert select.select([output.reader], [], [], 0)[0]
    with open(f"/dev/fd/{output.writer}", "rb", buffering=0) as command:
        assert command.read(100) == b"taken"
    pumping = Thread(target=output.pump, daemon=True)
    pumping.start()
    pumping.join(DEADLINE_SECONDS)
    assert not pumping.is_alive()


@pytest.mark.parametrize("limit", [0, 5])
def test_output_that_is_lost_behind_a_full_limit_leaves_its_mark(tmp_path: Path, limit: int) -> None:
    """Also where what came before filled it to the last byte. What ends there has lost nothing."""
    output = Output(tmp_path / "stdout", limit)
    kept = b"12345"[:limit]
    if kept:
        os.write(output.writer, kept)
        output.pump()
    assert (tmp_path / "stdout").read_bytes() == kept
    for _ in range(2):
        os.write(output.writer, b"more")
        output.pump()
    mark = b"\n[fikitd: limit of %d bytes reached; further output is discarded]\n" % limit
    assert (tmp_path / "stdout").read_bytes() == kept + mark
