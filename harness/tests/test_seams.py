"""Seams: every option that adds looks, with every command that carries results on.

Two lists make a matrix: the fields of a plan that add looks, and the commands that carry on what these
showed. A new field, or a new command, fails until it stands in its list, or says why it does not belong
there. Each cell is a test over the toy kernel, or says in words why there is nothing to carry.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.cli import again, main
from harness.errors import ExitCode
from harness.faults.results import FaultsPlan
from harness.findings.repro import find_point
from harness.litmus.results import LitmusPlan
from harness.model import CrashPoint, CrashState
from harness.plan import Budget, Plan
from harness.regressions.results import RegressionsPlan
from harness.report.changes import FindingChange, Side, changes
from harness.report.junit import junit_xml
from harness.report.lines import commands, run_again
from harness.report.results import results
from harness.report.text import summary_text
from harness.store import RunStore
from harness.store.bundle import bundle, unbundle
from harness.store.records import Finding
from harness.summary import shell_code, summarise
from harness.tests.cases.toy_kernel import Bench, Kernel, Kind, OnError, Put, a_bench, bench_in
from harness.tests.store.samples import INFO

HERE = Path(__file__).parent
ADDS = (Put(7, 7, 1), None, Put(0, 7, 0), Put(7, 7, 3), None)
NO_LIMIT = Budget()


@dataclass(frozen=True)
class Look:
    """An option that adds looks. `field`: of a plan. `asked`: its value here; `kernel`: one of which only
    these looks show that it is broken, by `oracle`.
    """

    field: str
    asked: Any
    kernel: Callable[[], Kernel]
    oracle: str
    budget: Budget = NO_LIMIT

    def run(self, bench: Bench, *, looking: bool = True) -> None:
        """The toy's case, with these looks or without."""
        states = self.asked if self.field == "fault_models" and looking else "prefix"
        more = {self.field: self.asked} if self.field != "fault_models" and looking else {}
        bench.run(self.kernel(), states, budget=self.budget, **more)
        bench.store.finish(INFO.started)


LOOKS = {
    "again": Look("again", 1, lambda: Kernel(program=ADDS), "confluence"),
    "disk": Look("disk", ("errors",), lambda: Kernel(journal=True, on_error=OnError.IGNORES), "honesty"),
    "exhaustive": Look("fault_models", "exhaustive", lambda: Kernel(Kind.NOT_MOUNTED, at="011"), "mountable"),
    "sectors": Look(
        "fault_models", "sectors", lambda: Kernel(Kind.NOT_MOUNTED, at="010"), "mountable", Budget(visits=30)
    ),
}
IN_THE_NAME = "it is part of the case's name: another command has that case, or another one"
NO_LOOKS = {
    "configurations": f"stacks and kinds of disks: {IN_THE_NAME}",
    "workloads": f"schedules and programs: {IN_THE_NAME}",
    "kernel": "what is looked at, not how",
    "modules": "what is looked at, not how",
    "replaced": "what is looked at, not how",
    "image": "what is looked at, not how",
    "machine": "how guests are started",
    "accel": "how guests are started",
    "jobs": "how many at once",
    "budget": "fewer looks: `harness.report.reach` counts what it left out",
    "memo": "the same states, each in a guest",
    "sample_rate": "the same states, more of them in a guest",
    "recordings": "the same states of kept recordings",
    "earlier": "the same looks, of a run that asked no less: test_a_plan_that_asked_less_decided_nothing",
    "log_bytes": "how large a log may be",
    "clock": "another recording of the same workload, as each new one is",
    "completions": "another recording of the same workload, as each new one is",
    "require_all": "what the exit code says of cases that were not run",
    "shard": "which cases, by name",
    "only": "which cases, by name",
    "match": "which cases, by name",
    "oracles": "how states are judged: test_what_the_second_run_did_not_judge_is_not_fixed",
    "minutes": "fewer looks: a case that is not finished is undecided",
    "max_failures": "fewer looks: a case that is not finished is undecided",
    "coverage": "it notes which lines run, and decides no verdict",
    "cluster": "where it is run; a case's rows travel whole",
    "all_logs": "what of the recordings is brought back",
    "argv": "what was typed",
}

Check = Callable[[Look, Bench, Path], None]


def found(look: Look, bench: Bench) -> Finding:
    """The finding that only this look shows."""
    return next(f for f in bench.store.findings() if f.oracle == look.oracle)


def rows(bench: Bench) -> tuple[object, object]:
    return bench.store.rows_of(bench.case), results(summarise(bench.store), "run")


