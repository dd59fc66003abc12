"""One crash state without guests: lost guests, the memo, and what happens when the memo was wrong."""

from __future__ import annotations

import dataclasses
import errno
import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from harness.cases.attempts import ATTEMPTS, Unobserved
from harness.cases.block_answers import Hashes
from harness.cases.checks import CALL_ACK, MUST_PASS_AT_END, MUST_PASS_EMPTY, CheckAnswers
from harness.cases.contents import KnownContent, KnownContents
from harness.cases.examine import Examiner, Group, JudgedGroup, Observation, judge_group
from harness.cases.fsck_reads import FsckAnswers, FsckReads, parse_trace
from harness.cases.outcome_memo import OutcomeMemo
from harness.cases.recording import Recording, history_of
from harness.errors import DiskError, DiskRefused, GuestError, GuestLost, VersionsDiffer
from harness.filesystems.profiles import select_profiles
from harness.guests import wire
from harness.guests.disk import BlockReads, Disk, Explored, KnownOutcome
from harness.guests.session import Ask, CheckImage, Recovery, Session, Used
from harness.guests.wire import WireError
from harness.model import (
    Call,
    CallError,
    CaseId,
    Change,
    Check,
    CheckResult,
    CrashState,
    Difference,
    DifferenceKind,
    FileKind,
    FsckClass,
    FsckResult,
    History,
    HistoryStep,
    Judgement,
    Operation,
    OperationKind,
    Outcome,
    TreeEntry,
    Usability,
    Verdict,
    Workload,
)
from harness.store.records import How
from harness.tests.cases import looks
from harness.workloads.load import load_workload, parse_operation
from harness.writelog import MarkText, read_log, write_log

ROOT = TreeEntry("", FileKind.DIRECTORY, 2, 0o755, 2, 0, 0, 4096, 8)
CLEAN = FsckReads(FsckResult(FsckClass.CLEAN, 0, ""), (1, 2))


class MemoDisk:
    """Learns outcomes by prefix parity: two states of equal parity agree in all that was read."""

    def __init__(self) -> None:
        self.memo: dict[int, int] = {}

    def open(self, *_: object, **__: object) -> None: ...

    def close(self) -> None: ...

    def recall(self, states: Sequence[CrashState]) -> list[int | None]:
        return [self.memo.get(s.prefix % 2) for s in states]

    def explore(self, states: Sequence[CrashState], **_: object) -> list[Explored]:
        found = zip(states, self.recall(states), strict=True)
        return [
            Explored((state,), (), 1) if n is None else Explored((), (KnownOutcome(n, state, False, 0),), 0)
            for state, n in found
        ]

    def learn(self, state: CrashState, reads: BlockReads, number: int) -> int | None:
        earlier = self.memo.get(state.prefix % 2)
        self.memo.setdefault(state.prefix % 2, number)
        return earlier


class FakeDisk:
    """The disk of a session."""

    def __init__(self) -> None:
        self.state = CrashState(0)
        self.noted: list[int] = []
        self.imaged: list[int] = []

    def image(self, _: Path) -> str:
        self.imaged.append(self.state.prefix)
        return "content"

    def block_hashes(self, blocks: Sequence[int]) -> list[bytes]:
        return [f"{self.state.prefix} {block}".encode() for block in blocks]

    def also_read(self, blocks: Sequence[int]) -> None:
        self.noted += blocks

    def reads(self) -> BlockReads:
        return BlockReads(tuple(self.noted))


class FakeSession:
    """Answers with what `outcomes` holds for a prefix; an exception there is raised. Before the log begins
    the tree is empty, and a tool's check says no, unless something else is said.
    """

    def __init__(self, outcomes: dict[int, list[Outcome | Exception]]) -> None:
        self.disk = FakeDisk()
        self.image = Path("image")
        self.servers = None
        self.machine_name = "fake"
        self.outcomes = outcomes
        self.looked: list[int] = []
        self.application: dict[int, Callable[[Sequence[str]], int | None]] = {}
        self.asked: list[tuple[int, int]] = []
        self.uses: dict[int, list[Usability | Exception]] = {}
        self.used: list[int] = []
        self.looked_again: list[int] = []
        self.has_complained = False
        self.used_blocks: tuple[int, ...] = ()
        self.checked: list[int] = []
        self.closed = False

    def show(self, *_: object) -> FakeDisk:
        return self.disk

    def close(self) -> None:
        self.closed = True

    def recover(self, _: object, state: CrashState, ask: Ask | None, *, note: bool) -> Recovery:
        assert not note, "nobody asked for cuts in recoveries"
        self.looked.append(state.prefix)
        self.disk.state = state
        answers = self.outcomes[state.prefix] if state.prefix else self.outcomes.setdefault(0, [NOTHING])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        if self.application and ask and not answer.mount_errno:
            answer = dataclasses.replace(answer, checks=ask(answer.tree, self.run_check))
        return Recovery(answer, (0, 0, 0), wire.Looks(names=str(len(answer.tree))))

    def use(
        self,
        _: object,
        keep: Sequence[str] | None,
        check: CheckImage | None,
        *,
        before: wire.Looks,
        contents: bool,
    ) -> Used:
        prefix = self.looked[-1]
        (self.looked_again if keep is None else self.used).append(prefix)
        if check is not None:
            self.checked.append(prefix)
        answers = self.uses.get(prefix, [Usability()])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return Used(answer, self.used_blocks, before, None)

    def run_check(self, check: Check, acknowledged: Sequence[str]) -> CheckResult:
        """An application that has kept what the digest of its file says."""
        if not self.looked[-1] and not check.application and 0 not in self.application:
            return CheckResult(check.operation, 1, "nothing is there")
        self.asked.append((self.looked[-1], len(acknowledged)))
        return CheckResult(check.operation, self.application[self.looked[-1]](acknowledged), "it says")


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """One operation, `sync`, acknowledged at once."""
    write_log(tmp_path / "log", [MarkText("begin 0"), MarkText("ack 0")])
    (profile,) = select_profiles(["ext4/ordered"])
    history = History((HistoryStep(0, parse_operation("sync"), 0, 1),))
    case = CaseId("ext4", "ordered", "append-fsync")
    workload = load_workload("append-fsync")
    log = read_log(tmp_path / "log")
    return Recording(case, profile, workload, tmp_path / "base", tmp_path / "log", log, history)


@pytest.fixture(autouse=True)
def memo_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.cases.outcome_memo.Disk", MemoDisk)


@pytest.fixture(autouse=True)
def clean_fsck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FsckReads, "of", classmethod(lambda cls, profile, image, *_: CLEAN))


GOOD = Outcome(tree={"": ROOT})
NOTHING = Outcome(tree={"": dataclasses.replace(ROOT, mode=0o700)})
OTHER = Outcome(tree={"": ROOT, "f": dataclasses.replace(ROOT, path="f", inode=12)})


def observe(examiner: Examiner, session: FakeSession, prefix: int) -> Observation:
    return observe_at(examiner, session, prefix)


def observe_at(examiner: Examiner, session: FakeSession, *prefixes: int) -> Observation:
    """States of one content."""
    states = [CrashState(p) for p in prefixes]
    return looks.observe(examiner, cast(Session, cast(Any, session)), states, threading.Event())


def test_a_lost_guest_is_replaced(recording: Recording) -> None:
    session = FakeSession({1: [GuestLost("gone"), GOOD]})
    seen = observe(Examiner(recording), session, 1).outcome
    assert isinstance(seen, Outcome)
    assert seen.fsck == CLEAN.result
    assert len(session.looked) == 2


def test_a_guest_lost_every_time_is_unknown(recording: Recording) -> None:
    examiner = Examiner(recording)
    seen = observe(examiner, FakeSession({1: [GuestLost("gone")]}), 1)
    assert isinstance(seen.outcome, Unobserved)
    judgement = examiner.judge(CrashState(1), seen)
    assert (judgement.verdict, judgement.unknown) == (Verdict.UNKNOWN, ("gone",))


