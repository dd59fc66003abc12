"""results.json: the run in machine-readable form. Its schema is `reports/schema/results.schema.json`."""

from __future__ import annotations

from typing import Any

import msgspec

from harness.host.files import json_text
from harness.known.match import Match
from harness.report.lines import reproduce
from harness.report.words import headline, known_words
from harness.store.records import DrawnCalls, Finding
from harness.summary import CaseSummary, Summary, shell_code

RESULTS_SCHEMA = 1
"""Incremented when a field is removed or changes its meaning; not for added fields."""


def results(summary: Summary, source: str) -> dict[str, Any]:
    """The run as JSON values. `source`: the run's path for reproduce commands."""
    info = msgspec.to_builtins(summary.info)
    return {
        "schema": RESULTS_SCHEMA,
        "run": summary.run,
        "powercut": summary.info.powercut,
        "git_head": summary.info.git_head,
        "argv": list(summary.info.argv),
        "started": info["started"],
        "finished": info["finished"],
        "interrupted": summary.interrupted,
        "exit_code": int(shell_code(summary)),
        "verdict": known_words(summary),
        "require_all": summary.info.require_all,
        "headline": headline(summary),
        "kernel": info["kernel"],
        "machine": info["machine"],
        "host": summary.info.host,
        "cases": [_case(c, source) for c in summary.cases],
        **({"notes": info["notes"]} if info["notes"] else {}),
        "expectations_unmet": [
            {
                "configuration": e.configuration,
                "workload": e.workload,
                "oracle": e.oracle,
                "symptoms": list(e.symptoms),
                "reason": e.reason,
                "origin": e.origin,
            }
            for e in summary.unmet
        ],
    }


def results_json(summary: Summary, source: str) -> str:
    """`results` as text."""
    return json_text(results(summary, source))


def _case(c: CaseSummary, source: str) -> dict[str, Any]:
    counts = c.counts
    return {
        "filesystem": c.case.filesystem,
        "mode": c.case.mode,
        "workload": c.case.workload,
        "status": c.status.value,
        "reason": c.reason,
        "verdict": c.verdict.value,
        "undecided": c.undecided,
        **({"doubt": c.info.doubt} if c.info.doubt else {}),
        "mkfs_options": c.info.mkfs_options,
        "mount_options": c.info.mount_options,
        "oracles": list(c.info.oracles),
        "states": {
            "generated": counts.generated,
            "distinct": counts.distinct,
            "checked": counts.checked,
            "pass": counts.passed,
            "fail": counts.failed,
            "unknown": counts.unknown,
        },
        "coverage": msgspec.to_builtins(c.info.coverage) if c.info.coverage else None,
        **({"program_calls": _program_calls(c.info.calls)} if c.info.calls else {}),
        **({"again": msgspec.to_builtins(c.info.again)} if c.info.again else {}),
        **({"disk": msgspec.to_builtins(c.info.disk)} if c.info.disk else {}),
        "how": {how.value: count for how, count in c.by_how.items()},
        "unknown_reasons": [
            {"reason": r.reason, "states": r.states, "example": f"{c.case}{r.example}"}
            for r in c.unknown_reasons
        ],
        "seconds": round(c.seconds, 3),
        "findings": [_finding(f, source) for f in c.findings],
    }


def _program_calls(calls: DrawnCalls) -> dict[str, Any]:
    return {"noted": len(calls.calls), "more": calls.more, "lacking": calls.lacking}


def known_json(known: Match) -> dict[str, Any]:
    """A known bug that a finding is, as JSON values. `compared`: what of the finding agreed."""
    record = known.bug.record
    return {
        "name": known.bug.name,
        "title": known.bug.title,
        "severity": record.severity.value,
        "first": record.first,
        "last": record.last,
        "mended": list(record.mended),
        "workaround": record.workaround,
        "compared": list(known.compared),
    }


def _finding(f: Finding, source: str) -> dict[str, Any]:
    return {
        "id": f.id,
        "oracle": f.oracle,
        "summary": f.summary,
        "signature": f.signature,
        "symptom": f.symptom.what,
        "crash_point": str(f.crash_point),
        "states": f.states,
        "expected_reason": f.expectation.reason if f.expectation else None,
        "known": known_json(f.known) if f.known else None,
        "known_loss": f.loss or None,
        "violations": [
            {"subject": v.subject, "summary": v.summary, "expected": v.expected, "found": v.found}
            for v in f.violations
        ],
        "reproduce": reproduce(f.case, f.state, source),
    }
