"""Which of the jobs that are over are remembered, and until when."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
from fikit import protocol as p

from fikitd.jobs.model import Job
from fikitd.jobs.records import surplus
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


def test_a_job_starts_while_thousands_are_being_forgotten(stopped_daemon: Daemon) -> None:
    client = stopped_daemon.start().client()
    wait_for(client, client.ask(submit("true")).job.job)
    assert stopped_daemon.stop() == 0
    with closing(sqlite3.connect(stopped_daemon.place / "state" / "state.db")) as state:
        ((record,),) = state.execute("SELECT record FROM jobs")
        ended = msgspec.msgpack.decode(record, type=Job)
        more = (msgspec.structs.replace(ended, number=number, ended_as=number) for number in range(2, 6000))
        state.executemany(
            "INSERT INTO jobs VALUES (?, ?)", ((job.number, msgspec.msgpack.encode(job)) for job in more)
        )
        state.commit()
    stopped_daemon.configure("[jobs]\nkeep_ended = 2\n")
    client = stopped_daemon.start().client()
    assert wait_for(client, client.ask(submit("true")).job.job).state == "finished"
    assert len(client.ask(p.ListJobs()).jobs) > 3  # it was not the turn of the last of them yet


def test_a_job_that_was_killed_as_it_waited_does_not_begin_when_the_state_is_lost(
    stopped_daemon: Daemon,
) -> None:
    stopped_daemon.configure("[jobs]\nmax_running = 0\n")
    client = stopped_daemon.start().client()
    mark = stopped_daemon.place / "mark"
    job = client.ask(submit(f"touch {mark}")).job.job
    assert client.ask(p.Kill(target=job)) == p.Done()
    assert wait_for(client, job).state == "killed"
    stopped_daemon.stop()
    for part in (stopped_daemon.place / "state").glob("state.db*"):
        part.unlink()
    stopped_daemon.configure()
    client = stopped_daemon.start().client()
    assert (
        wait_for(client, client.ask(submit("true")).job.job).state == "finished"
    )  # who came first begins first
    assert (wait_for(client, job).state, mark.exists()) == ("lost", False)


def test_records_that_a_flipped_bit_made_impossible_are_known_from_their_directories(
    stopped_daemon: Daemon,
) -> None:
    """Clients take no list of jobs with one that has the priority 13."""
    client = stopped_daemon.start().client()
    jobs = [client.ask(submit(f"exit {code}")).job.job for code in (3, 4, 5)]
    assert [wait_for(client, job).exit_code for job in jobs] == [3, 4, 5]
    assert stopped_daemon.stop() == 0
    with closing(sqlite3.connect(stopped_daemon.place / "state" / "state.db")) as state:
        for number, field, value in ((1, "priority", 13), (2, "number", 3), (3, "sessions", ["S-1"])):
            ((record,),) = state.execute("SELECT record FROM jobs WHERE number=?", (number,))
            changed = {**msgspec.msgpack.decode(record), field: value}
            state.execute(
                "UPDATE jobs SET record=? WHERE number=?", (msgspec.msgpack.encode(changed), number)
            )
        state.commit()
    client = stopped_daemon.start().client()
    assert [wait_for(client, job).exit_code for job in jobs] == [3, 4, 5]
    assert [each.job for each in client.ask(p.ListJobs()).jobs] == jobs


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


def test_output_that_is_kept_leaves_others_room(stopped_daemon: Daemon, small_disk: Path) -> None:
    """Who has most of it loses what ended first; the disk is everybody's."""
    client = stopped_daemon.start().client()
    for number in range(1, 12):
        job = client.ask(submit(f"head -c 100000 /dev/zero; echo {number}")).job.job
        assert wait_for(client, job).state == "finished"
    while len(jobs := client.ask(p.ListJobs()).jobs) > 3:
        pass
    kept = ["job-9", "job-10", "job-11"]
    assert [each.job for each in jobs] == kept
    assert {path.name for path in (small_disk / "jobs").iterdir()} == set(kept)


def ended(number: int, uid: int) -> Job:
    """One that is over."""
    return Job(
        number=number,
        tenant=str(uid),
        uid=uid,
        gid=uid,
        groups=(),
        name="job",
        command=["true"],
        directory="/",
        priority=5,
        gpu_asked=None,
        state="finished",
    )


def test_who_has_most_output_makes_room_for_that_of_others() -> None:
    over = [ended(number, uid=number % 2) for number in range(1, 9)]
    taken = {number: 1 if number % 2 else 100 for number in range(1, 9)}

    def forgotten(room: int, most: int = 8) -> list[int]:
        return [job.number for job in surplus(over, most, taken, room)]

    assert forgotten(303) == []
    assert forgotten(302) == [2]
    assert forgotten(103) == [2, 4]
    assert forgotten(0) == [2, 4, 6, 1, 3, 5]  # the last of each stays
    assert forgotten(103, most=6) == [1, 2, 4]
    taken[8] = 10_000
    assert forgotten(303) == []  # what stays takes no room of others'
    taken[2] = 0
    assert forgotten(0) == [4, 6, 1, 3, 5]  # of a foreground job there is nothing to remove
