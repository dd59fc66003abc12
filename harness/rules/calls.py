"""The notes of a guest about a program: each call that changes a file, with its bytes, in one order. Pure.

`vms/agent/src/whole.rs` has the form. A guest may send anything: what is no note is an UnreadableNotes.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

SYNCS = ("fsync", "fdatasync", "sync")
WORDS = (
    *("create", "tmpfile", "mkdir", "symlink", "link", "unlink", "rename", "exchange"),
    *("write", "zero", "size", "attributes", "setxattr", "removexattr", *SYNCS, "nothing"),
)
STORE = "a store into a mapping"
"""How the text of what is no call begins; behind it stand the file and the bytes."""
MAKING = ("create", "tmpfile", "mkdir", "symlink")
_WITH_BYTES = ("write", "setxattr")
_FIELDS = 15
Xattrs = tuple[tuple[str, bytes], ...]
"""Names of extended attributes, each with its value."""


class UnreadableNotes(ValueError):
    """These bytes are no notes."""


@dataclass(frozen=True, slots=True)
class NotedCall:
    """A call. `word`: one of WORDS. `number`: of the call among the events of its recording; of a store into
    a mapping, of the call before which it was seen. `inode`: of the file that it changes, or makes.
    `offset`, `length`: in bytes; of a `size`, the length is the new one; of an msync(2), its range. `at`:
    where its bytes begin among those that were noted: what was written, or the value of the extended
    attribute that `other` names. `owner`: permission bits, user and group that the file has after it; zeros
    where they were not noted. `path`, `other`: below the mount point. `text`: for people.
    `durable`: of a write: `sync` with O_SYNC or RWF_SYNC, `dsync` with O_DSYNC or RWF_DSYNC. `place`: where
    in the program it was made; empty where that is not known.
    """

    word: str
    thread: int = 0
    inode: int = 0
    offset: int = 0
    length: int = 0
    at: int = 0
    owner: tuple[int, int, int] = (0, 0, 0)
    durable: str = ""
    path: str = ""
    other: str = ""
    text: str = ""
    number: int = 0
    place: str = ""

    @property
    def is_sync(self) -> bool:
        return self.word in SYNCS

    @property
    def is_store(self) -> bool:
        """Whether it stands for what was stored into a mapping at any time since the call before it."""
        return self.text.startswith(STORE)


@dataclass(frozen=True, slots=True)
class Left:
    """A name that the program left. `kind`: `file`, `directory`, `symlink` or `special`. `xattrs`: extended
    attributes of the user, in the order of their names.
    """

    path: str
    kind: str
    owner: tuple[int, int, int]
    contents: bytes = b""
    target: str = ""
    xattrs: Xattrs = ()


@dataclass(frozen=True, slots=True)
class Acked:
    """The program acknowledged `text` when it had made so many `calls`."""

    calls: int
    text: str


@dataclass(frozen=True, slots=True)
class Notes:
    """All of a program. `root`: the inode of the directory, `owner`: as it was. `unseen`: calls of which
    nobody saw what they did; `refused`: those that the file system does not have. `cut`: a limit was met.
    `exit_code`: None if it did not end. `output`: what it printed.
    """

    root: int
    owner: tuple[int, int, int]
    calls: tuple[NotedCall, ...]
    acks: tuple[Acked, ...]
    left: tuple[Left, ...]
    data: bytes
    unseen: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    cut: bool = False
    exit_code: int | None = None
    output: str = ""

    def digest(self) -> str:
        """A digest that is equal for two runs with the same calls, whatever their threads and inodes."""
        made = hashlib.blake2b(repr(self.acks).encode(), digest_size=16)
        files: dict[int, int] = {}
        for call in self.calls:
            held = self.data[call.at : call.at + call.length] if call.word in _WITH_BYTES else b""
            file = files.setdefault(call.inode, len(files))  # which one, in the order in which they come
            told = (call.word, call.offset, call.length, call.owner[0], call.durable, call.path, call.other)
            made.update(repr((*told, file)).encode() + held)
        return made.hexdigest()


def drawn_names(notes: Notes, again: Notes) -> dict[str, str]:
    """The names that a program drew at random, each with the one that is told: the same call of another run
    has another name there, and neither run has both.
    """
    mine, others = _names(notes), _names(again)
    found = {}
    for one, other in zip(notes.calls, again.calls, strict=False):
        if one.word != other.word:
            break  # it went another way
        for path, like_it in ((one.path, other.path), (one.other, other.other)):
            for name, drawn in zip(path.split("/"), like_it.split("/"), strict=False):
                if name not in others and drawn not in mine:
                    found[name] = _template(name, drawn)
    return found


def _names(notes: Notes) -> set[str]:
    return {name for call in notes.calls for path in (call.path, call.other) for name in path.split("/")}


def _template(name: str, like_it: str) -> str:
    """What two names have in common, and XXXXXX, as mkstemp(3) is given it."""
    return f"{_shared(name, like_it)}XXXXXX{_shared(name[::-1], like_it[::-1])[::-1]}"


def _shared(one: str, other: str) -> str:
    """The begin of both, up to a character that is no letter and no number."""
    end = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    return one[: max(map(one[:end].rfind, "._-")) + 1]


def told(text: str, drawn: Mapping[str, str]) -> str:
    """A path or a call's text, for people, with names that are the same whenever the program runs."""
    return re.sub(r"[^/(), ]+", lambda m: drawn.get(m[0], m[0]), text)


