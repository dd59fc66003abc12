"""The table of litmus programs as a page and as Markdown: questions down, modes across."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from harness.litmus.programs import Program
from harness.litmus.results import (
    SCHEMA,
    CellAnswer,
    Litmus,
    OnMode,
    Standing,
    contradictions,
)
from harness.litmus.together import KINDS, WORDS, by_filesystem, by_kernel, together
from harness.report.lines import full, source_in
from harness.report.page import Cell, Finding, Line, Page, PageTable, Section
from harness.report.pages import on_page
from harness.report.words import enumerated, number, plural

LEGEND = (
    "`always`: yes in every legal crash state of the recordings, and the mode's contract promises it. "
    "`held`: yes in every one, but the contract does not promise it. `so far`: yes in all that were looked "
    "at, and some were not. `no`: there is a crash state in which the answer is no, and the contract does "
    "not promise yes. `BROKEN`: the same, against the contract. `broken, known`: all that was found in these "
    "states is a known bug, or what the mode is known to lose. `-`: not looked at. A document may promise "
    "more than the contract, to which `powercut run` holds the mode: see the column `documents`. A recording "
    "is one schedule: `always` is said of the recordings that were made, and of no other."
)
WIDE = 8
"""More columns than this are told in a cell for each file system; the modes follow, a table for each."""
_NAMED_PROGRAMS = 5  # more than this many of which nothing was looked at are counted
_OF_WIDE = (
    " Each file system has one cell: first the exceptions, by mode and kernel, then what all its other modes "
    "answer. The worst answer gives the colour, a known one only where most modes share it. `Mode by mode` "
    "has a column for each mode."
)


def word(cell: CellAnswer) -> str:
    """What a cell says: `always`, `held`, `no`, `BROKEN`, with the states where some are left."""
    so_far = cell.standing in (Standing.KEPT_SO_FAR, Standing.LUCK_SO_FAR)
    return WORDS[cell.standing] + f" ({number(cell.states)})" * so_far


def sentence_of(column: str, cell: CellAnswer) -> str:
    """A cell in a sentence: what was looked at, what was found, and what is promised."""
    looked = f"{plural(cell.states, 'crash state')} of {plural(cell.recordings, 'recording')}"
    promise = "the contract promises yes" if cell.promised else "the contract promises nothing"
    match cell.standing:
        case Standing.UNSEEN:
            return f"not looked at: {cell.reason}"
        case Standing.NO | Standing.BROKEN | Standing.KNOWN:
            named = "; ".join((*cell.known, *cell.expected)) if cell.standing is Standing.KNOWN else ""
            known = f" Known: {named}." if named else ""
            return f"no in {number(cell.no)} of {looked}; {promise}.{known} At `{cell.point}`: {cell.found}"
        case Standing.KEPT | Standing.LUCK:
            return f"yes in all {looked}, which are all legal ones; {promise}"
        case _:
            return f"yes in all {looked}; {promise}. Not all legal ones: {cell.left}"


def headline(litmus: Litmus) -> str:
    cells = [c for m in litmus.columns.values() for c in m.cells]
    looked = [c for c in cells if c.standing is not Standing.UNSEEN]
    no = [c for c in looked if c.no]
    so_far = sum(bool(c.left) for c in looked if not c.no)
    are = "is" if len(looked) == 1 else "are"
    yes = f"{number(len(looked) - len(no))} of {plural(len(looked), 'answer')} {are} yes"
    parts = [
        f"{yes}{f' ({number(so_far)} so far)' if so_far else ''}, {number(len(no))} no",
        _broken_promises(len(litmus.broken), sum(c.standing is Standing.KNOWN for c in looked)),
    ]
    every = max((len(m.cells) for m in litmus.shown.values()), default=0)
    unseen = sum(c.standing is Standing.UNSEEN for m in litmus.shown.values() for c in m.cells)
    if unseen := unseen + sum(every for m in litmus.shown.values() if m.failed and not m.cells):
        parts.append(f"{plural(unseen, 'question')} not looked at")
    if others := litmus.others:
        parts.append(f"new findings of other oracles in {plural(len(others), 'cell')}")
    modes, kernels = {m.mode for m in litmus.shown.values()}, {m.asked for m in litmus.shown.values()}
    on = f" on {plural(len(kernels), 'kernel')}" if len(kernels) > 1 else ""
    return f"{plural(len(modes), 'mode')}{on}: {'; '.join(parts)}"


def _broken_promises(new: int, known: int) -> str:
    if new and known:
        return f"{plural(new, 'promise')} broken, and {number(known)} more by known bugs and losses"
    if new or known:
        return f"{plural(new or known, 'promise')} broken{', by known bugs and losses alone' * bool(known)}"
    return "no promise broken"


def page_of(litmus: Litmus, programs: Sequence[Program]) -> Page:
    """All of it: what differs, if two columns are compared; the table; broken promises; each program."""
    return Page(
        what="litmus",
        subject="What may an application rely on?",
        headline=headline(litmus),
        kind=_worst(litmus),
        notice="Interrupted: columns that were not reached are listed at the end, and not in the table."
        * litmus.interrupted,
        figures=tuple(_figures(litmus, programs)),
        sections=(
            Section(
                "Differences",
                f"Between {enumerated(list(litmus.columns))}.",
                tables=tuple(_differences(litmus, programs)),
                lines=tuple(_no_difference(litmus, programs)),
            ),
            Section("The table", _legend(litmus), tables=tuple(_tables(litmus, programs))),
            Section("Mode by mode", tables=tuple(_of_modes(litmus, programs)), in_text=False),
            Section(
                "Broken promises",
                "Answers no, against the mode's contract, which no known bug or loss explains.",
                findings=tuple(_broken(litmus)),
            ),
            Section(
                "New findings of other oracles",
                "The other oracles judge each crash state as in `powercut run`.",
                lines=tuple(Line(t, f"{m.item} {c.program}") for m, c in litmus.others for t in c.others),
            ),
            Section(
                "Known bugs and losses",
                "What the other oracles found, by the name of the bug (`powercut known NAME`) or the reason "
                "of the loss.",
                lines=tuple(_known(litmus)),
            ),
            Section(
                "Contract and table disagree",
                "The contract refuses the planted answers no, and yet no oracle complained of the state with "
                "the answer no: the planted answers are too narrow, or an oracle is.",
                lines=tuple(Line(c.found, f"{m.item} {c.program}") for m, c in contradictions(litmus)),
            ),
            Section(
                "The programs",
                "The operations, with the setup first; the question; what documents say; and each mode.",
                findings=tuple(_program(litmus, p) for p in programs),
                in_text=False,
            ),
            Section("Not looked at", lines=tuple(_unseen(litmus))),
            Section("Kernels and modes", lines=tuple(_column(litmus, m) for m in litmus.columns.values())),
        ),
        command=shlex.join(["powercut", *litmus.plan.argv]),
        data=_for_programs(litmus, programs),
    )


def _worst(litmus: Litmus) -> str:
    if litmus.broken or litmus.others:
        return "fail"
    if litmus.known:
        return "xfail"
    return "pass" if litmus.decided and not litmus.interrupted else "unknown"


def _figures(litmus: Litmus, programs: Sequence[Program]) -> Iterator[str]:
    cells = [c for m in litmus.columns.values() for c in m.cells]
    yield plural(len(programs), "question")
    yield plural(sum(c.recordings for c in cells), "recording")
    left = [bool(c.left) for c in cells if c.states]
    states = plural(sum(c.states for c in cells), "crash state")
    yield f"{states}; all legal ones for {number(left.count(False))} of {plural(len(left), 'answer')}"
    minutes = round(sum(m.seconds for m in litmus.columns.values()) / 60)
    yield f"{minutes} min, {plural(litmus.plan.jobs, 'guest')} at once"


def _is_wide(litmus: Litmus) -> bool:
    return len(litmus.shown) > WIDE


def _legend(litmus: Litmus) -> str:
    return LEGEND + _OF_WIDE * _is_wide(litmus)


def _tables(litmus: Litmus, programs: Sequence[Program]) -> Iterator[PageTable]:
    columns = by_filesystem(litmus) if _is_wide(litmus) else litmus.shown
    for group, members in itertools.groupby(programs, key=lambda p: p.question.group):
        rows = tuple(_row(litmus, p) for p in members)
        yield PageTable(("question", "documents", *columns), rows, group, wide=True)


def _row(litmus: Litmus, program: Program) -> tuple[str | Cell, ...]:
    return (
        Cell(f"{program.workload.summary}. {_asked(program)}", target=program.name),
        Cell(*_documents(program)),
        *_cells(litmus, program.name),
    )


def _cells(litmus: Litmus, program: str) -> Iterator[Cell]:
    if _is_wide(litmus):
        yield from (together(of, program) for of in by_filesystem(litmus).values())
        return
    for name, mode in litmus.shown.items():
        cell = mode.cell(program)
        yield Cell(word(cell), KINDS[cell.standing], sentence_of(name, cell), program)


def _of_modes(litmus: Litmus, programs: Sequence[Program]) -> Iterator[PageTable]:
    """A table for each file system, with a column for each of its modes, whatever the kernel."""
    for name, columns in by_filesystem(litmus).items() if _is_wide(litmus) else ():
        modes = by_kernel(columns)
        rows = tuple(
            (Cell(_asked(p), target=p.name), *(together(of, p.name) for of in modes.values()))
            for p in programs
        )
        yield PageTable(("question", *modes), rows, name, folded=True, wide=True)


def _asked(program: Program) -> str:
    return f"{program.question.asks} `{program.name}`"


def _documents(program: Program) -> tuple[str, str, str]:
    """What documents promise, in a word, with the sources."""
    told = program.question.documented
    general = [s for s in told if not s.modes]
    own = [f"{', '.join(s.modes)}: {_yes(s.promises)}" for s in told if s.modes]
    first = _yes(any(s.promises for s in general)) if general else ""
    return "; ".join(filter(None, [first, *own])), "", "; ".join(f"{s.by}: {s.says}" for s in told)


def _yes(promises: bool) -> str:
    return "yes" if promises else "nothing"


def _differences(litmus: Litmus, programs: Sequence[Program]) -> Iterator[PageTable]:
    """The programs on which the two columns differ."""
    rows = [_row(litmus, p) for p, one, two in _compared(litmus, programs) if one is not two]
    if rows:
        yield PageTable(("question", "documents", *litmus.columns), tuple(rows), wide=True)


def _no_difference(litmus: Litmus, programs: Sequence[Program]) -> Iterator[Line]:
    """That there is none, as far as both columns have answers."""
    compared = list(_compared(litmus, programs))
    seen = sum(one is not Standing.UNSEEN for _, one, _ in compared)
    if seen and all(one is two for _, one, two in compared):
        unseen = len(compared) - seen
        yield Line("no answer differs" + f"; {plural(unseen, 'question')} not looked at" * bool(unseen))


def _compared(litmus: Litmus, programs: Sequence[Program]) -> Iterator[tuple[Program, Standing, Standing]]:
    """The answers of two columns that are compared; nothing before both have answers."""
    if litmus.plan.compare and litmus.shown.keys() == litmus.columns.keys():
        for program in programs:
            one, two = (m.cell(program.name).standing for m in litmus.columns.values())
            yield program, one, two


def _unseen(litmus: Litmus) -> Iterator[Line]:
    """A line for each reason, with the programs and columns of which nothing was looked at."""
    columns: dict[str, dict[str, list[str]]] = {}
    for name, mode in litmus.shown.items():
        for cell in mode.cells:
            if cell.standing is Standing.UNSEEN and cell.reason:
                columns.setdefault(cell.reason, {}).setdefault(cell.program, []).append(name)
    for reason, of in columns.items():
        where = enumerated(list(dict.fromkeys(name for names in of.values() for name in names)))
        named = enumerated([*of]) if len(of) <= _NAMED_PROGRAMS else plural(len(of), "program")
        yield Line(reason, f"{named} in {where}")


def _known(litmus: Litmus) -> Iterator[Line]:
    """A line for each known bug or loss, with the columns that show it."""
    cells: dict[str, list[tuple[OnMode, CellAnswer]]] = {}
    for mode, cell in litmus.known:
        for name in (*cell.known, *cell.expected):
            cells.setdefault(name, []).append((mode, cell))
    for name, of in cells.items():
        broken = sum(c.standing is Standing.KNOWN for _, c in of)
        against = f", in {number(broken)} of them with the answer no against a promise" * bool(broken)
        modes = ", ".join(dict.fromkeys(m.item for m, _ in of))
        yield Line(f"in {plural(len(of), 'cell')} of {modes}{against}", name)


def _broken(litmus: Litmus) -> Iterator[Finding]:
    for mode, cell in litmus.broken:
        yield Finding(
            f"{mode.item} {cell.program}",
            (Line(sentence_of(mode.item, cell)), *map(Line, cell.others)),
            commands=(_repro(litmus, mode, cell),),
        )


def _repro(litmus: Litmus, mode: OnMode, cell: CellAnswer) -> str:
    run = source_in(litmus.path / mode.run) if mode.run else ""
    return f"reproduce: powercut repro {cell.point} --from {run}"


def _program(litmus: Litmus, program: Program) -> Finding:
    asked = program.question
    put = (
        "from the end of the setup on"
        if asked.after is None
        else f"after operation {asked.first - 1} returned"
    )
    lines = [Line(f"{asked.asks} (asked {put})"), Line(f"Yes, if {asked.wanted}.")]
    lines += [
        Line(s.says, s.by, aside=f"of {', '.join(s.modes)}" if s.modes else "") for s in asked.documented
    ]
    cells = {name: mode.cell(program.name) for name, mode in litmus.shown.items()}
    lines += [Line(sentence_of(name, cell), name) for name, cell in cells.items() if cell.no]
    lines += _alike({name: cell for name, cell in cells.items() if not cell.no})
    commands = [_repro(litmus, litmus.shown[name], cell) for name, cell in cells.items() if cell.point]
    kinds = {KINDS[cell.standing] for cell in cells.values()}
    worst = next((k for k in dict.fromkeys(KINDS.values()) if k in kinds), "not-run")
    return Finding(
        f"{program.name}: {program.workload.summary}",
        tuple(lines),
        operations=tuple(_operations(program)),
        commands=tuple(commands),
        kind=worst,
        anchor=program.name,
    )


def _alike(cells: Mapping[str, CellAnswer]) -> Iterator[Line]:
    """A line for each answer without a no, with all columns that gave it."""
    columns: dict[str, list[str]] = {}
    for name, cell in cells.items():
        promise = "as the contract promises" if cell.promised else "which the contract does not promise"
        match cell.standing:
            case Standing.UNSEEN:
                said = f"not looked at: {cell.reason}"
            case Standing.KEPT | Standing.LUCK:
                said = f"yes in all legal crash states, {promise}"
            case _:
                said = (
                    f"yes in all crash states that were looked at, {promise}; not all legal ones: {cell.left}"
                )
        states = f" ({number(cell.states)})" if cell.states else ""
        columns.setdefault(said, []).append(f"{name}{states}")
    for said, names in columns.items():
        yield Line(said, ", ".join(names))


def _operations(program: Program) -> Iterator[str]:
    for n, op in enumerate(program.operations):
        yield f"{n}  {op}" + ("    # the setup ends here" if n == program.question.setup - 1 else "")


def _column(litmus: Litmus, mode: OnMode) -> Line:
    said = [
        mode.failed,
        ", ".join(filter(None, [mode.kernel, mode.release, mode.machine])),
        f"{mode.seconds:.0f} s" if mode.seconds else "",
        "not finished" if mode.interrupted else "",
        f"begun anew: {mode.anew}" if mode.anew else "",
    ]
    run = on_page(full(litmus.path / mode.run)) if mode.run else ""
    return Line("; ".join(filter(None, said)), mode.item, aside=run)


def _for_programs(litmus: Litmus, programs: Sequence[Program]) -> dict[str, object]:
    """`litmus.json`. Directories of runs are relative to that of the table. What is false, 0 or empty in a
    cell is left out.
    """
    return {
        "schema": SCHEMA,
        "plan": litmus.plan,
        "programs": [
            {
                "name": p.name,
                "summary": p.workload.summary,
                "operations": p.operations,
                "question": msgspec.structs.replace(p.question, kept=[], broken=[]),
                "wanted": p.question.wanted,
            }
            for p in programs
        ],
        "columns": [
            {
                "name": name,
                "mode": m.mode,
                "kernel": m.kernel,
                "release": m.release,
                "machine": m.machine,
                "seconds": m.seconds,
                "run": m.run,
                "failed": m.failed,
                "cells": [
                    {"standing": c.standing} | {k: v for k, v in msgspec.to_builtins(c).items() if v}
                    for c in map(m.cell, (p.name for p in programs))
                ],
            }
            for name, m in litmus.columns.items()
        ],
        "finished": litmus.finished or None,
        "interrupted": litmus.interrupted,
    }


def markdown(litmus: Litmus, programs: Sequence[Program]) -> str:
    """The table in Markdown: a part for each group."""
    lines = ["# What may an application rely on?", "", headline(litmus) + ".", "", _legend(litmus), ""]
    for table in (*_tables(litmus, programs), *_of_modes(litmus, programs)):
        lines += [
            f"## {table.title}",
            "",
            _markdown_row(table.columns),
            _markdown_row(["---"] * len(table.columns)),
        ]
        lines += [_markdown_row([str(c) for c in row]) for row in table.rows]
        lines.append("")
    for mode in litmus.columns.values():
        lines.append(f"- {_column(litmus, mode)}")
    return "\n".join([*lines, "", f"Made with `{shlex.join(['powercut', *litmus.plan.argv])}`.", ""])


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(c.replace('|', '&#124;') for c in cells)} |"
