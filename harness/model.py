"""The nouns of Powercut, one class each. Imports the standard library only, nothing of the harness.

Names end in their unit (`size_bytes`, `timeout_s`). Everything is frozen, so that any thread may use a value.
"""

from __future__ import annotations

import bisect
import enum
import errno
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

SECTOR_BYTES = 512
BLOCK_BYTES = 4096


class Verdict(enum.Enum):
    """The result for one crash state. UNKNOWN is never rounded up to PASS."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"


# --- what is run -----------------------------------------------------------------------------


class OperationKind(enum.StrEnum):
    """The kind of an operation; the value is its word in workload files."""

    CREATE = "create"
    TMPFILE = "tmpfile"
    OPEN = "open"
    OPEN_TMPFILE = "open-tmpfile"
    CLOSE = "close"
    WRITE = "write"
    APPEND = "append"
    MMAP_WRITE = "mmap-write"
    TRUNCATE = "truncate"
    FALLOCATE = "fallocate"
    LINK = "link"
    SYMLINK = "symlink"
    RENAME = "rename"
    EXCHANGE = "exchange"
    UNLINK = "unlink"
    MKDIR = "mkdir"
    RMDIR = "rmdir"
    MKFIFO = "mkfifo"
    MKNOD = "mknod"
    SETXATTR = "setxattr"
    REMOVEXATTR = "removexattr"
    CHMOD = "chmod"
    CHOWN = "chown"
    CLONE = "clone"
    FSYNC = "fsync"
    FDATASYNC = "fdatasync"
    SYNC_FILE_RANGE = "sync-file-range"
    SYNC = "sync"
    DROP_CACHES = "drop-caches"
    REMOUNT = "remount"
    RUN = "run"


class OperationFlag(enum.StrEnum):
    """A variant of an operation; see `Operation`."""

    SYNC = "sync"
    DSYNC = "dsync"
    DIRECT = "direct"
    KEEP_SIZE = "keep-size"
    PUNCH_HOLE = "punch-hole"
    ZERO_RANGE = "zero-range"
    SYNC_RANGE = "sync-range"
    ASYNC = "async"


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a workload. Fields that its kind does not use are empty.

    `path`, `target`: relative to the mount point. `target` is the new name of LINK and RENAME, the other
    name of EXCHANGE, and the contents of a SYMLINK. A `path` that begins with `@` is a handle: what OPEN of a
    file or directory, or OPEN_TMPFILE in a directory, holds open as `target` until CLOSE, whatever becomes of
    its name. CLONE makes the file `target` share the contents of `path` (FICLONE).
    `length`: bytes; the new size of TRUNCATE; permission bits of CHMOD. `offset` and `length` of CHOWN are
    user and group.
    `flags`: `sync`, `dsync`, `direct` of WRITE and APPEND; `keep-size`, `punch-hole`, `zero-range`
    of FALLOCATE; `sync` or `sync-range` of MMAP_WRITE; `async` of SYNC_FILE_RANGE. `argv`: the program of
    RUN.
    MMAP_WRITE stores into a shared mapping, which cannot extend a file; with `sync`, msync(MS_SYNC) of the
    whole file follows, with `sync-range`, of the pages that it stored into. TMPFILE: open(O_TMPFILE) in the
    directory of `path`, write `length` bytes, linkat to `path`. MKNOD makes a character device, 1:3.
    SYNC_FILE_RANGE writes the range's dirty pages and waits for them; with `async`, it only starts that.
    DROP_CACHES evicts what is clean from the kernel's caches: pages, names and inodes. REMOUNT unmounts the
    file system and mounts it again.
    Data written by operation number i is the pattern of writer i (`vms/protocol/src/pattern.rs`).
    """

    kind: OperationKind
    path: str = ""
    target: str = ""
    offset: int = 0
    length: int = 0
    name: str = ""
    value: bytes = b""
    flags: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()

    def __str__(self) -> str:
        k = OperationKind
        path = self.path or "."
        match self.kind:
            case k.WRITE | k.MMAP_WRITE | k.FALLOCATE | k.SYNC_FILE_RANGE | k.CHOWN:
                words = [path, str(self.offset), str(self.length), *self.flags]
            case k.APPEND:
                words = [path, str(self.length), *self.flags]
            case k.TRUNCATE | k.TMPFILE:
                words = [path, str(self.length)]
            case k.CHMOD:
                words = [path, f"{self.length:o}"]
            case k.LINK | k.SYMLINK | k.RENAME | k.EXCHANGE | k.CLONE | k.OPEN | k.OPEN_TMPFILE:
                words = [path, self.target]
            case k.SETXATTR:
                words = [path, self.name, self.value.decode("utf-8", "backslashreplace")]
            case k.REMOVEXATTR:
                words = [path, self.name]
            case k.RUN:
                words = list(self.argv)
            case k.SYNC | k.DROP_CACHES | k.REMOUNT:
                words = []
            case _:
                words = [path]
        return " ".join([self.kind.value, *words])


