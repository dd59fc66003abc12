"""`powercut triage` without guests: planted faults, what is kept, and what is printed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from rich.console import Console

from harness.campaigns.page import ShownCause, _cause
from harness.cli.triage import text_of
from harness.errors import ExitCode, GuestLost
from harness.expectations import Expectation
from harness.filesystems.profiles import select_profiles
from harness.findings import triage as module
from harness.findings.causes import SAME_WORKLOAD
from harness.findings.experiment import Violated
from harness.findings.simplify import Operations
from harness.findings.triage import ATTEMPTS, FAST, Experiment, Experiments, Suspect, Triage, Way, triage
from harness.host.progress import Lines
from harness.model import CaseId, CrashState, Judgement, Violation, Workload
from harness.model.schedules import ScheduleName
from harness.plan import Plan
from harness.report import words
from harness.report.explanation import Explanation, write_explanation
from harness.store import RunStore, meaning
from harness.store.records import CaseInfo, Finding
from harness.symptoms import Symptom, paths_of, symptom_of
from harness.tests.cli.runner import powercut
from harness.tests.report.demo import run_info
from harness.tests.store.samples import put_case
from harness.trust import Named
from harness.workloads.load import load_workload, parse_operation

Planted = Callable[[list[str]], Mapping[str, str]]
"""Of some operations: what each oracle that finds something says."""


def nameless(ops: list[str]) -> Mapping[str, str]:
    """One fault with two symptoms: a file that got its name late is lost once something is synced."""
    made = next((i for i, op in enumerate(ops) if op.startswith("tmpfile")), len(ops))
    if not any(op.startswith("f") and "sync" in op for op in ops[made:]):
        return {}
    path = ops[made].split()[1]
    return {"durability": f"{path}: missing", "fsck": f"fsck: Unattached inode {12 + made}"}


def unlinked(ops: list[str]) -> Mapping[str, str]:
    """Another fault that looks like the first one."""
    gone = next((op.split()[1] for op in ops if op.startswith("unlink")), "")
    return {"durability": f"{gone}: missing"} if gone else {}


class FakeTries:
    """Shows planted faults. `slow_only`: only the machine that records shows them. `under`: only that
    schedule does. `when`: in recordings of such a kind alone. `lost`: in these the guest is lost.
    """

    def __init__(
        self,
        planted: Planted,
        *,
        slow_only: bool = False,
        under: ScheduleName | None = None,
        when: Callable[[Way], bool] = lambda way: True,
        lost: Callable[[Way], bool] = lambda way: False,
    ) -> None:
        self._under, self._when, self._lost = under, when, lost
        (self.profile,) = select_profiles(["ext4/fast_commit"])
        self.made = 0
        self._planted, self._slow_only = planted, slow_only

    def __enter__(self) -> FakeTries:
        return self

    def __exit__(self, *_: object) -> None: ...

    def experiment(self, operations: Operations, way: Way = FAST, attempt: int = 0) -> Experiment:
        self.made += 1
        text = [str(op) for op in operations]
        if self._lost(way):
            return Experiment(tuple(text), attempt, way.fast, failed="it is gone", schedule=str(way.schedule))
        hidden = (way.fast and self._slow_only) or self._under not in (None, way.schedule)
        hidden = hidden or not self._when(way)
        found = {} if hidden else self._planted(text)
        paths = paths_of(operations)
        shown = tuple((symptom_of(o, s, paths), f"@7 {o}: {s}") for o, s in found.items())
        return Experiment(tuple(text), attempt, way.fast, shown, schedule=str(way.schedule))


def run_with(root: Path, planted: Planted, *workloads: str, known: bool = False) -> Path:
    """A run on these workloads, which show what was planted."""
    plan = Plan(configurations=["ext4/fast_commit"], workloads=list(workloads))
    with RunStore.create(root, "t", run_info()) as store:
        store.put_plan(plan)
        if known:
            store.set_expectations([Expectation("*", "*", "*", "known", "known.txt:1")])
        for name in workloads:
            case = CaseId("ext4", "fast_commit", name)
            ops = [str(op) for op in load_workload(name).operations]
            found = tuple(Violation(o, "f", s, "x", "y", s) for o, s in planted(ops).items())
            put_case(store, CaseInfo(case, distinct=1, generated=1), Judgement(found), at=1)
        store.finish()
        return store.path


@contextlib.contextmanager
def quiet(tmp_path: Path) -> Iterator[Lines]:
    with (tmp_path / "said").open("w") as said, Lines(Console(file=said)) as progress:
        yield progress


def triaged(tmp_path: Path, run: Path, tries: FakeTries, *, expected: bool = False) -> Triage:
    with quiet(tmp_path) as progress, RunStore.open(run) as store:
        return triage([store], Named(), progress, expected=expected, tries=lambda *_: tries)


def both(ops: list[str]) -> Mapping[str, str]:
    return {**unlinked(ops), **nameless(ops)}


def test_one_cause_with_two_symptoms_in_five_cases_is_one_group(tmp_path: Path) -> None:
    names = [f"random1-{seed}-20" for seed in (1, 4, 11, 12, 15)]
    found = triaged(tmp_path, run_with(tmp_path, nameless, *names), FakeTries(nameless))
    (cause,) = found.causes
    assert cause.smallest.minimal == ("tmpfile foo 0", "fsync foo")
    assert len(cause.members) == 10
    assert set(cause.rules[1:]) == {SAME_WORKLOAD}
    assert {s.oracle for s in cause.symptoms} == {"durability", "fsck"}


def test_two_causes_that_look_alike_stay_apart(tmp_path: Path) -> None:
    """One workload has a tmpfile and no unlink, the other an unlink and no tmpfile. Both lose a name."""
    run = run_with(tmp_path, both, "random1-1-20", "ace-unlink.A_foo+fsync.A")
    found = triaged(tmp_path, run, FakeTries(both))
    alike = [g for g in found.causes if Symptom("durability", "NAME: missing") in g.symptoms]
    assert sorted(g.smallest.minimal[-1].split()[0] for g in alike) == ["fsync", "unlink"]


def test_shrinking_keeps_to_the_symptom(tmp_path: Path) -> None:
    """By the oracle alone, the long way to one fault ended in the short way to another."""

    def two_complaints(ops: list[str]) -> Mapping[str, str]:
        if any(op.startswith("rename") for op in ops):
            return {"fsck": "fsck: ref count 2"}
        return {"fsck": "fsck: Unattached inode 12"} if len(ops) > 1 else {}

    run = run_with(tmp_path, two_complaints, "random1-12-20")
    found = triaged(tmp_path, run, FakeTries(two_complaints))
    assert [str(s) for g in found.causes for s in g.symptoms] == ["fsck: fsck: ref count N"]
    assert found.causes[0].smallest.minimal[-1].startswith("rename")


def test_what_shows_with_nothing_lost_is_not_shrunk_to_what_a_lost_write_breaks() -> None:
    """Of a new bug of F2FS was left what a known one breaks, where a write is lost."""
    case, symptom = CaseId("ext4", "ordered", "w"), Symptom("durability", "NAME: missing")
    nothing = Workload("w", "", ())
    lossy, whole = (
        Suspect(Finding(case, "durability", "f: missing", CrashState.parse(at), (), 1), symptom, nothing)
        for at in ("@t9-2", "@t9")
    )
    shown = Experiment((), 0, True, ((symptom, "@t3-1 durability: f: missing"),))
    both = msgspec.structs.replace(shown, whole=(symptom,))
    assert [whole.is_shown(tried) for tried in (shown, both)] == [False, True]
    assert [lossy.is_shown(tried) for tried in (shown, both)] == [True, True]
    assert not lossy.is_shown(Experiment((), 0, True))


def test_an_experiment_says_what_shows_with_nothing_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    found = [
        (CrashState.parse(at), Violation("durability", "f", f"f: {what}", "", "", f"f: {what}"))
        for at, what in (("@t9", "missing"), ("@t9-2", "missing"), ("@t9-2", "size"))
    ]
    monkeypatch.setattr(module, "_settings", lambda *_: "settings")
    monkeypatch.setattr(
        module, "open_equipment", lambda *_: contextlib.nullcontext(SimpleNamespace(fast=None))
    )
    monkeypatch.setattr(module, "violations", lambda *_: found)
    with RunStore.open(run_with(tmp_path, nameless, "random1-4-20")) as store, quiet(tmp_path) as progress:
        for _ in range(2):  # and what is kept says so, too
            with module.Laboratory(store, "ext4/fast_commit", Named(), progress) as laboratory:
                tried = laboratory.experiment((parse_operation("create f"),))
            assert {s.what for s, _ in tried.shown} == {"NAME: missing", "NAME: size"}
            assert [s.what for s in tried.whole] == ["NAME: missing"]


def test_what_the_fast_machine_does_not_show_is_shrunk_on_the_other(tmp_path: Path) -> None:
    run = run_with(tmp_path, nameless, "random1-4-20")
    found = triaged(tmp_path, run, FakeTries(nameless, slow_only=True))
    assert [(g.smallest.minimal[0], g.smallest.confirmed) for g in found.causes] == [("tmpfile foo 0", True)]


def test_what_only_the_judging_machine_shows_is_shrunk_and_says_so(tmp_path: Path) -> None:
    """It was told as not shown again, on either machine."""
    run = run_with(tmp_path, nameless, "random1-4-20")
    found = triaged(tmp_path, run, FakeTries(nameless, when=lambda way: way.fast))
    assert [(g.smallest.minimal[0], g.smallest.confirmed) for g in found.causes] == [("tmpfile foo 0", False)]
    with RunStore.open(run) as store:
        assert "   only the machine that judges shows this; the one that records does not" in text_of(
            found, [store], {}
        )


def test_recordings_that_failed_do_not_say_that_the_machine_does_not_show_it(tmp_path: Path) -> None:
    """No guest of the machine that records came up, and it was told that it does not show the finding."""
    run = run_with(tmp_path, nameless, "random1-4-20")
    found = triaged(tmp_path, run, FakeTries(nameless, lost=lambda way: not way.fast))
    member = found.causes[0].smallest
    assert (member.confirmed, member.untried) == (False, "it is gone")
    why = "could not be tried on the machine that records: it is gone"
    with RunStore.open(run) as store:
        lines = text_of(found, [store], {})
    assert f"   {why}" in lines
    told = (tmp_path / "said").read_text()
    assert why in " ".join(told.split())
    assert not any("does not" in line or "only" in line for line in [*lines, told])
    shown = _cause(1, ShownCause(found.causes[0], (), 0.0, "f.toml", "reproduce", "run"))
    assert shown.lines[0].text.endswith(f"; {why}")


def test_one_recording_that_did_not_fail_says_that_the_machine_does_not_show_it(tmp_path: Path) -> None:
    run = run_with(tmp_path, nameless, "random1-4-20")
    tries = FakeTries(
        nameless, when=lambda way: way.fast, lost=lambda way: not way.fast and tries.made % 2 > 0
    )
    member = triaged(tmp_path, run, tries).causes[0].smallest
    assert member.untried == ""
    assert member.why_unconfirmed == "only the machine that judges shows this; the one that records does not"


def test_a_schedule_is_needed_only_if_neither_machine_shows_it_without(tmp_path: Path) -> None:
    """`not under the default one` was said without a recording by the machine that records."""
    run = run_with(tmp_path, nameless, "random1-4-20.s3")
    shown = FakeTries(nameless, when=lambda way: bool(way.schedule) or not way.fast)
    (cause,) = triaged(tmp_path, run, shown).causes
    assert (cause.smallest.schedule, cause.smallest.confirmed) == ("", True)


def test_recordings_that_failed_are_told_beside_those_that_showed_nothing(tmp_path: Path) -> None:
    run = run_with(tmp_path, nameless, "random1-4-20")
    found = triaged(tmp_path, run, FakeTries(lambda ops: {}, lost=lambda way: way.fast))
    assert {m.reason for m in found.not_again} == {
        f"{ATTEMPTS} new recordings on each machine did not show it; 3 of 6 failed: it is gone"
    }


def test_a_finding_is_shrunk_under_the_schedule_that_it_needs(tmp_path: Path) -> None:
    """It was recorded again under the default one alone, and told as not shown again."""
    run = run_with(tmp_path, nameless, "random1-4-20.s3")
    found = triaged(tmp_path, run, FakeTries(nameless, under=ScheduleName(3)))
    assert [(g.smallest.minimal[0], g.smallest.schedule) for g in found.causes] == [("tmpfile foo 0", ".s3")]
    with RunStore.open(run) as store:
        lines = text_of(found, [store], {found.causes[0].name: tmp_path / "x.toml"})
    assert "   under schedule 3; not under the default one" in lines
    assert any(line.startswith("run it:") and "x.toml.s3" in line for line in lines)


def test_a_finding_that_needs_no_schedule_is_shrunk_without(tmp_path: Path) -> None:
    run = run_with(tmp_path, nameless, "random1-4-20.s3")
    found = triaged(tmp_path, run, FakeTries(nameless))
    assert [(g.smallest.minimal[0], g.smallest.schedule) for g in found.causes] == [("tmpfile foo 0", "")]


def test_a_schedule_that_does_not_show_it_again_is_named(tmp_path: Path) -> None:
    run = run_with(tmp_path, nameless, "random1-4-20.s3")
    found = triaged(tmp_path, run, FakeTries(lambda ops: {}))
    assert "with and without schedule 3," in found.not_again[0].reason


def test_what_is_not_shown_again_is_said_and_grouped_with_nothing(tmp_path: Path) -> None:
    run = run_with(tmp_path, nameless, "random1-4-20")
    found = triaged(tmp_path, run, FakeTries(lambda ops: {}))
    assert found.causes == ()
    assert [m.reason for m in found.not_again] == [
        f"{ATTEMPTS} new recordings on each machine did not show it"
    ] * 2


def test_known_failures_are_left_out_and_counted(tmp_path: Path) -> None:
    run = run_with(tmp_path, nameless, "random1-4-20", known=True)
    found = triaged(tmp_path, run, FakeTries(nameless))
    assert (found.causes, found.left_out) == ((), 2)
    assert len(triaged(tmp_path, run, FakeTries(nameless), expected=True).causes) == 1


# --- what is kept ----------------------------------------------------------------------------


def test_an_experiment_is_made_once(tmp_path: Path) -> None:
    file = tmp_path / "experiments"
    experiment = Experiment(("sync",), 0, True, ((Symptom("fsck", "N"), "text"),))
    Experiments(file).put(experiment)
    assert Experiments(file).get(("sync",), 0, fast=True) == experiment
    assert Experiments(file).get(("sync",), 1, fast=True) is None
    assert Experiments(file).get(("sync",), 0, fast=False) is None


def test_a_line_that_a_kill_cut_off_is_an_experiment_that_was_not_made(tmp_path: Path) -> None:
    """And the next one does not become part of it."""
    file = tmp_path / "experiments"
    first, second = (Experiment((op,), 0, True) for op in ("sync", "create f"))
    Experiments(file).put(first)
    file.write_bytes(file.read_bytes()[:-9])
    again = Experiments(file)
    assert again.get(("sync",), 0, fast=True) is None
    again.put(second)
    assert Experiments(file).get(("create f",), 0, fast=True) == second


def test_a_triage_that_was_stopped_records_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    """And where everything is known, no guest is made ready."""
    opened: list[str] = []

    @contextlib.contextmanager
    def equipment(*_: object) -> Iterator[SimpleNamespace]:
        opened.append("equipment")
        yield SimpleNamespace(fast=None)

    def violations(_: object, __: object, case: CaseId, *___: object) -> list[Violated]:
        opened.append("experiment")
        assert case.workload == "candidate.s3"
        return []

    monkeypatch.setattr(module, "_settings", lambda *_: "settings")
    monkeypatch.setattr(module, "open_equipment", equipment)
    monkeypatch.setattr(module, "violations", violations)
    sync = (parse_operation("sync"),)
    with RunStore.open(run_with(tmp_path, nameless, "random1-4-20")) as store, quiet(tmp_path) as progress:
        for _ in range(2):
            with module.Laboratory(store, "ext4/fast_commit", Named(), progress) as laboratory:
                assert laboratory.experiment(sync, Way(schedule=ScheduleName(3))).shown == ()
    assert opened == ["equipment", "experiment"]


def test_what_failed_is_tried_again_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    """A guest that was lost once made a workload harmless for ever."""

    def lost(*_: object) -> list[Violated]:
        raise GuestLost("the guest is gone", "")

    monkeypatch.setattr(module, "_settings", lambda *_: "settings")
    monkeypatch.setattr(
        module, "open_equipment", lambda *_: contextlib.nullcontext(SimpleNamespace(fast=None))
    )
    monkeypatch.setattr(module, "violations", lost)
    run = run_with(tmp_path, nameless, "random1-4-20")
    with RunStore.open(run) as store, quiet(tmp_path) as progress:
        found = triage([store], Named(), progress)
    assert {m.reason for m in found.not_again} == {"new recordings failed: the guest is gone"}
    assert not list((tmp_path / "cache").rglob("*.jsonl"))


# --- the command -----------------------------------------------------------------------------


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Laboratory", lambda *_: FakeTries(nameless))


@pytest.mark.usefixtures("planted")
def test_the_command_writes_workloads_and_json(tmp_path: Path) -> None:
    run = run_with(tmp_path, nameless, "random1-4-20")
    file = tmp_path / "causes.json"
    done = powercut("triage", run, "--json", file)
    assert done.exit_code == ExitCode.INCONSISTENT, done.output
    (cause,) = msgspec.json.decode(file.read_bytes(), type=Triage).causes
    workload = run / "triage" / f"{cause.name}.toml"
    assert [str(op) for op in load_workload(str(workload)).operations] == ["tmpfile foo 0", "fsync foo"]
    assert f"1. {cause.name}: 2 findings in 1 case" in done.output
    assert f"run it: powercut run -c ext4/fast_commit -w {workload}" in done.output
    assert f"reproduce: powercut repro ext4-fast_commit/random1-4-20@1 --from {run}" in done.output


def test_findings_are_grouped_at_once_and_shrunk_only_if_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was said of a hundred findings until each was shrunk, a minute each."""
    monkeypatch.setattr(module, "Laboratory", lambda *_: pytest.fail("no guest is needed"))
    run = run_with(tmp_path, nameless, "random1-4-20", "random1-12-20")
    with RunStore.open(run) as store:
        for found in store.findings():
            told = Explanation(found.id, "", "No flush at all. X.", {}, (), str(found.crash_point))
            write_explanation(store.layout, told)
    done = powercut("triage", run, "--no-shrink")
    assert done.exit_code == ExitCode.INCONSISTENT
    said = done.stdout.splitlines()
    assert said[0] == "4 findings in 2 groups, by symptom or mechanism:"
    assert said[1].startswith("1. 2 findings in 2 cases: ")
    assert said[-1] == "NAME and N stand for any name and any number."  # the headings hold both
    assert said[1].endswith(" (new)")
    assert said[2].endswith(": No flush at all. X.")
    known = powercut(
        "triage", run_with(tmp_path, both, "random1-4-20", known=True), "--no-shrink", "--expected"
    )
    assert known.stdout.count(" (expected)") == known.stdout.count("such as") > 0
    assert done.stdout.count(", and 1 more symptom (new)") == 1
    assert powercut("triage", run, "--no-shrink", "--json", tmp_path / "x").exit_code == ExitCode.USAGE
    assert (
        powercut("triage", run_with(tmp_path, lambda ops: {}, "random1-4-20"), "--no-shrink").exit_code == 0
    )


