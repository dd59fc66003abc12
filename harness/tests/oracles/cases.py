"""Contracts, histories and recovered trees for the oracles' tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from random import Random
from types import FrameType

from harness.model import (
    Extent,
    ExtentKind,
    FileKind,
    FsckClass,
    FsckResult,
    History,
    HistoryStep,
    Judgement,
    Operation,
    OperationKind,
    Outcome,
    Position,
    Tree,
    TreeEntry,
)
from harness.oracles import Judge
from harness.oracles.contract import CHOICES, Contract
from harness.oracles.replay import replay
from harness.tests.oracles.simple_disk import PowerCut, SimpleDisk
from harness.workloads.load import parse_operation

K = OperationKind
CLEAN = FsckResult(FsckClass.CLEAN, 0, "")
PATTERNS = ("EXT4-fs error", r"JBD2: .*checksum")

ORDERED = Contract(
    namespace="prefix",
    persists="transaction",
    data="ordered",
    size_lags=True,
    zeros_in_new_blocks=True,
    stale_allowed=False,
    replace_is_safe=True,
    fsck_clean=True,
)


def variant(**changes: object) -> Contract:
    """The ordered contract with some fields changed."""
    table = {name: getattr(ORDERED, name) for name in CHOICES}
    return Contract.from_table({**table, **changes})


NODELALLOC = variant(size_lags=False, zeros_in_new_blocks=False)
JOURNAL = variant(data="journal", size_lags=False, zeros_in_new_blocks=False)
WRITEBACK = variant(data="writeback", replace_is_safe=False)
WRITEBACK_NODELALLOC = variant(data="writeback", size_lags=False, stale_allowed=True, replace_is_safe=False)
EACH = variant(namespace="each", persists="inode", replace_is_safe=False)
SYNCED = variant(
    namespace="synced", persists="inode", data="writeback", stale_allowed=True, replace_is_safe=False
)
CONTRACTS = {
    "zeroed-edges-lag": variant(rules=["zeroed-edges-lag"]),
    "ordered": ORDERED,
    "nodelalloc": NODELALLOC,
    "journal": JOURNAL,
    "writeback": WRITEBACK,
    "writeback-nodelalloc": WRITEBACK_NODELALLOC,
}


def history(operations: Sequence[str | Operation]) -> History:
    """Operations with marks `begin i` at log entry 2i and `ack i` at 2i + 1."""
    parsed = [parse_operation(op) if isinstance(op, str) else op for op in operations]
    return History(tuple(HistoryStep(i, op, 2 * i, 2 * i + 1) for i, op in enumerate(parsed)))


def written(operation: int, start: int, length: int) -> Extent:
    return Extent(ExtentKind.WRITTEN, start, length, operation)


def zeros(start: int, length: int) -> Extent:
    return Extent(ExtentKind.ZERO, start, length)


def file(
    path: str, *runs: Extent, inode: int = 0, links: int = 1, mode: int = 0o644, **more: object
) -> TreeEntry:
    size = runs[-1].end if runs else 0
    number = inode or 100 + sum(path.encode())
    return TreeEntry(path, FileKind.FILE, number, mode, links, 0, 0, size, 8, extents=runs, **more)  # type: ignore[arg-type]  # xattrs


def directory(path: str, mode: int = 0o755) -> TreeEntry:
    return TreeEntry(path, FileKind.DIRECTORY, 1000 + sum(path.encode()), mode, 2, 0, 0, 4096, 8)


def tree(*entries: TreeEntry) -> Tree:
    return {e.path: e for e in (directory(""), directory("lost+found", 0o700), *entries)}


def judged(
    operations: Sequence[str], recovered: Tree, contract: Contract = ORDERED, begun: int | None = None
) -> Judgement:
    """All operations begun and acknowledged, unless `begun` says how many had begun and the last of
    these not returned.
    """
    judge = Judge(contract, history(operations), error_patterns=PATTERNS)
    position = Position(begun, begun - 1) if begun else Position(len(operations), len(operations))
    return judge.judge(position, Outcome(tree=recovered, fsck=CLEAN))


def oracles(judgement: Judgement) -> set[str]:
    return {v.oracle for v in judgement.violations}


def calls_of(work: Callable[[], object]) -> int:
    """The number of calls, of functions in Python and in C, that it makes."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


