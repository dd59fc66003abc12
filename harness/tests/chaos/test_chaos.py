"""Chaos can fail: it finds each kind of planted defect. Those that need guests are in `vm/test_chaos.py`."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ExitCode, StoreError
from harness.guests.disk import find_binary
from harness.guests.guest import Guest
from harness.model import CaseId, History, Judgement
from harness.store import RunStore
from harness.store.records import CaseInfo, Coverage
from harness.summary import CaseVerdict, Summary, summarise
from harness.tests.chaos import damage, foreign, frames, full_disk, verdicts
from harness.tests.chaos.__main__ import as_json, repeat_line, table
from harness.tests.chaos.command import Ended, look_for_leftovers
from harness.tests.chaos.damage import run_damage, run_flips
from harness.tests.chaos.lanes import Order, Result, _Lane, gist
from harness.tests.chaos.reference import Reference, Specimen, load_reference
from harness.tests.chaos.trial import Defect, Trial
from harness.tests.chaos.verdicts import Said, said, wrong, wrong_code, wrong_so_far, wrong_words
from harness.tests.needs import needed
from harness.tests.store.samples import INFO, broken, put_case

CASE = CaseId("ext4", "ordered", "append-fsync")
STATES = 8


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Finished run directories, made without guests."""
    root = tmp_path_factory.mktemp("reference")
    specimens = [_specimen(root, "mixed", broken(), 1), _specimen(root, "green", Judgement(), 0)]
    specimens.append(_specimen(root, "open", Judgement(unknown=("guest lost",)), 3))
    return Reference({s.name: s for s in specimens}, (), root / "expected", guests=False)


def _specimen(root: Path, name: str, last: Judgement, code: int) -> Specimen:
    with RunStore.create(root, name, INFO) as store:
        info = CaseInfo(CASE, generated=STATES, distinct=STATES, log_hash="log")
        put_case(store, info, *[Judgement()] * (STATES - 1), last)
        store.finish()
        path = store.path
    return Specimen(name, path, said(path), said(path), code)


@pytest.fixture
def trials(tmp_path: Path) -> Iterator[Callable[..., Trial]]:
    """Makes trials, and removes their temporary folders."""
    with contextlib.ExitStack() as made:

        def make(attack: str, number: int = 0) -> Trial:
            return made.enter_context(Trial(attack, number, 7, tmp_path / f"{attack}-{number}"))

        yield make


def _kinds(trial: Trial) -> set[str]:
    return {d.kind for d in trial.defects}


# --- the verdict on verdicts -----------------------------------------------------------------

PASS, FAIL, XFAIL, UNKNOWN = CaseVerdict.PASS, CaseVerdict.FAIL, CaseVerdict.XFAIL, CaseVerdict.UNKNOWN


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (PASS, PASS, None),
        (PASS, UNKNOWN, None),
        (FAIL, UNKNOWN, None),
        (PASS, FAIL, "false red"),
        (UNKNOWN, FAIL, "false red"),
        (FAIL, PASS, "false green"),
        (FAIL, XFAIL, "false green"),
        (XFAIL, PASS, "false green"),
        (UNKNOWN, PASS, "false green"),
        (FAIL, CaseVerdict.NOT_RUN, "false green"),
        (FAIL, None, "false green"),
    ],
)
def test_a_verdict_of_another_colour_is_told(
    before: CaseVerdict, after: CaseVerdict | None, kind: str | None
) -> None:
    truth = Said({"a": before}, {"a": "log"}, {"a": {}})
    now = Said({"a": after}, {"a": "log"}, {"a": {}}) if after else Said({}, {}, {})
    assert [d.kind for d in wrong(truth, now)] == ([kind] if kind else [])


