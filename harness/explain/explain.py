"""Explains a finding: minimises its state, works out what the times say, and puts it into words."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from harness.blocks import describe, named_log, written_paths
from harness.blocks.fields import BlockName, Kind
from harness.cases.attempts import Unobserved
from harness.cases.examine import Examiner
from harness.cases.recording import Recording, by_times
from harness.errors import GuestError, PowercutError, UsageError
from harness.explain.checked_trees import ANY_ORDER, CheckedTrees
from harness.explain.effects import Change, Sort, as_operations, is_done, syncs
from harness.explain.effects import paths_of as paths_of_call
from harness.explain.facts import Facts
from harness.explain.mechanism import Mechanism, data_of, first_reused, mechanism_of, of_program, sent_later
from harness.explain.minimise import Minimal, Visits, always, minimise
from harness.explain.program import ACK, ANOTHER, Evidence, Gap, Program, program_of, shown_calls, wanted_sync
from harness.explain.trees import trees_of
from harness.findings.repro import ReproContext
from harness.guests.made_trees import MadeTrees
from harness.guests.session import Session, Target
from harness.guests.threads import told as threads_told
from harness.host.text import first_few
from harness.known.base import NOT_NAMED, KnownBug, with_bugs
from harness.known.match import possible
from harness.known.words import perhaps
from harness.model import (
    SECTOR_BYTES,
    CrashPoint,
    CrashState,
    EntryFlag,
    Outcome,
    Position,
    Tree,
    Violation,
)
from harness.oracles import Judge
from harness.oracles.surface import WHILE_RECORDED
from harness.oracles.timeline import ModelTimeline
from harness.report.explanation import BlockDifference, Explanation, Fate, Rung, Trees
from harness.report.lines import reproduce
from harness.ruled.judging import Judging
from harness.states.legal import BLOCK_SECTORS, LegalStates
from harness.store.records import Finding
from harness.symptoms import paths_of, symptom_of
from harness.writelog.calls import ProgramCall
from harness.writelog.times import TimedWrite

_BEFORE, _AFTER = 12, 4  # rungs shown ahead of what matters, and behind the cut
_MAX_RUNGS = 48
_HEX_BYTES = 16
_HEX_LINES = 4
_DIFFERENCES = 3
_LOG_LETTERS = 120
_MADE_UP = ("foreign", "stale")
_REFUSED = ("mountable", "readable", "kernel-log", "fsck", "usable")

_RULES = {
    "durability": "what {persists} makes durable is there after any power cut",
    "size": "a size that {persists} made durable is kept",
    "contents": "what {persists} made durable reads as it was written",
    "atomicity": "the names are those after some number of whole operations",
    "stale": "no file shows what the device held before",
    "foreign": "no file shows bytes that nobody wrote",
    "mountable": "the file system can be mounted after any power cut",
    "readable": "all that came back can be read",
    "kernel-log": "recovery meets no error",
    "fsck": "fsck finds nothing to repair once recovery has run",
    "usable": "what recovery left can be written to",
    "outside": "nothing outside the workload's folder changes",
    "program": "the program's own check holds",
}


class Explainer(contextlib.AbstractContextManager["Explainer"]):
    """Visits crash states of one recording in one guest. A context manager. `on_visit` is told how many
    states have been visited.
    """

    def __init__(
        self,
        shown: ReproContext,
        unit_sectors: int | None,
        on_visit: Callable[[int], None] = lambda visited: None,
    ) -> None:
        timed = shown.recording
        if timed.legal is None:
            timed, why = by_times(timed, unit_sectors or BLOCK_SECTORS)
            if why:
                raise UsageError(f"{shown.point}: {why}", "record the case again on a kernel with events")
        if timed.legal is None or timed.times is None:
            raise UsageError(f"{shown.point}: the recording has no times", "record the case again")
        self.recording: Recording = timed
        self.legal: LegalStates = timed.legal
        self.times = timed.times
        log = timed.write_log
        named = {e.index: log.devices.name(e.sector) for e in log.entries if not e.mark}
        self.devices = named if log.devices.several else {}
        known, linux = shown.store.known(), shown.store.info.kernel.linux
        self._possible = functools.partial(possible, with_bugs(known.bug).values(), shown.point.case, linux)
        self._examiner = Examiner(timed)
        self._session = Session(shown.judge, shown.directory / "session")
        self._checks = Session(shown.judge, shown.directory / "checks")
        self._on_visit = on_visit
        self._paths = paths_of(timed.workload.operations)
        self._judge = Judge(
            timed.profile.contract,
            timed.history,
            checks=timed.workload.checks,
            error_patterns=tuple(timed.profile.console.errors),
            question=timed.workload.question,
        )
        self._signature: tuple[str, str] | None = None
        self._outcomes: dict[CrashState, Outcome | Unobserved] = {}
        self.names = named_log(
            timed.base,
            timed.write_log,
            timed.log,
            second_bytes=timed.profile.second_offset,
            paths=written_paths(timed.workload.operations),
            order=self.legal.order,
        ).writes

    def __exit__(self, *_: object) -> None:
        self._session.close()
        self._checks.close()
        self._examiner.close()

    def known_bugs(self, cause: str, until: int) -> list[KnownBug]:
        """Of the case's mode on the run's kernel, those that a program's own check may have seen if the power
        failed at an event.
        """
        return self._possible(cause, as_operations(c for c in self.recording.calls.calls if c.began < until))

    # --- visits -----------------------------------------------------------------------------------

    def outcome(self, state: CrashState) -> Outcome | Unobserved:
        """What a visit to a state shows; each state is visited once."""
        if state not in self._outcomes:
            seen = self._examiner.visit(self._session, [state], threading.Event())
            self._outcomes[state] = seen.outcome
            self._on_visit(len(self._outcomes))
        return self._outcomes[state]

    @property
    def timeline(self) -> ModelTimeline:
        """The reference model over the history."""
        return self._judge.timeline

    def violations(self, outcome: Outcome | Unobserved, position: Position) -> tuple[Violation, ...]:
        return () if isinstance(outcome, Unobserved) else self._judge.judge(position, outcome).violations

    def same(self, finding: Finding, state: CrashState) -> Violation | None:
        """The violation with a finding's symptom that a state shows."""
        return self._like(finding, self.violations(self.outcome(state), self.legal.position(state)))

    def keeps_all(self, state: CrashState) -> bool:
        """Whether a state was observed and keeps every promise."""
        outcome = self.outcome(state)
        observed = not isinstance(outcome, Unobserved)
        return observed and not self.violations(outcome, self.legal.position(state))

    def is_accepted(self, state: CrashState) -> bool:
        """Whether a workload's own checks say yes to a state: one that they refuse for another reason differs
        in their words alone.
        """
        found = self.violations(self.outcome(state), self.legal.position(state))
        return all(v.oracle != "program" for v in found)

    @contextlib.contextmanager
    def checked_trees(self) -> Iterator[CheckedTrees]:
        """The application's check on trees that are made of what it writes. Raises NotJudged, and as a boot
        does.
        """
        timed = self.recording
        check = next(c for c in timed.workload.checks if c.application)
        target = Target(timed.profile.fstype, "", timed.base, None)
        with MadeTrees(self._checks, target) as trees:
            notes = trees.note(timed.workload.operations[check.operation].argv)
            acks = [ack.text for ack in notes.acks]
            judging = Judging(notes, ANY_ORDER, lambda asked: trees.check(asked, check, acks))
            yield CheckedTrees(judging, timed.calls.calls)

    def _like(self, finding: Finding, found: Sequence[Violation]) -> Violation | None:
        if self._signature:  # another file, or another operation, would be another finding
            return next((v for v in found if (v.oracle, v.signature) == self._signature), None)

        def is_wanted(v: Violation) -> bool:
            return symptom_of(v.oracle, v.signature, self._paths) == finding.symptom

        like = [v for v in found if is_wanted(v)]
        if not like:  # oracles have become finer since a run was made
            like = [v for v in found if (v.oracle, v.summary) == (finding.oracle, finding.summary)]
        return next((v for v in like if v.signature == finding.signature), like[0] if like else None)

    def promise(self, finding: Finding, state: CrashState) -> int | None:
        """The operation whose return turned what was seen from allowed to broken; None if it was never
        allowed.
        """
        outcome, position = self.outcome(state), self.legal.position(state)

        def is_broken(acked: int) -> bool:
            at = Position(position.begun, acked, position.app_acks)
            return self._like(finding, self.violations(outcome, at)) is not None

        if is_broken(0):
            return None
        # One by one: with fewer promises the same may have other words, and so not be alike any more.
        return next((n for n in reversed(range(position.acked)) if not is_broken(n)), None)

    def start(self, finding: Finding) -> CrashState:
        """A state by times that shows the finding: its own, or one with the same contents. Raises UsageError
        where there is none.
        """
        state = finding.state
        if state.persisted is None:
            state = self._by_times(state)
        shown = self.same(finding, state)
        if isinstance(outcome := self.outcome(state), Unobserved):
            raise GuestError(f"{finding.crash_point} could not be observed: {outcome.reason}")
        if shown is None:
            raise UsageError(
                f"{finding.crash_point} does not show it again: {finding.summary}",
                f"powercut repro {finding.id} judges it again",
            )
        self._signature = shown.oracle, shown.signature
        return state

    def _by_times(self, state: CrashState) -> CrashState:
        """A prefix of the log's order as a state by times: what comes later in the log is lost."""
        if state.torn_sectors is not None:
            raise UsageError(
                f"{state} is torn", "only states of whole blocks are explained in the log's order"
            )
        for cut in self.legal.cuts():
            if cut.prefix >= state.prefix:
                gone = [
                    n
                    for n in self.legal.losable(cut)
                    if self.legal.chunks[n].entry >= state.prefix
                    or self.legal.chunks[n].entry in state.dropped
                ]
                try:
                    found = self.legal.losing(cut, gone)
                    self.legal.on_disk(found)
                except UsageError:
                    continue
                return found
        raise UsageError(
            f"{state} is no state by times", "powercut run --states exhaustive finds such states"
        )

    # --- bytes ------------------------------------------------------------------------------------

    def platter(self, state: CrashState, sector: int, sectors: int) -> bytes:
        """What these sectors hold in a state, before recovery."""
        shown = self.legal.on_disk(state)
        gone = set(shown.dropped)
        with self.recording.base.open("rb") as file:
            file.seek(sector * SECTOR_BYTES)
            data = bytearray(file.read(sectors * SECTOR_BYTES).ljust(sectors * SECTOR_BYTES, b"\0"))
        with self.recording.log.open("rb") as log:
            for n in range(shown.prefix):
                chunk = self.legal.chunks[n]
                first, last = max(chunk.sector, sector), min(chunk.sector + chunk.sectors, sector + sectors)
                if n not in gone and first < last:
                    entry = self.recording.write_log.entries[chunk.entry]
                    new = bytes((last - first) * SECTOR_BYTES)
                    if EntryFlag.DISCARD not in entry.flags:
                        log.seek(entry.data_offset + (first - entry.sector) * SECTOR_BYTES)
                        new = log.read(len(new))
                    start = (first - sector) * SECTOR_BYTES
                    data[start : start + len(new)] = new
        return bytes(data)


