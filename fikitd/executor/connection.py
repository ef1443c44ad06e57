"""The daemon's end of an executor's control socket: questions with answers, and events.

Every question has a deadline. An answer that comes after its deadline is dropped and its descriptors are
closed, so nothing leaks when an executor is slow. When the connection breaks, every open question fails.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import trio
from fikit.protocol import Failure, ProtocolError, UnsendableError, encode

from fikitd.errors import Unavailable
from fikitd.executor.messages import Answer, AnyAnswer, Ask, Attached
from fikitd.wire import PeerClosedError, Wire, close_all

ATTACHED_DESCRIPTORS: Final = 2
EVENT_ID: Final = 0
LAST_LOOK_SECONDS: Final = 0.5
"""For what may have come, or been about to, while we were stopped or the whole machine was."""
Kind = TypeVar("Kind", bound=Answer)


class Silent(Unavailable):
    """The executor is connected and did not answer in time."""


class Ended(Unavailable):
    """The connection broke, before the question or before its answer."""

    def __init__(self) -> None:
        super().__init__("the executor has ended")


class Question:
    """A question whose answer is awaited."""

    def __init__(self) -> None:
        self.answered = trio.Event()
        self.answer: Any = None
        self.descriptors: list[int] = []


class ExecutorConnection:
    """One connection to one executor; ``run`` must run while anything is asked."""

    def __init__(self, stream: trio.socket.SocketType) -> None:
        self._wire = Wire(stream, AnyAnswer)
        self._questions: dict[int, Question] = {}
        self._next_id = EVENT_ID + 1
        self._sending = trio.Lock()
        self._closed = False
        credentials = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.listener_pid = int.from_bytes(credentials[:4], sys.byteorder)
        """Who listens there, as the kernel knows it."""

    @classmethod
    async def open(cls, path: Path) -> ExecutorConnection:
        """Connect. Raises OSError."""
        stream = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            await stream.connect(str(path))
        except BaseException:
            stream.close()
            raise
        return cls(stream)

    async def run(self, on_event: Callable[[Answer], None]) -> None:
        """Receive until the connection ends, which is how this returns."""
        try:
            while True:
                for identifier, body in await self._wire.receive():
                    self._deliver(identifier, body, on_event)
        except (PeerClosedError, ProtocolError):
            return
        finally:
            self.close()

    def _deliver(self, identifier: int, body: Any, on_event: Callable[[Answer], None]) -> None:
        descriptors = self._wire.take_descriptors(ATTACHED_DESCRIPTORS) if isinstance(body, Attached) else []
        if identifier == EVENT_ID and isinstance(body, Answer):
            on_event(body)
            return
        question = self._questions.pop(identifier, None)
        if question is None:
            close_all(descriptors)
            return
        question.answer, question.descriptors = body, descriptors
        question.answered.set()

    async def ask(
        self, body: Ask, kind: type[Kind], seconds: float, handed: Sequence[int] = ()
    ) -> tuple[Kind, list[int]]:
        """The answer, and the descriptors beside it, now the caller's. Raises Unavailable."""
        question, identifier = Question(), self._next_id
        self._next_id += 1
        if self._closed:
            raise Ended
        self._questions[identifier] = question
        try:
            with trio.move_on_after(seconds):
                async with self._sending:
                    await self._wire.send(encode(identifier, body), handed)
                await question.answered.wait()
            with trio.fail_after(LAST_LOOK_SECONDS):
                await question.answered.wait()
        except trio.TooSlowError:
            raise Silent(f"the executor did not answer within {seconds:g} s") from None
        except PeerClosedError:
            raise Ended from None
        except UnsendableError as error:
            raise Unavailable(f"the executor cannot be asked: {error}") from None
        finally:
            self._questions.pop(identifier, None)
            descriptors, question.descriptors = question.descriptors, []
            wanted = question.answered.is_set() and isinstance(question.answer, kind)
            if not wanted or sys.exc_info()[0] is not None:
                close_all(descriptors)
        return self._checked(question.answer, body, kind), descriptors

    @staticmethod
    def _checked(answer: Any, body: Ask, kind: type[Kind]) -> Kind:
        if isinstance(answer, kind):
            return answer
        if isinstance(answer, Failure):
            raise Unavailable(f"the executor refused: {answer.message}", answer.hint)
        if answer is None:
            raise Ended
        raise Unavailable(f"the executor answered {type(body).__name__} with {answer!r:.200}")

    def close(self) -> None:
        """End the connection; whatever was asked fails."""
        if not self._closed:
            self._closed = True
            self._wire.close()
            for question in self._questions.values():
                question.answered.set()
