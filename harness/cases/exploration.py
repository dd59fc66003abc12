"""The engine: one loop that visits crash states, judges what comes back, and reports it.

A case is a sequence of *crash times*. At each of them, some blocks may have persisted or not; a state of the
log's own order (`@417`) is a crash time without choices. The memo is asked for states of which it knows no
outcome (`explore`); workers visit them; each visit is reported, then learned; the memo is asked again, until
every branch ends in a known outcome. So the log's own order and all legal states are covered in the same
way, and differ in the choices only.

Choices are counted against two defaults, everything volatile lost and everything kept: pass 0 covers these
two of every crash time, pass 1 at what differs from one of them in one block, and so on to the end. Of a
block of data that is looked at alone, pass 1 covers what one chunk makes of a default, pass 2 all contents.
What a budget does not apply to is covered in pass 0: less would be no answer. Where the budget may end
within pass 1, each write of several blocks comes before, as a whole: lost alone, and kept alone. What the
budget cuts off is counted and said: see `Coverage`.

A crash time may have more states than can ever be visited: XFS at unmount has some 20 blocks in flight, and
recovery reads each of them for its log sequence number. If all its states up to some depth have one outcome,
and all that are drawn at random have it as well, the crash time counts as *sampled, no difference found*, and
is left: see `Sampling`.

What is left out as of no effect is tested as well: at TESTED of the crash times that are known to their end,
one state of all that are legal there is drawn and visited. What it violates, a state that was visited there
has to violate, too; else the exploration left out what it must not, and the case is UNKNOWN. So a switch of a
file system's file that is wrong (`no_csum_no_compression`, `roll_forward_allocates`, `mount_counters`) is
noticed.

A cut in a recovery is a crash time like any other. What the visits of one exploration wrote while they
recovered (`recoveries`) gives the crash times of the next one (`cut_again`), over the same memo: so a state
that a cut recovery left is visited only if it differs, in what is read, from all that were visited before.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from harness.cases.attempts import Unobserved
from harness.cases.contents import KnownContents
from harness.cases.examine import Examiner, Group, JudgedGroup, Observation, judge_group
from harness.cases.recoveries import RecoveryLog
from harness.cases.remote import AnySession, RemoteSession, nothing
from harness.cases.requests_seen import RequestsSeen
from harness.guests.disk import CONTENTS_MAX, BlockReads, Explored, KnownOutcome, within_a_request
from harness.guests.session import Target
from harness.model import CrashState, Verdict
from harness.oracles import MAX_VIOLATIONS
from harness.plan import SAMPLE_RATE, Budget
from harness.states import Choices, CrashTime, LegalStates, Unclear
from harness.store.records import Coverage

BATCH_MAX = 64
"""States that are visited before the memo is asked again. Each comes from another unknown end of its tree."""
WINDOW = 32
"""Crash times that the memo is asked about at once. Enough for many workers; what the first ones tell
answers the next ones.
"""
WAIT_S = 0.2


@dataclass(frozen=True, slots=True)
class Sampling:
    """Where states are drawn. `depth`: up to which every state is covered. `too_many`: branches left there
    from which on they are drawn. `drawn`: how many, each chunk lost or kept with equal chance.
    """

    depth: int
    too_many: int
    drawn: int


OF_RECORDING = Sampling(depth=2, too_many=600, drawn=1024)
"""From 14 blocks of two contents on, 16,384 states. An outcome that takes certain contents of six blocks of
two contents escapes with a chance of 1 in 10 million, one that takes eight with 2 %.
"""
OF_RECOVERY = Sampling(depth=1, too_many=180, drawn=64)
"""From 14 blocks of two contents on, or five of six. Two blocks escape with a chance of 1 in 100 million,
four with 2 %; but a case has hundreds of recoveries that replay one log.
"""

TESTED = SAMPLE_RATE
"""The share of crash times at which one state is drawn among all, to test what is left out."""

Report = Callable[[Sequence[JudgedGroup]], None]
"""Takes states that were observed and judged; called in a worker's thread, one at a time."""


_Violated = tuple[str, str]
"""An oracle, and the signature of what it found."""


