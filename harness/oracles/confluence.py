"""A recovery that was cut, and then done again to its end, must come to what an undisturbed one comes to.

Judged: whether it mounts and unmounts, what cannot be read, and the tree (`harness.oracles.trees`). What else
holds of the state (the contract, fsck, writing to it) the other oracles judge, as of any state.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from harness.model import Outcome, Violation
from harness.oracles.case import Case
from harness.oracles.surface import could_not_try
from harness.oracles.trees import changes, other


def confluence(case: Case) -> Iterator[Violation]:
    """What differs from the outcome of the undisturbed recovery, if the state is one of a recovery that was
    cut.
    """
    before, after = case.undisturbed, case.outcome
    if before is None or before.lost or after.lost:  # `mountable` tells of a kernel that died
        return
    if any(could_not_try(o.mount_errno) or abs(o.unmount_errno) == errno.EBUSY for o in (before, after)):
        return  # `mountable` and `readable` say that nobody could look
    yield from _differences(before, after)


def first_difference(before: Outcome, after: Outcome) -> str:
    """In what two outcomes differ, in a line; empty if they do in nothing that is judged here."""
    found = next(_differences(before, after), None)
    return "" if found is None else f"{found.signature}: {found.expected}, now {found.found}"


def _differences(before: Outcome, after: Outcome) -> Iterator[Violation]:
    for what, then, now in (
        ("mount", before.mount_errno, after.mount_errno),
        ("unmount", before.unmount_errno, after.unmount_errno),
    ):
        if then != now:
            yield _differs("file system", what, _result(then), _result(now))
    if before.mount_errno or after.mount_errno:
        return
    then_failed, now_failed = (sorted({str(e) for e in o.walk_errors}) for o in (before, after))
    if then_failed != now_failed:
        readable = [", ".join(f) or "everything can be read" for f in (then_failed, now_failed)]
        yield _differs("file system", "reading", *readable)
    for change in changes(before.tree, after.tree):
        yield _differs(change.path, change.what, change.then, change.now)
    if before.outside != after.outside:
        outside = ["; ".join(map(str, o.outside)) or "nothing changed" for o in (before, after)]
        yield _differs("outside the folder", "names or bytes", *outside)


def _differs(subject: str, what: str, then: str, now: str) -> Violation:
    return Violation(
        "confluence",
        subject,
        f"{subject}: recovery that was cut and done again comes to {other(what)}",
        then,
        now,
        f"{subject}: {what}",
    )


def _result(number: int) -> str:
    return errno.errorcode.get(abs(number), str(number)) if number else "succeeds"
