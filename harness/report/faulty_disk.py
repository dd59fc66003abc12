"""What came of a faulty disk: file system, kind of block, fault, outcome, and a command for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from harness.grouping import by_key
from harness.model import CrashState
from harness.oracles.honesty import NOT_ASKED, UNDECIDED, Seen
from harness.report.lines import reproduce
from harness.report.words import number, plural
from harness.store.records import CaseInfo

OUTCOMES: Sequence[str] = (NOT_ASKED, *Seen, UNDECIDED)
"""Columns, from best to worst."""


@dataclass(slots=True)
class Row:
    """One kind of fault at one kind of block, in all cases of a mode. `shown`: the command that shows the
    worst that came of it. `failed`: that breaks a promise.
    """

    fault: str
    where: str
    checked: bool
    counts: Counter[str] = field(default_factory=Counter)
    shown: str = ""
    failed: bool = False

    @property
    def worst(self) -> str:
        """The worst that came of it."""
        return max(self.counts, key=OUTCOMES.index)

    @property
    def cells(self) -> Sequence[str]:
        """The counts, by column; empty for none."""
        return [number(self.counts[name]) if self.counts[name] else "" for name in OUTCOMES]


def faulty_disk_tables(cases: Iterable[CaseInfo], source: str) -> list[tuple[str, str, list[Row]]]:
    """The tables of a run: of each mode, in a line what it is of, and its rows. `source`: its path for
    commands.
    """
    by_mode = by_key((info.case.configuration, info) for info in cases if info.disk is not None)
    return [(mode, faulty_disk_words(infos), _rows(infos, source)) for mode, infos in by_mode.items()]


def _rows(cases: Iterable[CaseInfo], source: str) -> list[Row]:
    rows: dict[tuple[str, str], Row] = {}
    for info in cases:
        for cell in info.disk.cells if info.disk else ():
            row = rows.setdefault((cell.where, cell.fault), Row(cell.fault, cell.where, cell.checked))
            before = row.worst if row.counts else None
            row.counts.update(cell.counts)
            if row.worst != before:
                row.shown = reproduce(info.case, CrashState.parse(cell.examples[row.worst]), source)
            row.failed |= bool(_bad(cell.fault, checked=cell.checked) & cell.counts.keys())
    return [row for _, row in sorted(rows.items())]


def _bad(fault: str, *, checked: bool) -> frozenset[str]:
    """What breaks a promise; see `harness.oracles.honesty`."""
    told = fault.endswith(("fails", "fails for good")) or (fault == "bit rot" and checked)
    return frozenset({Seen.DIED, *((Seen.SILENT, Seen.DESTROYED) if told else ())})


def faulty_disk_words(cases: Iterable[CaseInfo]) -> str:
    """What came of it in several cases, in a line; empty where that was not asked for."""
    erred = [info.disk for info in cases if info.disk is not None]
    if not erred:
        return ""
    counts: Counter[str] = Counter()
    for cell in (c for disk in erred for c in disk.cells):
        counts.update(cell.counts)
    tried, faults = sum(d.tried for d in erred), sum(d.faults for d in erred)
    left_out = sum(d.left_out for d in erred)
    return ", ".join(
        [
            f"a faulty disk ({', '.join(dict.fromkeys(p for d in erred for p in d.ways))}): "
            f"{number(tried)} of {plural(faults, 'fault')} tried, "
            f"in {plural(sum(d.recoveries for d in erred), 'recovery', 'recoveries')}",
            *(f"{number(counts[name])} {name}" for name in OUTCOMES if counts[name]),
            *([f"{plural(left_out, 'recovery', 'recoveries')} left alone"] if left_out else []),
        ]
    )
