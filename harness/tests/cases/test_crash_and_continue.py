"""The power fails between two operations of a workload: what is promised of the life behind it."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from harness.cases.crash_and_continue import by_chance, crash_of, make_image, survived
from harness.cases.recording import Recording, history_of
from harness.errors import UsageError, WriteLogError
from harness.filesystems.tools import Tool
from harness.model import (
    BEFORE_THE_LOG,
    BeforeCrash,
    CrashState,
    EntryFlag,
    FsckClass,
    FsckResult,
    History,
    LogEntry,
    Operation,
    Outcome,
    Position,
    Violation,
)
from harness.oracles import Judge
from harness.oracles.contract import Contract
from harness.oracles.replay import need_possible
from harness.states import Choices, CrashTime
from harness.store.records import steps_of
from harness.tests.oracles.cases import CLEAN, EACH, ORDERED, file, tree, written
from harness.workloads.load import parse_operation

FIRST = ["create f", "append f 4096", "fsync f", "create g"]
SECOND = ["append f 4096", "fsync f", "create h"]


def operations(*texts: str) -> list[Operation]:
    return [parse_operation(text) for text in texts]


WHOLE = operations(*FIRST, "crash 1", *SECOND)


def marks(*texts: str) -> list[LogEntry]:
    return [LogEntry(i, 0, 0, EntryFlag.MARK, 0, text) for i, text in enumerate(texts)]


def second(kept: int) -> History:
    """A log of the part after the crash, whose every operation came to its end."""
    given = len(FIRST) + 1
    numbers = range(given, len(WHOLE))
    told = [f"{word} {n}" for n in numbers for word in ("begin", "ack")]
    return history_of(marks(*told), WHOLE, BeforeCrash(given, kept, "@t7="))


def recovered_after(texts: list[str], data: int = 4096) -> Outcome:
    """What these of FIRST leave. `data`: bytes of `f` that are there of those appended."""
    there = [file("f", *([written(1, 0, data)] if "append f 4096" in texts else []))]
    there = there if "create f" in texts else []
    return Outcome(tree=tree(*there, *([file("g")] if "create g" in texts else [])), fsck=CLEAN)


def broken(history: History, position: Position, outcome: Outcome) -> list[Violation]:
    judge = Judge(ORDERED, history, error_patterns=())
    return [v for v in judge.judge(position, outcome).violations if v.oracle != "usable"]


def test_the_operations_of_an_earlier_life_are_done_when_the_log_begins() -> None:
    history = second(kept=4)
    assert [s.begin for s in history.steps] == [BEFORE_THE_LOG] * 5 + [0, 2, 4]
    assert history.position(0) == Position(begun=5, acked=5)
    assert history.position(2) == Position(begun=6, acked=6)


def test_marks_of_the_part_before_the_crash_are_not_taken_for_those_of_the_second() -> None:
    with pytest.raises(WriteLogError, match="do not tell"):
        history_of(marks("begin 0", "ack 0"), WHOLE, BeforeCrash(5, 4, "@t7="))


def test_what_the_part_before_the_crash_kept_must_be_there_at_every_cut_of_the_second() -> None:
    """Else a journal that is emptied after the crash without being written home would be no loss."""
    whole, begin = second(kept=4), Position(5, 5)
    kept = recovered_after(FIRST)
    assert broken(whole, begin, kept) == []
    lost = recovered_after(FIRST[:3])
    assert [v.oracle for v in broken(whole, begin, lost)] == ["durability"]


def test_what_the_part_before_the_crash_lost_must_not_come_back() -> None:
    """A stale transaction that is replayed in the part after the crash brings it back."""
    history, begin = second(kept=3), Position(5, 5)
    assert broken(history, begin, recovered_after(FIRST[:3])) == []
    assert broken(history, begin, recovered_after(FIRST)) != []


@pytest.mark.parametrize("contract", [ORDERED, EACH], ids=["prefix", "each"])
@pytest.mark.parametrize(("done", "number"), [(0, 0), (1, 1), (2, 3), (4, 4)])
def test_as_many_operations_survived_as_recovery_came_to(contract: Contract, done: int, number: int) -> None:
    """fsync changes nothing that can be seen: the highest number counts."""
    wanted = operations(*FIRST, "crash 1", "create other", "fsync other")
    assert survived(contract, wanted, 4, recovered_after(FIRST[:done])) == number


def test_half_an_operation_is_no_number_of_them() -> None:
    """`f` has its name and half of its data: what the part after the crash must find is not known."""
    half = recovered_after(FIRST[:2], data=2048)
    assert survived(ORDERED, WHOLE, 4, half) is None


@pytest.mark.parametrize("said", [FsckClass.DIRTY, FsckClass.FAILED], ids=["damaged", "undecided"])
def test_a_first_life_that_is_damaged_or_undecided_is_no_base(said: FsckClass) -> None:
    """The second life would be blamed for the first one's damage, or would hide that nobody looked."""
    whole = recovered_after(FIRST)
    assert survived(ORDERED, WHOLE, 4, whole) == 4
    assert survived(ORDERED, WHOLE, 4, replace(whole, fsck=FsckResult(said, 4, "inode 12"))) is None


