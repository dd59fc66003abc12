"""The exploration against the plain enumeration of all legal states, with the real disk and a simulated
guest.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.cases import exploration as exploration_of_states
from harness.cases.attempts import Unobserved
from harness.cases.examine import Group, JudgedGroup, Observation
from harness.cases.exploration import OF_RECORDING, Exploration, Report, Sampling, legal_times
from harness.cases.pool import Interrupted, _interrupt
from harness.cases.recoveries import CutOnce
from harness.cases.remote import RemoteSession, nothing
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import profiles
from harness.guests.disk import CONTENTS_MAX, BlockReads, Disk, Explored, Order
from harness.guests.session import Target
from harness.model import Check, CrashState, Judgement, Outcome, Position, Violation
from harness.model.questions import Question
from harness.oracles import MAX_VIOLATIONS
from harness.plan import Budget
from harness.states import Choices, LegalStates, Unclear
from harness.store.records import Coverage, How, JudgedState
from harness.tests.states.recorder import BLOCKS, Recorder, recorders, write_files
from harness.tests.states.reference import all_cuts

real = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def disk() -> Iterator[Disk]:
    with Disk() as process:
        yield process


class Busy(RemoteSession):
    """A session whose process is busy with a visit: what the run has to do meanwhile is done. `order`: what
    was done, of all sessions.
    """

    def __init__(self, order: list[str]) -> None:
        self.meanwhile = nothing
        self.order = order

    def begun(self, state: CrashState) -> None:
        self.order.append(f"begun {state}")
        meanwhile, self.meanwhile = self.meanwhile, nothing
        meanwhile()
        self.order.append(f"showed {state}")


@dataclass
class Guest:
    """A recovery that reads blocks in an order that depends on what it read, and nothing else. It stands for
    memo and examiner at once, and its disk is the memo's. `lost`: visits, counted from 1, at which the guest
    is lost. `data`, `checks`, `question`: what the mode promises of data, and the workload's own.
    `plain`, `stacked`, `seeks`: as the profile's.
    """

    legal: LegalStates
    target: Target
    disk: Disk
    seed: int
    lost: frozenset[int] = frozenset()
    data: str = "ordered"
    plain: bool = False
    stacked: bool = False
    seeks: bool = True
    checks: tuple[Check, ...] = ()
    question: Question | None = None
    recalls: bool = True
    mismatch: str = ""
    outcomes: list[Outcome] = field(default_factory=list)
    visits: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    cuts: CutOnce = field(default_factory=lambda: CutOnce(lambda _: None))

    @property
    def recording(self) -> Any:
        contract = SimpleNamespace(data=self.data)
        profile = SimpleNamespace(
            contract=contract,
            no_csum_no_compression=self.plain,
            stacked=self.stacked,
            seek_reads_mapping=self.seeks,
        )
        workload = SimpleNamespace(checks=self.checks, question=self.question)
        return SimpleNamespace(legal=self.legal, target=self.target, profile=profile, workload=workload)

    @property
    def memo(self) -> Guest:
        return self

    def is_in_share(self, name: str, share: float) -> bool:
        return False

    def explore(
        self, crash_times: Sequence[Choices | CrashState], target: object = None, **how: Any
    ) -> list[Explored]:
        with self.lock:
            return self.disk.explore(crash_times, **how)

    def hashes(self, states: Sequence[CrashState], target: object = None) -> list[str]:
        with self.lock:
            return self.disk.hashes(states)

    def recover(self, state: CrashState) -> tuple[list[int], str]:
        """The blocks read, in order, and what came of it."""
        self.disk.switch(self.legal.on_disk(state))
        read: list[int] = []
        found = hashlib.sha256(bytes([self.seed]))
        for _ in range(4):
            block = found.digest()[0] % BLOCKS
            if block in read:
                break
            read.append(block)
            found.update(self.disk.block_hashes([block])[0])
        return read, found.hexdigest()

    def visit(self, session: object, states: Sequence[CrashState], stop: threading.Event) -> Observation:
        if isinstance(session, Busy):
            session.begun(states[0])
        with self.lock:
            self.visits += 1
            if self.visits in self.lost:
                return Observation(Unobserved("the guest was lost"))
            read, text = self.recover(states[0])
            outcome = Outcome(kernel_log=(text,))
            self.outcomes.append(outcome)
            return Observation(outcome, number=len(self.outcomes) - 1, reads=BlockReads(tuple(read)))

    def learn(self, state: CrashState, observation: Observation, expected: int | None) -> int | None:
        with self.lock:
            if observation.number is None or observation.reads is None:
                return None
            assert (
                self.disk.learn(self.legal.on_disk(state), observation.reads, observation.number) is None
            ), "visited twice"
            return observation.number

    def outcome(self, number: int) -> Outcome:
        return self.outcomes[number]

    def same(self, a: Outcome, b: Outcome) -> bool:
        return a.kernel_log == b.kernel_log

    def known(self, number: int, machine: str, states: Sequence[CrashState]) -> Observation:
        return Observation(self.outcomes[number], recalled=True, number=number)

    def judge(self, state: CrashState, observation: Observation) -> Judgement:
        return (
            Judgement(unknown=(observation.outcome.reason,))
            if isinstance(observation.outcome, Unobserved)
            else Judgement()
        )


def exploration(guest: Guest, budget: Budget | None, stop: threading.Event, report: Report) -> Exploration:
    return Exploration(cast("Any", guest), legal_times(guest.legal), "toy", budget or Budget(), stop, report)


def explore(
    guest: Guest, budget: Budget | None = None, workers: int = 1
) -> tuple[Coverage, list[JudgedGroup]]:
    seen: list[JudgedGroup] = []
    one = exploration(guest, budget, threading.Event(), seen.extend)
    with ThreadPoolExecutor(workers) as threads:
        for done in [threads.submit(one.work, Busy([])) for _ in range(workers)]:
            done.result(timeout=60)
    coverage = one.coverage()
    assert coverage is not None
    return coverage, seen


def begin(made: Recorder, disk: Disk, seed: int, folder: Path, unit: int = 8) -> Guest:
    legal = made.legal(unit)
    base, log = write_files(made, folder)
    target = Target("", "", base, log, order=Order(legal.order, unit))
    disk.open(base, log, target.order)
    return Guest(legal, target, disk, seed)


def told_by(guest: Guest, seen: Sequence[JudgedGroup]) -> dict[str, set[Position]]:
    """What came back, with the positions at which it was judged."""
    told: dict[str, set[Position]] = defaultdict(set)
    for group in seen:
        outcome = group.observation.outcome
        assert isinstance(outcome, Outcome)
        for judged in group.judged:
            told[outcome.kernel_log[0]].add(guest.legal.position(judged.state))
    return told


@real
@given(recorders(), st.integers(0, 255))
def test_exploration_finds_what_brute_force_finds(disk: Disk, made: Recorder, seed: int) -> None:
    """Every outcome of every legal state, under every strongest promise, and no other; each state that is
    named has the outcome that it was judged by.
    """
    with tempfile.TemporaryDirectory() as folder:
        guest = begin(made, disk, seed, Path(folder))
        coverage, seen = explore(guest)
        assert coverage.exhaustive
        assert not coverage.unexplored
        told = told_by(guest, seen)
        rule: dict[str, set[Position]] = defaultdict(set)
        shown: dict[CrashState, str] = {}
        for cut in all_cuts(guest.legal, made.times):
            state = CrashState(
                sum(c.stop - c.start for c in _submitted(guest.legal, cut.at)), tuple(sorted(cut.lost))
            )
            if state not in shown:
                shown[state] = replace_legal(guest).recover(state)[1]
            rule[shown[state]].add(guest.legal.position_at(cut.at))
        assert set(told) == set(rule)
        for text, positions in told.items():
            assert positions <= rule[text]
            for weaker in rule[text]:
                assert any(p.begun == weaker.begun and p.acked >= weaker.acked for p in positions)
        for group in seen:
            outcome = group.observation.outcome
            assert isinstance(outcome, Outcome)
            assert guest.recover(group.judged[0].state)[1] == outcome.kernel_log[0]


def _submitted(legal: LegalStates, at: int) -> list[range]:
    return [t.chunks for t in legal._writes if t.write.submitted < at]


def replace_legal(guest: Guest) -> Guest:
    """The same guest, for states that are chunks already."""
    return replace(guest, legal=cast("Any", SimpleNamespace(on_disk=lambda state: state)))


@real
@given(recorders(), st.integers(0, 255), st.integers(2, 5), st.sampled_from([None, 3, 7]))
def test_what_is_looked_at_does_not_depend_on_the_number_of_workers(
    disk: Disk, made: Recorder, seed: int, workers: int, visits: int | None
) -> None:
    """Each worker's disk knew what its own guest had read: one case was one core, and more of them would
    have looked at other states, under other names.
    """
    with tempfile.TemporaryDirectory() as folder:
        alone = explore(begin(made, disk, seed, Path(folder)), Budget(visits))
        together = explore(begin(made, disk, seed, Path(folder)), Budget(visits), workers)
        assert together[0] == alone[0]
        assert [(g.group, g.judged, g.observation.recalled) for g in together[1]] == [
            (g.group, g.judged, g.observation.recalled) for g in alone[1]
        ]


@real
@given(recorders(), st.integers(0, 255), st.integers(1, 6))
def test_a_budget_ends_it_and_is_never_called_exhaustive(
    disk: Disk, made: Recorder, seed: int, visits: int
) -> None:
    """The two defaults of each crash time are looked at even by a budget that ends before them: without them
    the case would have to be UNKNOWN.
    """
    with tempfile.TemporaryDirectory() as folder:
        floor, _ = explore(begin(made, disk, seed, Path(folder)), Budget(seconds=0))
        coverage, seen = explore(begin(made, disk, seed, Path(folder)), Budget(visits=visits))
        whole, all_seen = explore(begin(made, disk, seed, Path(folder)))
        assert whole.exhaustive
        assert floor.exhaustive or floor.losses == 0
        assert coverage.exhaustive or (coverage.losses or 0) >= 0
        if coverage.exhaustive:
            assert outcomes(seen) == outcomes(all_seen)
        else:
            assert coverage.unexplored
            assert "budget" in coverage.why
            assert coverage.visits == max(visits, floor.visits)


@real
@given(recorders(), st.integers(0, 255), st.sets(st.integers(1, 4), min_size=1))
def test_a_state_whose_guest_is_lost_is_unknown_and_what_lies_behind_it_open(
    disk: Disk, made: Recorder, seed: int, lost: set[int]
) -> None:
    """Nothing that was not looked at passes: such a state has an UNKNOWN of its own."""
    with tempfile.TemporaryDirectory() as folder:
        guest = begin(made, disk, seed, Path(folder))
        guest.lost = frozenset(lost)
        coverage, seen = explore(guest)
        unknown = [j for g in seen for j in g.judged if j.judgement.unknown]
        assert bool(unknown) == bool(lost & set(range(1, guest.visits + 1)))
        assert coverage.visits == guest.visits


def test_without_a_memo_the_defaults_are_looked_at_and_the_rest_is_open(disk: Disk, tmp_path: Path) -> None:
    made = Recorder()
    made.mark("begin 0")
    for block in range(3):
        made.write(block)
    made.complete(made.flush())
    guest = begin(made, disk, 1, tmp_path)
    guest.recalls = False
    coverage, seen = explore(guest)
    assert (coverage.losses, coverage.exhaustive) == (0, False)
    assert coverage.unexplored
    names = {str(j.state) for g in seen for j in g.judged}
    assert {"@t4", "@t4="} <= names


def test_a_stop_before_the_defaults_is_told(disk: Disk, tmp_path: Path) -> None:
    made = Recorder()
    made.mark("begin 0")
    made.write(0)
    made.complete(made.flush())
    stop = threading.Event()
    stop.set()
    guest = begin(made, disk, 1, tmp_path)
    one = exploration(guest, None, stop, lambda _: None)
    one.work(cast("Any", None))
    assert not one.ended, "nobody asks how far it came"


WIDE = 14
"""Blocks in flight at the only crash time of a wide recording: 16,384 states."""
PAIRS, DRAWN = OF_RECORDING.depth, OF_RECORDING.drawn
UP_TO_PAIRS = 2 * (1 + 14 + 14 * 13 // 2)


@dataclass
class Mender(Guest):
    """A recovery that reads every block and makes good whatever was lost, but for one thing: if blocks 0 to 2
    are lost and blocks 3 to 5 are not, none of which any two losses show.
    """

    mends_all: bool = True

    def recover(self, state: CrashState) -> tuple[list[int], str]:
        self.disk.switch(self.legal.on_disk(state))
        written = [content != self.disk_base for content in self.disk.block_hashes(range(WIDE))]
        broken = not self.mends_all and written[:6] == [False] * 3 + [True] * 3
        return list(range(WIDE)), "broken" if broken else "whole"

    @property
    def disk_base(self) -> bytes:
        """The content of a block that holds what the base image does: there is always one more than WIDE."""
        return self.disk.block_hashes([WIDE])[0]


def wide(disk: Disk, folder: Path, *, mends_all: bool = True, commit: bool = False) -> Mender:
    """`commit`: what flushes is the record of a commit, which is on its way then."""
    made = Recorder()
    for block in range(WIDE):
        made.write(block)
    made.complete(made.submit(WIDE + 1, preflush=True, fua=True) if commit else made.flush())
    legal = made.legal()
    base, log = write_files(made, folder, WIDE + 2)
    target = Target("", "", base, log, order=Order(legal.order, 8))
    disk.open(base, log, target.order)
    return Mender(legal, target, disk, 1, mends_all=mends_all)


def outcomes(seen: Sequence[JudgedGroup]) -> set[str]:
    return {g.observation.outcome.kernel_log[0] for g in seen if isinstance(g.observation.outcome, Outcome)}


def test_a_moment_with_too_many_states_that_are_all_alike_is_left_and_not_called_exhaustive(
    disk: Disk, tmp_path: Path
) -> None:
    guest = wide(disk, tmp_path)
    coverage, seen = explore(guest)
    assert (coverage.losses, coverage.unexplored, coverage.why) == (PAIRS, 0, "")
    assert (coverage.sampled, coverage.drawn) == (1, DRAWN)
    assert not coverage.exhaustive
    assert UP_TO_PAIRS < coverage.visits == guest.visits <= UP_TO_PAIRS + DRAWN
    assert len({j.state for g in seen for j in g.judged}) >= coverage.visits
    assert outcomes(seen) == {"whole"}


def test_states_are_drawn_without_the_record_that_may_not_have_persisted_before_them(
    disk: Disk, tmp_path: Path
) -> None:
    """A record on the platter before what it commits: no disk that honours PREFLUSH shows that."""
    guest = wide(disk, tmp_path, commit=True)
    coverage, seen = explore(guest)
    assert (coverage.sampled, coverage.drawn) == (1, DRAWN)
    assert outcomes(seen) == {"whole"}
    assert all(guest.legal.on_disk(j.state) for g in seen for j in g.judged), "a name of a legal state"


def test_what_takes_six_blocks_to_break_is_drawn_and_its_moment_stays_open(
    disk: Disk, tmp_path: Path
) -> None:
    coverage, seen = explore(wide(disk, tmp_path, mends_all=False), Budget(visits=UP_TO_PAIRS + DRAWN + 50))
    assert outcomes(seen) == {"whole", "broken"}
    assert coverage.sampled == coverage.drawn == 0
    assert coverage.unexplored


@pytest.mark.parametrize("lost", [UP_TO_PAIRS + 30, UP_TO_PAIRS + DRAWN // 2])
def test_a_drawn_state_whose_guest_is_lost_is_unknown_and_its_moment_stays_open(
    disk: Disk, tmp_path: Path, lost: int
) -> None:
    guest = wide(disk, tmp_path)
    guest.lost = frozenset({lost})
    coverage, seen = explore(guest, Budget(visits=UP_TO_PAIRS + DRAWN + 20))
    assert [j.judgement.unknown for g in seen for j in g.judged if j.judgement.unknown]
    assert coverage.sampled == 0
    assert coverage.unexplored


FEW = Sampling(depth=PAIRS, too_many=600, drawn=20)


class Two(Mender):
    """All states of up to two losses, from either side, come back whole, and all others broken."""

    def recover(self, state: CrashState) -> tuple[list[int], str]:
        self.disk.switch(self.legal.on_disk(state))
        written = sum(content != self.disk_base for content in self.disk.block_hashes(range(WIDE)))
        covered = min(written, WIDE - written) <= PAIRS
        return list(range(WIDE)), "whole" if covered else "broken"


def test_what_is_drawn_is_held_against_what_was_covered(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The states that were drawn agreed among themselves: the crash time was left, as one without a
    difference.
    """
    monkeypatch.setattr("harness.cases.exploration.OF_RECORDING", FEW)
    plain = wide(disk, tmp_path)
    guest = Two(plain.legal, plain.target, disk, 1)
    coverage, seen = explore(guest, Budget(visits=UP_TO_PAIRS + FEW.drawn + 5))
    assert outcomes(seen) == {"whole", "broken"}
    assert (coverage.sampled, coverage.drawn) == (0, 0)
    assert coverage.unexplored


