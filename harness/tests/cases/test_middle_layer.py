"""From a recording to its verdict with everything real but the guest (`toy_kernel`).

The law: every state that was visited is in the store with its verdict; one whose guest died is FAIL, one that
could not be observed is UNKNOWN; nothing is dropped; coverage, case, summary and exit code follow. What the
fakes of `test_exploration`, `test_casework` and `test_examine` say of lost guests, budgets, stops and resumed
runs is said here of the real thing.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cases.casework import Casework
from harness.cases.examine import Examiner, Group, JudgedGroup, Observation
from harness.cases.ledger import Ledger, PlannedCase
from harness.cases.outcome_memo import OutcomeMemo
from harness.errors import DiskError, ExitCode
from harness.filesystems.profile import MountCounter
from harness.findings.repro import find_point
from harness.model import BLOCK_BYTES, CrashState, Judgement, Outcome, Verdict
from harness.plan import Budget, Plan
from harness.store import RunStore
from harness.store.records import CaseStatus, How, JudgedState
from harness.summary import CaseSummary, CaseVerdict, exit_code, summarise
from harness.tests.cases.toy_kernel import (
    COMPLAINT,
    LOST,
    LOST_IN_USE,
    VERDICTS,
    Bench,
    Kernel,
    Kind,
    a_bench,
    bench_in,
    toy_worker,
)
from harness.tests.said import Said
from harness.tests.there import there
from harness.workloads.load import parse_operation

WORDS = {
    "prefix": {"00", "10", "110", "111"},
    "exhaustive": {"00", "10", "010", "011", "110", "111"},
}
"""What recovery may read of the legal states."""
STABLE = [kind for kind in Kind if kind is not Kind.WAVERS]
FIRST_TWO = 10
"""Entries of the log that the first two operations make."""
UNKEPT = {Kind.DIES, Kind.NOT_UNMOUNTED_IN_USE, Kind.LATE_IN_USE} | LOST_IN_USE
"""Kinds whose outcome no memo may keep."""


def each(kinds: Iterable[Kind]) -> pytest.MarkDecorator:
    """Every kind, by prefixes and by all legal states."""
    marked = [pytest.param(kind, states, id=f"{states}-{kind.name}") for states in WORDS for kind in kinds]
    return pytest.mark.parametrize(("kind", "states"), marked)


bench = a_bench


def ended(bench: Bench) -> tuple[CaseSummary, ExitCode]:
    """The case, and what the run returns to the shell, once it has ended."""
    bench.store.finish()
    summary = summarise(bench.store)
    (case,) = summary.cases
    return case, exit_code(summary)


def expected(kernel: Kernel, words: Iterable[str]) -> dict[str, set[Verdict]]:
    return {word: {kernel.verdict_on(word)} for word in words}


@each(STABLE)
def test_every_state_that_was_visited_is_in_the_store_with_its_verdict(
    bench: Bench, kind: Kind, states: str
) -> None:
    """A kernel that died was visited nine times, and then dropped: no FAIL, no UNKNOWN."""
    kernel = Kernel(kind)
    bench.run(kernel, states)
    assert kernel.at in kernel.visits
    assert bench.verdicts(states) == expected(kernel, kernel.visits)


@each(STABLE)
def test_no_state_hides_another(bench: Bench, kind: Kind, states: str) -> None:
    """With the disk process of a lost guest went what it remembered: its states were visited again until they
    counted as tried, and those behind them never were.
    """
    kernel = Kernel(kind)
    bench.run(kernel, states)
    assert set(bench.verdicts(states)) | {kernel.at} == WORDS[states]


@each(STABLE)
def test_case_and_exit_code_follow_from_the_states(bench: Bench, kind: Kind, states: str) -> None:
    """Exit code 0, "kept every promise", of a kernel that dies in recovery."""
    bench.run(Kernel(kind), states)
    case, code = ended(bench)
    assert (case.verdict, code) == {
        Verdict.PASS: (CaseVerdict.PASS, ExitCode.CONSISTENT),
        Verdict.FAIL: (CaseVerdict.FAIL, ExitCode.INCONSISTENT),
        Verdict.UNKNOWN: (CaseVerdict.UNKNOWN, ExitCode.UNDECIDED),
    }[VERDICTS[kind]]
    assert len(case.findings) == (VERDICTS[kind] is Verdict.FAIL)
    for finding in case.findings:
        assert bench.words(states)[finding.state] == Kernel(kind).at


@pytest.mark.parametrize("kind", STABLE, ids=lambda kind: kind.name)
def test_all_legal_states_is_said_only_where_no_guest_was_lost(bench: Bench, kind: Kind) -> None:
    bench.run(Kernel(kind), "exhaustive")
    coverage = there(ended(bench)[0].info.coverage)
    if kind in LOST | LOST_IN_USE:
        assert not coverage.exhaustive
        assert coverage.unexplored
        assert coverage.why
    elif kind not in UNKEPT:  # of those, nobody has to know what lies behind them
        assert (coverage.exhaustive, coverage.unexplored, coverage.why) == (True, 0, "")


@pytest.mark.parametrize("states", WORDS)
def test_a_memo_that_was_wrong_makes_the_case_unknown_and_drops_nothing(bench: Bench, states: str) -> None:
    """`111` is read at two crash times, and comes back as another tree the second time."""
    kernel = Kernel(Kind.WAVERS, at="111")
    bench.run(kernel, states, sample_rate=1.0)
    assert kernel.visits.count("111") >= 2
    assert set(bench.verdicts(states)) == set(kernel.visits)
    case, code = ended(bench)
    assert "not deterministic" in case.mismatch
    assert (case.verdict, code) == (CaseVerdict.UNKNOWN, ExitCode.UNDECIDED)
    assert case.info.coverage is None or not case.info.coverage.exhaustive


@pytest.mark.parametrize("before", [True, False], ids=["stored before the doubt", "as it comes"])
def test_what_a_memo_in_doubt_had_answered_is_visited_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """Nobody knows what the memo's answers are worth then: no state may be left with one, or without any.

    `111` is visited once, then recalled, then visited again as the sample.
    """
    answered: set[CrashState] = set()
    stored, keep = threading.Event(), Ledger.keep

    def noted(ledger: Ledger, seen: Sequence[JudgedGroup]) -> None:
        keep(ledger, seen)
        if recalled := {j.state for group in seen if group.observation.recalled for j in group.judged}:
            answered.update(recalled)
            stored.set()

    def wait_for_the_store() -> None:
        if kernel.visits.count("111") == 2 and before:
            assert stored.wait(10)

    monkeypatch.setattr(Ledger, "keep", noted)
    monkeypatch.setattr(OutcomeMemo, "sampled", lambda memo, state: state.prefix > FIRST_TWO)
    bench.workload = replace(bench.workload, operations=(*bench.workload.operations, parse_operation("sync")))
    kernel = Kernel(Kind.WAVERS, at="111", meanwhile=wait_for_the_store)
    bench.run(kernel, "prefix")
    assert kernel.visits[:5] == ["00", "10", "110", "111", "111"]
    assert answered, "or this tests nothing"
    assert "not deterministic" in ended(bench)[0].mismatch
    rows = {row.state: row for row in bench.store.iter_verdicts(bench.case)}
    assert answered <= rows.keys()
    assert {row.how for row in rows.values()} <= {How.JUDGED, How.SAME_CONTENT}
    assert {row.verdict for row in rows.values()} == {Verdict.PASS}


@pytest.mark.parametrize("marks", [1, 3])
def test_a_walk_that_ends_in_the_wrong_phase_tells_of_no_other_state(bench: Bench, marks: int) -> None:
    """The hang watch asked for the serial number, which is the walk's mark: when the kernel went on, metadata
    was taken for data, and legal states were missing under "exhaustive". The second look has marks of its
    own, which made an odd number even.
    """
    bench.run(Kernel(has_file=True, marks=marks), "exhaustive")
    case, _ = ended(bench)
    judged = bench.store.rows_of(bench.case).judged
    assert {row.how for row in judged} == {How.JUDGED}
    assert all("an odd number of times" in "".join(row.judgement.unknown) for row in judged)
    assert case.info.coverage is not None
    assert not case.info.coverage.exhaustive


@pytest.mark.parametrize("visits", range(1, 8))
@each([Kind.FINE, Kind.NOT_MOUNTED, Kind.HANGS])
def test_a_budget_drops_nothing_that_was_visited(bench: Bench, states: str, kind: Kind, visits: int) -> None:
    """What was visited since the disk was asked last was not told when the budget ended."""
    kernel = Kernel(kind)
    bench.run(kernel, states, budget=Budget(visits=visits))
    assert bench.verdicts(states) == expected(kernel, kernel.visits)
    case, code = ended(bench)
    coverage = case.info.coverage
    if set(kernel.visits) == WORDS[states]:
        assert code is not ExitCode.CONSISTENT or kind is Kind.FINE
    else:
        assert coverage is not None
        assert not coverage.exhaustive
        assert coverage.unexplored
        assert "budget" in coverage.why


@pytest.mark.parametrize("states", WORDS)
def test_a_finding_of_a_run_that_a_budget_ended_can_be_reproduced(bench: Bench, states: str) -> None:
    """The budget deleted the case's timeline: `reproduce:` answered that the log has 0 entries."""
    bench.run(Kernel(Kind.NOT_MOUNTED, at="00"), states, budget=Budget(visits=2))
    case, _ = ended(bench)
    assert case.info.coverage is not None
    assert "budget" in case.info.coverage.why
    entries = len(bench.recording(states).write_log.entries)
    assert entries == len(bench.store.timeline(bench.case)) > 0
    (finding,) = case.findings
    assert find_point(str(finding.crash_point), bench.store) == finding.crash_point


