"""Which known bug a finding is."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from msgspec import structs

import harness
from harness.expectations import first_match, known_losses, parse_expectations
from harness.explain import mechanism
from harness.explain.mechanism import Mechanism
from harness.filesystems.profiles import profiles, select_profiles
from harness.known.base import NOT_NAMED, During, KnownBug, Record, Severity, Sighting, installed
from harness.known.match import LoggedOperation, Match, Observed, known_of, match, possible
from harness.model import (
    CaseId,
    CrashPoint,
    CrashState,
    FsckClass,
    FsckResult,
    Outcome,
    Position,
    Violation,
)
from harness.oracles import MAX_VIOLATIONS, Judge
from harness.store.meaning import Meaning
from harness.store.records import Finding
from harness.symptoms import Symptom, paths_of, symptom_of
from harness.tests.oracles.cases import file, history, tree, written
from harness.workloads.load import parse_operation, select_workloads

FAULTS = Path(harness.__file__).parent.parent / "reports" / "examples" / "faults" / "faults.json"
OPERATIONS = ("create f", "append f 4096", "sync", "write f 0 4096", "sync")
SYNC_LOST = Symptom("durability", "NAME: data of operation N lost (sync)")


def observed(
    what: Symptom = SYNC_LOST,
    *,
    mode: str = "default",
    kernel: str = "6.12.117+deb12-amd64",
    operations: Sequence[str] = OPERATIONS,
    state: str = "@40",
    flushed: bool = False,
    cause: str | None = "",
    promised: int = 4,
    spared: str = "",
) -> Observed:
    """A finding on XFS after a sync of an overwrite; each operation takes five entries of the log."""
    summary = f"f: zeros, acknowledged by `{operations[promised]}` (operation {promised})"
    ran = [LoggedOperation(text, 5 * n, 5 * n + 4) for n, text in enumerate(operations)]
    violation = Violation(what.oracle, "f", summary, "", "", "")
    return Observed(
        CaseId("xfs", mode, "any"), what, CrashState.parse(state), violation, kernel, ran,
        lambda begin, end: flushed, lambda: cause, CrashState.parse(spared) if spared else None,
    )  # fmt: skip


def name_of(seen: Observed) -> str:
    found = match(installed().values(), seen)
    return found.bug.name if found else ""


def test_a_finding_that_agrees_in_everything_is_the_known_bug() -> None:
    assert name_of(observed()) == "xfs-sync-no-flush"


@pytest.mark.parametrize(
    "other",
    [
        observed(Symptom("durability", "NAME: data of operation N lost")),
        observed(Symptom("size", SYNC_LOST.what)),
        observed(flushed=True),
        observed(operations=(*OPERATIONS[:4], "fsync f")),
        observed(state="@40@t3="),
        observed(kernel="5.10.1"),
        observed(kernel=""),
    ],
    ids=["symptom", "oracle", "flush", "operation", "cut recovery", "kernel before", "kernel unknown"],
)
def test_a_finding_that_differs_in_one_thing_is_new(other: Observed) -> None:
    """The same oracle in the same mode is not enough: a planted fault there has to stay new."""
    assert name_of(other) == ""


def test_the_match_names_what_was_compared_and_nothing_else() -> None:
    found = match(installed().values(), observed())
    assert found is not None
    assert found.compared == ("symptom", "mode", "kernel version", "operations", "flushes")
    bare = KnownBug(name="a", title="b", record=Record(
        severity=Severity.COSMETIC, mechanism="c", first="6.1",
        shows=(Sighting(modes=("xfs/*",), oracles=("durability",), symptoms=("NAME: data*",)),)))  # fmt: skip
    assert match([bare], observed()) == Match(bare, ("symptom", "mode", "kernel version"))


def test_another_cause_than_the_bugs_is_new_once_the_finding_was_explained() -> None:
    """A fault planted in the same mode has the same symptom: its cause alone tells it apart."""
    bug = KnownBug(name="a", title="b", record=Record(
        severity=Severity.COSMETIC, mechanism="c", first="6.1",
        shows=(Sighting(modes=("xfs/*",), oracles=("durability",), symptoms=("NAME: data*",),
                        causes=("No flush at all",)),)))  # fmt: skip
    compared = ("symptom", "mode", "kernel version")
    assert match([bug], observed()) == Match(bug, compared), "not explained, and it says so"
    assert match([bug], observed(cause="No flush at all")) == Match(bug, (*compared, "cause"))
    assert match([bug], observed(cause="Torn write")) is None
    assert match([bug], observed(cause=None)) is None, "explained, and none of the causes that are told"
    shows = (structs.replace(bug.record.shows[0], causes=(NOT_NAMED,)),)
    untold = structs.replace(bug, record=structs.replace(bug.record, shows=shows))
    assert match([untold], observed(cause=None)) == Match(untold, (*compared, "cause"))
    assert match([untold], observed(cause="No flush at all")) is None


def stale_in(mode: str) -> Observed:
    """What one flush for data and node shows on F2FS, in this mode of whatever file system."""
    filesystem, _, of_it = mode.partition("/")
    seen = observed(Symptom("stale", "NAME: poison"), operations=(*OPERATIONS[:4], "fsync f"))
    return replace(seen, case=CaseId(filesystem, of_it, "any"))


@pytest.mark.parametrize(
    ("mode", "known"),
    [
        ("f2fs/posix", True), ("f2fs/posix@4k", True), ("f2fs/posix@raid1", True),
        ("f2fs/posix@overlay", True), ("f2fs/nobarrier", False), ("f2fs/nobarrier@raid1", False),
        ("f2fs/nobarrier@loop", False), ("f2fs/posix@loop", False), ("f2fs/posix@loop-direct@4k", False),
    ],
)  # fmt: skip
def test_a_bug_of_all_modes_explains_neither_one_without_flushes_nor_a_file_system_in_a_file(
    mode: str, *, known: bool
) -> None:
    """ext4 in a file of f2fs/nobarrier was told to have a bug of F2FS."""
    assert (name_of(stale_in(mode)) == "f2fs-fsync-stale-data") is known
    has = {bug.name for bug in known_of(installed().values(), stale_in(mode).case, "7.3.4")}
    assert ("f2fs-fsync-stale-data" in has) is known


APART = ("f2fs/posix", "f2fs/posix@overlay", "f2fs/posix@loop", "f2fs/posix@loop-direct", "f2fs/nobarrier",
         "f2fs/nobarrier@loop", "ext4/ordered", "ext4/performance")  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [
        ("f2fs/nobarrier", {"f2fs/nobarrier"}), ("f2fs/*@loop", {"f2fs/posix@loop"}),
        ("f2fs/*@loop*", {"f2fs/posix@loop", "f2fs/posix@loop-direct"}),
        ("*/nobarrier@loop", {"f2fs/nobarrier@loop"}), ("f2fs/*", {"f2fs/posix", "f2fs/posix@overlay"}),
        ("ext4/*", {"ext4/ordered"}), ("ext4/performance", {"ext4/performance"}), ("*", set(APART)),
        ("f2fs/*@*", {"f2fs/posix@overlay", "f2fs/posix@loop", "f2fs/posix@loop-direct"}),
    ],
)  # fmt: skip
def test_a_record_or_an_expectation_that_says_so_explains_them(pattern: str, covered: set[str]) -> None:
    """Files of `--expect`, and known losses as `faults` and `regressions` take them, had rules of their own:
    a line about xfs/* expected what ext4 in a file of XFS loses.
    """
    bug = KnownBug(name="a", title="b", record=Record(
        severity=Severity.COSMETIC, mechanism="c", first="6.1",
        shows=(Sighting(modes=(pattern,), oracles=("stale",), symptoms=("NAME: poison",)),)))  # fmt: skip
    assert {mode for mode in APART if match([bug], stale_in(mode))} == covered
    (line,) = parse_expectations(f'{pattern} * stale "NAME: poison"  # known\n', "f")
    assert {mode for mode in APART if line.matches(stale_in(mode).case, stale_in(mode).symptom)} == covered


@pytest.mark.parametrize(
    ("mode", "loss"),
    [("posix", "a node block"), ("nobarrier", "no flush"), ("posix@loop", ""), ("nobarrier@loop", "")],
)
def test_what_modes_are_known_to_lose_is_not_known_of_a_file_system_in_a_file(mode: str, loss: str) -> None:
    """Else a finding that is no known bug of F2FS were a known loss of it, for the same reason."""
    violation = Violation("stale", "f", "f: poison", "", "", "")
    found = Finding(
        CaseId("f2fs", mode, "any"), "stale", "f: poison", CrashState(9), (violation,), 1, what="NAME: poison"
    )
    told = Meaning((), (), new_only=False, kernel="6.12").given_to(found, [], lambda *_: True, lambda: "")
    assert told.loss.startswith(loss) and bool(told.loss) is bool(loss)
    expected = first_match(known_losses(), found.case, found.symptom)
    assert (expected.reason if expected else "") == told.loss, "as `faults` and `regressions` expect it"


def test_a_mode_that_sends_no_flushes_says_so_in_its_summary() -> None:
    told = {p.name for p in profiles().values() if re.search("no (cache flush|barriers)", p.summary)}
    assert len(told) > 4
    assert told == {p.name for p in profiles().values() if p.apart}


@pytest.mark.parametrize(
    ("operations", "name"),
    [
        (("create f", "truncate f 16K", "mmap-write f 4K 4K", "remount"), "gfs2-unmount-drops-stores"),
        (("create f", "truncate f 16K", "write f 4K 4K", "remount"), "gfs2-log-header"),
    ],
)
def test_of_several_bugs_it_is_the_one_that_states_most(operations: tuple[str, ...], name: str) -> None:
    """Old contents after an unmount were given to the bug that comes first by its name."""
    seen = observed(Symptom("stale", "NAME: poison"), operations=operations, promised=3)
    assert name_of(replace(seen, case=CaseId("gfs2", "default", "any"))) == name
    mended = replace(seen, case=CaseId("gfs2", "default", "any"), kernel="7.2.12")
    assert name_of(mended) == "gfs2-log-header"


@pytest.mark.parametrize(
    ("oracle", "what"),
    [("readable", "statx NAME: EIO (N)"), ("size", "NAME: size too small, write"),
     ("durability", "names undone after N")],
)  # fmt: skip
def test_what_gfs2s_log_leaves_unreadable_or_undone_is_known_unless_it_has_another_cause(
    oracle: str, what: str
) -> None:
    """Each was a new finding in some schedules. What else makes a file unreadable has to stay one."""
    seen = replace(observed(Symptom(oracle, what)), case=CaseId("gfs2", "default", "any"))
    assert name_of(seen) == "gfs2-log-header"
    assert name_of(replace(seen, cause=lambda: "Record ahead of its blocks")) == "gfs2-log-header"
    assert name_of(replace(seen, cause=lambda: "Acknowledged without a commit")) == ""
    assert name_of(replace(seen, symptom=Symptom(oracle, what.replace("EIO", "ENOENT") + ", x"))) == ""
    assert name_of(replace(seen, case=CaseId("vfat", "default", "any"))) == ""
    assert name_of(replace(seen, state=CrashState.parse("@40@t3="))) == ""


@pytest.mark.parametrize("what", ["NAME: size too large, zero", "NAME: size too small, shift"])
@pytest.mark.parametrize(
    ("between", "cause", "name"),
    [
        ((), "", "f2fs-fsync-first-node"),
        ((), "Flush sent while the write was in flight", "f2fs-fsync-first-node"),
        (("fsync g",), "", "f2fs-fsync-first-node"),
        ((), "No flush at all", ""),
        (("append g 4096", "fsync g"), "", ""),
    ],
)
def test_a_size_that_f2fs_lost_is_the_bug_of_the_first_fsync_only_if_that_was_the_first(
    between: tuple[str, ...], cause: str, name: str, what: str
) -> None:
    """`size N is too large` was new. A second fsync after a checkpoint waits: it is the script's control."""
    before = ("create f", "create g", "append f 12288", "sync", *between)
    operations = (*before, "truncate f 4096", "fsync f", "truncate f 100")
    seen = observed(Symptom("size", what), operations=operations, state="@90", cause=cause)
    lost = Violation("size", "f", "f: size 12288 is too large; `truncate f 100` is there", "", "", "")
    assert name_of(replace(seen, case=CaseId("f2fs", "posix", "any"), violation=lost)) == name


FIRST_IN_NEW = ("mkdir s", "create s/log", "append s/log 4096", "fdatasync s/log")


@pytest.mark.parametrize(
    ("mode", "workload", "symptom", "has", "mended"),
    [
        ("xfs/realtime", "any", "stale: NAME: poison", "6.18.15", "7.3.4"),
        ("btrfs/default", "nameless-named", "durability: NAME: size after N", "6.12.117", "6.16.3"),
        ("btrfs/default", "held-file", "durability: NAME: size after N", "7.3.4", "6.12.117"),
        ("ext4/external-journal", "any", "durability: NAME: data of operation N lost", "6.12.117", "6.17.5"),
        ("vfat/default", "mkdir-fsync-file-inside", "durability: NAME: size after N", "7.2.12", "7.3.4"),
        ("hfsplus/default", "any", "readable: listxattr: ENODATA (N)", "6.12.117", "7.3.4"),
        ("xfs/default", "sync-overwrite", "durability: NAME: data of operation N lost (sync)", "6.1.1", ""),
    ],
)
def test_a_loss_is_not_known_of_a_kernel_that_is_mended(
    mode: str, workload: str, symptom: str, has: str, mended: str
) -> None:
    """What such a kernel loses again was told as the loss that it once had. A record's first version is the
    first that was looked at, unless it says where the bug comes from: XFS of 6.1 does not flush either.
    """
    filesystem, _, of_it = mode.partition("/")
    oracle, _, what = symptom.partition(": ")
    violation = Violation(oracle, "f", "f: gone", "", "", "")
    case, state = CaseId(filesystem, of_it, workload), CrashState.parse("@t200-190")
    found = Finding(case, oracle, "f: gone", state, (violation,), 1, what=what)
    for kernel, known in ((has, True), (mended, False)):
        for lines in ((), tuple(known_losses())):  # a run's own expectations, as a series gives them
            told = Meaning(lines, (), new_only=False, kernel=kernel)
            meant = told.given_to(found, [], lambda *_: True, lambda: "")
            assert not kernel or bool(meant.loss or meant.expectation) is known


@pytest.mark.parametrize("mode", ["xfs/default", "f2fs/posix"])
def test_a_sync_that_does_not_flush_loses_nothing_where_all_was_written(mode: str) -> None:
    filesystem, _, of_it = mode.partition("/")
    case = CaseId(filesystem, of_it, "random-1")
    lines = [e for e in known_losses() if e.symptoms]
    assert first_match(lines, case, SYNC_LOST, CrashState.parse("@t200-190")) is not None
    assert first_match(lines, case, SYNC_LOST, CrashState.parse("@t200")) is None


def test_every_bug_that_a_known_loss_names_has_a_record() -> None:
    named = re.compile(r"(?:reports/findings|kernels/regressions)/([\w-]+)")
    assert {name for line in known_losses() for name in named.findall(line.reason)} <= installed().keys()


@pytest.mark.parametrize(
    ("before", "name"),
    [
        (FIRST_IN_NEW, "f2fs-fsync-first-node"),
        (("sync", "create f", "fsync f", *FIRST_IN_NEW), "f2fs-fsync-first-node"),
        (("mkdir s", "create f", "link f g", "fsync f", *FIRST_IN_NEW[1:]), ""),
        ((*FIRST_IN_NEW, "create other", "fsync other"), ""),
        ((*FIRST_IN_NEW, "append s/log 4096", "fdatasync s/log"), ""),
        (("mkdir s", "create log", "fdatasync log"), ""),
        (("mkdir s", "create s/log", "sync", "fdatasync s/log", "create f", "fsync f"), ""),
    ],
)
def test_the_first_sync_of_a_file_in_a_new_directory_is_a_checkpoint_of_f2fs(
    before: tuple[str, ...], name: str
) -> None:
    """The node of the directory is in no checkpoint (need_do_checkpoint): the next fsync has number 0 again.
    It was told as a loss of the mode.
    """
    operations = (*before, "create s/snap", "append s/snap 9000", "fdatasync s/snap", "unlink s/log")
    seen = observed(Symptom("durability", "NAME: missing"), operations=operations, state="@90")
    seen = replace(seen, case=CaseId("f2fs", "posix", "any"))
    done = next(n for n, text in enumerate(operations) if text == "fdatasync s/snap")
    lost = f"s/snap: missing, although `fdatasync s/snap` (operation {done}) was acknowledged"
    assert name_of(replace(seen, violation=Violation("durability", "s/snap", lost, "", "", ""))) == name


NAMELESS = ("open-tmpfile . @257", "write @257 5000", "fsync @257", "link @257 f", "fsync .")
SWAPPED = (
    "create f",
    "fsync f",
    "create g",
    "write g 5000",
    "fsync g",
    "exchange g f",
    "fsync f",
    "unlink g",
)
HELD_AND_SWAPPED = ("open f @3", "write @3 0 9 dsync", "exchange g f", "fsync @3", "close @3")
F2FS, BTRFS = CaseId("f2fs", "posix", "my-db"), CaseId("btrfs", "default", "my-db")


@pytest.mark.parametrize(
    ("case", "kernel", "cause", "ran", "names", "others"),
    [
        (
            F2FS,
            "6.12.117",
            "Flush sent while the write was in flight",
            (),
            {"f2fs-fsync-first-node", "f2fs-atomic-fsync"},
            True,
        ),
        (
            F2FS,
            "6.12.117",
            "flush sent while the write was in flight",
            NAMELESS,
            {"f2fs-fsync-first-node"},
            True,
        ),
        (BTRFS, "6.12.117", "", NAMELESS, {"btrfs-nameless-fsync"}, True),
        (
            BTRFS,
            "6.12.117",
            "",
            (*NAMELESS, *(f"unlink {n}" for n in range(9))),
            {"btrfs-nameless-fsync"},
            True,
        ),
        (BTRFS, "6.16.3", "", SWAPPED, {"btrfs-fsync-exchanged"}, True),
        (BTRFS, "6.16.3", "", HELD_AND_SWAPPED, {"btrfs-fsync-exchanged"}, True),
        (BTRFS, "6.12.117", "", (), {"btrfs-nameless-fsync", "btrfs-fsync-exchanged"}, False),
        (BTRFS, "6.16.3", "", ("sync",), {"btrfs-fsync-exchanged"}, False),
        (replace(BTRFS, filesystem="xfs"), "6.12.117", "Torn write", (), set(), True),
        (F2FS, "", "", (), set(), True),
    ],
)
def test_what_a_program_lost_may_be_a_bug_of_this_mode_kernel_and_cause(
    case: CaseId, kernel: str, cause: str, ran: Sequence[str], names: set[str], *, others: bool
) -> None:
    """A program's own check met `btrfs-nameless-fsync`, and nothing named it. None of these makes it known: a
    planted fault in the same mode would be, too.
    """
    found = {bug.name for bug in possible(installed().values(), case, kernel, cause, ran)}
    assert names <= found
    assert not others or names == found
    assert "f2fs-fsync-stale-data" not in found, "it loses nothing that was synced"
    assert "btrfs-nameless-fsync" not in found or kernel == "6.12.117"
    seen = observed(Symptom("program", "check N: exit code N"), cause=cause, operations=("run my-db",) * 5)
    assert name_of(replace(seen, case=case, kernel=kernel)) == ""


def test_what_is_not_listed_of_many_violations_is_the_bug_that_these_are() -> None:
    """Of thirty files that sync had lost, the line that counts ten of them was a new finding."""
    thirty = [f"{call} f{n}{more}" for n in range(30) for call, more in (("create", ""), ("append", " 4096"))]
    texts = [*thirty, "sync", *(f"write f{n} 0 4096" for n in range(30)), "sync"]
    operations = [parse_operation(text) for text in texts]
    (xfs,) = select_profiles(["xfs/default"])
    files = [file(f"f{n}", written(2 * n + 1, 0, 4096), inode=100 + n) for n in range(30)]
    end = Position(len(texts), len(texts))
    came_back = Outcome(tree=tree(*files), fsck=FsckResult(FsckClass.CLEAN, 0, ""))
    done = Judge(xfs.contract, history(texts), error_patterns=()).judge(end, came_back)
    lost = [v for v in done.violations if v.oracle == "durability"]
    assert len(lost) == MAX_VIOLATIONS + 1
    for v in lost:
        what = symptom_of(v.oracle, v.signature, paths_of(operations))
        seen = observed(what, operations=texts, state=f"@{5 * len(texts)}", promised=91)
        assert name_of(replace(seen, violation=v)) == "xfs-sync-no-flush", v.summary


HELD = ("create f", "open f @h", "unlink f", "append @h 4096", "fsync @h")
CREATED = (*(f"create f{n}" for n in range(30)), "append f0 4096", "fsync f0")


@pytest.mark.parametrize(
    ("operations", "found", "name"),
    [
        (HELD, "EUCLEAN; JBD2: journal recovery failed", "ext4-fast-commit-nameless"),
        (HELD, "EUCLEAN; JBD2: corrupted journal superblock", "ext4-fast-commit-area-full"),
        (CREATED, "EUCLEAN; JBD2: corrupted journal superblock", "ext4-fast-commit-area-full"),
        (CREATED, "EUCLEAN; JBD2: journal recovery failed", ""),
    ],
)
def test_a_mount_that_fails_is_the_bug_of_which_the_kernel_speaks(
    operations: tuple[str, ...], found: str, name: str
) -> None:
    """A full area was new but for appends with O_DSYNC, and a nameless file where it was renamed."""
    seen = observed(Symptom("mountable", "mount: EUCLEAN"), operations=operations, state="@90")
    said = Violation("mountable", "mount", "mount fails with EUCLEAN", "", found, "")
    assert name_of(replace(seen, case=CaseId("ext4", "fast_commit", "any"), violation=said)) == name


@pytest.mark.parametrize(
    ("state", "known"),
    [("@t190-3", True), ("@t190=", True), ("@190-3", True), ("@t190", False), ("@190", False)],
)
def test_a_bug_that_takes_a_lost_write_is_not_known_where_none_is_lost(state: str, *, known: bool) -> None:
    seen = observed(Symptom("size", "NAME: size after N"), operations=CREATED, state=state, promised=31)
    case = CaseId("ext4", "fast_commit", "any")
    assert (name_of(replace(seen, case=case)) == "ext4-fast-commit-not-flushed") is known


@pytest.mark.parametrize(
    ("state", "known"),
    [("@t90", True), ("@90", True), ("@t90-3", False), ("@t90=", False), ("@90/t3", False)],
)
def test_a_bug_of_recovery_is_not_known_where_the_disk_has_lost_writes(state: str, *, known: bool) -> None:
    """JFS flushes nothing: what it loses so is a loss of the mode. That its log is not replayed is a bug."""
    undone = Symptom("durability", "names undone after N")
    seen = observed(undone, operations=CREATED, state=state, promised=31)
    case = CaseId("jfs", "default", "any")
    assert (name_of(replace(seen, case=case)) == "jfsutils-log-not-replayed") is known


@pytest.mark.parametrize(
    ("state", "known"), [("@40", True), ("@t40-3", True), ("@t40=", True), ("@t40", False)]
)
@pytest.mark.parametrize(
    ("bug", "mode", "symptom", "kernel"),
    [
        ("ext4-external-journal-no-flush", "ext4/external-journal", "stale: NAME: poison", "6.12.117"),
        ("ext4-external-journal-no-flush", "ext4/external-journal", "foreign: NAME: bytes nobody wrote",
         "6.12.117"),
        ("ext4-external-journal-no-flush", "ext4/external-journal",
         "durability: NAME: data of operation N lost (sync)", "6.12.117"),
        ("ext4-external-journal-stale-data", "ext4/external-journal", "stale: NAME: poison", "7.3.4"),
        ("xfs-realtime-no-flush", "xfs/realtime", "stale: NAME: poison", "6.12.117"),
        ("vfat-sync-no-flush", "vfat/default", "durability: NAME: missing (remount)", "6.12.117"),
        ("md-raid5-journal-tail", "ext4/ordered@raid5-journal", "durability: NAME: missing", "7.3.4"),
        ("md-raid5-journal-tail", "ext4/ordered@raid5-journal", "stale: NAME: poison", "7.3.4"),
        ("md-raid5-ppl-no-flush", "ext4/ordered@raid5-ppl", "durability: NAME: missing", "7.3.4"),
    ],
)  # fmt: skip
def test_a_bug_of_a_missing_flush_is_known_in_a_prefix_of_the_log(
    bug: str, mode: str, symptom: str, kernel: str, state: str, *, known: bool
) -> None:
    """A run without --states has no other states, and all that it found of these bugs was new."""
    oracle, _, what = symptom.partition(": ")
    filesystem, _, of_it = mode.partition("/")
    operations = ("create f", "append f 9", "remount")
    seen = observed(Symptom(oracle, what), kernel=kernel, operations=operations, promised=2, state=state)
    assert (name_of(replace(seen, case=CaseId(filesystem, of_it, "any"))) == bug) is known


def test_what_also_shows_where_nothing_is_lost_is_no_bug_that_takes_a_lost_write() -> None:
    """A finding is shown at `@t190=`, where all is lost, before `@t210`, where nothing is."""
    size = Symptom("size", "NAME: size after N")
    seen = observed(size, operations=CREATED, state="@t190=", promised=31)
    fast = CaseId("ext4", "fast_commit", "any")
    assert name_of(replace(seen, case=fast)) == "ext4-fast-commit-not-flushed"
    assert name_of(replace(seen, case=fast, spared=CrashState.parse("@t210"))) == ""
    jfs = replace(seen, case=CaseId("jfs", "default", "any"), symptom=Symptom("durability", size.what))
    assert name_of(jfs) == ""
    assert name_of(replace(jfs, spared=CrashState.parse("@t210"))) == "jfsutils-log-not-replayed"


TWO_NAMES = ("open-tmpfile d @h", "append @h 5", "link @h d/f", "fsync @h", "link @h d/g", "fdatasync @h")


@pytest.mark.parametrize("subject", ["d/f", "d/f or d/g", "d/e or d/f or d/g ... (9 in all)"])
def test_a_file_of_several_names_is_lost_by_any_of_them(subject: str) -> None:
    """`{lost}` was the whole list of names, which no operation has."""
    gone = Symptom("durability", "made by N: unreachable")
    seen = observed(gone, operations=TWO_NAMES, state="@t99", promised=5)
    seen = replace(seen, case=CaseId("ext4", "fast_commit", "any"))
    lost = replace(seen.violation, subject=subject)
    assert name_of(replace(seen, violation=lost)) == "ext4-fast-commit-tmpfile-link"
    other = replace(lost, subject="d/h or d/i")
    assert name_of(replace(seen, violation=other)) == ""


def test_every_cause_of_a_record_is_one_that_show_names() -> None:
    named = {c for bug in installed().values() for s in bug.record.shows for c in s.causes}
    assert named
    assert named <= {NOT_NAMED, *(m.value for m in Mechanism)}


@pytest.mark.parametrize(
    ("after", "known"),
    [
        (("exchange f g", "write g 0 4096", "fsync g"), True),
        (("exchange g f", "fsync g"), True),
        (("exchange f g", "fsync f"), False),
        (("exchange h g", "fsync g"), False),
        (("exchange f g",), False),
    ],
)
def test_a_later_operation_that_destroys_what_was_promised_is_a_part_of_a_bug(
    after: Sequence[str], *, known: bool
) -> None:
    """`f` was promised by its fsync, and lost by that of the file with which it changed names."""
    operations = ("create g", "create f", "fsync f", *after)
    lost = observed(Symptom("durability", "NAME: missing"), operations=operations, promised=2, state="@99")
    seen = replace(lost, case=CaseId("btrfs", "default", "any"))
    assert name_of(seen) == ("btrfs-fsync-exchanged" if known else "")


@pytest.mark.parametrize(
    ("operations", "state", "known"),
    [
        (("mkdir d", "sync", "create d/f", "fsync d/f", "fsync d"), "@99", True),
        (("mkdir d", "fsync .", "create d/f", "fsync d/f", "fsync d"), "@99", False),
        (("mkdir d", "sync", "create d/f", "fsync d/f", "fsync d"), "@t99-40", False),
        (("mkdir d", "remount", "create d/f", "fsync d/f", "fsync d"), "@99", False),
        (("mkdir d", "create d/f", "append d/f 10", "fsync d/f", "fsync d"), "@99", False),
        (("mkdir d", "create e", "create d/f", "fsync d/f", "fsync ."), "@99", False),
    ],
)
def test_a_name_that_fsync_of_a_new_directory_left_out_is_one_known_bug_of_fat(
    operations: Sequence[str], state: str, *, known: bool
) -> None:
    """A flush that fsync left out, and an fsync that wrote nothing of its file, have to stay new."""
    lost = observed(Symptom("durability", "NAME: missing"), operations=operations, promised=4, state=state)
    seen = replace(
        lost, violation=replace(lost.violation, subject="d/f"), case=CaseId("vfat", "default", "any")
    )
    assert name_of(seen) == ("fat-fsync-new-directory" if known else "")


@pytest.mark.parametrize(
    ("expression", "known"),
    [
        (r"(?m)^write @h .*\nfsync @h\Z", True), (r"(?m)^write {lost} .*\nfsync {lost}\Z", True),
        (r"(?m)^write @g .*\nfsync @h\Z", False), (r"(?m)^open f (?P<h>@\S+)\n(.*\n)*fsync (?P=h)\Z", False),
    ],
)  # fmt: skip
def test_an_expression_may_name_a_handle_as_the_workload_does(expression: str, *, known: bool) -> None:
    """A record of `--known` that was written by handles agreed with nothing: names had taken their place."""
    bug = KnownBug(name="a", title="b", record=Record(
        severity=Severity.COSMETIC, mechanism="c", first="6.1",
        shows=(Sighting(modes=("xfs/*",), oracles=("durability",), symptoms=("NAME: data*",),
                        operations=expression),)))  # fmt: skip
    seen = observed(operations=("create f", "open f @h", "write @h 0 4096", "fsync @h"), promised=3)
    assert (match([bug], seen) is not None) is known


def test_operations_after_the_broken_promise_do_not_count() -> None:
    bug = KnownBug(name="a", title="b", record=Record(
        severity=Severity.COSMETIC, mechanism="c", first="6.1",
        shows=(Sighting(modes=("xfs/*",), oracles=("durability",), symptoms=("NAME: data*",),
                        operations=r"(?m)^write {lost} "),)))  # fmt: skip
    assert match([bug], observed()) is not None
    assert match([bug], observed(promised=2)) is None
    assert match([bug], replace(observed(), violation=replace(observed().violation, subject="g"))) is None


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ((6, 1), False), ((6, 12), True), ((6, 12, 113), True), ((6, 12, 114), False), ((6, 16, 3), True),
        ((7, 1, 9), True), ((7, 2), False), ((7, 3, 4), False),
    ],
)  # fmt: skip
def test_a_mended_kernel_is_not_affected(version: tuple[int, ...], affected: bool) -> None:
    """Three numbers speak of their own series alone, two of everything from there on."""
    record = Record(severity=Severity.COSMETIC, mechanism="m", first="6.12", mended=("6.12.114", "7.2"))
    assert record.affects(version) is affected


def test_of_a_promise_from_before_the_log_nobody_knows_the_flushes() -> None:
    """What was acknowledged before an earlier crash always counted as if nothing had been flushed."""
    seen = observed()
    before = [LoggedOperation(o.text, -1, -1) for o in seen.operations]
    assert name_of(seen)
    assert not name_of(replace(seen, operations=before))


def test_what_went_wrong_beside_the_power_cut_has_to_agree() -> None:
    assert observed().during is During.POWER_CUT
    assert observed(state="@40@t3=").during is During.CUT_RECOVERY


@functools.cache
def _planted() -> list[tuple[str, Observed]]:
    """What planted faults showed that no expectation names, as if no flush had ever been sent: that is the
    hardest on the base.
    """
    known: dict[str, list[LoggedOperation]] = {}
    never: Callable[[int, int], bool] = lambda begin, end: False  # noqa: E731 - it has no name elsewhere
    seen = []
    for row in json.loads(FAULTS.read_text())["rows"]:
        for found in (d for d in row["detections"] if not d["known"]):
            point = CrashPoint.parse(found["example"])
            if point.case.workload not in known:
                (workload,) = select_workloads([point.case.workload])
                known[point.case.workload] = [LoggedOperation(str(o), 0, 1) for o in workload.operations]
            subject = found["summary"].partition(": ")[0]
            violation = Violation(found["oracle"], subject, found["summary"], "", "", "")
            symptom = Symptom(found["oracle"], found["symptom"])
            ran = known[point.case.workload]
            seen.append((
                row["fault"]["name"],
                Observed(
                    point.case, symptom, point.state, violation, "6.12.117", ran, never, lambda: ""
                ),
            ))  # fmt: skip
    return seen


def test_planted_faults_stay_new() -> None:
    """Other mechanisms in the modes of known bugs. The one that agrees, sync-overwrite on F2FS, is what the
    unmodified kernel shows, too; with the flushes of its log at hand it would be compared with these as well.
    """
    planted = _planted()
    assert len(planted) > 800
    matched = {(fault, name) for fault, seen in planted if (name := name_of(seen))}
    assert matched == {("cp-no-preflush", "f2fs-sync-no-flush")}


ALIKE = {
    # A flush that md leaves out loses what one that the file system leaves out does. `powercut show` tells no
    # cause of what was lost on several disks, so none can be asked for.
    "md-preflush-not-waited": 144,
    "md-raid5-journal-tail": 78,
    "md-raid5-ppl-no-flush": 68,
    # dm-thin without its flush does the same: its metadata is committed before the blocks that it names.
    "dm-cache-no-flush": 1,
    # The flush that jbd2 leaves out is that of data; a planted one of the same data shows the same.
    "ext4-external-journal-no-flush": 19,
    # Recovery undoes a synced change, and another recovery, or an fsync that logs less, does so as well.
    "ext4-fast-commit-e2fsck": 11,
    "ext4-fast-commit-replayed-twice": 1,
    "gocryptfs-new-directory": 3,
    # Their fsync sends nothing, which the log tells: what logs too little flushes, but not in `_planted`.
    "btrfs-nfs-names": 6,
    "fuse-fsync-directory": 2,
    # The unmodified kernel shows it, too.
    "f2fs-sync-no-flush": 7,
}
"""Bugs whose symptoms a planted fault has in the mode of the bug, and in how many modes and ways at most."""


def _modes_of_records() -> list[tuple[str, str]]:
    """A file system and a mode for each pattern of a record; what may stand for `*` is the usual mode."""
    usual = dict(
        name.split("/") for name, profile in sorted(profiles().items(), reverse=True) if profile.usual
    )
    found: set[tuple[str, str]] = set()
    for pattern in {m for bug in installed().values() for s in bug.record.shows for m in s.modes}:
        of, slash, mode = pattern.rpartition("/")
        for fs, its in usual.items():
            if fnmatchcase(fs, of if slash else "*"):
                plain = re.sub(r"\[(.).*?\]", r"\1", mode)
                found.add((fs, re.sub(r"(?<=.)\*", "", re.sub(r"^\*", its, plain))))
    return sorted(found)


def test_planted_faults_stay_new_in_every_mode_of_a_record() -> None:
    """They had been looked for in their own modes alone: four records took whatever is lost in one of theirs,
    and `--new-only` passed a planted commit without FUA.
    """
    planted = _planted()
    by_mode: dict[str, list[str]] = {}
    for fs, mode in _modes_of_records():
        by_mode.setdefault(fs, []).append(mode)
    taken = Counter(
        name
        for _, seen in planted
        for mode in by_mode.get(seen.case.filesystem, ())
        if (name := name_of(replace(seen, case=CaseId(seen.case.filesystem, mode, seen.case.workload))))
    )
    assert {name: n for name, n in taken.items() if n > ALIKE.get(name, 0)} == {}


SERIES = ("6.1.140", "6.12.60", "6.16.12", "6.17.5", "6.18.15", "6.19.8", "7.0.4", "7.1.3", "7.2.1", "7.3.4")


@pytest.mark.parametrize("kernel", SERIES)
def test_planted_faults_stay_new_on_a_kernel_of_each_series(kernel: str) -> None:
    """On 6.18.15 an fsync without a flush was a bug that had been mended in 6.12.80. What it still takes for
    that bug leaves out the same write.
    """
    taken = {(fault, name) for fault, seen in _planted() if (name := name_of(replace(seen, kernel=kernel)))}
    same = {
        ("cp-no-preflush", "f2fs-sync-no-flush"),
        ("ext2-fsync-no-metadata", "ext4-nojournal-fsync-inode"),
        # These two plant the upstream bug itself.
        ("newname-last-log-commit", "btrfs-new-name-last-log-commit"),
        ("writecache-ignores-fua", "dm-writecache-fua"),
    }
    assert taken <= same


def _foreign(mode: str, symptom: Symptom, operations: Sequence[str], *, state: str, cause: str) -> Observed:
    """What another fault loses of `f` in this mode, by its last operation."""
    filesystem, _, of_it = mode.partition("/")
    seen = observed(symptom, operations=operations, promised=len(operations) - 1, state=state, cause=cause)
    return replace(seen, case=CaseId(filesystem, of_it, "any"))


GONE, SHORT = Symptom("durability", "NAME: missing"), "NAME: size after N"
NO_FLUSH, LOST = Mechanism.NO_FLUSH.value, "@t200-190"


@pytest.mark.parametrize(
    "seen",
    [
        _foreign("btrfs/default", GONE,
                 ("symlink l x", "rename l m", "sync", "create f", "fsync f"), state="@t200", cause=""),
        _foreign("btrfs/default", Symptom("durability", f"{SHORT} (sync)"),
                 ("create g", "truncate g 0", "rename g h", "fsync h", "append f 9", "sync"), state="@t200",
                 cause=""),
        _foreign("btrfs/default@overlay", Symptom("durability", "made by N: unreachable"),
                 ("create a", "remount", "rename a b", "create a", "fsync a", "create f", "fsync f"),
                 state="@t200", cause=""),
        _foreign("vfat/default", Symptom("durability", f"{SHORT} (remount)"),
                 ("create f", "append f 9", "remount"), state="@t200", cause=""),
        _foreign("xfs/realtime", Symptom("stale", "NAME: poison"), OPERATIONS, state="@t200", cause=""),
        _foreign("gfs2/default", GONE, CREATED, state="@t200", cause=Mechanism.DROPPED.value),
        _foreign("f2fs/posix", GONE, ("create f", "append f 9", "fsync f"), state=LOST, cause=NO_FLUSH),
        _foreign("vfat/default", GONE, ("create t", "fsync t", "rename t f", "fsync ."), state=LOST,
                 cause=NO_FLUSH),
        _foreign("ntfs3/default", GONE, ("create t", "fsync t", "rename t f", "fsync ."), state=LOST,
                 cause=NO_FLUSH),
        _foreign("ext4/ordered@gocryptfs", GONE, ("mkdir d", "sync", "create f", "fsync f"), state="@t200",
                 cause=""),
        _foreign("ext4/fast_commit-fsck-first", GONE, ("create f", "fsync f"), state="@t200=", cause=""),
        _foreign("ext4/ordered@raid5-journal", GONE, ("create f", "fsync f"), state="@t200",
                 cause=Mechanism.DROPPED.value),
        _foreign("ext4/ordered@cache", Symptom("mountable", "mount: EUCLEAN"), ("create f", "fsync f"),
                 state=LOST, cause=""),
        _foreign("ext4/ordered@cache", GONE, ("create f", "fsync f"), state=LOST, cause=NO_FLUSH),
        _foreign("ext4/no-metadata_csum@cache", Symptom("mountable", "mount: EUCLEAN"),
                 ("run /workload/sqlite/run delete extra",), state=LOST, cause=""),
        _foreign("ext4/no-metadata_csum@cache", Symptom("mountable", "mount: EUCLEAN"), ("create f",),
                 state=LOST, cause=Mechanism.RECORD_AHEAD.value),
        _foreign("ext4/ordered@cache", Symptom("untouched", "NAME: changed though untouched"), OPERATIONS,
                 state=LOST, cause=Mechanism.RECORD_AHEAD.value),
        _foreign("ntfs3g/default", GONE, ("create f", "fsync f"), state=LOST, cause=NO_FLUSH),
    ],
    ids=lambda seen: f"{seen.case.configuration}: {seen.symptom.what}",
)  # fmt: skip
def test_what_another_fault_loses_in_the_mode_of_a_bug_is_new(seen: Observed) -> None:
    """Each had the name of the mode's bug: of another file, with no write lost, or where one was."""
    assert name_of(seen) == ""


@pytest.mark.parametrize(
    ("mode", "bug"),
    [
        ("vfat/default", "vfat-rename-fsync-directory"),
        ("ntfs3/default", "ntfs3-rename-fsync-directory"),
        ("f2fs/posix", ""),
    ],
)
def test_in_a_prefix_of_the_log_the_cause_alone_tells_a_lost_write_from_a_bug_of_names(
    mode: str, bug: str
) -> None:
    """Nobody can tell of a prefix that it lacks writes, and what a flush that was left out lost had the name
    of the bug, explained or not, with "lost writes" among what was compared. Not explained, it still has it.
    Of the causes by which alone writes are lost, two were refused, and an fsync that returned before its
    flush had completed still had the name of the bug.
    """
    renamed = ("create t", "fsync t", "rename t f", "fsync .")
    either = {Mechanism.NO_COMMIT, Mechanism.METADATA_AHEAD}  # of a loss, and of what was not sent
    causes = {m.value: m in mechanism._OF_A_LOSS and m not in either for m in Mechanism}
    for cause, of_a_loss in {"": False, **causes}.items():
        seen = _foreign(mode, GONE, renamed, state="@200", cause=cause)
        assert name_of(seen) == ("" if of_a_loss else bug), cause
    for state, compared in (("@200", False), ("@t200", True)):
        found = match(installed().values(), _foreign(mode, GONE, renamed, state=state, cause=""))
        assert found is None or ("lost writes" in found.compared) is compared


@pytest.mark.parametrize(
    ("kernel", "name"),
    [("7.2.12", "ntfs-dir-fsync-no-flush"), ("7.3.4", ""), ("7.4.1", "")],
)
@pytest.mark.parametrize("cause", ["", NO_FLUSH])
def test_a_relapse_of_a_mend_is_new(kernel: str, name: str, cause: str) -> None:
    """A flush that ntfs sends since 7.3.4 could have gone again: it was a symptom of a bug not mended."""
    synced = ("mkdir d", "create d/a", "append d/a 10", "fsync d")
    seen = replace(_foreign("ntfs/default", GONE, synced, state=LOST, cause=cause), kernel=kernel)
    assert name_of(replace(seen, violation=replace(seen.violation, subject="d"))) == name


@pytest.mark.parametrize(
    ("cause", "known"),
    [("", {"fio", "other"}), (NO_FLUSH, {"fio"}), (None, {"other"}), (Mechanism.NO_COMMIT.value, set())],
)
def test_what_any_loss_shows_is_known_by_its_cause_once_that_was_looked_for(
    cause: str | None, known: set[str]
) -> None:
    """What fio did not find again was a missing flush, also if no commit had been sent; and a name that came
    back without earlier ones was that of a directory that cannot be read.
    """
    section = ("run fio --section=magic-fsync /etc/fio-magic.fio",)
    fio = _foreign("ext4/external-journal", Symptom("program", "check N: exit code N"), section, state="@27",
                   cause="")  # fmt: skip
    rejected = "exit code 1: fio: got pattern '43', wanted 'c0'. Bad bits 3"
    fio = replace(fio, violation=Violation("program", "operation 0", "rejects", "", rejected, ""))
    made = ("mkdir d", "create d/a", "create other", "fsync other")
    other = _foreign("ext4/ordered@gocryptfs", Symptom("atomicity", "NAME: should not be there"), made,
                     state="@46", cause="")  # fmt: skip
    other = replace(other, violation=replace(other.violation, subject="other"))
    both = {"fio": fio, "other": other}
    assert {name for name, seen in both.items() if name_of(replace(seen, cause=lambda: cause))} == known


@pytest.mark.parametrize(
    ("mode", "fault", "then", "name"),
    [
        ("f2fs/posix", "read fails, inode", "f: existence: there, now not there",
         "f2fs-roll-forward-read-error"),
        ("f2fs/posix", "flush fails", "d/a: size: 4096, now 0", "f2fs-roll-forward-read-error"),
        ("f2fs/posix", "read fails, inode", "fsck says dirty ([ASSERT] sanity_check_nid)", ""),
        ("f2fs/posix", "read fails, SIT copy", "file system: mount: succeeds, now EUCLEAN", ""),
        ("f2fs/posix", "write fails, inode", "file system: reading: everything can be read, now read f: EIO",
         ""),
        ("f2fs/posix", "bit rot, inode", "f: existence: there, now not there", ""),
        ("xfs/default", "read fails, inode header", "fsck says dirty (sb_ifree 61, counted 59)",
         "xfs-refused-mount-counters"),
        ("xfs/default", "read fails, inode header", "fsck says dirty (bad CRC for inode 133)", ""),
    ],
)  # fmt: skip
def test_on_a_faulty_disk_only_what_its_bug_destroys_is_known(
    mode: str, fault: str, then: str, name: str
) -> None:
    """Whatever a fault had destroyed on F2FS, by a mount that fails or what fsck says, was its known bug."""
    seen = _foreign(mode, Symptom("honesty", f"destroyed more: {fault}"), OPERATIONS, state="@40", cause="")
    said = Violation("honesty", "f", f"destroyed more: it; then without the fault, {then}", "", "", "")
    state = CrashState.parse("@40+eio-read36864")
    assert name_of(replace(seen, state=state, violation=said)) == name


GENERIC = re.compile(
    r"(NAME: (missing|undone|attributes|size after N|poison|data of operation N.*)|made by .*)"
)


def test_a_record_states_more_than_what_any_fault_loses() -> None:
    bare = {
        bug.name
        for bug in installed().values()
        for s in bug.record.shows
        if any(GENERIC.match(symptom) for symptom in s.symptoms)
        and s.during is During.POWER_CUT
        and not (s.operations or s.later or s.quiet or s.says or s.causes)
        and s.loses is None
        and s.whole
    }
    assert bare == set()


def test_a_record_that_is_too_wide_takes_planted_faults_for_its_bug() -> None:
    """They had no subject, so records that ask for `{lost}`, a third of them, could not have met any."""
    wide = KnownBug(name="a", title="b", record=Record(
        severity=Severity.LOSES_SYNCED, mechanism="c", first="4.0",
        shows=(Sighting(modes=("*",), oracles=("durability",), symptoms=("NAME*",),
                        operations=r"sync {lost}\Z"),)))  # fmt: skip
    assert sum(match([wide], seen) is not None for _, seen in _planted()) > 100
