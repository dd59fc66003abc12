"""`powercut repro`; with real guests in `harness.tests.vm.test_repro`."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import (
    EnvironmentLacks,
    ExitCode,
    GuestLost,
    KernelError,
    StoreError,
    UsageError,
)
from harness.store import RunStore
from harness.tests.cli.runner import powercut


def test_no_run_there_says_where_it_looked(tmp_path: Path) -> None:
    done = powercut("repro", "ext4-ordered/append-fsync@1", "--from", tmp_path / "nothing")
    assert done.exit_code == ExitCode.UNDECIDED
    assert "nothing" in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("no such finding"), ExitCode.BISECT_STOP),
        (StoreError("no run"), ExitCode.BISECT_STOP),
        (EnvironmentLacks("no qemu"), ExitCode.BISECT_STOP),
        (KernelError("no module ext4"), ExitCode.BISECT_SKIP),
        (GuestLost("does not come up"), ExitCode.BISECT_SKIP),
        (ValueError("a defect"), ExitCode.BISECT_STOP),
    ],
)
def test_bisect_is_never_told_that_a_commit_is_bad_by_what_is_not_the_commits(
    error: Exception, code: ExitCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 and 3 were: git bisect run takes everything from 1 to 127 but 125 for bad."""

    def fails(_: Path) -> None:
        raise error

    monkeypatch.setattr(RunStore, "open", fails)
    done = powercut("repro", "x@1", "--bisect")
    assert done.exit_code == code
    assert str(error) in done.stderr
