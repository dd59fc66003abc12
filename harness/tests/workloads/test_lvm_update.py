"""The check of the workload `lvm-update`, on files as power cuts leave them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.tests.workloads.checks import said_by_check


@pytest.mark.parametrize(
    ("lines", "told", "kept"),
    [
        ("1\n2\n3\n", "1\n2\n", True),
        ("", "", True),
        ("1\n2", "1\n", True),
        ("1\n", "1\n2\n", False),
        ("\0\0\0\0", "1\n2\n", False),
        ("1\n3\n", "1\n2\n", False),
    ],
)
def test_each_line_that_was_acknowledged_is_there(lines: str, told: str, kept: bool, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text(lines)
    assert (said_by_check("lvm-update", tmp_path, told) == "") is kept
