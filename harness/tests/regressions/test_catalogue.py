"""The upstream bugs of `kernels/regressions`: every file is whole; which of them a command names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.expectations import known_losses
from harness.kernels.find import look_up_kernel
from harness.known.base import installed
from harness.regressions import catalogue
from harness.regressions.catalogue import Bug, bugs, select_bugs

ALL = bugs()
WITH_A_MODE = [b for b in ALL.values() if not b.needs]
FILE = """
subject = "ext4: mend it"
summary = "It was broken"
before = "{before}"
after = "{after}"
modes = ["{mode}"]
oracles = ["{oracle}"]
shows = "what is broken"
evidence = "a changelog"
"""
WHOLE = {"before": "debian-6.12.113", "after": "debian-6.12.115", "mode": "ext4/ordered", "oracle": "fsck"}


def version(kernel: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", kernel)]


def test_there_are_at_least_fifteen() -> None:
    assert len(ALL) >= 15
    assert len({b.subject for b in ALL.values()}) == len(ALL), "no bug counts twice"


@pytest.mark.parametrize("bug", ALL.values(), ids=list(ALL))
def test_a_bug_is_whole(bug: Bug) -> None:
    for text in (bug.subject, bug.summary, bug.shows, bug.evidence):
        assert text == text.strip()
        assert len(text) > 10, "no word to fill a gap"
    assert re.match(r"[\w/-]+: ", bug.subject), "a commit's subject names its part of the kernel"
    assert version(bug.before) < version(bug.after)
    for kernel in (bug.before, bug.after):
        pinned = look_up_kernel(kernel)
        assert pinned, f"{kernel} is a stock kernel"
        assert pinned[1], f"{kernel} is one exact version: the newest of a series changes"


@pytest.mark.parametrize("bug", [b for b in ALL.values() if b.known], ids=lambda b: b.name)
def test_a_bug_that_was_found_before_stands_among_the_known_failures(bug: Bug) -> None:
    told = [e for e in known_losses() if bug.known in e.reason]
    assert {e.configuration for e in told} == set(bug.modes)


def test_a_bug_that_was_found_before_is_mended_where_its_record_says_so() -> None:
    """The record had it mended in 6.17, and 6.16.3 is run here as the first kernel without it."""
    both = [
        (bug, known.record)
        for bug in ALL.values()
        for known in installed().values()
        if bug.commit and known.record.mended_by.startswith(bug.commit)
    ]
    assert both
    for bug, record in both:
        affected = [record.affects(tuple(version(kernel))) for kernel in (bug.before, bug.after)]
        assert affected == [True, False], bug.name


def test_most_of_them_can_be_run() -> None:
    """A catalogue of what nobody can run would say nothing about a green run."""
    assert len(WITH_A_MODE) >= 10


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (FILE.format(**{**WHOLE, "mode": "ext4/orderd"}), "no mode 'ext4/orderd'"),
        (FILE.format(**{**WHOLE, "oracle": "fsk"}), "no oracle 'fsk'"),
        (FILE.format(**{**WHOLE, "before": "debian-1.0"}), "no kernel 'debian-1.0'"),
        (FILE.format(**{**WHOLE, "before": WHOLE["after"]}), "both with the bug and without"),
        (FILE.format(**WHOLE).replace("modes", "# modes"), "modes and oracles, or says what it needs"),
        (FILE.format(**WHOLE) + 'commit = "266273eaf4d9 of 6.19"', "twelve digits"),
        (FILE.format(**WHOLE) + 'fixes = "deadbeef"', "twelve digits"),
        (FILE.format(**WHOLE) + 'own = ["no-such-workload"]', "no workload 'no-such-workload'"),
        (FILE.format(**WHOLE) + 'stable = ["6.12.x"]', "not a release"),
        ('summary = "x"', "missing required field"),
        ("\x00", "x.toml"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "resource", lambda *_: tmp_path)
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(UsageError, match=re.escape(says)) as told:
        bugs()
    assert "x.toml" in told.value.what


def test_a_whole_file_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "resource", lambda *_: tmp_path)
    (tmp_path / "x.toml").write_text(FILE.format(**WHOLE) + 'stable = ["6.12.114 0123456789ab"]')
    assert bugs()["x"].before == WHOLE["before"]


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    name = next(iter(ALL))
    with pytest.raises(UsageError, match="no bug") as told:
        select_bugs([name + "x"], [])
    assert name in told.value.next_step


def test_modes_leave_out_what_cannot_show_there() -> None:
    chosen = select_bugs([], ["btrfs/default"])
    assert chosen
    assert all(b.modes == ("btrfs/default",) for b in chosen)
    with pytest.raises(UsageError, match="no upstream bug shows"):
        select_bugs([], ["minix/default"])