@dataclass(frozen=True, slots=True)
class Check:
    """A program run in the recovered file system that judges what RUN operation `operation` left.

    It counts only at crash points after that operation was acknowledged. Exit 0: the promise was kept. Its
    result depends on the contents of the files that match `reads` (glob patterns) and on nothing else.

    `application`: it counts at every crash point and runs on a copy. Its first argument is a file that lists
    what the application had acknowledged by then, one text per line. Exit 1: the promise was not kept; any
    other code: it could not judge. With fewer acknowledgements it demands no more than with more. `user`: who
    runs it; empty: root.
    """

    operation: int
    argv: tuple[str, ...]
    reads: tuple[str, ...]
    application: bool = False
    user: str = ""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is run before the power fails."""

    name: str
    summary: str
    operations: tuple[Operation, ...]
    checks: tuple[Check, ...] = ()
    # programs of the host, copied into the guest with their libraries: `sqlite3`, or with the package
    # `redis-server:redis-server`
    programs: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)  # by path in the guest; executable
    # files and folders of the host, at the same paths in the guest: `/usr/share/x`, `/usr/share/x:package`
    host_files: tuple[str, ...] = ()
    runtime: str = ""  # `python`: the interpreter and its library come along
    user: str = ""  # who runs the programs; empty: root
    image_mib: int = 0  # the least size of the file system; 0: the mode's own

    @property
    def opaque(self) -> bool:
        """Whether programs change the tree in ways that the reference model cannot follow."""
        return any(op.kind is OperationKind.RUN for op in self.operations)


# --- the write log ---------------------------------------------------------------------------


class EntryFlag(enum.IntFlag):
    """Flags of a dm-log-writes entry (drivers/md/dm-log-writes.c)."""

    FLUSH = 1
    FUA = 2
    DISCARD = 4
    MARK = 8
    METADATA = 16


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of a write log. `sector` and `sectors` are in units of 512 bytes. `mark`: a mark's text."""

    index: int
    sector: int
    sectors: int
    flags: EntryFlag
    data_offset: int  # where its data is in the log file, in bytes
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A write of the log, or a part of it that a disk writes as a whole. Written `41`, `41.2`, `41/13`.

    `block`: the number, from 0, of one of the 4 KiB blocks of the device that the write touches; `sector`:
    of one of its sectors of 512 bytes. Both None: the whole write.
    """

    entry: int
    block: int | None = None
    sector: int | None = None

    def __str__(self) -> str:
        if self.block is not None:
            return f"{self.entry}.{self.block}"
        return f"{self.entry}" if self.sector is None else f"{self.entry}/{self.sector}"

    @classmethod
    def parse(cls, text: str) -> Part:
        """Inverse of `str`. Raises ValueError."""
        m = re.fullmatch(r"(\d+)(?:([./])(\d+))?", text, re.ASCII)
        if not m:
            raise ValueError(f"{text!r} is not a part of a write such as 41, 41.2 or 41/13")
        number = int(m[3]) if m[3] else None
        return cls(int(m[1]), number if m[2] == "." else None, number if m[2] == "/" else None)


@dataclass(frozen=True, slots=True)
class Persisted:
    """Which of the writes that a disk was free to lose had reached the platter: all but `parts` or, with
    `only`, no others than `parts`.
    """

    parts: tuple[Part, ...] = ()
    only: bool = False

    def __str__(self) -> str:
        if not self.parts and not self.only:
            return ""
        return ("=" if self.only else "-") + ",".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class CrashState:
    """A recipe for the contents of the disk, of one of two kinds.

    Without `persisted`: the first `prefix` log entries, without those in `dropped`, and of entry `prefix - 1`
    only the first `torn_sectors` sectors, if given. Written `@417`, `@417-402,405`, `@417/t3`,
    `@417-402/t3`.

    With `persisted`: the power fails just before entry `prefix` completes (a mark: is made), in the order in
    which the guest saw its writes complete; `persisted` tells what the cache had written by then. Written
    `@t417` (all that was submitted), `@t417-402,405.1` (all but these), `@t417=402` (only this), `@t417=`
    (only what was durable). See `harness.states.legal`.
    """

    prefix: int
    dropped: tuple[int, ...] = ()
    torn_sectors: int | None = None
    persisted: Persisted | None = None

    def __post_init__(self) -> None:
        if self.prefix < 0 or any(not 0 <= d < self.prefix for d in self.dropped):
            raise ValueError(f"dropped entries {self.dropped} must lie below the prefix {self.prefix}")
        if list(self.dropped) != sorted(set(self.dropped)):
            raise ValueError(f"dropped entries {self.dropped} must ascend without repeats")
        if self.persisted is None:
            return
        if self.dropped or self.torn_sectors is not None:
            raise ValueError("a state by times has neither dropped entries nor a torn one")
        if list(self.persisted.parts) != sorted(set(self.persisted.parts), key=_part_order):
            raise ValueError(f"the writes in {self.persisted} must ascend without repeats")

    def __str__(self) -> str:
        if self.persisted is not None:
            return f"@t{self.prefix}{self.persisted}"
        text = f"@{self.prefix}"
        if self.dropped:
            text += "-" + ",".join(map(str, self.dropped))
        if self.torn_sectors is not None:
            text += f"/t{self.torn_sectors}"
        return text

    @classmethod
    def parse(cls, text: str) -> CrashState:
        """Inverse of `str`. Raises ValueError that shows the form expected."""
        if timed := re.fullmatch(rf"@t(\d+)(?:(-)({_PARTS})|(=)({_PARTS})?)?", text, re.ASCII):
            parts = tuple(Part.parse(p) for p in (timed[3] or timed[5] or "").split(",") if p)
            return cls(int(timed[1]), persisted=Persisted(parts, only=timed[4] is not None))
        m = re.fullmatch(r"@(\d+)(?:-(\d+(?:,\d+)*))?(?:/t(\d+))?", text)
        if not m:
            raise ValueError(
                f"crash state {text!r} is none of the forms @417, @417-402,405, @417/t3, @t417-402,405.1, "
                "@t417=402"
            )
        dropped = tuple(int(d) for d in m[2].split(",")) if m[2] else ()
        return cls(int(m[1]), dropped, int(m[3]) if m[3] else None)


_PART = r"\d+(?:[./]\d+)?"
_PARTS = rf"{_PART}(?:,{_PART})*"


def _part_order(part: Part) -> tuple[int, int, int]:
    return (part.entry, -1 if part.block is None else part.block, -1 if part.sector is None else part.sector)


# --- history ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """An operation with the places of its marks in the log.

    `begin`, `ack`: index of the log entry that is the mark; None where the log ends before it.
    """

    index: int
    operation: Operation
    begin: int | None
    ack: int | None


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What the application of RUN operation `operation` reported as done (`powercut-ack TEXT`).

    `entry`: index of the log entry that is the mark.
    """

    operation: int
    text: str
    entry: int


