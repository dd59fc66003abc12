"""report.html: a single self-contained file that needs no network.

This module decides what to show; `reports/templates/report.html` decides how it looks. The template escapes
everything: paths, kernel messages and workload names are untrusted text.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from markupsafe import Markup

from harness.cases import application
from harness.filesystems.profiles import ANY
from harness.model import CaseId
from harness.report import words
from harness.report.explanation import LABELS, Explanation, heading_of, read_explanation, shown_at
from harness.report.faulty_disk import OUTCOMES, faulty_disk_tables
from harness.report.ladder import ladder_svg
from harness.report.lines import can_be_shrunk, commands, explain, reproduce, resume_of, shrink
from harness.report.next_step import next_step
from harness.report.pages import begun, sentence, template
from harness.report.recovery_code import headline as recovery_headline
from harness.report.recovery_code import unreached_by_file
from harness.report.shrunk import shrunk_file
from harness.report.sides import MARK_WORDS, byte_rows, side_words
from harness.report.similar import SimilarFindings, similar
from harness.report.strip import Strip, read_strip
from harness.report.timeline import Timeline, draw
from harness.report.trend import Past, trends
from harness.store import RunStore
from harness.store.records import CaseRecord, Coverage, Evidence, Finding, Step
from harness.store.recovery_code import read_recovery_code
from harness.summary import CaseSummary, CaseVerdict, Summary, shell_code, worst

_SHOWN_LINES = 60  # of a kernel log or fsck output; findings/<id>/ has the full text
_OPEN_CASES = 6  # open at once; a page full of open cases hides the next one
_OPEN_FINDINGS = 3  # open per case
_OPEN_GROUPS = 8  # of findings that look alike; the others are folded
_OPEN_ROWS = 30  # cases with unexplored choices that are named
_FOLDED_GROUP = 8  # more passing cases than this are folded into one line
_FUNCTIONS = {
    "words": words,
    "begun": begun,
    "byte_rows": byte_rows,
    "side_words": side_words,
    "mark_words": MARK_WORDS,
    "explanation_labels": LABELS,
    "at_their_end": (application.CALLS,),
    "shown_at": shown_at,
}
"""What the templates need beside what they are given."""


@dataclass(frozen=True, slots=True)
class FindingView:
    """A finding as the page shows it. `follows`: it is seen at the state of the one in front of it. `state`:
    in words, if it is one by times. `shrink`: the command that makes the workload short, for the first
    finding of a case. `shrunk`: the operations of the short one, if there is one already. `commands`: `why:
    ...`, if nobody has explained it, and `reproduce: ...`.
    """

    finding: Finding
    open: bool
    history: Sequence[tuple[str, Step | None]]
    evidence: Evidence | None
    texts: Mapping[str, str]
    strip: Strip | None
    explanation: Explanation | None
    ladder: Markup | str
    notes: Sequence[tuple[str, str]] = ()
    follows: bool = False
    shrink: str = ""
    state: str = ""
    shrunk: Sequence[str] = ()
    commands: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CaseView:
    """A case as the page shows it."""

    summary: CaseSummary
    anchor: str
    timeline: Timeline | None
    findings: Sequence[FindingView]
    unknown: Sequence[tuple[str, str, str]]  # states, reason, reproduce
    how: Sequence[tuple[str, str]]  # states, how their verdict was reached
    pace: str
    trend: Sequence[Past] = ()

    @property
    def urgent(self) -> bool:
        """Whether it should be open when the page loads."""
        return self.summary.verdict in (CaseVerdict.FAIL, CaseVerdict.UNKNOWN) and bool(
            self.findings or self.unknown
        )


@dataclass(frozen=True, slots=True)
class LeftOutView:
    """What was covered, in one line, and what was not: `cases` with most unexplored, with their anchors and
    how far each was covered, and how many `more`. `explored`: some had their legal states explored; `open`:
    something of what was begun was left.
    """

    covered: str
    complete: bool
    explored: bool
    open: bool
    cases: Sequence[tuple[CaseSummary, str, str]]
    more: int


def report_html(summary: Summary, store: RunStore, source: str, *, live: str | None = None) -> str:
    """The page. `source`: the run's path for reproduce commands. `live`: with links to every state, for
    `powercut report --serve`.
    """
    page = template(
        "report.html", _FUNCTIONS, number=words.number, seconds=words.seconds, pieces=words.pieces
    )
    before = trends(store.path, summary.info.started, [c.case for c in summary.cases])
    cases = [
        replace(_case(store, record, c, source, summary.packed), trend=before.get(c.case, ()))
        for record, c in zip(store.cases(), summary.cases, strict=True)
    ]
    groups, cases = _together(cases)
    not_explained = {g.example.id: explain(g.example, source) for g in groups if not g.why}
    code = read_recovery_code(store.layout)
    return page.render(
        summary=summary,
        info=summary.info,
        again=resume_of(store, words.shown_path(store.path)),
        headline=_headline(summary),
        verdict=_verdict(summary),
        rules_alone=words.rules_alone(summary),
        matrix=words.Matrix.of(summary),
        targets=_targets(cases),
        groups=list(_groups(cases)),
        exit_code=shell_code(summary),
        not_checked=words.together(c for c in summary.cases if c.undecided)
        + words.together(c for c in summary.cases if c.verdict is CaseVerdict.NOT_RUN),
        left_out=_left_out(cases),
        next_step=next_step(summary),
        recovery=code and recovery_headline(code),
        unreached=unreached_by_file(code) if code else {},
        recovery_command=shlex.join(["powercut", "coverage", words.shown_path(store.path)]),
        faulty_disk=faulty_disk_tables([c.info for c in summary.cases], source),
        outcomes=OUTCOMES,
        facts=_facts(summary),
        similar=groups,
        open_groups=_OPEN_GROUPS,
        live=live,
        not_explained=not_explained,
    )


def finding_html(store: RunStore, c: CaseSummary, finding: Finding, source: str) -> str:
    """A page of one finding, to be kept or sent: the same as in the run's page. `source`: as there."""
    page = template("one.html", _FUNCTIONS, number=words.number)
    view = _finding(store, c, finding, source, None, True)
    return page.render(view=view, info=store.info, case=c.info, live=None)


