"""The folder of a run, the link to the latest one, and run.json."""

from __future__ import annotations

import os
import threading
from datetime import datetime
from pathlib import Path

import msgspec

from harness.errors import StoreError
from harness.host.files import json_text, write_atomically
from harness.store.database import damaged, other_schema
from harness.store.records import SCHEMA, RunInfo


def make_directory(root: Path, name: str, started: datetime) -> Path:
    """Make `root/runs/<date>-<name>`, with a number behind it where that is there. Raises OSError."""
    path = _unique_directory(root / "runs", f"{started:%Y%m%d-%H%M%S}-{name}")
    for folder in ("cases", "findings"):
        (path / folder).mkdir()
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
    """Make `root/latest` a relative symbolic link to `run`, without a moment in which it is missing."""
    link = root / "latest"
    temporary = link.with_name(f".{link.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(Path("runs") / run.name)
    temporary.replace(link)


def write_info(run: Path, info: RunInfo) -> None:
    """Write, or replace, the run.json of the directory `run`."""
    write_atomically(run / "run.json", json_text(info))


def read_info(run: Path) -> RunInfo:
    """What run.json says. Raises StoreError when there is none, or it is damaged or of another version."""
    file = run / "run.json"
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise StoreError(
            f"{run} is no run directory: it has no readable run.json ({error.strerror})",
            "give reports/latest or a folder of reports/runs; `powercut run` makes them",
        ) from error
    try:
        schema = msgspec.json.decode(raw, type=dict[str, object]).get("schema")
        if schema != SCHEMA:
            raise other_schema(file, schema)
        return msgspec.json.decode(raw, type=RunInfo)
    except msgspec.MsgspecError as error:
        raise damaged(file, str(error)) from error
