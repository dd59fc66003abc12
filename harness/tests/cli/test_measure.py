"""`powercut measure`: what it offers, and what is no measurement."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from harness.cli import measure as command
from harness.host.progress import Progress
from harness.measure.registry import COMPARISONS
from harness.measure.run import MeasurePlan, Result
from harness.measurements.directory import write_measurements
from harness.measurements.results import Measurement
from harness.model import Verdict
from harness.tests.cli.runner import powercut, refused


def test_help_names_every_measurement() -> None:
    said = powercut("measure", "--help").output
    assert all(name in said for name in COMPARISONS)


def test_the_list_says_what_each_repeats() -> None:
    done = powercut("measure", "--list")
    assert done.exit_code == 0
    assert "3.6 times" in done.output
    assert "500,000" in done.output


@pytest.mark.parametrize("words", [["measure"], ["measure", "nothing"], ["measure", "bonnie", "--only", "x"]])
def test_what_is_not_there_is_a_usage_error(words: list[str], tmp_path: Path) -> None:
    done = powercut(*words, *(["--out", tmp_path] if len(words) > 1 else []))
    assert done.exit_code == 2
    assert "double-write" in done.output or "ext2" in done.output
    assert not list(tmp_path.iterdir())


def test_a_kernel_that_only_the_run_directory_names_is_refused(tmp_path: Path) -> None:
    """`measure --resume DIR` loaded whatever kernel DIR named."""
    kernel = tmp_path / "theirs"
    kernel.write_bytes(b"\x7fELF" + bytes(2000))
    (tmp_path / "plan.json").write_bytes(
        msgspec.json.encode({"name": "bonnie", "rounds": 1, "kernel": str(kernel)})
    )
    assert f"--kernel {kernel}" in refused("measure", "--resume", tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bonnie"], "name"),
        *((words, words[0]) for words in (["--repeat", "50"], ["--scale", "80"], ["--seed", "7"])),
        *((words, words[0]) for words in (["--only", "ext4"], ["--accel", "tcg"])),
    ],
)
def test_what_a_resumed_measurement_cannot_follow_is_refused(
    words: list[str], said: str, tmp_path: Path
) -> None:
    """`measure --resume` took another name, other sizes and another seed, and measured as it had begun."""
    (tmp_path / "plan.json").write_bytes(
        msgspec.json.encode({"name": "double-write", "rounds": 2, "kernel": "debian-6.12"})
    )
    assert f"{said} cannot change it" in refused("measure", *words, "--resume", tmp_path)


@pytest.mark.parametrize("words", [["--kernel", "/gone"], ["--kernel", "uml-6.1"], ["--only", ","]])
def test_what_cannot_be_measured_leaves_no_run_directory(words: list[str], tmp_path: Path) -> None:
    assert powercut("measure", "bonnie", *words, "--out", tmp_path).exit_code == 2
    assert not list(tmp_path.iterdir())


def test_the_command_writes_the_reports_of_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`measure/run.py` wrote them itself, and so imported the reports that are made of its results."""
    made = Measurement(
        name="bonnie",
        summary="numbers",
        command=["powercut"],
        kernel="Linux 6.12",
        machine="",
        accel="",
        started=datetime(2026, 1, 1, tzinfo=UTC),
    )

    def measured(plan: MeasurePlan, path: Path, progress: Progress) -> Result:
        write_measurements(path, [made])
        return Result(path, made, (), Verdict.PASS)

    monkeypatch.setattr(command, "create", lambda plan, out: out)
    monkeypatch.setattr(command, "measure", measured)
    assert powercut("measure", "bonnie", "--out", tmp_path).exit_code == 0
    assert {p.name for p in tmp_path.iterdir()} == {"measurements.json", "report.html", "summary.txt"}
