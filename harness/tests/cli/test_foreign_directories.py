"""A directory from somebody else, given to every command that takes one: nothing that it names is run,
contacted or opened.

What Python opens, starts and connects to is watched by an audit hook (PEP 578). It also ends what would begin
for good: nothing here boots a guest.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import click
import msgspec
import pytest

from harness.campaigns.journal import CampaignPlan
from harness.cli import COMMANDS
from harness.cli.options import Folder, NewFile, RunDirectory
from harness.errors import ExitCode
from harness.faults.campaign import FaultsPlan
from harness.host.files import json_bytes
from harness.measure.run import MeasurePlan
from harness.model import CaseId, CrashState, Judgement, Violation
from harness.plan import Plan
from harness.releases.results import StudyPlan
from harness.store import RunStore
from harness.store.records import CaseInfo, CaseStatus, JudgedState, KernelInfo
from harness.tests.cli.runner import powercut
from harness.tests.report.demo import run_info

# --- what is watched ---------------------------------------------------------------------------


@dataclass
class Trap:
    """`baits`: paths that nobody may open or start. `sprung`: what was done to them, and every connection."""

    baits: list[str] = field(default_factory=list)
    sprung: list[str] = field(default_factory=list)

    def saw(self, event: str, arguments: tuple[object, ...]) -> None:
        """Ends what would start a program or a connection, whatever it is."""
        told = " ".join(map(str, arguments[:2]))
        if event in ("open", "os.scandir", "os.listdir") and any(bait in told for bait in self.baits):
            self.sprung.append(f"{event} {told}")
        elif event == "subprocess.Popen":
            if any(bait in told for bait in self.baits):
                self.sprung.append(f"{event} {told}")
            raise RuntimeError("nothing is started here")
        elif event == "socket.connect" and isinstance(arguments[1], tuple):
            self.sprung.append(f"{event} {told}")
            raise RuntimeError("nothing is connected here")


_SET: list[Trap] = []
_hooked: list[bool] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _SET and event in ("open", "os.scandir", "os.listdir", "subprocess.Popen", "socket.connect"):
        _SET[0].saw(event, arguments)


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trap]:
    """Sprung by what the test adds to `baits`. A hook cannot be removed, so there is one, asleep between
    tests.
    """
    if not _hooked:
        sys.addaudithook(_hook)
        _hooked.append(True)
    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    made = Trap()
    _SET.append(made)
    yield made
    _SET.clear()


# --- hostile directories -----------------------------------------------------------------------

CASE = CaseId("ext4", "ordered", "append-fsync")
EVIL = "evil"
LOST = Judgement((Violation("durability", "f", "lost", "f", "nothing", "f"),))


@dataclass(frozen=True)
class Hostile:
    """A directory of each kind that names `bait` in one way. `option`: what the command line has to add."""

    name: str
    change: Callable[[Plan, str], Plan]
    option: str
    workload: str = CASE.workload

    def plan(self, bait: str) -> Plan:
        return self.change(Plan(configurations=["ext4/ordered"], workloads=[self.workload]), bait)


KERNEL = Hostile("kernel", lambda p, b: msgspec.structs.replace(p, kernel=b, machine="uml"), "--kernel")
MODULES = Hostile("modules", lambda p, b: msgspec.structs.replace(p, modules=b), "--modules")
MODULE = Hostile("module", lambda p, b: msgspec.structs.replace(p, replaced=[f"{b}.ko"]), "--module")
CLUSTER = Hostile(
    "cluster", lambda p, _: msgspec.structs.replace(p, cluster="tcp://127.0.0.1:9"), "--cluster"
)
RECORDINGS = Hostile("recordings", lambda p, b: msgspec.structs.replace(p, recordings=b), "--recordings")
WORKLOAD = Hostile("workload", lambda p, b: msgspec.structs.replace(p, workloads=[b]), "-w", EVIL)
EVERY = (KERNEL, MODULES, MODULE, CLUSTER, RECORDINGS, WORKLOAD)


def a_run(root: Path, hostile: Hostile, bait: str) -> Path:
    """A run with a finding."""
    plan, case = hostile.plan(bait), replace(CASE, workload=hostile.workload)
    info = run_info()
    with RunStore.create(
        root, "theirs", replace(info, kernel=KernelInfo(plan.kernel), finished=None)
    ) as store:
        store.put_plan(plan)
        store.add_case(CaseInfo(case, generated=1, distinct=1))
        store.put_judgements(case, [JudgedState(CrashState(0), "0", LOST)])
        store.set_case_status(case, CaseStatus.DONE)
        return store.path


def _with_plan(root: Path, plan: msgspec.Struct) -> Path:
    path = root / "runs" / "theirs"
    path.mkdir(parents=True)
    (path / "plan.json").write_bytes(json_bytes(plan))
    return path


def a_study(root: Path, hostile: Hostile, bait: str) -> Path:
    plan = hostile.plan(bait)
    kernels = [plan.kernel if hostile is KERNEL else "debian-6.12"]
    return _with_plan(root, StudyPlan(title="t", kernels=kernels, plan=plan, of_run=bait, argv=["matrix"]))


def a_campaign(root: Path, hostile: Hostile, bait: str) -> Path:
    return _with_plan(root, CampaignPlan(run=hostile.plan(bait), generators=("random",)))


def some_faults(root: Path, hostile: Hostile, bait: str) -> Path:
    return _with_plan(root, FaultsPlan(workloads=hostile.plan(bait).workloads, machine="uml"))


def a_measurement(root: Path, hostile: Hostile, bait: str) -> Path:
    plan = hostile.plan(bait)
    beside = [bait] if hostile is RECORDINGS else []
    return _with_plan(
        root, MeasurePlan(name="bonnie", rounds=1, kernel=plan.kernel, modules=plan.modules, beside=beside)
    )


Make = Callable[[Path, Hostile, str], Path]


@dataclass(frozen=True)
class Attack:
    """How a command is given the directory DIR (the word `CASE`: the run's case), and what of it has to be
    named again on its command line. `option`: where the command calls it otherwise. Of the rest nothing is
    used.
    """

    words: str
    make: Make = a_run
    refused: tuple[Hostile, ...] = ()
    option: str = ""


ONE_CASE = (KERNEL, MODULES, MODULE, WORKLOAD)
ATTACKS: dict[tuple[str, str], Attack] = {
    ("run", "resume"): Attack("run --resume DIR", refused=EVERY),
    ("run", "failed_from"): Attack("run --failed-from DIR", refused=ONE_CASE),
    ("run", "recordings"): Attack("run -c ext4/ordered -w append-fsync --recordings DIR"),
    ("repro", "source"): Attack("repro CASE@0 --from DIR", refused=ONE_CASE),
    ("shrink", "source"): Attack("shrink CASE --from DIR", refused=ONE_CASE),
    ("triage", "runs"): Attack("triage DIR", refused=ONE_CASE),
    ("history", "source"): Attack("history CASE --from DIR --kernels debian-6.12", refused=(WORKLOAD,)),
    ("history", "resume"): Attack("history --resume DIR", a_study, (KERNEL, WORKLOAD), "--kernels"),
    ("matrix", "resume"): Attack("matrix --resume DIR", a_study, (KERNEL, WORKLOAD), "--kernels"),
    ("campaign", "resume"): Attack("campaign --resume DIR", a_campaign, (KERNEL, MODULES, MODULE)),
    ("faults", "resume"): Attack("faults --resume DIR", some_faults, (WORKLOAD,)),
    ("measure", "resume"): Attack("measure --resume DIR", a_measurement, (KERNEL, MODULES)),
    ("measure", "beside"): Attack("measure bonnie --beside DIR", a_measurement),
    ("dossier", "source"): Attack("dossier CASE --from DIR --output new", refused=(WORKLOAD,)),
    ("report", "run"): Attack("report DIR"),
    ("compare", "first"): Attack("compare DIR DIR"),
    ("compare", "second"): Attack("compare DIR DIR"),
}


def every_command(commands: tuple[click.Command, ...] = COMMANDS) -> Iterator[click.Command]:
    for command in commands:
        yield from (
            every_command(tuple(command.commands.values()))
            if isinstance(command, click.Group)
            else (command,)
        )


def test_every_command_that_takes_a_run_directory_is_attacked() -> None:
    """A new command, or option, of that kind has to be added to ATTACKS; any other path, to OTHER_PATHS."""
    taking = {
        (command.name, p.name)
        for command in every_command()
        for p in command.params
        if isinstance(p.type, RunDirectory)
    }
    assert taking == set(ATTACKS)


OTHER_PATHS = {"modules", "replaced", "file", "own_kernel", "folder", "expect"}
"""Parameters that name a file, modules, or a folder of dossiers."""


def test_every_other_path_on_a_command_line_is_known_to_be_none() -> None:
    for command in every_command():
        for p in command.params:
            if isinstance(p.type, click.Path) and not isinstance(p.type, RunDirectory | NewFile | Folder):
                assert p.name in OTHER_PATHS, f"{command.name}: is {p.name} a run directory?"


def given(attack: Attack, directory: Path, hostile: Hostile) -> list[str]:
    case = str(replace(CASE, workload=hostile.workload))
    return shlex.split(attack.words.replace("DIR", shlex.quote(str(directory))).replace("CASE", case))


@pytest.mark.parametrize("hostile", EVERY, ids=lambda h: h.name)
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=["-".join(key) for key in ATTACKS])
def test_nothing_that_a_directory_names_is_run_contacted_or_opened(
    attack: Attack, hostile: Hostile, tmp_path: Path, trap: Trap
) -> None:
    """`matrix --resume` started the program that DIR named as its kernel; `run --resume` unpickled what DIR's
    scheduler sent; `repro` read the workload that DIR named, and with it any file of the host.
    """
    bait = tmp_path / "host" / EVIL
    bait.mkdir(parents=True)
    if hostile is KERNEL:
        bait.rmdir()
        bait.write_bytes(b"\x7fELF" + bytes(2000))
    elif hostile is WORKLOAD:
        (bait / "workload.toml").write_text('summary = "s"\nfiles = ["/etc/shadow"]\n')
        for program in ("run", "check"):
            (bait / program).write_text("#!/bin/sh\n")
    bait.with_name(f"{EVIL}.ko").write_bytes(b"a module")
    directory = attack.make(tmp_path / "theirs", hostile, str(bait))
    trap.baits.append(str(bait))
    done = powercut(*given(attack, directory, hostile))
    assert trap.sprung == []
    if hostile in attack.refused:
        assert done.exit_code == ExitCode.USAGE, done.output
        option = attack.option if hostile is KERNEL and attack.option else hostile.option
        assert f"name it yourself: {option} " in done.stderr


@pytest.mark.parametrize("made", ["link", "folder", "latest", "pipe"])
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=["-".join(key) for key in ATTACKS])
def test_a_directory_with_symbolic_links_is_refused(
    attack: Attack, made: str, tmp_path: Path, trap: Trap
) -> None:
    """By a link a directory named any file of the host: to be read as a recording, or overwritten as a
    report.
    """
    bait = tmp_path / "host" / EVIL
    bait.mkdir(parents=True)
    directory = attack.make(tmp_path / "theirs", CLUSTER, "")
    if made == "pipe":
        os.mkfifo(directory / "console.txt")
    elif made == "latest":
        (directory / "latest").symlink_to("../../../host/evil")
    else:
        place = directory / "a" / "b"
        place.mkdir(parents=True)
        (place / "c").symlink_to(bait if made == "folder" else bait / "nothing")
    trap.baits.append(str(bait))
    done = powercut(*given(attack, directory, CLUSTER))
    assert trap.sprung == []
    assert done.exit_code == ExitCode.UNDECIDED, done.output
    assert ("neither a file nor a folder" if made == "pipe" else "is a symbolic link") in done.stderr
    assert [*bait.iterdir()] == []


def test_a_run_directory_may_be_named_by_a_link(tmp_path: Path) -> None:
    """`reports/latest` is one. What lies in its scratch folder is deleted unread."""
    run = a_run(tmp_path, KERNEL, "debian-6.12")
    (run / "scratch").mkdir()
    (run / "scratch" / "of-a-run-at-work").symlink_to("somewhere")
    assert powercut("report", tmp_path / "latest").exit_code == ExitCode.INCONSISTENT
