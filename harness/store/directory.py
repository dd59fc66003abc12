"""The run directory, the link to the latest one, run.json and plan.json."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import msgspec

from harness.errors import StoreError, UsageError
from harness.host.files import is_full, json_bytes, json_text, not_made, write_atomically
from harness.plan import Plan
from harness.store.database import damaged, other_schema, read_from
from harness.store.digests import digest_of_bytes
from harness.store.layout import DELETING, PLAN, RUN, latest, runs
from harness.store.records import SCHEMA, RunInfo

_MAX_NAME = 64
"""Letters of a run's name: see `harness.workloads.applications.MAX_WORKLOAD_NAME`."""


def need_run_name(name: str) -> None:
    """Raises UsageError for a name that is not a valid file name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", name) or len(name) > _MAX_NAME:
        raise UsageError(
            f"{name!r} cannot name a run", f"use at most {_MAX_NAME} letters, digits and . _ + -"
        )


def make_directory(root: Path, name: str, started: datetime) -> Path:
    """Make `root/runs/<date>-<name>`, of a run, a series or a measurement; with a number behind it where that
    is taken. Raises UsageError as `need_run_name`, StoreError if it cannot be made.
    """
    need_run_name(name)
    with making_run(root):
        runs(root).mkdir(parents=True, exist_ok=True)
        path = first = runs(root) / f"{started:%Y%m%d-%H%M%S}-{name}"
        for number in itertools.count(2):
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                break
            path = first.with_name(f"{first.name}.{number}")
        return path.resolve()


@contextlib.contextmanager
def making_run(root: Path) -> Iterator[None]:
    """What the file system or SQLite refuses becomes a StoreError."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        elsewhere = "a folder on another disk" if is_full(error) else "a folder that you may write to"
        step = f"{'free some space, or ' * is_full(error)}name {elsewhere}"
        why = not_made(runs(root), error) if isinstance(error, OSError) else f"{runs(root)}: {error}"
        raise StoreError(f"cannot make a run directory: {why}", f"{step}: --out DIR") from error


def discard(folder: Path) -> bool:
    """Delete a folder with all that is in it; returns whether nothing is left. It has another name first:
    what a process that is killed leaves of it is taken for nothing else, and `powercut gc` sees it.
    """
    apart = folder.with_name(f"{DELETING}{folder.name}")
    try:
        apart.mkdir(exist_ok=True)
        folder.rename(apart / folder.name)
    except OSError:  # the folder above is not ours, or the disk is full
        apart = folder
    shutil.rmtree(apart, ignore_errors=True)
    return not apart.exists()


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
    for name in ("stopped", "notes"):
        if not fields[name]:
            del fields[name]  # runs of before do not have it, and keep their digest
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
