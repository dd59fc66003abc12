"""A resumed run in which nothing is left to do is the same run, with everything real but the guest."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cases.examine import WITHOUT_DISK
from harness.filesystems.profiles import select_profiles
from harness.model import CrashState
from harness.plan import Budget
from harness.report.results import results
from harness.store import RunStore
from harness.store.records import (
    CaseInfo,
    CaseStatus,
    Coverage,
    DiskCell,
    DrawnCall,
    DrawnCalls,
    DrawnEntry,
    FaultyDiskResult,
    How,
    JudgedState,
    NestedCrashes,
    Step,
)
from harness.summary import CaseVerdict, summarise
from harness.tests.cases.toy_kernel import Bench, Kernel, Kind, OnError, Put, a_bench, bench_in
from harness.tests.store.samples import INFO, broken
from harness.tests.there import there

ADDS = (Put(7, 7, 1), None, Put(0, 7, 0), Put(7, 7, 3), None)
"""A recovery that is not idempotent: a cut in it is found by `confluence`."""
IDLE = Coverage(3, 1, 2, 5, "the budget of 5 states", 1, 64)
CHANGED: dict[str, Any] = {
    "mkfs_options": "-O other",
    "mount_options": "other",
    "workload_summary": "other",
    "oracles": ("durability",),
    "generated": 1_000,
    "distinct": 900,
    "steps": (Step(0, "other", 1, 2),),
    "timeline": (DrawnEntry(0, "write", 0, 8),),
    "files": {},
    "coverage": IDLE,
    "again": (NestedCrashes(1, 3, 7, IDLE),),
    "disk": FaultyDiskResult(
        ("errors",), 3, 1, 9, 4, (DiskCell("read fails", "journal", True, {"x": 1}, {}),)
    ),
    "left_at": "worker-3",
    "calls": DrawnCalls((DrawnCall(0, 1, "fsync(f)", "= 0"),)),
    "doubt": "its check says yes to nothing",
    "taken_from": "20261201-054912-run",
}
"""For each field of a case, what an earlier part may have left there."""
GIVEN = {"case", "log_hash"}
"""Fields that say which case it is."""
FROM_THE_RECORDING = {"timeline"}
"""What the recording says again, which is the same by its hash."""


bench = a_bench


def whole(bench: Bench) -> tuple[object, ...]:
    """All that a run says of its case: its rows, and what the reports make of them."""
    bench.store.finish(INFO.started)
    return bench.store.rows_of(bench.case), results(summarise(bench.store), "run")


plans = st.fixed_dictionaries(
    {
        "states": st.sampled_from(["prefix", "exhaustive"]),
        "again": st.integers(0, 1),
        "disk": st.sampled_from([(), ("errors",)]),
        "budget": st.sampled_from([Budget(), Budget(visits=2), Budget(visits=6)]),
        "memo": st.booleans(),
    }
)
kernels = st.sampled_from(
    [
        Kernel(),
        Kernel(program=ADDS),
        Kernel(Kind.NOT_MOUNTED, program=ADDS),
        Kernel(journal=True, on_error=OnError.IGNORES),
    ]
)


@settings(max_examples=5, deadline=None, database=None)
@given(plan=plans, kernel=kernels)
def test_a_resumed_run_with_nothing_left_is_the_same_run(
    tmp_path_factory: pytest.TempPathFactory, plan: dict[str, Any], kernel: Kernel
) -> None:
    """The case was stored anew with three of its fields. What cuts in recoveries and a faulty disk had
    come to was forgotten, so that choices which nobody had followed were no longer told.
    """
    folder = tmp_path_factory.mktemp("run")
    with bench_in(folder) as bench:
        kernel = replace(kernel, visits=[], uses=[])
        bench.run(kernel, **plan)
        before, visits = whole(bench), len(kernel.visits)
        bench.run(kernel, **plan)
        assert whole(bench) == before
        assert len(kernel.visits) == visits


@pytest.mark.parametrize("name", [f.name for f in fields(CaseInfo) if f.name not in GIVEN])
def test_whatever_a_decided_case_has_is_kept_when_its_run_is_resumed(bench: Bench, name: str) -> None:
    """Field by field, so that a new one is not forgotten as `again` and `disk` were."""
    assert name in CHANGED, "say here what an earlier part may have left in this field"
    bench.run(Kernel(), "prefix")
    record = there(bench.store.case(bench.case))
    drawn = bench.store.timeline(bench.case)
    bench.store.add_case(replace(record.info, **{"timeline": drawn, name: CHANGED[name]}))
    before = bench.store.rows_of(bench.case)
    bench.run(Kernel(), "prefix")
    if name in FROM_THE_RECORDING:
        assert bench.store.timeline(bench.case) == drawn
    else:
        assert bench.store.rows_of(bench.case) == before


def test_a_case_with_recoveries_that_could_not_be_cut_stays_unknown_when_its_run_is_resumed(
    bench: Bench,
) -> None:
    """PASS, exit 0: that seven recoveries had not been cut was forgotten."""
    bench.run(Kernel(), "exhaustive", again=1)
    record = there(bench.store.case(bench.case))
    again = tuple(replace(cut, not_cut=7) for cut in record.info.again)
    bench.store.add_case(replace(record.info, timeline=bench.store.timeline(bench.case), again=again))
    for resumed in (False, True):
        if resumed:
            bench.run(Kernel(), "exhaustive", again=1)
        (case,) = summarise(bench.store).cases
        assert case.undecided == "7 recoveries could not be cut"
        assert case.verdict is CaseVerdict.UNKNOWN


def test_a_case_that_passed_on_a_faulty_disk_still_does_when_its_run_is_resumed(bench: Bench) -> None:
    """UNKNOWN: states with a fault had been checked, and the number of states no longer had them."""
    for _ in range(2):
        bench.run(Kernel(journal=True), "prefix", disk=("errors",))
        (case,) = summarise(bench.store).cases
        assert case.info.disk is not None
        assert case.info.disk.tried
        assert case.verdict is CaseVerdict.PASS, case.undecided


def test_a_stack_is_looked_at_but_on_no_faulty_disk(bench: Bench) -> None:
    """`--overnight` did nothing at all on a stack."""
    (stack,) = select_profiles(["ext4/ordered@raid1"])
    bench.profile = replace(bench.profile, stacked=stack.stacked)
    bench.run(Kernel(journal=True), "prefix", disk=("errors",))
    (case,) = summarise(bench.store).cases
    assert case.status is CaseStatus.DONE
    assert case.info.disk is None
    assert case.info.doubt == WITHOUT_DISK, "which reports print; only the terminal had it"


def test_recoveries_of_what_failed_are_kept_before_the_case_is_done(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed in between had a finding behind a cut recovery that nothing could reproduce: a
    case that is DONE is not looked at again.
    """
    there: list[list[bool]] = []
    set_status = RunStore.set_case_status

    def noted(store: RunStore, case: Any, status: CaseStatus, *reason: str) -> None:
        if status is CaseStatus.DONE:
            kept = store.layout.case(case)
            nested = [f.state.recovered for f in store.findings_of(case) if f.state.again]
            there.append([kept.recovery(state).is_file() for state in nested])
        set_status(store, case, status, *reason)

    monkeypatch.setattr(RunStore, "set_case_status", noted)
    bench.run(Kernel(program=ADDS), "exhaustive", again=1)
    assert there
    assert all(all(found) and found for found in there)


