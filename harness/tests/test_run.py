"""The parts of a run that need no guest."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from collections import namedtuple
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from harness import run
from harness.cases.casework import EnoughDone
from harness.cases.listing import group_by_content
from harness.errors import (
    EnvironmentLacks,
    ExitCode,
    GuestLost,
    PowercutError,
    StoreError,
    UsageError,
    VersionsDiffer,
    WriteLogError,
)
from harness.expectations import Expectation
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import select_profiles
from harness.guests import qemu
from harness.guests.disk import FOLDER_PREFIX
from harness.host.console import OutputClosed
from harness.host.folders import LOCK_NAME
from harness.host.progress import Lines
from harness.kernels.find import Kernel
from harness.model import CaseId, CrashState, Judgement, Violation, Workload
from harness.plan import Budget, ExistingDisk, Plan
from harness.ruled.work import RuledWork
from harness.run import create_run, execute, need_space, new_run
from harness.store import RunStore
from harness.store.layout import latest, runs
from harness.store.records import CaseInfo, CaseStatus, JudgedState
from harness.summary import CaseVerdict, shell_code
from harness.tests.report.demo import run_info
from harness.tests.store.samples import INFO
from harness.workloads.load import parse_operation

Usage = namedtuple("Usage", "total used free")


@given(hashes=st.lists(st.sampled_from("abc"), max_size=20))
def test_states_of_equal_content_stand_together(hashes: list[str]) -> None:
    states = [CrashState(i) for i in range(len(hashes))]
    groups = group_by_content(states, hashes)
    assert sorted(s.prefix for g in groups for s in g.states) == list(range(len(hashes)))
    assert len(groups) == len(set(hashes))
    for group in groups:
        assert {hashes[s.prefix] for s in group.states} == {group.content_hash}
        assert list(group.states) == sorted(group.states, key=lambda s: s.prefix)


def test_a_full_disk_is_told_before_anything_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, 10 << 20))
    with pytest.raises(EnvironmentLacks) as caught:
        need_space(tmp_path, select_profiles(["ext4/ordered"]), jobs=2)
    assert "10 MiB free" in str(caught.value)
    assert "elsewhere" in str(caught.value)


def test_base_images_that_are_a_cases_own_need_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two recordings of each worker have them: a run was begun that filled the host's disk."""
    (profile,) = select_profiles(["ext4/ordered"])
    free = (256 << 20) + 6 * profile.size_bytes
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, free))
    need_space(tmp_path, [profile], jobs=1)
    for workload in (Workload("w", "", (), image_mib=4096), Workload("w", "", (parse_operation("crash 1"),))):
        own = run._own_images((profile, workload))
        with pytest.raises(EnvironmentLacks):
            need_space(tmp_path, [profile], jobs=1, own_images=own)
    assert run._own_images((profile, Workload("w", "", (parse_operation("sync"),)))) == 0


def test_each_shard_needs_room_for_its_base_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (profile,) = select_profiles(["ext4/ordered"])
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, (256 << 20) + 6 * profile.size_bytes))
    need_space(tmp_path, [profile], jobs=1)
    with pytest.raises(EnvironmentLacks):
        need_space(tmp_path, [profile], jobs=1, shards=2)


