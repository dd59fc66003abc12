"""The judge as a whole: three-valued, silent on every legal power cut, and sensitive to planted bugs."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.filesystems.profiles import select_profiles
from harness.model import (
    Call,
    CallError,
    Change,
    Check,
    CheckResult,
    Difference,
    DifferenceKind,
    Extent,
    ExtentKind,
    FsckClass,
    FsckResult,
    Judgement,
    Operation,
    OperationKind,
    Outcome,
    Position,
    Said,
    TreeEntry,
    Usability,
    Verdict,
    Violation,
)
from harness.oracles import MAX_VIOLATIONS, ORACLES, Judge
from harness.oracles.case import Case
from harness.oracles.contract import Contract
from harness.oracles.pattern import POISON, word
from harness.oracles.undecided import Undecided
from harness.symptoms import Symptom, paths_of, symptom_of
from harness.tests.oracles.cases import (
    CLEAN,
    CONTRACTS,
    EACH,
    ORDERED,
    PATTERNS,
    SYNCED,
    Writer,
    dice,
    file,
    history,
    judged,
    oracles,
    power_cut,
    tree,
    variant,
    written,
    zeros,
)
from harness.workloads.load import load_workload, parse_operation, workload_files

POISON_WORD = word(POISON, 5633).to_bytes(8, "little")
PASS, FAIL, UNKNOWN = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN
DIRTY = FsckResult(FsckClass.DIRTY, 4, "e2fsck 1.47.0 (5-Feb-2023)\nPass 1: Checking\nInode 12 is wrong.\n")
RUN = Operation(OperationKind.RUN, argv=("fio", "job"))
CHECK = Check(0, ("fio", "--verify"), ("f.*",))


def verdict_on(outcome: Outcome, contract: Contract = ORDERED) -> tuple[Verdict, set[str]]:
    done = Judge(contract, history(["create f"]), error_patterns=PATTERNS).judge(Position(1, 1), outcome)
    return done.verdict, oracles(done)


def judge_alone(outcome: Outcome) -> Judgement:
    """After `create f`, with no pattern for the kernel's complaints."""
    return Judge(ORDERED, history(["create f"]), error_patterns=()).judge(Position(1, 1), outcome)


def good(**changes: object) -> Outcome:
    return Outcome(**{"tree": tree(file("f")), "fsck": CLEAN, **changes})  # type: ignore[arg-type]  # a test's own


# --- the surface ---


def test_a_mount_that_fails_is_told_with_what_the_kernel_says_of_it() -> None:
    """EUCLEAN alone tells no bug from another."""
    said = ("[   1.5] EXT4-fs error (device vda): bad", "[   1.6] EXT4-fs (vda): mounting")
    judge = Judge(ORDERED, history(["create f"]), error_patterns=PATTERNS)
    for lines, found in ((said, "EUCLEAN; EXT4-fs error (device vda): bad"), ((), "EUCLEAN")):
        done = judge.judge(Position(1, 1), good(mount_errno=errno.EUCLEAN, tree={}, kernel_log=lines))
        assert next(v.found for v in done.violations if v.oracle == "mountable") == found


def test_nothing_wrong_passes() -> None:
    assert verdict_on(good()) == (PASS, set())


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (good(mount_errno=errno.EUCLEAN, tree={}), {"mountable"}),
        (good(mount_errno=errno.EIO, tree={}, fsck=DIRTY), {"mountable", "fsck"}),
        (good(lost="Kernel panic - not syncing\nmore", tree={}), {"mountable"}),
        (good(walk_errors=(CallError(Call.OPENAT, "a/b", errno.EUCLEAN),)), {"readable"}),
        (good(tree=tree(file("f", Extent(ExtentKind.UNREADABLE, 0, 0, errno.EIO)))), {"readable"}),
        (good(mount_errno=errno.ENOENT, tree={}), {"mountable"}),
        (good(mount_errno=errno.EPERM, tree={}), {"mountable"}),
        (good(unmount_errno=errno.EIO), {"readable"}),
        (good(kernel_log=("[   1.5] EXT4-fs error (device vda): bad",)), {"kernel-log"}),
        (good(kernel_log=("EXT4-fs (vda): recovery complete",)), set()),
        (good(fsck=DIRTY), {"fsck"}),
        (good(fsck=FsckResult(FsckClass.REPAIRED, 1, "fixed")), {"fsck"}),
        (good(usable=Usability()), set()),
        (good(usable=Usability(mount_errno=errno.EUCLEAN)), {"usable"}),
        (good(usable=Usability(mount_errno=errno.ENOENT)), {"usable"}),
        (good(usable=Usability(mount_errno=errno.EPERM)), {"usable"}),
        (good(usable=Usability(unmount_errno=errno.EIO)), {"usable"}),
        (good(usable=Usability(errors=(CallError(Call.UNLINK, "a/b", errno.EUCLEAN),))), {"usable"}),
        (good(usable=Usability(kernel_log=("EXT4-fs error (device vda): bad",))), {"usable"}),
        (good(usable=Usability(kernel_log=("EXT4-fs (vda): mounted filesystem",))), set()),
        (good(usable=Usability(lost="Kernel panic - not syncing\nmore")), {"usable"}),
        (good(usable=Usability(remount_errno=errno.EUCLEAN)), {"usable"}),
        (good(usable=Usability(differences=(Difference("f", DifferenceKind.DATA, 0),))), {"usable"}),
        (good(usable=Usability(fsck=CLEAN)), set()),
        (good(usable=Usability(fsck=DIRTY)), {"usable"}),
        (good(usable=Usability(fsck=FsckResult(FsckClass.REPAIRED, 1, "fixed"))), {"usable"}),
        (good(usable=Usability(undecided="late", errors=(CallError(Call.WRITE, "f", 5),))), {"usable"}),
    ],
    ids=lambda p: "+".join(sorted(p)) if isinstance(p, set) else "",
)
def test_the_surface(outcome: Outcome, expected: set[str]) -> None:
    assert verdict_on(outcome) == (FAIL if expected else PASS, expected)


