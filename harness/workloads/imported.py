"""A workload from the system calls of a program: the same names, places, lengths, flags and syncs, with data
of ours. Pure.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from harness.model import Operation, OperationKind
from harness.workloads.strace import EXIT, SystemCall, descriptor, string, structure

_K = OperationKind
_FALLOCATE = {
    frozenset[str](): (),
    frozenset({"KEEP_SIZE"}): ("keep-size",),
    frozenset({"KEEP_SIZE", "PUNCH_HOLE"}): ("punch-hole",),
    frozenset({"ZERO_RANGE"}): ("zero-range",),
    frozenset({"KEEP_SIZE", "ZERO_RANGE"}): ("keep-size", "zero-range"),
}
_CLONE_IOCTLS = ("FICLONE", "BTRFS_IOC_CLONE")
_CHANGING_IOCTLS = (
    "FICLONERANGE",
    "BTRFS_IOC_CLONE_RANGE",
    "FIDEDUPERANGE",
    "FS_IOC_SETFLAGS",
    "FS_IOC_FSSETXATTR",
)


@dataclass(frozen=True, slots=True)
class Imported:
    """`before`: what makes the names that were there when the program began. `left_out`: how many calls that
    change something have no operation, by name.
    """

    before: tuple[Operation, ...]
    operations: tuple[Operation, ...]
    left_out: Mapping[str, int]

    @property
    def whole(self) -> tuple[Operation, ...]:
        """What is there at first is made durable."""
        return (*self.before, *([Operation(_K.SYNC)] if self.before else []), *self.operations)


def imported(calls: Iterable[SystemCall], root: str) -> Imported:
    """What the calls do below the folder `root`; what they do elsewhere, and what only reads, is ignored.
    A file that is not known to be there before is made by the open(2) that may make it.
    """
    work = _Import(posixpath.normpath(root))
    for call in calls:
        work.take(call)
    used = {op.path for op in work.operations if op.kind is not _K.CLOSE}
    kept = [op for op in work.operations if _held(op) is None or _held(op) in used]
    return Imported(tuple(work.before), tuple(kept), dict(work.left_out.most_common()))


def _held(op: Operation) -> str | None:
    """The handle that an operation makes or gives up."""
    if op.kind in (_K.OPEN, _K.OPEN_TMPFILE):
        return op.target
    return op.path if op.kind is _K.CLOSE else None


@dataclass(slots=True, eq=False)
class _Open:
    """An open file description: `flags` as open(2) names them, `handle` once its name is gone."""

    path: str
    flags: frozenset[str] = frozenset()
    offset: int = 0
    handle: str = ""


@dataclass(slots=True)
class _Process:
    directory: str = "/"
    files: dict[int, _Open] = field(default_factory=dict)


class _LeftOut(Exception):
    pass


class _Import:
    def __init__(self, root: str) -> None:
        self._root = root
        self.before: list[Operation] = []
        self.operations: list[Operation] = []
        self.left_out: Counter[str] = Counter()
        self._processes: dict[int, _Process] = {}
        self._there = {"": _K.MKDIR}  # names, and what makes each
        self._gone: set[str] = set()
        self._seen: dict[str, tuple[bool, int]] = {}  # by a call that only looked: a directory, and its size
        self._handles = 0

    def take(self, call: SystemCall) -> None:
        process = self._processes.setdefault(call.pid, _Process())
        for argument in call.arguments:
            if argument.startswith("AT_FDCWD<"):
                process.directory = descriptor(argument).path
        if does := _CALLS.get(call.name):
            try:
                does(self, call, process)
            except _LeftOut as what:
                self.left_out[str(what) or call.name] += 1

    # What a path or a descriptor stands for: below the root, or None.

    def _below(self, path: str) -> str | None:
        inner = posixpath.relpath(path, self._root)
        return None if inner == ".." or inner.startswith("../") else "" if inner == "." else _word(inner)

    def _named(self, call: SystemCall, process: _Process, at: int) -> str | None:
        """The path that argument `at` names; the one before it may be the directory that it starts from."""
        name = string(call.arguments[at])
        start = process.directory
        if at and re.match(r"(\d+|AT_FDCWD)<", call.arguments[at - 1]):
            start = descriptor(call.arguments[at - 1]).path
        return self._below(posixpath.normpath(posixpath.join(start, name)))

    def _file(self, process: _Process, argument: str) -> tuple[str, _Open] | None:
        """What an operation calls an open file, and its description; None: it is not below the root."""
        if not re.match(r"\d+<", argument):
            return None
        told = descriptor(argument)
        path = self._below(told.path)
        if path is None or told.number is None:
            return None
        known = process.files.setdefault(told.number, _Open(path))
        if told.is_deleted and not known.handle:
            raise _LeftOut("calls on a file that had no name when it was opened")
        if not told.is_deleted:
            known.path = path
            self._need(path)
        return known.handle or path, known

    def _need(self, path: str, *, directory: bool = False) -> None:
        """The name has to be there: what nobody made was there before."""
        if path in self._there:
            return
        if path in self._gone:
            raise _LeftOut("calls on a name that came back unseen")
        self._need(posixpath.dirname(path), directory=True)
        is_directory, size = self._seen.get(path, (directory, 0))
        self._there[path] = _K.MKDIR if is_directory or directory else _K.CREATE
        self.before.append(Operation(self._there[path], path))
        if size and self._there[path] is _K.CREATE:
            self.before.append(Operation(_K.APPEND, path, length=size))

    def _do(self, kind: OperationKind, path: str = "", **fields: object) -> None:
        self.operations.append(Operation(kind, path, **fields))  # type: ignore[arg-type]  # of the callers below

    def _make(self, kind: OperationKind, path: str, **fields: object) -> None:
        self._need(posixpath.dirname(path), directory=True)
        self._there[path] = kind
        self._do(kind, path, **fields)

    def _lose(self, path: str) -> None:
        """The name goes: whoever has the file open holds it by a handle from now on."""
        for known in {o for p in self._processes.values() for o in p.files.values() if o.path == path}:
            if not known.handle:
                known.handle = self._handle()
                self._do(_K.OPEN, path, target=known.handle)
        self._there.pop(path, None)
        self._seen.pop(path, None)
        self._gone.add(path)

    def _handle(self) -> str:
        self._handles += 1
        return f"@{self._handles}"

    # The calls.

    def looks(self, call: SystemCall, process: _Process) -> None:
        """stat(2): the name is there, and how long it is."""
        at = next((i for i, a in enumerate(call.arguments) if a.startswith('"')), None)
        told = next((a for a in call.arguments if a.startswith("{")), "")
        if at is None:
            path = self._below(descriptor(call.arguments[0]).path) if "<" in call.arguments[0] else None
        else:
            path = self._named(call, process, at)
        if path is not None and path not in self._there:
            size = structure(told, "st_size") or structure(told, "stx_size") or 0
            self._seen[path] = ("S_IFDIR" in told, 0 if "S_IFDIR" in told else size)

    def opens(self, call: SystemCall, process: _Process) -> None:
        process.files.pop(call.result, None)
        path = self._below(call.path)
        if path is None:
            return
        flags = frozenset(re.findall(r"O_\w+", " ".join(call.arguments)))
        if call.name == "creat":
            flags |= {"O_CREAT", "O_TRUNC", "O_WRONLY"}
        process.files[call.result] = known = _Open(path, flags)
        if "O_TMPFILE" in flags:
            known.path, known.handle = "", self._handle()
            self._need(parent := posixpath.dirname(path), directory=True)
            self._do(_K.OPEN_TMPFILE, parent, target=known.handle)
        elif "O_CREAT" in flags and path not in self._there and path not in self._seen:
            self._make(_K.CREATE, path)
        else:
            self._need(path, directory="O_DIRECTORY" in flags)
            if "O_TRUNC" in flags:
                self._do(_K.TRUNCATE, path)

    def closes(self, call: SystemCall, process: _Process) -> None:
        number = descriptor(call.arguments[0]).number if "<" in call.arguments[0] else None
        known = process.files.pop(number, None) if number is not None else None
        others = [o for p in self._processes.values() for o in p.files.values()]
        if known and known.handle and known not in others:
            self._do(_K.CLOSE, known.handle)

    def exits(self, call: SystemCall, process: _Process) -> None:
        """Closes what the process has open, unless it shares its descriptors."""
        del self._processes[call.pid]
        if any(p.files is process.files for p in self._processes.values()):
            return
        others = [o for p in self._processes.values() for o in p.files.values()]
        for known in dict.fromkeys(process.files.values()):
            if known.handle and known not in others:
                self._do(_K.CLOSE, known.handle)

    def duplicates(self, call: SystemCall, process: _Process) -> None:
        is_other = call.name == "fcntl" and not call.arguments[1].startswith("F_DUPFD")
        if not is_other and (found := self._file(process, call.arguments[0])):
            process.files[call.result] = found[1]

    def forks(self, call: SystemCall, process: _Process) -> None:
        """What shares descriptors shares them; another process has copies, with common offsets."""
        is_shared = "CLONE_FILES" in " ".join(call.arguments)
        files = process.files if is_shared else dict(process.files)
        self._processes[call.result] = _Process(process.directory, files)

    def changes_directory(self, call: SystemCall, process: _Process) -> None:
        if call.name == "fchdir":
            process.directory = descriptor(call.arguments[0]).path
        else:
            process.directory = posixpath.join(process.directory, string(call.arguments[0]))

    def seeks(self, call: SystemCall, process: _Process) -> None:
        if found := self._file(process, call.arguments[0]):
            found[1].offset = call.result

    def reads(self, call: SystemCall, process: _Process) -> None:
        if found := self._file(process, call.arguments[0]):
            found[1].offset += call.result

    def writes(self, call: SystemCall, process: _Process) -> None:
        to, place = _WRITES[call.name]
        found = self._file(process, call.arguments[to])
        if not found or not call.result:
            return
        path, known = found
        words = known.flags | frozenset(re.findall(r"RWF_\w+", call.arguments[-1]))
        flags = [f for f, of in _SYNCS.items() if not of.isdisjoint(words)][:1]
        flags += ["direct"] if "O_DIRECT" in words else []
        if words & {"O_APPEND", "RWF_APPEND"}:
            self._do(_K.APPEND, path, length=call.result, flags=tuple(flags))
            return
        at = _place(call.arguments[place]) if place else None
        self._do(
            _K.WRITE, path, offset=known.offset if at is None else at, length=call.result, flags=tuple(flags)
        )
        known.offset += call.result if at is None else 0

    def truncates(self, call: SystemCall, process: _Process) -> None:
        if (path := self._either(call, process)) is not None:
            self._do(_K.TRUNCATE, path, length=int(call.arguments[1]))

    def allocates(self, call: SystemCall, process: _Process) -> None:
        mode = frozenset(re.findall(r"FALLOC_FL_(\w+)", call.arguments[1]))
        if not (found := self._file(process, call.arguments[0])):
            return
        if mode not in _FALLOCATE:
            raise _LeftOut(f"fallocate with {call.arguments[1]}")
        offset, length = map(int, call.arguments[2:4])
        self._do(_K.FALLOCATE, found[0], offset=offset, length=length, flags=_FALLOCATE[mode])

    def renames(self, call: SystemCall, process: _Process) -> None:
        is_at = call.name != "rename"
        old, new = (self._named(call, process, at) for at in ((1, 3) if is_at else (0, 1)))
        if old is None and new is None:
            return
        if (
            old is None
            or (new is None and self._there.get(old) is _K.MKDIR)
            or "WHITEOUT" in call.arguments[-1]
        ):
            raise _LeftOut("renames into the folder, of directories out of it, or with a whiteout")
        self._need(old)
        if new is None:
            self._lose(old)
            self._do(_K.UNLINK, old)
            return
        if "EXCHANGE" in call.arguments[-1] and is_at:
            self._need(new)
            self._do(_K.EXCHANGE, old, target=new)
            self._there[old], self._there[new] = self._there[new], self._there[old]
            return
        self._need(posixpath.dirname(new), directory=True)
        if new in self._there or new in self._seen:
            self._need(new)
            self._lose(new)
        self._do(_K.RENAME, old, target=new)
        self._move(old, new)

    def _move(self, old: str, new: str) -> None:
        for name in [n for n in self._there if n == old or n.startswith(f"{old}/")]:
            self._there[new + name.removeprefix(old)] = self._there.pop(name)
            self._gone.add(name)
        self._gone -= self._there.keys()
        for known in {o for p in self._processes.values() for o in p.files.values() if not o.handle}:
            if known.path == old or known.path.startswith(f"{old}/"):
                known.path = new + known.path.removeprefix(old)

    def links(self, call: SystemCall, process: _Process) -> None:
        is_at = call.name == "linkat"
        new = self._named(call, process, 3 if is_at else 1)
        old = self._linked(call, process) if is_at else self._named(call, process, 0)
        if new is None:
            return
        if old is None:
            raise _LeftOut("links to what is not in the folder")
        if not old.startswith("@"):
            self._need(old)
        self._need(posixpath.dirname(new), directory=True)
        self._there[new] = self._there.get(old, _K.CREATE)
        self._do(_K.LINK, old, target=new)

    def _linked(self, call: SystemCall, process: _Process) -> str | None:
        """The file of linkat(2): by name, or a file without one by its descriptor."""
        name = string(call.arguments[1])
        if m := re.fullmatch(r"/proc/(?:self|\d+)/fd/(\d+)", name):
            known = process.files.get(int(m[1]))
            return (known.handle or known.path) if known else None
        if not name:
            found = self._file(process, call.arguments[0])
            return found[0] if found else None
        return self._named(call, process, 1)

    def makes(self, call: SystemCall, process: _Process) -> None:
        at = 1 if call.name.endswith("at") else 0
        if (path := self._named(call, process, at)) is None:
            return
        kind = _K.MKDIR
        if call.name.startswith("mknod"):
            word = next((w for w in _NODES if w in call.arguments[at + 1]), "")
            if not word:
                raise _LeftOut(f"mknod with {call.arguments[at + 1]}")
            kind = _NODES[word]
        self._make(kind, path)

    def makes_symlink(self, call: SystemCall, process: _Process) -> None:
        path = self._named(call, process, 2 if call.name == "symlinkat" else 1)
        if path is not None:
            self._make(_K.SYMLINK, path, target=_word(string(call.arguments[0])))

    def removes(self, call: SystemCall, process: _Process) -> None:
        path = self._named(call, process, 1 if call.name == "unlinkat" else 0)
        if path is None:
            return
        is_directory = call.name == "rmdir" or "AT_REMOVEDIR" in call.arguments[-1]
        self._need(path, directory=is_directory)
        self._lose(path)
        self._do(_K.RMDIR if is_directory else _K.UNLINK, path)

    def syncs(self, call: SystemCall, process: _Process) -> None:
        if call.name == "sync":
            self._do(_K.SYNC)
        elif found := self._file(process, call.arguments[0]):
            kinds = {"fsync": _K.FSYNC, "fdatasync": _K.FDATASYNC}
            self._do(kinds.get(call.name, _K.SYNC), found[0] if call.name in kinds else "")

    def syncs_range(self, call: SystemCall, process: _Process) -> None:
        if found := self._file(process, call.arguments[0]):
            offset, length = map(int, call.arguments[1:3])
            waits = "WAIT_AFTER" in call.arguments[3]
            self._do(
                _K.SYNC_FILE_RANGE, found[0], offset=offset, length=length, flags=() if waits else ("async",)
            )

    def sets_attribute(self, call: SystemCall, process: _Process) -> None:
        if (path := self._either(call, process)) is None:
            return
        name = string(call.arguments[1])
        if not name.startswith("user.") or name != _word(name):
            raise _LeftOut("attributes that are not the user's own")
        if "remove" in call.name:
            self._do(_K.REMOVEXATTR, path, name=name)
        else:
            self._do(_K.SETXATTR, path, name=name, value=b"v" * max(int(call.arguments[3]), 1))

    def sets_mode(self, call: SystemCall, process: _Process) -> None:
        at = 1 if call.name.startswith("fchmodat") else 0
        path = self._named(call, process, at) if at else self._either(call, process)
        if path is not None:
            self._need(path)
            self._do(_K.CHMOD, path, length=int(call.arguments[at + 1], 8) & 0o7777)

    def sets_owner(self, call: SystemCall, process: _Process) -> None:
        at = 1 if call.name == "fchownat" else 0
        path = self._named(call, process, at) if at else self._either(call, process)
        if path is None:
            return
        user, group = map(int, call.arguments[at + 1 : at + 3])
        if min(user, group) < 0:
            raise _LeftOut("chown of the user or the group alone")
        self._need(path)
        if self._there.get(path) is _K.SYMLINK:
            raise _LeftOut("owners of symbolic links")
        self._do(_K.CHOWN, path, offset=user, length=group)

    def controls(self, call: SystemCall, process: _Process) -> None:
        word = call.arguments[1].partition(" ")[0]
        found = (
            self._file(process, call.arguments[0]) if word in (*_CLONE_IOCTLS, *_CHANGING_IOCTLS) else None
        )
        if not found:
            return
        source = self._file(process, call.arguments[2]) if word in _CLONE_IOCTLS else None
        if not source:
            raise _LeftOut(f"ioctl {word}")
        self._do(_K.CLONE, source[0], target=found[0])

    def maps(self, call: SystemCall, process: _Process) -> None:
        is_written = "MAP_SHARED" in call.arguments[3] and "PROT_WRITE" in call.arguments[2]
        if is_written and self._file(process, call.arguments[4]):
            raise _LeftOut("stores into a shared mapping, which strace does not see")

    def has_none(self, call: SystemCall, process: _Process) -> None:
        """The call changes what no operation changes."""
        if call.name.startswith("io_uring"):
            raise _LeftOut("io_uring, whose requests strace does not see")
        if self._either(call, process) is not None:
            raise _LeftOut(call.name)

    def _either(self, call: SystemCall, process: _Process) -> str | None:
        """Of a call with a descriptor or a path as its first argument, or a directory and a path."""
        if call.arguments[0].startswith('"'):
            path = self._named(call, process, 0)
        elif len(call.arguments) > 1 and call.arguments[1].startswith('"') and call.name.endswith("at"):
            path = self._named(call, process, 1)
        else:
            found = self._file(process, call.arguments[0])
            return found[0] if found else None
        if path is not None:
            self._need(path)
        return path


def _word(text: str) -> str:
    """A name as a word of an operation: what separates words, and what is no UTF-8, as %20."""

    def escaped(m: re.Match[str]) -> str:
        return "".join(f"%{byte:02x}" for byte in m[0].encode("utf-8", "surrogateescape"))

    return re.sub(r"[\s\x00-\x1f\x7f%\udc80-\udcff]|^@", escaped, text)


def _place(argument: str) -> int | None:
    """An offset, or the one that a pointer leads to before the call; None: the file's own."""
    m = re.match(r"\[?(-?\d+)", argument)
    return int(m[1]) if m and int(m[1]) >= 0 else None


