"""What must outlive the daemon: one SQLite file in WAL mode, used from one thread at a time.

SQLite because it already does what a journal of our own would have to: a torn last write is not seen, a
commit is on the disk when it returns, a full disk fails the one transaction and keeps all earlier ones.
Records are MessagePack of a struct, so a newer daemon that adds fields reads older files.
A file that is no database any more is set aside: what runs is known from the executors and the jobs'
directories, and a daemon that did not start would help nobody.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import structlog
import trio
from fikit.protocol import Usage

from fikitd.errors import Unavailable
from fikitd.scarcity import in_thread

SCHEMA_VERSION: Final = 5
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS jobs (number INTEGER PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (session TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tenants (uid INTEGER, gpu INTEGER, usage BLOB NOT NULL, PRIMARY KEY (uid, gpu))
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS profiles (
    module TEXT, function TEXT, grid TEXT, block TEXT, shared_bytes INTEGER, device TEXT, uid INTEGER,
    samples INTEGER NOT NULL, median_ns INTEGER NOT NULL, p95_ns INTEGER NOT NULL,
    shortest_ns INTEGER NOT NULL DEFAULT 0, block_ns INTEGER NOT NULL DEFAULT 0,
    wrong INTEGER NOT NULL DEFAULT 0, key TEXT NOT NULL DEFAULT '', gaps TEXT NOT NULL DEFAULT '[]',
    saved_ns INTEGER NOT NULL DEFAULT 0, size INTEGER AS (1 + length(CAST(function AS BLOB)) / 512) STORED,
    PRIMARY KEY (module, function, grid, block, shared_bytes, device, uid));
CREATE INDEX IF NOT EXISTS profiles_of_users ON profiles (uid, saved_ns, size);
CREATE INDEX IF NOT EXISTS profiles_by_samples ON profiles (samples DESC, uid);
"""
"""Profiles are listed from any place on: what is left out must cost little, as others wait for the file.
Names of kernels may have 32 KiB, and are in the table and in its key: ``size`` is about an entry's in KiB.
"""
UPGRADES: Final = {
    1: """
ALTER TABLE profiles ADD COLUMN shortest_ns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE profiles ADD COLUMN block_ns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE profiles ADD COLUMN wrong INTEGER NOT NULL DEFAULT 0;
ALTER TABLE profiles ADD COLUMN key TEXT NOT NULL DEFAULT '';
ALTER TABLE profiles ADD COLUMN gaps TEXT NOT NULL DEFAULT '[]';
""",
    2: "ALTER TABLE profiles ADD COLUMN saved_ns INTEGER NOT NULL DEFAULT 0;\n",
    3: """
ALTER TABLE profiles ADD COLUMN uid INTEGER NOT NULL DEFAULT -1;
DROP INDEX IF EXISTS profiles_saved;
""",
    4: """
ALTER TABLE profiles RENAME TO shared_profiles;
CREATE TABLE profiles (
    module TEXT, function TEXT, grid TEXT, block TEXT, shared_bytes INTEGER, device TEXT, uid INTEGER,
    samples INTEGER NOT NULL, median_ns INTEGER NOT NULL, p95_ns INTEGER NOT NULL,
    shortest_ns INTEGER NOT NULL DEFAULT 0, block_ns INTEGER NOT NULL DEFAULT 0,
    wrong INTEGER NOT NULL DEFAULT 0, key TEXT NOT NULL DEFAULT '', gaps TEXT NOT NULL DEFAULT '[]',
    saved_ns INTEGER NOT NULL DEFAULT 0, size INTEGER AS (1 + length(CAST(function AS BLOB)) / 512) STORED,
    PRIMARY KEY (module, function, grid, block, shared_bytes, device, uid));
INSERT INTO profiles
    SELECT module, function, grid, block, shared_bytes, device, uid, samples, median_ns, p95_ns,
    shortest_ns, block_ns, wrong, key, gaps, saved_ns FROM shared_profiles;
DROP TABLE shared_profiles;
""",
}
"""What makes a file of one schema one of the next."""
SCHEMA_PLACES: Final = ("user_version", "application_id")
"""A file says its schema twice: it is left alone as a newer fikitd's only where both say so."""

