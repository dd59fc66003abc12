"""A workload from the system calls of a program: the same names, places, lengths, flags and syncs, with data
of ours. Pure.
"""

from __future__ import annotations

import posixpath
import re
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

from harness.errors import UsageError
from harness.model import BLOCK_BYTES, Operation, OperationKind
from harness.workloads.strace import (
    CUT,
    EXIT,
    OPTIONS,
    SystemCall,
    descriptor,
    string,
    structure,
    unescaped,
)

_K = OperationKind
_TRACE = f"trace with: strace {OPTIONS} -o FILE PROGRAM"
_USUAL = ("close", "fsync", "mmap", "read", "write")
"""Each program has one of them: in a log without, such calls were not traced."""
_KINDS = {"S_IFDIR": _K.MKDIR, "S_IFLNK": _K.SYMLINK, "S_IFREG": _K.CREATE, "S_IFIFO": _K.MKFIFO}
_MOST_LINKS = 40
_PROTECTS = ("mprotect", "pkey_mprotect")
"""A dynamic linker calls one at the begin of each program: in a log without, they were not traced."""
_STORES = "stores into a shared mapping, which strace does not see"
_FALLOCATE = {
    frozenset[str](): (),
    frozenset({"KEEP_SIZE"}): ("keep-size",),
    frozenset({"KEEP_SIZE", "PUNCH_HOLE"}): ("punch-hole",),
    frozenset({"ZERO_RANGE"}): ("zero-range",),
    frozenset({"KEEP_SIZE", "ZERO_RANGE"}): ("keep-size", "zero-range"),
    frozenset({"COLLAPSE_RANGE"}): ("collapse-range",),
    frozenset({"INSERT_RANGE"}): ("insert-range",),
}
_PROCESS = r"/proc/(?:[\w-]+/task/)?(?P<process>self|thread-self|\d+)"
_OF_PROCESS = re.compile(rf"(?:{_PROCESS}|/dev(?=/fd/))/(?:fd/(?P<number>\d+)|cwd)(?P<rest>/.*)?")
_SHIFTS = frozenset({"collapse-range", "insert-range"})
_KEEPS_SIZE = frozenset({"keep-size", "punch-hole", "collapse-range"})
_CLONE_IOCTLS = frozenset({"FICLONE", "BTRFS_IOC_CLONE"})
_READING_IOCTL = re.compile(
    r"TC|TIOC|FIO|FIBMAP|FIGETBSZ|_IOC\(_IOC_READ,|"
    r"\w*(?:(?<!FOR)GET|INFO|PATHS|SEARCH|LOOKUP|FIEMAP|READ|MEASURE|STATUS|PROGRESS|_SEND)"
)
"""Any other one may change something."""
_NAMED_IOCTLS = {"_IOC(_IOC_WRITE, 0x58, 0x81, 0x28)": "XFS_IOC_EXCHANGE_RANGE"}
"""Names that strace does not know; nor does it show what these are given."""
_MAKING = frozenset({"O_CREAT", "O_TRUNC", "O_TMPFILE"})
_NAMELESS = "calls on a file that had no name when it was opened"
_TWO_NAMES = ("rename", "link", "symlink", "mount")
_DIRECTORY = re.compile(r"(\d+|AT_FDCWD)<")
_MOUNTED = "calls below a mount point"
_OTHER_ROOT = "calls of a process whose root directory the log does not show"


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


def imported(calls: Iterable[SystemCall], root: str, directory: str = "") -> Imported:
    """What the calls do below the folder `root`; what they do elsewhere, and what only reads, is ignored.
    `directory`: in which the program began; empty if that is not known before its calls say so.
    A file that is not known to be there before is made by the open(2) that may make it. Raises UsageError for
    a log in which calls that change something cannot be seen, or understood.
    """
    if not root.startswith("/"):
        raise UsageError(f"{root or 'an empty path'} is no absolute path", "--root DIR as the log names it")
    work, seen = _Import(posixpath.normpath(root), directory), set[str]()
    for call in calls:
        seen.add(call.name)
        try:
            work.take(call)
        except (IndexError, ValueError) as e:
            told = f"{call.name}({', '.join(call.arguments)})"
            raise UsageError(f"{told:.200} is not written as it should be", _TRACE) from e
    work.leaves_unseen(seen)
    if EXIT in seen and seen.isdisjoint(_USUAL):
        raise UsageError("it has no call on a descriptor, not even close", _TRACE)
    used = {op.path for op in work.operations if op.kind is not _K.CLOSE}
    kept = [op for op in work.operations if _held(op) is None or _held(op) in used]
    return Imported(tuple(work.making()), tuple(kept), dict(work.left_out.most_common()))


def _held(op: Operation) -> str | None:
    """The handle that an operation makes or gives up."""
    if op.kind in (_K.OPEN, _K.OPEN_TMPFILE):
        return op.target
    return op.path if op.kind is _K.CLOSE else None


@dataclass(slots=True, eq=False)
class _Inode:
    """What a name stands for. `first`: the name that it had before; None: the program made it, by `made` if
    it may have been there all the same. `size`, `target`: at first. `is_changed`: they are seen no more.
    `end`: the farthest place that the program has written; once `is_cut`, where the file ends.
    """

    kind: OperationKind
    first: str | None = None
    size: int = 0
    target: str = ""
    is_changed: bool = False
    made: Operation | None = None
    end: int = 0
    is_cut: bool = False

    @property
    def reach(self) -> int:
        """The file has no bytes behind it."""
        return self.end if self.is_cut else max(self.size, self.end)

    def change(self, op: Operation) -> None:
        """What an operation makes of where the file ends. A range that is collapsed leaves that open."""
        self.is_changed = True
        if op.kind is _K.TRUNCATE:
            self.end, self.is_cut = op.length, True
        elif "insert-range" in op.flags:
            self.end = self.reach + op.length
        elif _KEEPS_SIZE.isdisjoint(op.flags):
            start = self.reach if op.kind is _K.APPEND else op.offset
            self.end = max(self.end, start + op.length)


@dataclass(slots=True, eq=False)
class _Open:
    """An open file description: `flags` as open(2) names them, `handle` once its name is gone. `offset`: None
    if the log does not show it.
    """

    path: str
    flags: frozenset[str] = frozenset()
    offset: int | None = None
    handle: str = ""
    holders: int = 0
    """How many descriptors stand for it; of processes that share theirs, each counts once."""


