"""The base of known bugs: its files."""

from __future__ import annotations

import re
from collections.abc import Collection
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.expectations import first_match, known_losses, read_expectations
from harness.filesystems.disks import disks
from harness.filesystems.layers import layers
from harness.filesystems.profiles import profiles
from harness.filesystems.stacks import stacks
from harness.findings.bug_report import bug_reports, findings_folder
from harness.host.resources import resource
from harness.known.base import Sighting, installed, never_seen, read_known, version_of, with_bugs
from harness.known.match import Match
from harness.known.words import NEW, about, brief, details, named
from harness.model import CaseId
from harness.oracles import ORACLES
from harness.oracles.honesty import Seen
from harness.symptoms import Symptom

OURS = """
[[bug]]
name = "xfs-sync-no-flush"
title = "ours"
[bug.record]
severity = "cosmetic"
mechanism = "m"
first = "6.1"
[[bug.record.shows]]
modes = ["xfs/*"]
oracles = ["durability"]
symptoms = ["NAME: missing"]
"""


def test_every_bug_report_has_a_record() -> None:
    assert not [slug for slug in bug_reports(findings_folder()) if slug not in installed()]


def test_records_name_oracles_that_exist_and_modes_that_some_mode_is() -> None:
    above_or_below = {*stacks(), *layers(), *disks()}
    for bug in installed().values():
        for sighting in bug.record.shows:
            assert set(sighting.oracles) <= set(ORACLES), bug.name
            for mode in sighting.modes:
                plain, _, stack = mode.partition("@")
                assert any(fnmatchcase(name, plain) for name in profiles()), (bug.name, mode)
                assert not stack or any(fnmatchcase(name, stack) for name in above_or_below), (bug.name, mode)


BEGIN = {
    "assembles": ("start: ",),
    "fsck": ("fsck: ",),
    "honesty": tuple(f"{what}: " for what in Seen),
    "mountable": ("mount: ", "lost: ", "hangs: "),
    "program": ("check N: ",),
}
"""How all symptoms of an oracle begin."""


def test_every_sighting_is_one_that_a_finding_can_be() -> None:
    """Of XFS's refused mount the record had what fsck says, under --disk, where honesty alone judges: each of
    its findings was new, and failed a run with --new-only.
    """
    for bug in installed().values():
        for sighting in bug.record.shows:
            assert not never_seen(sighting), bug.name
            assert not _never_shown(sighting.oracles, sighting.symptoms), bug.name


def test_every_expected_failure_is_one_that_a_finding_can_be() -> None:
    """Of ext4/fast_commit a list had what fsck says, without the oracle's name before it."""
    lists = sorted(resource("vms", "filesystems").glob("*.expected"))
    lines = [line for file in lists for line in read_expectations(file) if line.symptoms]
    assert lines
    for line in lines:
        assert not _never_shown(line.oracle.split(","), line.symptoms), (line.origin, str(line))


def test_no_expected_failure_goes_by_its_oracle_alone() -> None:
    """20 lines did: whatever that oracle found in such a mode, another bug as well, was known. What a mode
    without flushes loses has `lost-writes` beside the oracle: nothing where all was written.
    """
    lists = sorted(resource("vms", "filesystems").glob("*.expected"))
    alone = [line.origin for file in lists for line in read_expectations(file)
             if not (line.lost_writes or any(s.strip("*?") for s in line.symptoms))]  # fmt: skip
    assert lists
    assert not alone


