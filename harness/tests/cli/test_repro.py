"""`powercut repro`; with real guests in `harness.tests.vm.test_repro`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli import repro
from harness.errors import ExitCode
from harness.findings.repro import (
    Reproduction,
    _as_named,
    rebuilt,
    recorder_files,
    recorder_words,
    same_modules,
)
from harness.host.files import file_hash
from harness.kernels.find import Kernel
from harness.measurements.samples import interval
from harness.model import (
    CaseId,
    CrashPoint,
    CrashState,
    EntryFlag,
    Judgement,
    LogEntry,
    Outcome,
    Violation,
)
from harness.plan import Plan
from harness.store import RunStore
from harness.store.records import KernelInfo
from harness.tests.cli.runner import powercut, refused
from harness.tests.report.demo import demo_run, run_info
from harness.trust import Named


def test_no_run_there_says_where_it_looked(tmp_path: Path) -> None:
    assert "nothing" in refused("repro", "ext4-ordered/append-fsync@1", "--from", tmp_path / "nothing")


def test_bisecting_an_old_recording_is_refused_and_stops_git() -> None:
    """Its answer was wrong for every bug in what a kernel writes: with a flush taken out of fsync, the old
    recording stays bad on good kernels. 2, a usage error, would tell git that the commit is bad.
    """
    done = powercut("repro", "ext4-ordered/append-fsync@1", "--bisect")
    assert done.exit_code == ExitCode.BISECT_STOP
    assert "powercut run -c MODE -w WORKLOAD --kernel FILE --bisect" in done.stderr


def reproduction(recorded_on: str = "", record_anew: str = "") -> Reproduction:
    point = CrashPoint(CaseId("ext4", "ordered", "append-fsync"), CrashState(7))
    kernel = Kernel("/mine/bzImage", Path("/mine/bzImage"), None, "00")
    said = Outcome(kernel_log=("EXT4-fs: \x1b[2Jok\nPASS",))
    return Reproduction(point, kernel, said, Judgement(), recorded_on, record_anew)


def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seen: Reproduction) -> list[str]:
    """What repro prints of it."""
    with RunStore.create(tmp_path, "test", run_info()) as store:
        path = store.path
    monkeypatch.setattr(repro, "find_point", lambda *_: seen.point)
    monkeypatch.setattr(repro, "repro_context", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(repro, "reproduce", lambda _: seen)
    done = powercut("repro", "any", "--from", path)
    assert done.exit_code == 0
    return done.output.splitlines()


def test_on_another_kernel_it_says_which_half_is_tested(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = told(monkeypatch, tmp_path, reproduction("debian-6.12.117", "powercut run -c X"))
    assert lines[2] == "  recorded on debian-6.12.117, recovered on /mine/bzImage:"
    assert lines[3].endswith("not what it writes; for that: powercut run -c X")


def test_the_verdict_names_the_module_that_was_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`on debian-6.12.117: FAIL` accused Debian's kernel of what a module of the user's own did."""
    module = tmp_path / "ext4.ko"
    module.write_bytes(b"mine")
    seen = reproduction()
    kernel = replace(seen.kernel, name="debian-6.12.117", replaced=(module,))
    head = told(monkeypatch, tmp_path, replace(seen, kernel=kernel))[0]
    assert head.startswith("ext4-ordered/append-fsync@7 on debian-6.12.117 with ext4.ko (sha256 ")
    assert head.endswith("): PASS")


def test_it_says_what_of_this_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`show` and `repro` said nothing of it, and `run` did."""
    with demo_run(tmp_path) as store:
        store.set_expectations([])
        store.put_plan(Plan(configurations=["ext4/nobarrier"], workloads=["append-fsync"]))
        lost = next(f for f in store.findings() if f.loss)
    seen = replace(reproduction(), point=lost.crash_point, judgement=Judgement(lost.violations))
    monkeypatch.setattr(repro, "repro_context", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(repro, "reproduce", lambda _: seen)
    done = powercut("repro", lost.id, "--from", store.path)
    assert done.exit_code == ExitCode.INCONSISTENT
    assert f"  finding {lost.id}: known loss of ext4/nobarrier: {lost.loss}" in done.output.splitlines()


def test_what_to_record_anew_is_named_by_its_place(tmp_path: Path) -> None:
    """`-w kv-early` was printed for a workload of the user's own, and nobody knew that name."""
    (tmp_path / "mine.toml").write_text('operations = ["create f", "fsync f"]\n')
    given = str(tmp_path / "mine.toml")
    assert _as_named(Named(workloads=(given,)), "mine") == given
    assert _as_named(Named(workloads=(given,)), "append-fsync") == "append-fsync"


