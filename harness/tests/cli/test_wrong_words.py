"""What somebody typed by mistake: the message names the value, what is wrong with it, and what to do next."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from harness.cli import main
from harness.cli.options import Folder, NewFile, OpenFile
from harness.errors import ExitCode, StoreError, UsageError
from harness.findings import repro
from harness.guests.machine import machine_of
from harness.model import CaseId
from harness.report import write_reports
from harness.store import RunStore
from harness.store.bundle import bundle
from harness.store.directory import make_directory
from harness.store.records import CaseInfo
from harness.tests.another_user import not_entered
from harness.tests.cli.runner import powercut, refused
from harness.tests.report.demo import demo_run
from harness.tests.store.samples import INFO


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with demo_run(tmp_path) as store:
        return store.path


def says(result: object, *words: str) -> None:
    text = str(getattr(result, "output", "")) + str(getattr(result, "stderr", ""))
    assert getattr(result, "exit_code", None) == ExitCode.USAGE, text
    flat = " ".join(text.split())
    for word in words:
        assert word in flat, text


@pytest.mark.parametrize("command", ["campaign", "matrix", "faults", "regressions"])
def test_a_folder_that_holds_no_series_is_not_looked_through(command: str, tmp_path: Path) -> None:
    """Of /tmp it said to remove a socket of another program, with exit code 3."""
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "socket"))
        says(
            powercut(command, "--resume", tmp_path), f"{tmp_path} holds no", f"powercut {command} begins one"
        )


def test_the_logs_of_a_package_are_those_of_its_cases(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package was called a damaged log; then `powercut report A.tar.zst` had to unpack it."""
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "run.tar.zst"
    bundle(run, package)
    says(powercut("log", "ls", package), "has 18 cases", "name one: ext4-ordered/append-fsync")


def test_a_directory_is_no_log(run: Path, tmp_path: Path) -> None:
    says(powercut("log", "ls", tmp_path), f"{tmp_path} is not a run directory")
    says(powercut("log", "ls", run / "gone"), f"there is no {run / 'gone'}")


@pytest.mark.parametrize("command", ["pack", "triage"])
def test_a_folder_that_is_no_run_is_a_wrong_path(command: str, tmp_path: Path) -> None:
    """Exit code 3 says that something could not be decided."""
    says(powercut(command, tmp_path), "is not a run directory")


def test_of_a_verdict_the_runs_are_named(run: Path, tmp_path: Path) -> None:
    """ "it has no run.json", of what had just been printed."""
    inner = tmp_path / "verdict" / "kernels" / "debian-6.12" / "runs" / run.name
    inner.parent.mkdir(parents=True)
    run.rename(inner)
    says(powercut("report", tmp_path / "verdict"), "has a run of each kernel", f"name one: {inner}")


def test_a_directory_is_no_kernel(tmp_path: Path) -> None:
    """ "there is no such file", of one that is there."""
    says(powercut("run", "-n", "--kernel", tmp_path), "that is a directory", "arch/x86/boot/bzImage")


def test_a_source_that_is_not_there_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ "/gone is not a directory"; `LINUX` was looked for among apt's packages."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for gone in ("/gone/linux", "~me/linux", "LINUX"):
        says(powercut("kernel", "build", gone), f"{gone} does not exist", "the top folder of a kernel tree")
    for file in ("./file", "file"):
        says(powercut("kernel", "build", file), f"{file} is not a directory")


def places_to_write(command: click.Command) -> Iterator[tuple[str, click.Parameter]]:
    if isinstance(command, click.Group):
        yield from (pair for below in command.commands.values() for pair in places_to_write(below))
    for param in command.params:
        if isinstance(param.type, NewFile | Folder | OpenFile):
            yield f"{command.name} {param.opts[-1]}", param


PLACES = dict(places_to_write(main))


@pytest.mark.parametrize("param", PLACES.values(), ids=PLACES)
def test_a_place_that_takes_no_files_is_refused_in_words(param: click.Parameter, tmp_path: Path) -> None:
    """ "[Errno 2] No such file or directory: '/proc/x'", of some after minutes of work."""
    with pytest.raises(click.UsageError, match="/proc/x cannot be made: /proc takes no new files; name a f"):
        param.type.convert("/proc/x", param, None)
    link = tmp_path / "link"
    link.symlink_to("gone")
    with pytest.raises(click.UsageError, match="link that leads nowhere"):
        param.type.convert(str(link / "x"), param, None)
    param.type.convert(str(tmp_path / "x"), param, None)


