"""What commands say to words that are nearly right, or not right at all."""

from __future__ import annotations

import contextlib
import re
import shlex
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest
from rich.console import Console

from harness import run as engine
from harness.cli import main, report, why, workload
from harness.cli.console import errors
from harness.cli.kernel import _next
from harness.errors import ExitCode, UsageError
from harness.filesystems.profiles import select_profiles
from harness.findings.bug_report import bug_reports, findings_folder
from harness.findings.named import finding_by_id, not_a_point
from harness.guests.kernel_list import KernelRow
from harness.host.console import SafeConsole
from harness.host.progress import Lines, silent, telling
from harness.host.text import near_or
from harness.kernels.build import Flavour, compiled
from harness.kernels.find import Kernel
from harness.kernels.packages import _not_offered
from harness.kernels.pins import Pin, pins
from harness.model import CaseId, CrashPoint, Judgement
from harness.plan import Plan
from harness.report.words import headline
from harness.run import create_run
from harness.store import RunStore
from harness.store.records import CaseInfo, CaseStatus
from harness.summary import summarise
from harness.tests.cli.runner import powercut, refused
from harness.tests.report.demo import FINISHED, demo_run, run_info
from harness.tests.store.samples import put_case
from harness.tests.test_run import without_guests
from harness.trust import Named


@pytest.mark.parametrize(
    "words",
    ["faults nope", "regressions nope", "findings nope", "run -n -w nope", "run -n -c nope"],
)
def test_what_is_not_near_is_not_proposed(words: str) -> None:
    """`faults nope` proposed three faults that have no two letters in common with it."""
    done = powercut(*words.split())
    assert done.exit_code == 2
    assert "did you mean" not in done.output
    assert "names all" in done.output


def test_what_is_near_is_proposed() -> None:
    assert near_or("apend-fsync", ["append-fsync", "stale"], "else") == "did you mean append-fsync?"
    assert near_or("nosuch", ["untouched", "stale"], "else") == "else", "of six letters, two were alike"
    known = ["vfat-sync-no-flush", "xfs-sync-no-flush"]
    assert near_or("vfat", known, "else") == "did you mean vfat-sync-no-flush?", "`powercut known vfat`"
    assert near_or("", known, "else") == "else"
    assert near_or("nope", ["more", "unlinked-open", "held-open"], "else") == "else"
    assert "did you mean append-fsync" in powercut("run", "-n", "-w", "apend-fsync").output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = [\n", "that is no TOML"),
        ("", "it needs summary and operations"),
        ('sumary = "s"\noperations = ["sync"]\n', "is summary meant?"),
        ('summary = "s"\noperations = [1]\n', "correct operations[0]: another kind of value belongs there"),
    ],
)
def test_a_file_that_is_no_toml_is_told_from_one_that_lacks_something(
    text: str, said: str, tmp_path: Path
) -> None:
    """A bracket that was never closed was answered by "it needs summary and operations"."""
    file = tmp_path / "w.toml"
    file.write_text(text)
    done = powercut("run", "-n", "-w", file)
    assert done.exit_code == 2
    assert said in done.output.replace("\n", "")


def test_a_file_of_no_expectations_is_named_as_that_and_not_printed(tmp_path: Path) -> None:
    """--expect /etc/passwd printed a line of it."""
    file = tmp_path / "notes.txt"
    file.write_text("a" * 500 + "\n")
    done = powercut("run", "-n", "--expect", file)
    assert done.exit_code == 2
    assert "1 pattern where three belong" in done.output.replace("\n", " ")
    assert "a" * 100 not in done.output.replace("\n", "")


@pytest.mark.parametrize(
    "words",
    [
        "-c ext4/ordered@4k@512e",
        "-c ext4/ordered@4k@4k",
        "-c ext4/ordered@4k --sector-size 512",
        "-c ext4/ordered@4k --sector-size 4096",
    ],
)
def test_a_mode_is_on_one_kind_of_disk(words: str) -> None:
    """The last name won, in silence, and `@4k --sector-size 512` ran on a disk with 4k."""
    done = powercut("run", "-n", "-w", "append-fsync", *words.split())
    assert done.exit_code == 2
    assert "disk" in done.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--clock virtual --machine qemu", "QEMU cannot record in virtual time"),
        ("--name ../x", "'../x' cannot name a run"),
    ],
)
def test_a_plan_refuses_what_the_run_would(words: str, says: str) -> None:
    """`run -n` printed a plan, and ended with 0."""
    assert says in refused("run", "-n", "-c", "ext4/ordered", "-w", "append-fsync", *words.split())