def test_a_module_that_was_rebuilt_is_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A rebuilt file at the same path was used without a word."""
    module = tmp_path / "ext4.ko"
    module.write_bytes(b"now")
    with RunStore.create(tmp_path, "test", run_info()) as store:
        begun = KernelInfo("debian-6.12", sha256="00", replaced={str(module): "ab" * 32})
        store.update_info(replace(store.info, kernel=begun))
    kernel = Kernel("debian-6.12", Path("/mine/bzImage"), None, "00", replaced=(module,))
    assert not same_modules(store, kernel)
    seen = replace(
        reproduction(recorder_words(store), "powercut run -c X"),
        kernel=kernel,
        rebuilt=rebuilt(store, kernel.replaced),
        recorder_files=recorder_files(store),
    )
    lines = told(monkeypatch, tmp_path, seen)
    now = file_hash(module)[:12]
    assert lines[2] == (
        "  recorded on debian-6.12 with ext4.ko (sha256 abababababab), recovered on debian-6.12 with ext4.ko "
        f"(sha256 {now}):"
    )
    assert lines[4:6] == [
        f"  {module} was rebuilt since the run; the build that recorded it:",
        "  --module FILE.ko",
    ]


def test_what_is_lost_of_several_devices_names_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entries = (
        LogEntry(0, 0, 0, EntryFlag.MARK, 0, "devices 254,2+0 254,3+1024"),
        LogEntry(1, 1032, 8, EntryFlag(0), 0),
    )
    point = CrashPoint(CaseId("ext4", "external-journal", "append-fsync"), CrashState.parse("@t2-1"))
    seen = replace(reproduction(), point=point, entries=entries)
    assert told(monkeypatch, tmp_path, seen)[1].endswith("; entry 1 (second device) is lost")


def test_what_the_guest_said_stays_on_its_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = told(monkeypatch, tmp_path, reproduction())
    assert lines == [
        "ext4-ordered/append-fsync@7 on /mine/bzImage: PASS",
        "  the first 7 entries of the write log are on the platter",
        r"  kernel: EXT4-fs: \x1b[2Jok\nPASS",
    ]


def test_a_shell_says_which_tools_it_has_and_which_this_host_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It had busybox alone, and a crashed XFS without xfs_db shows nothing but what mount says."""
    with RunStore.create(tmp_path, "test", run_info()) as store:
        path = store.path
    carried: list[Sequence[str]] = []

    def fake_context(*arguments: Any) -> contextlib.nullcontext[None]:
        carried.append(arguments[-1])
        return contextlib.nullcontext()

    found = ["busybox:busybox-static", "e2fsck:e2fsprogs"], ["xfs_db:xfsprogs", "xfs_io:xfsprogs"]
    monkeypatch.setattr(repro, "find_point", lambda *_: reproduction().point)
    monkeypatch.setattr(repro, "repro_context", fake_context)
    monkeypatch.setattr(repro, "shell", lambda *_: 0)
    monkeypatch.setattr(repro, "tools_for_shell", lambda: found)
    done = powercut("repro", "any", "--from", path, "--shell")
    assert done.exit_code == 0
    assert carried == [found[0]]
    assert done.output.splitlines() == [
        "in the guest: busybox, e2fsck",
        "not on this host: xfs_db, xfs_io; apt-get install xfsprogs",
    ]


