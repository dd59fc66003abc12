"""Steps 5 to 8 of a run, for the cases of modes that are only rules: see `harness.run`.

A guest notes the program and checks the trees; no kernel recovers anything, so there is no log, no fsck and
no memo. What comes of it is stored as any case is: states, findings, an explanation for each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from harness.cases.application import at_once
from harness.cases.casework import Limits
from harness.errors import NotSupported, PowercutError, VersionsDiffer
from harness.filesystems.profile import Profile
from harness.guests.made_trees import NOTES_MAX_BYTES, MadeTrees
from harness.guests.session import GuestSpec, Session, Target
from harness.host.packed import pack, unpack
from harness.host.progress import Progress, telling
from harness.host.text import first_few, one_line
from harness.model import CaseId, Check, CheckResult, CrashPoint, Judgement, Workload
from harness.plan import Plan
from harness.report.explanation import Explanation, Fate, Rung, write_explanation
from harness.report.lines import reproduce, source_words
from harness.report.words import MANY, plural
from harness.ruled.hides import orders_of
from harness.ruled.judging import (
    ORACLE,
    Answer,
    Judging,
    Told,
    answer,
    check_of,
    judgement_of,
    unsynced_lines,
)
from harness.ruled.where import Says, Where, words_of
from harness.rules.calls import Notes
from harness.rules.rules import Rules
from harness.rules.states import Listed, Partial
from harness.rules.vulnerabilities import Vulnerability
from harness.rules.words import in_brackets, text_of
from harness.store import RunStore
from harness.store.records import (
    CaseInfo,
    CaseStatus,
    Coverage,
    Evidence,
    Finding,
    How,
    JudgedState,
    finding_id,
)

CALLS = "the program's calls"
UNSYNCED = "what no sync covered"
REMEDY = "what would mend it"
INTERRUPTED = "its cause was not looked for: the run was interrupted"
_CALLS_SHOWN = 40
_SHOWN = 200
_COUNTED_MAX = 100_000


class RuledWork:
    """All of a run's cases of such modes, one after the other."""

    def __init__(
        self,
        plan: Plan,
        store: RunStore,
        progress: Progress,
        spec: GuestSpec,
        scratch: Path,
        on_done: Callable[[CaseId], None] = lambda case: None,
    ) -> None:
        self._plan, self._store, self._progress = plan, store, progress
        self._spec, self._scratch, self._on_done = spec, scratch, on_done
        self._limits = Limits(plan)

    def work(
        self,
        cases: Sequence[tuple[Profile, Workload]],
        bases: Mapping[str, Path],
        lacking: Mapping[str, str],
    ) -> None:
        """Decide all cases that no earlier part of the run decided. Raises EnoughDone, VersionsDiffer."""
        named = {CaseId(p.filesystem, p.mode, w.name): (p, w) for p, w in cases}
        decided = {c.case for c in self._store.cases() if c.status is CaseStatus.DONE}
        if left := named.keys() - decided:
            self._progress.begin("recorded", len(left))
        for case, (_, workload) in named.items():  # all of them, before the time is up
            if case in left:
                self._store.add_case(CaseInfo(case, "", "", workload.summary, (ORACLE,)))
        for case, (profile, workload) in named.items():
            if case in left:
                if reason := lacking.get(profile.name) or lacking.get(workload.name):
                    self._store.set_case_status(case, CaseStatus.NOT_RUN, reason)
                else:
                    self._limits.need_more()
                    begun = time.monotonic()
                    try:
                        self._decide(case, profile, workload, bases[profile.name])
                    finally:  # a part that is stopped took its time, too
                        self._store.add_case_seconds(case, time.monotonic() - begun)
                self._progress.advance("recorded", 1)
            self._limits.ended(self._store, case)
            self._on_done(case)

    def _decide(self, case: CaseId, profile: Profile, workload: Workload, base: Path) -> None:
        check = check_of(workload.checks)
        if check is None or profile.rules is None:
            why = f"{workload.name} has no check of its own, and a mode that is only rules has no other judge"
            self._store.set_case_status(case, CaseStatus.NOT_SUPPORTED, why)
            return
        earlier = self._store.judged_states(case)
        try:
            target = Target(profile.fstype, "", base, None)
            with (
                Session(self._spec, self._scratch / "ruled", self._plan.log_bytes) as session,
                MadeTrees(session, target) as trees,
            ):
                argv = workload.operations[check.operation].argv
                notes = self._notes(case, trees, argv)
                self._store.set_case_status(case, CaseStatus.RECORDED)
                acks = [ack.text for ack in notes.acks]
                if why := at_once(workload, [ack.calls for ack in notes.acks]):
                    self._progress.say(f"{case}: {why}")
                judging = Judging(
                    notes,
                    profile.rules,
                    lambda asked: trees.check(asked, check, acks),
                    budget=self._plan.budget,
                    deadline=self._limits.deadline,
                )
                again = partial(trees.note_again, argv, self._limits.deadline)
                noted = _Case(self._store, case, workload, check, judging, self._progress, again)
                if not noted.decide():
                    self._limits.need_more()  # a case that the run's time ended goes on when it is resumed
                self._store.forget_states(case, earlier - noted.stored)
        except VersionsDiffer:  # it would cost every case
            raise
        except NotSupported as e:
            self._store.set_case_status(case, CaseStatus.NOT_SUPPORTED, e.line)
        except PowercutError as e:
            self._progress.say(f"{case}: {e.line}")
            self._store.set_case_status(case, CaseStatus.UNKNOWN, e.line)
        else:
            self._store.set_case_status(case, CaseStatus.DONE)

    def _notes(self, case: CaseId, trees: MadeTrees, argv: Sequence[str]) -> Notes:
        """The notes on which an earlier part of the run judged states of the case, if there are any: of a
        program that draws something at random, others are of another recording. Else the program runs. Raises
        as `MadeTrees.note`, and EnoughDone.
        """
        kept, raw = self._store.layout.case(case).calls, self._scratch / "calls"
        try:
            if kept.exists() and self._store.judged_states(case):
                return trees.take(unpack(kept, raw, NOTES_MAX_BYTES).read_bytes())
            with telling(lambda: f"{case}: the program runs", self._progress.say):
                notes = trees.note(argv, self._limits.deadline)
            self._limits.need_more()
            raw.write_bytes(trees.raw)
            pack(raw, kept)
        finally:
            raw.unlink(missing_ok=True)
        return notes