@pytest.mark.usefixtures("planted")
def test_a_run_without_findings_is_consistent(tmp_path: Path) -> None:
    done = powercut("triage", run_with(tmp_path, lambda ops: {}, "random1-4-20"))
    assert done.exit_code == ExitCode.CONSISTENT
    assert "no findings" in done.output


def test_findings_that_do_not_show_again_are_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Laboratory", lambda *_: FakeTries(lambda ops: {}))
    done = powercut("triage", run_with(tmp_path, nameless, "random1-4-20"))
    assert done.exit_code == ExitCode.UNDECIDED
    assert "not shown again: ext4-fast_commit/random1-4-20 durability: NAME: missing" in done.output


def test_an_interrupted_triage_says_how_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(ops: list[str]) -> Mapping[str, str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "Laboratory", lambda *_: FakeTries(stopped))
    done = powercut("triage", run_with(tmp_path, nameless, "random1-4-20"))
    assert done.exit_code == ExitCode.INTERRUPTED
    assert "the same command goes on" in done.output


def test_an_interrupted_triage_groups_what_it_has_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ten minutes there was nothing, though most findings had been shrunk."""
    run = run_with(tmp_path, nameless, "random1-4-20", "random1-12-20")
    real = module.examined
    done_with: list[object] = []

    def once(*words: Any) -> Any:
        if done_with:
            raise KeyboardInterrupt
        done_with.append(words)
        return real(*words)

    monkeypatch.setattr(module, "examined", once)
    monkeypatch.setattr(module, "Laboratory", lambda *_: FakeTries(nameless))
    done = powercut("triage", run)
    assert done.exit_code == ExitCode.INTERRUPTED
    assert "1 finding, 1 cause\n" in done.stdout
    assert "1 cause so far" in done.stdout
    assert "tmpfile foo 0" in done.stdout
    said = " ".join(done.stdout.split())
    assert "findings not shrunk yet; what was recorded is kept: the same command goes on" in said


def test_a_long_finding_says_how_far_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For 31 recordings there was nothing but "findings 0/5"."""
    run = run_with(tmp_path, nameless, "random1-4-20")
    monkeypatch.setattr(module, "Laboratory", lambda *_: FakeTries(nameless))
    said = " ".join(powercut("triage", run).stdout.split())
    assert "[1/2] ext4-fast_commit/random1-4-20 " in said
    assert ": being shrunk" in said
    assert re.search(r"\d+ to \d+ operations? so far, \d+ recordings? of \d+\.\d s each", said)