@dataclass(frozen=True, slots=True)
class History:
    """The operations done to an empty file system, and what applications acknowledged meanwhile, both in the
    order of their marks.
    """

    steps: tuple[HistoryStep, ...]
    acknowledgements: tuple[Acknowledgement, ...] = ()

    def position(self, prefix: int) -> Position:
        """The position in the history of a crash after the first `prefix` log entries."""
        return Position(
            begun=bisect.bisect_left(self.steps, prefix, key=lambda s: _place(s.begin)),
            acked=bisect.bisect_left(self.steps, prefix, key=lambda s: _place(s.ack)),
            app_acks=bisect.bisect_left(self.acknowledgements, prefix, key=lambda a: a.entry),
        )

    def app_acks(self, operation: int, count: int) -> tuple[str, ...]:
        """What `operation` acknowledged among the first `count` acknowledgements."""
        return tuple(a.text for a in self.acknowledgements[:count] if a.operation == operation)


def _place(entry: int | None) -> int:
    """Of a mark; the log ends before one that is None."""
    return sys.maxsize if entry is None else entry


@dataclass(frozen=True, slots=True)
class Position:
    """Where in the history the power failed: `begun` operations had begun and `acked` of them had returned;
    begun - acked is 0 or 1. `app_acks`: the number of applications' acknowledgements.
    """

    begun: int
    acked: int
    app_acks: int = 0


# --- what was recovered ----------------------------------------------------------------------