@dataclass(frozen=True, slots=True)
class _Case:
    """A program that was noted. `stored`: the names of the states of which a verdict was."""

    _store: RunStore
    _id: CaseId
    _workload: Workload
    _check: Check
    _judging: Judging
    _progress: Progress
    _again: Callable[[], Notes | None] | None = None
    stored: set[str] = field(default_factory=set)

    def decide(self) -> bool:
        """Visit the states, and store what comes of them. Returns whether all were visited, and why some fail
        was looked for to the end. Raises NotJudged, GuestLost.
        """
        judging = self._judging
        listed = judging.legal.listed()
        expected = listed.at_most
        self._progress.begin("states", expected)
        failed: dict[Partial, CheckResult] = {}
        sound: list[JudgedState] = []
        visited: list[Partial] = []
        try:
            for state, result in judging.visited(listed):
                visited.append(state)
                if result.exit_code == 1:
                    failed[state] = result
                else:
                    sound.append(self._judged(state, judgement_of(result, self._check, "")))
                self._progress.advance("states", 1)
                if (now := judging.expected(len(visited), listed.at_most)) != expected:
                    self._progress.begin("states", now - expected)
                    expected = now
            self._progress.begin("states", len(visited) - expected)  # what was not, or is the same
            if failed and self._again and not judging.is_over and (again := self._again()):
                judging.name_drawn(again)
            with telling(lambda: f"{self._id}: why {len(failed):,} states fail", self._progress.say):
                found = answer(judging, failed)
        except KeyboardInterrupt:  # what was seen is told; the case begins anew when the run is resumed
            sound += [self._judged(s, judgement_of(r, self._check, INTERRUPTED)) for s, r in failed.items()]
            self._put(sound)
            raise
        self._put(sound)
        self._put_findings(found, failed)
        self._put_case(listed, visited, {told.found.state for told in found.told})
        return judging.all_visited and not (failed and judging.is_over)

    def _put(self, judged: Sequence[JudgedState]) -> None:
        self._store.put_judgements(self._id, judged)
        self.stored.update(str(one.state) for one in judged)

    def _judged(self, state: Partial, judgement: Judgement) -> JudgedState:
        return JudgedState(
            state.named(self._judging.effect),
            self._judging.key(state).hex(),
            judgement,
            How.JUDGED,
        )

    def _put_case(self, listed: Listed, visited: Sequence[Partial], met: Collection[Partial]) -> None:
        """`met`: what the search for causes met besides."""
        judging = self._judging
        judged = {*visited, *met}
        contents = len({judging.key(s) for s in judged})
        coverage = self._coverage(listed, len(visited))
        info = CaseInfo(
            self._id,
            "",
            "",
            self._workload.summary,
            (ORACLE,),
            len(judged),
            contents,
            judging.notes.digest(),
            coverage=coverage,
            doubt=judging.doubt,
        )
        self._store.add_case(info)

    def _coverage(self, listed: Listed, visited: int) -> Coverage:
        """`visited`: so many of the listed states, the first."""
        judging = self._judging
        stretches, losses, why = judging.legal.stretches, None, ""
        if not listed.every_set:
            losses = 1 if listed.singles else 0
            why = "more sets of unsynced micro-operations, and torn blocks, than are visited"
        elif listed.torn_left:
            losses = 1
            why = "of blocks that are torn beside what is lost, not each is visited"
        if not judging.all_visited:
            losses = 0 if visited >= len(listed.ends) else -1
            why = "the time of the run" if judging.is_over else f"the budget: {judging.budget.text}"
        left = _left(listed, visited) if why else 0
        return Coverage(len(stretches), losses, left, judging.asked, why)

    def _put_findings(self, found: Answer, failed: Mapping[Partial, CheckResult]) -> None:
        judging, where = self._judging, Where(self._judging)
        for told in found.told:
            states = [s for s in told.states if s in failed]
            first = told.found.state
            if first not in states:
                states.append(first)
            results = {first: judging.result(first, judging.legal.acks(first)), **failed}
            words = (told.headline, told.places)
            judged = [self._judged(s, judgement_of(results[s], self._check, *words)) for s in states]
            self._put(judged)
            self._explain(told, found.together, where.of(told.found))
        for state in found.rest:
            judgement = judgement_of(failed[state], self._check, found.why_not)
            self._put([self._judged(state, judgement)])

    def _explain(self, told: Told, together: str, promises: Mapping[str, Says]) -> None:
        judging = self._judging
        key = finding_id(self._id, ORACLE, one_line(told.headline))
        finding = next((f for f in self._store.findings_of(self._id) if f.id == key), None)
        if finding is None:
            return
        first = told.found.state
        files = [f"{p} ({e.kind}, {e.size} bytes)" for p, e in sorted(judging.files(first).items())]
        shown, more = first_few(files, _SHOWN)
        notes = {
            CALLS: "\n".join(_call_lines(judging.notes)),
            UNSYNCED: "\n".join(unsynced_lines(judging.effect)),
            REMEDY: "\n".join(remedy_lines(told, together).values()),
            "files that came back": "\n".join([*shown, *([f"and {more} more"] if more else [])]) or "none",
        }
        self._store.put_evidence(finding, Evidence(first.named(judging.effect), notes=notes))
        write_explanation(self._store.layout, self._explanation(finding, told, together, promises))

    def _explanation(
        self, finding: Finding, told: Told, together: str, promises: Mapping[str, Says]
    ) -> Explanation:
        judging = self._judging
        state, effect = told.found.state, judging.effect
        lost = effect.issued(len(effect.notes.calls)) & ~state.persisted
        rules, at = judging.rules, state.named(effect)
        # With the fewest acknowledgements for which it fails, as `promised` names the last of them.
        fewest = judgement_of(judging.result(state, told.found.acks), self._check, "").violations
        lines = {
            "promised": promised(judging.notes, told.found.acks, judging.legal.acks(state)),
            "written": told.calls,
            "cut": f"{state.persisted.bit_count()} micro-operations had persisted, "
            f"{'one of them in part, ' if state.torn else ''}"
            f"{lost.bit_count()} had not{f'; the check ended with {fewest[0].found}' if fewest else ''}",
            **remedy_lines(told, together),
            "contract": f"{self._id.configuration}: {_rules_in_words(rules)}",
            "where": words_of(promises),
            "reproduce": reproduce(self._id, at, source_words(self._store, str(self._store.path))),
        }
        return Explanation(
            finding.id,
            told.headline,
            "",
            lines,
            tuple(_rungs(judging, told)),
            str(CrashPoint(self._id, at)),
            minimal=None,
            visits=judging.asked,
            promises={mode: str(said) for mode, said in promises.items()},
            orders=orders_of(effect, told.found),
        )


