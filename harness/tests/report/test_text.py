"""The terminal's summary and summary.txt."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from harness.report.text import print_summary, summary_text
from harness.report.words import headline, printable, seconds, shown_path
from harness.store import RunStore
from harness.summary import Summary, summarise
from harness.tests.report.conftest import SOURCE
from harness.tests.report.demo import run_info


def test_summary_text(summary: Summary, golden: Callable[[str, str], None]) -> None:
    golden("summary.txt", summary_text(summary, SOURCE))


def test_every_finding_and_unknown_ends_in_its_command(summary: Summary) -> None:
    blocks = summary_text(summary, SOURCE).split("\n\n")
    accused = [b for b in blocks if b.startswith(("FAIL ", "XFAIL ", "UNKNOWN "))]
    assert len(accused) == len(summary.findings) + 1
    for block in accused:
        assert block.splitlines()[-1].startswith("reproduce: powercut repro ")
        assert block.endswith(" --from reports/latest")


def test_commands_are_not_broken_by_a_narrow_terminal(summary: Summary) -> None:
    out = io.StringIO()
    print_summary(summary, SOURCE, Console(file=out, width=40))
    lines = out.getvalue().splitlines()
    for finding in summary.findings:
        assert f"reproduce: powercut repro {finding.crash_point} --from reports/latest" in lines
    for workload in ("append-fsync", "rename-replace", "create-many"):  # the table was split, not cut
        assert any(workload in line and "powercut" not in line for line in lines)


def test_colours_only_at_a_terminal(summary: Summary) -> None:
    plain, coloured = io.StringIO(), io.StringIO()
    print_summary(summary, SOURCE, Console(file=plain))
    print_summary(summary, SOURCE, Console(file=coloured, force_terminal=True, color_system="standard"))
    assert "\x1b" not in plain.getvalue()
    assert "\x1b" in coloured.getvalue()


def test_a_run_of_nothing_says_so(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "t", run_info()) as store:
        store.finish(datetime(2026, 1, 2, tzinfo=UTC))
        text = summary_text(summarise(store), SOURCE)
    assert text.splitlines()[0].endswith("nothing was checked, so nothing is known.")
    assert text.splitlines()[-1] == "Nothing was checked (exit code 4)"


def test_an_interrupted_run_does_not_say_passed(summary: Summary) -> None:
    green = replace(summary, cases=summary.cases[:3])
    assert summary_text(green, SOURCE).splitlines()[-1] == "Passed all 3 cases"
    stopped = replace(green, info=replace(green.info, interrupted=True))
    lines = summary_text(stopped, SOURCE).splitlines()
    assert "The run was interrupted before its plan was done." in lines
    assert lines[-1] == "Undecided 0 of 3 cases"


@pytest.mark.parametrize(
    ("first", "last", "answer"),
    [
        (0, 3, "ordered kept every promise at every one of 163 crash states."),
        (0, 6, "2 of 2 modes kept every promise at every one of 326 crash states."),
        (6, 9, "ext4/writeback-nodelalloc broke promises (fsck, no-stale-data)."),
        (9, 12, "ext4/nobarrier broke promises (durability), as expected."),
        (12, 15, "xfs/default could not be decided."),
        (15, 18, "nothing was checked, so nothing is known."),
    ],
)
def test_the_answer_in_one_sentence(summary: Summary, first: int, last: int, answer: str) -> None:
    part = replace(summary, cases=summary.cases[first:last])
    assert headline(part).partition(": ")[2] == answer


def test_many_broken_modes_are_counted_not_named(summary: Summary) -> None:
    broken = summary.cases[7]
    cases = tuple(
        replace(broken, info=replace(broken.info, case=replace(broken.case, mode=f"m{i}"))) for i in range(3)
    )
    assert "; 3 broke promises." in headline(replace(summary, cases=cases))


def test_paths_below_the_working_directory_are_relative_and_links_stay(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "latest").symlink_to("real")
    assert shown_path(tmp_path / "latest", tmp_path) == "latest"
    assert shown_path(tmp_path / "latest", tmp_path / "real") == str(tmp_path / "latest")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (207, "3 min 27 s"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations(value: float, said: str) -> None:
    assert seconds(value) == said


def test_control_characters_are_written_out() -> None:
    assert printable("a\x1b[31m\tb\n\x00\udcff\ufffe ü") == "a\\x1b[31m\tb\n\\x00\\udcff\\ufffe ü"
