"""`powercut show`; what it finds out is tested in `harness.tests.explain`."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.cli import show, why
from harness.errors import ExitCode, UsageError
from harness.kernels.find import Kernel
from harness.model import CaseId, CrashState, Judgement, Violation
from harness.plan import Plan
from harness.report.explanation import Explanation, read_explanation, write_explanation
from harness.store import RunStore
from harness.store.records import CaseInfo, CaseStatus, Finding, JudgedState
from harness.tests.cli.runner import powercut, printed, refused
from harness.tests.report.demo import demo_run, run_info
from harness.trust import Named
from harness.workloads.load import contents_hash, pin_name, select_workloads
from harness.workloads.start import make_workload


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
    monkeypatch.setattr(why, "repro_context", lambda *_: contextlib.nullcontext(shown))
    monkeypatch.setattr(why, "Explainer", lambda *_: contextlib.nullcontext())
    point = str(finding.crash_point)
    monkeypatch.setattr(why, "explain", lambda *_: Explanation(finding.id, "lost", "", {}, (), point))
    done = powercut("show", finding.id, "--from", store.path)
    assert done.exit_code == ExitCode.CONSISTENT, done.output
    said = f"recorded on {recorded_on}, explained on debian-6.12: not kept"
    assert (said in " ".join(done.stderr.split())) is bool(recorded_on)
    assert (read_explanation(store.layout, finding.id) is None) is bool(recorded_on)
    assert (store.path / "report.html").exists() is not bool(recorded_on), "it is in the reports at once"


def explained(store: RunStore, state: str = "@40-38") -> Finding:
    """An expected finding of the demo, of which an explanation is kept: at another state than its own."""
    store.put_plan(Plan(configurations=["ext4/nobarrier"], workloads=["append-fsync"]))
    finding = next(f for f in store.findings() if f.case.configuration == "ext4/nobarrier")
    lines = {"reproduce": "powercut repro X --from /home/sender/reports/latest"}
    at = f"{finding.case}{state}"
    write_explanation(store.layout, Explanation(finding.id, "lost", "No flush.", lines, (), at))
    return finding


def test_the_state_that_is_explained_is_told_from_the_one_that_was_asked_for(tmp_path: Path) -> None:
    """The answer was of the minimal state, and nothing said so."""
    with demo_run(tmp_path) as store:
        finding = explained(store)
    said = " ".join(powercut("show", finding.id, "--from", store.path).output.split())
    least = f"{finding.case}@40-38"
    assert said.startswith(
        f"lost Asked for {finding.crash_point}; explained at {least}, which fails the same way with the "
        "fewest writes lost. No flush."
    )
    with RunStore.open(store.path) as store:
        finding = explained(store, str(finding.state))
    assert "Asked for" not in powercut("show", finding.id, "--from", store.path).output


def test_of_a_mode_that_is_only_rules_a_lost_explanation_is_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest was booted, and then a recording was missing that such a run never has."""
    with demo_run(tmp_path) as store:
        store.put_plan(Plan(configurations=["ext4/nobarrier"], workloads=["append-fsync"]))
        finding = store.findings()[0]
    monkeypatch.setattr(show, "ruled_profile", lambda _: object())
    assert "its explanation is not kept" in refused("show", finding.id, "--from", store.path)


def test_every_crash_point_of_a_finding_can_be_named(tmp_path: Path) -> None:
    """Only the smallest was known: "the run has no finding ext4-nobarrier/append-fsync@41-40"."""
    with demo_run(tmp_path) as store:
        finding = explained(store)
        points = [f"{finding.case}{state}" for state in store.violated(finding.case)]
    assert len(points) > 1
    for point in points:
        done = powercut("show", point, "--from", store.path, "--no-ladder")
        assert done.exit_code == ExitCode.CONSISTENT, done.output
        assert point in done.output
    done = powercut("show", f"{finding.case}@1", "--from", store.path)
    assert done.exit_code == ExitCode.USAGE
    said = " ".join(done.output.split())
    assert f"no finding is shown at {finding.case}@1" in said
    assert f"the findings of {finding.case}: {finding.id}" in said, "an id of another case helps nobody"
    assert f"powercut repro {finding.case}@1 judges it again" in said  # if undecided


def test_the_crash_point_of_an_explanation_can_be_named(tmp_path: Path) -> None:
    """A run says why of its first finding at such a point, and show knew no finding there."""
    with demo_run(tmp_path) as store:
        finding = explained(store, "@7")
        at = f"{finding.case}@7"
        assert "@7" not in store.violated(finding.case)
    done = powercut("show", at, "--from", store.path, "--no-ladder")
    assert done.exit_code == ExitCode.CONSISTENT, done.output
    assert at in done.output


def test_a_finding_in_a_recovery_that_was_cut_is_not_said_to_be_gone(tmp_path: Path) -> None:
    """ "does not show it again", said show, after a guest, of what repro shows every time."""
    with demo_run(tmp_path) as store:
        finding = replace(explained(store), state=CrashState.parse("@40@t3"))
        with pytest.raises(UsageError, match="those of a recovery"):
            show._find_out(store, finding, Named(), "auto")


