"""Which findings have one cause, and by which rule."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
import pytest

from harness.findings.causes import (
    CONTAINED,
    NOT_SHRUNK,
    OTHER_MODE,
    OTHER_NUMBERS,
    SAME_WORKLOAD,
    CauseMember,
    _matched,
    by_cause,
    contains,
)
from harness.model import CaseId
from harness.symptoms import Symptom, symptom_of

MISSING = Symptom("durability", "NAME: missing")
UNATTACHED = Symptom("fsck", "Unattached inode N")
NAMELESS = ("tmpfile foo 0", "fsync foo")
RENAMED = ("create foo", "rename foo bar", "fsync bar")


def member(minimal: tuple[str, ...], symptom: Symptom = MISSING, mode: str = "ext4/ordered") -> CauseMember:
    return CauseMember(
        run="run",
        kernel="debian-6.12",
        configuration=mode,
        workload="random1-1-20",
        point=f"{mode.replace('/', '-')}/random1-1-20@7",
        finding="0",
        symptom=symptom,
        summary="gone",
        operations=20,
        minimal=minimal,
    )


def test_a_symptom_has_neither_names_nor_numbers() -> None:
    paths = ("A", "A/foo", "A/foo2")
    assert symptom_of("size", "A/foo2: size after 12", paths) == Symptom("size", "NAME: size after N")
    assert (
        symptom_of("stale", "A/foo/bar/x-1: poison", paths).what == "NAME: poison"
    )  # A/foo has another name
    assert symptom_of("atomicity", "A/foo, A/foo2: links", paths).what == "NAME, NAME: links"
    assert symptom_of("readable", "statx A: EIO (5)", paths).what == "statx NAME: EIO (N)"
    assert symptom_of("fsck", "fsck: Entry 'x' in /d (12) is bad", ("x", "d")).what == (
        "fsck: Entry 'NAME' in /NAME (N) is bad"
    )
    assert symptom_of("fsck", "fsck: Inode N ref count", ()).what == "fsck: Inode N ref count"


@pytest.mark.parametrize(
    ("oracle", "signature", "symptom"),
    [
        ("durability", "data: data of operation 5 lost", "NAME: data of operation N lost"),
        ("durability", "3/f: data of operation 3 lost (sync)", "NAME: data of operation N lost (sync)"),
        ("readable", "statx 3: EIO (5)", "statx NAME: EIO (N)"),
        ("atomicity", "3, 5: links", "NAME, NAME: links"),
        ("kernel-log", "JBD2: Invalid checksum recovering data block 3", None),
        ("fsck", "fsck: A problem, inode N", None),
    ],
)
def test_a_file_that_is_called_as_a_word_of_ours_has_the_symptom_of_any_other(
    oracle: str, signature: str, symptom: str | None
) -> None:
    """A file called `data` had `NAME: NAME of operation N lost`, which no known bug and no known loss has."""
    expected = symptom or re.sub(r"\d+", "N", signature)
    assert symptom_of(oracle, signature, ("data", "problem", "A", "3", "3/f", "5")).what == expected


@pytest.mark.parametrize("mode", ["ext4/ordered", "xfs/default@writethrough", "ext4/ordered@raid1-0"])
def test_a_member_names_its_case_on_any_disk_and_stack(mode: str) -> None:
    """A campaign on another kind of disk ended with its first cause: the case was cut at the disk's @."""
    assert CaseId.parse(member(NAMELESS, mode=mode).case).configuration == mode


def test_two_causes_that_look_alike_stay_apart() -> None:
    """Both lose a name that fsync acknowledged; findings were folded by that alone."""
    assert [len(g.members) for g in by_cause([member(NAMELESS), member(RENAMED)])] == [1, 1]


@pytest.mark.parametrize(
    ("other", "rule"),
    [
        (member(NAMELESS, UNATTACHED), SAME_WORKLOAD),
        (member(NAMELESS, mode="ext4/journal"), OTHER_MODE),
        (member(("tmpfile foo 5000", "fsync foo")), OTHER_NUMBERS),
        (member(NAMELESS, UNATTACHED, "ext4/journal"), ""),
        (member(("tmpfile foo 5000", "fsync foo"), UNATTACHED), ""),
        (member(NAMELESS, mode="xfs/default"), ""),
    ],
)
def test_findings_come_together_by_a_rule(other: CauseMember, rule: str) -> None:
    causes = by_cause([member(NAMELESS), other])
    if rule:
        assert [g.rules for g in causes] == [("", rule)]
    else:
        assert [len(g.members) for g in causes] == [1, 1]