class _Files(dict[int, _Open]):
    """By descriptor. `closing`: those that execve(2) closes."""

    def __init__(self, of: _Files | None = None) -> None:
        super().__init__(of or {})
        self.closing: set[int] = set(of.closing) if of else set()


@dataclass(slots=True, eq=False)
class _Mapping:
    """A shared mapping, from address `start` to `end`: `file` from `offset` on, as `known` was open; without
    `known`, it is not below the root. `is_stored`: that stores may be made into it is counted.
    """

    start: int
    end: int
    offset: int = 0
    known: _Open | None = None
    file: _Inode | None = None
    is_stored: bool = False


@dataclass(slots=True, eq=False)
class _Where:
    """Where names start from, as the log names it. `directory`: empty if that is not known. `root`: of
    absolute names, below the log's own; None: not known. `namespace`: of mounts.
    """

    directory: str = ""
    root: str | None = ""
    namespace: int = 0


@dataclass(slots=True)
class _Process:
    """What it has may be that of others, too: after clone(2) with CLONE_FS, CLONE_FILES, CLONE_VM."""

    where: _Where = field(default_factory=_Where)
    files: _Files = field(default_factory=_Files)
    mappings: list[_Mapping] = field(default_factory=list)

    def mapped(self, start: int, end: int) -> list[_Mapping]:
        """The shared mappings of which a part is in a range."""
        return [m for m in self.mappings if m.start < end and start < m.end]


class _Names:
    """What names stand for. A folder is moved in as many steps as there are names below it."""

    def __init__(self) -> None:
        self._inodes: dict[str, _Inode] = {}
        self._inside: dict[str, set[str]] = {}  # by folder; also of folders that stand for nothing yet

    def __contains__(self, path: str) -> bool:
        return path in self._inodes

    def __getitem__(self, path: str) -> _Inode:
        return self._inodes[path]

    def __setitem__(self, path: str, inode: _Inode) -> None:
        self._inodes[path] = inode
        while path:
            folder = posixpath.dirname(path)
            names = self._inside.setdefault(folder, set())
            if path in names:
                return
            names.add(path)
            path = folder

    def get(self, path: str) -> _Inode | None:
        return self._inodes.get(path)

    def pop(self, path: str) -> _Inode | None:
        inode = self._inodes.pop(path, None)
        while path and path not in self._inodes and path not in self._inside:
            folder = posixpath.dirname(path)
            names = self._inside.get(folder, set())
            names.discard(path)
            if names:
                break
            self._inside.pop(folder, None)
            path = folder
        return inode

    def at(self, path: str) -> list[str]:
        """The name, and those below it."""
        found, folders = [path] if path in self._inodes else [], [path]
        while folders:
            inside = sorted(self._inside.get(folders.pop(), ()))
            found += [name for name in inside if name in self._inodes]
            folders += inside
        return found


