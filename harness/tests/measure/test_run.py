"""Rounds, keeping, going on, telling: with a comparison that needs no guest."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from harness.cli.measure import exit_code
from harness.errors import (
    EnvironmentLacks,
    ExitCode,
    GuestLost,
    KernelError,
    RunLocked,
    StoreError,
    UsageError,
)
from harness.host.progress import Quiet
from harness.kernels.find import Kernel
from harness.measure import many_entries
from harness.measure import run as running
from harness.measure.comparison import (
    Comparison,
    Configuration,
    Host,
    Sizes,
    Surroundings,
    ratio,
    scaled,
    spread_table,
)
from harness.measure.registry import COMPARISONS
from harness.measure.run import MeasurePlan, Result, create, load_plan, measure, put_beside, said_size
from harness.measurements.directory import read_measurements
from harness.measurements.results import Results
from harness.measurements.samples import Sample, Samples
from harness.model import Verdict
from harness.report.measurements import write_measurement_reports
from harness.store.layout import LOCK

NAMES = ("ext4/journal", "ext4/ordered", "ext4/writeback")


class Fake(Comparison[list[str]]):
    """Its figure is 10 times the round plus the configuration's number. `breaks`: what is raised where."""

    name = "fake"
    summary = "numbers that no one measured"
    repeats = "nothing"
    rounds = 2

    def __init__(self) -> None:
        self.taken: list[tuple[str, int]] = []
        self.breaks: dict[tuple[str, int], BaseException] = {}
        self.release = "Linux 6.12"

    def configurations(self) -> Sequence[Configuration]:
        return [Configuration.of(name) for name in NAMES]

    def sizes(self, scale: float) -> Sizes:
        return scaled(scale, written_mib=10)

    @contextlib.contextmanager
    def rig(self, host: Host, sizes: Sizes) -> Iterator[list[str]]:
        yield []

    def surroundings(self, rig: list[str]) -> Surroundings:
        return Surroundings(self.release, "QEMU 7.2", "tcg")

    def take(self, rig: list[str], configuration: Configuration, sizes: Sizes, number: int) -> Sample:
        self.taken.append((configuration.name, number))
        if wrong := self.breaks.get((configuration.name, number)):
            raise wrong
        place = NAMES.index(configuration.name) + 1
        return Sample(configuration.name, number, {"x": 10.0 * number + place})

    def evaluate(self, samples: Samples, sizes: Sizes) -> Results:
        found = ratio("x, ordered / journal", samples.values(NAMES[1], "x"), samples.values(NAMES[0], "x"))
        return Results(found, [spread_table("X", samples, {"x": "x"}, self.configurations())])


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    monkeypatch.setattr(running, "COMPARISONS", {"fake": made})
    monkeypatch.setattr(
        running, "find_kernel", lambda name, modules: Kernel(name, Path("bzImage"), modules, "")
    )
    return made


PLAN = MeasurePlan(name="fake", rounds=2, argv=["measure", "fake"])


def test_every_configuration_is_taken_once_before_any_is_taken_again(fake: Fake, tmp_path: Path) -> None:
    result = measure(PLAN, create(PLAN, tmp_path), Quiet())
    assert fake.taken == [(name, number) for number in (0, 1) for name in NAMES]
    assert result.lacking == ()
    told = result.measurement
    assert told.ratios[0].measured.samples == 2
    assert told.ratios[0].measured.high == 2.0  # round 1: 2 / 1
    assert (told.kernel, told.accel) == ("Linux 6.12", "tcg")
    assert told.command == ["powercut", "measure", "fake"]
    assert read_measurements(result.path) == [told]


