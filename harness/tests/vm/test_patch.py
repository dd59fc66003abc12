"""A patch with real guests: the base is the unmodified kernel, its last commits have a planted fault. The
commits are edits of the kept tree, since a git tree of Linux would take minutes to build; those of git are
tested over a toy kernel (`harness/tests/kernels/test_commits.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.cli.patch import exit_code, explained
from harness.errors import ExitCode
from harness.faults.catalogue import faults
from harness.guests.machine import flavour_of
from harness.kernels.commits import CommitRange, Revision
from harness.kernels.variants import KeptTree, kept_tree
from harness.patches.questions import Stage
from harness.patches.results import Below, PatchPlan, Standing
from harness.patches.work import PatchSeries, create, load_plan
from harness.series.work import carry_out
from harness.tests.said import Said

BASE, GOOD, BAD, LAST = (n * 40 for n in "0123")


class Commits:
    """The kernels of four commits; the last two have the fault."""

    def __init__(self, tree: KeptTree) -> None:
        self._tree, self._fault = tree, faults()["commit-no-fua"]

    def key(self, commit: str) -> str:
        return self._tree.key(self._fault.edits if commit in (BAD, LAST) else ()) + commit

    def below(self, series: CommitRange) -> Below:
        return [(1 << n) - 1 for n in range(len(series.commits))]

    def text(self, commit: str, file: str) -> str:
        pytest.fail(f"the plan holds no mistake, and {file} was asked for")

    def with_text(self, commit: Revision, file: str, text: str, subject: str) -> Revision:
        pytest.fail(f"the plan holds no mistake, and {file} was asked for")

    def noting_kernel(self, commit: Revision, texts: Mapping[str, str], marks: int) -> Path:
        pytest.fail("the plan asks of no line")

    def kernel(self, commit: Revision) -> Path:
        return self._tree.variant(self._fault.edits) if commit.id in (BAD, LAST) else self._tree.image


def test_the_commit_that_loses_a_flush_is_named_and_explained(uml_kernel: Path, tmp_path: Path) -> None:
    flavour = flavour_of("uml")
    plan = PatchPlan(
        tree="linux",
        base=(BASE, "base"),
        commits=((GOOD, "harmless"), (BAD, "the fault"), (LAST, "more")),
        changed=("fs/jbd2/commit.c",),
        stages=(Stage("quick", ("ext4/ordered",), ("append-fsync",)),),
        machine="uml",
        jobs=2,
    )
    path = create(plan, tmp_path)
    with kept_tree("linux-source-6.12", "uml", flavour, 2, print) as tree:
        series = PatchSeries(load_plan(path), path, Commits(tree), explained)
        carry_out(series, Said())
    (told, *_) = series.answer.new
    assert (told.standing, told.found[0]) == (Standing.NEW, "durability")
    assert told.culprit is not None
    assert (told.culprit.first.subject, told.culprit.among) == ("the fault", ())
    assert exit_code(series.answer) is ExitCode.INCONSISTENT
    text = series.page().text()
    assert "first broken by 222222222222 (the fault)" in text
    assert "flush" in "\n".join(series.answer.explained[told.found]), "the cause is the flush that is missing"
