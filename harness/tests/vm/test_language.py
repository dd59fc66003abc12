"""Operations that only lists of operations have, in real guests: no false alarm, whatever the file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.plan import Plan
from harness.summary import CaseVerdict
from harness.tests.vm.conftest import run_plan

NAMES = ("exchange", "special-files")
CONTENTS = ("async-writeback", "mapped-unmount", "msync-range", "sync-writes")
INODES = ("owners", "clone")
HANDLES = ("held-open", "nameless", "remount")


# All of a mode in one run: it makes its guests once.
EVERYWHERE = (*NAMES, *CONTENTS, *HANDLES)


@pytest.mark.parametrize(
    ("configuration", "workloads"),
    [
        ("ext4/ordered", EVERYWHERE),
        ("xfs/default", (*EVERYWHERE, *INODES)),
        ("btrfs/default", (*EVERYWHERE, *INODES)),
    ],
)
def test_what_the_operations_leave_is_legal(
    configuration: str, workloads: tuple[str, ...], tmp_path: Path
) -> None:
    plan = Plan(configurations=[configuration], workloads=list(workloads), jobs=2)
    summary, _ = run_plan(plan, tmp_path)
    assert [(c.case.workload, c.verdict, c.findings) for c in summary.cases] == [
        (name, CaseVerdict.PASS, ()) for name in workloads
    ]


def test_on_f2fs_only_what_is_known_is_found(tmp_path: Path) -> None:
    plan = Plan(configurations=["f2fs/posix"], workloads=list(EVERYWHERE), jobs=2)
    summary, _ = run_plan(plan, tmp_path)
    assert [c.case.workload for c in summary.cases] == list(EVERYWHERE)
    assert all(c.verdict in (CaseVerdict.PASS, CaseVerdict.FAIL) for c in summary.cases)
    # Its first fsync after a mount or checkpoint does not wait: what that acknowledged may be lost.
    assert {f.oracle for c in summary.cases for f in c.findings} <= {"durability"}


def test_what_gfs2_drops_at_an_unmount_is_a_known_bug(tmp_path: Path) -> None:
    """Stores into blocks are lost; those into a hole show old contents of the disk, too. What else shows is
    of `gfs2-log-header`: how much of it depends on the schedule.
    """
    plan = Plan(configurations=["gfs2/default"], workloads=["mapped-unmount"], jobs=2)
    (case,) = run_plan(plan, tmp_path)[0].cases
    named = {(f.oracle, f.known.bug.name if f.known else "") for f in case.findings}
    of_data = {(oracle, name) for oracle, name in named if oracle in {"durability", "stale"}}
    assert of_data == {(oracle, "gfs2-unmount-drops-stores") for oracle in ("durability", "stale")}


def test_a_file_system_that_cannot_exchange_names_does_not_run_it(tmp_path: Path) -> None:
    plan = Plan(configurations=["jfs/default"], workloads=["exchange"], jobs=1)
    (case,) = run_plan(plan, tmp_path)[0].cases
    assert case.verdict is CaseVerdict.NOT_RUN
    assert "does not support `exchange a b`" in case.reason