def notes_of(raw: bytes) -> Notes:
    """Read notes as the guest sends them: four bytes with the length of the lines, the lines, the bytes.
    Raises UnreadableNotes.
    """
    try:
        (length,) = struct.unpack_from("<I", raw)
        lines, data = raw[4 : 4 + length], raw[4 + length :]
        return _notes(list(_lines(lines.decode("ascii"))), data)
    except (struct.error, UnicodeError, ValueError) as e:
        raise UnreadableNotes(f"the notes of a program's calls cannot be read: {e}") from e


_Line = tuple[str, NotedCall, str]
"""The word, the fields, and the flags of a line."""


def _notes(lines: list[_Line], data: bytes) -> Notes:
    start = next((line for word, line, _ in lines if word == "start"), None)
    if start is None:
        raise UnreadableNotes("they have no begin")
    found = Notes(start.inode, start.owner, (), (), (), data)
    calls: list[NotedCall] = []
    acks: list[Acked] = []
    left: list[Left] = []
    told: dict[str, list[str]] = {"unseen": [], "refused": []}
    for word, line, flags in lines:
        if word in WORDS:
            is_there = line.word not in _WITH_BYTES or line.at + line.length <= len(data)
            _need(is_there, f"bytes of a {line.word} are missing")
            calls.append(line)
        elif word == "ack":
            acks.append(Acked(len(calls), line.text))
        elif word == "left":
            _take_left(left, line, flags, data[line.at : line.at + line.length])
        elif word in told:
            told[word].append(line.text)
        elif word == "more":
            found = replace(found, cut=True)
        elif word == "end":
            code = None if line.text == "none" else int(line.text)
            found = replace(found, exit_code=code, output=line.path)
        else:
            _need(word == "start", f"{word!r} is no word of them")
    found = replace(found, unseen=tuple(told["unseen"]), refused=tuple(told["refused"]))
    return replace(found, calls=tuple(_apart(calls)), acks=tuple(acks), left=tuple(left))


def _take_left(left: list[Left], line: NotedCall, kind: str, held: bytes) -> None:
    if kind != "xattr":
        left.append(Left(line.path, kind, line.owner, held, line.other))
        return
    _need(bool(left) and left[-1].path == line.path, "an extended attribute is of no name that was left")
    left[-1] = replace(left[-1], xattrs=tuple(sorted((*left[-1].xattrs, (line.other, held)))))


def _apart(calls: list[NotedCall]) -> Iterator[NotedCall]:
    """The calls with a number of its own for each file: file systems give the inode of a removed one to the
    next that is made.
    """
    fresh = itertools.count(1 + max((call.inode for call in calls), default=0))
    now: dict[int, int] = {}
    for call in calls:
        if call.word in MAKING:
            now[call.inode] = next(fresh) if call.inode in now else call.inode
        yield replace(call, inode=now.get(call.inode, call.inode))


def _lines(text: str) -> Iterator[_Line]:
    for line in text.splitlines():
        fields = line.split("\t")
        _need(len(fields) == _FIELDS, f"a line of {len(fields)} fields: {line[:80]!r}")
        word, thread, number, inode, offset, length, at, mode, uid, gid, flags, path, other, told, place = (
            fields
        )
        _need(min(map(int, (number, inode, offset, length, at))) >= 0, f"a number is negative: {line[:80]!r}")
        yield (
            word,
            NotedCall(
                word,
                int(thread),
                int(inode),
                int(offset),
                int(length),
                int(at),
                (int(mode), int(uid), int(gid)),
                flags if word == "write" else "",
                os.fsdecode(_unescaped(path)),
                os.fsdecode(_unescaped(other)),
                _unescaped(told).decode(errors="backslashreplace"),
                int(number),
                _unescaped(place).decode(errors="backslashreplace"),
            ),
            flags,
        )


def _unescaped(text: str) -> bytes:
    return text.encode("ascii").decode("unicode_escape").encode("latin-1") if "\\" in text else text.encode()


def _need(met: bool, what: str) -> None:
    if not met:
        raise UnreadableNotes(what)