class FileKind(enum.StrEnum):
    """The type of an inode."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    FIFO = "fifo"
    SOCKET = "socket"
    BLOCK = "block"
    CHAR = "char"
    UNKNOWN = "unknown"  # a type that stat(2) does not document


class Call(enum.StrEnum):
    """What failed in the guest: a system call, or a limit of the agent."""

    STATX = "statx"
    OPENAT = "openat"
    GETDENTS = "getdents"
    READLINKAT = "readlinkat"
    LISTXATTR = "listxattr"
    GETXATTR = "getxattr"
    READ = "read"
    TOO_MANY_ENTRIES = "too-many-entries"  # EOVERFLOW: the walk ended there
    TOO_DEEP = "too-deep"  # ELOOP: the walk did not descend
    ANOTHER_MOUNT = "another-mount"  # EXDEV: the walk did not descend
    OPEN = "open"
    FSTAT = "fstat"
    WRITE = "write"
    FALLOCATE = "fallocate"
    TRUNCATE = "truncate"
    LINK = "link"
    LINKAT = "linkat"
    SYMLINK = "symlink"
    RENAME = "rename"
    RENAMEAT2 = "renameat2"
    UNLINK = "unlink"
    MKDIR = "mkdir"
    RMDIR = "rmdir"
    MKNODAT = "mknodat"
    SETXATTR = "setxattr"
    REMOVEXATTR = "removexattr"
    CHMOD = "chmod"
    CHOWN = "chown"
    FICLONE = "ficlone"
    FSYNC = "fsync"
    FDATASYNC = "fdatasync"
    SYNC_FILE_RANGE = "sync-file-range"
    DROP_CACHES = "drop-caches"
    UNMOUNT = "unmount"
    MOUNT = "mount"
    SYNCFS = "syncfs"
    MMAP = "mmap"
    MSYNC = "msync"
    MUNMAP = "munmap"
    SPAWN = "spawn"  # a program could not be started
    DEADLINE = "deadline"  # ETIMEDOUT: before the operation began, or before its program ended
    REQUEST = "request"  # EINVAL: the operation contradicts itself


_PHRASES = {
    Call.TOO_MANY_ENTRIES: "too many entries at",
    Call.TOO_DEEP: "too deep at",
    Call.ANOTHER_MOUNT: "another mount at",
}


@dataclass(frozen=True, slots=True)
class CallError:
    """A call that failed in the guest. `path`: relative to the mount point, surrogate-escaped. `name`: the
    extended attribute concerned or, with EEXIST, the name that a directory or a list has twice.
    """

    call: Call
    path: str
    errno: int
    name: str = ""

    @property
    def subject(self) -> str:
        """`openat a/b`"""
        what = _PHRASES.get(self.call, self.call.value)
        if self.name:
            what += f" ({self.name} twice)" if self.errno == errno.EEXIST else f" {self.name}"
        return f"{what} {self.path}".rstrip()

    def __str__(self) -> str:
        """`openat a/b: EUCLEAN (117)`"""
        return f"{self.subject}: {errno.errorcode.get(self.errno, 'errno')} ({self.errno})"


class ExtentKind(enum.StrEnum):
    """Where an extent of a file's contents comes from."""

    WRITTEN = "written"  # data of operation `value`, at the offset where it was written
    MISPLACED = "misplaced"  # data of operation `value`, written at offset `origin`
    ZERO = "zero"
    POISON = "poison"  # what the device held before mkfs, from device block `value`
    LITERAL = "literal"  # too short to identify: the bytes are in `data`
    FOREIGN = "foreign"  # bytes that no operation wrote; `data` holds the first 64
    UNREADABLE = "unreadable"  # read(2) failed with errno `value`


@dataclass(frozen=True, slots=True)
class Extent:
    """An extent of a file's contents of one origin: `length` bytes from offset `start`. What
    `value`, `origin` and `data` mean depends on `kind`.
    """

    kind: ExtentKind
    start: int
    length: int
    value: int = 0
    origin: int = 0
    data: bytes = b""

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One name. `path` is relative to the mount point (the root is ""), surrogate-escaped. `size` is in
    bytes, `blocks` in units of 512 bytes. `extents` cover a regular file's contents in order, without gaps.
    """

    path: str
    kind: FileKind
    inode: int
    mode: int
    links: int
    uid: int
    gid: int
    size: int
    blocks: int
    target: bytes = b""
    xattrs: Mapping[str, bytes] = field(default_factory=dict)
    extents: tuple[Extent, ...] = ()
    digest: str = ""


Tree = Mapping[str, TreeEntry]


class FsckClass(enum.Enum):
    """What an exit code of fsck means, by that program's own documentation."""

    CLEAN = "clean"
    REPAIRED = "repaired"
    DIRTY = "dirty"
    FAILED = "failed"  # the program could not do its work: the state is UNKNOWN


