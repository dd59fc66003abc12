"""The bench in one go, with a few states: every figure is there, or says why not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from harness import bench
from harness.bench.figures import NotMeasured
from harness.bench.measure import PARTS
from harness.cli import main
from harness.kernels.build import built_kernels

TINY = dataclasses.replace(bench.QUICK, operations=40, growth_operations=40, states=3, growth_states=2)


def test_every_figure_is_measured_or_says_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "QUICK", TINY)
    file = tmp_path / "bench.json"
    done = CliRunner().invoke(main, ["bench", "--quick", "--json", str(file)])
    assert done.exit_code == 0, done.output
    told = msgspec.json.decode(file.read_bytes())
    assert told["operations"] == 40
    assert told["states"] == 3
    for name in ("raw", "growth", "decided", "whole", "scaling"):
        assert set(told[name]) == {"qemu", "uml"}
        for machine, figure in told[name].items():
            if machine == "qemu" and name in ("whole", "scaling"):
                assert "too long" in figure["reason"]
                continue
            must = machine == "qemu" or any(built.machine == "uml" for _, built in built_kernels())
            assert "reason" not in figure or not must, figure
            assert "reason" not in figure or figure["reason"]
    assert told["raw"]["qemu"]["state_ms"]["count"] == 3
    assert set(told["raw"]["qemu"]["split_ms"]) == set(PARTS)
    assert [p["entries"] for p in told["growth"]["qemu"]["points"]] == list(TINY.log_sizes)
    decided = told["decided"]["qemu"]
    assert decided["states"] == sum(decided["by_how"].values()) > decided["contents"] > 0


def test_a_machine_that_is_not_there_is_not_measured(tmp_path: Path) -> None:
    false = tmp_path / "linux"
    false.write_bytes(b"no kernel")
    measured = bench.run_bench(
        dataclasses.replace(TINY, growth_states=1, states=1, usual_states=1),
        "debian-6.12",
        ["uml"],
        "auto",
        false,
        lambda _: None,
    )
    for figures in (measured.raw, measured.growth, measured.decided):
        figure = figures["uml"]
        assert isinstance(figure, NotMeasured)
        assert "no UML kernel" in figure.reason
