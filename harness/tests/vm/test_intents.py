"""Intents of XFS that stand alone in the log, so that recovery has to complete what they announce."""

from __future__ import annotations

import re
from pathlib import Path

from harness.plan import Plan
from harness.summary import CaseVerdict
from harness.tests.cli.runner import powercut
from harness.tests.vm.conftest import run_plan

_RECORD = re.compile(r"log record \d+:\d+: (.*)")


def test_an_exchange_and_names_whose_intents_are_alone_in_the_log_are_completed(tmp_path: Path) -> None:
    """No state of any workload had reached the recovery of an intent: without a force of the log between
    them, an intent and what says it is done come into the log together, and neither is written.
    """
    wanted = {
        "xfs/exchange": ("exchange-equal", "intent to exchange mappings", "mappings exchanged"),
        "xfs/parent-wsync": ("rename-new", "intent for attributes", "attributes done"),
    }
    for mode, (workload, intent, done) in wanted.items():
        summary, path = run_plan(Plan(configurations=[mode], workloads=[workload], jobs=1), tmp_path)
        (case,) = summary.cases
        assert (case.verdict, case.findings, case.reason) == (CaseVerdict.PASS, (), "")
        log = path / "cases" / mode.replace("/", "-") / workload / "log.zst"
        records = _RECORD.findall(powercut("log", "ls", str(log)).output)
        assert any(intent in r and done not in r and "commit record" in r for r in records), records