@pytest.mark.parametrize("error", [GuestLost("gone"), DiskError("the disk is gone")], ids=str)
def test_nothing_of_an_attempt_that_went_wrong_reaches_the_next_one(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A disk that died during fsck was asked again, twice, before it was replaced."""
    session = FakeSession({1: [GOOD]})
    failing = [error]

    def image(disk: FakeDisk, _: Path) -> str:
        if failing:
            raise failing.pop()
        assert session.closed
        return "content"

    monkeypatch.setattr(FakeDisk, "image", image)
    assert isinstance(observe(Examiner(recording), session, 1).outcome, Outcome)
    assert len(session.looked) == 2


def test_a_disk_that_fails_every_time_is_unknown(recording: Recording) -> None:
    session = FakeSession({1: [DiskError("the disk is gone")]})
    examiner = Examiner(recording)
    judgement = examiner.judge(CrashState(1), observe(examiner, session, 1))
    assert (judgement.verdict, judgement.unknown) == (Verdict.UNKNOWN, ("the disk is gone",))
    assert len(session.looked) == ATTEMPTS
    again = FakeSession({1: [DiskError("the disk is gone"), GOOD]})
    assert observe(Examiner(recording), again, 1).outcome == dataclasses.replace(
        GOOD, fsck=CLEAN.result, usable=Usability()
    )


def test_a_kernel_that_dies_every_time_is_a_violation(recording: Recording) -> None:
    session = FakeSession({1: [GuestLost("gone", "Kernel panic - not syncing")]})
    examiner = Examiner(recording)
    seen = observe(examiner, session, 1)
    assert len(session.looked) == ATTEMPTS
    judgement = examiner.judge(CrashState(1), seen)
    assert {v.oracle for v in judgement.violations} == {"mountable"}


def test_a_kernel_that_died_once_and_was_lost_once_is_unknown(recording: Recording) -> None:
    session = FakeSession(
        {1: [GuestLost("gone", "Oops: 1"), GuestLost("gone"), GuestLost("gone", "Oops: 1")]}
    )
    assert isinstance(observe(Examiner(recording), session, 1).outcome, Unobserved)


def test_a_guest_that_says_no_is_not_asked_again(recording: Recording) -> None:
    session = FakeSession({1: [GuestError("no such device")]})
    seen = observe(Examiner(recording), session, 1).outcome
    assert seen == Unobserved("no such device")
    assert session.looked == [1]
    assert not session.closed, "nothing is wrong with it"


def test_a_guest_of_another_version_is_no_answer(recording: Recording) -> None:
    """Each state of a kept recording booted one, and was UNKNOWN for it."""
    session = FakeSession({1: [VersionsDiffer("the agent speaks protocol 2")]})
    with pytest.raises(VersionsDiffer):
        observe(Examiner(recording), session, 1)
    assert session.looked == [1]


def test_the_memo_spares_the_guest(recording: Recording) -> None:
    session = FakeSession({1: [GOOD], 3: [GOOD]})
    examiner = Examiner(recording, memo=True, sample_rate=0.0)
    first = observe(examiner, session, 1)
    assert not first.recalled
    again = observe(examiner, session, 3)
    assert again.recalled
    assert again.outcome is first.outcome, "what has been judged need not be judged again"
    assert session.looked == [1]
    assert session.disk.noted == [1, 2], "what fsck read counts as read"


def test_without_the_memo_every_state_is_looked_at(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[Sequence[int]] = []

    def hash_blocks(disk: FakeDisk, blocks: Sequence[int]) -> list[bytes]:
        hashed.append(blocks)
        return []

    monkeypatch.setattr(FakeDisk, "block_hashes", hash_blocks)
    session = FakeSession({1: [GOOD], 3: [GOOD]})
    examiner = Examiner(recording)
    observe(examiner, session, 1)
    assert not observe(examiner, session, 3).recalled
    assert session.looked == [1, 3]
    assert (hashed, session.disk.noted) == ([], []), "and nothing is kept for later"


def test_a_sample_that_agrees_leaves_the_memo(recording: Recording) -> None:
    session = FakeSession({1: [GOOD], 3: [GOOD]})
    examiner = Examiner(recording, memo=True, sample_rate=1.0)
    observe(examiner, session, 1)
    assert not observe(examiner, session, 3).recalled
    assert session.looked == [1, 3]
    assert not examiner.memo.mismatch


def test_a_sample_that_differs_gives_up_the_memo(recording: Recording) -> None:
    session = FakeSession({1: [GOOD], 3: [OTHER], 5: [GOOD]})
    examiner = Examiner(recording, memo=True, sample_rate=1.0)
    observe(examiner, session, 1)
    observe(examiner, session, 3)
    assert "not deterministic" in examiner.memo.mismatch
    assert not observe(examiner, session, 5).recalled


def sampled(recording: Recording, rate: float, wanted: bool) -> list[int]:
    """Odd prefixes above 3 that are, or are not, recovered in a guest anyway at this rate."""
    drawn = {p: zlib.crc32(f"{recording.case}@{p}".encode()) / 2**32 for p in range(5, 200, 2)}
    return [p for p, share in drawn.items() if (share < rate) == wanted]


def memo_at(recording: Recording, rate: float) -> OutcomeMemo:
    return OutcomeMemo(recording, sample_rate=rate, mismatch="", on_mismatch=lambda _: None)


def test_samples_are_a_share_of_the_states(recording: Recording) -> None:
    drawn = list(map(memo_at(recording, 0.01).sampled, map(CrashState, range(20_000))))
    assert 150 < sum(drawn) < 250
    half = memo_at(recording, 0.5)
    assert len(sampled(recording, 0.5, True)) == sum(half.sampled(CrashState(p)) for p in range(5, 200, 2))


def test_once_given_up_the_memo_answers_no_more(recording: Recording) -> None:
    (yes, *_), (no, *_) = sampled(recording, 0.5, True), sampled(recording, 0.5, False)
    session = FakeSession({1: [GOOD], no: [GOOD], yes: [OTHER]})
    examiner = Examiner(recording, memo=True, sample_rate=0.5)
    observe(examiner, session, 1)
    assert observe(examiner, session, no).recalled
    observe(examiner, session, yes)
    assert f"@{yes}" in examiner.memo.mismatch
    assert not observe(examiner, session, no).recalled


@pytest.mark.parametrize("seen", [OTHER, GuestLost("gone", "Oops: 1")], ids=["other", "died"])
def test_a_sample_that_differs_in_what_it_reads_as_well_gives_up_the_memo(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, seen: Outcome | Exception
) -> None:
    monkeypatch.setattr(
        MemoDisk, "learn", lambda disk, state, reads, number: disk.memo.setdefault(1, number) and None
    )
    session = FakeSession({1: [GOOD], 3: [seen]})
    examiner = Examiner(recording, memo=True, sample_rate=1.0)
    observe(examiner, session, 1)
    observe(examiner, session, 3)
    assert "not deterministic" in examiner.memo.mismatch


def test_a_sample_whose_guest_is_lost_is_unknown_and_tells_nothing_of_the_memo(recording: Recording) -> None:
    session = FakeSession({1: [GOOD], 3: [GuestLost("gone")]})
    examiner = Examiner(recording, memo=True, sample_rate=1.0)
    observe(examiner, session, 1)
    assert observe(examiner, session, 3) == Observation(Unobserved("gone"))
    assert not examiner.memo.mismatch


def test_two_outcomes_of_the_same_reads_give_up_the_memo(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were looked at concurrently, so that neither could be recalled."""
    monkeypatch.setattr(MemoDisk, "recall", lambda disk, states: [None for _ in states])
    for other, mismatch in ((GOOD, False), (OTHER, True)):
        session = FakeSession({1: [GOOD], 3: [other]})
        examiner = Examiner(recording, memo=True, sample_rate=0.0)
        observe(examiner, session, 1)
        observe(examiner, session, 3)
        assert bool(examiner.memo.mismatch) is mismatch


@pytest.mark.parametrize(
    ("change", "mismatch"),
    [
        ({"kernel_log": ("EXT4-fs error (device vda): bad",)}, True),
        ({"kernel_log": ("EXT4-fs (vda): recovery complete",)}, False),
        ({"mount_errno": 5}, True),
        ({"unmount_errno": 5}, True),
        ({"walk_errors": (CallError(Call.OPENAT, "d", 5),)}, True),
    ],
    ids=str,
)
def test_outcomes_differ_in_all_that_the_oracles_look_at(
    recording: Recording, change: dict[str, Any], mismatch: bool
) -> None:
    session = FakeSession({1: [GOOD], 3: [dataclasses.replace(GOOD, **change)]})
    examiner = Examiner(recording, memo=True, sample_rate=1.0)
    observe(examiner, session, 1)
    observe(examiner, session, 3)
    assert bool(examiner.memo.mismatch) is mismatch


USED = Usability()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (GOOD, dataclasses.replace(GOOD, tree={"": dataclasses.replace(ROOT, mode=0o700)}), False),
        (GOOD, dataclasses.replace(GOOD, lost="Kernel panic"), False),
        (GOOD, dataclasses.replace(GOOD, usable=USED), False),
        (USED, Usability(mount_errno=5), False),
        (USED, Usability(unmount_errno=5), False),
        (USED, Usability(errors=(CallError(Call.UNLINK, "f", 5),)), False),
        (USED, Usability(lost="Kernel panic"), False),
        (USED, Usability(kernel_log=("EXT4-fs error (device vda): bad",)), False),
        (USED, Usability(kernel_log=("EXT4-fs (vda): mounted",)), True),
        (GOOD, dataclasses.replace(GOOD, checks=(CheckResult(0, 1, ""),)), True),
    ],
)
def test_what_tells_two_outcomes_apart_is_what_oracles_judge(
    recording: Recording, one: Outcome | Usability, other: Outcome | Usability, same: bool
) -> None:
    """The memo's test ignored trees of one size, kernels that died, and all that came of writing."""
    a, b = (dataclasses.replace(GOOD, usable=o) if isinstance(o, Usability) else o for o in (one, other))
    assert Examiner(recording).memo.same(a, b) is same


def answers_of_fsck(monkeypatch: pytest.MonkeyPatch, *answers: FsckReads) -> list[FsckReads]:
    """What fsck says, one time after the other; what is left of it."""
    left = list(answers)
    monkeypatch.setattr(FsckReads, "of", classmethod(lambda cls, profile, image, *_: left.pop(0)))
    return left


