"""``trace``: record what a GPU does for a while, to look at in Perfetto."""

from __future__ import annotations

import threading
from typing import IO, Final

import click
import msgspec
from fikit.protocol import ListSessions, ReadTrace, Sessions, StartTrace, Trace

from fikitctl.chrome_trace import chrome_trace
from fikitctl.invocation import Invocation, note
from fikitctl.output import print_json
from fikitctl.quantities import DURATION
from fikitctl.verb import Verb

_FILE: Final = "fikit-trace.json"


@click.command(
    cls=Verb,
    answer_seconds=None,
    examples=[
        "fikitctl trace",
        "fikitctl trace --gpu 1 --seconds 10 --output serving.json",
        "fikitctl trace --seconds 500ms --output - | gzip > trace.json.gz",
    ],
)
@click.option("-g", "--gpu", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "-s", "--seconds", type=DURATION, default="5s", show_default=True, help="How long; Ctrl-C ends it."
)
@click.option("-o", "--output", type=click.File("wb", lazy=True), default=_FILE, show_default=True)
@click.pass_obj
def trace(invocation: Invocation, gpu: int, seconds: float, output: IO[bytes]) -> None:
    """Record what a GPU does and write it as Chrome JSON.

    Open the file at ui.perfetto.dev: a track for each stream of each session, gate waits above it, and
    a track for each partition of the multiprocessors. With --json, print what was recorded instead.
    """
    with invocation.connected() as control:
        control.request(StartTrace(gpu=gpu))
        before: Sessions = control.request(ListSessions())
        try:
            threading.Event().wait(seconds)
        except KeyboardInterrupt:
            note("stopped early")
        recorded: Trace = control.request(ReadTrace(gpu=gpu, stop=True))
        after: Sessions = control.request(ListSessions())
    if invocation.as_json:
        print_json(recorded)
        return
    document = chrome_trace(recorded, [*before.sessions, *after.sessions], gpu)
    output.write(msgspec.json.encode(document))
    output.flush()
    if recorded.dropped:
        note(f"{recorded.dropped} operations did not fit in the recording and are missing")
    if output.name != "-":
        note(f"{len(recorded.operations)} operations in {output.name}; open it at ui.perfetto.dev")
