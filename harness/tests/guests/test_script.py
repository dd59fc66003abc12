"""Scripts: the requests of a recording in virtual time, written down beforehand."""

from __future__ import annotations

import dataclasses
import struct

import msgspec
import pytest

from harness.guests import wire
from harness.guests.script import BATCH, Scripted, encoded, steps_of
from harness.model import Operation, OperationKind, Schedule, Threads

START = wire.RecordStart(data="/dev/vda", log="/dev/log", mount=wire.MountSpec("ext4", ""))


PLAIN = Schedule()


def steps(operations: int, schedule: Schedule = PLAIN) -> list[Scripted]:
    return steps_of(START, [Operation(OperationKind.SYNC)] * operations, schedule, 0)


def test_a_script_begins_and_ends_the_recording_and_has_each_operation_once() -> None:
    for count in (0, 1, BATCH, BATCH + 1, 3 * BATCH):
        made = steps(count)
        assert [type(s.request) for s in (made[0], made[-1])] == [wire.RecordStart, wire.RecordFinish]
        assert sum(len(step.operations) for step in made) == count
        numbers = [step.number for step in made if step.operations]
        assert numbers == list(range(0, count, BATCH))


def test_a_schedule_s_pauses_and_timers_are_in_the_script() -> None:
    """Nothing in the recorded part may wait for the host, which used to make the pauses."""
    made = steps(20, Schedule(7, pauses=((3, 35.0), (18, 0.5)), timers=(20, 5)))
    assert [(s.number, s.pause_s) for s in made if s.pause_s] == [(3, 35.0), (18, 0.5)]
    put = [s.request for s in made if isinstance(s.request, wire.PutFile)]
    assert [p.data for p in put] == [b"20\n", b"5\n", b"3000\n", b"500\n"]


def test_a_script_is_a_pause_and_a_frame_again_and_again() -> None:
    """As `vms/agent/src/script.rs` reads it."""
    made = steps(20, Schedule(7, pauses=((3, 1.5),)))
    script, found = encoded(made), []
    while script:
        pause_us, length = struct.unpack_from("<QI", script)
        found.append((pause_us, msgspec.msgpack.decode(script[12 : 12 + length])["type"]))
        script = script[12 + length :]
    assert [pause for pause, _ in found] == [round(s.pause_s * 1e6) for s in made]
    assert found[0][1] == "record_start"
    assert (1_500_000, "run_operations") in found


def test_threads_meet_while_operations_run_and_at_no_other_time() -> None:
    """The kernel's own parameters; not on its command line, which it stirs into its random numbers."""
    made = steps(20, Schedule(7, threads=Threads(7, 32, 2, 512, 0.1, slow=4)))
    tags = [s.request.path if isinstance(s.request, wire.PutFile) else type(s.request).__name__ for s in made]
    only, threads = (f"/sys/module/powercut/parameters/{name}" for name in ("only", "threads"))
    assert tags == ["RecordStart", only, threads, "RunOperations", "RunOperations", threads, "RecordFinish"]
    put = [s.request for s in made if isinstance(s.request, wire.PutFile)]
    assert [p.data.strip() for p in put] == [b"", b"7 32 2 512 100000000 4", b"0"]
    assert all(p.append for p in put), "these files are there"


def test_a_schedule_is_cut_to_some_of_its_decisions_and_is_the_same_else() -> None:
    """The script's length was another one, is on the command line, and so were the random numbers."""
    threads = Threads(7, 32, 2, 512, 0.1)
    whole, cut = (
        steps(1, Schedule(7, threads=dataclasses.replace(threads, only=only))) for only in ((), (3, 4711))
    )
    assert len(encoded(whole)) == len(encoded(cut))
    put = [s.request for s in cut if isinstance(s.request, wire.PutFile)]
    assert put[0].data.split() == [b"3", b"4711"]
    assert 512 <= len(put[0].data) < 4096
    with pytest.raises(ValueError, match="too many"):
        steps(1, Schedule(7, threads=dataclasses.replace(threads, only=tuple(range(10_000)))))
