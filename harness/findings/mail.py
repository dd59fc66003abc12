"""The mail that goes with a bug report: to whom, of what, and why, on one screen."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from harness.host.text import one_line
from harness.model import Operation
from harness.report.explanation import LABELS, Explanation

LINES = 50
"""A screen."""
NUMBERING = (
    "Operations are numbered as in reproduce.sh, which has those that it takes; events and entries as in the "
    "recording of the whole workload, evidence/write-log.txt."
)
_WIDTH = 72
_OPERATIONS = 8
_SUBJECT, _SENTENCE, _LINE = 100, 400, 220
"""Letters that are left of what is longer."""
_LEFT_OUT = ("reproduce", "contract", "written", "recovery", "control")
"""Labels that a mail can do without, the first one always; the others in this order where it is too long."""


def mail(
    to: str,
    subject: str,
    summary: str,
    operations: Sequence[Operation],
    seen: Sequence[str],
    explanation: Explanation | None,
    *,
    shrunk: bool = False,
    returned: int | None = None,
) -> str:
    """The text, at most LINES long. `seen`: kernels, with what they showed. `shrunk`: the operations are not
    all of the workload that was explained. `returned`: see `with_cut`.
    """
    shown = with_cut(operations, returned) if len(operations) <= _OPERATIONS else []
    end = [*_end(seen, NUMBERING if shrunk and explanation else "")]
    for left_out in range(1, len(_LEFT_OUT) + 1):
        kept = [label for label in LABELS if label not in _LEFT_OUT[:left_out]]
        lines = [*_head(to, subject), *_body(summary, shown, explanation, kept)]
        if len(lines) + len(end) <= LINES:
            break
    else:
        lines = [*lines[: LINES - len(end) - 2], "...", ""]
    return "\n".join([*lines, *end]) + "\n"


def with_cut(operations: Sequence[Operation], returned: int | None) -> list[str]:
    """The operations, and the power cut in its place: so many had returned; None: all of them."""
    lines = [one_line(str(operation)) for operation in operations]
    at = len(lines) if returned is None else returned
    return [*lines[:at], "(power cut)", *lines[at:]]


def _head(to: str, subject: str) -> Iterator[str]:
    yield f"To: {to or 'TO DO: the list, from MAINTAINERS'}"
    yield f"Subject: {textwrap.shorten(one_line(subject), _SUBJECT, placeholder=' ...')}"
    yield ""


def _body(
    summary: str,
    operations: Sequence[str],
    explanation: Explanation | None,
    labels: Sequence[str],
) -> Iterator[str]:
    yield from _wrapped(explanation.headline if explanation else summary)
    yield ""
    if explanation and explanation.mechanism:
        yield from _wrapped(explanation.mechanism)
        yield ""
    if operations:
        yield from (*(f"    {operation}" for operation in operations), "")
    said = [
        (label, explanation.lines[label]) for label in labels if explanation and explanation.lines.get(label)
    ]
    for label, text in said:
        yield from _wrapped(text, f"{label + ':':11}", " " * 11)
    if said:
        yield ""


def _end(seen: Sequence[str], numbering: str) -> Iterator[str]:
    yield from _wrapped(f"Kernels: {'; '.join(seen)}. reproduce.sh (root) and its output are attached.")
    yield ""
    if numbering:
        yield from (*_wrapped(numbering), "")
    yield "TO DO: Fixes: the commit that it comes from, or leave this line out"


def _wrapped(text: str, first: str = "", then: str = "") -> list[str]:
    """Without breaking names, such as those of functions and commits."""
    return textwrap.wrap(
        textwrap.shorten(one_line(text), _LINE if first else _SENTENCE, placeholder=" ..."),
        _WIDTH,
        initial_indent=first,
        subsequent_indent=then,
        break_long_words=False,
        break_on_hyphens=False,
    )
