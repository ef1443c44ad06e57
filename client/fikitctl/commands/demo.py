"""``demo``: see priorities at work, on the daemon that runs or on one of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path

import click

from fikitctl.invocation import Invocation
from fikitctl.quantities import DURATION
from fikitctl.verb import Verb


@click.command(
    cls=Verb,
    answer_seconds=None,
    examples=[
        "fikitctl demo",
        "fikitctl demo --own-daemon --seconds 20s",
        "fikitctl demo --json --output demo.json",
    ],
)
@click.option("-s", "--seconds", type=DURATION, default="10s", show_default=True, help="How long to measure.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here."
)
@click.option("--own-daemon", "own", is_flag=True, help="Start a daemon for the demo and stop it afterwards.")
@click.option(
    "--device",
    default="auto",
    show_default=True,
    help="For --own-daemon: what its setting device.choice takes.",
)
@click.pass_obj
def demo(invocation: Invocation, seconds: float, output: Path | None, own: bool, device: str) -> int:
    """Run high- and low-priority work side by side, and compare."""
    run: Callable[..., int] = import_module("fikitctl.demo").run
    from fikitctl.own_daemon import own_daemon

    with own_daemon(device) if own else nullcontext(invocation.path) as socket:
        return run(socket=socket, seconds=seconds, as_json=invocation.as_json, output=output)
