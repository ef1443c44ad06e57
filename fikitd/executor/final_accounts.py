"""What sessions that are over have used, left in files until a daemon has it in its store.

An executor writes one beside its socket before it tells anybody; the daemon removes it once the account is
stored. So a session that ends while no daemon runs, or just before one is killed, is accounted for: as long
as the store has the session's note, its account is open and the file says what to close it with.
Everything here blocks.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import msgspec
from fikit.protocol import UNDECODABLE

from fikitd.executor.messages import SessionEnded
from fikitd.scarcity import SCARCE


def leave(directory: Path, ended: SessionEnded) -> None:
    """Let the file appear whole. Raises OSError."""
    path = place(directory, ended.session)
    part = path.with_suffix(".part")
    try:
        part.write_bytes(msgspec.msgpack.encode(ended))
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def find(directory: Path, session: str) -> SessionEnded | None:
    """What the session's executor left; None where it left nothing that can be read.

    Raises OSError where something is short (scarcity.py).
    """
    try:
        return msgspec.msgpack.decode(place(directory, session).read_bytes(), type=SessionEnded)
    except OSError as error:
        if error.errno in SCARCE:
            raise
        return None
    except UNDECODABLE:
        return None


def remove(directory: Path, session: str) -> None:
    """It is in the store."""
    with suppress(OSError):
        place(directory, session).unlink(missing_ok=True)


def keep_only(directory: Path, open_accounts: Collection[str]) -> None:
    """Remove what is in the store already: a daemon was killed before it could."""
    for path in directory.glob("*.account"):
        if path.stem not in open_accounts:
            remove(directory, path.stem)


def place(directory: Path, session: str) -> Path:
    """The session's file."""
    return directory / f"{session}.account"
