"""The directory of a patch that nothing was asked about: a job publishes the same files for every push."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from harness import __version__
from harness.errors import NothingToAsk
from harness.host.files import write_atomically
from harness.patches.results import NothingPlan
from harness.report.junit import TestCase, cases_xml
from harness.report.page import Line, Page, Section
from harness.series.journal import Done, End, Ended, Journal, Known, Started
from harness.series.work import begin, write_page

NOTHING = "nothing to ask"


def write_nothing(why: NothingToAsk, subject: str, argv: Sequence[str], out: Path) -> tuple[Path, Page]:
    """Make the directory below `out`, with a page and a JUnit file that say so. `subject`: what is not asked
    about.
    """
    path = begin(NothingPlan(argv, why.what), out, "patch")
    journal, now = Journal(path, Known(Done)), datetime.now(UTC).isoformat(timespec="seconds")
    journal.put(Started(when=now, powercut=__version__))
    journal.put(Ended(when=now, how=End.COMPLETE))
    page = _page(why, subject, argv)
    write_page(page, path, "patch.json")
    case = TestCase("powercut.patch", NOTHING, "skipped", why.line)
    write_atomically(path / "junit.xml", cases_xml(f"powercut patch {subject}", {"patch": [case]}))
    return path, page


def _page(why: NothingToAsk, subject: str, argv: Sequence[str]) -> Page:
    return Page(
        what="patch",
        subject=subject,
        headline=f"{NOTHING}: {why.what}.",
        kind="unknown",
        sections=(Section("To ask all the same", lines=(Line(why.next_step),)),),
        command=shlex.join(["powercut", *argv]),
        data={
            "nothing_to_ask": why.what,
            "states": 0,
            "stages": {},
            "regressions": [],
            "undecided": {},
            "lines": {"of": 0, "ran": 0, "in_recoveries": 0, "stages": [], "not_run": [], "why": why.what},
            "mistakes": [],
            "stages_left": [],
            "interrupted": False,
        },
    )
