"""Operations of a workload as shell commands, for scripts that need no Powercut.

They run in the mount point. Data is one letter repeated, another one for each operation.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from harness.errors import UsageError
from harness.model import BLOCK_BYTES, Operation, OperationFlag, OperationKind


def shell_lines(operations: Sequence[Operation]) -> list[str]:
    """The commands that do these operations, one line for each. Raises as `shell_line`."""
    return [shell_line(op, i) for i, op in enumerate(operations)]


def shell_line(operation: Operation, number: int) -> str:
    """The command that does an operation; `number` chooses the letter that it writes. Raises UsageError for
    one that runs a program, mounts, or needs a file held open: how that is done elsewhere is not known here.
    """
    line = _LINES.get(operation.kind)
    if line is None or operation.path.startswith("@"):
        raise UsageError(f"`{operation}` is no line of a shell script", "write reproduce.sh by hand")
    return line(operation, chr(ord("A") + number % 26))


def _plain(path: str) -> str:
    """A path that no program takes for an option."""
    return f"./{path}" if path.startswith("-") else path or "."


def _quoted(path: str) -> str:
    return shlex.quote(_plain(path))


def _on_path(command: str) -> Callable[[Operation, str], str]:
    return lambda op, _: f"{command} {_quoted(op.path)}"


def _nameless(op: Operation, letter: str) -> str:
    write = f"-c 'pwrite -q -S {ord(letter):#x} 0 {op.length}'"
    link = shlex.quote(f"flink {_plain(op.path)}")
    return f"xfs_io -m 0644 -T {write} -c {link} {_quoted(op.path.rpartition('/')[0])}"


def _written(op: Operation, letter: str) -> str:
    """`put` is a function of the script. dd knows no block of 0 bytes, and write(2) of none does nothing."""
    if op.length == 0:
        return ":"
    appends = op.kind is OperationKind.APPEND
    at = f'"$(stat -c %s {_quoted(op.path)})"' if appends else str(op.offset)
    flags = [",".join(op.flags)] if op.flags else []  # one word: as dd takes several
    return " ".join(["put", _quoted(op.path), at, str(op.length), letter, *flags])


def _stored(op: Operation, letter: str) -> str:
    path = _quoted(op.path)
    store = f"-c 'mwrite -S {ord(letter):#x} {op.offset} {op.length}'"
    msync = " -c 'msync -s'" if OperationFlag.SYNC in op.flags else ""
    if OperationFlag.SYNC_RANGE in op.flags:
        start = op.offset // BLOCK_BYTES * BLOCK_BYTES
        msync = f" -c 'msync -s {start} {op.offset + op.length - start}'"
    mapped = op.offset + op.length if OperationFlag.PAST_END in op.flags else f"$(stat -c %s {path})"
    return f'xfs_io -c "mmap 0 {mapped}" {store}{msync} {path}'


def _written_back(op: Operation, _: str) -> str:
    options = "-w" if OperationFlag.ASYNC in op.flags else "-b -w -a"
    return f"xfs_io -c 'sync_range {options} {op.offset} {op.length}' {_quoted(op.path)}"


def _exchanged(op: Operation, _: str) -> str:
    """coreutils has it since 9.5 only. System call 316 of x86-64 is renameat2, -100 is AT_FDCWD."""
    call = "exit(syscall(316, -100, $ARGV[0], -100, $ARGV[1], 2) ? 1 : 0)"
    return f"perl -e '{call}' {_quoted(op.path)} {_quoted(op.target)}"


def _ranges_exchanged(op: Operation, _: str) -> str:
    """xfs_io has it since 6.10 only. The number is XFS_IOC_EXCHANGE_RANGE; flag 1 is TO_EOF, 2 is DSYNC."""
    flags = 3 if OperationFlag.DSYNC in op.flags else 1
    files = 'open($a, "+<", $ARGV[0]); open($b, "+<", $ARGV[1])'
    call = f'exit(!ioctl($b, 0x40285881, pack("lLQQQQ", fileno($a), 0, 0, 0, 0, {flags})))'
    return f"perl -e '{files}; {call}' {_quoted(op.path)} {_quoted(op.target)}"


def _copied(op: Operation, _: str) -> str:
    command = f"copy_range -s {op.offset} -d {op.offset} -l {op.length} {_plain(op.path)}"
    return f"xfs_io -c {shlex.quote(command)} {_quoted(op.target)}"


def _cloned(op: Operation, _: str) -> str:
    return f"xfs_io -c {shlex.quote(f'reflink {_plain(op.path)}')} {_quoted(op.target)}"


def _linked_softly(op: Operation, _: str) -> str:
    """What it points to is text, in front of which nothing may be put."""
    return f"ln -sT -- {shlex.quote(op.target)} {_quoted(op.path)}"


def _renamed(op: Operation, _: str) -> str:
    """rename(2) alone: of two names of one file, mv takes one away, or refuses."""
    return f"perl -e 'rename $ARGV[0], $ARGV[1] or die $!' {_quoted(op.path)} {_quoted(op.target)}"


def _allocated(op: Operation, _: str) -> str:
    options = {
        OperationFlag.KEEP_SIZE: "-n",
        OperationFlag.PUNCH_HOLE: "-p",
        OperationFlag.ZERO_RANGE: "-z",
        OperationFlag.COLLAPSE_RANGE: "-c",
        OperationFlag.INSERT_RANGE: "-i",
    }
    given = [options[OperationFlag(f)] for f in op.flags]
    return " ".join(["fallocate", *given, f"-o {op.offset} -l {op.length}", _quoted(op.path)])


def _attribute(op: Operation, _: str) -> str:
    """In hexadecimal: setfattr takes other values that begin with 0x or 0s, or are quoted, for a code."""
    return f"setfattr -h -n {shlex.quote(op.name)} -v 0x{op.value.hex()} {_quoted(op.path)}"


def _of_subvolumes(op: Operation, _: str) -> str:
    given = [_quoted(path) for path in (op.path, op.target) if path or path == op.path]
    word = {
        OperationKind.SUBVOLUME: "create",
        OperationKind.SNAPSHOT: "snapshot",
        OperationKind.SUBVOLUME_DELETE: "delete",
    }[op.kind]
    return " ".join(
        ["btrfs -q subvolume", word, *(given if op.kind is OperationKind.SNAPSHOT else given[:1])]
    )


def _collected(op: Operation, _: str) -> str:
    """The number is F2FS_IOC_GARBAGE_COLLECT, 1 says in the foreground. To find nothing is no failure."""
    call = 'sysopen(F, ".", 0); ioctl(F, 0x4004f506, pack("L", 1)) or $!{EAGAIN} or $!{ENODATA} or die $!'
    return f"perl -MErrno -e '{call}'"


_WAKE = "v=/proc/sys/vm/dirty_writeback_centisecs; echo $(($(cat $v) ^ 1)) >$v"
"""Another value wakes the kernel's writeback."""

