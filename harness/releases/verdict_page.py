"""A verdict as a page, and as a table for spreadsheets."""

from __future__ import annotations

import csv
import io
import itertools
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from harness.known.base import KnownBug, Severity
from harness.known.words import kernels as kernels_with
from harness.releases.results import OnKernel, Sweep
from harness.releases.verdict import DEPTHS, NOT_REACHED, Kind, Standing, deeper, standings, worst_first
from harness.report.lines import full, resume_sweep
from harness.report.page import Cell, Finding, Line, Page, PageTable, Section
from harness.report.words import enumerated, number, plural

_COLOUR = {
    Kind.NEW: "fail",
    Kind.KNOWN: "xfail",
    Kind.OPEN: "unknown",
    Kind.NOT_LOOKED: "not-run",
    Kind.SAFE: "pass",
}
_SHOWN = 3
"""New findings that the page shows of a cell; the run's own report has all."""
_ADVICE = {
    Severity.DESTROYS: "After a power cut the file system may not come back without repair. Keep nothing "
    "there that you cannot restore.",
    Severity.LOSES_SYNCED: "A program may be told that its data is safe, and the data is gone after a power "
    "cut. Do not use it for data that must survive one, unless the workaround fits.",
    Severity.DAMAGES_UNSYNCED: "Data that a program had made sure of is kept; what it had just written may "
    "come back wrong.",
    Severity.COSMETIC: "No data is lost; a check of the file system complains.",
}
_LOSES: Mapping[Severity | None, str] = {
    Severity.LOSES_SYNCED: "lose data",
    Severity.DAMAGES_UNSYNCED: "damage data that was not synced",
}
"""What is expected of a configuration where its names and contents suffer."""
_HOW = (
    "The power of a virtual machine is cut at each of many moments; its own kernel repairs the file system; "
    "and what comes back is compared with what the file system promises. A configuration is safe as far as "
    "looked if it kept every promise each time. That is no proof: other workloads and other moments may show "
    "more. A finding is known if its symptom, its configuration, the kernel's version and, where the bug's "
    "record names them, the operations and flushes agree with that record; the cause itself is compared only "
    "of a finding that powercut show has explained."
)

_OF_TABLE = (
    "In brackets: the crash states that were checked, and of how many workloads a verdict was reached, of "
    "those that the file system can run."
)
_COLOURS = (
    "Green: safe as far as looked. Red: a finding is new, or data that was synced may be lost. Purple: what "
    "is known is milder. Yellow: not decided. Grey: not looked at."
)

_MINUTES = 5
"""For a kernel, where nothing says how long it takes: base images alone may take some of these."""
Rows = Sequence[tuple[str, Sequence[Standing]]]


def verdict_page(sweep: Sweep) -> Page:
    """All of it: the table, what to do, then the new findings and the bugs."""
    rows = list(standings(sweep))
    depth = DEPTHS[sweep.plan.depth]
    looked = f"depth {sweep.plan.depth}: {depth.words}"
    figures = [_figures(rows), looked, _begun(sweep)]
    kernels = [k.title for k in sweep.kernels]
    return Page(
        what="a verdict on configurations",
        subject=sweep.plan.title,
        headline=headline(rows, len(kernels)),
        kind=_colour(rows),
        notice="Interrupted: what was not reached is listed as not looked at." * sweep.interrupted,
        figures=tuple(filter(None, figures)),
        sections=(
            Section("Verdict", _OF_TABLE, (PageTable(("configuration", *kernels), tuple(map(_row, rows))),)),
            Section("Since earlier verdicts", lines=tuple(_changes(sweep, rows))),
            Section("What to do", lines=tuple(advice(rows, sweep.plan.depth))),
            Section("New: no known bug looks like this", findings=tuple(_new(sweep, rows))),
            Section("Known bugs", lines=tuple(Line(b.title, b.name, aside=_of_bug(b)) for b in _bugs(rows))),
            Section("Kernels", lines=tuple(_kernel(sweep, k) for k in sweep.kernels)),
            Section("How to read this", lines=(Line(_HOW), Line(_COLOURS)), in_text=False),
        ),
        command=shlex.join(["powercut", *sweep.plan.argv]),
        again=_again(sweep, rows),
        data=_for_programs(sweep, rows),
    )


