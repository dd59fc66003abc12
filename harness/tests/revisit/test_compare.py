"""Two runs held against each other: what both judged, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.model import CaseId, CrashState, Judgement, Violation
from harness.revisit.compare import Comparison, compare
from harness.store import RunStore
from harness.store.records import CaseInfo, JudgedState
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


def differing(comparison: Comparison) -> list[str]:
    return [str(d) for d in comparison.differences]


def test_only_what_both_runs_judged_is_compared(stores: tuple[RunStore, RunStore]) -> None:
    one, two = stores
    put(one, {0: OK, 1: OK, 2: bad("x")})
    put(two, {1: OK, 2: bad("x"), 3: bad("y")})
    put(one, {7: OK}, OTHER)
    assert compare(one, two) == Comparison(2, ())
    assert compare(two, one) == Comparison(2, ())


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


def test_crash_points_of_two_recordings_are_not_the_same(stores: tuple[RunStore, RunStore]) -> None:
    one, two = stores
    put(one, {0: OK})
    put(two, {0: OK}, log_hash="other")
    with pytest.raises(UsageError, match="recorded anew"):
        compare(one, two)