def test_no_run_there_is_the_users_error(tmp_path: Path) -> None:
    assert powercut("triage", tmp_path / "nothing").exit_code == ExitCode.USAGE
    assert powercut("triage").exit_code == ExitCode.USAGE


@pytest.mark.parametrize("again", [True, False])
def test_what_is_known_of_a_finding_is_told_when_it_was_shrunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    """Before shrinking, `triage` said "(a known loss)", and behind it nothing."""
    lossy = Expectation("ext4/fast_commit", "*", "durability", "it sends no flush", "losses:1")
    monkeypatch.setattr(meaning, "known_losses", lambda: (lossy,))
    monkeypatch.setattr(words, "known_losses", lambda: (lossy,))
    run = run_with(tmp_path, nameless, "random1-4-20")
    found = triaged(tmp_path, run, FakeTries(nameless if again else lambda ops: {}))
    members = [*found.not_again, *(m for cause in found.causes for m in cause.members)]
    said = {"durability": "a known loss", "fsck": "new"}
    assert {m.symptom.oracle: m.standing for m in members} == said
    with RunStore.open(run) as store:
        lines = text_of(found, [store], {})
    for m in members:
        told = f"{m.case} {m.symptom} ({m.standing})"
        assert any(told in line for line in lines if line.startswith(("   ", "not shown again: ")))