@pytest.mark.parametrize(("states", "plan"), [("prefix", {"memo": False}), ("exhaustive", {})])
@pytest.mark.parametrize("kind", [Kind.FINE, Kind.NOT_MOUNTED, Kind.HANGS, Kind.DIES])
def test_two_workers_on_one_case_store_what_one_does(
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: Kind,
    states: str,
    plan: dict[str, Any],
) -> None:
    """One case was one core, and what a second one would have looked at depended on which was first."""
    monkeypatch.setattr("harness.cases.casework.WORTH_HELP", 1)
    workers, both = set[int](), threading.Event()

    def wait_for_the_other() -> None:
        workers.add(threading.get_ident())
        if len(workers) == 2:
            both.set()
        elif len(kernel.visits) == 3:  # by then, two states are wanted at once
            both.wait(20)

    kernel = Kernel(kind, meanwhile=wait_for_the_other)
    bench.run(kernel, states, jobs=2, **plan)
    assert len(workers) == 2
    with bench_in(tmp_path / "alone") as alone:
        alone.run(Kernel(kind), states, **plan)
        assert list(bench.store.iter_verdicts(bench.case)) == list(alone.store.iter_verdicts(bench.case))
        one, two = ended(alone)[0], ended(bench)[0]
        assert (two.verdict, two.info.coverage) == (one.verdict, one.info.coverage)


