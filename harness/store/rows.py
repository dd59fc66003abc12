"""Rows with digests: written in a transaction, verified when a run is opened.

See `harness.store.digests` for what a digest covers.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable

from harness.host.files import json_bytes, valid_text
from harness.model import Violation
from harness.store.database import Database, damaged
from harness.store.digests import NOTHING, digest, moved, state_digest
from harness.store.records import Evidence, JudgedState, weight

_DIGESTED = ("id", "name", "status", "reason", "seconds", "mismatch", "known", "states")
_CASE = (*_DIGESTED, "info", "timeline", "digest")  # `known` is the digest of info and timeline
_STATE = "state, prefix, weight, content_hash, verdict, how, unknown"
_VIOLATION = "number, oracle, signature, subject, summary, expected, found"


def insert_case(db: sqlite3.Connection, **columns: object) -> None:
    """Insert a case with all columns except number and digest."""
    names = [*columns, "digest"]
    marks = ", ".join("?" * len(names))
    cursor = db.execute(
        f"INSERT INTO cases ({', '.join(names)}) VALUES ({marks})",  # noqa: S608  # our own names
        (*columns.values(), NOTHING),
    )
    _sign_case(db, int(cursor.lastrowid or 0), before=None)


def change_case(db: sqlite3.Connection, number: int, **columns: object) -> None:
    """Update columns of a case."""
    ((before,),) = db.execute("SELECT digest FROM cases WHERE id = ?", (number,)).fetchall()
    changes = ", ".join(f"{name} = ?" for name in columns)
    db.execute(f"UPDATE cases SET {changes} WHERE id = ?", (*columns.values(), number))  # noqa: S608  # our own names
    _sign_case(db, number, before)


def delete_case(db: sqlite3.Connection, number: int) -> None:
    """Delete a case with all that belongs to it."""
    ((signed,),) = db.execute("SELECT digest FROM cases WHERE id = ?", (number,)).fetchall()
    db.execute("DELETE FROM evidence WHERE case_id = ?", (number,))
    db.execute("DELETE FROM cases WHERE id = ?", (number,))
    ((total,),) = db.execute("SELECT value FROM meta WHERE key = 'cases'").fetchall()
    db.execute("UPDATE meta SET value = ? WHERE key = 'cases'", (moved(total, out=[signed]),))


def _sign_case(db: sqlite3.Connection, number: int, before: str | None) -> None:
    """Update the case's digest, and the root, after a change to the row."""
    columns = ", ".join(_DIGESTED)
    row = db.execute(f"SELECT {columns} FROM cases WHERE id = ?", (number,)).fetchone()  # noqa: S608  # our own names
    signed = digest(*row)
    db.execute("UPDATE cases SET digest = ? WHERE id = ?", (signed, number))
    ((total,),) = db.execute("SELECT value FROM meta WHERE key = 'cases'").fetchall()
    total = moved(total, out=[before] if before else [], into=[signed])
    db.execute("UPDATE meta SET value = ? WHERE key = 'cases'", (total,))


def move_states(db: sqlite3.Connection, number: int, *, out: Iterable[str], into: Iterable[str] = ()) -> None:
    """Update the case's sum of state digests: remove `out`, add `into`."""
    ((total,),) = db.execute("SELECT states FROM cases WHERE id = ?", (number,)).fetchall()
    change_case(db, number, states=moved(total, out=out, into=into))


def put_state(db: sqlite3.Connection, number: int, case: str, judged: JudgedState) -> tuple[list[str], str]:
    """Insert or replace a state of the case; returns the digests removed and the one added."""
    name = str(judged.state)
    old = db.execute("SELECT digest FROM states WHERE case_id = ? AND state = ?", (number, name)).fetchall()
    if old:
        db.execute("DELETE FROM states WHERE case_id = ? AND state = ?", (number, name))
    row = (
        name,
        judged.state.prefix,
        weight(judged.state),
        judged.content_hash,
        judged.judgement.verdict.value,
        judged.how.value,
        json_bytes(judged.judgement.unknown),
    )
    violations = [(i, *_texts(v)) for i, v in enumerate(judged.judgement.violations)]
    signed = state_digest((case, *row), violations)
    db.execute("INSERT INTO states VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (number, *row, signed))
    db.executemany(
        "INSERT INTO violations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", ((number, name, *v) for v in violations)
    )
    return [d for (d,) in old], signed


def put_evidence(db: sqlite3.Connection, number: int, finding: str, evidence: Evidence) -> None:
    """Insert or replace the evidence of a finding of the case."""
    row = (finding, number, json_bytes(evidence))
    db.execute("INSERT OR REPLACE INTO evidence VALUES (?, ?, ?, ?)", (*row, digest(*row)))


KNOWN = "known"
"""The row of `meta` that a run has if it has known bugs of its own: their digest, and they as JSON."""


def put_known(db: sqlite3.Connection, body: bytes) -> None:
    """Keep the known bugs of a run, in place of what was kept before."""
    text = body.decode()
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (KNOWN, f"{digest(text)} {text}"))


