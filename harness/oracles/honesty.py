"""What a recovery says of a faulty disk, and what it leaves behind.

Judged is one fault at a time, against the recovery of the same crash state on a disk that did nothing wrong:

- *refused or reported*: the mount fails, something cannot be read, or the file system's own messages say what
  they did not say without the fault. What the block layer says of a failed request is no such message:
  whoever called the file system does not learn of it.
- *silently wrong*: it was mounted, nothing was reported, and names or contents are others.
- *destroyed more*: the fault is gone, and the next mount does not come to what an undisturbed recovery comes
  to, or fsck then finds what it does not find after that one. A write that failed has not been carried out,
  so a journal that was emptied all the same shows here.
- *kernel died*: it panicked or hung.

A disk that reports an error lied to nobody, so with `eio` faults all three fail. Of bit rot, the file
system can know only by a checksum, so silence and its consequences fail only where the format has one for
that block, and can tell such a block from one that a power cut tore (`checksums` in filesystem.toml). A write
that was acknowledged and vanished, or landed elsewhere, leaves blocks whose checksums are right: what comes
of it is told in the report, and only a kernel that dies fails.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence

from harness.model import FaultKind, FsckClass, FsckResult, Outcome, Violation
from harness.oracles.case import Case, InjectedFault
from harness.oracles.confluence import first_difference
from harness.oracles.endings import folded
from harness.oracles.surface import could_not_try, death, last_words
from harness.oracles.undecided import Undecided


class Seen(enum.StrEnum):
    """What came of a fault, from best to worst."""

    INTACT = "intact"
    REPORTED = "refused or reported"
    SILENT = "silently wrong"
    DESTROYED = "destroyed more"
    DIED = "kernel died"


UNDECIDED = "undecided"
"""Where none of these was seen."""
NOT_ASKED = "not asked for again"
"""Where the fault befell nothing, and others of its kind at such a block befell something."""

# Without such a word, a line tells nobody that something is wrong: `Ending clean mount`.
_WRONG = re.compile(
    r"error|corrupt|fail|invalid|bad |checksum|csum|crc|abort|shut|warn|unable|cannot|can't|could ?n[o']t"
    r"|mismatch|inconsisten|repair|fsck|damage|lost|wrong|unexpected|unrecogni|missing",
    re.IGNORECASE,
)
# block/blk-core.c: `I/O error, dev vda, sector 8 op 0x0:(READ)`; fs/buffer.c: `Buffer I/O error on dev vda`
_BLOCK_LAYER = re.compile(r"\bI/O error,? (on )?dev |\b(critical|timeout|protection) error, dev ")


def seen(undisturbed: Outcome, outcome: Outcome) -> tuple[Seen, str]:
    """What came of a fault, and in which respect. `outcome`: of the mount on the disk that erred; it has
    `after_fault`, unless the kernel died.
    """
    if outcome.lost:
        return Seen.DIED, last_words(outcome.lost)
    after_fault = outcome.after_fault
    assert after_fault is not None  # noqa: S101 - see `Outcome`; tells mypy
    if after := first_difference(undisturbed, after_fault) or _fsck_differs(
        undisturbed.fsck, after_fault.fsck
    ):
        return Seen.DESTROYED, f"then without the fault, {after}"
    if said := _reported(undisturbed, outcome):
        return Seen.REPORTED, said
    if now := first_difference(undisturbed, outcome):
        return Seen.SILENT, now
    return Seen.INTACT, ""


def honesty(case: Case) -> Iterator[Violation | Undecided]:
    """Errors are reported, nothing wrong is shown, and nothing is lost that was not lost by the fault."""
    injected_fault, undisturbed = case.injected_fault, case.undisturbed
    if injected_fault is None or undisturbed is None:
        return
    if why := _why_undecided(undisturbed, case.outcome, case.contract.fsck_clean):
        yield Undecided(why)
        return
    what, said = seen(undisturbed, case.outcome)
    if what is Seen.DIED:
        said, how = death(case.outcome.lost, "the kernel hangs", "the kernel dies")
        yield _violation(injected_fault, what, said, how)
    elif what in (Seen.SILENT, Seen.DESTROYED) and _is_promised(injected_fault):
        yield _violation(injected_fault, what, said, "")


def _is_promised(injected_fault: InjectedFault) -> bool:
    """Whether a file system must tell. It cannot know of a write that vanished, or landed elsewhere, by the
    checksum of what is there instead.
    """
    if injected_fault.fault.kind is FaultKind.ROT:
        return injected_fault.checked
    return injected_fault.fault.kind in (FaultKind.EIO_READ, FaultKind.EIO_WRITE, FaultKind.EIO_FLUSH)


def _why_undecided(undisturbed: Outcome, outcome: Outcome, needs_fsck: bool) -> str:
    """Why nothing can be said; empty if something can. Where a mode promises nothing of fsck, or there is
    none, as for NILFS2, mounts and trees say enough.
    """
    for mounted in filter(None, (outcome, outcome.after_fault)):
        if could_not_try(mounted.mount_errno):
            return f"mount could not be tried: errno {mounted.mount_errno}"
    if outcome.lost:
        return ""
    if outcome.after_fault is None:
        return "nobody saw what is left without the fault"
    if not needs_fsck:
        return ""
    both = (undisturbed.fsck, outcome.after_fault.fsck)
    failed = next((f for f in both if f and f.classified is FsckClass.FAILED), None)
    return f"fsck failed: {failed.output[-200:]}" if failed else ""


def _reported(undisturbed: Outcome, outcome: Outcome) -> str:
    """The kernel's first complaint that it does not make without the fault; empty if there is none."""
    for word, number in (("mount", outcome.mount_errno), ("unmount", outcome.unmount_errno)):
        if number:
            return f"{word} fails with errno {number}"
    known_errors = {str(e) for e in undisturbed.walk_errors}
    if failed := next((str(e) for e in outcome.walk_errors if str(e) not in known_errors), ""):
        return failed
    known = set(map(folded, undisturbed.kernel_log))
    return next((line for line in _complaints(outcome.kernel_log) if folded(line) not in known), "")


def _complaints(log: Sequence[str]) -> Iterator[str]:
    """Lines in which the kernel says that something is wrong, and that are not the block layer's."""
    return (line for line in log if _WRONG.search(line) and not _BLOCK_LAYER.search(line))


def _fsck_differs(then: FsckResult | None, now: FsckResult | None) -> str:
    """What fsck says that it does not say without the fault; that it says less, or nothing, is no harm."""
    if then is None or now is None or FsckClass.FAILED in (then.classified, now.classified):
        return ""
    if now.classified in (then.classified, FsckClass.CLEAN):
        return ""
    return f"fsck says {now.classified.value} ({now.complaint or f'exit code {now.exit_code}'})"


def _violation(injected_fault: InjectedFault, what: Seen, said: str, how: str) -> Violation:
    fault = injected_fault.fault
    cell = (
        f"{what}: {fault.cell}, {injected_fault.where}" if injected_fault.where else f"{what}: {fault.cell}"
    )
    return Violation(
        "honesty",
        injected_fault.where or fault.cell,
        f"{what}: {fault.text} ({injected_fault.where}); {said}"
        if injected_fault.where
        else f"{what}: {fault.text}; {said}",
        "what an undisturbed recovery comes to, or an error",
        said,
        f"{cell}: {how}" if how else cell,
    )
