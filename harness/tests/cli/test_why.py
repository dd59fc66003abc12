"""The end of a run: why the first finding of each symptom failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.cli import why
from harness.errors import UsageError
from harness.model import CaseId
from harness.report.explanation import Explanation, read_explanation
from harness.store import RunStore
from harness.store.records import Finding
from harness.tests.cli.runner import powercut
from harness.tests.report.demo import demo_run
from harness.trust import Named

MECHANISM = "No flush at all. No flush was sent."


@pytest.fixture
def run(tmp_path: Path) -> RunStore:
    return demo_run(tmp_path)


def explained(finding: Finding, point: str = "") -> Explanation:
    return Explanation(finding.id, finding.summary, MECHANISM, {}, (), point or str(finding.crash_point))


def test_one_finding_of_each_symptom_is_chosen_and_none_that_was_expected(run: RunStore) -> None:
    chosen = list(why.first_of_each(run))
    assert chosen
    assert len({f.symptom for f in chosen}) == len(chosen)
    assert all(f.expectation is None for f in chosen)
    unexpected = [f for f in run.findings() if f.expectation is None]
    assert {f.symptom for f in chosen} == {f.symptom for f in unexpected}


def test_of_a_program_the_first_finding_in_each_mode_is_chosen(run: RunStore) -> None:
    """One cause of three was printed: what one file system shows, another may hide."""
    of_program = next(f for f in run.findings() if f.expectation is None)
    cases = [CaseId(fs, "default", "mine") for fs in ("xfs", "btrfs", "xfs")]
    findings = [replace(of_program, oracle="program", case=case) for case in cases]
    store = cast(RunStore, cast(Any, SimpleNamespace(findings=lambda: findings)))
    assert [f.case for f in why.first_of_each(store)] == cases[:2]
    findings[:] = [replace(f, oracle="size") for f in findings]
    assert len(list(why.first_of_each(store))) == 1


def test_where_the_mount_fails_that_is_explained_and_not_what_fsck_says(run: RunStore) -> None:
    """Eleven complaints of fsck about one file system that did not mount were explained, one by one."""
    mount = replace(next(iter(why.first_of_each(run))), oracle="mountable")
    findings = [mount, replace(mount, oracle="fsck", unmounted=mount.summary), replace(mount, oracle="fsck")]
    store = cast(RunStore, cast(Any, SimpleNamespace(findings=lambda: findings)))
    assert list(why.first_of_each(store)) == [findings[0], findings[2]]


def test_the_reports_have_the_cause(
    run: RunStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only who typed `powercut show` learnt why: the page, summary.md and JUnit had none of it."""
    first, *others = why.first_of_each(run)

    def find(_: RunStore, finding: Finding, *__: object) -> tuple[Explanation, str]:
        if finding in others:
            raise UsageError("no write was lost")
        return explained(finding), ""

    monkeypatch.setattr(why, "find_out", find)
    why.explain_first(run, Named(), "auto")
    assert f"{first.id}, {first.crash_point}: {MECHANISM}" in capsys.readouterr().out
    assert read_explanation(run.layout, first.id) == explained(first)
    for report in ("summary.md", "junit.xml", "report.html"):
        assert "No flush was sent" in (run.path / report).read_text(), report
        assert "xplained at" not in (run.path / report).read_text(), report


def test_a_run_that_another_process_writes_keeps_its_reports(
    run: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were written without the lock, while a process that resumed the run wrote its own."""
    monkeypatch.setattr(why, "find_out", lambda _, f, *__: (explained(f), ""))
    with run.lock("powercut run --resume"):
        why.explain_first(run, Named(), "auto")
        assert not (run.path / "summary.md").exists()
    why.explain_first(run, Named(), "auto")
    assert (run.path / "summary.md").exists()


def test_a_cause_stands_beside_the_crash_point_that_it_was_found_at(
    run: RunStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The writes that it names were those of another crash point than the one printed beside it."""
    monkeypatch.setattr(why, "find_out", lambda _, f, *__: (explained(f, f"{f.case}@40-38"), ""))
    first = next(iter(why.first_of_each(run)))
    at = f"{first.case}@40-38"
    assert at != str(first.crash_point)
    why.explain_first(run, Named(), "auto")
    assert f"{first.id}, {at}: {MECHANISM}" in capsys.readouterr().out
    for report in ("summary.md", "junit.xml"):
        assert f"{MECHANISM} Explained at {at}." in (run.path / report).read_text(), report
    assert f"{first.id}, {at}: {MECHANISM}" in powercut("triage", run.path, "--no-shrink").output


def test_where_no_mechanism_is_told_the_line_has_the_remedy(
    run: RunStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of `any/posix` the line repeated the headline: which fsync is missing stood in `show` alone."""
    control = {"missing": "fsync of `t`"}

    def find(_: RunStore, finding: Finding, *__: object) -> tuple[Explanation, str]:
        return Explanation(finding.id, finding.summary, "", control, (), str(finding.crash_point)), ""

    monkeypatch.setattr(why, "find_out", find)
    first = next(iter(why.first_of_each(run)))
    why.explain_first(run, Named(), "auto")
    assert f"{first.summary}; missing: fsync of `t`" in capsys.readouterr().out


def test_a_control_that_findings_share_is_told_once(
    run: RunStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a program on `any`, the same eighty words stood behind each of its findings."""
    lines = {"missing": "fsync of `t`", "control": "with these, none of 172 states fails"}

    def find(_: RunStore, finding: Finding, *__: object) -> tuple[Explanation, str]:
        return Explanation(finding.id, finding.summary, "", lines, (), str(finding.crash_point)), ""

    monkeypatch.setattr(why, "find_out", find)
    assert len(list(why.first_of_each(run))) > 1
    why.explain_first(run, Named(), "auto")
    said = capsys.readouterr().out
    assert said.count(f"; control: {lines['control']}") == 1
    assert said.count("; control: as above") == said.count("; missing: fsync of `t`") - 1


def test_it_ends_within_its_time_and_says_what_is_left(
    run: RunStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr("harness.cli.why.time.monotonic", lambda: clock[0])

    def find(
        _: RunStore, finding: Finding, __: object, ___: object, visited: Callable[[int], None]
    ) -> object:
        clock[0] += why.LIMIT_S
        visited(1)
        return explained(finding), ""

    monkeypatch.setattr(why, "find_out", find)
    why.explain_first(run, Named(), "auto")
    count = len(list(why.first_of_each(run)))
    others = f"powercut show --all --from {run.path}"  # and the workload, if it is one's own
    assert f"0 of {count} explained; the others: {others}" in capsys.readouterr().out
    assert not (run.path / "summary.md").exists()


def test_ctrl_c_ends_the_explanations_alone(run: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(*_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(why, "find_out", find)
    why.explain_first(run, Named(), "auto")


def test_an_explanation_on_another_kernel_is_not_kept(run: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "find_out", lambda _, finding, *__: (explained(finding), "on another kernel"))
    why.explain_first(run, Named(), "auto")
    assert not any(read_explanation(run.layout, f.id) for f in run.findings())