def test_a_mode_that_a_file_system_lacks_is_answered_with_those_that_it_has() -> None:
    """`-c f2fs/default` asked "did you mean xfs/default or jfs/default or ntfs/default?"."""
    with pytest.raises(UsageError, match="no mode of f2fs is called 'default'") as refused:
        select_profiles(["f2fs/default"])
    assert refused.value.next_step.startswith("name one of: ")
    assert "posix" in refused.value.next_step and "xfs" not in refused.value.next_step
    with pytest.raises(UsageError) as refused:
        select_profiles(["ext4/orderd"])
    assert refused.value.next_step == "did you mean ext4/ordered?"


@pytest.mark.parametrize("name", [".", "..", "./", "/"])
def test_a_new_workload_needs_a_name_of_its_own(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`powercut new .` said "a workload cannot be named ''"."""
    monkeypatch.chdir(tmp_path)
    done = powercut("new", name)
    assert done.exit_code == 2
    assert "powercut new my-db" in done.output.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []


def test_smoke_takes_a_number_of_guests_as_run_does() -> None:
    assert any("--jobs" in p.opts for p in main.commands["smoke"].params)


def test_the_list_of_findings_has_their_titles() -> None:
    """It had short names alone, one line for each kernel: nobody could tell what was found."""
    said = powercut("findings", "--list").stdout.replace("\n", " ")
    for slug, known in bug_reports(findings_folder()).items():
        assert f"{slug}: {known.title[:40]}" in said


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    return demo_run(tmp_path_factory.mktemp("demo"))


def test_the_beginning_of_an_id_names_a_finding_if_no_other_begins_so(run: RunStore) -> None:
    """All twelve digits had to be pasted."""
    findings = run.findings()
    first = findings[0]
    shortest = next(n for n in range(4, 13) if sum(f.id.startswith(first.id[:n]) for f in findings) == 1)
    assert finding_by_id(first.id[:shortest], run) == first
    assert finding_by_id(first.id, run) == first
    assert finding_by_id(first.id[:3], run) is None
    for wrong in ("0123456789ab", "ffff0000"):
        with pytest.raises(UsageError, match="has no finding"):
            finding_by_id(wrong, run)


def test_a_run_that_is_named_for_from_can_be_pasted(run: RunStore, tmp_path: Path) -> None:
    """`add --from /my runs/x` was two words, and without the file of the run's kernel."""
    beside = tmp_path / "my runs"
    id_ = run.findings()[0].id
    with (
        RunStore.create(beside, "other", run_info()) as store,
        RunStore.create(beside, "t", run_info()) as own,
    ):
        store.put_plan(Plan(configurations=[], workloads=[], kernel="/my/bzImage"))
        (store.path / "results.json").write_text(f'{{"id": "{id_}"}}')
        with pytest.raises(UsageError) as refused:
            finding_by_id(id_, own)
        words = shlex.split(refused.value.next_step.partition(": add ")[2])
        assert words == ["--from", str(store.path), "--kernel", "/my/bzImage"]
        _, step = not_a_point(str(store.path), own, "")
    assert shlex.split(step)[-2:] == ["--from", str(store.path)]


def test_an_id_that_several_begin_with_names_none(run: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, *_ = run.findings()
    alike = [replace(one, signature=one.signature), two]
    monkeypatch.setattr(type(one), "id", property(lambda f: "abcd1" + ("0" if f is alike[0] else "1") * 7))
    monkeypatch.setattr(run, "findings", lambda: alike)
    with pytest.raises(UsageError, match="any of 2 findings"):
        finding_by_id("abcd1", run)


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ("ext4/ordered/stale@3", "ext4-ordered/stale@3"),
        ("ext4/ordered@raid1/stale@417/t3", "ext4-ordered@raid1/stale@417/t3"),
        ("ext4-ordered/stale@417/t3", "ext4-ordered/stale@417/t3"),
        ("xfs/default/append-fsync.s2@t52-40@t12=", "xfs-default/append-fsync.s2@t52-40@t12="),
    ],
)
def test_a_crash_point_is_taken_with_its_mode_as_in_c(typed: str, named: str) -> None:
    """-c takes ext4/ordered and `repro` took ext4-ordered alone."""
    assert str(CrashPoint.parse(typed)) == named
    assert str(CaseId.named_in(typed)) == named.partition("@4")[0].partition("@3")[0].partition("@t")[0]