def test_a_part_after_the_crash_that_needs_what_was_lost_is_not_begun() -> None:
    """Its first operation would fail in the guest: another crash state is tried."""
    assert survived(ORDERED, WHOLE, 4, recovered_after([])) is None


def test_states_by_chance_are_those_of_the_seed() -> None:
    times = (
        CrashTime(3, 3, 0, Choices(3, (0,), (1, 2))),
        CrashTime(9, 9, 0, Choices(9, (), (3, 4, 5, 6))),
    )

    def name(time: CrashTime, lost: tuple[int, ...]) -> CrashState:
        assert set(time.choices.absent) <= set(lost) <= {*time.choices.absent, *time.choices.volatile}
        return CrashState(time.entry, tuple(sorted(lost)))

    legal = SimpleNamespace(crash_times=times, name=name)
    first = cast(Recording, SimpleNamespace(legal=legal))
    one, again, other = (list(islice(by_chance(first, seed), 40)) for seed in (1, 1, 2))
    assert one == again != other
    assert len(set(one)) > 10


def test_without_times_they_are_those_of_the_logs_order(tmp_path: Path) -> None:
    log = SimpleNamespace(entries=range(7))
    first = cast(Recording, SimpleNamespace(legal=None, write_log=log))
    assert {s.prefix for s in islice(by_chance(first, 3), 100)} == set(range(1, 8))


@pytest.mark.parametrize(
    "texts",
    [["crash 1", "create f"], ["create f", "crash 1"], ["create f", "crash 1", "sync", "crash 2", "sync"]],
)
def test_the_power_fails_between_two_operations_and_once(texts: list[str]) -> None:
    with pytest.raises(UsageError, match="between two operations"):
        need_possible(operations(*texts))


@pytest.mark.parametrize("word", ["x", "@t34@t2", "@3+eio-read8", "-1"])
def test_a_crash_names_one_state_or_a_number(word: str) -> None:
    with pytest.raises(UsageError):
        parse_operation(f"crash {word}")


def test_what_is_open_is_closed_by_the_crash() -> None:
    need_possible(operations("create f", "open f @h", "crash 1", "open f @h", "fsync @h"))
    with pytest.raises(UsageError, match="@h is not open"):
        need_possible(operations("create f", "open f @h", "crash 1", "fsync @h"))


def test_the_page_says_which_life_and_what_was_lost() -> None:
    texts = [step.text for step in steps_of(second(kept=3))]
    assert texts[2:6] == [
        "fsync f (before the crash)",
        "create g (before the crash, lost)",
        "crash 1: @t7=",
        "append f 4096",
    ]


def test_the_crash_is_found() -> None:
    assert crash_of(WHOLE) == 4
    assert crash_of(operations(*FIRST)) is None


class PretendDisk:
    """Makes images of the state that was switched to."""

    def __enter__(self) -> PretendDisk:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def open(self, *_: object) -> None:
        pass

    def switch(self, state: CrashState) -> None:
        self.state = str(state)

    def image(self, path: Path) -> str:
        path.write_text(self.state)
        return "hash"


def test_the_part_after_the_crash_begins_on_what_repair_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began on the crash state itself, which ext2 cannot mount soundly and FAT calls dirty."""
    monkeypatch.setattr("harness.cases.crash_and_continue.Disk", PretendDisk)
    program, image = tmp_path / "repair", tmp_path / "image"
    program.write_text('#!/bin/sh\nprintf " repaired" >>"$1"; exit 1\n')
    program.chmod(0o755)
    shown = SimpleNamespace(base=tmp_path, log=tmp_path, order=None), CrashState(7)
    tool = Tool(str(program), "none", clean=(0, 1))
    first = SimpleNamespace(shown=lambda _: shown, profile=SimpleNamespace(repair=tool))
    make_image(cast(Recording, first), CrashState(7), image)
    assert image.read_text() == "@7 repaired"