def _left(listed: Listed, visited: int) -> int:
    """How many states were not visited: counted if they are few, else the sets that the rules may allow."""
    if listed.every_set and listed.at_most <= _COUNTED_MAX:
        return max(1, min(MANY, sum(1 for _ in listed) - visited + listed.torn_left))
    every = sum(min(MANY, 1 << s.open.bit_count()) for s in listed.legal.stretches)
    return max(1, every - visited) if every < MANY else MANY


def _rules_in_words(rules: Rules) -> str:
    if rules.contract:
        return f"all that {rules.fsync_names.source} leaves possible of what the program did"
    return (
        f"fsync of a file {'covers' if rules.fsync_names.holds else 'does not cover'} its names, names of a "
        f"directory {'keep their order' if rules.names_in_order.holds else 'persist in any order'}, "
        f"a truncation {'cuts at once' if rules.truncates_at_once.holds else 'may be half done'}"
    )


def remedy_lines(told: Told, together: str) -> dict[str, str]:
    """The remedy of a finding, and the remedy of all findings of the program; once, if both are the same."""
    late = f". {told.too_late}" if told.too_late else ""
    if not together or f"{together}. ".startswith(f"{told.remedy}. "):
        return {"missing": f"{together or told.remedy}{late}"}
    return {
        "missing": f"{told.remedy}{late}",
        "control": f"for all findings of the program together: {together}",
    }


