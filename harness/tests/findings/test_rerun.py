"""What a script said: only its last line counts, and only if it came to its end. No guest is booted here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness.cli.findings import exit_code, line, summary
from harness.errors import ExitCode
from harness.findings.bug_report import BugReport, StatedRun
from harness.findings.rerun import Rerun, command, last_word, write_evidence
from harness.tools_image.guest import Ran

BROKEN = StatedRun(kernel="debian-7.3", says="BROKEN")
KEPT = StatedRun(kernel="debian-7.3", says="KEPT", environment={"CONTROL": "1"})
BUG_REPORT = BugReport(title="A bug", run=[BROKEN, KEPT], path=Path("a-bug"))


@pytest.mark.parametrize(
    ("output", "code", "said"),
    [
        ("log\nBROKEN: the overwrite is gone\n", 0, ("BROKEN", "the overwrite is gone")),
        ("KEPT: it is there", 0, ("KEPT", "it is there")),
    ],
)
def test_the_last_line_is_the_verdict(output: str, code: int, said: tuple[str, str]) -> None:
    assert last_word(Ran(code, output), "") == said


@pytest.mark.parametrize(
    ("output", "code", "errors", "why"),
    [
        ("BROKEN: the overwrite is gone\n", 2, "mount: no such device\n", "mount: no such device"),
        ("BROKEN: the overwrite is gone\n", 1, "", "BROKEN: the overwrite is gone"),
        ("BROKEN: the overwrite is gone\nmore\n", 0, "", "'more'"),
        ("BROKEN:\n", 0, "", "with a reason"),
        ("BROKENLY: yes\n", 0, "", "no verdict"),
        ("", 0, "", "nothing"),
        ("", 143, "", "it printed nothing"),
    ],
)
def test_all_else_decides_nothing(output: str, code: int, errors: str, why: str) -> None:
    """A verdict that a script prints before it fails is not one: what it did afterwards may have mattered."""
    said, reason = last_word(Ran(code, output), errors)
    assert said == ""
    assert why in reason


def seen(stated: StatedRun, said: str) -> Rerun:
    return Rerun(BUG_REPORT, stated, said, "a reason")


def test_a_script_that_says_the_opposite_is_seen() -> None:
    wrong = seen(KEPT, "BROKEN")
    assert exit_code([seen(BROKEN, "BROKEN"), seen(KEPT, "KEPT")], compared=True) is ExitCode.CONSISTENT
    assert exit_code([seen(BROKEN, "BROKEN"), wrong], compared=True) is ExitCode.INCONSISTENT
    assert exit_code([wrong], compared=False) is ExitCode.CONSISTENT
    assert summary([seen(BROKEN, "BROKEN"), wrong]).startswith(
        "1 of 2 runs said what their folders state; not"
    )
    assert "a-bug: debian-7.3 CONTROL=1 (stated KEPT)" in summary([wrong])


def test_a_script_that_decides_nothing_is_no_agreement() -> None:
    nothing = seen(KEPT, "")
    assert exit_code([seen(BROKEN, "BROKEN"), nothing], compared=True) is ExitCode.UNDECIDED
    assert exit_code([seen(BROKEN, "KEPT"), nothing], compared=True) is ExitCode.INCONSISTENT
    assert exit_code([nothing], compared=False) is ExitCode.UNDECIDED
    assert "undecided" in line(nothing)


def test_the_command_gives_the_environment_and_keeps_errors_apart() -> None:
    words = list(command(KEPT))
    assert words[-3:-1] == ["env", "CONTROL=1"]
    local = [w.replace("/tmp/finding/stderr", os.devnull) for w in words[:-1]]  # noqa: S108 - the guest's
    ran = subprocess.run(
        [*local, "sh", "-c", "echo noise >&2; echo $CONTROL"], capture_output=True, text=True, check=True
    )
    assert (ran.stdout, ran.stderr) == ("1\n", "")


def test_evidence_is_what_was_printed(tmp_path: Path) -> None:
    file = write_evidence(Rerun(BUG_REPORT, KEPT, "KEPT", "r", "log\nKEPT: r\n", "", "7.3.4"), tmp_path)
    assert file.name == "debian-7.3.CONTROL=1.txt"
    assert file.read_text() == "# debian-7.3 CONTROL=1: Linux 7.3.4\nlog\nKEPT: r\n"
