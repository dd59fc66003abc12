"""How findings of a patch stand to its base, and which commit is the first."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from harness.kernels.commits import Revision
from harness.patches.questions import Stage
from harness.patches.results import (
    Answer,
    Below,
    Broken,
    Culprit,
    KernelTrial,
    PatchPlan,
    Standing,
    apart,
    by_plain_names,
    culprit_of,
    fresh,
    grouped,
    next_commit,
    shows,
    standing_of,
)

CASE = "ext4-ordered/append-fsync"


def seen(
    symptom: str = "NAME: missing",
    case: str = CASE,
    of: int = 10,
    known: str = "",
    promised: tuple[int, ...] = (),
) -> Broken:
    return Broken(
        "id", case, "durability", 1, of, "f is gone", f"{case}@4", known, symptom, promised=promised
    )


def bits(*numbers: Iterable[int]) -> Below:
    return [sum(1 << n for n in of) for of in numbers]


def commit(n: int) -> Revision:
    return Revision(f"{n:040x}", f"commit {n}")


def test_a_symptom_that_the_base_decided_without_is_new() -> None:
    assert standing_of(seen(), KernelTrial(item="base", cases=(CASE,))) == (Standing.NEW, "")


def test_another_symptom_of_the_same_oracle_in_the_base_excuses_nothing() -> None:
    base = KernelTrial(item="base", cases=(CASE,), detections=(seen("NAME: of another size"),))
    assert standing_of(seen(), base)[0] is Standing.NEW


def test_what_the_base_shows_as_well_is_not_the_patchs() -> None:
    base = KernelTrial(item="base", cases=(CASE,), detections=(seen(),))
    assert standing_of(seen(), base) == (Standing.IN_BASE, "")


def test_what_the_base_shows_in_one_case_excuses_no_other_case() -> None:
    """A symptom that the base showed anywhere was "also in the base, so the patch is not the cause"."""
    lost, other = "ext4-ordered/rename-new", "ext4-ordered/overwrite"
    base = KernelTrial(
        item="base", cases=(CASE, lost), detections=(seen(),), undecided={other: "guests were lost"}
    )
    assert apart([seen(), seen(case=lost), seen(case=other)], base) == {
        Standing.IN_BASE: ("", (seen(),)),
        Standing.NEW: ("", (seen(case=lost),)),
        Standing.UNDECIDED: ("guests were lost", (seen(case=other),)),
    }


def test_a_known_failure_of_the_base_excuses_no_unexpected_one() -> None:
    """F2FS without barriers loses what it has not flushed. With a patch it lost what no cut took away, which
    was "also in base".
    """
    base = KernelTrial(item="base", cases=(CASE,), detections=(seen(known="no flush is sent"),))
    assert standing_of(seen(), base)[0] is Standing.UNDECIDED, "which of them shows may be a matter of time"
    again = msgspec.structs.replace(base, item="again")
    assert standing_of(seen(), base, again)[0] is Standing.NEW
    again = KernelTrial(item="again", cases=(CASE,), detections=(seen(),))
    assert standing_of(seen(), base, again)[0] is Standing.IN_BASE
    assert standing_of(seen(known="no flush is sent"), base)[0] is Standing.IN_BASE


def test_a_mistake_shows_what_the_patch_does_by_whichever_operation() -> None:
    """A mistake that changes nothing was noticed: the patch lost operation 5 and the mistake operation 6."""
    head = KernelTrial(
        item="head", cases=(CASE,), detections=(seen(promised=(5,)), seen("x", known="a race"))
    )
    assert not list(fresh([seen(promised=(6,)), seen("x"), seen("y", known="a race")], [head]))
    other = seen(case="ext4-ordered/overwrite")
    assert list(fresh([other, seen("z")], [head])) == [other, seen("z")]


def test_what_the_base_breaks_by_another_operation_is_new_once_other_schedules_were_asked() -> None:
    """`rename-fsync` lost what operation 6 had synced, and the base what operation 10 had: rc 0."""
    base = KernelTrial(item="base", cases=(CASE,), detections=(seen(promised=(10,)),))
    both, kept = seen(promised=(6, 10)), KernelTrial(item="again", cases=(CASE,))
    assert standing_of(both, base)[0] is Standing.UNDECIDED, "it may be a matter of time"
    (told,) = apart([both], base, kept)[Standing.NEW][1]
    assert (told.promised, told.in_base) == ((6,), (10,))
    assert shows(KernelTrial(item="c", cases=(CASE,), detections=(seen(promised=(10,)),)), told) is False
    assert shows(KernelTrial(item="c", cases=(CASE,), detections=(seen(promised=(6, 8)),)), told) is True
    assert standing_of(seen(promised=(10,)), base) == (Standing.IN_BASE, "")
    again = by_plain_names(
        KernelTrial(item="again", cases=(f"{CASE}.s1",), detections=(seen(case=f"{CASE}.s1", promised=(6,)),))
    )
    assert standing_of(both, base, again) == (Standing.IN_BASE, "")


def test_a_finding_without_an_operation_is_told_by_its_symptom() -> None:
    """What an oracle says else has numbers of blocks and inodes, which differ between recordings."""
    base = KernelTrial(item="base", cases=(CASE,), detections=(seen("NAME: poison"),))
    assert standing_of(seen("NAME: poison"), base) == (Standing.IN_BASE, "")


def test_an_expected_finding_is_new_only_if_no_schedule_of_the_base_shows_it() -> None:
    expected, base = seen(known="a race"), KernelTrial(item="base", cases=(CASE,))
    assert standing_of(expected, base)[0] is Standing.UNDECIDED
    assert standing_of(expected, base, KernelTrial(item="again", failed="no guest"))[1] == "no guest"
    lost = KernelTrial(item="again", undecided={f"{CASE}.s1": "guests were lost"})
    assert standing_of(expected, base, by_plain_names(lost))[0] is Standing.UNDECIDED
    kept = KernelTrial(item="again", cases=(f"{CASE}.s2",))
    assert standing_of(expected, base, by_plain_names(kept))[0] is Standing.NEW


def test_a_base_that_did_not_decide_the_case_says_nothing() -> None:
    """It was taken for one that keeps the promise."""
    for base, why in (
        (None, "the base was not asked"),
        (KernelTrial(item="base", failed="it does not build"), "it does not build"),
        (KernelTrial(item="base", undecided={CASE: "guests were lost"}), "guests were lost"),
        (KernelTrial(item="base"), "the base did not run it"),
    ):
        assert standing_of(seen(), base) == (Standing.UNDECIDED, why)


def test_a_commit_that_could_not_be_tried_is_neither_good_nor_bad() -> None:
    assert shows(None, seen()) is None
    assert shows(KernelTrial(item="c", failed="it does not build", cases=(CASE,)), seen()) is None
    assert shows(KernelTrial(item="c", undecided={CASE: "lost"}), seen()) is None
    assert shows(KernelTrial(item="c", cases=(CASE,)), seen()) is False
    assert shows(KernelTrial(item="c", cases=(CASE,), detections=(seen(),)), seen()) is True


def test_a_stage_that_was_stopped_or_failed_is_not_done() -> None:
    """All that was asked was said to be done."""
    stages = tuple(
        Stage(name, ("ext4/ordered",), ("quick",)) for name in ("done", "stopped", "failed", "none")
    )
    plan = PatchPlan(
        tree="", base=("b", "base"), commits=(("c", "head"),), changed=(), stages=stages, machine="uml"
    )
    head = {
        "done": KernelTrial(item="head-done", cases=(CASE,)),
        "stopped": KernelTrial(item="head-stopped", cases=(CASE,), interrupted=True),
        "failed": KernelTrial(item="head-failed", failed="no guest comes up"),
    }
    answer = Answer(plan, Path(), head, (), {})
    assert [s.name for s in answer.left] == ["stopped", "failed", "none"]


@given(st.data(), st.integers(1, 40))
def test_the_first_bad_commit_is_found_or_is_among_those_that_are_named(
    data: st.DataObject, count: int
) -> None:
    """Whichever it is, and whichever of the others cannot be tried."""
    bad = data.draw(st.integers(0, count - 1))
    skipped = data.draw(st.sets(st.integers(0, max(0, count - 2)))) if count > 1 else set()
    known: dict[int, bool | None] = {}
    below = bits(*map(range, range(count)))
    while (n := next_commit(below, known)) is not None:
        assert n not in known
        assert n != count - 1, "the last one is known"
        known[n] = None if n in skipped else n >= bad
    found = culprit_of([commit(n) for n in range(count)], below, known)
    named = [int(c.id, 16) for c in (*found.among, found.first)]
    assert bad in named
    assert set(named[:-1]) <= skipped, "only what could not be tried is left open"
    if not skipped:
        assert named == [bad]
        assert len(known) <= math.ceil(math.log2(count)) + 1


@given(st.data(), st.lists(st.integers(1, 6), min_size=2, max_size=4), st.booleans())
def test_of_branches_that_one_merge_brings_the_first_bad_commit_is_found(
    data: st.DataObject, lengths: list[int], shared: bool
) -> None:
    """A good commit of one branch counted for the others, too, and the merge was named. A branch that has
    merged a commit of a later one stands before it: the order of the list is not that of history.
    """
    topological: list[set[int]] = []
    for length in lengths:
        first, common = len(topological), {0} if shared and topological else set[int]()
        topological += [{*common, *range(first, first + n)} for n in range(length)]
    topological.append({*range(len(topological))})
    order = [*data.draw(st.permutations(range(len(topological) - 1))), len(topological) - 1]
    below = bits(*({order.index(m) for m in topological[n]} for n in order))
    bad = data.draw(st.integers(0, len(below) - 1))
    known: dict[int, bool | None] = {}
    while (n := next_commit(below, known)) is not None:
        assert n not in known
        known[n] = n == bad or bool(below[n] >> bad & 1)
    found = culprit_of([commit(n) for n in range(len(below))], below, known)
    assert (int(found.first.id, 16), found.among) == (bad, ())


def test_the_first_of_bad_commits_has_none_in_its_history() -> None:
    """The branch with x has merged y1, the first of the next: that merge was named beside y1."""
    x, merged, y1, _ = range(4)
    below = bits((), (x, y1), (), (y1,), (x, merged, y1, 3))
    known = {merged: True, x: False, y1: True}
    assert next_commit(below, known) is None
    assert culprit_of([commit(n) for n in range(5)], below, known) == Culprit(commit(y1), ())


def test_findings_of_one_symptom_are_one_and_the_shortest_case_stands_first() -> None:
    longer, other = seen(case="ext4-ordered/long", of=900), seen("another")
    assert grouped([longer, seen(), other]) == {
        ("durability", "NAME: missing"): (seen(), longer),
        ("durability", "another"): (other,),
    }


def test_the_case_that_is_named_does_not_hang_on_a_few_states() -> None:
    """The document's session named append-fsync; a recording with three states more named overwrite."""
    for counts in ((40, 43), (43, 40)):
        cases = [seen(case=f"ext4-ordered/{n}", of=of) for n, of in zip(("a", "b"), counts, strict=True)]
        ((first, _),) = grouped(reversed(cases)).values()
        assert first.case == "ext4-ordered/a"
