"""`powercut repro`; with real guests in `harness.tests.vm.test_repro`."""

from __future__ import annotations

from pathlib import Path

from harness.errors import ExitCode
from harness.tests.cli.runner import powercut


def test_no_run_there_says_where_it_looked(tmp_path: Path) -> None:
    done = powercut("repro", "ext4-ordered/append-fsync@1", "--from", tmp_path / "nothing")
    assert done.exit_code == ExitCode.UNDECIDED
    assert "nothing" in done.stderr
