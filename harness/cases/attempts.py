"""Attempts to observe one crash state: a guest recovers, walks and checks it, then writes to it. The first
attempt that succeeds counts.
"""

from __future__ import annotations

import dataclasses
import pickle
import secrets
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.cases.answers import Answers
from harness.cases.block_answers import Hashes
from harness.cases.fsck_reads import FsckReads
from harness.cases.outcome_memo import OutcomeMemo
from harness.cases.recording import UNTOUCHED, Recording
from harness.cases.recoveries import RecoveryLog
from harness.cases.repair import repaired
from harness.cases.requests_seen import FaultTargets, RequestsSeen
from harness.cases.use_reads import UseReads, is_worth_a_second_look, is_worth_writing_to
from harness.errors import DiskError, GuestLost, GuestSpent, PowercutError, VersionsDiffer
from harness.guests.disk import BLOCK_SECTORS, BlockReads
from harness.guests.session import Ask, Recovery, Session, Target
from harness.model import CrashState, DiskFault, FsckClass, FsckResult, Outcome, Usability
from harness.oracles.endings import Ending, ending, stalled
from harness.oracles.surface import could_not_try

ATTEMPTS = 3
"""Guests tried for one state. If the kernel dies or hangs in each of them, it is at fault."""


@dataclass(frozen=True, slots=True)
class Unobserved:
    """A state that could not be observed, and why."""

    reason: str


class NotAskedFor(Unobserved):
    """A fault of the disk that befell nothing: the guest did not ask for that again."""


@dataclass(frozen=True, slots=True)
class Visited:
    """What came of a visit. `reads`: what the outcome depends on, so that other states may have it as well;
    None where that is not known, or nobody may rely on it. `recovery`: what it wrote, `requests_seen`: what
    it asked of the disk, if these were noted.
    """

    outcome: Outcome | Unobserved
    reads: BlockReads | None = None
    recovery: RecoveryLog | None = None
    requests_seen: RequestsSeen | None = None


class _LostInUse(Exception):
    """Guest or disk were lost while the recovered file system was written to. `outcome`: what was known by
    then.
    """

    def __init__(self, outcome: Outcome, error: GuestLost | DiskError) -> None:
        super().__init__(error.what)
        self.outcome, self.error = outcome, error


@dataclass(frozen=True, slots=True)
class _Loss:
    """An attempt that went wrong. `before`: the outcome by then, if only writing to it did."""

    error: GuestLost | DiskError
    before: Outcome | None = None

    @property
    def console(self) -> str:
        return self.error.console if isinstance(self.error, GuestLost) else ""

    @property
    def end(self) -> Ending | None:
        """How the kernel ended, if it did."""
        return ending(self.console)

    @property
    def kind(self) -> tuple[bool, str]:
        """What it has in common with losses that are alike."""
        return (self.before is not None, self.end.signature if self.end else "")

    @property
    def outcome(self) -> Outcome:
        """What is known of the state, if this end is the kernel's fault."""
        if self.before is None:
            return Outcome(lost=self.console)
        return dataclasses.replace(self.before, usable=Usability(lost=self.console))

    @property
    def undecided(self) -> Outcome | Unobserved:
        """What is known of the state, if it is not known whose fault this is."""
        if self.before is None:
            return Unobserved(self.error.what)
        return dataclasses.replace(self.before, usable=Usability(undecided=self.error.what))


