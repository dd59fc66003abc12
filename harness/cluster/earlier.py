"""Cases that earlier runs have decided, taken into a run that asks the same of them.

Nothing is taken that this run would not decide itself from the same parts: the kernel, the harness, the
machines, the mode, its programs and the workload are compared by their pins (`harness.cases.pins`), and what
is asked by the plan. The recording, the verdicts and the evidence come along, so that the run directory
stands alone, and every crash point can be repeated from it.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from harness.cases.ledger import PlannedCase, info_of, is_decided
from harness.cases.pins import pins_of_mode, pins_of_workloads, shared_by_cases
from harness.cluster.payloads import adopt, payload_of
from harness.errors import PowercutError
from harness.filesystems.profile import Profile
from harness.host.files import copy_atomically, file_hash
from harness.model import CaseId, Workload
from harness.plan import Budget, Plan
from harness.store import RunStore
from harness.store.layout import RUN, runs
from harness.store.records import CaseStatus

_MAY_DIFFER = {
    "argv": [],
    "budget": Budget(),
    "configurations": [],
    "earlier": "",
    "jobs": 1,
    "kernel": "",
    "match": "",
    "max_failures": None,
    "minutes": None,
    "only": (),
    "require_all": False,
    "shard": "",
    "workloads": [],
}
"""What in a plan says which cases are run and for how long, not what is asked of each; the kernel is compared
by its pins.
"""
Cases = Iterable[tuple[Profile, Workload]]


def take_decided(store: RunStore, plan: Plan, wanted: Cases, lacking: Iterable[str]) -> dict[str, int]:
    """Take what runs below `plan.earlier` have decided into `store`, which is pinned; the newest run first.
    `lacking`: modes and workloads that cannot be run here, by name. Returns how many cases came from which
    run, by its name. What cannot be read is left alone: the case is run.
    """
    not_here = set(lacking)
    begun = {record.case for record in store.cases() if record.status is not CaseStatus.PLANNED}
    left = {
        id_: PlannedCase(p, w, id_)
        for p, w in wanted
        if (id_ := CaseId(p.filesystem, p.mode, w.name)) not in begun and not {p.name, w.name} & not_here
    }
    profiles = {case.profile.name: case.profile for case in left.values()}
    of_mode = {name: pins_of_mode(profile) for name, profile in profiles.items()}
    taken: dict[str, int] = {}
    for path in _runs_below(Path(plan.earlier), store.path) if left else ():
        with contextlib.suppress(PowercutError, OSError), RunStore.open(path) as earlier:
            for case in _taken_from(earlier, store, plan, left, of_mode):
                del left[case]
                taken[path.name] = taken.get(path.name, 0) + 1
    return taken


def _runs_below(root: Path, own: Path) -> list[Path]:
    """The run directories of another time, also those of a series, the newest first."""
    found = [*runs(root).glob(f"*/{RUN}"), *runs(root).glob(f"*/*/*/runs/*/{RUN}")]
    return sorted((f.parent for f in found if f.parent != own), key=lambda p: p.name, reverse=True)


def _taken_from(
    earlier: RunStore,
    store: RunStore,
    plan: Plan,
    left: Mapping[CaseId, PlannedCase],
    of_mode: Mapping[str, Mapping[str, str]],
) -> Iterator[CaseId]:
    """Take each case that is left and that this run has decided. `of_mode`: pins, by the mode's name."""
    ours, theirs = store.info.pins, earlier.info.pins
    if not asks_no_less(earlier.plan(), plan) or not _has(earlier, shared_by_cases(ours)):
        return
    if any(theirs.get(name, value) != value for name, value in ours.items() if name.startswith("module ")):
        return
    for record in earlier.cases():
        case = left.get(record.case)
        if case is None or record.info.left_at or not is_decided(earlier, record):
            continue
        pins = {**of_mode[case.profile.name], **pins_of_workloads([case.workload])}
        if _has(earlier, pins):
            try:
                _take(earlier, store, plan, case)
            except (PowercutError, OSError):  # a recording of this run's own must not find a part of it
                shutil.rmtree(store.layout.case(case.id).folder, ignore_errors=True)
                continue
            yield case.id


def _has(run: RunStore, pins: Mapping[str, str]) -> bool:
    return pins.items() <= run.info.pins.items()


def _take(earlier: RunStore, store: RunStore, plan: Plan, case: PlannedCase) -> None:
    """With the recording, and the base image that it was made on where this run has another one."""
    store.add_case(info_of(case, plan))
    payload = payload_of(earlier, case.id, files=True)
    assert payload.rows is not None  # noqa: S101 - it was asked for; tells mypy
    there, here = earlier.layout.case(case.id), store.layout.case(case.id)
    info = payload.rows.record.info
    files = dict(info.files)
    if there.base != there.own_base and file_hash(there.base) != file_hash(here.base):
        store.case_directory(case.id)
        copy_atomically(there.base, here.own_base)
        files[here.own_base.name] = file_hash(here.own_base)
    info = replace(info, files=files, taken_from=info.taken_from or earlier.path.name)
    rows = replace(payload.rows, record=replace(payload.rows.record, info=info))
    adopt(store, case.id, msgspec.structs.replace(payload, rows=rows), earlier.path.name)


def asks_no_less(then: Plan, now: Plan) -> bool:
    """Whether a case that was decided by one plan is decided by the other, too."""
    same = msgspec.structs.replace(then, **_MAY_DIFFER) == msgspec.structs.replace(now, **_MAY_DIFFER)
    return (
        same
        and _reaches(then.budget.visits, now.budget.visits)
        and _reaches(then.budget.seconds, now.budget.seconds)
    )


def _reaches(then: float | None, now: float | None) -> bool:
    """Whether a limit was no lower. None: no limit."""
    return then is None or (now is not None and then >= now)
