"""Columns that share a cell: the modes of a file system, and the kernels of a mode. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.grouping import by_key
from harness.kernels.find import told_apart
from harness.litmus.results import Litmus, OnMode, Standing
from harness.report.page import Cell

KINDS: Mapping[Standing, str] = {
    Standing.BROKEN: "fail",
    Standing.NO: "unknown",
    Standing.LUCK_SO_FAR: "luck",
    Standing.LUCK: "luck",
    Standing.KEPT_SO_FAR: "pass",
    Standing.KEPT: "pass",
    Standing.KNOWN: "xfail",
    Standing.UNSEEN: "not-run",
}
"""How a cell is coloured; of several, the first."""
WORDS: Mapping[Standing, str] = {
    Standing.KEPT: "always",
    Standing.KEPT_SO_FAR: "always so far",
    Standing.LUCK: "held",
    Standing.LUCK_SO_FAR: "held so far",
    Standing.NO: "no",
    Standing.BROKEN: "BROKEN",
    Standing.KNOWN: "broken, known",
    Standing.UNSEEN: "-",
}
_WEAKER: Mapping[Standing, Standing] = {
    Standing.KEPT: Standing.KEPT_SO_FAR,
    Standing.LUCK: Standing.LUCK_SO_FAR,
}
"""What is said of both, where one column left something open."""


def by_filesystem(litmus: Litmus) -> dict[str, list[OnMode]]:
    """The columns of each file system, in the order of the table."""
    return by_key((column.mode.partition("/")[0], column) for column in litmus.shown.values())


def by_kernel(columns: Sequence[OnMode]) -> dict[str, list[OnMode]]:
    """The columns of each mode: one for each kernel."""
    return by_key((column.mode, column) for column in columns)


def together(columns: Sequence[OnMode], program: str) -> Cell:
    """One cell for all: what most of them answer, behind what the others do, with their names. `so far` is
    said of all that answer alike, if something was left open in one. Its colour is that of the worst, but of
    a known bug or loss only where most have it.
    """
    answers = _answers(columns, program)
    most = max(reversed(answers), key=lambda s: (len(answers[s]), s is not Standing.UNSEEN))
    others = [
        f"{_in_part(standing)}: {_named(of, columns)}"
        for standing, of in answers.items()
        if standing is not most
    ]
    rest = f"else {_in_part(most)}" if others else WORDS[most]
    worst = next(iter(answers))
    milder = worst not in (Standing.BROKEN, Standing.NO) and most is Standing.KNOWN
    return Cell("; ".join([*others, rest]), KINDS[most if milder else worst], target=program)


def _answers(columns: Sequence[OnMode], program: str) -> dict[Standing, list[OnMode]]:
    """The columns by what they answer, in the order of KINDS."""
    given = [(column.cell(program).standing, column) for column in columns]
    there = {standing for standing, _ in given}
    found: dict[Standing, list[OnMode]] = {}
    for standing, column in given:
        weaker = _WEAKER.get(standing, standing)
        found.setdefault(weaker if weaker in there else standing, []).append(column)
    return {standing: found[standing] for standing in KINDS if standing in found}


def _in_part(standing: Standing) -> str:
    return "not looked at" if standing is Standing.UNSEEN else WORDS[standing]


def _named(some: Sequence[OnMode], columns: Sequence[OnMode]) -> str:
    """Some of the columns of a file system, or of a mode, by what tells them from the others."""
    modes, those = by_kernel(columns), by_kernel(some)
    kernels = {mode: _on(of, modes[mode]) for mode, of in those.items()}
    if those.keys() == modes.keys() and len(set(kernels.values())) == 1:
        return next(iter(kernels.values()))
    return ", ".join(f"{mode.partition('/')[2]} {on}".rstrip() for mode, on in kernels.items())


def _on(some: Sequence[OnMode], columns: Sequence[OnMode]) -> str:
    """The kernels of some of a mode's columns; empty if that is all of them."""
    if len(some) == len(columns):
        return ""
    names = told_apart([column.asked for column in columns])
    short = {k: end if "/" in k else k.rpartition("-")[2] or k for k, end in names.items()}
    told = short if len(set(short.values())) == len(names) else names
    return f"on {', '.join(told[column.asked] for column in some)}"
