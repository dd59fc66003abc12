"""Triage: the findings of runs, each shrunk to the least that shows its symptom, grouped by cause.

Candidates are recorded and judged on the machine that judges, which is the fast one; what is left of a
finding is then shown once more on the machine that records, which is what people run. Every experiment is
kept in the cache, so a triage that was stopped goes on where it was, and one that is repeated needs no guest.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from harness.cases.pins import source_hash
from harness.errors import PowercutError
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import select_profiles
from harness.findings import experiment
from harness.findings.causes import Cause, CauseMember, by_cause
from harness.findings.experiment import Equipment, Violated, open_equipment, violations
from harness.findings.shrink import Shrunk, workload_file
from harness.findings.simplify import Operations, minimal
from harness.grouping import by_key
from harness.guests.disk import find_binary
from harness.guests.guest_specs import built_kernel, recording_machine
from harness.guests.machine import profile_of
from harness.guests.session import find_agent
from harness.host.cache import cache_dir
from harness.host.files import file_hash, json_bytes, valid_text
from harness.host.progress import Progress, time_left
from harness.kernels.find import Kernel
from harness.model import CaseId, Workload
from harness.model.schedules import ScheduleName, under_schedule, without_schedule
from harness.plan import Plan
from harness.report.words import kind_of_loss, plural, shown_path
from harness.store import RunStore
from harness.store.records import Finding, state_order
from harness.symptoms import Symptom, paths_of, symptom_of
from harness.trust import Named, chosen_kernel, plan_here, vouched_workload
from harness.workloads.load import parse_operation

SCHEMA = 1
ATTEMPTS = 3
"""Recordings of one workload before it counts as not showing what was seen: timing may decide."""


class Way(NamedTuple):
    """How operations are recorded: `fast`, on the machine that judges; and under which schedule."""

    fast: bool = True
    schedule: ScheduleName = ScheduleName()


FAST = Way()


class Triage(msgspec.Struct, frozen=True):
    """What a triage came to. `left_out`: number of findings that were expected, and so not shrunk.
    `waiting`: of those that it was interrupted before; the causes are those of the others.
    """

    causes: tuple[Cause, ...]
    not_again: tuple[CauseMember, ...]
    left_out: int = 0
    waiting: int = 0
    schema: int = SCHEMA


# --- what is shrunk --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Suspect:
    """A finding to shrink: the first of its symptom in a case, of those that lose writes or of others."""

    finding: Finding
    symptom: Symptom
    workload: Workload

    @property
    def case(self) -> CaseId:
        return self.finding.case

    def is_shown(self, tried: Experiment) -> bool:
        """Whether an experiment shows it, with nothing lost if that is so of the finding: a lost write would
        be another cause. What shows where a write is lost may show without that on another machine.
        """
        whole = self.finding.spared.is_whole
        return self.symptom in tried.whole if whole else tried.shows(self.symptom)


def suspects_of(store: RunStore, named: Named, *, expected: bool) -> tuple[list[Suspect], int]:
    """What of a run's findings is to be shrunk, and how many expected ones were left out. Raises UsageError
    for workloads that only the run directory names.
    """
    found: dict[tuple[CaseId, Symptom, bool], Suspect] = {}
    left_out = 0
    for finding in store.findings():
        if finding.expectation is not None and not expected:
            left_out += 1
            continue
        workload = vouched_workload(store, named, finding.case.workload)
        symptom = symptom_of(finding.oracle, finding.signature, paths_of(workload.operations))
        key = finding.case, symptom, finding.spared.is_whole
        found.setdefault(key, Suspect(finding, symptom, workload))
    return sorted(found.values(), key=lambda t: t.case.configuration), left_out


# --- experiments -----------------------------------------------------------------------------


class Experiment(msgspec.Struct, frozen=True):
    """What a workload showed: every symptom, with the summary at the smallest crash state that shows it.
    `schedule`: that of the recording, `.s3`; empty: the default one. `failed`: why it could not be recorded.
    `whole`: the symptoms that a state shows of which nothing is lost.
    """

    operations: tuple[str, ...]
    attempt: int
    fast: bool
    shown: tuple[tuple[Symptom, str], ...] = ()
    failed: str = ""
    schedule: str = ""
    whole: tuple[Symptom, ...] = ()

    def shows(self, symptom: Symptom) -> bool:
        """Whether a crash state has this symptom."""
        return any(known == symptom for known, _ in self.shown)


class Experiments:
    """Experiments of one mode on one kernel, kept in a file: one JSON object a line. A line that was cut off
    when the process was killed is an experiment that was not made.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[tuple[tuple[str, ...], int, bool, str], Experiment] = {}
        with contextlib.suppress(FileNotFoundError):
            for line in file.read_bytes().split(b"\n"):
                with contextlib.suppress(msgspec.MsgspecError):
                    self._keep(msgspec.json.decode(line, type=Experiment))

    def get(
        self, operations: tuple[str, ...], attempt: int, fast: bool, schedule: str = ""
    ) -> Experiment | None:
        return self._known.get((operations, attempt, fast, schedule))

    def put(self, experiment: Experiment) -> None:
        """Keep an experiment, on disk."""
        with self._file.open("ab") as f:
            f.write(b"\n" + msgspec.json.encode(experiment) + b"\n")  # the line before may have been cut off
        self._keep(experiment)

    def _keep(self, experiment: Experiment) -> None:
        key = (experiment.operations, experiment.attempt, experiment.fast, experiment.schedule)
        self._known[key] = experiment