def test_a_case_of_which_one_worker_failed_is_unknown_however_the_other_ends(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last worker to end had nothing to complain of, and the case was DONE."""
    monkeypatch.setattr("harness.cases.casework.WORTH_HELP", 3)  # planned with the third: that one is taken
    workers, both, one_ended = list[int](), threading.Event(), threading.Event()
    learn, explored = Examiner.learn, Casework._explored

    def meanwhile() -> None:
        workers.append(threading.get_ident())
        if workers[-1] != workers[0]:
            both.set()
            assert one_ended.wait(20)
        elif len(workers) == 3:
            assert both.wait(20)

    def failing(
        examiner: Examiner, state: CrashState, observation: Observation, expected: int | None
    ) -> int | None:
        if threading.get_ident() == workers[0] and both.is_set():
            raise DiskError("the memo's disk is gone")
        return learn(examiner, state, observation, expected)

    def noted(casework: Casework, *given: Any) -> None:
        explored(casework, *given)
        one_ended.set()

    monkeypatch.setattr(Examiner, "learn", failing)
    monkeypatch.setattr(Casework, "_explored", noted)
    bench.run(Kernel(meanwhile=meanwhile), "exhaustive", jobs=2)
    assert len(set(workers)) == 2
    case, code = ended(bench)
    assert (case.status, code) == (CaseStatus.UNKNOWN, ExitCode.UNDECIDED)
    assert "the memo's disk is gone" in case.reason
    assert case.info.coverage is None


RESUMED = [Kind.FINE, Kind.NOT_MOUNTED, Kind.UNREADABLE, Kind.HANGS, Kind.DIES, Kind.LATE_IN_USE]


@pytest.mark.parametrize("stop_at", [1, 2, 4])
@each(RESUMED)
def test_a_run_that_was_stopped_says_so_and_is_finished_by_the_next(
    bench: Bench, kind: Kind, states: str, stop_at: int
) -> None:
    """How far a stopped exploration came is not known: no coverage is told of it."""
    kernel = Kernel(kind)
    bench.run(kernel, states, stop_at=stop_at)
    assert len(kernel.visits) == stop_at
    (case,) = summarise(bench.store).cases
    assert case.status is CaseStatus.RECORDED
    assert case.undecided
    assert case.info.coverage is None
    bench.run(kernel, states)
    assert bench.verdicts(states) == expected(kernel, kernel.visits)
    assert ended(bench)[0].status is CaseStatus.DONE


def test_what_a_stopped_exploration_left_is_no_part_of_the_next_one(bench: Bench) -> None:
    """Which states are looked at, and so their names, depends on all that was seen: the next run may never
    come to one of them.
    """
    bench.run(Kernel(Kind.FINE), "exhaustive", stop_at=2)
    left = JudgedState(CrashState(5), "", Judgement(unknown=("the guest was lost",)), How.JUDGED)
    bench.store.put_judgements(bench.case, [left])
    kernel = Kernel(Kind.FINE)
    bench.run(kernel, "exhaustive")
    assert left.state not in {row.state for row in bench.store.iter_verdicts(bench.case)}
    assert bench.verdicts("exhaustive") == expected(kernel, WORDS["exhaustive"])
    assert ended(bench)[1] is ExitCode.CONSISTENT


class Killed(BaseException):
    """Stands for SIGKILL: nothing after it is stored."""


@pytest.mark.parametrize("stored", [0, 1])
@each(RESUMED)
def test_a_run_that_was_killed_is_finished_by_the_next(
    bench: Bench, kind: Kind, states: str, stored: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stored`: how often judgements were stored before."""
    put = RunStore.put_judgements
    calls: list[tuple[object, ...]] = []

    def dying(store: RunStore, *given: object) -> None:
        if len(calls) == stored:
            raise Killed
        calls.append(given)
        put(store, *given)  # type: ignore[arg-type]  # as given

    kernel = Kernel(kind)
    with monkeypatch.context() as patched:
        patched.setattr(RunStore, "put_judgements", dying)
        try:
            bench.run(kernel, states)
        except Killed:
            assert summarise(bench.store).cases[0].undecided
    bench.store.close()
    with RunStore.open(bench.store.path) as again:
        bench.store = again
        bench.run(kernel, states)
        assert set(bench.verdicts(states)) == WORDS[states]
        assert bench.verdicts(states) == expected(kernel, WORDS[states])


@pytest.mark.parametrize("states", WORDS)
def test_a_case_with_an_unknown_state_is_tried_again_and_one_without_is_not(
    bench: Bench, states: str
) -> None:
    bench.run(Kernel(Kind.HANGS), states)
    assert ended(bench)[1] is ExitCode.UNDECIDED
    healthy = Kernel(Kind.FINE)
    bench.run(healthy, states)
    assert "110" in healthy.visits
    assert bench.verdicts(states) == expected(healthy, WORDS[states])
    assert ended(bench)[1] is ExitCode.CONSISTENT
    idle = Kernel(Kind.DIES)
    bench.run(idle, states)
    assert not idle.visits
    assert ended(bench)[1] is ExitCode.CONSISTENT


def test_progress_counts_a_state_of_several_crash_times_once(bench: Bench) -> None:
    """Progress ended with 210 of 210 states, and the summary had 180."""
    progress = Said()
    bench.run(Kernel(), "exhaustive")
    rows = [*bench.store.iter_verdicts(bench.case)]
    case = PlannedCase(bench.profile, bench.workload, bench.case)
    plan = Plan(configurations=[bench.profile.name], workloads=[bench.workload.name])
    ledger = Ledger(case, Examiner(bench.recording("exhaustive")), bench.store, plan, progress)
    ledger.begin(expected=0)
    judged = [JudgedState(row.state, row.content_hash, Judgement(), How.JUDGED) for row in rows]
    groups = [JudgedGroup(Group(j.content_hash, (j.state,)), Observation(Outcome()), (j,)) for j in judged]
    ledger.keep(groups)
    ledger.keep(groups[:2])
    assert (progress.words, progress.left) == (f"{len(rows)} states", {"states": 0})
    assert bench.store.counts(bench.case).checked == len(rows)


DATA = (4, 9, 10, 11, 12, 13, 14, 15)
"""Eight blocks of a file: 256 states of them."""
SOME = range(1, len(DATA))
NOT_ALONE = range(2, len(DATA) - 1)
WRONG: dict[str, tuple[dict[str, Any], Kernel, int]] = {
    "the mode says that no journal replays data": (
        {"no_csum_no_compression": False},
        Kernel(data=DATA, joins=NOT_ALONE),
        0,
    ),
    "no_csum_no_compression": ({"no_csum_no_compression": True}, Kernel(data=DATA, joins=SOME), 0),
    "mount_counters": (
        {
            "mount_counters": tuple(
                MountCounter(BLOCK_BYTES, ((0, BLOCK_BYTES),), at=b * BLOCK_BYTES) for b in DATA
            )
        },
        Kernel(data=DATA, joins=SOME),
        0,
    ),
    "roll_forward_allocates": (
        {"no_csum_no_compression": False, "roll_forward_allocates": False},
        Kernel(data=DATA, stale=SOME),
        1,
    ),
}
"""What a file system's file says of these kernels, and is not so; how often recoveries are cut."""


@pytest.mark.parametrize("switch", WRONG)
@pytest.mark.parametrize("tested", [True, False], ids=["tested", "not tested"])
def test_a_wrong_switch_of_a_file_system_is_noticed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, switch: str, tested: bool
) -> None:
    """What the engine leaves out was visited by nobody: each of these kernels kept every promise in "all
    legal states".
    """
    changes, kernel, again = WRONG[switch]
    monkeypatch.setattr("harness.cases.exploration.TESTED", float(tested))
    monkeypatch.setattr(OutcomeMemo, "sampled", lambda memo, state: False)
    bench.profile = replace(bench.profile, **changes)
    bench.run(replace(kernel, visits=[], uses=[]), "exhaustive", again=again)
    case, code = ended(bench)
    if tested:
        assert case.mismatch
        assert case.undecided == case.mismatch
        assert code in (ExitCode.UNDECIDED, ExitCode.INCONSISTENT)
    else:
        assert (case.verdict, case.mismatch) == (CaseVerdict.PASS, "")
    if tested and switch != "mount_counters":
        assert "what was left out as of no effect has one" in case.mismatch
        assert "broken" in case.mismatch
        assert case.verdict is CaseVerdict.FAIL, "the state itself breaks a promise"


