"""Reads and writes a run: cases, verdicts on crash states, findings."""

from __future__ import annotations

import contextlib
import functools
import itertools
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from harness.errors import StoreError
from harness.expectations import Expectation
from harness.host.cache import note_use
from harness.host.files import json_bytes, json_or_none, valid_text
from harness.known.base import KnownBugs
from harness.known.match import LoggedOperation, promised_by
from harness.model import CaseId, CrashState, Judgement, Verdict, Violation
from harness.plan import Plan
from harness.store.database import Database, read_from
from harness.store.digests import NOTHING, digest
from harness.store.directory import (
    discard,
    linked,
    make_directory,
    making_run,
    point_back,
    point_latest,
    read_info,
    read_plan,
    write_info,
    write_plan,
)
from harness.store.layout import DATABASE, RUN, RunLayout, need_plain_run
from harness.store.lock import locked
from harness.store.meaning import Meaning, paths_in
from harness.store.records import (
    MAKE_DURABLE,
    SCHEMA,
    CaseInfo,
    CaseNote,
    CaseRecord,
    CaseRows,
    CaseStatus,
    Counts,
    DrawnEntry,
    Evidence,
    Finding,
    How,
    JudgedState,
    RunInfo,
    StateVerdict,
    UnknownReason,
    finding_order,
    state_order,
)
from harness.store.rows import (
    KNOWN,
    change_case,
    delete_case,
    insert_case,
    move_states,
    put_evidence,
    put_known,
    put_state,
    root,
    verify,
)
from harness.symptoms import symptom_of


def _state_verdict(state: str, content: str, verdict: str, how: str, unknown: bytes) -> StateVerdict:
    notes = tuple(msgspec.json.decode(unknown, type=list[str]))
    return StateVerdict(CrashState.parse(state), content, Verdict(verdict), How(how), notes)


class _Explained(msgspec.Struct, frozen=True):
    """What is read here of an explanation: it comes from anybody, and names a cause at most."""

    mechanism: str = ""


def _verified(database: Database, path: Path) -> RunInfo:
    """run.json, with which the database agrees. A process that resumes the run takes its seal away before it
    writes to the database, and another one may end in between: so what disagrees counts only if run.json is
    still the same. Raises StoreError.
    """
    while True:
        info = read_info(path)
        try:
            verify(database, info.seal)
        except StoreError:
            if read_info(path) == info:
                raise
        else:
            return info


_DIGESTS = "SELECT digest FROM states WHERE case_id = ?"


