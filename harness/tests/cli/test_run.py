"""`powercut run`: what is wrong is said with its value and the next step, and nothing is begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ExitCode
from harness.tests.cli.runner import powercut


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "-c", "ext4/orderd"], "ext4/ordered"),
        (["run", "-c", "ext4/ordered", "-w", "append-fsnc"], "append-fsync"),
        (["run", "--fault-model", "prefx"], "prefix"),
        (["run", "-w", "append-fsync", "--kernel", "debian-6.1x"], "debian-6.12"),
    ],
)
def test_an_unknown_name_costs_nothing_and_names_the_nearest(
    arguments: list[str], says: str, tmp_path: Path
) -> None:
    done = powercut(*arguments, "--out", tmp_path)
    assert done.exit_code == ExitCode.USAGE
    assert says in done.stderr
    assert "next:" in done.stderr
    assert not list(tmp_path.iterdir()) or "--kernel" in arguments


def test_a_file_that_is_no_kernel_says_so(tmp_path: Path) -> None:
    path = tmp_path / "bzImage"
    path.write_bytes(bytes(1 << 16))
    done = powercut("run", "-w", "append-fsync", "--kernel", path, "--out", tmp_path)
    assert done.exit_code == ExitCode.UNDECIDED
    assert str(path) in done.stderr
    assert "no kernel" in done.stderr


def test_an_expectation_without_a_reason_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "expected"
    path.write_text("ext4/nobarrier * *\n")
    done = powercut("run", "-c", "ext4/ordered", "--expect", path, "--out", tmp_path / "reports")
    assert done.exit_code == ExitCode.USAGE
    assert f"{path}:1" in done.stderr
    assert not (tmp_path / "reports").exists()