def _begun(sweep: Sweep) -> str:
    return f"begun {datetime.fromisoformat(sweep.begun):%Y-%m-%d %H:%M} UTC" if sweep.begun else ""


def _changes(sweep: Sweep, rows: Rows) -> Iterator[Line]:
    """Where an answer differs from the last one before it, for each configuration and kernel."""
    answers = [kind.value for kind in (Kind.SAFE, Kind.KNOWN, Kind.NEW)]
    as_before: list[datetime] = []
    for name, of in rows:
        for s in of:
            past = [b for b in sweep.before.get((name, s.kernel.item), ()) if b.verdict in answers]
            if not past or s.kind.value not in answers:
                continue
            now = _said(s.kind.value, " ".join(b.name for b in s.bugs))
            then = [_said(b.verdict, b.bugs) for b in reversed(past)]
            if now == then[0]:
                as_before.append(past[-1].when)
                continue
            more = sum(1 for _ in itertools.takewhile(then[0].__eq__, then)) - 1
            also = f", and in {plural(more, 'verdict')} before that" if more else ""
            was = f"on {past[-1].when:%Y-%m-%d} it was {then[0]}{also}"
            yield Line(f"Now {now}; {was}.", f"{name} on {s.kernel.title}")
    if as_before:
        yield Line(f"{plural(len(as_before), 'answer')} as on {max(as_before):%Y-%m-%d}.")


def _said(verdict: str, bugs: str) -> str:
    return f"{verdict} ({enumerated(bugs.split())})" if bugs else verdict


def _of_bug(bug: KnownBug) -> str:
    return f"{bug.record.severity.words}; {kernels_with(bug.record)}"


def _again(sweep: Sweep, rows: Rows) -> str:
    """What goes on with a verdict of which something is open, and would be tried again."""
    if sweep.all_tried or not any(s.is_open for _, of in rows for s in of):
        return ""
    again = resume_sweep("verdict", sweep.plan.kernels, [], "", full(sweep.path))
    if not any(word.partition("=")[0] == "--minutes" for word in sweep.plan.argv):
        return again
    open_ = sum(any(s.is_open for s in of) for of in zip(*(of for _, of in rows), strict=True))
    return f"{again} --minutes {_minutes_left(rows) or _MINUTES * open_}"


def headline(rows: Rows, kernels: int) -> str:
    """How many configurations are safe as far as looked, and how many are not: each by its worst kernel."""
    order = list(Kind)
    worst: dict[Kind, list[Sequence[Standing]]] = {kind: [] for kind in reversed(Kind)}
    for _, of in rows:
        if of:
            worst[min((s.kind for s in of), key=order.index)].append(of)
    parts = [f"{number(len(of))} {kind.value}{_on(kind, of, kernels)}" for kind, of in worst.items() if of]
    return f"{plural(len(rows), 'configuration')} on {plural(kernels, 'kernel')}: {'; '.join(parts)}"


def _on(kind: Kind, of: Sequence[Sequence[Standing]], kernels: int) -> str:
    """On how many of several kernels these configurations are so."""
    if kernels == 1:
        return ""
    if any(s.kind is not kind for each in of for s in each):
        return " on one at least"
    if kind is Kind.NOT_LOOKED:
        return " on either" if kernels == 2 else " on any"
    return " on both" if kernels == 2 else " on all"


