"""``pause``, ``resume``, ``priority`` and ``kill``: change work that is there."""

from __future__ import annotations

import click
from fikit.protocol import Kill, Pause, Request, Resume, SetPriority

from fikitctl.invocation import Invocation
from fikitctl.output import print_json
from fikitctl.quantities import GRACE, PRIORITY, SIGNAL
from fikitctl.targets import CURRENT, each
from fikitctl.verb import Verb, confirm, yes_option

targets_argument = click.argument("targets", type=CURRENT, nargs=-1, required=True)


def _send(invocation: Invocation, request: Request) -> None:
    reply = invocation.request(request)
    if invocation.as_json:
        print_json(reply)


@click.command(cls=Verb, examples=["fikitctl pause job-12", "fikitctl pause job-12 s-1f0e9c0a11"])
@targets_argument
@click.pass_obj
def pause(invocation: Invocation, targets: tuple[str, ...]) -> int:
    """Hold jobs or sessions back until 'resume'.

    Nothing more is issued to the GPU; what it has begun is finished; memory stays where it is.
    """
    return each(targets, lambda target: _send(invocation, Pause(target=target)), as_json=invocation.as_json)


@click.command(cls=Verb, examples=["fikitctl resume job-12", "fikitctl resume job-12 s-1f0e9c0a11"])
@targets_argument
@click.pass_obj
def resume(invocation: Invocation, targets: tuple[str, ...]) -> int:
    """Undo 'pause'."""
    return each(targets, lambda target: _send(invocation, Resume(target=target)), as_json=invocation.as_json)


@click.command(
    cls=Verb,
    examples=[
        "fikitctl priority low job-12",
        "fikitctl priority 3 s-1f0e9c0a11",
        "fikitctl priority high job-1 job-2",
    ],
)
@click.argument("level", type=PRIORITY, metavar="PRIORITY")
@targets_argument
@click.pass_obj
def priority(invocation: Invocation, level: int, targets: tuple[str, ...]) -> int:
    """Change the priority of jobs or sessions.

    It holds from their next operation on.
    PRIORITY is high, normal, low, or 0 (highest) to 9.
    """
    return each(
        targets,
        lambda target: _send(invocation, SetPriority(target=target, priority=level)),
        as_json=invocation.as_json,
    )


@click.command(
    cls=Verb,
    answer_seconds=None,
    examples=[
        "fikitctl kill job-12",
        "fikitctl kill -s INT --grace 30s job-12",
        "fikitctl kill --yes s-1f0e9c0a11",
        "fikitctl kill x-5b7a90c2",
    ],
)
@click.option(
    "-s", "--signal", "number", type=SIGNAL, default="TERM", show_default=True, help="What to send."
)
@click.option("--grace", type=GRACE, default="5s", show_default=True, help="After this long, SIGKILL.")
@yes_option
@targets_argument
@click.pass_obj
def kill(invocation: Invocation, number: int, grace: float, yes: bool, targets: tuple[str, ...]) -> int:
    """End jobs or sessions and free what they hold on the GPU.

    Whatever --signal is, SIGKILL follows after --grace. To send one and end nothing, as to have a program
    write a checkpoint: kill -USR1 and the pid that 'show' has.

    A kernel that does not end keeps that, also once its program is gone. It
    ends with its executor (x-..., as 'show' has it), and so do all sessions there.

    Asks first when run by a person at a terminal.
    """
    if not confirm(f"End {', '.join(targets)}?", yes=yes):
        raise click.Abort
    return each(
        targets,
        lambda target: _send(invocation, Kill(target=target, signal=number, grace_ms=round(grace * 1000))),
        as_json=invocation.as_json,
    )