def test_a_run_directory_holds_the_figures_and_latest_stays(fake: Fake, tmp_path: Path) -> None:
    path = create(PLAN, tmp_path)
    measure(PLAN, path, Quiet())
    assert path.parent == tmp_path.resolve() / "runs"
    assert path.name.endswith("-measure-fake")
    names = {p.name for p in path.iterdir()}
    assert names == {LOCK, "plan.json", "samples.jsonl", "surroundings.json", "measurements.json"}
    assert not (tmp_path / "latest").exists()  # it names what `powercut repro` looks at
    assert create(PLAN, tmp_path) != path


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (KernelError("this kernel has no module ext4"), "no module ext4"),
        (GuestLost("guest lost: no answer", "line\nKernel panic - not syncing"), "Kernel panic"),
    ],
)
def test_what_breaks_is_told_and_the_rest_is_measured(
    fake: Fake, tmp_path: Path, wrong: BaseException, told: str
) -> None:
    fake.breaks[(NAMES[1], 0)] = wrong
    result = measure(PLAN, create(PLAN, tmp_path), Quiet())
    write_measurement_reports(result.path)
    assert len(fake.taken) == 6
    assert len(result.lacking) == 1
    assert "ext4/ordered, round 1" in result.lacking[0]
    assert told in result.lacking[0]
    assert result.measurement.missing == list(result.lacking)
    assert result.measurement.ratios[0].measured.samples == 1
    for name in ("report.html", "summary.txt"):
        assert "not measured" in (result.path / name).read_text().lower()


def test_a_defect_of_ours_is_not_a_missing_figure(fake: Fake, tmp_path: Path) -> None:
    fake.breaks[(NAMES[0], 0)] = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        measure(PLAN, create(PLAN, tmp_path), Quiet())


def test_what_the_host_lacks_ends_it_and_nothing_taken_is_lost(fake: Fake, tmp_path: Path) -> None:
    path = create(PLAN, tmp_path)
    fake.breaks[(NAMES[1], 0)] = EnvironmentLacks("mmdebstrap is not installed")
    with pytest.raises(EnvironmentLacks):
        measure(PLAN, path, Quiet())
    fake.breaks.clear()
    fake.taken.clear()
    assert measure(PLAN, path, Quiet()).lacking == ()
    assert len(fake.taken) == 5


def test_what_was_interrupted_is_gone_on_with(fake: Fake, tmp_path: Path) -> None:
    path = create(PLAN, tmp_path)
    fake.breaks[(NAMES[1], 0)] = KeyboardInterrupt()
    first = measure(load_plan(path), path, Quiet())
    assert first.interrupted
    assert first.lacking == ("5 of 6 samples, from ext4/ordered, round 1 on: not reached",)
    fake.breaks.clear()
    fake.taken.clear()
    second = measure(load_plan(path), path, Quiet())
    assert len(fake.taken) == 5  # what was there was not taken again
    assert not second.interrupted
    assert second.lacking == ()
    assert second.measurement.started == first.measurement.started == load_plan(path).started
    assert second.measurement.seconds >= first.measurement.seconds


def test_two_processes_do_not_take_the_same_rounds(fake: Fake, tmp_path: Path) -> None:
    """A second --resume took what the first was about to take: each round counted twice."""
    path = create(PLAN, tmp_path)
    refused = []

    def take(rig: list[str], configuration: Configuration, sizes: Sizes, number: int) -> Sample:
        with pytest.raises(RunLocked):
            measure(PLAN, path, Quiet())
        refused.append(number)
        return Sample(configuration.name, number, {"x": 1.0})

    fake.take = take  # type: ignore[method-assign]  # this one alone
    measure(PLAN, path, Quiet())
    assert len(refused) == 2 * len(NAMES)


def test_only_some_configurations(fake: Fake, tmp_path: Path) -> None:
    plan = MeasurePlan(name="fake", rounds=1, only=[NAMES[2]])
    measure(plan, create(plan, tmp_path), Quiet())
    assert fake.taken == [(NAMES[2], 0)]
    with pytest.raises(UsageError, match="no configuration 'ext5'"):
        create(MeasurePlan(name="fake", rounds=1, only=["ext5"]), tmp_path)


def test_a_small_round_goes_before_and_is_not_counted(fake: Fake, tmp_path: Path) -> None:
    fake.warms_up = True
    result = measure(PLAN, create(PLAN, tmp_path), Quiet())
    assert fake.taken[:3] == [(name, 0) for name in NAMES]
    assert len(fake.taken) == 9
    assert result.measurement.ratios[0].measured.samples == 2


def test_a_folder_without_a_measurement_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no measurement"):
        load_plan(tmp_path)