def test_where_no_run_can_be_made_says_what_is_in_the_way() -> None:
    with pytest.raises(StoreError, match="/proc/x/runs cannot be made: /proc takes no new files"):
        make_directory(Path("/proc/x"), "t", INFO.started)


def test_the_description_of_an_application_is_named_by_its_directory(tmp_path: Path) -> None:
    """ "leave out runtime"."""
    place = tmp_path / "my-db"
    place.mkdir()
    (place / "workload.toml").write_text('summary = "my-db"\nruntime = "python"\n')
    (place / "run").write_text("#!/bin/sh\n")
    says(
        powercut("run", "-n", "-w", place / "workload.toml"),
        "describes an application, which is named by its directory",
        f"-w {place}",
    )


def test_a_set_may_have_been_meant() -> None:
    """`ace9`: "try one of: namespace, fallocate, stale"."""
    says(powercut("run", "-n", "-w", "ace9"), "no workload 'ace9'", "did you mean ace2 or ace1")


@pytest.mark.parametrize(
    ("shard", "why", "then"),
    [
        ("9/3", "there is no part 9 of 3", "1/3 to 3/3"),
        ("0/3", "there is no part 0 of 3", "1/3 to 3/3"),
        ("x", "that is no part of the workloads", "it reads 2/5"),
        ("1/0", "that is no part of the workloads", "it reads 2/5"),
    ],
)
def test_a_part_that_there_is_not_says_which_there_are(shard: str, why: str, then: str) -> None:
    says(powercut("run", "-n", "--shard", shard), f"shard '{shard}': {why}", then)


def test_what_names_no_finding_says_which_there_are(run: Path) -> None:
    with demo_run(run.parent.parent / "other") as store:
        known = store.findings()[0].id
        case, other = store.findings()[0].case, store.findings()[-1]
        path = store.path
    assert other.case != case
    wrong = powercut("show", str(case), "--from", path)
    says(wrong, f"{case} is a case", known)
    assert other.id not in wrong.stderr, "each finding of the run was listed, of whatever case"
    says(powercut("show", known[:3], "--from", path), "too short", "it takes 4 digits", known)
    says(powercut("show", "zzz", "--from", path), "'zzz'", "nor the id of a finding", known)
    says(powercut("bugreport", "zzz", "--from", path), "'zzz'", "nor the id of a finding", known)
    says(powercut("show", path, "--from", path), "is a path", f"--from {path}")


def test_a_run_that_is_not_made_reads_its_known_failures_all_the_same(tmp_path: Path) -> None:
    """`run -n` found nothing wrong with a file that the run itself refuses."""
    file = tmp_path / "known.expected"
    file.write_text("x y z\n")
    says(powercut("run", "-n", "--expect", file), "has no reason")


def test_a_workload_is_not_made_in_a_folder_of_folders_that_are_not_there(tmp_path: Path) -> None:
    """A mistyped path was made, whole."""
    says(powercut("new", tmp_path / "a/b/c"), f"there is no {tmp_path / 'a'}", f"mkdir -p {tmp_path / 'a/b'}")
    assert not (tmp_path / "a").exists()
    assert powercut("new", tmp_path / "a/b").exit_code == 0


def test_a_machine_without_a_console_says_so_before_anything_is_booted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`repro --shell` of a UML run booted a guest, recovered the state, and then said it."""
    monkeypatch.setattr(repro, "Session", lambda *_: pytest.fail("something was booted"))
    shown: Any = SimpleNamespace(
        spec=SimpleNamespace(machine=machine_of("uml")),
        recording=SimpleNamespace(profile=None),
        directory=Path(),
    )
    with pytest.raises(UsageError, match="gives no console") as caught:
        repro.shell(shown, print)
    assert "--kernel debian-6.12" in caught.value.next_step
    machine_of("qemu", "tcg").need_console()


def test_a_run_that_is_not_there_says_so(tmp_path: Path) -> None:
    """ "it has no run.json", of a name that was mistyped."""
    for command in ("report", "triage"):
        says(powercut(command, tmp_path / "gone"), f"there is no {tmp_path / 'gone'}", "powercut pack")


def test_a_finding_of_another_run_is_looked_for_beside(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`powercut show ID` of yesterday's run only said what today's has."""
    with RunStore.open(run) as store:
        wanted = store.findings()[0].id
        write_reports(store)
    with RunStore.create(tmp_path, "later", INFO, durable=False) as other:
        monkeypatch.chdir(tmp_path)
        says(powercut("show", wanted, "--from", other.path), f"has no finding {wanted}", f"--from {run}")
        says(powercut("show", "0123456789ab", "--from", other.path), "its findings: none")