def _together(cases: Sequence[CaseView]) -> tuple[list[SimilarFindings], list[CaseView]]:
    """The findings that look alike; and the cases with only one finding of each such group open."""
    views = [v for c in cases for v in c.findings]
    groups = similar(
        [v.finding for v in views], {v.finding.id: v.explanation for v in views if v.explanation}
    )
    examples = {g.example.id for g in groups}
    return groups, [
        replace(c, findings=[replace(v, open=v.open and v.finding.id in examples) for v in c.findings])
        for c in cases
    ]


def _headline(summary: Summary) -> tuple[str, str]:
    """What was tested, and the result."""
    subject, _, answer = words.headline(summary).partition(": ")
    first = answer.partition(" ")[0]
    named = "/" in first or first in words.workloads(summary)  # such a name stays as it is
    return subject, answer if named else sentence(answer)


def _verdict(summary: Summary) -> CaseVerdict:
    if not summary.checked:
        return CaseVerdict.UNKNOWN
    seen = worst(c.verdict for c in summary.cases)
    if summary.interrupted and seen is not CaseVerdict.FAIL:
        return CaseVerdict.UNKNOWN
    if summary.missing and seen in (CaseVerdict.PASS, CaseVerdict.XFAIL):
        return CaseVerdict.UNKNOWN
    return CaseVerdict.PASS if seen is CaseVerdict.XFAIL else seen


def _case(
    store: RunStore, record: CaseRecord, c: CaseSummary, source: str, packed: CaseId | None
) -> CaseView:
    # Hundreds of timelines of passing cases would make the page too large to open.
    drawn = c.verdict is not CaseVerdict.PASS or not c.case.is_generated
    return CaseView(
        summary=c,
        anchor=f"case-{c.case.filesystem}-{c.case.mode}-{c.case.workload}",
        timeline=_timeline(store, record, c) if drawn else None,
        findings=_findings(store, c, source, packed),
        unknown=[
            (words.plural(r.states, "state"), r.reason, reproduce(c.case, r.example, source))
            for r in c.unknown_reasons
        ],
        how=[(words.number(count), words.how_judged(c.case)[how]) for how, count in c.by_how.items()],
        pace=words.pace(c.counts.checked, c.seconds),
    )


