"""Why a finding failed, in twelve lines and as a ladder of events: what `harness.explain` found out.

It is kept in the run directory, as data: pages and the terminal draw it, and it decides no verdict.
"""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Iterator

import msgspec

from harness.cases.application import FILES
from harness.filesystems.profiles import ANY
from harness.host.files import json_bytes, json_or_none, write_atomically
from harness.host.text import one_line
from harness.store.layout import RunLayout
from harness.store.records import Finding

LABELS = (
    *("promised", "written", "cut", "recovery", "cause", "not tried", "missing"),
    *("control", "contract", "where", "seen", "schedule", "reproduce"),
)
"""The lines of an explanation, in order."""
_LABEL_WIDTH = max(map(len, LABELS)) + 2
_WIDTH = 100


class Fate(enum.StrEnum):
    """What had become of a write when the power failed."""

    DURABLE = "durable"  # a flush, or FUA, had made it so
    PERSISTED = "persisted"  # it was in the cache, and reached the platter
    LOST = "lost"
    TORN = "torn"  # a part of it was lost
    LATER = "later"  # not submitted yet
    NONE = ""  # of what is no write


class Rung(msgspec.Struct, frozen=True):
    """One event of a ladder. `kind`: `mark`, `call`, `write`, `fua`, `flush`, `cut` or `gap`. `event`: its
    number; of a write, that of its submission, and `completed`. `covered`: the entry of the flush that makes
    the write durable; -1: none that was sent before the power failed. `accent`: the promise that was broken,
    or the write or the call that would have saved it.
    """

    kind: str
    text: str
    event: int = -1
    completed: int = -1
    entry: int = -1
    fate: Fate = Fate.NONE
    covered: int = -1
    accent: bool = False


class BlockDifference(msgspec.Struct, frozen=True):
    """Where a place on the platter differs from the write that was lost there, from `place` on.
    `platter_hex`, `lost_hex`: lines of 16 bytes that differ; `offsets`: where each begins, in bytes from the
    first.
    """

    place: str
    on_platter: str
    platter_hex: str
    lost: str
    lost_hex: str
    offsets: tuple[int, ...] = ()


class Mark(enum.StrEnum):
    """How a name that came back compares with the one in the model."""

    SAME = ""
    BROKEN = "broken"  # a violation is about it
    OTHER = "differs"  # as far as no violation is about it, no promise forbids that


class TreeSide(msgspec.Struct, frozen=True):
    """A name as it should be, or as it was found. `kind`: empty if it is not there. `size`: of a file's
    contents in bytes, else -1. `contents`: which operation wrote which bytes. `more`: what else differs, such
    as permissions.
    """

    kind: str = ""
    size: int = -1
    contents: str = ""
    more: str = ""


class TreeRow(msgspec.Struct, frozen=True):
    """A name on both sides."""

    path: str
    expected: TreeSide
    found: TreeSide
    mark: Mark = Mark.SAME


class Trees(msgspec.Struct, frozen=True):
    """The names of the reference model at `version`, in words, beside those that came back. `unseen`: why
    nothing came back. `left_out`: so many names, alike on both sides first, are not in `rows`.
    """

    version: str
    rows: tuple[TreeRow, ...]
    unseen: str = ""
    left_out: int = 0


class Explanation(msgspec.Struct, frozen=True):
    """`headline`: what broke. `mechanism`: how, in a sentence; empty where it could not be told apart.
    `lines`: by LABELS. `point`: the minimal crash point; `control`: the one that keeps the promise.
    `minimal`: False if the search for fewer losses was stopped early, None where fewer are not looked for.
    `visits`: states recovered for it.
    `trees`: None where the model knows no names, since programs ran. `promises`: of a finding by rules, what
    each mode says of the order that the program relies on; `orders`: of which kinds that is
    (`ORDERS` of `harness.ruled.hides`).
    """

    finding: str
    headline: str
    mechanism: str
    lines: dict[str, str]
    ladder: tuple[Rung, ...]
    point: str
    control: str = ""
    minimal: bool | None = True
    visits: int = 0
    differences: tuple[BlockDifference, ...] = ()
    trees: Trees | None = None
    promises: dict[str, str] = {}
    orders: tuple[str, ...] = ()

    @property
    def mechanism_name(self) -> str:
        """The mechanism without its sentence, such as `No flush at all`; empty where none is told."""
        return self.mechanism.partition(". ")[0]


def write_explanation(layout: RunLayout, explanation: Explanation) -> None:
    """Keep it in place of an older one."""
    path = layout.explanation(explanation.finding)
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, json_bytes(explanation))


def read_explanation(layout: RunLayout, finding: str) -> Explanation | None:
    """None if there is none, or none that can be read."""
    return json_or_none(layout.explanation(finding), Explanation)


def shown_at(explanation: Explanation) -> str:
    """At which crash point it was explained, and how that was chosen: seldom the one that was asked for."""
    fewest = {True: " with the fewest writes lost", False: " with the fewest that were tried", None: ""}
    return f"at {explanation.point}, which fails the same way{fewest[explanation.minimal]}"


def mail_text(explanation: Explanation, asked: str) -> str:
    """The explanation as text that fits a mail; the last line is the command that shows the crash again.
    `asked`: the crash point that is to be explained.
    """
    return "\n".join(_lines(explanation, asked)) + "\n"


def _lines(explanation: Explanation, asked: str) -> Iterator[str]:
    yield from textwrap.wrap(one_line(explanation.headline), _WIDTH)
    if explanation.point != asked:
        yield from textwrap.wrap(
            f"Asked for {asked}; explained {shown_at(explanation)}.",
            _WIDTH,
            break_on_hyphens=False,
            break_long_words=False,  # a crash point is pasted as one word
        )
    if explanation.mechanism:
        yield from textwrap.wrap(one_line(explanation.mechanism), _WIDTH)
    for label in LABELS:
        text = one_line(explanation.lines.get(label, ""))
        if label == "reproduce":  # a command is pasted as one line
            yield f"{label + ':':{_LABEL_WIDTH}} {text}"
        elif text:
            indent = " " * (_LABEL_WIDTH + 1)
            yield from textwrap.wrap(
                text, _WIDTH, initial_indent=f"{label + ':':{_LABEL_WIDTH}} ", subsequent_indent=indent
            )


def heading_of(heading: str, finding: Finding, explanation: Explanation | None) -> str:
    """The heading of a text beside a finding. Under rules, the files are those of the explained state."""
    if explanation is None or finding.case.filesystem != ANY or heading != FILES:
        return heading
    other = explanation.point != str(finding.crash_point)
    return f"{heading} at {explanation.point}" if other else heading