def test_a_state_that_changed_under_the_same_verdict_is_told() -> None:
    none: frozenset[tuple[str, str]] = frozenset()
    truth = Said({"a": FAIL}, {"a": "log"}, {"a": {"@1": ("pass", none), "@2": ("fail", none)}})
    now = Said({"a": FAIL}, {"a": "log"}, {"a": {"@1": ("fail", none)}})
    (defect,) = wrong(truth, now)
    assert defect.kind == "changed states"
    assert "2 states differ, e.g. @1: fail, was pass" in defect.what
    assert not wrong(truth, dataclasses.replace(now, logs={"a": "another recording"}))


def test_a_check_that_was_killed_claims_nothing_beside_what_fails() -> None:
    """An fsck was killed; the state failed by what the kernel said, and was told as changed."""
    both, one = frozenset({("fsck", "x"), ("mountable", "y")}), frozenset({("mountable", "y")})
    truth = Said({"a": FAIL}, {"a": "log"}, {"a": {"@1": ("fail", both)}})
    now = Said({"a": FAIL}, {"a": "log"}, {"a": {"@1": ("fail", one)}})
    for ask in (wrong, wrong_so_far):
        assert [d.kind for d in ask(truth, now)] == ["changed states"]
        killed = dataclasses.replace(now, in_part={"a": frozenset({"@1"})})
        assert not ask(truth, killed)
        other = {"a": {"@1": ("fail", frozenset({("stale", "z")}))}}
        assert [d.kind for d in ask(truth, dataclasses.replace(killed, states=other))] == ["changed states"]


def test_coverage_that_a_resume_claims_and_did_not_have_is_told() -> None:
    """How many guests it took may differ; how much was looked at may not."""
    states: dict[str, dict[str, verdicts.State]] = {"a": {}}
    cut, all_of_it = Coverage(33, 1, 10, 80, "the budget"), Coverage(33, None, 0, 95)
    truth = Said({"a": PASS}, {"a": "log"}, states, {"a": cut})
    (defect,) = wrong(truth, dataclasses.replace(truth, coverage={"a": all_of_it}))
    assert defect.kind == "changed coverage"
    assert [d.kind for d in wrong(truth, dataclasses.replace(truth, coverage={}))] == ["changed coverage"]
    more_guests = dataclasses.replace(cut, visits=99)
    assert not wrong(truth, dataclasses.replace(truth, coverage={"a": more_guests}))


@pytest.mark.parametrize(("after", "kind"), [("pass", "false green"), ("unknown", None), ("fail", None)])
def test_a_state_that_passed_before_the_run_was_cut_off_is_told(after: str, kind: str | None) -> None:
    none: frozenset[tuple[str, str]] = frozenset()
    truth = Said({"a": FAIL}, {"a": "log"}, {"a": {"@t1": ("fail", none), "@t2": ("pass", none)}})
    now = Said({"a": UNKNOWN}, {"a": "log"}, {"a": {"@t1": (after, none)}})
    assert [d.kind for d in wrong_so_far(truth, now)] == ([kind] if kind else [])
    assert not wrong_so_far(truth, dataclasses.replace(now, logs={"a": "another recording"}))


@pytest.mark.parametrize(
    ("truth", "code", "kind"),
    [
        (0, 0, None),
        (0, 3, None),
        (1, 2, None),
        (1, 3, None),
        (1, 0, "false green"),
        (3, 0, "false green"),
        (0, 1, "false red"),
        (1, 4, "exit code"),
        (0, -11, "exit code"),
    ],
)
def test_an_exit_code_of_another_colour_is_told(truth: int, code: int, kind: str | None) -> None:
    found = wrong_code(truth, code)
    assert (found.kind if found else None) == kind


def test_a_traceback_is_told_by_its_last_line() -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    x\nValueError: no\n'
    found = wrong_words(text)
    assert found is not None
    assert found.what == 'ValueError: no (File "a.py", line 3, in f)'
    assert wrong_words("powercut: run.json is damaged\n  next: run it again\n") is None
    assert wrong_words("thread 'main' panicked at src/x.rs:3") is not None


# --- planted defects -------------------------------------------------------------------------