def test_outcomes_differ_where_fsck_does(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    answers_of_fsck(monkeypatch, CLEAN, FsckReads(DIRTY.result, CLEAN.blocks))
    session = FakeSession({1: [GOOD], 3: [GOOD]})
    examiner = Examiner(recording, memo=True, sample_rate=1.0)
    observe(examiner, session, 1)
    assert examiner.judge(CrashState(3), observe(examiner, session, 3)).verdict is Verdict.FAIL
    assert examiner.memo.mismatch


# --- writing to what recovery left ---

UNLINK = CallError(Call.UNLINK, "f", 117)
BROKEN = Usability(errors=(UNLINK,))


def same_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """States that are recovered each, and leave the same where it is read later."""
    monkeypatch.setattr(FakeDisk, "block_hashes", lambda disk, blocks: [b"same" for _ in blocks])
    monkeypatch.setattr(MemoDisk, "recall", lambda disk, states: [None for _ in states])
    monkeypatch.setattr(MemoDisk, "learn", lambda disk, state, reads, number: None)


def test_a_file_system_that_recovers_and_cannot_be_written_to_fails(recording: Recording) -> None:
    """It passed: nothing was ever written to it."""
    session = FakeSession({1: [GOOD]})
    session.uses = {1: [BROKEN]}
    examiner = Examiner(recording)
    judgement = examiner.judge(CrashState(1), observe(examiner, session, 1))
    assert {v.oracle for v in judgement.violations} == {"usable"}


@pytest.mark.parametrize(
    "outcome",
    [
        dataclasses.replace(GOOD, unmount_errno=5),
        dataclasses.replace(GOOD, walk_errors=(CallError(Call.OPENAT, "d", 5),)),
        Outcome(mount_errno=117),
    ],
    ids=["not unmounted", "not read", "not mounted"],
)
def test_what_did_not_come_back_whole_is_not_written_to(recording: Recording, outcome: Outcome) -> None:
    session = FakeSession({1: [outcome]})
    seen = observe(Examiner(recording), session, 1).outcome
    assert isinstance(seen, Outcome)
    assert (seen.usable, session.used) == (None, [])


def test_what_fsck_finds_broken_is_not_written_to_and_what_no_fsck_looks_at_is(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers_of_fsck(monkeypatch, DIRTY, FsckReads(FsckResult(FsckClass.FAILED, -1, "there is none"), ()))
    session = FakeSession({1: [GOOD], 2: [GOOD]})
    examiner = Examiner(recording)
    observe(examiner, session, 1)
    observe(examiner, session, 2)
    assert session.used == [2]


def test_what_writing_reads_of_the_state_counts_as_read(recording: Recording) -> None:
    """A state that differs there alone was recalled, and nobody had written to what it recovers to."""
    session = FakeSession({1: [GOOD]})
    session.used_blocks = (7, 9)
    observe(Examiner(recording, memo=True), session, 1)
    assert session.disk.noted == [1, 2, 7, 9]


class GrowingSession(FakeSession):
    """Its second mount shows a file more."""

    def use(self, *given: Any, **named: Any) -> Used:
        return dataclasses.replace(super().use(*given, **named), tree=OTHER.tree)


@pytest.mark.parametrize(("workload", "told"), [("append-fsync", True), ("fio-randwrite", False)])
def test_what_a_check_in_place_may_have_made_is_no_difference_of_two_mounts(
    recording: Recording, workload: str, told: bool
) -> None:
    """fio makes the files that it misses: ext4/nobarrier failed for a file that its own check had made."""
    result = CheckResult(0, 1, "fio: file is missing")
    of_it = dataclasses.replace(recording, workload=load_workload(workload))
    session = GrowingSession({1: [dataclasses.replace(GOOD, checks=(result,))]})
    outcome = observe(Examiner(of_it), session, 1).outcome
    assert isinstance(outcome, Outcome) and outcome.usable is not None
    assert bool(outcome.usable.changed) is told


def test_equal_blocks_are_written_to_once(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    same_blocks(monkeypatch)
    session = FakeSession({1: [GOOD], 2: [dataclasses.replace(GOOD, kernel_log=("another",))]})
    session.uses = {1: [BROKEN]}
    session.used_blocks = (7,)
    examiner = Examiner(recording, memo=True, sample_rate=0.0)
    for prefix in (1, 2):
        assert examiner.judge(CrashState(prefix), observe(examiner, session, prefix)).verdict is Verdict.FAIL
    assert (session.looked, session.used, session.disk.noted) == ([1, 2], [1], [1, 2, 7, 1, 2, 7])


@pytest.mark.parametrize(
    "late",
    [Usability(mount_errno=errno.ENOMEM), Usability(remount_errno=errno.ENOMEM)],
    ids=["mount", "again"],
)
def test_a_second_mount_that_found_no_memory_is_the_answer_for_no_other_state(
    recording: Recording, late: Usability
) -> None:
    """It was a violation, and as it had read nothing, one of every later state of the case."""
    session = FakeSession({1: [GOOD], 2: [GOOD]})
    session.uses = {1: [late]}
    examiner = Examiner(recording, memo=True, sample_rate=0.0)
    verdicts = [examiner.judge(CrashState(p), observe(examiner, session, p)).verdict for p in (1, 2)]
    assert verdicts == [Verdict.UNKNOWN, Verdict.PASS]
    assert session.used == [1, 2]
    assert not observe(examiner, session, 1).recalled, "nor of one that agrees with it in all that was read"


def test_a_first_mount_that_found_no_memory_is_the_answer_for_no_other_state(recording: Recording) -> None:
    """The memo kept it: each state that agreed with it in the little that was read was UNKNOWN."""
    session = FakeSession({1: [Outcome(mount_errno=errno.ENOMEM)], 3: [GOOD]})
    examiner = Examiner(recording, memo=True, sample_rate=0.0)
    verdicts = [examiner.judge(CrashState(p), observe(examiner, session, p)).verdict for p in (1, 3)]
    assert verdicts == [Verdict.UNKNOWN, Verdict.PASS]


def test_an_answer_without_blocks_is_not_kept() -> None:
    """It matched every later state."""
    memo = memo_of((Image(b1=b"a"), FsckReads(FsckResult(FsckClass.DIRTY, 4, ""), ())))
    assert recalled(memo, Image(b1=b"b")) is None


def test_where_there_is_no_fsck_no_image_is_written_for_it(recording: Recording) -> None:
    profile = dataclasses.replace(recording.profile, fsck=None)
    session = FakeSession({1: [GOOD]})
    observe(Examiner(dataclasses.replace(recording, profile=profile), memo=True), session, 1)
    assert session.disk.imaged == []


def test_other_blocks_are_written_to_again(recording: Recording) -> None:
    session = FakeSession({1: [GOOD], 2: [OTHER]})
    session.used_blocks = (7,)
    examiner = Examiner(recording, memo=True, sample_rate=0.0)
    observe(examiner, session, 1)
    observe(examiner, session, 2)
    assert session.used == [1, 2]


def test_writing_that_does_not_repeat_itself_gives_up_the_memo(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    same_blocks(monkeypatch)
    session = FakeSession({1: [GOOD], 2: [GOOD]})
    session.uses = {2: [BROKEN]}
    session.used_blocks = (7,)
    examiner = Examiner(recording, memo=True, sample_rate=1.0)
    observe(examiner, session, 1)
    assert examiner.judge(CrashState(2), observe(examiner, session, 2)).verdict is Verdict.FAIL
    assert "@2" in examiner.memo.mismatch


def test_what_was_emptied_is_checked_in_states_of_the_sample_alone(recording: Recording) -> None:
    """fsck saw nothing of what comes of writing; of each state it would be too dear."""
    for rate, checked in ((1.0, [1, 2]), (0.0, [])):
        session = FakeSession({1: [GOOD], 2: [OTHER]})
        examiner = Examiner(recording, memo=True, sample_rate=rate)
        observe(examiner, session, 1)
        observe(examiner, session, 2)
        assert (session.used, session.checked) == ([1, 2], checked)


@pytest.mark.parametrize(
    "other",
    [
        Usability(differences=(Difference("f", DifferenceKind.DATA, 0),)),
        Usability(remount_errno=117),
    ],
    ids=["read back", "mounted again"],
)
def test_what_is_read_back_and_does_not_repeat_itself_gives_up_the_memo(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, other: Usability
) -> None:
    same_blocks(monkeypatch)
    session = FakeSession({1: [GOOD], 2: [GOOD]})
    session.uses, session.used_blocks = {2: [other]}, (7,)
    examiner = Examiner(recording, memo=True, sample_rate=1.0)
    observe(examiner, session, 1)
    observe(examiner, session, 2)
    assert "@2" in examiner.memo.mismatch


def test_a_kernel_that_dies_of_writing_every_time_is_a_violation_of_that(recording: Recording) -> None:
    """It was one of `mountable`: recovery that does not end."""
    session = FakeSession({1: [GOOD]})
    session.uses = {1: [GuestLost("gone", "Kernel panic - not syncing")]}
    examiner = Examiner(recording, memo=True)
    judgement = examiner.judge(CrashState(1), observe(examiner, session, 1))
    assert [v.oracle for v in judgement.violations] == ["usable"]
    assert len(session.used) == ATTEMPTS
    assert not observe(examiner, session, 1).recalled, "no visit was complete"


@pytest.mark.parametrize(
    ("answer", "times"),
    [(GuestLost("gone"), ATTEMPTS), (DiskError("gone"), ATTEMPTS), (GuestError("gone"), 1)],
    ids=["guest", "disk", "no"],
)
def test_writing_that_could_not_be_seen_is_unknown_and_hides_no_violation(
    recording: Recording, answer: Exception, times: int
) -> None:
    complaint = dataclasses.replace(GOOD, kernel_log=("EXT4-fs error (device vda): bad",))
    session = FakeSession({1: [GOOD], 2: [complaint]})
    session.uses = {1: [answer], 2: [answer]}
    examiner = Examiner(recording, memo=True)
    first = examiner.judge(CrashState(1), observe(examiner, session, 1))
    assert (first.verdict, len(session.used)) == (Verdict.UNKNOWN, times)
    assert "gone" in first.unknown[0]
    second = examiner.judge(CrashState(2), observe(examiner, session, 2))
    assert {v.oracle for v in second.violations} == {"kernel-log"}
    assert not observe(examiner, session, 1).recalled, "nothing is kept of a visit that was not complete"


def test_what_passes_once_an_operation_has_begun_is_judged_again_before_it(recording: Recording) -> None:
    """Only what is begun excuses the name; to look up what passed had no order."""
    made = dataclasses.replace(
        recording, history=History((HistoryStep(0, parse_operation("mkdir d"), begin=0, ack=1),))
    )
    directory = dataclasses.replace(ROOT, path="d", inode=12)
    seen = dataclasses.replace(GOOD, tree={"": ROOT, "d": directory}, fsck=CLEAN.result)
    examiner = Examiner(made)
    found = Observation(seen, number=examiner.memo.keep(seen))
    assert examiner.judge(CrashState(1), found).verdict is Verdict.PASS
    assert examiner.judge(CrashState(0), found).verdict is Verdict.FAIL


def test_an_outcome_is_that_of_one_guest(recording: Recording) -> None:
    """What a guest saw that was lost later was told of a state that the next guests could not recover."""
    session = FakeSession({1: [GOOD, GuestLost("hangs")]})
    session.uses = {1: [GuestLost("gone")]}
    assert observe(Examiner(recording), session, 1).outcome == Unobserved("hangs")


@pytest.mark.parametrize("answer", [Usability(unmount_errno=errno.EIO), Usability(undecided="late")], ids=str)
def test_writing_that_did_not_come_to_its_end_is_the_answer_for_no_other_state(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, answer: Usability
) -> None:
    """What came of it may depend on more than what was read: such an answer was recalled for states that had
    never been written to.
    """
    same_blocks(monkeypatch)
    session = FakeSession({1: [GOOD], 2: [GOOD]})
    session.uses = {1: [answer]}
    session.used_blocks = (7,)
    examiner = Examiner(recording, memo=True, sample_rate=0.0)
    observe(examiner, session, 1)
    assert examiner.judge(CrashState(2), observe(examiner, session, 2)).verdict is Verdict.PASS
    assert session.used == [1, 2]
    assert not observe(examiner, session, 1).recalled


def test_a_guest_that_is_lost_once_while_it_is_written_to_is_replaced(recording: Recording) -> None:
    session = FakeSession({1: [GOOD]})
    session.uses = {1: [GuestLost("gone", "Oops: 1"), Usability()]}
    examiner = Examiner(recording)
    assert examiner.judge(CrashState(1), observe(examiner, session, 1)).verdict is Verdict.PASS
    assert (len(session.looked), session.closed) == (2, True)


def test_fsck_is_run_on_what_recovery_left(recording: Recording) -> None:
    session = FakeSession({1: [GOOD], 2: [GOOD]})
    examiner = Examiner(recording)
    observe_at(examiner, session, 1)
    observe_at(examiner, session, 2)
    assert session.disk.imaged == [1, 2]


def test_an_fsck_of_the_same_blocks_is_not_run_again(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States 1 and 2 are recovered each; all that fsck reads is the same."""
    monkeypatch.setattr(FakeDisk, "block_hashes", lambda disk, blocks: [b"same" for _ in blocks])
    left = answers_of_fsck(monkeypatch, DIRTY, CLEAN, CLEAN)
    session = FakeSession({1: [GOOD], 2: [OTHER]})
    examiner = Examiner(recording, memo=True, sample_rate=0.0)
    for prefix in (1, 2):
        assert examiner.judge(CrashState(prefix), observe(examiner, session, prefix)).verdict is Verdict.FAIL
    assert (len(left), session.looked, examiner.memo.mismatch) == (2, [1, 2], "")
    answers_of_fsck(monkeypatch, CLEAN, CLEAN)
    without = Examiner(recording, sample_rate=0.0)
    for prefix in (1, 2):
        observe(without, session, prefix)
    assert session.disk.imaged == [1, 1, 2]


def test_an_fsck_that_does_not_repeat_itself_gives_up_the_memo(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeDisk, "block_hashes", lambda disk, blocks: [b"same" for _ in blocks])
    answers_of_fsck(monkeypatch, CLEAN, DIRTY)
    session = FakeSession({1: [GOOD], 2: [GOOD]})
    examiner = Examiner(recording, memo=True, sample_rate=1.0)
    observe(examiner, session, 1)
    assert examiner.judge(CrashState(2), observe(examiner, session, 2)).verdict is Verdict.FAIL
    assert "@2" in examiner.memo.mismatch


def test_an_fsck_that_repeats_itself_leaves_the_memo_and_one_that_does_not_is_asked_every_time(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeDisk, "block_hashes", lambda disk, blocks: [b"same" for _ in blocks])
    monkeypatch.setattr(MemoDisk, "recall", lambda disk, states: [None for _ in states])
    monkeypatch.setattr(MemoDisk, "learn", lambda disk, state, reads, number: None)
    (yes, again, *_), (no, *_) = sampled(recording, 0.5, True), sampled(recording, 0.5, False)
    left = answers_of_fsck(monkeypatch, CLEAN, CLEAN, DIRTY, CLEAN)
    session = FakeSession({prefix: [GOOD] for prefix in (1, yes, again, no)})
    examiner = Examiner(recording, memo=True, sample_rate=0.5)
    for prefix, runs, mismatch in (
        (1, 1, False),
        (no, 1, False),
        (yes, 2, False),
        (again, 3, True),
        (no, 4, True),
    ):
        observe(examiner, session, prefix)
        assert (4 - len(left), bool(examiner.memo.mismatch)) == (runs, mismatch)


def test_what_a_repair_reads_is_not_known_so_nothing_is_recalled(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.cases.attempts.repaired", lambda session, target, state, tool: target)
    (profile,) = select_profiles(["jfs/default"])
    examiner = Examiner(dataclasses.replace(recording, profile=profile), memo=True, sample_rate=0.0)
    session = FakeSession({0: [GOOD]})
    for prefix in (2, 4):
        assert not observe(examiner, session, prefix).recalled
    assert session.looked == [0, 0], "the repaired image is shown as it is"


def test_a_memo_whose_disk_is_lost_learns_everything_again(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the disk process went what its guests had told."""
    failing: list[Exception] = []
    recall = MemoDisk.recall

    def maybe(disk: MemoDisk, states: Sequence[CrashState]) -> list[int | None]:
        if failing:
            raise failing.pop()
        return recall(disk, states)

    monkeypatch.setattr(MemoDisk, "recall", maybe)
    session = FakeSession({1: [GOOD]})
    examiner = Examiner(recording, memo=True, sample_rate=0.0)
    observe(examiner, session, 1)
    failing.append(DiskError("the disk is gone"))
    assert observe(examiner, session, 3).recalled
    failing += [DiskError("the disk is gone")] * 3
    with pytest.raises(DiskError, match="the disk is gone"):
        observe(examiner, session, 3)


def test_a_refusal_of_the_disk_is_no_loss_of_it(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the disk refused, it was asked three times, each time in a new process."""
    asked: list[Sequence[CrashState]] = []

    def refusing(disk: MemoDisk, states: Sequence[CrashState]) -> list[int | None]:
        asked.append(states)
        raise DiskRefused("a state does not fit the log")

    monkeypatch.setattr(MemoDisk, "recall", refusing)
    examiner = Examiner(recording, memo=True, sample_rate=0.0)
    with pytest.raises(DiskRefused, match="a state does not fit the log"):
        observe(examiner, FakeSession({1: [GOOD]}), 1)
    assert len(asked) == 1


def test_reads_that_cannot_be_traced_turn_the_memo_off(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    untraced = FsckReads(CLEAN.result, None)
    monkeypatch.setattr(FsckReads, "of", classmethod(lambda cls, profile, image, *_: untraced))
    session = FakeSession({1: [GOOD], 3: [GOOD]})
    examiner = Examiner(recording, memo=True, sample_rate=0.0)
    observe(examiner, session, 1)
    assert not observe(examiner, session, 3).recalled


def test_one_fsck_that_cannot_be_traced_turns_the_memo_off_for_what_was_seen_before(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read blocks that are not known, and may have done so before."""
    answers_of_fsck(monkeypatch, CLEAN, FsckReads(CLEAN.result, None), CLEAN)
    session = FakeSession({1: [GOOD], 2: [GOOD], 3: [GOOD]})
    examiner = Examiner(recording, memo=True, sample_rate=0.0)
    observe(examiner, session, 1)
    observe(examiner, session, 2)
    assert not observe(examiner, session, 3).recalled
    assert not examiner.memo.mismatch


def test_an_fsck_that_was_killed_costs_its_own_state_alone(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host without memory kills: the memo was turned off for the rest of the case. And what may be damaged
    was written to, so that the damage had another name each time.
    """
    killed = FsckReads(FsckResult(FsckClass.FAILED, -1, "killed by signal 9"), None)
    answers_of_fsck(monkeypatch, CLEAN, killed, CLEAN)
    session = FakeSession({1: [GOOD], 2: [GOOD], 3: [GOOD]})
    examiner = Examiner(recording, memo=True, sample_rate=0.0)
    observe(examiner, session, 1)
    assert examiner.judge(CrashState(2), observe(examiner, session, 2)).verdict is Verdict.UNKNOWN
    assert observe(examiner, session, 3).recalled
    assert session.used == [1]


def test_a_stopped_run_says_unknown(recording: Recording) -> None:
    stop = threading.Event()
    stop.set()
    session = cast(Session, cast(Any, FakeSession({1: [GOOD]})))
    seen = Examiner(recording).visit(session, [CrashState(1)], stop).outcome
    assert isinstance(seen, Unobserved)


# --- kernels that die or hang -------------------------------------------------------------------

PANIC = "Kernel panic - not syncing: at {}\nRIP: 0033:do_one_pass+0x{}/0x2"
HANG = "powercut-agent: mount hangs in schedule < jbd2_journal_recover"


def dies(number: int) -> GuestLost:
    """The address differs each time."""
    return GuestLost("gone", PANIC.format(hex(number * 4096), number))


def test_a_kernel_that_hangs_in_each_of_three_guests_is_a_violation(recording: Recording) -> None:
    """It was UNKNOWN, however often it was looked at."""
    examiner = Examiner(recording)
    session = FakeSession({1: [GuestLost("no answer within 120 s", HANG)]})
    judgement = examiner.judge(CrashState(1), observe(examiner, session, 1))
    assert [(v.oracle, v.signature) for v in judgement.violations] == [("mountable", f"hangs: {HANG}")]
    assert len(session.looked) == ATTEMPTS


def test_one_hang_among_others_is_tried_again_and_a_guest_that_is_only_late_is_unknown(
    recording: Recording,
) -> None:
    hang, late = GuestLost("no answer", HANG), GuestLost("no answer within 120 s; machine still running")
    examiner = Examiner(recording)
    session = FakeSession({1: [hang, hang, GOOD], 2: [hang, late, hang], 3: [late]})
    seen = [observe(examiner, session, p) for p in (1, 2, 3)]
    verdicts = [examiner.judge(CrashState(p), s).verdict for p, s in zip((1, 2, 3), seen, strict=True)]
    assert verdicts == [Verdict.PASS, Verdict.UNKNOWN, Verdict.UNKNOWN]


def test_a_kernel_that_is_known_to_die_alike_takes_one_guest(recording: Recording) -> None:
    """It took three boots for each of hundreds of states: two cases took five minutes."""
    examiner = Examiner(recording)
    session = FakeSession({p: [dies(p), dies(p + 10), dies(p + 20)] for p in (1, 2, 3)})
    for prefix in (1, 2, 3):
        judgement = examiner.judge(CrashState(prefix), observe(examiner, session, prefix))
        assert [v.oracle for v in judgement.violations] == ["mountable"]
        assert session.closed
    assert session.looked == [1, 1, 1, 2, 3]


@pytest.mark.parametrize(
    "other",
    [GuestLost("gone", "Kernel panic - not syncing: out of memory"), GuestLost("gone"), DiskError("gone")],
    ids=["another end", "lost", "disk"],
)
def test_another_end_than_the_known_one_takes_three_guests(recording: Recording, other: Exception) -> None:
    examiner = Examiner(recording)
    session = FakeSession({1: [dies(1)], 2: [other, GOOD]})
    observe(examiner, session, 1)
    assert examiner.judge(CrashState(2), observe(examiner, session, 2)).verdict is Verdict.PASS
    assert session.looked == [1, 1, 1, 2, 2]


def test_an_end_is_known_once_three_guests_of_one_state_had_it(recording: Recording) -> None:
    examiner = Examiner(recording)
    other = GuestLost("gone", "Kernel panic - not syncing: out of memory")
    session = FakeSession({1: [dies(1), GOOD], 2: [dies(2), dies(2), other], 3: [dies(3), GOOD]})
    for prefix in (1, 2, 3):
        observe(examiner, session, prefix)
    assert session.looked == [1, 1, 2, 2, 2, 3, 3]


def test_a_death_in_recovery_is_not_one_of_writing(recording: Recording) -> None:
    examiner = Examiner(recording)
    session = FakeSession({1: [dies(1)], 2: [GOOD], 3: [GOOD]})
    session.uses = {2: [dies(2)], 3: [dies(3)]}
    oracles = []
    for prefix in (1, 2, 3):
        judgement = examiner.judge(CrashState(prefix), observe(examiner, session, prefix))
        oracles += [v.oracle for v in judgement.violations]
    assert oracles == ["mountable", "usable", "usable"]
    assert session.used == [2, 2, 2, 3]


def test_a_kernel_that_only_complained_before_its_guest_was_lost_has_not_died(recording: Recording) -> None:
    """`BUG: KCSAN` on the console of three guests that were lost on a busy host was a death of the kernel."""
    session = FakeSession({1: [GuestLost("late", "BUG: KCSAN: data-race in a / b")]})
    assert isinstance(observe(Examiner(recording), session, 1).outcome, Unobserved)


STALLED = "INFO: task init:1 blocked for more than 30 seconds."


def test_a_kernel_that_says_that_something_took_long_is_tried_again(recording: Recording) -> None:
    """A host that is slow causes that as well: it would be a complaint of the kernel."""
    slow = dataclasses.replace(GOOD, kernel_log=(STALLED,))
    examiner = Examiner(recording, memo=True)
    session = FakeSession({1: [slow, GOOD], 2: [slow], 3: [GOOD], 5: [GOOD]})
    session.uses = {5: [Usability(kernel_log=(STALLED,)), Usability()]}
    assert examiner.judge(CrashState(1), observe(examiner, session, 1)).verdict is Verdict.PASS
    judgement = examiner.judge(CrashState(2), observe(examiner, session, 2))
    assert (judgement.verdict, len(session.looked)) == (Verdict.UNKNOWN, 2 + ATTEMPTS)
    assert STALLED in judgement.unknown[0]
    without = Examiner(recording)
    assert without.judge(CrashState(5), observe(without, session, 5)).verdict is Verdict.PASS
    assert session.used[-2:] == [5, 5]


# --- what nobody foresaw ----------------------------------------------------------------------

UNFORESEEN = [
    ValueError("'socket' is not a valid ExtentKind"),
    OverflowError("int too big to convert"),
    RecursionError("too deep"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    OSError(28, "No space left on device"),
]


@pytest.mark.parametrize("error", UNFORESEEN, ids=lambda e: type(e).__name__)
def test_an_error_that_nobody_foresaw_makes_its_state_unknown_and_ends_no_run(
    recording: Recording, error: Exception
) -> None:
    """What a hostile tree or a defect of the harness raised in a worker ended the whole run."""
    session = FakeSession({1: [error], 3: [GOOD]})
    examiner = Examiner(recording)
    judgement = examiner.judge(CrashState(1), observe(examiner, session, 1))
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.unknown[0].startswith(f"unforeseen {type(error).__name__} at test_examine.py:")
    assert judgement.unknown[0].endswith(str(error))
    assert session.closed, "nothing of it reaches the next state"
    assert isinstance(observe(examiner, session, 3).outcome, Outcome)


def test_a_bad_frame_that_got_past_the_channel_makes_its_state_unknown(recording: Recording) -> None:
    """Usually the channel turns it into GuestLost or DiskError, and the state is tried again."""
    session = FakeSession({1: [WireError("a frame of 2 GiB")]})
    assert observe(Examiner(recording), session, 1).outcome == Unobserved("a frame of 2 GiB")


def test_an_fsck_that_cannot_be_run_makes_its_state_unknown(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(cls: type, profile: object, image: Path, *_: object) -> FsckReads:
        raise FileNotFoundError(2, "No such file or directory", "e2fsck")

    monkeypatch.setattr(FsckReads, "of", classmethod(broken))
    seen = observe(Examiner(recording), FakeSession({1: [GOOD]}), 1).outcome
    assert isinstance(seen, Unobserved)
    assert "FileNotFoundError" in seen.reason


@pytest.mark.parametrize("number", [-1, 1, 7])
def test_a_disk_that_recalls_what_nobody_remembered_is_not_believed(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """-1 was the outcome that was remembered last."""
    session = FakeSession({1: [OTHER], 3: [GOOD]})
    examiner = Examiner(recording, memo=True, sample_rate=0.0)
    observe(examiner, session, 1)
    monkeypatch.setattr(MemoDisk, "recall", lambda disk, states: [number])
    with pytest.raises(DiskError, match=f"outcome {number} was recalled, and 1 are known"):
        observe(examiner, session, 3)


# --- mismatch ------------------------------------------------------------------------------------


def in_doubt(recording: Recording, on_mismatch: Callable[[str], None]) -> tuple[Examiner, FakeSession]:
    """State 1 has been seen, and 3, which agrees with it in all that was read, will show something else."""
    examiner = Examiner(recording, memo=True, sample_rate=1.0, on_mismatch=on_mismatch)
    session = FakeSession({1: [GOOD], 3: [OTHER], 5: [OTHER]})
    observe(examiner, session, 1)
    return examiner, session


def test_doubt_is_kept_before_the_look_that_found_it_returns_and_once(recording: Recording) -> None:
    kept: list[str] = []
    examiner, session = in_doubt(recording, kept.append)
    assert (kept, examiner.memo.mismatch) == ([], "")
    observe(examiner, session, 3)
    assert kept == [examiner.memo.mismatch]
    assert "@3" in examiner.memo.mismatch
    observe(examiner, session, 5)
    assert len(kept) == 1


def test_doubt_is_told_to_nobody_before_it_is_kept(recording: Recording) -> None:
    """Another thread that asks meanwhile waits; else it could store an answer before the mismatch."""
    keeping, kept, told = threading.Event(), threading.Event(), list[str]()

    def keep(_: str) -> None:
        keeping.set()
        kept.wait(10)

    examiner, session = in_doubt(recording, keep)
    looks = threading.Thread(target=observe, args=(examiner, session, 3))
    asks = threading.Thread(target=lambda: told.append(examiner.memo.mismatch))
    looks.start()
    assert keeping.wait(10)
    asks.start()
    asks.join(0.1)
    before = list(told)
    kept.set()
    looks.join(10)
    asks.join(10)
    assert (before, told) == ([], [examiner.memo.mismatch])


def test_doubt_that_could_not_be_kept_is_told_all_the_same(recording: Recording) -> None:
    def full(_: str) -> None:
        raise OSError(28, "No space left on device")

    examiner, session = in_doubt(recording, full)
    with pytest.raises(OSError, match="No space left"):
        observe(examiner, session, 3)
    assert "not deterministic" in examiner.memo.mismatch
    assert not observe(examiner, session, 5).recalled


def test_after_doubt_of_an_earlier_part_of_the_run_nothing_is_recalled(recording: Recording) -> None:
    kept: list[str] = []
    examiner = Examiner(
        recording, memo=True, sample_rate=0.0, mismatch="two outcomes", on_mismatch=kept.append
    )
    session = FakeSession({1: [GOOD], 3: [OTHER]})
    observe(examiner, session, 1)
    assert not observe(examiner, session, 3).recalled
    assert (examiner.memo.mismatch, kept) == ("two outcomes", [])


# --- fsck's answers -----------------------------------------------------------------------------


class Image:
    """A disk that shows these contents."""

    def __init__(self, **contents: bytes) -> None:
        self.contents = {int(name[1:]): content for name, content in contents.items()}

    def block_hashes(self, blocks: Sequence[int]) -> list[bytes]:
        return [self.contents.get(block, b"") for block in blocks]


def memo_of(*answers: tuple[Image, FsckReads]) -> FsckAnswers:
    memo = FsckAnswers()
    for image, answer in answers:
        memo.remember(Hashes(cast(Disk, cast(Any, image))), answer)
    return memo


def recalled(memo: FsckAnswers, image: Image) -> FsckReads | None:
    return memo.recall(Hashes(cast(Disk, cast(Any, image))))


DIRTY = FsckReads(FsckResult(FsckClass.DIRTY, 4, ""), (1, 3))


def test_an_fsck_is_known_by_all_that_it_read() -> None:
    memo = memo_of((Image(b1=b"a", b2=b"b"), CLEAN), (Image(b1=b"x", b3=b"c"), DIRTY))
    assert recalled(memo, Image(b1=b"a", b2=b"b", b3=b"other")) == CLEAN
    assert recalled(memo, Image(b1=b"x", b2=b"other", b3=b"c")) == DIRTY
    assert recalled(memo, Image(b1=b"a", b2=b"other", b3=b"c")) is None


def test_an_fsck_whose_reads_are_not_known_is_not_kept() -> None:
    memo = memo_of((Image(b1=b"a"), FsckReads(CLEAN.result, None)))
    assert recalled(memo, Image(b1=b"a")) is None


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("0 4096\n4096 1\ncomplete\n", (0, 1)),
        ("4095 2\ncomplete\n", (0, 1)),
        ("complete\n", ()),
        ("0 4096\n", None),
        ("", None),
    ],
)
def test_a_trace_counts_only_when_it_is_complete(text: str, blocks: tuple[int, ...] | None) -> None:
    assert parse_trace(text) == blocks


def with_check(recording: Recording) -> Recording:
    """The same recording with a program that judges operation 0."""
    workload = dataclasses.replace(recording.workload, checks=(Check(0, ("check",), ("*",)),))
    return dataclasses.replace(recording, workload=workload)


def answered(code: int | None) -> Outcome:
    return dataclasses.replace(GOOD, checks=(CheckResult(0, code, "it says"),))


@pytest.mark.parametrize(
    ("clean", "crashed", "verdict"),
    [(0, 0, Verdict.PASS), (0, 1, Verdict.FAIL), (1, 1, Verdict.UNKNOWN), (1, 0, Verdict.UNKNOWN)],
)
def test_a_check_counts_only_if_it_says_yes_after_a_clean_unmount(
    recording: Recording, clean: int, crashed: int, verdict: Verdict
) -> None:
    """State 2 is the log's end. A program that fails there cannot work: no alarm, no pass."""
    examiner = Examiner(with_check(recording))
    session = FakeSession({2: [answered(clean)], 3: [answered(crashed)]})
    seen = observe(examiner, session, 3)
    controls = [2, 0] if clean == 0 else [2]
    assert session.looked == [*controls, 3]
    assert examiner.judge(CrashState(3), seen).verdict is verdict
    observe(examiner, session, 3)
    assert session.looked == [*controls, 3, 3], "once is enough"


def test_a_check_that_verifies_nothing_passes_nowhere(recording: Recording) -> None:
    """fio without `verify=` said yes to an empty file system."""
    check = Check(0, ("fio",), ("*",))
    plain = dataclasses.replace(recording.workload, checks=(check,))
    examiner = Examiner(dataclasses.replace(recording, workload=plain))
    session = FakeSession({2: [GOOD], 3: [GOOD]})
    session.application = {0: lambda _: 0, 2: lambda _: 0, 3: lambda _: 0}
    judgement = examiner.judge(CrashState(3), observe(examiner, session, 3))
    assert judgement.verdict is Verdict.UNKNOWN
    assert "says yes to an empty" in judgement.unknown[0]


def test_a_check_whose_files_are_not_there_is_asked_of_each_tree(recording: Recording) -> None:
    """A spool that ends empty made a check useless; under a name that nobody gave a file, one answer stood
    for all states.
    """
    check = Check(0, ("check",), ("job.*",))
    plain = dataclasses.replace(recording.workload, checks=(check,))
    examiner = Examiner(dataclasses.replace(recording, workload=plain))
    session = FakeSession({2: [GOOD], 3: [GOOD], 5: [OTHER]})
    session.application = {2: lambda _: 0, 3: lambda _: 0, 5: lambda _: 1}
    assert examiner.judge(CrashState(3), observe(examiner, session, 3)).verdict is Verdict.PASS
    assert rejected(examiner.judge(CrashState(5), observe(examiner, session, 5)))


def test_a_recalled_answer_of_a_check_counts_no_more_than_the_one_that_was_given(
    recording: Recording,
) -> None:
    session = FakeSession({2: [GOOD], 3: [GOOD], 5: [GOOD]})
    session.application = {2: lambda _: 1}
    examiner = Examiner(with_check(recording), memo=True, sample_rate=0.0)
    for prefix, recalled in ((3, False), (5, True)):
        found = observe(examiner, session, prefix)
        assert found.recalled is recalled
        assert examiner.judge(CrashState(prefix), found).verdict is Verdict.UNKNOWN


def rejected(judgement: Judgement) -> bool:
    """By a program; nothing is open."""
    assert not judgement.unknown
    return any(v.oracle == "program" for v in judgement.violations)


def test_a_check_whose_control_could_not_be_looked_at_counts_for_nothing(recording: Recording) -> None:
    examiner = Examiner(with_check(recording))
    session = FakeSession({2: [GuestError("no such device")], 3: [answered(1)]})
    judgement = examiner.judge(CrashState(3), observe(examiner, session, 3))
    assert judgement.verdict is Verdict.UNKNOWN
    assert any("no such device" in why for why in judgement.unknown)


def test_a_check_is_asked_if_its_operation_had_returned_at_one_of_the_states(recording: Recording) -> None:
    """At state 1 it had not; one content answers for both."""
    examiner = Examiner(with_check(recording))
    session = FakeSession({2: [GOOD], 1: [OTHER]})
    session.application = {2: lambda _: 0, 1: lambda _: 1}
    seen = observe_at(examiner, session, 1).outcome
    assert isinstance(seen, Outcome)
    assert (seen.checks, session.asked) == ((), [(2, 0)])
    found = observe_at(examiner, session, 1, 2)
    assert [rejected(examiner.judge(CrashState(p), found)) for p in (1, 2)] == [False, True]
    assert session.asked == [(2, 0), (1, 0)]


def test_what_cannot_be_mounted_is_recalled_without_asking_its_checks(recording: Recording) -> None:
    unmountable = Outcome(mount_errno=117)
    session = FakeSession({2: [GOOD], 1: [unmountable], 3: [unmountable]})
    session.application = {2: lambda _: 0}
    examiner = Examiner(with_check(recording), memo=True, sample_rate=0.0)
    assert not observe_at(examiner, session, 1, 2).recalled
    assert observe_at(examiner, session, 3).recalled
    assert session.asked == [(2, 0)]


def test_a_check_is_asked_again_where_one_of_the_files_that_it_reads_differs(recording: Recording) -> None:
    def holding(**digests: str) -> Outcome:
        files = {n: dataclasses.replace(ROOT, path=n, inode=12, digest=d) for n, d in digests.items()}
        return Outcome(tree={"": ROOT, **files})

    plain = with_check(recording)
    check = Check(0, ("check",), ("a", "b*"))
    examiner = Examiner(
        dataclasses.replace(plain, workload=dataclasses.replace(plain.workload, checks=(check,)))
    )
    contents = {2: ("1", "1", "1"), 3: ("1", "1", "2"), 4: ("2", "1", "1"), 5: ("1", "2", "1")}
    session = FakeSession({n: [holding(a=a, bb=b, c=c)] for n, (a, b, c) in contents.items()})
    session.application = {2: lambda _: 0, 4: lambda _: 1, 5: lambda _: 1}
    found = [rejected(examiner.judge(CrashState(n), observe(examiner, session, n))) for n in (3, 4, 5)]
    assert found == [False, True, True]
    assert session.asked == [(2, 0), (4, 0), (5, 0)]


@pytest.mark.parametrize(
    "change",
    [
        *({"mode": 0o600}, {"kind": "symlink"}, {"target": b"x"}, {"digest": "2"}, {"path": "b"}),
        *({"uid": 7}, {"gid": 7}, {"links": 3}, {"size": 5}),
    ],
    ids=str,
)
def test_a_check_is_asked_again_whatever_it_could_see_differs(
    recording: Recording, change: dict[str, Any]
) -> None:
    entry = dataclasses.replace(ROOT, path="a", kind=FileKind.FILE, inode=12, digest="1")
    other = dataclasses.replace(entry, **change)
    seen = {2: entry, 3: dataclasses.replace(entry, inode=13), 4: other}
    session = FakeSession({n: [Outcome(tree={"": ROOT, e.path: e})] for n, e in seen.items()})
    session.application = {2: lambda _: 0, 4: lambda _: 0}
    examiner = Examiner(with_check(recording))
    observe(examiner, session, 3)
    observe(examiner, session, 4)
    assert session.asked == [(2, 0), (4, 0)]


def test_two_threads_that_begin_together_run_the_controls_once(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    examiner = Examiner(with_check(recording))
    first, second = (FakeSession({2: [answered(0)], 3: [answered(0)]}) for _ in range(2))
    other = threading.Thread(target=observe, args=(examiner, second, 3))
    recover = first.recover

    def slowly(target: object, state: CrashState, ask: Ask | None, *, note: bool) -> Recovery:
        if state.prefix == 2:
            other.start()
            other.join(0.2)  # what does not wait has run its own by now
        return recover(target, state, ask, note=note)

    monkeypatch.setattr(first, "recover", slowly)
    observe(examiner, first, 3)
    other.join(10)
    assert (first.looked, second.looked) == ([2, 0, 3], [3])


# --- the checks' answers ----------------------------------------------------------------------

YES = CheckResult(0, 0, "yes")


def test_two_threads_that_want_one_answer_ask_once() -> None:
    """Both asked: no lock was held between the look-up and the answer."""
    answers, asked, second = CheckAnswers(), list[str](), threading.Event()

    def ask(who: str) -> CheckResult:
        asked.append(who)
        if who == "first":
            other.start()
            second.wait(0.2)  # what asks twice does so now
        else:
            second.set()
        return YES

    other = threading.Thread(target=lambda: answers.get("key", lambda: ask("second")))
    assert answers.get("key", lambda: ask("first")) == YES
    other.join(10)
    assert asked == ["first"]


def test_asking_that_fails_is_no_answer() -> None:
    answers = CheckAnswers()

    def lost() -> CheckResult:
        raise GuestLost("gone")

    with pytest.raises(GuestLost):
        answers.get("key", lost)
    assert answers.get("key", lambda: YES) == YES
    assert answers.get("key", lost) == YES


def test_questions_are_told_apart_by_their_key() -> None:
    answers = CheckAnswers()
    no = CheckResult(0, 1, "no")
    assert [answers.get("a", lambda: YES), answers.get("b", lambda: no), answers.get("a", lambda: no)] == [
        YES,
        no,
        YES,
    ]


# --- applications ----------------------------------------------------------------------------

APPLICATION_MARKS = ["begin 0", "app 1", "app 2", "app 3", "ack 0"]


@pytest.fixture
def application(recording: Recording, tmp_path: Path) -> Recording:
    """One application that acknowledges three times; its marks are the whole log."""
    write_log(tmp_path / "log", [MarkText(text) for text in APPLICATION_MARKS])
    log = read_log(tmp_path / "log")
    run = Operation(OperationKind.RUN, argv=("run",))
    workload = Workload("a", "a", (run,), (Check(0, ("check",), ("*",), application=True),))
    history = history_of(log.entries, workload.operations)
    return dataclasses.replace(recording, workload=workload, write_log=log, history=history)


def keeps(count: int) -> Callable[[Sequence[str]], int | None]:
    """What its check says when only the first `count` acknowledged things are there."""
    return lambda acknowledged: int(len(acknowledged) > count)


def holding(count: int) -> Outcome:
    """A tree with a file whose digest tells how much is in it."""
    entry = dataclasses.replace(ROOT, path="db", inode=12, digest=str(count))
    return Outcome(tree={"": ROOT, "db": entry})


def application_worker(kept: dict[int, int | None]) -> FakeSession:
    """Keeps all at the log's end and on the empty disk; elsewhere so much (None: nobody can say)."""
    sound: dict[int, int | None] = {0: 0, 5: 3}
    kept = sound | kept
    session = FakeSession({prefix: [holding(100 if n is None else n)] for prefix, n in kept.items()})
    session.application = {prefix: (lambda _: 7) if n is None else keeps(n) for prefix, n in kept.items()}
    return session


def verdicts(examiner: Examiner, session: FakeSession, *prefixes: int) -> list[Verdict]:
    seen = observe_at(examiner, session, *prefixes)
    return [examiner.judge(CrashState(p), seen).verdict for p in prefixes]


def test_marks_of_an_application_are_its_acknowledgements(application: Recording) -> None:
    history = application.history
    assert [(a.operation, a.text, a.entry) for a in history.acknowledgements] == [
        (0, "1", 1),
        (0, "2", 2),
        (0, "3", 3),
    ]
    assert [history.position(p).app_acks for p in range(6)] == [0, 0, 1, 2, 3, 3]
    assert history.app_acks(0, 2) == ("1", "2")
    assert history.app_acks(1, 2) == ()


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (3, "PASS PASS PASS PASS"),
        (2, "PASS PASS PASS FAIL"),
        (1, "PASS PASS FAIL FAIL"),
        (0, "PASS FAIL FAIL FAIL"),
        (-1, "FAIL FAIL FAIL FAIL"),
        (None, "UNKNOWN UNKNOWN UNKNOWN UNKNOWN"),
    ],
)
def test_states_of_one_content_answer_for_their_own_acknowledgements(
    application: Recording, kept: int | None, expected: str
) -> None:
    """One content, at four places in the history: what was acknowledged later is nobody's loss before."""
    session = application_worker({1: kept})
    found = verdicts(Examiner(application), session, 1, 2, 3, 4)
    assert " ".join(v.name for v in found) == expected


def test_an_application_that_acknowledges_nothing_passes_nowhere(application: Recording) -> None:
    history = dataclasses.replace(application.history, acknowledgements=())
    examiner = Examiner(dataclasses.replace(application, history=history))
    session = application_worker({1: 3})
    seen = observe_at(examiner, session, 1)
    judgement = examiner.judge(CrashState(1), seen)
    assert judgement.verdict is Verdict.UNKNOWN
    assert "acknowledged nothing" in judgement.unknown[0]
    assert judgement.unknown[0].endswith(CALL_ACK), "what to do about it is told"


@pytest.mark.parametrize(("held", "told"), [(0, False), (3, True)])
def test_a_check_that_says_yes_to_nothing_at_all_has_a_doubt(
    application: Recording, held: int, told: bool
) -> None:
    """`powercut run -- /bin/echo hello` was green: nobody could have lost anything."""
    examiner = Examiner(application)
    observe_at(examiner, application_worker({0: held, 1: 3}), 1)
    assert bool(examiner.doubt) is told
    silent = dataclasses.replace(application.history, acknowledgements=())
    other = Examiner(dataclasses.replace(application, history=silent))
    observe_at(other, application_worker({0: held, 1: 3}), 1)
    assert not other.doubt, "that nothing was acknowledged is told as such"


def test_a_check_that_is_content_with_the_most_is_not_asked_about_less(application: Recording) -> None:
    """Of the whole, which the log's end had as well, nothing is asked again; of less, twice."""
    session = application_worker({1: 3})
    verdicts(Examiner(application), session, 1, 2, 3, 4)
    assert session.asked == [(5, 3), (0, 0), (0, 3)], "the end, and the empty disk twice: the controls"
    session = application_worker({1: 2})
    verdicts(Examiner(application), session, 1, 2, 3, 4)
    assert [asked for asked in session.asked if asked[0] == 1] == [(1, 3), (1, 2)]


def test_another_machine_answers_for_itself(application: Recording) -> None:
    examiner = Examiner(application)
    judge, recorder = application_worker({1: 0}), application_worker({1: 3})
    recorder.machine_name = "another"
    assert verdicts(examiner, judge, 1, 2) == [Verdict.PASS, Verdict.FAIL]
    verdicts(examiner, recorder, 1, 2)
    assert [asked for asked in recorder.asked if asked[0] == 1] == [(1, 1)]


def test_a_check_that_cannot_work_on_another_machine_confirms_nothing_there(application: Recording) -> None:
    """The controls ran on the first machine alone: a check that always says no confirmed each finding."""
    examiner = Examiner(application)
    judge, recorder = application_worker({3: 0}), application_worker({3: 100})
    recorder.machine_name = "another"
    recorder.application = dict.fromkeys((0, 3, 5), lambda _: 1)
    assert verdicts(examiner, judge, 3) == [Verdict.FAIL]
    assert verdicts(examiner, recorder, 3) == [Verdict.UNKNOWN]


def test_another_machine_mounts_a_second_time_itself(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It recalled what the judge's kernel had left unusable, and confirmed that."""
    same_blocks(monkeypatch)
    judge, other = FakeSession({1: [GOOD]}), FakeSession({1: [GOOD]})
    judge.uses, judge.used_blocks, other.used_blocks = {1: [BROKEN]}, (7,), (7,)
    other.machine_name = "another"
    examiner = Examiner(recording, memo=True, sample_rate=0.0)
    assert verdicts(examiner, judge, 1) == [Verdict.FAIL]
    assert verdicts(examiner, other, 1) == [Verdict.PASS]
    assert other.used == [1]


def test_what_an_fsck_without_an_end_leaves_is_unknown(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--oracle usable` it passed: nobody had mounted it a second time."""
    killed = FsckReads(FsckResult(FsckClass.FAILED, -1, "killed by signal 9"), None)
    monkeypatch.setattr(FsckReads, "of", classmethod(lambda *_: killed))
    session = FakeSession({1: [GOOD]})
    examiner = Examiner(recording, oracles=("usable",))
    judgement = examiner.judge(CrashState(1), observe(examiner, session, 1))
    assert judgement.unknown
    assert "fsck came to no end" in judgement.unknown[0]


def test_a_lost_control_leaves_a_doubt(application: Recording) -> None:
    """Whether the check can say no is not known then, and nothing said so."""
    session = application_worker({3: 3})
    session.application = dict.fromkeys((0, 3, 5), lambda _: 0)
    first, *_ = session.outcomes[0]
    session.outcomes[0] = [first, *[GuestLost("no answer")] * 3, holding(0)]
    examiner = Examiner(application)
    assert verdicts(examiner, session, 3) == [Verdict.PASS]
    assert "is not known" in examiner.doubt


def test_what_one_machine_answered_does_not_confirm_itself_in_another(application: Recording) -> None:
    examiner = Examiner(application)
    judge, recorder = application_worker({1: 0}), application_worker({1: 0})
    recorder.machine_name = "another"
    assert verdicts(examiner, judge, 1, 2) == verdicts(examiner, recorder, 1, 2)
    assert (1, 1) in recorder.asked, "the same content, asked again; with 0, a control of its own has told"
    assert (0, 0) in recorder.asked


def test_checks_of_two_operations_answer_each_for_its_own(recording: Recording) -> None:
    step = dataclasses.replace(recording.history.steps[0], index=1)
    checks = tuple(Check(n, ("check",), ("*",)) for n in (0, 1))
    two = dataclasses.replace(
        recording,
        workload=dataclasses.replace(recording.workload, checks=checks),
        history=History((*recording.history.steps, step)),
    )
    session = FakeSession({2: [GOOD], 3: [GOOD]})
    session.application = {2: lambda _: 0}
    observe(Examiner(two), session, 3)
    assert session.asked == [(2, 0), (2, 0)]


def test_the_memo_does_not_answer_for_more_acknowledgements(application: Recording) -> None:
    """States 1 and 3 agree in all that was read, and what is there was enough at 1."""
    session = application_worker({1: 0, 3: 0})
    examiner = Examiner(application, memo=True, sample_rate=0.0)
    assert verdicts(examiner, session, 1) == [Verdict.PASS]
    assert verdicts(examiner, session, 3) == [Verdict.FAIL]
    observation = observe_at(examiner, session, 3)
    assert observation.recalled, "asked and answered"
    assert examiner.judge(CrashState(3), observation).verdict is Verdict.FAIL


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (0, 2), (None, 3), (0, None)])
def test_an_application_check_that_refuses_what_no_crash_has_touched_counts_for_nothing(
    application: Recording, start: int | None, end: int | None
) -> None:
    session = application_worker({0: start, 5: end, 1: 0})
    examiner = Examiner(application)
    seen = observe_at(examiner, session, 1, 2)
    judgement = examiner.judge(CrashState(2), seen)
    assert judgement.verdict is Verdict.UNKNOWN
    step = MUST_PASS_EMPTY if start != 0 else MUST_PASS_AT_END
    assert any("cannot do its work here" in why and why.endswith(step) for why in judgement.unknown)


def test_an_application_violation_says_what_the_check_said(application: Recording) -> None:
    examiner = Examiner(application)
    seen = observe_at(examiner, application_worker({1: 0}), 1, 2)
    (violation,) = examiner.judge(CrashState(2), seen).violations
    assert violation.oracle == "program"
    assert "after 1 acknowledgement: it says" in violation.summary


# --- contents of other cases ------------------------------------------------------------------------------


def visited(
    recording: Recording,
    contents: KnownContents,
    shown: Outcome,
    *,
    prefix: int = 1,
    rate: float = 0.0,
    memo: bool = True,
) -> tuple[JudgedGroup, Examiner, list[int]]:
    """What came of a state of content `c` in another case, and which states a guest was shown for that."""
    session = FakeSession({prefix: [shown]})
    other = dataclasses.replace(recording, case=dataclasses.replace(recording.case, workload=f"w{prefix}"))
    examiner = Examiner(other, memo=memo, sample_rate=rate)
    group = Group("c", (CrashState(prefix), CrashState(prefix + 2)))
    seen = contents.visit(examiner, cast(Session, cast(Any, session)), group, threading.Event())
    return judge_group(examiner, group, seen), examiner, session.looked


def test_a_content_that_another_case_had_needs_no_guest(recording: Recording) -> None:
    """A guest was shown mkfs's image and its first mount in each of 207 cases."""
    contents = KnownContents()
    first, _, looked = visited(recording, contents, GOOD)
    assert ([j.how for j in first.judged], looked) == ([How.JUDGED, How.SAME_CONTENT], [1])
    second, examiner, looked = visited(recording, contents, OTHER, prefix=3)
    assert ([j.how for j in second.judged], looked) == ([How.SAME_CONTENT] * 2, [])
    assert second.observation.outcome == first.observation.outcome
    # The memo of this case has learned it, as if a guest had been asked.
    number = examiner.learn(CrashState(3), second.observation)
    assert number is not None
    assert examiner.memo.outcome(number) == first.observation.outcome


def test_what_another_case_had_is_not_used_where_more_than_the_content_counts(recording: Recording) -> None:
    contents = KnownContents()
    visited(recording, contents, GOOD)
    check = dataclasses.replace(recording.workload, checks=(Check(0, ("true",), ()),))
    (journal,) = select_profiles(["ext4/journal"])
    for other in (
        dataclasses.replace(recording, base=recording.base.with_name("another-base")),
        dataclasses.replace(recording, profile=journal),
        dataclasses.replace(recording, workload=check),
    ):
        assert visited(other, contents, OTHER, prefix=3)[2][-1:] == [3]
    assert visited(recording, contents, OTHER, prefix=3, memo=False)[2] == [3]


def test_a_share_of_what_another_case_had_is_visited_and_compared(recording: Recording) -> None:
    contents = KnownContents()
    visited(recording, contents, GOOD)
    agreed, examiner, looked = visited(recording, contents, GOOD, prefix=3, rate=1.0)
    assert (looked, examiner.memo.mismatch) == ([3], "")
    assert agreed.judged[0].how is How.JUDGED
    _, examiner, _ = visited(recording, contents, OTHER, prefix=3, rate=1.0)
    assert "not deterministic" in examiner.memo.mismatch


def test_contents_are_shared_no_more_once_one_was_not_repeated(recording: Recording) -> None:
    """Cases that came later went on to rely on what was known to come out differently."""
    contents = KnownContents()
    visited(recording, contents, GOOD)
    visited(recording, contents, OTHER, prefix=3, rate=1.0)
    assert visited(recording, contents, GOOD, prefix=5)[2] == [5]
    _, examiner, _ = visited(recording, contents, OTHER, prefix=7, rate=1.0)
    assert not examiner.memo.mismatch, "nothing was taken, so there is nothing to be held against"
    (journal,) = select_profiles(["ext4/journal"])
    another = dataclasses.replace(recording, profile=journal)
    visited(another, contents, GOOD)
    assert visited(another, contents, GOOD, prefix=3)[2] == [], "of another mode"


def test_a_case_that_took_what_was_not_repeated_is_in_doubt_although_it_is_done(recording: Recording) -> None:
    """It stayed PASS: only the case in which a guest showed something else was UNKNOWN."""
    told: dict[str, str] = {}
    contents = KnownContents(on_case_mismatch=lambda case, why: told.update({case.workload: why}))
    visited(recording, contents, GOOD)
    visited(recording, contents, GOOD, prefix=3)
    visited(recording, contents, GOOD, prefix=7, rate=1.0)
    assert not told
    visited(recording, contents, OTHER, prefix=5, rate=1.0)
    assert told.keys() == {"w3"}, "w7 asked a guest itself"
    assert "it shares contents with" in told["w3"]
    assert "w5" in told["w3"]


def test_a_guest_that_was_lost_is_not_what_another_case_knows(recording: Recording) -> None:
    contents = KnownContents()
    visited(recording, contents, cast(Any, GuestLost("gone")))
    assert visited(recording, contents, GOOD, prefix=3)[2] == [3]


def test_contents_that_nobody_asks_for_go_first(recording: Recording) -> None:
    contents = KnownContents(entries_max=5)
    two = KnownContent(GOOD, BlockReads((1,)))
    assert two.entries == 2
    for name in ("a", "b"):
        contents.put(recording, name, two)
    assert contents.of(recording, "a") is not None
    contents.put(recording, "c", two)
    assert [contents.of(recording, n) is not None for n in "abc"] == [True, False, True]


def test_what_a_recovery_read_takes_room_among_known_contents() -> None:
    """NILFS2's recovery reads thousands of blocks: a run of 30,000 states grew to 8 GiB, and was killed."""
    of = {n: KnownContent(GOOD, BlockReads(tuple(range(n)))).entries for n in (10, 3200)}
    assert of[3200] == of[10] + 200


USED = Usability(errors=(CallError(Call.UNLINK, "f", errno.EIO),), fsck=FsckResult(FsckClass.CLEAN, 0, ""))
WHOLE = dataclasses.replace(GOOD, fsck=FsckResult(FsckClass.CLEAN, 0, ""), usable=USED)


@pytest.mark.parametrize(
    ("of_outcome", "of_use"),
    [
        ({"mount_errno": errno.EIO}, {}),
        ({"unmount_errno": errno.EIO}, {}),
        ({"read_only": True}, {}),
        ({"tree": OTHER.tree}, {}),
        ({"outside": (Change("etc/hosts", "size", "1", "2"),)}, {}),
        ({"walk_errors": (CallError(Call.READ, "f", errno.EIO),)}, {}),
        ({"lost": "Oops"}, {}),
        ({"fsck": FsckResult(FsckClass.DIRTY, 0, "")}, {}),
        ({"kernel_log": ("EXT4-fs error (device vda): x",)}, {}),
        ({"usable": None}, {}),
        ({}, {"mount_errno": errno.EIO}),
        ({}, {"unmount_errno": errno.EIO}),
        ({}, {"remount_errno": errno.EIO}),
        ({}, {"errors": (CallError(Call.UNLINK, "g", errno.EIO),)}),
        ({}, {"differences": (Difference("f", DifferenceKind.SIZE, 0),)}),
        ({}, {"changed": (Change("f", "size", "1", "2"),)}),
        ({}, {"lost": "Oops"}),
        ({}, {"fsck": FsckResult(FsckClass.DIRTY, 0, "")}),
        ({}, {"kernel_log": ("EXT4-fs error (device vda): x",)}),
    ],
    ids=str,
)
def test_two_outcomes_that_differ_in_anything_that_is_judged_are_not_the_same(
    recording: Recording, of_outcome: dict[str, Any], of_use: dict[str, Any]
) -> None:
    """Another errno of the unmount, another class of fsck, and other errors of the same number were the same:
    the memo's test passed, and so did crash times of which a sample was drawn.
    """
    memo = memo_at(recording, 1.0)
    other = dataclasses.replace(WHOLE, usable=dataclasses.replace(USED, **of_use))
    other = dataclasses.replace(other, **of_outcome)
    assert memo.same(WHOLE, WHOLE)
    assert not memo.same(WHOLE, other)
    assert not memo.same(other, WHOLE)


def test_how_often_a_kernel_complains_and_what_it_says_then_of_writing_make_no_other_outcome(
    recording: Recording,
) -> None:
    """A kernel with rate limits says less the next time."""
    memo, line = memo_at(recording, 1.0), "EXT4-fs error (device vda): block 7"
    often = dataclasses.replace(
        WHOLE, kernel_log=(line, line.replace("7", "8")), usable=dataclasses.replace(USED, kernel_log=(line,))
    )
    assert memo.same(often, dataclasses.replace(WHOLE, kernel_log=(line,)))


def test_what_fsck_rejects_is_looked_at_again_and_not_written_to(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where fsck's word does not count, or nobody asked for it, a second mount was never made."""
    dirty = dataclasses.replace(CLEAN, result=FsckResult(FsckClass.DIRTY, 4, "bad"))
    monkeypatch.setattr(FsckReads, "of", classmethod(lambda cls, profile, image, *_: dirty))
    session = FakeSession({1: [GOOD]})
    session.uses = {1: [Usability(changed=(Change("f", "size", "1", "2"),))]}
    examiner = Examiner(recording, oracles=("usable",))
    judgement = examiner.judge(CrashState(1), observe(examiner, session, 1))
    assert (session.used, session.looked_again) == ([], [1])
    assert [v.signature for v in judgement.violations] == ["second mount: f: size"]
