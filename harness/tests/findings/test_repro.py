"""Crash points that a user types: those in which no disk can be are refused, not judged."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from harness.errors import EnvironmentLacks, StoreError, UsageError
from harness.findings import repro
from harness.findings.repro import console_machine, find_point, machine_for, need_possible, tools_for_shell
from harness.kernels.find import Kernel
from harness.model import CaseId, CrashPoint, EntryFlag, LogEntry
from harness.plan import Plan
from harness.states import FAULT_MODELS
from harness.store import RunStore
from harness.store.records import CaseInfo
from harness.tests.report.demo import demo_run, run_info
from harness.tests.states.logs import logs
from harness.writelog import Step, read_log, write_log

NONE = EntryFlag(0)
ENTRIES = (
    LogEntry(0, 0, 0, EntryFlag.MARK, 0, "begin 0"),
    LogEntry(1, 0, 8, NONE, 0),
    LogEntry(2, 8, 8, EntryFlag.FLUSH, 0),  # data of the next epoch
    LogEntry(3, 16, 8, NONE, 0),
    LogEntry(4, 24, 8, EntryFlag.FUA, 0),
    LogEntry(5, 32, 8, EntryFlag.DISCARD, 0),
    LogEntry(6, 40, 1, NONE, 0),
)


def point(state: str) -> CrashPoint:
    return CrashPoint.parse(f"ext4-ordered/w{state}")


@pytest.mark.parametrize(
    "state", ["@0", "@7", "@2-1", "@4-2", "@4-3", "@7-2,3", "@6-5", "@4/t1", "@4/t7", "@5/t3"]
)
def test_a_state_that_can_be_is_taken(state: str) -> None:
    need_possible(point(state), ENTRIES)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("@8", "has 7 entries"),
        ("@4-1", "made durable by the flush 2"),
        ("@4-0", "not a write that a cache could lose"),
        ("@6-4", "not a write that a cache could lose"),
        ("@4/t8", "has 8 sectors"),
        ("@4/t0", "has 8 sectors"),
        ("@7/t1", "has 1 sectors"),
        ("@1/t1", "not a write that could be torn"),
        ("@6/t1", "not a write that could be torn"),
        ("@0/t1", "not a write that could be torn"),
    ],
)
def test_a_state_that_cannot_be_says_why(state: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        need_possible(point(state), ENTRIES)
    assert "powercut log ls" in str(caught.value)


@given(steps=logs)
def test_every_state_of_the_fault_models_can_be(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    write_log(path, steps)
    log = read_log(path)
    for model in FAULT_MODELS.values():
        for state in model.states(log):
            need_possible(CrashPoint(CaseId("ext4", "ordered", "w"), state), log.entries)


def test_a_finding_that_the_run_does_not_have_says_which_it_has(tmp_path: Path) -> None:
    with demo_run(tmp_path) as store:
        known = store.findings()[0]
        assert find_point(known.id, store) == known.crash_point
        with pytest.raises(UsageError, match="no finding 0123456789ab") as caught:
            find_point("0123456789ab", store)
    assert known.id in str(caught.value)


def test_a_shell_gets_the_tools_of_every_file_system_that_this_host_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find(wanted: str) -> Path:
        if wanted.endswith(":xfsprogs"):
            raise EnvironmentLacks(wanted)
        return Path(wanted)

    monkeypatch.setattr(repro, "find_program", find)
    there, lacking = tools_for_shell()
    assert there[0] == "busybox:busybox-static"
    assert {w.partition(":")[2] for w in there[1:]} == {"e2fsprogs", "btrfs-progs", "f2fs-tools"}
    assert {"debugfs:e2fsprogs", "btrfs:btrfs-progs", "dump.f2fs:f2fs-tools"} <= {*there}
    assert {w.partition(":")[2] for w in lacking} == {"xfsprogs"}


def test_another_kernel_that_is_a_program_is_booted_where_the_run_booted_such_ones(tmp_path: Path) -> None:
    """A second kernel for UML, named to show that it is fixed, was tried in QEMU."""
    image = tmp_path / "bzImage"
    image.write_bytes(bytes(1024))
    program, other = (Kernel(str(p), p, None, "00") for p in (Path(sys.executable), image))
    for machine, kernel, expected in (
        ("uml", program, "uml"),
        ("uml", other, "auto"),
        ("uml", replace(program, machine="uml"), "auto"),
        ("qemu", program, "auto"),
        ("auto", program, "auto"),
    ):
        assert machine_for(kernel, Plan(configurations=[], workloads=[], machine=machine)) == expected


def test_a_case_that_was_stopped_before_it_was_recorded_says_so(tmp_path: Path) -> None:
    """`repro` advised to name a crash point "from @0 to @0"."""
    case = CaseId("ext4", "ordered", "later")
    with RunStore.create(tmp_path, "test", run_info()) as store:
        store.put_plan(Plan(configurations=["ext4/ordered"], workloads=["later"]))
        store.add_case(CaseInfo(case))
        with pytest.raises(StoreError, match="no recording of ext4-ordered/later: it was stopped") as caught:
            find_point(f"{case}@3", store)
        assert f"powercut run --resume {store.path}" in caught.value.next_step


def test_a_case_that_was_not_packed_says_how_it_is(tmp_path: Path) -> None:
    """It said "[Errno 2] No such file or directory: .../log.zst"."""
    case = CaseId("ext4", "ordered", "append-fsync")
    with RunStore.create(tmp_path, "test", run_info()) as store:
        store.put_plan(Plan(configurations=["ext4/ordered"], workloads=["append-fsync"]))
        store.add_case(CaseInfo(case, files={"log.zst": "00"}))
        with pytest.raises(StoreError, match="has no recording of ext4-ordered/append-fsync") as caught:
            repro._files(store, case)
    assert "powercut pack RUN ext4-ordered/append-fsync" in caught.value.next_step


def test_a_console_is_opened_where_there_is_one() -> None:
    """`repro --shell` of a run with `--machine uml` said that UML gives no console, and to name the kernel
    that the run had.
    """
    packaged = Kernel("debian-6.12.117", Path("vmlinuz"), None, "", "6.12.117-1")
    assert console_machine("uml", packaged) == "auto"
    assert console_machine("qemu", packaged) == "qemu"
    assert console_machine("uml", Kernel("mine", Path("linux"), None, "")) == "uml"
