"""The run directory of a measurement, and the file in it that says what was measured.

`<out>/runs/<date>-<name>/`, beside those of `powercut run`. `<out>/latest` stays with the last *run*: it
names what `powercut repro` and `powercut report` read.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from harness.errors import StoreError, UsageError
from harness.host.files import write_atomically
from harness.host.trees import need_plain
from harness.measurements.results import Measurement

FILE_NAME = "measurements.json"
"""Of the file that holds a list of `Measurement`."""
_MOST = 1000


def make_directory(out: Path, name: str) -> Path:
    """Make `<out>/runs/<date>-<name>`, with a number behind it where that is taken. Raises StoreError, and
    UsageError for a name that is not a valid file name.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", name):
        raise UsageError(f"{name!r} cannot name a run", "use letters, digits and . _ + -")
    stem = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{name}"
    for number in range(_MOST):
        path = out / "runs" / (f"{stem}.{number}" if number else stem)
        with contextlib.suppress(FileExistsError):
            path.mkdir(parents=True)
            return path.resolve()
    raise StoreError(f"{out}/runs holds {_MOST} directories named {stem} already", "name another folder")


def write_measurements(run: Path, measurements: Sequence[Measurement]) -> None:
    """Replace the measurements that a run directory holds."""
    write_atomically(run / FILE_NAME, msgspec.json.format(msgspec.json.encode(measurements), indent=1))


def read_measurements(run: Path) -> list[Measurement]:
    """Those of a run directory; an empty list where it holds none."""
    need_plain(run)
    path = run / FILE_NAME
    return msgspec.json.decode(path.read_bytes(), type=list[Measurement]) if path.exists() else []
