"""All cases from recording to verdict without guests: nothing left out, nothing counted that was not seen."""

from __future__ import annotations

import concurrent.futures as cf
import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from harness.cases.attempts import Unobserved
from harness.cases.casework import Casework, EnoughDone, _Work, status_of
from harness.cases.examine import Observation
from harness.cases.faulty_disk import FaultyDisk
from harness.cases.ledger import PlannedCase, breadth_first, line_up, next_in_turn
from harness.cases.pool import Pool, Worker
from harness.cases.recording import Recording, image_name
from harness.cases.recoveries import CutOnce
from harness.errors import (
    CannotRecord,
    FullDisk,
    GuestError,
    KernelError,
    NeverBoots,
    NotSupported,
    PowercutError,
    VersionsDiffer,
)
from harness.expectations import Expectation
from harness.filesystems.profiles import select_profiles
from harness.guests.disk import Explored, KnownOutcome
from harness.guests.session import Session
from harness.model import (
    CaseId,
    CrashState,
    FsckClass,
    FsckResult,
    History,
    HistoryStep,
    Judgement,
    Outcome,
    Verdict,
    Violation,
    Workload,
)
from harness.plan import Budget, Plan
from harness.report.words import Cell, covered_briefly
from harness.states import enumerate_states
from harness.store import RunStore
from harness.store.layout import RunLayout
from harness.store.records import CaseStatus, Coverage, How, JudgedState
from harness.summary import CaseVerdict, summarise
from harness.tests.said import Said
from harness.tests.store.samples import INFO
from harness.tests.there import there
from harness.workloads.load import parse_operation
from harness.writelog import MarkText, Step, Write, read_log, write_log

PASS, FAIL, UNKNOWN = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN
(PROFILE,) = select_profiles(["ext4/ordered"])
NO_BUDGET = Budget()
FSCK = FsckResult(FsckClass.CLEAN, 0, "fsck said so")


def case_of(workload: str) -> CaseId:
    return CaseId("ext4", "ordered", workload)


def violation(signature: str) -> Violation:
    return Violation("durability", "f", f"{signature} is lost", "f", "nothing", signature)


@dataclass
class Script:
    """What the guests would show. Of a state, by its prefix: what it holds, who is lost on it, and what the
    judge of a machine says. `mismatches_at`: the observation, counted from 1, at which the memo is given up.
    """

    entries: int = 4
    holds: Callable[[int], object] = lambda prefix: prefix
    lost: set[int] = field(default_factory=set)
    recalled: set[int] = field(default_factory=set)
    says: Callable[[int, str], tuple[str, ...]] = lambda prefix, machine: ()
    mismatches_at: int = 0
    refuses: dict[str, Exception] = field(default_factory=dict)
    differs: VersionsDiffer | None = None
    given_up: bool = False
    looks: list[tuple[str, int]] = field(default_factory=list)
    recorded: list[str] = field(default_factory=list)


class FakeSession:
    """A machine's name."""

    def __init__(self, script: Script, machine_name: str) -> None:
        self.script, self.machine_name = script, machine_name

    def refuse_if_given_up(self) -> None:
        if self.script.given_up:
            raise NeverBoots("3 guests in a row did not come up")

    def kill(self) -> None:
        """No guest to end."""

    close = stop = kill


class FakeMemo:
    """Knows what was learned, and from the start what the script says is recalled. A prefix has its own
    number.
    """

    def __init__(self, script: Script, mismatch: str) -> None:
        self.script, self.mismatch, self.recalls = script, mismatch, not mismatch
        self.learned = set(script.recalled)

    def hashes(self, states: Sequence[CrashState], target: object = None) -> list[str]:
        return [f"{self.script.holds(s.prefix)}" for s in states]

    def explore(
        self, crash_times: Sequence[CrashState], target: object = None, *, to_visit_max: int, **_: object
    ) -> list[Explored]:
        found = []
        for state in crash_times:
            if state.prefix in self.learned:
                found.append(Explored((), (KnownOutcome(state.prefix, state, False, 0),), 0))
            elif to_visit_max:
                to_visit_max -= 1
                found.append(Explored((state,), (), 0))
            else:
                found.append(Explored((), (), 0, waits=True))
        return found

    def outcome(self, number: int) -> Outcome:
        return Outcome(kernel_log=("uml",), fsck=FSCK)

    def close(self) -> None:
        """No disk process to end."""


class FakeExaminer:
    """Looks and judges as the script says."""

    doubt = ""

    def __init__(
        self, recording: Recording, script: Script, mismatch: str, on_mismatch: Callable[[str], None]
    ) -> None:
        self.recording, self.script, self.on_mismatch = recording, script, on_mismatch
        self.memo = FakeMemo(script, mismatch)
        self.cuts = CutOnce(lambda _: None)
        self.of_recording = Judgement()

    def close(self) -> None:
        self.memo.close()

    def share(self, answers: object) -> None:
        """Its answers are the script's."""

    def visit(self, session: FakeSession, states: Sequence[CrashState], stop: threading.Event) -> Observation:
        script, prefix = self.script, states[0].prefix
        self._looked(session.machine_name, prefix)
        if script.differs is not None:
            raise script.differs
        if prefix in script.lost:
            return Observation(Unobserved("the guest was lost"))
        return Observation(Outcome(kernel_log=(session.machine_name,), fsck=FSCK), number=prefix)

    def known(self, number: int, machine: str, states: Sequence[CrashState]) -> Observation:
        self._looked(machine, number)
        return Observation(self.memo.outcome(number), recalled=True, number=number)

    def _looked(self, machine: str, prefix: int) -> None:
        self.script.looks.append((machine, prefix))
        if len(self.script.looks) == self.script.mismatches_at:
            self.memo.recalls, self.memo.mismatch = False, "two outcomes"
            self.on_mismatch(self.memo.mismatch)

    def learn(self, state: CrashState, observation: Observation, expected: int | None) -> int | None:
        if observation.number is None or not self.memo.recalls:
            return None
        self.memo.learned.add(state.prefix)
        return state.prefix

    def judge(self, state: CrashState, observation: Observation) -> Judgement:
        if isinstance(observation.outcome, Unobserved):
            return Judgement(unknown=(observation.outcome.reason,))
        machine = observation.outcome.kernel_log[0] + ("" if not self.memo.mismatch else ", mismatched")
        return Judgement(tuple(map(violation, self.script.says(state.prefix, machine))))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore.create(tmp_path, "t", INFO) as made:
        yield made


