"""A study for people: text for the terminal, and one page."""

from __future__ import annotations

import enum
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from harness.host.files import write_atomically
from harness.model import CaseId
from harness.releases.results import Answer, OnKernel, Seen, Study, story
from harness.report.lines import full
from harness.report.pages import template
from harness.report.strip import Strip, StripCell
from harness.report.words import VERDICT_WORDS, enumerated, number, plural
from harness.summary import CaseVerdict

NOT_YET = "not yet"
_FOLDED = 12  # more cases than this are one line until it is opened


def headline(study: Study) -> str:
    """What a study came to, in one line: of one case its story, of several how many broke where."""
    cases = study.cases
    if len(cases) == 1:
        return f"{cases[0]}: {story(study.kernels, cases[0], study.plan.oracle)}"
    kernels = [k for k in study.kernels if k.answers]
    count = Counter(_kind(study, case) for case in cases)
    open_ = sum(any(_decided(k.answer(c)) is None for k in kernels) for c in cases) - count[_Kind.OPEN]
    parts = [f"{number(count[kind])} {_words(kind, len(kernels))}" for kind in _Kind if count[kind]]
    parts += [f"{number(open_)} of them not decided on every kernel"] * bool(open_)
    left_out = [k.name or k.asked for k in study.kernels if k not in kernels]
    parts += [f"{enumerated(left_out)} {'was' if len(left_out) == 1 else 'were'} not run"] * bool(left_out)
    return f"{plural(len(cases), 'case')} on {plural(len(kernels), 'kernel')}: {'; '.join(parts)}"


def _decided(answer: Answer | None) -> bool | None:
    if answer is None or answer.verdict in (CaseVerdict.UNKNOWN, CaseVerdict.NOT_RUN):
        return None
    return bool(answer.findings)


class _Kind(enum.Enum):
    """How a case did on all kernels together, in the order of the page."""

    CHANGED = enum.auto()
    BROKEN = enum.auto()
    KNOWN = enum.auto()
    OPEN = enum.auto()
    KEPT = enum.auto()


def _kind(study: Study, case: CaseId) -> _Kind:
    answers = [a for k in study.kernels if (a := k.answer(case))]
    told = {_decided(a) for a in answers} - {None}
    if len(told) > 1:
        return _Kind.CHANGED
    if not told:
        return _Kind.OPEN
    if told == {False}:
        return _Kind.KEPT
    return _Kind.BROKEN if any(a.verdict is CaseVerdict.FAIL for a in answers) else _Kind.KNOWN


def _words(kind: _Kind, kernels: int) -> str:
    everywhere = {1: "", 2: " on both"}.get(kernels, " on all")
    return {
        _Kind.CHANGED: "broke a promise on some kernels only",
        _Kind.BROKEN: f"broke a promise{everywhere}",
        _Kind.KNOWN: f"broke a promise{everywhere}, as expected",
        _Kind.OPEN: "without an answer",
        _Kind.KEPT: f"kept every promise{everywhere}",
    }[kind]


def cell(kernel: OnKernel, case: CaseId) -> str:
    """A kernel's answer in a cell: `3 of 91 broken`, `91 kept`."""
    answer = kernel.answer(case)
    if answer is None:
        return VERDICT_WORDS[CaseVerdict.NOT_RUN] if kernel.failed else NOT_YET
    if kernel.interrupted and answer.verdict is CaseVerdict.UNKNOWN:
        return NOT_YET
    if answer.findings:
        expected = ", expected" if answer.verdict is CaseVerdict.XFAIL else ""
        return f"{number(answer.failed)} of {number(answer.states)} broken{expected}"
    if answer.verdict is CaseVerdict.PASS:
        return f"{number(answer.states)} {VERDICT_WORDS[answer.verdict]}"
    return VERDICT_WORDS[answer.verdict]


def study_text(study: Study) -> str:
    """For the terminal: kernels across, cases down; then why a kernel or case has no answer, and what was
    found first.
    """
    kernels = study.kernels
    rows = [["", *(k.name or k.asked for k in kernels)]]
    rows += [[str(case), *(cell(k, case) for k in kernels)] for case in study.cases]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    table = ["  ".join(w.ljust(n) for w, n in zip(row, widths, strict=True)).rstrip() for row in rows]
    notes = [f"{k.asked}: {k.failed}" for k in kernels if k.failed]
    notes += [f"{k.asked}: not finished" for k in kernels if k.interrupted]
    notes += [
        f"{k.asked}: begun anew, so its answers are of this installation: {k.anew}" for k in kernels if k.anew
    ]
    notes += [f"{why}: {', '.join(who[:4])}{' ...' if len(who) > 4 else ''}" for why, who in _reasons(study)]
    return "\n".join([*table, "", headline(study), *notes, *_examples(study)])


