"""Findings: computed from the violations, in whatever order they came."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.model import CaseId, CrashState, Judgement, Violation
from harness.oracles.surface import WHILE_RECORDED
from harness.report.words import where
from harness.store import RunStore
from harness.store.records import CaseInfo, Evidence, JudgedState, KernelInfo, Step, state_order
from harness.tests.store.samples import CASE, INFO, OTHER, broken, put, put_case


@st.composite
def states(draw: st.DrawFn) -> CrashState:
    prefix = draw(st.integers(1, 12))
    dropped = draw(st.sets(st.integers(0, prefix - 1), max_size=3))
    return CrashState(prefix, tuple(sorted(dropped)), draw(st.sampled_from([None, None, 1, 3])))


judgements = st.lists(
    st.tuples(st.sampled_from(["durability", "fsck"]), st.sampled_from("pq"), st.sampled_from("abc")),
    max_size=3,
    unique=True,
).map(lambda vs: Judgement(tuple(Violation(o, subject, "gone", "x", "y", s) for o, s, subject in vs)))


@settings(max_examples=25, deadline=None)
@given(by_state=st.dictionaries(states(), judgements, max_size=12), seed=st.integers(0, 999))
def test_findings_do_not_depend_on_the_order_or_the_batches(
    tmp_path_factory: pytest.TempPathFactory, by_state: dict[CrashState, Judgement], seed: int
) -> None:
    order = [JudgedState(s, "h", j) for s, j in by_state.items()]
    shuffled = random.Random(seed).sample(order, len(order))  # noqa: S311  # no secret
    root = tmp_path_factory.mktemp("runs")
    with RunStore.create(root, "one", INFO) as one, RunStore.create(root, "two", INFO) as two:
        for store in (one, two):
            store.add_case(CaseInfo(CASE))
        one.put_judgements(CASE, order)
        for judged in shuffled:
            two.put_judgements(CASE, [judged])
        assert one.findings() == two.findings()
        expected = {(v.oracle, v.signature) for j in by_state.values() for v in j.violations}
        assert {(f.oracle, f.signature) for f in one.findings()} == expected
        for finding in one.findings():
            showing = [
                s
                for s, j in by_state.items()
                if (finding.oracle, finding.signature) in {(v.oracle, v.signature) for v in j.violations}
            ]
            assert finding.states == len(showing)
            assert finding.state == min(showing, key=state_order)


def test_the_smallest_state_drops_least_and_then_comes_first(store: RunStore) -> None:
    for state in (
        CrashState(3, (1, 2)),
        CrashState(9),
        CrashState(7),
        CrashState(5, (), 1),
        CrashState(4, (0,)),
    ):
        put(store, JudgedState(state, "h", broken()))
    (finding,) = store.findings()
    assert (finding.state, finding.states) == (CrashState(7), 5)


def test_a_finding_names_the_mount_that_failed_at_its_state(store: RunStore) -> None:
    """fsck's finding looked like one of a mounted file system: the mount's own is shown elsewhere."""
    mount = Violation("mountable", "mount", "mount fails with EIO", "", "EIO", "mount: EIO")
    fsck = Violation("fsck", "f", "fsck finds errors", "clean", "errors", "s")
    put(store, JudgedState(CrashState(3), "a", Judgement((mount,))))
    put(store, JudgedState(CrashState(7), "b", Judgement((mount, fsck))))
    first, second = store.findings()
    assert where(first) == "@3, the smallest of 2 states that show it"
    assert where(second) == "@7, the only state that was seen to show it; mount fails with EIO there, too"


def test_what_fsck_says_where_no_mount_succeeds_is_the_bug_by_which_the_mounts_fail(tmp_path: Path) -> None:
    """Eleven complaints of fsck about a journal that was not replayed were eleven new findings."""
    torn, other = mount_fails("ECANCELED"), mount_fails("EUCLEAN")
    follows, also = (Violation("fsck", what, what, "clean", "errors", what) for what in ("follows", "also"))
    case = CaseId("ext4", "fast_commit", "any")
    with RunStore.create(
        tmp_path, "run", replace(INFO, kernel=KernelInfo("bzImage", release="6.12.117"))
    ) as store:
        put_case(store, CaseInfo(case), *(Judgement(v) for v in ((torn, follows), (torn, follows, also))))
        assert known_in(store) == {"mount": TORN, "follows": TORN, "also": TORN}
        store.put_judgements(case, [JudgedState(CrashState(8), "8", Judgement((also,)))])
        assert known_in(store) == {"mount": TORN, "follows": TORN, "also": ""}, "a state that mounts shows it"
        store.put_judgements(case, [JudgedState(CrashState(9), "9", Judgement((other, follows)))])
        assert known_in(store)["follows"] == "", "a state shows it whose mount fails by another bug"


def test_what_the_kernel_said_while_the_workload_ran_follows_from_no_mount(tmp_path: Path) -> None:
    """It is kept with the state after the workload's end, which a known bug may keep from mounting."""
    said = Violation("kernel-log", "workload", "a warning", "", "", f"{WHILE_RECORDED}WARNING")
    case = CaseId("ext4", "fast_commit", "any")
    with RunStore.create(tmp_path, "run", replace(INFO, kernel=KernelInfo("x", release="6.12.117"))) as store:
        put_case(store, CaseInfo(case), Judgement((mount_fails("ECANCELED"), said)))
        assert known_in(store) == {"mount": TORN, "workload": ""}


