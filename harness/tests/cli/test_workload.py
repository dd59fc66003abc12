"""`powercut new` and `powercut try`; with a real guest in `harness.tests.vm.test_applications`."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cases.attempts import Unobserved
from harness.cases.checks import ACCEPTS_NOTHING
from harness.cases.dry_run import DryRun
from harness.cli import run
from harness.cli import workload as commands
from harness.errors import ExitCode, GuestError
from harness.kernels.find import Kernel
from harness.model import CheckResult, Judgement, Outcome, Violation, Workload
from harness.plan import Plan
from harness.rules.calls import Left
from harness.tests.cli.runner import powercut, printed, refused
from harness.tests.rules.programs import OWNER, Calls
from harness.workloads.applications import load_application, of_program


def test_a_plain_name_goes_into_the_folder_of_workloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = printed("new", "my-db")
    assert sorted(p.name for p in (tmp_path / "workloads/my-db").iterdir()) == [
        "check",
        "run",
        "workload.toml",
    ]
    assert "try it:   powercut try workloads/my-db\n" in told
    assert "-w workloads/my-db\n" in told
    assert "my-db-forgets passes `try`, which cuts no power, and has to fail under `run`" in told
    for file in (tmp_path / "workloads/my-db").iterdir():  # a file system has a journal, too
        assert "journal" not in file.read_text()
    assert "is there already" in refused("new", "my-db")


def test_a_path_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-w two.toml` would be looked for among the names that there are."""
    monkeypatch.chdir(tmp_path)
    done = powercut("new", "./two", "--kind", "operations")
    assert (tmp_path / "two.toml").is_file()
    assert "powercut try ./two.toml\n" in done.stdout


@pytest.mark.parametrize(
    ("kind", "made"), [("shell", "workloads/mine"), ("operations", "workloads/mine.toml")]
)
def test_what_new_made_is_found_by_its_plain_name(
    kind: str, made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run -w my-db`, after `new my-db`, was answered with the names of other people's workloads."""
    monkeypatch.chdir(tmp_path)
    powercut("new", "mine", "--kind", kind)
    assert f"named by its path: {made}" in refused("run", "-c", "ext4/ordered", "-w", "mine", "-n")


def test_what_is_no_workload_is_not_told_as_one_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-w new`, in a checkout, proposed the folder of the templates; `-w README.md`, a page."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workloads/new").mkdir(parents=True)
    (tmp_path / "workloads/README.md").touch()
    for name in ("new", "README.md"):
        assert f"workloads/{name}" not in refused("run", "-c", "ext4/ordered", "-w", name, "-n")


@pytest.mark.parametrize("kind", ["shell", "python", "operations"])
def test_new_proposes_modes_in_which_what_it_made_holds(kind: str, tmp_path: Path) -> None:
    """It proposed ext4/nobarrier beside, on which the correct variant is red as well."""
    said = powercut("new", tmp_path / "my-db", "--kind", kind).stdout.splitlines()
    (test_it,) = (line for line in said if line.startswith("test it:"))
    assert "nobarrier" not in test_it
    assert any("fail" in line for line in said if line != test_it)


