"""The memo: outcomes of crash states, found again by what was read of the disk."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Callable

from harness.cases.fsck_reads import FsckReads
from harness.cases.recording import Recording
from harness.errors import DiskError
from harness.guests.worker import Worker
from harness.model import CrashState, FsckClass, FsckResult, Outcome


class OutcomeMemo:
    """Recovery, walk and fsck are deterministic, so a state that agrees with one that a guest looked at in
    every block which they read there has the same outcome, with no guest involved. Each disk process keeps
    which blocks those were and what they held, under a number; the outcomes of the numbers are here.

    The assumption is measured: a share of the states that could be recalled is looked at all the same
    (`sampled`, then `hold`). A difference is *doubt*: it ends the memo of this recording.

    For all threads. Invariants:

    1. Only what a guest showed is remembered; what was recalled never is.
    2. Nothing is recalled after doubt, nor after an fsck whose reads could not be traced. Neither goes away.
    3. Doubt is kept before anybody is told: `on_doubt` has returned when `doubt` first answers with it, and
       when the look that found it returns. (If `on_doubt` fails, `doubt` says so all the same.)
    4. A state's answer from the memo may be in a caller's hands when doubt arises. Such answers are the
       caller's to take back; see `harness.cases.casework`.
    """

    def __init__(
        self, recording: Recording, *, sample_rate: float, doubt: str, on_doubt: Callable[[str], None]
    ) -> None:
        """`sample_rate` of what could be recalled is looked at all the same. `doubt`: of an earlier part of
        the run, if there was any.
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
        """Recall nothing from now on, for another reason than doubt."""
        self._recalls = False

    @property
    def recalls(self) -> bool:
        """Whether anything may be recalled, here and of fsck's answers."""
        return self._recalls

    @property
    def doubt(self) -> str:
        """Why the memo was wrong, or empty. Waits while a doubt is being kept."""
        with self._doubting:
            return self._doubt

    # --- answers ------------------------------------------------------------------------------

    def recall(self, worker: Worker, state: CrashState) -> Outcome | None:
        """The outcome of a state that agrees with this one in all that was read there, if there is one."""
        if not self._recalls:
            return None
        try:
            disk = worker.show(self._recording.base, self._recording.log)
            (number,) = disk.recall([state])
            if number is not None and not 0 <= number < len(self._outcomes):
                raise DiskError(f"outcome {number} was recalled, and {len(self._outcomes)} are known")
        except DiskError:
            worker.close()
            return None
        return None if number is None else self._outcomes[number]

    def remember(self, worker: Worker, state: CrashState, outcome: Outcome, fsck: FsckReads) -> None:
        """Keep what was just seen, by what was read for it."""
        if not self._recalls:
            return
        if fsck.blocks is None:
            self.turn_off()  # what this fsck reads cannot be known
            return
        with self._adding:
            number = len(self._outcomes)
            self._outcomes.append(outcome)
        worker.disk.also_read(fsck.blocks)
        earlier = worker.disk.remember(number)
        if earlier is not None:
            self.hold(state, self._outcomes[earlier], outcome)

    # --- doubt --------------------------------------------------------------------------------

    def sampled(self, state: CrashState) -> bool:
        """Whether this state is looked at although it could be recalled. By chance, but the same states in
        every run.
        """
        drawn = zlib.crc32(f"{self._recording.case}{state}".encode())
        return drawn < self._sample_rate * 2**32

    def hold(self, state: CrashState, recalled: Outcome, seen: Outcome) -> None:
        """Hold what the memo says of a state against what a guest showed."""
        if not self._same(recalled, seen):
            self._give_up(state)

    def hold_fsck(self, state: CrashState, recalled: FsckResult, seen: FsckResult) -> None:
        """The same for an answer of fsck."""
        if recalled.classified is not seen.classified:
            self._give_up(state)

    def _same(self, a: Outcome, b: Outcome) -> bool:
        """In all that the oracles look at, but for checks: those depend on the tree's contents."""
        return self._essence(a) == self._essence(b)

    def _essence(self, outcome: Outcome) -> tuple[object, ...]:
        errors = (outcome.mount_errno, outcome.unmount_errno, outcome.walk_errors, outcome.lost)
        return (errors, outcome.tree, _classified(outcome.fsck), self._complaints(outcome))

    def _complaints(self, outcome: Outcome) -> list[str]:
        return [line for line in outcome.kernel_log if any(p.search(line) for p in self._errors)]

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