@pytest.mark.parametrize(
    "outcome",
    [
        good(fsck=None),
        good(fsck=FsckResult(FsckClass.FAILED, 8, "operational error")),
        good(mount_errno=errno.ENODEV, tree={}),
        good(mount_errno=errno.ENOMEM, tree={}),
        good(usable=Usability(mount_errno=errno.ENOMEM)),
        good(usable=Usability(mount_errno=-errno.EACCES)),
        good(unmount_errno=errno.EBUSY),
        good(usable=Usability(fsck=FsckResult(FsckClass.FAILED, 8, "operational error"))),
        good(
            walk_errors=(CallError(Call.READ, "f", errno.EFBIG),),
            tree=tree(file("f", zeros(0, 0), Extent(ExtentKind.UNREADABLE, 0, 0, errno.EFBIG))),
        ),
        good(usable=Usability(undecided="not everything was tried before the deadline")),
    ],
    ids=[
        "no fsck",
        "fsck failed",
        "no such file system",
        "no memory",
        "none later",
        "not allowed later",
        "busy",
        "fsck failed later",
        "larger than what is looked at",
        "late",
    ],
)
def test_what_could_not_be_looked_at_is_unknown(outcome: Outcome) -> None:
    assert verdict_on(outcome) == (UNKNOWN, set())


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (good(mount_errno=errno.EUCLEAN), (FAIL, {"mountable"})),
        (good(mount_errno=-errno.EUCLEAN), (FAIL, {"mountable"})),
        (good(lost="Kernel panic"), (FAIL, {"mountable"})),
        (good(mount_errno=errno.ENODEV), (UNKNOWN, set())),
        (good(mount_errno=-errno.ENODEV), (UNKNOWN, set())),
    ],
    ids=lambda p: f"{p.mount_errno}{p.lost}" if isinstance(p, Outcome) else "",
)
@pytest.mark.parametrize("contract", [ORDERED, EACH], ids=["ordered", "each"])
def test_where_nothing_was_mounted_nothing_else_is_missed(
    outcome: Outcome, expected: tuple[Verdict, set[str]], contract: Contract
) -> None:
    """Neither its names and contents nor an unreadable tree nor a check's result counts against it."""
    steps = history(["create f", "append f 8", "sync", RUN])
    known = Judge(contract, history(["create f", "append f 8", "sync"]), error_patterns=())
    opaque = Judge(contract, steps, checks=(Check(3, ("x",), ()),), error_patterns=())
    unwalked = replace(
        outcome, tree={}, walk_errors=(CallError(Call.OPENAT, "f", errno.EIO),), unmount_errno=errno.EIO
    )
    for one, position in ((known, Position(3, 3)), (opaque, Position(4, 4))):
        done = one.judge(position, unwalked)
        assert (done.verdict, oracles(done)) == expected
        assert len(done.unknown) == (expected[0] is UNKNOWN)


def test_calls_that_fail_alike_are_one_violation() -> None:
    """A wrong bitmap stops the removal of every name: twenty lines would say the same."""
    errors = [
        CallError(Call.UNLINK, "A/foo", errno.EUCLEAN),
        CallError(Call.UNLINK, "A/bar", errno.EUCLEAN),
        CallError(Call.RMDIR, "A", errno.ENOTEMPTY),
        CallError(Call.SYNCFS, "", errno.EIO),
    ]
    done = judge_alone(good(usable=Usability(errors=tuple(errors))))
    assert [(v.summary, v.signature) for v in done.violations] == [
        ("after recovery, `unlink A/foo` fails with EUCLEAN, and 1 more like it", "unlink: EUCLEAN"),
        (
            "after recovery, `rmdir A` fails with ENOTEMPTY, although all names in it were removed",
            "rmdir: ENOTEMPTY",
        ),
        ("after recovery, `syncfs` fails with EIO", "syncfs: EIO"),
    ]


