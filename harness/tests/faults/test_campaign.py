"""A whole campaign with kernels that are Python programs (`harness.tests.guests.toy`): nothing is compiled.

Real kernels with planted faults are what `powercut faults` itself builds and runs: minutes each, so not here.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from harness.cli.faults import exit_code
from harness.errors import ExitCode, KernelError, UsageError
from harness.expectations import Expectation
from harness.faults import campaign as campaign_module
from harness.faults.campaign import FaultSeries, create, load_plan
from harness.faults.catalogue import PlantedFault
from harness.faults.page import headline, page_of
from harness.faults.results import Campaign, Detection, FaultsPlan, Row, Status, Trial
from harness.guests import disk as disk_module
from harness.guests import machine
from harness.guests.session import find_agent
from harness.host.progress import Progress as Told
from harness.host.resources import resource
from harness.kernels.build import Built
from harness.kernels.edits import Edit
from harness.model import CaseId, Workload
from harness.plan import Plan
from harness.run import execute
from harness.series.journal import End
from harness.series.work import OnDone, carry_out
from harness.store import RunStore
from harness.store.directory import read_info, read_plan
from harness.summary import Summary, summarise
from harness.tests.guests.toy import TOML
from harness.tests.needs import need_program, needed
from harness.tests.said import Said
from harness.workloads.load import select_workloads

WORKLOAD = """
summary = "Two directories, one of them durable"
operations = ["mkdir a", "sync", "mkdir b"]
"""


class Progress(Said):
    """Interrupts the campaign at a message that begins with `stop_at`."""

    def __init__(self, stop_at: str = "never") -> None:
        super().__init__()
        self._stop_at = stop_at

    def say(self, text: str) -> None:
        super().say(text)
        if text.startswith(self._stop_at):
            raise KeyboardInterrupt


class ToyKernels:
    """A variant is a file whose name is the edit's replacement; `broken` does not build."""

    built = Built("toy", "linux-source-1", "1.0", "1.0-toy", "key")

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = folder, monkeypatch
        self.variants: list[str] = []

    def plant(self, *planted: PlantedFault) -> None:
        """These faults, and no others, are there."""
        self._monkeypatch.setattr(campaign_module, "faults", lambda: {f.name: f for f in planted})

    @property
    def image(self) -> Path:
        return self._image("kernel")

    def edited(self, edits: Sequence[Edit]) -> dict[str, str]:
        if any(e.pattern == "nowhere" for e in edits):
            raise UsageError("fs/x.c: f has 0 places that read 'nowhere', not one")
        return {}

    def key(self, edits: Sequence[Edit]) -> str:
        return " ".join(e.replacement for e in edits)

    def variant(self, edits: Sequence[Edit]) -> Path:
        name = edits[0].replacement
        self.variants.append(name)
        if name == "broken":
            raise KernelError("linux failed with 2:\nno such name")
        return self._image(name)

    def _image(self, name: str) -> Path:
        path = self._folder / name
        path.write_bytes(b"\x7fELF and nothing else")
        return path


def fault(name: str, *, pattern: str = "1", gap: str = "", equivalent: str = "") -> PlantedFault:
    """A fault whose kernel has the defect `name` of toy.py."""
    return PlantedFault(
        name=name,
        summary=name,
        modes=("ext4/ordered",),
        oracles=("durability",),
        edits=(Edit("fs/x.c", "f", pattern, name),),
        gap=gap,
        equivalent=equivalent,
    )


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToyKernels:
    return ToyKernels(tmp_path, monkeypatch)


@pytest.fixture(autouse=True)
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with needed():
        disk_module.find_binary()
        find_agent()
    need_program("mkfs.ext4")
    folder = tmp_path / "machines"
    shutil.copytree(resource("vms", "machines"), folder)
    (folder / "toy.toml").write_text(TOML)
    monkeypatch.setattr(machine, "_folder", lambda: folder)
    (tmp_path / "dirs.toml").write_text(WORKLOAD)