@dataclass(slots=True)
class TimeCoverage:
    """How far the states of a crash time are known. `ask`: its states, as the disk takes them; one state
    where nothing is left to choose. `group`: that state's names. `begins`: the pass that covers it first.
    `recovery`: the one in which it is, if it is in one.

    Below: how far it is known. `unexplored`: branches that were not followed in the last pass. `unobserved`:
    states that were visited and told nothing of others, so that what lies behind them is not known.
    `crowded`: blocks with more contents than the disk tells apart, of which few were looked at. `drawn`:
    states that were, if it counts as sampled. `outcomes`: what was reported of it, by number. `visited`: its
    states that were. `violations`: of what was reported of it, oracle and signature.

    `tests`: it is one state that was drawn to test what is left out, and held against this crash time;
    `excused` is what it may violate beyond that.
    """

    ask: Choices | CrashState
    group: Group | None = None
    crash_time: CrashTime | None = None
    begins: int = 0
    recovery: RecoveryLog | None = None
    unexplored: int = 1
    unobserved: int = 0
    crowded: int = 0
    drawn: int = 0
    reported: bool = False
    outcomes: set[int] = field(default_factory=set)
    visited: set[CrashState] = field(default_factory=set)
    violations: set[_Violated] = field(default_factory=set)
    tests: TimeCoverage | None = None
    excused: frozenset[_Violated] = frozenset()
    is_tested: bool = False

    @property
    def is_known(self) -> bool:
        """Whether all is known of it that there is, but for what is left out as of no effect."""
        return self.reported and not (self.unexplored or self.unobserved or self.crowded or self.drawn)

    @property
    def target(self) -> Target | None:
        """What a disk shows for its states, if not the recording."""
        return self.recovery.target if self.recovery else None

    @property
    def seed(self) -> str:
        """What seeds the draws of its states: no other crash time has it, and every run of the recording
        does. Recoveries number their entries from 0, and hundreds of them replay one log: with the number
        alone, each would draw what the first one drew.
        """
        assert self.crash_time is not None  # noqa: S101 - it has choices; tells mypy
        of = f"{self.recovery.of} {self.recovery.shape}" if self.recovery else ""
        return f"{of} {self.crash_time.entry} {self.crash_time.phase}"

    @property
    def sampling(self) -> Sampling:
        """Where its states are drawn."""
        return OF_RECOVERY if self.recovery else OF_RECORDING


def listed(groups: Iterable[Group], begins: int = 0) -> list[TimeCoverage]:
    """Crash times without choices. The states of a group are those of the log's own order, as the disk takes
    them.
    """
    return [TimeCoverage(group.states[0], group, begins=begins) for group in groups]


def legal_times(legal: LegalStates) -> list[TimeCoverage]:
    """The crash times of all legal states."""
    return [TimeCoverage(crash_time.choices, crash_time=crash_time) for crash_time in legal.crash_times]


