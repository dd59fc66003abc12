"""The page of `powercut coverage`: which lines of recovery the crash states of runs ran, and which none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from harness.grouping import by_key
from harness.report.page import Cell, Line, Page, PageTable, Section
from harness.report.words import number, plural
from harness.store.recovery_code import CodeLine, RecoveryCode

_NAMED = 8
"""Functions that one line names."""


def page_of(code: RecoveryCode, subject: str, command: str, figures: Sequence[str] = ()) -> Page:
    """`subject`: the runs; `command`: what makes it again."""
    unreached = code.unreached
    return Page(
        what="Coverage of recovery",
        subject=subject,
        headline=headline(code),
        kind="unknown" if unreached else "pass",
        figures=(*figures, f"source: {code.kernel}"),
        sections=(
            Section(
                "Functions of recovery that no crash state reached",
                about="What a run never executed is what it says nothing about.",
                lines=tuple(
                    Line(", ".join(f"`{function}`" for function in functions), subject=file)
                    for file, functions in unreached_by_file(code).items()
                ),
            ),
            *(Section(file, tables=(_functions(code, file),), in_text=False) for file in code.files),
            Section("How to read this", lines=tuple(map(Line, _READING)), in_text=False),
        ),
        command=command,
        data={
            "kernel": code.kernel,
            "lines": msgspec.to_builtins(code.lines),
            "unreached": [f"{file}:{function}" for file, function in unreached],
        },
    )


_READING = (
    "Lines count at which a basic block begins, as the compiler made them: most lines begin none.",
    "Guests that recover crash states note what they run, in the mounts after that, too; none that records.",
    "A state that equals a recovered one in every block that was read is not recovered: it runs the same.",
    "A line names the first case at whose end it was seen; of cases that ran at once, it may be another's.",
)


def headline(code: RecoveryCode) -> str:
    """How many lines ran, and how many functions did not."""
    lines = f"{number(code.reached)} of {plural(len(code.lines), 'line')} of recovery ran"
    functions = sum(len(code.functions(file)) for file in code.files)
    return f"{lines}; {number(len(code.unreached))} of {plural(functions, 'function')} were not reached"


def unreached_by_file(code: RecoveryCode) -> dict[str, list[str]]:
    """The functions that no crash state reached, by their file."""
    return by_key(code.unreached)


def in_words(code: RecoveryCode) -> str:
    """The same, with the first functions that were not reached."""
    names = [function for _, function in code.unreached]
    more = f" and {number(len(names) - _NAMED)} more" if len(names) > _NAMED else ""
    return headline(code) + (f": {', '.join(names[:_NAMED])}{more}" if names else "")


def _functions(code: RecoveryCode, file: str) -> PageTable:
    found = code.functions(file)
    ran = sum(bool(line.first) for lines in found.values() for line in lines)
    every = sum(map(len, found.values()))
    return PageTable(
        ("function", "lines that ran", "ran", "did not run"),
        tuple(_row(function, lines) for function, lines in found.items()),
        title=f"{number(ran)} of {plural(every, 'line')} ran",
    )


def _row(function: str, lines: Sequence[CodeLine]) -> tuple[str | Cell, ...]:
    ran = [line for line in lines if line.first]
    kind = "pass" if len(ran) == len(lines) else "unknown" if ran else "fail"
    firsts = "; ".join(f"{line.line}: {line.first}" for line in ran)
    return (
        f"{function}, {lines[0].line}",
        Cell(f"{len(ran)} of {len(lines)}", kind),
        Cell(_numbers(ran), detail=firsts),
        _numbers([line for line in lines if not line.first]),
    )


def _numbers(lines: Sequence[CodeLine]) -> str:
    return ", ".join(_each(lines))


def _each(lines: Sequence[CodeLine]) -> Iterator[str]:
    yield from dict.fromkeys(str(line.line) for line in lines)