@pytest.mark.parametrize(
    ("mode", "known", "other"),
    [
        ("ext4/noauto_da_alloc", "size: NAME: size too small, settle", "size: NAME: size too large, write"),
        ("ext4/writeback-nodelalloc", "stale: NAME: poison", "stale: NAME: data from the future"),
        ("ext4/no-journal", "fsck: fsck: Inode bitmap differences:  -N", "fsck: fsck: exit code N"),
        ("ext4/no-journal", "fsck: fsck: Entry 'x' in /NAME (N) has deleted/unused inode N.  Clear? no",
         "fsck: fsck: Superblock checksum does not match superblock"),
        ("ext4/no-journal", "readable: statx NAME: EBADMSG (N)", "readable: readlink NAME: EIO (N)"),
        ("ext4/no-journal",
         "kernel-log: EXTN-fs error (device vda): extN_lookup:N: inode #N: comm init: iget: checksum invalid",
         "kernel-log: WARNING: CPU: N PID: N at fs/extN/inode.c:N"),
        ("reiserfs/ordered", "durability: names undone after N", "durability: NAME: missing"),
        ("reiserfs/journal", "durability: NAME: zeroing lost", "contents: NAME: zeros out of place"),
        ("minix/default", "readable: statx NAME: EIO (N)", "readable: NAME: EIO"),
        ("f2fs/read-only-first", "durability: NAME: undone", "durability: NAME: blocks freed"),
        ("ext4/fast_commit-fsck-first", "durability: NAME: missing", "durability: NAME: blocks freed"),
        ("ntfs3/force", "readable: statx NAME: EINVAL (N)", "readable: read NAME: EIO (N)"),
        ("ntfs/unchecked", "usable: mount: read-only", "usable: mount: EINVAL"),
        ("ntfs/unchecked", "readable: statx NAME: ENOENT (N)", "readable: read NAME: EIO (N)"),
        ("ext4/ordered@nfs-async", "durability: names undone after N", "durability: NAME: blocks freed"),
        ("f2fs/posix", "stale: NAME: poison", "stale: NAME: data from the future"),
        ("ext4/journal_async_commit", "mountable: mount: EBADMSG", "mountable: mount: EUCLEAN"),
        ("ext4/journal_async_commit", "kernel-log: JBDN: journal recovery failed",
         "kernel-log: EXTN-fs error (device vda): extN_lookup:N: inode #N: comm a: iget: checksum invalid"),
        ("ext4/journal_async_commit", "fsck: fsck: Unattached inode N", "fsck: fsck: exit code N"),
        ("ext4/journal_async_commit-nocsum", "stale: NAME: poison", "stale: NAME: data from the future"),
    ],
)  # fmt: skip
def test_a_mode_that_is_known_to_lose_something_is_not_known_to_lose_the_rest(
    mode: str, known: str, other: str
) -> None:
    filesystem, _, of_it = mode.partition("/")
    case = CaseId(filesystem, of_it, "random-7")
    for told, is_known in ((known, True), (other, False)):
        found = Symptom(*told.split(": ", 1))
        assert bool(first_match(known_losses(), case, found)) is is_known, told


def _never_shown(oracles: Collection[str], symptoms: Collection[str]) -> list[str]:
    """Symptoms that none of the oracles says, and oracles that say none of the symptoms."""
    known = BEGIN.keys() & set(oracles)
    silent = [o for o in known if not any(s.startswith(("*", *BEGIN[o])) for s in symptoms)]
    if len(known) < len(oracles):  # one of them has no words of its own
        return silent
    begun = tuple(begin for oracle in oracles for begin in BEGIN[oracle])
    return silent + [s for s in symptoms if not s.startswith(("*", *begun))]


def test_each_bug_says_what_to_do_and_how_likely_it_is() -> None:
    assert not [b.name for b in installed().values() if not (b.record.workaround and b.record.likely)]


def test_what_a_bug_shows_is_told_in_words_before_any_pattern() -> None:
    """ "shows" had regular expressions of 300 characters."""
    for bug in installed().values():
        told = list(about(bug))
        patterns = [s for shown in bug.record.shows for s in (shown.says, shown.operations, shown.later) if s]
        assert not [text for what, text in told if what == "shows" and any(p in text for p in patterns)]
        last = told[len(told) - len(patterns) :]
        assert [text.endswith(p) for (_, text), p in zip(last, patterns, strict=True)] == [True] * len(last)


def test_a_file_of_the_user_adds_bugs_and_replaces_those_of_the_same_name(tmp_path: Path) -> None:
    file = tmp_path / "known.toml"
    file.write_text(OURS + OURS.replace("xfs-sync-no-flush", "other"))
    base = with_bugs(read_known(file, ORACLES))
    assert base["xfs-sync-no-flush"].title == "ours"
    assert set(base) == {*installed(), "other"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('symptoms = ["NAME: missing"]', "symptoms = []"),
        ('symptoms = ["NAME: missing"]', 'symptoms = ["*"]'),
        ('symptoms = ["NAME: missing"]', 'symptoms = ["a"]\noperations = "("'),
        ('symptoms = ["NAME: missing"]', 'symptoms = ["a"]\nsays = "("'),
        ('oracles = ["durability"]', 'oracles = ["durabilty"]'),
        ('first = "6.1"', 'first = "six"'),
        ('severity = "cosmetic"', 'severity = "bad"'),
        ('mechanism = "m"', 'mechanism = "m"\nunknown = 1'),
    ],
)
def test_a_bug_that_would_match_by_oracle_alone_or_does_not_parse_is_refused(
    tmp_path: Path, old: str, new: str
) -> None:
    file = tmp_path / "known.toml"
    file.write_text(OURS.replace(old, new))
    with pytest.raises(UsageError, match=r"known\.toml"):
        read_known(file, ORACLES)


