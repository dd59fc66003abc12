"""junit.xml in the shape fstests writes: one testsuite per file system and mode, one testcase per workload.

An expected failure is `<skipped type="powercut.xfail" message="...">`, as in pytest: GitLab, Jenkins
and GitHub reporters then show it apart from the passes, with its reason, and leave the build green. The
finding's text and its reproduce line are in `<system-out>`. An undecided case is an `<error>`: a pass would
be wrong, and a failure would accuse the kernel. So is a case that had to be run and was not, and a run that
is no pass though each of its cases is: the file is green only where the exit code is.
Where a run ended with TIME_UP, which a job may pass, the cases that its time did not reach are `<skipped>`.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Literal

from harness.errors import ExitCode
from harness.host.text import indented, one_line, printable
from harness.known.words import NEW
from harness.report.lines import commands, reproduce
from harness.report.words import kernel_name, known_lines, plural, red_as_a_whole, where
from harness.store.records import Finding
from harness.summary import CaseSummary, CaseVerdict, Summary, shell_code


@dataclass(frozen=True, slots=True)
class TestCase:
    """A test case of what is no run. `kind`: what became of it ("": passed), with a message and a text."""

    classname: str
    name: str
    kind: Literal["", "failure", "error", "skipped"] = ""
    message: str = ""
    text: str = ""


def cases_xml(name: str, suites: Mapping[str, Sequence[TestCase]]) -> str:
    """Test cases in suites as JUnit XML. `name`: of all of them."""
    root = ET.Element("testsuites", {"name": printable(name)})
    for suite, cases in suites.items():
        kinds: list[str] = [c.kind for c in cases]
        counts = {"failures": "failure", "errors": "error", "skipped": "skipped"}
        told = {key: str(kinds.count(kind)) for key, kind in counts.items()}
        element = ET.SubElement(
            root, "testsuite", {"name": printable(suite), "tests": str(len(cases)), **told}
        )
        for case in cases:
            where = {"classname": printable(case.classname), "name": printable(case.name)}
            of_it = ET.SubElement(element, "testcase", where)
            if case.kind:
                _add(of_it, case.kind, case.message, f"powercut.{case.kind}", case.text)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def junit_xml(summary: Summary, source: str) -> str:
    """The run as JUnit XML. `source`: the run's path for reproduce commands."""
    root = ET.Element("testsuites", {"name": printable(f"powercut {summary.run}")})
    by_mode: dict[tuple[str, str], list[CaseSummary]] = {}
    for case in summary.cases:
        by_mode.setdefault((case.case.filesystem, case.case.mode), []).append(case)
    for cases in by_mode.values():
        root.append(_suite(summary, cases, source))
    if why := red_as_a_whole(summary):
        suite = ET.SubElement(root, "testsuite", {"name": "powercut", "tests": "1", "errors": "1"})
        whole = ET.SubElement(suite, "testcase", {"classname": "powercut", "name": "run"})
        _add(whole, "error", why, "powercut.run", "")
    totals = {
        name: str(sum(int(s.get(name, "0")) for s in root))
        for name in ("tests", "failures", "errors", "skipped")
    }
    root.attrib.update(totals, time=_seconds(summary.cases))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(summary: Summary, cases: list[CaseSummary], source: str) -> ET.Element:
    verdicts = [c.verdict for c in cases]
    missing = sum(c in summary.missing for c in cases)
    not_reached = sum(_time_was_up(summary, c) for c in cases)
    skipped = verdicts.count(CaseVerdict.NOT_RUN) + verdicts.count(CaseVerdict.XFAIL) - missing
    suite = ET.Element(
        "testsuite",
        {
            "name": cases[0].case.configuration,
            "tests": str(len(cases)),
            "failures": str(verdicts.count(CaseVerdict.FAIL)),
            "errors": str(verdicts.count(CaseVerdict.UNKNOWN) - not_reached + missing),
            "skipped": str(skipped + not_reached),
            "time": _seconds(cases),
            "timestamp": f"{summary.info.started.astimezone(UTC):%Y-%m-%dT%H:%M:%S}",
            "hostname": "localhost",  # the form has to have one; a run keeps no host's name
        },
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("KERNEL", kernel_name(summary.info)),
        ("FSTYP", cases[0].case.filesystem),
        ("MKFS_OPTIONS", cases[0].info.mkfs_options),
        ("MOUNT_OPTIONS", cases[0].info.mount_options),
        ("MACHINE", " ".join(filter(None, [summary.info.machine.kind, summary.info.machine.accel]))),
        ("HOST", summary.info.host),
        ("POWERCUT", summary.info.powercut),
    ):
        ET.SubElement(properties, "property", {"name": name, "value": printable(value)})
    suite.extend(_testcase(summary, c, source) for c in cases)
    return suite