Run = Callable[..., Said]


@pytest.fixture
def run(store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Work through cases of these workloads."""

    def fake_record(script: Script) -> Callable[..., Recording]:
        def record(_: object, profile: Any, workload: Workload, case: CaseId, *__: object) -> Recording:
            script.recorded.append(workload.name)
            if workload.name in script.refuses:
                raise script.refuses[workload.name]
            log = tmp_path / f"{workload.name}.log"
            write_log(log, [MarkText(f"{n}") for n in range(script.entries)])
            history = History((HistoryStep(0, parse_operation("sync"), 0, 1),))
            return Recording(case, profile, workload, tmp_path / "base", log, read_log(log), history)

        return record

    def work(
        script: Script,
        *names: str,
        confirms: bool = False,
        jobs: int = 1,
        lacking: dict[str, str] | None = None,
        stopped: bool = False,
        recordings: str | None = None,
        chunk: int = 32,
        minutes: float | None = None,
        max_failures: int | None = None,
        budget: Budget = NO_BUDGET,
    ) -> Said:
        progress = Said()

        def examiner(_: Plan, recording: Recording, **given: Any) -> FakeExaminer:
            return FakeExaminer(recording, script, given["mismatch"], given["on_mismatch"])

        monkeypatch.setattr("harness.cases.exploration.WINDOW", chunk)
        monkeypatch.setattr("harness.cases.casework.take_parts", fake_record(script))
        monkeypatch.setattr("harness.cases.casework.keep_taken", lambda made, *_: made)
        monkeypatch.setattr("harness.cases.casework.examiner_for", examiner)
        workloads = [Workload(name, "", (parse_operation("sync"),)) for name in names or ("w",)]
        plan = Plan(
            configurations=["ext4/ordered"],
            workloads=[w.name for w in workloads],
            jobs=jobs,
            recordings=recordings,
            minutes=minutes,
            max_failures=max_failures,
            budget=budget,
        )
        bases = {PROFILE.name: tmp_path / "base"}
        judge = cast(Session, cast(Any, FakeSession(script, "uml")))
        recorder = cast(Session, cast(Any, FakeSession(script, "qemu")))
        pool = Pool(lambda number: Worker(recorder, judge), jobs, confirms=confirms)
        if stopped:
            pool.stop.set()
        try:
            Casework(plan, store, progress, tmp_path, bases).work(
                pool, [(PROFILE, w) for w in workloads], lacking or {}
            )
        finally:
            pool.close()
        return progress

    return work


def verdicts(store: RunStore, workload: str = "w") -> dict[str, tuple[Verdict, How]]:
    return {str(v.state): (v.verdict, v.how) for v in store.iter_verdicts(case_of(workload))}


def status(store: RunStore, workload: str = "w") -> tuple[CaseStatus, str]:
    record = there(store.case(case_of(workload)))
    return record.status, record.reason


def test_every_state_has_a_verdict_and_every_content_is_looked_at_once(
    store: RunStore, run: Run, tmp_path: Path
) -> None:
    script = Script(holds=lambda prefix: min(prefix, 2), recalled={1})
    progress = run(script)
    assert sorted(script.looks) == [("uml", 0), ("uml", 1), ("uml", 2)]
    assert verdicts(store) == {
        "@0": (PASS, How.JUDGED),
        "@1": (PASS, How.MEMO),
        "@2": (PASS, How.JUDGED),
        "@3": (PASS, How.SAME_CONTENT),
        "@4": (PASS, How.SAME_CONTENT),
    }
    assert status(store) == (CaseStatus.DONE, "")
    record = there(store.case(case_of("w")))
    assert (record.info.generated, record.info.distinct) == (5, 3)
    assert progress.left == {"recorded": 0, "states": 0}
    assert not (tmp_path / "w.log").exists(), "logs do not pile up"


@pytest.mark.parametrize("refuses", [{}, {"w": CannotRecord("no crash state will do")}])
def test_base_images_that_are_a_cases_own_do_not_pile_up(
    run: Run, tmp_path: Path, refuses: dict[str, Exception]
) -> None:
    """Each case with a larger image, or with a crash in it, left a whole disk until the end of the run, which
    had asked for the room of one.
    """
    own = [tmp_path / image_name(PROFILE, of) for of in ("w", "w.second")]
    own.append(own[0].with_suffix(".part"))
    others = [tmp_path / image_name(PROFILE, of) for of in ("", "v")]
    for image in (*own, *others):
        image.write_bytes(b"a disk")
    run(Script(refuses=refuses))
    assert not [image for image in own if image.exists()]
    assert all(image.exists() for image in others)


def test_an_own_base_image_that_nothing_was_recorded_on_is_made_anew(
    store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a workload with a crash it may be what the crash left: the part before the crash, recorded once more
    in a run that went on, began on that.
    """
    kept = store.layout.case(case_of("w"))
    kept = replace(kept, base=kept.own_base)
    kept.base.parent.mkdir(parents=True)
    kept.base.write_bytes(b"what the crash left")
    monkeypatch.setattr("harness.cases.casework.make_base", lambda _, at, *__: at.exists())
    made = Casework(Plan(configurations=[], workloads=[]), store, Said(), tmp_path, {})
    assert not made._own_base(cast(Any, None), PROFILE, Workload("w", "", ()), kept)


def test_a_doubt_about_the_check_is_kept_with_the_case(
    store: RunStore, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeExaminer, "doubt", "it says yes to nothing")
    run(Script())
    record = there(store.case(case_of("w")))
    assert record.info.doubt == "it says yes to nothing"
    assert (record.info.generated, status(store)) == (5, (CaseStatus.DONE, ""))
    assert store.timeline(record.case), "the log is as it was stored"


def test_states_of_one_content_are_judged_each(store: RunStore, run: Run) -> None:
    run(Script(holds=lambda _: "same", says=lambda prefix, _: ("x",) if prefix == 3 else ()))
    assert {s: v for s, (v, _) in verdicts(store).items() if v is not PASS} == {"@3": FAIL}


def test_more_contents_than_one_task_takes_are_all_looked_at(store: RunStore, run: Run) -> None:
    script = Script(entries=100)
    run(script, jobs=2)
    assert sorted(prefix for _, prefix in script.looks) == list(range(101))
    assert len(verdicts(store)) == 101
    assert status(store)[0] is CaseStatus.DONE


def test_nothing_is_recorded_once_no_guest_that_judges_comes_up(store: RunStore, run: Run) -> None:
    """Every further case was recorded in vain: none of its states could be looked at."""
    script = Script(given_up=True)
    run(script, "v", "w")
    assert script.recorded == []
    for workload in ("v", "w"):
        assert status(store, workload) == (CaseStatus.UNKNOWN, "3 guests in a row did not come up")


def test_what_could_not_be_looked_at_is_unknown_and_looked_at_by_the_next_run(
    store: RunStore, run: Run
) -> None:
    run(Script(lost={2}))
    assert {s for s, (v, _) in verdicts(store).items() if v is UNKNOWN} == {"@2"}
    again = Script(says=lambda prefix, _: ("x",))
    progress = run(again)
    assert again.looks == [("uml", 2)], "what was decided stays"
    assert verdicts(store)["@2"][0] is FAIL
    assert progress.left["states"] == 0


def test_of_one_content_with_an_open_state_all_is_looked_at_again(store: RunStore, run: Run) -> None:
    run(Script(holds=lambda _: "same", lost={0}))
    again = Script(holds=lambda _: "same")
    run(again)
    assert again.looks == [("uml", 0)]
    assert {v for v, _ in verdicts(store).values()} == {PASS}


def test_another_recording_drops_no_verdict_and_makes_the_case_unknown(store: RunStore, run: Run) -> None:
    """A changed log dropped the verdicts that were kept, without a word."""
    run(Script(says=lambda prefix, _: ("x",) if prefix == 2 else ()))
    before = verdicts(store)
    again = Script(entries=5)
    run(again)
    assert not again.looks
    assert verdicts(store) == before
    assert status(store)[0] is CaseStatus.UNKNOWN
    assert "judged on another recording" in status(store)[1]


def test_a_case_whose_recording_stayed_on_a_worker_is_left_as_it_is(store: RunStore, run: Run) -> None:
    """Resumed, it would be recorded anew, differ, and lose its verdict to UNKNOWN."""
    run(Script())
    record = there(store.case(case_of("w")))
    store.add_case(replace(record.info, left_at="worker-3"))
    before, again = store.rows_of(case_of("w")), Script()
    run(again, "w", "v")
    assert again.recorded == ["v"]
    assert store.rows_of(case_of("w")) == before
    assert status(store, "v")[0] is CaseStatus.DONE


def test_evidence_is_that_of_the_smallest_state(store: RunStore, run: Run) -> None:
    run(Script(says=lambda prefix, _: {2: ("x", "y"), 3: ("x", "z")}.get(prefix, ())))
    found = {f.signature: f for f in store.findings()}
    assert {s: str(f.state) for s, f in found.items()} == {"x": "@2", "y": "@2", "z": "@3"}
    for finding in found.values():
        evidence = there(store.evidence(finding))
        assert (evidence.state, evidence.kernel_log, evidence.fsck) == (finding.state, "uml", "fsck said so")
        assert "confirmed" not in evidence.notes


def test_a_smaller_state_that_is_looked_at_later_gives_the_evidence(store: RunStore, run: Run) -> None:
    """@3 stands in the group of @0, which comes before @1; @4 after it."""
    run(Script(holds=lambda p: {3: 0}.get(p, p), says=lambda p, _: ("x",) if p in (1, 3, 4) else ()))
    (finding,) = store.findings()
    evidence = there(store.evidence(finding))
    assert (str(finding.state), str(evidence.state)) == ("@1", "@1")


def test_the_log_is_there_until_all_findings_are_confirmed(store: RunStore, run: Run, tmp_path: Path) -> None:
    there: list[bool] = []

    def says(prefix: int, machine: str) -> tuple[str, ...]:
        there.append((tmp_path / "w.log").exists())
        return ("x", "y") if prefix == 2 else ()

    run(Script(says=says), confirms=True)
    assert all(there)
    assert len(there) == 5 + 1, "one visit confirms both"
    assert not (tmp_path / "w.log").exists()


def test_a_finding_is_looked_at_again_on_the_machine_that_people_run(store: RunStore, run: Run) -> None:
    says: dict[tuple[int, str], tuple[str, ...]] = {(2, "uml"): ("x", "y", "z"), (2, "qemu"): ("x",)}
    script = Script(says=lambda prefix, machine: says.get((prefix, machine), ()))
    run(script, confirms=True)
    kept = {f.signature: e for f in store.findings() if (e := store.evidence(f))}
    assert {e.kernel_log for e in kept.values()} == {"uml"}, "what was seen first stays"
    told = {signature: e.notes["confirmed"] for signature, e in kept.items()}
    assert told == {"x": "qemu: yes", "y": "qemu: no: fail there", "z": "qemu: no: fail there"}
    assert [observation for observation in script.looks if observation[0] == "qemu"] == [("qemu", 2)]
    assert status(store)[0] is CaseStatus.DONE
    assert verdicts(store)["@2"][0] is FAIL, "one machine's no takes nothing back"


def test_a_finding_of_an_earlier_part_of_the_run_is_confirmed_in_its_own_case(
    store: RunStore, run: Run
) -> None:
    broken = Script(says=lambda prefix, _: ("x",) if prefix == 2 else ())
    run(broken, "w")
    again = Script(says=broken.says)
    run(again, "w", confirms=True)
    assert again.looks == [("qemu", 2)]
    whole = Script()
    run(whole, "a", confirms=True)
    assert {machine for machine, _ in whole.looks} == {"uml"}
    (finding,) = store.findings()
    evidence = there(store.evidence(finding))
    assert (finding.case, evidence.notes["confirmed"]) == (case_of("w"), "qemu: yes")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_recording_that_is_kept_is_loaded_and_not_made(
    store: RunStore, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    copied: list[tuple[CaseId, Path]] = []

    def keep() -> None:
        kept = store.layout.case(case_of("w"))
        kept.folder.mkdir(parents=True)
        kept.history.touch()

    def copy(case: CaseId, source: RunLayout, own: RunLayout) -> None:
        assert own == store.layout
        copied.append((case, source.path))
        keep()

    def load(
        case: CaseId, profile: Any, workload: Workload, own: RunLayout, scratch: Path, *_: object
    ) -> Recording:
        assert own == store.layout
        write_log(scratch / "w.log", [MarkText("0")])
        return Recording(
            case, profile, workload, scratch, scratch / "w.log", read_log(scratch / "w.log"), History(())
        )

    monkeypatch.setattr("harness.cases.casework.copy_recording", copy)
    monkeypatch.setattr("harness.cases.casework.load_recording", load)
    if not elsewhere:
        keep()
    script = Script()
    progress = run(script, "w", recordings=str(tmp_path / "other") if elsewhere else None)
    assert (script.recorded, len(script.looks)) == ([], 2)
    assert ("recorded" in progress.left) is elsewhere, "an earlier part did that"
    assert copied == ([(case_of("w"), tmp_path / "other")] if elsewhere else [])
    run(script, "w", recordings=str(tmp_path / "other"))
    assert len(copied) == elsewhere, "once it is there it stays"


def test_what_a_memo_in_doubt_answered_is_looked_at_again_and_the_case_is_unknown(
    store: RunStore, run: Run
) -> None:
    script = Script(
        recalled={1, 2},
        mismatches_at=4,
        says=lambda prefix, machine: ("x",) if (prefix, machine) == (2, "uml, mismatched") else (),
    )
    progress = run(script)
    assert [prefix for _, prefix in script.looks] == [1, 2, 0, 3, 4, 1, 2]
    assert verdicts(store)["@1"] == (PASS, How.JUDGED)
    assert verdicts(store)["@2"] == (FAIL, How.JUDGED)
    assert status(store) == (CaseStatus.UNKNOWN, "two outcomes")
    assert progress.left["states"] == 0
    assert "visiting again" in progress.lines[0]


def test_answers_of_a_memo_in_doubt_that_are_not_stored_yet_are_not_stored(
    store: RunStore, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were recalled before the mismatch, in the same task as the look that found it."""
    stored: list[tuple[str, How]] = []
    put = store.put_judgements

    def note(case: CaseId, judged: Sequence[JudgedState]) -> None:
        stored.extend((str(j.state), j.how) for j in judged)
        put(case, judged)

    monkeypatch.setattr(store, "put_judgements", note)
    run(Script(recalled={1, 2}, mismatches_at=4))
    assert stored == [(f"@{n}", How.JUDGED) for n in (0, 3, 4, 1, 2)]


def test_what_only_a_memo_in_doubt_found_is_taken_back(store: RunStore, run: Run) -> None:
    """A finding of a recalled state, which a guest then does not show, is none, and nobody confirms it."""
    says: dict[tuple[int, str], tuple[str, ...]] = {(1, "uml"): ("x",), (0, "uml"): ("y",)}
    script = Script(
        recalled={1}, mismatches_at=3, says=lambda prefix, machine: says.get((prefix, machine), ())
    )
    run(script, confirms=True, chunk=1)
    assert [f.signature for f in store.findings()] == ["y"]
    assert [observation for observation in script.looks if observation[0] == "qemu"] == [("qemu", 0)]


def test_doubt_is_stored_before_the_look_that_found_it_returns(store: RunStore, run: Run) -> None:
    script = Script(recalled={1}, mismatches_at=3)
    known: list[tuple[int, str]] = []

    def says(prefix: int, machine: str) -> tuple[str, ...]:
        record = store.case(case_of("w"))
        known.append((prefix, record.mismatch if record else ""))
        return ()

    script.says = says
    run(script)
    assert known[:4] == [(1, ""), (0, ""), (2, "two outcomes"), (3, "two outcomes")]


def test_a_case_that_a_mismatch_left_undecided_was_covered(store: RunStore, run: Run) -> None:
    """`not ended: how far is not known` was told of it, though all of it had been visited."""
    run(Script(entries=6, recalled={3}, mismatches_at=4))
    (case,) = summarise(store).cases
    assert (case.status, case.reason) == (CaseStatus.UNKNOWN, "two outcomes")
    assert case.has_extent
    assert not replace(case, reason="the guest never boots").has_extent
    assert not replace(case, status=CaseStatus.RECORDED, reason="").has_extent


def test_a_case_in_doubt_stays_unknown_when_the_run_is_resumed(store: RunStore, run: Run) -> None:
    """The mismatch was in memory only: the resumed run found every state decided and called the case done."""
    run(Script(recalled={1, 2}, mismatches_at=4))
    again = Script(recalled={1, 2})
    run(again)
    assert status(store) == (CaseStatus.UNKNOWN, "two outcomes")
    assert again.looks == [], "all was looked at after the doubt"


def test_doubt_that_a_confirmation_raises_takes_back_what_the_memo_answered(
    store: RunStore, run: Run
) -> None:
    script = Script(recalled={1}, mismatches_at=6, says=lambda prefix, _: ("x",) if prefix == 2 else ())
    run(script, confirms=True)
    assert script.looks[5:] == [("qemu", 2), ("uml", 1)]
    assert verdicts(store)["@1"] == (PASS, How.JUDGED)
    assert status(store) == (CaseStatus.UNKNOWN, "two outcomes")


def test_doubt_in_a_resumed_run_takes_back_what_the_memo_answered_before(store: RunStore, run: Run) -> None:
    run(Script(recalled={1}, lost={3}))
    assert (status(store)[0], verdicts(store)["@1"]) == (CaseStatus.DONE, (PASS, How.MEMO))
    again = Script(recalled={1}, mismatches_at=2)
    run(again)
    assert again.looks == [("uml", 1), ("uml", 3), ("uml", 1)]
    assert verdicts(store)["@1"] == (PASS, How.JUDGED)
    assert status(store)[0] is CaseStatus.UNKNOWN


class Killed(BaseException):
    """The orchestrator was killed here."""


WRITES = (
    "add_case",
    "set_case_status",
    "set_case_mismatch",
    "add_case_seconds",
    "put_judgements",
    "put_evidence",
)


def killed_at(store: RunStore, write: int, after: bool, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From its `write`-th write on the store does no more: the first such dies before, or `after`, it is
    done. Answers with the names of the writes that were tried.
    """
    tried: list[str] = []

    def wrap(name: str, real: Callable[..., object]) -> Callable[..., None]:
        def wrapped(*args: object) -> None:
            tried.append(name)
            if len(tried) > write or (len(tried) == write and not after):
                raise Killed
            real(*args)
            if len(tried) == write:
                raise Killed

        return wrapped

    for name in WRITES:
        monkeypatch.setattr(store, name, wrap(name, getattr(store, name)))
    return tried


@pytest.mark.parametrize("after", [False, True], ids=["before it is done", "after it is done"])
@pytest.mark.parametrize("mismatches_at", [3, 6, 8], ids=["same task", "later task", "confirmation"])
def test_nothing_that_a_memo_in_doubt_answered_is_taken_for_seen_wherever_the_run_is_killed(
    store: RunStore, run: Run, after: bool, mismatches_at: int
) -> None:
    """Killed at every write to the store in turn, then resumed by one whose memo never mismatches. A kill
    between the mismatch and the second look made PASS of what no guest had shown.
    """
    good = functools.partial(Script, entries=6, recalled={1, 4}, says=lambda p, _: ("x",) if p == 2 else ())
    told = set[str]()
    for write in range(1, 100):
        name, script = f"w{write}", good(mismatches_at=mismatches_at)
        with pytest.MonkeyPatch.context() as patch:
            tried = killed_at(store, write, after, patch)
            with contextlib.suppress(Killed):
                run(script, name, confirms=True, chunk=3)
        if len(tried) < write:
            break
        told.add(tried[write - 1])
        before = store.case(case_of(name))
        mismatch = before.mismatch if before else ""
        seen_before = {p for _, p in script.looks[mismatches_at - 1 :]}
        recalled_before = {} if before is None else verdicts(store, name)
        again = good()
        run(again, name, confirms=True, chunk=3)
        assert status(store, name)[0] is (CaseStatus.UNKNOWN if mismatch else CaseStatus.DONE), write
        seen = {p for _, p in again.looks}
        for prefix in (1, 4):
            verdict, how = verdicts(store, name)[f"@{prefix}"]
            if mismatch:
                assert (how, prefix in seen | seen_before) == (How.JUDGED, True), write
            elif recalled_before.get(f"@{prefix}", (None, None))[1] is How.MEMO:
                final = before is not None and before.status is CaseStatus.DONE
                assert final or prefix in seen, write
            assert verdict is PASS
    assert told == set(WRITES)


def test_guests_of_another_version_end_the_run(store: RunStore, run: Run) -> None:
    """An agent that had not been built anew made every case UNKNOWN, one after the other."""
    script = Script(refuses={"a": VersionsDiffer("the agent speaks protocol 2, the harness 4")})
    with pytest.raises(VersionsDiffer):
        run(script, "a", "b", "c", "d", jobs=1)
    assert script.recorded[0] == "a"
    assert "c" not in script.recorded
    assert status(store, "a")[0] is CaseStatus.PLANNED, "a resumed run records it"


def test_so_do_those_that_a_recovery_meets(store: RunStore, run: Run) -> None:
    """Of kept recordings nothing is recorded: each state was UNKNOWN, one after the other."""
    script = Script(differs=VersionsDiffer("the disk does not speak protocol 4"))
    with pytest.raises(VersionsDiffer):
        run(script, "a", jobs=1)
    assert len(script.looks) == 1
    assert status(store, "a")[0] is not CaseStatus.DONE


@pytest.mark.parametrize("error", [ValueError("no such kind"), OverflowError("too large")], ids=str)
def test_an_error_that_nobody_foresaw_in_recording_costs_its_case_only(
    store: RunStore, run: Run, error: Exception
) -> None:
    """The exception ended the run."""
    run(Script(refuses={"a": error}), "a", "b")
    found, reason = status(store, "a")
    assert found is CaseStatus.UNKNOWN
    assert reason.startswith(f"unforeseen {type(error).__name__} at test_casework.py:")
    assert status(store, "b")[0] is CaseStatus.DONE


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (NotSupported("no O_TMPFILE here"), CaseStatus.NOT_SUPPORTED),
        (CannotRecord("on a stack, no workload with a crash is recorded"), CaseStatus.NOT_RECORDED),
        (GuestError("the guest says no"), CaseStatus.UNKNOWN),
        (KernelError("no such kernel"), CaseStatus.UNKNOWN),
    ],
    ids=str,
)
def test_a_case_that_cannot_be_recorded_says_why_and_stops_nobody(
    store: RunStore, run: Run, error: PowercutError, expected: CaseStatus
) -> None:
    script = Script(refuses={"a": error})
    progress = run(script, "a", "b")
    assert status(store, "a") == (expected, str(error))
    assert verdicts(store, "a") == {}
    assert status(store, "b")[0] is CaseStatus.DONE
    assert progress.left == {"recorded": 0, "states": 0}


def test_a_full_disk_that_somebody_has_is_no_defect() -> None:
    """On a disk that mkfs has just made it may be one: the case stays undecided."""
    (existing,) = select_profiles(["ext4/ordered@image"])
    full = FullDisk("write f: ENOSPC (28)")
    assert status_of(full, existing) is CaseStatus.NOT_SUPPORTED
    assert status_of(full, PROFILE) is CaseStatus.UNKNOWN
    assert status_of(GuestError("write f: EIO (5)"), existing) is CaseStatus.UNKNOWN


@pytest.mark.parametrize("name", ["b", PROFILE.name])
def test_what_is_lacking_here_is_not_run(store: RunStore, run: Run, name: str) -> None:
    script = Script()
    run(script, "a", "b", lacking={name: "no such program"})
    assert status(store, "b") == (CaseStatus.NOT_RUN, "no such program")
    assert script.recorded == (["a"] if name == "b" else [])


def test_every_case_is_worked_on_however_few_the_workers(store: RunStore, run: Run) -> None:
    names = ["a", "b", "c", "d", "e"]
    for jobs in (1, 2):
        script = Script()
        run(script, *names, jobs=jobs)
        assert sorted(script.recorded) == names
    assert {status(store, name)[0] for name in names} == {CaseStatus.DONE}


def test_a_case_takes_the_time_of_all_its_tasks_in_all_parts_of_the_run(
    store: RunStore, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers added to one number concurrently, and lost updates."""
    first, second = Script(lost={2}), Script()
    looks = SimpleNamespace(monotonic=lambda: float(len(first.looks) + len(second.looks)))
    monkeypatch.setattr("harness.cases.casework.time", looks)  # a second each
    run(first)
    assert there(store.case(case_of("w"))).seconds == len(first.looks) > 0
    run(second)
    assert second.looks
    assert there(store.case(case_of("w"))).seconds == len(first.looks) + len(second.looks)


def test_a_case_has_the_time_of_what_is_stored_when_the_run_is_killed(
    store: RunStore, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its states stayed, and their time was gone: the resumed run was too fast."""
    script = Script()
    looks = SimpleNamespace(monotonic=lambda: float(len(script.looks)))
    monkeypatch.setattr("harness.cases.casework.time", looks)

    def killed(*_: object) -> NoReturn:
        raise Killed

    monkeypatch.setattr(store, "forget_states", killed)  # as the case is finished
    with pytest.raises(Killed):
        run(script)
    assert there(store.case(case_of("w"))).seconds == len(script.looks) > 0


def test_a_case_that_was_stopped_is_not_done(store: RunStore, run: Run) -> None:
    script = Script()
    run(script, stopped=True)
    assert script.looks == []
    assert status(store)[0] is CaseStatus.RECORDED


def test_states_of_several_fault_models_come_once_each(tmp_path: Path) -> None:
    steps: list[Step] = [Write(0, b"1" * 4096), Write(8, b"2" * 4096)]
    write_log(tmp_path / "log", steps)
    log = read_log(tmp_path / "log")
    recording = Recording(case_of("w"), PROFILE, cast(Any, None), tmp_path, tmp_path, log, History(()))
    states = enumerate_states(["prefix", "drop", "torn", "prefix"], recording.write_log)
    assert len(states) == len(set(states)) == 3 + 1 + 14
    assert [str(s) for s in states[:4]] == ["@0", "@1", "@2", "@2-0"]


# --- limits ----------------------------------------------------------------------------------


def test_the_run_stops_once_as_many_cases_have_failed_as_it_allows(store: RunStore, run: Run) -> None:
    script = Script(says=lambda prefix, _: ("x",) if prefix == 3 else ())
    with pytest.raises(EnoughDone, match="2 cases failed"):
        run(script, "a", "b", "c", "d", max_failures=2)
    assert script.recorded[:2] == ["a", "b"]
    assert "d" not in script.recorded
    assert status(store, "d")[0] is CaseStatus.PLANNED


def test_a_failure_that_somebody_expects_stops_nothing(store: RunStore, run: Run) -> None:
    store.set_expectations([Expectation("ext4/ordered", "*", "*", "known")])
    script = Script(says=lambda prefix, _: ("x",) if prefix == 3 else ())
    run(script, "a", "b", max_failures=1)
    assert script.recorded == ["a", "b"]


def test_the_last_failure_of_all_is_no_reason_to_call_the_run_incomplete(store: RunStore, run: Run) -> None:
    run(Script(says=lambda prefix, _: ("x",) if prefix == 3 else ()), max_failures=1)
    assert status(store) == (CaseStatus.DONE, "")


def test_a_run_tells_that_it_goes_on_where_nothing_comes_for_long(
    store: RunStore, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first guest booted nothing was said, for a quarter of a minute where it was emulated."""
    told = threading.Event()
    monkeypatch.setattr("harness.cases.casework.WAIT_S", 0.001)
    monkeypatch.setattr(Said, "advance", lambda _, __, count: None if count else told.set())
    run(Script(says=lambda *_: () if told.wait(10) else ("nothing was told",)))
    assert status(store) == (CaseStatus.DONE, "")
    assert store.findings() == ()


def test_the_run_stops_when_its_time_is_up(store: RunStore, run: Run) -> None:
    script = Script()
    with pytest.raises(EnoughDone, match="the time given is up"):
        run(script, "a", "b", "c", minutes=1e-9)
    assert status(store, "c")[0] is CaseStatus.PLANNED


# --- a budget for the states of the log's own order ---


def coverage(store: RunStore) -> Coverage | None:
    record = there(store.case(case_of("w")))
    return record.info.coverage


def test_what_a_budget_leaves_out_is_counted_and_said(store: RunStore, run: Run) -> None:
    """Prefixes were looked at whole or not at all: a case with tens of thousands had no end. The sync's begin
    and return are looked at whatever the budget.
    """
    script = Script(entries=40)
    progress = run(script, budget=Budget(visits=5))
    assert len(verdicts(store)) == 5
    assert {"@1", "@2"} <= set(verdicts(store))
    assert status(store) == (CaseStatus.DONE, "")
    cut = there(coverage(store))
    assert (cut.unexplored, cut.visits) == (36, 5)
    assert cut.why.startswith("5 of 41 states of the log's order")
    assert cut.why.endswith("ended by the budget: 5 states a case")
    told = "looked at 5 of 41 crash states; ended by the budget: 5 states a case"
    assert any(told in said for said in progress.lines)
    assert progress.left["states"] == 0
    (case,) = summarise(store).cases
    assert case.verdict is CaseVerdict.PASS


def test_of_states_that_a_budget_left_out_each_is_counted(store: RunStore, run: Run) -> None:
    """32 of 179 were looked at, and `32 of 142` stood in the table: contents were added to states."""
    run(Script(entries=40, holds=lambda prefix: prefix // 8), budget=Budget(visits=3))
    checked, cut = len(verdicts(store)), there(coverage(store))
    assert cut.unexplored == 41 - checked > 3, "there are six contents"
    assert cut.why.startswith(f"{checked} of 41 states of the log's order, ")
    (case,) = summarise(store).cases
    assert Cell((case,)).figure == f"{checked} of 41"
    assert covered_briefly(case.info) == f"{41 - checked} left out"


def test_a_final_case_stays_as_its_budget_left_it(store: RunStore, run: Run) -> None:
    script = Script(entries=40)
    run(script, budget=Budget(visits=5))
    seen, before = verdicts(store), coverage(store)
    run(script, budget=Budget(visits=5))
    assert (verdicts(store), coverage(store)) == (seen, before)
    assert len(script.looks) == 5


def test_a_second_look_at_what_was_undecided_does_not_forget_what_was_left_out(
    store: RunStore, run: Run
) -> None:
    """A budget cut the second look as well: `12 of 12` were told, of 41 states."""
    run(Script(entries=40, lost={3, 4, 5, 6, 10, 20, 30}), budget=Budget(visits=12))
    before = there(coverage(store))
    assert before.unexplored == 29
    assert store.counts(case_of("w")).unknown > 1
    run(Script(entries=40), budget=Budget(visits=1))
    after = there(coverage(store))
    assert after.unexplored == 29
    assert after.why.startswith("12 of 41 states of the log's order, 12 of 41 different ones; ")
    (case,) = summarise(store).cases
    assert covered_briefly(case.info) == "29 left out"


def test_a_budget_that_reaches_the_end_leaves_nothing_to_say(store: RunStore, run: Run) -> None:
    run(Script(entries=4), budget=Budget(visits=5))
    assert len(verdicts(store)) == 5
    assert coverage(store) is None


def test_a_time_that_is_up_leaves_what_makes_something_durable(store: RunStore, run: Run) -> None:
    run(Script(entries=40), budget=Budget(seconds=0.0), chunk=3)
    assert set(verdicts(store)) == {"@1", "@2"}
    assert status(store) == (CaseStatus.DONE, "")


# --- a memo that is found wrong while findings are confirmed -----------------------------------


class Ended:
    """An exploration at its end; `reopens`: the memo had answered something of it."""

    def __init__(self, *, reopens: bool = False) -> None:
        self.reopens = reopens

    def reopen(self) -> bool:
        return self.reopens


def after_confirming(earlier: Sequence[Ended], last: object) -> object:
    """What is worked on once the last finding was confirmed; None: the case is finished."""
    gone_on: list[object] = []
    casework = object.__new__(Casework)
    casework._progress = cast(Any, SimpleNamespace(advance=lambda *_: None))
    work = cast(Any, _Work)(
        ledger=None,
        examiner=None,
        clock=None,
        exploration=last,
        confirming=1,
        earlier=list(earlier),
        explored=True,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(casework, "_add_worker", lambda _, work: gone_on.append(work.exploration))
        patch.setattr(casework, "_finish", lambda *_: gone_on.append(None))
        casework._confirmed(cast(Any, SimpleNamespace(stop=threading.Event())), work, {})
    (on,) = gone_on
    assert work.explored is (on is None)
    return on


def test_every_generation_is_visited_again_that_a_wrong_memo_had_answered() -> None:
    """The memo is one for all generations. Only the last one was asked: what the memo had answered of the
    first stayed as it was.
    """
    first, second, last = Ended(reopens=True), Ended(), Ended()
    assert after_confirming([first, second], last) is first
    first.reopens, second.reopens = False, True
    assert after_confirming([first, second], last) is second
    second.reopens, last.reopens = False, True
    assert after_confirming([first, second], last) is last
    assert after_confirming([first, second], Ended()) is None


def test_so_are_those_before_a_disk_that_erred() -> None:
    generation, faulty_disk = Ended(reopens=True), object.__new__(FaultyDisk)
    faulty_disk.before = cast(Any, [Ended(), generation])
    assert after_confirming([], faulty_disk) is generation
    generation.reopens = False
    assert after_confirming([], faulty_disk) is None


def test_a_run_that_may_end_early_looks_at_every_mode_first() -> None:
    """In the order of the modes, the last of ten was not looked at when the time was up."""
    order = [str(c.id) for c in breadth_first(two_modes())]
    assert order == ["ext4-ordered/a", "ext4-journal/a", "ext4-ordered/b", "ext4-journal/b"]


def two_modes() -> list[PlannedCase]:
    profiles = select_profiles(["ext4/ordered", "ext4/journal"])
    return [
        PlannedCase(p, Workload(name, "", ()), CaseId(p.filesystem, p.mode, name))
        for p in profiles
        for name in ("a", "b")
    ]


def test_where_time_is_limited_a_slow_mode_does_not_take_that_of_all() -> None:
    """GFS2's workloads took the minutes of ten modes, and 31 cases of the others were not reached."""
    left, spent, order = breadth_first(two_modes()), {"ext4/ordered": 0.0, "ext4/journal": 0.0}, []
    for seconds in (30.0, 1.0, 1.0, 30.0):
        case = next_in_turn(left, spent)
        left.remove(case)
        spent[case.profile.name] += seconds
        order.append(str(case.id))
    assert order == ["ext4-ordered/a", "ext4-journal/a", "ext4-journal/b", "ext4-ordered/b"]
    begun = [replace(c, begun=c.workload.name == "a") for c in two_modes()]
    assert str(next_in_turn(begun, {"ext4/ordered": 9.0, "ext4/journal": 99.0}).id) == "ext4-ordered/b"


def test_a_run_that_goes_on_begins_with_what_was_never_looked_at(store: RunStore) -> None:
    plan, wanted = (
        Plan(configurations=[], workloads=[], minutes=1.0),
        [(c.profile, c.workload) for c in two_modes()],
    )
    line_up(plan, store, wanted[:3], {}, {}, lambda case: None)
    store.set_case_status(CaseId("ext4", "ordered", "a"), CaseStatus.RECORDED)
    store.add_case_seconds(CaseId("ext4", "ordered", "a"), 7.5)
    again = line_up(plan, store, wanted, {}, {}, lambda case: None)
    assert [(str(c.id), c.begun, c.seconds) for c in again] == [
        ("ext4-journal/a", False, 0.0),
        ("ext4-ordered/b", False, 0.0),
        ("ext4-journal/b", False, 0.0),
        ("ext4-ordered/a", True, 7.5),
    ]


def test_a_case_that_was_given_up_with_a_finding_counts_as_failed(
    store: RunStore, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four cases failed under -x."""
    learn = FakeExaminer.learn

    def given_up(self: FakeExaminer, state: CrashState, *rest: Any) -> int | None:
        if state.prefix == 4:
            raise PowercutError("no disk process answers for the memo")
        return learn(self, state, *rest)

    monkeypatch.setattr(FakeExaminer, "learn", given_up)
    with pytest.raises(EnoughDone, match="1 case failed"):
        run(Script(says=lambda prefix, _: ("x",) if prefix == 1 else ()), "a", "b", "c", "d", max_failures=1)


def test_a_case_that_waits_tells_that_it_is_there_even_if_nothing_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed case said nothing while its guest booted, and was taken for one that hangs."""
    monkeypatch.setattr("harness.cases.casework.WAIT_S", 0.0)
    told = list[tuple[str, int]]()
    progress, pool = Said(), SimpleNamespace(jobs=1, has_idle=False)
    monkeypatch.setattr(progress, "advance", lambda *given: told.append(given))
    with RunStore.create(tmp_path, "t", INFO) as store:
        casework = Casework(Plan(configurations=[], workloads=[]), store, progress, tmp_path, {})
        casework._waiting = {cf.Future(): True}
        casework._carry_on(cast(Any, pool))
    assert told == [("recorded", 0)]