@pytest.mark.parametrize(
    ("interrupted", "stopped", "said"),
    [(False, "", "finished"), (True, "", "interrupted"), (True, "the time is up", "stopped: the time is up")],
)
def test_a_list_of_runs_tells_those_that_were_stopped(
    interrupted: bool, stopped: str, said: str, tmp_path: Path
) -> None:
    """An interrupted run was "finished"."""
    with RunStore.create(tmp_path, "t", run_info()) as store:
        store.finish(FINISHED, interrupted=interrupted, stopped=stopped)
    assert f"  {said}  " in powercut("list", "runs", "--out", tmp_path).stdout.replace("\n", "")


def test_a_headline_counts_the_cases_that_are_not_decided(tmp_path: Path) -> None:
    """Two of 236 cases undecided read as "ext4/ordered could not be decided"."""
    with RunStore.create(tmp_path, "t", run_info()) as store:
        for number in range(5):
            case = CaseId("ext4", "ordered", f"w{number}")
            judged, status = ((), CaseStatus.UNKNOWN) if number < 2 else ((Judgement(),), CaseStatus.DONE)
            info = CaseInfo(case, generated=1, distinct=1)
            put_case(store, info, *judged, status=status, reason="because")
        store.finish(FINISHED)
        said = headline(summarise(store))
    assert "2 of 5 cases of ext4/ordered could not be decided" in said


def test_a_file_system_that_runs_only_on_request_is_not_offered_as_a_correction_of_itself() -> None:
    """`-c bcachefs` asked "did you mean bcachefs or bcachefs/default?"."""
    with pytest.raises(UsageError, match="unless it is named in full") as refused:
        select_profiles(["bcachefs"])
    assert refused.value.next_step == "name it: bcachefs/default"


