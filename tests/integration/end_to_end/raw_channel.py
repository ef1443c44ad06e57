"""A tenant that writes its channel by itself (shim/abi.h, shim/calls.h), right or wrong."""

from __future__ import annotations

import mmap
import os
import struct
import time
from contextlib import suppress
from typing import Final

from fikit import protocol as p

from tests.integration.conftest import Client

LAUNCH, CALL = 1, 14
MODULE_LOAD, FUNCTION_GET = 5, 8
NOTES_OFFSET: Final = 4096 + 4096 * 8
REPLY_OFFSET: Final = 4096 + 4096 * 64
ANSWER_SECONDS: Final = 20.0


def put_word(memory: mmap.mmap, offset: int, value: int) -> None:
    """As one store: struct.pack_into clears the place first, and a reader may see a head that fell."""
    memoryview(memory)[offset : offset + 8].cast("Q")[0] = value


class RawChannel:
    """A session's memories and lifeline. Handles are the caller's, and nothing is looked at."""

    def __init__(self, client: Client) -> None:
        opened = client.ask(p.OpenSession(name="hostile"))
        assert isinstance(opened, p.SessionOpened), opened
        self.session = opened.session
        outbox, inbox, lifeline = client.descriptors[-3:]
        self.outbox = mmap.mmap(outbox, 0)
        self.inbox = mmap.mmap(inbox, 0, prot=mmap.PROT_READ)
        self.lifeline = lifeline  # the client closes it
        os.set_blocking(lifeline, False)
        self._ring, self._ring_bytes, self._staging, _ = struct.unpack_from("<4Q", self.outbox, 8)
        self._head = 0
        self._calls = 0

    def write(self, op: int, body: bytes, stream: int = 0, flags: int = 0) -> None:
        """A record behind the others. There must be room in the ring."""
        size = (16 + len(body) + 63) // 64 * 64
        at = self._head % self._ring_bytes
        assert at + size <= self._ring_bytes, "the test writes more than a ring"
        record = struct.pack("<IHHII", size, op, flags, stream, 0) + body
        self.outbox[self._ring + at : self._ring + at + len(record)] = record
        self._head += size
        put_word(self.outbox, 64, self._head)
        with suppress(BlockingIOError):
            os.write(self.lifeline, b"d")

    def call(self, number: int, payload: bytes) -> tuple[int, bytes]:
        """The status and the reply."""
        self.write(CALL, struct.pack("<II", number, len(payload)) + payload)
        self._calls += 1
        limit = time.monotonic() + ANSWER_SECONDS
        while (done := struct.unpack_from("<QiI", self.inbox, 64))[0] != self._calls:
            assert not self.ended, "the session has ended"
            assert time.monotonic() < limit, "no answer"
        return done[1], self.inbox[REPLY_OFFSET : REPLY_OFFSET + done[2]]

    def load(self, image: str, handle: int = 0) -> None:
        """A module, from the staging area."""
        assert self.load_status(image, handle) == 0

    def load_status(self, image: str, handle: int = 0) -> int:
        """The status of loading it."""
        text = image.encode() + b"\0"
        self.outbox[self._staging : self._staging + len(text)] = text
        return self.call(MODULE_LOAD, struct.pack("<IIQQ", handle, 0, 0, len(text)))[0]

    def function(self, name: bytes, handle: int, module: int = 0) -> int:
        """The status of asking for a kernel."""
        return self.call(FUNCTION_GET, struct.pack("<IIII", module, handle, len(name), 0) + name)[0]

    def launch(self, handle: int) -> None:
        """One thread, no parameters."""
        self.write(LAUNCH, struct.pack("<I3I3IIIIII", handle, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0))

    @property
    def ended(self) -> bool:
        """Whether the session is over."""
        return bool(struct.unpack_from("<I", self.inbox, 8)[0])
