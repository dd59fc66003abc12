"""Scripts: the requests of a recording in virtual time, written down beforehand."""

from __future__ import annotations

import struct

import msgspec

from harness.guests import wire
from harness.guests.script import BATCH, Scripted, encoded, steps_of
from harness.model import Operation, OperationKind, Schedule

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