def resumed(look: Look, bench: Bench, _: Path) -> None:
    before = rows(bench)
    look.run(bench)
    assert rows(bench) == before


def exits(look: Look, bench: Bench, folder: Path) -> None:
    assert shell_code(summarise(bench.store)) is ExitCode.INCONSISTENT
    with bench_in(folder / "plain") as plain:
        look.run(plain, looking=False)
        assert shell_code(summarise(plain.store)) is ExitCode.CONSISTENT


def compared(look: Look, bench: Bench, folder: Path) -> None:
    with bench_in(folder / "plain") as plain:
        look.run(plain, looking=False)
        sides = [_side(look, bench), _side(look, plain, looking=False)]
        (only, *_) = [c for c in changes(*sides).found if c.finding.oracle == look.oracle]
        assert only.change is FindingChange.GONE
        (only, *_) = [c for c in changes(*reversed(sides)).found if c.finding.oracle == look.oracle]
        assert only.change is FindingChange.FIRST
        assert changes(sides[0], sides[0]).found[0].change is FindingChange.STILL
    with bench_in(folder / "sound") as sound:
        replace(look, kernel=lambda: Kernel(journal=look.kernel().journal)).run(sound)
        (only, *_) = [
            c
            for c in changes(_side(look, sound), _side(look, bench)).found
            if c.finding.oracle == look.oracle
        ]
        assert only.change is FindingChange.NEW


def _side(look: Look, bench: Bench, *, looking: bool = True) -> Side:
    plan = Plan(configurations=[bench.profile.name], workloads=["w"])
    asked = (look.asked,) if look.field == "fault_models" else look.asked
    plan = msgspec.structs.replace(plan, **{look.field: asked}) if looking else plan
    side = Side(summarise(bench.store), plan, "run", lambda _: {}, bench.store.timeline)
    violated, verdicts = bench.store.violated(bench.case), bench.store.iter_verdicts(bench.case)
    judged = {str(v.state): violated.get(str(v.state), frozenset()) for v in verdicts}
    return replace(side, judged=lambda _: judged)


def from_failed(look: Look, _bench: Bench, _folder: Path) -> None:
    asked = Plan(configurations=[], workloads=[])
    begun = msgspec.structs.replace(asked, **{look.field: look.asked})
    taken = again.inherited(asked, begun, set())
    assert getattr(taken, look.field) == look.asked


def named_again(look: Look, bench: Bench, _: Path) -> None:
    finding = found(look, bench)
    assert CrashState.parse(str(finding.state)) == finding.state
    assert find_point(str(finding.crash_point), bench.store) == CrashPoint(bench.case, finding.state)
    if finding.state.again:
        assert bench.store.layout.case(bench.case).recovery(finding.state.recovered).is_file()


def offered(look: Look, bench: Bench, _: Path) -> None:
    finding = found(look, bench)
    lines = commands(finding, "run")
    assert str(finding.state) in lines[-1]
    explains = not (finding.state.again or finding.state.fault)
    assert any(line.startswith("why: ") for line in lines) is explains


def told(look: Look, bench: Bench, _: Path) -> None:
    finding = found(look, bench)
    assert str(finding.state) in summary_text(summarise(bench.store), "run")


def as_junit(look: Look, bench: Bench, _: Path) -> None:
    text = junit_xml(summarise(bench.store), "run")
    assert look.oracle in text
    assert 'failures="1"' in text


def packed(look: Look, bench: Bench, folder: Path) -> None:
    file = folder / "run.pack"
    bundle(bench.store.path, file)
    with RunStore.open(unbundle(file, folder / "other")) as other:
        assert other.rows_of(bench.case) == bench.store.rows_of(bench.case)
        for state in (f.state for f in other.findings() if f.state.again):
            assert other.layout.case(bench.case).recovery(state.recovered).is_file()


def travelled(look: Look, bench: Bench, folder: Path) -> None:
    with RunStore.create(folder / "other", "t", INFO, durable=False) as other:
        row = bench.store.rows_of(bench.case)
        other.add_case(replace(row.record.info, log_hash="", files={}))
        other.adopt(row)
        assert other.rows_of(bench.case) == row


def line_of_candidates(look: Look, bench: Bench, _: Path) -> None:
    value = (look.asked,) if look.field == "fault_models" else look.asked
    plan = Plan(configurations=[bench.profile.name], workloads=["w"])
    line = run_again(msgspec.structs.replace(plan, **{look.field: value}), bench.profile.name, "w")
    assert {"again": "--again 1", "disk": "--disk errors", "fault_models": "--states"}[look.field] in line


