"""Recordings in virtual time: one seed, one recording."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from harness.cases import recording
from harness.cases.recording import Taken, make_base, recording_of, take
from harness.errors import CannotRecord, ExitCode
from harness.filesystems.profiles import select_profiles
from harness.guests.guest_specs import spec_of
from harness.guests.session import Session
from harness.guests.threads import may_decide, told
from harness.guests.uml import Uml
from harness.kernels.find import Kernel
from harness.model import CaseId, Threads, Workload
from harness.model.schedules import ScheduleName, schedule_of, under_schedule
from harness.plan import Clock, Completions, Plan
from harness.tests.cli.runner import powercut
from harness.tests.vm.conftest import run_plan
from harness.workloads.load import load_workload, select_workloads
from harness.writelog import read_log
from harness.writelog.calls import is_call_line

LOG_BYTES = 256 << 20
MODES = ["ext4/ordered", "xfs/default", "btrfs/default", "f2fs/posix"]


class Recorder:
    """Records on the UML kernel, in virtual time."""

    def __init__(self, kernel: Path, mode: str, workload: Workload, folder: Path) -> None:
        assert Uml().decides_threads(kernel), "built by an earlier version: powercut kernel build"
        self.profile, self.workload, self.folder = select_profiles([mode])[0], workload, folder
        self.spec = spec_of(
            Uml(), Kernel("uml", kernel, None, ""), [self.profile], [workload], folder / "initramfs.cpio"
        )
        self.base = make_base(self.profile, folder / "base.zst", folder)

    def take(
        self,
        name: str,
        schedule: int = 0,
        threads: Threads | None = None,
        clock: Clock = Clock.VIRTUAL,
        whole: bool = False,
    ) -> Taken:
        """`threads`: instead of those that the schedule's number draws. `whole`: with notes of calls."""
        case = CaseId(
            self.profile.filesystem,
            self.profile.mode,
            under_schedule(self.workload.name, ScheduleName(schedule)),
        )
        with (
            pytest.MonkeyPatch.context() as patched,
            Session(self.spec, self.folder / name, LOG_BYTES, clock=clock) as session,
        ):
            if threads:
                patched.setattr(
                    "harness.guests.session.with_threads", lambda s: dataclasses.replace(s, threads=threads)
                )
            assert session.guest_pid is None
            session.whole = whole
            taken = take(session, self.profile, self.workload, case, self.base, self.folder)
            chosen = schedule_of(ScheduleName(schedule), len(self.workload.operations))
            assert session.in_virtual_time(chosen) is (clock is Clock.VIRTUAL)
            assert bool(session.noted) is whole
        return taken


@pytest.mark.parametrize("mode", MODES)
def test_two_recordings_with_one_seed_are_equal_byte_for_byte(
    uml_kernel: Path, mode: str, tmp_path: Path
) -> None:
    """Log, marks and times. Each in a guest and a folder of its own; under a schedule whose pauses and timers
    let the kernel's own threads work, too.
    """
    recorder = Recorder(uml_kernel, mode, load_workload("append-fsync"), tmp_path)
    for schedule in (0, 2):
        seen = []
        for name in ("one", "another"):
            taken = recorder.take(f"{name}{schedule}", schedule)
            seen.append((taken.log.read_bytes(), taken.events, taken.said))
        assert seen[0] == seen[1]
        assert recording_of(taken).times is not None


DELICATE = """
seq 2000 >f; sync f; seq 99 >g; ln -s f l; sync; powercut-ack 0
cat l f >/dev/null; sync; seq 1500 >f; seq 50 >>g; exec 3>gone; rm gone; seq 900 >&3; mv g h; sync h
dd if=/dev/zero of=direct bs=4096 count=3 oflag=direct 2>/dev/null; cat l f >/dev/null
dd if=/bin/busybox of=f bs=700 seek=2 count=9 conv=notrunc 2>/dev/null; powercut-ack 1
sync .; ls -lR >/dev/null
"""
"""What looking at it might change: access times, files that are written back when they are closed, pages in
the cache of a file that is written to past it, a file without a name.
"""
BEGINS = (0, 3333, 1111, 2222, 4444)
"""Microseconds after which the program begins: a tick of the timer takes 10,000."""


