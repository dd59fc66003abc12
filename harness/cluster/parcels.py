"""A case as it travels: its rows, and the files of its recording."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from harness.cases.recording import is_kept
from harness.cluster.messages import Parcel
from harness.errors import StoreError
from harness.host.files import write_atomically
from harness.model import CaseId
from harness.store import RunStore


def parcel_of(store: RunStore, case: CaseId, *, files: bool) -> Parcel:
    """What a run directory holds of a case; with `files`, its recording too, if there is one."""
    return Parcel(store.rows_of(case), files_of(store, case) if files else {})


def files_of(store: RunStore, case: CaseId) -> dict[str, bytes]:
    """The packed files of a case's recording; empty if there is none. Raises OSError."""
    if not is_kept(case, store.layout):
        return {}
    return {f.name: f.read_bytes() for f in store.layout.case(case).files if f.exists()}


def put_files(store: RunStore, case: CaseId, parcel: Parcel) -> None:
    """Put a recording into the run directory; the history last, which says that the rest is there. Raises
    StoreError for a file that is not what the rows say, OSError.
    """
    hashes = parcel.rows.record.info.files if parcel.rows else {}
    folder = store.case_directory(case)
    for file in store.layout.case(case).files:
        data = parcel.files.get(file.name)
        if data is None:
            continue
        if hashes.get(file.name, "") not in ("", hashlib.sha256(data).hexdigest()):
            raise StoreError(f"{file.name} of {case} was changed on its way", "run the case again")
        write_atomically(folder / file.name, data)


def adopt(store: RunStore, case: CaseId, parcel: Parcel, worker: str) -> None:
    """Take over a case that a worker has decided. Where its recording stayed with the worker, the run says
    so. Raises StoreError for a parcel of another case or recording.
    """
    if parcel.rows is None or parcel.rows.case != case:
        raise StoreError(f"{worker} sent something else than {case}")
    put_files(store, case, parcel)
    rows, info = parcel.rows, parcel.rows.record.info
    if info.log_hash and not is_kept(case, store.layout):
        left = replace(info, files={}, left_at=worker)
        rows = replace(rows, record=replace(rows.record, info=left))
    store.adopt(rows)