def test_a_call_that_fails_is_told_with_what_the_kernel_complained_of() -> None:
    """A read-only mount after an error of another directory was told by the call alone."""
    said = "EXT4-fs error (device vda): bad entry"
    used = Usability(errors=(CallError(Call.MKDIR, "d", errno.EROFS),), kernel_log=(said,))
    judge = Judge(ORDERED, history(["create f"]), error_patterns=("EXT4-fs error",))
    (call, _) = judge.judge(Position(1, 1), good(usable=used)).violations
    assert call.found.endswith(f"; kernel: {said}")
    assert call.signature == "mkdir: EROFS"


def test_what_was_written_and_is_not_there_is_told_once_for_each_kind() -> None:
    """Nothing was read back, and what write(2) returned was dropped: both passed."""
    found = (
        Difference("a", DifferenceKind.SIZE, 0),
        Difference("b", DifferenceKind.SIZE, 512),
        Difference("c", DifferenceKind.SHORT_WRITE, 3000),
        Difference("d", DifferenceKind.DATA, 1024),
    )
    done = judge_alone(good(usable=Usability(differences=found)))
    assert [(v.summary, v.signature) for v in done.violations] == [
        (
            "after recovery, `c` takes 3000 bytes of a write of 4096, although there is room",
            "difference: short-write",
        ),
        (
            "after recovery, `a` has 0 bytes after another mount, and 4096 were written, and 1 more like it",
            "difference: size",
        ),
        (
            "after recovery, `d` holds other data than was written from byte 1024 on, after another mount",
            "difference: data",
        ),
    ]


def test_what_fsck_finds_after_the_emptying_is_told_with_its_complaint() -> None:
    """fsck looked only at what recovery had left: what comes of using that went unseen."""
    found = FsckResult(FsckClass.DIRTY, 4, "e2fsck 1.47\nInode 12 is bad", "Inode 12 is bad")
    done = judge_alone(good(usable=Usability(fsck=found)))
    assert [(v.oracle, v.summary, v.signature) for v in done.violations] == [
        (
            "usable",
            "after recovery, fsck finds errors after it was written to and emptied: Inode 12 is bad",
            "fsck: Inode N is bad",
        )
    ]


def test_a_file_system_that_comes_back_read_only_is_told() -> None:
    """It was not looked at: a mount that succeeds, silently read-only, after each crash passed."""
    done = judge_alone(good(read_only=True, usable=Usability()))
    assert [(v.oracle, v.summary, v.signature) for v in done.violations] == [
        (
            "usable",
            "after recovery, the file system is read-only, although it was mounted to be written to",
            "mount: read-only",
        )
    ]


def test_what_the_second_mount_shows_otherwise_is_told_by_path() -> None:
    """Nobody looked at what recovery had left a second time."""
    found = (
        Change("a", "existence", "there", "not there"),
        Change("b", "size", "1", "2"),
        Change(".", "permissions", "448", "493"),
    )
    done = judge_alone(good(usable=Usability(changed=found)))
    lost = "what the first shows is not on the disk"
    assert [(v.summary, v.expected, v.found, v.signature) for v in done.violations] == [
        (
            f"after recovery, `a` is there at the first mount, and not there at the second: {lost}",
            "there",
            "not there",
            "second mount: a: existence",
        ),
        (
            f"after recovery, `b` has another size at the second mount than at the first: {lost}",
            "1",
            "2",
            "second mount: b: size",
        ),
        (
            f"after recovery, the root has other permissions at the second mount than at the first: {lost}",
            "448",
            "493",
            "second mount: .: permissions",
        ),
    ]


def test_a_kernel_log_of_which_lines_were_suppressed_is_none() -> None:
    """`*_ratelimited`: what a kernel keeps back may be a complaint."""
    line = "_btrfs_printk: 12 callbacks suppressed"
    assert verdict_on(good(kernel_log=(line,))) == (UNKNOWN, set())
    assert verdict_on(good(usable=Usability(kernel_log=(line,)))) == (UNKNOWN, set())
    assert verdict_on(good(kernel_log=(line, "EXT4-fs error (device vda): bad"))) == (FAIL, {"kernel-log"})


def test_what_the_kernel_says_while_the_workload_runs_is_judged_as_in_recoveries() -> None:
    """It was thrown away. One violation per kind, at the operation in which it was first said."""
    said = (
        Said(None, ("EXT4-fs (vda): mounted",)),
        Said(0, ("[    1.5] EXT4-fs error (device vda): bad 1", "EXT4-fs error (device vda): bad 2")),
        Said(None, ("EXT4-fs error (device vda): bad 3", "EXT4-fs error (device vda): worse")),
    )
    judge = Judge(ORDERED, history(["create f"]), error_patterns=PATTERNS)
    done = judge.judge_recording(said)
    assert [(v.oracle, v.summary, v.signature) for v in done.violations] == [
        (
            "kernel-log",
            "the kernel complains while the workload runs, in `create f` (operation 0): "
            "EXT4-fs error (device vda): bad 1",
            "while the workload runs: EXT4-fs error (device vda): bad N",
        ),
        (
            "kernel-log",
            "the kernel complains while the workload runs, at its mount or unmount: "
            "EXT4-fs error (device vda): worse",
            "while the workload runs: EXT4-fs error (device vda): worse",
        ),
    ]
    assert judge.judge_recording((Said(0, ("x: 3 callbacks suppressed",)),)).verdict is UNKNOWN
    alone = Judge(ORDERED, history(["create f"]), error_patterns=PATTERNS, oracles={"fsck": ORACLES["fsck"]})
    assert alone.judge_recording(said).verdict is PASS


