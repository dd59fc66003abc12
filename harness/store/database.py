"""powercut.sqlite: its tables, and the one connection to it.

WAL mode with synchronous=FULL: a transaction that returned survives `kill -9` and a power cut; one of several
that are made `together`, when all have returned. Later damage is detected by the digests in the rows: see
`harness.store.digests`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from harness.errors import StoreError
from harness.store.digests import NOTHING, digest
from harness.store.records import SCHEMA

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE cases (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    info BLOB NOT NULL,
    timeline BLOB NOT NULL,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    seconds REAL NOT NULL,
    mismatch TEXT NOT NULL,
    known TEXT NOT NULL,   -- digest of info and timeline
    states TEXT NOT NULL,  -- sum of the states' digests
    digest TEXT NOT NULL
);
CREATE TABLE states (
    case_id INTEGER NOT NULL REFERENCES cases(id) ON DELETE CASCADE,
    state TEXT NOT NULL,
    prefix INTEGER NOT NULL,
    weight INTEGER NOT NULL,
    content_hash TEXT NOT NULL,
    verdict TEXT NOT NULL,
    how TEXT NOT NULL,
    unknown BLOB NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (case_id, state)
) WITHOUT ROWID;
CREATE TABLE violations (
    case_id INTEGER NOT NULL,
    state TEXT NOT NULL,
    number INTEGER NOT NULL,
    oracle TEXT NOT NULL,
    signature TEXT NOT NULL,
    subject TEXT NOT NULL,
    summary TEXT NOT NULL,
    expected TEXT NOT NULL,
    found TEXT NOT NULL,
    PRIMARY KEY (case_id, state, number),
    FOREIGN KEY (case_id, state) REFERENCES states(case_id, state) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE TABLE evidence (
    finding TEXT PRIMARY KEY,
    case_id INTEGER NOT NULL,
    body BLOB NOT NULL,
    digest TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE expectations (number INTEGER PRIMARY KEY, body BLOB NOT NULL);
"""


_WHOLE = ("BEGIN IMMEDIATE", ("ROLLBACK",), "COMMIT")
_PART = ("SAVEPOINT part", ("ROLLBACK TO part", "RELEASE part"), "RELEASE part")
"""How a transaction begins, is undone, and ends: by itself, and within another one."""