_NODES = {"S_IFIFO": _K.MKFIFO, "S_IFCHR": _K.MKNOD, "S_IFREG": _K.CREATE}
_SYNCS = {"sync": frozenset({"O_SYNC", "RWF_SYNC"}), "dsync": frozenset({"O_DSYNC", "RWF_DSYNC"})}
_WRITES = {
    "write": (0, 0),
    "writev": (0, 0),
    "pwrite64": (0, 3),
    "pwritev": (0, 3),
    "pwritev2": (0, 3),
    "sendfile": (0, 0),
    "copy_file_range": (2, 3),
    "splice": (2, 3),
}
"""Which argument is the file, and which the place; 0: the file's own."""
_Does = Callable[[_Import, SystemCall, _Process], None]
_CALLS: Mapping[str, _Does] = {
    name: does
    for names, does in (
        ("stat lstat fstat newfstatat statx access faccessat faccessat2", _Import.looks),
        ("open openat openat2 creat", _Import.opens),
        ("close", _Import.closes),
        ("dup dup2 dup3 fcntl", _Import.duplicates),
        ("fork vfork clone clone3", _Import.forks),
        (EXIT, _Import.exits),
        ("chdir fchdir", _Import.changes_directory),
        ("lseek", _Import.seeks),
        ("read readv", _Import.reads),
        (" ".join(_WRITES), _Import.writes),
        ("truncate ftruncate", _Import.truncates),
        ("fallocate", _Import.allocates),
        ("rename renameat renameat2", _Import.renames),
        ("link linkat", _Import.links),
        ("mkdir mkdirat mknod mknodat", _Import.makes),
        ("symlink symlinkat", _Import.makes_symlink),
        ("unlink unlinkat rmdir", _Import.removes),
        ("fsync fdatasync sync syncfs", _Import.syncs),
        ("sync_file_range", _Import.syncs_range),
        ("setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr", _Import.sets_attribute),
        ("chmod fchmod fchmodat fchmodat2", _Import.sets_mode),
        ("chown lchown fchown fchownat", _Import.sets_owner),
        ("ioctl", _Import.controls),
        ("mmap", _Import.maps),
        ("utime utimes utimensat futimesat io_uring_enter", _Import.has_none),
    )
    for name in names.split()
}
