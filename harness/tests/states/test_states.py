"""The fault models on a small log, and the naive replay that is the reference for everything else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import WriteLogError
from harness.model import SECTOR_BYTES, CrashState, EntryFlag, LogEntry
from harness.states import FAULT_MODELS, enumerate_prefixes, enumerate_states
from harness.tests.states.logs import BASE, SECTORS, logs
from harness.tests.states.replay import replay
from harness.writelog import Discard, Flush, MarkText, Step, Write, WriteLog, read_log, write_log
from harness.writelog.times import TimedFlush, TimedWrite, Times

S = SECTOR_BYTES
W1, W2, W3 = Write(0, b"1" * S), Write(1, b"2" * S), Write(2, b"3" * S)


def _log(tmp_path: Path, *steps: Step) -> WriteLog:
    write_log(tmp_path / "log", steps)
    return read_log(tmp_path / "log")


def _names(log: WriteLog, model: str) -> list[str]:
    return [str(state) for state in FAULT_MODELS[model].states(log)]


def _letters(device: bytes) -> str:
    return device[::S].decode().replace("\0", "0")


def test_prefixes_of_w1_w2_f_w3(tmp_path: Path) -> None:
    log = _log(tmp_path, W1, W2, Flush(), W3)
    assert _names(log, "prefix") == ["@0", "@1", "@2", "@3", "@4"]
    shown = [_letters(replay(b"." * 4 * S, log, state)) for state in enumerate_prefixes(log)]
    assert shown == ["....", "1...", "12..", "12..", "123."]


def test_only_volatile_writes_are_dropped(tmp_path: Path) -> None:
    """Nothing that precedes a completed flush is dropped, and no FUA write."""
    log = _log(tmp_path, W1, W2, Flush(), W3, Write(3, b"4" * S, EntryFlag.FUA), MarkText("ack 0"), W1)
    assert _names(log, "drop") == ["@2-0", "@5-3", "@6-3", "@7-3"]


def test_a_flush_makes_nothing_durable_that_is_on_the_other_device(tmp_path: Path) -> None:
    """Each device has its own cache: a journal's flush is none of the data's device."""
    log = _log(tmp_path, MarkText("devices 8,0+0 8,16+100"), W1, Write(100, b"2" * S), Flush(), W2)
    assert _names(log, "drop") == ["@3-1", "@4-2", "@5-2"]


def test_a_flush_that_carries_data_makes_durable_what_is_before_it_and_not_itself(tmp_path: Path) -> None:
    log = _log(tmp_path, W1, Write(1, b"2" * S, EntryFlag.FLUSH), W3)
    assert _names(log, "drop") == ["@3-1"]


def test_writes_are_torn_inside_blocks_only(tmp_path: Path) -> None:
    log = _log(tmp_path, Write(6, b"x" * 4 * S), Write(0, b"y" * S), Discard(0, 4), Flush())
    assert _names(log, "torn") == ["@1/t1", "@1/t3"]  # sector 8 begins a block
    two_blocks = _log(tmp_path, Write(8, b"x" * 16 * S))
    assert len(_names(two_blocks, "torn")) == 14


@given(logs, st.sampled_from([1, 8]))
def test_no_state_tears_a_physical_sector(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step], unit: int
) -> None:
    """A disk with sectors of 4 KiB writes them as a whole: a torn one was reported as a state of its."""
    log = _log(tmp_path_factory.mktemp("log"), *steps)
    for state in enumerate_states(["prefix", "drop", "torn"], log, unit):
        if state.torn_sectors is not None:
            assert (log.entries[state.prefix - 1].sector + state.torn_sectors) % unit == 0


def test_a_write_across_physical_sectors_is_torn_where_they_meet(tmp_path: Path) -> None:
    log = _log(tmp_path, Write(5, b"x" * 7 * S))
    names = [[str(s) for s in FAULT_MODELS["torn"].states(log, unit)] for unit in (1, 2, 4, 8)]
    assert names == [["@1/t1", "@1/t2", "@1/t4", "@1/t5", "@1/t6"], ["@1/t1", "@1/t5"], [], []]


@given(logs)
def test_no_model_repeats_a_state(tmp_path_factory: pytest.TempPathFactory, steps: list[Step]) -> None:
    log = _log(tmp_path_factory.mktemp("log"), *steps)
    for model in FAULT_MODELS.values():
        states = list(model.states(log))
        assert len(set(states)) == len(states)
        assert [CrashState.parse(str(state)) for state in states] == states


@given(logs)
def test_full_replay_equals_the_device(tmp_path_factory: pytest.TempPathFactory, steps: list[Step]) -> None:
    log = _log(tmp_path_factory.mktemp("log"), *steps)
    device = [BASE[s * S : (s + 1) * S] for s in range(SECTORS)]
    for step in steps:
        match step:
            case Write(sector, data, _):
                device[sector : sector + len(data) // S] = [data[i : i + S] for i in range(0, len(data), S)]
            case Discard(sector, sectors):
                device[sector : sector + sectors] = [bytes(S)] * sectors
    assert replay(BASE, log, CrashState(len(steps))) == b"".join(device)


def test_replay_of_dropped_and_torn(tmp_path: Path) -> None:
    log = _log(tmp_path, Write(0, b"1" * 3 * S), Write(1, b"2" * 3 * S))
    base = b"." * 4 * S
    assert _letters(replay(base, log, CrashState(2, (0,)))) == ".222"
    assert _letters(replay(base, log, CrashState(2, (), 2))) == "122."
    assert _letters(replay(base, log, CrashState(2, (0,), 1))) == ".2.."


def test_replay_refuses_what_does_not_fit(tmp_path: Path) -> None:
    log = _log(tmp_path, Write(3, b"1" * 2 * S))
    with pytest.raises(WriteLogError, match="@2"):
        replay(bytes(8 * S), log, CrashState(2))
    with pytest.raises(WriteLogError, match="ends at sector 5, the device at 4"):
        replay(bytes(4 * S), log, CrashState(1))


def overtaken(*, fua: bool = True, block: int = 2) -> tuple[WriteLog, Times]:
    """W0 completes, flush A is sent; flush B is sent and overtakes it, so W0 is durable, but not logged
    before A completes; meanwhile another write is sent, completes, and is logged.
    """
    flags = EntryFlag.FUA if fua else EntryFlag(0)
    entries = (
        LogEntry(0, 0, 0, EntryFlag.FLUSH, 0),  # B
        LogEntry(1, 8 * block, 8, flags, 0),
        LogEntry(2, 0, 8, EntryFlag(0), 0),  # W0
        LogEntry(3, 0, 0, EntryFlag.FLUSH, 0),  # A
    )
    writes = (TimedWrite(2, 0, 1), TimedWrite(1, 5, 6, fua=fua))
    flushes = (TimedFlush(0, 3, 4), TimedFlush(3, 2, 7))
    return WriteLog(Path("log"), SECTOR_BYTES, entries, 0), Times(writes, flushes, (), 8)


def test_where_a_flush_overtook_another_no_state_lacks_what_that_made_durable() -> None:
    """It was logged behind what was sent afterwards: prefixes, and torn writes, lacked it, a false alarm."""
    log, times = overtaken()
    listed = [str(s) for s in enumerate_states(["prefix", "drop", "torn"], log, times=times)]
    assert "@2" in [str(s) for s in enumerate_states(["prefix"], log)]
    assert [name for name in listed if "/" not in name] == ["@0", "@1", "@3", "@4"]
    assert [name for name in listed if "/" in name] == []


def test_what_another_write_lies_over_is_not_missed_in_a_state_without_it() -> None:
    """The two were not in flight together, and the later one covers the earlier."""
    log, times = overtaken(block=0)
    assert "@2" in [str(s) for s in enumerate_states(["prefix"], log, times=times)]


def test_no_state_lacks_what_the_flush_ahead_of_its_data_made_durable() -> None:
    log, times = overtaken(fua=False)
    first, second = times.writes
    ahead = replace(times, writes=(first, replace(second, preflush=True)), flushes=times.flushes[1:])
    listed = [str(s) for s in enumerate_states(["prefix"], log, times=ahead)]
    assert listed == ["@0", "@1", "@3", "@4"]
