"""Command lines for people to paste: they keep the kernel and the modules with which something was seen."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest

from harness.model import CaseId, CrashState
from harness.plan import Plan
from harness.report.lines import reproduce, resume, resume_measurement, run_again, source_words
from harness.store import RunStore
from harness.tests.report.demo import run_info

CASE = CaseId("ext4", "ordered", "append-fsync")


def plan(**given: object) -> Plan:
    return msgspec.convert({"configurations": ["ext4"], "workloads": ["all"], **given}, Plan)


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        ({}, ""),
        ({"kernel": "debian-6.1"}, " --kernel debian-6.1"),
        ({"kernel": "/k/bzImage", "modules": "/k/mods"}, " --kernel /k/bzImage --modules /k/mods"),
        ({"replaced": ["/k/ext4.ko", "/k/jbd2.ko"]}, " --module /k/ext4.ko --module /k/jbd2.ko"),
        ({"machine": "uml", "accel": "tcg"}, " --machine uml --accel tcg"),
        ({"completions": "prompt"}, " --completions prompt"),
        ({"fault_models": ["prefix", "drop"]}, " --states prefix,drop"),
    ],
)
def test_a_run_line_keeps_what_was_asked(asked: dict[str, object], options: str) -> None:
    """shrink's dropped --module and --kernel: pasted, it passed."""
    line = run_again(plan(**asked), "ext4/ordered", "short.toml")
    assert line == f"powercut run -c ext4/ordered -w short.toml{options}"


def test_a_resume_line_names_the_files_that_only_a_command_line_may(tmp_path: Path) -> None:
    line = resume(plan(kernel="/my kernels/linux", replaced=["/k/ext4.ko"]), "reports/latest")
    assert shlex.split(line)[2:] == [
        "--resume", "reports/latest", "--kernel", "/my kernels/linux", "--module", "/k/ext4.ko",
    ]  # fmt: skip
    assert resume(plan(kernel="debian-6.12"), "RUN") == "powercut run --resume RUN"
    assert (
        resume_measurement("/k/bzImage", None, "RUN") == "powercut measure --resume RUN --kernel /k/bzImage"
    )


def test_a_reproduce_line_names_them_too(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "test", run_info()) as store:
        assert source_words(store, "RUN") == "RUN"
        store.put_plan(plan(kernel="/k/bzImage"))
        source = source_words(store, "a run")
    line = reproduce(CASE, CrashState(3), source)
    assert line == "powercut repro ext4-ordered/append-fsync@3 --from 'a run' --kernel /k/bzImage"


def test_paths_below_the_working_directory_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "--kernel arch/bzImage" in run_again(plan(kernel=str(tmp_path / "arch/bzImage")), "m", "w")