@pytest.mark.parametrize(
    ("named", "asked"),
    [([], ("a", "a.s1", "b", "b.s1", "a.s2", "b.s2")), (["quick"], ("quick", "quick.s1", "quick.s2"))],
)
def test_each_workload_of_a_fault_is_recorded_under_more_schedules(
    kernels: ToyKernels, monkeypatch: pytest.MonkeyPatch, named: list[str], asked: tuple[str, ...]
) -> None:
    """Whether the fault's file names its workloads, some with a schedule, or the command does."""
    own = msgspec.structs.replace(fault("own"), workloads=("a", "a.s1", "b"))
    kernels.plant(own)
    monkeypatch.setattr(campaign_module, "select_workloads", lambda names: names)
    plan = FaultsPlan(machine="toy", workloads=named, schedules=2)
    (chosen,) = campaign_module.chosen_faults(plan)
    assert sorted(chosen.workloads) == sorted(asked)


def test_a_fault_says_what_is_done_to_recoveries(kernels: ToyKernels, tmp_path: Path) -> None:
    """A fault that only a cut recovery shows was run without a cut, and would have been missed."""
    whole = fault("whole")
    cut = msgspec.structs.replace(fault("cut"), again=1)
    faulty_disk = msgspec.structs.replace(fault("faulty_disk"), disk=("errors",))
    kernels.plant(whole, cut, faulty_disk)
    path = create(FaultsPlan(machine="toy", workloads=["quick"]), tmp_path)
    series = FaultSeries(load_plan(path), path, kernels)
    ways = {}
    for item in (*series._baseline, *series._trials.values()):
        assert callable(item.plan)
        plan = item.plan()
        ways[item.name] = (plan.again, plan.disk)
    assert ways["whole"] == (0, ())
    assert ways["cut"] == (1, ())
    assert ways["faulty_disk"] == (0, ("errors",))
    assert {way for name, way in ways.items() if name.startswith("baseline")} == set(ways.values())
    assert len({item.key for item in (*series._baseline, *series._trials.values())}) == 6


