"""`powercut patch`: what it is begun with, how it is gone on with, and when it is told as finished. Kernels
and runs are made up.
"""

from __future__ import annotations

import functools
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.cli import patch, series
from harness.errors import ExitCode
from harness.guests.machine import buildable
from harness.host.progress import Progress
from harness.kernels import commits
from harness.patches.results import Answer, PatchPlan
from harness.patches.work import Phase, create, end_of, load_plan
from harness.plan import Plan
from harness.report.lines import resume_patch
from harness.series.journal import End, last_end
from harness.series.work import OnDone, carry_out
from harness.store import RunStore
from harness.summary import Summary, summarise
from harness.tests.cli.runner import powercut, refused
from harness.tests.patches.test_work import LOST, MORE, QUICK, Kernels, plan, ran

WHO = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
OTHER = buildable()[-1]
"""A machine that is not the default one."""
Told = list[tuple[PatchPlan, Path]]


class OfTree(Kernels):
    """The kernels of a git tree."""

    tree = Path("/linux")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small git tree with a Kconfig stands for Linux."""
    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(commits, "need_tools", lambda flavour: None)
    made = tmp_path / "linux"
    (made / "fs/ext4").mkdir(parents=True)
    (made / "Kconfig").write_text("x\n")
    subprocess.run(["git", "init", "-q", made], check=True)
    for text in ("one", "two"):
        (made / "fs/ext4/a.c").write_text(f"int {text};\n")
        for command in (["add", "-A"], [*WHO, "commit", "-qm", text]):
            subprocess.run(["git", "-C", made, *command], check=True)
    return made


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """The plans that a command carries out."""
    found: Told = []

    def note(of: PatchPlan, path: Path, kernels: object, *, why: bool) -> ExitCode:
        found.append((of, path))
        return ExitCode.CONSISTENT

    monkeypatch.setattr(patch, "_carry_out", note)
    return found


def begun(tree: Path, *words: object) -> None:
    done = powercut("patch", tree, "HEAD~1..HEAD", "--out", tree.parent, *words)
    assert done.exit_code == 0, done.output


def line_of(told: Told, tree: Path) -> list[str]:
    """The command that goes on with a series, without `powercut`."""
    (of, path), *_ = told
    own = [w for stage in of.stages for w in stage.workloads]
    return shlex.split(resume_patch(str(tree), of.config, own, str(path)))[1:]


def test_a_series_goes_on_with_the_machine_that_it_was_begun_on(tree: Path, told: Told) -> None:
    """The line that is printed does not name it, and was refused: it was begun on another machine."""
    begun(tree, "--machine", OTHER)
    done = powercut(*line_of(told, tree))
    assert done.exit_code == 0, done.output
    assert [of.machine for of, _ in told] == [OTHER, OTHER]
    assert f"it was begun on {OTHER}" in refused(*line_of(told, tree), "--machine", buildable()[0])


def test_a_relative_workload_is_found_again_from_the_line_that_is_printed(
    tree: Path, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line has the absolute path, the plan had the relative one, and the line was refused."""
    (tmp_path / "mine.toml").write_text('summary = "m"\noperations = ["create f", "fsync f"]\n')
    monkeypatch.chdir(tmp_path)
    begun(tree, "-w", "./mine.toml", "-w", "append-fsync")
    monkeypatch.chdir(tree)
    done = powercut(*line_of(told, tree))
    assert done.exit_code == 0, done.output
    assert [of.stages[0].workloads for of, _ in told] == [(f"{tmp_path}/mine.toml", "append-fsync")] * 2


def test_minutes_beside_resume_are_those_of_this_time(tree: Path, told: Told) -> None:
    """It was refused, and a series whose time was up could not be given more."""
    begun(tree, "--minutes", 2)
    for words, minutes in (((), 2), (("--minutes", 7), 7)):  # type: tuple[object, ...], int
        done = powercut(*line_of(told, tree), *words)
        assert done.exit_code == 0, done.output
        assert told[-1][0].minutes == minutes


