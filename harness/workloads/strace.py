"""What strace(1) wrote of a program: its system calls, in the order in which they returned. Pure.

Asked for as `OPTIONS` says: -y puts the path behind each descriptor, -xx writes strings as bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from harness.errors import UsageError

OPTIONS = "-f -y -xx -s 256 -e trace=%file,%desc,%process,sync,syncfs,msync,io_uring_enter"
"""How a program is traced: `strace OPTIONS -o FILE PROGRAM ...`."""

EXIT = "exit"
"""What a call is named that stands for the end of a process."""
FORKS = ("fork", "vfork", "clone", "clone3")
_LINE = re.compile(r"(?:\[pid\s+)?(?:(\d+)\b)?\]?\s*(?:[\d:.]+ )?(\w+(?=\()|<\.\.\. \w+ resumed>|\+\+\+)(.*)")
_UNFINISHED = "<unfinished ...>"
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_RETURNED = re.compile(r"\)\s+= (-?\d+|0x[0-9a-f]+|\?)(?:<([^>]*)>(\(deleted\))?)?")


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
    calls, although the call that made it returns later. Raises UsageError if not one line is strace's.
    """
    begun: dict[int, str] = {}
    forking: list[tuple[int, str]] = []
    known: set[int] = set()
    for line in lines:
        if not (m := _LINE.match(line)):
            continue
        pid, word, rest = int(m[1] or 0), m[2], m[3].rstrip()
        if pid not in known and known and forking:
            parent, name = forking.pop(0)
            yield SystemCall(parent, name, tuple(split(begun[parent][1:])), pid)
        known.add(pid)
        if word == "+++":
            yield SystemCall(pid, EXIT, (), 0)
        elif rest.endswith(_UNFINISHED):
            begun[pid] = rest.removesuffix(_UNFINISHED)
            forking += [(pid, word)] if word in FORKS else []
        elif word.startswith("<"):
            word, rest = word.split()[1], begun.pop(pid, "") + rest
            if word not in FORKS or (pid, word) in forking:
                forking = [f for f in forking if f != (pid, word)]
                yield from _call(pid, word, rest)
        else:
            yield from _call(pid, word, rest)
    if not known:
        raise UsageError("it has no line of strace", f"trace with: strace {OPTIONS} -o FILE PROGRAM")


def _call(pid: int, name: str, rest: str) -> Iterator[SystemCall]:
    ends = list(_RETURNED.finditer(rest))
    if not ends or not rest.startswith("(") or ends[-1][1] == "?":
        return
    if (result := int(ends[-1][1], 0)) >= 0:
        path = unescaped(ends[-1][2] or "")
        yield SystemCall(pid, name, tuple(split(rest[1 : ends[-1].start()])), result, path)


def split(text: str) -> list[str]:
    """Arguments, structures and lists as one each."""
    parts, depth, start, is_quoted = list[str](), 0, 0, False
    for at, letter in enumerate(text):
        if letter == '"':
            is_quoted = not is_quoted  # -xx leaves no quote within a string
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
    """A string of -xx, with surrogate escapes for what is not UTF-8."""
    data = _ESCAPED.sub(lambda m: chr(int(m[1], 16)), text).encode("latin-1", "replace")
    return data.decode("utf-8", "surrogateescape")


def string(argument: str) -> str:
    """An argument in quotes; what strace has cut from its end is missing."""
    m = re.match(r'"(.*?)"', argument)
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
