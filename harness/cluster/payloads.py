"""A case as it travels: its rows, the files of its recording, and what recoveries wrote."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

from harness.cases.recording import is_kept
from harness.cluster.messages import Payload
from harness.errors import StoreError
from harness.host.files import write_atomically
from harness.model import CaseId
from harness.store import RunStore

_OF_RECOVERY = re.compile(r"recoveries/[0-9a-f]{16}\.zst")  # CaseLayout.recovery


def payload_of(store: RunStore, case: CaseId, *, files: bool) -> Payload:
    """What a run directory holds of a case: its rows, and what recoveries wrote in whose cuts something was
    found; with `files`, its recording too, if there is one. Raises OSError.
    """
    folder = store.layout.case(case).folder
    recoveries = {str(f.relative_to(folder)): f.read_bytes() for f in folder.glob("recoveries/*.zst")}
    return Payload(store.rows_of(case), recoveries | (files_of(store, case) if files else {}))


def files_of(store: RunStore, case: CaseId) -> dict[str, bytes]:
    """The packed files of a case's recording; empty if there is none. Raises OSError."""
    if not is_kept(case, store.layout):
        return {}
    return {f.name: f.read_bytes() for f in store.layout.case(case).files if f.exists()}


def put_files(store: RunStore, case: CaseId, payload: Payload) -> None:
    """Put a recording into the run directory; the history last, which says that the rest is there. Raises
    StoreError for a file that is not what the rows say, OSError.
    """
    hashes = payload.rows.record.info.files if payload.rows else {}
    folder = store.case_directory(case)
    for name in filter(_OF_RECOVERY.fullmatch, payload.files):
        (folder / name).parent.mkdir(exist_ok=True)
        write_atomically(folder / name, payload.files[name])
    for file in store.layout.case(case).files:
        data = payload.files.get(file.name)
        if data is None:
            continue
        if hashes.get(file.name, "") not in ("", hashlib.sha256(data).hexdigest()):
            raise StoreError(f"{file.name} of {case} was changed on its way", "run the case again")
        write_atomically(folder / file.name, data)


def adopt(store: RunStore, case: CaseId, payload: Payload, worker: str) -> None:
    """Take over a case that a worker has decided. Where its recording stayed with the worker, the run says
    so. Raises StoreError for a payload of another case or recording.
    """
    if payload.rows is None or payload.rows.case != case:
        raise StoreError(f"{worker} sent something else than {case}")
    put_files(store, case, payload)
    rows, info = payload.rows, payload.rows.record.info
    if info.log_hash and not is_kept(case, store.layout):
        left = replace(info, files={}, left_at=worker)
        rows = replace(rows, record=replace(rows.record, info=left))
    store.adopt(rows)