def test_a_large_crash_time_in_which_a_guest_was_lost_is_not_sampled(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all of its states up to two losses have one outcome: of one, nobody knows."""
    monkeypatch.setattr("harness.cases.exploration.OF_RECORDING", FEW)
    guest = wide(disk, tmp_path)
    guest.lost = frozenset({7})
    coverage, _ = explore(guest, Budget(visits=UP_TO_PAIRS + FEW.drawn + 5))
    assert (coverage.sampled, coverage.drawn) == (0, 0)
    assert coverage.unexplored


def test_what_failed_at_any_of_its_positions_is_not_disturbed(disk: Disk, tmp_path: Path) -> None:
    """Of states of one content the first may pass where a later one fails, since more was promised by then: a
    faulty disk was blamed for that.
    """
    one = exploration(wide(disk, tmp_path), None, threading.Event(), lambda _: None)
    one._examiner = cast("Any", SimpleNamespace(adopt_requests=lambda *_: None))
    observation = Observation(Outcome(), requests_seen=cast("Any", SimpleNamespace(of=CrashState(1))))
    failed = Judgement((Violation("durability", "f", "", "", "", "f is lost"),))

    def judged(*judgements: Judgement) -> JudgedGroup:
        states = tuple(map(CrashState, range(len(judgements))))
        rows = [JudgedState(s, "", j, How.JUDGED) for s, j in zip(states, judgements, strict=True)]
        return JudgedGroup(Group("", states), observation, tuple(rows))

    for asked, result in enumerate([judged(Judgement(), failed), judged(failed, Judgement())], start=1):
        one._keep_requests(result)
        assert (one.requests_seen, one.unasked) == ([], asked)
    one._keep_requests(judged(Judgement(), Judgement()))
    assert len(one.requests_seen) == 1


def test_the_memo_is_asked_of_no_more_at_once_than_a_message_holds(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked of 32 crash times at once: of some 80 MiB that may be lost by sectors, the message was
    longer than one may be, the disk counted as lost, and the case was UNKNOWN.
    """
    made = Recorder()
    for block in range(6):
        made.write(block)
        made.mark(f"begin {block}")
    asked: list[int] = []

    class Counting(Guest):
        def explore(
            self, crash_times: Sequence[Choices | CrashState], target: object = None, **how: Any
        ) -> list[Explored]:
            asked.append(sum(len(t.volatile) for t in crash_times if isinstance(t, Choices)))
            return super().explore(crash_times, target, **how)

    def most_asked() -> int:
        begun = begin(made, disk, 1, tmp_path)
        asked.clear()
        assert explore(Counting(begun.legal, begun.target, disk, 1))[0].exhaustive
        return max(asked)

    assert most_asked() > 8
    monkeypatch.setattr("harness.guests.disk.CHUNKS_PER_REQUEST", 8)
    assert most_asked() <= 8


def test_a_budget_that_ends_the_drawing_leaves_the_moment_open(disk: Disk, tmp_path: Path) -> None:
    coverage, _ = explore(wide(disk, tmp_path), Budget(visits=UP_TO_PAIRS + DRAWN // 2))
    assert coverage.sampled == 0
    assert coverage.unexplored
    assert "budget" in coverage.why


def test_what_the_events_do_not_tell_is_never_called_exhaustive(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Recorder()
    made.mark("begin 0")
    made.write(0)
    made.complete(made.flush())
    guest = begin(made, disk, 1, tmp_path)
    assert explore(guest)[0].exhaustive
    monkeypatch.setattr(LegalStates, "ambiguous", 2)
    monkeypatch.setattr(LegalStates, "unclear", Counter({Unclear.FLUSHES: 2}))
    coverage, _ = explore(begin(made, disk, 1, tmp_path))
    assert (coverage.exhaustive, coverage.unexplored) == (False, 2)
    assert coverage.why == f"at 2 crash times {Unclear.FLUSHES}"


@pytest.mark.parametrize("writes", [3, 4])
def test_a_block_of_more_contents_than_the_limit_is_told_and_the_rest_is_looked_at(
    disk: Disk, tmp_path: Path, writes: int
) -> None:
    """By sectors, four writes to one block in flight make 390,625 contents. The disk's refusal was taken for
    a lost disk, three times, and then the case was UNKNOWN.
    """
    made = Recorder()
    for _ in range(writes):
        made.write(0)
    made.write(1)
    made.complete(made.flush())
    guest = begin(made, disk, 1, tmp_path, unit=1)
    floor, _ = explore(guest, Budget(visits=1))
    assert floor.losses == 0
    coverage, seen = explore(begin(made, disk, 1, tmp_path, unit=1), Budget(visits=200))
    assert coverage.visits
    read = {block for state in seen for block in guest.recover(state.judged[0].state)[0]}
    assert {0, 1} <= read, "or this tests nothing"
    assert not coverage.exhaustive
    assert coverage.unexplored
    told = f"more than {CONTENTS_MAX:,} contents" in coverage.why
    assert told == (writes == 4)
    if told:
        again, seen_again = explore(begin(made, disk, 1, tmp_path, unit=1))
        assert (again.losses, again.unexplored > 0, "budget" in again.why) == (0, True, False)
        assert not [j for g in seen_again for j in g.judged if j.judgement.unknown]


class Reader(Guest):
    """A recovery that changes nothing, and a file of six blocks of which each is read as data alone."""

    def recover(self, state: CrashState) -> tuple[list[int], str]:
        self.disk.switch(self.legal.on_disk(state))
        return list(range(6)), f"{self.disk.block_hashes(range(6))}"

    def visit(self, session: object, states: Sequence[CrashState], stop: threading.Event) -> Observation:
        observation = super().visit(session, states, stop)
        return replace(observation, reads=BlockReads(tuple(range(6)), data=tuple(range(6))))


@pytest.mark.parametrize(
    ("guest", "different"),
    [
        ({"plain": True, "data": "journal"}, 64),
        ({"plain": True, "checks": (Check(0, ("check",), ("*",)),)}, 64),
        ({"plain": True, "question": Question(group="", asks="", holds=[], kept=[], broken=[])}, 64),
        ({}, 14),
        ({"plain": True, "stacked": True}, 14),
        ({"plain": True}, 2),
    ],
    ids=[
        "recovery replays data",
        "a check reads data",
        "a question is put to data",
        "each block is judged alone",
        "a stack may join blocks",
        "nothing joins blocks",
    ],
)
def test_every_combination_of_data_is_looked_at_where_something_reads_several_of_its_blocks(
    disk: Disk, tmp_path: Path, guest: dict[str, Any], different: int
) -> None:
    """An application with six blocks got "every legal state", while `repro` of one failed its check; and
    four blocks on ext4 were said to be written as a whole.
    """
    made = Recorder()
    for block in range(6):
        made.write(block)
    made.complete(made.flush())
    begun = begin(made, disk, 1, tmp_path)
    coverage, seen = explore(Reader(begun.legal, begun.target, disk, 1, **guest))
    assert len(outcomes(seen)) == different
    assert coverage.exhaustive


def test_a_budget_applies_to_what_sectors_make_of_a_block_of_data(disk: Disk, tmp_path: Path) -> None:
    """Pass 0, to which no budget applies, visited each content of every block of data: 256 of one that was
    written once by sectors, 65,536 of one that was written three times.
    """
    made = Recorder()
    made.write(0)
    made.complete(made.flush())
    begun = begin(made, disk, 1, tmp_path, unit=1)
    reader = Reader(begun.legal, begun.target, disk, 1, plain=True)
    coverage, seen = explore(reader, Budget(visits=20))
    assert (coverage.visits, coverage.losses, coverage.exhaustive) == (20, 1, False)
    assert len(outcomes(seen)) == 20
    begun = begin(made, disk, 1, tmp_path, unit=1)
    whole, seen = explore(Reader(begun.legal, begun.target, disk, 1, plain=True))
    assert whole.exhaustive
    assert len(outcomes(seen)) == 256


def test_what_is_read_among_the_data_is_combined_where_seeking_reads_no_mapping(
    disk: Disk, tmp_path: Path
) -> None:
    """NILFS2 and ReiserFS look a mapping up when they read: its blocks counted as data, and no combination of
    them was looked at. So does any file system whose file says nothing.
    """
    made = Recorder()
    for block in range(6):
        made.write(block)
    made.complete(made.flush())
    begun = begin(made, disk, 1, tmp_path)
    guest = Reader(begun.legal, begun.target, disk, 1, plain=True, seeks=False)
    coverage, seen = explore(guest)
    assert len(outcomes(seen)) == 64
    assert coverage.exhaustive
    assert not Profile.__dataclass_fields__["seek_reads_mapping"].default
    known = {p.filesystem: p.seek_reads_mapping for p in profiles().values()}
    generic = {"jfs", "minix", "nilfs2", "reiserfs"}
    assert not [name for name in generic & known.keys() if known[name]]


class Sampler(Reader):
    """Each state of which the memo knows the outcome is visited all the same."""

    def known(self, number: int, machine: str, states: Sequence[CrashState]) -> None:  # type: ignore[override]  # none is recalled
        return None

    def learn(self, state: CrashState, observation: Observation, expected: int | None) -> int | None:
        return super().learn(state, observation, expected) if expected is None else expected


@dataclass
class Torn(Guest):
    """A recovery that reads every block and fails if all of the first write is lost and nothing else."""

    def recover(self, state: CrashState) -> tuple[list[int], str]:
        self.disk.switch(self.legal.on_disk(state))
        *written, base = self.disk.block_hashes(range(25))
        lost = [content == base for content in written]
        return list(range(24)), "broken" if lost == [True] * 8 + [False] * 16 else "whole"


def test_a_budget_reaches_each_write_as_a_whole_before_it_ends_among_the_blocks_of_the_first(
    disk: Disk, tmp_path: Path
) -> None:
    """A log of NILFS2 that spans two segments is 3,000 blocks: a budget of 1,000 states ended among those of
    its first writes, at the first crash times.
    """
    made = Recorder()
    for block in (0, 8, 16):
        made.complete(made.submit(block, 8))
    made.complete(made.flush())
    legal = made.legal()
    base, log = write_files(made, tmp_path, 25)
    target = Target("", "", base, log, order=Order(legal.order, 8))
    disk.open(base, log, target.order)
    coverage, seen = explore(Torn(legal, target, disk, 1), Budget(visits=20))
    assert "broken" in outcomes(seen)
    assert coverage.unexplored


def test_a_sample_that_a_budget_left_out_is_open(disk: Disk, tmp_path: Path) -> None:
    """Its outcome was known, so that its crash time was done; but nobody had judged it there. And a batch of
    samples exceeded the budget, however small that was.
    """
    made = Recorder()
    made.mark("begin 0")
    for block in range(3):
        made.write(block)
    made.mark("begin 1")  # a second crash time with the same choices
    made.complete(made.flush())

    def explored(visits: int | None) -> tuple[Coverage, set[CrashState]]:
        begun = begin(made, disk, 1, tmp_path)
        guest = Sampler(begun.legal, begun.target, disk, 1, checks=(Check(0, ("check",), ("*",)),))
        coverage, seen = explore(guest, Budget(visits=visits))
        return coverage, {j.state for group in seen for j in group.judged}

    whole, every = explored(None)
    assert whole.exhaustive
    ends = [explored(visits) for visits in range(1, whole.visits + 1)]
    assert [coverage.exhaustive for coverage, _ in ends] == [states == every for _, states in ends]
    assert all(coverage.unexplored for coverage, states in ends if states != every)
    simplest = ends[0][0].visits  # which no budget leaves out
    spent = [(max(simplest, visits), coverage.visits) for visits, (coverage, _) in enumerate(ends, start=1)]
    assert all(used <= most for most, used in spent), spent


def test_a_visit_is_judged_while_the_next_one_is_under_way(disk: Disk, tmp_path: Path) -> None:
    """A worker had nothing to do for 3 of 14 ms: it waited until the run had judged what it had told."""
    made = Recorder()
    for block in range(6):
        made.write(block)
    made.complete(made.flush())
    guest, order = begin(made, disk, 7, tmp_path), list[str]()
    told: list[JudgedGroup] = []

    def report(seen: Sequence[JudgedGroup]) -> None:
        told.extend(seen)
        order.extend(f"judged {g.group.states[0]}" for g in seen if not g.observation.recalled)

    one = exploration(guest, None, threading.Event(), report)
    one.work(Busy(order))
    begun = [i for i, what in enumerate(order) if what.startswith("begun")]
    overlapped = [order[i + 1] for i in begun if order[i + 1].startswith("judged")]
    assert overlapped, order
    # And nothing else is different: each visit is judged once, in the order of the visits.
    visited = [what.removeprefix("showed ") for what in order if what.startswith("showed")]
    assert [what.removeprefix("judged ") for what in order if what.startswith("judged")] == visited
    assert outcomes(told) == outcomes(explore(begin(made, disk, 7, tmp_path))[1])


def test_a_worker_that_fails_keeps_no_other_waiting(disk: Disk, tmp_path: Path) -> None:
    """Nobody reported its visit, and the others waited for that without end."""

    class Broken(Guest):
        def judge(self, state: CrashState, observation: Observation) -> Judgement:
            raise ValueError("a defect")

    made = Recorder()
    for block in range(4):
        made.write(block)
    made.complete(made.flush())
    whole = begin(made, disk, 7, tmp_path)
    guest = Broken(whole.legal, whole.target, disk, 7)
    one = exploration(guest, None, threading.Event(), lambda _: None)
    failed = []
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(one.work, Busy([])) for _ in range(2)]:
            failed.append(str(done.exception(timeout=60) or ""))
    assert one.ended
    assert "a defect" in failed
    with pytest.raises(RuntimeError, match="how far it came"):
        one.coverage()


def test_an_interrupt_leaves_nothing_held_wherever_it_comes(disk: Disk, tmp_path: Path) -> None:
    """One that came while a worker entered the exploration's Condition left it held. The other workers waited
    for it, where no interrupt reaches them, and the run never ended.
    """
    one = exploration(begin(Recorder(), disk, 1, tmp_path), None, threading.Event(), lambda _: None)
    begun: list[int] = []

    def work() -> None:
        with contextlib.suppress(Interrupted):
            while True:
                one.reopen()
                begun.append(1)

    for _ in range(300):
        begun.clear()
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        while not begun:
            time.sleep(0)
            assert worker.is_alive()
        _interrupt(worker)
        worker.join(60)
        other = threading.Thread(target=one.reopen, daemon=True)
        other.start()
        other.join(60)
        assert not worker.is_alive()
        assert not other.is_alive()


@pytest.mark.parametrize("recalls", [True, False], ids=["memo", "no memo"])
def test_a_time_that_is_up_ends_it_in_the_middle_of_a_batch(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recalls: bool
) -> None:
    """A batch has 64 visits; with a kernel that hangs, each may take a minute. Pass 0 is looked at all the
    same.
    """
    guest = wide(disk, tmp_path)
    guest.recalls = recalls
    floor = explore(guest, Budget(seconds=0))[0].visits
    clock = [0.0]
    monkeypatch.setattr("harness.cases.exploration.time", SimpleNamespace(monotonic=lambda: clock[0]))
    late, visit = wide(disk, tmp_path), Guest.visit

    def slow(guest: Guest, *given: Any) -> Observation:
        clock[0] += guest.visits >= floor + 1
        return visit(guest, *given)

    monkeypatch.setattr(Guest, "visit", slow)
    late.recalls = recalls
    coverage, seen = explore(late, Budget(seconds=3))
    assert coverage.visits == late.visits == (floor + 4 if recalls else floor)
    assert len({g.group.states[0] for g in seen if not g.observation.recalled}) == coverage.visits
    assert coverage.unexplored
    assert not coverage.exhaustive


def test_a_case_that_waits_for_a_worker_spends_none_of_its_time(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ninety cases on two guests, one had waited for ten seconds, which was its time: it was closed with
    "0 of 65 states", and --resume took it for done.
    """
    clock = [0.0]
    monkeypatch.setattr("harness.cases.exploration.time", SimpleNamespace(monotonic=lambda: clock[0]))
    one = exploration(wide(disk, tmp_path), Budget(seconds=3), threading.Event(), lambda _: None)
    clock[0] = 100.0
    one.work(Busy([]))
    coverage = one.coverage()
    assert coverage is not None
    assert "the budget" not in coverage.why


def test_violations_that_are_not_all_listed_are_no_difference() -> None:
    """Of many, which ones are listed depends on all of them: a state that was drawn would be told from those
    that were explored by what neither lists.
    """
    a, b, many = ("names", "a"), ("names", "b"), ("names", exploration_of_states._MANY)
    other = ("durability", "a")
    beyond = exploration_of_states._beyond
    assert beyond({a, b, other}, {a}) == {b, other}
    assert beyond({a, b, other}, {many}) == {other}
    assert beyond({many, other}, {a}) == {other}
    assert beyond({many}, {other}) == {many}
    listed = [Violation("names", "f", "", "", "", f"{n}") for n in range(MAX_VIOLATIONS + 1)]
    for count, expected in ((MAX_VIOLATIONS, MAX_VIOLATIONS), (MAX_VIOLATIONS + 1, 1)):
        row = JudgedState(CrashState(0), "", Judgement(tuple(listed[:count])), How.JUDGED)
        result = JudgedGroup(Group("", (row.state,)), Observation(Outcome()), (row,))
        assert len(exploration_of_states._violated(result)) == expected