RIGHT: dict[str, tuple[dict[str, Any], Kernel]] = {
    "every block is looked at": ({"no_csum_no_compression": False}, Kernel(data=DATA, joins=(1,))),
    "nothing joins them": ({}, Kernel(data=DATA)),
    "each recovery is cut": (
        {"no_csum_no_compression": False, "roll_forward_allocates": True},
        Kernel(data=DATA, stale=SOME),
    ),
}


@pytest.mark.parametrize("switch", RIGHT)
def test_a_right_switch_is_no_mismatch(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    """And what is tested is the same, whatever the number of workers."""
    changes, kernel = RIGHT[switch]
    monkeypatch.setattr("harness.cases.exploration.TESTED", 1.0)
    tested = []
    for jobs in (1, 2):
        with bench_in(tmp_path / f"{jobs}") as one:
            one.profile = replace(one.profile, **changes)
            one.run(replace(kernel, visits=[], uses=[]), "exhaustive", jobs=jobs, again=1)
            case, _ = ended(one)
            assert not case.mismatch
            assert case.info.coverage is not None
            assert case.info.coverage.exhaustive
            tested.append([(row.state, row.verdict) for row in one.store.iter_verdicts(one.case)])
    assert tested[0] == tested[1]


def test_a_budget_leaves_out_what_tests_the_reduction_and_no_crash_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are visits, and none that the coverage needs."""
    monkeypatch.setattr("harness.cases.exploration.TESTED", 1.0)
    kernel = Kernel(data=DATA)
    bench.run(kernel, "exhaustive", budget=Budget(visits=len(WORDS["exhaustive"])))
    coverage = there(ended(bench)[0].info.coverage)
    assert coverage.visits
    budget = "budget" in coverage.why
    assert coverage.exhaustive is not budget


def test_a_recording_without_times_is_looked_at_in_its_own_order_whatever_the_budget_of_legal_states(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its prefixes have no budget, and were put into the order of one: neighbours differ little, and are
    quicker.
    """
    monkeypatch.setattr(
        "harness.cases.casework.by_times", lambda recording, _: (recording, "this kernel has no events")
    )
    kernel = Kernel()
    bench.run(kernel, "exhaustive", budget=Budget(visits=2))
    assert kernel.visits == ["00", "10", "110", "111"]


@pytest.mark.parametrize("states", WORDS)
@pytest.mark.parametrize("memo", [True, False])
def test_what_a_replay_changed_in_memory_alone_is_missed_at_the_second_mount(
    bench: Bench, states: str, memo: bool
) -> None:
    """Nothing looked at what recovery had left a second time: a replay that filled memory, never the disk,
    and emptied the journal, kept every promise. It leaves what a disk without a journal holds, of which the
    answer is known by then: recalled, that would say that nothing changed.
    """
    bench.run(Kernel(journal=True, in_memory=True), states, memo=memo, sample_rate=0.0)
    case, _ = ended(bench)
    assert {(f.oracle, f.signature) for f in case.findings} == {("usable", "second mount: .: links")}
    found = bench.verdicts(states)
    assert {word: found[word] for word in found if word[0] == "1"} == {
        word: {Verdict.FAIL} for word in found if word[0] == "1"
    }
    assert found["00"] == {Verdict.PASS}
    # What the second mount of another state showed was recalled for sound ones.
    assert {word for word in found if word[0] == "0" and found[word] != {Verdict.PASS}} == set()


@pytest.mark.parametrize("states", WORDS)
def test_a_journal_that_was_replayed_is_there_at_the_second_mount(bench: Bench, states: str) -> None:
    bench.run(Kernel(journal=True), states)
    case, _ = ended(bench)
    assert case.verdict is CaseVerdict.PASS


@pytest.mark.parametrize("budget", [Budget(), Budget(visits=1)], ids=["all", "one visit"])
@pytest.mark.parametrize("states", WORDS)
def test_what_the_kernel_said_while_the_workload_ran_is_a_finding_of_the_case(
    bench: Bench, states: str, budget: Budget
) -> None:
    """The kernel log of the recording was thrown away: a WARN at each RENAME_EXCHANGE, KASAN, lockdep and the
    file system's own errors passed. It belongs to the state after the workload's end, visited or not.
    """
    bench.run(Kernel(complains_in=1), states, budget=budget)
    case, code = ended(bench)
    (finding,) = case.findings
    assert (case.verdict, code) == (CaseVerdict.FAIL, ExitCode.INCONSISTENT)
    assert finding.summary == (
        f"the kernel complains while the workload runs, in `sync` (operation 1): {COMPLAINT}"
    )
    assert (finding.oracle, finding.states) == ("kernel-log", 1)
    assert finding.signature == "while the workload runs: EXT4-fs error (device vda): toy"
    assert finding.state == bench.recording(states).end
    evidence = there(bench.store.evidence(finding))
    assert evidence.kernel_log == "--- operation 1: sync ---\nEXT4-fs error (device vda): toy"
    counts = bench.store.counts(bench.case)
    assert counts.checked == counts.generated or budget.visits


@pytest.mark.parametrize("states", WORDS)
def test_a_recording_that_is_judged_again_has_what_the_kernel_said(
    bench: Bench, states: str, tmp_path: Path
) -> None:
    bench.run(Kernel(complains_in=0), states)
    before = [(f.id, f.state) for f in bench.store.findings_of(bench.case)]
    folder = tmp_path / "again"
    with bench_in(folder) as again:
        again.run(Kernel(), states, recordings=str(bench.store.layout.path))
        assert [(f.id, f.state) for f in again.store.findings_of(again.case)] == before


@pytest.mark.parametrize("order", [*itertools.permutations(["00", "110", "111"])], ids="-".join)
@pytest.mark.parametrize("kind", [Kind.COMPLAINS_ONCE, Kind.KEEPS_BACK])
def test_the_verdict_on_a_state_does_not_depend_on_what_its_guest_did_before(
    bench: Bench, kind: Kind, order: tuple[str, ...]
) -> None:
    """What a kernel says once (WARN_ON_ONCE) or so often in a while (`*_ratelimited`) counted for the first
    state of a guest alone: a case failed by itself, and passed behind another one.
    """
    kernel = Kernel(kind)
    bench.run(Kernel(), "exhaustive")
    words = {word: state for state, word in bench.words("exhaustive").items()}
    examiner = Examiner(bench.recording("exhaustive"))
    session = toy_worker(kernel, bench.folder / "again")
    found: dict[str, Verdict] = {}
    with contextlib.closing(examiner), session:
        for word in (*order, *order):
            observed = examiner.visit(session, [words[word]], threading.Event())
            verdict = examiner.judge(words[word], observed).verdict
            assert found.setdefault(word, verdict) is verdict
    assert found == {word: kernel.verdict_on(word) for word in order}


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_a_kernel_says_once_is_heard_of_every_state(bench: Bench, jobs: int) -> None:
    kernel = Kernel(Kind.COMPLAINS_ONCE, at="111")
    bench.run(kernel, "prefix", jobs=jobs, memo=False)
    assert bench.verdicts("prefix") == expected(kernel, WORDS["prefix"])


def test_a_guest_that_has_the_same_complaint_of_each_state_lives_on(bench: Bench) -> None:
    """A boot for each state is dear, and tells no more: what this guest says, it still says."""
    kernel = Kernel(Kind.COMPLAINS, at="111")
    bench.run(kernel, "prefix", memo=False)
    assert kernel.visits.count("111") == 2
    assert kernel.boots == 1


def test_a_guest_that_complained_records_no_other_workload(bench: Bench) -> None:
    kernel = Kernel(complains_in=0)
    session = toy_worker(kernel, bench.folder)
    with session:
        bench.run(Kernel(), "prefix")
        target = bench.recording("prefix").target
        for expected_boots in (1, 2):
            session.record(target, bench.workload.operations)
            assert session.has_complained
            assert kernel.boots == expected_boots


@pytest.mark.parametrize("apart", [False, True])
def test_a_kernel_that_dies_while_it_is_recorded_is_unknown_with_what_it_said(
    bench: Bench, apart: bool
) -> None:
    """The reason was "guest lost: ... machine ended with -6", without the panic's text."""
    bench.run(Kernel(dies_in=1), "exhaustive", apart=apart)
    (case,) = summarise(bench.store).cases
    assert case.verdict is CaseVerdict.UNKNOWN
    assert case.undecided.startswith("the kernel died while the workload was recorded: Kernel panic")
