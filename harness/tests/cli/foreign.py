"""Directories from somebody else, and the commands that take one; for `test_foreign_directories.py`, and for
`make chaos`, which damages them as well.

What Python opens, starts and connects to is watched by an audit hook (PEP 578). It also ends what would begin
for good: nothing here boots a guest.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pytest

from harness.campaigns.journal import CampaignPlan
from harness.faults.results import FaultsPlan
from harness.host.files import json_bytes
from harness.litmus.results import LitmusPlan
from harness.measure.run import MeasurePlan
from harness.model import CaseId, Judgement, Violation
from harness.patches.questions import Stage
from harness.patches.results import PatchPlan
from harness.plan import Plan
from harness.regressions.results import RegressionsPlan
from harness.releases.results import SweepPlan
from harness.store import RunStore
from harness.store.records import CaseInfo, KernelInfo
from harness.tests.report.demo import run_info
from harness.tests.store.samples import put_case

# --- what is watched ---------------------------------------------------------------------------


NOTHING_STARTS = "nothing is started here, nor connected to"


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
            raise RuntimeError(NOTHING_STARTS)
        elif event == "socket.connect" and isinstance(arguments[1], tuple):
            self.sprung.append(f"{event} {told}")
            raise RuntimeError(NOTHING_STARTS)


_SET: list[Trap] = []
_hooked: list[bool] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _SET and event in ("open", "os.scandir", "os.listdir", "subprocess.Popen", "socket.connect"):
        _SET[0].saw(event, arguments)


@contextlib.contextmanager
def watching(cache: Path) -> Iterator[Trap]:
    """Sprung by what is added to `baits`. A hook cannot be removed, so there is one, asleep in between."""
    if not _hooked:
        sys.addaudithook(_hook)
        _hooked.append(True)
    made = Trap()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POWERCUT_CACHE", str(cache))
        _SET.append(made)
        try:
            yield made
        finally:
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
        put_case(store, CaseInfo(case, generated=1, distinct=1), LOST)
        return store.path


def _with_plan(root: Path, plan: msgspec.Struct) -> Path:
    path = root / "runs" / "theirs"
    path.mkdir(parents=True)
    (path / "plan.json").write_bytes(json_bytes(plan))
    return path


def a_sweep(root: Path, hostile: Hostile, bait: str) -> Path:
    plan = hostile.plan(bait)
    kernels = [plan.kernel if hostile is KERNEL else "debian-6.12"]
    return _with_plan(root, SweepPlan(title="t", kernels=kernels, plan=plan, of_run=bait))


def a_verdict(root: Path, hostile: Hostile, bait: str) -> Path:
    path = a_sweep(root, hostile, bait)
    plan = msgspec.json.decode((path / "plan.json").read_bytes(), type=SweepPlan)
    (path / "plan.json").write_bytes(json_bytes(msgspec.structs.replace(plan, depth="quick")))
    return path


def a_litmus(root: Path, hostile: Hostile, bait: str) -> Path:
    kernels = [hostile.plan(bait).kernel if hostile is KERNEL else "debian-6.12"]
    names = [bait] if hostile is WORKLOAD else []
    plan = LitmusPlan(modes=["ext4/ordered"], names=names, kernels=kernels, machine="uml", argv=["litmus"])
    return _with_plan(root, plan)


def a_campaign(root: Path, hostile: Hostile, bait: str) -> Path:
    return _with_plan(root, CampaignPlan(run=hostile.plan(bait), generators=("random",)))


def some_faults(root: Path, hostile: Hostile, bait: str) -> Path:
    return _with_plan(root, FaultsPlan(workloads=hostile.plan(bait).workloads, machine="uml"))


def some_regressions(root: Path, hostile: Hostile, bait: str) -> Path:
    own = (bait,) if hostile is WORKLOAD else ("quick",)
    return _with_plan(root, RegressionsPlan(workloads=own))


def a_patch(root: Path, hostile: Hostile, bait: str) -> Path:
    own = (bait,) if hostile is WORKLOAD else ("quick",)
    stage = Stage("quick", ("ext4/ordered",), own)
    plan = PatchPlan(
        tree=bait, base=("b" * 40, ""), commits=(("c" * 40, ""),), changed=(), stages=(stage,), machine="uml"
    )
    return _with_plan(root, plan)


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
    ("run", "baseline"): Attack("run -n -c ext4/ordered -w append-fsync --baseline DIR"),
    ("run", "recordings"): Attack("run -c ext4/ordered -w append-fsync --recordings DIR"),
    ("repro", "source"): Attack("repro CASE@0 --from DIR", refused=ONE_CASE),
    ("show", "source"): Attack("show CASE@0 --from DIR", refused=ONE_CASE),
    ("ls", "source"): Attack("log ls CASE --from DIR"),
    ("shrink", "source"): Attack("shrink CASE --from DIR", refused=ONE_CASE),
    ("triage", "runs"): Attack("triage DIR", refused=ONE_CASE),
    ("history", "source"): Attack("history CASE --from DIR --kernels debian-6.12", refused=(WORKLOAD,)),
    ("history", "resume"): Attack("history --resume DIR", a_sweep, (KERNEL, WORKLOAD), "--kernels"),
    ("matrix", "resume"): Attack("matrix --resume DIR", a_sweep, (KERNEL, WORKLOAD), "--kernels"),
    ("verdict", "resume"): Attack("verdict --resume DIR", a_verdict, (KERNEL,), "--kernels"),
    ("litmus", "resume"): Attack("litmus --resume DIR", a_litmus, (KERNEL,), "--kernels"),
    ("campaign", "resume"): Attack("campaign --resume DIR", a_campaign, (KERNEL, MODULES, MODULE)),
    ("faults", "resume"): Attack("faults --resume DIR", some_faults, (WORKLOAD,)),
    ("faults", "other_campaign"): Attack("faults -n --other-campaign DIR", some_faults),
    ("regressions", "resume"): Attack("regressions --resume DIR", some_regressions),
    ("patch", "resume"): Attack("patch --resume DIR", a_patch, (WORKLOAD,)),
    ("measure", "resume"): Attack("measure --resume DIR", a_measurement, (KERNEL, MODULES)),
    ("measure", "beside"): Attack("measure bonnie --beside DIR", a_measurement),
    ("bugreport", "source"): Attack("bugreport CASE --from DIR --output new", refused=(WORKLOAD,)),
    ("report", "run"): Attack("report DIR"),
    ("coverage", "runs"): Attack("coverage DIR"),
    ("pack", "run"): Attack("pack DIR --output new"),
    ("compare", "first"): Attack("compare DIR DIR"),
    ("compare", "second"): Attack("compare DIR DIR"),
}


def given(attack: Attack, directory: Path, hostile: Hostile) -> list[str]:
    case = str(replace(CASE, workload=hostile.workload))
    return shlex.split(attack.words.replace("DIR", shlex.quote(str(directory))).replace("CASE", case))


def lay_bait(host: Path, hostile: Hostile) -> Path:
    """Make what the directory names: a kernel, a workload, or a folder; and a module beside it."""
    bait = host / EVIL
    bait.mkdir(parents=True)
    if hostile is KERNEL:
        bait.rmdir()
        bait.write_bytes(b"\x7fELF" + bytes(2000))
    elif hostile is WORKLOAD:
        (bait / "workload.toml").write_text('summary = "s"\nfiles = ["/etc/shadow"]\n')
        for program in ("run", "check"):
            (bait / program).write_text("#!/bin/sh\n")
    bait.with_name(f"{EVIL}.ko").write_bytes(b"a module")
    return bait
