"""A study for people: text for the terminal, and one page."""

from __future__ import annotations

from pathlib import Path

from harness.host.files import write_atomically
from harness.model import CaseId
from harness.releases.results import Answer, OnKernel, Study, story
from harness.report.pages import template
from harness.report.strip import Strip, StripCell
from harness.report.words import VERDICT_WORDS, number, plural, shown_path
from harness.summary import CaseVerdict

NOT_YET = "not yet"


def headline(study: Study) -> str:
    """What a study came to, in one line: of one case its story, of several how many change."""
    cases = study.cases
    if len(cases) == 1:
        return f"{cases[0]}: {story(study.kernels, cases[0], study.plan.oracle)}"
    kernels = [k for k in study.kernels if k.answers]
    changing = [c for c in cases if len({_decided(k.answer(c)) for k in kernels} - {None}) > 1]
    verb = "does" if len(changing) == 1 else "do"
    differ = f"{number(len(changing))} {verb} not have" if changing else "every case has"
    return (
        f"{plural(len(cases), 'case')} on {plural(len(kernels), 'kernel')}; {differ} the same answer on all"
    )


def _decided(answer: Answer | None) -> bool | None:
    if answer is None or answer.verdict in (CaseVerdict.UNKNOWN, CaseVerdict.NOT_RUN):
        return None
    return bool(answer.findings)


def cell(kernel: OnKernel, case: CaseId) -> str:
    """A kernel's answer in a cell: `3 of 91 broken`."""
    answer = kernel.answer(case)
    if answer is None:
        return VERDICT_WORDS[CaseVerdict.NOT_RUN] if kernel.failed else NOT_YET
    if answer.findings:
        return f"{number(answer.failed)} of {number(answer.states)} broken"
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
    reasons: dict[str, list[str]] = {}
    for k in kernels:
        for a in k.answers:
            if a.reason:
                reasons.setdefault(a.reason, []).append(f"{k.name} {a.case}")
    notes += [f"{why}: {', '.join(who[:4])}{' ...' if len(who) > 4 else ''}" for why, who in reasons.items()]
    return "\n".join([*table, "", headline(study), *notes, *_examples(study)])


def _examples(study: Study) -> list[str]:
    """Of each case the first finding of the newest kernel that shows it, with the command that repeats it."""
    shown = []
    for case in study.cases:
        found = [(k, a) for k in study.kernels if (a := k.answer(case)) and a.shows(study.plan.oracle)]
        if found:
            kernel, answer = found[-1]
            seen = next(f for f in answer.findings if study.plan.oracle in ("", f.oracle))
            shown.append(f"{kernel.name} {case}: {seen.oracle}: {seen.summary}")
            shown.append(f"reproduce: powercut repro {seen.point} --from {shown_path(Path(kernel.run))}")
    return shown


def study_html(study: Study) -> str:
    """The page: one file that needs no network."""
    return template("releases.html", number=number).render(
        study=study,
        headline=headline(study),
        kernels=study.kernels,
        rows=[
            (case, story(study.kernels, case, study.plan.oracle), [_shown(k, case) for k in study.kernels])
            for case in study.cases
        ],
        command=" ".join(["powercut", *study.plan.argv]),
    )


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
