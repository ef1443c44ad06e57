"""``profile measure``: run a command alone and measure every launch, before it shares the GPU with others.

FIKIT's measurement stage (arXiv 2311.10359). It is never needed, since kernels are learnt while they run;
it makes them known from the first shared step on.
"""

from __future__ import annotations

import click
from fikit.protocol import MOST_PROFILES, GetStatus, GpuRecord, Status, Submit

from fikitctl.commands.profile import read_profiles
from fikitctl.commands.run import await_sessions, run_job
from fikitctl.failures import refused
from fikitctl.invocation import Invocation, note
from fikitctl.job_options import FROM_THE_COMMAND_ON, JobOptions, takes_job_options
from fikitctl.served import is_meant
from fikitctl.verb import Verb


@click.command(
    "measure",
    cls=Verb,
    answer_seconds=None,
    context_settings=FROM_THE_COMMAND_ON,
    examples=[
        "fikitctl profile measure -- python serve.py --steps 200",
        "fikitctl profile measure --priority high --gpus 0 -- ./infer --once",
    ],
)
@takes_job_options
@click.option("--beside-others", is_flag=True, help="Even while other sessions use the GPU.")
@click.pass_obj
def measure(invocation: Invocation, job: JobOptions, beside_others: bool) -> int:
    """Run a command in the foreground and measure every launch; its exit code is ours.

    It must have the GPU to itself, or its kernels look longer than they are.
    """
    request = job.request(invocation, foreground=True, measured=True)
    status: Status = invocation.request(GetStatus())
    busy = [each for each in status.gpus if each.sessions and _may_get(request, each)]
    if busy and not beside_others:
        raise refused(
            f"others use GPU {busy[0].index} (sessions: {busy[0].sessions})",
            "wait until they are over, or measure --beside-others",
        )
    before = _samples(invocation)
    ended = run_job(invocation, request)
    await_sessions(invocation, ended.job)
    after = _samples(invocation)
    learnt = {key: count - before.get(key, 0) for key, count in after.items() if count > before.get(key, 0)}
    note(f"{len(learnt)} kernels measured, {sum(learnt.values())} launches")
    return ended.leave()


def _may_get(request: Submit, gpu: GpuRecord) -> bool:
    if not request.gpus or request.gpus == "all":
        return True
    return any(is_meant(gpu, each) for each in request.gpus)


def _samples(invocation: Invocation) -> dict[tuple[object, ...], int]:
    """Measured launches so far, by kernel."""
    return {
        (each.module, each.function, each.grid, each.block, each.shared_bytes, each.device): each.samples
        for each in read_profiles(invocation, MOST_PROFILES).profiles
    }
