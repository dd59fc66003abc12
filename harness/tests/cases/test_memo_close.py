"""The memo's disk process: ended while a worker waits for its answer, and replaced."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from harness.cases.outcome_memo import OutcomeMemo
from harness.errors import DiskError
from harness.guests.disk import BlockReads
from harness.model import CrashState


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
    worker = threading.Thread(target=memo.hashes, args=([], target))
    worker.start()
    assert disk.asked.wait(10)
    memo.close()
    worker.join()
    assert disk.was_killed


@dataclass(frozen=True)
class _Shown:
    """What a disk shows: the recording, or what the recovery of a state wrote."""

    log: str
    base: str = "base"
    order: None = None
    mount_counters: tuple[()] = ()


class _Noting:
    """Disk processes that note what they learn, and under which log. The first one is lost at a question."""

    learned: ClassVar[list[list[tuple[str, int]]]] = []

    def __init__(self) -> None:
        self.log, self.own = "", list[tuple[str, int]]()
        self.learned.append(self.own)

    def open(self, base: str, log: str, order: None, **_: object) -> None:
        self.log = log

    def learn(self, state: CrashState, reads: BlockReads, outcome: int) -> None:
        self.own.append((self.log, outcome))

    def hashes(self, states: Sequence[CrashState]) -> list[str]:
        if len(self.learned) == 1:
            raise DiskError("the disk is gone")
        return ["content"]

    def close(self) -> None: ...
    def end(self) -> None: ...


def test_a_memo_whose_disk_is_lost_learns_each_outcome_again_of_its_own_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Outcomes of cut recoveries were learned again as those of states of whichever log was asked about."""
    monkeypatch.setattr("harness.cases.outcome_memo.Disk", _Noting)
    monkeypatch.setattr(_Noting, "learned", [])
    first, cut = CrashState.parse("@t3"), CrashState.parse("@t3@t1")

    def shown(state: CrashState) -> tuple[_Shown, CrashState]:
        return _Shown("recovery" if state.again else "recording"), state

    profile = SimpleNamespace(console=SimpleNamespace(errors=()))
    recording: Any = SimpleNamespace(case="case", shown=shown, target=_Shown("recording"), profile=profile)
    memo = OutcomeMemo(recording, sample_rate=0.0, mismatch="", on_mismatch=lambda _: None)
    for number, state in enumerate((first, cut)):
        memo.learn(state, BlockReads((0,)), number)
    assert memo.hashes([first]) == ["content"]
    assert _Noting.learned == [[("recording", 0), ("recovery", 1)]] * 2
    memo.close()
