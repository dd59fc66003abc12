"""A sweep as a page."""

from __future__ import annotations

import enum
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

import msgspec

from harness.model import CaseId
from harness.plan import LEGAL
from harness.releases.results import SCHEMA, Answer, OnKernel, Sweep, story
from harness.report.lines import full
from harness.report.page import Cell, Finding, Line, Page, PageTable, Section
from harness.report.strip import Strip, StripCell
from harness.report.words import VERDICT_WORDS, enumerated, number, plural
from harness.summary import CaseVerdict

NOT_YET = "not yet"
_FOLDED = 12  # more cases than this are one line until it is opened
_NAMED = 12
"""Cases that are named of those without an answer."""
_OF_THE_JOURNAL = frozenset({"type", "item", "at", "key"})


def _story(sweep: Sweep, case: CaseId) -> str:
    return story(sweep.kernels, case, sweep.plan.oracle, sweep.plan.symptom)


def headline(sweep: Sweep) -> str:
    """What a sweep came to, in one line: of one case its story, of several how many broke where."""
    cases = sweep.cases
    if len(cases) == 1:
        text = _story(sweep, cases[0])
        return text if str(cases[0]) in sweep.plan.title else f"{cases[0]}: {text}"
    kernels = [k for k in sweep.kernels if k.answers]
    count = Counter(_kind(sweep, case) for case in cases)
    open_ = sum(_is_open(sweep, c) for c in cases) - count[_Kind.OPEN]
    everywhere = _everywhere(sweep, cases)
    parts = [f"{number(count[kind])} {_words(kind, everywhere)}" for kind in _Kind if count[kind]]
    parts += [f"{number(open_)} of them not decided on every kernel"] * bool(open_)
    left_out = [k.title for k in sweep.kernels if k not in kernels]
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


def _kind(sweep: Sweep, case: CaseId) -> _Kind:
    answers = [a for k in sweep.kernels if (a := k.answer(case))]
    decided = {_decided(a) for a in answers} - {None}
    if len(decided) > 1:
        return _Kind.CHANGED
    if not decided:
        return _Kind.OPEN
    if decided == {False}:
        return _Kind.KEPT
    return _Kind.BROKEN if any(a.verdict is CaseVerdict.FAIL for a in answers) else _Kind.KNOWN


def _is_open(sweep: Sweep, case: CaseId) -> bool:
    """Whether a kernel that was run has not decided a case."""
    return any(_decided(k.answer(case)) is None for k in sweep.kernels if k.answers)


def _everywhere(sweep: Sweep, cases: Iterable[CaseId]) -> str:
    """Where these cases did alike, in words."""
    if any(_is_open(sweep, case) and _kind(sweep, case) is not _Kind.OPEN for case in cases):
        return " where decided"
    return {1: "", 2: " on both"}.get(sum(bool(k.answers) for k in sweep.kernels), " on all")


def _words(kind: _Kind, everywhere: str) -> str:
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
        expected = ", expected" * all(f.expected for f in answer.findings)
        left = "; not all decided" * answer.undecided
        return f"{number(answer.failed)} of {number(answer.states)} broken{expected}{left}"
    if answer.verdict is CaseVerdict.PASS:
        return f"{number(answer.states)} {VERDICT_WORDS[answer.verdict]}{', in part' * answer.in_part}"
    return VERDICT_WORDS[answer.verdict]


def _reasons(sweep: Sweep) -> list[tuple[str, list[str]]]:
    """Why cases are undecided or were not run, and which ones on which kernel."""
    reasons: dict[str, list[str]] = {}
    for k in sweep.kernels:
        for a in k.answers:
            if a.reason:
                reasons.setdefault(a.reason, []).append(f"{k.name} {a.case}")
    return list(reasons.items())


def _findings(sweep: Sweep) -> Iterator[Finding]:
    """Of each case one finding, a new one if there is one, of the newest kernel that shows such; with what is
    known of it, and the command that repeats it.
    """
    followed = (sweep.plan.oracle, sweep.plan.symptom)
    for case in sweep.cases:
        seen = [(k, f) for k in sweep.kernels if (a := k.answer(case)) for f in a.shown(*followed)]
        if not seen:
            continue
        new = [(k, f) for k, f in seen if f.is_new]
        kernel, _ = (new or seen)[-1]
        shown = next(f for k, f in new or seen if k is kernel)
        kernels = enumerated(list(dict.fromkeys(k.title for k, _ in seen)))
        known = f"known: {shown.known}" if shown.known else shown.loss
        expected = f"expected: {shown.expected}" if shown.expected else ""
        again = sweep.repro(kernel, shown)
        beside = "; ".join(filter(None, [kernels, known, expected, "" if again else sweep.where(kernel)]))
        yield Finding(
            str(case),
            (Line(shown.summary, oracle=shown.oracle, aside=beside),),
            commands=(f"reproduce: {again}",) if again else (),
            kind="xfail" if shown.expected else "fail",
        )


