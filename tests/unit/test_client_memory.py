"""Device memory against a channel that does nothing: what holds while a copy is under way."""

from __future__ import annotations

from typing import cast

import pytest
from fikit._channel import Channel
from fikit.core import Core
from fikit.memory import Memory


class Resizing:
    """A channel during whose copies another thread would resize the host's side."""

    def __init__(self) -> None:
        self.content = bytearray(8)

    def resize(self) -> None:
        with pytest.raises(BufferError):
            self.content.extend(bytes(8))

    def copy_to_device(self, stream: int, to: int, source: object) -> tuple[int, bool]:
        self.resize()
        return 0, False

    def copy_to_host(self, stream: int, to: object, source: int) -> tuple[int, bool]:
        self.resize()
        return 0, False


def test_the_host_side_of_a_copy_keeps_its_size() -> None:
    channel = Resizing()
    memory = Memory(Core(cast(Channel, channel)), 0x1000, 8, owned=False)
    memory.copy_from(channel.content)
    memory.copy_to(channel.content)
    channel.content.extend(bytes(8))
