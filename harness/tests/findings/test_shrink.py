"""`powercut shrink` as far as it needs no guest: what it is asked for, and the file that it writes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from harness.cases.examine import Observation
from harness.cases.recording import Recording, log_name
from harness.cli import repro as repro_command
from harness.errors import ExitCode, GuestError, NotSupported, UsageError
from harness.expectations import Expectation
from harness.filesystems.profiles import select_profiles
from harness.findings.experiment import Equipment
from harness.findings.shrink import SameFinding, Shrunk, _Candidates, finding_to_shrink, shrink, workload_file
from harness.kernels.find import find_kernel
from harness.known.base import KnownBug, KnownBugs, Record, Severity, Sighting
from harness.known.match import Match
from harness.model import (
    CaseId,
    CrashState,
    History,
    HistoryStep,
    Judgement,
    Operation,
    Outcome,
    Said,
    Violation,
    Workload,
)
from harness.model.schedules import ScheduleName
from harness.plan import Plan
from harness.report.explanation import Explanation, write_explanation
from harness.report.shrunk import shrunk_file
from harness.store import RunStore
from harness.store.layout import RunLayout
from harness.store.records import CaseInfo, CaseStatus, Finding, JudgedState
from harness.tests.cli.runner import powercut, printed
from harness.tests.needs import needed
from harness.tests.report.demo import run_info
from harness.tests.there import there
from harness.trust import Named
from harness.workloads.generate import generate
from harness.workloads.load import load_workload, parse_operation
from harness.writelog import MarkText, read_log, write_log

BROKEN = CaseId("ext4", "nobarrier", "random1-17-20")
WHOLE = CaseId("ext4", "ordered", "random1-17-20")
OPEN = CaseId("ext4", "journal", "random1-17-20")


def violation(text: str) -> Violation:
    """`durability`, or another finding of the same oracle: `durability:size`."""
    oracle, _, what = text.partition(":")
    return Violation(oracle, "f", f"{text} of f", "f", "nothing", what or "gone")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunStore.create(tmp_path, "t", run_info()) as store:
        store.set_expectations([Expectation("*", "*", "durability", "known", "known.txt:1")])
        for case, status in ((BROKEN, CaseStatus.DONE), (WHOLE, CaseStatus.DONE), (OPEN, CaseStatus.UNKNOWN)):
            store.add_case(CaseInfo(case, distinct=1, generated=1))
            found = (violation("durability"), violation("size")) if case == BROKEN else ()
            store.put_judgements(case, [JudgedState(CrashState(1), "h", Judgement(found))])
            store.set_case_status(case, status, "lost" * (status is CaseStatus.UNKNOWN))
        return store.path


def test_the_finding_that_nobody_expected_comes_first(run: Path) -> None:
    with RunStore.open(run) as store:
        for text in (str(BROKEN), f"{BROKEN}@1"):
            finding = there(finding_to_shrink(store, text, ""))
            assert finding.oracle == "size"
        named = there(finding_to_shrink(store, str(BROKEN), "durability"))
        assert named.oracle == "durability"
        with pytest.raises(UsageError, match="no finding of 'fsck'"):
            finding_to_shrink(store, str(BROKEN), "fsck")
        with pytest.raises(UsageError, match="is a finding of durability, not of fsck"):
            finding_to_shrink(store, named.id, "fsck")


def test_a_finding_is_named_by_its_id(run: Path) -> None:
    with RunStore.open(run) as store:
        for finding in store.findings():
            named = there(finding_to_shrink(store, finding.id, ""))
            assert named.id == finding.id


def test_a_module_that_was_rebuilt_is_told_of(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each candidate was recorded with another build, and nothing said so."""
    module = tmp_path / "ext4.ko"
    module.write_bytes(b"now")
    with RunStore.open(run) as store:
        begun = replace(store.info.kernel, replaced={str(module): "ab" * 32})
        store.update_info(replace(store.info, kernel=begun))
    monkeypatch.setattr(repro_command, "shrink", lambda *_: None)
    said = powercut("shrink", BROKEN, "--from", run, "--module", module).stdout
    assert f"{module} was rebuilt since the run" in said
    assert "was rebuilt" not in powercut("shrink", BROKEN, "--from", run).stdout


