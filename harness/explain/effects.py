"""What the calls of a program change, and which of its syncs makes which change durable. Pure.

A call names a path. The file is the one that had the name when the call began: names are followed through
renames, links and removals, so that two files which had one name, one after the other, stay two.
"""

from __future__ import annotations

import bisect
import enum
import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.writelog.calls import ProgramCall

_CALL = re.compile(r"(\w+)(?: exchange)?\((.*)\)", re.DOTALL)
_PLACE = re.compile(r"(\d+)(?: at (\d+))?")
_MSYNC = re.compile(r"msync\(.*, (\d+) at (\d+)(, async)?\)", re.DOTALL)
_PAGE_BYTES = 4096
_FILE = ("fsync", "fdatasync", "msync")
_ALL = ("sync", "syncfs")
_DATA = (
    *("write", "pwrite", "writev", "pwritev", "pwritev2", "sendfile", "splice"),
    *("copy_file_range", "ficlone", "ficlonerange"),
)
_COPIES = ("sendfile", "splice", "copy_file_range")
"""They return 0 at the end of what they copy from: then they wrote nothing."""
_SIZE = ("ftruncate", "truncate", "fallocate")
_RENAMES = ("rename", "renameat", "renameat2")
_PAIRS = (*_RENAMES, "link", "linkat")
_MAKES = ("creat", "symlink", "symlinkat", "mkdir", "mkdirat")
REMOVES = ("unlink", "unlinkat", "rmdir")
_NAMES = (*_PAIRS, *_MAKES, *REMOVES)
_ATTRIBUTES = ("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchown", "fchownat")
_OPENS = ("open", "openat", "openat2")
UNREAD = ("io_submit", "io_uring_enter")
SHOWN = (*_DATA, *_SIZE, *_NAMES, *_ATTRIBUTES, *UNREAD, "sync_file_range")
_DELETED = " (deleted)"
"""What d_path() appends to the name of an open file that has none any more (fs/d_path.c)."""
_TMPFILE = re.compile(r"#(\d+)" + re.escape(_DELETED))
_OPERATIONS = (
    dict.fromkeys(_RENAMES, "rename")
    | dict.fromkeys((*_OPENS, "creat"), "create")
    | dict.fromkeys(_DATA, "write")
    | {"linkat": "link", "symlinkat": "symlink", "mkdirat": "mkdir", "unlinkat": "unlink"}
    | {"ftruncate": "truncate", "fchmod": "chmod", "fchown": "chown"}
)
"""What a call is as an operation of a workload, where that has another name."""
EVERY = -1
"""The inode of a sync that is of all files."""
_NEVER = 1 << 62
"""Later than every event."""


