"""`powercut known`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import ExitCode
from harness.tests.cli.runner import powercut

BUG = """
[[bug]]
name = "late"
title = "came with a backport"
[bug.record]
severity = "cosmetic"
mechanism = "m"
first = "6.12.114"
mended = ["6.12.120", "7.1"]
"""


@pytest.fixture
def bugs(tmp_path: Path) -> Path:
    file = tmp_path / "bugs.toml"
    file.write_text(BUG)
    return file


def test_a_bug_that_a_kernel_has_not_is_said_to_be_none_of_its_own(bugs: Path) -> None:
    """Nothing was printed."""
    done = powercut("known", "late", "--kernel", "6.12.113", "--known", bugs)
    assert done.exit_code == ExitCode.CONSISTENT
    assert done.output.startswith("late: not in Linux 6.12.113, so far as known: seen from 6.12.114 on")
    assert "mechanism" in powercut("known", "late", "--kernel", "6.12.114", "--known", bugs).output


@pytest.mark.parametrize(
    ("version", "has"),
    [
        ("6.12", True),
        ("6.12.0", False),
        ("6.12.119", True),
        ("6.12.120", False),
        ("6.13", True),
        ("7.1", False),
    ],
)
def test_a_series_has_the_bugs_of_any_of_its_releases(bugs: Path, version: str, has: bool) -> None:
    """6.12 was its first release, without a bug that came in 6.12.114 and that debian-6.12 has."""
    done = powercut("known", "late", "--kernel", version, "--known", bugs, "--json")
    assert [bug["name"] for bug in json.loads(done.output)] == ["late"] * has


def test_a_bug_that_nobody_looked_for_in_a_kernel_is_not_said_to_be_there(tmp_path: Path) -> None:
    """`known --kernel 9.9` told 68 bugs that this kernel has."""
    file = tmp_path / "bugs.toml"
    file.write_text(BUG.replace('mended = ["6.12.120", "7.1"]', 'last = "7.3.4"'))
    for version, seen in (("7.3.4", True), ("7.3", True), ("7.3.5", False), ("9.9", False)):
        line = next(
            line
            for line in powercut("known", "--kernel", version, "--known", file).output.splitlines()
            if line.startswith("late: ")
        )
        assert line.endswith("; not looked for there") is not seen
        one = powercut("known", "late", "--kernel", version, "--known", file).output.splitlines()[0]
        assert one == ("late" if seen else "late; not looked for there")
    assert "known bugs that Linux 9.9 has or may have" in powercut("known", "--kernel", "9.9").output


@pytest.mark.parametrize(
    ("pin", "has"),
    [("debian-6.12", True), ("debian-6.12.119", True), ("debian-7.1", False), ("uml-6.12", True)],
)
def test_a_kernel_may_be_a_pin(bugs: Path, pin: str, has: bool) -> None:
    """Every other --kernel takes its name."""
    done = powercut("known", "late", "--kernel", pin, "--known", bugs, "--json")
    assert [bug["name"] for bug in json.loads(done.output)] == ["late"] * has


def test_what_is_neither_a_version_nor_a_pin_is_refused(bugs: Path) -> None:
    assert powercut("known", "--kernel", "ours-6.12", "--known", bugs).exit_code == ExitCode.USAGE
