"""`python -m harness.tests.reference RUN`: every legal state of the small crash times of an exhaustive run,
one by one.

For each crash time with at most MAX_VOLATILE volatile blocks, every subset of them is a state (not counted: a
block that writes what the base image holds there already, alone in its place); states of equal content are
looked at once, through the memo (of which a sample is recovered anyway). What they violate, all together, has
to be what the run found at that crash time, no less and no more. Prints a line a case; exits 1 for a
difference.

With `--one-cache`, all devices of a recording share one cache: what the states violate then is printed,
whatever the run found. A kernel that forgets to flush the other device shows nothing there.

With `--again`, recoveries are cut one by one instead: see `again`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.cases.attempts import Unobserved
from harness.cases.examine import Examiner
from harness.cases.recording import Recording, by_times, load_recording
from harness.errors import WriteLogError
from harness.filesystems.profiles import select_profiles
from harness.guests.guest_specs import make_specs
from harness.guests.session import Session
from harness.host.folders import OwnedFolder
from harness.kernels.find import find_chosen
from harness.model import SECTOR_BYTES, CaseId, CrashState, EntryFlag, Verdict
from harness.states import CrashTime, LegalStates
from harness.store import RunStore
from harness.store.records import CaseRecord, CaseStatus
from harness.tests.cases.looks import observe
from harness.tests.reference.again import Cuts, check_again, subsets
from harness.workloads.generate import generate
from harness.workloads.load import select_workloads
from harness.writelog.times import Times

MAX_VOLATILE = 12
Violated = set[tuple[str, str]]


@dataclass(slots=True)
class Figures:
    """What was compared, of one case or of all."""

    crash_times: int = 0
    skipped: int = 0
    states: int = 0
    contents: int = 0
    differences: list[str] = field(default_factory=list)

    def add(self, other: Figures) -> None:
        self.crash_times += other.crash_times
        self.skipped += other.skipped
        self.states += other.states
        self.contents += other.contents
        self.differences += other.differences

    @property
    def text(self) -> str:
        return (
            f"{self.crash_times:,} crash times, {self.states:,} states, {self.contents:,} contents; "
            f"{self.skipped:,} crash times with more than {MAX_VOLATILE} volatile blocks left out; "
            f"{len(self.differences):,} differences"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--one-cache", action="store_true")
    parser.add_argument("--again", action="store_true")
    given = parser.parse_args()
    if given.again:
        return main_again(given.run)
    total = Figures()
    with RunStore.open(given.run) as store:
        explored = [c for c in store.cases() if c.status is CaseStatus.DONE and c.info.coverage is not None]
        for record in explored:
            found = check_case(store, record, one_cache=given.one_cache)
            total.add(found)
            sys.stdout.write(f"{record.case}: {found.text}\n")
            sys.stdout.flush()
    for line in total.differences:
        sys.stdout.write(f"DIFFERS {line}\n")
    sys.stdout.write(f"{len(explored)} cases: {total.text}\n")
    return 1 if total.differences or not total.crash_times else 0


def main_again(run: Path) -> int:
    total, count = Cuts(), 0
    with RunStore.open(run) as store:
        for record in store.cases():
            if record.status is not CaseStatus.DONE or not record.info.again:
                continue
            with _opened(store, record, notes=True) as (recording, session):
                found = check_again(store, record.case, recording, session)
            count += 1
            total.add(found)
            sys.stdout.write(f"{record.case}: {found.text}\n")
            sys.stdout.flush()
    for line in total.differences:
        sys.stdout.write(f"DIFFERS {line}\n")
    sys.stdout.write(f"{count} cases: {total.text}\n")
    return 1 if total.differences or not total.recoveries else 0


def check_case(store: RunStore, record: CaseRecord, *, one_cache: bool) -> Figures:
    """Hold one case against its enumeration; or look at it as if it had been recorded on one device."""
    case = record.case
    with _opened(store, record, one_cache=one_cache) as (recording, session):
        assert recording.legal is not None
        explored = defaultdict(set) if one_cache else _explored(store, case)
        return _compare(case, explored, recording, recording.legal, session)


@contextlib.contextmanager
def _opened(
    store: RunStore, record: CaseRecord, *, one_cache: bool = False, notes: bool = False
) -> Iterator[tuple[Recording, Session]]:
    """A case's recording, and a session that judges it. Raises EventsDiffer for one without times."""
    plan, case = store.plan(), record.case
    (profile,) = select_profiles([case.configuration])
    workload = (
        generate(case.workload)
        if case.is_generated
        else next(w for w in select_workloads(plan.workloads) if w.name == case.workload)
    )
    with OwnedFolder("powercut-reference-") as folder:
        recording = load_recording(
            case, profile, workload, store.layout, folder.path, plan.log_bytes, record.info.files
        )
        if one_cache and recording.times is not None:
            recording = replace(recording, times=on_one_device(recording.times))
        recording, why = by_times(recording, plan.unit_sectors or 8)
        if recording.legal is None:
            raise WriteLogError(f"{case}: {why}", "record it on a kernel with events of the block layer")
        kernel = find_chosen(plan.kernel_choice)
        specs = make_specs(plan.guests, kernel, [profile], [workload], recording.base, folder.path)
        with Session(specs.judge, folder.path / "judge", plan.log_bytes, notes=notes) as session:
            yield recording, session