@pytest.mark.parametrize("mode", MODES)
def test_notes_of_calls_change_nothing_of_a_recording(uml_kernel: Path, mode: str, tmp_path: Path) -> None:
    """The log with notes and the log without are the same, byte for byte, and so are the times of its writes.

    But a file's times are those of the timer's last tick, and between two writes notes may move the program
    across one: what they change by looking, they change whenever the program begins, and a tick they do not.
    And btrfs puts nanoseconds into its roots (btrfs_update_root_times), and each look at the clock of such a
    guest moves it by one: there, the same is written in the same order.
    """

    def is_the_same(begin: int) -> bool:
        program = tmp_path / f"after-{begin}"
        program.mkdir()
        (program / "run").write_text(f"#!/bin/sh\nset -e\nusleep {begin}\n{DELICATE}\n")
        (program / "check").write_text("#!/bin/sh\n")
        (program / "workload.toml").write_text('summary = "a program"\n')
        (workload,) = select_workloads([str(program)])
        recorder = Recorder(uml_kernel, mode, workload, program)
        seen = []
        for whole in (False, True):
            taken = recorder.take(f"{whole}", whole=whole)
            events = [line for line in taken.events.splitlines() if not is_call_line(line)]
            held = taken.log.read_bytes() if mode != "btrfs/default" else b""
            seen.append((events, list(map(str, read_log(taken.log).entries)), held))
        assert seen[0][1] == seen[1][1], "the same is written, in the same order"
        return seen[0] == seen[1]

    assert any(map(is_the_same, BEGINS))


def told_of(taken: Taken) -> tuple[int, list[int]]:
    """How many points there were, and the numbers of those at which something else than ever happened."""
    found = told(line for part in taken.said for line in part.lines)
    if found is None:
        return 0, []
    assert found.is_whole, "few enough to be told, all of them"
    return found.points, list(found.lines)


def who_was_stalled(taken: Taken) -> frozenset[str]:
    found = told(line for part in taken.said for line in part.lines)
    assert found is not None
    return frozenset(line.split(" is kept from running")[0] for line in found.lines.values())


@pytest.mark.parametrize("mode", ["ext4/ordered", "f2fs/posix"])
def test_writes_complete_as_late_as_they_do_in_real_time(uml_kernel: Path, mode: str, tmp_path: Path) -> None:
    """They completed at once: the kernel's sscanf knows no ranges, so it took no order at all. F2FS' first
    fsync sends its flush while its node block is in flight, which was never seen.
    """
    recorder = Recorder(uml_kernel, mode, load_workload("append-fsync"), tmp_path)
    virtual = recorder.take("virtual")
    real = recorder.take("real", clock=Clock.REAL)
    assert sent_and_completed(virtual) == sent_and_completed(real)


def sent_and_completed(taken: Taken) -> list[str]:
    """The order of all that the disk was asked for and said, until the file system was unmounted."""
    events = [
        " ".join(word for word in line.split() if not re.match(r"\d+,\d+|\[", word))
        for line in taken.events.splitlines()
    ]
    last = max(i for i, line in enumerate(events) if " ack " in f"{line} ")
    return events[: last + 1]


def what_was_written(taken: Taken) -> list[tuple[int, int, str]]:
    """Times and random numbers apart."""
    return [(e.sector, e.sectors, str(e.flags)) for e in recording_of(taken).write_log.entries]


def test_a_seed_decides_which_threads_meet_and_a_list_of_its_decisions_does_the_same(
    uml_kernel: Path, tmp_path: Path
) -> None:
    """Two threads at work: where there is one, little but a stall changes the order of writes."""
    recorder = Recorder(uml_kernel, "ext4/ordered", load_workload("attributes"), tmp_path)
    plain = recorder.take("plain", 1, Threads(1, 0, 0, 0, 0.0))
    points, numbers = told_of(plain)
    assert points > 100
    assert not numbers, "no rate, no decision"
    orders = [what_was_written(plain)]
    for seed in range(2, 6):
        slow = (0, 2)[seed % 2]
        threads = Threads(seed, 320, 40, *((80, 0.1) if slow else (4096, 6.0)), slow)
        free = recorder.take(f"free{seed}", 1, threads)
        orders.append(what_was_written(free))
        points, numbers = told_of(free)
        assert numbers
        assert set(numbers) <= set(may_decide(threads, points)), "the harness knows what a seed may decide"
        listed = recorder.take(f"listed{seed}", 1, dataclasses.replace(threads, only=tuple(numbers)))
        assert told_of(listed) == (points, numbers)
        assert (listed.log.read_bytes(), listed.events) == (free.log.read_bytes(), free.events)
    assert len(set(map(tuple, orders))) >= 4, "a choice among threads that are alike changes no order"


def test_threads_are_kept_from_running_for_a_minute_in_all_at_most(uml_kernel: Path, tmp_path: Path) -> None:
    """A program's deadline is of the guest's time: with a stall at each point, all of them would pass."""
    recorder = Recorder(uml_kernel, "ext4/ordered", load_workload("append-fsync"), tmp_path)
    taken = recorder.take("stalled", 1, Threads(1, 0, 0, 1, 6.0))
    _, numbers = told_of(taken)
    assert len(numbers) == 10, "stalls of 6 s"