class Sort(enum.Enum):
    """What a call changed: contents or size of a file, its attributes, a name that it gave, or one that it
    took.
    """

    DATA = enum.auto()
    ATTRIBUTES = enum.auto()
    GIVEN = enum.auto()
    TAKEN = enum.auto()


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that a call changed. `inode`: of the file, a number of ours. `path`: as the call named it.
    `directory`: of a name, the inode of its directory. `durable`: by itself, as with O_SYNC. `span`: the
    bytes that a call wrote, if it names them.
    """

    call: ProgramCall
    sort: Sort
    inode: int
    path: str
    directory: int = EVERY
    durable: bool = False
    span: tuple[int, int] | None = None

    @property
    def began(self) -> int:
        return self.call.began

    @property
    def is_of_file(self) -> bool:
        """Whether it is of the file itself, whatever its names are."""
        return self.sort in (Sort.DATA, Sort.ATTRIBUTES)

    @property
    def wanted(self) -> str:
        """The sync that makes it durable."""
        if self.is_of_file:
            return f"fsync of `{self.path}`"
        return f"fsync of the directory `{directory_of(self.path)}`"


@dataclass(frozen=True, slots=True)
class Sync:
    """A call that makes changes of a file durable, or of every one. `names_only`: a write that is durable by
    itself takes the name of its file along, and no other contents. `span`: the bytes whose pages msync(2)
    writes; None stands for all.
    """

    call: ProgramCall
    inode: int
    names_only: bool = False
    span: tuple[int, int] | None = None

    def has(self, change: Change) -> bool:
        """Whether what a call wrote to the file is among its bytes."""
        if self.span is None or change.span is None:
            return True
        return self.span[0] <= change.span[0] and change.span[1] <= self.span[1]


@dataclass(frozen=True, slots=True)
class Taking:
    """A call took away what a file held: its last name, or its contents. `path`: the name, `inode`: the file.
    `left`: the size that it leaves; None if it takes the name.
    """

    call: ProgramCall
    path: str
    inode: int
    left: int | None = None


class Effects:
    """The changes, syncs and takings of calls, which are in the order in which they began. `ranges`:
    sync_file_range(2), and an msync(2) that waits for nothing: they make nothing durable. `in_order`: names
    become durable in their order, so that a sync which commits anything, as `commits` tells, commits every
    name before it.
    """

    def __init__(
        self, calls: Sequence[ProgramCall], in_order: bool, commits: Callable[[ProgramCall], bool]
    ) -> None:
        self.in_order, self._commits = in_order, functools.cache(commits)
        self.changes: list[Change] = []
        self.syncs: list[Sync] = []
        self.ranges: list[Sync] = []
        self.takings: list[Taking] = []
        self._inodes = 1
        self._named: dict[str, int] = {".": 0}
        self._nameless: dict[str, int] = {}
        self._held: defaultdict[str, list[tuple[int, int | None]]] = defaultdict(list)
        self._had: defaultdict[int, set[str]] = defaultdict(set)
        self._sizes: dict[int, int] = {}
        self._grown: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self._synchronous: set[int] = set()
        self._covered: dict[Change, int] = {}  # kept: it is asked for each pair of thousands of calls
        for call in calls:
            if call.returned is not None and call.result >= 0:
                self._follow(call)

    # --- questions --------------------------------------------------------------------------------

    def covered(self, change: Change, by: int) -> bool:
        """Whether a sync made a change durable that had returned by an event."""
        if change not in self._covered:
            self._covered[change] = self._first_end(change)
        return change.durable or self._covered[change] < by

    def _first_end(self, change: Change) -> int:
        """When the first of the syncs that cover a change had returned. None is asked that began behind the
        end of one that does.
        """
        lists = [self._syncs_of[inode] for inode in {EVERY, change.inode, change.directory}]
        if self.in_order and change.sort is not Sort.DATA:
            lists.append(self._committing)
        first, returned = _NEVER, change.call.returned or _NEVER
        for syncs in lists:
            for n in range(bisect.bisect_left(syncs, returned, key=lambda s: s.call.began), len(syncs)):
                if (sync := syncs[n]).call.began >= first:
                    break
                if sync.call.returned is not None and self.covers(sync, change):
                    first = min(first, sync.call.returned)
        return first

    @functools.cached_property
    def _syncs_of(self) -> defaultdict[int, list[Sync]]:
        """By inode, in the order in which they began."""
        found: defaultdict[int, list[Sync]] = defaultdict(list)
        for sync in self.syncs:
            found[sync.inode].append(sync)
        return found

    @functools.cached_property
    def _committing(self) -> list[Sync]:
        return [s for s in self.syncs if self._commits(s.call)]

    def idle(self, by: int, sent: Callable[[ProgramCall], bool]) -> bool:
        """Whether a sync that had returned by an event had something to make durable and, as `sent` tells,
        made nothing so.
        """
        done = [s for s in self.syncs if is_done(s.call, by)]
        busy = [s for s in done if sent(s.call)]
        return any(
            self.covers(s, c) and not any(self.covers(b, c) for b in busy if b.call.began < s.call.began)
            for s in done
            if s not in busy
            for c in self.changes
            if not c.durable
        )

    def covers(self, sync: Sync, change: Change) -> bool:
        """Whether a sync, begun after a call had returned, makes its change durable: of contents, one of that
        file; of a name, one of its directory, of the file that has it or, in order, any that commits.
        """
        returned = change.call.returned
        if returned is None or sync.call.began < returned:
            return False
        if sync.inode == EVERY:
            return True
        if change.sort is Sort.DATA:
            return sync.inode == change.inode and not sync.names_only and sync.has(change)
        if change.sort is Sort.ATTRIBUTES and word_of(sync.call) != "fsync":
            return self.in_order and self._commits(sync.call)  # fdatasync(2) leaves them out
        if sync.inode == change.inode and word_of(change.call) not in REMOVES:
            return True
        return sync.inode == change.directory or (self.in_order and self._commits(sync.call))

    def names_of(self, inode: int, event: int) -> set[str]:
        """The names that a file had at an event."""
        return {name for name in self._had.get(inode, ()) if self._holder(name, event) == inode}

    def _holder(self, name: str, event: int) -> int | None:
        return next((inode for at, inode in reversed(self._held[name]) if at < event), None)

    def first_size(self, inode: int, event: int) -> int:
        """The bytes that a file had at an event or, if nothing had been written yet, once something was."""
        sizes = self._grown.get(inode, [])
        before = [size for began, size in sizes if began < event]
        return before[-1] if before else sizes[0][1] if sizes else 0

    def was_kept(self, taking: Taking) -> bool:
        """Whether something of what was taken away had been made durable before."""
        own = (c for c in self.changes if c.inode == taking.inode and c.sort is not Sort.TAKEN)
        return any(c.began < taking.call.began and self.covered(c, taking.call.began) for c in own)

    def change_of(self, taking: Taking) -> Change:
        """The change that a sync has to cover before the contents or the name that a call took away are gone
        for good.
        """
        sort = Sort.TAKEN if taking.left is None else Sort.DATA
        own = (c for c in self.changes if c.call == taking.call and c.inode == taking.inode)
        return next((c for c in own if c.sort is sort), Change(taking.call, sort, taking.inode, taking.path))

    def sizes(self, inode: int, since: int, until: int) -> list[tuple[int, int]]:
        """What writes made of a file between two events: when each began, and the size after it."""
        return [(began, size) for began, size in self._grown.get(inode, ()) if since < began < until]

    # --- a call after the other -------------------------------------------------------------------

    def _follow(self, call: ProgramCall) -> None:
        word, (first, rest) = word_of(call), paths_of(call)
        if syncs(call):
            self.syncs.append(Sync(call, EVERY if word in _ALL else self._inode(first), span=_synced(call)))
        elif word in ("sync_file_range", "msync"):
            self.ranges.append(Sync(call, self._inode(first)))
        elif word in (*_DATA, *_SIZE):
            self._write(call, word, first, rest)
        elif word in _ATTRIBUTES:
            self.changes.append(Change(call, Sort.ATTRIBUTES, self._inode(first), first))
        elif word in _OPENS or word == "creat":
            self._open(call, first, "create|truncate" if word == "creat" else rest)
        elif word in _RENAMES:
            self._rename(call, first, rest, exchange=" exchange(" in call.text)
        elif word in _PAIRS:
            self._give(call, rest, self._inode(first))
        elif word in _MAKES:
            self._give(call, first, self._new())
        elif word in REMOVES:
            inode = self._inode(first)
            self._take(call, first, inode)
            self._taken(call, first, inode)

    def _write(self, call: ProgramCall, word: str, path: str, rest: str) -> None:
        inode, size = self._inode(path), self._sizes.get(self._inode(path), 0)
        place = _PLACE.search(rest.rpartition(", ")[2] if word == "fallocate" else rest)
        if word in _COPIES and call.result == 0:
            return
        durable = word in _DATA and (inode in self._synchronous or "dsync" in rest)
        at = int(place[2]) if word in _DATA and place and place[2] else None
        span = (at, at + call.result) if at is not None else None
        self.changes.append(Change(call, Sort.DATA, inode, path, durable=durable, span=span))
        if durable:
            self.syncs.append(Sync(call, inode, names_only=True))
        if word in ("ftruncate", "truncate"):
            left = int(place[1]) if place else 0
            if left == 0 or left < size:
                self.takings.append(Taking(call, path, inode, left))
            self._sizes[inode] = left
        elif word in _DATA:
            self._sizes[inode] = max(size, (size if at is None else at) + call.result)
            self._grown[inode].append((call.began, self._sizes[inode]))

    def _open(self, call: ProgramCall, path: str, how: str) -> None:
        if "tmpfile" in how:
            return
        if path not in self._named and "create" in how:
            made = self._new()
            self._sizes[made] = 0
            self._give(call, path, made)
        inode = self._inode(path)
        if "truncate" in how and self._sizes.get(inode, 1):
            known = any(c.inode == inode and c.call != call for c in self.changes)
            if known:
                self.changes.append(Change(call, Sort.DATA, inode, path))
                self.takings.append(Taking(call, path, inode, 0))
            self._sizes[inode] = 0
        # Which of several descriptors a call used, is not known: the last one opened, most likely.
        (self._synchronous.add if "sync" in how else self._synchronous.discard)(inode)

    def _rename(self, call: ProgramCall, old: str, new: str, *, exchange: bool) -> None:
        moved, victim = self._inode(old), self._named.get(new)
        if victim == moved:
            return
        self._take(call, old, moved)
        if victim is not None and not exchange:
            self._lose(call, new, victim)
            self._taken(call, new, victim)
        self._give(call, new, moved)
        if exchange and victim is not None:
            self._give(call, old, victim)
        moves = self._below(old, new) | (self._below(new, old) if exchange else {})
        inodes = {path: self._named[path] for path in moves}
        for path in moves:
            self._note(call, path, None)
        for path, moved_to in moves.items():
            self._note(call, moved_to, inodes[path])

    def _below(self, old: str, new: str) -> dict[str, str]:
        """The paths in a directory, with what they are once it is called otherwise."""
        return {p: new + p.removeprefix(old) for p in self._named if p.startswith(f"{old}/")}

    def _give(self, call: ProgramCall, path: str, inode: int) -> None:
        self.changes.append(Change(call, Sort.GIVEN, inode, path, self._inode(directory_of(path))))
        self._note(call, path, inode)

    def _take(self, call: ProgramCall, path: str, inode: int) -> None:
        self.changes.append(Change(call, Sort.TAKEN, inode, path, self._inode(directory_of(path))))
        self._lose(call, path, inode)

    def _lose(self, call: ProgramCall, path: str, inode: int) -> None:
        self._note(call, path, None)
        self._nameless[path + _DELETED] = inode

    def _taken(self, call: ProgramCall, path: str, inode: int) -> None:
        if inode not in self._named.values():
            self.takings.append(Taking(call, path, inode))

    def _note(self, call: ProgramCall, path: str, inode: int | None) -> None:
        self._held[path].append((call.began, inode))
        self._named.pop(path, None)
        if inode is not None:
            self._had[inode].add(path)
            self._named[path] = inode

    def _inode(self, path: str) -> int:
        """The file of that name now; one that was there before the calls, or never had a name, is met."""
        if (known := self._named.get(path, self._nameless.get(path))) is not None:
            return known
        inode = self._new()
        if path.endswith(_DELETED):
            self._nameless[path] = inode
        else:
            self._named[path] = inode
            self._had[inode].add(path)
            self._held[path].append((-1, inode))
        return inode

    def _new(self) -> int:
        self._inodes += 1
        return self._inodes


def is_done(call: ProgramCall, by: int) -> bool:
    """Whether a call had returned by then, without an error."""
    return call.returned is not None and call.returned < by and call.result >= 0


def word_of(call: ProgramCall) -> str:
    found = _CALL.fullmatch(call.text)
    return found[1] if found else ""


def paths_of(call: ProgramCall) -> tuple[str, str]:
    """The first argument, and the others; a path with a comma in it is cut off."""
    found = _CALL.fullmatch(call.text)
    first, _, rest = (found[2] if found else "").partition(", ")
    return first, rest


def directory_of(path: str) -> str:
    """The directory of a name, as a call names it."""
    return path.rpartition("/")[0] or "."


def syncs(call: ProgramCall) -> bool:
    """Whether a call makes something durable: an msync(2) of bytes, if it waits for them."""
    if word_of(call) == "msync" and (found := _MSYNC.fullmatch(call.text)):
        return int(found[1]) > 0 and not found[3]
    return word_of(call) in (*_FILE, *_ALL)


def as_operations(calls: Iterable[ProgramCall]) -> list[str]:
    """Calls as lines of a workload, so far as they tell: `create f`, `write f 5000`, `fsync f`."""
    lines: list[str] = []
    nameless: set[str] = set()
    for call in calls:
        word, (first, rest) = word_of(call), paths_of(call)
        new = set(_TMPFILE.findall(call.text)) - nameless
        nameless |= new
        lines += [f"open-tmpfile . @{number}" for number in sorted(new)]
        if not word or (word in _OPENS and "create" not in rest):
            continue
        kind = "exchange" if " exchange(" in call.text else _OPERATIONS.get(word, word)
        more = {"create": "", "symlink": "?"}.get(kind, rest)
        lines.append(_TMPFILE.sub(r"@\1", f"{kind} {first} {more}").strip())
    return lines


def _synced(call: ProgramCall) -> tuple[int, int] | None:
    """The bytes of the pages that an msync(2) writes; None for another call."""
    if (found := _MSYNC.fullmatch(call.text)) is None:
        return None
    start, length = int(found[2]), int(found[1])
    return start, start + length + -length % _PAGE_BYTES


def distinct(changes: Sequence[Change]) -> Iterator[ProgramCall]:
    """The calls of changes, each once."""
    yield from dict.fromkeys(c.call for c in changes)