def test_a_mount_after_the_writing_that_could_not_be_tried_is_unknown() -> None:
    assert verdict_on(good(usable=Usability(remount_errno=errno.ENOMEM))) == (UNKNOWN, set())
    assert verdict_on(good(usable=Usability(remount_errno=errno.ENOENT))) == (FAIL, {"usable"})


def test_an_unmount_that_fails_with_busy_is_unknown_whatever_its_sign() -> None:
    assert verdict_on(good(unmount_errno=-errno.EBUSY)) == (UNKNOWN, set())


def test_a_file_that_cannot_be_read_at_two_places_is_told_once() -> None:
    holes = (Extent(ExtentKind.UNREADABLE, at, 4096, errno.EIO) for at in (0, 4096))
    one = Judge(ORDERED, history(["create f", "append f 8192"]), error_patterns=())
    done = one.judge(Position(2, 2), good(tree=tree(file("f", *holes))))
    (violation,) = done.violations
    assert violation.summary == "f: read fails with EIO at offset 0"


def test_without_patterns_the_kernel_may_say_anything() -> None:
    done = judge_alone(good(kernel_log=("EXT4-fs error",)))
    assert done.verdict is PASS


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("", "no output"),
        ("\n e2fsck 1.47.0 (5-Feb-2023)\n", "e2fsck 1.47.0 (5-Feb-2023)"),
        ("\n\nbad\nworse", "bad"),
    ],
)
def test_what_fsck_says_is_told_even_if_it_says_little(output: str, told: str) -> None:
    dirty = good(fsck=FsckResult(FsckClass.DIRTY, 4, output))
    (violation,) = judge_alone(dirty).violations
    assert violation.summary == f"fsck finds errors after recovery: {told}"


def test_what_mkfs_made_is_nobodys_operation() -> None:
    found = good(tree=tree(file("f"), file(".nilfs", zeros(0, 8))))
    assert verdict_on(found, select_profiles(["nilfs2"])[0].contract) == (PASS, set())
    assert verdict_on(found)[0] is Verdict.FAIL  # where mkfs makes no such file


def test_a_mode_that_promises_nothing_to_fsck_is_not_held_to_it() -> None:
    assert verdict_on(good(fsck=DIRTY), variant(fsck_clean=False)) == (PASS, set())


def test_kernel_messages_fold_without_their_numbers() -> None:
    log = ("[ 1.5] EXT4-fs error (device vda): inode #12", "[ 2.5] EXT4-fs error (device vda): inode #13")
    done = Judge(ORDERED, history(["create f"]), error_patterns=PATTERNS)
    (v,) = done.judge(Position(1, 1), good(kernel_log=log)).violations
    assert v.signature == "EXT4-fs error (device vda): inode #N"
    assert v.summary.endswith("inode #12")


def test_the_first_complaint_of_fsck_is_told() -> None:
    done = judge_alone(good(fsck=DIRTY))
    assert done.violations[0].signature == "fsck: Inode N is wrong."


def test_a_complaint_that_the_profile_knows_goes_first() -> None:
    dirty = FsckResult(FsckClass.DIRTY, 4, "fsck.jfs version 1.1\nstarted: 1/2\nBad.\n", "Bad.")
    done = judge_alone(good(fsck=dirty))
    assert done.violations[0].summary == "fsck finds errors after recovery: Bad."


# --- programs ---


def program_verdict(*results: CheckResult, acked: int = 1) -> tuple[Verdict, set[str]]:
    one = Judge(ORDERED, history([RUN]), checks=(CHECK,), error_patterns=())
    done = one.judge(Position(1, acked), good(tree=tree(file("x", written(9, 0, 8))), checks=results))
    return done.verdict, oracles(done)


def test_a_programs_check() -> None:
    assert program_verdict(CheckResult(0, 0, "")) == (PASS, set())
    assert program_verdict(CheckResult(0, 1, "verify failed")) == (FAIL, {"program"})
    assert program_verdict(CheckResult(0, 1, ""), acked=0) == (PASS, set())


FIO = (
    """\
sequential: (g=0): rw=write, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=psync, iodepth=1
fio-3.33
Starting 1 process
verify: bad magic header 0, wanted acca at file /mnt/sequential.0.0 offset 0, length 4096
fio: pid=61, err=84/file:io_u.c:2151, func=io_u_queued_complete, error=Invalid or incomplete multibyte
"""
    + "     issued rwts: total=1,16,0,0 short=0,0,0,0 dropped=0,0,0,0\n" * 20
)