def _time_was_up(summary: Summary, c: CaseSummary) -> bool:
    """Whether nothing but the time that the run was given is why a case is undecided, and the exit code says
    no more than that.
    """
    return shell_code(summary) is ExitCode.TIME_UP and c.verdict is CaseVerdict.UNKNOWN


def _testcase(summary: Summary, c: CaseSummary, source: str) -> ET.Element:
    case = ET.Element(
        "testcase",
        {
            "classname": f"powercut.{c.case.filesystem}.{c.case.mode}",
            "name": c.case.workload,
            "time": f"{c.seconds:.3f}",
        },
    )
    unexpected = [f for f in c.findings if f.expectation is None]
    expected = [f for f in c.findings if f.expectation is not None]
    match c.verdict:
        case CaseVerdict.FAIL:
            message = "; ".join(dict.fromkeys(f"{f.oracle}: {f.summary}{_known(f)}" for f in unexpected))
            _add(
                case,
                "failure",
                message,
                "powercut.inconsistent",
                _findings_text(unexpected, source, summary),
            )
        case CaseVerdict.UNKNOWN if _time_was_up(summary, c):
            _add(case, "skipped", c.undecided, "powercut.time-up", "")
        case CaseVerdict.UNKNOWN:
            _add(case, "error", c.undecided, "powercut.undecided", _unknown_text(c, source))
        case CaseVerdict.XFAIL:
            reasons = "; ".join(dict.fromkeys(f.expectation.reason for f in expected if f.expectation))
            _add(case, "skipped", f"expected: {reasons}", "powercut.xfail", "")
        case CaseVerdict.NOT_RUN:
            tag = "error" if c in summary.missing else "skipped"
            _add(case, tag, c.reason or "not run", "powercut.not-run", "")
    out = [_findings_text(expected, source, summary)] if expected else []
    out += [
        one_line(f"XPASS: {e} matched no finding ({e.reason})") for e in summary.unmet if e.applies_to(c.case)
    ]
    if out:
        ET.SubElement(case, "system-out").text = printable("\n\n".join(out))
    return case


def _add(case: ET.Element, tag: str, message: str, kind: str, text: str) -> None:
    element = ET.SubElement(case, tag, {"message": printable(message), "type": kind})
    element.text = printable(text) or None


def _findings_text(findings: list[Finding], source: str, summary: Summary) -> str:
    return "\n\n".join(_finding_text(f, source, summary) for f in findings)


def _known(f: Finding) -> str:
    if f.known:
        return f" [known: {f.known.bug.name}]"
    return " [a known loss of this mode]" if f.loss else ""


def _finding_text(f: Finding, source: str, summary: Summary) -> str:
    lines = [f"{f.oracle}: {f.summary}", f"at {where(f)}"]
    for v in f.violations:
        lines += [f"  {v.subject}", f"    expected: {v.expected}", f"    found:    {v.found}"]
    if f.expectation:
        lines.append(f"expected failure: {f.expectation.reason}")
    if known := known_lines(f):
        lines += [known[0], *(f"  {line}" for line in known[1:])]
    elif f.oracle != "program":  # what a program's own check says is no bug of a kernel
        lines.append(NEW)
    if why := summary.why.get(f.id):
        lines.append(f"cause: {why}")
    if fewest := summary.fewest.get(f.id):
        lines.append(f"fewest operations that show it: {'; '.join(fewest)}")
    lines += commands(f, source, summary.packed)
    return "\n".join(map(one_line, lines))


def _unknown_text(c: CaseSummary, source: str) -> str:
    lines = []
    for r in c.unknown_reasons:
        lines += [
            indented(f"{plural(r.states, 'state')}: {r.reason}"),
            one_line(f"reproduce: {reproduce(c.case, r.example, source)}"),
        ]
    return "\n".join(lines)


def _seconds(cases: tuple[CaseSummary, ...] | list[CaseSummary]) -> str:
    return f"{sum(c.seconds for c in cases):.3f}"
