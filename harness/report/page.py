"""A page: a headline, and sections of tables, findings and lines. One value, and four forms of it: a file
that needs no network, text for a terminal, Markdown for a mail or a CI job, and JSON for programs.

Any text in it may quote a guest: in no form can it be markup, control a terminal, or pass for a line of
Powercut. Words between backquotes are shown as code.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from harness.host.files import json_text
from harness.host.text import markdown, markdown_plain, one_line
from harness.report.pages import on_page, sentence, template
from harness.report.plot import Bar, Plot

_STARS = 40
"""Of a bar in text that fills its place."""


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence. `subject`: what it is about, such as a case; `oracle`: who found it; `aside`: small
    print.
    """

    text: str = ""
    subject: str = ""
    oracle: str = ""
    aside: str = ""

    def __str__(self) -> str:
        words = ": ".join(filter(None, [self.subject, self.oracle, self.text]))
        return " ".join(filter(None, [words, f"({self.aside})" if words and self.aside else self.aside]))


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table. `kind`: a verdict, which colours it. `detail`: shown where one points at it.
    `target`: the anchor of the finding that it leads to. `spread`: how far a figure spreads, in words; `bar`:
    the figure as it is drawn, in text of a cell without words.
    """

    text: str
    kind: str = ""
    detail: str = ""
    target: str = ""
    spread: str = ""
    bar: Bar | None = None

    def __str__(self) -> str:
        drawn = "*" * round(_STARS * self.bar.stop / 100) if self.bar else ""
        return f"{self.text or drawn} ({self.spread})" if self.spread else self.text or drawn


@dataclass(frozen=True, slots=True)
class PageTable:
    """Rows under columns, of which the first names the row, and those from `figures` on are numbers.
    `folded`: one line until it is opened; `in_text`: rows that the text shows. `wide`: many short cells; the
    first column stays in place when the others are moved.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    title: str = ""
    figures: int = 99
    folded: bool = False
    in_text: int | None = None
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, and the commands that show it again. `operations`: of the least that shows it. `kind`:
    the verdict that colours it. `anchor`: what cells lead to it by.
    """

    title: str
    lines: tuple[Line, ...] = ()
    operations: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    kind: str = "fail"
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Part of a page, left out where it holds nothing. `about`: how to read it. `in_text`: false: omit in
    text, the user just watched it. `folded`: the findings are one line until that is opened.
    """

    title: str
    about: str = ""
    tables: tuple[PageTable, ...] = ()
    plots: tuple[Plot, ...] = ()
    findings: tuple[Finding, ...] = ()
    lines: tuple[Line, ...] = ()
    folded: bool = False
    in_text: bool = True

    @property
    def holds(self) -> bool:
        """Whether there is anything in it."""
        return bool(any(t.rows for t in self.tables) or self.plots or self.findings or self.lines)