def test_a_state_that_comes_and_goes_has_a_rate_and_its_interval(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with demo_run(tmp_path) as store:
        store.put_plan(Plan(configurations=["ext4/ordered"], workloads=["append-fsync"]))
        point = store.findings()[0].crash_point
    broken = Judgement((Violation("size", "f", "f: its size is lost", "3", "0", "f: size"),))
    outcomes = [Judgement(), broken, Judgement(), Judgement(unknown=("a guest was lost",))]
    shown = SimpleNamespace(point=point)
    monkeypatch.setattr(repro, "repro_context", lambda *_: contextlib.nullcontext(shown))

    def once(turns: Iterator[Judgement]) -> Callable[[object], Reproduction]:
        return lambda _: replace(reproduction(), point=point, judgement=next(turns))

    monkeypatch.setattr(repro, "reproduce", once(iter(outcomes)))
    done = powercut("repro", point, "--from", store.path, "--repeat", 4)
    assert done.exit_code == ExitCode.INCONSISTENT, "one that fails once is no pass"
    assert [line.split()[-1] for line in done.output.splitlines()[:4]] == ["PASS", "FAIL", "PASS", "UNKNOWN"]
    said = "consistent 2 of 3 times, 1 undecided: 67% (95 % interval: 21% to 94%)"
    assert done.output.splitlines()[-1] == f"{point}: {said}"
    monkeypatch.setattr(repro, "reproduce", once(iter(outcomes)))
    told = json.loads(powercut("repro", point, "--from", store.path, "--repeat", 4, "--json").output)
    assert (told["repeats"], told["kept"], told["decided"]) == (4, 2, 3)
    assert told["interval"] == pytest.approx([0.2077, 0.9385], abs=1e-3)


@given(st.integers(0, 500), st.integers(0, 500))
def test_the_interval_of_a_rate_holds_the_rate_and_shrinks_with_more_tries(hits: int, misses: int) -> None:
    low, high = interval(hits, hits + misses)
    assert 0 <= low <= high <= 1
    if hits + misses:
        assert low - 1e-9 <= hits / (hits + misses) <= high + 1e-9
        more_low, more_high = interval(hits * 4, (hits + misses) * 4)
        assert more_high - more_low < high - low
    else:
        assert (low, high) == (0, 1)


def test_a_finding_that_is_reproduced_points_to_what_explains_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with demo_run(tmp_path) as store:
        store.put_plan(Plan(configurations=["ext4/ordered"], workloads=["append-fsync"]))
        finding = store.findings()[0]
    seen = replace(reproduction(), point=finding.crash_point)
    monkeypatch.setattr(repro, "repro_context", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(repro, "reproduce", lambda _: seen)
    done = powercut("repro", finding.crash_point, "--from", store.path)
    assert done.output.splitlines()[-1] == f"why: powercut show {finding.id} --from {store.path}"


def test_a_mode_that_is_only_rules_is_judged_as_often_as_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """--repeat was ignored: one line, without a rate."""
    with demo_run(tmp_path) as store:
        point = str(store.findings()[0].crash_point)
    turns = iter([Judgement(), Judgement(unknown=("a guest was lost",)), Judgement()])
    monkeypatch.setattr(repro, "ruled_profile", lambda _: object())
    monkeypatch.setattr(repro, "judge_again", lambda *_: next(turns))
    told = json.loads(powercut("repro", point, "--from", store.path, "--repeat", 3, "--json").output)
    assert (told["crash_point"], told["repeats"], told["kept"], told["decided"]) == (point, 3, 2, 2)


@pytest.mark.parametrize("other", ["--export", "--record", "--shell"])
def test_a_rate_and_another_answer_are_not_asked_for_at_once(other: str, tmp_path: Path) -> None:
    """--repeat was ignored."""
    with demo_run(tmp_path) as store:
        point = str(store.findings()[0].crash_point)
    words = (other, tmp_path / "disk.img") if other == "--export" else (other,)
    told = refused("repro", point, "--from", store.path, "--repeat", 2, *words)
    assert f"{other} and --repeat are two answers" in told


@pytest.mark.parametrize("other", ["--export", "--record", "--shell"])
def test_an_answer_without_json_is_not_asked_for_json(other: str, tmp_path: Path) -> None:
    """--shell --json booted guests, printed no JSON and stayed at a console."""
    with demo_run(tmp_path) as store:
        point = str(store.findings()[0].crash_point)
    words = (other, tmp_path / "disk.img") if other == "--export" else (other,)
    assert f"{other} prints no JSON" in refused("repro", point, "--from", store.path, "--json", *words)


def test_a_shell_and_a_disk_are_not_asked_for_at_once(tmp_path: Path) -> None:
    """It said what a shell would have, wrote the disk, and opened none."""
    with demo_run(tmp_path) as store:
        point = str(store.findings()[0].crash_point)
    told = refused("repro", point, "--from", store.path, "--shell", "--export", tmp_path / "disk.img")
    assert "--shell and --export are two answers" in told
    assert not (tmp_path / "disk.img").exists()