# --- random histories and power cuts ---


def dice(seed: object) -> Random:
    return Random(str(seed))  # noqa: S311  # for variety, not for secrets


_MADE = {
    K.CREATE: "file",
    K.TMPFILE: "file",
    K.MKDIR: "directory",
    K.SYMLINK: "symlink",
    K.MKFIFO: "fifo",
    K.MKNOD: "char",
}
_SEVERAL = (K.SNAPSHOT, K.COMMIT_ATOMIC, K.ABORT_ATOMIC)
"""Those that come with others: see `Writer.several`."""
_NEVER_ALONE = (*_SEVERAL, K.RUN, K.CRASH, K.SUBVOLUME, K.SUBVOLUME_DELETE, K.START_ATOMIC)
_OF_EVERYTHING = (
    *(K.SYNC, K.BEGIN_SYNC, K.WRITE_BACK, K.DROP_CACHES, K.REMOUNT, K.GC, K.SHUTDOWN),
    *_NEVER_ALONE,
)


class Writer:
    """Writes down operations that can succeed, one after the other, on few names so that they meet.
    `without`: those that a file system does not have.
    """

    def __init__(self, random: Random, without: Collection[K] = ()) -> None:
        self.random = random
        self.without = without
        self.kinds: dict[str, str] = {"": "directory", "d": "directory"}
        self.inodes: dict[str, int] = {"": 0, "d": 0}
        self.xattrs: dict[int, set[str]] = {}
        self.handles: dict[str, int] = {}
        self.nameless: set[int] = set()
        self.shifted: set[int] = set()
        self.exchanged: set[int] = set()
        self.operations = [Operation(K.MKDIR, "d")]

    def write(self, count: int) -> list[Operation]:
        kinds = [K.WRITE] * 4 + [K.APPEND] * 5 + [K.FSYNC] * 3 + [K.CREATE] * 2 + list(K)
        kinds = [kind for kind in kinds if kind not in self.without]
        while len(self.operations) < count:
            op = self.try_one(kind := self.random.choice(kinds))
            if op:
                self.operations.append(op)
            elif kind in _SEVERAL:
                self.operations += self.several(kind, count - len(self.operations))
        return self.operations

    def files(self) -> list[str]:
        return [p for p, kind in self.kinds.items() if kind == "file"]

    def size(self, path: str) -> int:
        timeline = replay(ORDERED, history(self.operations))
        return timeline.files[self.handles.get(path, self.inodes.get(path, -1))].size

    def length(self) -> int:
        return self.random.choice([1, 3, 7, 100, 511, 512, 4000, 4096, 4097, 8192, 12000])

    def try_one(self, kind: K) -> Operation | None:
        random = self.random
        if kind in _OF_EVERYTHING:
            possible = kind not in _NEVER_ALONE and not (kind in (K.REMOUNT, K.SHUTDOWN) and self.handles)
            return Operation(kind) if possible and random.random() < 0.3 else None
        if kind in (K.OPEN, K.OPEN_TMPFILE, K.CLOSE):
            return self.of_handles(kind)
        if kind is K.LINK and self.nameless and random.random() < 0.5:
            return self.named()
        if kind in _MADE:
            path = random.choice(["f", "g", "d/f", "d/g", "s"])
            if path in self.kinds:
                return None
            self.kinds[path] = _MADE[kind]
            self.inodes[path] = len(self.operations)
            length = self.length() if kind is K.TMPFILE else 0
            return Operation(kind, path, target="f" if kind is K.SYMLINK else "", length=length)
        if kind in (K.LINK, K.RENAME, K.EXCHANGE, K.UNLINK, K.RMDIR, K.SETXATTR, K.REMOVEXATTR):
            return self.of_names(kind)
        of_two = {K.CLONE, K.EXCHANGE_RANGE, K.COPY_RANGE}
        if kind in of_two | {K.CHATTR, K.ENABLE_VERITY}:
            return self.of_two_files(kind) if kind in of_two else self.of_flags(kind)
        if kind in (K.FSYNC, K.CHMOD) and random.random() < 0.3:
            return Operation(kind, "d", length=random.choice([0o700, 0o755]) if kind is K.CHMOD else 0)
        by_handle = [] if kind is K.CREATE else list(self.handles)
        if not self.files() + by_handle:
            return None
        return self.of_contents(kind, random.choice(self.files() + by_handle))

    def several(self, kind: K, room: int) -> list[Operation]:
        """A snapshot of everything that is deleted later, or an atomic write."""
        if kind is K.SNAPSHOT:
            made = [Operation(K.SNAPSHOT, "", "w"), Operation(K.SUBVOLUME_DELETE, "w")]
        elif held := [name for name, inode in self.handles.items() if inode not in self.nameless]:
            name = self.random.choice(held)
            offset, length = self.random.choice([0, 100, 4096]), self.length()
            made = [
                Operation(K.START_ATOMIC, name),
                Operation(K.WRITE, name, offset=offset, length=length),
                Operation(K.APPEND, name, length=self.length()),
                Operation(kind, name),
            ]
        else:
            return []
        return made if len(made) <= room else []

    def of_flags(self, kind: K) -> Operation | None:
        """No file gets verity: it would never be written again."""
        if kind is K.ENABLE_VERITY:
            return None
        sign, path = self.random.choice("+-"), self.random.choice(["d", *self.files()])
        return Operation(kind, path, value=f"{sign}{'D' if path == 'd' else 'S'}".encode())

    def of_two_files(self, kind: K) -> Operation | None:
        if len(self.files()) < 2:
            return None
        path, target = self.random.sample(self.files(), 2)
        if self.inodes[path] == self.inodes[target]:
            return None
        if kind is K.COPY_RANGE:
            offset, length = self.random.choice([0, 0, 100, 4096]), self.length()
            possible = offset + length <= self.size(path)
            return Operation(kind, path, target, offset=offset, length=length) if possible else None
        if kind is K.EXCHANGE_RANGE:
            both = {self.inodes[path], self.inodes[target]}
            if both & self.shifted:
                return None
            self.exchanged |= both
            return Operation(kind, path, target, flags=self.random.choice([(), ("dsync",)]))
        return Operation(kind, path, target) if self.size(path) >= self.size(target) else None

    def of_handles(self, kind: K) -> Operation | None:
        random = self.random
        name = random.choice(["@a", "@b"])
        if kind is K.CLOSE:
            if name not in self.handles:
                return None
            self.nameless.discard(self.handles.pop(name))
            return Operation(kind, name)
        if name in self.handles:
            return None
        if kind is K.OPEN_TMPFILE:
            self.handles[name] = len(self.operations)
            self.nameless.add(len(self.operations))
            return Operation(kind, random.choice(["", "d"]), name)
        if not self.files():
            return None
        path = random.choice(self.files())
        self.handles[name] = self.inodes[path]
        return Operation(kind, path, name)

    def named(self) -> Operation | None:
        """The first name of what was opened without one."""
        target = self.random.choice(["f", "g", "d/f", "d/g"])
        if target in self.kinds:
            return None
        inode = self.random.choice(sorted(self.nameless))
        self.nameless.discard(inode)
        self.kinds[target], self.inodes[target] = "file", inode
        return Operation(K.LINK, next(name for name, i in self.handles.items() if i == inode), target)

    def of_names(self, kind: K) -> Operation | None:
        random = self.random
        names = [p for p in self.kinds if p not in ("", "d")]
        if not names:
            return None
        path, target = random.choice(names), random.choice(["f", "g", "h", "d/f", "d/g", "d/h"])
        inner = any(p.startswith(path + "/") for p in self.kinds)
        if kind is K.LINK and self.kinds[path] != "directory" and target not in self.kinds:
            self.kinds[target], self.inodes[target] = self.kinds[path], self.inodes[path]
            return Operation(kind, path, target)
        if kind is K.RENAME and not inner and "directory" not in (self.kinds[path], self.kinds.get(target)):
            if self.inodes[path] != self.inodes.get(target):
                self.kinds[target], self.inodes[target] = self.kinds.pop(path), self.inodes.pop(path)
            return Operation(kind, path, target)
        if kind is K.EXCHANGE and target in self.kinds:
            # Nothing is ever made in a directory but `d`, which keeps its name.
            kinds, inodes = self.kinds, self.inodes
            kinds[path], kinds[target] = kinds[target], kinds[path]
            inodes[path], inodes[target] = inodes[target], inodes[path]
            return Operation(kind, path, target)
        if (kind is K.UNLINK and self.kinds[path] != "directory") or (
            kind is K.RMDIR and self.kinds[path] == "directory" and not inner
        ):
            del self.kinds[path], self.inodes[path]
            return Operation(kind, path)
        known = self.xattrs.setdefault(self.inodes[path], set())
        if kind is K.SETXATTR and self.kinds[path] == "file":
            known.add(name := random.choice(["user.a", "user.b"]))
            return Operation(kind, path, name=name, value=bytes([random.choice(b"xyz")]))
        if kind is K.REMOVEXATTR and known and self.kinds[path] == "file":
            return Operation(kind, path, name=known.pop())
        return None

    def of_shifts(self, path: str) -> Operation | None:
        """A range to collapse, or to insert."""
        inode, size = self.handles.get(path, self.inodes.get(path, -1)), self.size(path)
        offset, length = self.random.choice([0, 4096, 8192]), self.random.choice([4096, 8192])
        flag = self.random.choice(["collapse-range", "insert-range"])
        if inode in self.exchanged or offset + length * (flag == "collapse-range") >= size:
            return None
        self.shifted.add(inode)
        return Operation(K.FALLOCATE, path, offset=offset, length=length, flags=(flag,))

    def of_mapping(self, path: str, offset: int, length: int) -> Operation | None:
        """A store into a mapping of a file that is not empty."""
        if not (size := self.size(path)):
            return None
        offset = min(offset, size - 1)
        flags = self.random.choice([(), ("sync",), ("sync-range",), ("past-end",)])
        if "past-end" in flags:
            return self.past_end(path, size)
        return Operation(K.MMAP_WRITE, path, offset=offset, length=min(length, size - offset), flags=flags)

    def past_end(self, path: str, size: int) -> Operation | None:
        """A store behind the end, into the last page; None if the file ends with a page."""
        left = -size % 4096
        if not left:
            return None
        offset = self.random.randrange(left)
        length = self.random.randrange(1, left - offset + 1)
        return Operation(K.MMAP_WRITE, path, offset=size + offset, length=length, flags=("past-end",))

    def of_contents(self, kind: K, path: str) -> Operation | None:
        random = self.random
        length, offset = self.length(), random.choice([0, 0, 4, 100, 4096, 5000, 8192, 20000])
        flags: tuple[str, ...] = ()
        if kind is K.MMAP_WRITE:
            return self.of_mapping(path, offset, length)
        if kind in (K.WRITE, K.APPEND):
            flags = random.choice([(), (), (), (), ("sync",), ("dsync",)])
        elif kind is K.FALLOCATE and random.random() < 0.5:
            return self.of_shifts(path)
        elif kind is K.FALLOCATE:
            flags = random.choice(
                [(), ("keep-size",), ("punch-hole",), ("zero-range",), ("zero-range", "keep-size")]
            )
        elif kind is K.SYNC_FILE_RANGE:
            flags = random.choice([(), ("async",)])
        elif kind is K.TRUNCATE:
            length = random.choice([0, 0, 3, 100, 4096, 5000, 9000, 20000])
        elif kind is K.CHOWN:
            offset, length = random.choice([0, 1000]), random.choice([0, 1000])
        elif kind is K.CHMOD:
            length = random.choice([0o600, 0o644, 0o755])
        return Operation(kind, path, offset=offset if kind is not K.APPEND else 0, length=length, flags=flags)


def power_cut(
    contract: Contract, operations: Sequence[Operation], random: Random, bugs: Iterable[str] = ()
) -> tuple[Position, Tree]:
    """Perform the operations on the simple disk until the power fails at a random place."""
    disk = SimpleDisk(contract, random, random.randrange(3 * len(operations)), frozenset(bugs))
    begun = acked = 0
    try:
        for index, op in enumerate(operations):
            begun += 1
            disk.perform(index, op)
            acked += 1
    except PowerCut:
        pass
    return Position(begun, acked), disk.recovered()