def test_what_was_not_shrunk_is_joined_with_nothing() -> None:
    causes = by_cause([member(()), member(()), member(NAMELESS)])
    assert sorted(g.rules for g in causes) == [("",), (NOT_SHRUNK,), (NOT_SHRUNK,)]
    assert len({g.name for g in causes}) == 3


LONGER = ("create foo", "tmpfile bar 77", "fsync bar", "append bar 4096", "fsync bar")


def showing(found: CauseMember, *symptoms: Symptom) -> CauseMember:
    return msgspec.structs.replace(found, shows=tuple((s, str(s)) for s in symptoms))


def test_a_further_symptom_that_needs_the_whole_smaller_workload_is_a_consequence() -> None:
    small = showing(member(NAMELESS), MISSING)
    large = showing(member(LONGER, UNATTACHED), UNATTACHED, MISSING)
    (cause,) = by_cause([large, small])
    assert (cause.smallest, cause.rules) == (small, ("", CONTAINED))


def test_one_that_does_not_show_the_smaller_ones_symptom_is_only_a_hint() -> None:
    first, second = by_cause(
        [showing(member(LONGER, UNATTACHED), UNATTACHED), showing(member(NAMELESS), MISSING)]
    )
    assert (first.contains, second.contains) == ((), (first.name,))
    assert first.smallest.minimal == NAMELESS


def test_another_modes_cause_is_no_hint() -> None:
    """Without barriers `mkdir A, sync` fails already; that says nothing about a mode with them."""
    causes = by_cause([member(LONGER, UNATTACHED), member(NAMELESS, mode="ext4/nobarrier")])
    assert [c.contains for c in causes] == [(), ()]


def test_a_part_has_the_same_names_in_the_same_places() -> None:
    assert contains(LONGER, NAMELESS)
    assert contains(NAMELESS, NAMELESS)
    assert not contains(NAMELESS, LONGER)
    assert not contains(("tmpfile foo 0", "create bar", "fsync bar"), NAMELESS)
    assert not contains(("rename foo foo",), ("rename foo bar",))
    assert contains(("create x", "create y", "fsync y"), ("create foo", "fsync foo"))


def test_what_syncs_more_stands_for_what_syncs_less() -> None:
    """One fault was two causes: after `fsync A` it breaks atomicity, after `sync` durability."""
    assert contains(("mkdir A", "create foo", "fsync A", "create bar"), ("create foo", "sync", "create bar"))
    assert contains(("create foo", "fdatasync foo"), ("create bar", "fsync bar"))
    assert not contains(("create foo", "sync"), ("create foo", "fsync foo"))
    assert not contains(("create foo", "create bar", "fdatasync foo"), ("tmpfile foo 0", "fsync foo"))


def test_equal_operations_are_not_tried_in_every_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty-four appends of which twelve were looked for took 3 million ways, and 12 s."""
    tried = 0

    def counted(operation: str, other: str, names: Mapping[str, str]) -> Mapping[str, str] | None:
        nonlocal tried
        tried += 1
        assert tried < 10_000
        return _matched(operation, other, names)

    monkeypatch.setattr("harness.findings.causes._matched", counted)
    long, short = ("append f 4096",) * 24, ("append f 4096",) * 12
    assert not contains((*long, "fsync f"), (*short, "fdatasync f"))
    assert contains((*long, "fdatasync f"), (*short, "fsync f"))


def test_the_largest_group_comes_first_and_its_smallest_member_leads() -> None:
    big = [member(("tmpfile foo 5000", "fsync foo")), member(NAMELESS, UNATTACHED), member(NAMELESS)]
    causes = by_cause([member(RENAMED), *big])
    assert [len(g.members) for g in causes] == [3, 1]
    assert causes[0].symptoms == (UNATTACHED, MISSING)
    assert causes[0].name == "ext4-ordered-tmpfile-fsync"
