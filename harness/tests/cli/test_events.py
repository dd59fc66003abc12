"""`powercut run --events`: lines of JSON for other programs."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from harness.cli.events import EventStream
from harness.host.console import OutputClosed
from harness.model import Judgement, Violation
from harness.plan import Plan
from harness.store import RunStore
from harness.store.records import CaseInfo
from harness.summary import summarise
from harness.tests.cli.runner import refused
from harness.tests.store.samples import CASE, INFO, put_case

LOST = Judgement((Violation("durability", "f", "gone", "data", "nothing", "s"),))


def told(root: Path) -> list[dict[str, object]]:
    """The events of a run with one case, which failed."""
    text = io.StringIO()
    with RunStore.create(root, "t", INFO) as store:
        stream = EventStream(store, text)
        stream.began(Plan(configurations=["ext4/ordered"], workloads=["append-fsync"]))
        put_case(store, CaseInfo(CASE, generated=2, distinct=2), Judgement(), LOST)
        stream.done(CASE)
        store.finish()
        stream.ended(summarise(store))
    return [json.loads(line) for line in text.getvalue().splitlines()]


def test_a_run_is_told_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    begin, case, end = told(tmp_path)
    assert (begin["event"], begin["cases"]) == ("begin", ["ext4-ordered/append-fsync"])
    assert (case["event"], case["case"], case["status"]) == ("case", str(CASE), "done")
    assert (case["states"], case["failed"], case["unknown"]) == (2, 1, 0)
    assert case["findings"] == [
        {"oracle": "durability", "summary": "gone", "crash_point": f"{CASE}@1", "expected": False}
    ]
    assert (end["event"], end["exit_code"], end["verdict"]) == ("end", 1, "inconsistent")


def test_without_a_file_nothing_is_told(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "t", INFO) as store:
        stream = EventStream(store, None)
        stream.done(CASE)  # the store does not even know this case
        assert not stream.is_output


def test_a_file_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    assert "none/events" in refused("run", "--events", tmp_path / "none" / "events", "-w", "append-fsync")


def test_events_that_nobody_reads_end_the_run_as_shells_expect(tmp_path: Path) -> None:
    """`run --events - | head -1` was a traceback of ours, with exit code 3."""
    reader, writer = os.pipe()
    os.close(reader)
    with RunStore.create(tmp_path, "t", INFO) as store, os.fdopen(writer, "w") as pipe:
        stream = EventStream(store, pipe)
        with pytest.raises(OutputClosed):
            stream.began(Plan(configurations=["ext4/ordered"], workloads=["append-fsync"]))
