"""Progress of long work, shown as bars on a terminal and as plain lines elsewhere."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress
from rich.text import Text

from harness.host.console import OutputClosed

PLAIN_INTERVAL_S = 5.0
ETA_AFTER_S = 20.0
"""Before that, booting guests would be taken for the pace of the work."""
ETA_AFTER_UNITS = 4
"""So many units, or half of them where there are few: the first one waits for a guest."""
SOON = "less than a minute left"
SOON_S = 60.0
"""Work of which SOON has been said for so long is not done soon: then nothing is said of its end."""
WITHIN_A_UNIT = frozenset({"operations"})
"""Shown, but part of a unit of other work: a case that takes long to record."""


class Progress(Protocol):
    """Receives the progress of long work. Calls may come from several threads."""

    def say(self, text: str) -> None:
        """Show one message to people."""

    def begin(self, what: str, total: int) -> None:
        """Add `total` units to the work named `what`."""

    def advance(self, what: str, count: int) -> None:
        """Report `count` units of the work named `what` as done."""


def silent(_: str) -> None:
    """Tells nobody."""


@contextlib.contextmanager
def telling(
    what: Callable[[], str], say: Callable[[str], None], every_s: float | None = None
) -> Iterator[None]:
    """While the block is at work: say every few seconds how long it has been, with the text that `what`
    returns.
    """
    begun, done = time.monotonic(), threading.Event()

    def tell() -> None:
        with contextlib.suppress(OutputClosed):  # the block meets it where it says something itself
            while not done.wait(every_s or PLAIN_INTERVAL_S):
                say(f"{time.monotonic() - begun:5.0f} s  {what()}")

    thread = threading.Thread(target=tell, daemon=True)
    if say is not silent:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if say is not silent:
            thread.join()


@contextlib.contextmanager
def at_work(what: str, console: Console) -> Iterator[None]:
    """While the block is at work: `what`, and for how long; on a terminal in one line that moves, elsewhere
    as `telling` does. Not within Bars, whose console has no room for it.
    """

    def say(text: str) -> None:
        console.print(_indented(text), highlight=False, markup=False, soft_wrap=True)

    if not console.is_terminal:
        with telling(lambda: what, say):
            yield
        return
    shown = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with RichProgress(*shown, console=console, transient=True) as progress:
        progress.add_task(what, total=None)
        yield


class Quiet:
    """Shows nothing, for work that is told of elsewhere. `on_advance` is called at each advance, in any
    thread.
    """

    def __init__(self, on_advance: Callable[[], None] = lambda: None) -> None:
        self._on_advance = on_advance
        self._done: dict[str, int] = {}

    @property
    def words(self) -> str:
        """How much was done of each."""
        return ", ".join(f"{count} {what}" for what, count in self._done.copy().items()) or "begun"

    def say(self, text: str) -> None: ...

    def begin(self, what: str, total: int) -> None: ...

    def advance(self, what: str, count: int) -> None:
        self._done[what] = self._done.get(what, 0) + count
        self._on_advance()


class _Rate(TextColumn):
    """Units per second, over the whole task."""

    def __init__(self) -> None:
        super().__init__("{task.speed}")

    def render(self, task) -> Text:  # type: ignore[no-untyped-def]  # rich's own Task
        return Text(f"{task.speed:.1f}/s" if task.speed else "", style="dim")


class Bars:
    """Progress on a terminal; a context manager."""

    def __init__(self, console: Console) -> None:
        self._progress = RichProgress(
            TextColumn("{task.description:>9}"),
            BarColumn(),
            MofNCompleteColumn(),
            _Rate(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._totals: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        self._progress.console.print(_indented(text), highlight=False, markup=False)

    def begin(self, what: str, total: int) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=0)
        self._totals[what] = self._totals.get(what, 0) + total
        self._progress.update(self._tasks[what], total=self._totals[what])

    def advance(self, what: str, count: int) -> None:
        if what in self._tasks:  # nothing was begun of what only says that work goes on
            self._progress.advance(self._tasks[what], count)


class Lines(contextlib.AbstractContextManager["Lines"]):
    """Progress as plain lines: each message, and a line of figures every few seconds; a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._totals: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._begun = time.monotonic()
        self._last = self._begun
        self._soon_since: float | None = None

    def __exit__(self, *_: object) -> None:
        if self._totals:
            self._tell()

    def say(self, text: str) -> None:
        self._console.print(_indented(text), highlight=False, markup=False, soft_wrap=True)

    def begin(self, what: str, total: int) -> None:
        first = not self._totals
        self._totals[what] = self._totals.get(what, 0) + total
        if first:  # the first unit waits for a guest to boot, which may be emulated
            self._tell()

    def advance(self, what: str, count: int) -> None:
        self._done[what] = self._done.get(what, 0) + count
        if time.monotonic() - self._last >= PLAIN_INTERVAL_S:
            self._tell()

    def _tell(self) -> None:
        self._last = time.monotonic()
        seconds = self._last - self._begun
        parts = [f"{what} {self._done.get(what, 0)}/{total}" for what, total in self._totals.items()]
        if "states" in self._totals:
            parts.append(f"{self._done.get('states', 0) / max(seconds, 1e-9):.1f} states/s")
        if left := self._left(seconds):
            parts.append(left)
        self.say(f"{seconds:5.0f} s  {', '.join(parts)}")

    def _left(self, seconds: float) -> str:
        """How long the work will take if it goes on as it went; empty until that can be told."""
        work = [(self._done.get(w, 0), n) for w, n in self._totals.items() if n and w not in WITHIN_A_UNIT]
        share = math.prod(done / total for done, total in work)
        too_early = any(done < min(ETA_AFTER_UNITS, total / 2) for done, total in work)
        left = "" if seconds < ETA_AFTER_S or too_early else time_left(seconds, share)
        if left != SOON:
            self._soon_since = None
        elif self._soon_since is None:
            self._soon_since = seconds
        return "" if self._soon_since is not None and seconds - self._soon_since > SOON_S else left


def time_left(seconds: float, share: float) -> str:
    """How long work will take of which a share took so many seconds, if it goes on as it went; empty where
    none or all of it is done.
    """
    if not 0 < share < 1:
        return ""
    minutes = seconds * (1 - share) / share / 60
    return SOON if minutes < 1 else f"about {minutes:.0f} min left"


def _indented(text: str) -> str:
    """The end of a guest's console may stand in it: none of its lines may read as one of ours."""
    return text.replace("\n", "\n    ")


def progress_for(console: Console) -> Bars | Lines:
    """Bars on a terminal, lines elsewhere."""
    return Bars(console) if console.is_terminal else Lines(console)
