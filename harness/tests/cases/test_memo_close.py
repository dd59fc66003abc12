"""Ending the memo's disk while a station waits for its answer."""

from __future__ import annotations

import threading
from typing import Any

from harness.cases.outcome_memo import OutcomeMemo
from harness.errors import DiskError


class _Stopped:
    """A disk process that answers nothing until it is killed."""

    def __init__(self) -> None:
        self.asked, self.killed = threading.Event(), threading.Event()
        self.was_killed = False

    def end(self) -> None:
        self.killed.set()

    def close(self) -> None:
        pass

    def hashes(self, states: Any) -> list[str]:
        if self.asked.is_set():
            return []
        self.asked.set()
        self.was_killed = self.killed.wait(10)
        raise DiskError("no answer")


def test_a_disk_that_does_not_answer_holds_up_no_end() -> None:
    """SIGTERM to a run whose memo's disk was stopped did nothing for a minute, and said nothing."""
    memo: Any = OutcomeMemo.__new__(OutcomeMemo)
    disk = _Stopped()
    memo._asking, memo._disk, memo._showing = threading.Lock(), disk, lambda target: disk
    target: Any = object()  # of the recording, which this memo does not have
    station = threading.Thread(target=memo.hashes, args=([], target))
    station.start()
    assert disk.asked.wait(10)
    memo.close()
    station.join()
    assert disk.was_killed