def test_every_report_has_the_shrunk_workload(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stood in report.html alone, and only once somebody had written the reports again."""
    with RunStore.open(run) as store:
        store.put_plan(Plan(configurations=["ext4/nobarrier"], workloads=[BROKEN.workload]))
        store.finish()
    kept = Workload("w", "", tuple(map(parse_operation, ["mkdir deep", "fsync deep"])))
    monkeypatch.setattr(repro_command, "shrink", lambda *_: Shrunk(kept, "size", "@1 size", 2))
    done = powercut("shrink", BROKEN, "--from", run)
    assert done.exit_code == ExitCode.INCONSISTENT, done.output
    assert "Fewest operations that show it: `mkdir deep`; `fsync deep`" in (run / "summary.md").read_text()
    assert "fewest operations that show it: mkdir deep; fsync deep" in (run / "junit.xml").read_text()
    assert "fsync deep" in (run / "report.html").read_text()
    said = powercut("report", run, "--annotations").output
    assert "Shown by: mkdir deep; fsync deep" in said


def test_one_workload_that_is_shrunk_in_two_modes_leaves_two_files(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second took the place of the first, of which a bug report then had all operations again."""
    cases = [BROKEN, replace(BROKEN, mode="journal")]
    with RunStore.open(run) as store:
        store.put_plan(Plan(configurations=[c.configuration for c in cases], workloads=[BROKEN.workload]))
        store.add_case(CaseInfo(cases[1], distinct=1, generated=1))
        store.put_judgements(
            cases[1], [JudgedState(CrashState(1), "h", Judgement((violation("durability"),)))]
        )
        store.set_case_status(cases[1], CaseStatus.DONE)
    kept = Workload("w", "", (parse_operation("mkdir deep"),))
    monkeypatch.setattr(repro_command, "shrink", lambda *_: Shrunk(kept, "durability", "@1 durability", 2))
    with RunStore.open(run) as store:
        findings = [there(finding_to_shrink(store, str(case), "durability")) for case in cases]
    for finding in findings:
        assert powercut("shrink", finding.id, "--from", run).exit_code == ExitCode.INCONSISTENT
    assert all(shrunk_file(RunLayout(run), finding) for finding in findings)


def test_a_case_that_passed_has_nothing_to_shrink(run: Path) -> None:
    assert "has no finding" in printed("shrink", WHOLE, "--from", run)


@pytest.mark.parametrize("text", [str(OPEN), "ext4-ordered/append-fsync", "nonsense"])
def test_what_is_undecided_or_unknown_is_no_pass(run: Path, text: str) -> None:
    assert powercut("shrink", text, "--from", run).exit_code == ExitCode.USAGE


def test_the_file_is_a_workload(tmp_path: Path) -> None:
    workload = generate("ace-setxattr-replace.A_foo+fsync.A")
    finding = Finding(BROKEN, "durability", "s", state=CrashState(1), violations=(), states=1)
    path = tmp_path / "short.toml"
    path.write_text(
        workload_file(Shrunk(workload, "durability", 'a "quoted" \\ name', 3), finding.case, finding.id)
    )
    assert load_workload(str(path)).operations == workload.operations


def test_workloads_by_chance_are_chosen_by_seed() -> None:
    with needed():
        find_kernel("debian-6.12")
    done = powercut("run", "-n", "-c", "ext4/ordered", "--random", "3", "--seed", "17", "--accel", "tcg")
    assert "random2-17-20, random2-18-20, random2-19-20" in done.stdout
    part = powercut("run", "-n", "-c", "ext4/ordered", "--random", "3", "--seed", "17", "--shard", "2/3")
    assert "random2-18-20" in part.stdout
    assert "random2-17-20" not in part.stdout
    assert powercut("run", "-n", "-w", "ace1", "--shard", "0/3").exit_code == ExitCode.USAGE


# --- candidates ------------------------------------------------------------------------------

LONG = ["mkdir d", "create f", "append f 8192", "create g", "fsync f", "rename f h"]


class Planned:
    """A store that knows its plan."""

    info = run_info()

    def __init__(self, *bugs: KnownBug, path: Path = Path("no run")) -> None:
        self._bugs, self.layout = bugs, RunLayout(path)

    def plan(self) -> Plan:
        return Plan(configurations=[], workloads=[])

    def expectations(self) -> tuple[Expectation, ...]:
        return ()

    def known(self) -> KnownBugs:
        return KnownBugs(bug=self._bugs)


class Memo:
    """Is off. Every state has a content of its own."""

    recalls, mismatch = False, ""

    def hashes(self, states: Sequence[CrashState], target: object = None) -> list[str]:
        return [str(s) for s in states]


Shows = Callable[[list[str], str], tuple[str, ...]]
Shrink = Callable[[Shows], tuple[Shrunk | None, list[str]]]


@pytest.fixture
def broken_by(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shrink:
    """Shrink LONG, where what some operations show is this; what was said."""

    def shrunk(shows: Shows) -> tuple[Shrunk | None, list[str]]:
        def record(_: object, profile: Any, workload: Workload, case: CaseId, *__: object) -> Recording:
            shows([str(op) for op in workload.operations], "recorded")
            log = tmp_path / log_name(CaseId(profile.filesystem, profile.mode, workload.name))
            write_log(log, [MarkText("0")])
            return Recording(case, profile, workload, tmp_path, log, read_log(log), History(()))

        class Judges:
            def __init__(self, _: Plan, recording: Recording) -> None:
                self.recording, self.memo = recording, Memo()
                self.of_recording = Judgement()
                self.operations = [str(op) for op in recording.workload.operations]

            def visit(self, *_: object) -> Observation:
                return Observation(Outcome())

            def learn(self, *_: object) -> None: ...

            def close(self) -> None: ...

            def judge(self, state: CrashState, _: Observation) -> Judgement:
                return Judgement(tuple(map(violation, shows(self.operations, str(state)))))

        @contextlib.contextmanager
        def equipment(plan: Plan, *_: object) -> Iterator[Equipment]:
            session = cast(Any, SimpleNamespace(machine_name="uml"))
            yield Equipment(plan, session, session, tmp_path, tmp_path)

        whole = Workload("long", "", tuple(parse_operation(op) for op in LONG))
        monkeypatch.setattr("harness.findings.experiment.record", record)
        monkeypatch.setattr("harness.findings.experiment.examiner_for", Judges)
        monkeypatch.setattr("harness.findings.shrink.open_equipment", equipment)
        monkeypatch.setattr("harness.findings.shrink.vouched_workload", lambda *_: whole)
        case = CaseId("ext4", "ordered", "long")
        finding = Finding(case, "durability", "gone", state=CrashState(1), violations=(), states=1)
        said: list[str] = []
        found = shrink(cast(Any, Planned()), finding, Named(), said.append)
        assert not list(tmp_path.glob("*candidate-*")), "logs do not pile up"
        return found, said

    return shrunk


def test_what_is_left_shows_it_and_can_be_carried_out(broken_by: Shrink) -> None:
    def shows(operations: list[str], state: str) -> tuple[str, ...]:
        found = ("size",) if "mkdir d" in operations else ()
        lost = state == "@1" and "rename f h" in operations
        return (*found, "durability") if lost else found

    found, said = broken_by(shows)
    assert found is not None
    assert [str(op) for op in found.workload.operations] == ["create f", "rename f h"]
    assert (found.summary, found.oracle) == ("@1 durability: durability of f", "durability")
    assert found.tried == len(said)
    assert not any("  1 operations" in line for line in said)


def test_another_oracles_violation_is_not_the_one(broken_by: Shrink) -> None:
    found, said = broken_by(lambda operations, state: ("size",))
    assert found is None
    assert said == ["  6 operations: does not show it"]


def test_another_violation_of_the_same_oracle_is_not_the_one(broken_by: Shrink) -> None:
    """What was left showed any violation of the oracle, so a bug report had one finding's title and another's
    operations.
    """

    def shows(operations: list[str], state: str) -> tuple[str, ...]:
        lost = ("durability",) if "rename f h" in operations else ()
        return (*lost, "durability:size")

    found, _ = broken_by(shows)
    assert found is not None
    assert [str(op) for op in found.workload.operations] == ["create f", "rename f h"]


def test_a_candidate_that_cannot_be_tried_shows_nothing(broken_by: Shrink) -> None:
    def shows(operations: list[str], state: str) -> tuple[str, ...]:
        if state == "recorded" and "create g" not in operations:
            raise GuestError("the guest says no")
        return ("durability",)

    found, said = broken_by(shows)
    assert found is not None
    assert [str(op) for op in found.workload.operations] == ["create g"]
    assert "  3 operations: cannot be tried: the guest says no" in said


def test_a_whole_workload_that_cannot_be_recorded_is_not_told_as_harmless(broken_by: Shrink) -> None:
    """No guest came up, and `shrink` said that a new recording does not show it: there was none."""

    def shows(operations: list[str], state: str) -> tuple[str, ...]:
        raise GuestError("the guest says no")

    with pytest.raises(GuestError, match="the guest says no"):
        broken_by(shows)


def test_what_the_file_system_does_not_have_is_the_users_error(broken_by: Shrink) -> None:
    def shows(operations: list[str], state: str) -> tuple[str, ...]:
        raise NotSupported("no such operation here")

    with pytest.raises(UsageError, match="no such operation here"):
        broken_by(shows)


def test_an_interrupted_search_gives_what_it_had(broken_by: Shrink) -> None:
    """After minutes of work Ctrl-C said "interrupted", and whether anything was kept it did not say."""

    shorter: list[list[str]] = []

    def shows(operations: list[str], state: str) -> tuple[str, ...]:
        if shorter and operations != shorter[0]:
            raise KeyboardInterrupt
        if "rename f h" in operations and len(operations) < len(LONG):
            shorter.append(operations)
        return ("durability",) if "rename f h" in operations else ()

    found, _ = broken_by(shows)
    assert found is not None
    assert found.interrupted
    assert [str(op) for op in found.workload.operations] == shorter[0]


def test_an_interrupted_search_that_had_nothing_shorter_keeps_nothing(broken_by: Shrink) -> None:
    def shows(operations: list[str], state: str) -> tuple[str, ...]:
        if len(operations) < len(LONG):
            raise KeyboardInterrupt
        return ("durability",)

    with pytest.raises(KeyboardInterrupt):
        broken_by(shows)


ONLY_LOST = KnownBug(
    name="ours",
    title="ours",
    record=Record(
        severity=Severity.LOSES_SYNCED,
        mechanism="unknown",
        first="4.0",
        shows=(Sighting(modes=("ext4/*",), oracles=("durability",), symptoms=("gone",), operations="fsync"),),
    ),
)


def finding_at(state: str, known: str = "") -> Finding:
    match = Match(msgspec.structs.replace(ONLY_LOST, name=known), ()) if known else None
    case = CaseId("ext4", "ordered", "long")
    return Finding(case, "durability", "gone", CrashState.parse(state), (), 1, known=match)


def shows_it(
    state: str,
    *,
    of: str,
    operations: Sequence[str] = LONG,
    bugs: Sequence[KnownBug] = (),
    known: str = "",
    path: Path = Path("no run"),
) -> bool:
    """Whether a violation at one state is the finding `of` another state, which is the known bug `known`.
    `path`: of the run.
    """
    finding = finding_at(of, known)
    steps = [HistoryStep(n, parse_operation(op), n, n) for n, op in enumerate(operations)]
    recording = SimpleNamespace(
        case=finding.case,
        history=History(tuple(steps)),
        workload=Workload("candidate", "", tuple(s.operation for s in steps)),
        write_log=SimpleNamespace(entries=()),
    )
    same = SameFinding(cast(Any, Planned(*bugs, path=path)), finding, ())
    return same.is_shown(cast(Any, recording), CrashState.parse(state), violation("durability:gone"))


def test_what_fails_with_everything_there_is_not_what_fails_with_a_write_lost() -> None:
    """Of a bug of F2FS that loses no write was left what a lost write alone breaks: a known bug."""
    assert shows_it("@t9", of="@t40")
    assert not shows_it("@t9-2", of="@t40")
    assert not shows_it("@t9=", of="@t40"), "it lost all"
    assert shows_it("@t9-2", of="@t40=")
    assert not shows_it("@t9", of="@t40-3")
    assert shows_it("@9", of="@40"), "of a prefix of the log nobody knows"


def test_a_known_bug_is_not_the_new_one() -> None:
    assert shows_it("@t9-2", of="@t40=", operations=["create f"], bugs=[ONLY_LOST])
    assert not shows_it("@t9-2", of="@t40=", bugs=[ONLY_LOST])
    assert not shows_it("@t9-2", of="@t40=", bugs=[ONLY_LOST], known="another")
    assert shows_it("@t9-2", of="@t40=", bugs=[ONLY_LOST], known="ours")
    assert shows_it("@t9-2", of="@t40=", known="ours"), "what a record asks for may be more than it takes"


@pytest.mark.parametrize(("cause", "shown"), [("No flush at all", True), ("Torn write", False), ("", False)])
def test_a_bug_of_another_cause_than_the_findings_is_not_what_is_left(
    cause: str, shown: bool, tmp_path: Path
) -> None:
    """A finding whose cause tells it apart from a known bug could not be shrunk: no candidate has a cause, so
    each of them was the known bug.
    """
    (sighting,) = ONLY_LOST.record.shows
    torn = msgspec.structs.replace(sighting, causes=("torn write",))
    bug = msgspec.structs.replace(ONLY_LOST, record=msgspec.structs.replace(ONLY_LOST.record, shows=(torn,)))
    if cause:
        told = Explanation(finding_at("@t40=").id, "", f"{cause}. So it was.", {}, (), "")
        write_explanation(RunLayout(tmp_path), told)
    assert shows_it("@t9-2", of="@t40=", bugs=[bug], path=tmp_path) is shown


SAID = [
    "powercut_threads: 90 points, 2 decisions",
    "powercut_threads: 3: a lets run b",
    "powercut_threads: 9: b",
]


class UnderSchedules(_Candidates):
    """Candidates that are not recorded: `shows` says under which schedule the symptom is there."""

    def __init__(self, shows: Callable[[ScheduleName], bool], said: Sequence[str] = SAID) -> None:
        recorder = SimpleNamespace(decides_threads=lambda _: True, said=[Said(None, tuple(said))])
        equipment = cast(Equipment, SimpleNamespace(recorder=recorder))
        (profile,) = select_profiles(["ext4/ordered"])
        case = CaseId("ext4", "ordered", "append-fsync.s2")
        super().__init__(equipment, profile, case, lambda *_: False, lambda _: None)
        self._shows = shows

    def _violation(self, operations: Sequence[Operation]) -> str:
        return "@1 size" if self._shows(self.chosen) else ""


def test_an_interrupted_search_names_the_schedule_that_was_seen_to_show_it() -> None:
    """It named the candidate that was under way."""

    def shows(chosen: ScheduleName) -> bool:
        if chosen.only:
            raise KeyboardInterrupt
        return bool(chosen)

    candidates = UnderSchedules(shows)
    with pytest.raises(KeyboardInterrupt):
        candidates.reduce_schedule([parse_operation("create f")])
    assert candidates.chosen.only
    assert candidates.shown_under == ScheduleName(2)


def test_decisions_that_do_not_show_it_when_tried_again_are_not_what_is_left() -> None:
    tried: list[ScheduleName] = []

    def shows(chosen: ScheduleName) -> bool:
        tried.append(chosen)
        return bool(chosen) and chosen.only in ((), (3,)) and tried.count(chosen) < 2

    candidates = UnderSchedules(shows)
    candidates.reduce_schedule([parse_operation("create f")])
    assert ScheduleName(2, (3,)) in tried
    assert candidates.chosen == ScheduleName(2)
    assert candidates.decisions == ()


class SaysItsSchedule(UnderSchedules):
    """What it shows names the schedule."""

    def _violation(self, operations: Sequence[Operation]) -> str:
        return f"@1 size{self.chosen}" if self._shows(self.chosen) else ""


@pytest.mark.parametrize("shows_again", [True, False])
def test_what_is_told_is_what_the_schedule_that_is_left_showed(
    shows_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where too many decisions were left, the whole schedule was named with the summary of a few of them."""
    monkeypatch.setattr("harness.findings.fewest_decisions.NAMED_MAX", 1)
    tried: list[ScheduleName] = []

    def shows(chosen: ScheduleName) -> bool:
        tried.append(chosen)
        needed = {3, 9, 17} <= set(chosen.only) or chosen == ScheduleName(2)
        return needed and (shows_again or tried.count(ScheduleName(2)) < 3)

    made = [f"powercut_threads: {n}: b" for n in (11, 17)]
    said = ["powercut_threads: 90 points, 4 decisions", *SAID[1:], *made]
    candidates = SaysItsSchedule(shows, said)
    operations = [parse_operation("create f")]
    assert candidates.holds(operations)
    candidates.reduce_schedule(operations)
    assert candidates.chosen == ScheduleName(2)
    assert ScheduleName(2, (3, 9, 17)) in tried
    assert candidates.seen == "@1 size.s2"


def test_what_is_left_of_a_schedule_is_told() -> None:
    candidates = UnderSchedules(lambda chosen: bool(chosen) and chosen.only in ((), (3,)))
    candidates.reduce_schedule([parse_operation("create f")])
    assert candidates.chosen == ScheduleName(2, (3,))
    assert candidates.decisions[0] == "3: a lets run b"
