"""A case that an earlier run decided is taken, and no other one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from harness.cases import pins
from harness.cluster.earlier import asks_no_less, take_decided
from harness.filesystems.profiles import select_profiles
from harness.host.files import file_hash
from harness.model import CaseId, Workload
from harness.plan import Budget, Plan
from harness.store import RunStore
from harness.store.records import CaseStatus
from harness.summary import summarise
from harness.tests.report.demo import add_case, run_info
from harness.workloads.load import parse_operation

CASE = CaseId("ext4", "ordered", "append-fsync")
(PROFILE,) = select_profiles(["ext4/ordered"])
WORKLOAD = Workload(CASE.workload, "", (parse_operation("sync"),))
PLAN = Plan(configurations=["ext4/ordered"], workloads=[CASE.workload], budget=Budget(100, 10))
MACHINE = {"machine qemu": "m", "QEMU of qemu": "q", "initramfs for qemu": "of these modes"}
SHARED = {"powercut": "1", "powercut's source": "s", "kernel k": "k", "agent": "a", "disk": "d"} | MACHINE


@pytest.fixture(autouse=True)
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "pins_of_mode", lambda profile: {f"mode {profile.name}": "mode"})
    monkeypatch.setattr("harness.cluster.earlier.pins_of_mode", pins.pins_of_mode)


def pinned(**changed: str) -> dict[str, str]:
    named = {name.replace("_", " "): value for name, value in changed.items()}
    of_case = pins.pins_of_mode(PROFILE) | pins.pins_of_workloads([WORKLOAD])
    return {"module ext4.ko": "e"} | SHARED | of_case | named


def make(out: Path, plan: Plan = PLAN, of: dict[str, str] | None = None) -> RunStore:
    store = RunStore.create(out, "run", replace(run_info(), pins={}, plan=""), durable=False)
    store.put_plan(plan)
    store.put_pins(of or pinned())
    return store


def decided(out: Path, plan: Plan = PLAN, of: dict[str, str] | None = None, base: bytes = b"base") -> Path:
    """A run that has decided the case."""
    with make(out, plan, of) as store:
        add_case(store, CASE, "")
        kept = store.layout.case(CASE)
        kept.folder.mkdir(parents=True, exist_ok=True)
        kept.base.write_bytes(base)
        for file in (kept.log, kept.history):
            file.write_bytes(file.name.encode())
        kept.recovery(next(store.iter_verdicts(CASE)).state).parent.mkdir()
        (kept.folder / "recoveries" / "0123456789abcdef.zst").write_bytes(b"what a recovery wrote")
        hashes = {f.name: file_hash(f) for f in (kept.base, kept.log, kept.history)}
        record = store.case(CASE)
        assert record is not None
        store.add_case(replace(record.info, files=hashes, timeline=store.timeline(CASE)))
        store.finish()
        return store.path


def take(out: Path, plan: Plan = PLAN, **changed: str) -> tuple[dict[str, int], RunStore]:
    store = make(out / "new", plan, pinned(**changed))
    base = store.layout.base(CASE.filesystem, CASE.mode)
    base.parent.mkdir(parents=True)
    base.write_bytes(b"base")
    asked = msgspec.structs.replace(plan, earlier=str(out))
    return take_decided(store, asked, [(PROFILE, WORKLOAD)], ()), store


def test_it_comes_with_its_verdicts_and_its_recording(tmp_path: Path) -> None:
    path = decided(tmp_path)
    taken, store = take(tmp_path)
    assert taken == {path.name: 1}
    with RunStore.open(path) as there:
        assert list(store.iter_verdicts(CASE)) == list(there.iter_verdicts(CASE))
        assert there.timeline(CASE) == store.timeline(CASE)
    kept = store.layout.case(CASE)
    assert kept.log.read_bytes() == b"log.zst"
    assert (kept.folder / "recoveries" / "0123456789abcdef.zst").read_bytes() == b"what a recovery wrote"
    assert not kept.own_base.exists()
    record = store.case(CASE)
    assert record is not None
    assert (record.status, record.info.taken_from) == (CaseStatus.DONE, path.name)
    (case,) = summarise(store).cases
    assert case.counts.checked == len(list(store.iter_verdicts(CASE)))


def test_its_own_base_image_comes_along_where_the_new_run_has_another(tmp_path: Path) -> None:
    """A log is worth nothing on any other image."""
    decided(tmp_path, base=b"of another day")
    taken, store = take(tmp_path)
    kept, record = store.layout.case(CASE), store.case(CASE)
    assert taken
    assert kept.base == kept.own_base
    assert kept.base.read_bytes() == b"of another day"
    assert record is not None
    assert record.info.files[kept.base.name] == file_hash(kept.base)


def test_what_was_taken_once_is_taken_on_with_the_name_of_who_decided_it(tmp_path: Path) -> None:
    path = decided(tmp_path)
    _, second = take(tmp_path)
    second.finish()
    taken, third = take(tmp_path / "new")
    assert taken == {second.path.name: 1}
    record = third.case(CASE)
    assert record is not None
    assert record.info.taken_from == path.name


@pytest.mark.parametrize(
    "changed",
    [
        *("powercut", "powercut's source", "kernel k", "agent", "disk", "machine qemu", "QEMU of qemu"),
        *("mode ext4/ordered", f"workload {CASE.workload}", "module ext4.ko"),
    ],
)
def test_nothing_is_taken_that_depends_on_another_part(tmp_path: Path, changed: str) -> None:
    ours = pinned()
    assert changed in ours, "or the test would see no difference"
    decided(tmp_path, of=ours | {changed: "another"})
    assert take(tmp_path)[0] == {}
    without = {name: value for name, value in ours.items() if name != changed}
    if not changed.startswith("module "):  # of a mode that this run did not have
        decided(tmp_path, of=without)
        assert take(tmp_path / "again", PLAN)[0] == {}


def test_other_modes_and_workloads_do_not_matter(tmp_path: Path) -> None:
    others = {"mode xfs/default": "x", "fsck of xfs": "f", "workload other": "w", "module xfs.ko": "x"}
    decided(tmp_path, of=pinned() | others | {"initramfs for qemu": "of more modes"})
    assert take(tmp_path)[0]


@pytest.mark.parametrize(
    ("then", "is_enough"),
    [
        (PLAN, True),
        (msgspec.structs.replace(PLAN, budget=Budget()), True),
        (msgspec.structs.replace(PLAN, budget=Budget(400, 60)), True),
        (msgspec.structs.replace(PLAN, budget=Budget(99, 10)), False),
        (msgspec.structs.replace(PLAN, budget=Budget(100, 9)), False),
        (msgspec.structs.replace(PLAN, fault_models=("exhaustive",)), False),
        (msgspec.structs.replace(PLAN, again=1), False),
        (msgspec.structs.replace(PLAN, oracles=("fsck",)), False),
        (msgspec.structs.replace(PLAN, memo=False), False),
        (msgspec.structs.replace(PLAN, workloads=["all"], jobs=9, minutes=3.0, argv=["run"]), True),
    ],
)
def test_a_plan_that_asked_less_decided_nothing(tmp_path: Path, then: Plan, is_enough: bool) -> None:
    assert asks_no_less(then, PLAN) is is_enough
    decided(tmp_path, plan=then)
    assert bool(take(tmp_path)[0]) is is_enough
    assert asks_no_less(PLAN, msgspec.structs.replace(PLAN, budget=Budget())) is False


def unknown(store: RunStore) -> None:
    store.set_case_status(CASE, CaseStatus.UNKNOWN, "guests were lost")


def begun(store: RunStore) -> None:
    store.set_case_status(CASE, CaseStatus.RECORDED)


def mismatched(store: RunStore) -> None:
    store.set_case_mismatch(CASE, "the memo was wrong")


@pytest.mark.parametrize("spoil", [unknown, begun, mismatched])
def test_what_was_not_decided_is_run(tmp_path: Path, spoil: Callable[[RunStore], None]) -> None:
    with RunStore.open(decided(tmp_path)) as store:
        spoil(store)
    assert take(tmp_path)[0] == {}


def test_a_file_that_was_changed_is_not_taken_and_what_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    path = decided(tmp_path, base=b"of another day")
    with RunStore.open(path) as store:
        log = store.layout.case(CASE).log
    log.write_bytes(b"changed")
    taken, new = take(tmp_path)
    assert taken == {}
    record = new.case(CASE)
    assert record is None or record.status is CaseStatus.PLANNED
    assert not new.layout.case(CASE).own_base.exists(), "it would pass as the base of a new recording"
    (path / "run.json").write_text("{")
    assert take(tmp_path / "again")[0] == {}
