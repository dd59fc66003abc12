"""Findings that look alike, as one group each instead of many nearly equal cards.

SimilarFindings are findings of one file system and one oracle that broke by the same mechanism. Only some
findings are explained: one that is not has the mechanism of an explained one of its mode and symptom; where
there is none, those of one symptom are alike. What a workload's own check says is alike within that workload
alone: exit code 1 is all that many of them say. What modes are known to lose for one reason is alike. That is
probably one cause, and proves none: see `harness.findings.causes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.report.explanation import Explanation
from harness.store.records import Finding
from harness.symptoms import Symptom


@dataclass(frozen=True, slots=True)
class SimilarFindings:
    """Findings that look alike. `example`: one of them, explained if any is, and then `why` it failed; empty
    for known losses, whose causes may differ. `point`: the crash point that this is said of.
    """

    example: Finding
    why: str
    point: str
    findings: tuple[Finding, ...]

    @property
    def expected(self) -> bool:
        return self.example.expectation is not None

    @property
    def oracles(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(f.oracle for f in self.findings))

    @property
    def modes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(f.case.configuration for f in self.findings))

    @property
    def cases(self) -> int:
        return len({f.case for f in self.findings})


def similar(findings: Sequence[Finding], explained: Mapping[str, Explanation]) -> list[SimilarFindings]:
    """The groups: first those that nobody expected; of these new ones, then known bugs, then known losses;
    of these the explained ones, and those with the most findings. `explained`: by the id of the finding.
    """
    mechanisms: dict[tuple[str, str, Symptom], set[str]] = {}
    for f in findings:
        if (known := explained.get(f.id)) is not None and known.mechanism_name:
            mechanisms.setdefault(_seen(f), set()).add(known.mechanism_name)
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for f in findings:
        own = explained.get(f.id)
        names = {own.mechanism_name} if own else mechanisms.get(_seen(f), set())
        name = next(iter(names)) if len(names) == 1 else ""
        bug = f.known.bug.name if f.known else ""
        alike = (f.loss,) if f.loss else (bug, f.case.filesystem, f.oracle, _own(f), name or f.symptom)
        groups.setdefault((f.expectation is not None, *alike), []).append(f)
    found = [_group(together, explained) for together in groups.values()]
    return sorted(found, key=lambda g: (g.expected, g.example.newness, not g.why, -len(g.findings)))


def _seen(finding: Finding) -> tuple[str, str, Symptom]:
    return finding.case.configuration, _own(finding), finding.symptom


def _own(finding: Finding) -> str:
    """The workload whose own check failed; empty where an oracle of ours judged."""
    return finding.case.workload if finding.oracle == "program" else ""


def _group(together: Sequence[Finding], explained: Mapping[str, Explanation]) -> SimilarFindings:
    example = next((f for f in together if f.id in explained), together[0])
    known = explained.get(example.id)
    if known is None or not known.mechanism or example.loss:
        return SimilarFindings(example, "", str(example.crash_point), tuple(together))
    return SimilarFindings(example, known.mechanism, known.point, tuple(together))
