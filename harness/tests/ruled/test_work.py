"""Cases of modes that are only rules, as far as no guest is needed."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.cases.casework import EnoughDone, Limits
from harness.filesystems.profiles import ruled_modes
from harness.host.progress import Quiet
from harness.model import CaseId, Check, CheckResult, CrashPoint, CrashState, Workload
from harness.plan import Budget, Plan
from harness.report.explanation import Fate, read_explanation
from harness.ruled.judging import Judging
from harness.ruled.work import INTERRUPTED, RuledWork, _Case
from harness.rules.answers import Tried
from harness.rules.calls import Left, Notes
from harness.rules.states import Listed, Partial
from harness.rules.trees import Files, contents
from harness.store import RunStore
from harness.store.layout import latest
from harness.store.records import CaseInfo, CaseStatus, JudgedState
from harness.summary import CaseSummary, CaseVerdict, summarise
from harness.tests.rules.programs import OWNER, Calls, rules
from harness.tests.store.samples import INFO, broken
from harness.workloads.load import parse_operation


class Begun(Quiet):
    def __init__(self) -> None:
        super().__init__()
        self.begun: list[tuple[str, int]] = []

    def begin(self, what: str, total: int) -> None:
        self.begun.append((what, total))


def test_what_an_earlier_part_decided_counts_as_no_work_of_this_one(tmp_path: Path) -> None:
    """Nine of ten were "done" in no time, and the last one took longer than was told."""
    profile = next(iter(ruled_modes().values()))
    cases = [(profile, Workload(name, "", (parse_operation("sync"),))) for name in ("done", "left")]
    plan, progress, told = Plan(configurations=[], workloads=[]), Begun(), list[CaseId]()
    with RunStore.create(tmp_path, "t", INFO, durable=False) as store:
        done = CaseId(profile.filesystem, profile.mode, "done")
        store.add_case(CaseInfo(done, "", "", ""))
        store.set_case_status(done, CaseStatus.DONE)
        work = RuledWork(plan, store, progress, cast(Any, None), tmp_path, told.append)
        work.work(cases, {}, {"left": "not here"})
    assert progress.begun == [("recorded", 1)]
    assert [case.workload for case in told] == ["done", "left"]


def test_a_case_that_the_time_did_not_reach_is_known_to_the_run(tmp_path: Path) -> None:
    """Of three modes the report had the first, which was under way: the others were named nowhere."""
    profile = next(iter(ruled_modes().values()))
    cases = [(profile, Workload(name, "", (parse_operation("sync"),))) for name in ("one", "two")]
    plan = Plan(configurations=[], workloads=[], minutes=1e-9)
    with RunStore.create(tmp_path, "t", INFO, durable=False) as store:
        work = RuledWork(plan, store, Begun(), cast(Any, None), tmp_path)
        with pytest.raises(EnoughDone):
            work.work(cases, {profile.name: tmp_path}, {})
        assert [(c.case.workload, c.status) for c in store.cases()] == [
            ("one", CaseStatus.PLANNED),
            ("two", CaseStatus.PLANNED),
        ]


def test_each_state_has_the_words_of_its_own_check(tmp_path: Path) -> None:
    """`repro` of the state that a report showed said another number than the report: that of the state at
    which it had been reduced.
    """
    calls = Calls().create("f").fsync("f").fsync(".").ack("0").write("f", b"x" * 12000).ack("1")
    notes = replace(calls.notes([Left("f", "file", OWNER, b"x" * 12000)]), exit_code=0)

    def says(files: Files, acks: int) -> Tried:
        held = contents(notes, files["f"].size, files["f"].pieces) if "f" in files else b""
        wrong = acks > 1 and bool(held) and held.count(b"x") < 12000
        return Tried(CheckResult(0, int(wrong), f"{held.count(b'x')} of 12000" if wrong else "", acks))

    judging = Judging(notes, rules(), lambda trees: [says(*tree) for tree in trees])
    case, check = CaseId("any", "posix", "w"), Check(0, ("check",), ("*",), application=True)
    with RunStore.create(tmp_path, "t", INFO, durable=False) as store:
        store.add_case(CaseInfo(case, "", "", ""))
        workload = Workload("w", "", (parse_operation("sync"),), (check,))
        _Case(store, case, workload, check, judging, Quiet()).decide()
        found = {f.state: f for f in store.findings_of(case)}
        told = [read_explanation(store.layout, f.id) for f in found.values()]
    assert found
    (rung,) = (r for e in told if e for r in e.ladder if r.accent and r.text.startswith("acknowledged"))
    assert rung.text == "acknowledged `1`"
    for state, finding in found.items():
        partial = Partial.of(state, judging.effect)
        said = judging.result(partial, judging.legal.acks(partial)).output
        assert said in finding.violations[0].found
    for explanation in told:
        assert explanation is not None
        point = Partial.of(CrashPoint.parse(explanation.point).state, judging.effect)
        assert judging.result(point, judging.legal.acks(point)).output in explanation.lines["cut"]
        assert explanation.point in explanation.lines["reproduce"]


def test_of_a_torn_call_a_part_is_told_to_be_there(tmp_path: Path) -> None:
    """Its data was told as there, and no micro-operation as one that had persisted in part."""
    calls = Calls().create("f").write("f", b"a" * 1024).sync().ack("0").write("f", b"b" * 1024).ack("1")
    notes = replace(calls.notes([Left("f", "file", OWNER, b"b" * 1024)]), exit_code=0)

    def says(files: Files, acks: int) -> Tried:
        held = contents(notes, files["f"].size, files["f"].pieces) if "f" in files else b""
        return Tried(CheckResult(0, int(acks > 1 and len(set(held)) > 1), "half old, half new"))

    judging = Judging(notes, rules(), lambda trees: [says(*tree) for tree in trees])
    case, check = CaseId("any", "posix", "w"), Check(0, ("check",), ("*",), application=True)
    with RunStore.create(tmp_path, "t", INFO, durable=False) as store:
        store.add_case(CaseInfo(case, "", "", ""))
        workload = Workload("w", "", (parse_operation("sync"),), (check,))
        _Case(store, case, workload, check, judging, Quiet()).decide()
        (finding,) = {f.id: f for f in store.findings_of(case)}.values()
        told = read_explanation(store.layout, finding.id)
    assert told is not None
    assert [r.fate for r in told.ladder if r.accent] == [Fate.TORN]
    assert told.lines["cut"].startswith("4 micro-operations had persisted, one of them in part, 0 had not")


@pytest.mark.parametrize(
    ("change", "losses", "why"),
    [
        ({}, 1, "more sets of unsynced micro-operations, and torn blocks, than are visited"),
        ({"budget": Budget(visits=1)}, 0, "the budget: 1 states a case"),
        ({"deadline": 0.0}, -1, "the time of the run"),
    ],
)
def test_coverage_says_what_ended_the_visits(
    tmp_path: Path, change: dict[str, Any], losses: int, why: str
) -> None:
    """ "The budget: 593.2 s a case" was of a run whose budget was its minutes."""
    calls = Calls().create("f").sync().write("f", b"x" * 80_000).ack("done")
    notes = replace(calls.notes([Left("f", "file", OWNER, b"x" * 80_000)]), exit_code=0)
    judging = Judging(
        notes, rules(), lambda trees: [Tried(CheckResult(0, 0, "", a)) for _, a in trees], **change
    )
    case, check = CaseId("any", "posix", "w"), Check(0, ("check",), ("*",), application=True)
    with RunStore.create(tmp_path, "t", INFO, durable=False) as store:
        store.add_case(CaseInfo(case, "", "", ""))
        _Case(store, case, Workload("w", "", ()), check, judging, Quiet()).decide()
        (info,) = (c.info for c in store.cases())
    assert info.coverage is not None
    assert (info.coverage.losses, info.coverage.why) == (losses, why)
    assert info.coverage.unexplored


@pytest.mark.parametrize(("blocks", "left"), [(6, 0), (7, 7 * 14 * 64 - 28 * 14)])
def test_coverage_says_how_many_torn_blocks_were_left_out(tmp_path: Path, blocks: int, left: int) -> None:
    """Only the last block of a state was torn, and that was told as all of them."""
    calls = Calls().create("f").size("f", 4096 * blocks).sync()
    for n in range(blocks):
        calls.write("f", b"x" * 4096, 4096 * n)
    notes = replace(calls.ack("0").notes([Left("f", "file", OWNER, b"x" * 4096 * blocks)]), exit_code=0)
    judging = Judging(notes, rules(names=True), lambda trees: [Tried(CheckResult(0, 0, ""))] * len(trees))
    case, check = CaseId("any", "posix", "w"), Check(0, ("check",), ("*",), application=True)
    with RunStore.create(tmp_path, "t", INFO, durable=False) as store:
        store.add_case(CaseInfo(case, "", "", ""))
        _Case(store, case, Workload("w", "", ()), check, judging, Quiet()).decide()
        (info,) = (c.info for c in store.cases())
    assert info.coverage is not None
    assert (info.coverage.exhaustive, info.coverage.unexplored) == (not left, left)
    assert judging.legal.listed().exhaustive == (not left)


@pytest.mark.parametrize("budget", [Budget(), Budget(visits=20)])
def test_work_that_a_budget_ends_is_not_told_as_more(tmp_path: Path, budget: Budget) -> None:
    """Each of 400 checks was counted among 20,000 states: "about 924 min left"."""
    calls = Calls().create("f").sync().write("f", b"x" * 80_000).ack("done")
    notes = replace(calls.notes([Left("f", "file", OWNER, b"x" * 80_000)]), exit_code=0)
    judging = Judging(
        notes, rules(), lambda trees: [Tried(CheckResult(0, 0, "", a)) for _, a in trees], budget=budget
    )
    case, check, told = CaseId("any", "posix", "w"), Check(0, ("check",), ("*",), application=True), Begun()
    with RunStore.create(tmp_path, "t", INFO, durable=False) as store:
        store.add_case(CaseInfo(case, "", "", ""))
        _Case(store, case, Workload("w", "", ()), check, judging, told).decide()
        visited = sum(1 for _ in store.judged_states(case))
    totals = list(itertools.accumulate(count for _, count in told.begun))
    assert totals[0] == judging.legal.listed().at_most
    assert totals[-1] == visited
    before_the_end = totals[-2]
    assert (before_the_end < totals[0] / 2) == (budget.visits is not None)


def test_a_search_that_is_interrupted_keeps_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """62 states of a server had failed, Ctrl-C: "the run ended after 2 distinct states", UNKNOWN."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.ruled.work.answer", interrupted)
    calls = Calls().create("f").write("f", b"x").ack("1")
    notes = replace(calls.notes([Left("f", "file", OWNER, b"x")]), exit_code=0)

    def says(trees: Any) -> list[Tried]:
        wrong = [int(acks > 0 and "f" not in files) for files, acks in trees]
        return [
            Tried(CheckResult(0, w, "gone" if w else "", a)) for w, (_, a) in zip(wrong, trees, strict=True)
        ]

    case, check = CaseId("any", "posix", "w"), Check(0, ("check",), ("*",), application=True)
    with RunStore.create(tmp_path, "t", INFO, durable=False) as store:
        store.add_case(CaseInfo(case, "", "", ""))
        with pytest.raises(KeyboardInterrupt):
            _Case(store, case, Workload("w", "", ()), check, Judging(notes, rules(), says), Quiet()).decide()
        (finding,) = store.findings_of(case)
    assert INTERRUPTED in finding.violations[0].summary


