"""A run's directory and what is kept in it: cases, crash states with their verdicts, findings' evidence.

```
reports/runs/<date>-<name>/    run.json          what was run, on what, by which version
                               powercut.sqlite   cases, states, violations, evidence
                               cases/<fs>-<mode>/<workload>/   recordings, written by `harness.run`
                               findings/<hash12>/ and the reports, written by `harness.report`
reports/latest -> runs/...
```

SQLite in WAL mode with synchronous=FULL and one transaction a call: after `kill -9`, or a power cut, the
run holds every call that returned, and nothing of one that did not. Findings are no table: they are computed
from the violations, so they cannot depend on the order in which the states came in.

Not kept here: trees, images, logs. A crash state is a recipe; whoever wants its bytes makes them again.
Text of foreign origin (paths, kernel messages) is kept as UTF-8, other bytes written as `\\udcff`.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import os
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from harness.errors import StoreError, UsageError
from harness.expectations import Expectation, first_match
from harness.model import (
    CaseId,
    CrashPoint,
    CrashState,
    EntryFlag,
    History,
    Judgement,
    LogEntry,
    Verdict,
    Violation,
)

SCHEMA = 1
"""Raised whenever a run directory changes its meaning; another number is refused."""

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE cases (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    info BLOB NOT NULL,
    timeline BLOB NOT NULL,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    seconds REAL NOT NULL
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


# --- what is kept ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """The kernel under test. `name`: as the user named it; `release`, `version`: as uname(2) says."""

    name: str
    version: str = ""
    release: str = ""
    sha256: str = ""
    details: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MachineInfo:
    """How the kernel was run. `kind`: `qemu` or `uml`; `accel`: `kvm`, `tcg` or empty."""

    kind: str
    accel: str = ""
    qemu_version: str = ""
    cpus: int = 1
    details: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What is in run.json. Times carry a time zone; `finished` None: the run goes on, or died."""

    name: str
    powercut: str
    git_head: str
    argv: tuple[str, ...]
    kernel: KernelInfo
    machine: MachineInfo
    host: str
    started: datetime
    jobs: int = 1
    finished: datetime | None = None
    interrupted: bool = False
    schema: int = SCHEMA


class CaseStatus(enum.StrEnum):
    """How far a case has come. Only DONE counts as decided; NOT_RUN was never meant to be."""

    PLANNED = "planned"
    RECORDED = "recorded"
    DONE = "done"
    UNKNOWN = "unknown"
    NOT_RUN = "not-run"


class How(enum.StrEnum):
    """How a verdict was come by."""

    JUDGED = "judged"  # a guest recovered it and the oracles judged what came back
    SAME_CONTENT = "same-content"  # the same bytes as a state that was judged
    MEMO = "memo"  # agrees with a judged state in all that its recovery read
    REDUCED = "reduced"  # judged to make a finding smaller; not one of the enumerated states


class DrawnEntry(msgspec.Struct, frozen=True, array_like=True):
    """What a drawing needs of a log entry.

    `kind`: `write`, `flush`, `fua`, `flush+fua`, `discard` or `mark`.
    """

    index: int
    kind: str
    sector: int
    sectors: int
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """An operation as text with the log entries of its marks; see `harness.model.HistoryStep`."""

    index: int
    text: str
    begin: int | None
    ack: int | None


