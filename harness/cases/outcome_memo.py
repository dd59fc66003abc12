"""The memo: recalls outcomes of crash states by the blocks of the disk that were read."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Callable, Sequence

from harness.cases.fsck_reads import FsckReads
from harness.cases.recording import Recording
from harness.errors import DiskError
from harness.guests.worker import Worker
from harness.model import CrashState, FsckClass, FsckResult, Outcome, Usability


class OutcomeMemo:
    """Recovery, walk and fsck are assumed to be deterministic: a state has the outcome of an earlier one if
    the two agree in every block that was read there, and no guest is needed. Each disk process keeps the
    numbers and the contents of those blocks under a number; the outcomes of these numbers are here.

    The assumption is tested: a share of the states that could be recalled is recovered in a guest anyway
    (`sampled`, then `hold`). A difference is *doubt*: it ends the memo of this recording.

    Thread-safe. Invariants:

    1. Only outcomes from a guest are remembered, never recalled ones.
    2. Nothing is recalled after doubt, nor after an fsck whose reads could not be traced. Both are final.
    3. Doubt is stored before it is visible: `on_doubt` has returned when `doubt` first returns it, and when
       the look that found it returns. (If `on_doubt` raises, `doubt` still returns it.)
    4. Callers may hold recalled answers when doubt arises. They have to revoke those; see
       `harness.cases.casework`.
    """

    def __init__(
        self, recording: Recording, *, sample_rate: float, doubt: str, on_doubt: Callable[[str], None]
    ) -> None:
        """`sample_rate`: the share of the states that could be recalled but are recovered in a guest anyway.
        `doubt`: from an earlier part of the run, or empty. `on_doubt`: stores a new doubt.
        """
        self._recording = recording
        self._sample_rate = sample_rate
        self._errors = [re.compile(p) for p in recording.profile.console.errors]
        self._outcomes: list[Outcome] = []
        self._adding = threading.Lock()
        self._doubting = threading.Lock()
        self._doubt = doubt
        self._on_doubt = on_doubt
        self._recalls = not doubt

    def turn_off(self) -> None:
        """Recall nothing from now on, for a reason other than doubt."""
        self._recalls = False

    @property
    def recalls(self) -> bool:
        """Whether anything may be recalled: outcomes, and fsck's answers."""
        return self._recalls

    @property
    def doubt(self) -> str:
        """Why the memo was wrong, or empty. Waits while a doubt is being stored."""
        with self._doubting:
            return self._doubt

    # --- answers ------------------------------------------------------------------------------

    def outcome(self, number: int) -> Outcome:
        """The outcome of which the disk knows this number. Raises DiskError for one that is not known."""
        if not 0 <= number < len(self._outcomes):
            raise DiskError(f"outcome {number} was recalled, and {len(self._outcomes)} are known")
        return self._outcomes[number]

    def recall(self, worker: Worker, state: CrashState) -> Outcome | None:
        """The outcome of an earlier state that agrees with this one in every block read there, if any."""
        if not self._recalls:
            return None
        try:
            disk = worker.show(self._recording.target)
            (number,) = disk.recall([self._recording.on_disk(state)])
            return None if number is None else self.outcome(number)
        except DiskError:
            worker.close()
            return None

    def remember(
        self,
        worker: Worker,
        state: CrashState,
        outcome: Outcome,
        fsck: FsckReads,
        used: Sequence[int] | None = (),
    ) -> None:
        """Keep the outcome of the state that the worker's disk shows, by the blocks that were read for it.
        `used`: those that were read while it was written to; None: nobody may rely on this outcome.
        """
        if not self._recalls or used is None:
            return
        if fsck.blocks is None:
            self.turn_off()  # what this fsck reads cannot be known
            return
        with self._adding:
            number = len(self._outcomes)
            self._outcomes.append(outcome)
        worker.disk.also_read((*fsck.blocks, *used))
        earlier = worker.disk.remember(number)
        if earlier is not None:
            self.hold(state, self._outcomes[earlier], outcome)

    # --- doubt --------------------------------------------------------------------------------

    def sampled(self, state: CrashState) -> bool:
        """Whether to recover this state in a guest although it could be recalled. Pseudo-random: the same
        states in every run.
        """
        drawn = zlib.crc32(f"{self._recording.case}{state}".encode())
        return drawn < self._sample_rate * 2**32

    def hold(self, state: CrashState, recalled: Outcome, seen: Outcome) -> None:
        """Compare the memo's outcome of a state with a guest's; a difference is doubt."""
        if not self.same(recalled, seen):
            self._give_up(state)

    def hold_fsck(self, state: CrashState, recalled: FsckResult, seen: FsckResult) -> None:
        """Compare a recalled answer of fsck with a fresh one; a difference is doubt."""
        if recalled.classified is not seen.classified:
            self._give_up(state)

    def hold_use(self, state: CrashState, recalled: Usability, seen: Usability) -> None:
        """Compare a recalled answer of writing with a fresh one; a difference is doubt."""
        if self._use(recalled) != self._use(seen):
            self._give_up(state)

    def same(self, a: Outcome, b: Outcome) -> bool:
        """Whether two outcomes agree in all that oracles judge, except checks: those depend on the tree's
        contents alone.
        """
        return self._essence(a) == self._essence(b)

    def _essence(self, outcome: Outcome) -> tuple[object, ...]:
        errors = (outcome.mount_errno, outcome.unmount_errno, outcome.walk_errors, outcome.lost)
        complaints = self._complaints(outcome.kernel_log)
        return (errors, outcome.tree, _classified(outcome.fsck), complaints, self._use(outcome.usable))

    def _use(self, seen: Usability | None) -> tuple[object, ...] | None:
        if seen is None:
            return None
        return (
            seen.mount_errno,
            seen.unmount_errno,
            seen.errors,
            seen.differences,
            seen.remount_errno,
            seen.lost,
            self._complaints(seen.kernel_log),
        )

    def _complaints(self, lines: Sequence[str]) -> list[str]:
        return [line for line in lines if any(p.search(line) for p in self._errors)]

    def _give_up(self, state: CrashState) -> None:
        with self._doubting:
            self._recalls = False
            if not self._doubt:
                self._doubt = (
                    f"recovery is not deterministic: {state} and a state that is equal in all that was read "
                    "gave two outcomes"
                )
                self._on_doubt(self._doubt)


def _classified(result: FsckResult | None) -> FsckClass | None:
    return result.classified if result else None