@pytest.mark.parametrize(
    ("said", "first"), [(FIO, "verify: bad magic header 0"), ("no\n" * 3, "no\n"), ("error", "error")]
)
def test_what_a_check_complains_of_is_told_and_not_its_statistics(said: str, first: str) -> None:
    """fio's `found:` was "issued rwts: total=1,16,0,0": its error stands above a page of figures."""
    one = Judge(ORDERED, history([RUN]), checks=(CHECK,), error_patterns=())
    seen = good(tree=tree(file("x", written(9, 0, 8))), checks=(CheckResult(0, 1, said),))
    (violation,) = one.judge(Position(1, 1), seen).violations
    assert violation.found.startswith(f"exit code 1: {first}")
    assert len(violation.found) <= len("exit code 1: ") + 400


@pytest.mark.parametrize(
    ("told", "results", "expected"),
    [
        (1, [(0, 0, 1), (1, 0, 1)], (PASS, set())),
        (1, [(0, 0, 2), (1, 0, 1)], (PASS, set())),  # content with more
        (1, [(0, 0, 0), (1, 0, 1)], (UNKNOWN, set())),  # with less: that says nothing
        (1, [(0, 1, 1), (1, 0, 1)], (FAIL, {"program"})),  # the other application's yes is not its own
        (1, [(0, 1, 2), (1, 0, 1)], (UNKNOWN, set())),  # not content with more: that says nothing
        (1, [(0, 1, 2), (0, 7, 1), (1, 0, 1)], (UNKNOWN, set())),
        (1, [(0, 7, 1), (1, 0, 1)], (UNKNOWN, set())),
        (1, [(0, None, 1), (1, 0, 1)], (UNKNOWN, set())),
        (2, [(0, 1, 2), (0, 0, 1), (1, 0, 2)], (FAIL, {"program"})),
        (1, [(0, 1, 2), (0, 0, 1), (1, 0, 1)], (PASS, set())),
    ],
    ids=str,
)
def test_an_applications_check_answers_for_its_own_acknowledgements(
    told: int, results: list[tuple[int, int | None, int]], expected: tuple[Verdict, set[str]]
) -> None:
    """Results: operation, exit code, acknowledgements told of. Both applications have returned."""
    checks = tuple(Check(i, ("check",), ("*",), application=True) for i in range(2))
    one = Judge(ORDERED, history([RUN, RUN]), checks=checks, error_patterns=())
    seen = good(checks=tuple(CheckResult(op, code, "", app_acks=n) for op, code, n in results))
    done = one.judge(Position(2, 2, told), seen)
    assert (done.verdict, oracles(done)) == expected


def test_a_traceback_is_told_by_its_last_line() -> None:
    """The finding was titled "Traceback (most recent call last):", and tracebacks of all kinds were one."""
    said = 'Traceback (most recent call last):\n  File "check", line 3\nJSONDecodeError: Expecting value'
    checks = (Check(0, ("check",), ("*",), application=True),)
    one = Judge(ORDERED, history([RUN]), checks=checks, error_patterns=())
    (violation,) = one.judge(
        Position(1, 1, 1), good(checks=(CheckResult(0, 1, said, app_acks=1),))
    ).violations
    assert violation.summary == "`check` after 1 acknowledgement: JSONDecodeError: Expecting value"
    assert violation.signature.endswith("JSONDecodeError: Expecting value")


def test_a_check_that_was_not_run_is_unknown() -> None:
    assert program_verdict() == (UNKNOWN, set())
    assert program_verdict(CheckResult(0, None, "no guest")) == (UNKNOWN, set())


def test_poison_shows_in_files_of_programs() -> None:
    poisoned = good(tree=tree(file("x", Extent(ExtentKind.POISON, 0, 4096, 5))))
    for contract in (ORDERED, EACH, SYNCED):
        one = Judge(contract, history([RUN]), error_patterns=())
        assert one.judge(Position(1, 1), good(tree=tree(file("x")))).verdict is PASS
        stale = set() if contract.stale_allowed else {"stale"}
        assert oracles(one.judge(Position(1, 1), poisoned)) == stale


def test_a_word_of_poison_that_the_end_of_a_file_cuts_shows_in_files_of_programs() -> None:
    """It passed, if the file, or its last word, was shorter than a word."""
    one = Judge(ORDERED, history([RUN]), error_patterns=())
    for data, stale in ((POISON_WORD[:5], True), (POISON_WORD[:4], False), (b"\0\0\xff\xff\0", False)):
        part = good(tree=tree(file("x", Extent(ExtentKind.LITERAL, 0, len(data), data=data))))
        assert oracles(one.judge(Position(1, 1), part)) == ({"stale"} if stale else set())


def test_without_an_order_of_names_only_poison_is_judged() -> None:
    contract = variant(namespace="none", persists="nothing")
    assert verdict_on(good(tree=tree(file("other", written(0, 0, 8)))), contract) == (PASS, set())
    poisoned = good(tree=tree(file("other", Extent(ExtentKind.POISON, 0, 4096, 5))))
    assert verdict_on(poisoned, contract) == (FAIL, {"stale"})
    assert verdict_on(good(tree=tree(file("f", zeros(0, 50)))), contract) == (PASS, set())
    exposing = variant(namespace="none", persists="nothing", data="writeback", stale_allowed=True)
    assert verdict_on(poisoned, exposing) == (PASS, set())
    future = good(tree=tree(file("other", Extent(ExtentKind.MISPLACED, 0, 8, 1, 8))))
    assert verdict_on(future, exposing) == (FAIL, {"foreign"})