def test_programs_are_listed_though_they_cannot_be_shrunk(tmp_path: Path) -> None:
    run = run_with(tmp_path, lambda ops: {"program": "check 0: exit code 1"}, "fio-randwrite")
    found = triaged(tmp_path, run, FakeTries(lambda ops: {}))
    with RunStore.open(run) as store:
        text = "\n".join(text_of(found, [store], {}))
    assert "1 finding, 1 cause" in text
    assert "not shrunk" in text


@pytest.mark.parametrize("changed", ["fsck", "mkfs", "judging kernel", "kernel"])
def test_a_triage_does_not_answer_from_experiments_of_another_fsck_mkfs_or_judging_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """What was kept bore hashes of kernel, agent and disk alone: after an update of e2fsprogs, or of the UML
    kernel that judges, `triage` told what the old ones had shown.
    """
    files = {name: tmp_path / name for name in ("fsck", "mkfs", "judging kernel")}
    for file in files.values():
        file.write_bytes(b"as it was")
    (profile,) = select_profiles(["ext4/ordered"])
    tools = [SimpleNamespace(path=lambda name=name: str(files[name])) for name in ("fsck", "mkfs")]
    monkeypatch.setattr(type(profile), "tools", property(lambda _: tools))
    kernel = SimpleNamespace(sha256="one", replaced=(), package_version="1", machine="")
    monkeypatch.setattr(module, "chosen_kernel", lambda *_: kernel)
    monkeypatch.setattr(module, "recording_machine", lambda *_: "qemu")
    judge = SimpleNamespace(image=files["judging kernel"])
    monkeypatch.setattr(module, "built_kernel", lambda name, _: judge if name == "uml" else None)
    with RunStore.open(run_with(tmp_path, nameless, "random1-4-20")) as store:
        before = module._settings(store, profile, Named())
        assert module._settings(store, profile, Named()) == before
        if changed == "kernel":
            kernel.sha256 = "another"
        else:
            files[changed].write_bytes(b"as it was, and is no more")
        assert module._settings(store, profile, Named()) != before


def test_a_series_among_the_runs_is_left_out(tmp_path: Path) -> None:
    """`triage reports/runs/*` ended at the folder of a patch."""
    run = run_with(tmp_path, lambda ops: {}, "random1-4-20")
    (series := tmp_path / "a-patch").mkdir()
    (series / "plan.json").write_text("{}")
    done = powercut("triage", run, series, "--no-shrink")
    assert done.exit_code == ExitCode.CONSISTENT
    assert "a-patch: a series, not a run: left out" in done.stderr
    (other := tmp_path / "another").mkdir()
    (other / "plan.json").write_text("{}")
    assert powercut("triage", series, other).exit_code == ExitCode.USAGE
