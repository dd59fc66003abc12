"""What is run before the power fails: operations, checks, workloads."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.model.questions import Question


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
    CHATTR = "chattr"
    ENABLE_VERITY = "enable-verity"
    CLONE = "clone"
    EXCHANGE_RANGE = "exchange-range"
    COPY_RANGE = "copy-range"
    TOUCH = "touch"
    SUBVOLUME = "subvolume"
    SNAPSHOT = "snapshot"
    SUBVOLUME_DELETE = "subvolume-delete"
    START_ATOMIC = "start-atomic"
    COMMIT_ATOMIC = "commit-atomic"
    ABORT_ATOMIC = "abort-atomic"
    GC = "gc"
    FSYNC = "fsync"
    FDATASYNC = "fdatasync"
    SYNC_FILE_RANGE = "sync-file-range"
    SYNC = "sync"
    BEGIN_SYNC = "begin-sync"
    WRITE_BACK = "write-back"
    DROP_CACHES = "drop-caches"
    REMOUNT = "remount"
    SHUTDOWN = "shutdown"
    CRASH = "crash"
    RUN = "run"


class OperationFlag(enum.StrEnum):
    """A variant of an operation; see `Operation`."""

    SYNC = "sync"
    DSYNC = "dsync"
    DIRECT = "direct"
    KEEP_SIZE = "keep-size"
    PUNCH_HOLE = "punch-hole"
    ZERO_RANGE = "zero-range"
    COLLAPSE_RANGE = "collapse-range"
    INSERT_RANGE = "insert-range"
    SYNC_RANGE = "sync-range"
    PAST_END = "past-end"
    ASYNC = "async"
    LOGFLUSH = "logflush"
    NOLOGFLUSH = "nologflush"


PERSISTS = frozenset(
    {
        OperationKind.FSYNC,
        OperationKind.FDATASYNC,
        OperationKind.SYNC,
        OperationKind.REMOUNT,
        OperationKind.SHUTDOWN,
        OperationKind.SNAPSHOT,
        OperationKind.CRASH,
        OperationKind.RUN,
    }
)
"""Kinds that may make something durable, in some mode; RUN, because nobody knows what a program does."""
PERSISTS_IF = frozenset({OperationFlag.SYNC, OperationFlag.DSYNC, OperationFlag.SYNC_RANGE})
"""Flags with which others do."""


ARGUMENTS: Mapping[OperationKind, tuple[str, ...]] = {
    OperationKind.CREATE: ("path",),
    OperationKind.TMPFILE: ("path", "length"),
    OperationKind.OPEN: ("path", "handle"),
    OperationKind.OPEN_TMPFILE: ("path", "handle"),
    OperationKind.CLOSE: ("handle",),
    OperationKind.WRITE: ("path", "offset", "length", "flags*"),
    OperationKind.APPEND: ("path", "length", "flags*"),
    OperationKind.MMAP_WRITE: ("path", "offset", "length", "flags*"),
    OperationKind.TRUNCATE: ("path", "length"),
    OperationKind.FALLOCATE: ("path", "offset", "length", "flags*"),
    OperationKind.LINK: ("path", "target"),
    OperationKind.SYMLINK: ("path", "target"),
    OperationKind.RENAME: ("path", "target"),
    OperationKind.EXCHANGE: ("path", "target"),
    OperationKind.UNLINK: ("path",),
    OperationKind.MKDIR: ("path",),
    OperationKind.RMDIR: ("path",),
    OperationKind.MKFIFO: ("path",),
    OperationKind.MKNOD: ("path",),
    OperationKind.SETXATTR: ("path", "name", "value"),
    OperationKind.REMOVEXATTR: ("path", "name"),
    OperationKind.CHMOD: ("path", "length"),
    OperationKind.CHOWN: ("path", "user", "group"),
    OperationKind.CHATTR: ("path", "value"),
    OperationKind.ENABLE_VERITY: ("path",),
    OperationKind.CLONE: ("path", "target"),
    OperationKind.EXCHANGE_RANGE: ("path", "target", "flags*"),
    OperationKind.COPY_RANGE: ("path", "target", "offset", "length"),
    OperationKind.TOUCH: ("path", "length"),
    OperationKind.SUBVOLUME: ("path",),
    OperationKind.SNAPSHOT: ("path", "target"),
    OperationKind.SUBVOLUME_DELETE: ("path",),
    OperationKind.START_ATOMIC: ("path",),
    OperationKind.COMMIT_ATOMIC: ("path",),
    OperationKind.ABORT_ATOMIC: ("path",),
    OperationKind.GC: (),
    OperationKind.FSYNC: ("path",),
    OperationKind.FDATASYNC: ("path",),
    OperationKind.SYNC_FILE_RANGE: ("path", "offset", "length", "flags*"),
    OperationKind.SYNC: (),
    OperationKind.BEGIN_SYNC: (),
    OperationKind.WRITE_BACK: (),
    OperationKind.DROP_CACHES: (),
    OperationKind.REMOUNT: (),
    OperationKind.SHUTDOWN: ("flags*",),
    OperationKind.CRASH: ("state",),
}
"""The words after an operation's kind; one that ends in "*" takes the rest as flags. RUN stands in no list.
"""


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a workload. Fields that its kind does not use are empty.

    `path`, `target`: relative to the mount point. `target` is the new name of LINK and RENAME, the other
    name of EXCHANGE, and the contents of a SYMLINK. A `path` that begins with `@` is a handle: what OPEN of a
    file or directory, or OPEN_TMPFILE in a directory, holds open as `target` until CLOSE, whatever becomes of
    its name. CLONE makes the file `target` share the contents of `path` (FICLONE).
    EXCHANGE_RANGE exchanges the whole contents of two files, and with them their sizes
    (XFS_IOC_EXCHANGE_RANGE to the end of both). COPY_RANGE copies bytes of the file `path` to the same place
    in `target` (copy_file_range(2)); whether they share blocks then is the file system's choice. TOUCH sets
    both times of an inode (utimensat(2)), which no contract judges. CHATTR sets (`+S`) or clears (`-S`) one
    inode flag (FS_IOC_SETFLAGS), by its letter in chattr(1); `harness.oracles.chattr` says what each does.
    SUBVOLUME, SNAPSHOT (of the subvolume `path`, writable, as `target`) and SUBVOLUME_DELETE are btrfs's.
    START_ATOMIC, COMMIT_ATOMIC and ABORT_ATOMIC are F2FS's: what is written to the file in between is there
    with the commit, all of it, or not at all. GC: F2FS collects garbage once, in the foreground.
    ENABLE_VERITY makes a file read-only, with a hash tree by which each read is verified
    (FS_IOC_ENABLE_VERITY, SHA-256).
    `length`: bytes; the new size of TRUNCATE; permission bits of CHMOD; of TOUCH, seconds since 1970.
    `offset` and `length` of CHOWN are user and group.
    `flags`: `sync`, `dsync`, `direct` of WRITE and APPEND; `keep-size`, `punch-hole`, `zero-range`,
    `collapse-range`, `insert-range` of FALLOCATE; `sync`, `sync-range` or `past-end` of MMAP_WRITE; `async`
    of SYNC_FILE_RANGE; `dsync` of EXCHANGE_RANGE; `logflush` or `nologflush` of SHUTDOWN. `argv`: the program
    of RUN; of CRASH, one word: the crash state that it leaves (`@t34-2`), or a number that chooses one.
    MMAP_WRITE stores into a shared mapping, which cannot extend a file; with `sync`, msync(MS_SYNC) of the
    whole file follows, with `sync-range`, of the pages that it stored into; with `past-end`, all of it lies
    behind the end of the file, in its last page, and never becomes a part of the file. TMPFILE:
    open(O_TMPFILE) in the directory of `path`, write `length` bytes, linkat to `path`. MKNOD makes a
    character device, 1:3.
    SYNC_FILE_RANGE writes the range's dirty pages and waits for them; with `async`, it only starts that.
    BEGIN_SYNC has another thread do sync(2), and does not wait for it; WRITE_BACK wakes the kernel's own
    threads that write what is dirty, as its timers do, and does not wait for them.
    DROP_CACHES evicts what is clean from the kernel's caches: pages, names and inodes. REMOUNT unmounts the
    file system and mounts it again. SHUTDOWN: the file system stops (FS_IOC_SHUTDOWN), is unmounted, and
    mounted again, so that it recovers. CRASH: the power fails, and the file system is mounted again, so that
    it recovers; at most one in a workload. See `harness.cases.crash_and_continue`.
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

    @property
    def persists(self) -> bool:
        """Whether it may make something durable."""
        return self.kind in PERSISTS or not PERSISTS_IF.isdisjoint(self.flags)

    def __str__(self) -> str:
        if self.kind is OperationKind.RUN:
            return " ".join([self.kind.value, *self.argv])
        words = [self._word(name) for name in ARGUMENTS[self.kind] if not name.endswith("*")]
        return " ".join([self.kind.value, *words, *self.flags])

    def _word(self, name: str) -> str:
        """An argument as it is written."""
        match name:
            case "path":
                return self.path or "."
            case "handle":
                return self.path if self.kind is OperationKind.CLOSE else self.target
            case "length" if self.kind is OperationKind.CHMOD:
                return f"{self.length:o}"
            case "user" | "group":
                return str(self.offset if name == "user" else self.length)
            case "value":
                return self.value.decode("utf-8", "backslashreplace")
            case _:
                return str(self.argv[0] if name == "state" else getattr(self, name))


@dataclass(frozen=True, slots=True)
class Check:
    """A program run in the recovered file system that judges what RUN operation `operation` left.

    It counts only at crash points after that operation was acknowledged. Exit 0: the promise was kept. Its
    result depends on the contents of the files that match `reads` (glob patterns) and on nothing else.

    `application`: it counts at every crash point and runs on a copy. Its first argument is a file that lists
    what the application had acknowledged by then, one text per line. Exit 1: the promise was not kept; any
    other code: it could not judge. With fewer acknowledgements it demands no more than with more. `ahead`:
    words in front of the program, which say in which root it runs, and who runs it.
    """

    operation: int
    argv: tuple[str, ...]
    reads: tuple[str, ...]
    application: bool = False
    ahead: tuple[str, ...] = ()


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
    image: str = ""  # the path of a container image of the host, whose root the programs have
    memory_mib: int = 0  # the least memory of its guests; 0: the machine's own
    question: Question | None = None  # of a litmus program, which the oracle of that name puts

    @property
    def opaque(self) -> bool:
        """Whether programs change the tree in ways that the reference model cannot follow."""
        return any(op.kind is OperationKind.RUN for op in self.operations)