# --- the registry ---


def broken(case: Case) -> Iterator[Violation | Undecided]:
    yield Undecided("half way")
    raise ZeroDivisionError("planted")


def test_an_oracle_that_raises_is_unknown_and_hides_nobody_else() -> None:
    one = Judge(ORDERED, history(["create f"]), error_patterns=(), oracles={"broken": broken, **ORACLES})
    quiet = one.judge(Position(1, 1), good())
    assert (quiet.verdict, quiet.unknown) == (UNKNOWN, ("oracle broken failed: ZeroDivisionError: planted",))
    assert one.judge(Position(1, 1), good(fsck=DIRTY)).verdict is FAIL


def test_a_tree_that_breaks_the_oracles_is_unknown() -> None:
    """A run that no agent sends: bytes of no origin."""
    odd = file("f", Extent(ExtentKind.LITERAL, 0, 8, data=None))  # type: ignore[arg-type]  # that is the point
    one = Judge(ORDERED, history(["create f", "append f 8"]), error_patterns=())
    assert one.judge(Position(2, 2), good(tree=tree(odd))).verdict is UNKNOWN


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\(oops"):
        Judge(ORDERED, history(["create f"]), error_patterns=["(oops"])


def test_an_oracle_tells_how_many_of_its_violations_it_leaves_out() -> None:
    done = judge_alone(good(tree=tree(*(file(f"x{i:03}") for i in range(100)))))
    per_oracle = Counter(v.oracle for v in done.violations)
    assert per_oracle, "names that nobody made"
    for oracle, count in per_oracle.items():
        assert count == MAX_VIOLATIONS + 1
        last = [v for v in done.violations if v.oracle == oracle][-1]
        assert last.signature == "xN: should not be there", "they have one symptom"
        assert last.summary.startswith(f"{100 - MAX_VIOLATIONS} more violations of {oracle} ")
        assert last.subject == "x020"


def test_what_an_oracle_leaves_out_has_its_symptom() -> None:
    """A known failure with 21 violations in one state was red: `more than 20` is in no list of known ones."""
    steps = [f"create f{i}" for i in range(25)] + ["sync"]
    done = Judge(EACH, history(steps), error_patterns=()).judge(Position(26, 26), good(tree=tree()))
    paths = paths_of([parse_operation(step) for step in steps])
    symptoms = {symptom_of(v.oracle, v.signature, paths) for v in done.violations}
    assert symptoms == {Symptom("durability", "NAME: missing (sync)")}


def test_each_symptom_of_what_an_oracle_leaves_out_is_told() -> None:
    """`12 more violations` of two known losses had the symptom of neither, and was a new finding."""
    kinds = [("missing", 25), ("undone", 1)]
    many = [violation("durability", f"f{i}: {kind}") for kind, count in kinds for i in range(count)]
    more = judged_by(durability=many).violations[MAX_VIOLATIONS:]
    assert [v.signature for v in more] == ["fN: missing", "fN: undone"]
    assert more[0].summary.startswith("5 more violations of durability at this crash state are not listed")
    assert more[1].summary.startswith("one more violation of durability at this crash state is not listed")


@pytest.mark.parametrize("count", [MAX_VIOLATIONS - 1, MAX_VIOLATIONS])
def test_what_fits_the_limit_is_listed_whole(count: int) -> None:
    many = [violation("durability", f"f{i}: gone") for i in range(count)]
    assert judged_by(durability=many).violations == tuple(many)


@pytest.mark.parametrize("lost_in_use", [False, True])
def test_of_a_kernel_that_died_one_line_is_shown(lost_in_use: bool) -> None:
    """The whole console stood in one line of the terminal: six kilobytes a finding."""
    console = "[1.0] EXT4-fs: mounted\n[1.5] kernel BUG at fs/jbd2/recovery.c:12!\n" + "Call Trace\n" * 99
    seen = good(usable=Usability(lost=console)) if lost_in_use else good(lost=console, tree={})
    one = Judge(ORDERED, history(["create f"]), error_patterns=())
    (violation,) = one.judge(Position(1, 1), seen).violations
    assert violation.found == "kernel BUG at fs/jbd2/recovery.c:12!"


def test_many_lost_files_do_not_hide_one_file_of_poison() -> None:
    """The limit used to be one for all oracles together: 25 lost files pushed `stale` out of the list, and
    with `durability` expected the state counted as an expected failure.
    """
    steps = [f"create f{i}" for i in range(25)] + ["create g", "append g 4096", "sync"]
    recovered = tree(file("g", Extent(ExtentKind.POISON, 0, 4096, 5)))
    end = Position(len(steps), len(steps))
    done = Judge(EACH, history(steps), error_patterns=()).judge(end, good(tree=recovered))
    told = [v.summary for v in done.violations if v.oracle == "durability"]
    assert len(told) == MAX_VIOLATIONS + 1
    assert told[-1].startswith(
        "5 more violations of durability at this crash state are not listed, such as f"
    )
    assert [v.subject for v in done.violations if v.oracle == "stale"] == ["g"]


@pytest.mark.parametrize("message", ["lost k1", "row 12 of 0x1f is gone", "lost k1 after commit 3f2a"])
def test_numbers_in_a_checks_message_do_not_tell_findings_apart(message: str) -> None:
    """`lost k0` and `lost k1` were two findings, since only whole words were taken for numbers."""
    other = message.translate(str.maketrans("123", "765"))
    check = Check(0, ("check",), ("*",), application=True)
    one = Judge(ORDERED, history([RUN]), checks=(check,), error_patterns=())
    signatures = set()
    for text in (message, other):
        seen = good(checks=(CheckResult(0, 1, text, app_acks=1),))
        (found,) = one.judge(Position(1, 1, 1), seen).violations
        assert text in found.summary
        signatures.add(found.signature)
    assert len(signatures) == 1


def test_what_a_check_says_beside_its_numbers_tells_findings_apart() -> None:
    check = Check(0, ("check",), ("*",), application=True)
    one = Judge(ORDERED, history([RUN]), checks=(check,), error_patterns=())
    seen = [good(checks=(CheckResult(0, 1, text, app_acks=1),)) for text in ("lost k0", "torn k0")]
    assert len({one.judge(Position(1, 1, 1), s).violations[0].signature for s in seen}) == 2


def violation(oracle: str, signature: str) -> Violation:
    return Violation(oracle, "f", signature, "it", "not it", signature)


def judged_by(**found: list[Violation]) -> Judgement:
    """A judgement by oracles that find these violations."""
    oracles = {name: lambda _, what=what: what for name, what in found.items()}
    one = Judge(ORDERED, history(["create f"]), error_patterns=(), oracles=oracles)
    return one.judge(Position(1, 1), good())


# --- the simple disk ---


# The simple disk keeps an order of its own accord, so it keeps what promises less as well.
KEPT = {**CONTRACTS, "each": EACH, "synced": SYNCED}


@pytest.mark.parametrize("contract", KEPT.values(), ids=list(KEPT))
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(3, 30))
def test_every_legal_power_cut_passes(contract: Contract, seed: int, length: int) -> None:
    # Where a block may hold stale data, no file system shares blocks, and writes to a shared one allocate.
    without = [OperationKind.CLONE] if contract.stale_allowed else []
    operations = Writer(dice(seed), without).write(length)
    one = Judge(contract, history(operations), error_patterns=PATTERNS)
    for cut in range(4):
        position, recovered = power_cut(contract, operations, dice((seed, cut)))
        judgement = one.judge(position, Outcome(tree=recovered, fsck=CLEAN))
        assert judgement.verdict is PASS, (position, operations, judgement)


