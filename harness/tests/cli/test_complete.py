"""What TAB offers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from harness.cli import main
from harness.cli.complete import KINDS, VALUES, kind_of
from harness.store import RunStore
from harness.tests.report.demo import demo_run


def offered(*words: str) -> list[str]:
    """What completes the last word."""
    completer = ShellComplete(main, {}, "powercut", "_POWERCUT_COMPLETE")
    return [item.value for item in completer.get_completions(list(words[:-1]), words[-1])]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunStore]:
    monkeypatch.chdir(tmp_path)
    with demo_run(Path("reports")) as store:
        yield store


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["run", "-c", "ext4/ord"], "ext4/ordered"),
        (["run", "-c", "xf"], "xfs"),
        (["run", "-c", "ext4/ordered,xfs/"], "ext4/ordered,xfs/default"),
        (["run", "-w", "append-f"], "append-fsync"),
        (["run", "-w", "qui"], "quick"),
        (["run", "-w", "ace"], "ace1"),
        (["run", "--states", "ex"], "exhaustive"),
        (["run", "--oracle", "fsck,dura"], "fsck,durability"),
        (["run", "--disk", "errors,bit"], "errors,bit-rot"),
        (["run", "--kernel", "debian-7"], "debian-7.3"),
        (["fetch", "debian-7"], "debian-7.3"),
        (["measure", "double"], "double-write"),
        (["faults", "commit-no"], "commit-no-fua"),
        (["findings", "xfs-sync"], "xfs-sync-no-flush"),
        (["try", "sql"], "sqlite"),
    ],
)
def test_values_are_offered(words: list[str], found: str) -> None:
    """Only commands and options were."""
    assert found in offered(*words)


def test_a_run_and_its_crash_points_are_offered(run: RunStore) -> None:
    path = f"reports/runs/{run.path.name}"
    assert offered("run", "--resume", "rep") == ["reports/latest", path]
    assert offered("compare", "reports/runs/") == [path]
    point = next(str(f.crash_point) for f in run.findings())
    assert point in offered("repro", "ext4")
    assert point in offered("shrink", "--from", path, point[:12])
    assert point.partition("@")[0] in offered("bugreport", "ext4")


def test_a_run_that_cannot_be_read_offers_nothing(run: RunStore) -> None:
    (run.path / "run.json").write_text("{}")
    assert offered("repro", "ext4") == []
    assert offered("repro", "--from", "/nowhere", "ext4") == []


def test_a_path_is_left_to_the_shell() -> None:
    completer = ShellComplete(main, {}, "powercut", "_POWERCUT_COMPLETE")
    for words, kind in ((["run", "-w"], "file"), (["run", "--kernel"], "file"), (["report"], "dir")):
        (item,) = completer.get_completions(words, "./my")
        assert (item.type, item.value) == (kind, "./my")


def _parameters(command: click.Command) -> Iterator[tuple[click.Command, click.Parameter]]:
    if isinstance(command, click.Group):
        for below in command.commands.values():
            yield from _parameters(below)
    yield from ((command, parameter) for parameter in command.params)


def test_no_option_that_takes_a_known_kind_of_value_is_left_out() -> None:
    """A new command's `-c` completes as those of others, or this says that it is called otherwise."""
    known = ("FS/MODE", "K", "RUN", "ID", "CASE", "WORKLOAD")
    left = [
        f"{command.name} {parameter.name}"
        for command, parameter in _parameters(main)
        if (parameter.metavar or "").strip("[].").partition(",")[0] in known
        and not kind_of(command, parameter)
    ]
    assert left == []
    assert set(KINDS.values()) | {"RUN"} == set(VALUES), "no kind without a parameter"
