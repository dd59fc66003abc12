"""A second mount of a recovered file system, writing to it, and the blocks that were read for that, on which
the answer depends.

Recovery may change memory alone, and leave the disk as it was, or half done. So what it left is mounted once
more, and has to be what the first mount showed. A file system may also recover, read well and satisfy fsck,
and then be unable to allocate a block or to remove a name; or it may keep what is written to it in memory
alone. So where fsck found nothing wrong it is written to and emptied, and what was written last is read back
after another mount. The disk then forgets all that (`Disk.snapshot`), so that nothing else sees it.

The second mount reads what files hold, too. Blocks that the first mount read for that alone do not count
for the answer, as long as the bytes are the same: nothing else depends on them. So an answer that is recalled
says nothing of the bytes of another state's files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.cases.block_answers import BlockAnswers
from harness.errors import GuestSpent
from harness.guests.session import CheckImage, Recovery, Session, Target
from harness.model import FsckClass, Outcome, Usability
from harness.oracles.surface import could_not_try
from harness.oracles.trees import BYTES, changes


@dataclass(frozen=True, slots=True)
class UseReads:
    """What a second mount, and writing, showed. `blocks`: numbers of the 4 KiB blocks that it read of what
    recovery had left, in the order of first reading; None where nobody may rely on the answer again. `names`:
    a digest of the tree that the second mount showed, less what files hold.
    """

    result: Usability
    blocks: tuple[int, ...] | None
    names: str

    @classmethod
    def of(
        cls,
        session: Session,
        target: Target,
        recovery: Recovery,
        keep: tuple[str, ...] | None,
        check: CheckImage | None = None,
        *,
        compare: bool = True,
    ) -> UseReads:
        """Look again at the file system that the session has just recovered, as `target`, and write to it.
        `keep`: names in its root that are not removed; None: nothing is written. `check`: fsck of what is
        left. `compare`: false where something wrote between the first look and this one. Raises as
        `Session.use`, and GuestSpent where another guest has to tell.
        """
        data = set(session.disk.reads().data)
        used = session.use(target, keep, check, before=recovery.looks, contents=True)
        if used.kept_back:
            raise GuestSpent("the guest keeps part of the kernel's log back")
        result, blocks = used.result, used.blocks
        if used.tree is not None and compare:
            result = replace(result, changed=tuple(changes(recovery.outcome.tree, used.tree)))
        if blocks is not None and not any(change.what == BYTES for change in result.changed):
            blocks = tuple(block for block in blocks if block not in data)
        tried = not any(map(could_not_try, (result.mount_errno, result.remount_errno)))
        reliable = tried and not result.undecided and not result.unmount_errno
        return cls(result, blocks if reliable else None, used.looks.names)

    def holds_for(self, recovery: Recovery) -> bool:
        """Whether the second mount shows the names that this recovery showed."""
        return self.names == recovery.looks.names


UseAnswers = BlockAnswers[UseReads]


def is_worth_a_second_look(outcome: Outcome) -> bool:
    """Whether the first mount could look at everything. Else the state has failed already."""
    return not (outcome.lost or outcome.mount_errno or outcome.unmount_errno or outcome.walk_errors)


def is_worth_writing_to(outcome: Outcome) -> bool:
    """Whether the file system came back whole as far as anything could tell. If fsck finds errors, the state
    has failed already, where that was promised: writing would show the same damage again.
    """
    found = outcome.fsck.classified if outcome.fsck else FsckClass.FAILED
    return is_worth_a_second_look(outcome) and found in (FsckClass.CLEAN, FsckClass.FAILED)