@dataclass(frozen=True, slots=True)
class FsckResult:
    """The result of one fsck."""

    classified: FsckClass
    exit_code: int
    output: str
    complaint: str = ""  # the first line of the output that says what is wrong, where known


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one Check. `exit_code` None: it could not be run. `app_acks`: the number of
    acknowledgements that it was given; 0 for a check that is not an application's.
    """

    operation: int
    exit_code: int | None
    output: str
    app_acks: int = 0


class DifferenceKind(enum.StrEnum):
    """How a file differs from what was written; see `Difference`."""

    SHORT_WRITE = "short-write"
    SIZE = "size"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class Difference:
    """A file that is not what was written to it. `found`: how many bytes write(2) wrote although there was
    room; the size in bytes that was read back; or the first offset with other data.
    """

    path: str
    kind: DifferenceKind
    found: int


@dataclass(frozen=True, slots=True)
class Usability:
    """What writing to a recovered file system showed: it was mounted again, a file made in its root and in
    its directories, all that it held removed, and files made again, to be read back after one more mount.

    `errors`: calls that failed, other than for lack of space where there was none. `remount_errno`: of the
    mount after the writing. `fsck`: of what was left in the end; None where it was not run. `lost`: console
    output, if the kernel died or hung of it (`harness.cases.attempts`). `undecided`: why it was not seen, or
    not to its end.
    """

    mount_errno: int = 0
    unmount_errno: int = 0
    errors: tuple[CallError, ...] = ()
    differences: tuple[Difference, ...] = ()
    remount_errno: int = 0
    fsck: FsckResult | None = None
    kernel_log: tuple[str, ...] = ()
    lost: str = ""
    undecided: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything observed of one crash state, which the oracles judge.

    `usable`: None where writing was not tried, because the file system did not come back whole. `lost`:
    console output, if the kernel died or hung on this state (`harness.cases.attempts`).
    """

    mount_errno: int = 0
    unmount_errno: int = 0
    tree: Tree = field(default_factory=dict)
    walk_errors: tuple[CallError, ...] = ()
    kernel_log: tuple[str, ...] = ()
    fsck: FsckResult | None = None
    usable: Usability | None = None
    checks: tuple[CheckResult, ...] = ()
    lost: str = ""


# --- judgement -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was not kept.

    `subject`: the path or operation concerned. `signature`: the same for the same fault at
    different crash points; findings are folded by (case, oracle, signature).
    """

    oracle: str
    subject: str
    summary: str
    expected: str
    found: str
    signature: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """FAIL if there is a violation; UNKNOWN if there is none but something could not be judged (`unknown`
    says what); PASS otherwise.
    """

    violations: tuple[Violation, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        if self.violations:
            return Verdict.FAIL
        return Verdict.UNKNOWN if self.unknown else Verdict.PASS


@dataclass(frozen=True, slots=True)
class CaseId:
    """A file system in a mode under a workload: `ext4-ordered/append-fsync`."""

    filesystem: str
    mode: str
    workload: str

    def __str__(self) -> str:
        return f"{self.filesystem}-{self.mode}/{self.workload}"

    @property
    def configuration(self) -> str:
        return f"{self.filesystem}/{self.mode}"

    @property
    def family(self) -> str:
        """The name of the workload in tables: for a generated one (`harness.workloads.generate`), of which
        there are hundreds, the name of its set: `ace1`, `ace2`, `random`.
        """
        if re.fullmatch(r"random\d+-\d+-\d+", self.workload):
            return "random"
        if self.workload.startswith("ace-") and "+" in self.workload:
            return f"ace{self.workload.count('--') + 1}"
        return self.workload

    @property
    def is_generated(self) -> bool:
        return self.family != self.workload

    @classmethod
    def parse(cls, text: str) -> CaseId:
        """Inverse of `str`. Raises ValueError that shows the form expected."""
        m = re.fullmatch(r"([a-z0-9]+)-([a-z0-9_+-]+)/([A-Za-z0-9_.+-]+)", text)
        if not m:
            raise ValueError(f"case {text!r} is not of the form ext4-ordered/append-fsync")
        return cls(m[1], m[2], m[3])


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """One crash state of one case: `ext4-ordered/append-fsync@417`."""

    case: CaseId
    state: CrashState

    def __str__(self) -> str:
        return f"{self.case}{self.state}"

    @classmethod
    def parse(cls, text: str) -> CrashPoint:
        """Inverse of `str`. Raises ValueError that shows the form expected."""
        case, at, state = text.partition("@")
        if not at:
            raise ValueError(f"crash point {text!r} is not of the form ext4-ordered/append-fsync@417")
        return cls(CaseId.parse(case), CrashState.parse(at + state))
