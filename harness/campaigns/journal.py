"""The journal of a campaign: a line for everything that happened, and what all lines come to.

Nothing else has to be kept. A line is written whole, and reaches the platter before what it says is relied
on; one that was cut off by a kill or is damaged did not happen, and what it told of is done again: a batch
without its end is continued, a finding without its cause is shrunk again, which the kept experiments make
quick.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.errors import StoreError
from harness.expectations import Expectation
from harness.host.files import json_bytes, write_atomically
from harness.plan import Plan
from harness.revisit.causes import Cause, Member, by_cause
from harness.store.layout import need_plain_run
from harness.symptoms import Symptom
from harness.workloads.generate import is_generated

SCHEMA = 1
JOURNAL = "journal.jsonl"
_CLOCK = "seconds"
_DIGEST_BYTES = 8


class CampaignPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked of a campaign. `run`: the plan of every batch, but for its workloads. `batch`: workloads
    in one. `seed`: the first of the random ones, of `length` operations. `keep`: keep the run directories of
    batches without findings, too. `hours`: of work, in all.
    """

    run: Plan
    generators: tuple[str, ...]
    batch: int = 50
    seed: int = 1
    length: int = 20
    keep: bool = False
    hours: float | None = None
    expectations: tuple[Expectation, ...] = ()
    schema: int = SCHEMA


class Begun(msgspec.Struct, frozen=True, kw_only=True, tag="begun"):
    """A batch was chosen. `at`: seconds of work in this campaign until then, here and below."""

    batch: int
    at: float
    generator: str
    workloads: tuple[str, ...]