TORN = "ext4-fast-commit-torn"


def mount_fails(name: str) -> Violation:
    return Violation("mountable", "mount", f"mount fails with {name}", "", name, f"mount: {name}")


def known_in(store: RunStore) -> dict[str, str]:
    """The known bug of each finding, by what it is about."""
    found = sorted(store.findings(), key=lambda f: f.state.prefix, reverse=True)
    return {f.violations[0].subject: f.known.bug.name if f.known else "" for f in found}


def test_a_file_is_a_name_in_a_case_that_goes_on_after_a_crash_as_well(tmp_path: Path) -> None:
    """`h: missing` was a symptom of its own there, which no known bug and no expectation has."""
    texts = ["create d/f (before the crash)", "fsync d/f (before the crash, lost)", "crash 1: @t38"]
    before = [Step(n, text, -1, -1) for n, text in enumerate(texts)]
    steps = (*before, Step(3, "create h", 0, 1), Step(4, "fsync h", 4, 7))
    assert [step.operation for step in steps] == ["create d/f", "fsync d/f", "crash 1", "create h", "fsync h"]
    case = CaseId("f2fs", "posix", "any")
    said = "h: missing, although `fsync h` (operation 4) was acknowledged"
    with RunStore.create(tmp_path, "run", replace(INFO, kernel=KernelInfo("x", release="6.12.117"))) as store:
        lost = Judgement((Violation("durability", "h", said, "", "", "h: missing"),))
        put_case(store, CaseInfo(case, steps=steps), lost, at=8)
        (found,) = store.findings()
    assert found.what == "NAME: missing"
    assert found.known is not None and found.known.bug.name == "f2fs-fsync-first-node"


def test_findings_of_two_cases_stay_apart(store: RunStore) -> None:
    store.add_case(CaseInfo(OTHER))
    put(store, JudgedState(CrashState(3), "h", broken()))
    store.put_judgements(OTHER, [JudgedState(CrashState(3), "h", broken())])
    assert [f.case for f in store.findings()] == [CASE, OTHER]
    assert len({f.id for f in store.findings()}) == 2
    assert all(re.fullmatch("[0-9a-f]{12}", f.id) for f in store.findings())


def test_evidence_is_replaced_and_names_its_state(store: RunStore) -> None:
    put(store, JudgedState(CrashState(3), "h", broken()))
    (finding,) = store.findings()
    assert store.evidence(finding) is None
    store.put_evidence(finding, Evidence(CrashState(9), "old"))
    store.put_evidence(finding, Evidence(CrashState(3), "log \udcff", "fsck", {"tree": "a"}))
    assert store.evidence(finding) == Evidence(CrashState(3), r"log \udcff", "fsck", {"tree": "a"})
