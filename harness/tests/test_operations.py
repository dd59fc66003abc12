"""Every operation of the workload language has its place in every table that has to know it.

A table that forgot one said nothing: with a budget, the crash points of a new kind of sync would be skipped.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.cases.examine import Group
from harness.cases.listing import in_turn
from harness.errors import UsageError
from harness.filesystems.profiles import select_profiles
from harness.findings.shell import shell_line
from harness.model import CrashState, History, HistoryStep, Operation, OperationKind
from harness.oracles.replay import replay
from harness.plan import Budget
from harness.tests.oracles import simple_disk
from harness.workloads.load import parse_operation

ROOT = Path(__file__).resolve().parents[2]
BEFORE = ["create f", "append f 4096", "create g", "mkdir d", "mkdir e", "setxattr f user.a 1"]
"""Stands in front of each example."""
EXAMPLES = {
    OperationKind.CREATE: ["create h"],
    OperationKind.TMPFILE: ["tmpfile h 10"],
    OperationKind.OPEN: ["open f @h"],
    OperationKind.OPEN_TMPFILE: ["open-tmpfile d @h"],
    OperationKind.CLOSE: ["open f @h", "close @h"],
    OperationKind.WRITE: ["write f 0 10", "write f 0 10 sync", "write f 0 10 dsync", "write f 0 4096 direct"],
    OperationKind.APPEND: ["append f 10", "append f 10 sync", "append f 10 dsync"],
    OperationKind.MMAP_WRITE: ["mmap-write f 0 10", "mmap-write f 0 10 sync", "mmap-write f 0 10 sync-range"],
    OperationKind.TRUNCATE: ["truncate f 10"],
    OperationKind.FALLOCATE: ["fallocate f 0 8192", "fallocate f 0 4096 insert-range"],
    OperationKind.LINK: ["link f h"],
    OperationKind.SYMLINK: ["symlink h f"],
    OperationKind.RENAME: ["rename f h"],
    OperationKind.EXCHANGE: ["exchange f g"],
    OperationKind.UNLINK: ["unlink f"],
    OperationKind.MKDIR: ["mkdir h"],
    OperationKind.RMDIR: ["rmdir e"],
    OperationKind.MKFIFO: ["mkfifo h"],
    OperationKind.MKNOD: ["mknod h"],
    OperationKind.SETXATTR: ["setxattr f user.b 1"],
    OperationKind.REMOVEXATTR: ["removexattr f user.a"],
    OperationKind.CHMOD: ["chmod f 600"],
    OperationKind.CHOWN: ["chown f 1 2"],
    OperationKind.CHATTR: ["chattr f +S", "chattr f -S", "chattr e +F", "chattr e +D"],
    OperationKind.ENABLE_VERITY: ["enable-verity f"],
    OperationKind.CLONE: ["clone f g"],
    OperationKind.EXCHANGE_RANGE: ["exchange-range f g", "exchange-range f g dsync"],
    OperationKind.COPY_RANGE: ["copy-range f g 100 200"],
    OperationKind.TOUCH: ["touch f 1000000000"],
    OperationKind.SUBVOLUME: ["subvolume h"],
    OperationKind.SNAPSHOT: ["snapshot . h"],
    OperationKind.SUBVOLUME_DELETE: ["subvolume h", "subvolume-delete h"],
    OperationKind.START_ATOMIC: ["open f @h", "start-atomic @h"],
    OperationKind.COMMIT_ATOMIC: ["open f @h", "start-atomic @h", "append @h 10", "commit-atomic @h"],
    OperationKind.ABORT_ATOMIC: ["open f @h", "start-atomic @h", "append @h 10", "abort-atomic @h"],
    OperationKind.GC: ["gc"],
    OperationKind.FSYNC: ["fsync f"],
    OperationKind.FDATASYNC: ["fdatasync f"],
    OperationKind.SYNC_FILE_RANGE: ["sync-file-range f 0 4096"],
    OperationKind.SYNC: ["sync"],
    OperationKind.BEGIN_SYNC: ["begin-sync"],
    OperationKind.WRITE_BACK: ["write-back"],
    OperationKind.DROP_CACHES: ["drop-caches"],
    OperationKind.REMOUNT: ["remount"],
    OperationKind.SHUTDOWN: ["shutdown", "shutdown logflush", "shutdown nologflush"],
    OperationKind.CRASH: ["crash 7", "crash @417", "crash @t34-2,5.1"],
    OperationKind.RUN: [],
}
"""Examples of each kind, one after the other; RUN stands in no operation list."""
NO_SHELL_LINE = {
    OperationKind.OPEN,
    OperationKind.OPEN_TMPFILE,
    OperationKind.CLOSE,
    OperationKind.START_ATOMIC,
    OperationKind.COMMIT_ATOMIC,
    OperationKind.ABORT_ATOMIC,
    OperationKind.REMOUNT,
    OperationKind.SHUTDOWN,
    OperationKind.CRASH,
    OperationKind.RUN,
}
"""`findings.shell` says that these are written by hand."""
OF_LISTS = [kind for kind in OperationKind if kind is not OperationKind.RUN]


def operations(texts: list[str]) -> list[Operation]:
    return [parse_operation(text) for text in texts]


def history(texts: list[str]) -> History:
    """Each operation has begun at log entry 10i and returned at 10i + 5."""
    return History(
        tuple(HistoryStep(i, op, begin=10 * i, ack=10 * i + 5) for i, op in enumerate(operations(texts)))
    )


def test_every_operation_has_an_example() -> None:
    assert set(EXAMPLES) == set(OperationKind)


@pytest.mark.parametrize("kind", OF_LISTS)
def test_it_is_read_and_written_alike(kind: OperationKind) -> None:
    for op in operations(EXAMPLES[kind]):
        assert parse_operation(str(op)) == op


@pytest.mark.parametrize("kind", OF_LISTS)
def test_the_reference_model_carries_it_out(kind: OperationKind) -> None:
    (profile,) = select_profiles(["xfs/default"])
    timeline = replay(profile.contract, history([*BEFORE, *EXAMPLES[kind]]))
    assert not timeline.opaque


@pytest.mark.parametrize("kind", OF_LISTS)
def test_the_second_model_that_tests_the_oracles_has_it(kind: OperationKind) -> None:
    method = "do_" + simple_disk._METHOD.get(kind, kind.value)
    assert any(hasattr(one, method) for one in vars(simple_disk).values() if isinstance(one, type))


@pytest.mark.parametrize("kind", OF_LISTS)
def test_what_it_makes_durable_is_looked_at_whatever_the_budget(kind: OperationKind) -> None:
    """The list had been in another room, where nobody thought of it."""
    (profile,) = select_profiles(["ext4/ordered"])
    for number, text in enumerate(EXAMPLES[kind]):
        told = history([*BEFORE, *EXAMPLES[kind][:number], text])
        last = len(told.steps) - 1
        timeline = replay(profile.contract, told)
        promises = any(p.index == last for p in timeline.persistence) or any(
            index == last for file in timeline.files.values() for index, _ in file.persists
        )
        times = in_turn([Group(str(n), (CrashState(n),)) for n in range(200)], told, Budget(visits=1))
        first = {str(t.ask) for t in times if t.begins == 0}
        assert not promises or {f"@{10 * last + 1}", f"@{10 * last + 6}"} <= first, text


@pytest.mark.parametrize("kind", OF_LISTS)
def test_a_bug_report_has_a_line_for_it_or_says_that_it_has_none(kind: OperationKind) -> None:
    (op, *_) = operations(EXAMPLES[kind])
    if kind in NO_SHELL_LINE:
        with pytest.raises(UsageError, match="by hand"):
            shell_line(op, 0)
    else:
        assert shell_line(op, 0)


@pytest.mark.parametrize("kind", OF_LISTS)
def test_those_who_write_workloads_can_read_of_it(kind: OperationKind) -> None:
    text = (ROOT / "workloads/README.md").read_text()
    assert re.search(rf"`{re.escape(kind.value)}\b", text)
