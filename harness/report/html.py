"""report.html: one file, without network, for people.

What is computed here is only what to show; how it looks is `reports/templates/report.html`. The template
escapes everything: paths, kernel messages and workload names are foreign text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import jinja2

from harness.report import words
from harness.report.timeline import Timeline, draw
from harness.resources import resource
from harness.store import CaseRecord, Evidence, Finding, RunStore, Step
from harness.summary import WORST_FIRST, CaseSummary, CaseVerdict, Summary, exit_code, worst

_SHOWN_LINES = 60  # of a kernel log or an fsck's output; the whole stands in findings/<id>/


@dataclass(frozen=True, slots=True)
class FindingView:
    """A finding as the page shows it."""

    finding: Finding
    where: str
    reproduce: str
    history: Sequence[tuple[str, Step | None]]
    evidence: Evidence | None
    kernel_log: str
    fsck: str


@dataclass(frozen=True, slots=True)
class CaseView:
    """A case as the page shows it."""

    summary: CaseSummary
    anchor: str
    timeline: Timeline | None
    findings: Sequence[FindingView]
    unknown: Sequence[tuple[str, str, str]]  # states, reason, reproduce
    how: Sequence[tuple[str, str]]  # states, how they were come by

    @property
    def open(self) -> bool:
        """Whether a reader wants to see it at once."""
        return self.summary.verdict in (CaseVerdict.FAIL, CaseVerdict.UNKNOWN) and bool(
            self.findings or self.unknown
        )


@dataclass(frozen=True, slots=True)
class ModeView:
    """A row of the matrix."""

    filesystem: str
    mode: str
    verdict: CaseVerdict
    cells: Sequence[CaseView | None]


def report_html(summary: Summary, store: RunStore, source: str) -> str:
    """The page. `source`: the run's path as reproduce commands shall give it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resource("reports", "templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: words.printable(value) if type(value) is str else value,
    )
    environment.filters.update(number=words.number, seconds=words.seconds)
    cases = [_case(store, record, c, source) for record, c in zip(store.cases(), summary.cases, strict=True)]
    return environment.get_template("report.html").render(
        summary=summary,
        info=summary.info,
        headline=_headline(summary),
        verdict=_verdict(summary),
        modes=_modes(cases, words.workloads(summary)),
        workloads=words.workloads(summary),
        cases=cases,
        cases_worst_first=_worst_first(cases),
        verdict_words=words.VERDICT_WORDS,
        exit_code=int(exit_code(summary)),
        exit_words=words.EXIT_WORDS[exit_code(summary)],
        open_cases=[c for c in summary.cases if c.undecided],
        not_run=[c for c in summary.cases if c.verdict is CaseVerdict.NOT_RUN],
        facts=_facts(summary),
        source=source,
        started=_time(summary.info.started),
    )


def _headline(summary: Summary) -> tuple[str, str]:
    """What was tested, and the answer."""
    subject, _, answer = words.headline(summary).partition(": ")
    return subject, answer[:1].upper() + answer[1:]


def _verdict(summary: Summary) -> CaseVerdict:
    if not summary.checked:
        return CaseVerdict.UNKNOWN
    seen = worst(c.verdict for c in summary.cases)
    if summary.interrupted and seen is not CaseVerdict.FAIL:
        return CaseVerdict.UNKNOWN
    return CaseVerdict.PASS if seen is CaseVerdict.XFAIL else seen


def _case(store: RunStore, record: CaseRecord, c: CaseSummary, source: str) -> CaseView:
    verdicts = list(store.iter_verdicts(record.case))
    return CaseView(
        summary=c,
        anchor=f"case-{c.case.filesystem}-{c.case.mode}-{c.case.workload}",
        timeline=draw(store.timeline(record.case), c.info.steps, verdicts, c.findings),
        findings=[_finding(store, c, f, source) for f in c.findings],
        unknown=[
            (words.plural(r.states, "state"), r.reason, words.reproduce(c.case, r.example, source))
            for r in c.unknown_reasons
        ],
        how=[(words.number(count), words.HOW_WORDS[how]) for how, count in c.by_how.items()],
    )


def _finding(store: RunStore, c: CaseSummary, f: Finding, source: str) -> FindingView:
    evidence = store.evidence(f)
    return FindingView(
        finding=f,
        where=words.where(f),
        reproduce=words.reproduce(f.case, f.state, source),
        history=tuple(words.history_around(c.info.steps, f.state.prefix)),
        evidence=evidence,
        kernel_log=_tail(evidence.kernel_log) if evidence else "",
        fsck=_tail(evidence.fsck) if evidence else "",
    )


def _tail(text: str) -> str:
    lines = text.rstrip("\n").splitlines()
    left_out = len(lines) - _SHOWN_LINES
    return "\n".join([f"({left_out} lines before)", *lines[-_SHOWN_LINES:]] if left_out > 0 else lines)


def _modes(cases: Sequence[CaseView], workloads: Sequence[str]) -> list[ModeView]:
    rows: dict[tuple[str, str], dict[str, CaseView]] = {}
    for view in cases:
        case = view.summary.case
        rows.setdefault((case.filesystem, case.mode), {})[case.workload] = view
    return [
        ModeView(
            filesystem,
            mode,
            worst(v.summary.verdict for v in by_workload.values()),
            [by_workload.get(name) for name in workloads],
        )
        for (filesystem, mode), by_workload in rows.items()
    ]


def _worst_first(cases: Sequence[CaseView]) -> list[CaseView]:
    """Those that were run; what a reader has come for stands first."""
    order = [v for v in WORST_FIRST if v is not CaseVerdict.NOT_RUN]
    return [c for verdict in order for c in cases if c.summary.verdict is verdict]


def _facts(summary: Summary) -> list[tuple[str, str]]:
    """How the run was made: name and value, without the empty ones."""
    info = summary.info
    facts = [
        ("Kernel", " ".join(filter(None, [words.kernel_name(info), info.kernel.version]))),
        ("Given as", info.kernel.name),
        ("SHA-256", info.kernel.sha256),
        *((name.capitalize(), value) for name, value in info.kernel.details.items()),
        ("Machine", f"{words.machine_name(info)}, {words.plural(info.machine.cpus, 'CPU')} a guest"),
        *((name.capitalize(), value) for name, value in info.machine.details.items()),
        ("Jobs", str(info.jobs)),
        ("Host", info.host),
        ("Powercut", " at ".join(filter(None, [info.powercut, info.git_head]))),
        ("Command", " ".join(info.argv)),
        ("Started", _time(info.started)),
        ("Finished", _time(info.finished) if info.finished else "it did not finish"),
    ]
    if info.finished:
        facts.append(("Took", words.seconds((info.finished - info.started).total_seconds())))
    return [(name, value) for name, value in facts if value]


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
