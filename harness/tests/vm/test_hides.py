"""By what a real file system hides a loss: modes with each mechanism that is known, and without it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.model import CaseId
from harness.plan import Budget, Plan
from harness.report.explanation import read_explanation
from harness.ruled.hides import CONTENTS_BEFORE_REPLACE, CONTENTS_BEHIND_TRUNCATION, NAMES, mechanisms
from harness.store import RunStore
from harness.summary import CaseVerdict
from harness.tests.vm.conftest import run_plan

_LAST = 'read -r last </dev/null; while read -r line; do last=$line; done <"$1"\n'


@dataclass(frozen=True)
class Pattern:
    """A program that relies on something, as its `run` and its `check`."""

    run: str
    check: str


REPLACE = Pattern(
    "echo old >c && sync c && sync . && powercut-ack 0\necho new >t && mv t c && sync . && powercut-ack 1",
    '[ -z "$last" ] || [ -s c ] || { echo "c is empty"; exit 1; }',
)
REWRITE = Pattern(
    "echo old >c && sync c && sync . && powercut-ack 0\n"
    "echo new >c && echo 1 >o && sync o && sync . && powercut-ack 1",
    '[ "$last" != 1 ] || [ "$(cat c)" = new ] || { echo "c is not new"; exit 1; }',
)
NAMED = Pattern(
    "echo new >t && mv t n && sync . && powercut-ack 1",
    '[ -e n ] || exit 0; [ "$(cat n)" = new ] || { echo "n is not new"; exit 1; }',
)
BESIDE = Pattern(
    "mkdir d && echo old >a && echo 0 >d/o && sync && powercut-ack 0\n"
    "mv a b && echo 1 >d/o && sync d/o && powercut-ack 1",
    '[ "$last" != 1 ] || [ -e b ] || { echo "b is gone"; exit 1; }',
)
UNSYNCED = Pattern(
    "echo old >a && sync a && sync . && powercut-ack 0\nmv a b && powercut-ack 1",
    '[ "$last" != 1 ] || [ -e b ] || { echo "b is gone"; exit 1; }',
)


def pattern_of(orders: tuple[str, ...], mode: str) -> Pattern:
    if NAMES in orders:
        return BESIDE if mode.startswith("btrfs") else UNSYNCED
    if CONTENTS_BEHIND_TRUNCATION in orders:
        return REWRITE
    return REPLACE if orders == (CONTENTS_BEFORE_REPLACE,) else NAMED


PAIRS = [(m.name, m.orders, mode, other) for m in mechanisms() for mode, other in m.without.items()]


@pytest.mark.parametrize(("name", "orders", "mode", "other"), PAIRS, ids=[f"{p[2]}-{p[3]}" for p in PAIRS])
def test_a_mode_keeps_what_the_mode_without_its_mechanism_loses(
    name: str, orders: tuple[str, ...], mode: str, other: str, tmp_path: Path, uml_kernel: Path
) -> None:
    """That one mode kept what another one lost was told, and nothing of why."""
    pattern, place = pattern_of(orders, mode), tmp_path / "relies"
    place.mkdir()
    (place / "workload.toml").write_text('summary = "relies"\n')
    (place / "run").write_text(f"#!/bin/sh\n{pattern.run}\n")
    (place / "check").write_text(f"#!/bin/sh\n{_LAST}{pattern.check}\n")
    plan = Plan(
        configurations=["any/posix", mode, other],
        workloads=[str(place)],
        machine="uml",
        kernel=str(uml_kernel),
        fault_models=("exhaustive",),
        budget=Budget.parse("100,15s"),
    )
    summary, path = run_plan(plan, tmp_path)
    verdicts = {c.case.configuration: c.verdict for c in summary.cases}
    assert verdicts == {"any/posix": CaseVerdict.FAIL, mode: CaseVerdict.PASS, other: CaseVerdict.FAIL}
    with RunStore.open(path) as store:
        findings = store.findings_of(CaseId("any", "posix", "relies"))
        told = [read_explanation(store.layout, f.id) for f in findings]
    assert any(
        t and f"by {name}: " in t.lines["seen"] and f"fail under {other}" in t.lines["seen"] for t in told
    )