def explain(explainer: Explainer, finding: Finding, source: str) -> Explanation:
    """Why a finding failed. Raises UsageError where a new visit does not show it, and for what the kernel
    said while the workload ran.
    """
    if finding.signature.startswith(WHILE_RECORDED):
        raise UsageError(
            f"{finding.id}: the kernel complained while the workload ran, so no crash state explains it",
            f"the report has its lines; to run it again: {reproduce(finding.case, finding.state, source)}",
        )
    state = explainer.start(finding)
    promise = explainer.promise(finding, state)
    visits = Visits(lambda s: explainer.same(finding, s) is not None)

    def promised(cut: CrashState) -> bool:
        return has_promised(explainer.legal, cut, promise)

    acknowledged = finding.oracle == "program"
    keeps = explainer.is_accepted if acknowledged else always
    minimal = minimise(
        explainer.legal,
        state,
        visits,
        promised,
        acknowledged=acknowledged,
        both=acknowledged or promise is None or finding.oracle in (*_MADE_UP, "contents"),
        keeps=keeps,
    )
    violation = explainer.same(finding, minimal.state)
    if violation is None:
        raise UsageError(f"{finding.crash_point}: its minimal state does not show it twice", "try again")
    facts = Facts(
        minimal.state,
        explainer.legal,
        explainer.times,
        explainer.recording.history,
        explainer.names,
        minimal.lost,
        explainer.promise(finding, minimal.state),
        violation.subject,
        minimal.cleared,
        _program(explainer, finding, minimal, violation.summary),
        explainer.devices,
        minimal.turning,
        minimal.without,
        explainer.recording.profile.contract.namespace != "synced",
    )
    facts = replace(
        facts,
        synced=sync_of_the_lost(facts, explainer.recording.calls.calls),
        keeps=minimal.control is not None and explainer.keeps_all(minimal.control),
        needed=minimal.needed,
        commits_data=explainer.recording.profile.contract.commits_data,
        leaves_names="fsync-leaves-names" in explainer.recording.profile.contract.rules,
    )
    diagnosis = mechanism_of(
        facts,
        made_up=finding.oracle in _MADE_UP,
        refused=finding.oracle in _REFUSED,
        mounted=finding.oracle != "mountable",
    )
    mechanism = diagnosis.mechanism if diagnosis is not None else None
    point = CrashPoint(finding.case, minimal.state)
    return Explanation(
        finding=finding.id,
        headline=f"{finding.case.configuration}: {violation.summary}",
        mechanism=str(diagnosis) if diagnosis is not None else "",
        lines=_lines(explainer, facts, minimal, finding, mechanism)
        | _schedule(explainer.recording)
        | {"reproduce": reproduce(finding.case, minimal.state, source)},
        ladder=tuple(ladder(facts, explainer.recording.calls.calls, mechanism)),
        point=str(point),
        control="" if minimal.control is None else str(CrashPoint(finding.case, minimal.control)),
        minimal=minimal.complete,
        visits=visits.made,
        differences=tuple(_differences(explainer, facts)),
        trees=_trees(explainer, facts),
    )


