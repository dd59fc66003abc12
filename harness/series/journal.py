"""The journal of a series: a line for everything that happened, and what all lines come to.

Nothing else has to be kept. A line is written whole, and reaches the platter before what it says is relied
on; one that was cut off by a kill or is damaged did not happen, and what it told of is done again: an item
without its end goes on with its run directory.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import operator
import os
import re
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from harness.host.files import json_bytes, write_atomically

JOURNAL = "journal.jsonl"
_CLOCK = "seconds"
_DIGEST_BYTES = 8
_RUN = re.compile(r"\w+/(?!\.)[^/]+/runs/(?!\.)[^/]+")


class End(enum.StrEnum):
    """How a process's part of a series ended: nothing was left to do, its time was up, or the user stopped
    it.
    """

    COMPLETE = "complete"
    TIME_UP = "time up"
    INTERRUPTED = "interrupted"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened. `at`: seconds of work in this series until then."""

    at: float = 0


class Started(Line, frozen=True, kw_only=True, tag="started"):
    """A process took the series up, at the time `when` (ISO 8601)."""

    when: str
    powercut: str


class Ended(Line, frozen=True, kw_only=True, tag="ended"):
    """That process came to its end. One that was killed has no such line."""

    when: str
    how: End


class Begun(Line, frozen=True, kw_only=True, tag="begun"):
    """An item had its turn for the first time."""

    item: str


class Done(Line, frozen=True, kw_only=True, tag="done"):
    """A run of an item came to an end; each kind of series adds what it keeps of one.

    `seconds`: of work on the item. `key`: what was asked of it. `run`: its run directory below that of the
    series; empty if there is none. `failed`: why nothing came of it this time; what is kept is then what an
    earlier time came to. `interrupted`: before the run was complete. `anew`: why the run was begun anew, if
    it was: other items' answers are then of another installation.
    """

    item: str
    seconds: float = 0
    key: str = ""
    run: str = ""
    failed: str = ""
    interrupted: bool = False
    anew: str = ""

    @property
    def decided(self) -> bool:
        """Whether there is nothing to be tried again."""
        return not self.failed and not self.interrupted


DoneT = TypeVar("DoneT", bound=Done)


class Known(Generic[DoneT]):
    """What the lines of a journal come to: those of any series, where an item is done as `of_item` says, and
    `more`. `damaged`: lines that could not be read.
    """

    def __init__(self, of_item: type[DoneT], begun: type[Begun] = Begun, *more: type[Line]) -> None:
        self.lines: tuple[type[Line], ...] = (Started, Ended, begun, of_item, *more)
        self.started: list[Started] = []
        self.ended: Ended | None = None
        self.begun: dict[str, Begun] = {}
        self.done: dict[str, DoneT] = {}
        self.damaged = 0
        self.at = 0.0

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped it."""
        return self.ended is not None and self.ended.how is End.INTERRUPTED

    @property
    def finished(self) -> str:
        """When all of it was done (ISO 8601); empty: it is not."""
        return self.ended.when if self.ended and self.ended.how is End.COMPLETE else ""

    def add(self, line: Line) -> None:
        self.at = max(self.at, line.at)
        match line:
            case Started():
                self.started.append(line)
                self.ended = None
            case Ended():
                self.ended = line
            case Begun():
                self.begun[line.item] = line
            case Done():
                self.done[line.item] = line  # type: ignore[assignment]  # `lines` has no other

    def need_ours(self, line: Line) -> None:
        """Raises ValueError for a line that this program did not write: a journal may come from somebody
        else, and names no directories beside those of the series.
        """
        if isinstance(line, Done) and line.run and not _RUN.fullmatch(line.run):
            raise ValueError("its run is somewhere else")


class Journal(Generic[DoneT]):
    """The journal file of a series. Whoever writes holds the lock of the series. `lines`: in it, also those
    that cannot be read.
    """

    def __init__(self, folder: Path, known: Known[DoneT]) -> None:
        self._file, self._clock = folder / JOURNAL, folder / _CLOCK
        self.known = known
        self.lines = 0
        self._line: Any = functools.reduce(operator.or_, known.lines)
        if self._file.exists():
            self._read()
        known.at = max(known.at, self._kept_clock())

    def put(self, line: Line) -> None:
        """Keep a line, on the platter."""
        body = json_bytes(line)
        with self._file.open("ab") as file:
            file.write(b"\n" + _digest(body) + b" " + body + b"\n")  # the line before may have been cut off
            file.flush()
            os.fsync(file.fileno())
        self.lines += 1
        self.known.add(line)

    def tick(self, at: float) -> None:
        """Keep how long was worked, for the case that the process is killed."""
        self.known.at = max(self.known.at, at)
        write_atomically(self._clock, f"{at:.1f}")

    def _kept_clock(self) -> float:
        try:
            return float(self._clock.read_text())
        except (OSError, ValueError):
            return 0.0

    def _read(self) -> None:
        for text in self._file.read_bytes().split(b"\n"):
            if not text:
                continue
            self.lines += 1
            digest, _, body = text.partition(b" ")
            try:
                if digest != _digest(body):
                    raise ValueError("its digest is another")
                line = msgspec.json.decode(body, type=self._line)
                self.known.need_ours(line)
                self.known.add(line)
            except (ValueError, msgspec.MsgspecError, RecursionError):
                self.known.damaged += 1


def last_end(folder: Path) -> End | None:
    """How the series of a folder ended, of whatever kind it is; None while it is at work, or if it was
    killed.
    """
    for text in reversed((folder / JOURNAL).read_bytes().split(b"\n")):
        digest, _, body = text.partition(b" ")
        if body and digest == _digest(body):
            line = msgspec.json.decode(body, type=dict[str, Any])
            return End(line["how"]) if line.get("type") == "ended" else None
    return None


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).hexdigest().encode()