class Tester(Protocol):
    """Where workloads of one mode are tried. `made`: experiments that were not known before."""

    profile: Profile
    made: int

    def experiment(self, operations: Operations, way: Way = FAST, attempt: int = 0) -> Experiment:
        """Record the operations and judge all their crash states, unless that experiment is known."""


class Laboratory(contextlib.AbstractContextManager["Laboratory"]):
    """Tester workloads in a mode of a run, with guests that boot when the first unknown one comes; a context
    manager. Raises UsageError for kernel files that only the run directory names.
    """

    def __init__(self, store: RunStore, configuration: str, named: Named, progress: Progress) -> None:
        self._store, self._named, self._progress = store, named, progress
        self._plan = plan_here(store, named)
        (self.profile,) = select_profiles([configuration])
        self._experiments = Experiments(
            cache_dir("triage") / f"{_settings(store, self.profile, named)}.jsonl"
        )
        self._equipment: Equipment | None = None
        self._open = contextlib.ExitStack()
        self.made = 0

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def experiment(self, operations: Operations, way: Way = FAST, attempt: int = 0) -> Experiment:
        known = self._experiments.get(tuple(map(str, operations)), attempt, way.fast, str(way.schedule))
        if known is None:
            self._progress.begin("experiments", 1)
            known = self._made(operations, way, attempt)
            if not known.failed:  # what went wrong once may have been this host's fault
                self._experiments.put(known)
            self._progress.advance("experiments", 1)
        return known

    def _made(self, operations: Operations, way: Way, attempt: int) -> Experiment:
        fast, schedule = way
        self.made += 1
        text = tuple(map(str, operations))
        equipment = self._opened()
        case = CaseId(self.profile.filesystem, self.profile.mode, under_schedule("candidate", schedule))
        name = f"candidate-{self.made}"
        try:
            found = violations(
                equipment.fast if fast else equipment, self.profile, case, name, operations, lambda *_: False
            )
        except PowercutError as e:
            return Experiment(text, attempt, fast, failed=e.line, schedule=str(schedule))
        shown, whole = (
            _smallest(some, paths_of(operations))
            for some in (found, [one for one in found if one[0].is_whole])
        )
        symptoms = tuple(symptom for symptom, _ in whole)
        return Experiment(text, attempt, fast, shown, schedule=str(schedule), whole=symptoms)

    def _opened(self) -> Equipment:
        if self._equipment is None:
            nothing = Workload("candidate", "", ())
            opened = open_equipment(self._plan, self._store, self.profile, nothing, self._named)
            self._equipment = self._open.enter_context(opened)
        return self._equipment


def _smallest(found: Sequence[Violated], paths: Sequence[str]) -> tuple[tuple[Symptom, str], ...]:
    shown: dict[Symptom, str] = {}
    for state, v in sorted(found, key=lambda one: state_order(one[0])):
        text = f"{state} {v.oracle}: {v.summary}"
        shown.setdefault(symptom_of(v.oracle, valid_text(v.signature), paths), valid_text(text))
    return tuple(shown.items())