def test_a_version_that_several_archives_have_is_offered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--kernel debian-6.12.999` listed one version three times."""
    package = "linux-image-6.12.{}+deb13-amd64"
    offered = [package.format(n) for n in (105, 107, 117)]
    monkeypatch.setattr("harness.kernels.packages.Archive.offered", lambda *_: set(offered))
    refused = _not_offered(pins()["debian-6.12"], "6.12.999")
    assert refused.exit_code is ExitCode.USAGE
    found = str(refused)
    assert found.count("6.12.117") == 1
    assert "6.12.105" in found


def test_a_build_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`kernel build` was silent for its four minutes."""
    monkeypatch.setattr("harness.host.progress.PLAIN_INTERVAL_S", 0.01)
    (tmp_path / "fs").mkdir()
    for name in ("fs/a.o", "b.o", "b.c"):
        (tmp_path / name).touch()
    said: list[str] = []
    heard = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        heard.set()

    with telling(lambda: compiled(tmp_path), say):
        assert heard.wait(60)
    count = len(said)
    assert said[0].endswith("s  2 files compiled")
    with telling(lambda: "nothing", silent):
        pass
    assert len(said) == count


def test_a_list_of_kernels_says_whom_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was silent as long as apt took."""
    monkeypatch.setattr("harness.host.progress.PLAIN_INTERVAL_S", 0.01)
    heard, say = threading.Event(), errors.say

    def saying(text: str) -> None:
        say(text)
        heard.set()

    def row_of(pin: Pin) -> KernelRow:
        assert heard.wait(60)
        return KernelRow(pin.name, "-", "-", "-", "-")

    monkeypatch.setattr(errors, "say", saying)
    monkeypatch.setattr(report, "row_of", row_of)
    assert "asking apt which kernels can be had" in powercut("list", "kernels").stderr


def waits_for_a_word(monkeypatch: pytest.MonkeyPatch, say: type, method: str) -> Callable[..., NoReturn]:
    """Work that lasts until a line says what is being done."""
    monkeypatch.setattr("harness.host.progress.PLAIN_INTERVAL_S", 0.01)
    heard, told = threading.Event(), getattr(say, method)

    def saying(self: object, *texts: object, **how: object) -> None:
        told(self, *texts, **how)
        if any(re.match(r" *\d+ s  \S", str(text)) for text in texts):
            heard.set()

    def work(*_: object, **__: object) -> NoReturn:
        assert heard.wait(60)
        raise UsageError("heard")

    monkeypatch.setattr(say, method, saying)
    return work


@pytest.mark.parametrize(
    ("work", "words"),
    [
        ("gc.kept_runs", ["gc"]),
        ("workload.dry_run", ["try", "append-fsync"]),
        ("repro.repro_context", ["repro", "ext4-nobarrier/append-fsync@41", "--from", "RUN"]),
        ("repro.shrink", ["shrink", "ext4-nobarrier/append-fsync", "--from", "RUN"]),
        ("why.find_out", []),
    ],
)
def test_no_command_is_silent_while_a_guest_boots(
    work: str, words: list[str], run: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """17 to 45 s without a word."""
    monkeypatch.setattr(workload, "find_chosen", lambda _: Kernel("k", Path("bzImage"), None, ""))
    monkeypatch.setattr(f"harness.cli.{work}", waits_for_a_word(monkeypatch, SafeConsole, "print"))
    if words:
        refused(*(run.path if word == "RUN" else word for word in words))
    else:
        why.explain_first(run, Named(), "auto")  # what cannot be explained is left out


@pytest.mark.parametrize("step", ["_base_images", "make_specs", "finish_base"])
def test_a_run_is_not_silent_before_it_records(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XFS's first run, whose base image a guest mounts once, said nothing for 42 s."""
    work = waits_for_a_word(monkeypatch, Lines, "say")
    without_guests(monkeypatch, tmp_path, lambda *_: None)
    monkeypatch.setattr(engine, step, work)
    plan = Plan(configurations=["xfs/default"], workloads=["append-fsync"])
    pool = cast(Any, SimpleNamespace(close=lambda: None))
    with create_run(plan, tmp_path, "test") as store, contextlib.suppress(UsageError):
        engine.execute(plan, store, Lines(Console(quiet=True)), make_pool=lambda *_, **__: pool)


def test_a_kernel_that_was_built_is_named_in_the_next_command() -> None:
    image = Path("/cache/a b/vmlinux")
    assert _next("linux-source-6.12", "uml", image).startswith("powercut run --kernel debian-6.12 ")
    own = _next("/home/me/linux", "uml", image)
    assert own.startswith("powercut run --machine uml --kernel '/cache/a b/vmlinux' ")
    assert _next("linux-source-6.12", "uml", image, own=True) == own, "debian-6.12 is another kernel"


def test_a_kernel_with_options_of_ones_own_is_asked_for_with_them(tmp_path: Path, monkeypatch: Any) -> None:
    asked: list[str] = []

    def build(source: str, machine: str, flavour: Flavour, *_: object) -> None:
        asked.append(flavour.fragments[-1])
        raise UsageError("not here", "")

    monkeypatch.setattr("harness.cli.kernel.build", build)
    file = tmp_path / "kasan.config"
    file.write_text("CONFIG_KASAN=y\n")
    refused("kernel", "build", "--config", str(file))
    assert asked == [str(file)]
    assert "leave out --config" in refused("kernel", "build", "--coverage", "--config", str(file))
    file.write_text("CONFIG_KASAN=y\nCONFIG KASAN\n")
    said = refused("kernel", "build", "--config", str(file))
    assert "kasan.config, line 2: 'CONFIG KASAN' sets no option" in said
    assert len(asked) == 1


def test_what_a_run_would_do_ends_without_a_guests_command_line_unless_asked_for() -> None:
    """Each `-n` ended with 900 characters of QEMU."""
    assert "-nodefaults" not in powercut("run", "-n", "-w", "append-fsync").output
    assert "-nodefaults" in powercut("run", "-n", "-v", "-w", "append-fsync").output