def test_the_threads_that_lose_every_race_are_chosen_by_the_seed(uml_kernel: Path, tmp_path: Path) -> None:
    recorder = Recorder(uml_kernel, "ext4/ordered", load_workload("attributes"), tmp_path)
    points, numbers = told_of(recorder.take("none", 1, Threads(1, 0, 0, 1, 6.0, slow=10**9)))
    assert points
    assert not numbers, "one thread in a milliard is none"
    stalled = {
        who_was_stalled(recorder.take(f"slow{n}", 1, Threads(n, 0, 0, 1, 6.0, slow=2))) for n in range(1, 6)
    }
    assert len(stalled) >= 2


def test_without_a_schedule_no_seed_decides(uml_kernel: Path, tmp_path: Path) -> None:
    recorder = Recorder(uml_kernel, "ext4/ordered", load_workload("append-fsync"), tmp_path)
    assert told_of(recorder.take("plain")) == (0, [])


def test_a_disk_that_cannot_be_memory_is_not_recorded_in_real_time_instead(
    uml_kernel: Path, tmp_path: Path
) -> None:
    """It was, and the report said that it was recorded in virtual time."""
    recorder = Recorder(uml_kernel, "ext4/ordered@4k", load_workload("append-fsync"), tmp_path)
    with pytest.raises(CannotRecord, match="virtual time"):
        recorder.take("one")


@pytest.mark.parametrize("completions", Completions)
def test_a_recording_is_made_again_from_its_seed(
    uml_kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, completions: Completions
) -> None:
    """`repro --record`: equal under the schedule of its name; under another one it says what differs. Nothing
    asked for virtual time: a schedule has it where the kernel can. Of a run with `--completions prompt`, each
    recording was called another one: writes had been held while it was made again.
    """
    plan = Plan(
        configurations=["ext4/ordered"],
        workloads=[under_schedule("append-fsync", ScheduleName(2))],
        machine="uml",
        kernel=str(uml_kernel),
        completions=completions,
    )
    _, path = run_plan(plan, tmp_path)
    asked = ("repro", "ext4-ordered/append-fsync.s2@9", "--from", path, "--kernel", uml_kernel, "--record")
    same = powercut(*asked)
    assert "the recordings are equal, byte for byte" in same.stdout, same.output
    assert same.exit_code == ExitCode.CONSISTENT
    monkeypatch.setattr(
        recording, "schedule_of", lambda number, operations: schedule_of(ScheduleName(1), operations)
    )
    other = powercut(*asked)
    assert "not the same: the write log" in other.stdout, other.output
    assert other.exit_code == ExitCode.INCONSISTENT


@pytest.mark.parametrize(
    ("workload", "clock"), [("append-fsync", Clock.AUTO), ("append-fsync.s2", Clock.REAL)]
)
def test_a_recording_of_real_time_is_not_made_again(
    uml_kernel: Path, tmp_path: Path, workload: str, clock: Clock
) -> None:
    plan = Plan(
        configurations=["ext4/ordered"],
        workloads=[workload],
        machine="uml",
        kernel=str(uml_kernel),
        clock=clock,
    )
    _, path = run_plan(plan, tmp_path)
    asked = ("repro", f"ext4-ordered/{workload}@9", "--from", path, "--kernel", uml_kernel, "--record")
    done = powercut(*asked)
    said = " ".join(done.stderr.split())
    assert "recorded in real time: no second recording equals it" in said
    named = f"powercut run -c ext4/ordered -w {workload} --kernel {uml_kernel} --machine uml --clock virtual"
    assert named in said  # the line it had printed was refused: no --machine, another kernel
    assert done.exit_code == ExitCode.USAGE


def test_a_schedule_is_shrunk_to_what_a_finding_needs_of_it(uml_kernel: Path, tmp_path: Path) -> None:
    """XFS' sync sends no flush. With the disk's order of this schedule that shows, whichever thread runs."""
    own = tmp_path / "own.toml"
    lines = ["create f", "append f 8192", "write f 0 4096", "sync"]
    own.write_text(f'summary = "sync"\noperations = {json.dumps(lines)}\n')
    word = under_schedule(str(own), ScheduleName(1))
    plan = Plan(
        configurations=["xfs/default"],
        workloads=[word],
        machine="uml",
        kernel=str(uml_kernel),
        fault_models=("exhaustive",),
    )
    _, path = run_plan(plan, tmp_path)
    named = ("--kernel", uml_kernel, "--workload", word)
    done = powercut("shrink", "xfs-default/own.s1", "--from", path, *named)
    assert done.exit_code == ExitCode.INCONSISTENT, done.output
    assert "no decision of the schedule: @" in done.output, done.output
    assert ".toml.s1+none" in done.output