def _timeline(store: RunStore, record: CaseRecord, c: CaseSummary) -> Timeline | None:
    verdicts = list(store.iter_verdicts(record.case))
    return draw(store.timeline(record.case), c.info.steps, verdicts, c.findings, c.info.calls)


def _findings(store: RunStore, c: CaseSummary, source: str, packed: CaseId | None) -> list[FindingView]:
    """Unexpected findings first. The first few are open; in a case that fails as expected, only the first."""
    ordered = sorted(c.findings, key=lambda f: f.expectation is not None)
    opened = _OPEN_FINDINGS if c.verdict is CaseVerdict.FAIL else 1
    views = []
    for i, group in enumerate(words.grouped(ordered)):
        views += [_finding(store, c, f, source, packed, i < opened and f is group[0]) for f in group]
    follows = {f.id for group in words.grouped(ordered) for f in group[1:]}
    views = [replace(view, follows=view.finding.id in follows) for view in views]
    here = packed in (None, c.case) and not (views and views[0].shrunk)
    if views and here and views[0].finding.expectation is None and can_be_shrunk(c.info):
        views[0] = replace(views[0], shrink=shrink(views[0].finding.crash_point, source))
    return views


def _finding(
    store: RunStore, c: CaseSummary, f: Finding, source: str, packed: CaseId | None, opened: bool
) -> FindingView:
    evidence = store.evidence(f)
    explanation = read_explanation(store.layout, f.id)
    shrunk = shrunk_file(store.layout, f)
    return FindingView(
        finding=f,
        open=opened,
        history=tuple(words.history_around(c.info.steps, f.state.prefix)),
        evidence=evidence,
        texts={"Kernel log": _tail(evidence.kernel_log), "fsck": _tail(evidence.fsck)} if evidence else {},
        strip=read_strip(store.layout, f.id),
        explanation=explanation,
        ladder=ladder_svg(explanation) if explanation else "",
        notes=_notes(f, evidence, explanation),
        state=words.state_words(f.state, words.device_of(store.timeline(f.case)))
        if f.state.persisted and f.case.filesystem != ANY  # whose entries are no writes
        else "",
        shrunk=shrunk.operations if shrunk else (),
        commands=commands(f, source, packed)[-1 if explanation else 0 :],
    )


def _notes(
    finding: Finding, evidence: Evidence | None, explanation: Explanation | None
) -> list[tuple[str, str]]:
    """What an application's finding has beside it: acknowledgements, calls, and the files that came back."""
    known = evidence.notes if evidence else {}
    return [(heading_of(h, finding, explanation), known[h]) for h in application.HEADINGS if h in known]


def _tail(text: str) -> str:
    lines = text.rstrip("\n").splitlines()
    left_out = len(lines) - _SHOWN_LINES
    return "\n".join([f"({left_out} lines omitted)", *lines[-_SHOWN_LINES:]] if left_out > 0 else lines)


def _targets(cases: Sequence[CaseView]) -> dict[CaseId, str]:
    """What leads to a case: its first finding, or the case."""
    return {c.summary.case: f"finding-{c.findings[0].finding.id}" if c.findings else c.anchor for c in cases}


def _cuts(view: CaseView) -> list[Coverage]:
    return [cut.coverage for cut in view.summary.info.again]


def _open_row(view: CaseView) -> tuple[int, CaseView, str] | None:
    """How many states of a case were left out, also where its recoveries were cut, and which; None: none."""
    own, cuts = view.summary.info.coverage, _cuts(view)
    told = [words.covered(own)] if own and not own.exhaustive else []
    told += words.in_cuts(cuts)
    return (sum(c.unexplored for c in (own, *cuts) if c), view, ", ".join(told)) if told else None


