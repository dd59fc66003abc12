"""powercut.sqlite: its tables, and the one connection to it.

WAL mode with synchronous=FULL: a transaction that returned survives `kill -9` and a power cut.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from harness.errors import StoreError
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
    doubt TEXT NOT NULL
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
CREATE TABLE evidence (finding TEXT PRIMARY KEY, case_id INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE expectations (number INTEGER PRIMARY KEY, body BLOB NOT NULL);
"""


class Database:
    """One connection for the threads of one process; they take turns."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use `create` or `open`."""
        self._connection = connection
        self._lock = threading.RLock()

    @classmethod
    def create(cls, file: Path) -> Database:
        """Make the tables in a new file. Raises sqlite3.Error."""
        connection = _connect(file)
        connection.executescript(f"BEGIN; {_TABLES} COMMIT;")
        with connection:
            connection.execute("INSERT INTO meta VALUES ('schema', ?)", (str(SCHEMA),))
        return cls(connection)

    @classmethod
    def open(cls, file: Path) -> Database:
        """Open what `create` made. Raises StoreError when it is damaged or was written by another version."""
        try:
            connection = _connect(file)
            problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            row = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
        except sqlite3.Error as error:
            raise damaged(file, str(error)) from error
        if problem != "ok" or row is None:
            connection.close()
            raise damaged(file, problem if row else "it names no schema")
        if row[0] != str(SCHEMA):
            connection.close()
            raise other_schema(file, row[0])
        return cls(connection)

    def close(self) -> None:
        """Let go of the file; it is complete without this."""
        self._connection.close()

    def query(self, sql: str, *parameters: object) -> list[tuple]:  # type: ignore[type-arg]  # sqlite3 rows
        """All rows that a statement gives."""
        with self._lock:
            return self._connection.execute(sql, parameters).fetchall()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is done inside, or nothing of it where an exception leaves the block. Not to be nested."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")


def _connect(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file, timeout=30, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


# --- files that cannot be used ---------------------------------------------------------------


def other_schema(file: Path, schema: object) -> StoreError:
    """`file`, of a run directory, was written by another version."""
    return StoreError(
        f"{file} was written in schema {schema}, this powercut reads schema {SCHEMA}",
        "read it with the powercut that wrote it, or run it again",
    )


def damaged(file: Path, why: str) -> StoreError:
    """`file`, of a run directory, cannot be understood."""
    return StoreError(f"{file} is damaged: {why}", "the run cannot be resumed or reported; run it again")