def test_what_is_as_before_may_be_said_beside_resume(tree: Path, told: Told, tmp_path: Path) -> None:
    """The whole command line of the begin, with --resume added, was refused for what had not changed."""
    begun(tree, "-j", 1)
    done = powercut(*line_of(told, tree), "-j", 1, "--out", tree.parent)
    assert done.exit_code == 0, done.output
    done = powercut(*line_of(told, tree), "-j", 3)
    assert done.exit_code == 0, done.output
    done = powercut(*line_of(told, tree))
    assert done.exit_code == 0, done.output
    assert [of.jobs for of, _ in told] == [1, 1, 3, 1]
    assert "--out cannot change it" in refused(*line_of(told, tree), "--out", tmp_path / "elsewhere")


def test_a_series_whose_commit_is_gone_says_so(tree: Path, told: Told, tmp_path: Path) -> None:
    """`ambiguous argument 'aaaa...'`, and whether the tree is whole, where the cache had been deleted."""
    (tree / "fs/ext4/a.c").write_text("int three;\n")
    done = powercut("patch", tree, "--out", tree.parent)
    assert done.exit_code == 0, done.output
    again = line_of(told, tree)
    assert powercut(*again).exit_code == 0
    shutil.rmtree(tmp_path / "cache")
    said = refused(*again)
    assert f"(changes that are not committed), is neither in {tree} nor in the cache" in said
    assert f"name the tree that it was begun with, {tree}; or begin a new one" in said


def series_of(tmp_path: Path, **changes: Any) -> tuple[PatchPlan, Path]:
    path = create(msgspec.structs.replace(plan(QUICK, MORE), **changes), tmp_path)
    return load_plan(path), path


def test_the_time_of_a_series_that_goes_on_counts_from_what_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the time of all work: once it was up, each resume ended at once with nothing done."""
    of, path = series_of(tmp_path, minutes=2.0)
    (path / "seconds").write_text("600.0")
    until: list[float | None] = []

    def work(series: object, what: str, until_s: float | None) -> End:
        until.append(until_s)
        return End.TIME_UP

    monkeypatch.setattr(patch, "work_at", work)
    patch._carry_out(of, path, OfTree(), why=False)  # type: ignore[arg-type]  # only its tree is asked for
    assert until == [720.0]


def test_a_patch_whose_time_was_up_is_not_told_as_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found was followed to its end, which counted as the end of all: no command went on with it."""
    of, path = series_of(tmp_path, minutes=10.0)
    runs = 0

    def execute(p: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        nonlocal runs
        runs += 1
        if runs != 2:  # the base, for the first time
            return ran(lambda commit: LOST, [])(p, store, progress, on_done)
        store.finish(stopped="the time given is up")
        return summarise(store)

    ends: list[End] = []
    monkeypatch.setattr(series, "carry_out", functools.partial(carry_out, run=execute))
    monkeypatch.setattr(patch, "show_series", lambda series, end, again: ends.append(end))
    code = patch._carry_out(of, path, OfTree(), why=False)  # type: ignore[arg-type]
    assert (code, ends) == (ExitCode.TIME_UP, [End.TIME_UP])
    assert last_end(path) is End.TIME_UP, "`list runs` said finished"


@pytest.mark.parametrize(
    ("ends", "stages", "end"),
    [
        ({Phase.ASKING: End.COMPLETE}, (QUICK,), End.COMPLETE),
        ({Phase.ASKING: End.TIME_UP}, (), End.COMPLETE),
        ({Phase.ASKING: End.TIME_UP, Phase.PLANTING: End.COMPLETE}, (QUICK,), End.TIME_UP),
        ({Phase.ASKING: End.COMPLETE, Phase.LOOKING: End.TIME_UP}, (), End.TIME_UP),
        ({Phase.ASKING: End.TIME_UP, Phase.FOLLOWING: End.INTERRUPTED}, (QUICK,), End.INTERRUPTED),
    ],
)
def test_a_series_ends_as_what_is_left_of_it_does(ends: Any, stages: Any, end: End) -> None:
    """Only the end of the phase that came last counted."""
    answer = Answer(plan(*stages), Path(), {}, (), {})
    assert end_of(ends, answer) is end
