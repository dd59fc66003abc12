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
from typing import TypeVar

import msgspec

from harness.model import CaseId
from harness.report.words import number
from harness.summary import CaseVerdict

_DATED = re.compile(r"\d{8}-")
"""The name of a run that was not renamed."""
SHOWN = 10
"""Verdicts of a case, its own included."""
READ_MAX = 60
"""Runs that are opened: of those whose names begin with the date (UTC), and of those that were renamed, by
the time of their results, the newest so many each.
"""
SIZE_MAX = 64 << 20
RESULTS = "results.json"
_Form = TypeVar("_Form", bound=msgspec.Struct)


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
    wanted, found = set(cases), dict[CaseId, dict[datetime, Past]]()
    for name, results in read_before(run, started, RESULTS, _Results):
        if results.started.tzinfo and results.started < started:
            for case in results.cases:
                if (of := CaseId(case.filesystem, case.mode, case.workload)) in wanted:
                    kernel = results.kernel.release or results.kernel.name
                    past = Past(name, kernel, case.verdict, case.states.checked)
                    # A packed run that was unpacked here is there twice.
                    found.setdefault(of, {}).setdefault(results.started, past)
    return {case: tuple(p for _, p in sorted(past.items()))[1 - SHOWN :] for case, past in found.items()}


def read_before(run: Path, started: datetime, results: str, form: type[_Form]) -> Iterator[tuple[str, _Form]]:
    """What runs beside `run` that may have begun before it kept in the file `results`, with their names."""
    for name in _names(run.resolve(), started, results):
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            yield name, _read(run.resolve().parent / name / results, form)


def _names(run: Path, started: datetime, results: str) -> Iterator[str]:
    """Runs that may have begun before one, and are to be opened."""
    last = f"{started.astimezone(UTC):%Y%m%d-%H%M%S}~"
    others = [p for p in run.parent.glob(f"*/{results}") if p.parent != run]
    dated = sorted((n for p in others if _DATED.match(n := p.parent.name) and n <= last), reverse=True)
    renamed = sorted((-_modified(p), n) for p in others if not _DATED.match(n := p.parent.name))
    yield from (*dated[:READ_MAX], *(name for _, name in renamed[:READ_MAX]))


def _modified(file: Path) -> float:
    """When, in seconds; 0 for a file that was removed meanwhile."""
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _read(file: Path, form: type[_Form]) -> _Form:
    if file.stat().st_size > SIZE_MAX:
        raise OSError(f"{file} is too large to be looked at")
    return msgspec.json.decode(file.read_bytes(), type=form)
