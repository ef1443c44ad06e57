"""``trace``: record what a GPU does for a while, to look at in Perfetto."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Final

import click
from fikit import RefusedError
from fikit.protocol import ReadTrace, SessionRecord, Show, Shown, StartTrace, Trace

from fikitctl.chrome_trace import chrome_trace
from fikitctl.failures import CommandError
from fikitctl.invocation import Invocation, lift_deadline, note
from fikitctl.leaving import handled
from fikitctl.output import print_json
from fikitctl.quantities import DURATION, GPU
from fikitctl.served import served
from fikitctl.verb import Verb

if TYPE_CHECKING:
    from fikit.control import Connection

_FILE: Final = "fikit-trace.json"
_READ_SECONDS: Final = 0.2


@click.command(
    cls=Verb,
    answer_seconds=None,
    examples=[
        "fikitctl trace",
        "fikitctl trace --gpu 1 --seconds 10 --output serving.json",
        "fikitctl trace --seconds 500ms --output - | gzip > trace.json.gz",
    ],
)
@click.option("-g", "--gpu", type=GPU, help="Its index or UUID; else the first that is served.")
@click.option(
    "-s", "--seconds", type=DURATION, default="5s", show_default=True, help="How long; Ctrl-C ends it."
)
@click.option("-o", "--output", type=click.File("wb", lazy=True), default=_FILE, show_default=True)
@click.pass_obj
def trace(invocation: Invocation, gpu: int | str | None, seconds: float, output: IO[bytes]) -> None:
    """Record what a GPU does and write it as Chrome JSON.

    Open the file at ui.perfetto.dev: a track for each stream of each session, gate waits above it, and
    a track for each partition of the multiprocessors. With --json, print what was recorded instead.
    """
    if not invocation.as_json:
        _check_place(Path(output.name))
    recording, failure = _Recording(), None
    try:
        with invocation.connected() as control:
            recording.read(control, served(control, gpu).index, seconds)
    except CommandError as error:  # the daemon's end, or --timeout, must not cost what was recorded
        if not recording.parts:
            raise
        lift_deadline()
        failure = error
    recorded = recording.whole()
    if invocation.as_json:
        print_json(recorded)
    else:
        _write(recorded, chrome_trace(recorded, recording.sessions(), recording.gpu), output)
    if failure is not None:
        raise failure


def _write(recorded: Trace, document: Iterable[bytes], output: IO[bytes]) -> None:
    output.writelines(document)
    output.flush()
    if recorded.dropped:
        note(f"{recorded.dropped} operations did not fit in the recording and are missing")
    for executor in recorded.missing:
        note(f"{executor} ended or did not answer: what it recorded last is missing")
    if output.name != "-":
        note(f"{len(recorded.operations)} operations in {output.name}; open it at ui.perfetto.dev")


def _check_place(path: Path) -> None:
    """Before anything is recorded for it: a file may be written there. Makes none. Raises OSError."""
    if str(path) == "-":
        return
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    place = path if path.exists() else path.parent
    place.stat()
    if not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


class _Recording:
    """What is recorded of a GPU, as far as it was read.

    Whose it is is asked as it comes: the daemon remembers only some of the sessions that are over.
    """

    def __init__(self) -> None:
        self.gpu = 0
        self.parts: list[Trace] = []
        self._owners: dict[str, SessionRecord | None] = {}

    def read(self, control: Connection, gpu: int, seconds: float) -> None:
        """Read now and then, so that the ring of what is recorded does not run over, and to the end at last.

        Ctrl-C or SIGTERM may come while we ask, and must not cost what was recorded; again is impatience.
        """
        self.gpu = gpu
        control.request(StartTrace(gpu=gpu))
        end, over, stopped = time.monotonic() + seconds, False, False

        def stop(number: int, _frame: FrameType | None) -> None:
            nonlocal stopped
            stopped = True
            signal.signal(number, before[number])

        before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        with handled(stop, *before):
            while not over or self.parts[-1].more:
                if not (self.parts and self.parts[-1].more):
                    threading.Event().wait(max(0.0, min(_READ_SECONDS, end - time.monotonic())))
                over = over or stopped or time.monotonic() >= end
                self.parts.append(control.request(ReadTrace(gpu=gpu, stop=over)))
                for session in {each.session for each in self.parts[-1].operations} - self._owners.keys():
                    self._owners[session] = _owner(control, session)
        if stopped:
            note("stopped early")

    def whole(self) -> Trace:
        """All parts as one."""
        operations = [operation for part in self.parts for operation in part.operations]
        missing = {name for part in self.parts for name in part.missing}
        dropped = sum(part.dropped for part in self.parts)
        return Trace(operations=operations, dropped=dropped, missing=sorted(missing))

    def sessions(self) -> list[SessionRecord]:
        """Those whose operations there are, and that are known."""
        return [owner for owner in self._owners.values() if owner is not None]


def _owner(control: Connection, session: str) -> SessionRecord | None:
    """None: it is forgotten."""
    try:
        shown: Shown = control.request(Show(target=session))
    except RefusedError as refusal:
        if refusal.reason != "not_found":
            raise
        return None
    return shown.session
