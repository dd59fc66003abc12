"""`powercut run --bisect`: git is told that a commit is bad by what it wrote, and by nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cli import run
from harness.errors import EnvironmentLacks, ExitCode, GuestLost, KernelError, StoreError, UsageError
from harness.filesystems.profile import Profile
from harness.store.records import CaseInfo, CaseStatus, Counts
from harness.summary import CaseSummary, Summary
from harness.tests.cli.runner import powercut
from harness.tests.store.samples import CASE, INFO, OTHER

DONE = replace(INFO, finished=INFO.started)
GOOD, LOST = Counts(3, 3, passed=3, contents=3), Counts(3, 3, passed=2, unknown=1, contents=3)


@pytest.fixture(autouse=True)
def complete_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Profile, "lacks", lambda _: "")


def bisect(tmp_path: Path, *more: object) -> Any:
    return powercut("run", "-w", "append-fsync", "--bisect", "--out", tmp_path, *more)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("no such mode"), ExitCode.BISECT_STOP),
        (StoreError("no run"), ExitCode.BISECT_STOP),
        (EnvironmentLacks("no qemu"), ExitCode.BISECT_STOP),
        (KernelError("no module ext4"), ExitCode.BISECT_SKIP),
        (GuestLost("does not come up"), ExitCode.BISECT_SKIP),
        (ValueError("a defect"), ExitCode.BISECT_STOP),
        (OSError(28, "No space left on device"), ExitCode.BISECT_STOP),
    ],
)
def test_a_commit_is_never_bad_by_what_is_not_the_commits(
    error: Exception, code: ExitCode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 and 3 were: git bisect run takes everything from 1 to 127 but 125 for bad."""

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(run, "new_run", fails)
    done = bisect(tmp_path)
    assert done.exit_code == code
    assert str(error) in done.stderr


@pytest.mark.parametrize(
    ("cases", "interrupted", "code"),
    [
        ([(CaseStatus.DONE, GOOD)], False, 0),
        ([(CaseStatus.DONE, LOST)], False, ExitCode.BISECT_SKIP),
        ([(CaseStatus.UNKNOWN, Counts())], False, ExitCode.BISECT_SKIP),
        ([(CaseStatus.NOT_RUN, Counts())], False, ExitCode.BISECT_SKIP),
        ([(CaseStatus.NOT_SUPPORTED, Counts())], False, ExitCode.BISECT_STOP),
        ([(CaseStatus.DONE, GOOD), (CaseStatus.NOT_RUN, Counts())], False, ExitCode.BISECT_SKIP),
        ([(CaseStatus.DONE, GOOD)], True, ExitCode.INTERRUPTED),
    ],
)
def test_what_a_run_says_of_a_commit(
    cases: list[tuple[CaseStatus, Counts]],
    interrupted: bool,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = tuple(
        CaseSummary(CaseInfo(case), status, "because", 0.0, counts, (), (), {})
        for case, (status, counts) in zip((CASE, OTHER), cases, strict=False)
    )
    summary = Summary("run", replace(DONE, interrupted=interrupted, require_all=True), seen, ())
    monkeypatch.setattr(run, "_execute", lambda *_, **__: summary)
    assert bisect(tmp_path).exit_code == code


def test_a_typing_error_stops_the_bisection(tmp_path: Path) -> None:
    """click ends with 2, and every commit would have been bad."""
    done = powercut("run", "--bisect", "--kernl", "bzImage")
    assert done.exit_code == ExitCode.BISECT_STOP
    assert "--kernl" in done.stderr
    assert powercut("run", "--kernl", "bzImage").exit_code == ExitCode.USAGE


@pytest.mark.parametrize("option", ["--recordings", "--resume"])
def test_an_old_recording_cannot_be_bisected(option: str, tmp_path: Path) -> None:
    done = bisect(tmp_path, option, tmp_path)
    assert done.exit_code == ExitCode.BISECT_STOP
    assert "records anew" in done.stderr


def test_what_this_host_lacks_at_every_commit_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Profile, "lacks", lambda _: "mkfs.ext4 is not installed")
    done = bisect(tmp_path)
    assert done.exit_code == ExitCode.BISECT_STOP
    assert "mkfs.ext4 is not installed" in done.stderr
    assert not list(tmp_path.iterdir())