def has_promised(legal: LegalStates, cut: CrashState, promise: int | None) -> bool:
    """Whether the operation that gives a promise had returned at a crash time; true if any time will do."""
    return promise is None or legal.position(cut).acked > promise


def _trees(explainer: Explainer, facts: Facts) -> Trees | None:
    """What should be there when the promise was made, or when the power failed if it holds at any time."""
    outcome, position = explainer.outcome(facts.state), explainer.legal.position(facts.state)
    if isinstance(outcome, Unobserved):
        return None
    version = position.acked if facts.promise is None else facts.promise + 1
    found = explainer.violations(outcome, position)
    made_by_mkfs = explainer.recording.profile.contract.made_by_mkfs
    return trees_of(explainer.timeline, version, outcome, found, made_by_mkfs)


def _program(explainer: Explainer, finding: Finding, minimal: Minimal, said: str) -> Program | None:
    """The application that acknowledged, if this is the finding of one's own check, which says `said`."""
    recording = explainer.recording
    if finding.oracle != "program" or not any(c.application for c in recording.workload.checks):
        return None
    cut = explainer.legal.event(minimal.state)
    contract = recording.profile.contract
    in_order = contract.namespace == "prefix" or contract.persists != "inode"

    def is_record(write: TimedWrite) -> bool:
        return write.fua or any(n.kind is Kind.RECORD for n in explainer.names.get(write.entry, ()))

    records = [at for w in explainer.times.writes if is_record(w) for at in (w.submitted, w.completed)]
    durable = [f.submitted for f in explainer.times.flushes]
    durable += [w.submitted for w in explainer.times.writes if w.fua or w.preflush]
    told = functools.partial(
        program_of,
        recording.workload.name,
        recording.calls,
        explainer.times,
        cut,
        in_order=in_order,
        commits=lambda call: any(call.began < at < (call.returned or 0) for at in records),
        sent=lambda call: any(call.began < at < (call.returned or 0) for at in durable),
    )
    evidence = _evidence(explainer, minimal, said.partition(": ")[2])
    found = told(evidence=evidence)
    if evidence is None or not found.known:
        return found
    return _settled(explainer, found, evidence, lambda e: told(evidence=e), cut)