CARRIED: Mapping[str, Check] = {
    "run --resume": resumed,
    "run, its exit code": exits,
    "run --failed-from": from_failed,
    "run --junit": as_junit,
    "run --cluster": travelled,
    "report": told,
    "compare": compared,
    "repro": named_again,
    "show": offered,
    "pack": packed,
    "shrink": line_of_candidates,
}
ELSEWHERE = {
    "triage": "findings/test_experiment.py::"
    "test_what_only_a_cut_recovery_or_an_faulty_disk_disk_shows_is_shown_by_a_candidate",
}
"""Commands whose cells are another test's."""


@dataclass(frozen=True)
class Own:
    """A command that makes runs of its own, with a plan of its own. `plan`: its type. `has`: the fields of a
    run's plan that it can be asked for; it refuses the options of all others.
    """

    has: tuple[str, ...] = ()
    plan: type | None = None


OWN = {
    "faults": Own(("fault_models",), FaultsPlan),
    "regressions": Own(("fault_models",), RegressionsPlan),  # a bug's file says how the disk is faulty
    "campaign": Own(("fault_models",)),
    "matrix": Own(("fault_models",)),
    "litmus": Own(("fault_models",), LitmusPlan),
    "history": Own(),
    "verdict": Own(),  # which looks follows from its depth
    "patch": Own(),  # which looks follows from what is changed
}
CARRIES_NOTHING = {
    "bench": "it measures this project",
    "bugreport": "it draws up one crash state; the script replays operations, whatever looks found it",
    "coverage": "it shows lines that ran",
    "docs": "it opens the documents",
    "doctor": "it looks at this host",
    "fetch": "it copies a packed run: see pack",
    "findings": "it runs scripts",
    "gc": "it removes runs",
    "import": "it writes a workload",
    "kernel": "it builds kernels",
    "known": "it lists known bugs",
    "list": "it lists runs",
    "log": "it shows a log",
    "man": "it prints a manual",
    "measure": "it measures",
    "new": "it writes a file to begin with",
    "rootfs": "it builds an image",
    "smoke": "a run of its own",
    "trace": "it traces a kernel",
    "try": "a run of its own",
}


def test_every_field_of_a_plan_adds_looks_or_says_why_not() -> None:
    """`again` and `disk` were added to plans, and no command that carries results on knew of them."""
    looking = {look.field for look in LOOKS.values()}
    assert not looking & NO_LOOKS.keys()
    assert looking | NO_LOOKS.keys() == set(Plan.__struct_fields__)


def test_every_command_carries_looks_on_or_says_why_not() -> None:
    """A command that is new stands in one of these lists before it is merged."""
    listed = {name.partition(" ")[0].rstrip(",") for name in (*CARRIED, *ELSEWHERE, *OWN)}
    assert not listed & CARRIES_NOTHING.keys()
    assert listed | CARRIES_NOTHING.keys() == set(main.commands)


@pytest.mark.parametrize("place", ELSEWHERE.values())
def test_a_cell_that_is_another_test_is_there(place: str) -> None:
    file, _, name = place.partition("::")
    tree = ast.parse((HERE / file).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("command", OWN)
def test_a_command_with_runs_of_its_own_hands_an_option_on_or_refuses_it(command: str, look: str) -> None:
    """An option that is taken, and reaches no run, would be looks that nobody had."""
    option = {"again": "--again", "disk": "--disk"}.get(look, "--states")
    takes = {name for p in main.commands[command].params for name in p.opts}
    own, name = OWN[command], LOOKS[look].field
    assert (option in takes) == (name in own.has)
    if own.plan is not None and name in own.has:
        assert name in getattr(own.plan, "__struct_fields__", ())


@pytest.fixture(params=LOOKS)
def look(request: pytest.FixtureRequest) -> Look:
    return LOOKS[request.param]


bench = a_bench


def test_what_a_look_showed_is_carried_on_by_every_command(look: Look, bench: Bench, tmp_path: Path) -> None:
    """Twice, what was gravest lay in such cells: `--resume` forgot what --again had left open, and `compare`
    called it fixed. All cells of one option share one run.
    """
    look.run(bench)
    assert found(look, bench)
    for name, check in CARRIED.items():
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir()
        try:
            check(look, bench, folder)
        except AssertionError as e:
            raise AssertionError(f"{name} with {look.field}: {e}") from e