def page_of(sweep: Sweep) -> Page:
    """All of it. What changed comes first; what every kernel kept comes last, in one line if it is much."""
    models = sweep.plan.plan.fault_models
    own = f": those of the write log's own order ({', '.join(models)}), not all legal ones"
    limited = "" if LEGAL.keys() & set(models) else own
    if any(a.in_part for k in sweep.kernels for a in k.answers):
        limited += "; in part: the budget left out some"
    found = tuple(_findings(sweep))
    return Page(
        what="one kernel after another",
        subject=sweep.plan.title,
        headline=headline(sweep),
        kind=_class(sweep),
        notice="Interrupted: what was not finished, or not reached, is listed as such." * sweep.interrupted,
        sections=(
            Section(
                "Answers",
                "On each kernel, each case was recorded anew; a cell counts the crash states of that "
                f"recording{limited}.",
                tables=tuple(_tables(sweep)),
            ),
            Section(
                "What was found",
                "For each case one finding, a new one before a known one, of the last kernel that shows "
                "such; all kernels named beside it show one.",
                findings=found,
                folded=len(found) > _FOLDED,
            ),
            Section("No answer", lines=tuple(_no_answer(sweep))),
            Section("Kernels", lines=tuple(_kernel(sweep, k) for k in sweep.kernels)),
        ),
        command=shlex.join(["powercut", *sweep.plan.argv]),
        data=_for_programs(sweep),
    )


def _no_answer(sweep: Sweep) -> Iterator[Line]:
    for why, who in _reasons(sweep):
        more = f" and {number(len(who) - _NAMED)} more" if len(who) > _NAMED else ""
        yield Line(why, aside=", ".join(who[:_NAMED]) + more)


def _kernel(sweep: Sweep, k: OnKernel) -> Line:
    return Line(k.words, k.item, aside=sweep.where(k))


def _for_programs(sweep: Sweep) -> dict[str, object]:
    """`releases.json`. Paths are absolute."""
    kernels = [
        {
            "asked": k.item,
            **{name: value for name, value in msgspec.to_builtins(k).items() if name not in _OF_THE_JOURNAL},
            "run": full(run) if (run := sweep.run_of(k)) else "",
        }
        for k in sweep.kernels
    ]
    return {
        "schema": SCHEMA,
        "plan": sweep.plan,
        "kernels": kernels,
        "finished": sweep.finished or None,
        "interrupted": sweep.interrupted,
    }


def _class(sweep: Sweep) -> str:
    """The colour of the page: that of the worst answer."""
    if any(a.verdict is CaseVerdict.FAIL for k in sweep.kernels for a in k.answers):
        return "fail"
    return "pass" if sweep.decided and sweep.cases and not sweep.interrupted else "unknown"


def _tables(sweep: Sweep) -> Iterator[PageTable]:
    """Cases that did alike are a table. One case alone is a table of kernels."""
    members: dict[_Kind, list[CaseId]] = {}
    for case in sweep.cases:
        members.setdefault(_kind(sweep, case), []).append(case)
    for kind in [kind for kind in _Kind if kind in members]:
        cases = members[kind]
        title = f"{plural(len(cases), 'case')} {_words(kind, _everywhere(sweep, cases))}"
        if len(sweep.cases) == 1:
            shown = [(k.title, _cell(k, cases[0])) for k in sweep.kernels]
            rows = tuple((name, replace(c, detail=""), c.detail) for name, c in shown)
            yield PageTable(("kernel", "answer", "what was seen"), rows)
            continue
        stories = ("when it came and went",) if kind is _Kind.CHANGED else ()
        yield PageTable(
            ("case", *(k.title for k in sweep.kernels), *stories),
            tuple(
                (
                    str(case),
                    *(_cell(k, case) for k in sweep.kernels),
                    *(_story(sweep, case) for _ in stories),
                )
                for case in cases
            ),
            title,
            folded=kind in (_Kind.KEPT, _Kind.KNOWN) and len(cases) > _FOLDED,
        )


def _cell(kernel: OnKernel, case: CaseId) -> Cell:
    answer = kernel.answer(case)
    if answer is None:
        return Cell(cell(kernel, case), "not-run", kernel.failed)
    shown = [f"{f.oracle}: {f.summary}" for f in answer.findings[:3]]
    seen = "; ".join(filter(None, [*shown, answer.reason]))
    return Cell(cell(kernel, case), answer.verdict.value, seen)


def strip_of(sweep: Sweep) -> Strip | None:
    """What a history adds to the report of the run whose finding it followed."""
    cases = sweep.cases
    if not sweep.plan.finding or len(cases) != 1:
        return None
    cells = []
    for kernel in sweep.kernels:
        answer = kernel.answer(cases[0])
        verdict = answer.verdict if answer else CaseVerdict.NOT_RUN
        why = _cell(kernel, cases[0]).detail
        cells.append(StripCell(kernel.title, verdict, cell(kernel, cases[0]), why))
    return Strip(_story(sweep, cases[0]), tuple(cells))
