"""Mistakes to plant in a patch: what its author may have got wrong, one at a time.

Each replaces some lines that the patch changed: a statement is left out, a condition is turned round, or a
flag of a request that orders writes is taken away. A kernel with the mistake runs the cases that the patch
has passed: either a case notices, or such a mistake in the patch would go unnoticed. Beside them, each hunk
is tried as it was before the patch, which is no mistake where it does the same. Pure: text in, lines out.

Source: the operators of mutation testing (DeMillo, Lipton, Sayward: Hints on Test Data Selection, 1978), of
which these leave the order of writes and the handling of errors wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, zip_longest

import msgspec

from harness.host.text import one_line
from harness.kernels.edits import lines_of, without_comments, without_comments_and_strings

_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_MOST_LINES = 8
"""Of one statement."""
_CALL = re.compile(r"[a-z_]\w*\s*\(")
_ASSIGNED = re.compile(r"[\w.\->\[\]*()]+\s*(?:[|&+\-^]|<<|>>)?=[^=]")
_NO_STATEMENT = re.compile(
    r"(?:return|goto|break|continue|if|else|for|while|do|switch|case|default|sizeof)\b"
    r"|(?:[A-Z_0-9]+|trace_\w+|\w*debug|printk|pr_\w+)\s*\("
)
"""Also what only asserts or tells something."""
_ENDS_ONE = re.compile(r"(?:[;{}:)]|\belse|\bdo)\s*$")
"""What the text before a statement ends with."""
_CONDITION = re.compile(r"\bif\s*\(")
_ORDER_FLAG = re.compile(r"\s*\|\s*REQ_(?:PREFLUSH|FUA)\b|\bREQ_(?:PREFLUSH|FUA)\s*\|\s*")
_BEGIN = "\x01"
"""Before each line, to see where a comment or a string goes on."""
_ORDERS = re.compile(r"\w*(?:flush|sync|wait|barrier|submit)\w*\s*\(|REQ_")


class Mistake(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lines `first` to `last` of `file` (from 1, both included; `last` = `first` - 1: none) become `text`,
    which ends with a newline or is empty. `what`: it, in words. `reverts`: they become what they were before
    the patch; else one statement of theirs changes.
    """

    file: str
    first: int
    last: int
    text: str
    what: str
    reverts: bool = False

    @property
    def place(self) -> str:
        """`fs/ext4/fsync.c:166`"""
        return f"{self.file}:{self.first}"

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"

    def planted(self, source: str) -> str:
        """The text of the file with the mistake."""
        lines = lines_of(source)
        return "".join([*lines[: self.first - 1], self.text, *lines[self.last :]])


class Hunk(msgspec.Struct, frozen=True):
    """Changed lines: `first` and `count` in the new file, and the lines that they replaced."""

    first: int
    count: int
    before: tuple[str, ...]


def hunks(diff: str) -> Iterator[Hunk]:
    """Those of one file, of `git diff -U0`."""
    lines = iter([*lines_of(diff), "@@ end"])
    at, before = None, []  # type: re.Match[str] | None, list[str]
    for line in lines:
        if line.startswith("@@"):
            if at:
                count = int(at[4]) if at[4] is not None else 1
                yield Hunk(int(at[3]) + (count == 0), count, tuple(before))
            at, before = _HUNK.match(line), []
        elif at and line.startswith("-"):
            before.append(line[1:])


def mistakes(file: str, source: str, changed: Iterable[Hunk]) -> list[Mistake]:
    """Those for one file of the patch: those that order writes first, and of each hunk in turn."""
    code, lines, text = without_comments_and_strings(source).split("\n"), source.split("\n"), _Text(source)
    of_hunks = [list(_of_hunk(file, lines, code, hunk)) for hunk in changed]
    by_turns = (m for m in chain.from_iterable(zip_longest(*of_hunks)) if m is not None)
    return sorted((m for m in by_turns if text.changes(m)), key=_rank)