def of_operations(expression: str) -> Sighting:
    return Sighting(modes=("*",), oracles=("size",), symptoms=("NAME",), operations=expression)


@pytest.mark.parametrize(
    "expression",
    [
        r"(.*\n?)*fsync",
        r"(.*.*\n)*fsync",
        r"(.*\n|.*\n)*fsync",
        r"(?s)(.*\n)*fsync",
        r"(?s:.*\n)*fsync",
        r"((?s:.*)\n)*fsync",
        r"((.*\n)*x\n)*fsync",
        r"(?:[^x]*\n)*fsync",
        r"(?:(?:open|open-tmpfile).*\n)*fsync",
        r"(?i)(?:ab|AB)*fsync",
        r"(\S+\s*)*fsync",
        r"(a+)+b",
        r"(a|ab|b)*c",
        r"(a?a)*b",
        r"(a*){30}b",
        r"(?>(a+)+b)",
        r"(?!(a+)+b)",
    ],
)
def test_an_expression_with_which_a_search_may_never_end_is_refused(expression: str) -> None:
    """The base only warned of them, and those of a run directory are somebody else's."""
    with pytest.raises(ValueError, match="more ways than one, so that a search may never end"):
        of_operations(expression)


@pytest.mark.parametrize(
    "expression",
    [
        r"(?:(?:open|open-tmpfile) .*\n)*fsync",
        r"(?:(?!x|xy).*\n)*?fsync",
        r"(?:\n.*)*",
        r"(?:.*\n){24}",
        r"(?:a|b)*c",
        r"(?>a+)+b",
        r"(f(data)?sync|f)",
    ],
)
def test_an_expression_over_lines_that_can_be_read_in_one_way_is_none_of_them(expression: str) -> None:
    text = "open f @h\n" * 300 + "x"
    re.search(of_operations(expression).operations, text)  # it ends


@pytest.mark.parametrize(
    ("sighting", "why"),
    [
        ('oracles = ["durability"]\nduring = "faulty-disk"', "durability does not judge a faulty-disk"),
        ('oracles = ["durability", "confluence"]', "confluence is for cut-recovery, and not for power-cut"),
        ('oracles = ["honesty"]\nduring = "cut-recovery"', "honesty is for faulty-disk, and not for cut-"),
    ],
)
def test_an_oracle_that_does_not_judge_what_went_wrong_is_refused(
    tmp_path: Path, sighting: str, why: str
) -> None:
    """Such a bug was read, and matched nothing."""
    file = tmp_path / "known.toml"
    file.write_text(OURS.replace('oracles = ["durability"]', sighting))
    with pytest.raises(UsageError, match=f"known.toml: xfs-sync-no-flush: {why}"):
        read_known(file, ORACLES)


def test_an_oracle_that_does_not_exist_is_told_with_one_that_does(tmp_path: Path) -> None:
    """A bug with a mistyped oracle was read, and matched nothing."""
    file = tmp_path / "known.toml"
    file.write_text(OURS.replace("durability", "durabilty"))
    with pytest.raises(UsageError, match="no oracle is called durabilty") as told:
        read_known(file, ORACLES)
    assert told.value.next_step == "did you mean durability?"


def test_versions() -> None:
    assert version_of("6.12.117+deb12-amd64") == (6, 12, 117)
    assert version_of("7.3-rc1") == (7, 3)
    assert version_of("") == ()


def test_words() -> None:
    bug = installed()["xfs-attr-replace-fsync"]
    assert (
        brief(bug) == "xfs-attr-replace-fsync (loses data that was synced; seen from 6.12 on, mended in 6.18)"
    )
    assert named(None) == NEW
    assert named(Match(bug, ())).startswith("known: xfs-attr-replace-fsync (")
    lines = list(details(Match(bug, ("symptom", "mode"))))
    assert lines[1] == "compared: symptom, mode; the cause was not"
    assert lines[2].startswith("workaround: ")
    assert dict(about(bug))["mechanism"] == bug.record.mechanism