def test_a_resumed_run_has_shards_for_the_cases_that_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began as many as for all cases, each with images and guests, for one case that was left."""
    (profile,) = select_profiles(["ext4/ordered"])
    workloads = [Workload(f"w{number}", "", ()) for number in range(5)]
    asked = run.Planned([(profile, w) for w in workloads], cast(Any, None), {"w4": "lacks a program"})
    plan = Plan(configurations=[], workloads=[], jobs=64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(64)})
    with RunStore.create(tmp_path, "t", INFO) as store:
        assert len(run.shards_for(plan, store, asked)) == 4
        for workload in workloads[:2]:
            case = CaseId(profile.filesystem, profile.mode, workload.name)
            store.add_case(CaseInfo(case, generated=1, distinct=1, log_hash="x"))
            store.set_case_status(case, CaseStatus.DONE)
        assert len(run.shards_for(plan, store, asked)) == 2
        unknown = JudgedState(CrashState(0), "h", Judgement(unknown=("guest lost",)))
        store.put_judgements(case, [unknown])
        assert len(run.shards_for(plan, store, asked)) == 3


def test_enough_space_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, 10 << 30))
    need_space(tmp_path, select_profiles(["ext4/ordered"]), jobs=2)


def test_a_run_has_a_machine_before_one_is_chosen(tmp_path: Path) -> None:
    """A run of which nothing could be run told of a machine AUTO; one that is not there was told late."""
    plan = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"])
    with create_run(plan, tmp_path, "test") as store:
        assert (store.info.machine.kind, store.info.machine.name) == ("qemu", "QEMU")
    with pytest.raises(UsageError, match="no machine 'quemu'"):
        create_run(msgspec.structs.replace(plan, machine="quemu"), tmp_path, "test")


def test_a_plan_is_kept_and_loaded(tmp_path: Path) -> None:
    plan = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"], jobs=3, memo=False)
    with create_run(plan, tmp_path, "test") as store:
        assert store.plan() == plan
        path = store.path
    (path / "plan.json").write_bytes(msgspec.json.encode({"configurations": [], "gone": 1}))
    with RunStore.open(path) as store, pytest.raises(StoreError):
        store.plan()


def test_a_run_that_can_be_resumed_has_its_known_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between its plan and its known failures, a run was resumed without them: a false alarm."""
    known = [Expectation("ext4/*", "*", "durability", "a reason", "known:1")]
    seen: list[object] = []
    put = RunStore.put_plan

    def put_plan(store: RunStore, plan: Plan) -> None:
        seen.append(store.expectations())
        put(store, plan)

    monkeypatch.setattr(RunStore, "put_plan", put_plan)
    plan = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"])
    with new_run(plan, tmp_path, "test", known) as store:
        assert store.expectations() == tuple(known)
    assert seen == [tuple(known)]