def _read_as(monkeypatch: pytest.MonkeyPatch, verdict: CaseVerdict) -> None:
    """A store that ignores its damage: every case gets this verdict."""

    def lies(store: RunStore) -> Summary:
        summary = summarise(store)
        monkeypatch.setattr(type(summary.cases[0]), "verdict", verdict)
        return summary

    monkeypatch.setattr(verdicts, "summarise", lies)


@pytest.mark.parametrize(("verdict", "kind"), [(PASS, "false green"), (FAIL, "false red")])
def test_a_store_that_lies_about_a_flipped_byte_is_found(
    reference: Reference,
    trials: Callable[..., Trial],
    monkeypatch: pytest.MonkeyPatch,
    verdict: CaseVerdict,
    kind: str,
) -> None:
    _read_as(monkeypatch, verdict)
    told: set[str] = set()
    for number in range(6):
        trial = trials("flip", number)
        run_flips(trial, reference, count=10)
        told |= _kinds(trial)
    assert kind in told


def test_a_reader_that_falls_over_is_found(
    reference: Reference, trials: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    def falls(store: RunStore) -> Summary:
        raise IndexError("planted")

    monkeypatch.setattr(verdicts, "summarise", falls)
    trial = trials("flip")
    run_flips(trial, reference, count=5)
    assert "traceback" in _kinds(trial)


def test_a_command_that_lies_about_damage_is_found(
    reference: Reference, trials: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`report` itself is checked, not only the store below it: here its refusals exit with 0."""
    monkeypatch.setattr(StoreError, "exit_code", ExitCode.CONSISTENT)
    told: set[str] = set()
    for number in range(60):
        trial = trials("damage", number)
        run_damage(trial, reference)
        told |= {d.kind for d in trial.defects if d.what.startswith("report")}
        if "false green" in told:
            return
    pytest.fail(f"only {told}")


def test_a_worker_that_falls_over_a_frame_is_found(
    reference: Reference, trials: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    with needed():
        find_binary()

    def falls(*given: object) -> object:
        raise OverflowError("planted")

    monkeypatch.setattr(frames, "_history_of", lambda reference: History((), ()))
    monkeypatch.setattr(frames, "FRAMES", 30)
    monkeypatch.setattr(Guest, "request", falls)
    trial = trials("frames")
    frames.run_frames(trial, reference)
    assert any("OverflowError: planted" in d.what for d in trial.defects), trial.defects


def test_foreign_directories_are_only_read(reference: Reference, trials: Callable[..., Trial]) -> None:
    trial = trials("foreign")
    foreign.run_foreign(trial, reference)
    assert trial.defects == []
    assert trial.figures["foreign directories"] == foreign.DIRECTORIES


def test_a_command_that_opens_what_a_foreign_directory_names_is_found(
    reference: Reference, trials: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here each plan is believed to be one of this installation."""
    monkeypatch.setattr("harness.trust.is_installed", lambda word: True)
    told: set[str] = set()
    for number in range(4):
        trial = trials("foreign", number)
        foreign.run_foreign(trial, reference)
        told |= _kinds(trial)
    assert "touched" in told


def test_what_is_left_behind_is_told_and_ended(
    trials: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = trials("kill")
    (trial.temporary / "powercut-disk-x1y2").mkdir()
    for name in ("apt.sig.vbzcUl", "apt.conf"):
        (trial.temporary / name).touch()
    (trial.directory / "runs" / "r" / "scratch").mkdir(parents=True)
    left = subprocess.Popen(["sleep", "600"], env={**os.environ, "TMPDIR": str(trial.temporary)})
    monkeypatch.setattr("harness.tests.chaos.command._GONE_S", 0.1)
    look_for_leftovers(trial)
    assert left.wait() < 0
    told = " ".join(d.what for d in trial.defects)
    assert "1 processes sleep" in told
    assert "powercut-disk" in told
    assert "apt.conf" in told
    assert "apt.sig" not in told, "apt's own, where it was killed"
    assert "runs/r/scratch" in told


def test_a_traceback_on_a_full_disk_is_told(trials: Callable[..., Trial]) -> None:
    trial = trials("full-disk")
    full_disk._check_end(trial, Ended(3, "Traceback (most recent call last):\nOSError: x\n", 1.0), 1)
    full_disk._check_end(trial, Ended(0, "", 1.0), 1)
    assert _kinds(trial) == {"traceback", "false green"}


# --- what is told ----------------------------------------------------------------------------


def test_the_same_choices_every_time(trials: Callable[..., Trial]) -> None:
    """A trial can be repeated by its name: seed, attack and number determine its random choices."""
    draws = [trials("damage", n).random.random() for n in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def test_damage_leaves_the_specimen_as_it_is(reference: Reference, trials: Callable[..., Trial]) -> None:
    before = {
        p: p.read_bytes() for s in reference.specimens.values() for p in s.path.rglob("*") if p.is_file()
    }
    for number in range(10):
        run_damage(trials("damage", number), reference)
    assert {p: p.read_bytes() for p in before} == before
    assert {p.name for p in before} >= {damage.DATABASE, "run.json"}


def test_figures_defects_and_how_to_repeat_them_are_told(trials: Callable[..., Trial]) -> None:
    trial = trials("kill", 3)
    trial.figures["SIGKILL guest"] = 5
    trial.figures["SIGKILL disk"] = 2
    trial.tell("false green", "ext4-nobarrier/append-fsync is pass,\n was fail")
    result = Result()
    result.add(trial, str(trial.directory))
    text = table(result, 7, 60)
    assert "7  SIGKILLs" in text
    assert "1  false green" in text
    assert "0  traceback" in text
    assert as_json(result, 7, 60)["defects"] == [
        {
            "trial": "kill/3",
            "kind": "false green",
            "what": "ext4-nobarrier/append-fsync is pass, was fail",
            "kept": str(trial.directory),
        }
    ]
    assert "--seed 7 --trial kill/3" in repeat_line(7, "kill/3", trial.directory)


def test_a_lane_that_ends_while_it_is_looked_at_is_no_defect(tmp_path: Path) -> None:
    """Chaos lost its whole result to a lane that ended between two looks at whether it was there."""

    class Ending:
        sentinel, exitcode, pid = os.open(os.devnull, os.O_RDONLY), 0, 0
        looks = iter([True, False, False])

        def is_alive(self) -> bool:
            return next(self.looks)

    lane = _Lane(Order(tmp_path, tmp_path, (), (), 1, 0), {}, Counter())
    lane._channel, _ = multiprocessing.Pipe()
    process: Any = Ending()
    lane.process = process
    lane.attend(Result(), print)
    lane.attend(Result(), print)
    assert lane.process is None


def test_a_reference_that_another_lane_closes_is_read(
    tmp_path: Path, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane began while another one's run closed the database, and ended with "No such file"."""
    green = reference.green
    names = ("mixed", "green", "exhaustive", "open", "mixed_wal")
    for name in names:
        shutil.copytree(green.path, tmp_path / name)
        (tmp_path / name / "powercut.sqlite-shm").write_bytes(b"")
    copyfile: Any = shutil.copyfile

    def closes_first(source: str, *rest: Any, **others: Any) -> Any:
        if os.fspath(source).endswith("-shm"):
            Path(source).unlink()
        return copyfile(source, *rest, **others)

    monkeypatch.setattr(shutil, "copyfile", closes_first)
    loaded = load_reference(tmp_path, ())
    assert loaded.green.truth.states == green.truth.states
    assert {p.name for p in tmp_path.iterdir()} == set(names)


def test_the_same_defect_counts_once() -> None:
    one, two = (f"ValueError: crash state '@{n}' at byte {n}0 [mixed: byte {n}]" for n in (5, 17))
    assert gist(one) == gist(two)
    assert gist(one) != gist("IndexError: 5")
    assert gist("a/b is pass, was fail") != gist("a/b is gone")
    assert Defect("a", one) != Defect("a", two)