class Attempts:
    """Turns a crash state into an Outcome or Unobserved. Thread-safe; each thread brings its own session.

    Invariants:

    1. An Outcome comes from one visit in which nothing went wrong, or says that the kernel died or hung: in
       each of ATTEMPTS guests, or in one if it had ended alike, at the same stage, in each of ATTEMPTS guests
       of an earlier state. Everything else is Unobserved, with its reason. If only what comes of writing
       could not be observed, the Outcome says so, and why.
    2. `observe` raises VersionsDiffer alone, which would cost every state. A lost guest or disk (GuestLost,
       DiskError; this includes bad frames and timeouts) is replaced, and the state is tried again. So it is
       where the kernel went on, but says that something took long: a slow host causes that, too. A guest that
       may keep to itself what it has said of earlier states is replaced, and that costs no attempt. A guest
       or program that reports failure is not tried again; nor is a guest that was lost while its disk erred,
       unless its kernel says how it ended. An unforeseen exception, from a defect of the harness or a hostile
       tree that got past the channel, costs this state only, and its reason names the exception and the line.
    3. No attempt that went wrong affects the next one: its guest and its disk are gone by then.
    4. Only a complete outcome has reads: after fsck, from a visit in which nothing went wrong and each mount
       could be tried.
    """

    def __init__(
        self,
        recording: Recording,
        memo: OutcomeMemo,
        again: int = 0,
        *,
        faulty_disk: bool = False,
        answers: Answers | None = None,
        machine: str = "",
    ) -> None:
        """`again`: how often recovery is to be cut; what it writes is noted so often. `faulty_disk`: the disk
        is to err while a state is recovered; what that asks for is noted. `answers`: of cases of this
        mode, on this kind of guest, `machine`; empty: that of the first.
        """
        self._recording = recording
        self._again = again
        self._fault_targets = FaultTargets(recording) if faulty_disk else None
        self._memo = memo
        self.answers, self._machine = answers or Answers(), machine
        self._of_others: dict[str, Answers] = {}
        self._known_ends: set[tuple[bool, str]] = set()  # see `_Loss.kind`; it only grows
        self._ends_told: set[tuple[bool, str]] = set()

    def observe(self, session: Session, state: CrashState, ask: Ask | None, stop: threading.Event) -> Visited:
        """Visit `state`. `ask`: runs the workload's checks on the tree while it is mounted."""
        losses: list[_Loss] = []
        while len(losses) < ATTEMPTS and not stop.is_set():
            try:
                return self._heard_whole(session, state, ask)
            except (GuestLost, DiskError) as e:
                loss = _Loss(e)
            except _LostInUse as e:
                loss = _Loss(e.error, e.outcome)
            except VersionsDiffer:  # it would cost every state
                raise
            except PowercutError as e:
                return Visited(Unobserved(e.what))
            except Exception as e:  # whatever was raised, it costs this state and no other
                session.close()
                return Visited(Unobserved(reason_of(e)))
            session.close()
            losses.append(loss)
            if loss.end and loss.kind in self._known_ends:
                return Visited(loss.outcome)
            if state.fault is not None and not loss.end:
                break  # it may try again for ever what fails for good, as XFS does with its metadata
        return Visited(self._conclude(losses))

    # --- what workers tell each other --------------------------------------------------------

    def message(self) -> bytes:
        """The ends learned of this recording since the last call, for other workers; empty: none."""
        ends = self._known_ends - self._ends_told
        self._ends_told |= ends
        return pickle.dumps(ends) if ends else b""

    def receive(self, note: bytes) -> None:
        """Learn what another worker of this run noted."""
        ends = pickle.loads(note)  # noqa: S301 - from this program: see `harness.cases.remote`
        self._known_ends |= ends
        self._ends_told |= ends

    # --- one attempt --------------------------------------------------------------------------

    def _conclude(self, losses: Sequence[_Loss]) -> Outcome | Unobserved:
        """What losses of guests say of a state."""
        if not losses:
            return Unobserved("stopped")
        if len(losses) < ATTEMPTS or not all(loss.end for loss in losses):
            return losses[-1].undecided
        if len(kinds := {loss.kind for loss in losses}) == 1:
            self._known_ends |= kinds
        return losses[-1].outcome

    def _heard_whole(self, session: Session, state: CrashState, ask: Ask | None) -> Visited:
        """Visit `state`; once more, in a guest that has said nothing yet, where this one may keep back what
        it said before. Raises as `_visit`.
        """
        try:
            return self._visit(session, state, ask)
        except GuestSpent:
            session.close()
            return self._visit(session, state, ask)

    def _visit(self, session: Session, state: CrashState, ask: Ask | None) -> Visited:
        if state.fault is not None:
            return self._visit_faulty_disk(session, state, state.fault)
        target, shown = self._recording.shown(state)
        repair = self._recording.profile.repair
        if repair is not None:
            target, shown = repaired(session, target, shown, repair), UNTOUCHED
        noted = len(state.again) < self._again
        recovery = session.recover(target, shown, ask, note=noted or self._fault_targets is not None)
        _need_no_stall(recovery.outcome.kernel_log)
        hashes = self._answers(session).hashes(session.disk) if self._memo.recalls else Hashes(session.disk)
        fsck = self._check(session, state, target, hashes)
        asked = self._requests_seen(session, state) if repair is None else None
        outcome = dataclasses.replace(recovery.outcome, fsck=fsck.result)
        if fsck.gave_none and is_worth_a_second_look(outcome):
            no_end = Usability(undecided="fsck came to no end, so it was not mounted again")
            outcome = dataclasses.replace(outcome, usable=no_end)
        if outcome.usable is not None or not is_worth_a_second_look(outcome):
            tried = not could_not_try(outcome.mount_errno)
            return Visited(outcome, self._reads(session, fsck) if tried else None)
        try:
            used = self._use(session, state, target, dataclasses.replace(recovery, outcome=outcome), hashes)
        except GuestSpent:
            raise
        except (GuestLost, DiskError) as e:
            raise _LostInUse(outcome, e) from e
        except PowercutError as e:
            return Visited(dataclasses.replace(outcome, usable=Usability(undecided=e.what)))
        return Visited(
            dataclasses.replace(outcome, usable=used.result),
            self._reads(session, fsck, used.blocks),
            self._recovery_of(session, state, target) if noted and repair is None else None,
            asked,
        )

    def _answers(self, session: Session) -> Answers:
        """What is known of fsck and of writing on this kind of guest: another one answers for itself."""
        if self._machine in ("", session.machine_name):
            self._machine = session.machine_name
            return self.answers
        return self._of_others.setdefault(session.machine_name, Answers())

    def _requests_seen(self, session: Session, state: CrashState) -> RequestsSeen | None:
        """What the visit asked of its disk, if anybody wants to know."""
        if self._fault_targets is None:
            return None
        session.disk.image(session.image)
        return self._fault_targets.at(state, session.disk.requests(), session.image)

    def _visit_faulty_disk(self, session: Session, state: CrashState, fault: DiskFault) -> Visited:
        """A visit on a faulty disk, and what the next mount comes to, without that. A guest may ask for
        things in another order each time, and the block layer makes one flush of two that wait: what was
        aimed at is tried ATTEMPTS times, and is `NotAskedFor` then.
        """
        target, shown = self._recording.shown(state)
        for _ in range(ATTEMPTS):
            recovery = session.recover(target, shown, fault=fault)
            _need_no_stall(recovery.outcome.kernel_log)
            hits, after_fault = session.recover_after_fault(target, state)
            _need_no_stall(after_fault.kernel_log)
            if hits:
                fsck = self._check(session, state, target, Hashes(session.disk))
                after_fault = dataclasses.replace(after_fault, fsck=fsck.result)
                return Visited(dataclasses.replace(recovery.outcome, after_fault=after_fault))
        return Visited(
            NotAskedFor(f"nothing was asked of the disk that the fault would befall: {fault.text}")
        )

    def _recovery_of(self, session: Session, state: CrashState, target: Target) -> RecoveryLog | None:
        """What the recovery of `state` wrote; None if that is more than a disk keeps."""
        recording = self._recording
        # never a name given before: a worker, or another in its place, may come back to this case
        log = recording.log.with_name(f"{recording.log.name}.again-{secrets.token_hex(8)}")
        told = session.disk.log_writes(log)
        if not told.complete:
            log.unlink()
            return None
        unit = recording.legal.unit_sectors if recording.legal else BLOCK_SECTORS
        return RecoveryLog.of_log(state, target, log, told.state, unit)

    def _reads(self, session: Session, fsck: FsckReads, used: Sequence[int] | None = ()) -> BlockReads | None:
        """The blocks that guest and fsck read of the state on the session's disk. `used`: those read while
        the file system was written to; None: nobody may rely on them.
        """
        if not self._memo.recalls or used is None:
            return None
        if fsck.gave_none:
            return None  # killed: no state can rely on this one, but others are traced as before
        if fsck.blocks is None:
            self._memo.turn_off()  # what this fsck reads cannot be known
            return None
        session.disk.also_read((*fsck.blocks, *used))
        return session.disk.reads()

    def _use(
        self, session: Session, state: CrashState, target: Target, recovery: Recovery, hashes: Hashes
    ) -> UseReads:
        """Look at the recovered file system a second time, and write to it if it came back whole; not done if
        the answer for the same blocks is known, and the second mount was to show what this recovery showed.
        """
        profile, writes = self._recording.profile, is_worth_writing_to(recovery.outcome)
        answers = self._answers(session).use if writes else self._answers(session).look
        known = answers.recall(hashes) if self._memo.recalls else None
        if known is not None and known.holds_for(recovery) and not self._memo.sampled(state):
            return known
        checks = writes and profile.contract.fsck_clean and not profile.stacked  # on the host
        check = self._check_emptied if self._memo.sampled(state) and checks else None
        keep = profile.contract.made_by_mkfs if writes else None
        hushed = session.has_complained
        # fio looks at its files in place: it makes those that are missing, and leaves its state beside them.
        in_place = any(not check.application for check in self._recording.workload.checks)
        compare = not (in_place and recovery.outcome.checks)
        answer = UseReads.of(session, target, recovery, keep, check, compare=compare)
        _need_no_stall(answer.result.kernel_log)
        if known is not None and not hushed:
            self._memo.compare_use(state, known, answer)
        # For other states it would be an answer without what this guest had said before; and what differs
        # from the first mount of this state may not differ from that of another.
        if self._memo.recalls and not hushed and not answer.result.changed:
            answers.remember(hashes, answer)
        return answer

    def _check_emptied(self, image: Path) -> tuple[FsckResult, tuple[int, ...] | None]:
        """fsck of a file system that has been written to and emptied: dear, so only states of the sample."""
        answer = FsckReads.of(self._recording.profile, image)
        return answer.result, answer.blocks

    def _check(self, session: Session, state: CrashState, target: Target, hashes: Hashes) -> FsckReads:
        """fsck of the recovered image; not run if its answer for the same blocks is known."""
        if self._recording.profile.fsck is None:
            return FsckReads.of(self._recording.profile, session.image)
        answers = self._answers(session).fsck
        known = answers.recall(hashes) if self._memo.recalls else None
        if known is not None and not self._memo.sampled(state):
            return known
        answer = self._fsck_of(session, target)
        if known is not None:
            self._memo.compare_fsck(state, known.result, answer.result)
        if self._memo.recalls:
            answers.remember(hashes, answer)
        return answer

    def _fsck_of(self, session: Session, target: Target) -> FsckReads:
        profile = self._recording.profile
        if profile.stacked:
            return FsckReads.in_guest(profile, session, target)
        session.disk.image(session.image)
        below = FsckReads.of(profile, session.image, session.servers)
        if not profile.inside or below.result.classified is not FsckClass.CLEAN:
            return below
        return below.followed_by(FsckReads.in_guest(profile, session, target))


def _need_no_stall(log: Sequence[str]) -> None:
    """Raises GuestLost if the kernel says in its log that something took long, although it went on."""
    if told := stalled(log):
        raise GuestLost(f"the kernel went on, but says that something took long, as on a slow host: {told}")


def reason_of(error: Exception) -> str:
    """Why a state could not be observed. For an unforeseen exception: its type, its text, and where it was
    raised.
    """
    if isinstance(error, PowercutError):
        return error.what
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" at {Path(frame.filename).name}:{frame.lineno}" for frame in last)
    return f"unforeseen {type(error).__name__}{where}: {error}"
