"""Delta debugging, on what needs no guest."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.findings.ddmin import ddmin
from harness.model import Operation, OperationKind
from harness.oracles.replay import fitting, replay
from harness.tests.oracles.cases import ORDERED, history
from harness.workloads.generate import generate
from harness.workloads.generate.chance import name_of

Part = tuple[int, ...]


def contains(needed: set[int]) -> Callable[[Part], bool]:
    return lambda part: needed <= set(part)


@given(st.integers(1, 60), st.sets(st.integers(0, 59), min_size=1, max_size=6))
def test_what_is_needed_is_all_that_is_left(length: int, needed: set[int]) -> None:
    needed = {n % length for n in needed}
    assert ddmin(range(length), contains(needed)) == tuple(sorted(needed))


@given(st.integers(1, 40), st.lists(st.sets(st.integers(0, 39), min_size=1), min_size=1, max_size=5))
def test_nothing_more_can_be_taken_out(length: int, wanted: list[set[int]]) -> None:
    """Whatever is asked for, monotonous or not: any of some sets, and an odd number of items."""

    asked: list[Part] = []

    def holds(part: Part) -> bool:
        asked.append(part)
        return len(part) == length or (
            any({n % length for n in w} <= set(part) for w in wanted) and len(part) % 2 == 1
        )

    left = ddmin(range(length), holds)
    assert len(asked) == len(set(asked)), "each part once"
    assert holds(left)
    for item in left:
        without = tuple(i for i in left if i != item)
        assert not without or not holds(without)


@given(st.integers(2, 60), st.integers(0, 59))
def test_each_part_is_asked_for_once_and_always_in_the_same_order(length: int, needed: int) -> None:
    asked: list[list[Part]] = [[], []]
    for told in asked:

        def holds(part: Part, told: list[Part] = told) -> bool:
            told.append(part)
            return needed % length in part

        ddmin(range(length), holds)
    assert asked[0] == asked[1]
    assert len(asked[0]) == len(set(asked[0]))
    assert () not in asked[0]


def test_what_mending_leaves_nothing_of_is_not_asked_for() -> None:
    asked: list[Part] = []

    def holds(part: Part) -> bool:
        asked.append(part)
        return False

    ddmin(range(4), holds, lambda part: part if len(part) > 2 else ())
    assert asked
    assert () not in asked


@given(st.integers(0, 1 << 32), st.integers(3, 25))
def test_a_workload_is_made_short_among_those_that_are_possible(seed: int, length: int) -> None:
    operations = generate(name_of(seed, length)).operations
    target = operations[-1]

    def pruned(part: Part) -> Part:
        return tuple(part[i] for i in fitting(ORDERED, [operations[i] for i in part]))

    def holds(part: Part) -> bool:
        replay(ORDERED, history([operations[i] for i in part]))  # would raise
        return target in [operations[i] for i in part]

    left = ddmin(tuple(range(len(operations))), holds, pruned)
    assert holds(left)
    assert not any(w and holds(w) for w in (pruned((*left[:i], *left[i + 1 :])) for i in range(len(left))))


@given(
    st.lists(
        st.sampled_from(["create f", "unlink f", "append f 10", "mkdir d", "create d/f", "rename f d/f"])
    )
)
def test_what_does_not_fit_is_left_out(lines: list[str]) -> None:
    operations = [s.operation for s in history(lines).steps]
    kept = fitting(ORDERED, operations)
    replay(ORDERED, history([operations[i] for i in kept]))
    assert fitting(ORDERED, [operations[i] for i in kept]) == list(range(len(kept)))
    for place in set(range(len(operations))) - set(kept):
        before = [operations[i] for i in kept if i < place]
        try:
            replay(ORDERED, history([*before, operations[place]]))
        except UsageError:
            continue
        raise AssertionError(f"{operations[place]} fits")


def test_what_fits_stays() -> None:
    assert fitting(ORDERED, [Operation(OperationKind.CREATE, "f"), Operation(OperationKind.SYNC)]) == [0, 1]