def promised(notes: Notes, acks: int, given: int = 0) -> str:
    """Up to which acknowledgement the program had promised something when the power failed. `acks`: with so
    many the check says no; `given`: so many may have been given by then.
    """
    if not acks and given:
        last = notes.acks[given - 1].text
        return f"the check refuses what is there even if nothing was acknowledged; `{last}` may have been"
    if not acks:
        return "nothing had been acknowledged; the check must accept what is there all the same"
    ack = notes.acks[acks - 1]
    rest = f", and by {plural(acks - 1, 'acknowledgement')} before it" if acks > 1 else ""
    return f"by the acknowledgement `{ack.text}`, after {plural(ack.calls, 'call')}{rest}"


def _call_lines(notes: Notes) -> list[str]:
    """Calls and acknowledgements, in order."""
    lines: list[str] = []
    acks = list(notes.acks)
    for number, call in enumerate(notes.calls):
        while acks and acks[0].calls <= number:
            lines.append(f"     acknowledged: {acks.pop(0).text}")
        lines.append(f"{number:4} {text_of(call)}{in_brackets(call.place)}")
    lines += [f"     acknowledged: {ack.text}" for ack in acks]
    return [*lines[:_SHOWN], *([f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else [])]


def _rungs(judging: Judging, told: Told) -> list[Rung]:
    """The calls around those that matter, each with the fate of its changes, and the acknowledgements between
    them.
    """
    found, notes = told.found, judging.notes
    matter = {m.call for m in judging.effect.of(found.missing | found.present)}
    if not matter:
        return []
    broken = 0 if found.present else found.acks  # the acknowledgement, counted from 1
    ends = matter | {ack.calls for ack in notes.acks[broken - 1 : broken]}
    first, last = max(0, min(matter) - 5), min(max(ends) + 6, min(matter) + _CALLS_SHOWN, len(notes.calls))
    rungs = []
    for number in range(first, last + 1):
        rungs += [
            Rung("call", f"acknowledged `{ack.text}`", accent=count == broken)
            for count, ack in enumerate(notes.acks, 1)
            if ack.calls == number
        ]
        if number < last:
            rungs.append(_rung_of(judging, found, number, accent=number in matter))
    return rungs


def _rung_of(judging: Judging, found: Vulnerability, number: int, *, accent: bool) -> Rung:
    call = judging.notes.calls[number]
    own = sum(m.bit for m in judging.effect.micros if m.call == number)
    there = own & found.state.persisted
    fate = Fate.LOST if not there else Fate.PERSISTED if found.state.whole & own == own else Fate.TORN
    fate = fate if own else Fate.NONE
    return Rung("call", f"{number} {text_of(call)}", event=number, fate=fate, accent=accent)