def cell_text(s: Standing) -> str:
    """What the table says of a configuration on a kernel, with how far it was looked."""
    workloads = f"{number(s.looked)} of {plural(s.of, 'workload')}"
    in_part = f", {number(s.in_part)} of them in part" if s.in_part else ""
    if s.in_part and s.in_part == s.looked:
        in_part = ", and that one not in full" if s.looked == 1 else ", each in part"
    if s.in_order:
        some = "" if len(s.in_order) == s.looked else f"{number(len(s.in_order))} of them "
        in_part += f", {some}in the disk's own order alone"
    besides = f"; {plural(len(s.not_shown), 'known bug')} not shown" if s.not_shown else ""
    extent = f"{plural(s.states, 'state')}, {workloads}{in_part}"
    match s.kind:
        case Kind.NEW:
            also = f", beside {_names(s)}" if s.bugs or s.by_design else ""
            return f"{s.kind.value}, {plural(len(s.new), 'finding')}{also} ({extent})"
        case Kind.KNOWN:
            severity = f": {s.severity.words}" if s.severity else ""
            names = _names(s) if s.bugs or not severity else "as expected of it"
            return f"{s.kind.value}, {names}{severity} ({extent})"
        case Kind.SAFE:
            lacking = f"; not run: {s.why}" if s.why and s.looked < s.of else ""
            return f"{s.kind.value} ({extent}{lacking}{besides})"
        case Kind.OPEN if s.looked:
            why = "the others were not reached" if s.why == NOT_REACHED else s.why
            kept = f"{workloads} kept every promise{in_part}"
            return f"{s.kind.value}: {kept} ({plural(s.states, 'state')}); {why}"
        case _:
            return f"{s.kind.value}{f': {s.why}' if s.why else ''}"


def _names(s: Standing) -> str:
    """The known bugs, and in a word what is expected besides."""
    of_data = any(why.severity in _LOSES for why in s.by_design)
    expected = "losses that are expected" if of_data else "damage that is expected"
    return enumerated([*(b.name for b in s.bugs), *([expected] if s.by_design else [])])


def _reasons(s: Standing) -> str:
    return "; ".join(why.reason for why in s.by_design)


def _cell_colour(s: Standing) -> str:
    """What is known to lose synced data is no less alarming than what is new."""
    severe = s.severity in (Severity.DESTROYS, Severity.LOSES_SYNCED)
    return _COLOUR[Kind.NEW if severe and not s.new else s.kind]


def _row(row: tuple[str, Sequence[Standing]]) -> tuple[str | Cell, ...]:
    configuration, of = row
    return (configuration, *(Cell(cell_text(s), _cell_colour(s), _reasons(s)) for s in of))


def _figures(rows: Rows) -> str:
    states = sum(s.states for _, of in rows for s in of)
    return f"{plural(states, 'crash state')} checked"


def _colour(rows: Rows) -> str:
    """That of the worst cell: the page is no milder than its table."""
    order = list(_COLOUR.values())
    colours = [_cell_colour(s) for _, of in rows for s in of]
    return min(colours, key=order.index, default=_COLOUR[Kind.NOT_LOOKED])


def advice(rows: Rows, depth: str) -> Iterator[Line]:
    """What to do, for readers who know no file system: what can be used, what not and why, what is open."""
    longer = f" A longer look is --depth {deeper(depth)}." if deeper(depth) else ""
    safe = {name: of for name, of in rows if of and all(s.kind is Kind.SAFE for s in of)}
    if clean := [name for name, of in safe.items() if not any(s.not_shown for s in of)]:
        them = "it" if len(clean) == 1 else "them"
        yield Line(f"Nothing was found against {them}.{longer}", enumerated(clean))
    if known := [name for name in safe if name not in clean]:
        yield Line(
            f"These workloads found nothing, and did not show known bugs, which are named below.{longer}",
            enumerated(known),
        )
    for bug in _bugs(rows):
        todo = f" Workaround: {bug.record.workaround}." if bug.record.workaround else ""
        yield Line(f"{_ADVICE[bug.record.severity]}{todo}", _where(rows, bug), aside=bug.name)
    for name, of in rows:
        for what, reasons in _expected(of).items():
            yield Line(f"It is expected to {what}: {'; '.join(reasons)}.", name)
        if broken := [s.kernel.title for s in of if s.kind is Kind.NEW]:
            yield Line(
                f"On {enumerated(broken)} it broke a promise in a way that no known bug does. Do not choose "
                "it before somebody has looked: the commands below repeat what was seen.",
                name,
            )
    yield from _not_shown(rows)
    yield from _in_order(rows)
    yield from _unknown(rows)


