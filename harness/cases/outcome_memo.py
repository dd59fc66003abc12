"""The memo: owns the outcomes of a recording, and knows which crash states have them."""

from __future__ import annotations

import itertools
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from harness.cases.recording import Recording
from harness.cases.use_reads import UseReads
from harness.errors import DiskError, DiskRefused
from harness.guests.disk import BlockReads, Disk, Explored
from harness.guests.session import Target
from harness.model import CrashState, FsckClass, FsckResult, Outcome, Usability
from harness.oracles.endings import any_of, complaints
from harness.states import Choices

RESTARTS = 3
"""Disk processes that are tried for one question."""

_NOT_DETERMINISTIC = (
    "recovery is not deterministic: {state} and a state that is equal in all that was read gave two outcomes"
)

T = TypeVar("T")


def packed_reads(reads: BlockReads) -> bytes:
    """What is kept of a visit until the memo is made again, which is seldom. Some file systems read thousands
    of blocks in each recovery: as numbers of Python, those of 20,000 states took gigabytes. Blocks are read
    in runs, so steps from one to the next take little.
    """
    steps = [[b - a for a, b in itertools.pairwise((0, *part))] for part in (reads.blocks, reads.data)]
    return zlib.compress(msgspec.msgpack.encode(steps), level=1)


def unpacked_reads(packed: bytes) -> BlockReads:
    """What `packed_reads` was given."""
    blocks, data = msgspec.msgpack.decode(zlib.decompress(packed), type=tuple[list[int], list[int]])
    return BlockReads(tuple(itertools.accumulate(blocks)), tuple(itertools.accumulate(data)))