def _settled(
    explainer: Explainer, found: Program, evidence: Evidence, told: Callable[[Evidence], Program], cut: int
) -> Program:
    """The program by its own check, which is run on trees that lack the changes of one call. `told`: the
    program by other evidence. Where the check cannot be run on such trees, `found` is returned, with the
    reason.
    """
    try:
        with explainer.checked_trees() as trees:
            acks = [m for m in explainer.times.marks if m.text.startswith(ACK) and m.at < cut]
            if (broken := trees.broken(found, evidence.said, acks)) is not None:
                found = told(replace(evidence, broken=broken))
            given = sum(m.at <= found.at for m in acks)
            return trees.settled(found, given, cut, evidence.differing, evidence.said)
    except PowercutError as e:
        # The program may do something else when it runs anew, or what it does is not followed.
        return replace(_undisputed(found, evidence), untried=e.what)


def _undisputed(found: Program, evidence: Evidence) -> Program:
    """Where the check was not run on made trees: a file is told to have come too early, or too late, only if
    no other one differs.
    """
    orders = (
        o if o is not None and o.is_all_of(evidence.differing) else None for o in (found.taken, found.order)
    )
    taken, order = orders
    found = replace(found, taken=taken, order=order)
    if found.early is None or evidence.ahead <= {found.early.path, *paths_of_call(found.early.call)}:
        return found
    return replace(found, early=None, bare=())


def _evidence(explainer: Explainer, minimal: Minimal, said: str) -> Evidence | None:
    """The trees that a program's calls are held against; None where the failing state has none."""

    def tree(state: CrashState | None) -> Tree | None:
        outcome = None if state is None else explainer.outcome(state)
        if outcome is None or isinstance(outcome, Unobserved) or outcome.mount_errno or outcome.lost:
            return None
        return outcome.tree

    found = tree(minimal.state)
    return None if found is None else Evidence(found, tree(minimal.more), tree(minimal.less), said)


# --- the lines ------------------------------------------------------------------------------------


def _lines(
    explainer: Explainer, facts: Facts, minimal: Minimal, finding: Finding, mechanism: Mechanism | None
) -> dict[str, str]:
    return {
        "promised": _promised(facts, mechanism),
        "written": _written(facts, mechanism, explainer.recording.calls.calls),
        "cut": _cut(facts),
        "recovery": _recovery(explainer.outcome(minimal.state), facts),
        "cause": _cause(explainer, facts, minimal.control, mechanism),
        "not tried": _not_tried(facts.program),
        "missing": _missing_of(facts.program, mechanism) or _missing(facts, mechanism),
        "control": _control(explainer, facts, minimal),
        "contract": _contract(explainer, finding, facts.promise),
    }


def _cause(
    explainer: Explainer, facts: Facts, control: CrashState | None, mechanism: Mechanism | None
) -> str:
    """Where no mechanism is named, that; and of a program whose own calls do not explain what its check says,
    the known bugs that may.
    """
    said = "" if mechanism else _not_named(explainer, facts, control)
    if facts.program is None or of_program(facts, facts.program) is not None:
        return said
    bugs = explainer.known_bugs(mechanism.value if mechanism else "", facts.at)
    return "; ".join(filter(None, [said, perhaps(bugs, explainer.recording.profile.name)]))


def _not_named(explainer: Explainer, facts: Facts, control: CrashState | None) -> str:
    told = "the control tells which writes decide, and not how"
    said = f"{NOT_NAMED}: {told if control else 'no state tells which write or call it was'}"
    if facts.may_want_names:
        said += "; fsync of a file promises nothing of its name here, unless the directory is synced, too"
    if facts.program is None:
        return said
    # In any/linux, names of a directory keep their order.
    rules = "linux" if explainer.recording.profile.contract.namespace == "prefix" else "posix"
    return (
        f"{said}; powercut run -c any/{rules} with {facts.program.name} tries each order of its calls: where "
        "none fails, they ask for enough, and the file system is the cause"
    )


def _not_tried(program: Program | None) -> str:
    if program is None or not program.untried:
        return ""
    return f"the check of {program.name} on trees that lack what one call did: {program.untried}"


def sync_of_the_lost(facts: Facts, calls: Sequence[ProgramCall]) -> ProgramCall | None:
    """The sync of an application that had returned, and in which the first write was sent that has to be lost
    for the state to fail; none where its own calls explain that.
    """
    if facts.program is None or not facts.lost or of_program(facts, facts.program) is not None:
        return None
    sent = facts.writes[facts.lost[0]].submitted
    done = (c for c in calls if syncs(c) and is_done(c, facts.at))
    return next((c for c in done if c.began < sent < (c.returned or 0)), None)