@dataclass(frozen=True, slots=True)
class CaseInfo:
    """What is known of a case beside its verdicts.

    `generated`, `distinct`: crash states enumerated, and different contents among them.
    `log_hash`: of the recording; verdicts belong to one recording and go when it changes.
    `steps`, `timeline`: from `steps_of` and `timeline_of`.
    """

    case: CaseId
    mkfs_options: str = ""
    mount_options: str = ""
    workload_summary: str = ""
    oracles: tuple[str, ...] = ()
    generated: int = 0
    distinct: int = 0
    log_hash: str = ""
    steps: tuple[Step, ...] = ()
    timeline: tuple[DrawnEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class CaseRecord:
    """A case as the store has it. `info.timeline` is left empty: ask `RunStore.timeline`."""

    info: CaseInfo
    status: CaseStatus
    reason: str
    seconds: float

    @property
    def case(self) -> CaseId:
        return self.info.case


@dataclass(frozen=True, slots=True)
class JudgedState:
    """A crash state with its judgement. `content_hash`: of the device's contents, or empty."""

    state: CrashState
    content_hash: str
    judgement: Judgement
    how: How = How.JUDGED


@dataclass(frozen=True, slots=True)
class StateVerdict:
    """A crash state's verdict without its violations."""

    state: CrashState
    content_hash: str
    verdict: Verdict
    how: How
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnknownReason:
    """Why `states` states could not be decided; `example` is the smallest of them."""

    reason: str
    states: int
    example: CrashState


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one case. `checked` states have a verdict: checked == passed + failed + unknown.
    `contents`: different contents among them.
    """

    generated: int = 0
    distinct: int = 0
    passed: int = 0
    failed: int = 0
    unknown: int = 0
    contents: int = 0

    @property
    def checked(self) -> int:
        return self.passed + self.failed + self.unknown


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen at `state` of a finding. `notes`: further named texts, such as `tree`."""

    state: CrashState
    kernel_log: str = ""
    fsck: str = ""
    notes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """Violations of one oracle with one signature in one case, shown at their smallest crash state.

    Smallest: fewest writes dropped or torn, then the shortest prefix. `states`: how many enumerated states
    show it. `expectation`: why it is known already, if it is.
    """

    case: CaseId
    oracle: str
    signature: str
    state: CrashState
    violations: tuple[Violation, ...]
    states: int
    expectation: Expectation | None = None

    @property
    def id(self) -> str:
        return finding_id(self.case, self.oracle, self.signature)

    @property
    def summary(self) -> str:
        return self.violations[0].summary

    @property
    def crash_point(self) -> CrashPoint:
        return CrashPoint(self.case, self.state)


def finding_id(case: CaseId, oracle: str, signature: str) -> str:
    """Twelve hexadecimal digits that stay the same from run to run."""
    text = f"{case}|{oracle}|{_clean(signature)}"
    return hashlib.blake2b(text.encode()).hexdigest()[:12]


def state_order(state: CrashState) -> tuple[int, int, tuple[int, ...], int]:
    """Sort key: simplest crash states first."""
    torn = -1 if state.torn_sectors is None else state.torn_sectors
    return (_weight(state), state.prefix, state.dropped, torn)


def steps_of(history: History) -> tuple[Step, ...]:
    """The history in the form that is kept."""
    return tuple(Step(s.index, _clean(str(s.operation)), s.begin, s.ack) for s in history.steps)


def timeline_of(entries: Iterable[LogEntry]) -> tuple[DrawnEntry, ...]:
    """The write log in the form that is kept. `sectors` of a `flush` counts data that came with it."""
    kinds = (
        (EntryFlag.MARK, "mark"),
        (EntryFlag.DISCARD, "discard"),
        (EntryFlag.FLUSH | EntryFlag.FUA, "flush+fua"),
        (EntryFlag.FUA, "fua"),
        (EntryFlag.FLUSH, "flush"),
    )
    return tuple(
        DrawnEntry(
            e.index,
            next((kind for flags, kind in kinds if flags in e.flags), "write"),
            e.sector,
            e.sectors,
            _clean(e.mark),
        )
        for e in entries
    )


# --- the store -------------------------------------------------------------------------------


class RunStore:
    """One run on disk. One process writes; any of its threads may call. Use as a context manager."""

    def __init__(self, path: Path, info: RunInfo, database: sqlite3.Connection) -> None:
        """Use `create` or `open`."""
        self.path = path
        self._info = info
        self._database = database
        self._lock = threading.RLock()

    # opening and closing

    @classmethod
    def create(cls, root: Path, name: str, info: RunInfo) -> RunStore:
        """Make `root/runs/<date>-<name>`, never one that is there, and point `root/latest` at it.

        Raises UsageError for a name that is no file name, StoreError when the directory cannot be made.
        """
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", name):
            raise UsageError(f"{name!r} cannot name a run", "use letters, digits and . _ + -")
        info = replace(info, name=name, schema=SCHEMA)
        try:
            path = _unique_directory(root / "runs", f"{info.started:%Y%m%d-%H%M%S}-{name}")
            for folder in ("cases", "findings"):
                (path / folder).mkdir()
            database = _connect(path / "powercut.sqlite")
            database.executescript(f"BEGIN; {_TABLES} COMMIT;")
            with database:
                database.execute("INSERT INTO meta VALUES ('schema', ?)", (str(SCHEMA),))
            write_atomically(path / "run.json", json_text(info))
            _point(root / "latest", path)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"cannot make a run directory below {root}: {error}", "choose another --reports folder"
            ) from error
        return cls(path, info, database)

    @classmethod
    def open(cls, path: Path) -> RunStore:
        """Open a run directory, or a link to one. Raises StoreError when it is none, was written by another
        version, or is damaged.
        """
        path = path.resolve()
        info = _read_info(path)
        file = path / "powercut.sqlite"
        if not file.is_file():
            raise StoreError(
                f"{path} has a run.json and no powercut.sqlite", "run it again; it cannot be resumed"
            )
        try:
            database = _connect(file)
            problem = database.execute("PRAGMA quick_check(1)").fetchone()[0]
            row = database.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
        except sqlite3.Error as error:
            raise _corrupt(file, str(error)) from error
        if problem != "ok" or row is None:
            database.close()
            raise _corrupt(file, problem if row else "it names no schema")
        if row[0] != str(SCHEMA):
            database.close()
            raise _other_schema(file, row[0])
        return cls(path, info, database)

    def close(self) -> None:
        """Let go of the database; the directory is complete without this."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # the run

    @property
    def info(self) -> RunInfo:
        return self._info

    def finish(self, finished: datetime | None = None, *, interrupted: bool = False) -> None:
        """Note when the run ended (now, if not given) and whether it was stopped before its plan was done."""
        self.update_info(replace(self._info, finished=finished or datetime.now(UTC), interrupted=interrupted))

    def update_info(self, info: RunInfo) -> None:
        """Replace run.json, when more has become known (a guest's release) or the run is resumed."""
        write_atomically(self.path / "run.json", json_text(info))
        self._info = info

    def set_expectations(self, expectations: Sequence[Expectation]) -> None:
        """Replace the failures that are known. They change what a finding means, not what was seen."""
        with self._transaction() as db:
            db.execute("DELETE FROM expectations")
            db.executemany("INSERT INTO expectations VALUES (?, ?)", enumerate(map(json_bytes, expectations)))

    def expectations(self) -> tuple[Expectation, ...]:
        """The known failures, in the order of their file."""
        rows = self._query("SELECT body FROM expectations ORDER BY number")
        return tuple(msgspec.json.decode(body, type=Expectation) for (body,) in rows)

    # cases

    def case_directory(self, case: CaseId) -> Path:
        """Where the recording of a case belongs; made if it is not there."""
        path = self.path / "cases" / f"{case.filesystem}-{case.mode}" / case.workload
        path.mkdir(parents=True, exist_ok=True)
        return path

    def finding_directory(self, finding: str) -> Path:
        """Where what is told of finding `finding` belongs; made if it is not there."""
        path = self.path / "findings" / finding
        path.mkdir(parents=True, exist_ok=True)
        return path

    def add_case(self, info: CaseInfo, status: CaseStatus = CaseStatus.PLANNED, reason: str = "") -> int:
        """Put in a case, or replace what is known of it; answers with its row number.

        Status and reason of a case that is already there stay. Its verdicts stay too, unless both recordings
        are known and differ: verdicts about another log say nothing about this one.
        """
        name = str(info.case)
        known = json_bytes(replace(info, timeline=()))
        timeline = json_bytes(info.timeline)
        with self._transaction() as db:
            row = db.execute("SELECT id, info FROM cases WHERE name = ?", (name,)).fetchone()
            if row is None:
                cursor = db.execute(
                    "INSERT INTO cases VALUES (NULL, ?, ?, ?, ?, ?, 0)",
                    (name, known, timeline, status.value, _clean(reason)),
                )
                return int(cursor.lastrowid or 0)
            number = int(row[0])
            before = msgspec.json.decode(row[1], type=CaseInfo).log_hash
            if before and info.log_hash and before != info.log_hash:
                db.execute("DELETE FROM states WHERE case_id = ?", (number,))
                db.execute("DELETE FROM evidence WHERE case_id = ?", (number,))
            db.execute(
                "UPDATE cases SET info = ?, timeline = ? WHERE id = ?",
                (known, timeline, number),
            )
            return number

    def set_case_status(self, case: CaseId, status: CaseStatus, reason: str = "") -> None:
        """Say how far a case has come, with the reason for UNKNOWN and NOT_RUN."""
        with self._transaction() as db:
            number = self._number(case)
            db.execute(
                "UPDATE cases SET status = ?, reason = ? WHERE id = ?", (status.value, _clean(reason), number)
            )

    def set_case_seconds(self, case: CaseId, seconds: float) -> None:
        """Say how long a case took, all parts of a resumed run together."""
        with self._transaction() as db:
            db.execute("UPDATE cases SET seconds = ? WHERE id = ?", (seconds, self._number(case)))

    def cases(self) -> tuple[CaseRecord, ...]:
        """Every case, in the order in which they were added."""
        rows = self._query("SELECT info, status, reason, seconds FROM cases ORDER BY id")
        return tuple(
            CaseRecord(msgspec.json.decode(info, type=CaseInfo), CaseStatus(status), reason, seconds)
            for info, status, reason, seconds in rows
        )

    def case(self, case: CaseId) -> CaseRecord | None:
        """One case, or None when the run has none of that name."""
        return next((record for record in self.cases() if record.case == case), None)

    def timeline(self, case: CaseId) -> tuple[DrawnEntry, ...]:
        """The case's write log, for drawing."""
        ((body,),) = self._query("SELECT timeline FROM cases WHERE id = ?", self._number(case))
        return msgspec.json.decode(body, type=tuple[DrawnEntry, ...])

    # verdicts

    def put_judgements(self, case: CaseId, batch: Iterable[JudgedState]) -> None:
        """Keep a batch, all of it or nothing. A state that is already there is replaced, so that handing in
        the same batch twice changes nothing and a state that was UNKNOWN can be decided later.
        """
        with self._transaction() as db:
            number = self._number(case)
            for judged in batch:
                name = str(judged.state)
                db.execute("DELETE FROM states WHERE case_id = ? AND state = ?", (number, name))
                db.execute(
                    "INSERT INTO states VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        number,
                        name,
                        judged.state.prefix,
                        _weight(judged.state),
                        judged.content_hash,
                        judged.judgement.verdict.value,
                        judged.how.value,
                        json_bytes(judged.judgement.unknown),
                    ),
                )
                db.executemany(
                    "INSERT INTO violations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        (number, name, i, *map(_clean, texts))
                        for i, texts in enumerate(map(_texts, judged.judgement.violations))
                    ),
                )

    def judged_states(self, case: CaseId, *, decided_only: bool = False) -> set[str]:
        """Names of the states that have a verdict; with `decided_only`, that have PASS or FAIL."""
        sql = "SELECT state FROM states WHERE case_id = ?"
        if decided_only:
            sql += " AND verdict != 'unknown'"
        return {name for (name,) in self._query(sql, self._number(case))}

    def iter_verdicts(self, case: CaseId) -> Iterator[StateVerdict]:
        """Verdicts by prefix, then by what was dropped and torn; states of a reduction among them."""
        rows = self._query(
            "SELECT state, content_hash, verdict, how, unknown FROM states WHERE case_id = ?"
            " ORDER BY prefix, weight, state",
            self._number(case),
        )
        for state, content, verdict, how, unknown in rows:
            notes = tuple(msgspec.json.decode(unknown, type=list[str]))
            yield StateVerdict(CrashState.parse(state), content, Verdict(verdict), How(how), notes)

    def violated(self, case: CaseId) -> dict[str, frozenset[tuple[str, str]]]:
        """By state the (oracle, signature) of what was violated there; other states are not in it."""
        rows = self._query(
            "SELECT state, oracle, signature FROM violations WHERE case_id = ?", self._number(case)
        )
        found: dict[str, set[tuple[str, str]]] = {}
        for state, oracle, signature in rows:
            found.setdefault(state, set()).add((oracle, signature))
        return {state: frozenset(kinds) for state, kinds in found.items()}

    def counts(self, case: CaseId) -> Counts:
        """How many of the case's enumerated states there are and what became of them."""
        ((info,),) = self._query("SELECT info FROM cases WHERE id = ?", self._number(case))
        known = msgspec.json.decode(info, type=CaseInfo)
        rows = self._query(
            "SELECT verdict, COUNT(*) FROM states WHERE case_id = ? AND how != 'reduced' GROUP BY verdict",
            self._number(case),
        )
        by = {Verdict(verdict): int(count) for verdict, count in rows}
        ((contents,),) = self._query(
            "SELECT COUNT(DISTINCT iif(content_hash = '', state, content_hash))"
            " FROM states WHERE case_id = ? AND how != 'reduced'",
            self._number(case),
        )
        return Counts(
            known.generated,
            known.distinct,
            by.get(Verdict.PASS, 0),
            by.get(Verdict.FAIL, 0),
            by.get(Verdict.UNKNOWN, 0),
            contents,
        )

    def counts_by_how(self, case: CaseId) -> dict[How, int]:
        """How the verdicts were come by; only the ways that occur, in the order of `How`."""
        rows = self._query(
            "SELECT how, COUNT(*) FROM states WHERE case_id = ? GROUP BY how", self._number(case)
        )
        by = {How(how): int(count) for how, count in rows}
        return {how: by[how] for how in How if how in by}

    def unknown_reasons(self, case: CaseId) -> tuple[UnknownReason, ...]:
        """Why enumerated states of this case could not be decided, most frequent first."""
        states: dict[str, list[CrashState]] = {}
        for seen in self.iter_verdicts(case):
            if seen.verdict is Verdict.UNKNOWN and seen.how is not How.REDUCED:
                for reason in dict.fromkeys(seen.unknown):
                    states.setdefault(reason, []).append(seen.state)
        reasons = (UnknownReason(why, len(at), min(at, key=state_order)) for why, at in states.items())
        return tuple(sorted(reasons, key=lambda r: (-r.states, r.reason)))

    # findings

    def findings(self) -> tuple[Finding, ...]:
        """Every finding: cases in their order, then oracle, then signature."""
        known = self.expectations()
        found: list[Finding] = []
        for number, name in self._query("SELECT id, name FROM cases ORDER BY id"):
            found.extend(self._findings_of(number, CaseId.parse(name), known))
        return tuple(found)

    def put_evidence(self, finding: Finding, evidence: Evidence) -> None:
        """Keep what was seen at a state of this finding, in place of what was kept before."""
        with self._transaction() as db:
            row = (finding.id, self._number(finding.case), json_bytes(evidence))
            db.execute("INSERT OR REPLACE INTO evidence VALUES (?, ?, ?)", row)

    def evidence(self, finding: Finding) -> Evidence | None:
        """What is kept for a finding. Its `state` differs from the finding's if a smaller one came later."""
        rows = self._query("SELECT body FROM evidence WHERE finding = ?", finding.id)
        return msgspec.json.decode(rows[0][0], type=Evidence) if rows else None

    # inside

    def _findings_of(self, number: int, case: CaseId, known: Sequence[Expectation]) -> Iterator[Finding]:
        rows = self._query(
            "SELECT v.oracle, v.signature, v.subject, v.summary, v.expected, v.found, s.state, s.how"
            " FROM violations v JOIN states s USING (case_id, state) WHERE case_id = ?",
            number,
        )
        groups: dict[tuple[str, str], dict[str, list[Violation]]] = {}
        enumerated: set[str] = set()
        for oracle, signature, subject, summary, expected, found, state, how in rows:
            violation = Violation(oracle, subject, summary, expected, found, signature)
            groups.setdefault((oracle, signature), {}).setdefault(state, []).append(violation)
            if how != How.REDUCED:
                enumerated.add(state)
        for (oracle, signature), states in sorted(groups.items()):
            smallest = min(map(CrashState.parse, states), key=state_order)
            violations = sorted(
                states[str(smallest)], key=lambda v: (v.subject, v.summary, v.expected, v.found)
            )
            yield Finding(
                case,
                oracle,
                signature,
                smallest,
                tuple(violations),
                len(enumerated & states.keys()),
                first_match(known, case, oracle),
            )

    def _number(self, case: CaseId) -> int:
        rows = self._query("SELECT id FROM cases WHERE name = ?", str(case))
        if not rows:
            raise StoreError(f"the run in {self.path} has no case {case}", "add_case must come first")
        return int(rows[0][0])

    def _query(self, sql: str, *parameters: object) -> list[tuple]:  # type: ignore[type-arg]  # sqlite3 rows
        with self._lock:
            return self._database.execute(sql, parameters).fetchall()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")