class Reached(msgspec.Struct, frozen=True):
    """A case that showed traits which no case before had shown: its workload joins the corpus."""

    configuration: str
    workload: str
    traits: tuple[str, ...]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The first finding of a symptom in a case. `states`: of the case, that show it."""

    id: str
    configuration: str
    workload: str
    point: str
    symptom: Symptom
    summary: str
    states: int


class Undecided(msgspec.Struct, frozen=True):
    """Cases of a batch that were not decided, for one reason; `example` is the first of them."""

    reason: str
    cases: int
    example: str


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """A batch came to its end. `run`: its run directory below the campaign's, empty if that was deleted.
    `expected`: number of findings that were. `failed`: why nothing came of it.
    """

    batch: int
    at: float
    seconds: float = 0
    cases: int = 0
    states: int = 0
    run: str = ""
    size_bytes: int = 0
    reached: tuple[Reached, ...] = ()
    found: tuple[Found, ...] = ()
    expected: int = 0
    undecided: tuple[Undecided, ...] = ()
    not_run: dict[str, str] = {}
    failed: str = ""


class Shrunk(msgspec.Struct, frozen=True, kw_only=True, tag="shrunk"):
    """A finding was shrunk, in so many seconds; or could not be: see `Member.reason`."""

    member: Member
    at: float
    seconds: float


class Alike(msgspec.Struct, frozen=True, kw_only=True, tag="alike"):
    """The finding `finding` was not shrunk: its workload contains the minimal one of the finding `like`,
    which shows the same symptom in the same mode.
    """

    finding: str
    like: str
    at: float


class Started(msgspec.Struct, frozen=True, kw_only=True, tag="started"):
    """A process took the campaign up, at the time `when` (ISO 8601)."""

    at: float
    when: str
    powercut: str


Line = Begun | Done | Shrunk | Alike | Started


@dataclass(slots=True)
class Ledger:
    """What the lines of a journal come to. `damaged`: lines that could not be read."""

    started: list[Started] = field(default_factory=list)
    begun: dict[int, Begun] = field(default_factory=dict)
    done: dict[int, Done] = field(default_factory=dict)
    shrunk: dict[str, Shrunk] = field(default_factory=dict)
    alike: dict[str, Alike] = field(default_factory=dict)
    traits: set[str] = field(default_factory=set)
    damaged: int = 0
    at: float = 0

    def add(self, line: Line) -> None:
        """Take one line in."""
        self.at = max(self.at, line.at)
        match line:
            case Started():
                self.started.append(line)
            case Begun():
                self.begun[line.batch] = line
            case Done():
                self.done[line.batch] = line
                self.traits.update(t for r in line.reached for t in r.traits)
            case Shrunk():
                self.shrunk[line.member.finding] = line
            case Alike():
                self.alike[line.finding] = line

    @property
    def unfinished(self) -> Begun | None:
        """The first batch that was begun and has not come to its end."""
        return next((b for number, b in sorted(self.begun.items()) if number not in self.done), None)

    @property
    def found(self) -> list[tuple[Done, Found]]:
        """Every finding to be grouped, with its batch, in order."""
        return [(done, f) for _, done in sorted(self.done.items()) for f in done.found]

    @property
    def waiting(self) -> list[tuple[Done, Found]]:
        """Those of which nothing is known yet."""
        return [(done, f) for done, f in self.found if f.id not in self.shrunk and f.id not in self.alike]

    @property
    def shrinking_s(self) -> float:
        """Seconds of work that went into shrinking."""
        return sum(s.seconds for s in self.shrunk.values())

    @property
    def members(self) -> list[Member]:
        """The findings that showed again when they were shrunk."""
        return [s.member for s in self.shrunk.values() if s.member.minimal]

    @property
    def not_again(self) -> list[Member]:
        """Those that did not."""
        return [s.member for s in self.shrunk.values() if not s.member.minimal]

    @property
    def causes(self) -> list[Cause]:
        """The findings that were shrunk, by cause."""
        return by_cause(self.members)

    @property
    def corpus(self) -> list[tuple[Done, Reached]]:
        """Cases that reached something new, in order, each with its batch."""
        return [(done, r) for _, done in sorted(self.done.items()) for r in done.reached]


class Journal:
    """The journal file of a campaign, open for one writer, who holds the campaign's lock."""

    def __init__(self, folder: Path) -> None:
        self._file, self._clock = folder / JOURNAL, folder / _CLOCK
        self.ledger = Ledger()
        if self._file.exists():
            self._read()
        self.ledger.at = max(self.ledger.at, self._kept_clock())

    def put(self, line: Line) -> None:
        """Keep a line, on the platter."""
        body = json_bytes(line)
        with self._file.open("ab") as file:
            file.write(b"\n" + _digest(body) + b" " + body + b"\n")  # the line before may have been cut off
            file.flush()
            os.fsync(file.fileno())
        self.ledger.add(line)

    def tick(self, at: float) -> None:
        """Keep how long was worked, for the case that the process is killed."""
        self.ledger.at = max(self.ledger.at, at)
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
            digest, _, body = text.partition(b" ")
            try:
                if digest != _digest(body):
                    raise ValueError("its digest is another")
                line: Line = msgspec.json.decode(body, type=Line)
                _need_ours(line)
                self.ledger.add(line)
            except (ValueError, msgspec.MsgspecError):
                self.ledger.damaged += 1


_RUN = re.compile(r"batches/\d+/runs/[^/]+")


def _need_ours(line: Line) -> None:
    """Raises ValueError for a line that this program did not write: a journal may come from somebody else,
    and names neither files of this host nor directories beside the campaign's.
    """
    if isinstance(line, Begun) and not all(map(is_generated, line.workloads)):
        raise ValueError("it names workloads that are not generated")
    if isinstance(line, Done) and line.run and not _RUN.fullmatch(line.run):
        raise ValueError("its run is somewhere else")


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).hexdigest().encode()


def read_ledger(folder: Path) -> Ledger:
    """What a campaign has come to, without writing to its directory."""
    return Journal(folder).ledger


def load_plan(folder: Path) -> CampaignPlan:
    """The plan of a campaign. Raises StoreError for a directory that holds none."""
    file = folder / "plan.json"
    need_plain_run(folder)
    try:
        plan = msgspec.json.decode(file.read_bytes(), type=CampaignPlan)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as e:
        raise StoreError(f"{folder} holds no campaign: {e}", "powercut campaign begins one") from e
    if plan.schema != SCHEMA:
        raise StoreError(f"{file} has schema {plan.schema}, not {SCHEMA}", "begin a new campaign")
    return plan


def totals(batches: Iterable[Done]) -> tuple[int, int, float]:
    """Cases, crash states and seconds of these batches."""
    batches = list(batches)
    return sum(b.cases for b in batches), sum(b.states for b in batches), sum(b.seconds for b in batches)