_OF_NO_ACKNOWLEDGEMENT = (
    *(Mechanism.PROGRAM_REPLACED, Mechanism.PROGRAM_GAP, Mechanism.PROGRAM_BETWEEN),
    *(Mechanism.PROGRAM_HALF, Mechanism.PROGRAM_ORDER, Mechanism.PROGRAM_NAMED),
)
"""What would be wrong if nothing had been acknowledged."""


def _promised(facts: Facts, mechanism: Mechanism | None = None) -> str:
    if facts.program is not None:
        return _acknowledged(facts.program, broken=mechanism not in _OF_NO_ACKNOWLEDGEMENT)
    if facts.promise is None:
        return "at any time, whatever had returned"
    step = facts.history.steps[facts.promise]
    begin, ack = facts.mark(f"begin {facts.promise}"), facts.promised_at
    if facts.history.earlier and facts.promise < facts.history.given:
        return f"by what the part before the crash left: {facts.history.earlier.text}"
    return (
        f"by `{step.operation}`, operation {facts.promise}: begun at event {begin} (entry {step.begin}), "
        f"returned at event {ack} (entry {step.ack})"
    )


def _acknowledged(program: Program, *, broken: bool = True) -> str:
    if program.at < 0:
        return f"by {program.name}'s own check, before anything was acknowledged"
    given = f"`{program.text}`{f' of {program.name}' if broken else ''}, at event {program.at}"
    by = "by" if broken else f"by {program.name}'s own check; the last before the power failed was"
    said = f"{by} the acknowledgement {given}"
    if not program.known:
        return f"{said}; not all that it had asked of the kernel is known"
    if (last := program.synced) is None:
        return f"{said}; until then it had called no fsync, or the like"
    return f"{said}; before that it had called {last.text} (events {last.began} to {last.returned})"


def _written(facts: Facts, mechanism: Mechanism | None, calls: Sequence[ProgramCall] = ()) -> str:
    """When what matters was first on its way to the disk. `calls`: of the program and of the one beside it,
    whose data has no name either.
    """
    writes, data, by = facts.writes, facts.data_of_subject(), facts.promised_at
    in_time = [w for w in data if by is None or w.submitted < by]
    chosen = [writes[e] for e in facts.lost] or (in_time or data)[-1:]
    if mechanism is Mechanism.PROGRAM_REPLACED and facts.program and (gone := facts.program.taken):
        others = [(c.began, c.returned or c.began) for c in calls if c.thread == ANOTHER]
        data = data_of(facts, gone)
        chosen = [w for w in data if not any(began < w.submitted < end for began, end in others)][:1]
        if not chosen:
            last_call = gone.missing[-1].call
            return f"{last_call.text}, at event {last_call.began}: no write of it is known"
    if not chosen:
        last = [w for w in facts.submitted() if facts.on_platter(w.entry)][-1:]
        return f"last of what is there: {facts.name(last[0].entry)}" if last else "nothing yet"
    first = chosen[0]
    more = f"; {len(chosen) - 1} more of the lost" if len(chosen) > 1 else ""
    flush = facts.flush_over(first.entry)
    covered = (
        f"the flush {flush.entry} covers it, sent at {flush.submitted}" if flush else "no flush covers it"
    )
    if first.fua:
        covered = "a FUA write"
    sent = "sent" if first.submitted < facts.at else "sent only after the cut,"
    return (
        f"{facts.name(first.entry)}: {sent} at event {first.submitted}, completed at {first.completed}; "
        f"{covered}{more}"
    )


def _schedule(recording: Recording) -> dict[str, str]:
    """Which threads a seed let meet while the workload was recorded; nothing where none did."""
    seen = threads_told(line for part in recording.said for line in part.lines)
    return {"schedule": str(seen)} if seen and seen.decisions else {}


def _cut(facts: Facts) -> str:
    held, lost = facts.in_cache(), facts.lost
    shown, left_out = first_few(lost, 3)
    fate = "all of it was written back"
    if lost:
        fate = f"lost: {'; '.join(facts.part(e) + facts.name(e) for e in shown)}"
    if left_out:
        fate += f"; and {left_out} more"
    return f"just before event {facts.at} (entry {facts.state.prefix}); the cache held {_count(held)}, {fate}"


def _count(entries: Sequence[int]) -> str:
    return "1 write" if len(entries) == 1 else f"{len(entries)} writes"


def _recovery(outcome: Outcome | Unobserved, facts: Facts) -> str:
    last = [w for w in facts.submitted() if w.entry not in facts.lost]
    records = [w.entry for w in last if any(n.kind.value == "record" for n in facts.names.get(w.entry, ()))]
    known = f"the last record on the platter was {facts.name(records[-1])}" if records else ""
    if isinstance(outcome, Unobserved):
        return known
    telling = [line for line in outcome.kernel_log if "nmount" not in line]
    said = telling[-1][:_LOG_LETTERS] if telling else ""
    if outcome.lost:
        said = "the kernel died or hung"
    elif outcome.mount_errno:
        said = f"mount failed with errno {outcome.mount_errno}" + (f": {said}" if said else "")
    return "; ".join(filter(None, [said or "mounted, and the kernel reported nothing", known]))


