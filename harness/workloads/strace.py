"""What strace(1) wrote of a program: its system calls, in the order in which they returned. Pure.

Asked for as `OPTIONS` says: -y puts the path behind each descriptor, -xx writes strings as bytes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from harness.errors import UsageError

OPTIONS = (
    "-f -y -xx -s 256 -e trace=%file,%desc,%process,sync,syncfs,msync,mprotect,pkey_mprotect,"
    "io_uring_setup,io_uring_enter,io_submit"
)
"""How a program is traced: `strace OPTIONS -o FILE PROGRAM ...`."""

EXIT = "exit"
"""What a call is named that stands for the end of a process."""
FORKS = ("fork", "vfork", "clone", "clone3")
_LINE = re.compile(
    r"(?:\[pid\s+)?(?:(\d+)(?![\d.:]))?\]?\s*(?:[\d:.]+ )?(\w+(?=\()|<\.\.\. \w+ resumed>|\+\+\+)(.*)"
)
_UNFINISHED = "<unfinished ...>"
_ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|([0-7]{1,3})|(.))")
_LETTERS = {"n": "\n", "t": "\t", "v": "\v", "f": "\f", "r": "\r"}
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_RETURNED = re.compile(r"\)\s+= (0x[0-9a-f]+|-?\d+|\?)(?:<([^>]*)>(\(deleted\))?)?")


@dataclass(frozen=True, slots=True)
class SystemCall:
    """One call that succeeded. `arguments`: as strace writes them. `path`: of the descriptor returned."""

    pid: int
    name: str
    arguments: tuple[str, ...]
    result: int
    path: str = ""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """An argument like `3</srv/db>(deleted)`. `number` of AT_FDCWD is None, `path` the working directory."""

    number: int | None
    path: str
    is_deleted: bool = False


def calls_of(lines: Iterable[str]) -> Iterator[SystemCall]:
    """The calls of a log that succeeded, and the ends of its processes. A new process stands before its own
    calls, although the call that made it returns later. Raises UsageError if not one line is strace's,
    or some do not say whose they are.
    """
    begun: dict[int, str] = {}
    forking: dict[int, str] = {}  # by process, what makes one and has not returned
    parents: dict[int, int] = {}
    known: set[int] = set()
    for line in lines:
        if not (m := _LINE.match(line)):
            continue
        pid, word, rest = int(m[1] or 0), m[2], m[3].rstrip()
        if known and pid not in known and pid not in parents and forking:
            parents[pid] = parent = next(iter(forking))
            yield SystemCall(parent, forking.pop(parent), tuple(split(begun[parent][1:])), pid)
        known.add(pid)
        forking.pop(pid, None)
        before = begun.pop(pid, "")
        if word == "+++":
            yield SystemCall(pid, EXIT, (), 0)
        elif rest.endswith(_UNFINISHED):
            begun[pid] = rest.removesuffix(_UNFINISHED)
            if word in FORKS:
                forking[pid] = word
        else:
            word, rest = (word.split()[1], before + rest) if word.startswith("<") else (word, rest)
            for call in _call(pid, word, rest):
                if word not in FORKS or parents.get(call.result) != pid:
                    yield call
                if word in FORKS:
                    parents[call.result] = pid
    _need_whole(known)


def _need_whole(known: Collection[int]) -> None:
    """Raises UsageError for a log of nobody, or of somebody without a number."""
    if not known:
        raise UsageError("it has no line of strace", f"trace with: strace {OPTIONS} -o FILE PROGRAM")
    if 0 in known and len(known) > 1:
        raise UsageError(
            "some of its lines do not say which process they are of",
            f"trace with -o FILE: strace {OPTIONS} -o FILE PROGRAM",
        )


def _call(pid: int, name: str, rest: str) -> Iterator[SystemCall]:
    ends = list(_RETURNED.finditer(rest))
    if not ends or not rest.startswith("(") or ends[-1][1] == "?":
        return
    if (result := int(ends[-1][1], 0)) >= 0:
        path = unescaped(ends[-1][2] or "")
        yield SystemCall(pid, name, tuple(split(rest[1 : ends[-1].start()])), result, path)


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
