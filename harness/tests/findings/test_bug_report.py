"""Bug reports as they are on disk: what a folder must have, and what the committed ones have."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from harness.cli.findings import _asked
from harness.errors import UsageError
from harness.findings.bug_report import (
    MAIL,
    BugReport,
    StatedRun,
    bug_reports,
    findings_folder,
    load,
    select_bug_reports,
)
from harness.findings.mail import LINES
from harness.kernels.find import look_up_pc_kernel

WHOLE = """
title = "A bug"
[[run]]
kernel = "debian-6.12"
says = "BROKEN"
[[run]]
kernel = "debian-6.12"
environment = { CONTROL = "1", B = "x" }
says = "KEPT"
"""


def a_bug_report(folder: Path, toml: str = WHOLE, script: bool = True) -> Path:
    path = folder / "a-bug"
    path.mkdir()
    (path / "finding.toml").write_text(toml)
    if script:
        (path / "reproduce.sh").write_text("#!/bin/sh\necho KEPT: nothing was done\n")
    return path


def test_a_bug_report_is_read_with_its_runs(tmp_path: Path) -> None:
    found = load(a_bug_report(tmp_path))
    assert (found.slug, found.title) == ("a-bug", "A bug")
    assert [(r.name, r.says) for r in found.run] == [
        ("debian-6.12", "BROKEN"),
        ("debian-6.12 B=x CONTROL=1", "KEPT"),
    ]


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        (WHOLE.replace('"KEPT"', '"BROKEN"'), "no [[run]] says KEPT"),
        (WHOLE.replace('"BROKEN"', '"KEPT"'), "no [[run]] says BROKEN"),
        (WHOLE.replace('"KEPT"', '"FINE"'), "FINE"),
        (WHOLE + 'kernal = "debian-7.3"', "kernal"),
        (WHOLE + '[[run]]\nkernel = "debian-6.12"\nsays = "KEPT"', "two runs of debian-6.12"),
        ("title", "finding.toml"),
    ],
)
def test_a_bug_report_that_proves_nothing_is_refused(toml: str, says: str, tmp_path: Path) -> None:
    """Without a control, a script that always prints BROKEN would do."""
    path = a_bug_report(tmp_path, toml)
    with pytest.raises(UsageError) as raised:
        load(path)
    assert says in raised.value.what


def test_a_bug_report_has_a_script(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no reproduce\.sh"):
        load(a_bug_report(tmp_path, script=False))


def test_a_patch_stands_beside_its_finding(tmp_path: Path) -> None:
    path = a_bug_report(tmp_path, WHOLE + 'patch = "fix.patch"')
    with pytest.raises(UsageError, match=r"has no fix\.patch"):
        load(path)
    (path / "fix.patch").write_text("--- a\n")
    assert [r.name for r in load(path).run][1] == "debian-6.12 B=x CONTROL=1 fix.patch"


def test_an_unknown_slug_is_refused_with_the_near_ones(tmp_path: Path) -> None:
    a_bug_report(tmp_path)
    assert [d.slug for d in select_bug_reports([], tmp_path)] == ["a-bug"]
    with pytest.raises(UsageError) as raised:
        select_bug_reports(["a-big"], tmp_path)
    assert "a-bug" in raised.value.next_step


@pytest.mark.parametrize("own", [{"module": "mine.ko"}, {"patch": "mine.patch"}])
def test_another_kernel_is_asked_with_the_module_that_is_broken(own: dict[str, str]) -> None:
    """`findings --kernels` asked the stock kernel, and so said KEPT of a module of somebody's own."""
    plain = StatedRun(kernel="debian-6.12", says="BROKEN", environment={"A": "b"}, note="why")
    broken = msgspec.structs.replace(plain, **own)
    report = BugReport(title="t", run=[StatedRun(kernel="debian-6.12", says="KEPT"), broken])
    ((_, asked),) = _asked([report], ["debian-6.1"])
    assert asked.name == " ".join(["debian-6.1", "A=b", *own.values()])
    assert (asked.says, asked.note) == ("BROKEN", "")


COMMITTED = bug_reports(findings_folder())


@pytest.mark.parametrize("slug", COMMITTED)
def test_a_committed_bug_report_is_complete(slug: str) -> None:
    """It can be sent: a README, a script that parses and is executable, evidence, kernels that exist."""
    found = COMMITTED[slug]
    assert (found.path / "README.md").stat().st_size > 500
    assert found.script.stat().st_mode & 0o111
    assert found.script.read_text().startswith("#!/bin/sh\n")
    subprocess.run(["sh", "-n", found.script], check=True)
    assert list((found.path / "evidence").iterdir())
    for stated in found.run:
        look_up_pc_kernel(stated.kernel)


@pytest.mark.parametrize("slug", COMMITTED)
def test_a_committed_bug_report_has_its_mail(slug: str) -> None:
    """Nine of fifteen had none, and whoever wanted to send one began with MAINTAINERS."""
    lines = (COMMITTED[slug].path / MAIL).read_text().splitlines()
    head = dict(line.split(": ", 1) for line in lines[: lines.index("")])
    assert re.fullmatch(r"https://\S+/issues|\S+@\S+(, \S+@\S+)*", head["To"])
    assert len(head["Subject"]) <= 100
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= 100
    assert "TO DO" not in "\n".join(lines)
    fixes = [line for line in lines if line.startswith("Fixes:")]
    assert all(re.fullmatch(r'Fixes: [0-9a-f]{12,13} \(".+"\)', line) for line in fixes)


@pytest.mark.parametrize("slug", COMMITTED)
def test_a_committed_bug_report_needs_no_powercut(slug: str) -> None:
    found = COMMITTED[slug]
    assert "powercut" not in found.script.read_text().lower()
