"""The processes of a group, while it changes."""

from __future__ import annotations

import os
import subprocess

from fikitd.process_group import owned, owned_members

FORKS = "read go; sleep 1000 & echo $!; read go"


def test_what_is_forked_while_a_group_is_gone_through_is_found() -> None:
    command = ["sh", "-c", FORKS]
    with subprocess.Popen(
        command, process_group=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as leader:
        assert leader.stdin is not None
        assert leader.stdout is not None
        members = owned_members(leader.pid, os.getuid())
        assert next(members)[0] == leader.pid
        leader.stdin.write("\n")
        child = int(leader.stdout.readline())
        assert [pid for pid, _ in members] == [child]
        os.killpg(leader.pid, 9)


def test_a_process_is_owned_by_its_real_user() -> None:
    ours = os.getuid()
    assert owned(os.getpid(), ours)
    assert not owned(os.getpid(), ours + 1)
    assert owned("thread-self", ours)