def _reasons(study: Study) -> list[tuple[str, list[str]]]:
    """Why cases are undecided or were not run, and which ones on which kernel."""
    reasons: dict[str, list[str]] = {}
    for k in study.kernels:
        for a in k.answers:
            if a.reason:
                reasons.setdefault(a.reason, []).append(f"{k.name} {a.case}")
    return list(reasons.items())


def _examples(study: Study) -> list[str]:
    """Of each case the first finding of the newest kernel that shows it, with the command that repeats it."""
    lines = []
    for case, kernel, seen, again in _seen(study):
        lines += [f"{kernel} {case}: {seen.oracle}: {seen.summary}", f"reproduce: {again}"]
    return lines


def _seen(study: Study) -> list[tuple[CaseId, str, Seen, str]]:
    shown = []
    for case in study.cases:
        found = [(k, a) for k in study.kernels if (a := k.answer(case)) and a.shows(study.plan.oracle)]
        if found:
            kernel, answer = found[-1]
            seen = next(f for f in answer.findings if study.plan.oracle in ("", f.oracle))
            again = f"powercut repro {seen.point} --from {shlex.quote(full(kernel.run))}"
            shown.append((case, kernel.name, seen, again))
    return shown


@dataclass(frozen=True, slots=True)
class _Row:
    case: CaseId
    story: str
    cells: list[tuple[str, str, str]]  # class, words, details


@dataclass(frozen=True, slots=True)
class _Group:
    """Cases that did alike. `stories`: whether when a finding came and went is worth a column."""

    title: str
    folded: bool
    stories: bool
    rows: list[_Row]


def study_html(study: Study) -> str:
    """The page: one file that needs no network."""
    models = study.plan.plan.fault_models
    return template("releases.html", number=number).render(
        study=study,
        headline=headline(study),
        class_=_class(study),
        kernels=study.kernels,
        groups=_groups(study),
        seen=_seen(study),
        reasons=_reasons(study),
        folded=_FOLDED,
        limited="" if {"exhaustive", "sectors"} & set(models) else ", ".join(models),
        made_by=shlex.join(["powercut", *study.plan.argv]),
    )


def _class(study: Study) -> str:
    """The colour of the page: that of the worst answer."""
    if any(a.verdict is CaseVerdict.FAIL for k in study.kernels for a in k.answers):
        return "fail"
    return "pass" if study.decided and study.cases and not study.interrupted else "unknown"


def _groups(study: Study) -> list[_Group]:
    """What changed first, what every kernel kept last, in one line if it is much."""
    members: dict[_Kind, list[_Row]] = {kind: [] for kind in _Kind}
    for case in study.cases:
        told = story(study.kernels, case, study.plan.oracle)
        members[_kind(study, case)].append(_Row(case, told, [_shown(k, case) for k in study.kernels]))
    run = sum(bool(k.answers) for k in study.kernels)
    return [
        _Group(
            f"{plural(len(rows), 'case')} {_words(kind, run)}",
            kind in (_Kind.KEPT, _Kind.KNOWN) and len(rows) > _FOLDED,
            kind is _Kind.CHANGED,
            rows,
        )
        for kind, rows in members.items()
        if rows
    ]


def _shown(kernel: OnKernel, case: CaseId) -> tuple[str, str, str]:
    """A cell's class, words and details."""
    answer = kernel.answer(case)
    if answer is None:
        return "not-run", cell(kernel, case), kernel.failed
    told = [f"{f.oracle}: {f.summary}" for f in answer.findings[:3]]
    return str(answer.verdict.value), cell(kernel, case), answer.reason or "\n".join(told)


def strip_of(study: Study) -> Strip | None:
    """What a history adds to the report of the run whose finding it followed."""
    cases = study.cases
    if not study.plan.finding or len(cases) != 1:
        return None
    cells = []
    for kernel in study.kernels:
        answer = kernel.answer(cases[0])
        verdict = answer.verdict if answer else CaseVerdict.NOT_RUN
        why = _shown(kernel, cases[0])[2]
        cells.append(StripCell(kernel.name or kernel.asked, verdict, cell(kernel, cases[0]), why))
    return Strip(story(study.kernels, cases[0], study.plan.oracle), tuple(cells))


def write_reports(path: Path, study: Study) -> None:
    """Write report.html and summary.txt of a study."""
    write_atomically(path / "report.html", study_html(study).encode())
    write_atomically(path / "summary.txt", (study_text(study) + "\n").encode())
