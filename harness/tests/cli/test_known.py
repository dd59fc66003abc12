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
