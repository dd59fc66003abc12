"""Pages that `powercut report --serve` makes on demand: one crash state as it was recovered just now, and the
states of a case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.model import CaseId, Verdict, Violation
from harness.report import words
from harness.report.explanation import Trees
from harness.report.pages import template
from harness.report.sides import MARK_WORDS, side_words
from harness.store import RunStore
from harness.store.records import StateVerdict

STATES = 2_000
"""Of a case, listed on one page."""


@dataclass(frozen=True, slots=True)
class LiveWrite:
    """A write of the log, or of recovery. `how`: what became of it, or its flags."""

    number: int
    sector: int
    sectors: int
    text: str
    how: str


@dataclass(frozen=True, slots=True)
class Block:
    """A block of 4 KiB that was read. `data`: only for the contents of files."""

    number: int
    text: str
    data: bool


@dataclass(frozen=True, slots=True)
class LiveLook:
    """A crash state as it was recovered and judged just now. `on_disk`: the last writes of the log before the
    cut; `cut_again`: of each recovery that was cut, from the last one on. `reads`: of recovery and of the
    walk, in order. `wrote`: by recovery; None: too much to be kept. `lost`: its guest was, and with it what
    was read and written. `use_log`: the kernel's, when what recovery had left was written to.
    """

    point: str
    verdict: str
    violations: tuple[Violation, ...] = ()
    undecided: tuple[str, ...] = ()
    on_disk: tuple[LiveWrite, ...] = ()
    cut_again: tuple[tuple[LiveWrite, ...], ...] = ()
    reads: tuple[Block, ...] = ()
    wrote: tuple[LiveWrite, ...] | None = ()
    lost: bool = False
    kernel_log: tuple[str, ...] = ()
    use_log: tuple[str, ...] = ()
    fsck: str = ""
    trees: Trees | None = None

    @property
    def headline(self) -> str:
        """What is wrong first; `it keeps every promise` only of a state that was judged."""
        said = [*(v.summary for v in self.violations), *self.undecided]
        return said[0] if said else "it keeps every promise"


def look_html(
    found: LiveLook, store: RunStore, about: str, near: Sequence[tuple[str, str]], again: str, root: str = ""
) -> str:
    """The page of a state. `about`: the state in words; `near`: links to others, as (words, point). `again`:
    the command that shows it in a terminal. `root`: what the paths in links begin with.
    """
    page = template("live.html", {"side_words": side_words, "mark_words": MARK_WORDS}, number=words.number)
    return page.render(
        look=found,
        about=about,
        near=near,
        again=again,
        root=root,
        run=store.info.name,
        kernel=words.kernel_name(store.info),
    )


def ask_html(point: str, about: str, store: RunStore, root: str = "") -> str:
    """The page of a state that was not looked at: with a button that has it recovered. `about`: the state in
    words.
    """
    return template("ask.html").render(
        point=point, about=about, root=root, run=store.info.name, kernel=words.kernel_name(store.info)
    )


def states_html(case: CaseId, states: Iterable[StateVerdict], store: RunStore, root: str = "") -> str:
    """The page with links to the states of a case."""
    shown = list(states)
    page = template("states.html", number=words.number)
    seen = Counter(s.verdict for s in shown)
    worst = next((v for v in (Verdict.FAIL, Verdict.UNKNOWN) if seen[v]), Verdict.PASS)
    counts = [words.plural(len(shown), "state")]
    counts += [f"{words.number(seen[Verdict.FAIL])} broken"] if seen[Verdict.FAIL] else []
    counts += [f"{words.number(seen[Verdict.UNKNOWN])} undecided"] if seen[Verdict.UNKNOWN] else []
    return page.render(
        case=case,
        counts=", ".join(counts),
        worst=worst.value,
        states=shown[:STATES],
        more=len(shown[STATES:]),
        root=root,
        run=store.info.name,
        kernel=words.kernel_name(store.info),
    )


def neighbours(case: CaseId, states: Iterable[StateVerdict], point: str) -> Iterator[tuple[str, str]]:
    """The judged states before and after a point, in the order of the run."""
    names = [f"{case}{s.state}" for s in states]
    if point in names:
        at = names.index(point)
        if at:
            yield "the state before", names[at - 1]
        if at + 1 < len(names):
            yield "the state after", names[at + 1]
