"""Numbers on the command line, and in the plans of run directories from elsewhere: each has both limits."""

from __future__ import annotations

import math
import typing
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

from harness.campaigns.journal import CampaignPlan
from harness.cli import main
from harness.errors import StoreError, UsageError
from harness.faults.results import FaultsPlan
from harness.measure.run import MeasurePlan
from harness.patches.results import PatchPlan
from harness.plan import Budget, Plan
from harness.regressions.results import RegressionsPlan
from harness.releases.results import SweepPlan
from harness.store import RunStore
from harness.tests.cli.runner import powercut, refused
from harness.tests.report.demo import run_info
from harness.tracing.rounds import TracePlan
from harness.workloads.match import MAX_DEPTH, matcher

NO_NUMBERS = ["nan", "inf", "-inf", "1e400", "-1", "1000000000000"]
NUMBERS = (click.types.IntParamType, click.types.FloatParamType)
PLANS = (
    Plan,
    Budget,
    CampaignPlan,
    FaultsPlan,
    MeasurePlan,
    PatchPlan,
    RegressionsPlan,
    SweepPlan,
    TracePlan,
)
COMPUTED = {"schema"}  # our own version


def numbers(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Parameter]]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from numbers(inner, (*path, name))
    for p in command.params:
        if isinstance(p.type, NUMBERS):
            yield " ".join([*path, p.opts[0]]), p


EVERY = dict(numbers(main))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("value", [*NO_NUMBERS, "0"])
def test_no_option_takes_what_is_no_number_or_beyond_all_use(name: str, value: str) -> None:
    """`--minutes nan` ran without end, `--minutes inf` and `--log-size 999999999` were taken, and
    `--random 0` ran all workloads.
    """
    kind = EVERY[name].type
    zero_is_meant = value == "0" and getattr(kind, "min", None) == 0 and not getattr(kind, "min_open", False)
    if zero_is_meant:
        return
    with pytest.raises(click.BadParameter) as refused:
        kind.convert(value, EVERY[name], click.Context(main))
    assert value in refused.value.message or "range" in refused.value.message


@pytest.mark.parametrize("option", ["--budget", "--shard", "--sector-size"])
@pytest.mark.parametrize("value", [*NO_NUMBERS, "0", "5,5", "5s,5m", "0s", "1/0", "3/2"])
def test_no_option_made_of_numbers_takes_them_either(option: str, value: str) -> None:
    """`--budget 5,5` was the second one."""
    refused("run", "-c", "ext4/ordered", "-w", "append-fsync", option, value, "-n")


@pytest.mark.parametrize("value", ["nand", "-1d", "1000000000000d", "infd", "0.5d"])
def test_no_age_is_beyond_all_use(value: str) -> None:
    assert powercut("gc", "--runs", value).exit_code == 2


def numeric_fields() -> Iterator[tuple[type, str, object]]:
    for plan in PLANS:
        for name, hint in typing.get_type_hints(plan, include_extras=True).items():
            if name in COMPUTED:
                continue
            for part in typing.get_args(hint) if type(None) in typing.get_args(hint) else (hint,):
                bare = typing.get_origin(part) is not typing.Annotated
                if part in (int, float) or (not bare and typing.get_args(part)[0] in (int, float)):
                    yield plan, name, part


@pytest.mark.parametrize(("plan", "name", "kind"), list(numeric_fields()))
def test_no_number_of_a_plan_from_elsewhere_is_without_limits(plan: type, name: str, kind: object) -> None:
    """A plan with `jobs = -3` ended in "a defect of powercut"."""
    assert typing.get_origin(kind) is typing.Annotated, f"{plan.__name__}.{name}: see harness.model.bounds"
    for value in (math.nan, math.inf, -1.0, 1e12):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(value, typing.cast(type, kind))


def a_run(root: Path, **changes: object) -> Path:
    plan = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"])
    with RunStore.create(root, "theirs", run_info()) as store:
        store.put_plan(msgspec.structs.replace(plan, **changes))
        return store.path


@pytest.mark.parametrize(
    "changes", [{"jobs": -3}, {"jobs": 10**12}, {"again": -1}, {"log_bytes": 0}, {"minutes": -1.0}]
)
def test_a_plan_beyond_the_limits_is_the_fault_of_the_run_directory(
    changes: dict[str, object], tmp_path: Path
) -> None:
    path = a_run(tmp_path, **changes)
    with RunStore.open(path) as store, pytest.raises(StoreError, match=next(iter(changes))):
        store.plan()
    said = powercut("run", "--resume", path)
    assert said.exit_code == 3
    assert "defect of powercut" not in said.output


@pytest.mark.parametrize("expression", ["(" * 5_000, "not " * 5_000 + "a", "(" * 5_000 + "a" + ")" * 5_000])
def test_an_expression_without_an_end_is_malformed(expression: str, tmp_path: Path) -> None:
    """5,000 parentheses in somebody else's plan, or behind -k, ended in "a defect of powercut"."""
    with pytest.raises(UsageError, match=f"deeper than {MAX_DEPTH}") as refused:
        matcher(expression)
    assert len(refused.value.what) < 400
    said = powercut("run", "--resume", a_run(tmp_path, match=expression))
    assert said.exit_code in (2, 3)
    assert "defect of powercut" not in said.output


def test_a_deep_expression_and_a_long_one_are_taken() -> None:
    deep = "(" * 90 + "a" + ")" * 90
    assert matcher(deep)("a")
    assert matcher(" or ".join(["b"] * 10_000 + ["a"]))("a")
