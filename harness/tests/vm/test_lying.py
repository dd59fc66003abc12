"""A disk that ignores flushes and FUA, and a kernel that sends none: the same, state by state."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from harness.cases.examine import Examiner, JudgedGroup
from harness.cases.exploration import Exploration, legal_times
from harness.cases.recording import by_times
from harness.guests.session import Session
from harness.plan import Budget, Clock
from harness.tests.states.test_lying_disks import ignoring
from harness.tests.vm.test_shared_disk import recorded

VISITS = 80


def leaves(kernel: Path, mode: str, folder: Path) -> list[tuple[str, ...]]:
    """What each crash state violates that this mode leaves on a disk that ignores flushes and FUA, in the
    order in which they are explored.
    """
    folder.mkdir()
    spec, _, plain = recorded(kernel, mode, "append-no-fsync", folder, Clock.VIRTUAL)
    assert plain.times is not None
    lying = replace(plain, times=ignoring(plain.times, flush=True, fua=True))
    recording, why = by_times(lying, 8)
    assert recording.legal is not None, why
    examiner = Examiner(recording, memo=True)
    seen: list[JudgedGroup] = []
    with Session(spec, folder / "judge") as session:
        Exploration(
            examiner,
            legal_times(recording.legal),
            session.machine_name,
            Budget(visits=VISITS),
            threading.Event(),
            seen.extend,
        ).work(session)
    examiner.close()
    assert not any(one.judgement.unknown for group in seen for one in group.judged)
    return [
        tuple(sorted(f"{v.oracle}: {v.signature}" for v in one.judgement.violations))
        for group in seen
        for one in group.judged
    ]


def test_ordered_on_a_disk_that_ignores_flushes_is_nobarrier_leaf_by_leaf(
    uml_kernel: Path, tmp_path: Path
) -> None:
    """The law of the model: were a flush taken for more than the disk makes of it, these would differ. Both
    are recorded in virtual time: on a busy host, one of two recordings in real time may complete a write on
    the other side of a mark.
    """
    lying = leaves(uml_kernel, "ext4/ordered", tmp_path / "lying")
    without = leaves(uml_kernel, "ext4/nobarrier", tmp_path / "without")
    assert lying == without
    assert len(lying) >= VISITS
    assert len(set(lying)) > 5  # such a disk breaks promises
    assert () in lying