PLANS: dict[str, tuple[Kernel, dict[str, Any]]] = {
    "plain": (Kernel(Kind.NOT_MOUNTED), {}),
    "again": (Kernel(program=ADDS), {"again": 1}),
    "disk": (Kernel(Kind.NOT_MOUNTED, journal=True), {"disk": ("errors",)}),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_resumed_run_knows_no_less_than_the_run_did_before(bench: Bench, name: str) -> None:
    """513 states and 29 findings, exit 1; after a resume of three seconds "nothing was checked", exit 4."""
    kernel, plan = PLANS[name]
    whole_run = replace(kernel, visits=[], uses=[])
    with bench_in(bench.folder / "whole") as other:
        other.run(whole_run, "exhaustive", **plan)
    bench.run(replace(kernel, visits=[], uses=[]), "exhaustive", stop_at=len(whole_run.visits), **plan)
    before, known = bench.store.findings_of(bench.case), bench.store.judged_states(bench.case)
    assert before
    bench.run(replace(kernel, visits=[], uses=[]), "exhaustive", stop_at=1, **plan)
    (case,) = summarise(bench.store).cases
    assert (case.status, case.verdict) == (CaseStatus.RECORDED, CaseVerdict.FAIL)
    assert {f.id for f in before} <= {f.id for f in case.findings}
    assert known <= bench.store.judged_states(bench.case)


@pytest.mark.parametrize("name", PLANS)
def test_a_case_that_began_anew_ends_as_if_it_had_not_been_interrupted(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    """Nothing that an earlier part alone had visited counts in the end."""
    kernel, plan = PLANS[name]
    ends = []
    for was_interrupted in (False, True):
        with bench_in(tmp_path_factory.mktemp("run")) as bench:
            if was_interrupted:
                bench.run(replace(kernel, visits=[], uses=[]), "exhaustive", stop_at=3, **plan)
                left = [
                    JudgedState(CrashState.parse(s), "other", broken("lost")) for s in ("@t97@t1", "@t98")
                ]
                bench.store.put_judgements(bench.case, left)
            bench.run(replace(kernel, visits=[], uses=[]), "exhaustive", **plan)
            rows, (case,) = bench.store.rows_of(bench.case), summarise(bench.store).cases
            found = [(f.id, f.state, f.states) for f in case.findings]
            ends.append((rows.judged, rows.record.info, found, case.verdict, case.undecided))
    assert ends[0] == ends[1]


def test_what_a_mismatched_memo_had_answered_is_not_kept(bench: Bench) -> None:
    """Nobody had seen it."""
    bench.run(Kernel(), "exhaustive", stop_at=2)
    recalled = JudgedState(CrashState.parse("@t98"), "other", broken("lost"), How.MEMO)
    bench.store.put_judgements(bench.case, [recalled])
    bench.store.set_case_mismatch(bench.case, "two outcomes")
    bench.run(Kernel(), "exhaustive", stop_at=1)
    assert not bench.store.findings_of(bench.case)