@pytest.mark.parametrize(
    ("first", "needs"),
    [
        ("#!/bin/sh", ""),
        ("#!/usr/bin/env python3", 'runtime = "python"\n'),
        ("#!/usr/bin/perl", 'programs = ["perl"]\n'),
    ],
)
def test_a_program_needs_no_folder(
    first: str, needs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever had one program for both had to write a folder with a description and two scripts."""
    plans: list[Plan] = []

    def show(plan: Plan, _: object) -> ExitCode:
        plans.append(plan)
        return ExitCode.CONSISTENT

    monkeypatch.setattr(run, "_show", show)
    program = tmp_path / "my-test"
    program.write_text(f"{first}\n")
    for _ in range(2):
        printed("run", "-n", "--out", tmp_path / "r", "--", program, "a b", "--fast")
    assert plans[0].workloads == plans[1].workloads
    (folder,) = map(Path, plans[0].workloads)
    assert plans[0].fault_models == ("exhaustive",), "as of any application"
    (workload,) = load_application(folder)
    assert (workload.name, workload.runtime) == ("my-test", "python" if "python" in needs else "")
    assert workload.operations[0].argv[0] == "powercut-ack-lines", "a line is an acknowledgement"
    assert (folder / "workload.toml").read_text().endswith(f'acknowledges = "lines"\n{needs}')
    program.write_text(f"{first}\n# rebuilt\n")
    powercut("run", "-n", "--out", tmp_path / "r", "--", program, "a b", "--fast")
    assert plans[-1].workloads != plans[0].workloads, "what an earlier run had stays"


def test_a_program_that_is_named_as_a_workload_is_told_its_place(tmp_path: Path) -> None:
    program = tmp_path / "my-test"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    said = " ".join(powercut("run", "-n", "-w", program).stderr.split())
    assert f"a program of one's own stands behind --: powercut run -- {program}" in said


def test_a_program_does_its_work_and_checks_it(tmp_path: Path) -> None:
    program = tmp_path / "my-test"
    program.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    folder = of_program(program, ["a b", "--fast"], tmp_path / "programs")
    said = [
        subprocess.run([folder / name, *more], capture_output=True, text=True, check=True).stdout
        for name, more in (("run", []), ("check", ["/acknowledged"]))
    ]
    assert said == ["<a b><--fast>", "<check></acknowledged><a b><--fast>"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["append-fsync"], "there is no program append-fsync"),
        (["sh", "-c", "echo"], "next: its path: "),
        (["python3", "{tmp}/my-test.s2", "5"], "next: name the script, whose first line names python3: -- /"),
        (["/etc/passwd"], "begins neither with"),
        (["{tmp}/my-test.s2"], "at its end no .s2, which is a schedule"),
        (["--failed-from", "reports/latest", "/bin/true"], "--failed-from has its own workloads"),
        (["--resume", ".", "/bin/true"], "cannot change it"),
    ],
)
def test_what_is_no_program_is_a_usage_error(words: list[str], says: str, tmp_path: Path) -> None:
    (program := tmp_path.parent / "my-test.s2").write_text("#!/bin/sh\n")
    named = [w.replace("{tmp}/my-test.s2", str(program)) for w in words]
    assert says in refused("run", "-n", "--out", tmp_path, *named)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["--"], ["--", ""], ["-c", "xfs/default", "--"]])
@pytest.mark.parametrize("command", ["run", "try"])
def test_a_program_that_is_not_named_is_no_pass(command: str, words: list[str]) -> None:
    """`-- $PROGRAM` of a CI job, with PROGRAM unset, ran the built-in cases and passed."""
    said = refused(command, *words)
    assert "no program stands behind --" in said
    assert f"next: name it, powercut {command} -c ext4/ordered -- ./my-test" in said


def test_a_program_that_is_not_named_stops_a_bisection(tmp_path: Path) -> None:
    """2, which git takes for bad."""
    for words in (["--"], ["--", "./nothing"]):
        assert powercut("run", "--bisect", "--out", tmp_path, *words).exit_code == ExitCode.BISECT_STOP


def test_another_kind_is_a_usage_error() -> None:
    assert "shell" in refused("new", "my-db", "--kind", "perl")


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a guest shows, without one: `outcome` and `judgement` may be changed."""
    shown: dict[str, Any] = {
        "outcome": Outcome(checks=(CheckResult(0, 0, "all there\n", 5),)),
        "judgement": Judgement(),
    }

    def answer(profile: object, workload: Workload, kernel: object, asked: object) -> DryRun:
        if error := shown.get("error"):
            raise error
        told = tuple(f"line {i}" for i in range(1, 8))
        outputs = ("opened\n\x1b[2Jdone\n",)
        calls = shown.get("calls")
        judged = shown["outcome"], shown["judgement"], calls, shown.get("doubt", "")
        return DryRun(workload, "UML", outputs, told, 1234, *judged)

    monkeypatch.setattr(commands, "dry_run", answer)
    monkeypatch.setattr(commands, "find_chosen", lambda choice: Kernel("6.12", Path("/k"), None, ""))
    return shown


def test_output_acknowledgements_and_check_are_shown(tmp_path: Path, tried: dict[str, Any]) -> None:
    place = tmp_path / "my-db"
    powercut("new", place)
    told = printed("try", place)
    for line in (
        "my-db-synced on ext4/ordered, 6.12",
        "  0: run /workload/my-db/run synced",
        "      opened",
        "  acknowledged 7: line 1, line 2, line 3, line 4, line 5, ...",
        "  1,234 entries in the log; after a clean unmount:",
        "  check of operation 0: exit code 0",
        "      all there",
        "my-db-synced: PASS without a power cut, in UML",
        "my-db-forgets: PASS without a power cut, in UML",
        f"what a power cut leaves of it: powercut run -c ext4/ordered -w {place}",
    ):
        assert f"{line}\n" in told
    assert "\x1b" not in told


def test_one_variant_is_tried(tmp_path: Path, tried: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """`try` took no spelling of one, and the next step named a folder that would not be typed so."""
    monkeypatch.chdir(tmp_path)
    powercut("new", "./my-db")
    said = refused("try", "./my-db-synced")
    assert "next: name the folder, and that one by -k: powercut run -w ./my-db -k my-db-synced;" in said
    steps = [shlex.split(step) for step in said.partition("by -k: ")[2].split("; ")]
    assert [step[:2] for step in steps] == [["powercut", "run"], ["powercut", "try"]]
    told = printed(*steps[1][1:])
    assert "my-db-synced: PASS" in told
    assert "my-db-forgets: " not in told
    assert "powercut run -c ext4/ordered -w ./my-db -k my-db-synced\n" in told
    assert "1 recording" in printed(*steps[0][1:], "-n")
    assert "there are: my-db-synced, my-db-forgets" in refused("try", "./my-db", "-k", "other")


def test_a_program_behind_the_dashes_is_tried(tmp_path: Path, tried: dict[str, Any]) -> None:
    """ "a program of one's own stands behind --", it said to who had typed that."""
    (program := tmp_path / "my-test").write_text("#!/bin/sh\n")
    program.chmod(0o755)
    told = printed("try", "--", program, "5", "-k")
    assert "my-test: PASS" in told
    assert f"powercut run -c ext4/ordered -- {program} 5 -k\n" in told
    assert "name one of the two" in refused("try", "append-fsync", "--", program)
    assert "these are 2" in refused("try", "append-fsync", "sqlite-wal-full")
    assert "no workload is named" in refused("try")


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (
            {"judgement": Judgement((Violation("program", "my-db", "line 1 is gone", "e", "f", "s"),))},
            ExitCode.INCONSISTENT,
            "program: line 1 is gone",
        ),
        ({"judgement": Judgement(unknown=("no check",))}, ExitCode.UNDECIDED, "undecided: no check"),
        (
            {"outcome": Unobserved("no guest"), "judgement": Judgement(unknown=("no guest",))},
            ExitCode.UNDECIDED,
            "undecided: no guest",
        ),
        ({"error": GuestError("run failed: its output", "correct it")}, ExitCode.UNDECIDED, "its output"),
    ],
)
def test_what_is_wrong_is_said_in_words_and_by_the_exit_code(
    tmp_path: Path, tried: dict[str, Any], change: dict[str, Any], code: ExitCode, says: str
) -> None:
    place = tmp_path / "my-db"
    powercut("new", place)
    tried.update(change)
    done = powercut("try", place)
    assert done.exit_code == code
    assert says in done.output


