"""``logs``: what a job wrote, its standard output to ours and its standard error to ours.

Following both streams takes a connection and a thread for each, because a waiting ReadLogs holds its
connection.
"""

from __future__ import annotations

import sys
from collections import deque
from io import BytesIO
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Final, Literal

import click
import msgspec
from fikit.control import MOST_RESTARTS, Connection
from fikit.errors import UnreachableError
from fikit.protocol import Logs, ReadLogs

from fikitctl.failures import CommandError
from fikitctl.invocation import Invocation, note, successor
from fikitctl.output import json_text
from fikitctl.targets import JOB
from fikitctl.verb import Verb

Stream = Literal["stdout", "stderr"]
STREAMS: Final[tuple[Stream, ...]] = ("stdout", "stderr")


class _Reader:
    """Copies one stream of a job, from its beginning, or its last lines, to where it belongs."""

    def __init__(
        self,
        invocation: Invocation,
        job: str,
        stream: Stream,
        *,
        follow: bool,
        tail: int | None,
        writing: Lock,
    ) -> None:
        self._invocation = invocation
        self._job = job
        self._stream: Stream = stream
        self._follow = follow
        self._last: deque[bytes] | None = None if tail is None else deque(maxlen=tail)
        """The last lines of what there is by now, until all of that is read."""
        self._writing = writing
        self._offset = 0
        self._truncated = False
        self.failure: BaseException | None = None

    def read(self) -> None:
        """Copy until the end, or as far as it goes now."""
        with self._invocation.connected() as control:
            self._read(control, MOST_RESTARTS if self._follow else 0)

    def _read(self, control: Connection, most_restarts: int) -> None:
        while True:
            waits = self._follow and self._last is None
            request = ReadLogs(job=self._job, stream=self._stream, offset=self._offset, follow=waits)
            try:
                piece: Logs = control.request(request)
            except UnreachableError:
                if most_restarts == 0:
                    raise
                with successor(control.path) as following:  # the job outlives its daemon
                    return self._read(following, most_restarts - 1)
            if self._last is not None:
                piece = self._shortened(piece, self._last)
            self._write(piece)
            if piece.truncated and not self._truncated:
                self._truncated = True
                note(f"{self._stream} of {self._job} is longer than what is kept of it")
            self._offset = piece.offset
            if piece.end or (self._last is None and not self._follow and not piece.data):
                return None

    def _shortened(self, piece: Logs, last: deque[bytes]) -> Logs:
        """Nothing of it while there is more; then the last lines of all."""
        begun = last.pop() if last and not last[-1].endswith(b"\n") else b""
        last.extend(BytesIO(begun + piece.data))
        if piece.data and not piece.end:
            return msgspec.structs.replace(piece, data=b"")
        self._last = None
        return msgspec.structs.replace(piece, data=b"".join(last))

    def read_aside(self, ended: SimpleQueue[_Reader]) -> None:
        """``read``, keeping the failure for whoever is told that it has ended."""
        try:
            self.read()
        except BaseException as error:  # handed to the main thread
            self.failure = error
        finally:
            ended.put(self)

    def _write(self, piece: Logs) -> None:
        if not piece.data:
            return
        with self._writing:
            if self._invocation.as_json:
                print(json_text({"stream": self._stream, **msgspec.to_builtins(piece)}), flush=True)
                return
            target = getattr(sys, self._stream)
            target.buffer.write(piece.data)
            target.flush()


@click.command(
    cls=Verb,
    answer_seconds=None,
    examples=[
        "fikitctl logs job-12",
        "fikitctl logs -f job-12",
        "fikitctl logs -f --tail 20 job-12",
        "fikitctl logs --stream stderr job-12 2>&1 | tail",
    ],
)
@click.argument("job", type=JOB)
@click.option("-f", "--follow", is_flag=True, help="Go on until the job is over.")
@click.option("-n", "--tail", type=click.IntRange(min=0), help="Only so many lines from the end of each.")
@click.option("--stream", type=click.Choice([*STREAMS, "both"]), default="both", show_default=True)
@click.pass_obj
def logs(invocation: Invocation, job: str, follow: bool, tail: int | None, stream: str) -> None:
    """Print what a job wrote.

    Its standard output goes to ours, its standard error to ours.
    With --json: one object per piece; its data is base64.
    """
    writing = Lock()
    readers = [
        _Reader(invocation, job, name, follow=follow, tail=tail, writing=writing)
        for name in STREAMS
        if stream in (name, "both")
    ]
    if not follow or len(readers) == 1:
        for reader in readers:
            reader.read()
        return
    ended: SimpleQueue[_Reader] = SimpleQueue()
    for reader in readers:
        Thread(target=reader.read_aside, args=(ended,), daemon=True).start()
    for _ in readers:
        failure = ended.get().failure
        if isinstance(failure, CommandError | OSError):
            raise failure
