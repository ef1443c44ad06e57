"""``demo``: see priorities at work, on the daemon that runs or on one of its own."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click

from fikitctl.invocation import Invocation
from fikitctl.quantities import DURATION, GPU
from fikitctl.verb import Verb


@click.command(
    cls=Verb,
    answer_seconds=None,
    examples=[
        "fikitctl demo",
        "fikitctl demo --own-daemon --json",
        "fikitctl demo --high resnet50_inf --low resnet50_train --seconds 5s",
    ],
)
@click.option("-g", "--gpu", type=GPU, help="Its index or UUID; else the first that is served.")
@click.option(
    "-s",
    "--seconds",
    type=DURATION,
    help="How long to measure each time, in the device's time (default: about ten seconds at most).",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default="fikit-demo",
    show_default=True,
    help="Directory for the traces; open them at ui.perfetto.dev.",
)
@click.option(
    "--high", metavar="NAME", default="llama1b_decode", show_default=True, help="Recorded workload."
)
@click.option("--low", metavar="NAME", default="gpt2_train", show_default=True, help="Recorded workload.")
@click.option(
    "--traces",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of recorded workloads, in place of the one that comes along.",
)
@click.option("--own-daemon", "own", is_flag=True, help="Start a daemon for the demo and stop it afterwards.")
@click.option(
    "--device",
    default="auto",
    show_default=True,
    help="For --own-daemon: what its setting device.choice takes.",
)
@click.pass_obj
def demo(
    invocation: Invocation,
    gpu: int | str | None,
    seconds: float | None,
    output: Path,
    high: str,
    low: str,
    traces: Path | None,
    own: bool,
    device: str,
) -> int:
    """Run high- and low-priority work side by side, and compare.

    By default a language model that decodes and one in training: recorded operations, replayed with their
    shapes and host gaps. Each alone, then as equals, then by priority. Traces of each go to --output.
    """
    from fikitctl.demo import run
    from fikitctl.own_daemon import own_daemon

    with own_daemon(device) if own else nullcontext(invocation.path) as socket:
        return run(
            socket=socket,
            gpu=gpu,
            seconds=seconds,
            as_json=invocation.as_json,
            output=output,
            high=high,
            low=low,
            traces=traces,
        )