def _left_out(cases: Sequence[CaseView]) -> LeftOutView | None:
    """None if no crash state was checked."""
    views = [view for view in cases if view.summary.counts.checked]
    if not views:
        return None
    known = [view.summary.info.coverage for view in views if view.summary.has_extent]
    not_ended = len(views) - len(known)
    some = [row for view in views if (row := _open_row(view))]
    if not any(known) and not some and not not_ended:
        return LeftOutView("the write log's own order, in every case", False, False, False, (), 0)
    some.sort(key=lambda row: -row[0])
    every = [c for view in views for c in (view.summary.info.coverage, *_cuts(view)) if c]
    return LeftOutView(
        ", ".join([words.extent(known, not_ended), *words.in_cuts(c for view in views for c in _cuts(view))]),
        not some and all(known) and not not_ended,
        any(c.crash_times for c in every),
        any(c.unexplored for c in every),
        [(view.summary, view.anchor, text) for _, view, text in some[:_OPEN_ROWS]],
        len(some[_OPEN_ROWS:]),
    )


_GROUP_TITLES = {
    (CaseVerdict.FAIL, False): "broke a promise",
    (CaseVerdict.FAIL, True): "lost or damaged what the workload acknowledged, says its own check",
    (CaseVerdict.UNKNOWN, False): "could not be decided",
    (CaseVerdict.XFAIL, False): "broke a promise, as expected",
    (CaseVerdict.XFAIL, True): "lost or damaged what the workload acknowledged, as expected",
    (CaseVerdict.PASS, False): "kept every promise",
}
"""By verdict, worst first, and whether only the workload's own check failed."""


def _groups(cases: Sequence[CaseView]) -> Iterator[tuple[str, bool, list[tuple[CaseView, bool]]]]:
    """Cases that were run, worst first: the ones a reader looks for are at the top, open. A title for those
    of a verdict, whether they are folded into it, and each with whether it is open.
    """
    left = _OPEN_CASES
    for (verdict, own), what in _GROUP_TITLES.items():
        members = [
            c for c in cases if c.summary.verdict is verdict and words.only_own_check_failed(c.summary) is own
        ]
        opened = [c.urgent for c in members]
        opened = [wish and sum(opened[: i + 1]) <= left for i, wish in enumerate(opened)]
        left -= sum(opened)
        if members:
            good = verdict in (CaseVerdict.XFAIL, CaseVerdict.PASS)
            title = f"{words.plural(len(members), 'case')} {what}"
            yield title, good and len(members) > _FOLDED_GROUP, list(zip(members, opened, strict=True))


def _facts(summary: Summary) -> list[tuple[str, str]]:
    """How the run was made, as (name, value); empty values are left out."""
    info = summary.info
    facts = [
        ("Kernel", " ".join(filter(None, [words.kernel_name(info), info.kernel.version]))),
        ("Given as", info.kernel.name),
        ("SHA-256", info.kernel.sha256),
        *((sentence(name), value) for name, value in info.kernel.details.items()),
        ("Machine", f"{words.machine_name(info)}, {words.plural(info.machine.cpus, 'CPU')} per guest"),
        *((sentence(name), value) for name, value in info.machine.details.items()),
        ("Jobs", str(info.jobs)),
        ("Verdicts", words.how_reached(summary)),
        ("Less than asked", words.less_than_asked(c.info for c in summary.cases)),
        ("Recoveries", words.recoveries_cut(c.info for c in summary.cases)),
        ("Guests", words.pace(summary.checked, sum(c.seconds for c in summary.cases))),
        ("Host", info.host),
        ("Powercut", " at ".join(filter(None, [info.powercut, info.git_head]))),
        ("Command", _command(info.argv)),
        ("Started", _time(info.started)),
        ("Finished", _time(info.finished) if info.finished else "it did not finish"),
    ]
    if info.finished:
        facts.append(("Took", words.seconds((info.finished - info.started).total_seconds())))
    return [(name, value) for name, value in facts if value]


def _command(argv: Sequence[str]) -> str:
    """The command line, to be pasted. `argv` has no program, but for pytest's."""
    return shlex.join(argv if argv[:1] == ("pytest",) else ("powercut", *argv))


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