def test_a_fault_is_held_against_the_kernel_on_the_same_disk_alone(
    kernels: ToyKernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cases of a sound disk have the same names, and stood for those that a faulty one left undecided."""
    whole, faulty = fault("whole"), msgspec.structs.replace(fault("faulty"), disk=("errors",))
    kernels.plant(whole, faulty)
    path = create(FaultsPlan(machine="toy", workloads=["quick"]), tmp_path)
    series = FaultSeries(load_plan(path), path, kernels)
    case = "ext4-ordered/append-fsync"
    seen = Detection(
        id="1", case=case, oracle="durability", states=3, of=9, summary="lost", example=f"{case}@3"
    )  # fmt: skip
    lost = msgspec.structs.replace(Trial(item="x", cases=(case,), states=9), detections=(seen,))
    sound, undecided = Trial(item="x", cases=(case,), states=9), Trial(item="x", undecided={case: "lost"})
    of_disk = {(): sound, ("errors",): undecided}
    asked = {name: of_disk[of.disk] for name, of in series._asked.items()}
    monkeypatch.setattr(series, "whole", lambda item: asked.get(item.name, lost))
    assert [(row.fault.name, row.status) for row in series.campaign.rows] == [
        ("whole", Status.FOUND),
        ("faulty", Status.UNDECIDED),
    ]


def test_the_run_of_the_unmodified_kernel_that_failed_is_told_of_its_own_cases(
    kernels: ToyKernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a case in the second run that failed, the page gave the first one's reason."""
    other = msgspec.structs.replace(fault("other"), modes=("xfs/default",), disk=("errors",))
    kernels.plant(fault("one"), other)
    path = create(FaultsPlan(machine="toy", workloads=["quick"]), tmp_path)
    series = FaultSeries(load_plan(path), path, kernels)
    first, second = series._asked
    assert "ext4-ordered/append-fsync" in series._cases[first]
    failed = {name: Trial(item=name, failed=f"{name} died") for name in (first, second)}
    monkeypatch.setattr(series, "whole", lambda item: failed.get(item.name))
    told = series.campaign.baseline.failures
    assert told["ext4-ordered/append-fsync"] == f"{first} died"
    assert told["xfs-default/append-fsync"] == f"{second} died"


def begin(tmp_path: Path) -> Path:
    plan = FaultsPlan(machine="toy", workloads=[str(tmp_path / "dirs.toml")], argv=["faults"])
    return create(plan, tmp_path / "reports")


def gone_on(path: Path, kernels: ToyKernels, progress: Progress | None = None) -> Campaign:
    """One process's part."""
    series = FaultSeries(load_plan(path), path, kernels)
    carry_out(series, progress or Progress())
    return series.campaign


def carried_out(tmp_path: Path, kernels: ToyKernels) -> tuple[Campaign, Path]:
    path = begin(tmp_path)
    return gone_on(path, kernels), path


def test_a_fault_is_found_and_one_that_changes_nothing_is_missed(tmp_path: Path, kernels: ToyKernels) -> None:
    kernels.plant(fault("forgetful"), fault("harmless"))
    campaign, path = carried_out(tmp_path, kernels)
    assert [r.status for r in campaign.rows] == [Status.FOUND, Status.MISSED]
    (seen,) = campaign.rows[0].detections
    assert (seen.workload, seen.oracle) == ("dirs", "durability")
    assert (path / campaign.rows[0].runs[0] / "run.json").is_file()
    assert len(campaign.baseline.cases) == 1
    assert exit_code(campaign) is ExitCode.INCONSISTENT


@pytest.mark.parametrize(("first", "found"), [(False, 2), (True, 1)])
def test_a_run_ends_with_the_first_case_that_finds_the_fault(
    tmp_path: Path, kernels: ToyKernels, first: bool, found: int
) -> None:
    """One that finds nothing is run to its end, or it was not missed. What is decided is not run again."""
    kernels.plant(fault("forgetful"), fault("harmless"))
    (tmp_path / "more.toml").write_text(WORKLOAD)
    workloads = [str(tmp_path / f"{name}.toml") for name in ("dirs", "more")]
    plan = FaultsPlan(machine="toy", workloads=workloads, first=first, argv=["faults"])
    path = create(plan, tmp_path / "reports")
    campaign = gone_on(path, kernels)
    assert [r.status for r in campaign.rows] == [Status.FOUND, Status.MISSED]
    assert len(campaign.rows[0].workloads) == found
    done = FaultSeries(load_plan(path), path, kernels).known.done
    assert [len(done[name].cases) for name in ("forgetful", "harmless")] == [found, 2]
    # Which of the two cases comes first is the guests' affair.
    assert sorted(campaign.baseline.cases) == sorted(f"ext4-ordered/{w}" for w in campaign.rows[0].workloads)
    assert ("ended with the first case" in page_of(campaign).text()) is first
    assert gone_on(path, kernels).rows == campaign.rows
    assert kernels.variants == ["forgetful", "harmless"]


def test_what_the_unmodified_kernel_shows_does_not_end_a_run(
    tmp_path: Path, kernels: ToyKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked after the fault's kernel has shown something, also where the campaign was stopped then: the
    fault's run goes on, and the answer is that of a campaign which asked it everything first.
    """
    kernels.plant(fault("forgetful"), fault("harmless"))
    monkeypatch.setattr(ToyKernels, "image", property(lambda kernels: kernels._image("forgetful")))
    plan = workloads_in_turn(tmp_path, "dirs", "more")
    whole = gone_on(create(msgspec.structs.replace(plan, first=False), tmp_path / "whole"), kernels)
    assert [r.status for r in whole.rows] == [Status.MISSED] * 2
    for number, stop_at in enumerate(("never", "[forgetful]", "[baseline-ext4-ordered/dirs]")):
        path = create(plan, tmp_path / f"stopped-{number}")
        if stop_at != "never":
            first = gone_on(path, kernels, Progress(stop_at))
            assert not {row.status for row in first.rows} & {Status.FOUND, Status.MISSED}, stop_at
        campaign = gone_on(path, kernels)
        assert [r.status for r in campaign.rows] == [r.status for r in whole.rows], stop_at
        assert campaign.baseline.cases == whole.baseline.cases, stop_at
        done = FaultSeries(load_plan(path), path, kernels).known.done["forgetful"]
        assert (len(done.cases), len(done.detections)) == (2, 2), stop_at


def workloads_in_turn(tmp_path: Path, *names: str) -> FaultsPlan:
    """A plan that ends a fault's run with the first case that finds it. The workloads do the same."""
    files = [tmp_path / f"{name}.toml" for name in names]
    for file in files:
        file.write_text(WORKLOAD)
    return FaultsPlan(machine="toy", workloads=list(map(str, files)), first=True, argv=["faults"])


def test_a_run_that_cannot_go_on_is_undecided_and_says_why(
    tmp_path: Path, kernels: ToyKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a fault whose kernel could not be had a second time, the page said `not tried`, and nothing else."""
    kernels.plant(fault("forgetful"))
    monkeypatch.setattr(ToyKernels, "image", property(lambda kernels: kernels._image("forgetful")))
    variant = ToyKernels.variant

    def once(kernels: ToyKernels, edits: Sequence[Edit]) -> Path:
        if kernels.variants:
            raise KernelError("no room left to build")
        return variant(kernels, edits)

    path = create(workloads_in_turn(tmp_path, "dirs", "more"), tmp_path / "reports")
    with monkeypatch.context() as patched:
        patched.setattr(ToyKernels, "variant", once)
        (row,) = gone_on(path, kernels).rows
    assert (row.status, row.why) == (Status.UNDECIDED, "no room left to build")
    (row,) = gone_on(path, kernels).rows
    assert row.status is Status.MISSED


def test_what_the_unmodified_kernel_shows_stays_where_the_run_that_goes_on_is_stopped(
    tmp_path: Path, kernels: ToyKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page told nothing of it."""
    kernels.plant(fault("forgetful"))
    monkeypatch.setattr(ToyKernels, "image", property(lambda kernels: kernels._image("forgetful")))
    path = create(workloads_in_turn(tmp_path, "dirs", "more", "third"), tmp_path / "reports")
    gone_on(path, kernels, Progress("[baseline-ext4-ordered/dirs]"))

    def stopped(plan: Plan, store: RunStore, progress: Told, ended: OnDone) -> Summary:
        def by_hand(case: CaseId) -> None:
            raise KeyboardInterrupt

        return execute(plan, store, progress, by_hand)

    series = FaultSeries(load_plan(path), path, kernels)
    assert carry_out(series, Progress(), run=stopped) is End.INTERRUPTED
    campaign = series.campaign
    assert [row.status for row in campaign.rows] == [Status.NOT_TRIED]
    assert campaign.baseline.cases == ("ext4-ordered/dirs",)
    assert len(campaign.baseline.detections) == 1


def test_what_unmodified_kernels_are_known_to_show_does_not_stop_a_run(
    tmp_path: Path, kernels: ToyKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where most cases show it, each meant a stop, a run of the unmodified kernel and a resumption."""
    known = Expectation("*", "*", "*", "a toy forgets")
    monkeypatch.setattr(campaign_module, "known_losses", lambda: (known,))
    monkeypatch.setattr(ToyKernels, "image", property(lambda kernels: kernels._image("forgetful")))
    kernels.plant(fault("forgetful"))
    path = create(workloads_in_turn(tmp_path, "dirs", "more"), tmp_path / "reports")
    campaign = gone_on(path, kernels)
    assert [row.status for row in campaign.rows] == [Status.MISSED]
    assert len(campaign.baseline.cases) == 2, "each is asked after the run"
    assert kernels.variants == ["forgetful"]
    again = Progress()
    gone_on(path, kernels, again)
    assert not again.lines, "nothing was left to do"


def test_the_builds_of_a_run_that_goes_on_add_up(kernels: ToyKernels, tmp_path: Path) -> None:
    """The second found the kernel built: its time stood for both, and the fault's own work seemed longer."""
    kernels.plant(fault("forgetful"))
    path = begin(tmp_path)
    gone_on(path, kernels)
    series = FaultSeries(load_plan(path), path, kernels)
    item, kept = series._trials["forgetful"], series.known.done["forgetful"]
    series.known.add(msgspec.structs.replace(kept, build_seconds=90))
    series._build_s["forgetful"] = 0.5
    with RunStore.open(path / kept.run) as store:
        assert series.keep(item, store, summarise(store)).build_seconds == 90.5


def test_a_kernel_that_dies_or_does_not_build_is_undecided(tmp_path: Path, kernels: ToyKernels) -> None:
    """It said nothing about the fault; a miss would be as wrong as a find."""
    kernels.plant(fault("mortal"), fault("broken"))
    campaign, _ = carried_out(tmp_path, kernels)
    assert [r.status for r in campaign.rows] == [Status.UNDECIDED, Status.UNDECIDED]
    assert "no such name" in campaign.rows[1].why
    assert exit_code(campaign) is ExitCode.UNDECIDED


def test_what_was_undecided_is_tried_again(tmp_path: Path, kernels: ToyKernels) -> None:
    """A guest that a busy host lost stayed undecided for good. And behind the last one that had to be tried
    again it said how long all the decided ones would take.
    """
    kernels.plant(fault("mortal"), fault("harmless"))
    path = begin(tmp_path)
    first, again = Progress(), Progress()
    gone_on(path, kernels, first)
    assert first.lines[0].startswith("[1/3] baseline-1")
    assert re.search(r"about \d+ minutes? left$", first.lines[0])
    assert first.lines[-1].startswith("[3/3] harmless: missed")
    gone_on(path, kernels, again)
    assert kernels.variants == ["mortal", "harmless", "mortal"]
    (told,) = again.lines
    assert told.startswith("[2/3] mortal: undecided")
    assert "left" not in told


def test_a_stopped_campaign_goes_on_where_it_was(tmp_path: Path, kernels: ToyKernels) -> None:
    kernels.plant(fault("forgetful"), fault("harmless"))
    path = begin(tmp_path)
    first = gone_on(path, kernels, Progress("[2/3]"))
    assert first.interrupted
    assert [r.status for r in first.rows] == [Status.FOUND, Status.NOT_TRIED]
    assert exit_code(first) is ExitCode.INTERRUPTED
    second = gone_on(path, kernels)
    assert [r.status for r in second.rows] == [Status.FOUND, Status.MISSED]
    assert kernels.variants == ["forgetful", "harmless"], "no fault is tried twice"
    assert second.rows[0] == first.rows[0]


def test_a_fault_whose_edit_has_changed_is_tried_again(tmp_path: Path, kernels: ToyKernels) -> None:
    kernels.plant(fault("forgetful"))
    path = begin(tmp_path)
    gone_on(path, kernels)
    changed = msgspec.structs.replace(fault("harmless"), name="forgetful")
    kernels.plant(changed)
    again = gone_on(path, kernels)
    assert [r.status for r in again.rows] == [Status.MISSED]


def test_a_workload_that_has_changed_is_run_again(tmp_path: Path, kernels: ToyKernels) -> None:
    """Its name alone was compared, so a campaign went on with what an older version of it had shown."""
    kernels.plant(fault("forgetful"))
    path = begin(tmp_path)
    gone_on(path, kernels)
    (tmp_path / "dirs.toml").write_text(WORKLOAD.replace('"sync", ', ""))
    again = gone_on(path, kernels)
    assert [r.status for r in again.rows] == [Status.MISSED]


def test_an_edit_without_a_place_is_told_before_anything_is_run(tmp_path: Path, kernels: ToyKernels) -> None:
    kernels.plant(fault("forgetful"), fault("harmless", pattern="nowhere"))
    with pytest.raises(UsageError, match=r"fault harmless: .* 0 places"):
        carried_out(tmp_path, kernels)
    assert kernels.variants == []


@pytest.mark.parametrize(
    ("states", "code"), [(("exhaustive",), ExitCode.INCONSISTENT), (("prefix",), ExitCode.CONSISTENT)]
)
def test_a_gap_that_is_found_goes_against_its_file_under_the_defaults_alone(
    states: tuple[str, ...], code: ExitCode
) -> None:
    """It was the other way round."""
    row = Row(fault("forgetful", gap="nobody looks"), Status.FOUND, note="its file says that it is missed")
    plan = FaultsPlan(machine="toy", fault_models=states)
    assert exit_code(Campaign(plan, "", Trial(item="baseline"), (row,))) is code


def test_the_page_has_the_colour_of_the_exit_code() -> None:
    """A missed fault was told as undecided, on a page whose command had exited 1."""
    plan = FaultsPlan(machine="toy", fault_models=("exhaustive",))
    colours = {"pass": ExitCode.CONSISTENT, "fail": ExitCode.INCONSISTENT, "unknown": ExitCode.UNDECIDED}
    for status, kind in (
        (Status.FOUND, "pass"),
        (Status.EQUIVALENT, "pass"),
        (Status.MISSED, "fail"),
        (Status.UNDECIDED, "unknown"),
    ):
        campaign = Campaign(plan, "", Trial(item="baseline"), (Row(fault("forgetful"), status),))
        assert (page_of(campaign).kind, exit_code(campaign)) == (kind, colours[kind])


def test_a_directory_without_a_campaign_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no campaign"):
        load_plan(tmp_path)


def test_the_reports_show_what_was_found_and_how_to_see_it_again(tmp_path: Path, kernels: ToyKernels) -> None:
    kernels.plant(
        fault("forgetful"),
        fault("harmless", gap="nobody looks at <this>"),
        msgspec.structs.replace(fault("harmless", equivalent="nothing reads it"), name="same"),
    )
    campaign, path = carried_out(tmp_path, kernels)
    assert headline(campaign) == (
        "Found 1 of 2 planted faults (50 %): 1 missed, 1 equivalent to the unmodified kernel."
    )
    assert exit_code(campaign) is ExitCode.CONSISTENT, "the miss is explained"
    text = page_of(campaign).text()
    assert "ext4-ordered/dirs" in text
    assert "harmless: nobody looks at <this>" in text
    page = page_of(campaign).html()
    assert "nobody looks at &lt;this&gt;" in page
    assert "powercut repro ext4-ordered/dirs@" in page
    # as seen from the working folder, wherever that is
    assert re.search(rf"--from \S*/{path.name}/trials/forgetful/runs/", page)
    run = path / campaign.rows[0].runs[0]
    kernel = read_plan(run, read_info(run).plan).kernel
    assert f"--kernel {kernel}" in page, "which repro asks for, since only the run directory names it"
    assert "the write log&#39;s own order (prefix), not all legal crash states" in page
    told = msgspec.json.decode((path / "faults.json").read_bytes())
    assert (told["score"]["found"], told["rows"][0]["status"]) == (1, "found")
    assert (path / "report.html").read_text() == page


def test_a_run_whose_progress_is_not_shown_is_told_of(
    kernels: ToyKernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A campaign was one line, and then silent for minutes."""
    monkeypatch.setattr("harness.series.work.QUIET_S", 0.005)
    kernels.plant(fault("forgetful"))
    said = Said()
    series = FaultSeries(load_plan(path := begin(tmp_path)), path, kernels)
    carry_out(series, said)
    assert any(re.search(r"^ +\d+ s  \S+: .*\d+ states", line) for line in said.lines), said.lines


def test_workloads_that_several_faults_share_are_read_once(
    tmp_path: Path, kernels: ToyKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were read for each fault, twice."""
    read: list[Sequence[str]] = []

    def selected(wanted: Sequence[str], shard: str = "") -> list[Workload]:
        read.append(wanted)
        return select_workloads(wanted, shard)

    kernels.plant(*(fault(name) for name in ("forgetful", "harmless", "other")))
    path = begin(tmp_path)
    monkeypatch.setattr(campaign_module, "select_workloads", selected)
    FaultSeries(load_plan(path), path, kernels)
    assert len(read) == 2, "to see that they are there, and for the keys of all runs"