def test_the_command_is_of_this_run_directory_and_not_of_a_link_that_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`reports/latest` is another run tomorrow; a package's text named the sender's path."""
    with demo_run(tmp_path / "reports") as store:
        finding = explained(store)
    monkeypatch.chdir(tmp_path)
    last = powercut("show", finding.id, "--no-ladder").output.splitlines()
    assert f"reproduce:  powercut repro {finding.case}@40-38 --from {store.path}" in last


def test_one_cause_in_two_modes_is_told_in_full_once_and_so_is_what_words_mean(tmp_path: Path) -> None:
    with demo_run(tmp_path) as store:
        store.put_plan(Plan(configurations=["ext4/ordered"], workloads=["append-fsync"]))
        again = Judgement(store.findings()[0].violations)
        case = CaseId("ext4", "dioread_lock", "append-fsync")
        store.add_case(CaseInfo(case))
        store.set_case_status(case, CaseStatus.DONE)
        store.put_judgements(case, [JudgedState(CrashState(9), "a", again)])
        found = [f for f, _ in show._every(store)]
        symptoms = {f.symptom for f in found}
        for finding in found:
            lines = {"promised": f"by {finding.id}"}
            at = str(finding.crash_point)
            write_explanation(store.layout, Explanation(finding.id, "lost", "No flush.", lines, (), at))
    assert len(symptoms) < len(found), "one symptom in several modes"
    said = powercut("show", "--all", "--from", store.path).output
    assert said.count("promised:") == len(symptoms)
    assert said.count("the same symptom and mechanism as") == len(found) - len(symptoms)
    assert said.count("platter: ") == 1
    assert all(f"{f.id}" in said for f in found)
    named = powercut("show", *(f.id for f in found), "--from", store.path).output
    assert named.count("promised:") == len(found), "what somebody named is told"


def test_all_with_an_id_is_refused_since_the_id_would_be_ignored(tmp_path: Path) -> None:
    with demo_run(tmp_path) as store:
        (finding, *_) = store.findings()
        assert "--all chooses the findings itself" in refused(
            "show", "--all", finding.id, "--from", store.path
        )


def test_a_kept_text_says_when_the_workload_named_is_another(tmp_path: Path) -> None:
    """An application that was mended since was explained with the text of what it did before."""
    app = make_workload(tmp_path / "my-db", "shell")
    with RunStore.create(tmp_path, "test", run_info()) as store:
        store.put_plan(Plan(configurations=["ext4/ordered"], workloads=[str(app)]))
        case = CaseId("ext4", "ordered", "my-db-synced")
        store.add_case(CaseInfo(case))
        store.set_case_status(case, CaseStatus.DONE)
        gone = Judgement((Violation("program", "check", "gone", "0", "1", "gone"),))
        store.put_judgements(case, [JudgedState(CrashState(9), "a", gone)])
        (workload,) = (w for w in select_workloads([str(app)]) if w.name == case.workload)
        store.put_pins({pin_name(workload.name): contents_hash(workload)})
        (finding,) = store.findings()
        write_explanation(store.layout, Explanation(finding.id, "lost", "", {}, (), str(finding.crash_point)))
    same = powercut("show", finding.id, "--from", store.path, "-w", app)
    assert same.stderr == ""
    (app / "run").write_text("#!/bin/sh\n")
    (app / "run").chmod(0o755)
    other = powercut("show", finding.id, "--from", store.path, "-w", app)
    assert other.exit_code == ExitCode.CONSISTENT, other.output
    assert "is not what the run recorded" in " ".join(other.stderr.split())
    assert "what follows was kept, and is of the one recorded" in " ".join(other.stderr.split())


def test_a_long_explanation_tells_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An application's took most of a minute without a word."""
    with demo_run(tmp_path) as store:
        finding = store.findings()[0]
    now = [0.0]
    monkeypatch.setattr(show, "time", SimpleNamespace(monotonic=lambda: now[0]))
    tell = show._telling(finding)
    for visited, at in ((1, 20.0), (2, 21.0), (9, 26.0)):
        now[0] = at
        tell(visited)
    assert capsys.readouterr().err.splitlines() == [
        f"{finding.id}: booting a guest",
        f"{finding.id}: 20 s, 1 state recovered (at most 120)",
        f"{finding.id}: 26 s, 9 states recovered (at most 120)",
    ]


def test_one_file_takes_one_ladder(tmp_path: Path) -> None:
    """The ladder of each finding took the place of the one before, and nothing said so."""
    with demo_run(tmp_path / "reports") as store:
        finding = explained(store)
    svg = tmp_path / "ladder.svg"
    asked = ("show", "--from", store.path, "--svg", svg, finding.id)
    assert "an SVG has one ladder, and these are 2 findings" in refused(*asked, finding.id)
    assert not svg.exists()
    assert powercut(*asked).exit_code == ExitCode.CONSISTENT
    assert svg.read_text().startswith("<svg")


def test_a_run_without_findings_has_nothing_to_explain(tmp_path: Path) -> None:
    """`show --all` answered that no finding had been named, and to name --all."""
    with RunStore.create(tmp_path, "test", run_info()) as store:
        path = store.path
    assert "has no finding: there is nothing to explain" in printed("show", "--all", "--from", path)