def _missing_of(program: Program | None, mechanism: Mechanism | None) -> str:
    """The call that the program should have made; empty where that is not shown. A remedy that no state shows
    is called a guess.
    """
    if program is None:
        return ""
    if not program.known:
        return f"not told: look whether {program.name} had called fsync before it acknowledged"
    if mechanism is None:
        return ""
    tried = "" if program.shown else " (a guess: no state in which that is durable was seen)"
    said = _remedies(program).get(mechanism, "")
    if not said and mechanism is Mechanism.PROGRAM_BETWEEN and _is_of_one_file(program.gap):
        mechanism = Mechanism.PROGRAM_HALF
    if mechanism is Mechanism.PROGRAM_BETWEEN and program.gap is not None and program.gap.swapped:
        return f"another order of these calls, or {_GUESSES[mechanism]}"
    return f"{said}{tried}" if said else _GUESSES.get(mechanism, "")


def _is_of_one_file(gap: Gap | None) -> bool:
    """Whether two calls write parts of one record."""
    return gap is not None and gap.made.sort is Sort.DATA and paths_of_call(gap.ahead)[0] == gap.made.path


_GUESSES = {
    Mechanism.PROGRAM_HALF: (
        "a checksum in the record, so that half of one counts as none, and the record before it kept until "
        "this one is durable (a guess)"
    ),
    Mechanism.PROGRAM_BETWEEN: "one rename that brings both (a guess)",
    Mechanism.PROGRAM_GAP: "the new under another name until it is durable, then a rename (a guess)",
    Mechanism.PROGRAM_NAMED: "another name until the contents are durable, then a rename (a guess)",
    Mechanism.PROGRAM_REPLACED: "another file until the contents are durable, then a rename (a guess)",
}


def _remedies(program: Program) -> dict[Mechanism, str]:
    found: dict[Mechanism, str] = {}
    if (sync := program.pending) is not None:
        found[Mechanism.PROGRAM_EARLY] = f"the return of {sync.text} before event {program.at}"
    if program.blamed:
        found[Mechanism.PROGRAM_NEVER] = _never(program)
    if program.early is not None and program.bare:
        found[Mechanism.PROGRAM_NAMED] = (
            f"{_wanted(program.bare, program.early.began)}, {program.early.call.text}"
        )
    orders = {Mechanism.PROGRAM_REPLACED: program.taken, Mechanism.PROGRAM_ORDER: program.order}
    for mechanism, order in orders.items():
        if order is not None and not order.is_in_place:
            last = f", and better before event {order.ahead.began}" if order.until is not None else ""
            by = order.until or order.ahead
            wanted = _wanted(order.missing, by.began, tried=order.tried)
            found[mechanism] = f"{wanted}, {by.text}{last}"
    return found


def _never(program: Program) -> str:
    """Behind a rename, the name that is told is another file's."""
    changes, named = program.blamed, program.renamed
    if named is not None and all(c.inode == named.inode and c.began < named.began for c in changes):
        return f"{_wanted(changes, named.began, tried=program.tried)}, {named.call.text}"
    return _wanted(changes, program.at, tried=program.tried)


def _wanted(changes: Sequence[Change], by: int, *, tried: bool = False) -> str:
    after = max(c.call.returned or 0 for c in changes)
    return f"an {wanted_sync(changes, tried=tried)}, called after event {after} and done before event {by}"


def _missing(facts: Facts, mechanism: Mechanism | None) -> str:
    if not facts.lost:
        return _missing_of_nothing(facts, mechanism)
    if facts.program is not None and mechanism is None:
        return ""  # a flush would be the kernel's to send, and it is not known that the kernel is at fault
    if facts.torn is not None and facts.promise is None:
        return f"the rest of entry {facts.torn}: no flush, but a disk that writes a block whole or not at all"
    entry = _told_of(facts, mechanism)
    write, flush, ack = facts.writes[entry], facts.flush_over(entry), facts.promised_at
    until = f"before event {ack}" if ack is not None else "before what depends on it was sent"
    by = _wanted_by(facts, write)
    if by is None or by < write.completed:
        return _too_late(facts, write, until if by is not None else "")
    to = f" to {facts.device(entry)}" if facts.devices else ""
    wanted = f"a flush sent{to} after event {write.completed}, done {until}"
    if flush is None:
        return f"{wanted}; there is none"
    return f"{wanted}; the next is entry {flush.entry}, sent at {flush.submitted}, done at {flush.completed}"


def _told_of(facts: Facts, mechanism: Mechanism | None) -> int:
    """The lost write of which it is told what is missing: the one that the cause names, or the first."""
    ack = facts.promised_at
    if mechanism is Mechanism.NOT_WAITED and ack is not None:
        return next(e for e in facts.lost if facts.writes[e].submitted < ack < facts.writes[e].completed)
    return facts.lost[0]


def _wanted_by(facts: Facts, write: TimedWrite) -> int | None:
    """The last event before which a lost write could be durable in time: the promise, or, where there is
    none, a write that may depend on it. None where all that may was sent before the lost one.
    """
    if (ack := facts.promised_at) is not None:
        return ack if write.submitted <= ack else None
    there = [w for w in facts.submitted() if w.entry not in facts.lost]
    turning = [w for w in there if w.entry in facts.turning]
    return max((w.submitted for w in turning or there if w.submitted > write.submitted), default=None)


