"""Which of the jobs that are over are remembered, and until when."""

from __future__ import annotations

import os
from pathlib import Path

from fikit import protocol as p

from tests.integration.conftest import Daemon
from tests.integration.test_daemon_jobs import submit, wait_for


def held(place: Path, then: str = "true") -> p.Submit:
    """A job that goes on until somebody opens the FIFO."""
    os.mkfifo(place)
    return submit(f"read word < {place}; {then}")


def test_a_job_that_took_longer_than_many_that_came_later_is_kept(stopped_daemon: Daemon) -> None:
    stopped_daemon.configure("[jobs]\nkeep_ended = 2\n")
    client = stopped_daemon.start().client()
    gate = stopped_daemon.place / "gate"
    long = client.ask(held(gate, "echo result")).job.job
    for _ in range(4):
        assert wait_for(client, client.ask(submit("true")).job.job).state == "finished"
    stopped_daemon.stop(9)
    client = stopped_daemon.start().client()  # the order of their ends outlives it
    gate.write_bytes(b"\n")
    assert wait_for(client, long).state == "finished"
    while len(jobs := client.ask(p.ListJobs()).jobs) > 2:
        pass
    assert jobs[0].job == long
    assert client.ask(p.ReadLogs(job=long)).data == b"result\n"


def test_who_waits_for_jobs_of_which_none_is_kept_is_told_of_their_ends(stopped_daemon: Daemon) -> None:
    stopped_daemon.configure("[jobs]\nkeep_ended = 0\n")
    client = stopped_daemon.start().client()
    gate = stopped_daemon.place / "gate"
    job = client.ask(held(gate)).job.job
    for _ in range(40):  # they are served in turn, and look at files
        client.send(p.ReadLogs(job=job, follow=True))
    waits = {client.send(p.Wait(job=job)) for _ in range(20)}
    client.ask(p.ListJobs())  # by now they wait
    other = stopped_daemon.client()
    gate.write_bytes(b"\n")
    while other.ask(p.ListJobs()).jobs:
        pass
    while waits:
        identifier, reply = client.receive()
        if identifier in waits:
            waits.discard(identifier)
            assert reply.job.state == "finished", reply
