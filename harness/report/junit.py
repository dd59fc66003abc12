"""junit.xml in the shape fstests writes: one testsuite per file system and mode, one testcase per workload.

An expected failure is `<skipped type="powercut.xfail" message="...">`, as in pytest: GitLab, Jenkins
and GitHub reporters then show it apart from the passes, with its reason, and leave the build green. The
finding's text and its reproduce line are in `<system-out>`. An undecided case is an `<error>`: a pass would
be wrong, and a failure would accuse the kernel. So is a case that had to be run and was not, and a run that
is no pass though each of its cases is: the file is green only where the exit code is.
Where a run ended with TIME_UP, which a job may pass, the cases that its time did not reach are `<skipped>`.
"""

from __future__ import annotations

import functools
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC
from typing import Literal, NamedTuple

from harness.errors import ExitCode
from harness.grouping import by_key
from harness.host.text import indented, one_line, printable
from harness.known.words import NEW
from harness.model import CaseId
from harness.report.lines import commands, reproduce
from harness.report.words import kernel_name, kind_of_loss, known_lines, plural, red_as_a_whole, where
from harness.store.records import Finding
from harness.summary import CaseSummary, CaseVerdict, Summary, shell_code


@dataclass(frozen=True, slots=True)
class TestCase:
    """A test case. `kind`: what became of it ("": passed), with a message and a text; `why`: the kind in more
    detail. `out`: what else is said of it. `seconds`: None where nobody took them.
    """

    classname: str
    name: str
    kind: Literal["", "failure", "error", "skipped"] = ""
    message: str = ""
    text: str = ""
    why: str = ""
    out: str = ""
    seconds: float | None = None


def cases_xml(name: str, suites: Mapping[str, Sequence[TestCase]]) -> str:
    """Test cases in suites as JUnit XML. `name`: of all of them."""
    return _xml(name, [_suite(suite, cases) for suite, cases in suites.items()])


def junit_xml(summary: Summary, source: str) -> str:
    """The run as JUnit XML. `source`: the run's path for reproduce commands."""
    by_mode = by_key(((case.case.filesystem, case.case.mode), case) for case in summary.cases)
    whole = _Whole(shell_code(summary) is ExitCode.TIME_UP, {c.case for c in summary.missing})
    suites = [_suite_of(summary, cases, source, whole) for cases in by_mode.values()]
    if why := red_as_a_whole(summary):
        suites.append(_suite("powercut", [TestCase("powercut", "run", "error", why, why="run")]))
    totals = {key: str(sum(int(s.attrib[key]) for s in suites)) for key in ("tests", *_COUNTED)}
    return _xml(f"powercut {summary.run}", suites, totals | {"time": _seconds(summary.cases)})


class _Whole(NamedTuple):
    """What its cases have to know of a run. `time_up`: the time that it was given is all that its exit code
    speaks of; `missing`: cases that had to be run and were not.
    """

    time_up: bool
    missing: AbstractSet[CaseId]


_COUNTED = {"failures": "failure", "errors": "error", "skipped": "skipped"}


def _xml(name: str, suites: Sequence[ET.Element], told: Mapping[str, str] | None = None) -> str:
    root = ET.Element("testsuites", {"name": printable(name), **(told or {})})
    root.extend(suites)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(name: str, cases: Sequence[TestCase], told: Mapping[str, str] | None = None) -> ET.Element:
    kinds: list[str] = [c.kind for c in cases]
    counts = {key: str(kinds.count(kind)) for key, kind in _COUNTED.items()}
    suite = ET.Element(
        "testsuite", {"name": printable(name), "tests": str(len(cases)), **counts, **(told or {})}
    )
    suite.extend(map(_element, cases))
    return suite


def _element(case: TestCase) -> ET.Element:
    told = {} if case.seconds is None else {"time": f"{case.seconds:.3f}"}
    where = {"classname": printable(case.classname), "name": printable(case.name)}
    element = ET.Element("testcase", where | told)
    if case.kind:
        kind = {"message": printable(case.message), "type": f"powercut.{case.why or case.kind}"}
        ET.SubElement(element, case.kind, kind).text = printable(case.text) or None
    if case.out:
        ET.SubElement(element, "system-out").text = printable(case.out)
    return element


def _suite_of(summary: Summary, cases: list[CaseSummary], source: str, whole: _Whole) -> ET.Element:
    told = {
        "time": _seconds(cases),
        "timestamp": f"{summary.info.started.astimezone(UTC):%Y-%m-%dT%H:%M:%S}",
        "hostname": "localhost",  # the form has to have one; a run keeps no host's name
    }
    suite = _suite(cases[0].case.configuration, [_testcase(summary, c, source, whole) for c in cases], told)
    properties = ET.Element("properties")
    suite.insert(0, properties)
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
    return suite


def _testcase(summary: Summary, c: CaseSummary, source: str, whole: _Whole) -> TestCase:
    unexpected = [f for f in c.findings if f.expectation is None]
    expected = [f for f in c.findings if f.expectation is not None]
    out = [_findings_text(expected, source, summary)] if expected else []
    out += [
        one_line(f"XPASS: {e} matched no finding ({e.reason})") for e in summary.unmet if e.applies_to(c.case)
    ]
    out += [one_line(f"note: {n.text}") for n in summary.info.notes if n.case in ("", str(c.case))]
    case = functools.partial(
        TestCase,
        f"powercut.{c.case.filesystem}.{c.case.mode}",
        c.case.workload,
        out="\n\n".join(out),
        seconds=c.seconds,
    )
    match c.verdict:
        case CaseVerdict.FAIL:
            message = "; ".join(dict.fromkeys(f"{f.oracle}: {f.summary}{_known(f)}" for f in unexpected))
            return case("failure", message, _findings_text(unexpected, source, summary), "inconsistent")
        case CaseVerdict.UNKNOWN if whole.time_up:
            return case("skipped", c.undecided, why="time-up")
        case CaseVerdict.UNKNOWN:
            return case("error", c.undecided, _unknown_text(c, source), "undecided")
        case CaseVerdict.XFAIL:
            reasons = "; ".join(dict.fromkeys(f.expectation.reason for f in expected if f.expectation))
            return case("skipped", f"expected: {reasons}", why="xfail")
        case CaseVerdict.NOT_RUN:
            tag: Literal["error", "skipped"] = "error" if c.case in whole.missing else "skipped"
            return case(tag, c.reason or "not run", why="not-run")
    return case()


def _findings_text(findings: list[Finding], source: str, summary: Summary) -> str:
    return "\n\n".join(_finding_text(f, source, summary) for f in findings)


def _known(f: Finding) -> str:
    if f.known:
        return f" [known: {f.known.bug.name}]"
    return f" [a known {kind_of_loss(f)}]" if f.loss else ""


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
