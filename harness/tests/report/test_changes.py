"""What became of findings from one run to another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.plan import Plan
from harness.report.changes import FindingChange, Side, changes
from harness.store.records import Step
from harness.summary import CaseSummary, summarise
from harness.tests.report.demo import demo_run


def test_a_finding_of_other_operations_is_not_fixed(tmp_path: Path) -> None:
    """A file of operations that lost its fsync was told as one whose finding was fixed."""
    with demo_run(tmp_path) as store:
        first = Side(summarise(store), Plan(configurations=[], workloads=[]), "RUN", lambda _: frozenset())
    case = next(c for c in first.summary.cases if [f.oracle for f in c.findings] == ["durability"])
    passed = replace(case.counts, failed=0, passed=case.counts.passed + case.counts.failed)
    mine = tuple(Step(n, text, n, n) for n, text in enumerate(("create f", "crash 2: @t3-1", "fsync f")))

    def became(*texts: str) -> tuple[set[FindingChange], str]:
        def with_steps(c: CaseSummary, steps: tuple[Step, ...], **more: object) -> CaseSummary:
            info = replace(c.info, steps=steps, coverage=None)
            return replace(c, info=info, **more)  # type: ignore[arg-type]

        steps = tuple(Step(n, text, n, n) for n, text in enumerate(texts))
        sides = [
            replace(first, summary=replace(first.summary, cases=(c,)))
            for c in (
                with_steps(case, mine),
                with_steps(case, steps, findings=(), counts=passed),
            )
        ]
        found = changes(*sides)
        return {c.change for c in found.found}, "\n".join(found.undecided)

    assert became("create f", "crash 2: @t9", "fsync f")[0] == {FindingChange.FIXED}
    changed, told = became("create f", "crash 2: @t3-1")
    assert changed == {FindingChange.GONE}
    assert "the operations of the second run are not those of the first" in told