class _LeftOut(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Removed:
    """The last unlink(2) of a name. `inode`: if nothing but that told that it was there before; `op` removes
    it.
    """

    line: int
    inode: _Inode | None = None
    op: Operation | None = None


class _Import:
    def __init__(self, root: str, directory: str = "") -> None:
        self._root = root
        self._directory = directory
        self._before: dict[str, _Inode] = {}
        self.operations: list[Operation] = []
        self.left_out: Counter[str] = Counter()
        self._processes: dict[int, _Process] = {}
        self._there = _Names()
        self._there[""] = _Inode(_K.MKDIR, first="")
        self._gone: set[str] = set()
        self._removed: dict[str, _Removed] = {}
        self._seen = _Names()  # by a call that only looked
        self._handles = 0
        self._by_handle: dict[str, _Inode] = {}
        self._may_be_stored = False  # a shared mapping that mprotect(2) can make writable
        # By namespace, how many mounts there are at a point: below the root, and elsewhere of what is there.
        self._mounts: list[Counter[str]] = [Counter()]
        self._has_copied_mounts = False  # open_tree(2)

    def take(self, call: SystemCall) -> None:
        if call.name == CUT:
            self.left_out["what the program did after the log, which ends within a line"] += 1
            return
        does = _CALLS.get(call.name)
        if not call.has_returned and (does is None or does in _CHANGING_NOTHING):
            return
        process = self._process(call)
        if does:
            try:
                if call.has_returned:
                    does(self, call, process)
                elif self._may_change(call, process):
                    raise _LeftOut(f"{call.name}, which had not returned")
            except _LeftOut as what:
                if does is not _Import.looks:
                    self.left_out[str(what)] += 1

    def _process(self, call: SystemCall) -> _Process:
        if call.pid not in self._processes:
            if self._processes:
                self.left_out["what a process did before the log shows it: its folder, its open files"] += 1
            first = "" if self._processes else self._directory
            self._processes[call.pid] = _Process(_Where(first))
        process = self._processes[call.pid]
        for argument in call.arguments if call.has_returned else ():
            if argument.startswith("AT_FDCWD<"):
                process.where.directory = descriptor(argument).path
        return process

    def _may_change(self, call: SystemCall, process: _Process) -> bool:
        """Whether a call that did not return, and of which a part may be missing, is about the folder."""
        does = _CALLS[call.name]
        told = " ".join(call.arguments)
        if does is _Import.opens and call.name != "creat" and not re.search("|".join(_MAKING), told):
            return False
        if does is _Import.controls and _READING_IOCTL.match("".join(call.arguments[1:2])):
            return False
        if does is _Import.syncs_mapping or not call.arguments:
            return True
        places = range(len(call.arguments))
        if does is _Import.writes:  # what is written is no name
            places = places[_WRITES[call.name][0] :][:1]
        return any(self._is_about(call, process, at) for at in places)

    def _is_about(self, call: SystemCall, process: _Process, at: int) -> bool:
        """Whether an argument is a descriptor or a name of something below the root."""
        argument = call.arguments[at]
        if m := re.match(r"\d+<([^>]*)", argument):
            return self._below(process, unescaped(m[1])) is not None
        is_from = at and _DIRECTORY.match(call.arguments[at - 1])
        is_name = at == 0 or is_from or (at == 1 and call.name in _TWO_NAMES)
        return bool(is_name and argument[:1] == '"' and self._named(call, process, at) is not None)

    def making(self) -> Iterator[Operation]:
        """What makes the names that were there before."""
        for path, inode in self._before.items():
            yield Operation(inode.kind, path, inode.target or "?" if inode.kind is _K.SYMLINK else "")
            if inode.size and inode.kind is _K.CREATE:
                yield Operation(_K.APPEND, path, length=inode.size)

    # What a path or a descriptor stands for: below the root, or None.

    def _relative(self, path: str) -> str:
        return _word(posixpath.relpath(path, self._root))

    def _below(self, process: _Process, path: str) -> str | None:
        """Pipes and sockets have no absolute path."""
        if not path.startswith("/"):
            return None
        if process.where.root is None:
            raise _LeftOut(_OTHER_ROOT)
        return self._unmounted(process, self._relative(path))

    def _unmounted(self, process: _Process, path: str) -> str | None:
        if self._is_mounted(process, path):
            raise _LeftOut(_MOUNTED)
        return _inside(path)

    def _is_mounted(self, process: _Process, path: str) -> bool:
        mounts = self._mounts[process.where.namespace]
        while path and path not in mounts:
            path = path.rpartition("/")[0]
        return path in mounts

    def _named(self, call: SystemCall, process: _Process, at: int, *, follows: bool = False) -> str | None:
        """The path that argument `at` names; the one before it may be the directory that it starts from.
        `follows`: where a symbolic link leads, not the link.
        """
        path = self._below(process, self._led(call, process, at))
        return self._resolved(process, path, follows=follows)

    def _led(self, call: SystemCall, process: _Process, at: int) -> str:
        """The same, from the root of the log, with its symbolic links."""
        name = string(call.arguments[at])
        if led := self._of_process(call, process, name):
            return led
        start = process.where.directory
        if at and _DIRECTORY.match(call.arguments[at - 1]):
            start = descriptor(call.arguments[at - 1]).path
        if process.where.root is None:
            raise _LeftOut(_OTHER_ROOT)
        if not name.startswith("/") and not start:
            raise _LeftOut(f"{call.name} of a relative path in a folder that the log does not name")
        return _joined(process.where.root, start, name)

    def _of_process(self, call: SystemCall, process: _Process, name: str) -> str:
        """A path in which a link in /proc is what it leads to: a descriptor of a process, or its folder.
        Empty for any other.
        """
        if not (m := _OF_PROCESS.fullmatch(name)):
            return ""
        rest, process = m["rest"] or "", self._whose(call, process, m)
        known = process.files.get(int(m["number"])) if m["number"] else None
        if known and not known.handle:
            return posixpath.join(self._root, known.path) + rest
        if not m["number"] and process.where.directory:
            return process.where.directory + rest
        if known or not m["number"]:
            raise _LeftOut(f"{call.name} of what a link in /proc leads to")
        return name  # not below the root

    def _whose(self, call: SystemCall, process: _Process, link: re.Match[str]) -> _Process:
        """Which process has a link in /proc: the one that calls, or the one of that number."""
        if not (number := link["process"] or "").isdigit():
            return process
        if not (named := self._processes.get(int(number))):
            raise _LeftOut(f"{call.name} of what a link in /proc leads to")
        return named

    def _resolved(self, process: _Process, path: str | None, *, follows: bool, depth: int = 0) -> str | None:
        """The path without the symbolic links that the log shows."""
        if not path or depth > _MOST_LINKS:
            return path
        for end in [*(m.start() for m in re.finditer("/", path)), *([len(path)] if follows else [])]:
            inode = self._inode(path[:end])
            if inode and inode.kind is _K.SYMLINK:
                if not inode.target:
                    raise _LeftOut("calls through a symbolic link that the log does not read")
                root = _word(self._root)
                start = posixpath.join(root, posixpath.dirname(path[:end]))
                target = posixpath.join(inode.target, path[end + 1 :])
                led = posixpath.relpath(_joined(_word(process.where.root or ""), start, target), root)
                return self._resolved(
                    process, self._unmounted(process, led), follows=follows, depth=depth + 1
                )
        return path

    def _inode(self, path: str) -> _Inode | None:
        return self._there.get(path) or (None if path in self._gone else self._seen.get(path))

    def _file(self, process: _Process, argument: str) -> tuple[str, _Open] | None:
        """What an operation calls an open file, and its description; None: it is not below the root."""
        if not re.match(r"\d+<", argument):
            return None
        told = descriptor(argument)
        path = self._below(process, told.path)
        if path is None or told.number is None:
            return None
        if (known := process.files.get(told.number)) is None:
            self._put(process, told.number, known := _Open(path))
        if told.is_deleted and not known.handle:
            raise _LeftOut(_NAMELESS)
        if not told.is_deleted:
            known.path = path
            self._need(path)
        return known.handle or path, known

    def _need(self, path: str, *, directory: bool = False) -> _Inode:
        """The name has to be there: what nobody made was there before, below the name that its folder had."""
        if inode := self._there.get(path):
            if directory and inode.kind is _K.CREATE and inode.first is not None:
                inode.kind = _K.MKDIR
            return inode
        folder = self._need(posixpath.dirname(path), directory=True)
        first = posixpath.join(folder.first or "", posixpath.basename(path))
        if path in self._gone or folder.first is None or first in self._before:
            raise _LeftOut("calls on a name that came unseen")
        inode = self._seen.pop(path) or _Inode(_K.CREATE)
        inode.kind, inode.first = _K.MKDIR if directory else inode.kind, first
        self._there[path] = self._before[first] = inode
        return inode

    def _do(self, kind: OperationKind, path: str = "", **fields: object) -> None:
        op = Operation(kind, path, **fields)  # type: ignore[arg-type]  # of the callers below
        self.operations.append(op)
        if kind in (_K.WRITE, _K.APPEND, _K.TRUNCATE, _K.FALLOCATE) and (inode := self._called(path)):
            inode.change(op)

    def _called(self, path: str) -> _Inode | None:
        """What an operation calls so, by a name or by a handle."""
        return self._by_handle.get(path) or self._there.get(path)

    def _make(self, kind: OperationKind, path: str, target: str = "") -> None:
        self._need(posixpath.dirname(path), directory=True)
        self._there[path] = _Inode(kind, target=target, is_changed=True)
        self._do(kind, path, target=target)

    def _lose(self, path: str) -> None:
        """The name goes: whoever has the file open holds it by a handle from now on."""
        opened = (o for p in self._processes.values() for o in p.files.values() if o.path == path)
        for known in dict.fromkeys(opened):
            if not known.handle:
                known.handle = self._handle()
                self._by_handle[known.handle] = self._there[path]
                self._do(_K.OPEN, path, target=known.handle)
        self._there.pop(path)
        self._seen.pop(path)
        self._gone.add(path)
        for mounts in self._mounts:  # what is mounted there in another namespace goes with it
            mounts.pop(path, None)

    def _handle(self) -> str:
        self._handles += 1
        return f"@{self._handles}"

    # The calls.

    def looks(self, call: SystemCall, process: _Process) -> None:
        """stat(2): the name is there, and how long it is. readlink(2): where it leads."""
        at = next((i for i, a in enumerate(call.arguments) if a.startswith('"')), None)
        if at is None or (at and not string(call.arguments[at])):
            seen = descriptor(call.arguments[0]) if "<" in call.arguments[0] else None
            # Another file may have the name that one has lost.
            path = self._below(process, seen.path) if seen and not seen.is_deleted else None
        else:
            is_link = call.name.startswith(("lstat", "readlink")) or "NOFOLLOW" in " ".join(call.arguments)
            of_process = _OF_PROCESS.fullmatch(string(call.arguments[at]))
            if is_link and of_process and not of_process["rest"]:
                return  # at the link in /proc itself
            path = self._named(call, process, at, follows=not is_link)
        if path is None:
            return
        inode = self._inode_seen(path)
        told = next((a for a in call.arguments if a.startswith("{")), "")
        if inode.is_changed or (call.name.startswith("readlink") and inode.kind is not _K.CREATE):
            return
        if call.name.startswith("readlink"):
            inode.kind, inode.target = _K.SYMLINK, _word(string(call.arguments[-2]))
        elif word := next((w for w in _KINDS if w in told), ""):
            inode.kind = _KINDS[word]
            inode.size = structure(told, "st_size") or structure(told, "stx_size") or 0
        if inode.made and inode.size:
            self.operations.remove(inode.made)
            inode.first, self._before[inode.made.path], inode.made = inode.made.path, inode, None

    def _inode_seen(self, path: str) -> _Inode:
        """What a name stands for that a call has looked at."""
        if (inode := self._there.get(path) or self._seen.get(path)) is None:
            self._seen[path] = inode = _Inode(_K.CREATE)
        return inode

    def opens(self, call: SystemCall, process: _Process) -> None:
        flags = frozenset(re.findall(r"O_\w+", " ".join(call.arguments)))
        if call.name == "creat":
            flags |= {"O_CREAT", "O_TRUNC", "O_WRONLY"}
        if not call.path or not flags:
            raise ValueError(call.name)
        self._put(process, call.result, None)
        try:
            known = self._opened(call, process, flags)
        except _LeftOut:
            if flags.isdisjoint(_MAKING):
                return  # it changes nothing
            raise
        if known is not None:
            self._put(process, call.result, known, closing="O_CLOEXEC" in flags)
            if not known.handle:
                self._makes_by_open(known)

    def _makes_by_open(self, known: _Open) -> None:
        """What open(2) does to the names, and to the file."""
        path, flags = known.path, known.flags
        if "O_TMPFILE" in flags:
            known.path, known.handle = "", self._handle()
            self._need(parent := posixpath.dirname(path), directory=True)
            self._do(_K.OPEN_TMPFILE, parent, target=known.handle)
        elif "O_CREAT" in flags and path not in self._there and ("O_EXCL" in flags or path not in self._seen):
            self._make(_K.CREATE, path)
            parent = posixpath.dirname(path)
            if flags.isdisjoint({"O_EXCL", "O_TRUNC"}) and (not parent or parent in self._before):
                self._there[path].is_changed, self._there[path].made = False, self.operations[-1]
        else:
            self._need(path, directory="O_DIRECTORY" in flags)
            if "O_TRUNC" in flags:
                self._do(_K.TRUNCATE, path)

    def _opened(self, call: SystemCall, process: _Process, flags: frozenset[str]) -> _Open | None:
        """What is opened; None: it is not below the root. Its name may be that of another file, if it lost it
        before and is opened by a link in /proc.
        """
        if (path := self._below(process, call.path)) is None:
            self._need_the_same_root(call, process)
        elif call.is_deleted and "O_TMPFILE" not in flags:
            at = 0 if call.name in ("open", "creat") else 1
            if "O_CREAT" not in flags or self._named(call, process, at, follows=True) != path:
                raise _LeftOut(_NAMELESS)
            return _Open(path, flags, 0, self._made_and_lost(call, path))
        return None if path is None else _Open(path, flags, 0)

    def _made_and_lost(self, call: SystemCall, path: str) -> str:
        """The handle of a file that open(2) may have made, and that another process had removed before the
        log tells of the open.
        """
        removed = self._removed.get(path)
        if removed is None or removed.line < call.began:
            if path not in self._there:
                self._gone.add(path)  # its removal is told later, and is of nothing that was there before
            raise _LeftOut(_NAMELESS)
        if removed.inode is None or path in self._there:
            raise _LeftOut(_NAMELESS)
        inode, at = removed.inode, next(n for n, op in enumerate(self.operations) if op is removed.op)
        del self._removed[path], self._before[inode.first or ""]
        inode.first, handle = None, self._handle()
        self._by_handle[handle] = inode
        self.operations[at:at] = [Operation(_K.CREATE, path), Operation(_K.OPEN, path, target=handle)]
        return handle

    def _need_the_same_root(self, call: SystemCall, process: _Process) -> None:
        """The name of a descriptor has no symbolic links. Raises UsageError if there is one in the root's."""
        at = 0 if call.name in ("open", "creat") else 1
        if _OF_PROCESS.fullmatch(string(call.arguments[at])):
            return  # nor does a link in /proc lead through one
        named = self._named(call, process, at, follows=True)
        if named and _word(call.path).endswith(f"/{named}"):
            real = call.path[: -len(posixpath.normpath(string(call.arguments[at])))]
            raise UsageError(
                f"{self._root} has another name in the log, without symbolic links", "--root " + real
            )

    def _put(self, process: _Process, number: int, known: _Open | None, *, closing: bool = False) -> None:
        """What a descriptor stands for from now on. `closing`: until execve(2)."""
        old = process.files.pop(number, None)
        process.files.closing.discard(number)
        if known:
            process.files[number] = known
            known.holders += 1
            process.files.closing.update([number] if closing else [])
        if old:
            self._give_up(old)

    def _give_up(self, known: _Open) -> None:
        """One descriptor less stands for it."""
        known.holders -= 1
        if known.handle and not known.holders:
            self._do(_K.CLOSE, known.handle)

    def closes(self, call: SystemCall, process: _Process) -> None:
        number = descriptor(call.arguments[0]).number if "<" in call.arguments[0] else None
        if number is not None:
            self._put(process, number, None)

    def exits(self, call: SystemCall, process: _Process) -> None:
        """Closes what the process has open, unless it shares its descriptors."""
        del self._processes[call.pid]
        if any(p.files is process.files for p in self._processes.values()):
            return
        for known in process.files.values():
            self._give_up(known)

    def closes_range(self, call: SystemCall, process: _Process) -> None:
        if "CLOSE_RANGE_UNSHARE" in call.arguments[2]:
            self._own_files(process)
        first, last = (int(argument, 0) for argument in call.arguments[:2])
        numbers = [number for number in process.files if first <= number <= last]
        if "CLOSE_RANGE_CLOEXEC" in call.arguments[2]:
            process.files.closing.update(numbers)
            return
        for number in numbers:
            self._put(process, number, None)

    def duplicates(self, call: SystemCall, process: _Process) -> None:
        known = self._known(process, call.arguments[0])
        if call.name == "dup2" and int(call.arguments[0].partition("<")[0]) == call.result:
            return  # it changes nothing
        if call.name != "fcntl" or call.arguments[1].startswith("F_DUPFD"):
            closing = "CLOEXEC" in " ".join(call.arguments[1:])
            self._put(process, call.result, known, closing=closing)
        elif known and call.arguments[1] == "F_SETFD":
            self._marks(call, process, closing="FD_CLOEXEC" in call.arguments[2])
        elif known and call.arguments[1] == "F_SETFL":
            set_ = frozenset(re.findall(r"O_\w+", call.arguments[2]))
            known.flags = (known.flags - {"O_APPEND", "O_DIRECT"}) | (set_ & {"O_APPEND", "O_DIRECT"})

    def _marks(self, call: SystemCall, process: _Process, *, closing: bool) -> None:
        """Whether execve(2) closes the descriptor that is the first argument."""
        number = int(call.arguments[0].partition("<")[0])
        (process.files.closing.add if closing else process.files.closing.discard)(number)

    def _known(self, process: _Process, argument: str) -> _Open | None:
        return process.files.get(int(m[0])) if (m := re.match(r"\d+", argument)) else None

    def forks(self, call: SystemCall, process: _Process) -> None:
        """A new process has copies, with common offsets, of what it does not share."""
        if not call.pid:
            raise _LeftOut("what another process did, which strace shows only with -f")
        told = " ".join(call.arguments)
        other = _Process(process.where, process.files, process.mappings)
        if "CLONE_FS" not in told:
            self._own_where(other, told)
        if "CLONE_VM" not in told:
            other.mappings = list(process.mappings)
        self._processes[call.result] = other
        if "CLONE_FILES" not in told:
            self._own_files(other)

    def _own_files(self, process: _Process) -> None:
        """It shares its descriptors with nobody from now on."""
        if sum(p.files is process.files for p in self._processes.values()) > 1:
            process.files = _Files(process.files)
            for known in process.files.values():
                known.holders += 1

    def _own_where(self, process: _Process, flags: str) -> None:
        process.where = replace(process.where)
        if "CLONE_NEWNS" in flags:
            self._mounts.append(self._mounts[process.where.namespace].copy())
            process.where.namespace = len(self._mounts) - 1

    def unshares(self, call: SystemCall, process: _Process) -> None:
        if re.search("CLONE_(FS|NEWNS|NEWUSER)", call.arguments[0]):
            self._own_where(process, call.arguments[0])
        if "CLONE_FILES" in call.arguments[0]:
            self._own_files(process)

    def changes_directory(self, call: SystemCall, process: _Process) -> None:
        if call.name == "fchdir":
            process.where.directory = descriptor(call.arguments[0]).path
            return
        try:
            process.where.directory = self._led(call, process, 0)
        except _LeftOut:
            process.where.directory = ""

    def changes_root(self, call: SystemCall, process: _Process) -> None:
        """chroot(2): absolute names start there from now on."""
        try:
            process.where.root = self._followed(call, process, 0).rstrip("/")
        except _LeftOut:
            process.where.root = None
            raise

    def loses_root(self, call: SystemCall, process: _Process) -> None:
        """setns(2) into a mount namespace, and pivot_root(2), for all that have that root in the namespace.
        The names of descriptors are others, too.
        """
        if call.name == "pivot_root":
            moved = (process.where.namespace, process.where.root)
            for other in [p.where for p in self._processes.values()]:
                if (other.namespace, other.root) == moved:
                    other.root = None
        elif re.search("CLONE_NEWNS|mnt:", " ".join(call.arguments)):
            process.where.root = None

    def _followed(self, call: SystemCall, process: _Process, at: int) -> str:
        """The path that an argument names, without the symbolic links below the root."""
        led = self._led(call, process, at)
        path = self._resolved(process, _inside(self._relative(led)), follows=True)
        return led if path is None else posixpath.join(self._root, _unescaped(path))

    def mounts(self, call: SystemCall, process: _Process) -> None:
        flags = call.arguments[3]
        if re.search("MS_(REMOUNT|PRIVATE|SHARED|SLAVE|UNBINDABLE)", flags):
            return
        is_bind = re.search("MS_(BIND|MOVE)", flags) is not None
        self._mount(call, process, 1, is_ours=is_bind and self._is_related(call, process, 0))

    def moves_mount(self, call: SystemCall, process: _Process) -> None:
        is_named = string(call.arguments[1])
        is_ours = self._is_related(call, process, 1) if is_named else self._has_copied_mounts
        self._mount(call, process, 3, is_ours=is_ours)

    def copies_mounts(self, call: SystemCall, process: _Process) -> None:
        """open_tree(2): what move_mount(2) mounts may be the folder from now on."""
        if "OPEN_TREE_CLONE" in call.arguments[2] and self._is_related(call, process, 1):
            self._has_copied_mounts = True

    def _mount(self, call: SystemCall, process: _Process, at: int, *, is_ours: bool) -> None:
        """Below a mount point, calls change another tree; below one that lies elsewhere, they change the
        folder if that is what is mounted there: `is_ours`. A mount at the root, or above it, leaves names as
        they are.
        """
        point = self._relative(self._followed(call, process, at))
        if is_ours or _is_related(point):
            if not _is_above(point):
                self._mounts[process.where.namespace][point] += 1
            raise _LeftOut(call.name)

    def unmounts(self, call: SystemCall, process: _Process) -> None:
        point = self._relative(self._followed(call, process, 0))
        mounts = self._mounts[process.where.namespace]
        is_known = point in mounts
        mounts -= Counter([point])
        if "MNT_DETACH" in " ".join(call.arguments[1:]) and (below := self._mounts_below(mounts, point)):
            is_known = True
            for mount in below:
                del mounts[mount]
        if is_known or _is_related(point):
            raise _LeftOut(call.name)

    def _mounts_below(self, mounts: Iterable[str], point: str) -> list[str]:
        """Those that go with what is mounted at a point."""
        root = _word(self._root)
        above = posixpath.normpath(posixpath.join(root, point)).rstrip("/") + "/"
        return [m for m in mounts if posixpath.normpath(posixpath.join(root, m)).startswith(above)]

    def _is_related(self, call: SystemCall, process: _Process, at: int) -> bool:
        """Whether an argument names something at, below or above the root, by any name."""
        path = self._relative(self._followed(call, process, at))
        return _is_related(path) or self._is_mounted(process, path)

    def seeks(self, call: SystemCall, process: _Process) -> None:
        if known := self._known(process, call.arguments[0]):
            known.offset = call.result

    def reads(self, call: SystemCall, process: _Process) -> None:
        known = self._known(process, call.arguments[0])
        is_placed = call.name == "preadv2" and _place(call.arguments[3]) is not None
        if known and known.offset is not None and not is_placed:
            known.offset += call.result

    def writes(self, call: SystemCall, process: _Process) -> None:
        to, place = _WRITES[call.name]
        copied = self._reads_for(call, process)
        found = self._file(process, call.arguments[to])
        if not found or not call.result:
            return
        path, known = found
        words = known.flags | frozenset(re.findall(r"RWF_\w+", call.arguments[-1]))
        flags = [f for f, of in _SYNCS.items() if not of.isdisjoint(words)][:1]
        flags += ["direct"] if "O_DIRECT" in words else []
        at = _place(call.arguments[place]) if place else None
        if words & {"O_APPEND", "RWF_APPEND"}:
            self._do(_K.APPEND, path, length=call.result, flags=tuple(flags))
            known.offset = None if at is None else known.offset  # the end, wherever that is
            return
        if (offset := known.offset if at is None else at) is None:
            raise _LeftOut("writes at a place that the log does not show")
        if copied and copied[1] == offset and copied[0] != path and not (flags or path.startswith("@")):
            self._copy(*copied, target=path, length=call.result)
        else:
            self._do(_K.WRITE, path, offset=offset, length=call.result, flags=tuple(flags))
        known.offset = offset + call.result if at is None else known.offset

    def _reads_for(self, call: SystemCall, process: _Process) -> tuple[str, int] | None:
        """Of a call that reads a file to write another: moves the offset that it reads at. Returns which
        file, and from where, of copy_file_range(2) in the folder.
        """
        source, start = _SOURCES.get(call.name, (0, 0))
        known = self._known(process, call.arguments[source])
        if not start or not known:
            return None
        offset = place if (place := _place(call.arguments[start])) is not None else known.offset
        if place is None and known.offset is not None:
            known.offset += call.result
        if call.name != "copy_file_range" or offset is None:
            return None
        found = self._file(process, call.arguments[source])
        return (found[0], offset) if found else None

    def _copy(self, path: str, offset: int, *, target: str, length: int) -> None:
        """What is read was there."""
        source = self._there.get(path)
        if source and not source.is_changed:
            source.size = max(source.size, offset + length)
        self._do(_K.COPY_RANGE, path, target=target, offset=offset, length=length)
        if inode := self._called(target):
            inode.is_changed = True
            inode.end = max(inode.end, offset + length)

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
        if not _SHIFTS.isdisjoint(_FALLOCATE[mode]) and (offset | length) % BLOCK_BYTES:
            raise _LeftOut("ranges of less than a block of 4096 bytes that are collapsed or inserted")
        self._do(_K.FALLOCATE, found[0], offset=offset, length=length, flags=_FALLOCATE[mode])

    def renames(self, call: SystemCall, process: _Process) -> None:
        is_at = call.name != "rename"
        old, new = (self._named(call, process, at) for at in ((1, 3) if is_at else (0, 1)))
        if old is None and new is None:
            return
        if old is None or (new is None and self._is(old, _K.MKDIR)) or "WHITEOUT" in call.arguments[-1]:
            raise _LeftOut("renames into the folder, of directories out of it, or with a whiteout")
        self._need(old)
        if new is None:
            self._lose(old)
            self._do(_K.UNLINK, old)
            return
        if "EXCHANGE" in call.arguments[-1] and is_at:
            self._need(new)
            self._do(_K.EXCHANGE, old, target=new)
            for moved in ((old, "?"), (new, old), ("?", new)):
                self._move(*moved)
            return
        self._need(posixpath.dirname(new), directory=True)
        if self._there[old] is self._there.get(new):
            return  # two names of one file: rename(2) does nothing
        if new in self._there or new in self._seen:
            self._need(new)
            self._lose(new)
        self._do(_K.RENAME, old, target=new)
        self._move(old, new)

    def _is(self, path: str, kind: OperationKind) -> bool:
        inode = self._inode(path)
        return inode is not None and inode.kind is kind

    def _move(self, old: str, new: str) -> None:
        for names in (self._there, self._seen):
            for name in names.at(old):
                moved = new + name.removeprefix(old)
                self._gone.add(name)
                self._gone.discard(moved)
                if inode := names.pop(name):
                    names[moved] = inode
        for known in {o for p in self._processes.values() for o in p.files.values() if not o.handle}:
            if known.path == old or known.path.startswith(f"{old}/"):
                known.path = new + known.path.removeprefix(old)
        for mounts in self._mounts:  # in another namespace than the caller's, it may be a mount point itself
            for mount in [mount for mount in mounts if f"{mount}/".startswith(f"{old}/")]:
                mounts[new + mount.removeprefix(old)] = mounts.pop(mount)

    def links(self, call: SystemCall, process: _Process) -> None:
        is_at = call.name == "linkat"
        new = self._named(call, process, 3 if is_at else 1)
        old = self._linked(call, process) if is_at else self._named(call, process, 0)
        if new is None and old is None:
            return
        if old is None or new is None:
            raise _LeftOut("links to what is not in the folder, or out of it")
        inode = _Inode(_K.CREATE, is_changed=True) if old.startswith("@") else self._need(old)
        self._need(posixpath.dirname(new), directory=True)
        self._there[new] = inode
        self._do(_K.LINK, old, target=new)

    def _linked(self, call: SystemCall, process: _Process) -> str | None:
        """The file of linkat(2): by name, or a file without one by its descriptor."""
        name = string(call.arguments[1])
        if (m := _OF_PROCESS.fullmatch(name)) and m["number"] and not m["rest"]:
            known = self._whose(call, process, m).files.get(int(m["number"]))
            return (known.handle or known.path) if known else None
        if not name:
            found = self._file(process, call.arguments[0])
            return found[0] if found else None
        return self._named(call, process, 1, follows="AT_SYMLINK_FOLLOW" in call.arguments[-1])

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
            self._make(_K.SYMLINK, path, _word(string(call.arguments[0])))

    def removes(self, call: SystemCall, process: _Process) -> None:
        path = self._named(call, process, 1 if call.name == "unlinkat" else 0)
        if path is None:
            return
        is_directory = call.name == "rmdir" or "AT_REMOVEDIR" in call.arguments[-1]
        is_known = self._there.get(path) or self._seen.get(path)
        self._removed[path] = _Removed(call.ended)
        inode = self._need(path, directory=is_directory)
        self._lose(path)
        self._do(_K.RMDIR if is_directory else _K.UNLINK, path)
        if not is_known:
            self._removed[path] = _Removed(call.ended, inode, self.operations[-1])

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
        if (path := self._either(call, process)) is not None:
            self._do(_K.CHMOD, path, length=int(call.arguments[at + 1], 8) & 0o7777)

    def sets_times(self, call: SystemCall, process: _Process) -> None:
        """Of a time that is now, the log does not say when that was."""
        if (path := self._either(call, process)) is not None:
            told = re.findall(r"(?:tv_sec|modtime)=(\d+)", " ".join(call.arguments))
            self._do(_K.TOUCH, path, length=int(told[-1]) if told else 0)

    def sets_owner(self, call: SystemCall, process: _Process) -> None:
        at = 1 if call.name == "fchownat" else 0
        if (path := self._either(call, process)) is None:
            return
        user, group = map(int, call.arguments[at + 1 : at + 3])
        if min(user, group) < 0:
            raise _LeftOut("chown of the user or the group alone")
        if self._is(path, _K.SYMLINK):
            raise _LeftOut("owners of symbolic links")
        self._do(_K.CHOWN, path, offset=user, length=group)

    def controls(self, call: SystemCall, process: _Process) -> None:
        asked = call.arguments[1]
        if asked in ("FIOCLEX", "FIONCLEX"):
            self._marks(call, process, closing=asked == "FIOCLEX")
        if _READING_IOCTL.match(asked):
            return
        found = self._file(process, call.arguments[0])
        is_clone = not _CLONE_IOCTLS.isdisjoint(asked.split(" or "))
        source = self._file(process, call.arguments[2]) if is_clone else None
        if not found or not source:
            others = re.findall(r"\d+<[^>]*>", " ".join(call.arguments[2:]))  # dest_fd of FIDEDUPERANGE
            if found or any(self._file(process, other) for other in others):
                raise _LeftOut(f"ioctl {_NAMED_IOCTLS.get(asked, asked.rpartition(' or ')[2])}")
            return
        self._do(_K.CLONE, source[0], target=found[0])
        taken, inode = self._called(source[0]), self._called(found[0])
        if inode and taken:
            inode.is_changed, inode.end = True, max(inode.end, taken.reach)

    def maps(self, call: SystemCall, process: _Process) -> None:
        start, end = call.result, call.result + _in_pages(int(call.arguments[1]))
        replaced = process.mapped(start, end)
        process.mappings[:] = [m for m in process.mappings if m not in replaced]  # others may share them
        if "MAP_SHARED" not in call.arguments[3]:
            return
        process.mappings.append(mapping := _Mapping(start, end, int(call.arguments[5], 0)))
        if found := self._file(process, call.arguments[4]):
            path, mapping.known = found
            mapping.file = self._there.get(path)
            if "PROT_WRITE" in call.arguments[2]:
                self._stores(mapping)
            elif "O_RDWR" in mapping.known.flags:
                self._may_be_stored = True

    def executes(self, call: SystemCall, process: _Process) -> None:
        """Nothing that was mapped is, from now on; nor does the program share descriptors, or have those that
        were opened to be closed now.
        """
        process.mappings = []
        self._own_files(process)
        for number in sorted(process.files.closing):
            self._put(process, number, None)

    def protects(self, call: SystemCall, process: _Process) -> None:
        """What could not be written may be from now on."""
        if "PROT_WRITE" in call.arguments[2]:
            for mapping in _range_of(call, process):
                self._stores(mapping)

    def _stores(self, mapping: _Mapping) -> None:
        if mapping.known and not mapping.is_stored:
            mapping.is_stored = True
            self.left_out[_STORES] += 1

    def syncs_mapping(self, call: SystemCall, process: _Process) -> None:
        """msync(2), which does nothing without MS_SYNC, syncs the pages of files as fdatasync(2) does."""
        start, length = _address(call.arguments[0]), int(call.arguments[1])
        if "MS_SYNC" not in call.arguments[2] or not length:
            return
        if not (mappings := _range_of(call, process)):
            raise _LeftOut("msync of memory of which the log does not show what it is")
        for m in mappings:
            if m.known:
                self._do(_K.FDATASYNC, self._synced(m, m.known, start, start + _in_pages(length)))

    def _synced(self, mapping: _Mapping, known: _Open, start: int, end: int) -> str:
        """What an operation calls the file of a mapping of which all is synced."""
        is_held = known.handle and known.holders
        if not mapping.file or not (is_held or self._there.get(known.path) is mapping.file):
            raise _LeftOut("msync of a file that has no name, or another one than where it was closed")
        first = mapping.offset + max(start - mapping.start, 0)
        last = mapping.offset + min(end, mapping.end) - mapping.start
        if first or last < mapping.file.reach:
            raise _LeftOut("msync of a part of a file")
        return known.handle or known.path

    def leaves_unseen(self, seen: Set[str]) -> None:
        """What a log cannot show that was made without these calls."""
        if self._may_be_stored and seen.isdisjoint(_PROTECTS):
            self.left_out["stores into a shared mapping that mprotect, which was not traced, allows"] += 1

    def has_none(self, call: SystemCall, process: _Process) -> None:
        """The call changes what no operation changes."""
        if call.name.startswith("io_"):
            raise _LeftOut(f"{call.name}, whose requests are not in the workload")
        if self._either(call, process) is not None:
            raise _LeftOut(call.name)

    def _either(self, call: SystemCall, process: _Process) -> str | None:
        """Of a call with a descriptor or a path as its first argument, or a directory and a path."""
        at = 1 if re.search("at2?$", call.name) and call.arguments[1].startswith('"') else 0
        if not call.arguments[at].startswith('"') or (at and not string(call.arguments[1])):
            found = self._file(process, call.arguments[0])
            return found[0] if found else None
        follows = not call.name.startswith("l") and "NOFOLLOW" not in call.arguments[-1]
        if (path := self._named(call, process, at, follows=follows)) is not None:
            self._need(path)
        return path


def _in_pages(length: int) -> int:
    return length + -length % BLOCK_BYTES


def _address(argument: str) -> int:
    return 0 if argument == "NULL" else int(argument, 0)


def _range_of(call: SystemCall, process: _Process) -> list[_Mapping]:
    """What the first two arguments of a call stand for, an address and a length."""
    start = _address(call.arguments[0])
    return process.mapped(start, start + _in_pages(int(call.arguments[1])))


def _inside(path: str) -> str | None:
    """A relative path that leads nowhere else."""
    return None if path == ".." or path.startswith("../") else "" if path == "." else path


def _is_above(path: str) -> bool:
    """Whether a relative path leads to where it starts, or to a folder above."""
    return re.fullmatch(r"\.|\.\.(/\.\.)*", path) is not None


def _is_related(path: str) -> bool:
    """Whether it leads to where it starts, or to something below or above."""
    return _inside(path) is not None or _is_above(path)


def _joined(root: str, start: str, name: str) -> str:
    """Where a name leads from a folder, for a process with this root, which no ".." leaves."""
    if name.startswith("/"):
        start = root
    inside = root if f"{start}/".startswith(f"{root}/") else ""
    below = posixpath.join("/", start.removeprefix(inside).lstrip("/"), name.lstrip("/"))
    return posixpath.normpath(inside + posixpath.normpath(below))


def _word(text: str) -> str:
    """A path as a word of an operation: what separates words, and what is no UTF-8, as %20."""

    def escaped(m: re.Match[str]) -> str:
        return "".join(f"%{byte:02x}" for byte in m[0].encode("utf-8", "surrogateescape"))

    return re.sub(r"[\s\x00-\x1f\x7f%\udc80-\udcff]|(?<![^/])@", escaped, text)


def _unescaped(word: str) -> str:
    """The path that has become a word."""
    return urllib.parse.unquote(word, errors="surrogateescape")


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
_SOURCES = {"sendfile": (1, 2), "copy_file_range": (0, 1), "splice": (0, 1)}
"""Which argument is the file that is read, and which the place."""
_Does = Callable[[_Import, SystemCall, _Process], None]
_CALLS: Mapping[str, _Does] = {
    name: does
    for names, does in (
        ("stat lstat fstat newfstatat statx access faccessat faccessat2 readlink readlinkat", _Import.looks),
        ("open openat openat2 creat", _Import.opens),
        ("close", _Import.closes),
        ("close_range", _Import.closes_range),
        ("dup dup2 dup3 fcntl", _Import.duplicates),
        ("fork vfork clone clone3", _Import.forks),
        ("unshare", _Import.unshares),
        (EXIT, _Import.exits),
        ("chdir fchdir", _Import.changes_directory),
        ("chroot", _Import.changes_root),
        ("pivot_root setns", _Import.loses_root),
        ("mount", _Import.mounts),
        ("move_mount", _Import.moves_mount),
        ("umount umount2", _Import.unmounts),
        ("open_tree", _Import.copies_mounts),
        ("lseek", _Import.seeks),
        ("read readv preadv2", _Import.reads),
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
        ("execve execveat", _Import.executes),
        ("mmap", _Import.maps),
        (" ".join(_PROTECTS), _Import.protects),
        ("msync", _Import.syncs_mapping),
        ("utime utimes utimensat futimesat", _Import.sets_times),
        ("io_uring_setup io_uring_enter io_submit", _Import.has_none),
    )
    for name in names.split()
}
_CHANGING_NOTHING: Set[_Does] = {
    _Import.looks,
    _Import.closes,
    _Import.closes_range,
    _Import.duplicates,
    _Import.forks,
    _Import.unshares,
    _Import.exits,
    _Import.changes_directory,
    _Import.changes_root,
    _Import.loses_root,
    _Import.copies_mounts,
    _Import.seeks,
    _Import.reads,
    _Import.executes,
    _Import.maps,
    _Import.protects,
}
"""What these do is seen by what is called after them."""