@pytest.mark.parametrize(
    ("mode", "bug", "seen_by"),
    [
        ("ordered", "no-flush", "durability"),
        ("ordered", "no-flush", "stale"),
        ("ordered", "fsync-does-nothing", "durability"),
        ("journal", "fsync-does-nothing", "durability"),
        ("ordered", "rename-keeps-old", "atomicity"),
        ("ordered", "exchange-forgets-one", "atomicity"),
        ("each", "exchange-forgets-one", "durability"),
        ("ordered", "clone-forgets-size", "durability"),
        ("ordered", "exchange-keeps-sizes", "durability"),
        ("ordered", "shift-forgets-a-block", "durability"),
        ("journal", "shift-forgets-a-block", "durability"),
        ("each", "shift-forgets-a-block", "durability"),
        ("ordered", "copy-writes-zeros", "durability"),
        ("each", "copy-writes-zeros", "durability"),
        ("writeback", "exchange-keeps-sizes", "durability"),
        ("ordered", "early-written", "stale"),
        ("nodelalloc", "unordered", "stale"),
        ("writeback", "no-flush", "durability"),
        ("ordered", "msync-does-nothing", "durability"),
        ("ordered", "ranged-msync-does-nothing", "durability"),
        ("writeback", "ranged-msync-does-nothing", "durability"),
        ("each", "ranged-msync-does-nothing", "durability"),
        ("each", "fsync-does-nothing", "durability"),
        ("each", "no-flush", "stale"),
        ("synced", "fsync-does-nothing", "durability"),
        ("ordered", "sync-write-does-nothing", "durability"),
        ("journal", "sync-write-does-nothing", "durability"),
        ("each", "sync-write-does-nothing", "durability"),
        ("ordered", "sync-write-skips-a-page", "durability"),
        ("nodelalloc", "sync-write-skips-a-page", "durability"),
        ("each", "sync-write-skips-a-page", "durability"),
        ("each", "snapshot-in-two", "atomicity"),
        ("nodelalloc", "snapshot-in-two", "atomicity"),
    ],
)
def test_a_planted_bug_is_found(mode: str, bug: str, seen_by: str) -> None:
    """One of a fixed list of power cuts shows it, through the right oracle."""
    found: set[str] = set()
    for seed in range(800):
        if seen_by in found:
            break
        operations = Writer(dice(seed)).write(20)
        position, recovered = power_cut(KEPT[mode], operations, dice(seed), [bug])
        one = Judge(KEPT[mode], history(operations), error_patterns=())
        done = one.judge(position, Outcome(tree=recovered, fsck=CLEAN))
        found |= oracles(done)
    assert seen_by in found