LOCK_SECONDS: Final = 5.0
"""Wait so long for another program, a backup's for instance, that holds the file."""
DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
"""The last: what we ask of every file is no mistake, but where a bit has flipped in this one's schema."""
FAILURES: Final = (sqlite3.Error, MemoryError)
"""The latter where SQLite finds no memory."""
HINTS: Final = {
    sqlite3.SQLITE_BUSY: "another program holds it: end that and try again",
    sqlite3.SQLITE_NOMEM: "try again later",
    sqlite3.SQLITE_FULL: "free disk space and try again",
}
LOOK: Final = "'fikitctl doctor' looks at the state directory"

Row = tuple[Any, ...]
Values = Sequence[Any] | Mapping[str, Any]
"""What a statement's places hold, by their order or their names."""
Record = TypeVar("Record", bound=msgspec.Struct)
Found = TypeVar("Found")


def pack(record: msgspec.Struct) -> bytes:
    """A record as it lies in the file."""
    return msgspec.msgpack.encode(record)


def unpack(data: bytes, kind: type[Record]) -> Record:
    """A record of the file; fields it lacks have their defaults, fields we do not know are ignored."""
    return msgspec.msgpack.decode(data, type=kind)


class Store:
    """The file. Every method is one transaction; Unavailable says that the disk refused it."""

    def __init__(self, connection: sqlite3.Connection, path: Path, fresh: bool, aside: Path | None) -> None:
        self._connection = connection
        self._path = path
        self._owner = trio.CapacityLimiter(1)
        self._waiting: dict[object, float] = {}
        self._opened = path.stat()
        self.fresh = fresh
        """There was none, or it was set aside."""
        self.aside = aside
        """Where the damaged file is now that lay here before."""

    @classmethod
    async def open(cls, path: Path) -> Store:
        """Open or make the file; a damaged one is set aside. Raises Unavailable."""

        def open_or_make() -> Store:
            aside = None
            try:
                connection, version = connect(path)
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # that one in SQLite's own message
                broken = isinstance(error, UnicodeDecodeError)
                if not broken and getattr(error, "sqlite_errorcode", 0) & 0xFF not in DAMAGED:
                    raise
                aside = set_aside(path)
                connection, version = connect(path)
            return cls(connection, path, version == 0, aside)

        try:
            return await in_thread(open_or_make)
        except (*FAILURES, OSError) as error:
            raise Unavailable(f"cannot open the state file {path}: {told(error)}") from None

    @property
    def there(self) -> bool:
        """Whether the file is still where it was opened. Blocking."""
        try:
            return os.path.samestat(self._path.stat(), self._opened)
        except OSError:
            return False

    @property
    def waits(self) -> float:
        """For how long something has been about to be written, in seconds; 0: nothing is."""
        return trio.current_time() - min(self._waiting.values(), default=trio.current_time())

    async def write(self, statements: Iterable[tuple[str, Values]]) -> None:
        """Run all statements, or none."""
        prepared, waiting = list(statements), object()

        def transact() -> None:
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                for statement, values in prepared:
                    connection.execute(statement, values)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

        self._waiting[waiting] = trio.current_time()
        try:
            await in_thread(transact, limiter=self._owner)
        except FAILURES as error:
            hint = HINTS.get(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_NOMEM) & 0xFF, LOOK)
            raise Unavailable(f"cannot write the state file {self._path}: {told(error)}", hint) from None
        finally:
            del self._waiting[waiting]

    async def read(self, statement: str, values: Values = ()) -> list[Row]:
        """The rows of a query."""

        def fetch() -> list[Row]:
            return self._connection.execute(statement, values).fetchall()

        try:
            return await in_thread(fetch, limiter=self._owner)
        except FAILURES as error:
            raise Unavailable(f"cannot read the state file {self._path}: {told(error)}") from None

    async def readable(self, statement: str, of: Callable[[Row], Found], values: Values = ()) -> list[Found]:
        """What ``of`` makes of each row; one that it can make nothing of is reported and left out."""
        found = []
        for row in await self.read(statement, values):
            try:
                found.append(of(row))
            except (msgspec.MsgspecError, ValueError, TypeError) as error:
                structlog.get_logger().error("record_unreadable", row=repr(row)[:200], reason=str(error))
        return found

    async def records(self, statement: str, kind: type[Record]) -> list[tuple[Any, Record]]:
        """Pairs of a key and a record."""
        return await self.readable(statement, lambda row: (row[0], unpack(row[1], kind)))

    async def setting(self, name: str) -> str | None:
        """A remembered value."""
        rows = await self.read("SELECT value FROM settings WHERE name=?", (name,))
        return str(rows[0][0]) if rows else None

    async def remember(self, name: str, value: str | None) -> None:
        """Set a value, or forget it."""
        if value is None:
            await self.write([("DELETE FROM settings WHERE name=?", (name,))])
        else:
            await self.write([("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))])

    async def load_usage(self) -> dict[tuple[int, int], Usage]:
        """What each tenant (uid) has used of each GPU in sessions that are over."""
        statement = "SELECT uid, gpu, usage FROM tenants"
        return dict(
            await self.readable(statement, lambda row: ((int(row[0]), int(row[1])), unpack(row[2], Usage)))
        )

    async def close(self) -> None:
        """Fold the WAL into the file."""
        await in_thread(self._connection.close, limiter=self._owner)


def told(error: BaseException) -> str:
    """What went wrong; for want of memory Python says nothing."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY:
        return "it could be opened for reading alone"
    return "out of memory" if isinstance(error, MemoryError) else str(error)


def connect(path: Path) -> tuple[sqlite3.Connection, int]:
    """The file, made or brought to this schema, and the schema that it had; 0: it was empty. Blocking."""
    connection = opened(path)
    try:
        check_writable(connection)
        version, again = (connection.execute(f"PRAGMA {place}").fetchone()[0] for place in SCHEMA_PLACES)
        if version > SCHEMA_VERSION and version != again:  # a bit has flipped
            raise damage(f"schema {version} or {again}")
        if version > SCHEMA_VERSION:
            raise sqlite3.DatabaseError(f"written by a newer fikitd (schema {version})")
        if version < 0:
            raise damage(f"schema {version}")
        connection.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;")
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise damage(found)
        with closing(sqlite3.connect(":memory:")) as model:
            model.executescript(SCHEMA)
            wanted = columns(model)
        if version < SCHEMA_VERSION or wanted - columns(connection):  # else a full disk will do
            steps = [UPGRADES[older] for older in range(version, SCHEMA_VERSION)] if version else []
            version_set = [f"PRAGMA {place}={SCHEMA_VERSION};" for place in SCHEMA_PLACES]
            script = "".join([*steps, SCHEMA, *version_set])
            connection.executescript(f"BEGIN; {script} COMMIT;")
        if missing := wanted - columns(connection):
            raise damage(f"it lacks {missing}")
    except BaseException:
        connection.close()
        raise
    return connection, version


def opened(path: Path, locking_mode: str = "NORMAL") -> sqlite3.Connection:
    """A connection that has read something."""
    connection = sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)
    connection.text_factory = lambda text: text.decode(errors="replace")
    try:
        connection.execute(f"PRAGMA locking_mode={locking_mode}")
        connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        connection.close()
        # No room for the index that connections share, which a clean end removed. One that keeps others out
        # has it in memory (SQLite, "Use of WAL Without Shared-Memory").
        if error.sqlite_errorcode == sqlite3.SQLITE_IOERR_SHMSIZE and locking_mode == "NORMAL":
            return opened(path, "EXCLUSIVE")
        raise
    return connection


def check_writable(connection: sqlite3.Connection) -> None:
    """Raises sqlite3.Error where the file, or what belongs to it, is open for reading alone.

    SQLite does that by itself where it is refused more, for want of a descriptor just then, and stays so.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")  # no more than a read, where no more is to be had
        connection.execute("PRAGMA user_version=0")
    except sqlite3.Error as error:  # another program that writes to it does no harm
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_READONLY:
            raise
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def damage(what: str) -> sqlite3.DatabaseError:
    """As SQLite reports it, where it does not."""
    error = sqlite3.DatabaseError(what)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def columns(connection: sqlite3.Connection) -> set[Row]:
    """The names of the tables' columns."""
    statement = "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c"
    return set(connection.execute(statement))


def set_aside(path: Path) -> Path:
    """Move a damaged file and what belongs to it out of the way, and keep it. Blocking. Raises OSError."""
    aside = path.with_name(f"{path.name}.damaged-{int(time.time())}")
    path.replace(aside)
    for suffix in ("-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.replace(aside.with_name(aside.name + suffix))
    return aside
