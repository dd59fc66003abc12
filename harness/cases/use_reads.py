"""Writing to a recovered file system, and the blocks that were read for it, on which its answer depends.

A file system may recover, read well and satisfy fsck, and then be unable to allocate a block or to remove a
name; or it may keep what is written to it in memory alone. So it is mounted once more, written to, and
emptied, and what was written last is read back after another mount. The disk then forgets all that
(`Disk.snapshot`), so that nothing else sees it.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.cases.block_answers import BlockAnswers
from harness.guests.session import CheckImage, Session, Target
from harness.model import FsckClass, Outcome, Usability
from harness.oracles.surface import could_not_try


@dataclass(frozen=True, slots=True)
class UseReads:
    """What writing showed. `blocks`: numbers of the 4 KiB blocks that it read of what recovery had left, in
    the order of first reading; None where nobody may rely on the answer again.
    """

    result: Usability
    blocks: tuple[int, ...] | None

    @classmethod
    def of(
        cls, session: Session, target: Target, keep: tuple[str, ...], check: CheckImage | None = None
    ) -> UseReads:
        """Write to the file system that the session has just recovered, as `target`. `keep`: names in its
        root that are not removed. `check`: fsck of what is left. Raises as `Session.use`.
        """
        result, blocks = session.use(target, keep, check)
        tried = not any(map(could_not_try, (result.mount_errno, result.remount_errno)))
        reliable = tried and not result.undecided and not result.unmount_errno
        return cls(result, blocks if reliable else None)


UseAnswers = BlockAnswers[UseReads]


def is_worth_writing_to(outcome: Outcome) -> bool:
    """Whether the file system came back whole as far as anything could tell. If fsck finds errors, or the
    walk could not read something, the state has failed already: writing would show the same damage again.
    """
    failed = outcome.lost or outcome.mount_errno or outcome.unmount_errno or outcome.walk_errors
    found = outcome.fsck.classified if outcome.fsck else FsckClass.FAILED
    return not failed and found in (FsckClass.CLEAN, FsckClass.FAILED)