def _settings(store: RunStore, profile: Profile, named: Named) -> str:
    """A digest of all that an experiment depends on, but for its operations."""
    plan = plan_here(store, named)
    kernel = chosen_kernel(plan, store.info.kernel.name, named)
    asked = msgspec.structs.replace(plan, configurations=[], workloads=[], jobs=1, argv=[], shard="")
    parts = [
        kernel.sha256,
        *map(file_hash, kernel.replaced),
        *map(file_hash, (find_agent(), find_binary(), Path(experiment.__file__))),
        source_hash(),
        *(file_hash(Path(tool.path())) for tool in profile.tools),
        *map(file_hash, _judging(plan, kernel)),
    ]
    return hashlib.sha256(json_bytes([parts, profile, asked])).hexdigest()[:24]


def _judging(plan: Plan, kernel: Kernel) -> list[Path]:
    """The kernels that may judge in the place of the run's own."""
    recorder = recording_machine(plan.machine, kernel)
    machines = [recorder, *profile_of(recorder).confirms]
    found = [built_kernel(machine, kernel.package_version) for machine in machines]
    return [built.image for built in found if built is not None]


# --- shrinking one finding -------------------------------------------------------------------


def examined(
    suspect: Suspect, run: str, kernel: str, tries: Tester, say: Callable[[str], None] = lambda text: None
) -> CauseMember:
    """The finding with the least that shows its symptom. Without `minimal`: it could not be shrunk. `say` is
    told whenever the workload got shorter.
    """
    finding, operations = suspect.finding, suspect.workload.operations
    before = tries.made
    member = CauseMember(
        run=run,
        kernel=kernel,
        configuration=finding.case.configuration,
        workload=finding.case.workload,
        point=str(finding.crash_point),
        finding=finding.id,
        symptom=suspect.symptom,
        summary=finding.summary,
        operations=len(operations),
        standing=standing_of(finding),
    )
    if suspect.workload.opaque:
        return msgspec.structs.replace(member, reason="it runs programs: only operations can be shrunk")
    unconfirmed: CauseMember | None = None
    tried: list[Experiment] = []
    for way in _ways(suspect.case):
        tried += _until_shown(tries, operations, suspect, way)
        if not suspect.is_shown(tried[-1]):
            continue
        left = minimal(
            tries.profile.contract,
            operations,
            _reporting(functools.partial(_shows, tries, suspect, way), operations, tries, say),
        )
        slow = way._replace(fast=False)
        on_slow = _until_shown(tries, left, suspect, slow)
        confirmed = suspect.is_shown(on_slow[-1])
        again = _until_shown(tries, left, suspect, slow if confirmed else way)
        shrunk = msgspec.structs.replace(
            member,
            minimal=tuple(map(str, left)),
            shows=again[-1].shown,
            schedule=str(way.schedule),
            confirmed=confirmed,
            untried=on_slow[-1].failed if all(e.failed for e in on_slow) else "",
        )
        if confirmed:
            return msgspec.structs.replace(shrunk, recordings=tries.made - before)
        unconfirmed = unconfirmed or shrunk
    told = unconfirmed or msgspec.structs.replace(member, reason=_why_not(tried, suspect.case))
    return msgspec.structs.replace(told, recordings=tries.made - before)


def standing_of(finding: Finding) -> str:
    """The known bug that a finding is, or that it is a known loss, expected or new. A program's own check
    accuses no kernel.
    """
    if finding.known:
        return finding.known.bug.name
    if finding.loss:
        return f"a known {kind_of_loss(finding)}"
    return "expected" if finding.expectation else "" if finding.oracle == "program" else "new"


def _ways(case: CaseId) -> list[Way]:
    """A finding that shows without its schedule, on either machine, does not need it; the fast one first."""
    schedules = dict.fromkeys((FAST.schedule, without_schedule(case.workload)[1]))
    return [Way(fast, schedule) for schedule in schedules for fast in (True, False)]


def _why_not(tried: Sequence[Experiment], case: CaseId) -> str:
    """Why a finding does not show in new recordings of its whole workload."""
    failed = [t.failed for t in tried if t.failed]
    if len(failed) == len(tried):
        return f"new recordings failed: {failed[-1]}"
    schedule = without_schedule(case.workload)[1]
    under = f", with and without schedule {schedule.number}," if schedule else ""
    but = f"; {len(failed)} of {len(tried)} failed: {failed[-1]}" if failed else ""
    return f"{ATTEMPTS} new recordings on each machine{under} did not show it{but}"


def _until_shown(tries: Tester, operations: Operations, suspect: Suspect, way: Way) -> list[Experiment]:
    """Attempts up to the first that shows it, or all of them."""
    made = []
    for attempt in range(ATTEMPTS):
        made.append(tries.experiment(operations, way, attempt))
        if suspect.is_shown(made[-1]):
            break
    return made