class _Text:
    """A file, to compare with what mistakes make of it: near their lines alone, since a file has thousands of
    lines, and a patch hundreds of mistakes.
    """

    def __init__(self, source: str) -> None:
        self._lines = lines_of(source)
        noted = without_comments_and_strings("".join(f"{_BEGIN}{line}" for line in self._lines))
        begins = accumulate((1 + len(line) for line in self._lines), initial=0)
        self._apart = [noted[at : at + 1] != " " for at in begins]

    def changes(self, mistake: Mistake) -> bool:
        """Whether a compiler sees another text. What is compared begins and ends outside comments: lines
        around a changed one may lie in a comment that it begins or ends.
        """
        begin, end = mistake.first - 1, mistake.last
        while not self._apart[begin]:
            begin -= 1
        while not self._apart[end]:
            end += 1
        if "/*" in without_comments_and_strings(self._between(begin, end, mistake)):
            end = len(self._lines)  # a comment that ends somewhere below
        return _tokens("".join(self._lines[begin:end])) != _tokens(self._between(begin, end, mistake))

    def _between(self, begin: int, end: int, mistake: Mistake) -> str:
        """Some lines with the mistake."""
        before, behind = self._lines[begin : mistake.first - 1], self._lines[mistake.last : end]
        return "".join([*before, mistake.text, *behind])


def _tokens(source: str) -> list[str]:
    """What a compiler sees."""
    return without_comments(source).split()


def in_turn(by_file: Mapping[str, Sequence[Mistake]]) -> list[Mistake]:
    """Those of all files, a file after another, so that time that is short goes to each."""
    return [m for m in chain.from_iterable(zip_longest(*by_file.values())) if m is not None]


def _rank(mistake: Mistake) -> int:
    return 0 if _ORDERS.search(mistake.what) else 1


def _of_hunk(file: str, source: Sequence[str], code: Sequence[str], hunk: Hunk) -> Iterator[Mistake]:
    lines = range(hunk.first, hunk.first + hunk.count)
    for number in lines:
        line, shown = code[number - 1], one_line(source[number - 1].strip())
        yield from _turned_round(file, number, source[number - 1], line)
        for flag in _ORDER_FLAG.finditer(line):
            text = source[number - 1]
            name = re.sub(r"[\s|]", "", flag[0])
            yield Mistake(
                file,
                number,
                number,
                f"{text[: flag.start()]}{text[flag.end() :]}\n",
                f"`{name}` left out of `{shown}`",
            )
        if (last := _statement(code, number)) and last in lines:
            indent = re.match(r"\s*", source[number - 1])
            yield Mistake(
                file,
                number,
                last,
                f"{indent[0] if indent else ''};\n",
                f"`{_joined(source, number, last)}` left out",
            )
    last = hunk.first + hunk.count - 1
    where = f"lines {hunk.first} to {last}" if hunk.count > 1 else f"line {hunk.first}"
    before = "".join(hunk.before)
    yield Mistake(file, hunk.first, last, before, f"{where} as before the patch", reverts=True)


def _turned_round(file: str, number: int, text: str, code: str) -> Iterator[Mistake]:
    """Each whole condition of an `if` on this line."""
    for found in _CONDITION.finditer(code):
        depth = 0
        for at in range(found.end() - 1, len(code)):
            depth += (code[at] == "(") - (code[at] == ")")
            if depth == 0:
                condition = text[found.end() : at]
                turned = f"{text[: found.end()]}!({condition}){text[at:]}\n"
                yield Mistake(file, number, number, turned, f"`if ({one_line(condition)})` turned round")
                break


def _statement(code: Sequence[str], number: int) -> int:
    """The last line of the call or assignment that is all of the lines from here on; 0 if none is."""
    text = code[number - 1].strip()
    if _NO_STATEMENT.match(text) or not (_CALL.match(text) or _ASSIGNED.match(text)):
        return 0
    before = next((code[n] for n in range(number - 2, -1, -1) if code[n].strip()), "")
    if not _ENDS_ONE.search(before):
        return 0
    whole = ""
    for last in range(number, min(number + _MOST_LINES, len(code) + 1)):
        whole += code[last - 1]
        if whole.count("(") == whole.count(")") and whole.rstrip().endswith(";"):
            return last if whole.count(";") == 1 else 0
        if "{" in whole:
            return 0
    return 0


def _joined(source: Sequence[str], first: int, last: int) -> str:
    """A statement on one line, shortened."""
    text = one_line(" ".join(line.strip() for line in source[first - 1 : last]).rstrip(";"))
    return text if len(text) <= 72 else f"{text[:69]}..."
