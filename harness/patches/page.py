"""What a patch came to, as a page to put under a mail."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from harness.host.text import one_line
from harness.kernels.commits import CommitRange, Revision
from harness.patches.questions import BUDGET, Stage, to_name
from harness.patches.ran import Piece, not_run
from harness.patches.results import (
    Answer,
    Broken,
    Culprit,
    Fate,
    Found,
    KernelTrial,
    LinesSeen,
    PatchPlan,
    Planted,
    Regression,
    Standing,
    how_far,
    unexpected,
)
from harness.report.junit import TestCase, cases_xml
from harness.report.lines import source_in
from harness.report.page import Cell, Finding, Line, Page, PageTable, Section
from harness.report.words import number, plural, seconds

_CLASSES = {Standing.NEW: "fail", Standing.IN_BASE: "xfail", Standing.UNDECIDED: "unknown"}
_NEW = (
    "The kernel of the last commit breaks these promises, and the kernel of the base keeps them in the same "
    "case. What one operation promises is one promise, also where several cases show it. The commit is the "
    "first that breaks it in the case that is named."
)
_IN_BASE = "The base breaks these as well, so the patch is not the cause."
_UNDECIDED = "The base could not be asked, so nothing is said of the patch."
_ASKED = (
    f"Each stage ran on the kernel of the last commit, in the legal crash states of each case, {BUDGET} "
    "recoveries a case at most. The base ran only the cases in which the last commit broke a promise: also "
    "under other schedules, where one recording of it does not tell whether an expected finding is new."
)
_PLANTED = (
    "Each row is the last commit with one more change, as a mistake of its author would be. A mistake is "
    "noticed if a case of the first stage then breaks a promise. A mistake that is not noticed marks a blind "
    "spot: the same mistake in the patch would not be reported."
)
_UNRUN = (
    "No workload and no recovery of these stages ran these lines, so a mistake in them cannot have shown. A "
    "line counts if it holds a statement or part of one: comments, data, macros and headers do not. Where "
    "lines were only removed, the code before and behind them counts."
)
_REVERTED = (
    "Each row is the last commit with one hunk as it was before the patch. Where a promise then breaks, that "
    "hunk keeps it. Where none does, these cases see no difference: as with code that does the same."
)
_DO_NOT_COUNT = {
    Fate.UNDECIDED: ("was not decided", "were not decided"),
    Fate.NO_KERNEL: ("does not build", "do not build"),
}
_NOT_ON_TOP = "not on top of the base, and so not tried"
_UNKNOWN = "no mode of Powercut is known to run it"
_FATES = {Fate.NOTICED: "pass", Fate.UNNOTICED: "fail", Fate.NO_KERNEL: "", Fate.UNDECIDED: "unknown"}


def headline(answer: Answer) -> str:
    """`no promise broken that the base keeps, in 1,204 crash states of 40 cases`"""
    shown = [d.case for t in answer.head.values() for d in unexpected(t)]  # also of a case cut short
    cases = len({case for t in answer.head.values() for case in t.cases}.union(shown))
    looked = f"{plural(answer.states, 'crash state')} of {plural(cases, 'case')}"
    if answer.new:
        return f"{plural(len(answer.new), 'promise')} broken that the base keeps, in {looked}."
    if not answer.states:
        return "nothing was looked at, so nothing is known."
    rest = [f"{plural(len(answer.undecided), 'case')} undecided"] * bool(answer.undecided)
    compared = sum(r.standing is Standing.UNDECIDED for r in answer.regressions)
    rest += [f"{plural(compared, 'finding')} not compared with the base"] * bool(compared)
    rest += ["the modes that were asked run none of the changed files"] * answer.plan.runs_none
    rest += ["none of the changed lines was run"] * answer.runs_no_line
    more = f"; {', '.join(rest)}" if rest else ""
    return f"no promise broken that the base keeps, in {looked}{more}."


def _ended(answer: Answer) -> str:
    if answer.plan.first and answer.new:
        return "it ended with its first finding"
    if answer.interrupted:
        return "it was interrupted"
    return "it ended" if answer.plan.minutes is None else "the time was up"


def page_of(answer: Answer) -> Page:
    plan, series = answer.plan, answer.plan.series
    left = answer.left
    kind = "fail" if answer.new else "pass" if answer.passes else "unknown"
    by = {s: [r for r in answer.regressions if r.standing is s] for s in Standing}
    not_done = [f"stages not done when {_ended(answer)}: {', '.join(s.name for s in left)}"] * bool(left)
    return Page(
        what="patch",
        subject=f"{series.head} against {series.base}",
        headline=headline(answer),
        kind=kind,
        figures=(
            f"{plural(len(series.commits), 'commit')}, {plural(len(series.changed), 'file')} changed; "
            f"asked in {', '.join(plan.stages[0].modes)}",
            *_expected(answer),
            *_noticed(answer),
            *([lines_in_words(answer.lines)] if answer.lines.lines else []),
            *not_done,
        ),
        notice="Interrupted: the stages that are left are listed as such." * answer.interrupted,
        sections=(
            Section(
                "Broken by this patch", _NEW, findings=tuple(_finding(answer, r) for r in by[Standing.NEW])
            ),
            Section("Also in the base", _IN_BASE, lines=tuple(_line(r) for r in by[Standing.IN_BASE])),
            Section(
                "Not compared with the base",
                _UNDECIDED,
                lines=tuple(_line(r) for r in by[Standing.UNDECIDED]),
            ),
            Section("Not decided", lines=tuple(Line(why, case) for case, why in answer.undecided.items())),
            Section(
                "Changed lines that nothing ran", _UNRUN, lines=tuple(Line(str(p)) for p in _unrun(answer))
            ),
            Section(
                "Mistakes planted in the patch", _PLANTED, tables=(_planted(answer.mistakes, "mistake"),)
            ),
            Section("Hunks as before the patch", _REVERTED, tables=(_planted(_reverted(answer), "hunk"),)),
            Section("What was asked", _ASKED, tables=(_asked(answer),)),
            Section("What was not asked", lines=tuple(_not_asked(answer))),
            Section(
                "The commits",
                lines=(
                    *(Line(f"brought by the first merge, {_NOT_ON_TOP}", str(c)) for c in _not_tried(series)),
                    *(Line(str(c)) for c in series.commits),
                ),
                in_text=False,
            ),
        ),
        command=shlex.join(["powercut", *plan.argv]),
        data={
            "plan": plan,
            "states": answer.states,
            "stages": dict(answer.head),
            "regressions": [_data(answer, r) for r in answer.regressions],
            "undecided": answer.undecided,
            "lines": _lines_data(answer),
            "mistakes": [
                {
                    "place": p.mistake.place,
                    "what": p.mistake.what,
                    "reverts": p.mistake.reverts,
                    "fate": p.fate,
                    "by": p.by,
                    "states": p.states,
                    "why": p.why,
                }
                for p in answer.planted
            ],
            "stages_left": [s.name for s in left],
            "interrupted": answer.interrupted,
        },
    )


def junit_of(answer: Answer) -> str:
    """A suite for each stage that was begun, and a test case for each case of it. What only the patch breaks
    is a failure; what its base breaks as well is skipped, as an expected failure is; what was not decided or
    not compared is an error.
    """
    told: dict[Found, list[Regression]] = defaultdict(list)
    for regression in answer.regressions:
        told[regression.found].append(regression)
    suites = {stage: list(_test_cases(answer, trial, told)) for stage, trial in answer.head.items()}
    for stage, trial in answer.head.items():
        if trial.failed:
            suites[stage].append(TestCase("powercut.patch", stage, "error", trial.failed))
    return cases_xml(f"powercut patch {answer.plan.series.head}", suites)


def _of(seen: Broken, told: Sequence[Regression]) -> list[Regression]:
    """What a finding is told as: by itself, or, if it is not expected, as others of its symptom, of which the
    new come first.
    """
    own = [r for r in told if any((d.case, d.id) == (seen.case, seen.id) for d in r.seen)]
    return own or ([] if seen.known else list(told[:1]))


def _test_cases(
    answer: Answer, trial: KernelTrial, told: Mapping[Found, Sequence[Regression]]
) -> Iterator[TestCase]:
    for case in dict.fromkeys([*trial.cases, *trial.undecided, *(d.case for d in unexpected(trial))]):
        mode, _, workload = case.partition("/")
        where = (f"powercut.{mode}", workload)
        of_case = (d for d in trial.detections if d.case == case)
        shown = {r for d in of_case for r in _of(d, told[d.oracle, d.symptom])}
        by = {s: [r for r in shown if r.standing is s] for s in Standing}
        text = "\n".join(_words_of(answer, r) for r in by[Standing.NEW])
        if new := by[Standing.NEW]:
            yield TestCase(*where, "failure", "; ".join(r.seen[0].summary for r in new), text)
        elif case in trial.undecided:
            yield TestCase(*where, "error", trial.undecided[case])
        elif by[Standing.UNDECIDED]:
            yield TestCase(*where, "error", "; ".join(map(str, map(_line, by[Standing.UNDECIDED]))))
        elif by[Standing.IN_BASE]:
            yield TestCase(*where, "skipped", "; ".join(map(str, map(_line, by[Standing.IN_BASE]))))
        else:
            yield TestCase(*where)


def _words_of(answer: Answer, told: Regression) -> str:
    finding = _finding(answer, told)
    return "\n".join(map(one_line, [finding.title, *map(str, finding.lines), *finding.commands]))


def _finding(answer: Answer, told: Regression) -> Finding:
    seen = told.seen[0]
    others = len(_cases(told)) - 1
    more = f", and {plural(others, 'more case')}" if others else ""
    return Finding(
        f"{seen.oracle}: {seen.summary}",
        (
            Line(f"first broken by {told.culprit}{_brought(answer, told.culprit)}"),
            Line(f"{seen.case}: {number(seen.states)} of {number(seen.of)} crash states{more}"),
            *_in_spite(seen),
            *_other_culprits(answer, told),
            Line(aside=f"found after {seconds(told.after_s)}, in stage {told.stage}"),
            *(Line(line) for line in answer.explained.get(told.found, ())),
        ),
        commands=tuple(_commands(answer, told)),
    )


def _in_spite(seen: Broken) -> Iterator[Line]:
    """Why a finding counts, although the base has one that is much like it, or is expected to."""
    if seen.known:
        yield Line(f"expected of this mode, but the base does not show it: {seen.known}")
    if seen.in_base:
        theirs, kept = (", ".join(map(str, numbers)) for numbers in (seen.in_base, seen.promised))
        yield Line(f"the base breaks what operation {theirs} promised, and keeps what operation {kept} did")


def _brought(answer: Answer, culprit: Culprit | None) -> str:
    """What it may be besides, where it may be a merge that brings commits that were not tried, or a commit
    that lacks what the base got since.
    """
    series, words = answer.plan.series, ""
    named = (*culprit.among, culprit.first) if culprit else ()
    left = _not_tried(series)
    if left and series.commits[0] in named:
        words += f"; {series.commits[0].short} brings {plural(len(left), 'commit')} {_NOT_ON_TOP}"
    if beside := [c.short for c in named if c in series.brought]:
        words += f"; not on top of the base, {', '.join(beside)} may show what the base has mended since"
    return words


def _not_tried(series: CommitRange) -> list[Revision]:
    return [c for c in series.brought if c not in series.commits]


def _other_culprits(answer: Answer, told: Regression) -> Iterator[Line]:
    """Of the cases beside the first: the commits that differ from its own, and what was not tried."""
    for case, culprit in told.culprits.items():
        if culprit != told.culprit:
            yield Line(f"{case}: first broken by {culprit}{_brought(answer, culprit)}")
    if left := len(_cases(told) - told.culprits.keys()):
        yield Line(f"which commit breaks {plural(left, 'more case')} first was not tried")


def _cases(told: Regression) -> set[str]:
    """Of several findings of one symptom, the cases that show them."""
    return {d.case for d in told.seen}


def _commands(answer: Answer, told: Regression) -> Iterator[str]:
    if told.run:
        run = source_in(answer.path / told.run)
        yield f"reproduce: powercut repro {told.seen[0].example} --from {run}"
        yield f"why: powercut show {told.seen[0].id} --from {run}"


def _line(told: Regression) -> Line:
    seen = told.seen[0]
    return Line(f"{seen.summary}{f' ({told.why})' if told.why else ''}", seen.case, seen.oracle)


def _asked(answer: Answer) -> PageTable:
    rows = []
    for stage in answer.plan.stages:
        trial = answer.head.get(stage.name)
        if trial is None:
            continue
        shown = sum(not d.known for d in trial.detections)
        how = how_far(trial)
        rows.append(
            (
                stage.name + _extra(stage),
                ", ".join(stage.modes),
                Cell(str(shown), "fail" if shown else ""),
                Cell(how, "pass" if how == "done" else "unknown"),
                number(len(trial.cases)),
                number(trial.states),
                seconds(trial.seconds),
            )
        )
    return PageTable(
        ("stage", "modes", "findings", "how far", "cases", "states", "time"), tuple(rows), figures=4
    )


def _expected(answer: Answer) -> Iterator[str]:
    """`12 of 14 expected findings were compared with the base; 2 were not (the base was not asked)`"""
    reasons = Counter(answer.expected)
    compared = reasons.pop("", 0)
    rest = (f"{number(n)} {'was' if n == 1 else 'were'} not ({why})" for why, n in reasons.items())
    if answer.expected:
        told = (
            f"{number(compared)} of {plural(len(answer.expected), 'expected finding')} compared with the base"
        )
        yield "; ".join([told, *rest])


def _noticed(answer: Answer) -> Iterator[str]:
    """`11 of 14 mistakes that were planted in the patch were noticed; beside them, 2 do not build`"""
    fates = Counter(p.fate for p in answer.mistakes)
    rest = (f"{n} {words[n != 1]}" for fate, words in _DO_NOT_COUNT.items() if (n := fates[fate]))
    beside, tried = ", ".join(rest), plural(len(answer.built), "mistake")
    if answer.built:
        told = f"{fates[Fate.NOTICED]} of {tried} that were planted in the patch were noticed"
        yield f"{told}; beside them, {beside}" if beside else told
    elif beside:
        yield f"none of the mistakes that were planted in the patch counts: {beside}"


def lines_in_words(seen: LinesSeen) -> str:
    """`12 of 14 changed lines were run, 3 of them in recoveries (quick)`"""
    stages = ", ".join(seen.stages) or "what was looked at when the time was up"
    ran = f"{number(seen.ran)} of {plural(len(seen.lines), 'changed line')} were run"
    return f"{ran}, {number(seen.recovering)} of them in recoveries ({stages})"


def _unrun(answer: Answer) -> Iterator[Piece]:
    """Nothing as long as no stage was looked at to its end: a line may run in the rest."""
    if answer.lines.stages:
        yield from not_run(answer.lines.lines, answer.plan.lines)


def _lines_data(answer: Answer) -> dict[str, object]:
    seen = answer.lines
    return {
        "of": len(seen.lines),
        "ran": seen.ran,
        "in_recoveries": seen.recovering,
        "stages": seen.stages,
        "not_run": list(_unrun(answer)),
        "why": seen.why,
    }


def _reverted(answer: Answer) -> list[Planted]:
    return [p for p in answer.planted if p.mistake.reverts]


def _planted(planted: Sequence[Planted], what: str) -> PageTable:
    rows = [
        (
            p.mistake.place,
            p.mistake.what,
            Cell(p.word, "" if p.mistake.reverts else _FATES[p.fate], p.why),
            f"{p.by.case}: {p.by.oracle}" if p.by else "",
            number(p.states),
        )
        for p in sorted(planted, key=lambda p: (list(_FATES).index(p.fate) != 1, p.fate))
    ]
    return PageTable(("place", what, "result", "by", "states"), tuple(rows), figures=4)


def _extra(stage: Stage) -> str:
    again = f", recoveries cut {stage.again} deep" if stage.again else ""
    return again + (f", on a faulty disk ({', '.join(stage.disk)})" if stage.disk else "")


def _not_asked(answer: Answer) -> Iterator[Line]:
    for stage in answer.left:
        begun = stage.name in answer.head
        yield Line("not to its end" if begun else "not begun", f"{stage.name}{_extra(stage)}")
    for file in answer.plan.nobodys:
        yield Line(why_not_asked(answer.plan, file), file)
    if answer.plan.lines and not answer.lines.stages:
        yield Line("which changed lines run" + (f" ({answer.lines.why})" if answer.lines.why else ""))
    for file in answer.lines.stages and sorted(answer.unmarked):
        yield Line("whether its changed lines run", file)
    if more := sum(not m.reverts for m in answer.plan.mistakes) - len(answer.mistakes):
        yield Line(f"{plural(more, 'more mistake')} that could be planted in the patch")
    if more := sum(m.reverts for m in answer.plan.mistakes) - len(_reverted(answer)):
        yield Line(f"{plural(more, 'more hunk')} as before the patch")
    yield Line("schedules other than the recorded one of each case")


def why_not_asked(plan: PatchPlan, file: str) -> str:
    """Of a changed file that no mode of the plan runs."""
    mode = plan.named.get(file)
    return f"what runs it is asked only if it is named: {to_name([mode])}" if mode else _UNKNOWN


def _data(answer: Answer, told: Regression) -> dict[str, object]:
    return {
        "standing": told.standing,
        "oracle": told.found[0],
        "symptom": told.found[1],
        "seen": told.seen,
        "stage": told.stage,
        "seconds": told.after_s,
        "why": told.why,
        "commit": told.culprit.first.id if told.culprit and not told.culprit.among else None,
        "by_case": {
            case: [c.id for c in (*culprit.among, culprit.first)] for case, culprit in told.culprits.items()
        },
        "among": [c.id for c in (*told.culprit.among, told.culprit.first)] if told.culprit else [],
        "explained": answer.explained.get(told.found, ()),
    }