# --- small parts -----------------------------------------------------------------------------


def write_atomically(path: Path, content: bytes | str, mode: int = 0o644) -> None:
    """Replace a file so that a reader, or a crash, sees the old contents or the new."""
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.chmod(mode)
    temporary.replace(path)


def json_bytes(value: object) -> bytes:
    """JSON of dataclasses, structs and plain values; foreign bytes in texts are written out."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_cleaned(msgspec.to_builtins(value)))


def json_text(value: object) -> str:
    """The same for people."""
    return msgspec.json.format(json_bytes(value), indent=2).decode() + "\n"


def _unique_directory(parent: Path, name: str) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    path, number = parent / name, 1
    while True:
        try:
            path.mkdir()
            return path.resolve()
        except FileExistsError:
            number += 1
            path = parent / f"{name}.{number}"


def _point(link: Path, target: Path) -> None:
    """Make `link` a relative symbolic link to `target`, without a moment in which it is missing."""
    temporary = link.with_name(f".{link.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(Path("runs") / target.name)
    temporary.replace(link)


def _connect(file: Path) -> sqlite3.Connection:
    database = sqlite3.connect(file, timeout=30, isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error:
        database.close()
        raise
    return database


def _read_info(path: Path) -> RunInfo:
    file = path / "run.json"
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise StoreError(
            f"{path} is no run directory: it has no readable run.json ({error.strerror})",
            "give reports/latest or a folder of reports/runs; `powercut run` makes them",
        ) from error
    try:
        schema = msgspec.json.decode(raw, type=dict[str, object]).get("schema")
        if schema != SCHEMA:
            raise _other_schema(file, schema)
        return msgspec.json.decode(raw, type=RunInfo)
    except msgspec.MsgspecError as error:
        raise _corrupt(file, str(error)) from error


def _other_schema(file: Path, schema: object) -> StoreError:
    return StoreError(
        f"{file} was written in schema {schema}, this powercut reads schema {SCHEMA}",
        "read it with the powercut that wrote it, or run it again",
    )


def _corrupt(file: Path, why: str) -> StoreError:
    return StoreError(f"{file} is damaged: {why}", "the run cannot be resumed or reported; run it again")


def _weight(state: CrashState) -> int:
    return len(state.dropped) + (state.torn_sectors is not None)


def _texts(v: Violation) -> tuple[str, ...]:
    return (v.oracle, v.signature, v.subject, v.summary, v.expected, v.found)


def _clean(text: str) -> str:
    """Text that is valid UTF-8: what came from undecodable bytes is written out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _cleaned(value: object) -> object:
    """JSON values with every text made valid."""
    match value:
        case str():
            return _clean(value)
        case list() | tuple():
            return [_cleaned(item) for item in value]
        case dict():
            return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    return value
