"""`powercut patch`, before a kernel is built."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from harness.cli import patch
from harness.cli.guard import guarded
from harness.cli.stored import stored_rows
from harness.errors import ExitCode, KernelError
from harness.kernels.build import BuildFails
from harness.kernels.commits import CommitTree
from harness.patches.mistakes import Mistake
from harness.tests.cli.runner import powercut, refused
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


@pytest.mark.parametrize(
    ("commits", "says"),
    [
        ("one..two", "nothing here is known to run Documentation/x.rst"),
        ("two..two", "there is no commit from"),
        ("two..one", "the range runs the other way"),  # a push that took commits away
    ],
)
def test_a_push_that_changes_nothing_to_ask_about_leaves_the_files_of_a_job(
    commits: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job was red for each commit to the documentation: exit code 2, and no page to publish."""
    monkeypatch.chdir(tmp_path)
    tree = Path("linux")
    (tree / "Documentation").mkdir(parents=True)
    (tree / "Kconfig").touch()
    subprocess.run(["git", "init", "-q", tree], check=True)
    for tag in ("one", "two"):
        (tree / "Documentation/x.rst").write_text(tag)
        for command in (["add", "-A"], [*_WHO, "commit", "-qm", tag], ["tag", tag]):
            subprocess.run(["git", "-C", tree, *command], check=True)
    assert powercut("patch", tree, commits, "-n").exit_code == ExitCode.NOTHING_RUN
    assert not Path("reports").exists()
    done = powercut("patch", tree, commits)
    assert done.exit_code == ExitCode.NOTHING_RUN, done.output
    (path,) = Path("reports/runs").glob("*-patch")
    told = " ".join((path / "summary.md").read_text().replace("\\", "").split())
    assert "nothing to ask: " in told and says in told
    assert "<skipped " in (path / "junit.xml").read_text()
    page = json.loads((path / "patch.json").read_bytes())
    assert (page["lines"]["not_run"], page["stages_left"]) == ([], [])
    assert [row[2] for row in stored_rows(Path("reports"))] == ["finished"]
    resumed = powercut("patch", tree, "--resume", path)
    assert resumed.exit_code == ExitCode.NOTHING_RUN
    told = " ".join(resumed.stderr.split())
    assert "there was nothing to ask: " in told and says in told


def test_workloads_of_a_stage_that_are_not_named_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """Three were printed, and of the others nothing."""
    patch._show(plan(msgspec.structs.replace(QUICK, workloads=("a", "b", "c", "d", "e"))))
    assert ": a, b, c, 2 more" in capsys.readouterr().out


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
        return patch._carry_out(plan(QUICK), Path("patch"), TREE, why=False)

    assert ends_with(BuildFails("main.c:1: error: no")) is ExitCode.BISECT_SKIP
    with pytest.raises(KernelError, match=r"index\.lock"):
        ends_with(KernelError("git checkout: index.lock: File exists"))


def test_a_build_that_is_interrupted_names_its_directory_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first build of a tree takes minutes, and `interrupted` was all that was said of it."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(patch, "need_head", interrupt)
    with pytest.raises(SystemExit) as ended:
        guarded(lambda: patch._carry_out(plan(QUICK), Path("patch"), TREE, why=False))()
    said = capsys.readouterr()
    assert ended.value.code == ExitCode.INTERRUPTED
    assert said.out.startswith("patch: ")
    assert "interrupted; continue with: powercut patch /linux --resume" in " ".join(said.err.split())


TREE: Any = SimpleNamespace(tree=Path("/linux"))
_WHO = ["-c", "user.name=t", "-c", "user.email=t@localhost"]


def test_what_would_be_asked_says_which_word_is_what(capsys: pytest.CaptureFixture[str]) -> None:
    """`quick: ext4/fast_commit, ext4/ordered: quick`: stage, modes and workloads, and nothing said which."""
    asked = plan(QUICK)
    patch._show(asked)
    (stage, *_) = asked.stages
    told = f"stage {stage.name}: {', '.join(stage.workloads)} in {', '.join(stage.modes)}\n"
    assert told in capsys.readouterr().out
