"""The run directory, the link to the latest one, run.json and plan.json."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import msgspec

from harness.errors import StoreError
from harness.host.files import json_bytes, json_text, write_atomically
from harness.plan import Plan
from harness.store.database import damaged, other_schema, read_from
from harness.store.digests import digest_of_bytes
from harness.store.layout import PLAN, RUN, RunLayout, latest, runs
from harness.store.records import SCHEMA, RunInfo


def make_directory(root: Path, name: str, started: datetime) -> Path:
    """Create `root/runs/<date>-<name>`, with a number appended if that exists. Raises OSError."""
    path = _unique_directory(runs(root), f"{started:%Y%m%d-%H%M%S}-{name}")
    for folder in (RunLayout(path).cases, RunLayout(path).findings):
        folder.mkdir()
    return path


def _unique_directory(parent: Path, name: str) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    path, number = parent / name, 1
    while True:
        try:
            path.mkdir()
            return path.resolve()
        except FileExistsError:
            number += 1
            path = parent / f"{name}.{number}"


def point_latest(root: Path, run: Path) -> None:
    """Make `root/latest` a relative symbolic link to `run`, atomically."""
    link = latest(root)
    temporary = link.with_name(f".{link.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(run.relative_to(root.resolve()))
    temporary.replace(link)


def linked(root: Path) -> Path | None:
    """What `root/latest` names now, as it stands in the link; None if there is no such link."""
    try:
        return latest(root).readlink()
    except OSError:
        return None


def point_back(run: Path, before: Path | None) -> None:
    """Undo `point_latest` for `run`, which is about to go: the link names `before` again, if that is still
    there. A link that another run has taken since is left alone.
    """
    root = run.parent.parent
    if linked(root) != run.relative_to(root):
        return
    if before is not None and (root / before).is_dir():
        point_latest(root, root / before)
    else:
        latest(root).unlink(missing_ok=True)


def write_info(run: Path, info: RunInfo) -> RunInfo:
    """Write or replace run.json in the directory `run`; returns `info` with its digest."""
    signed = replace(info, digest=_digest(info))
    write_atomically(run / RUN, json_text(signed))
    return signed


def _digest(info: RunInfo) -> str:
    fields = msgspec.to_builtins(replace(info, digest=""))
    if not info.stopped:
        del fields["stopped"]  # runs of before do not have it, and keep their digest
    return digest_of_bytes(json_bytes(fields))


def read_info(run: Path) -> RunInfo:
    """Read run.json. Raises StoreError if it is missing, damaged or of another version."""
    file = run / RUN
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise StoreError(
            f"{run} is not a run directory: it has no readable run.json ({error.strerror})",
            "name reports/latest or a directory in reports/runs; `powercut run` creates them",
        ) from error
    with read_from(file):
        schema = msgspec.json.decode(raw, type=dict[str, object]).get("schema")
        if schema != SCHEMA:
            raise other_schema(file, schema)
        info = msgspec.json.decode(raw, type=RunInfo)
        if info.digest != _digest(info):
            raise damaged(file, "its digest does not match its contents")
    return info


# --- plan.json -------------------------------------------------------------------------------


def write_plan(run: Path, plan: Plan) -> str:
    """Write plan.json in the directory `run`; returns its digest."""
    data = json_bytes(plan)
    write_atomically(run / PLAN, data)
    return digest_of_bytes(data)


def read_plan(run: Path, digest: str) -> Plan:
    """Read plan.json. Raises StoreError if it is missing or does not have this digest."""
    file = run / PLAN
    try:
        data = file.read_bytes()
    except OSError as error:
        raise damaged(file, f"it cannot be read ({error.strerror})") from error
    if digest_of_bytes(data) != digest:
        raise damaged(file, f"its digest does not match the one in {RUN}")
    with read_from(file):
        return msgspec.json.decode(data, type=Plan)
