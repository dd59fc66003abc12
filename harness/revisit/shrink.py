"""Reduces the workload of a finding to the operations it needs.

Each candidate is a subsequence of the operations that the reference model accepts. It is recorded, and all
its crash states are judged, on the mode and kernel of the run; it is kept if the same oracle still finds a
violation. The result is a workload file.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.cases.casework import enumerate_states, group_by_content, look_at
from harness.cases.examine import Examiner, JudgedGroup
from harness.cases.exploration import Exploration
from harness.cases.recording import by_times, make_base, record
from harness.errors import NotSupported, PowercutError, UsageError
from harness.filesystems.profiles import Profile, select_profiles
from harness.guests.kits import make_kits
from harness.guests.worker import Worker
from harness.host.folders import OwnedFolder
from harness.host.text import one_line
from harness.model import CaseId, Operation, Workload
from harness.oracles.replay import fitting
from harness.plan import Plan
from harness.revisit.ddmin import ddmin
from harness.revisit.trust import Named, chosen_kernel
from harness.store import RunStore
from harness.store.layout import CaseLayout
from harness.store.records import CaseStatus, Finding
from harness.workloads.load import find_workload

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Shrunk:
    """`summary`: the violation that the last recording showed. `tried`: candidates recorded."""

    workload: Workload
    oracle: str
    summary: str
    tried: int


def finding_to_shrink(store: RunStore, text: str, oracle: str) -> Finding | None:
    """The finding of a case (`ext4-nobarrier/random1-17-20`, or one of its crash points) to keep: the first,
    unexpected ones before expected ones; of `oracle`, if named. None if the case has none: it passed. Raises
    UsageError for a case or oracle that the run does not have.
    """
    try:
        case = CaseId.parse(text.partition("@")[0])
    except ValueError as e:
        raise UsageError(str(e), "the report names the cases") from e
    known = store.case(case)
    if known is None:
        raise UsageError(f"the run {store.path.name} has no case {case}", "the report names the cases")
    findings = [f for f in store.findings() if f.case == case]
    if not findings and known.status is not CaseStatus.DONE:
        raise UsageError(
            f"{case} was not decided: {known.reason or known.status.value}", "run it again first"
        )
    found = [f for f in findings if oracle in ("", f.oracle)]
    if findings and not found:
        has = ", ".join(dict.fromkeys(f.oracle for f in findings))
        raise UsageError(f"{case} has no finding of {oracle!r}", f"it has: {has}")
    return min(found, key=lambda f: f.expectation is not None, default=None)


def shrink(store: RunStore, finding: Finding, named: Named, say: Say) -> Shrunk | None:
    """The shortest workload found that shows a violation of the finding's oracle; None if a new recording of
    the whole workload does not show it. Raises UsageError for a workload that is not a list of operations,
    and for kernel files that only the run directory names.
    """
    plan, case = store.plan(), finding.case
    (profile,) = select_profiles([case.configuration])
    workload = find_workload(plan.workloads, case.workload)
    if workload.opaque:
        raise UsageError(f"{workload.name} runs programs", "only lists of operations can be shrunk")
    with _bench(plan, store, profile, workload, named) as bench:
        trial = _Trial(bench, profile, case, finding.oracle, say)
        if not trial.holds(workload.operations):
            return None
        # An operation may occur twice: places in the list are what is taken out.
        places = tuple(range(len(workload.operations)))

        def mended(part: tuple[int, ...]) -> tuple[int, ...]:
            kept = fitting(profile.contract, [workload.operations[i] for i in part])
            return tuple(part[i] for i in kept)

        left = ddmin(places, lambda part: trial.holds([workload.operations[i] for i in part]), mended)
    return Shrunk(
        Workload(f"{case.workload}-shrunk", workload.summary, tuple(workload.operations[i] for i in left)),
        finding.oracle,
        trial.seen,
        trial.tried,
    )


@dataclass(frozen=True, slots=True)
class _Bench:
    """What candidates are tried with."""

    plan: Plan
    recorder: Worker
    judge: Worker
    base: Path
    directory: Path


@contextlib.contextmanager
def _bench(
    plan: Plan, store: RunStore, profile: Profile, workload: Workload, named: Named
) -> Iterator[_Bench]:
    """Guests as the run had them, on the run's own base image."""
    kernel = chosen_kernel(plan, store.info.kernel.name, named)
    with OwnedFolder("powercut-shrink-") as folder, contextlib.ExitStack() as guests:
        directory = folder.path
        kept = store.layout.base(profile.filesystem, profile.mode)
        base = make_base(profile, kept, directory)
        kits = make_kits(plan.guests, kernel, [profile], [workload], base, directory)
        judge = guests.enter_context(
            Worker(kits.judge, directory / "judge", plan.log_bytes, plan.completions)
        )
        recorder = judge
        if kits.recorder is not kits.judge:
            recorder = guests.enter_context(
                Worker(kits.recorder, directory / "recorder", plan.log_bytes, plan.completions)
            )
        yield _Bench(plan, recorder, judge, base, directory)