def test_what_an_interrupted_case_had_shown_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After 1,665 states, Ctrl-C: "the run ended after 0 distinct states"."""
    monkeypatch.setattr("harness.ruled.judging._VISITS", 1)
    calls = Calls().create("f").ack("0").write("f", b"x" * 12000).ack("1")
    notes = replace(calls.notes([Left("f", "file", OWNER, b"x" * 12000)]), exit_code=0)
    asked: list[Files] = []

    def says(trees: Any) -> list[Tried]:
        asked.extend(files for files, _ in trees)
        if len(asked) > 3:
            raise KeyboardInterrupt
        return [
            Tried(CheckResult(0, int(acks > 0 and "f" not in files), "gone", acks)) for files, acks in trees
        ]

    judging = Judging(notes, rules(), says, fold=False)
    case, check = CaseId("any", "posix", "w"), Check(0, ("check",), ("*",), application=True)
    with RunStore.create(tmp_path, "t", INFO, durable=False) as store:
        store.add_case(CaseInfo(case, "", "", ""))
        workload = Workload("w", "", (parse_operation("sync"),), (check,))
        with pytest.raises(KeyboardInterrupt):
            _Case(store, case, workload, check, judging, Quiet()).decide()
        assert store.counts(case).checked


class Drawn:
    """A program that writes other bytes, as many, each time that it runs; in place of a guest."""

    ran = 0

    def __init__(self, *_: object) -> None:
        self.raw = b""

    def __enter__(self) -> Drawn:
        return self

    def __exit__(self, *_: object) -> None:
        """No guest to end."""

    def note(self, argv: Sequence[str], deadline: float | None = None) -> Notes:
        Drawn.ran += 1
        return self.take(bytes([Drawn.ran]))

    def take(self, raw: bytes) -> Notes:
        self.raw = raw
        calls = Calls().create("f").write("f", raw * 12000).ack("1")
        return replace(calls.notes([Left("f", "file", OWNER, raw * 12000)]), exit_code=0)

    def note_again(self, argv: Sequence[str], deadline: float | None = None) -> None:
        """It could not be noted."""

    def check(self, trees: Sequence[tuple[Files, int]], check: Check, acks: Sequence[str]) -> list[Tried]:
        return [
            Tried(CheckResult(0, int(acks > 0 and "f" not in files), "gone", acks)) for files, acks in trees
        ]


VISITED = Judging.visited


def cut_short(judging: Judging, listed: Listed, at: int) -> Iterator[tuple[Partial, CheckResult]]:
    """The user stops it after so many states."""
    yield from itertools.islice(VISITED(judging, listed), at)
    raise KeyboardInterrupt


@pytest.fixture
def part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., CaseSummary]]:
    """A part of a run of such a program; answers with what the run knows then of its case."""
    monkeypatch.setattr(Drawn, "ran", 0)
    monkeypatch.setattr("harness.ruled.work.Session", Drawn)
    monkeypatch.setattr("harness.ruled.work.MadeTrees", Drawn)
    profile = next(iter(ruled_modes().values()))
    check = Check(0, ("check",), ("*",), application=True)
    workload = Workload("w", "", (parse_operation("sync"),), (check,))
    with RunStore.create(tmp_path, "t", INFO, durable=False) as store:

        def worked(stop_at: int | None = None) -> CaseSummary:
            plan = Plan(configurations=[], workloads=[])
            work = RuledWork(plan, store, Begun(), cast(Any, None), tmp_path)
            with monkeypatch.context() as patch:
                if stop_at is not None:
                    patch.setattr(Judging, "visited", functools.partialmethod(cut_short, at=stop_at))
                with contextlib.suppress(EnoughDone, KeyboardInterrupt):
                    work.work([(profile, workload)], {profile.name: tmp_path}, {})
            (case,) = summarise(store).cases
            return case

        yield worked


def test_a_program_that_draws_something_is_judged_on_the_notes_of_the_part_before(
    part: Callable[..., CaseSummary],
) -> None:
    """UNKNOWN: "was judged on another recording"; and the calls that the findings were of were gone."""
    stopped = part(stop_at=4)
    assert (stopped.status, stopped.verdict) == (CaseStatus.RECORDED, CaseVerdict.FAIL)
    resumed = part()
    assert (resumed.status, resumed.reason, resumed.verdict) == (CaseStatus.DONE, "", CaseVerdict.FAIL)
    assert Drawn.ran == 1


def test_a_case_takes_the_time_of_all_parts_of_the_run(
    part: Callable[..., CaseSummary], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that was stopped took none, and the next one's time was that of the case: a rate too high."""
    clock = itertools.count()
    monkeypatch.setattr("harness.ruled.work.time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    assert [part(stop_at=4).seconds, part().seconds] == [1, 2]


def test_a_case_goes_on_whose_cause_the_time_of_the_run_left_open(
    part: Callable[..., CaseSummary], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all states had been visited by then, it was done: "not every fsync was tried" stayed, whatever
    time the run got later, and it was the time of a budget that nobody had given.
    """

    def enough(_: Limits) -> None:
        raise EnoughDone("the time given is up")

    with monkeypatch.context() as patch:

        def begin(_: Judging) -> None:
            patch.setattr(Judging, "is_over", True)
            patch.setattr(Limits, "need_more", enough)

        patch.setattr(Judging, "begin_search", begin)
        stopped = part()
    assert (stopped.status, stopped.verdict) == (CaseStatus.RECORDED, CaseVerdict.FAIL)
    assert part().status is CaseStatus.DONE


def test_a_resumed_part_that_comes_to_nothing_leaves_what_was_known(part: Callable[..., CaseSummary]) -> None:
    """The findings of the part before were deleted first."""
    before, after = part(stop_at=4), part(stop_at=0)
    assert before.findings
    assert [f.id for f in after.findings] == [f.id for f in before.findings]
    assert after.counts.checked == before.counts.checked


def test_what_only_an_earlier_part_had_is_gone_once_the_case_is_decided(
    part: Callable[..., CaseSummary], tmp_path: Path
) -> None:
    """A state that this version's rules do not leave possible, say."""
    before = part(stop_at=4)
    with RunStore.open(latest(tmp_path)) as store:
        other = JudgedState(CrashState.parse("@999"), "other", broken("lost"))
        store.put_judgements(before.case, [other])
    stopped, resumed = part(stop_at=0), part()
    assert len(stopped.findings) == len(before.findings) + 1
    assert "lost" not in {f.signature for f in resumed.findings}
    assert resumed.counts.checked == resumed.counts.generated
