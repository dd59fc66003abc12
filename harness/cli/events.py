"""`powercut run --events`: what happens, as lines of JSON for other programs. A case that was not run has its
event, too, with the reason; a run that an error ends has no event "end".

{"event": "begin", "run": "reports/runs/...", "cases": ["ext4-ordered/append-fsync"]}
{"event": "case", "case": "ext4-ordered/append-fsync", "status": "done", "states": 91, "failed": 0, ...}
{"event": "end", "exit_code": 0, "verdict": "consistent", "stopped": "", "headline": "..."}
"""

from __future__ import annotations

from typing import TextIO

from harness.host.console import OutputClosed, forget
from harness.host.files import json_line
from harness.model import CaseId
from harness.plan import Plan
from harness.report.words import headline, known_words
from harness.run import select_cases
from harness.store import RunStore
from harness.summary import Summary, shell_code


class EventStream:
    """Writes the events of a run to `file`; to nothing if there is none."""

    def __init__(self, store: RunStore, file: TextIO | None) -> None:
        self._store = store
        self._file = file

    @property
    def is_output(self) -> bool:
        """Whether the events are the command's output."""
        return getattr(self._file, "name", "") == "<stdout>"

    def began(self, plan: Plan) -> None:
        cases = [str(CaseId(p.filesystem, p.mode, w.name)) for p, w in select_cases(plan)]
        self._write({"event": "begin", "run": str(self._store.path), "cases": cases})

    def done(self, case: CaseId) -> None:
        """A case has come to its end. Must be called in the thread that owns the store."""
        if self._file is None:
            return
        record, counts = self._store.case(case), self._store.counts(case)
        self._write(
            {
                "event": "case",
                "case": str(case),
                "status": str(record.status) if record else "",
                "reason": record.reason if record else "",
                "states": counts.checked,
                "failed": counts.failed,
                "unknown": counts.unknown,
                "findings": [
                    {
                        "oracle": f.oracle,
                        "summary": f.summary,
                        "crash_point": str(f.crash_point),
                        "expected": f.expectation is not None,
                    }
                    for f in self._store.findings_of(case)
                ],
            }
        )

    def ended(self, summary: Summary) -> None:
        self._write(
            {
                "event": "end",
                "exit_code": int(shell_code(summary)),
                "verdict": known_words(summary),
                "stopped": summary.info.stopped,
                "headline": headline(summary),
            }
        )

    def _write(self, event: dict[str, object]) -> None:
        """Raises OutputClosed if the reader is gone."""
        if self._file is None:
            return
        try:
            self._file.write(json_line(event) + "\n")
            self._file.flush()
        except BrokenPipeError as e:
            forget(self._file)
            raise OutputClosed from e