def _too_late(facts: Facts, write: TimedWrite, until: str) -> str:
    """What is missing where a write was not done when it had to be: no flush that covers it could have been
    done by then, and a FUA write takes none. `until`: empty where it had not even been sent.
    """
    if not until:
        return f"{facts.name(write.entry)}, sent only at event {write.submitted}"
    flush = "" if write.fua else ", and a flush after it"
    late = f"which completed only at event {write.completed}"
    return f"a wait for entry {write.entry}, {late}{flush}, {until}"


def _missing_of_nothing(facts: Facts, mechanism: Mechanism | None) -> str:
    """Where no write was lost."""
    if mechanism is Mechanism.REUSED and (reused := first_reused(facts)) is not None:
        removal = "a commit of the removal" if facts.commits else "the removal"
        return f"{removal} before event {facts.writes[reused.entry].submitted}; of what was sent, nothing"
    later = [e for e in facts.brings_back if not facts.on_platter(e)]
    if later and facts.promise is not None:
        chosen = _first_needed(facts, later)
        return f"{facts.name(chosen)}, sent only at event {facts.writes[chosen].submitted}"
    if facts.program is not None:
        return "nothing that had been sent: what is missing was not on its way to the disk"
    return "no write: all that was sent is there"


def _first_needed(facts: Facts, later: Sequence[int]) -> int:
    """Of entries that were sent too late, the data of the file concerned, or else the record that commits, or
    else the one that the cause names.
    """
    by = facts.promised_at
    data = None if by is None else facts.data_not_sent(by)
    if data is not None and data.entry in later:
        return data.entry
    records = [e for e in later if Kind.RECORD in facts.kinds(e)]
    named = sent_later(facts)
    return [*records, *([named.entry] if named else later)][0]


def _control(explainer: Explainer, facts: Facts, minimal: Minimal) -> str:
    if minimal.control is None:
        return "none found that differs little and keeps the promise"
    outcome = explainer.outcome(minimal.control)
    found = explainer.violations(outcome, explainer.legal.position(minimal.control))
    unobserved = isinstance(outcome, Unobserved)
    kept = (
        "could not be observed"
        if unobserved
        else "keeps every promise"
        if not found
        else "does not show this"
    )
    if facts.lost and minimal.control.prefix == facts.state.prefix:
        there = _first_two([f"{facts.part(e, minimal.control)}entry {e}" for e in minimal.cleared])
        return f"{minimal.control}: the same cut with {there} on the platter {kept}"
    if explainer.legal.event(minimal.control) < facts.at:
        less = _first_two([facts.name(e) for e in minimal.without]) or "the same writes"
        return f"{minimal.control}: an earlier cut, without {less}, {kept}"
    return f"{minimal.control}: a later cut, with {_count(minimal.cleared)} more on the platter, {kept}"


def _first_two(entries: Sequence[str]) -> str:
    shown, left_out = first_few(entries, 2)
    return ", ".join(shown) + (f", and {left_out} more" if left_out else "")


def _contract(explainer: Explainer, finding: Finding, promise: int | None) -> str:
    contract = explainer.recording.profile.contract
    rule = _RULES.get(finding.oracle, finding.oracle).format(persists="fsync or the like")
    if promise is None and finding.oracle == "size" and contract.replace_is_safe:
        rule = "a rename over a file takes the whole size of the new one along (replace_is_safe)"
    where = f"vms/filesystems/CONTRACTS.md, {finding.case.configuration}"
    return f"{rule} (namespace {contract.namespace}, persists {contract.persists}; {where})"


# --- ladder and bytes -----------------------------------------------------------------------------


def ladder(
    facts: Facts, calls: Sequence[ProgramCall] = (), mechanism: Mechanism | None = None
) -> Iterator[Rung]:
    """The events around what matters, in order, with the cut among them. `calls`: of the workload's programs,
    shown for an application's finding. `mechanism`: how it was broken, if that is known.
    """
    rungs = [
        *_marks(facts, broken=mechanism not in _OF_NO_ACKNOWLEDGEMENT),
        *_writes(facts),
        *_flushes(facts),
        *_calls(facts, calls),
    ]
    rungs.sort(key=lambda r: r.event)
    matters = [n for n, r in enumerate(rungs) if r.accent]
    cut = next((n for n, r in enumerate(rungs) if r.event >= facts.at), len(rungs))
    over = {r.covered for n, r in enumerate(rungs) if n in matters and r.covered >= 0}
    last = max([n for n, r in enumerate(rungs) if r.entry in over and r.kind != "mark"], default=cut)
    first = max(min([*matters, cut]) - _BEFORE, 0)
    shown = {*range(first, min(cut + _AFTER, len(rungs))), last, *matters}
    if len(shown) > _MAX_RUNGS:
        near = [range(n - 3, n + 4) for n in (*matters, cut, last)]
        shown = {n for places in near for n in places if 0 <= n < len(rungs)}
    yield from _with_gaps(rungs, sorted(n for n in shown if n < len(rungs)), cut, facts)


