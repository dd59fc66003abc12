"""Carries out a series: a run for each item, one after another.

```
reports/runs/<date>-<name>/     plan.json       what was asked for
                                journal.jsonl   everything that happened: see `harness.series.journal`
                                seconds         how long was worked, kept every few seconds
                                FOLDER/ITEM/    the run directories of an item
                                report.html summary.txt summary.md, and the same for programs
```

It may be killed or interrupted at any moment, and gone on with. One rule for what is there then: an item that
was decided stays as it is; another one goes on with its run; and where that cannot be, since its directory is
damaged or this installation is not the one that began it, its run is begun anew, which is said and kept. So
the answers of one item come from one installation.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import msgspec

from harness import __version__
from harness.cases.casework import EnoughDone
from harness.errors import EnvironmentLacks, PowercutError, RunChanged, StoreError, UsageError
from harness.expectations import Expectation
from harness.host.files import json_bytes, write_atomically
from harness.host.progress import Progress, Quiet, silent, telling
from harness.host.text import first_few
from harness.known.base import KnownBugs
from harness.model import CaseId
from harness.plan import Plan
from harness.report.page import Page
from harness.report.words import plural
from harness.run import create_run, execute
from harness.series.journal import Begun, DoneT, End, Ended, Journal, Known, Line, Started
from harness.store import RunStore
from harness.store.directory import make_directory
from harness.store.layout import LOCK, PLAN, RUN, latest, need_plain_run
from harness.store.lock import locked
from harness.summary import Summary

OnDone = Callable[[CaseId], None]
Execute = Callable[[Plan, RunStore, Progress, OnDone], Summary]
PlanT = TypeVar("PlanT", bound=msgspec.Struct)
_TICK_S = 5.0
_NAME_MAX = 240
"""Bytes of a folder's name, which may have 255 (NAME_MAX) with a digest behind it."""
QUIET_S = 30.0
"""How often it is told that a run whose progress is not shown goes on."""
TEXT_COLUMNS = 110


@dataclass(frozen=True, slots=True)
class Item:
    """A run of a series. `plan`: of that run; one that takes work is made when its turn comes, and a
    PowercutError is why nothing comes of the item. `key`: what is asked besides; answers that were kept under
    another key are not its own. `enough`: asked after each case that has come to its end; once it says why no
    more are needed, the run ends there, and the item is decided. `shares`: of a list whose time is limited,
    it may take an equal part of what is left for it and those behind it.
    """

    name: str
    plan: Plan | Callable[[], Plan]
    key: str = ""
    enough: Callable[[RunStore, CaseId], str] = lambda store, case: ""
    shares: bool = False


class Series(ABC, Generic[DoneT]):
    """What a command says about its series, and what is known of one. To add a command, derive from it.

    `done`: what is kept of an item. `folder`: of the items' run directories. `results`: the file for
    programs. `common_lacks`: errors that all items would have, so that the first ends the series; any other
    is what came of its item. `most_failed`: so many items of which nothing comes, one after another, end it
    too. `quiet`: the progress within a run is not shown. `expectations`: known failures of each run. `bugs`:
    known bugs of each run, beside the installed ones.
    """

    done: type[DoneT]
    folder: ClassVar[str] = "items"
    results: ClassVar[str]
    common_lacks: ClassVar[tuple[type[PowercutError], ...]] = (EnvironmentLacks, UsageError)
    most_failed: ClassVar[int | None] = None
    quiet: ClassVar[bool] = False
    bugs: KnownBugs | None = None

    def __init__(self, path: Path, argv: Sequence[str], expectations: Sequence[Expectation] = ()) -> None:
        self.path, self.argv, self.expectations = path.resolve(), argv, expectations
        self.known = self.nothing()
        Journal(self.path, self.known)

    def nothing(self) -> Known[DoneT]:
        """What is known before anything has happened."""
        return Known(self.done)

    @abstractmethod
    def items(self, work: Work[DoneT]) -> Iterable[Item]:
        """What is to be run, in order; a sequence where all of it is known. Items that are decided are left
        out by the engine.
        """

    def whole(self, item: Item) -> DoneT | None:
        """The kept result of an item, if it is whole and answers the present question."""
        done = self.known.done.get(item.name)
        return done if done and done.key == item.key and not done.interrupted else None

    def begun(self, item: Item, at: float) -> Begun:
        """The line that an item's turn begins with."""
        return Begun(item=item.name, at=at)

    @abstractmethod
    def keep(self, item: Item, store: RunStore, summary: Summary) -> DoneT:
        """What to keep of a run, also of an interrupted one. Raises PowercutError if nothing came of it."""

    def keeps_run(self, done: DoneT) -> bool:
        """Whether the run directory of an item stays."""
        return True

    def ended(self, end: End) -> End:
        """How the series is told to have ended, where its part of that time ended so."""
        return end

    @abstractmethod
    def words(self, done: DoneT) -> str:
        """What came of an item, in one line."""

    @abstractmethod
    def page(self) -> Page:
        """All that is known, for people and programs."""

    def place(self, item: str) -> Path:
        """The folder of an item: of a name with slashes, such as a kernel's file, below that of the series
        all the same. Without spaces and commas, which no guest finds that is a process of this host. Of one
        longer than a file's name may be, the end. What is so lost of a name is told apart by a digest.
        """
        plain = re.sub(r"[/\s,]", "_", item).lstrip(".") or "_"
        if len(os.fsencode(plain)) > _NAME_MAX:
            plain = os.fsencode(plain)[-_NAME_MAX:].decode(errors="ignore").lstrip(".")
        apart = "" if plain == item else "-" + hashlib.sha256(item.encode()).hexdigest()[:8]
        return self.path / self.folder / f"{plain}{apart}"

    def write(self) -> Page:
        """Write the page, in its four forms."""
        page = self.page()
        write_page(page, self.path, self.results)
        return page


