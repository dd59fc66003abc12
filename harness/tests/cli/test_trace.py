"""`powercut trace`; with a real guest in `harness.tests.vm.test_trace`."""

from __future__ import annotations

from pathlib import Path

from harness.tests.cli.runner import powercut


def test_intervals_are_of_one_mode(tmp_path: Path) -> None:
    done = powercut("trace", "--out", tmp_path, "-c", "ext4/journal,ext4/ordered", "1")
    assert done.exit_code == 2
    assert not list(tmp_path.iterdir())