def _known_is_right(value: str) -> bool:
    kept, _, text = value.partition(" ")
    return not value or kept == digest(text)


def _texts(v: Violation) -> tuple[str, ...]:
    texts = (v.oracle, v.signature, v.subject, v.summary, v.expected, v.found)
    return tuple(map(valid_text, texts))


# --- verification ----------------------------------------------------------------------------


def root(database: Database) -> str:
    """The digest over all cases and verdicts."""
    ((total,),) = database.query("SELECT value FROM meta WHERE key = 'cases'")
    return str(total)


def verify(database: Database, seal: str) -> None:
    """Raises StoreError for a changed or missing row and, if the run is sealed, for a database other than the
    sealed one.
    """
    with database.unchanging():
        wrong = _wrong_meta(database) or _wrong_case(database) or _wrong_evidence(database)
        sealed = not seal or root(database) == seal
    if wrong:
        raise damaged(database.file, f"{wrong} is not what was written")
    if not sealed:
        raise damaged(database.file, "it is not the database that the run was finished with")


def _wrong_meta(database: Database) -> str:
    meta = dict(database.query("SELECT key, value FROM meta"))
    texts = all(isinstance(value, str) for value in meta.values())  # a damaged byte may make a blob of one
    if not texts or meta.keys() - {KNOWN} != {"schema", "cases", "expectations"}:
        return "the list of digests"
    if not _known_is_right(meta.get(KNOWN, "")):
        return "a known bug"
    bodies = [body for (body,) in database.query("SELECT body FROM expectations ORDER BY number")]
    return "" if digest(*bodies) == meta["expectations"] else "an expected failure"


def _wrong_case(database: Database) -> str:
    """Names the first case with a wrong row, state or violation, or the set of which some are missing."""
    total, states, violations = NOTHING, 0, 0
    for row in database.query(f"SELECT {', '.join(_CASE)} FROM cases ORDER BY id"):  # noqa: S608  # our own names
        case = dict(zip(_CASE, row, strict=True))
        if case["known"] != digest(case["info"], case["timeline"]):
            return f"what is known of the case {case['name']}"
        if case["digest"] != digest(*(case[column] for column in _DIGESTED)):
            return f"the case {case['name']}"
        found = _States(database, case["id"], case["name"])
        if found.wrong or found.total != case["states"]:
            return f"{found.wrong or 'the set of states'} of the case {case['name']}"
        total = moved(total, into=[case["digest"]])
        states, violations = states + found.states, violations + found.violations
    if total != root(database):
        return "the set of cases"
    ((all_states,),) = database.query("SELECT COUNT(*) FROM states")
    ((all_violations,),) = database.query("SELECT COUNT(*) FROM violations")
    return "" if (all_states, all_violations) == (states, violations) else "the set of states"


class _States:
    """The states of a case: how many, how many violations, the sum of their digests, and the first wrong one,
    if any.
    """

    def __init__(self, database: Database, number: int, case: str) -> None:
        self.wrong = ""
        of_state: dict[str, list[tuple[object, ...]]] = defaultdict(list)
        for state, *texts in database.query(
            f"SELECT state, {_VIOLATION} FROM violations WHERE case_id = ? ORDER BY state, number",  # noqa: S608  # our own names
            number,
        ):
            of_state[state].append(tuple(texts))
        rows = database.query(
            f"SELECT {_STATE}, digest FROM states WHERE case_id = ?",  # noqa: S608  # our own names
            number,
        )
        for *row, signed in rows:
            if state_digest((case, *row), of_state[row[0]]) != signed:
                self.wrong = f"state {row[0]}"
                break
        self.states = len(rows)
        self.violations = sum(map(len, of_state.values()))
        self.total = moved(NOTHING, into=[str(row[-1]) for row in rows] if not self.wrong else [])


def _wrong_evidence(database: Database) -> str:
    for *row, signed in database.query("SELECT finding, case_id, body, digest FROM evidence"):
        if digest(*row) != signed:
            return f"the evidence of finding {row[0]}"
    return ""