@pytest.mark.parametrize(
    ("verdict", "lacking", "code"),
    [
        (Verdict.PASS, (), ExitCode.CONSISTENT),
        (Verdict.PASS, ("ext4, round 1: lost",), ExitCode.UNDECIDED),
        (Verdict.UNKNOWN, (), ExitCode.UNDECIDED),
        (Verdict.FAIL, ("ext4, round 1: lost",), ExitCode.INCONSISTENT),
    ],
)
def test_exit_codes(
    fake: Fake, tmp_path: Path, verdict: Verdict, lacking: tuple[str, ...], code: ExitCode
) -> None:
    told = measure(PLAN, create(PLAN, tmp_path), Quiet()).measurement
    assert exit_code(Result(tmp_path, told, lacking, verdict)) is code


def test_sizes_are_said_with_their_unit() -> None:
    assert said_size("written_mib", 10) == ("written", "10 MiB")
    assert said_size("per_character_mib", 1) == ("per character", "1 MiB")
    assert said_size("entries", 500_000) == ("entries", "500,000")


class TestRegistry:
    def test_the_seven_are_there(self) -> None:
        assert list(COMPARISONS) == [
            "double-write",
            "power-cut",
            "bonnie",
            "small-files",
            "large-file",
            "read-while-writing",
            "many-entries",
        ]

    @pytest.mark.parametrize("name", COMPARISONS)
    def test_each_has_configurations_of_its_own_and_says_what_it_repeats(self, name: str) -> None:
        c = COMPARISONS[name]
        names = [configuration.name for configuration in c.configurations()]
        assert len(names) == len(set(names)) > 2
        assert len(c.repeats) > 40
        assert c.rounds > 1

    @pytest.mark.parametrize("name", COMPARISONS)
    def test_sizes_grow_with_the_scale_and_never_vanish(self, name: str) -> None:
        small, usual, large = (COMPARISONS[name].sizes(scale) for scale in (0.001, 1, 10))
        assert all(0 < small[n] <= usual[n] <= large[n] for n in usual)
        assert any(large[n] > usual[n] for n in usual)

    @pytest.mark.parametrize("name", COMPARISONS)
    def test_without_a_figure_there_is_no_ratio(self, name: str) -> None:
        c = COMPARISONS[name]
        told = c.evaluate(Samples([]), c.sizes(1))
        assert list(told.ratios) == []
        assert told.tables

    def test_the_whole_directory_is_half_a_million(self) -> None:
        scale = many_entries.FULL_ENTRIES / many_entries.ENTRIES
        assert many_entries.ManyEntries().sizes(scale) == {"entries": 500_000}


def test_another_kernels_ratios_stand_beside_in_one_report(fake: Fake, tmp_path: Path) -> None:
    first = measure(PLAN, create(PLAN, tmp_path), Quiet())
    beside = msgspec.structs.replace(PLAN, kernel="debian-6.17", beside=[str(first.path)])
    fake.release = "Linux 6.17"
    second = measure(beside, create(beside, tmp_path), Quiet())
    found = read_measurements(second.path)
    assert [m.kernel for m in found] == ["Linux 6.17", "Linux 6.12"]
    table = found[0].tables[0]
    assert table.columns == ["ratio", "Linux 6.17", "Linux 6.12", "published"]
    assert table.rows == [[r.name, r.measured, r.measured, "-"] for r in found[0].ratios]
    write_measurement_reports(second.path)
    text = (second.path / "summary.txt").read_text()
    assert text.index("Linux 6.17 · fake") < text.index("Linux 6.12 · fake")


def test_finished_measurements_can_be_put_beside_each_other(fake: Fake, tmp_path: Path) -> None:
    """Taken at the same time, so that other load on the host affects both."""
    first, second = (measure(PLAN, create(PLAN, tmp_path), Quiet()) for _ in range(2))
    fake.taken.clear()
    measure(put_beside(load_plan(second.path), second.path, [first.path]), second.path, Quiet())
    assert len(read_measurements(second.path)) == 2
    assert load_plan(second.path).beside == [str(first.path)]
    assert fake.taken == []


def test_what_is_not_the_same_measurement_cannot_stand_beside(fake: Fake, tmp_path: Path) -> None:
    """Said before anything is measured, and no run directory is left behind."""
    plan = msgspec.structs.replace(PLAN, beside=[str(tmp_path)])
    with pytest.raises(UsageError, match="holds no fake"):
        create(plan, tmp_path)
    assert not (tmp_path / "runs").exists()