class OutcomeMemo:
    """Every outcome of a recording has its number here, which is its key everywhere else.

    Recovery, walk and fsck are assumed to be deterministic: a state has the outcome of an earlier one if the
    two agree in every block that was read there, and no guest is needed. A disk process of the memo's own,
    which no guest uses, keeps a tree of the visits by the blocks that they read (`learn`), and says of any
    states what it knows (`explore`). Should it be lost, another one learns all of them again.

    The assumption is tested: a share of the states that could be recalled is recovered in a guest anyway
    (`sampled`), and `learn` compares. A difference is *memo mismatch*: it ends the memo of this recording.

    Thread-safe. Invariants:

    1. Whether an outcome may be recalled decides nothing else: who visits a state reports it first.
    2. Only outcomes from a guest are learned, never recalled ones.
    3. Nothing is recalled after a mismatch, nor after an fsck whose reads could not be traced. Both are
       final.
    4. A mismatch is stored before it is visible: `on_mismatch` has returned when `mismatch` first returns it,
       and when the `learn` that found it returns. (If `on_mismatch` raises, `mismatch` still returns it.)
    5. Callers may have recalled answers when a mismatch is found. They have to revoke those; see
       `harness.cases.casework`.
    """

    def __init__(
        self, recording: Recording, *, sample_rate: float, mismatch: str, on_mismatch: Callable[[str], None]
    ) -> None:
        """`sample_rate`: the share of the states that could be recalled but are recovered in a guest anyway.
        `mismatch`: from an earlier part of the run, or empty. `on_mismatch`: stores a new mismatch.
        """
        self._recording = recording
        self.sample_rate = sample_rate
        self._errors = any_of(recording.profile.console.errors)
        self._outcomes: list[Outcome] = []
        self._learned: list[tuple[Target, CrashState, bytes, int]] = []
        self._shown: Target | None = None
        self._adding = threading.Lock()
        self._asking = threading.Lock()
        self._disk: Disk | None = None
        self._mismatching = threading.Lock()
        self._mismatch = mismatch
        self._on_mismatch = on_mismatch
        self.recalls = not mismatch
        """Whether anything may be recalled: outcomes, and fsck's answers."""

    def close(self) -> None:
        """End the disk process. The memo may be used on: another one is started. Whoever waits for its answer
        is told at once: it may have been stopped, and would hold up the end of a run for a minute.
        """
        if disk := self._disk:
            disk.end()
        with self._asking:
            self._end_disk()

    def turn_off(self) -> None:
        """Recall nothing from now on, for a reason other than a mismatch."""
        self.recalls = False

    @property
    def mismatch(self) -> str:
        """Why the memo was wrong, or empty. Waits while a mismatch is being stored."""
        with self._mismatching:
            return self._mismatch

    # --- outcomes -----------------------------------------------------------------------------

    def keep(self, outcome: Outcome) -> int:
        """Own an outcome. Returns its number."""
        with self._adding:
            self._outcomes.append(outcome)
            return len(self._outcomes) - 1

    def outcome(self, number: int) -> Outcome:
        """The outcome of that number. Raises DiskError for one that is not known."""
        if not 0 <= number < len(self._outcomes):
            raise DiskError(f"outcome {number} was recalled, and {len(self._outcomes)} are known")
        return self._outcomes[number]

    # --- which states have them ---------------------------------------------------------------

    def learn(self, state: CrashState, reads: BlockReads, number: int) -> int:
        """From now on, states that agree with this one in what a visit read of it have this outcome. Returns
        the number of the outcome that they have: another one, if that was known before. The two are compared.
        Raises DiskError.
        """
        target, shown = self._recording.shown(state)
        earlier = self._ask(lambda disk: disk.learn(shown, reads, number), target)
        if earlier is None or earlier == number:
            self._learned.append((target, shown, packed_reads(reads), number))
            return number
        self.compare(state, self.outcome(earlier), self.outcome(number))
        return earlier

    def explore(
        self,
        crash_times: Sequence[Choices | CrashState],
        target: Target | None = None,
        *,
        losses: int,
        separate_data: bool,
        data_together: bool,
        to_visit_max: int,
    ) -> list[Explored]:
        """As `Disk.explore`; states are named as the disk takes them. `target`: what it shows for them, if
        not the recording.
        """
        return self._ask(
            lambda disk: disk.explore(
                crash_times,
                losses=losses,
                separate_data=separate_data,
                data_together=data_together,
                to_visit_max=to_visit_max,
            ),
            target,
        )

    def hashes(self, states: Sequence[CrashState], target: Target | None = None) -> list[str]:
        """Of the contents of states, named as the disk takes them. `target`: as for `explore`."""
        return self._ask(lambda disk: disk.hashes(states), target)

    def block_hashes(self, state: CrashState, blocks: Sequence[int]) -> list[bytes]:
        """Of the contents of blocks of a state, 16 bytes each."""
        target, shown = self._recording.shown(state)

        def look(disk: Disk) -> list[bytes]:
            disk.switch(shown)
            return disk.block_hashes(blocks)

        return self._ask(look, target)

    def _ask(self, question: Callable[[Disk], T], target: Target | None = None) -> T:
        """Ask the disk while it shows `target`; another one, should it be lost. Raises DiskError when that
        did not help, and DiskRefused at once.
        """
        with self._asking:
            for left in reversed(range(RESTARTS)):
                try:
                    return question(self._showing(target or self._recording.target))
                except DiskRefused:
                    raise
                except DiskError:
                    self._end_disk()
                    if not left:
                        raise
            raise AssertionError("the loop returns or raises")

    def _showing(self, target: Target) -> Disk:
        if self._disk is None:
            self._disk, self._shown = Disk(), None
            for learned, shown, reads, number in self._learned:
                self._show(self._disk, learned)
                self._disk.learn(shown, unpacked_reads(reads), number)
        self._show(self._disk, target)
        return self._disk

    def _show(self, disk: Disk, target: Target) -> None:
        """The tree stays: all targets of a recording have one base."""
        if self._shown != target:
            disk.open(
                target.base, target.log, target.order, keep_memo=True, mount_counters=target.mount_counters
            )
            self._shown = target

    def _end_disk(self) -> None:
        disk, self._disk = self._disk, None
        if disk is not None:
            disk.close()

    # --- mismatch --------------------------------------------------------------------------------

    def sampled(self, state: CrashState) -> bool:
        """Whether to recover this state in a guest although it could be recalled. Pseudo-random: the same
        states in every run.
        """
        return self._draws(str(state), self.sample_rate)

    def is_in_share(self, name: str, share: float) -> bool:
        """Whether what has this name belongs to a share that is drawn, if anything is sampled. Pseudo-random:
        the same names in every run.
        """
        return bool(self.sample_rate) and self._draws(name, share)

    def _draws(self, name: str, share: float) -> bool:
        return zlib.crc32(f"{self._recording.case}{name}".encode()) < share * 2**32

    def compare(self, state: CrashState, recalled: Outcome, observed: Outcome) -> None:
        """Compare the memo's outcome of a state with a guest's; a difference is a mismatch."""
        if not self.same(recalled, observed):
            self.give_up(state)

    def compare_fsck(self, state: CrashState, recalled: FsckResult, observed: FsckResult) -> None:
        """Compare a recalled answer of fsck with a fresh one; a difference is a mismatch."""
        if recalled.classified is not observed.classified:
            self.give_up(state)

    def compare_use(self, state: CrashState, recalled: UseReads, observed: UseReads) -> None:
        """Compare a recalled answer of a second mount with a fresh one; a difference is a mismatch. What
        changed since the first mount depends on that one, too: here it is the tree of the second that counts.
        """
        then, now = (self._use(replace(answer.result, changed=())) for answer in (recalled, observed))
        if recalled.names != observed.names or then != now:
            self.give_up(state)

    def same(self, a: Outcome, b: Outcome) -> bool:
        """Whether two outcomes agree in all that oracles judge, except checks: those depend on the tree's
        contents alone. fsck of what was emptied is compared where both had it: it is run for a sample.
        """
        emptied = {_classified(o.usable.fsck) for o in (a, b) if o.usable and o.usable.fsck}
        return len(emptied) < 2 and self._essence(a) == self._essence(b)

    def _essence(self, outcome: Outcome) -> tuple[object, ...]:
        errors = (
            outcome.mount_errno,
            outcome.unmount_errno,
            outcome.walk_errors,
            outcome.lost,
            outcome.not_started,
        )
        said = self._complaints(outcome.kernel_log)
        used = outcome.usable
        if said and used is not None:  # what it then says of writing may be kept back
            used = replace(used, kernel_log=())
        return (
            errors,
            outcome.read_only,
            outcome.tree,
            outcome.outside,
            _classified(outcome.fsck),
            said,
            self._use(used),
        )

    def _use(self, observed: Usability | None) -> tuple[object, ...] | None:
        if observed is None:
            return None
        return (
            observed.mount_errno,
            observed.unmount_errno,
            observed.errors,
            observed.differences,
            observed.remount_errno,
            observed.changed,
            observed.lost,
            self._complaints(observed.kernel_log),
        )

    def _complaints(self, lines: Sequence[str]) -> list[str]:
        """Kinds: how often a kernel says the same depends on when it said so before."""
        return sorted(complaints(self._errors, lines))

    def give_up(self, state: CrashState, why: str = _NOT_DETERMINISTIC) -> None:
        """A visit to this state, here or in a worker's process, found a mismatch. `why`: in words."""
        with self._mismatching:
            self.recalls = False
            if not self._mismatch:
                self._mismatch = why.replace("{state}", str(state))
                self._on_mismatch(self._mismatch)


def _classified(result: FsckResult | None) -> FsckClass | None:
    return result.classified if result else None
