"""What strace(1) wrote of a program: its system calls, in the order in which they returned. Pure.

Asked for as `OPTIONS` says: -y puts the path behind each descriptor, -xx writes strings as bytes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from harness.errors import UsageError

OPTIONS = (
    "-f -y -xx -s 256 -e trace=%file,%desc,%process,unshare,sync,syncfs,msync,mprotect,pkey_mprotect,"
    "io_uring_setup,io_uring_enter,io_submit"
)
"""How a program is traced: `strace OPTIONS -o FILE PROGRAM ...`."""

EXIT = "exit"
"""What a call is named that stands for the end of a process."""
CUT = "cut"
"""What a call is named that stands for the end of a log within a line."""
FORKS = ("fork", "vfork", "clone", "clone3")
_LINE = re.compile(
    r"(?:\[pid\s+)?(?:(\d+)(?![\d.:]))?\]?\s*(?:[\d:.]+ )?(\w+(?=\()|<\.\.\. \w+ resumed>|\+\+\+)(.*)"
)
_UNFINISHED = "<unfinished ...>"
_ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|([0-7]{1,3})|(.))")
_LETTERS = {"n": "\n", "t": "\t", "v": "\v", "f": "\f", "r": "\r"}
_WHOLE = re.compile(
    r'(?:[^"]|"(?:[^"\\]|\\.)*")*'
    r"(?:\+\+\+ \w.* \+\+\+|--- SIG.* ---|\)\s+= (?:\d+<[^>]*>|-1 E\w+ \(.*\)|(?P<zero>0)))"
)
"""A line that cannot go on; with `zero`, if its call returns no descriptor, and no address."""
_MAY_GO_ON = re.compile("open|creat|dup|fcntl|mmap|brk|fsmount|fspick")
_RETURNED = re.compile(r"\)\s+= (0x[0-9a-f]+|-?\d+|\?)(?:<([^>]*)>(\(deleted\))?)?")


@dataclass(frozen=True, slots=True)
class SystemCall:
    """One call that succeeded, or, without `has_returned`, one of which the log has no end: it may lack
    arguments, or a part of one. `arguments`: as strace writes them. `path`: of the descriptor returned;
    `is_deleted`: it is the name that the file had. `began`, `ended`: the lines of the log in which it did.
    """

    pid: int
    name: str
    arguments: tuple[str, ...]
    result: int
    path: str = ""
    has_returned: bool = True
    is_deleted: bool = False
    began: int = 0
    ended: int = 0


@dataclass(frozen=True, slots=True)
class Descriptor:
    """An argument like `3</srv/db>(deleted)`. `number` of AT_FDCWD is None, `path` the working directory."""

    number: int | None
    path: str
    is_deleted: bool = False


def calls_of(lines: Iterable[str]) -> Iterator[SystemCall]:
    """The calls of a log that succeeded or never returned, and the ends of its processes. A new process
    stands before its own calls, although the call that made it returns later. Raises UsageError if not one
    line is strace's, or some do not say whose they are.
    """
    log, is_ended, is_cut = _Log(), False, False
    for line in lines:
        is_cut = is_ended and not line.endswith("\n") and not _is_whole(line)
        is_ended = line.endswith("\n")
        yield from log.take(line, is_cut=is_cut)
    yield from log.rest()
    if is_cut:
        yield SystemCall(0, CUT, (), 0)
    _need_whole(log.known)


def _is_whole(line: str) -> bool:
    """Whether a line lacks no more than its end."""
    if not (m := _WHOLE.fullmatch(line)):
        return False
    call = _LINE.match(line)
    return not m["zero"] or (call is not None and not _MAY_GO_ON.search(call[2]))


class _Log:
    def __init__(self) -> None:
        self.known: set[int] = set()
        self._line = 0
        # By process, a call and what is known of it, and in which line it began.
        self._begun: dict[int, tuple[str, str, int]] = {}
        self._forking: dict[int, str] = {}  # by process, what makes one and has not returned
        self._parents: dict[int, int] = {}

    def take(self, line: str, *, is_cut: bool) -> Iterator[SystemCall]:
        if not (m := _LINE.match(line)):
            return
        self._line += 1
        pid, word, rest = int(m[1] or 0), m[2], m[3].rstrip()
        yield from self._first_seen(pid)
        is_resumed = word.startswith("<")
        name, before, began = self._begun.pop(pid, ("", "", self._line))
        if name and not is_resumed:
            yield _without_end(pid, name, before)
        word, rest = (word.split()[1], before + rest) if is_resumed else (word, rest)
        if word == "+++":
            yield SystemCall(pid, EXIT, (), 0)
        elif rest.endswith(_UNFINISHED):
            self._begun[pid] = word, rest.removesuffix(_UNFINISHED), self._line
            if word in FORKS:
                self._forking[pid] = word
        else:
            for call in self._returned(pid, word, rest, is_cut=is_cut):
                yield replace(call, began=began if is_resumed else self._line, ended=self._line)

    def _first_seen(self, pid: int) -> Iterator[SystemCall]:
        """The call that made a process, if it has not returned."""
        if self.known and pid not in self.known and pid not in self._parents and self._forking:
            self._parents[pid] = parent = next(iter(self._forking))
            arguments = tuple(split(self._begun[parent][1][1:]))
            yield SystemCall(parent, self._forking.pop(parent), arguments, pid)
        self.known.add(pid)
        self._forking.pop(pid, None)

    def _returned(self, pid: int, word: str, rest: str, *, is_cut: bool) -> Iterator[SystemCall]:
        for call in _call(pid, word, rest, is_cut=is_cut):
            is_fork = word in FORKS and call.has_returned
            if not is_fork or self._parents.get(call.result) != pid:
                yield call
            if is_fork:
                self._parents[call.result] = pid

    def rest(self) -> Iterator[SystemCall]:
        """What the log has no end of."""
        for pid, (name, before, _) in self._begun.items():
            yield _without_end(pid, name, before)


def _need_whole(known: Collection[int]) -> None:
    """Raises UsageError for a log of nobody, or of somebody without a number."""
    if not known:
        raise UsageError("it has no line of strace", f"trace with: strace {OPTIONS} -o FILE PROGRAM")
    if 0 in known and len(known) > 1:
        raise UsageError(
            "some of its lines do not say which process they are of",
            f"trace with -o FILE: strace {OPTIONS} -o FILE PROGRAM",
        )


def _call(pid: int, name: str, rest: str, *, is_cut: bool) -> Iterator[SystemCall]:
    if not rest.startswith("("):
        return
    *_, end = (None, *_RETURNED.finditer(rest))
    if not end or end[1] == "?" or is_cut:
        if "= ? ERESTART" not in rest:  # it was interrupted before it did anything
            yield _without_end(pid, name, rest[: end.start()] if end else rest)
    elif (result := int(end[1], 0)) >= 0:
        path = unescaped(end[2] or "")
        arguments = tuple(split(rest[1 : end.start()]))
        yield SystemCall(pid, name, arguments, result, path, is_deleted=bool(end[3]))


def _without_end(pid: int, name: str, begin: str) -> SystemCall:
    """`begin`: its arguments behind a parenthesis, as far as the log has them."""
    arguments = begin.replace(_UNFINISHED, "").removeprefix("(")
    return SystemCall(pid, name, tuple(split(arguments)), -1, has_returned=False)


def split(text: str) -> list[str]:
    """Arguments, structures and lists as one each."""
    parts, depth, start, is_quoted, is_escaped = list[str](), 0, 0, False, False
    for at, letter in enumerate(text):
        if is_escaped or letter == "\\":
            is_escaped = not is_escaped
        elif letter == '"':
            is_quoted = not is_quoted
        elif is_quoted:
            continue
        elif letter in "([{<":
            depth += 1
        elif letter in ")]}>":
            depth -= 1
        elif letter == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, last] if (last := text[start:].strip()) else parts


def unescaped(text: str) -> str:
    """A string as strace writes it, with surrogate escapes for what is not UTF-8."""

    def letter(m: re.Match[str]) -> str:
        return chr(int(m[1], 16) if m[1] else int(m[2], 8) & 0xFF) if not m[3] else _LETTERS.get(m[3], m[3])

    data = _ESCAPED.sub(letter, text).encode("latin-1", "replace")
    return data.decode("utf-8", "surrogateescape")


def string(argument: str) -> str:
    """An argument in quotes; what strace has cut from its end is missing."""
    m = re.match(r'"((?:[^"\\]|\\.)*)"', argument)
    return unescaped(m[1]) if m else ""


def descriptor(argument: str) -> Descriptor:
    """Raises UsageError for one without its path."""
    m = re.fullmatch(r"(\d+|AT_FDCWD)<(.*)>(\(deleted\))?", argument)
    if not m:
        raise UsageError(f"{argument!r} is no descriptor with its path", f"trace with: strace {OPTIONS}")
    return Descriptor(None if m[1] == "AT_FDCWD" else int(m[1]), unescaped(m[2]), bool(m[3]))


def structure(argument: str, name: str) -> int | None:
    """A number in a structure, such as `st_size` of stat."""
    m = re.search(rf"\b{name}=(\d+)", argument)
    return int(m[1]) if m else None
