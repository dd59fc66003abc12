"""The ladder of an explanation: operations left, writes with their names in the middle, each with the flush
that covers it, and at the right what was on the platter when the power failed. As text and as one SVG.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from markupsafe import Markup

from harness.host.text import one_line
from harness.report.explanation import Explanation, Fate, Rung
from harness.report.pages import template
from harness.report.words import MEANINGS, RULES_MEANINGS

_LEFT, _MIDDLE = 30, 62
_FATES = {
    Fate.DURABLE: "on the platter",
    Fate.PERSISTED: "written back",
    Fate.LOST: "LOST",
    Fate.TORN: "PART LOST",
    Fate.LATER: "not yet sent",
    Fate.NONE: "",
}
_ROW, _TOP = 22, 34
_X_OPERATION, _X_WRITE, _X_ARROW, _X_PLATTER, _WIDTH = 46, 250, 700, 770, 880
_MOST = 200
_SHOWN = 60  # letters of a write's name that fit in front of the arrows, of 7.3 units each


def ladder_text(explanation: Explanation) -> str:
    """The ladder for a terminal or a mail, with what its words mean."""
    rows, meanings = ladder_lines(explanation)
    return "\n".join([*rows, "", *meanings]) + "\n"


def ladder_lines(explanation: Explanation) -> tuple[list[str], list[str]]:
    """The ladder for a terminal, and what its words mean."""
    if _is_of_rules(explanation.ladder):
        return _calls(explanation.ladder), [f"{word}: {text}" for word, text in RULES_MEANINGS.items()]
    head = f"{'event':>6}  {'operation':{_LEFT}}  {'write':{_MIDDLE}}  {'covered by':>10}  platter"
    rows = [head, *map(_row, explanation.ladder)]
    said = [
        word
        for word in ("event", "entry", "platter", "(?)")
        if word != "(?)" or any("(?)" in r for r in rows)
    ]
    return rows, [f"{word}: {MEANINGS[word]}" for word in said]


def _is_of_rules(rungs: Sequence[Rung]) -> bool:
    """Whether there were no disk, no events and no flushes."""
    return bool(rungs) and all(rung.kind == "call" for rung in rungs)


_OF_RULES = {Fate.PERSISTED: "there", Fate.LOST: "not there", Fate.TORN: "in part"}


def _calls(rungs: Sequence[Rung]) -> list[str]:
    """The calls of a program where only rules decide what persists."""
    width = _LEFT + _MIDDLE
    rows = [f"{'call':>6}  {'what the program did':{width}}  its changes are"]
    for rung in rungs:
        text = _short(_called(rung), width)
        mark = "  <-- matters" if rung.accent else ""
        rows.append(f"{_number(rung)}  {text:{width}}  {_OF_RULES.get(rung.fate, '')}{mark}".rstrip())
    return rows


def _called(rung: Rung) -> str:
    """A call without its number, which has a column of its own."""
    return rung.text.removeprefix(f"{rung.event} ")


def _number(rung: Rung) -> str:
    return f"{rung.event if rung.event >= 0 else '':6}"


def _row(rung: Rung) -> str:
    if rung.kind == "gap":
        return f"{'':6}  {rung.text}"
    if rung.kind == "cut":
        return f"{rung.event:6}  {f' {rung.text} ':-^{_LEFT + _MIDDLE + 24}}"
    if rung.kind == "call":
        return f"{rung.event:6}    {_short(rung.text, _LEFT + _MIDDLE)}"
    left, middle = (rung.text, "") if rung.kind == "mark" else ("", f"{rung.entry}: {rung.text}")
    covered = _covered(rung)
    mark = "  <-- broken" if rung.accent and rung.kind == "mark" else ""
    line = (
        f"{rung.event:6}  {_short(left, _LEFT):{_LEFT}}  {_short(middle, _MIDDLE):{_MIDDLE}}  "
        f"{covered:>10}  {_FATES[rung.fate]}{mark}"
    )
    return line.rstrip()


def _covered(rung: Rung) -> str:
    if rung.kind == "fua":
        return "FUA"
    if rung.kind != "write":
        return ""
    return str(rung.covered) if rung.covered >= 0 else "none"


def _short(text: str, width: int) -> str:
    text = one_line(text)
    return text if len(text) <= width else text[: width - 1] + "…"


@dataclass(frozen=True, slots=True)
class Drawn:
    """A rung with its place. `arc`: the path of the arrow to the flush that covers it; empty without one."""

    rung: Rung
    y: int
    text: str
    fate: str
    arc: str
    tip: str


def ladder_svg(explanation: Explanation) -> Markup:
    """The same as one SVG, which goes into a page or stands alone."""
    rungs = explanation.ladder[:_MOST]
    rows = {rung.entry: n for n, rung in enumerate(rungs) if rung.kind in ("flush", "fua")}
    of_rules = _is_of_rules(rungs)
    if of_rules:
        rungs = tuple(msgspec.structs.replace(rung, text=_called(rung)) for rung in rungs)
    drawn = [_drawn(rungs, n, rows) for n in range(len(rungs))]
    page = template("ladder.svg")
    return Markup(  # noqa: S704  # the template escapes what is put into it
        page.render(
            drawn=drawn,
            of_rules=_OF_RULES if of_rules else None,
            width=_WIDTH,
            height=_TOP + _ROW * len(rungs) + 8,
            x_operation=_X_OPERATION,
            x_write=_X_WRITE,
            x_arrow=_X_ARROW,
            x_platter=_X_PLATTER,
            title=explanation.headline,
        )
    )


def _drawn(rungs: Sequence[Rung], n: int, rows: dict[int, int]) -> Drawn:
    rung, y = rungs[n], _TOP + _ROW * n + _ROW // 2
    arc = tip = ""
    if rung.kind == "write" and rung.covered in rows:
        end = _TOP + _ROW * rows[rung.covered] + _ROW // 2
        bend = _X_ARROW + 12 + min(abs(end - y) // 6, 40)
        arc = f"M{_X_ARROW} {y}C{bend} {y} {bend} {end} {_X_ARROW} {end}"
        tip = f"M{_X_ARROW} {end}l8 -4v8z"
    shown = _short(
        f"{rung.entry}: {rung.text}" if rung.entry >= 0 and rung.kind != "mark" else rung.text, _SHOWN
    )
    return Drawn(
        rung,
        y,
        shown if rung.kind != "mark" else _short(rung.text, 28),
        _FATES[rung.fate],
        arc,
        tip,
    )