@pytest.mark.parametrize("later", ["truncate f 9000", "write f 8000 100", "append f 1"])
@pytest.mark.parametrize("mode", ["ordered", "writeback", "each"])
def test_what_is_stored_behind_the_end_never_becomes_a_part_of_the_file(mode: str, later: str) -> None:
    """[POSIX] mmap, ftruncate. Chance makes it so rarely that the list above does not show it."""
    texts = ["create f", "append f 5000", "mmap-write f 5000 3000 past-end", later, "sync", "create g"]
    operations = [parse_operation(text) for text in texts]
    for bugs in ([], ["past-end-kept"]):
        found: set[str] = set()
        for seed in range(20):
            position, recovered = power_cut(KEPT[mode], operations, dice(seed), bugs)
            one = Judge(KEPT[mode], history(operations), error_patterns=())
            found |= oracles(one.judge(position, Outcome(tree=recovered, fsck=CLEAN)))
        seen = set() if later.startswith("append") else {"contents"}
        assert found & {"contents"} == (seen if bugs else set())
        assert bugs or not found


def test_a_name_that_comes_before_what_was_written_to_it_is_found() -> None:
    operations = [parse_operation("tmpfile f 12000"), parse_operation("tmpfile g 12000")]

    def told(bugs: list[str]) -> set[str]:
        found: set[str] = set()
        for seed in range(100):
            position, recovered = power_cut(CONTRACTS["nodelalloc"], operations, dice(seed), bugs)
            outcome = Outcome(tree=recovered, fsck=CLEAN)
            one = Judge(CONTRACTS["nodelalloc"], history(operations), error_patterns=())
            found |= oracles(one.judge(position, outcome))
        return found

    assert told([]) == set()
    assert "size" in told(["tmpfile-named-early"])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32))
def test_judging_twice_gives_the_same(seed: int) -> None:
    """What the judge has cached from earlier states does not change a judgement."""
    random = dice(seed)
    operations = Writer(random).write(15)
    one = Judge(ORDERED, history(operations), error_patterns=PATTERNS)
    for _ in range(4):
        position, recovered = power_cut(ORDERED, operations, random, ["no-flush"])
        outcome = Outcome(tree=recovered, fsck=CLEAN)
        alone = Judge(ORDERED, history(operations), error_patterns=PATTERNS).judge(position, outcome)
        assert one.judge(position, outcome) == one.judge(position, outcome) == alone


WORKLOADS = sorted(name for name, path in workload_files().items() if path.suffix == ".toml")


@pytest.mark.parametrize("mode", CONTRACTS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_shipped_workloads_pass_on_the_simple_disk(name: str, mode: str) -> None:
    contract, operations = CONTRACTS[mode], load_workload(name).operations
    one = Judge(contract, history(operations), error_patterns=PATTERNS)
    for cut in range(10):
        position, recovered = power_cut(contract, operations, dice(cut))
        judgement = one.judge(position, Outcome(tree=recovered, fsck=CLEAN))
        assert judgement.verdict is PASS, (position, judgement)


@pytest.mark.parametrize(
    ("contract", "made", "recovered", "told"),
    [
        (ORDERED, ["create f"], (), "names undone after 1"),
        (ORDERED, ["create f", "create g"], (file("g"),), "f: missing"),
        (EACH, ["create f"], (), "f: missing"),
        (SYNCED, ["create f"], (), "f: missing"),
        (EACH, ["create f", "chmod f 600"], (file("f"),), "f: attributes"),
        (ORDERED, ["create f", "append f 4096"], (file("f"),), "f: size after 2"),
        (ORDERED, ["create f", "append f 4096"], (file("f", zeros(0, 4096)),), "f: data of operation 1 lost"),
        (
            variant(rules=("allocations-stay",)),
            ["create f", "fallocate f 0 8K keep-size"],
            (file("f"),),
            "f: blocks freed",
        ),
    ],
)
def test_a_loss_after_sync_is_another_finding_than_one_after_fsync(
    contract: Contract, made: list[str], recovered: tuple[TreeEntry, ...], told: str
) -> None:
    """They had one signature: who expected what ext2's sync is known to lose expected fsync's losses, too."""
    found = {
        promise: {
            v.signature for v in judged([*made, promise, "create h"], tree(*recovered), contract).violations
        }
        for promise in ("fsync f", "sync", "remount")
    }
    assert found == {"fsync f": {told}, "sync": {f"{told} (sync)"}, "remount": {f"{told} (remount)"}}