def _expected(of: Sequence[Standing]) -> dict[str, list[str]]:
    """What a configuration is expected to do on some kernel, the worst first, with the reasons; and with the
    kernels that show it, where another one that was looked at does not: it may be mended there.
    """
    told: dict[str, list[str]] = {}
    looked = sum(s.kind is not Kind.NOT_LOOKED for s in of)
    for why in worst_first(why for s in of for why in s.by_design):
        on = [s.kernel.title for s in of if any(w.reason == why.reason for w in s.by_design)]
        reason = why.reason if len(on) == looked else f"{why.reason} (on {enumerated(on)})"
        told.setdefault(_LOSES.get(why.severity, "be damaged, or to need a repair"), []).append(reason)
    return told


def _not_shown(rows: Rows) -> Iterator[Line]:
    """What is known of configurations, and was not shown by the workloads of this depth."""
    together: dict[tuple[str, ...], list[str]] = {}
    for name, of in rows:
        on: dict[str, list[str]] = {}
        looked = [s for s in of if s.kind is not Kind.NOT_LOOKED]
        for s in looked:
            for bug in s.not_shown:
                on.setdefault(bug.name, []).append(s.kernel.title)
        if on:
            named = (
                bug if len(kernels) == len(looked) else f"{bug} (on {enumerated(kernels)})"
                for bug, kernels in on.items()
            )
            together.setdefault(tuple(named), []).append(name)
    for told, names in together.items():
        yield Line(f"Known bugs that these workloads did not show: {enumerated(told)}.", enumerated(names))
    if together:
        first, *_ = next(iter(together))[0].split()
        yield Line(f"What a known bug does: powercut known {first}.")


def _in_order(rows: Rows) -> Iterator[Line]:
    """Of which configurations a kernel was asked less than the depth says, and why."""
    together: dict[tuple[str, str], list[str]] = {}
    for name, of in rows:
        for s in of:
            for why in dict.fromkeys(s.in_order):
                together.setdefault((why, s.kernel.title), []).append(name)
    for (why, names), kernels in _with_same_names(together).items():
        yield Line(
            f"On {enumerated(kernels)} writes were lost only in the order in which the disk had them, not in "
            f"any order as this depth asks: {why}.",
            enumerated(names),
        )


def _unknown(rows: Rows) -> Iterator[Line]:
    """Of which configurations nothing, or not enough, is known on which kernel, and why."""
    together: dict[tuple[str, str], list[str]] = {}
    for name, of in rows:
        for s in of:
            if s.kind in (Kind.OPEN, Kind.NOT_LOOKED):
                known = "not enough is known" if s.looked else "nothing is known"
                more = "; --resume goes on" if s.why == NOT_REACHED else ""
                why = "not all was reached" if s.looked and s.why == NOT_REACHED else s.why
                told = f"{known}: {why}{more}" if why or more else known
                together.setdefault((told, s.kernel.title), []).append(name)
    for (told, names), kernels in _with_same_names(together).items():
        yield Line(f"On {enumerated(kernels)} {told}.", enumerated(names))
    if minutes := _minutes_left(rows):
        yield Line(f"At the pace so far, what was not reached takes about {plural(minutes, 'more minute')}.")


