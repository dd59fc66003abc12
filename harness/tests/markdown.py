"""What tests read from the documents: blocks, links, headings, command lines and sessions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import harness

ROOT = Path(harness.__file__).parent.parent
TOP = ("README.md", "AGENTS.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
ELSEWHERE = ("vms/filesystems/CONTRACTS.md", "workloads/README.md", "reports/findings/README.md")
_FENCE = re.compile(r"^( *)```+(\S*)[^\n]*\n(.*?)^\1```+ *$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_SET = re.compile(r"<!-- session: ([a-z]+) -->\s*$")


def documents() -> list[Path]:
    """Every document that people read."""
    return [*(ROOT / name for name in (*TOP, *ELSEWHERE)), *sorted((ROOT / "docs").rglob("*.md"))]


def prose(text: str) -> str:
    """A document without its blocks of code."""
    return _FENCE.sub("", text)


def links(text: str) -> list[str]:
    """Where its links lead within the checkout: a path with what follows a `#`."""
    plain = re.sub(r"`[^`\n]*`", "", prose(text))
    return [t for t in _LINK.findall(plain) if not re.match(r"[a-z]+:", t)]


def anchors(text: str) -> set[str]:
    """What a link may name behind `#`: its headings, as forges and the site call them."""
    found = re.findall(r"^#{1,4} (.*)$", prose(text), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", h).lower()).replace(" ", "-")
        for h in found
    }


def blocks(text: str) -> list[tuple[str, str]]:
    """Its blocks of code: the language, and the lines without the block's own indentation."""
    return [
        (m[2], "\n".join(line.removeprefix(m[1]) for line in m[3].splitlines()))
        for m in _FENCE.finditer(text)
    ]


def command_lines(text: str) -> Iterator[list[str]]:
    """The words of every `powercut ...` in its blocks of commands, without pipes and redirections."""
    for language, block in blocks(text):
        if language not in ("", "sh", "console"):
            continue
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            if language == "console" and not line.startswith("$ "):
                continue
            found = re.search(r"(?:^|[\s'(])(powercut [^'|>;]*)", line.removeprefix("$ "))
            if found and (words := _words(found[1])):
                yield words


def _words(line: str) -> list[str]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # it is no command line, but output that begins so
        return []
    return words if len(words) > 1 and words[1] != "..." else []


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a session, its lines as they stand there, and what it prints; `...` stands for any number
    of lines.
    """

    command: str
    output: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Session:
    """A block of a document that begins with ```` ```console ````. `kind`: `plain`, `guest` (boots guests) or
    `nightly` (takes minutes), as the comment before the block says.
    """

    document: str
    number: int
    kind: str
    steps: tuple[Step, ...]


def sessions(path: Path) -> Iterator[Session]:
    """The sessions of a document, in their order: each goes on where the one before it ended."""
    text = path.read_text()
    found = [m for m in _FENCE.finditer(text) if m[2] == "console"]
    for number, m in enumerate(found):
        told = _SET.search(text[: m.start()])
        yield Session(str(path.relative_to(ROOT)), number, told[1] if told else "plain", tuple(_steps(m[3])))


def _steps(block: str) -> Iterator[Step]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        while command.endswith("\\"):
            more, _, output = output.partition("\n")
            command = f"{command}\n{more}"
        yield Step(command, tuple(output.rstrip("\n").splitlines()))


def matches(expected: Sequence[str], printed: Sequence[str]) -> bool:
    """Whether output is as a document has it, but for numbers, ids, drawn lines and where lines end. A line
    of `...` stands for any lines; no output at all in a document asks for nothing.
    """
    if not expected:
        return True
    pieces = [" ".join(map(plain, piece)).split() for piece in _pieces(expected)]
    words = " ".join(map(plain, printed)).split()
    pattern = r"(?: .*)?".join(re.escape("".join(f" {w}" for w in piece)) for piece in pieces)
    return re.fullmatch(pattern, "".join(f" {w}" for w in words)) is not None


def _pieces(lines: Sequence[str]) -> Iterator[list[str]]:
    """The lines between those of `...`."""
    piece: list[str] = []
    for line in lines:
        if line.strip() == "...":
            yield piece
            piece = []
        else:
            piece.append(line)
    yield piece


def plain(line: str) -> str:
    """A line without what differs from run to run."""
    line = re.sub(r"(/[\w.-]+)*/?reports/runs/[\w.-]+", "RUN", line)
    line = re.sub(r"\b[0-9a-f]{12}\b", "ID", line)
    # which state is the smallest that shows a finding hangs on when the writes of the recording were flushed
    line = re.sub(r"@t?\d+([-=](\d+(\.\d+)?(,\d+(\.\d+)?)*)?)?", "@N", line)
    line = re.sub(r"\d[\d,.]*", "N", line)
    line = re.sub(r"─+", "-", line)
    return " ".join(line.split())