class _Trial:
    """Records and judges candidates. `seen`: the violation that the last one which held showed."""

    def __init__(self, bench: _Bench, profile: Profile, case: CaseId, oracle: str, say: Say) -> None:
        self._bench, self._profile, self._case, self._oracle, self._say = bench, profile, case, oracle, say
        self.tried = 0
        self.seen = ""

    def holds(self, operations: Sequence[Operation]) -> bool:
        """Whether some crash state of these operations shows a violation of the oracle. A workload that
        cannot be recorded shows none.
        """
        self.tried += 1
        # A unique name: the disk identifies a log by its path.
        workload = Workload(f"candidate-{self.tried}", "", tuple(operations))
        try:
            found = self._violation(workload)
        except NotSupported as e:
            raise UsageError(e.what) from e
        except PowercutError as e:
            self._say(f"{len(operations):3} operations: cannot be tried: {e.what}")
            return False
        self._say(f"{len(operations):3} operations: {found or 'does not show it'}")
        self.seen = found or self.seen
        return bool(found)

    def _violation(self, workload: Workload) -> str:
        bench, stop = self._bench, threading.Event()
        kept = CaseLayout(bench.base, bench.directory / "kept")
        recording = record(
            bench.recorder, self._profile, workload, self._case, bench.base, kept, bench.directory
        )
        if bench.plan.unit_sectors is not None:
            recording, _ = by_times(recording, bench.plan.unit_sectors)
        try:
            examiner = Examiner(recording, memo=bench.plan.memo, sample_rate=bench.plan.sample_rate)
            if recording.legal is not None:
                return self._among_legal(examiner)
            states = enumerate_states(bench.plan.fault_models, recording)
            hashes = bench.judge.show(recording.target).hashes(states)
            for group in group_by_content(states, hashes):
                if found := self._shown_by(look_at(examiner, bench.judge, group, stop)):
                    return found
            return ""
        finally:
            recording.log.unlink()

    def _among_legal(self, examiner: Examiner) -> str:
        """The first violation among all legal states, within the run's budget."""
        stop, found = threading.Event(), []

        def report(seen: Sequence[JudgedGroup]) -> None:
            for text in filter(None, map(self._shown_by, seen)):
                found.append(text)
                stop.set()

        Exploration(examiner, self._bench.judge, self._bench.plan.budget, stop, report).run()
        return found[0] if found else ""

    def _shown_by(self, seen: JudgedGroup) -> str:
        for judged in seen.judged:
            for violation in judged.judgement.violations:
                if violation.oracle == self._oracle:
                    return f"{judged.state} {violation.oracle}: {violation.summary}"
        return ""


def workload_file(shrunk: Shrunk, finding: Finding) -> str:
    """The workload in the format of `workloads/`, with a comment on what it shows."""
    lines = [
        f"# Shows on {finding.case.configuration}: {one_line(shrunk.summary)}",
        f"# Shrunk from {finding.case}.",
        f"summary = {_quoted(f'{shrunk.oracle}, shrunk from {finding.case.workload}')}",
        "operations = [",
        *(f"    {_quoted(str(op))}," for op in shrunk.workload.operations),
        "]",
    ]
    return "\n".join(lines).replace("\t", " ") + "\n"


def _quoted(text: str) -> str:
    """As a TOML basic string; every ASCII JSON string is one."""
    return json.dumps(text)
