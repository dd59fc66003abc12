"""`powercut show`; what it finds out is tested in `harness.tests.explain`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.cli import show
from harness.errors import ExitCode
from harness.kernels.find import Kernel
from harness.plan import Plan
from harness.report.explanation import Explanation, read_explanation
from harness.store import RunStore
from harness.tests.cli.runner import powercut
from harness.tests.report.demo import demo_run, run_info


@pytest.mark.parametrize("recorded_on", ["", "debian-6.12 with ext4.ko (sha256 06c4a93b69ae)"])
def test_what_another_build_explains_is_said_and_not_kept(
    recorded_on: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that was rebuilt at the same path explained a finding of the old one, for good."""
    with demo_run(tmp_path) as store:
        store.put_plan(Plan(configurations=["ext4/ordered"], workloads=["append-fsync"]))
        finding = store.findings()[0]
    kernel = Kernel("debian-6.12", tmp_path / "vmlinuz", None, "00")
    shown = SimpleNamespace(recorded_on=recorded_on, kernel=kernel)
    monkeypatch.setattr(show, "repro_context", lambda *_: contextlib.nullcontext(shown))
    monkeypatch.setattr(show, "Explainer", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(show, "explain", lambda *_: Explanation(finding.id, "lost", "", {}, (), "X"))
    done = powercut("show", finding.id, "--from", store.path)
    assert done.exit_code == ExitCode.CONSISTENT, done.output
    said = " ".join(done.stderr.split())
    assert said == (f"recorded on {recorded_on}, explained on debian-6.12: not kept" if recorded_on else "")
    assert (read_explanation(store.layout, finding.id) is None) is bool(recorded_on)


def test_a_run_without_findings_has_nothing_to_explain(tmp_path: Path) -> None:
    """`show --all` answered that no finding had been named, and to name --all."""
    with RunStore.create(tmp_path, "test", run_info()) as store:
        path = store.path
    done = powercut("show", "--all", "--from", path)
    assert done.exit_code == ExitCode.CONSISTENT
    assert "has no finding: there is nothing to explain" in done.stdout
