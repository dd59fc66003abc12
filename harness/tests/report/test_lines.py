"""Command lines for people to paste: they keep the kernel and the modules with which something was seen."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest

from harness.model import CaseId, CrashState
from harness.plan import Plan
from harness.report.lines import (
    reproduce,
    resume,
    resume_measurement,
    resume_sweep,
    run_again,
    source_of,
    source_words,
)
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
        ({"log_bytes": 2 << 30}, " --log-size 2048"),
    ],
)
def test_a_run_line_keeps_what_was_asked(asked: dict[str, object], options: str) -> None:
    """shrink's dropped --module and --kernel: pasted, it passed."""
    line = run_again(plan(**asked), "ext4/ordered", "short.toml")
    assert line == f"powercut run -c ext4/ordered -w short.toml{options}"


def test_a_resume_line_names_the_files_that_only_a_command_line_may(tmp_path: Path) -> None:
    line = resume(plan(kernel="/my kernels/linux", replaced=["/k/ext4.ko"]), "/reports/latest")
    assert shlex.split(line)[2:] == [
        "--resume", "/reports/latest", "--kernel", "/my kernels/linux", "--module", "/k/ext4.ko",
    ]  # fmt: skip
    assert resume(plan(kernel="debian-6.12"), "/RUN") == "powercut run --resume /RUN"
    assert (
        resume_measurement("/k/bzImage", None, "/RUN") == "powercut measure --resume /RUN --kernel /k/bzImage"
    )


def test_a_reproduce_line_names_them_too(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "test", run_info()) as store:
        assert source_words(store, "/RUN") == "/RUN"
        store.put_plan(plan(kernel="/k/bzImage"))
        source = source_words(store, "/a run")
    line = reproduce(CASE, CrashState(3), source)
    assert line == "powercut repro ext4-ordered/append-fsync@3 --from '/a run' --kernel /k/bzImage"


def test_a_resume_line_names_what_a_plan_alone_may_not() -> None:
    """Pasted, it was refused: a workload's file, a cluster and another run's recordings have to be named
    again.
    """
    line = resume(plan(workloads=["quick", "/k/mine.toml"], recordings="/k/run", cluster="tls://h:1"), "/RUN")
    assert line == ("powercut run --resume /RUN -w /k/mine.toml --cluster tls://h:1 --recordings /k/run")
    assert resume(plan(cluster="local:4"), "/RUN") == "powercut run --resume /RUN"
    sweep = resume_sweep("history", ["debian-6.1", "/k/bzImage"], ["/k/mine.toml"], "/k/run", "/S")
    assert sweep == "powercut history --resume /S --kernels /k/bzImage -w /k/mine.toml --from /k/run"


def test_a_reproduce_line_names_the_file_of_its_own_workload_alone() -> None:
    source = source_of(plan(workloads=["/k/append-fsync.toml", "/k/other.toml"]), "/RUN")
    line = reproduce(CASE, CrashState(3), source)
    assert line.endswith("--from /RUN -w /k/append-fsync.toml")
    assert reproduce(CASE, CrashState(3), "it's").endswith("--from it's")  # written by hand


def test_a_line_is_right_in_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths below the working directory were relative to it: pasted elsewhere, a module `is not a kernel
    module`.
    """
    monkeypatch.chdir(tmp_path)
    own = plan(kernel=str(tmp_path / "arch/bzImage"), replaced=["ext4.ko"], workloads=["my/wl.toml"])
    again = run_again(own, "m", "my/wl.toml")
    assert again == (
        f"powercut run -c m -w {tmp_path}/my/wl.toml --kernel {tmp_path}/arch/bzImage "
        f"--module {tmp_path}/ext4.ko"
    )
    (tmp_path / "latest").symlink_to("run")
    for line in (resume(own, "latest"), source_of(own, "latest")):
        words = shlex.split(line)
        assert [w for w in words if "/" in w] == [
            f"{tmp_path}/{name}" for name in ("latest", "arch/bzImage", "ext4.ko", "my/wl.toml")
        ]
