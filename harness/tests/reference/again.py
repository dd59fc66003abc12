"""Recoveries that were cut, one by one: against a run with `--again`.

Each crash state that the run looked at, also those that its memo answered, is recovered in a guest once more.
What that recovery wrote is cut at every entry, and of what no flush covers there, each subset is lost;
states of equal content are looked at once, through the memo (of which a sample is recovered anyway). Which
cuts there are is counted here, without the engine's crash times, its tree, and its choice of what is cut.

What they violate has to be what the run found: no cut may show what the run found nowhere in the case, and
where the run cut a recovery, it may have found nothing that its cuts do not show.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from harness.cases.attempts import Unobserved
from harness.cases.examine import Examiner
from harness.cases.recording import Recording
from harness.cases.recoveries import RecoveryLog
from harness.guests.session import Session
from harness.model import CaseId, CrashState, EntryFlag, Persisted, Verdict
from harness.store import RunStore
from harness.tests.cases.looks import observe
from harness.writelog import read_log

VOLATILE_MAX = 12
Violated = frozenset[tuple[str, str]]
NOTHING: Violated = frozenset()


@dataclass(slots=True)
class Cuts:
    """What was compared. `places`: where recoveries were cut; `skipped`: of these, with more than
    VOLATILE_MAX blocks that no flush covers.
    """

    recoveries: int = 0
    places: int = 0
    skipped: int = 0
    states: int = 0
    contents: int = 0
    visits: int = 0
    violations: int = 0
    differences: list[str] = field(default_factory=list)

    def add(self, other: Cuts) -> None:
        for name in ("recoveries", "places", "skipped", "states", "contents", "visits", "violations"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.differences += other.differences

    @property
    def text(self) -> str:
        return (
            f"{self.recoveries:,} recoveries cut at {self.places:,} places, {self.states:,} states, "
            f"{self.contents:,} contents, {self.visits:,} visits, {self.violations:,} violate something; "
            f"{self.skipped:,} places with more than {VOLATILE_MAX} volatile blocks left out; "
            f"{len(self.differences):,} differences"
        )


def check_again(store: RunStore, case: CaseId, recording: Recording, session: Session) -> Cuts:
    """Hold the cuts of one case against their enumeration."""
    explored = _explored(store, case)
    anywhere = NOTHING.union(*explored.values())
    examiner, cuts = Examiner(recording, memo=True, again=1), Cuts()
    for state in dict.fromkeys(s.state for s in store.iter_verdicts(case) if not s.state.again):
        observation = examiner.visit(session, [state], threading.Event())
        if isinstance(observation.outcome, Unobserved):
            cuts.differences.append(f"{case}{state}: {observation.outcome.reason}")
            continue
        cuts.visits += 1
        examiner.learn(state, observation)
        if observation.recovery is None:  # it did not come back whole, which the first generation says
            continue
        examiner.adopt(observation.recovery, observation)
        found = _violated(examiner, session, observation.recovery, cuts)
        observation.recovery.log.unlink()
        del recording.recoveries[state]
        if more := found - anywhere:
            cuts.differences.append(f"{case}{state}: only one by one {sorted(more)}")
        if more := explored.get(state, NOTHING) - found:
            cuts.differences.append(f"{case}{state}: only explored {sorted(more)}")
    if examiner.memo.mismatch:
        cuts.differences.append(f"{case}: {examiner.memo.mismatch}")
    examiner.close()
    return cuts


def _violated(examiner: Examiner, session: Session, recovery: RecoveryLog, cuts: Cuts) -> Violated:
    """What any cut in a recovery violates."""
    cuts.recoveries += 1
    states = [recovery.of.cut_at(cut) for cut in _cuts(recovery, cuts)]
    hashes = examiner.memo.hashes([recovery.on_disk(s.again[-1]) for s in states], recovery.target)
    distinct = dict(zip(hashes, states, strict=True))
    cuts.states += len(states)
    cuts.contents += len(distinct)
    found: set[tuple[str, str]] = set()
    for state in distinct.values():
        observation = observe(examiner, session, [state], threading.Event())
        if isinstance(observation.outcome, Unobserved):
            found.add(("unknown", observation.outcome.reason))
            continue
        cuts.visits += not observation.recalled
        violations = {(v.oracle, v.signature) for v in examiner.judge(state, observation).violations}
        cuts.violations += bool(violations)
        found |= violations
    return frozenset(found)


def _cuts(recovery: RecoveryLog, cuts: Cuts) -> Iterator[CrashState]:
    """Every state that a cut may leave: all that was flushed, and any subset of the rest."""
    entries = read_log(recovery.log).entries[recovery.state_entries :]
    chunks: dict[int, list[int]] = defaultdict(list)
    for number, chunk in enumerate(recovery.legal.chunks):
        chunks[chunk.entry].append(number)
    free: list[int] = []
    for at in range(len(entries) + 1):
        free += chunks[at]
        cuts.places += 1
        if len(free) > VOLATILE_MAX:
            cuts.skipped += 1
        else:
            whole = CrashState(at, persisted=Persisted())
            yield from (recovery.legal.losing(whole, lost) for lost in subsets(free))
        if at < len(entries) and EntryFlag.FLUSH in entries[at].flags:
            free = []


def subsets(chunks: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for count in range(len(chunks) + 1):
        yield from itertools.combinations(chunks, count)


def _explored(store: RunStore, case: CaseId) -> dict[CrashState, Violated]:
    """What the run found in cuts of recoveries that it cut, by the state that was recovered."""
    violated = store.violated(case)
    found: dict[CrashState, Violated] = {}
    for seen in store.iter_verdicts(case):
        if len(seen.state.again) != 1:
            continue
        of = seen.state.recovered
        found[of] = found.get(of, NOTHING) | violated.get(str(seen.state), NOTHING)
        if seen.verdict is Verdict.UNKNOWN:
            found[of] |= {("unknown", "; ".join(seen.unknown))}
    return found
