"""A case's verdicts in the runs before: which of the cases that are red today were green last night?

Read from the results.json of the run directories beside a run's own. Nothing depends on it, so what cannot be
read, or is not of this form, is left out.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from harness.model import CaseId
from harness.report.words import number
from harness.summary import CaseVerdict

_DATED = re.compile(r"\d{8}-")
"""The name of a run that was not renamed."""
SHOWN = 10
"""Verdicts of a case, its own included."""
READ_MAX = 60
"""Runs that are opened: the newest before a run's own, by their names, which begin with the date (UTC)."""
SIZE_MAX = 64 << 20
RESULTS = "results.json"


@dataclass(frozen=True, slots=True)
class Past:
    """A case's verdict in one run; `states`: how many crash states were checked."""

    run: str
    kernel: str
    verdict: CaseVerdict
    states: int

    @property
    def words(self) -> str:
        return ", ".join(filter(None, [self.run, self.kernel, f"{number(self.states)} states"]))


class _Kernel(msgspec.Struct):
    name: str = ""
    release: str = ""


class _States(msgspec.Struct):
    checked: int


class _Case(msgspec.Struct):
    filesystem: str
    mode: str
    workload: str
    verdict: CaseVerdict
    states: _States


class _Results(msgspec.Struct):
    started: datetime
    kernel: _Kernel
    cases: list[_Case]


def trends(run: Path, started: datetime, cases: Sequence[CaseId]) -> Mapping[CaseId, tuple[Past, ...]]:
    """The verdicts of these cases in runs that lie beside `run` and began before it, oldest first; at most
    SHOWN - 1 of each case, and none for a case that no other run had.
    """
    wanted, found = set(cases), dict[CaseId, list[Past]]()
    for name, results in _before(run, started):
        for case in results.cases:
            known = found.setdefault(CaseId(case.filesystem, case.mode, case.workload), [])
            if len(known) < SHOWN - 1:
                kernel = results.kernel.release or results.kernel.name
                known.append(Past(name, kernel, case.verdict, case.states.checked))
    return {case: tuple(reversed(past)) for case, past in found.items() if case in wanted}


def _before(run: Path, started: datetime) -> Iterator[tuple[str, _Results]]:
    """The results of earlier runs, newest first."""
    folder = run.resolve().parent
    seen: set[datetime] = set()
    last = f"{started.astimezone(UTC):%Y%m%d-%H%M%S}~"
    names = sorted((p.parent.name for p in folder.glob(f"*/{RESULTS}")), reverse=True)
    names = [n for n in names if n != run.resolve().name and not (_DATED.match(n) and n > last)]
    for name in names[:READ_MAX]:
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            results = _read(folder / name / RESULTS)
            if results.started.tzinfo and results.started < started and results.started not in seen:
                seen.add(results.started)  # a packed run that was unpacked here is there twice
                yield name, results


def _read(file: Path) -> _Results:
    if file.stat().st_size > SIZE_MAX:
        raise OSError(f"{file} is too large to be looked at")
    return msgspec.json.decode(file.read_bytes(), type=_Results)