def cut_again(recoveries: Iterable[RecoveryLog]) -> list[TimeCoverage]:
    """The crash times of recoveries: all legal states of each."""
    return [
        TimeCoverage(r.choices(m), crash_time=m, recovery=r) for r in recoveries for m in r.legal.crash_times
    ]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A recovery that is not cut, because that of the state `representative`, which is alike, is: one of its
    crash times, to test that. `violations`: of its state as it is.
    """

    recovery: RecoveryLog
    crash_time: CrashTime
    representative: CrashState
    violations: frozenset[_Violated]

    @property
    def time(self) -> TimeCoverage:
        """As a crash time of its own."""
        choices = self.recovery.choices(self.crash_time)
        return TimeCoverage(choices, crash_time=self.crash_time, recovery=self.recovery)


@dataclass(slots=True)
class _Visit:
    """A content to be visited, at its crash time. `expected`: the outcome that the memo knows for it."""

    time: TimeCoverage
    group: Group
    expected: int | None = None
    result: JudgedGroup | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """A state that the memo told of. `number`: its outcome's, if that is known. `observation`: None where it
    has to be visited.
    """

    time: TimeCoverage
    states: tuple[CrashState, ...]
    shown: CrashState
    number: int | None = None
    observation: Observation | None = None


class _Left:
    """What is left to do for a visit: `do` it while the next one is under way, to whose guest an error of it
    says nothing. `end` does it if it was not done, and raises its error.
    """

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self._error: Exception | None = None

    def do(self) -> None:
        """Once. Never raises an Exception."""
        act, self._act = self._act, nothing
        try:
            act()
        except Exception as e:
            self._error = e

    def end(self) -> None:
        self.do()
        if self._error is not None:
            raise self._error


class Exploration:
    """Visits the crash states of one recording. Any number of workers may `work` on it at once, and what
    is visited, under which names, and in which order it is reported, does not depend on their number.
    Deterministic for a budget in states.

    Invariants:

    1. Every visit is reported, whatever came of it and whether or not the memo may keep it, before anything
       that was concluded from it. `coverage` refuses to answer if one was not.
    2. A visit is reported before another one is planned by what it told.
    3. An outcome that the memo tells is reported once for each crash time that has it.
    4. No coverage is exhaustive if a state was visited that told nothing of others.
    """

    def __init__(
        self,
        examiner: Examiner,
        times: Sequence[TimeCoverage],
        machine: str,
        budget: Budget,
        stop: threading.Event,
        report: Report,
        contents: KnownContents | None = None,
        left_out: Sequence[LeftOut] = (),
    ) -> None:
        """`machine`: the kind of guest that visits. `contents`: what other cases have shown. `left_out`: of
        the recoveries whose crash times these are, those that are alike.
        """
        self._examiner, self._times, self._machine = examiner, times, machine
        self._contents = contents
        self._budget, self._stop, self._report = budget, stop, report
        profile, workload = examiner.recording.profile, examiner.recording.workload
        # A block of data alone decides nothing but the judgement of its own bytes, unless the journal holds
        # data, or a check or a question of the workload reads several of them. Where seeking reads no
        # mapping, what says where data lies is read among the data.
        several = workload.checks or workload.question
        self._separate = profile.contract.data != "journal" and not several and profile.seek_reads_mapping
        # Nor does it matter then which other block is lost, where nothing joins them: a stack may.
        self._together = self._separate and profile.no_csum_no_compression and not profile.stacked
        self._begun: float | None = None
        self._lock = threading.RLock()  # held by itself: see `Interrupted`
        self._changed = threading.Condition(self._lock)
        self._pass = 0
        self._left: list[TimeCoverage] = []
        self._parts = self._in_parts()
        self._testing = False
        self._to_test = list(left_out)
        self._batch: list[_Visit] = []
        self._queue: deque[_Visit] = deque()
        self._reported = 0
        self.visits = 0
        """How many were planned by now."""
        self._visits_reported = 0
        self._recalled: list[_Found] = []
        self._plain: deque[tuple[int, Group, TimeCoverage]] | None = None
        self.ended = self._failed = False
        """`ended`: whether nothing is left to visit, so that `coverage` may be asked."""
        self._complete = False
        self._why = ""
        self.recoveries: list[RecoveryLog] = []
        self.left_out: list[LeftOut] = []
        self.not_cut = 0
        self.requests_seen: list[RequestsSeen] = []
        self.unasked = 0

    # --- workers -----------------------------------------------------------------------------

    def work(self, session: AnySession) -> None:
        """Visit states with this session until there are none left. A visit is judged while the worker is
        busy with the next one, if that is planned already. Raises DiskError where no disk process answers for
        the memo, in one of the threads that work.
        """
        self._begin()
        last = _Left(nothing)
        while True:
            visit = self._next()
            if visit is None:
                with self._nobody_waits():
                    last.end()
                visit = self._take()
            if visit is None:
                return
            with self._nobody_waits():
                if isinstance(session, RemoteSession):
                    session.meanwhile = last.do
                else:
                    last.end()
                observation = self._observe(session, visit.group)
                last.end()
            last = _Left(functools.partial(self._judge, visit, observation))

    def _begin(self) -> None:
        """The budget's time runs from the first worker on: a case that waits for one spends nothing."""
        with self._lock:
            if self._begun is None:
                self._begun = time.monotonic()

    @contextlib.contextmanager
    def _nobody_waits(self) -> Iterator[None]:
        """If the block raises, nobody else reports its visit: the others must not wait for it."""
        try:
            yield
        except BaseException:
            with self._lock:
                self._failed = self.ended = True
                self._changed.notify_all()
            raise

    def _judge(self, visit: _Visit, observation: Observation) -> None:
        self._put(visit, judge_group(self._examiner, visit.group, observation))

    def _observe(self, session: AnySession, group: Group) -> Observation:
        if self._contents is None:
            return self._examiner.visit(session, group.states, self._stop)
        return self._contents.visit(self._examiner, session, group, self._stop)

    def reopen(self) -> bool:
        """Whether workers have to work on it again: after its end, somebody found the memo mismatched, and
        it had answered something.
        """
        with self._lock:
            if self._plain is None and self._recalled and self._examiner.memo.mismatch:
                self.ended = False
            return not self.ended

    def _next(self) -> _Visit | None:
        """The next state to visit, if it is planned."""
        with self._lock:
            if self.ended or self._stop.is_set() or not self._queue or self._is_late():
                return None
            return self._queue.popleft()

    def _take(self) -> _Visit | None:
        """The next state to visit; waits for what others visit, if that decides it. None: no more."""
        with self._lock:
            while not (self.ended or self._stop.is_set()):
                if self._queue and self._is_late():
                    self._put_back()
                if self._queue:
                    return self._queue.popleft()
                if self._reported < len(self._batch):
                    self._changed.wait(WAIT_S)
                    continue
                try:
                    self._plan()
                except BaseException:
                    self._failed = self.ended = True
                    raise
                finally:
                    self._changed.notify_all()
            return None

    def _put(self, visit: _Visit, result: JudgedGroup) -> None:
        """Take what a visit showed. Visits are reported and learned in the order of the plan."""
        with self._lock:
            visit.result = result
            while self._reported < len(self._batch):
                first = self._batch[self._reported]
                if first.result is None:
                    break
                self._reported += 1
                self._take_in(first, first.result)
            self._changed.notify_all()

    def _take_in(self, visit: _Visit, result: JudgedGroup) -> None:
        state, time_ = visit.group.states[0], visit.time
        time_.visited.add(state)
        time_.reported = True
        try:
            number = self._examiner.learn(state, result.observation, visit.expected)
        except BaseException:
            self._failed = self.ended = True
            raise
        finally:
            self._report([result])
            self._visits_reported += 1
        if number is not None:
            time_.outcomes.add(number)
        if time_.tests is not None:
            self._hold(time_, time_.tests, result)
            if result.observation.recovery is not None:
                result.observation.recovery.remove()
            return
        time_.violations |= _violated(result)
        self._keep_recovery(result, number)
        self._keep_requests(result)

    def _hold(self, drawn: TimeCoverage, known: TimeCoverage, result: JudgedGroup) -> None:
        """Hold a state that was drawn against what is known of its crash time."""
        if others := _beyond(_violated(result), known.violations | drawn.excused):
            told = "; ".join(f"{oracle}: {signature}" for oracle, signature in sorted(others))
            self._examiner.memo.give_up(
                result.group.states[0],
                "what was left out as of no effect has one: {state}, drawn at random, violates what no state "
                f"that was explored at its crash time does ({told}); of the file system's file, one of "
                "no_csum_no_compression, roll_forward_allocates, mount_counters and seek_reads_mapping "
                "must be wrong, or the mode's data",
            )

    def _keep_requests(self, result: JudgedGroup) -> None:
        """Keep the requests that recovery sent to its disk, so that faults can be injected into them. A state
        that failed already gets no faults.
        """
        observation = result.observation
        passed = all(one.judgement.verdict is Verdict.PASS for one in result.judged)
        if observation.requests_seen is not None and passed:
            self._examiner.adopt_requests(observation.requests_seen, observation)
            self.requests_seen.append(observation.requests_seen)
        else:
            self.unasked += 1

    def _keep_recovery(self, result: JudgedGroup, number: int | None) -> None:
        """Keep the writes of recovery if it is to be cut, unless nobody may rely on the visit. A recovery
        that did not come back whole fails already, and is not cut. `number`: as the memo knows the state.
        """
        observation = result.observation
        recovery, reads = observation.recovery, observation.reads
        kept = list[RecoveryLog]()
        if recovery is not None and reads is not None:
            for state in result.group.states:
                self._examiner.note_undisturbed(state, observation)
            if recovery.legal.order:
                kind = self._examiner.cuts.kind(self._alike(recovery, reads, number), number)
                same = (replace(recovery, of=state) for state in result.group.states)
                kept = [one for one in same if self._is_to_be_cut(one, kind, result)]
        elif isinstance(observation.outcome, Unobserved) or observation.outcome.usable is not None:
            self.not_cut += 1
        for one in kept:
            self._examiner.adopt(one, observation)
        if recovery is not None and not kept:
            recovery.remove()

    def _is_to_be_cut(self, recovery: RecoveryLog, kind: int, result: JudgedGroup) -> bool:
        """Whether a recovery of this kind is to be cut: at all of its crash times, or at some to test that it
        need not be.
        """
        if self._examiner.cuts.takes(kind, recovery.of):
            self.recoveries.append(recovery)
            return True
        representative = self._examiner.cuts.representative(kind, recovery.of)
        if representative is None or recovery.of in self._examiner.recording.recoveries:
            return False  # of two logs of one state's recovery the first is known by its name
        tested = [
            left_out
            for crash_time in recovery.legal.crash_times
            if crash_time.choices.volatile
            and self._is_to_be_tested(
                (left_out := LeftOut(recovery, crash_time, representative, frozenset(_violated(result)))).time
            )
        ]
        self.left_out += tested
        return bool(tested)

    def _alike(self, recovery: RecoveryLog, reads: BlockReads, number: int | None) -> object:
        """Equal for recoveries that read the same but for bytes of files, so that they wrote the same, but
        for the time of day. Those bytes are judged in the visit to each; what a cut does to the rest is the
        same. Not so where recovery decides which blocks a file has: then a cut may show bytes where the visit
        did not, or where nothing was promised of them.
        """
        if not self._separate or self._examiner.recording.profile.roll_forward_allocates:
            return recovery.of if number is None else number
        decided = recovery.decided_by(reads)
        seen = self._examiner.memo.block_hashes(recovery.of, decided)
        return (tuple(zip(decided, seen, strict=True)), recovery.steps)

    # --- planning -----------------------------------------------------------------------------

    def _plan(self) -> None:
        """Make the next batch, or end."""
        self._batch, self._reported = [], 0
        while not (self._batch or self.ended or self._stop.is_set()):
            if self._plain is not None or not self._examiner.memo.recalls:
                self._plan_plainly()
            elif self._left:
                self._plan_by_memo()
            else:
                self._left = next(self._parts, [])
        self.visits += len(self._batch)
        self._queue = deque(self._batch)

    def _end(self, *, complete: bool, why: str = "") -> None:
        self.ended, self._complete, self._why = True, complete, why

    def _is_late(self) -> bool:
        """Whether the budget's time is up; it does not apply to pass 0."""
        if self._pass == 0 or self._begun is None:
            return False
        return self._budget.is_spent(-1, time.monotonic() - self._begun)

    def _room(self) -> int:
        """How many states may be visited next."""
        if self._pass == 0 or self._budget.visits is None:
            return BATCH_MAX
        return max(0, min(BATCH_MAX, self._budget.visits - self.visits))

    def _put_back(self) -> None:
        """Take what nobody visits any more out of the batch: a guest that hangs takes a minute for each."""
        back = list(self._queue)
        del self._batch[len(self._batch) - len(back) :]
        self._queue.clear()
        self.visits -= len(back)
        if self._plain is not None:
            self._plain.extendleft((self._pass, v.group, v.time) for v in reversed(back))
        else:
            self._left += [v.time for v in back]

    def _end_by_budget(self) -> None:
        for one in self._left:
            one.unexplored = max(one.unexplored, 1)  # nobody knows what else it has
        self._batch = []
        self._end(complete=False, why=f"the budget: {self._budget.text}")

    def _plan_by_memo(self) -> None:
        """Ask of the first crash times. What the memo tells of them is reported even if nothing more may be
        visited.
        """
        if self._testing and (self._is_late() or not self._room()):
            self._left = []  # all is known as far as the budget goes
            return
        if self._is_late():
            self._end_by_budget()
            return
        window, room = self._window(), self._room()
        found: list[_Found] = []
        done: set[int] = set()
        answers = self._examiner.memo.explore(
            [t.ask for t in window],
            window[0].target,
            losses=self._pass,
            separate_data=self._separate,
            data_together=self._together,
            to_visit_max=max(1, room),
        )
        for one, explored in zip(window, answers, strict=True):
            known, unknown = list(self._known(one, explored.known)), list(self._unknown(one, explored))
            found += [*known, *unknown]
            one.unexplored, one.unobserved = explored.unexplored, len(explored.to_visit) - len(unknown)
            one.crowded = max(one.crowded, explored.crowded)
            if not unknown and not explored.waits:
                done.add(id(one))
        done -= self._go_to(found, max(1, room))
        self._left = [t for t in window if id(t) not in done] + self._left[len(window) :]
        if self._batch and not room:
            self._left += [v.time for v in self._batch]
            self._end_by_budget()

    def _window(self) -> list[TimeCoverage]:
        """The first crash times that one disk can show, as many as it may be asked of at once."""
        first = self._left[0].recovery
        found = list(itertools.takewhile(lambda t: t.recovery is first, self._left[:WINDOW]))
        return found[: len(within_a_request([t.ask for t in found]))]

    def _known(self, one: TimeCoverage, outcomes: Sequence[KnownOutcome]) -> Iterator[_Found]:
        """The outcomes of a crash time that were not reported for it yet."""
        for known in outcomes:
            if known.outcome in one.outcomes:
                continue
            one.outcomes.add(known.outcome)
            states = self._names(one, known.state)
            observation = self._examiner.known(known.outcome, self._machine, states)
            yield _Found(one, states, known.state, known.outcome, observation)

    def _unknown(self, one: TimeCoverage, explored: Explored) -> Iterator[_Found]:
        """The states of a crash time that have to be visited, and were not yet."""
        for shown in explored.to_visit:
            states = self._names(one, shown)
            if states[0] not in one.visited:
                yield _Found(one, states, shown)

    def _names(self, one: TimeCoverage, shown: CrashState) -> tuple[CrashState, ...]:
        """The names of a state that the disk told."""
        if one.group is not None:
            return one.group.states
        assert one.crash_time is not None  # noqa: S101 - the one or the other, see `TimeCoverage`; tells mypy
        if one.recovery is not None:
            return (one.recovery.name(one.crash_time, shown),)
        return (self._legal.name(one.crash_time, shown.dropped),)

    @property
    def _legal(self) -> LegalStates:
        legal = self._examiner.recording.legal
        assert legal is not None  # noqa: S101 - only legal states have choices; tells mypy
        return legal

    def _go_to(self, found: Sequence[_Found], visits_max: int) -> set[int]:
        """Report what the memo tells, and plan visits to so many of the rest. Returns the ids of the crash
        times that have more: sampled outcomes, which the memo will tell again.
        """
        later = set()
        unhashed = [f for f in found if f.time.group is None]
        contents = {id(f): content for f, content in zip(unhashed, self._hashes(unhashed), strict=True)}
        recalled: list[JudgedGroup] = []
        for one in found:
            group = one.time.group or Group(contents[id(one)], one.states)
            number, cuts, known = one.number, self._examiner.cuts, one.observation
            tests = one.time.tests is not None
            if number is not None and (tests or not cuts.are_cut(number, group.states)):
                known = None
            if known is not None:
                one.time.reported = True
                self._recalled.append(one)
                recalled.append(judge_group(self._examiner, group, known))
                one.time.violations |= _violated(recalled[-1])
            elif len(self._batch) < visits_max:
                self._batch.append(_Visit(one.time, group, number))
                if number is not None and not tests:
                    cuts.hold(number, group.states)
            else:
                later.add(id(one.time))
                one.time.outcomes.discard(number)
        if recalled:
            self._report(recalled)
        return later

    def _hashes(self, found: Sequence[_Found]) -> list[str]:
        """Of the contents of states."""
        hashes: list[str] = []
        for _, same in itertools.groupby(found, lambda f: id(f.time.recovery)):
            shown = list(same)
            hashes += self._examiner.memo.hashes([f.shown for f in shown], shown[0].time.target)
        return hashes

    # --- passes, and what is drawn ------------------------------------------------------------

    def _in_parts(self) -> Iterator[list[TimeCoverage]]:
        """The passes, each in up to three parts: the crash times that are not known yet, what is drawn of
        those with too many states, and what is drawn to test those that are known then. Ends the exploration
        at last.
        """
        unfinished = list(self._times)
        while unfinished:
            if self._pass == 1:
                yield self._whole_writes()
            yield [t for t in unfinished if t.begins <= self._pass]
            drawn = [(one, self._draw(one)) for one in self._times if self._is_large(one)]
            yield [t for _, states in drawn for t in states]
            for one, states in drawn:
                if self._no_difference(one, states):
                    one.drawn, one.unexplored = len(states), 0
            self._pass += 1
            self._testing = True
            yield self._draw_tests()
            self._testing = False
            unfinished = [t for t in self._times if t.begins >= self._pass or t.unexplored]
        unobserved = any(t.unobserved for t in self._times)
        crowded = any(t.crowded for t in self._times)
        self._end(complete=not (unobserved or crowded), why=_UNOBSERVED if unobserved else "")

    def _is_to_be_tested(self, one: TimeCoverage) -> bool:
        """Whether a state of this crash time is drawn once that is known. The same in every run."""
        return self._examiner.memo.is_in_share(f"test {one.seed}", TESTED)

    def _draw_tests(self) -> list[TimeCoverage]:
        """A state each of some of the crash times that have become known, and of recoveries that are alike to
        those to which these belong.
        """
        known, drawn = list[TimeCoverage](), list[TimeCoverage]()
        for one in self._times:
            if one.is_tested or not one.is_known or isinstance(one.ask, CrashState):
                continue
            one.is_tested = True
            known.append(one)
            if one.ask.volatile and self._is_to_be_tested(one):
                drawn += self._draw_test(one, one)
        by_place = {
            (t.recovery.of, t.crash_time.entry, t.crash_time.phase): t
            for t in known
            if t.recovery and t.crash_time
        }
        for left_out in self._to_test:
            at = left_out.crash_time
            if held := by_place.get((left_out.representative, at.entry, at.phase)):
                drawn += self._draw_test(left_out.time, held, left_out.violations)
        return drawn

    def _draw_test(
        self, one: TimeCoverage, known: TimeCoverage, excused: frozenset[_Violated] = frozenset()
    ) -> list[TimeCoverage]:
        """A state of crash time `one`, to be held against what is known of `known`; none if it was visited
        there.
        """
        (found,) = self._drawn_states(one, f"test {self._examiner.recording.case} {one.seed}", 1)
        if found.states[0] in known.visited:
            return []
        (content,) = self._hashes([found])
        group = Group(content, found.states)
        return [TimeCoverage(found.shown, group, recovery=one.recovery, tests=known, excused=excused)]

    def _whole_writes(self) -> list[TimeCoverage]:
        """Where the budget may end among the blocks of the first writes: each write of several blocks as a
        whole, lost alone and kept alone, at the last crash time at which it can be. They take half of the
        budget at most.
        """
        times = [(t, t.ask) for t in self._times if isinstance(t.ask, Choices) and t.recovery is None]
        most = self._budget.visits
        if most is None or sum(len(choices.volatile) for _, choices in times) <= most:
            return []
        last: dict[int, tuple[TimeCoverage, Choices, list[int]]] = {}
        for one, choices in times:
            for entry, chunks in itertools.groupby(choices.volatile, lambda n: self._legal.chunks[n].entry):
                last[entry] = one, choices, list(chunks)
        large = [found for found in last.values() if len(found[2]) > 1]
        found = [
            _Found(one, self._names(one, state), state)
            for one, choices, lost in large[:: -(-4 * len(large) // most) or 1]
            for state in (choices.state(True, lost), choices.state(False, lost))
        ]
        return [
            TimeCoverage(f.shown, Group(content, f.states))
            for f, content in zip(found, self._hashes(found), strict=True)
        ]

    def _is_large(self, one: TimeCoverage) -> bool:
        """Whether a crash time has more states than can be visited, and all that was observed of it came back
        the same.
        """
        sampling = one.sampling
        if self._pass != sampling.depth or one.unexplored <= sampling.too_many:
            return False
        if one.unobserved or not one.outcomes:
            return False
        return self._same(one.outcomes)

    def _same(self, numbers: Iterable[int]) -> bool:
        first, *others = map(self._examiner.memo.outcome, numbers)
        return all(self._examiner.memo.same(first, other) for other in others)

    def _draw(self, one: TimeCoverage) -> list[TimeCoverage]:
        """States of a crash time drawn at random, the same in every run, as crash times without choices."""
        drawn = list(self._drawn_states(one, one.seed, one.sampling.drawn))
        return [
            TimeCoverage(f.shown, Group(content, f.states), recovery=one.recovery)
            for f, content in zip(drawn, self._hashes(drawn), strict=True)
        ]

    def _drawn_states(self, one: TimeCoverage, seed: str, count: int) -> Iterator[_Found]:
        """So many states of a crash time, each of its chunks lost or kept with equal chance."""
        assert not isinstance(one.ask, CrashState)  # noqa: S101 - it has choices; tells mypy
        choices, chance = one.ask, random.Random(seed)  # noqa: S311  # no secret
        for _ in range(count):
            lost = [chunk for chunk in choices.volatile if chance.getrandbits(1)]
            state = CrashState(choices.prefix, tuple(sorted((*choices.absent, *lost))))
            yield _Found(one, self._names(one, state), state)

    def _no_difference(self, one: TimeCoverage, drawn: Sequence[TimeCoverage]) -> bool:
        if any(t.unobserved or not t.outcomes for t in drawn):
            return False
        return self._same({number for t in (one, *drawn) for number in t.outcomes})

    # --- without a memo -----------------------------------------------------------------------

    def _plan_plainly(self) -> None:
        """Without a memo no state is known to stand for another: visit the defaults of each crash time, at
        equal contents once, and again at what a mismatched memo had answered.
        """
        if self._plain is None:
            self._plain = deque(self._by_content())
        while self._plain and len(self._batch) < max(1, self._room()):
            if self._batch and self._plain[0][0] != self._pass:
                break  # the budget's time does not apply to pass 0
            self._pass = self._plain[0][0]
            if self._is_late() or not self._room():
                break
            _, group, one = self._plain.popleft()
            self._batch.append(_Visit(one, group))
        if not self._batch:
            ended = bool(self._plain)
            why = f"the budget: {self._budget.text}" if ended else self._examiner.memo.mismatch or _NO_MEMO
            self._end(complete=False, why=why)

    def _by_content(self) -> list[tuple[int, Group, TimeCoverage]]:
        """What to visit, by the pass that does: each content once, with all of its states."""
        again = self._recalled if self._examiner.memo.mismatch else []
        found = [_Found(f.time, f.states, f.shown) for f in again]
        for one in self._times:
            if isinstance(one.ask, CrashState):
                found += [] if one.reported else [_Found(one, self._names(one, one.ask), one.ask)]
            else:
                defaults = dict.fromkeys([one.ask.state(False), one.ask.state(True)])
                named = [_Found(one, self._names(one, shown), shown) for shown in defaults]
                found += [f for f in named if f.states[0] not in one.visited]
        hashes = self._hashes(found)
        contents: dict[str, dict[CrashState, _Found]] = {}
        for one_, content in zip(found, hashes, strict=True):
            contents.setdefault(content, {}).update(dict.fromkeys(one_.states, one_))
        plain = []
        for content, states in contents.items():
            begins = min(f.time.begins for f in states.values())
            plain.append((begins, Group(content, tuple(states)), next(iter(states.values())).time))
            for f in states.values():
                f.time.reported = True
        return sorted(plain, key=lambda p: p[0])

    # --- coverage -----------------------------------------------------------------------------

    def coverage(self) -> Coverage | None:
        """How far the case was covered; None: without choices, at all of it. Ask once it has `ended`.
        Raises RuntimeError after a failure: how far it came is not known.
        """
        if self._failed:
            raise RuntimeError("an exploration that failed does not know how far it came")
        visited = self.visits - len(self._queue)
        if self._visits_reported != visited:
            raise RuntimeError(f"{visited} states were visited, {self._visits_reported} of them reported")
        if not any(t.crash_time for t in self._times):
            left = len(self._plain or ()) + sum(1 for t in self._times if not t.reported)
            return Coverage(0, -1, left, self.visits, self._why) if left else None
        if self._plain is not None:
            left = len(self._plain)
            volatile = sum(1 for t in self._times if t.crash_time and t.crash_time.choices.volatile)
            return Coverage(len(self._times), -1 if left else 0, volatile + left, self.visits, self._why)
        sampled, ambiguous = [t for t in self._times if t.drawn], sum(legal.ambiguous for legal in self._cut)
        losses = None if self._complete and not ambiguous else self._pass - 1
        if crowded := sum(t.crowded for t in self._times):
            losses = min(0, self._pass - 1)  # the defaults, and little else
        elif sampled:
            depth = min(t.sampling.depth for t in sampled)
            losses = depth if losses is None else min(losses, depth)
        left = sum(t.unexplored + t.unobserved for t in self._times) + ambiguous + crowded
        unclear = [f"at {n} crash times {what}" for what, n in self._unclear.items()]
        why = "; ".join(filter(None, [self._why, *unclear, _CROWDED.format(crowded) if crowded else ""]))
        drawn = sum(t.drawn for t in sampled)
        return Coverage(len(self._times), losses, left, self.visits, why, len(sampled), drawn)

    @property
    def _cut(self) -> list[LegalStates]:
        """What the crash times are of: recoveries, or the recording."""
        recoveries = {id(t.recovery): t.recovery for t in self._times if t.recovery}
        return [r.legal for r in recoveries.values()] or [self._legal]

    @property
    def _unclear(self) -> Counter[Unclear]:
        return sum((legal.unclear for legal in self._cut), Counter[Unclear]())


_MANY = "more than are listed"
"""The signature of an oracle's violations where not all of them are listed."""


def _violated(result: JudgedGroup) -> set[_Violated]:
    found: set[_Violated] = set()
    for one in result.judged:
        counts = Counter(v.oracle for v in one.judgement.violations)
        for v in one.judgement.violations:
            found.add((v.oracle, _MANY if counts[v.oracle] > MAX_VIOLATIONS else v.signature))
    return found


def _beyond(found: set[_Violated], known: set[_Violated]) -> set[_Violated]:
    """The violations found that are surely none of the known ones."""
    oracles, many = {oracle for oracle, _ in known}, {oracle for oracle, what in known if what == _MANY}
    return {
        (oracle, what)
        for oracle, what in found - known
        if oracle not in many and not (what == _MANY and oracle in oracles)
    }


_UNOBSERVED = "states that told nothing of others: no guest came back, or nobody may rely on what it said"
_CROWDED = (
    f"{{}} blocks may be left with more than {CONTENTS_MAX:,} contents each, which is the limit: of those in "
    "which several parts have another fate than the rest, none was looked at"
)
_NO_MEMO = "what fsck or a repair program reads cannot be followed, so no state is known to stand for another"