class Database:
    """One connection, shared by the threads of a process under a lock."""

    def __init__(self, connection: sqlite3.Connection, file: Path) -> None:
        """Use `create` or `open`."""
        self.file = file
        self._connection = connection
        self._lock = threading.RLock()
        self._together = self._checkpoint_due = False

    @classmethod
    def create(cls, file: Path, *, durable: bool = True) -> Database:
        """Make the tables in a new file; `durable`: what was written survives a power cut. Raises
        sqlite3.Error.
        """
        connection = _connect(file)
        if not durable:
            connection.execute("PRAGMA synchronous = OFF")
        connection.executescript(f"BEGIN; {_TABLES} COMMIT;")
        with connection:
            known = [("schema", str(SCHEMA)), ("cases", NOTHING), ("expectations", digest())]
            connection.executemany("INSERT INTO meta VALUES (?, ?)", known)
        return cls(connection, file)

    @classmethod
    def open(cls, file: Path) -> Database:
        """Open what `create` made. Raises StoreError when it is damaged or was written by another version."""
        with read_from(file):
            connection = _connect(file)
            try:
                _examine(connection, file)
            except BaseException:
                connection.close()
                raise
        return cls(connection, file)

    def close(self) -> None:
        self._connection.close()

    def query(self, sql: str, *parameters: object) -> list[tuple]:  # type: ignore[type-arg]  # sqlite3 rows
        """All rows of a statement. Raises StoreError if they cannot be read."""
        with self._lock, read_from(self.file):
            return self._connection.execute(sql, parameters).fetchall()

    @contextlib.contextmanager
    def unchanging(self) -> Iterator[None]:
        """Queries in the block see one state of the database, whatever another process writes meanwhile."""
        with self._lock, read_from(self.file):
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction: committed at the end of the block, or of the `together` in which it is; rolled back
        on an exception. Does not nest.
        """
        with self._lock, _asked_of(self.file):
            begin, undo, end = _PART if self._together else _WHOLE
            self._connection.execute(begin)
            try:
                yield self._connection
            except BaseException:
                if self._connection.in_transaction:  # SQLite ends it where the disk is full
                    for statement in undo:
                        self._connection.execute(statement)
                raise
            self._connection.execute(end)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Transactions of this thread that are committed at the end of the block, with one flush of the
        host's disk for all. Each stays atomic: one that fails takes none of the others back. Until the end,
        other threads wait. Does not nest.
        """
        with self._lock:
            try:
                with _asked_of(self.file):
                    self._connection.execute("BEGIN IMMEDIATE")
                self._together = True
                yield
            finally:
                self._together = False
                with _asked_of(self.file):
                    if self._connection.in_transaction:
                        self._connection.execute("COMMIT")
                if self._checkpoint_due:
                    self.checkpoint()

    def checkpoint(self) -> None:
        """Checkpoint the WAL into the database file, at the end of `together`: SQLite silently drops the WAL
        after a damaged byte. A transaction that a signal left open is rolled back.
        """
        with self._lock, read_from(self.file):
            self._checkpoint_due = self._together
            if self._together:
                return
            if self._connection.in_transaction:  # a signal was raised between BEGIN and its end
                self._connection.execute("ROLLBACK")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _examine(connection: sqlite3.Connection, file: Path) -> None:
    """Raises StoreError for a file that is not a database of this schema, or fails the integrity check."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    if row is None:
        raise damaged(file, "it names no schema")
    if row[0] != str(SCHEMA):
        raise other_schema(file, row[0])
    for pragma in ("integrity_check(1)", "foreign_key_check"):
        problem = connection.execute(f"PRAGMA {pragma}").fetchone()
        if problem is not None and problem[0] != "ok":
            raise damaged(file, str(problem[0]))
    if _schema_of(connection) != _expected_schema():
        raise damaged(file, "its tables are not those of its schema")


def _schema_of(connection: sqlite3.Connection) -> list[tuple]:  # type: ignore[type-arg]  # sqlite3 rows
    return connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
    ).fetchall()


@functools.cache
def _expected_schema() -> list[tuple]:  # type: ignore[type-arg]  # sqlite3 rows
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_TABLES)
        return _schema_of(connection)


def reading(file: Path) -> str:
    """The URI of a database that is only read. Where nothing can be made beside it, SQLite is told that
    nobody writes, as long as none of it is in a journal (https://sqlite.org/wal.html).
    """
    journal = file.with_name(f"{file.name}-wal")
    is_whole = not journal.exists() or not journal.stat().st_size
    how = "immutable=1" if is_whole and not os.access(file.parent, os.W_OK) else "mode=ro"
    return f"{file.absolute().as_uri()}?{how}"


def _connect(file: Path) -> sqlite3.Connection:
    written = os.access(file.parent, os.W_OK)
    where = file.absolute().as_uri() if written else reading(file)
    connection = sqlite3.connect(where, timeout=30, isolation_level=None, check_same_thread=False, uri=True)
    try:
        if written:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


# --- files that cannot be used ---------------------------------------------------------------

_REFUSED_BY_THE_HOST = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_NOMEM,
)
"""Errors that say nothing about the file's contents: a full disk, a lock, permissions."""


@contextlib.contextmanager
def _asked_of(file: Path) -> Iterator[None]:
    """Turns SQLite errors in the block that come from the file's contents into StoreError: it is damaged."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & 0xFF in _REFUSED_BY_THE_HOST:
            raise
        raise damaged(file, str(error) or type(error).__name__) from error


@contextlib.contextmanager
def read_from(file: Path) -> Iterator[None]:
    """Turns read and decode errors in the block into StoreError: `file` is damaged."""
    try:
        with _asked_of(file):
            yield
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
        raise damaged(file, str(error) or type(error).__name__) from error


def other_schema(file: Path, schema: object) -> StoreError:
    """The error for a `file` of a run directory written by another version."""
    return StoreError(
        f"{file} was written in schema {schema}, this powercut reads schema {SCHEMA}",
        "read it with the powercut that wrote it, or run it again",
    )


def damaged(file: Path, why: str) -> StoreError:
    """The error for a damaged `file` of a run directory. `why` may quote the file: it is made one printable
    line.
    """
    printable = " ".join("".join(c if c.isprintable() else " " for c in why).split())
    return StoreError(
        f"{file} is damaged: {printable}", "the run cannot be resumed or reported; run it again"
    )
