"""What was observed of a crash state: mount, kernel log, tree, fsck, checks."""

from __future__ import annotations

import enum
import errno
from collections.abc import Mapping
from dataclasses import dataclass, field


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
    INSIDE_ITSELF = "inside-itself"  # ELOOP: the walk did not descend
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
    SETFLAGS = "setflags"
    ENABLE_VERITY = "enable-verity"
    FICLONE = "ficlone"
    EXCHANGE_RANGE = "exchange-range"
    COPY_FILE_RANGE = "copy-file-range"
    UTIMENSAT = "utimensat"
    SUBVOLUME = "subvolume"
    SNAPSHOT = "snapshot"
    SUBVOLUME_DELETE = "subvolume-delete"
    START_ATOMIC = "start-atomic"
    COMMIT_ATOMIC = "commit-atomic"
    ABORT_ATOMIC = "abort-atomic"
    GC = "gc"
    SHUTDOWN = "shutdown"
    FSYNC = "fsync"
    FDATASYNC = "fdatasync"
    SYNC_FILE_RANGE = "sync-file-range"
    WRITE_BACK = "write-back"
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
    Call.INSIDE_ITSELF: "a directory inside itself:",
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

    @property
    def text(self) -> str:
        """What is there, in words."""
        return {
            ExtentKind.WRITTEN: f"data of operation {self.value}",
            ExtentKind.MISPLACED: f"data of operation {self.value}, written at offset {self.origin}",
            ExtentKind.ZERO: "zeros",
            ExtentKind.POISON: "what the device held before mkfs",
            ExtentKind.LITERAL: f"bytes too few to tell whose ({self.data[:16].hex(' ')})",
            ExtentKind.FOREIGN: f"bytes that nobody wrote ({self.data[:16].hex(' ')})",
            ExtentKind.UNREADABLE: "cannot be read",
        }[self.kind]


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One name. `path` is relative to the mount point (the root is ""), surrogate-escaped. `size` is in
    bytes, `blocks` in units of 512 bytes. `target`: of a symbolic link, where it leads; of a device, its
    numbers, `major:minor`. `extents` cover a regular file's contents in order, without gaps.
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


class ChangeKind(enum.StrEnum):
    """What becomes of a name, where trees are made by differences."""

    REMOVE = "remove"
    DIRECTORY = "directory"
    FILE = "file"
    SYMLINK = "symlink"
    LINK = "link"


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
class Change:
    """Something of a tree that one mount showed as `then`, and a later one as `now`. `path`: `.` is the root.
    `what`: of it, such as `size`.
    """

    path: str
    what: str
    then: str
    now: str

    def __str__(self) -> str:
        """`etc/hosts: size: 10, now 0`"""
        return f"{self.path}: {self.what}: {self.then}, now {self.now}"


@dataclass(frozen=True, slots=True)
class Usability:
    """What a second mount of a recovered file system showed, and, if fsck had found nothing wrong, writing to
    it: a file was made in its root and in its directories, all that it held removed, and files made again, to
    be read back after one more mount.

    `changed`: what the second mount showed, before anything was written, that the first had shown otherwise.
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
    changed: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything observed of one crash state, which the oracles judge.

    `read_only`: it refuses to be written to, although it was mounted for that. `usable`: None where it was
    not mounted a second time, because the file system did not come back whole. `lost`: console output, if the
    kernel died or hung on this state (`harness.cases.attempts`). `after_fault`: of a visit on a faulty disk,
    what came of the next mount, without the fault. `not_started`: what the steps said that start the stack,
    if one failed. `outside`: what changed outside the folder in which operations ran, on a disk that somebody
    has.
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
    after_fault: Outcome | None = None
    not_started: str = ""
    read_only: bool = False
    outside: tuple[Change, ...] = ()