def _with_same_names(
    together: Mapping[tuple[str, str], Sequence[str]],
) -> dict[tuple[str, tuple[str, ...]], list[str]]:
    """By what is told and of which configurations: the kernels of which it is."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (told, kernel), names in together.items():
        found.setdefault((told, tuple(names)), []).append(kernel)
    return found


def _minutes_left(rows: Rows) -> int:
    """For what was not reached, each kernel at its own pace; 0 if nothing is left, or a pace is unknown."""
    seconds = 0.0
    for of in zip(*(of for _, of in rows), strict=True):
        unreached = [s for s in of if s.why == NOT_REACHED]
        looked = sum(s.looked for s in of)
        if unreached and not (looked and all(s.of for s in unreached)):
            return 0
        left = sum(s.of - s.looked for s in unreached)
        seconds += of[0].kernel.seconds * left / max(1, looked)
    return math.ceil(seconds / 60)


def _where(rows: Rows, bug: KnownBug) -> str:
    """`xfs/default on 6.12.117 and 7.3.4; xfs/wsync on 7.3.4`."""
    on: dict[str, list[str]] = {}
    for name, of in rows:
        if kernels := [s.kernel.title for s in of if bug in s.bugs]:
            on.setdefault(enumerated(kernels), []).append(name)
    return "; ".join(f"{enumerated(names)} on {kernels}" for kernels, names in on.items())


def _bugs(rows: Rows) -> list[KnownBug]:
    """The known bugs that were seen, the worst first."""
    order = list(Severity)
    bugs = {b.name: b for _, of in rows for s in of for b in s.bugs}
    return sorted(bugs.values(), key=lambda b: order.index(b.record.severity))


def _new(sweep: Sweep, rows: Rows) -> Iterator[Finding]:
    for name, of in rows:
        for s in of:
            for seen in s.new[:_SHOWN]:
                more = f"{number(len(s.new) - _SHOWN)} more here" if len(s.new) > _SHOWN else ""
                again = sweep.repro(s.kernel, seen)
                beside = [plural(seen.states, "state"), more, "" if again else sweep.where(s.kernel)]
                yield Finding(
                    f"{name} on {s.kernel.title}",
                    (Line(seen.summary, oracle=seen.oracle, aside="; ".join(filter(None, beside))),),
                    commands=(f"reproduce: {again}",) if again else (),
                )


def _kernel(sweep: Sweep, k: OnKernel) -> Line:
    return Line(k.words, k.item, aside=sweep.where(k))


def _for_programs(sweep: Sweep, rows: Rows) -> dict[str, object]:
    """`verdict.json`."""
    return {
        "schema": 1,
        "depth": sweep.plan.depth,
        "begun": sweep.begun or None,
        "finished": sweep.finished or None,
        "interrupted": sweep.interrupted,
        "verdicts": [dict(zip(COLUMNS, _values(sweep, s), strict=True)) for _, of in rows for s in of],
    }


COLUMNS = (
    *("configuration", "kernel", "release", "verdict", "severity", "known_bugs", "expected", "new_findings"),
    "known_bugs_not_shown",
    *(
        "crash_states",
        "workloads_decided",
        "workloads_in_part",
        "workloads_in_order",
        "workloads",
        "depth",
        "begun",
        "why",
        "reproduce",
        "asked",
        "begun_anew",
    ),
)
"""Of the CSV file, and the fields of a verdict in JSON."""


def _values(sweep: Sweep, s: Standing) -> tuple[object, ...]:
    return (
        s.configuration,
        s.kernel.title,
        s.kernel.release,
        s.kind.value,
        s.severity.value if s.severity else "",
        " ".join(b.name for b in s.bugs),
        _reasons(s),
        len(s.new),
        " ".join(b.name for b in s.not_shown),
        s.states,
        s.looked,
        s.in_part,
        len(s.in_order),
        s.of,
        sweep.plan.depth,
        sweep.begun,
        s.why if s.is_open else "",
        sweep.repro(s.kernel, s.new[0]) if s.new else "",
        s.kernel.item,
        s.kernel.anew,
    )


def verdict_csv(sweep: Sweep) -> str:
    """A row for each configuration on each kernel. Values that a spreadsheet would take for a formula begin
    with a quotation mark.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for _, of in standings(sweep):
        for s in of:
            writer.writerow([_harmless(value) for value in _values(sweep, s)])
    return out.getvalue()


def _harmless(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value