def write_page(page: Page, path: Path, results: str) -> None:
    """Write a page into a directory, in its four forms. `results`: the file for programs."""
    write_atomically(path / results, page.json())
    write_atomically(path / "summary.txt", page.text(TEXT_COLUMNS))
    write_atomically(path / "summary.md", page.markdown())
    write_atomically(path / "report.html", page.html())


def begin(plan: msgspec.Struct, out: Path, name: str) -> Path:
    """Make the directory of a series. Raises StoreError, and UsageError for a name that cannot be one."""
    path = make_directory(out, name, datetime.now(UTC))
    write_atomically(path / PLAN, msgspec.json.format(json_bytes(plan), indent=1))
    return path


COMMANDS = ("campaign", "faults", "history", "litmus", "matrix", "patch", "regressions", "verdict")
"""Those that begin a series, and go on with it by --resume."""


class _Begun(msgspec.Struct):
    """By which command line."""

    argv: list[str] = []


def read_plan(path: Path, kind: type[PlanT], what: str, command: str) -> PlanT:
    """The plan of a series. `what`: such as "campaign"; `command`: that begins one. Raises UsageError for a
    directory that is none, or of another command; StoreError for a plan that cannot be read.
    """
    begins, again = f"powercut {command} begins one", shlex.quote(str(path))
    if not (path / PLAN).is_file() or (path / RUN).exists():  # before anything else of it is looked at
        is_run = f"it is a run: powercut run --resume {again}" if (path / RUN).is_file() else begins
        raise UsageError(f"{path} holds no {what}", is_run)
    need_plain_run(path)
    try:
        raw = (path / PLAN).read_bytes()
        begun_by = msgspec.json.decode(raw, type=_Begun).argv[:1]
        if begun_by and begun_by[0] != command and begun_by[0] in COMMANDS:
            raise UsageError(f"{path} was begun by {begun_by[0]}", f"powercut {begun_by[0]} --resume {again}")
        return msgspec.json.decode(raw, type=kind)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as e:
        raise StoreError(f"{path} holds no {what} that can be read: {e}", begins) from e


def carry_out(
    series: Series[DoneT], progress: Progress, *, until_s: float | None = None, run: Execute | None = None
) -> End:
    """Run every item that is not decided yet, until none is left, the time is up, or the user stops it.
    `until_s`: seconds of work in all, those before included; None: no end. `run` carries out a run. The page
    is written at the start and whenever more is known.

    Raises RunLocked if another process is at work in the directory, and the errors that end a series; the
    last note of these is the command that goes on with it.
    """
    with locked(series.path / LOCK, series.path, " ".join(["powercut", *series.argv])):
        work = Work(series, progress, until_s, run or execute)
        end: End | None = None
        try:
            end = work.until_the_end()
        except KeyboardInterrupt:
            end = End.INTERRUPTED
            progress.say("interrupted: what is known so far is kept")
        except Exception as e:
            e.add_note(shlex.join(["powercut", *series.argv[:1], "--resume", str(series.path)]))
            raise
        finally:
            work.pause(end)
        return end