def test_a_typing_error_leaves_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        create_run(Plan(configurations=["ext4/orderd"], workloads=["append-fsync"]), tmp_path, "test")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "wrong",
    [
        {"kernel": "debian-6.1x"},
        {"replaced": ["/gone/ext4.ko"]},
        {"modules": "/gone"},
        {"recordings": "/gone"},
    ],
)
def test_a_kernel_or_recordings_that_are_not_there_leave_no_run_directory(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    """`latest` would point at nothing, and what it pointed at before would be hard to find."""
    with pytest.raises(PowercutError):
        create_run(Plan(configurations=["ext4/ordered"], workloads=["quick"], **wrong), tmp_path, "test")
    assert not list(tmp_path.iterdir())


def test_a_module_that_is_not_there_is_said_not_to_be_there(tmp_path: Path) -> None:
    """It was said not to be called *.ko."""
    plan = Plan(configurations=["ext4/ordered"], workloads=["quick"], replaced=["/gone/ext4.ko"])
    with pytest.raises(UsageError, match=r"there is no /gone/ext4\.ko"):
        create_run(plan, tmp_path, "test")


def test_a_run_that_could_not_be_started_leaves_nothing_and_latest_where_it_was(tmp_path: Path) -> None:
    """An empty run directory stayed, and `reports/latest` named it: the run before was hard to find."""
    plan = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"])
    with pytest.raises(EnvironmentLacks), new_run(plan, tmp_path, "first"):
        raise EnvironmentLacks("no guest comes up")
    assert not latest(tmp_path).is_symlink()
    assert not list(runs(tmp_path).iterdir())
    with create_run(plan, tmp_path, "good") as good:
        pass
    with pytest.raises(KeyboardInterrupt), new_run(plan, tmp_path, "second"):
        raise KeyboardInterrupt
    assert latest(tmp_path).resolve() == good.path
    assert list(runs(tmp_path).iterdir()) == [good.path]


def test_a_run_that_had_begun_stays(tmp_path: Path) -> None:
    plan = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"])
    with pytest.raises(EnvironmentLacks) as caught, new_run(plan, tmp_path, "first") as store:
        store.put_pins({"powercut": "1"})
        raise EnvironmentLacks("the disk is full")
    assert latest(tmp_path).resolve() == store.path
    assert caught.value.__notes__ == [f"powercut run --resume {store.path}"]


def test_a_run_that_could_not_be_started_leaves_the_link_to_another_that_was(tmp_path: Path) -> None:
    plan = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"])
    with pytest.raises(EnvironmentLacks), new_run(plan, tmp_path, "first"):
        with create_run(plan, tmp_path, "meanwhile") as other:
            pass
        raise EnvironmentLacks("no guest comes up")
    assert latest(tmp_path).resolve() == other.path


def test_recordings_of_other_modes_are_refused(tmp_path: Path) -> None:
    case = CaseId("ext4", "ordered", "append-fsync")
    with RunStore.create(tmp_path, "first", run_info()) as store:
        store.add_case(CaseInfo(case))
        kept = store.case_directory(case)
    (kept / "history.json").write_bytes(b"{}")

    def plan(configuration: str) -> Plan:
        return Plan(
            configurations=[configuration], workloads=["append-fsync", "stale"], recordings=str(store.path)
        )

    with pytest.raises(StoreError, match="none of the 2 recordings") as caught:
        create_run(plan("jfs/default"), tmp_path, "second")
    assert str(case) in str(caught.value)
    create_run(plan("ext4/ordered"), tmp_path, "second").close()


def test_a_run_of_which_nothing_can_be_run_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each case has its event: `--events` had none of these."""
    told: list[CaseId] = []
    monkeypatch.setattr(run, "find_chosen", lambda _: Kernel("k", Path("bzImage"), None, "00"))
    monkeypatch.setattr(run, "missing_for", lambda profile, _: f"no mkfs for {profile.name}")
    plan = Plan(configurations=["ext4/ordered", "jfs"], workloads=["append-fsync", "stale"])
    with create_run(plan, tmp_path, "test") as store:
        summary = execute(plan, store, Lines(Console(quiet=True)), told.append)
    assert [c.verdict for c in summary.cases] == [CaseVerdict.NOT_RUN] * 4
    assert told == [c.case for c in summary.cases]
    assert summary.cases[3].reason == "no mkfs for jfs/default"
    assert shell_code(summary) is ExitCode.NOTHING_RUN
    assert "not run" in (store.path / "report.html").read_text()
    assert not (store.path / "scratch").exists()


def test_a_run_removes_what_a_killed_one_left_although_it_needs_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed after its last verdict left its disks' folders, and its resume had no disk. A
    worker of it that ended while the resume was at work left one for good.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, later = (tmp_path / f"{FOLDER_PREFIX}{name}" for name in ("1234-x", "1235-y"))

    def leave(folder: Path) -> None:
        folder.mkdir()
        (folder / LOCK_NAME).touch()  # which nobody holds

    def end_late(*_: object) -> str:
        assert not left.exists()
        leave(later)
        return "no mkfs"

    leave(left)
    monkeypatch.setattr(run, "find_chosen", lambda _: Kernel("k", Path("bzImage"), None, "00"))
    monkeypatch.setattr(run, "missing_for", end_late)
    plan = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"])
    with create_run(plan, tmp_path, "test") as store:
        execute(plan, store, Lines(Console(quiet=True)))
    assert not later.exists()


def test_a_mode_whose_mkfs_refuses_is_not_run_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mkfs of an older release refuses features that a mode asks for: that ended the whole run."""

    def old(profile: Profile, *_: Path) -> Path:
        raise EnvironmentLacks(f"mkfs for {profile.name} failed with 1: Invalid filesystem option set")

    monkeypatch.setattr(run, "find_chosen", lambda _: Kernel("k", Path("bzImage"), None, "00"))
    monkeypatch.setattr(run, "make_base", old)
    plan = Plan(configurations=["ext4/ordered", "ext4/journal"], workloads=["append-fsync"])
    with create_run(plan, tmp_path, "test") as store:
        summary = execute(plan, store, Lines(Console(quiet=True)))
    assert [c.verdict for c in summary.cases] == [CaseVerdict.NOT_RUN] * 2
    assert summary.cases[0].reason == "mkfs for ext4/ordered failed with 1: Invalid filesystem option set"
    assert shell_code(summary) is ExitCode.NOTHING_RUN


def test_a_mode_whose_stack_cannot_be_made_is_not_run_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the whole run, as a mkfs that refuses had."""

    def refuse(_: object, profile: Profile, *__: Path) -> None:
        raise EnvironmentLacks(f"the steps that make {profile.name} failed: 221: no such policy")

    without_guests(monkeypatch, tmp_path, refuse)
    plan = Plan(configurations=["ext4/ordered@raid1"], workloads=["append-fsync"])
    with create_run(plan, tmp_path, "test") as store:
        summary = execute(plan, store, Lines(Console(quiet=True)))
    (case,) = summary.cases
    assert case.verdict is CaseVerdict.NOT_RUN
    assert case.reason == "the steps that make ext4/ordered@raid1 failed: 221: no such policy"


def without_guests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, finish: Callable[..., object]
) -> list[str]:
    """Runs record nothing, and finish base images by `finish`. Returns the modes that they would record."""
    recorded: list[str] = []

    def make(_: Profile, kept: Path, *__: object) -> Path:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.touch()
        return tmp_path / "base"

    class Nothing:
        def __init__(self, *_: object) -> None: ...

        def work(self, _: object, cases: Sequence[tuple[Profile, Workload]], __: object) -> None:
            recorded.extend(p.name for p, _w in cases)

    monkeypatch.setattr(run, "find_chosen", lambda _: Kernel("k", Path("bzImage"), None, "00"))
    monkeypatch.setattr(run, "missing_for", lambda *_: "")
    monkeypatch.setattr(run, "make_base", make)
    monkeypatch.setattr(
        run, "make_specs", lambda *_: SimpleNamespace(recorder=None, judge=None, description="no guest")
    )
    monkeypatch.setattr(run, "Session", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(run, "finish_base", finish)
    monkeypatch.setattr(run, "pins_of", lambda *_: {})
    monkeypatch.setattr(run, "run_info", lambda plan, info, *_: info)
    monkeypatch.setattr(run, "Casework", Nothing)
    return recorded


def test_the_first_line_of_a_run_ends_with_the_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ "powercut kernel build TREE, 2 at once" was taken for a command."""
    without_guests(monkeypatch, tmp_path, lambda *_: None)
    out, no_workers = io.StringIO(), cast(Any, SimpleNamespace(close=lambda: None))
    plan = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"], jobs=2)
    with create_run(plan, tmp_path, "test") as store:
        execute(plan, store, Lines(Console(file=out, width=200)), make_pool=lambda *_, **__: no_workers)
    assert "k, 2 at once: no guest\n" in out.getvalue()


@pytest.mark.parametrize("error", [WriteLogError, GuestLost])
def test_a_mode_whose_base_image_was_not_finished_is_unknown_and_costs_no_other(
    error: type[PowercutError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that could not be trusted, of the mount before the first recording, ended the whole run."""

    def lose(_: object, profile: Profile, *__: Path) -> None:
        if profile.mode == "log-64k":
            raise error("the log device ends 512 bytes before its last entry does")

    recorded = without_guests(monkeypatch, tmp_path, lose)
    no_workers: Any = SimpleNamespace(close=lambda: None)
    done: list[CaseId] = []
    modes = ["xfs/default", "xfs/log-64k", "ext4/ordered"]
    plan = Plan(configurations=modes, workloads=["append-fsync", "overwrite"])
    with create_run(plan, tmp_path, "test") as store:
        summary = execute(plan, store, Lines(Console(quiet=True)), done.append, lambda *_, **__: no_workers)
    lost = [c for c in summary.cases if c.case.mode == "log-64k"]
    assert [c.verdict for c in lost] == [CaseVerdict.UNKNOWN] * 2
    assert all("ends 512 bytes before its last entry does" in c.reason for c in lost)
    assert [c.case for c in lost] == done
    assert recorded == ["xfs/default"] * 2 + ["ext4/ordered"] * 2
    assert shell_code(summary) is ExitCode.UNDECIDED


@pytest.mark.parametrize("mode", ["ext4/ordered@raid1", "ext4/ordered@image", "xfs/default"])
def test_a_base_image_is_finished_once(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with `--image` that was killed before its first recording could not be resumed: "the disk has a
    folder powercut already". The kept image had been finished, and was finished again. And a verdict with
    little time spent it on base images, the same ones each time that it was resumed.
    """
    killed: list[bool] = []

    def finish(_session: object, _profile: Profile, _base: Path, kept: Path) -> str:
        kept.write_text("half" if not killed else "finished")
        if not killed:
            killed.append(True)
            raise KeyboardInterrupt
        return ""

    without_guests(monkeypatch, tmp_path, finish)
    found: list[bool] = []

    def make(profile: Profile, kept: Path, *_: object) -> Path:
        found.append(kept.exists())
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(kept.read_text() if found[-1] else "new")
        return tmp_path / profile.name.replace("/", "-")

    monkeypatch.setattr(run, "make_base", make)
    (disk := tmp_path / "disk").touch()
    image = ExistingDisk(str(disk), "0" * 64, 1 << 20) if mode.endswith("@image") else None
    plan = Plan(configurations=[mode], workloads=["append-fsync"], image=image)
    no_workers: Any = SimpleNamespace(close=lambda: None)
    with create_run(plan, tmp_path, "test") as store:
        (profile,) = select_profiles([mode])
        for _ in range(3):  # killed before it was finished, then before anything was recorded
            with contextlib.suppress(KeyboardInterrupt):
                execute(plan, store, Lines(Console(quiet=True)), make_pool=lambda *_, **__: no_workers)
        kept = store.layout.base(profile.filesystem, profile.mode)
        again = not profile.folder  # what is to be said of somebody's disk is known from finishing it
        assert (found, kept.read_text()) == ([False, False, again], "finished")
        store.layout.case(CaseId(profile.filesystem, profile.mode, "append-fsync")).folder.mkdir()
        store.layout.case(CaseId(profile.filesystem, profile.mode, "append-fsync")).history.touch()
        execute(plan, store, Lines(Console(quiet=True)), make_pool=lambda *_, **__: no_workers)
        assert found[-1], "what something was recorded on is kept"


def test_a_run_that_ends_among_the_rules_knows_its_other_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time was up in any/posix: ext4/ordered was in no report, and missing nowhere."""

    def end(*_: object) -> None:
        raise EnoughDone("the time given is up")

    without_guests(monkeypatch, tmp_path, lambda *_: None)
    monkeypatch.setattr(RuledWork, "work", end)
    plan = Plan(configurations=["any/posix", "ext4/ordered"], workloads=["append-fsync"])
    with create_run(plan, tmp_path, "test") as store:
        summary = execute(plan, store, Lines(Console(quiet=True)))
    assert [(c.case.configuration, c.status) for c in summary.cases] == [("ext4/ordered", CaseStatus.PLANNED)]
    assert shell_code(summary) is not ExitCode.CONSISTENT


@pytest.mark.parametrize("at", ["the work", "its end"])
def test_a_run_whose_output_nobody_reads_is_reported_and_says_how_to_go_on(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`powercut run | head -1` left a run without reports, and not a word of it."""

    def work(*_: object) -> None:
        raise OutputClosed if at == "the work" else EnoughDone("the time given is up")

    class Unread(Lines):
        def say(self, text: str) -> None:
            if "saving the verdicts" in text:
                raise OutputClosed

    without_guests(monkeypatch, tmp_path, lambda *_: None)
    monkeypatch.setattr(run._Job, "all_but", work)
    plan = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"])
    with pytest.raises(OutputClosed) as caught, new_run(plan, tmp_path, "test") as store:
        store.add_case(CaseInfo(CaseId("ext4", "ordered", "append-fsync"), "", "", ""))
        execute(plan, store, Unread(Console(quiet=True)))
    assert caught.value.__notes__ == [f"powercut run --resume {store.path}"]
    assert store.info.interrupted
    assert (store.path / "report.html").is_file()


def test_a_complete_run_of_which_nobody_reads_the_end_is_not_to_be_gone_on_with(tmp_path: Path) -> None:
    plan = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"])
    with pytest.raises(OutputClosed) as caught, new_run(plan, tmp_path, "test") as store:
        store.put_pins({"powercut": "1"})
        store.finish()
        raise OutputClosed
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize(("minutes", "left"), [(None, None), (10.0, 9.5), (0.25, 0.0)])
def test_the_time_of_a_run_is_that_of_both_kinds_of_modes(minutes: float | None, left: float | None) -> None:
    """`--minutes 5` took five minutes for the rules, and five more for the real modes."""
    plan = Plan(configurations=[], workloads=[], minutes=minutes)
    assert run.with_time_left(plan, 30).minutes == left


def test_the_time_of_a_run_begins_before_its_first_guest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--minutes 5` took five minutes behind the kernel, the base images and the first boot."""
    now, given = [100.0], []

    def boot(*_: object) -> Any:
        now[0] += 60
        return SimpleNamespace(recorder=None, judge=None, description="no guest")

    def worked(plan: Plan, *_: object) -> Any:
        given.append(plan.minutes)
        return SimpleNamespace(work=lambda *_: None)

    without_guests(monkeypatch, tmp_path, lambda *_: None)
    monkeypatch.setattr(run, "make_specs", boot)
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(run, "Casework", worked)
    no_workers: Any = SimpleNamespace(close=lambda: None)
    plan = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"], minutes=5)
    with create_run(plan, tmp_path, "test") as store:
        execute(plan, store, Lines(Console(quiet=True)), make_pool=lambda *_, **__: no_workers)
    assert given == [4]


@pytest.mark.parametrize(("allowed", "left"), [(None, None), (3, 2), (1, None)])
def test_both_parts_of_a_run_count_to_the_same_failures(
    allowed: int | None, left: int | None, tmp_path: Path
) -> None:
    """`--max-failures 1` went on after a program had failed under rules: each part counted for itself."""
    failed, fine = CaseId("any", "posix", "a"), CaseId("any", "posix", "b")
    plan = Plan(configurations=[], workloads=[], max_failures=allowed)
    bad = Judgement((Violation("program", "f", "gone", "1", "0", "s"),))
    with RunStore.create(tmp_path, "t", run_info(), durable=False) as store:
        for case, judged in ((failed, bad), (fine, Judgement())):
            store.add_case(CaseInfo(case, "", "", ""))
            store.put_judgements(case, [JudgedState(CrashState(1), "h", judged)])
        if allowed == 1:
            with pytest.raises(EnoughDone, match="1 case failed"):
                run.with_failures_left(plan, store, [failed, fine])
        else:
            assert run.with_failures_left(plan, store, [failed, fine]).max_failures == left


def test_a_part_of_another_version_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that was built of other sources made a mode that needs a guest first one that is not run."""

    def differ(*_: object) -> None:
        raise VersionsDiffer("the agent speaks protocol 9, this harness 10")

    without_guests(monkeypatch, tmp_path, differ)
    plan = Plan(configurations=["xfs/default"], workloads=["append-fsync"])
    with create_run(plan, tmp_path, "test") as store, pytest.raises(VersionsDiffer):
        execute(plan, store, Lines(Console(quiet=True)))


def test_a_module_is_kept_with_the_run_as_it_was(tmp_path: Path) -> None:
    """It was built anew, or lay on a runner that was gone: nobody could follow the run's own commands."""
    module = tmp_path / "ext4.ko"
    module.write_bytes(b"\x7fELF one build")
    with RunStore.create(tmp_path / "reports", "test", run_info()) as store:
        begun = run.kernel_info(Kernel("debian-6.12", tmp_path / "k", None, "00", replaced=(module,)))
        store.update_info(replace(store.info, kernel=begun))
        module.write_bytes(b"\x7fELF another build")
        run._keep_modules(store)
        kept = store.layout.module("ext4.ko")
        assert not kept.exists(), "not what the run is said to be made with"
        module.write_bytes(b"\x7fELF one build")
        run._keep_modules(store)
        run._keep_modules(store)
        assert kept.read_bytes() == b"\x7fELF one build"
        assert [p.name for p in kept.parent.iterdir()] == ["ext4.ko"]
    with RunStore.create(tmp_path / "reports", "next", run_info()) as after:
        after.update_info(replace(after.info, kernel=begun))
        run._keep_modules(after)
        again = after.layout.module("ext4.ko")
        assert again.samefile(kept), "a campaign kept it anew in each of its runs"
    module.write_bytes(b"\x7fELF another build")
    with RunStore.create(tmp_path / "reports", "last", run_info()) as last:
        other = run.kernel_info(Kernel("debian-6.12", tmp_path / "k", None, "00", replaced=(module,)))
        last.update_info(replace(last.info, kernel=other))
        run._keep_modules(last)
        assert last.layout.module("ext4.ko").read_bytes() == b"\x7fELF another build"
    assert kept.read_bytes() == b"\x7fELF one build"


def test_the_release_of_a_kernel_of_ones_own_is_known(tmp_path: Path) -> None:
    """It was not, so no finding on it was a known bug, and each was said to be none."""
    image = tmp_path / "bzImage"
    start = bytearray(0x400)
    start[0x202:0x206], start[0x20E:0x210] = b"HdrS", (0x100).to_bytes(2, "little")
    image.write_bytes(bytes(start[:0x300]) + b"6.12.117-mine (me@host) #1\0")
    own = Kernel(str(image), image, None, "00")
    assert run.kernel_info(own, qemu.machine("tcg")).release == "6.12.117-mine"
    image.write_bytes(b"\x7fELF no kernel for a PC")
    assert not run.kernel_info(own, qemu.machine("tcg")).release


@pytest.mark.parametrize(
    ("oracles", "lacks"),
    [((), False), (("durability",), True), (("size", "contents"), True), (("durability", "program"), False)],
)
def test_a_program_is_not_judged_by_what_knows_operations_alone(
    oracles: tuple[str, ...], lacks: bool
) -> None:
    """`--oracle durability` made a store green of which the check refused 14 of 57 states."""
    plan = Plan(
        configurations=["ext4/ordered"], workloads=["append-fsync", "parallel-fsync"], oracles=oracles
    )
    lacking = run.look_up(plan).lacking
    assert ("parallel-fsync" in lacking) is lacks
    assert "append-fsync" not in lacking


def test_a_faulty_disk_is_for_single_disks() -> None:
    """`--overnight` worked ten hours on a disk and a stack, and ended with 4: the stack was not run."""
    both = Plan(
        configurations=["ext4/ordered", "ext4/ordered@raid1"], workloads=["append-fsync"], disk=("errors",)
    )
    asked = run.look_up(both)
    assert not asked.lacking
    assert run.without_disk(both, asked).startswith("ext4/ordered@raid1: not looked at on a faulty disk")
    assert not run.without_disk(msgspec.structs.replace(both, disk=()), asked)
    of_a_stack = msgspec.structs.replace(both, only=["ext4-ordered@raid1/append-fsync"])
    assert not run.look_up(of_a_stack).lacking, "as --failed-from and -k have it"


def test_a_stack_is_not_judged_by_what_knows_faulty_disks_alone() -> None:
    """It kept every promise, and nothing had judged it."""
    both = Plan(
        configurations=["ext4/ordered", "ext4/ordered@raid1"],
        workloads=["append-fsync"],
        disk=("errors",),
        oracles=("honesty",),
    )
    assert [*run.look_up(both).lacking] == ["ext4/ordered@raid1"]
    assert not run.look_up(msgspec.structs.replace(both, oracles=("honesty", "fsck"))).lacking


def test_a_run_without_time_for_its_base_images_makes_one_and_goes_on_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It made all of them, whatever the time: a verdict's first kernel took that of the second as well."""
    finished: list[str] = []

    def finish(_session: object, profile: Profile, *_: Path) -> str:
        finished.append(profile.name)
        return ""

    recorded = without_guests(monkeypatch, tmp_path, finish)
    plan = Plan(configurations=["xfs/default", "xfs/log-64k"], workloads=["append-fsync"], minutes=1e-6)
    no_workers: Any = SimpleNamespace(close=lambda: None)
    with create_run(plan, tmp_path, "test") as store:
        summary = execute(plan, store, Lines(Console(quiet=True)), make_pool=lambda *_, **__: no_workers)
        assert (finished, recorded) == (["xfs/default"], ["xfs/default"])
        assert summary.info.stopped == "the time given is up"
        assert {c.case.mode: c.status for c in summary.cases}["log-64k"] is CaseStatus.PLANNED
        longer = msgspec.structs.replace(plan, minutes=None)
        execute(longer, store, Lines(Console(quiet=True)), make_pool=lambda *_, **__: no_workers)
    assert (finished, len(recorded)) == (["xfs/default", "xfs/log-64k"], 3)


@pytest.mark.parametrize(
    ("budget", "text"), [("400,20000m", "400 states or 1,200,000 s a case"), ("90s", "90 s a case")]
)
def test_a_budget_in_words_has_its_numbers_in_full(budget: str, text: str) -> None:
    """It read 1.2e+06 s."""
    assert Budget.parse(budget).text == text