def _reporting(
    shows: Callable[[Operations], bool], operations: Operations, tries: Tester, say: Callable[[str], None]
) -> Callable[[Operations], bool]:
    """`shows`, which says how far it came each time that fewer operations show it, and how long one takes."""
    shortest, begun, before = len(operations), time.monotonic(), tries.made

    def reporting(candidate: Operations) -> bool:
        nonlocal shortest
        if not (holds := shows(candidate)) or len(candidate) >= shortest:
            return holds
        shortest = len(candidate)
        if made := tries.made - before:
            each = (time.monotonic() - begun) / made
            recordings = f"{plural(made, 'recording')} of {each:.1f} s each"
            say(f"{len(operations)} to {plural(shortest, 'operation')} so far, {recordings}")
        return holds

    return reporting


def _shows(tries: Tester, suspect: Suspect, way: Way, operations: Operations) -> bool:
    return suspect.is_shown(tries.experiment(operations, way))


# --- all of them -----------------------------------------------------------------------------


def triage(
    stores: Sequence[RunStore],
    named: Named,
    progress: Progress,
    *,
    expected: bool = False,
    tries: Callable[[RunStore, str], contextlib.AbstractContextManager[Tester]] | None = None,
) -> Triage:
    """Shrink the findings of these runs and group them by cause. `expected`: known failures, too.
    Interrupted, it groups those that it has shrunk; raises KeyboardInterrupt if that is none.
    """

    def laboratory(store: RunStore, configuration: str) -> contextlib.AbstractContextManager[Tester]:
        return Laboratory(store, configuration, named, progress)

    chosen = [(store, *suspects_of(store, named, expected=expected)) for store in stores]
    work = [(store, suspect) for store, suspects, _ in chosen for suspect in suspects]
    members: list[CauseMember] = []
    begun = time.monotonic()
    progress.begin("findings", len(work))
    try:
        for (store, configuration), suspects in _by_mode(work).items():
            with (tries or laboratory)(store, configuration) as opened:
                for suspect in suspects:
                    at = f"[{len(members) + 1}/{len(work)}]"
                    progress.say(f"{at} {suspect.case} {suspect.symptom}: being shrunk")
                    members.append(
                        examined(
                            suspect, shown_path(store.path), store.info.kernel.name, opened, progress.say
                        )
                    )
                    so_far = plural(len(by_cause([m for m in members if _shown_again(m)])), "cause")
                    left = time_left(time.monotonic() - begun, len(members) / len(work))
                    said = [f"{at} {_words(members[-1])}", f"{so_far} so far", left]
                    progress.say("; ".join(filter(None, said)))
                    progress.advance("findings", 1)
    except KeyboardInterrupt:
        if not members:
            raise
    again = [m for m in members if _shown_again(m)]
    lost = [m for m in members if m not in again]
    left_out = sum(count for *_, count in chosen)
    return Triage(tuple(by_cause(again)), tuple(lost), left_out, len(work) - len(members))


def _shown_again(member: CauseMember) -> bool:
    return bool(member.minimal) or member.reason.startswith("it runs")


def _by_mode(work: Sequence[tuple[RunStore, Suspect]]) -> dict[tuple[RunStore, str], list[Suspect]]:
    return by_key(((store, suspect.case.configuration), suspect) for store, suspect in work)


def _words(member: CauseMember) -> str:
    what = f"{member.case} {member.symptom}"
    if not member.minimal:
        return f"{what}: {member.reason}"
    shown = f"{member.operations} to {len(member.minimal)} operations, {member.recordings} recordings"
    return "; ".join(filter(None, [f"{what}: {shown}", member.why_unconfirmed]))


def workload_of(cause: Cause) -> str:
    """The workload file of a cause's smallest member."""
    member = cause.smallest
    operations = tuple(map(parse_operation, member.minimal))
    seen = next(text for symptom, text in member.shows if symptom == member.symptom)
    shrunk = Shrunk(Workload(cause.name, "", operations), member.symptom.oracle, seen, member.recordings)
    return workload_file(shrunk, CaseId.parse(member.case), member.finding)


def plan_of(stores: Sequence[RunStore], member: CauseMember) -> Plan:
    """The plan of a member's run."""
    return next(store.plan() for store in stores if shown_path(store.path) == member.run)