class Work(Generic[DoneT]):
    """One process's part of a series."""

    def __init__(
        self, series: Series[DoneT], progress: Progress, until_s: float | None, run: Execute
    ) -> None:
        self._series, self._until_s, self._run = series, until_s, run
        self.progress = progress
        series.known = series.nothing()  # what another process did until this one had the lock
        self._journal = Journal(series.path, series.known)
        self._before = series.known.at
        self._begun = self._ticked = time.monotonic()
        self._ticking = threading.Lock()
        self._took: list[float] = []
        self._failed = 0
        self._stopped = False

    # --- time ---

    @property
    def at(self) -> float:
        """Seconds of work in the whole series."""
        return self._before + time.monotonic() - self._begun

    @property
    def time_is_up(self) -> bool:
        return self._until_s is not None and self.at >= self._until_s

    def tick(self) -> None:
        """In any thread: keep the time, now and then."""
        with self._ticking:
            if time.monotonic() - self._ticked >= _TICK_S:
                self._ticked = time.monotonic()
                self._journal.tick(self.at)

    def pause(self, end: End | None) -> None:
        """Keep the time and how it ended (None: by an error), and write the page once more."""
        if end:
            self.put(Ended(at=self.at, when=_now(), how=self._series.ended(end)))
        with self._ticking:
            self._journal.tick(self.at)
        self._series.write()

    def put(self, line: Line) -> None:
        self._journal.put(line)

    def tell(self) -> None:
        self._series.write()

    # --- items ---

    def until_the_end(self) -> End:
        """Run item after item. Raises KeyboardInterrupt if the user stops it."""
        series, known = self._series, self._series.known
        self.put(Started(at=self.at, when=_now(), powercut=__version__))
        if known.damaged:
            lines = plural(known.damaged, "line")
            self.progress.say(f"{lines} of the journal cannot be read: what they told of is done again")
        for done in known.done.values():  # whose deletion a kill prevented
            self._sweep(done)
        self.tell()
        items = series.items(self)
        known_all = isinstance(items, Sequence)
        end = self._each(items, len(items) if isinstance(items, Sequence) else None)
        # Items that are made as long as there is time end with it; a list that was gone through is complete.
        return End.TIME_UP if not known_all and self.time_is_up else end

    def _each(self, items: Iterable[Item], total: int | None) -> End:
        """Run those that are not decided. What ends when it has taken its share of the time goes on in a
        further round, with what the others left of theirs.
        """
        numbered: Iterable[tuple[int, Item]] = enumerate(items, 1)
        left = sum(not self._is_decided(item) for item in items) if total is not None else 0
        while True:
            stopped: list[tuple[int, Item]] = []
            for number, item in numbered:
                if self._is_decided(item):
                    continue
                if self.time_is_up:
                    return End.TIME_UP
                share = 1 / left if item.shares else 1.0
                left -= 1
                done = self._carried_out(item, self._series.known.done.get(item.name), share)
                self.put(done)
                if done.interrupted:
                    if not self._stopped:
                        raise KeyboardInterrupt
                    if share == 1:
                        return End.TIME_UP
                    stopped.append((number, item))
                self._sweep(done)
                where = f"[{number}/{total}]" if total else f"[{item.name}]"
                self.progress.say(f"{where} {self._series.words(done)}{self._left(left)}")
                self.tell()
            if not stopped:
                return End.COMPLETE
            numbered, left = stopped, len(stopped)

    def _is_decided(self, item: Item) -> bool:
        before = self._series.whole(item)
        return before is not None and before.decided

    def _left(self, left: int) -> str:
        """How long so many more items may take; nothing where the time is up before they begin."""
        if left <= 0 or not self._took or self.time_is_up:
            return ""
        minutes = max(1, round(left * sum(self._took) / len(self._took) / 60))
        return f"; about {plural(minutes, 'minute')} left"

    def _sweep(self, done: DoneT) -> None:
        """Delete the run directory of an item if it is not to be kept."""
        if not self._series.keeps_run(done):
            shutil.rmtree(self._series.place(done.item), ignore_errors=True)

    def _keep_only(self, item: str, run: str) -> None:
        """Delete the run directories of an item but this one."""
        for path in self._series.place(item).glob("runs/*"):
            if path != self._series.path / run:
                shutil.rmtree(path, ignore_errors=True)

    def _carried_out(self, item: Item, before: DoneT | None, share: float) -> DoneT:
        """The result of an item, or that of an earlier attempt where that went further. `share`: of the time
        that is left, how much it may take.
        """
        series, begun = self._series, time.monotonic()
        spent = before.seconds if before else self._spent(item)
        if before and before.key != item.key:
            shutil.rmtree(series.place(item.name), ignore_errors=True)
            before = None
        if item.name not in series.known.begun:
            self.put(series.begun(item, self.at))
        try:
            plan = item.plan() if callable(item.plan) else item.plan
            done = self._of_run(item, plan, before.run if before else "", share)
        except series.common_lacks:
            raise
        except PowercutError as e:
            self._failed += 1
            if self._failed == series.most_failed:
                raise
            done = msgspec.structs.replace(
                before or series.done(item=item.name), failed=e.line, interrupted=False
            )
        else:
            self._failed = 0
            if not done.interrupted:  # else its run goes on with --resume
                self._keep_only(item.name, done.run)
            self._took.append(time.monotonic() - begun)
        return msgspec.structs.replace(
            done,
            key=item.key,
            at=self.at,
            seconds=round(spent + time.monotonic() - begun, 1),
            anew=done.anew or (before.anew if before else ""),
        )

    def _spent(self, item: Item) -> float:
        """Seconds that processes which were killed worked on this item."""
        begun = self._series.known.begun.get(item.name)
        return max(0.0, self._before - begun.at) if begun else 0.0

    def _of_run(self, item: Item, plan: Plan, answered: str, share: float) -> DoneT:
        """Carry out the run of an item, or what is left of it; by `plan`, not by the one in its directory.
        One that cannot be gone on with is begun anew, with the same known failures if they can be read; the
        one that `answered` stays until another has.
        """
        folder, expectations = self._series.place(item.name), self._series.expectations
        there, anew = latest(folder), ""
        if there.exists():
            try:
                with _opened(there) as store:
                    expectations = expectations or store.expectations()
                    return self._executed(item, plan, store, share)
            except RunChanged as e:
                anew = e.what
            self.progress.say(f"{item.name}: its run is begun anew: {in_short(anew)}")
        self._keep_only(item.name, answered)
        with create_run(plan, folder, "run", expectations, self._series.bugs) as store:
            return msgspec.structs.replace(self._executed(item, plan, store, share), anew=anew)

    def _executed(self, item: Item, plan: Plan, store: RunStore, share: float) -> DoneT:
        quiet, say = Quiet(self.tick), self.progress.say if self._series.quiet else silent
        shown: Progress = quiet if self._series.quiet else _OfItem(item.name, self)
        left = None if self._until_s is None else max(self._until_s - self.at, 1.0) / 60 * share
        enough: list[str] = []

        def ended(case: CaseId) -> None:
            if why := item.enough(store, case):
                enough.append(why)
                raise EnoughDone(why)

        with telling(lambda: f"{item.name}: {quiet.words}", say, QUIET_S):
            summary = self._run(msgspec.structs.replace(plan, minutes=left), store, shown, ended)
        self._stopped = bool(summary.info.stopped)
        done = self._series.keep(item, store, summary)
        run = str(store.path.relative_to(self._series.path)) if self._series.keeps_run(done) else ""
        return msgspec.structs.replace(done, run=run, interrupted=summary.interrupted and not enough)


def _opened(run: Path) -> RunStore:
    """Raises RunChanged for one that is damaged, that was begun by a version that stored other things, or
    that was killed while it was made: of that, known failures and bugs may be missing.
    """
    if not (run / PLAN).exists():
        raise RunChanged(f"{run} has no plan: it was killed while it was made", "begin it anew")
    try:
        return RunStore.open(run)
    except StoreError as e:
        raise RunChanged(e.what, e.next_step) from e


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def in_short(differences: str) -> str:
    """The first of what differs: of an installation that was renewed, every mode and program does."""
    shown, left = first_few(differences.split("; "), 2)
    return "; ".join([*shown, *([f"{left} more"] if left else [])])


class _OfItem:
    """The progress of the run of one item, whose messages say which."""

    def __init__(self, item: str, work: Work[DoneT]) -> None:
        self._item, self._progress, self._tick = item, work.progress, work.tick

    def say(self, text: str) -> None:
        self._progress.say(text if text.startswith(self._item) else f"{self._item}: {text}")

    def begin(self, what: str, total: int) -> None:
        self._progress.begin(what, total)

    def advance(self, what: str, count: int) -> None:
        self._progress.advance(what, count)
        self._tick()
