"""The bench in one go, with a few states: every figure is there, or says why not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from harness import bench
from harness.bench.measure import PARTS
from harness.cli import main
from harness.kernels.build import built_kernels
from harness.measurements.results import Measurement, Spread

TINY = dataclasses.replace(bench.QUICK, operations=40, growth_operations=40, states=3, growth_states=2)


def test_every_figure_is_measured_or_says_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "QUICK", TINY)
    file = tmp_path / "bench.json"
    done = CliRunner().invoke(main, ["bench", "--quick", "--json", str(file)])
    assert done.exit_code == 0, done.output
    (told,) = msgspec.json.decode(file.read_bytes(), type=list[Measurement])
    assert (told.sizes["operations"], told.sizes["states"]) == ("40", "3")
    tables = {t.title: {str(row[0]): row[1] for row in t.rows} for t in told.tables}
    reasons = dict(reason.split(": ", 1) for reason in told.missing)
    has_uml = any(built.machine == "uml" for _, built in built_kernels())
    for what in ("raw", "log size", "decided", "whole runs", "workers that only wait"):
        assert has_uml is (f"{what}, uml" in tables), reasons
        only_uml = what in ("whole runs", "workers that only wait")
        assert only_uml is (f"{what}, qemu" not in tables), reasons
        assert not only_uml or "too long" in reasons[f"{what}, qemu"]
    raw = tables["raw, qemu"]
    assert isinstance(raw["ms a state"], Spread)
    assert raw["ms a state"].samples == 3
    assert {f"of it {part}, ms" for part in PARTS} <= raw.keys()
    sizes = dict.fromkeys(name.partition(" ")[0] for name in tables["log size, qemu"])
    assert list(sizes) == [f"{size:,}" for size in TINY.log_sizes]
    decided = tables["decided, qemu"]
    states, contents = (float(str(decided[name])) for name in ("states", "contents"))
    assert states == sum(float(str(n)) for name, n in decided.items() if name.startswith("of these"))
    assert states > contents > 0


def test_a_machine_that_is_not_there_is_not_measured(tmp_path: Path) -> None:
    false = tmp_path / "linux"
    false.write_bytes(b"no kernel")
    effort = dataclasses.replace(TINY, growth_states=1, states=1, usual_states=1)
    measured = bench.run_bench(effort, "debian-6.12", ["uml"], "auto", false, lambda _: None)
    assert not [t.title for t in measured.tables if "uml" in t.title]
    for what in ("raw", "growing logs", "decided"):
        assert [m for m in measured.missing if m.startswith(f"{what}, uml: ")]
