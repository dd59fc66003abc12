"""`powercut patch`, before a kernel is built."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.cli import patch
from harness.errors import ExitCode, KernelError
from harness.kernels.build import BuildFails
from harness.kernels.commits import CommitTree
from harness.patches.mistakes import Mistake
from harness.tests.cli.runner import refused
from harness.tests.patches.test_work import LEFT_OUT, QUICK, plan


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-w", "no-such-workload"], "no workload 'no-such-workload'"),
        (["--config", "fragment"], "fragment, line 2: 'garbage' sets no option of a kernel"),
    ],
)
def test_what_cannot_be_used_is_refused_before_a_kernel_is_built(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-n` ended with 0, and without it the kernel was built first."""

    def build(*_: object) -> Path:
        pytest.fail("a kernel was built")

    monkeypatch.setattr(CommitTree, "kernel", build)
    monkeypatch.chdir(tmp_path)
    Path("fragment").write_text("# CONFIG_KASAN is not set\ngarbage\n")
    tree = tmp_path / "linux"
    for command in (
        ["init", "-q", str(tree)],
        *(["-C", str(tree), *_WHO, "commit", "-q", "--allow-empty", "-m", text] for text in ("one", "two")),
    ):
        subprocess.run(["git", *command], check=True)
    for more in (["-n"], []):
        assert says in refused("patch", tree, *words, *more)


def test_hunks_as_before_the_patch_are_announced_apart_from_mistakes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = Mistake("a.c", 3, 3, "", "line 3 as before the patch", reverts=True)
    patch._show(msgspec.structs.replace(plan(QUICK), mistakes=(before, LEFT_OUT)))
    said = capsys.readouterr()
    assert f"then 1 mistake to plant, such as {LEFT_OUT}" in said.out + said.err
    assert "then 1 hunk as before the patch" in said.out + said.err


def test_only_a_kernel_that_does_not_build_is_one_for_git_bisect_to_skip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A repository of ours that was locked ended with 125: `git bisect run` skipped every commit."""

    def ends_with(fault: KernelError) -> ExitCode:
        def fail(*_: object) -> None:
            raise fault

        monkeypatch.setattr(patch, "need_head", fail)
        nothing: Any = None
        return patch._carry_out(nothing, Path(), nothing, why=False)

    assert ends_with(BuildFails("main.c:1: error: no")) is ExitCode.BISECT_SKIP
    with pytest.raises(KernelError, match=r"index\.lock"):
        ends_with(KernelError("git checkout: index.lock: File exists"))


_WHO = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