_LINES: dict[OperationKind, Callable[[Operation, str], str]] = {
    OperationKind.CREATE: _on_path(": >"),
    OperationKind.TMPFILE: _nameless,
    OperationKind.WRITE: _written,
    OperationKind.APPEND: _written,
    OperationKind.MMAP_WRITE: _stored,
    OperationKind.TRUNCATE: lambda op, _: f"truncate -s {op.length} {_quoted(op.path)}",
    OperationKind.FALLOCATE: _allocated,
    OperationKind.LINK: lambda op, _: f"ln -T {_quoted(op.path)} {_quoted(op.target)}",
    OperationKind.SYMLINK: _linked_softly,
    OperationKind.RENAME: _renamed,
    OperationKind.EXCHANGE: _exchanged,
    OperationKind.UNLINK: _on_path("unlink"),
    OperationKind.MKDIR: _on_path("mkdir"),
    OperationKind.RMDIR: _on_path("rmdir"),
    OperationKind.MKFIFO: _on_path("mkfifo"),
    OperationKind.MKNOD: lambda op, _: f"mknod {_quoted(op.path)} c 1 3",
    OperationKind.SETXATTR: _attribute,
    OperationKind.REMOVEXATTR: lambda op, _: f"setfattr -h -x {shlex.quote(op.name)} {_quoted(op.path)}",
    OperationKind.CHMOD: lambda op, _: f"chmod {op.length:05o} {_quoted(op.path)}",  # 0755 keeps set-group-ID
    OperationKind.CHOWN: lambda op, _: f"chown {op.offset}:{op.length} {_quoted(op.path)}",
    OperationKind.CHATTR: lambda op, _: f"chattr {op.value.decode()} {_quoted(op.path)}",
    OperationKind.ENABLE_VERITY: lambda op, _: f"fsverity enable {_quoted(op.path)}",
    OperationKind.CLONE: _cloned,
    OperationKind.EXCHANGE_RANGE: _ranges_exchanged,
    OperationKind.COPY_RANGE: _copied,
    OperationKind.TOUCH: lambda op, _: f"touch -h -d @{op.length} {_quoted(op.path)}",
    OperationKind.SUBVOLUME: _of_subvolumes,
    OperationKind.SNAPSHOT: _of_subvolumes,
    OperationKind.SUBVOLUME_DELETE: _of_subvolumes,
    OperationKind.GC: _collected,
    OperationKind.FSYNC: _on_path("sync"),
    OperationKind.FDATASYNC: _on_path("sync -d"),
    OperationKind.SYNC_FILE_RANGE: _written_back,
    OperationKind.SYNC: lambda op, _: "sync",
    OperationKind.BEGIN_SYNC: lambda op, _: "sync &",
    OperationKind.WRITE_BACK: lambda op, _: _WAKE,
    OperationKind.DROP_CACHES: lambda op, _: "echo 3 >/proc/sys/vm/drop_caches",
}