class RunStore(contextlib.AbstractContextManager["RunStore"]):
    """One run on disk. One process writes; the methods are thread-safe. Use as a context manager."""

    def __init__(self, path: Path, info: RunInfo, database: Database, before: Path | None = None) -> None:
        """Use `create` or `open`. `before`: what the link to the latest run named before."""
        self._before = before
        self.path = path
        self.layout = RunLayout(path)
        self.info = info
        self._viewed_with: tuple[Expectation, ...] | None = None
        self._viewed_known: KnownBugs | None = None
        self._database = database

    # opening and closing

    @classmethod
    def create(cls, root: Path, name: str, info: RunInfo, *, durable: bool = True) -> RunStore:
        """Create a new `root/runs/<date>-<name>`, and point `root/latest` at it. `durable`: False for one
        that nobody needs once this process has ended.

        Raises UsageError for a name that is not a valid file name, StoreError if the directory cannot be
        made.
        """
        info = replace(info, name=name, schema=SCHEMA)
        before = linked(root)
        path = make_directory(root, name, info.started)
        with making_run(root), contextlib.ExitStack() as half_made:
            half_made.callback(discard, path)
            for folder in (RunLayout(path).cases, RunLayout(path).findings):
                folder.mkdir()
            database = Database.create(path / DATABASE, durable=durable)
            info = write_info(path, info)
            point_latest(root, path)
            half_made.pop_all()
        return cls(path, info, database, before)

    @classmethod
    def open(cls, path: Path) -> RunStore:
        """Open a run directory, or a link to one, and verify everything in it against its digests. Raises
        StoreError if it is not a run directory, was written by another version, is damaged, or has symbolic
        links in it.
        """
        path = path.resolve()
        need_plain_run(path)
        read_info(path)
        file = path / DATABASE
        if not file.is_file():
            raise StoreError(f"{path} has a run.json but no {DATABASE}", "run it again; it cannot be resumed")
        database = Database.open(file)
        try:
            info = _verified(database, path)
        except BaseException:
            database.close()
            raise
        note_use(path / RUN)  # `powercut gc` asks when
        return cls(path, info, database)

    def discard(self) -> None:
        """Remove the run directory, made by `create`, and point the link to the latest run back at what it
        named before. For a run that could not be started.
        """
        self.close()
        point_back(self.path, self._before)
        discard(self.path)

    def lock(self, command: str) -> contextlib.AbstractContextManager[None]:
        """The lock that a writer of the run directory holds. `command`: shown to other processes. Raises
        RunLocked, naming the holder, if another writer holds it.
        """
        return locked(self.layout.lock, self.path, command)

    def close(self) -> None:
        """Close the database. Everything is on disk already."""
        self._database.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    # the run

    def finish(
        self, finished: datetime | None = None, *, interrupted: bool = False, stopped: str = ""
    ) -> None:
        """Record when the run ended (default: now), whether it was interrupted, and why it was `stopped`, and
        seal its contents. Any later judgement breaks the seal.
        """
        self._database.checkpoint()
        info = replace(
            self.info,
            finished=finished or datetime.now(UTC),
            interrupted=interrupted or bool(stopped),
            stopped=stopped,
        )
        self.update_info(info, root(self._database))

    def update_info(self, info: RunInfo, seal: str = "") -> None:
        """Replace run.json, when more is known (a guest's release) or the run is resumed."""
        info = replace(info, seal=seal, plan=self.info.plan, pins=self.info.pins)
        self.info = write_info(self.path, info)

    def put_pins(self, pins: Mapping[str, str]) -> None:
        """Store the hashes of what the verdicts depend on; once. Raises StoreError if there are some."""
        if self.info.pins:
            raise StoreError(f"{self.path} has its pins already", "a run's parts are pinned only once")
        self.info = write_info(self.path, replace(self.info, pins=dict(pins)))

    def put_notes(self, notes: Iterable[CaseNote]) -> None:
        """Store what is to be known beside the cases, in place of what was stored before."""
        told = tuple(CaseNote(n.case, valid_text(n.text)) for n in notes)
        self.info = write_info(self.path, replace(self.info, notes=told))

    def put_plan(self, plan: Plan) -> None:
        """Store the plan; once."""
        self.info = write_info(self.path, replace(self.info, plan=write_plan(self.path, plan)))

    def plan(self) -> Plan:
        """The plan. Raises StoreError if it is damaged or of another version."""
        return read_plan(self.path, self.info.plan)

    def set_expectations(self, expectations: Sequence[Expectation]) -> None:
        """Replace the known failures. They change what a finding means, not what was seen."""
        bodies = list(map(json_bytes, expectations))
        with self._database.transaction() as db:
            db.execute("DELETE FROM expectations")
            db.executemany("INSERT INTO expectations VALUES (?, ?)", enumerate(bodies))
            db.execute("UPDATE meta SET value = ? WHERE key = 'expectations'", (digest(*bodies),))
        self._database.checkpoint()

    def view_with(self, expectations: Sequence[Expectation], known: KnownBugs) -> None:
        """Read the run with these known failures and bugs instead, as long as it is open; nothing is
        stored.
        """
        self._viewed_with, self._viewed_known = tuple(expectations), known

    def expectations(self) -> tuple[Expectation, ...]:
        """The known failures, in the order of their file."""
        if self._viewed_with is not None:
            return self._viewed_with
        rows = self._database.query("SELECT body FROM expectations ORDER BY number")
        with self._reading():
            return tuple(msgspec.json.decode(body, type=Expectation) for (body,) in rows)

    def set_known(self, known: KnownBugs) -> None:
        """Replace the known bugs that this run has beside the installed base."""
        with self._database.transaction() as db:
            put_known(db, json_bytes(known))
        self._database.checkpoint()

    def known(self) -> KnownBugs:
        """The known bugs that this run has beside the installed base, and how they count."""
        if self._viewed_known is not None:
            return self._viewed_known
        rows = self._database.query("SELECT value FROM meta WHERE key = ?", KNOWN)
        with self._reading():
            body = str(rows[0][0]).partition(" ")[2] if rows else "{}"
            return msgspec.json.decode(body, type=KnownBugs)

    # cases

    def case_directory(self, case: CaseId) -> Path:
        """The directory of a case's recording; created if missing."""
        path = self.layout.case(case).folder
        path.mkdir(parents=True, exist_ok=True)
        return path

    def finding_directory(self, finding: str) -> Path:
        """The directory of the finding with the id `finding`; created if missing."""
        path = self.layout.finding(finding)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def add_case(self, info: CaseInfo) -> None:
        """Insert a case, which is PLANNED, or replace its info.

        An existing case keeps its status, reason and verdicts; it also keeps its info if that has a recording
        and `info` has none. Raises StoreError for another recording: verdicts about one log say nothing about
        another.
        """
        name = str(info.case)
        with self._writing() as db:
            row = db.execute("SELECT id, info FROM cases WHERE name = ?", (name,)).fetchone()
            if row is None:
                first = {"status": CaseStatus.PLANNED.value, "reason": "", "seconds": 0.0, "mismatch": ""}
                insert_case(db, name=name, **_known(info), **first, states=NOTHING)
            elif self._same_recording(row[1], info):
                change_case(db, int(row[0]), **_known(info))

    def _same_recording(self, body: bytes, info: CaseInfo) -> bool:
        """Whether `info` may replace what is known of a case; not if that has a recording, and `info` none.
        Raises StoreError for another recording.
        """
        with self._reading():
            before = msgspec.json.decode(body, type=CaseInfo).log_hash
        if before and info.log_hash not in ("", before):
            raise StoreError(
                f"{info.case} was judged on another recording: log {before} then, {info.log_hash} now",
                "the stored verdicts belong to the first one: start a new run",
            )
        return not before or bool(info.log_hash)

    def set_case_status(self, case: CaseId, status: CaseStatus, reason: str = "") -> None:
        """Set the status of a case, with the reason for all but PLANNED, RECORDED and DONE."""
        with self._writing() as db:
            change_case(db, self._number(case), status=status.value, reason=valid_text(reason))

    def set_case_mismatch(self, case: CaseId, mismatch: str) -> None:
        """Set why outcomes recalled by the memo cannot be trusted in this case; "" withdraws that.

        Call it before using anything that it concerns: once it returns, the mismatch is durable, and the
        case is UNKNOWN until it is withdrawn, whatever happens to the process.
        """
        with self._writing() as db:
            change_case(db, self._number(case), mismatch=valid_text(mismatch))
        self._database.checkpoint()

    def forget_states(self, case: CaseId, states: Collection[str]) -> None:
        """Delete the verdicts on these states of a case, by their names."""
        if not states:
            return
        with self._writing() as db:
            number = self._number(case)
            # Not row by row: SQLite makes no checkpoint while the traceback of a signal keeps half of them.
            rows = db.execute("SELECT state, digest FROM states WHERE case_id = ?", (number,)).fetchall()
            gone = {name: signed for name, signed in rows if name in states}
            db.executemany(
                "DELETE FROM states WHERE case_id = ? AND state = ?", [(number, name) for name in gone]
            )
            move_states(db, number, out=gone.values())

    def add_case_seconds(self, case: CaseId, seconds: float) -> None:
        """Add to how long a case took, in total over all parts of a resumed run."""
        with self._writing() as db:
            number = self._number(case)
            ((spent,),) = db.execute("SELECT seconds FROM cases WHERE id = ?", (number,)).fetchall()
            change_case(db, number, seconds=float(spent) + seconds)

    def cases(self) -> tuple[CaseRecord, ...]:
        """All cases, in the order they were added."""
        return self._records("ORDER BY id")

    def case(self, case: CaseId) -> CaseRecord | None:
        """One case, or None if the run does not have it."""
        found = self._records("WHERE name = ?", str(case))
        return found[0] if found else None

    def _records(self, which: str, *parameters: object) -> tuple[CaseRecord, ...]:
        rows = self._database.query(
            f"SELECT info, status, reason, seconds, mismatch FROM cases {which}",  # noqa: S608  # ours, see above
            *parameters,
        )
        with self._reading():
            return tuple(
                CaseRecord(
                    msgspec.json.decode(info, type=CaseInfo), CaseStatus(status), reason, seconds, mismatch
                )
                for info, status, reason, seconds, mismatch in rows
            )

    def timeline(self, case: CaseId) -> tuple[DrawnEntry, ...]:
        """The case's write log, as the timeline draws it."""
        ((body,),) = self._database.query("SELECT timeline FROM cases WHERE id = ?", self._number(case))
        with self._reading():
            return msgspec.json.decode(body, type=tuple[DrawnEntry, ...])

    # verdicts

    def together(self) -> contextlib.AbstractContextManager[None]:
        """What is stored in the block, by this thread, is durable at its end; each part of it is atomic as
        ever. Readers of other threads wait.
        """
        return self._database.together()

    def put_judgements(self, case: CaseId, batch: Iterable[JudgedState]) -> None:
        """Store a batch atomically. A state that is already stored is replaced, so that storing the same
        batch twice changes nothing and an UNKNOWN state can be decided later.
        """
        out: list[str] = []
        into: list[str] = []
        with self._writing() as db:
            number = self._number(case)
            for judged in batch:
                gone, come = put_state(db, number, str(case), judged)
                out += gone
                into.append(come)
            move_states(db, number, out=out, into=into)

    def judged_states(self, case: CaseId) -> set[str]:
        """Names of the states with a verdict."""
        rows = self._database.query("SELECT state FROM states WHERE case_id = ?", self._number(case))
        return {name for (name,) in rows}

    def iter_verdicts(self, case: CaseId, verdict: Verdict | None = None) -> Iterator[StateVerdict]:
        """Verdicts by prefix, then by what was dropped and torn. `verdict`: of these states alone."""
        rows = self._database.query(
            "SELECT state, content_hash, verdict, how, unknown FROM states WHERE case_id = ?1"
            " AND (?2 IS NULL OR verdict = ?2) ORDER BY prefix, weight, state",
            self._number(case),
            verdict.value if verdict else None,
        )
        with self._reading():
            seen = list(itertools.starmap(_state_verdict, rows))
        yield from seen

    def violated(self, case: CaseId) -> dict[str, frozenset[tuple[str, str]]]:
        """The (oracle, signature) pairs violated at each state; states without violations are left out."""
        rows = self._database.query(
            "SELECT state, oracle, signature FROM violations WHERE case_id = ?", self._number(case)
        )
        found: dict[str, set[tuple[str, str]]] = {}
        for state, oracle, signature in rows:
            found.setdefault(state, set()).add((oracle, signature))
        return {state: frozenset(kinds) for state, kinds in found.items()}

    def counts(self, case: CaseId) -> Counts:
        """The number of the case's states, in total and by verdict."""
        number = self._number(case)
        rows = self._database.query(
            "SELECT verdict, COUNT(*) FROM states WHERE case_id = ? GROUP BY verdict", number
        )
        ((contents,),) = self._database.query(
            "SELECT COUNT(DISTINCT iif(content_hash = '', state, content_hash))"
            " FROM states WHERE case_id = ?",
            number,
        )
        ((contradictions,),) = self._database.query(
            "SELECT COUNT(*) FROM states s WHERE case_id = ? AND (verdict = 'fail') != EXISTS"
            " (SELECT 1 FROM violations v WHERE v.case_id = s.case_id AND v.state = s.state)",
            number,
        )
        with self._reading():
            known = self._info(number)
            by = {Verdict(verdict): int(count) for verdict, count in rows}
        return Counts(
            known.generated,
            known.distinct,
            by.get(Verdict.PASS, 0),
            by.get(Verdict.FAIL, 0),
            by.get(Verdict.UNKNOWN, 0),
            contents,
            contradictions,
        )

    def counts_by_how(self, case: CaseId) -> dict[How, int]:
        """How the verdicts were reached; only the ways that occur, in the order of `How`."""
        rows = self._database.query(
            "SELECT how, COUNT(*) FROM states WHERE case_id = ? GROUP BY how", self._number(case)
        )
        with self._reading():
            by = {How(how): int(count) for how, count in rows}
        return {how: by[how] for how in How if how in by}

    def unknown_reasons(self, case: CaseId) -> tuple[UnknownReason, ...]:
        """Why enumerated states of this case could not be decided, most frequent first."""
        states: dict[str, list[CrashState]] = {}
        for seen in self.iter_verdicts(case, Verdict.UNKNOWN):
            for reason in dict.fromkeys(seen.unknown):
                states.setdefault(reason, []).append(seen.state)
        reasons = (UnknownReason(why, len(at), min(at, key=state_order)) for why, at in states.items())
        return tuple(sorted(reasons, key=lambda r: (-r.states, r.reason)))

    # findings

    def findings(self) -> tuple[Finding, ...]:
        """Every finding: cases in their order, in each as `findings_of`."""
        judge = self._meaning()
        found: list[Finding] = []
        for number, name in self._database.query("SELECT id, name FROM cases ORDER BY id"):
            with self._reading():
                found.extend(self._findings_of(number, CaseId.parse(name), judge))
        return tuple(found)

    def findings_of(self, case: CaseId) -> tuple[Finding, ...]:
        """The findings of one case, causes before what follows from them (`records.finding_order`)."""
        with self._reading():
            return self._findings_of(self._number(case), case, self._meaning())

    def put_evidence(self, finding: Finding, evidence: Evidence) -> None:
        """Keep what was seen at a state of this finding, in place of what was kept before."""
        with self._database.transaction() as db:
            put_evidence(db, self._number(finding.case), finding.id, evidence)

    def evidence(self, finding: Finding) -> Evidence | None:
        """The stored evidence of a finding. Its `state` differs from the finding's if a smaller one came
        later.
        """
        rows = self._database.query("SELECT body FROM evidence WHERE finding = ?", finding.id)
        with self._reading():
            return msgspec.json.decode(rows[0][0], type=Evidence) if rows else None

    # a case as a whole, from one run directory to another

    def rows_of(self, case: CaseId) -> CaseRows:
        """Everything that the database holds of a case. Raises StoreError if it does not have it."""
        number, record = self._number(case), self.case(case)
        assert record is not None  # noqa: S101 - it has a number; tells mypy
        violations: dict[str, list[Violation]] = defaultdict(list)
        for state, *texts in self._database.query(
            "SELECT state, oracle, subject, summary, expected, found, signature FROM violations"
            " WHERE case_id = ? ORDER BY state, number",
            number,
        ):
            violations[state].append(Violation(*texts))
        judged = tuple(
            JudgedState(
                seen.state,
                seen.content_hash,
                Judgement(tuple(violations[str(seen.state)]), seen.unknown),
                seen.how,
            )
            for seen in self.iter_verdicts(case)
        )
        bodies = self._database.query("SELECT finding, body FROM evidence WHERE case_id = ?", number)
        with self._reading():
            evidence = {finding: msgspec.json.decode(body, type=Evidence) for finding, body in bodies}
        info = replace(record.info, timeline=self.timeline(case))
        return CaseRows(replace(record, info=info), judged, evidence)

    def adopt(self, rows: CaseRows) -> None:
        """Put what another run directory holds of a case in place of what this one does, in one transaction.
        Raises StoreError if this run does not have the case, or has judged another recording of it.
        """
        record, number = rows.record, self._number(rows.case)
        with self._writing() as db:
            ((body,),) = db.execute("SELECT info FROM cases WHERE id = ?", (number,)).fetchall()
            if not self._same_recording(body, record.info):
                raise StoreError(f"{rows.case} has a recording, and what is to replace it has none")
            # Not row by row: SQLite makes no checkpoint while the traceback of a signal keeps half of them.
            out = [d for (d,) in db.execute(_DIGESTS, (number,)).fetchall()]
            db.execute("DELETE FROM states WHERE case_id = ?", (number,))
            db.execute("DELETE FROM evidence WHERE case_id = ?", (number,))
            into = [put_state(db, number, str(rows.case), judged)[1] for judged in rows.judged]
            move_states(db, number, out=out, into=into)
            for finding, evidence in rows.evidence.items():
                put_evidence(db, number, finding, evidence)
            change_case(
                db,
                number,
                **_known(record.info),
                status=record.status.value,
                reason=valid_text(record.reason),
                seconds=float(record.seconds),
                mismatch=valid_text(record.mismatch),
            )

    def drop(self, case: CaseId) -> None:
        """Delete a case, its verdicts and its recording: another run directory has them. Raises StoreError if
        this run does not have it.
        """
        with self._writing() as db:
            delete_case(db, self._number(case))
        shutil.rmtree(self.layout.case(case).folder, ignore_errors=True)

    # inside

    def _reading(self) -> contextlib.AbstractContextManager[None]:
        """Turns decode errors in the block into StoreError: the database is damaged."""
        return read_from(self._database.file)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that changes cases or verdicts; it makes a finished run unfinished."""
        if self.info.finished is not None:
            self.update_info(replace(self.info, finished=None))
        with self._database.transaction() as db:
            yield db

    def _meaning(self) -> Meaning:
        return Meaning.of(self.expectations(), self.known(), self.info.kernel)

    def _findings_of(self, number: int, case: CaseId, meaning: Meaning) -> tuple[Finding, ...]:
        rows = self._database.query(
            "SELECT v.oracle, v.signature, v.subject, v.summary, v.expected, v.found, v.state"
            " FROM violations v WHERE v.case_id = ?",
            number,
        )
        groups: dict[tuple[str, str], dict[str, list[Violation]]] = {}
        for oracle, signature, subject, summary, expected, found, state in rows:
            violation = Violation(oracle, subject, summary, expected, found, signature)
            groups.setdefault((oracle, signature), {}).setdefault(state, []).append(violation)
        if not groups:
            return ()
        steps = self._info(number).steps
        paths, ran = paths_in(steps), [LoggedOperation(s.operation, s.begin, s.ack) for s in steps]
        flushed = functools.partial(_flushed, functools.cache(lambda: self.timeline(case)))
        parsed = {text: CrashState.parse(text) for text in {row[-1] for row in rows}}
        failed: dict[str, Finding] = {}
        findings: list[Finding] = []
        for (oracle, signature), states in sorted(groups.items(), key=lambda g: g[0][0] != "mountable"):
            symptom = symptom_of(oracle, signature, paths)
            told: list[Finding] = []
            for state, violations, whole in _each_promise(states, parsed):
                beside = failed[str(state)].summary if str(state) in failed else ""
                shown = Finding(
                    case, oracle, signature, state, violations, len(states), None, symptom.what,
                    unmounted=beside, whole=whole,
                )  # fmt: skip
                cause = functools.partial(self._cause_of, shown.id)
                told.append(meaning.given_to(shown, ran, flushed, cause))
                if not told[-1].expectation and not told[-1].newness:
                    break
            found = min(told, key=lambda f: (f.expectation is not None, f.known is not None, f.newness))
            found = replace(found, is_smallest=found.state == told[0].state)
            if oracle == "mountable":
                failed |= dict.fromkeys(states, found)
            elif states.keys() <= failed.keys():
                found = meaning.following(found, [failed[state] for state in states])
            findings.append(found)
        return tuple(sorted(findings, key=finding_order))

    def _cause_of(self, finding: str) -> str | None:
        """By which mechanism the finding with this id came about, as its explanation has it: `Torn write`.
        Empty if it was not explained, None if it was, and its cause could not be told.
        """
        told = json_or_none(self.layout.explanation(finding), _Explained)
        return "" if told is None else told.mechanism.partition(". ")[0] or None

    def _info(self, number: int) -> CaseInfo:
        ((info,),) = self._database.query("SELECT info FROM cases WHERE id = ?", number)
        return msgspec.json.decode(info, type=CaseInfo)

    def _number(self, case: CaseId) -> int:
        rows = self._database.query("SELECT id FROM cases WHERE name = ?", str(case))
        if not rows:
            raise StoreError(f"the run in {self.path} has no case {case}", "call add_case first")
        return int(rows[0][0])


def _flushed(timeline: Callable[[], Sequence[DrawnEntry]], begin: int, end: int) -> bool:
    """Whether the log has a flush, or a write with FUA, between two entries."""
    return any(begin < e.index < end and e.kind in MAKE_DURABLE for e in timeline())


def _each_promise(
    states: Mapping[str, Sequence[Violation]], parsed: Mapping[str, CrashState]
) -> list[tuple[CrashState, tuple[Violation, ...], CrashState | None]]:
    """Of the states of a finding, the smallest for each promise that is broken to each file, smallest first;
    with its violations, those of this promise first, and one that breaks it with nothing lost, if any does.
    Another promise may be broken by another bug.
    """
    first: dict[tuple[int | None, str], tuple[CrashState, tuple[Violation, ...]]] = {}
    whole: dict[tuple[int | None, str], CrashState] = {}
    for state in sorted((parsed[text] for text in states), key=state_order):
        violations = sorted(states[str(state)], key=lambda v: (v.subject, v.summary, v.expected, v.found))
        for violation in violations:
            promise = promised_by(violation), violation.subject
            others = (v for v in violations if v is not violation)
            first.setdefault(promise, (state, (violation, *others)))
            if state.is_whole:
                whole.setdefault(promise, state)
    return [(*shown, whole.get(promise)) for promise, shown in first.items()]


def _known(info: CaseInfo) -> dict[str, object]:
    """The columns of what is known of a case."""
    known, timeline = json_bytes(replace(info, timeline=())), json_bytes(info.timeline)
    return {"info": known, "timeline": timeline, "known": digest(known, timeline)}
