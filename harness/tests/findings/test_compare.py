"""Two runs held against each other: everything that either of them has."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.findings.compare import Comparison, compare
from harness.model import CaseId, CrashState, Judgement, Violation
from harness.plan import Plan
from harness.store import RunStore
from harness.store.records import CaseInfo, CaseStatus, JudgedState
from harness.tests.store.samples import CASE, INFO, OTHER

OK, LOST = Judgement(), Judgement(unknown=("guest lost",))


def bad(signature: str) -> Judgement:
    return Judgement((Violation("durability", "f", "gone", "data", "nothing", signature),))


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[RunStore, RunStore]]:
    with ExitStack() as opened:
        one, two = (opened.enter_context(RunStore.create(tmp_path, name, INFO)) for name in ("one", "two"))
        yield one, two


def put(
    store: RunStore, judgements: Mapping[int, Judgement], case: CaseId = CASE, log_hash: str = "log"
) -> None:
    store.add_case(CaseInfo(case, log_hash=log_hash))
    store.put_judgements(case, [JudgedState(CrashState(n), f"{n}", j) for n, j in judgements.items()])
    store.set_case_status(case, CaseStatus.DONE)


def differing(comparison: Comparison) -> list[str]:
    return [str(d) for d in comparison.differences]


def test_what_only_one_run_has_is_a_difference(stores: tuple[RunStore, RunStore]) -> None:
    """394 states against 1 were "0 differences"."""
    one, two = stores
    put(one, {0: OK, 1: OK, 2: bad("x")})
    put(two, {1: OK, 2: bad("x"), 3: bad("y")})
    put(one, {7: OK}, OTHER)
    found = compare(one, two)
    assert (found.states, found.one_sided) == (2, 2)
    assert differing(found) == [
        f"{CASE}@0: PASS in the first, not judged in the second",
        f"{CASE}@3: not judged in the first, FAIL durability (y) in the second",
    ]
    assert [str(c) for c in found.cases] == [f"{OTHER}: done in the first, no such case in the second"]
    other_way = compare(two, one)
    assert len(other_way.differences) == 2
    assert [c.second for c in other_way.cases] == ["done"]


def test_a_case_that_one_run_did_not_run_is_a_difference(stores: tuple[RunStore, RunStore]) -> None:
    """It has no recording there, and so no state that could differ from one of the same name."""
    one, two = stores
    for store in stores:
        put(store, {0: OK})
    put(one, {5: OK}, OTHER)
    put(two, {}, OTHER, log_hash="")
    two.set_case_status(OTHER, CaseStatus.NOT_RUN, "no fio")
    found = compare(one, two)
    assert differing(found) == [f"{OTHER}@5: PASS in the first, not judged in the second"]
    assert [str(c) for c in found.cases] == [f"{OTHER}: done in the first, not-run in the second"]


def test_two_runs_alike_do_not_differ(stores: tuple[RunStore, RunStore]) -> None:
    one, two = stores
    for store in stores:
        put(store, {0: OK, 1: bad("x")})
    assert compare(one, two) == Comparison(2, (), compared=1)


def test_verdicts_and_promises_may_differ(stores: tuple[RunStore, RunStore]) -> None:
    one, two = stores
    put(one, {0: OK, 1: bad("x"), 2: bad("x"), 3: OK, 4: OK})
    put(two, {0: OK, 1: bad("y"), 2: OK, 3: LOST, 4: OK})
    put(one, {5: OK}, OTHER)
    put(two, {5: bad("z")}, OTHER)
    comparison = compare(one, two)
    assert comparison.states == 6
    assert differing(comparison) == [
        f"{CASE}@1: FAIL durability (x) in the first, FAIL durability (y) in the second",
        f"{CASE}@2: FAIL durability (x) in the first, PASS in the second",
        f"{CASE}@3: PASS in the first, UNKNOWN in the second",
        f"{OTHER}@5: PASS in the first, FAIL durability (z) in the second",
    ]


def test_runs_without_a_common_case_agree_on_nothing(stores: tuple[RunStore, RunStore]) -> None:
    one, two = stores
    put(one, {0: OK})
    put(two, {0: OK}, OTHER)
    with pytest.raises(UsageError, match="share no case"):
        compare(one, two)


def test_a_run_that_ended_before_its_first_case_is_to_go_on(stores: tuple[RunStore, RunStore]) -> None:
    """It was told to make its recordings anew."""
    one, two = stores
    put(one, {0: OK})
    with pytest.raises(UsageError, match="has no case yet") as refused:
        compare(one, two)
    assert str(two.path) in refused.value.next_step


@pytest.mark.parametrize("has_plan", [False, True])
def test_a_run_to_go_on_with_is_quoted_and_has_its_files(has_plan: bool, tmp_path: Path) -> None:
    """`powercut run --resume /my runs/x` was of another directory, and without the kernel's file."""
    names = ("one", "two")
    with ExitStack() as opened:
        one, two = (opened.enter_context(RunStore.create(tmp_path / "my runs", n, INFO)) for n in names)
        put(one, {0: OK})
        if has_plan:
            two.put_plan(Plan(configurations=[], workloads=[], kernel="/my/bzImage"))
        with pytest.raises(UsageError) as refused:
            compare(one, two)
        kernel = ["--kernel", "/my/bzImage"] if has_plan else []
        assert shlex.split(refused.value.next_step) == ["powercut", "run", "--resume", str(two.path), *kernel]


def test_crash_points_of_two_recordings_are_not_the_same(stores: tuple[RunStore, RunStore]) -> None:
    one, two = stores
    put(one, {0: OK})
    put(two, {0: OK}, log_hash="other")
    with pytest.raises(UsageError, match="different recordings"):
        compare(one, two)


def test_two_unknown_do_not_agree(stores: tuple[RunStore, RunStore]) -> None:
    """They are one word, and "0 differences" of what neither run had decided."""
    for store in stores:
        put(store, {0: OK, 1: LOST})
        put(store, {2: OK}, OTHER)
        store.set_case_status(OTHER, CaseStatus.UNKNOWN, "why")
    found = compare(*stores)
    assert not found.differences
    assert found.undecided == (f"{CASE}@1: UNKNOWN in both", f"{OTHER}: undecided in both")