def on_one_device(times: Times) -> Times:
    """The times as they would be if a flush of any device were one of all."""
    return replace(
        times,
        writes=tuple(replace(w, device=0) for w in times.writes),
        flushes=tuple(replace(f, device=0) for f in times.flushes),
    )


def _compare(
    case: CaseId,
    explored: defaultdict[int, Violated],
    recording: Recording,
    legal: LegalStates,
    session: Session,
) -> Figures:
    figures, examiner = Figures(), Examiner(recording, memo=True)
    idle = _idle(recording, legal)
    for entry, phases in itertools.groupby(legal.crash_times, key=lambda m: m.entry):
        crash_times = [_without(m, idle) for m in phases]
        if any(len(m.choices.volatile) > MAX_VOLATILE for m in crash_times):
            figures.skipped += 1
            continue
        figures.crash_times += 1
        found = _violated(examiner, legal, session, crash_times, figures)
        if found != explored[entry]:
            figures.differences.append(
                f"{case} before #{entry}: only one by one {sorted(found - explored[entry])}, "
                f"only explored {sorted(explored[entry] - found)}"
            )
    if examiner.memo.mismatch:
        figures.differences.append(f"{case}: {examiner.memo.mismatch}")
    return figures


def _idle(recording: Recording, legal: LegalStates) -> set[int]:
    """The chunks that change nothing: what they write is there already, and nothing else is written there."""
    writers = Counter(s for c in legal.chunks for s in range(c.sector, c.sector + c.sectors))
    found = set()
    with recording.base.open("rb") as base, recording.log.open("rb") as log:
        for number, chunk in enumerate(legal.chunks):
            entry = recording.write_log.entries[chunk.entry]
            if EntryFlag.DISCARD in entry.flags or any(
                writers[s] > 1 for s in range(chunk.sector, chunk.sector + chunk.sectors)
            ):
                continue
            base.seek(chunk.sector * SECTOR_BYTES)
            log.seek(entry.data_offset + (chunk.sector - entry.sector) * SECTOR_BYTES)
            length = chunk.sectors * SECTOR_BYTES
            if base.read(length) == log.read(length):
                found.add(number)
    return found


def _without(crash_time: CrashTime, idle: set[int]) -> CrashTime:
    """The crash time with idle chunks persisted."""
    volatile = tuple(n for n in crash_time.choices.volatile if n not in idle)
    return replace(crash_time, choices=replace(crash_time.choices, volatile=volatile))


def _violated(
    examiner: Examiner, legal: LegalStates, session: Session, crash_times: list[CrashTime], figures: Figures
) -> Violated:
    """What any state of a crash time violates."""
    found: Violated = set()
    for state in _contents(legal, session, examiner.recording, crash_times, figures):
        observation = observe(examiner, session, [state], threading.Event())
        if isinstance(observation.outcome, Unobserved):
            figures.differences.append(f"{state}: {observation.outcome.reason}")
            continue
        found |= {(v.oracle, v.signature) for v in examiner.judge(state, observation).violations}
    return found


def _contents(
    legal: LegalStates, session: Session, recording: Recording, crash_times: list[CrashTime], figures: Figures
) -> Iterator[CrashState]:
    """A state of each content of the crash time."""
    states = [
        legal.name(m, {*m.choices.absent, *lost}) for m in crash_times for lost in subsets(m.choices.volatile)
    ]
    hashes = session.show(recording.target).hashes([legal.on_disk(s) for s in states])
    distinct = dict(zip(hashes, states, strict=True))
    figures.states += len(states)
    figures.contents += len(distinct)
    yield from distinct.values()


def _explored(store: RunStore, case: CaseId) -> defaultdict[int, Violated]:
    """What the run found, by the entry before which the power fails."""
    violated = store.violated(case)
    found = defaultdict[int, Violated](set)
    for seen in store.iter_verdicts(case):
        if seen.verdict is Verdict.UNKNOWN:
            found[seen.state.prefix].add(("unknown", "; ".join(seen.unknown)))
        found[seen.state.prefix] |= violated.get(str(seen.state), frozenset())
    return found


if __name__ == "__main__":
    sys.exit(main())