def _with_gaps(rungs: Sequence[Rung], shown: Sequence[int], cut: int, facts: Facts) -> Iterator[Rung]:
    before, fallen = -1, False
    for n in shown:
        if n >= cut and not fallen:
            fallen = True
            yield Rung("cut", "the power fails", event=facts.at)
        if n != before + 1:
            left_out = n - before - 1
            yield Rung("gap", f"... {left_out} event{'' if left_out == 1 else 's'}")
        yield rungs[n]
        before = n
    if not fallen:
        yield Rung("cut", "the power fails", event=facts.at)


def _marks(facts: Facts, *, broken: bool) -> Iterator[Rung]:
    steps = facts.history.steps
    for mark in facts.times.marks:
        word, _, number = mark.text.partition(" ")
        text = mark.text
        if word in ("begin", "ack") and number.isdecimal() and int(number) < len(steps):
            said = {"begin": "begin", "ack": "done "}[word]
            text = f"{said} {number} {steps[int(number)].operation}"
        accent = facts.promise is not None and mark.text == f"ack {facts.promise}"
        if word == "app":
            text = f"acknowledged: {number}"
            accent = broken and facts.program is not None and mark.at == facts.program.at
        yield Rung("mark", text, event=mark.at, entry=mark.entry, accent=accent)


def _writes(facts: Facts) -> Iterator[Rung]:
    for write in facts.times.writes:
        flush = facts.flush_over(write.entry)
        durable = facts.legal.durable(write.entry) < facts.at
        fate = Fate.DURABLE if durable else Fate.PERSISTED
        if write.submitted >= facts.at:
            fate = Fate.LATER
        elif write.entry in facts.lost:
            fate = Fate.TORN if facts.part(write.entry) else Fate.LOST
        yield Rung(
            "fua" if write.fua else "write",
            _on(facts, write.entry) + (describe(facts.names.get(write.entry, ()), 2) or "?"),
            event=write.submitted,
            completed=write.completed,
            entry=write.entry,
            fate=fate,
            covered=flush.entry if flush else -1,
            accent=write.entry in facts.lost,
        )


def _on(facts: Facts, entry: int) -> str:
    """`second device: `, where there are several."""
    name = facts.devices.get(entry, "")
    return f"{name}: " if name else ""


def _flushes(facts: Facts) -> Iterator[Rung]:
    for flush in facts.times.flushes:
        text = f"{_on(facts, flush.entry)}flush, done at {flush.completed}"
        yield Rung("flush", text, event=flush.submitted, completed=flush.completed, entry=flush.entry)


def _calls(facts: Facts, calls: Sequence[ProgramCall]) -> Iterator[Rung]:
    """The program's calls, each where it began, with where it returned."""
    if facts.program is None:
        return
    for call, matters in shown_calls(facts.program, calls, facts.at):
        end = "did not return" if call.returned is None else f"{call.outcome}, done at {call.returned}"
        yield Rung("call", f"{call.text} {end}", event=call.began, accent=matters)


def _differences(explainer: Explainer, facts: Facts) -> Iterator[BlockDifference]:
    """Of the lost writes, where the platter first holds something else."""
    for entry in facts.lost[:_DIFFERENCES]:
        logged = explainer.recording.write_log.entries[entry]
        if EntryFlag.DISCARD in logged.flags:
            continue
        with explainer.recording.log.open("rb") as log:
            log.seek(logged.data_offset)
            lost = log.read(logged.sectors * SECTOR_BYTES)
        there = explainer.platter(facts.state, logged.sector, logged.sectors)
        if differing := hex_lines(there, lost):
            at = differing[0][0]
            yield BlockDifference(
                f"sector {logged.sector + at // SECTOR_BYTES}, byte {at % SECTOR_BYTES} of it",
                _holder(explainer, facts, logged.sector + at // SECTOR_BYTES),
                "\n".join(here for _, here, _ in differing),
                facts.name(entry),
                "\n".join(other for _, _, other in differing),
                tuple(offset - at for offset, _, _ in differing),
            )


def hex_lines(one: bytes, other: bytes) -> list[tuple[int, str, str]]:
    """Where the second has other bytes than the first: the first few lines of 16, each with its offset."""
    lines = (
        (n, one[n : n + _HEX_BYTES], other[n : n + _HEX_BYTES]) for n in range(0, len(other), _HEX_BYTES)
    )
    differ = ((n, here.hex(" "), there.hex(" ")) for n, here, there in lines if here != there)
    return list(itertools.islice(differ, _HEX_LINES))


def _holder(explainer: Explainer, facts: Facts, sector: int) -> str:
    """What the platter has at a sector: the last write there that was not lost."""
    entries = explainer.recording.write_log.entries
    at = sector * SECTOR_BYTES
    over = [
        w.entry
        for w in facts.submitted()
        if w.entry not in facts.lost
        and entries[w.entry].sector <= sector < entries[w.entry].sector + entries[w.entry].sectors
    ]
    if not over:
        return "what the disk held before the workload"
    name = next((n for n in facts.names.get(over[-1], ()) if _covers(n, at)), None)
    return f"entry {over[-1]}, {name}" if name is not None and name.named else f"entry {over[-1]}"


def _covers(name: BlockName, at: int) -> bool:
    return name.at <= at < name.at + name.length
