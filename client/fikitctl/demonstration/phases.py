"""The tenants' processes, phase by phase: started, started together, listened to, and ended whatever happens.

While a phase is traced its tenants go on, but what they do then is not measured: recording costs time.
"""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec
from fikit.protocol import UNDECODABLE

from fikitctl.demonstration.messages import MEASURE, Failed, Measured, Ready, Task, answer
from fikitctl.failures import CommandError, ExitCode, of_reply, refused
from fikitctl.leaving import handled, leave, put_off

START_SECONDS: Final = 120.0
"""For connecting and warming up; also what a measurement may take beyond its time, several times over."""
SLOWEST: Final = 20.0
"""How many times longer than planned a measurement may take."""
_STOP_SECONDS: Final = 5.0

AnswerType = TypeVar("AnswerType", Ready, Measured)


class Tenant:
    """A process that replays a workload; ``fikitctl.demonstration.tenant`` is its other end."""

    def __init__(self, task: Task, program: Sequence[str] = ()) -> None:
        self._task = task
        command = program or (sys.executable, "-P", "-m", "fikitctl.demonstration.tenant")
        self._process = subprocess.Popen(
            [*command, msgspec.json.encode(task).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is for the parent, which ends this one
            bufsize=0,
        )

    def await_ready(self) -> None:
        """Wait until it could start. Raises CommandError."""
        self._expect(Ready, START_SECONDS)

    def start(self) -> None:
        """Let it measure."""
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        try:
            self._process.stdin.write(MEASURE)
        except BrokenPipeError:
            raise self._ended() from None

    def result(self, host_seconds: float) -> Measured:
        """What it measured, which was to take that long. Raises CommandError."""
        return self._expect(Measured, START_SECONDS + SLOWEST * host_seconds)

    def stop(self) -> None:
        """End it: its session first, by itself; never raises."""
        assert self._process.stdin is not None  # noqa: S101 - pipes
        assert self._process.stdout is not None  # noqa: S101
        try:
            self._process.stdin.close()
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()

    def _expect(self, expected: type[AnswerType], seconds: float) -> AnswerType:
        received = self._answer(seconds)
        if isinstance(received, Failed):
            failure = of_reply(received.code, received.message, received.hint)
            raise CommandError(
                failure.exit_code, failure.code, f"{self._who()}: {failure.message}", failure.hint
            )
        if not isinstance(received, expected):
            raise self._ended()
        return received

    def _answer(self, seconds: float) -> Any:
        """The next answer; None at its end."""
        assert self._process.stdout is not None  # noqa: S101 - a pipe
        text, deadline = b"", time.monotonic() + seconds
        while not text.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                message = f"{self._who()} has not answered for {seconds:.0f} s"
                raise CommandError(ExitCode.TIMEOUT, "timeout", message)
            if not (more := self._process.stdout.read(1 << 16)):
                return None
            text += more
        try:
            return answer(text)
        except UNDECODABLE as error:
            raise refused(f"{self._who()} said what nobody understands: {error}") from error

    def _ended(self) -> CommandError:
        status = self._process.wait(_STOP_SECONDS)
        return CommandError(ExitCode.REFUSED, "failed", f"{self._who()} ended with status {status}")

    def _who(self) -> str:
        return f"the tenant with {self._task.workload} at {self._task.priority} priority"


@contextmanager
def measured(tasks: Sequence[Task], time_scale: float) -> Iterator[list[Measured]]:
    """Run tenants together; in the block, what they measured, while they go on."""
    tenants: list[Tenant] = []
    # A tenant that waits for the GPU does not notice that this process has ended.
    with handled(leave, signal.SIGTERM, signal.SIGHUP):
        try:
            for task in tasks:
                with put_off():
                    tenants.append(Tenant(task))
            for tenant in tenants:
                tenant.await_ready()
            for tenant in tenants:
                tenant.start()
            yield [
                tenant.result(task.seconds * time_scale) for tenant, task in zip(tenants, tasks, strict=True)
            ]
        finally:
            for tenant in tenants:
                tenant.stop()