@dataclass(frozen=True, slots=True)
class Page:
    """What a command has to tell. `what`: the kind of page; `subject`: what it is of; `kind`: the colour of
    the worst that it tells; `figures`: how much was done; `notice`: what has to be known first; `command`:
    that made it; `again`: that goes on with it; `data`: the same for programs.
    """

    what: str
    subject: str
    headline: str
    kind: str
    sections: tuple[Section, ...]
    figures: tuple[str, ...] = ()
    notice: str = ""
    command: str = ""
    again: str = ""
    data: Mapping[str, object] | None = None

    def html(self) -> str:
        """One file."""
        return template("page.html", capitalised=_capitalised).render(page=self)

    def json(self) -> str:
        """For programs: the headline, and the data."""
        return json_text({"headline": self.headline, **(self.data or {})})

    def text(self, width: int = 0) -> str:
        """For a terminal: no line of it is longer for what a guest wrote. `width`: no line is longer than
        that, but for commands and single words; 0: lines are as long as they are.
        """
        lines = [one_line(line) for line in self._lines(width)]
        if width:
            lines = [part for line in lines for part in _wrapped(line, width)]
        return "\n".join(lines) + "\n"

    def markdown(self) -> str:
        """For a mail, a pull request, or the page of a CI job: what the text shows."""
        return "\n".join(self._markdown()) + "\n"

    def _markdown(self) -> Iterator[str]:
        yield f"## {markdown_plain(self.subject)}: {markdown(self.headline)}"
        for figure in filter(None, [*self.figures, self.notice]):
            yield from ("", markdown(figure))
        for section in self.sections:
            if section.holds and section.in_text:
                yield from ("", f"### {markdown_plain(section.title)}")
                yield from _markdown_section(section)
        made = (("Made with", self.command), ("Continue with", self.again))
        for how, command in made:
            if command:
                yield from ("", f"{how}:", "", f"    {one_line(on_page(command))}")

    def _lines(self, width: int) -> Iterator[str]:
        yield f"{self.subject}: {self.headline}"
        yield from self.figures
        if self.notice:
            yield self.notice
        for section in self.sections:
            if section.holds and section.in_text:
                yield from ("", section.title, *_section(section, width))
        made = (("made with", self.command), ("continue with", self.again))
        if told := [f"{how}: {command}" for how, command in made if command]:
            yield from ("", *told)


def _section(section: Section, width: int) -> Iterator[str]:
    for table in (t for t in section.tables if t.rows):
        yield from ([f"{table.title}:"] if table.title else [])
        yield from _fitting(table, width)
    for finding in section.findings:
        yield finding.title
        yield from (f"       {operation}" for operation in finding.operations)
        yield from (f"   {line}" for line in finding.lines)
        yield from finding.commands
    yield from map(str, section.lines)


def _markdown_section(section: Section) -> Iterator[str]:
    if section.about:
        yield from ("", markdown(section.about))
    for table in (t for t in section.tables if t.rows):
        yield from ("", *([markdown_plain(table.title), ""] if table.title else []))
        yield from _markdown_table(table)
    for finding in section.findings:
        yield from ("", f"**{markdown(finding.title)}**")
        told = (*finding.operations, *map(str, finding.lines), *map(on_page, finding.commands))
        yield from ("", *(f"    {one_line(line)}" for line in told))
    if section.lines:
        yield from ("", *(f"- {markdown(str(line))}" for line in section.lines))


def _markdown_table(table: PageTable) -> Iterator[str]:
    rules = [" ---: " if n >= table.figures else " --- " for n in range(len(table.columns))]
    yield f"| {' | '.join(map(markdown_plain, table.columns))} |"
    yield f"|{'|'.join(rules)}|"
    for row in table.rows[: table.in_text]:
        yield f"| {' | '.join(_markdown_cell(str(cell)) for cell in row)} |"


def _markdown_cell(text: str) -> str:
    """A bar would end the cell, also in code."""
    return markdown_plain(text) if "|" in text else markdown(text)


def _aligned(table: PageTable) -> Iterator[str]:
    rows = [[one_line(str(cell)) for cell in row] for row in (table.columns, *table.rows[: table.in_text])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if at >= table.figures else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _fitting(table: PageTable, width: int) -> Iterator[str]:
    """The rows, aligned where that fits; else each as its first cell, and a line for each further one."""
    aligned = list(_aligned(table))
    if not width or max(map(len, aligned), default=0) <= width:
        yield from aligned
        return
    for first, *others in table.rows[: table.in_text]:
        yield str(first)
        yield from (f"  {name}: {cell}" for name, cell in zip(table.columns[1:], others, strict=True))


def _wrapped(line: str, width: int) -> list[str]:
    """In lines of that width, indented so that none of them can pass for a line of ours; a command, which is
    pasted, stays as it is.
    """
    if len(line) <= width or re.match(r"(\S+( with)?: )?powercut ", line):
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _capitalised(text: str) -> str:
    """With its first letter as a capital, unless that is one of a name with digits or signs."""
    return sentence(text) if re.match(r"[a-z]+ ", text) else text