def test_what_no_sync_covered_is_told_without_a_crash(tmp_path: Path, tried: dict[str, Any]) -> None:
    """The author of a program with a missing fsync was told PASS, and nothing else."""
    calls = Calls().create("f").write("f", b"text").fsync("f").ack("0").fsync(".").ack("1")
    for number in range(8):
        calls.write("f", b"more", 4 + 4 * number).ack(f"{number + 2}")
    left = [Left("f", "file", OWNER, b"text" + 8 * b"more")]
    tried["calls"] = replace(calls.notes(left), exit_code=0)
    powercut("new", place := tmp_path / "my-db")
    done = powercut("try", f"{place}")
    assert (
        "  what no sync covered, so that a power cut may take it (any/posix):\n"
        "      acknowledged `0`: f: its name f\n"
        "      acknowledged `2`: f: bytes 4 to 8, its size\n"
    ) in done.stdout
    assert "acknowledged `1`" not in done.stdout
    assert f"which fsync it lacks, if any: powercut run -c any -w {place}\n" in done.stdout
    assert "      and at 4 more\n      at the end: f: bytes 4 to 36, its size\n" in done.stdout


def test_why_it_is_not_known_what_no_sync_covered_is_told(tmp_path: Path, tried: dict[str, Any]) -> None:
    """A program that writes by io_uring would have had nothing unsynced."""
    powercut("new", place := tmp_path / "my-db")
    calls = Calls().create("f").ack("0").notes([Left("f", "file", OWNER)])
    for tried["calls"], why in (
        (replace(calls, exit_code=0, unseen=("io_uring_setup()",)), "cannot follow: io_uring_setup()"),
        (GuestError("the guest is gone"), "the guest is gone"),
    ):
        told = printed("try", f"{place}")
        assert "  what no sync covered is not known: " in told
        assert why in told


def test_a_check_that_may_find_nothing_is_told(tmp_path: Path, tried: dict[str, Any]) -> None:
    """`run` noted it, and `try`, which comes before, was a pass without a word."""
    powercut("new", tmp_path / "my-db")
    assert "note: " not in printed("try", tmp_path / "my-db")
    tried["doubt"] = ACCEPTS_NOTHING
    told = printed("try", tmp_path / "my-db")
    assert f"  note: {ACCEPTS_NOTHING}\n" in told
    assert "my-db-synced: PASS without a power cut" in told


def test_several_modes_at_once_are_refused(tmp_path: Path) -> None:
    assert "name one of them: ext4/" in refused("try", "sqlite-wal-full", "-c", "ext4")


def test_what_is_run_leaves_out_workloads_that_only_rules_cannot_judge() -> None:
    """They were counted among the recordings and states."""
    done = powercut("run", "-n", "-c", "any/posix", "-w", "append-fsync,overwrite,journal-magic")
    assert "not run: any/posix: 2 workloads without a check, and it has no other judge" in done.stdout
    assert "any/posix (mount -o defaults): journal-magic" in done.stdout
    assert "1 recording," in done.stdout
    assert powercut("run", "-n", "-c", "any/posix", "-w", "overwrite").exit_code == ExitCode.NOTHING_RUN
    assert "2 recordings," in powercut("run", "-n", "-c", "any/posix,ext2", "-w", "journal-magic").stdout