def test_a_mode_that_is_rules_alone_has_no_log_and_tries_nothing(tmp_path: Path) -> None:
    """`log ls` said that the case had been recorded elsewhere; `try` was undecided, whatever the program."""
    case = CaseId("any", "posix", "w")
    with RunStore.create(tmp_path, "rules", INFO, durable=False) as store:
        store.add_case(CaseInfo(case, "", "", ""))
        says(powercut("log", "ls", case, "--from", store.path), f"{case} has no write log", "rules alone")
    tried = powercut("try", "append-fsync", "-c", "any/posix")
    says(tried, "any/posix is rules alone", "powercut run -c any/posix -w append-fsync")


@pytest.mark.parametrize("name", ["append-fsync", "sqlite-wal-full", "quick", "all", "ace1", "random1-3-20"])
def test_a_new_workload_takes_no_name_of_ours(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside one's own `append-fsync`, ours could not be meant any more, and nobody said so."""
    monkeypatch.chdir(tmp_path)
    says(powercut("new", name), f"{name} is the name of", f"powercut new my-{name}")
    assert not (tmp_path / "workloads").exists()


def test_a_variant_that_is_named_by_a_path_leads_to_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert powercut("new", "my-db").exit_code == ExitCode.CONSISTENT
    said = powercut("run", "-n", "-w", "workloads/my-db-forgets")
    says(said, "one of those of workloads/my-db", "-w workloads/my-db -k my-db-forgets")


@pytest.mark.parametrize("word", ["any@raid1", "any@4k"])
def test_a_file_system_none_of_whose_modes_can_be_there_is_refused(word: str) -> None:
    """A traceback; with -n, the kernel's line alone."""
    says(powercut("run", "-n", "-c", word, "-w", "append-fsync"), f"{word}: no mode of any can be on")


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["run", "-c", "ext4/ordered", "-w", "append-fsync"], "--out"),
        (["run"], "--resume"),
        (["campaign"], "--out"),
        (["repro", "ext4-ordered/append-fsync@4"], "--from"),
        (["shrink", "ext4-ordered/append-fsync@4"], "--from"),
        (["triage"], "RUN"),
        (["report"], "RUN"),
        (["bugreport", "abcd1234"], "--output"),
        (["trace"], "--json"),
    ],
)
def test_what_may_not_be_entered_is_no_broken_promise(command: list[str], option: str) -> None:
    """A traceback and exit code 1, which accuses a file system: click reads these outside of `guarded`."""
    with not_entered() as folder:
        result = powercut(
            *command, *([option] if option[0] == "-" else []), folder / "private" / "inside" / "x"
        )
    says(result, option, "private/inside/x")
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["--expect", "nix"],
            "there is no nix; name a file of known failures; of this installation: natural-faults,",
        ),
        (["--image", "nix.ext4"], "there is no nix.ext4; name a file or a block device with a file system"),
        (
            ["--resume", "nix"],
            "there is no nix; name reports/latest, a directory in reports/runs, or a file that",
        ),
        (["--image", ""], "no file is named; name a file or a block device with a file system"),
        (["--resume", ""], "no run is named; name reports/latest"),
    ],
)
def test_a_file_that_is_not_there_has_a_next_step(words: list[str], says: str) -> None:
    """click says "does not exist" alone; and "" was the folder in which the command was given."""
    assert says in refused("run", "-n", *words)


def test_a_list_of_the_installation_is_named_without_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--expect vms/filesystems/sectors.expected` is there in a checkout alone."""
    monkeypatch.chdir(tmp_path)
    assert (
        powercut("run", "-n", "-c", "ext4/ordered", "-w", "append-fsync", "--expect", "sectors").exit_code
        == 0
    )
